//! Perfetto's protobuf, by the public definitions `trace.proto`, `trace_packet.proto`, `clock_snapshot.proto`, `track_event/*.proto`.
//!
//! ```text
//! Trace { repeated TracePacket packet = 1 }
//! TracePacket { clock_snapshot = 6, timestamp = 8, trusted_packet_sequence_id = 10, track_event = 11, interned_data = 12,
//!               sequence_flags = 13, trace_packet_defaults = 59 of { timestamp_clock_id = 58 }, track_descriptor = 60 }
//! ClockSnapshot { clocks = 1 of { clock_id = 1, timestamp = 2 }, primary_trace_clock = 2 }
//! TrackDescriptor { uuid = 1, name = 2, process = 3 of { pid = 1, process_name = 6 }, parent_uuid = 5, counter = 8 }
//! TrackEvent { debug_annotations = 4, type = 9, name_iid = 10, track_uuid = 11, counter_value = 30, flow_ids = 47,
//!              terminating_flow_ids = 48, callstack = 55 of { frames = 1 of { function_name = 1 } } }
//! InternedData { event_names = 2, debug_annotation_names = 3 } of { iid = 1, name = 2 }
//! DebugAnnotation { name_iid = 1, uint_value = 3, string_value = 6 }
//! ```
//!
//! Names are written once, and by number from then on. Times are those of the trace, as nanoseconds of its clock, which counts as
//! `CLOCK_MONOTONIC`: `nearpage record` takes that one. The time since boot reads the same, as without a suspend.

use std::collections::HashMap;
use std::io::{self, Write};

use super::items::{Args, Flow, Kind, Sink, Track, Value};

/// All packets are of one sequence, which numbers its names.
const SEQUENCE: u64 = 1;
/// Names that are kept: markers have any number of them.
const NAMES_MAX: usize = 1 << 16;

const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
/// Of `builtin_clock.proto`.
const MONOTONIC: u64 = 3;
const BOOTTIME: u64 = 6;

#[derive(Clone, Copy)]
enum Type {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

pub(super) struct Perfetto<W> {
    out: W,
    packets: u64,
    names: HashMap<String, u64>,
    arg_names: HashMap<&'static str, u64>,
    /// Names that the next packet has to bring.
    fresh: Message,
    packet: Message,
}

/// A message as it is written: fields behind each other.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn fixed(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }
}

impl<W: Write> Perfetto<W> {
    pub fn new(out: W) -> io::Result<Perfetto<W>> {
        let (names, arg_names) = (HashMap::new(), HashMap::new());
        let (fresh, packet) = (Message::default(), Message::default());
        let mut perfetto = Perfetto { out, packets: 0, names, arg_names, fresh, packet };
        // Readers begin a new table of names here.
        perfetto.packet.number(13, STATE_CLEARED);
        let mut defaults = Message::default();
        defaults.number(58, MONOTONIC);
        perfetto.packet.message(59, &defaults);
        perfetto.write()?;
        Ok(perfetto)
    }

    /// Writes the packet that was filled.
    fn write(&mut self) -> io::Result<()> {
        self.packet.number(10, SEQUENCE);
        if !self.fresh.0.is_empty() {
            self.packet.message(12, &self.fresh);
            self.fresh.0.clear();
        }
        let mut head = Message::default();
        head.varint(1 << 3 | 2);
        head.varint(self.packet.0.len() as u64);
        self.out.write_all(&head.0)?;
        self.out.write_all(&self.packet.0)?;
        self.packet.0.clear();
        self.packets += 1;
        Ok(())
    }

    fn name(&mut self, name: &str) -> Option<u64> {
        if let Some(number) = self.names.get(name) {
            return Some(*number);
        }
        if self.names.len() >= NAMES_MAX {
            return None;
        }
        let number = self.names.len() as u64 + 1;
        self.names.insert(name.to_owned(), number);
        self.fresh.message(2, &interned(number, name));
        Some(number)
    }

