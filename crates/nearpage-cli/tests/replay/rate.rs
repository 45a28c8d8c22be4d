//! How fast traces are read: `NEARPAGE_TRACE_BYTES=2147483648 cargo test --release -p nearpage-cli --test replay rate --
//! --nocapture` prints it for so much text; without, it reads little and judges no time.

use std::io::Read;
use std::time::Instant;

use nearpage_trace::{TraceError, read_trace};

use super::{trace, unpack_shipped};

/// A text, again and again.
struct Repeated<'a> {
    text: &'a [u8],
    at: usize,
    left: usize,
}

impl Read for Repeated<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.text.len() && self.left > 0 {
            (self.at, self.left) = (0, self.left - 1);
        }
        let got = (&self.text[self.at..]).read(buffer)?;
        self.at += got;
        Ok(got)
    }
}

#[test]
fn long_traces_are_read_at_a_rate() {
    let given = std::env::var("NEARPAGE_TRACE_BYTES").ok();
    let bytes: usize = given.map_or(64 << 20, |given| given.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let text = trace(&unpack_shipped(folder.path()));
    let repeated = Repeated { text: text.as_bytes(), at: 0, left: bytes / text.len() };
    let begin = Instant::now();
    let counts = read_trace::<TraceError>("repeated", repeated, |_| Ok(())).unwrap();
    let rate = counts.events as f64 / begin.elapsed().as_secs_f64();
    println!("{} bytes, {} events, {rate:.0} a second", counts.bytes, counts.events);
    assert!(counts.bytes as usize >= bytes);
    assert_eq!((counts.other_lines, counts.lost_lines), (0, 0));
}
