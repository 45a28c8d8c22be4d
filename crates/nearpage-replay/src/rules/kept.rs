//! The events of a window, kept in an unnamed temporary file: who plays a trace many times reads its text once.
//!
//! ```text
//! head      kind, and what is as before: 1 byte
//! time      since the event before, zigzag
//! CPU, task unless they are as before
//! block     order and type, a byte each; its frame since the one before, zigzag; the flags unless they are as before
//! ```
//!
//! Numbers are little-endian in groups of 7 bits. An event takes 7 bytes or so, where its text takes 130; what a replay does not
//! look at is left out.

use std::io::{self, BufWriter, Read, Write};

use nearpage::{CpuId, Gfp, Order, Pfn};
use nearpage_trace::{BULK_PAGES_TOLD, Event, Scratch, TraceError, TraceEvent, read_trace};

use crate::bundle::Bundle;
use crate::error::ReplayError;
use crate::survey::Survey;
use crate::watch::Watch;

const ALLOC: u8 = 0;
const FAILED_ALLOC: u8 = 1;
const FREE: u8 = 2;
const BULK: u8 = 3;
const BULK_DONE: u8 = 4;
const OTHER: u8 = 5;
const UPKEEP: u8 = 6;
const KINDS: u8 = 0b111;
const SAME_TASK: u8 = 0b1000;
const SAME_FLAGS: u8 = 0b1_0000;

/// No event takes more bytes.
const EVENT_BYTES_MOST: usize = 4 * 10 + 3 + BULK_PAGES_TOLD * 8;
const BLOCK_BYTES: usize = 1 << 18;

/// The events that a replay plays.
#[derive(Debug)]
pub(super) struct Kept(Scratch);

/// What an event is told in terms of.
#[derive(Default)]
struct Before {
    time_ns: u64,
    task: (u32, u32),
    pfn: u64,
    flags: u64,
}

impl Kept {
    /// Reads the window of a trace.
    ///
    /// # Errors
    ///
    /// The trace cannot be read, or the file not be written; [`ReplayError::Stopped`].
    pub(super) fn of(
        bundle: &Bundle,
        survey: &Survey,
        watch: &Watch<'_>,
    ) -> Result<Kept, ReplayError> {
        let unkept = |source: io::Error| -> ReplayError {
            let input = format!("{}: a temporary file of its events", bundle.name());
            TraceError::Unreadable { input, offset: 0, source }.into()
        };
        let mut out = BufWriter::with_capacity(BLOCK_BYTES, Scratch::new().map_err(unkept)?);
        let mut window = survey.window();
        let mut before = Before::default();
        let mut packed = Vec::with_capacity(EVENT_BYTES_MOST);
        bundle.with_trace_text(watch, |name, text| {
            read_trace::<ReplayError>(name, text, |event| {
                if window.admits(&event.event) {
                    packed.clear();
                    before.pack(event, &mut packed);
                    out.write_all(&packed).map_err(unkept)?;
                }
                Ok(())
            })
        })?;
        let file = out.into_inner().map_err(|error| unkept(error.into_error()))?;
        Ok(Kept(file))
    }