    fn arg_name(&mut self, name: &'static str) -> u64 {
        let next = self.arg_names.len() as u64 + 1;
        let number = *self.arg_names.entry(name).or_insert(next);
        if number == next {
            self.fresh.message(3, &interned(number, name));
        }
        number
    }

    fn event(
        &mut self,
        track: Track,
        kind: Type,
        name: Option<&str>,
        time_ns: u64,
        args: Option<&Args>,
        value: Option<i64>,
    ) -> io::Result<()> {
        let mut event = Message::default();
        event.number(9, kind as u64);
        event.number(11, track.0);
        if let Some(name) = name {
            match self.name(name) {
                Some(number) => event.number(10, number),
                None => event.bytes(23, name.as_bytes()),
            }
        }
        for (name, value) in args.into_iter().flat_map(|args| &args.values) {
            let mut annotation = Message::default();
            annotation.number(1, self.arg_name(name));
            match value {
                Value::Number(value) => annotation.number(3, *value),
                Value::Text(text) => annotation.bytes(6, text.as_bytes()),
            }
            event.message(4, &annotation);
        }
        if let Some(value) = value {
            event.number(30, value as u64);
        }
        match args.and_then(|args| args.flow) {
            Some(Flow::From(number)) => event.fixed(47, number),
            Some(Flow::To(number)) => event.fixed(48, number),
            None => {}
        }
        let chain = args.map_or(&[][..], |args| &args.chain);
        if !chain.is_empty() {
            let mut callstack = Message::default();
            // The outermost comes first.
            for function in chain.iter().rev() {
                let mut frame = Message::default();
                frame.bytes(1, function.as_bytes());
                callstack.message(1, &frame);
            }
            event.message(55, &callstack);
        }
        self.packet.number(8, time_ns);
        self.packet.number(13, NEEDS_STATE);
        self.packet.message(11, &event);
        self.write()
    }
}

fn interned(number: u64, name: &str) -> Message {
    let mut message = Message::default();
    message.number(1, number);
    message.bytes(2, name.as_bytes());
    message
}

impl<W: Write> Sink<W> for Perfetto<W> {
    fn begin(&mut self, time_ns: u64) -> io::Result<()> {
        let mut snapshot = Message::default();
        for clock in [MONOTONIC, BOOTTIME] {
            let mut reading = Message::default();
            reading.number(1, clock);
            reading.number(2, time_ns);
            snapshot.message(1, &reading);
        }
        snapshot.number(2, MONOTONIC);
        self.packet.message(6, &snapshot);
        self.write()
    }

    fn track(
        &mut self,
        track: Track,
        name: &str,
        parent: Option<Track>,
        kind: Kind,
    ) -> io::Result<()> {
        let mut descriptor = Message::default();
        descriptor.number(1, track.0);
        descriptor.bytes(2, name.as_bytes());
        if let Some(parent) = parent {
            descriptor.number(5, parent.0);
        }
        match kind {
            Kind::Plain => {}
            Kind::Counter => descriptor.message(8, &Message::default()),
            Kind::Process(pid) => {
                let mut process = Message::default();
                process.number(1, pid.into());
                process.bytes(6, name.as_bytes());
                descriptor.message(3, &process);
            }
        }
        self.packet.message(60, &descriptor);
        self.write()
    }

    fn instant(&mut self, track: Track, name: &str, time_ns: u64, args: &Args) -> io::Result<()> {
        self.event(track, Type::Instant, Some(name), time_ns, Some(args), None)
    }

    fn slice(
        &mut self,
        track: Track,
        name: &str,
        begin_ns: u64,
        end_ns: u64,
        args: &Args,
    ) -> io::Result<()> {
        self.event(track, Type::Begin, Some(name), begin_ns, Some(args), None)?;
        self.event(track, Type::End, None, end_ns, None, None)
    }

    fn value(&mut self, track: Track, _name: &str, time_ns: u64, value: i64) -> io::Result<()> {
        self.event(track, Type::Counter, None, time_ns, None, Some(value))
    }

    fn finish(mut self: Box<Self>) -> io::Result<(u64, W)> {
        self.out.flush()?;
        Ok((self.packets, self.out))
    }
}
