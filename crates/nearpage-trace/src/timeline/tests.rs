//! Timelines, read back: by messages of protobuf that another crate decodes, and as JSON.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use prost::Message;

use super::*;
use crate::{TraceError, read_trace, read_trace_with_frames};

/// The public definitions, as far as a timeline uses them.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Trace {
        #[prost(message, repeated, tag = "1")]
        pub packet: Vec<TracePacket>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TracePacket {
        #[prost(message, optional, tag = "6")]
        pub clock_snapshot: Option<ClockSnapshot>,
        #[prost(uint64, optional, tag = "8")]
        pub timestamp: Option<u64>,
        #[prost(uint32, optional, tag = "10")]
        pub trusted_packet_sequence_id: Option<u32>,
        #[prost(message, optional, tag = "11")]
        pub track_event: Option<TrackEvent>,
        #[prost(message, optional, tag = "12")]
        pub interned_data: Option<InternedData>,
        #[prost(uint32, optional, tag = "13")]
        pub sequence_flags: Option<u32>,
        #[prost(message, optional, tag = "59")]
        pub trace_packet_defaults: Option<Defaults>,
        #[prost(message, optional, tag = "60")]
        pub track_descriptor: Option<TrackDescriptor>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ClockSnapshot {
        #[prost(message, repeated, tag = "1")]
        pub clocks: Vec<Clock>,
        #[prost(int32, optional, tag = "2")]
        pub primary_trace_clock: Option<i32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Clock {
        #[prost(uint32, optional, tag = "1")]
        pub clock_id: Option<u32>,
        #[prost(uint64, optional, tag = "2")]
        pub timestamp: Option<u64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Defaults {
        #[prost(uint32, optional, tag = "58")]
        pub timestamp_clock_id: Option<u32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ProcessDescriptor {
        #[prost(int32, optional, tag = "1")]
        pub pid: Option<i32>,
        #[prost(string, optional, tag = "6")]
        pub process_name: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Callstack {
        #[prost(message, repeated, tag = "1")]
        pub frames: Vec<Frame>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Frame {
        #[prost(string, optional, tag = "1")]
        pub function_name: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TrackDescriptor {
        #[prost(uint64, optional, tag = "1")]
        pub uuid: Option<u64>,
        #[prost(string, optional, tag = "2")]
        pub name: Option<String>,
        #[prost(message, optional, tag = "3")]
        pub process: Option<ProcessDescriptor>,
        #[prost(uint64, optional, tag = "5")]
        pub parent_uuid: Option<u64>,
        #[prost(message, optional, tag = "8")]
        pub counter: Option<CounterDescriptor>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct CounterDescriptor {}

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct TrackEvent {
        #[prost(message, repeated, tag = "4")]
        pub debug_annotations: Vec<DebugAnnotation>,
        #[prost(int32, optional, tag = "9")]
        pub r#type: Option<i32>,
        #[prost(uint64, optional, tag = "10")]
        pub name_iid: Option<u64>,
        #[prost(uint64, optional, tag = "11")]
        pub track_uuid: Option<u64>,
        #[prost(string, optional, tag = "23")]
        pub name: Option<String>,
        #[prost(int64, optional, tag = "30")]
        pub counter_value: Option<i64>,
        #[prost(fixed64, repeated, packed = "false", tag = "47")]
        pub flow_ids: Vec<u64>,
        #[prost(fixed64, repeated, packed = "false", tag = "48")]
        pub terminating_flow_ids: Vec<u64>,
        #[prost(message, optional, tag = "55")]
        pub callstack: Option<Callstack>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct DebugAnnotation {
        #[prost(uint64, optional, tag = "1")]
        pub name_iid: Option<u64>,
        #[prost(uint64, optional, tag = "3")]
        pub uint_value: Option<u64>,
        #[prost(string, optional, tag = "6")]
        pub string_value: Option<String>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct InternedData {
        #[prost(message, repeated, tag = "2")]
        pub event_names: Vec<Interned>,
        #[prost(message, repeated, tag = "3")]
        pub debug_annotation_names: Vec<Interned>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Interned {
        #[prost(uint64, optional, tag = "1")]
        pub iid: Option<u64>,
        #[prost(string, optional, tag = "2")]
        pub name: Option<String>,
    }
}

const TEXT: &str = "\
 sh-7   [001] .....  1.000000: tracing_mark_write: nearpage: before begin
 sh-7   [001] .....  1.000001: mm_page_alloc_zone_locked: page=1 pfn=0x10 order=0 migratetype=0 percpu_refill=1
 sh-7   [001] .....  1.000002: mm_page_alloc_zone_locked: page=1 pfn=0x12 order=1 migratetype=0 percpu_refill=1
 sh-7   [000] .....  1.000003: mm_page_pcpu_drain: page=1 pfn=0x30 order=0 migratetype=0
 sh-7   [001] .....  1.000004: mm_page_alloc: page=1 pfn=0x10 order=0 migratetype=0 gfp_flags=GFP_KERNEL
 sh-7   [001] .....  1.000005: mm_page_alloc_zone_locked: page=1 pfn=0x40 order=3 migratetype=0 percpu_refill=0
 sh-7   [001] .....  1.000006: mm_page_alloc: page=(null) pfn=0x0 order=9 migratetype=1 gfp_flags=GFP_TRANSHUGE
 sh-7   [001] .....  1.000007: mm_vmscan_direct_reclaim_begin: order=9
 sh-7   [000] .....  1.000009: mm_vmscan_direct_reclaim_end: nr_reclaimed=3
 sh-7   [000] .....  1.002000: mm_page_free: page=1 pfn=0x10 order=0
 sh-7   [000] .....  1.002001: nearpage_bulk: (x+0x0/0x1) gfp=3264 nid=-1 nr=8
 sh-7   [000] .....  1.002002: nearpage_bulk_done: (x+0x0/0x1 <- y) n=4 p0=0x1
 sh-7   [000] .....  1.002003: kfree: call_site=x ptr=0xff
 sh-7   [000] .....  1.002004: mm_page_pcpu_drain: page=1 pfn=0x31 order=0 migratetype=0
";

fn drawn(format: Format, text: &str) -> (Counted, Vec<u8>) {
    let zone = ZoneFrames { name: "node 0 Normal".into(), frames: 0..0x1000 };
    let mut timeline = Timeline::new(format, Vec::new(), vec![zone]).unwrap();
    let levels = Levels { free: Some(500), min: Some(10), low: Some(12), high: None };
    timeline.levels(0, 1_000_000_000, levels);
    let timeline = RefCell::new(timeline);
    let each = |event: &TraceEvent<'_>| {
        timeline.borrow_mut().event(event);
        Ok::<(), TraceError>(())
    };
    let frame = |line: &[u8]| timeline.borrow_mut().frame(line);
    read_trace_with_frames("t", text.as_bytes(), each, frame).unwrap();
    timeline.into_inner().finish().unwrap()
}

/// What a decoder finds: instants, slices and values by the name of their track.
#[derive(Default)]
struct Found {
    packets: u64,
    tracks: u64,
    names: HashMap<u64, (String, Option<u64>)>,
    instants: BTreeMap<String, Vec<String>>,
    slices: BTreeMap<String, Vec<(u64, u64)>>,
    values: BTreeMap<String, Vec<i64>>,
    args: BTreeMap<String, u64>,
    /// By their numbers, the times from which arrows lead, and to which.
    arrows: BTreeMap<u64, [Option<u64>; 2]>,
    /// Clocks and what they read.
    clocks: Vec<(u32, u64)>,
    processes: BTreeMap<i32, String>,
    /// Outermost first.
    chains: Vec<Vec<String>>,
}

fn decoded(bytes: &[u8]) -> Found {
    let trace = proto::Trace::decode(bytes).unwrap();
    let mut found = Found { packets: trace.packet.len() as u64, ..Found::default() };
    let (mut names, mut arg_names) = (HashMap::new(), HashMap::new());
    let mut open: HashMap<u64, u64> = HashMap::new();
    for packet in trace.packet {
        assert_eq!(packet.trusted_packet_sequence_id, Some(1));
        for interned in packet.interned_data.iter().flat_map(|data| &data.event_names) {
            names.insert(interned.iid, interned.name.clone().unwrap());
        }
        for interned in packet.interned_data.iter().flat_map(|data| &data.debug_annotation_names) {
            arg_names.insert(interned.iid, interned.name.clone().unwrap());
        }
        found.clocks.extend(
            packet
                .clock_snapshot
                .iter()
                .flat_map(|snapshot| &snapshot.clocks)
                .map(|clock| (clock.clock_id.unwrap(), clock.timestamp.unwrap())),
        );
        if let Some(defaults) = packet.trace_packet_defaults {
            assert_eq!(defaults.timestamp_clock_id, Some(3), "times are CLOCK_MONOTONIC");
        }
        if let Some(track) = packet.track_descriptor {
            found.tracks += 1;
            if let Some(process) = track.process {
                found.processes.insert(process.pid.unwrap(), process.process_name.unwrap());
            }
            let known =
                found.names.insert(track.uuid.unwrap(), (track.name.unwrap(), track.parent_uuid));
            assert!(known.is_none(), "a track is described once");
        }
        let Some(event) = packet.track_event else { continue };
        let (uuid, time) = (event.track_uuid.unwrap(), packet.timestamp.unwrap());
        let (track, _) = found.names[&uuid].clone();
        let frames = event.callstack.into_iter().flat_map(|chain| chain.frames);
        let chain: Vec<String> = frames.map(|frame| frame.function_name.unwrap()).collect();
        if !chain.is_empty() {
            found.chains.push(chain);
        }
        let name = event.name_iid.map(|_| names[&event.name_iid].clone()).or(event.name);
        for arg in &event.debug_annotations {
            if let Some(value) = arg.uint_value {
                let sum = format!("{} {}", name.as_deref().unwrap(), arg_names[&arg.name_iid]);
                *found.args.entry(sum).or_default() += value;
            }
        }
        for (at, flows) in [event.flow_ids, event.terminating_flow_ids].iter().enumerate() {
            flows.iter().for_each(|flow| found.arrows.entry(*flow).or_default()[at] = Some(time));
        }
        match event.r#type.unwrap() {
            1 => assert!(open.insert(uuid, time).is_none(), "slices of a track do not overlap"),
            2 => found.slices.entry(track).or_default().push((open.remove(&uuid).unwrap(), time)),
            3 => found.instants.entry(track).or_default().push(name.unwrap()),
            4 => found.values.entry(track).or_default().push(event.counter_value.unwrap()),
            other => panic!("type {other}"),
        }
    }
    assert!(open.is_empty(), "every slice ends");
    found
}

#[test]
fn every_event_is_on_its_track() {
    let (counted, bytes) = drawn(Format::Perfetto, TEXT);
    let found = decoded(&bytes);
    assert_eq!((found.packets, found.tracks), (counted.packets, counted.tracks));
    let count =
        |of: &BTreeMap<String, Vec<String>>| of.values().map(Vec::len).sum::<usize>() as u64;
    assert_eq!(count(&found.instants), counted.instants);
    assert_eq!(found.instants["pages"], ["alloc order 0", "free order 0"]);
    assert_eq!(found.instants["refused"], ["failed order 9"]);
    assert_eq!(found.instants["markers"], ["nearpage: before begin"]);
    let second = 1_000_000_000;
    assert_eq!(found.slices["refills"], [(second + 1000, second + 2000)]);
    let drains = [(second + 3000, second + 3000), (second + 2_004_000, second + 2_004_000)];
    assert_eq!(found.slices["drains"], drains);
    assert_eq!(found.slices["bulk"], [(second + 2_001_000, second + 2_002_000)]);
    assert_eq!(found.slices["direct reclaim"], [(second + 7000, second + 9000)]);
    assert_eq!(found.processes, BTreeMap::from([(7, "sh 7".to_owned())]));
    assert_eq!(found.values["pages held"], [1, 0, 0]);
    assert_eq!(found.clocks, [(3, second), (6, second)]);
    assert_eq!(found.slices.values().map(Vec::len).sum::<usize>() as u64, counted.slices);
    assert_eq!((found.args["refill blocks"], found.args["refill pages"]), (2, 3));
    assert_eq!((found.args["drain pages"], found.args["bulk allocation got"]), (2, 4));
    assert_eq!(found.values["node 0 Normal free"], [500]);
    assert_eq!(found.values["node 0 Normal low"], [12]);
    assert_eq!(found.values["node 0 Normal taken"], [1, 0, 0]);
    assert_eq!(found.values["all CPUs pages allocated in 10 ms"], [1]);
    assert_eq!(found.values["all CPUs pages freed in 10 ms"], [1]);
    let arrow = [Some(second + 4000), Some(second + 2_000_000)];
    assert_eq!((found.arrows.into_values().collect(), counted.flows), (vec![arrow], 1));
    assert_eq!(found.values.values().map(Vec::len).sum::<usize>() as u64, counted.values);
    assert_eq!((counted.refilled_blocks, counted.drained_blocks, counted.left_out), (2, 2, 2));
    let parents = found.names.values().filter(|(name, _)| name == "pages");
    let parents = parents.map(|(_, parent)| found.names[&parent.unwrap()].0.clone());
    assert_eq!(
        parents.collect::<std::collections::BTreeSet<_>>(),
        ["CPU 0".to_owned(), "CPU 1".into()].into()
    );
}

/// Chains of ftrace come behind an event of their own, and those of perf behind the event.
#[test]
fn call_chains_are_of_the_event_before_them() {
    let ftrace = "\
 a-1 [000] ..... 5.000001: mm_page_alloc: page=1 pfn=0x31 order=0 migratetype=0 gfp_flags=0
 b-2 [001] ..... 5.000002: mm_page_free: page=1 pfn=0x32 order=0
 a-1 [000] ..... 5.000003: kernel_stack: <stack trace>
 => __alloc_pages
 => \x1b[31mevil
 b-2 [001] ..... 5.000004: mm_page_free: page=1 pfn=0x33 order=0
";
    let (counted, bytes) = drawn(Format::Perfetto, ftrace);
    let found = decoded(&bytes);
    assert_eq!(found.chains, [["\\u001b[31mevil", "__alloc_pages"]]);
    assert_eq!((counted.chains, counted.instants, counted.left_out), (1, 3, 0));
    let perf = "\
cc1 71 [000] 5.000001: kmem:mm_page_alloc: page=0x1 pfn=0x31 order=0 migratetype=0 gfp_flags=0
    ffffffff81234567 __alloc_pages+0x1a ([kernel.kallsyms])
    ffffffff81234568 do_fault+0x2b ([kernel.kallsyms])

cc1 71 [000] 5.000002: kmem:mm_page_free: page=0x1 pfn=0x31 order=0
";
    let (_, bytes) = drawn(Format::Perfetto, perf);
    assert_eq!(decoded(&bytes).chains, [["do_fault", "__alloc_pages"]]);
    let (_, bytes) = drawn(Format::Chrome, perf);
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let objects = document["traceEvents"].as_array().unwrap();
    let alloc = objects.iter().find(|object| object["name"] == "alloc order 0").unwrap();
    assert_eq!(alloc["args"]["stack"], serde_json::json!(["__alloc_pages", "do_fault"]));
}

#[test]
fn the_json_has_the_same() {
    let (counted, bytes) = drawn(Format::Chrome, TEXT);
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let objects = document["traceEvents"].as_array().unwrap();
    let count = |kind: &str| objects.iter().filter(|object| object["ph"] == kind).count() as u64;
    assert_eq!(objects.len() as u64, counted.packets);
    assert_eq!(
        [count("M"), count("i"), count("X"), count("C")],
        [counted.tracks, counted.instants, counted.slices, counted.values]
    );
    let refill = objects.iter().find(|object| object["name"] == "refill").unwrap();
    assert_eq!((refill["ts"].as_f64(), refill["dur"].as_f64()), (Some(1_000_001.0), Some(1.0)));
    assert_eq!(refill["args"]["pages"], 3);
}

/// A rate is told where pages went, and falls to nothing where none did.
#[test]
fn rates_are_of_ten_milliseconds() {
    let line = |ms: u64, pfn: u64| {
        format!(
            "a-1 [000] ..... 5.{ms:03}000: mm_page_alloc: page=1 pfn={pfn:#x} order=1 migratetype=1 gfp_flags=0\n"
        )
    };
    let text = [line(1, 2), line(9, 4), line(12, 6), line(55, 8)].concat();
    let (_, bytes) = drawn(Format::Perfetto, &text);
    assert_eq!(decoded(&bytes).values["all CPUs pages allocated in 10 ms"], [4, 2, 0, 2]);
}

/// A trace that ends within slices, and has ends without begins.
#[test]
fn what_is_open_is_ended() {
    let text = " a-1 [000] ..... 5.000001: nearpage_bulk_done: (x) n=2 p0=0x1\n \
                a-1 [000] ..... 5.000002: mm_compaction_end: x=1\n \
                a-1 [000] ..... 5.000003: mm_compaction_begin: x=1\n \
                a-1 [000] ..... 5.000004: nearpage_bulk: (x) gfp=1 nid=0 nr=2\n \
                a-1 [000] ..... 5.000005: mm_page_pcpu_drain: page=1 pfn=0x31 order=0\n";
    let (counted, bytes) = drawn(Format::Perfetto, text);
    assert_eq!(decoded(&bytes).slices.values().map(Vec::len).sum::<usize>(), 5);
    assert_eq!((counted.bulks, counted.stalls, counted.drains), (2, 2, 1));
}

/// A disk that is full is told at the end, and nothing panics meanwhile.
#[test]
fn a_full_disk_is_told() {
    #[derive(Debug)]
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for room in 10..200 {
        let Ok(mut timeline) = Timeline::new(Format::Perfetto, Full(room), Vec::new()) else {
            continue;
        };
        read_trace::<TraceError>("t", TEXT.as_bytes(), |event| {
            timeline.event(event);
            Ok(())
        })
        .unwrap();
        assert!(timeline.has_failed());
        assert_eq!(timeline.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