    /// The length of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Makes a pass: calls `f` with each event. Its task has no name, its other kinds of events none either.
    ///
    /// # Errors
    ///
    /// The file cannot be read; [`ReplayError::Stopped`].
    pub(super) fn each(
        &self,
        input: &str,
        watch: &Watch<'_>,
        f: &mut dyn FnMut(&TraceEvent<'static>),
    ) -> Result<(), ReplayError> {
        let unread = |source: io::Error| -> ReplayError {
            if watch.is_stopped() {
                return nearpage_machine::work::Stopped.into();
            }
            let input = format!("{input}: a temporary file of its events");
            TraceError::Unreadable { input, offset: 0, source }.into()
        };
        let mut source = watch.pass(self.0.reader());
        let mut before = Before::default();
        let mut block = vec![0; BLOCK_BYTES];
        let (mut from, mut to, mut is_over) = (0, 0, false);
        loop {
            if to - from < EVENT_BYTES_MOST && !is_over {
                block.copy_within(from..to, 0);
                (from, to) = (0, to - from);
                while to < block.len() && !is_over {
                    let got = source.read(&mut block[to..]).map_err(unread)?;
                    is_over = got == 0;
                    to += got;
                }
            }
            if from == to {
                return Ok(());
            }
            let mut rest = &block[from..to];
            let event = before.unpack(&mut rest).ok_or_else(|| {
                unread(io::Error::new(io::ErrorKind::UnexpectedEof, "it was changed"))
            })?;
            from = to - rest.len();
            f(&event);
        }
    }
}

impl Before {
    fn pack(&mut self, event: &TraceEvent<'_>, out: &mut Vec<u8>) {
        let (kind, flags) = match event.event {
            Event::Alloc { pfn: Some(_), gfp, .. } => (ALLOC, Some(gfp)),
            Event::Alloc { pfn: None, gfp, .. } => (FAILED_ALLOC, Some(gfp)),
            Event::Free { .. } => (FREE, None),
            Event::Bulk { gfp, .. } => (BULK, Some(gfp)),
            Event::BulkDone { .. } => (BULK_DONE, None),
            Event::Upkeep => (UPKEEP, None),
            _ => (OTHER, None),
        };
        let task = (event.cpu.0, event.pid);
        let flags = flags.map(|gfp| u64::from(gfp.0));
        let is_same_task = task == self.task;
        let is_same_flags = flags.is_none_or(|flags| flags == self.flags);
        out.push(
            kind | if is_same_task { SAME_TASK } else { 0 }
                | if is_same_flags { SAME_FLAGS } else { 0 },
        );
        put_signed(out, event.time_ns.wrapping_sub(self.time_ns));
        if !is_same_task {
            put(out, task.0.into());
            put(out, task.1.into());
        }
        if let Some(flags) = flags.filter(|_| !is_same_flags) {
            put(out, flags);
            self.flags = flags;
        }
        (self.time_ns, self.task) = (event.time_ns, task);
        match event.event {
            Event::Alloc { pfn, order, migratetype, .. } => {
                out.extend([order.0, migratetype]);
                if let Some(pfn) = pfn {
                    self.put_pfn(out, pfn);
                }
            }
            Event::Free { pfn, order } => {
                out.push(order.0);
                self.put_pfn(out, pfn);
            }
            Event::Bulk { node, wanted, .. } => {
                put(out, node.map_or(0, |node| u64::from(node) + 1));
                put(out, wanted);
            }
            Event::BulkDone { got, pages } => {
                put(out, got);
                pages.iter().for_each(|page| out.extend(page.to_le_bytes()));
            }
            _ => {}
        }
    }

    fn put_pfn(&mut self, out: &mut Vec<u8>, pfn: Pfn) {
        put_signed(out, pfn.0.wrapping_sub(self.pfn));
        self.pfn = pfn.0;
    }

    fn unpack(&mut self, from: &mut &[u8]) -> Option<TraceEvent<'static>> {
        let head = byte(from)?;
        self.time_ns = self.time_ns.wrapping_add(signed(from)?);
        if head & SAME_TASK == 0 {
            self.task = (number(from)? as u32, number(from)? as u32);
        }
        if head & SAME_FLAGS == 0 {
            self.flags = number(from)?;
        }
        let gfp = Gfp(self.flags as u32);
        let event = match head & KINDS {
            kind @ (ALLOC | FAILED_ALLOC) => {
                let (order, migratetype) = (Order(byte(from)?), byte(from)?);
                let pfn = if kind == ALLOC { Some(self.pfn(from)?) } else { None };
                Event::Alloc { pfn, page: 0, order, migratetype, gfp }
            }
            FREE => {
                let order = Order(byte(from)?);
                Event::Free { pfn: self.pfn(from)?, order }
            }
            BULK => {
                let node = number(from)?.checked_sub(1).map(|node| node as u32);
                Event::Bulk { gfp, node, wanted: number(from)? }
            }
            BULK_DONE => {
                let got = number(from)?;
                let mut pages = [0; BULK_PAGES_TOLD];
                for page in &mut pages {
                    let (bytes, rest) = from.split_first_chunk()?;
                    *page = u64::from_le_bytes(*bytes);
                    *from = rest;
                }
                Event::BulkDone { got, pages }
            }
            OTHER => Event::Other(b""),
            UPKEEP => Event::Upkeep,
            _ => return None,
        };
        let (cpu, pid) = (CpuId(self.task.0), self.task.1);
        let time_ns = self.time_ns;
        Some(TraceEvent { offset: 0, comm: b"", pid, cpu, time_ns, event, fields: b"" })
    }

