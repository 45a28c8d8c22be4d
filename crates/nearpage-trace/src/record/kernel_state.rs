//! The kernel's own state at the begin and the end of a recording: which frames its lists have, in their order.
//!
//! It is read while tracing is on, so what moves meanwhile is in the trace, and each list has the time at which it was read.

use std::time::Duration;

use nearpage_kcore::{KcoreError, Kernel, Limits, State};

/// Blocks of lists that are read: some 20 MB of text. A machine of 1 TiB has so many if all of its memory is free in pieces of
/// 512 KiB; one with more is recorded without.
const LIMITS: Limits = Limits { blocks: 2_000_000, time: Duration::from_secs(5) };

/// When.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    Before,
    After,
}

impl Moment {
    /// The name of the capture beside which it is kept.
    pub(super) fn name(self) -> &'static str {
        match self {
            Moment::Before => "before",
            Moment::After => "after",
        }
    }
}

/// A kernel whose memory can be read, and what was read of it; or why not.
pub(super) struct KernelStates {
    kernel: Result<Kernel, String>,
    read: Vec<(Moment, State)>,
}

impl KernelStates {
    /// Opens the kernel's memory, and takes a first look: what it takes to read it has been touched then.
    pub(super) fn open() -> KernelStates {
        let opened = Kernel::running().and_then(|kernel| Ok((read(&kernel)?, kernel)));
        let kernel = match opened {
            Ok((State { cut: Some(why), .. }, _)) => Err(too_long(&why)),
            Ok((_, kernel)) => Ok(kernel),
            Err(error) => Err(error.to_string()),
        };
        KernelStates { kernel, read: Vec::new() }
    }

    pub(super) fn is_readable(&self) -> bool {
        self.kernel.is_ok()
    }

    /// Reads it.
    pub(super) fn take(&mut self, moment: Moment) {
        let Ok(kernel) = &self.kernel else { return };
        match read(kernel) {
            Ok(State { cut: Some(why), .. }) => self.kernel = Err(too_long(&why)),
            Ok(state) => self.read.push((moment, state)),
            Err(error) => self.kernel = Err(error.to_string()),
        }
    }

    /// Begins a window: of the states at the begin of one, the last is the former's.
    pub(super) fn next_window(&mut self) {
        let kept = usize::from(self.is_readable());
        self.read.drain(..self.read.len().saturating_sub(kept));
    }

    /// Files for the bundle, and what it lacks.
    pub(super) fn finish(mut self) -> (Vec<(String, Vec<u8>)>, Vec<String>) {
        // A bundle begins with the former window, if there was one.
        self.read.dedup_by_key(|(moment, _)| *moment);
        let file = |(moment, state): (Moment, State)| {
            let text = serde_json::to_vec(&state).expect("texts and numbers");
            (format!("{}/kernel.json", moment.name()), text)
        };
        let files = self.read.into_iter().map(file).collect();
        let lack = |why| format!("no state of the kernel, from which a replay would begin: {why}");
        (files, self.kernel.err().map(lack).into_iter().collect())
    }
}

fn read(kernel: &Kernel) -> Result<State, KcoreError> {
    kernel.state_within(LIMITS)
}

fn too_long(why: &str) -> String {
    format!("its lists are too long, reading them ended {why}")
}
