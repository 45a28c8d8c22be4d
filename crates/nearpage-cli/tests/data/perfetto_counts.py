"""Counts what a timeline has, by the protobuf definitions of the package perfetto: `perfetto_counts.py FILE`."""
import collections
import json
import sys

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

trace = Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
counts = collections.Counter(packets=len(trace.packet))
tracks, names, open_slices = {}, {}, collections.Counter()
for packet in trace.packet:
    for name in packet.interned_data.event_names:
        names[name.iid] = name.name
    if packet.HasField("track_descriptor"):
        counts["tracks"] += 1
        tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
    if not packet.HasField("track_event"):
        continue
    event = packet.track_event
    track = tracks[event.track_uuid]
    name = names.get(event.name_iid, "")
    if event.type == TrackEvent.TYPE_SLICE_BEGIN:
        counts["slices"] += 1
        counts[track] += 1
        open_slices[event.track_uuid] += 1
        for arg in event.debug_annotations:
            if arg.HasField("uint_value"):
                counts["%s arg %d" % (track, arg.name_iid)] += arg.uint_value
    elif event.type == TrackEvent.TYPE_SLICE_END:
        open_slices[event.track_uuid] -= 1
    elif event.type == TrackEvent.TYPE_INSTANT:
        counts["instants"] += 1
        counts[name.split(" ")[0]] += track == "pages"
    elif event.type == TrackEvent.TYPE_COUNTER:
        counts["values"] += 1
counts["open"] = sum(map(abs, open_slices.values()))
json.dump(counts, sys.stdout)
