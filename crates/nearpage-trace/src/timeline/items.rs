//! What a timeline is made of, and what writes it.

use std::io::{self, Write};

use nearpage_machine::escaped;

use crate::event::TraceEvent;

/// A track, numbered from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Track(pub u64);

/// What is shown beside an item.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Args {
    pub values: Vec<(&'static str, Value)>,
    /// An arrow that leads from this item to another, or ends here.
    pub flow: Option<Flow>,
    /// The call chain, innermost first.
    pub chain: Vec<String>,
}

/// What a track is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Instants and slices, or other tracks.
    Plain,
    /// Values.
    Counter,
    /// A process, by its pid.
    Process(u32),
}

/// An arrow between two items, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    From(u64),
    To(u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Value {
    Number(u64),
    Text(String),
}

impl Args {
    /// The task of an event.
    pub fn of(event: &TraceEvent<'_>) -> Args {
        let comm = String::from_utf8_lossy(event.comm).into_owned();
        Args::default().text("comm", comm).number("pid", event.pid.into())
    }

    pub fn number(mut self, name: &'static str, value: u64) -> Args {
        self.values.push((name, Value::Number(value)));
        self
    }

    pub fn flow(mut self, flow: Option<Flow>) -> Args {
        self.flow = flow;
        self
    }

    pub fn text(mut self, name: &'static str, value: String) -> Args {
        // Any user names tasks, and viewers are terminals, too.
        self.values.push((name, Value::Text(escaped(&value).into_owned())));
        self
    }
}

/// A format of timelines.
pub(super) trait Sink<W: Write> {
    /// Says when the trace begins, before anything else.
    fn begin(&mut self, time_ns: u64) -> io::Result<()>;
    fn track(
        &mut self,
        track: Track,
        name: &str,
        parent: Option<Track>,
        kind: Kind,
    ) -> io::Result<()>;
    fn instant(&mut self, track: Track, name: &str, time_ns: u64, args: &Args) -> io::Result<()>;
    fn slice(
        &mut self,
        track: Track,
        name: &str,
        begin_ns: u64,
        end_ns: u64,
        args: &Args,
    ) -> io::Result<()>;
    fn value(&mut self, track: Track, name: &str, time_ns: u64, value: i64) -> io::Result<()>;
    /// Ends the output; returns how many packets or objects it has.
    fn finish(self: Box<Self>) -> io::Result<(u64, W)>;
}