    fn pfn(&mut self, from: &mut &[u8]) -> Option<Pfn> {
        self.pfn = self.pfn.wrapping_add(signed(from)?);
        Some(Pfn(self.pfn))
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A difference, of which small ones of either sign are short.
fn put_signed(out: &mut Vec<u8>, difference: u64) {
    let signed = difference as i64;
    put(out, ((signed << 1) ^ (signed >> 63)) as u64);
}

fn byte(from: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = from.split_first()?;
    *from = rest;
    Some(byte)
}

fn number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = byte(from)?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn signed(from: &mut &[u8]) -> Option<u64> {
    let number = number(from)?;
    Some((number >> 1) ^ (number & 1).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use nearpage_machine::work::Unwatched;

    use super::*;
    use crate::replay::Replay;

    #[test]
    fn what_is_kept_is_what_the_text_says() {
        let replay = Replay::shipped();
        let bundle = replay.bundle();
        let watch = Watch::new(&Unwatched, bundle.pass_bytes(), 3);
        let survey = Survey::of(bundle, replay.start(), &watch).unwrap();
        let kept = Kept::of(bundle, &survey, &watch).unwrap();
        let mut read = Vec::new();
        kept.each("-", &watch, &mut |event| read.push(*event)).unwrap();
        let mut read = read.into_iter();
        let mut window = survey.window();
        bundle
            .with_trace_text(&watch, |name, text| {
                read_trace::<ReplayError>(name, text, |event| {
                    if window.admits(&event.event) {
                        let own = read.next().expect("an event of each line");
                        let head = (own.time_ns, own.cpu, own.pid);
                        assert_eq!(head, (event.time_ns, event.cpu, event.pid));
                        let told = match event.event {
                            Event::Alloc { pfn, order, migratetype, gfp, .. } => {
                                Event::Alloc { pfn, page: 0, order, migratetype, gfp }
                            }
                            Event::Free { .. }
                            | Event::Bulk { .. }
                            | Event::BulkDone { .. }
                            | Event::Upkeep => event.event,
                            _ => Event::Other(b""),
                        };
                        assert_eq!(own.event, told);
                    }
                    Ok(())
                })
            })
            .unwrap();
        assert_eq!(read.next(), None);
        assert!(kept.bytes() < 8 * 303_236, "{} bytes", kept.bytes());
    }

    #[test]
    fn numbers_of_all_sizes_come_back() {
        let mut out = Vec::new();
        let numbers = [0, 1, 127, 128, 1 << 20, u64::MAX / 3, 1 << 63, u64::MAX];
        numbers.iter().for_each(|&of| put(&mut out, of));
        numbers.iter().for_each(|&of| put_signed(&mut out, of));
        let mut from = &*out;
        assert!(numbers.iter().all(|&of| number(&mut from) == Some(of)));
        assert!(numbers.iter().all(|&of| signed(&mut from) == Some(of)));
        assert_eq!((number(&mut from), number(&mut &[0x80; 12][..])), (None, None));
    }

    #[test]
    fn a_pass_can_be_stopped() {
        let replay = Replay::shipped();
        let bundle = replay.bundle();
        let watch = Watch::new(&Unwatched, bundle.pass_bytes(), 2);
        let survey = Survey::of(bundle, replay.start(), &watch).unwrap();
        let kept = Kept::of(bundle, &survey, &watch).unwrap();
        let stop = |done, _| match done {
            0..400_000 => std::ops::ControlFlow::Continue(()),
            _ => std::ops::ControlFlow::Break(()),
        };
        let watch = Watch::new(&stop, kept.bytes(), 1);
        let stopped = kept.each("-", &watch, &mut |_| ()).unwrap_err();
        assert!(matches!(stopped, ReplayError::Stopped(_)), "{stopped}");
    }
}
