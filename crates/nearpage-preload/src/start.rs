//! The start, at the first allocation.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use nearpage_malloc::{Misuse, Options, StartError};

use crate::environment;
use crate::message::tell;
use crate::report;

static STATE: AtomicU32 = AtomicU32::new(0);

/// Starts the malloc if this is the first call.
#[inline(always)]
pub(crate) fn ensure() {
    if STATE.load(Ordering::Relaxed) == 0 {
        start();
    }
}

#[cold]
#[inline(never)]
fn start() {
    if STATE.swap(1, Ordering::Relaxed) != 0 {
        return;
    }
    let text = environment::bytes("NEARPAGE_MALLOC").map(str::from_utf8);
    if let Some(Err(error)) = text {
        tell(format_args!("NEARPAGE_MALLOC: {error}; all of it is left out"));
    }
    let text = text.and_then(Result::ok).unwrap_or_default();
    let (mut options, wrong) = Options::parse(text);
    if let Some(wrong) = wrong {
        tell(format_args!("NEARPAGE_MALLOC: {wrong}"));
    }
    options.on_misuse = Some(on_misuse);
    if report::wants_samples() {
        options.on_sample = Some(report::sample);
    }
    if let Err(error @ StartError::Memory(_)) = nearpage_malloc::start(options) {
        tell(format_args!("{error}"));
    }
    let absent = nearpage_malloc::absent_nodes();
    if absent != 0 {
        tell(format_args!(
            "NEARPAGE_MALLOC: nodes={} is not there and is left out; nodes of /sys/devices/system/node are accepted, or \
             those of fake=NODES",
            Nodes(absent)
        ));
    }
    report::open(text);
}

/// A set of nodes as the option takes it.
struct Nodes(u64);

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = (0..64).filter(|id| self.0 >> id & 1 == 1);
        ids.next().map_or(Ok(()), |first| write!(f, "{first}"))?;
        ids.try_for_each(|id| write!(f, "+{id}"))
    }
}

/// Tells what is wrong, and ends the program: its memory cannot be trusted.
fn on_misuse(misuse: &Misuse) {
    tell(format_args!("{misuse}"));
    // A foreign pointer may come from a library that has a malloc of its own; only the careful mode ends for it.
    let is_hardened = nearpage_malloc::started_with().is_some_and(|options| options.hardened);
    if is_hardened {
        // SAFETY: ends the process.
        unsafe { libc::abort() };
    }
}
