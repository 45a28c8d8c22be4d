//! JSON of Chrome's trace events: one object a line, in one array. Each group of tracks is a process, each track a thread.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::items::{Args, Kind, Sink, Track, Value};

pub(super) struct Chrome<W> {
    out: W,
    objects: u64,
    /// The group of each track, by its number.
    groups: Vec<u64>,
}

impl<W: Write> Chrome<W> {
    pub fn new(mut out: W) -> io::Result<Chrome<W>> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Chrome { out, objects: 0, groups: vec![0] })
    }

    fn object(
        &mut self,
        kind: &str,
        track: Track,
        name: &str,
        more: Map<String, Json>,
    ) -> io::Result<()> {
        let mut object = Map::new();
        object.insert("name".into(), name.into());
        object.insert("ph".into(), kind.into());
        object.insert("pid".into(), self.groups[track.0 as usize].into());
        object.insert("tid".into(), track.0.into());
        object.extend(more);
        self.out.write_all(if self.objects == 0 { b"\n" } else { b",\n" })?;
        self.objects += 1;
        serde_json::to_writer(&mut self.out, &object)?;
        Ok(())
    }
}

/// Microseconds, as this format has them.
fn microseconds(time_ns: u64) -> Json {
    json!(time_ns as f64 / 1000.0)
}

fn timed(time_ns: u64, args: Json) -> Map<String, Json> {
    let mut more = Map::new();
    more.insert("ts".into(), microseconds(time_ns));
    more.insert("args".into(), args);
    more
}

fn json_of(args: &Args) -> Json {
    let value = |value: &Value| match value {
        Value::Number(number) => json!(number),
        Value::Text(text) => json!(text),
    };
    let values = args.values.iter().map(|(name, of)| ((*name).to_owned(), value(of)));
    let chain = (!args.chain.is_empty()).then(|| ("stack".to_owned(), json!(args.chain)));
    Json::Object(values.chain(chain).collect())
}

impl<W: Write> Sink<W> for Chrome<W> {
    /// The format knows no clocks.
    fn begin(&mut self, _time_ns: u64) -> io::Result<()> {
        Ok(())
    }

    fn track(
        &mut self,
        track: Track,
        name: &str,
        parent: Option<Track>,
        _kind: Kind,
    ) -> io::Result<()> {
        // Tracks come in the order of their numbers.
        self.groups.push(parent.unwrap_or(track).0);
        let kind = if parent.is_some() { "thread_name" } else { "process_name" };
        let mut more = Map::new();
        more.insert("args".into(), json!({ "name": name }));
        self.object("M", track, kind, more)
    }

    fn instant(&mut self, track: Track, name: &str, time_ns: u64, args: &Args) -> io::Result<()> {
        let mut more = timed(time_ns, json_of(args));
        more.insert("s".into(), "t".into());
        self.object("i", track, name, more)
    }

    fn slice(
        &mut self,
        track: Track,
        name: &str,
        begin_ns: u64,
        end_ns: u64,
        args: &Args,
    ) -> io::Result<()> {
        let mut more = timed(begin_ns, json_of(args));
        more.insert("dur".into(), microseconds(end_ns - begin_ns));
        self.object("X", track, name, more)
    }

    fn value(&mut self, track: Track, name: &str, time_ns: u64, value: i64) -> io::Result<()> {
        self.object("C", track, name, timed(time_ns, json!({ "pages": value })))
    }

    fn finish(mut self: Box<Self>) -> io::Result<(u64, W)> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok((self.objects, self.out))
    }
}
