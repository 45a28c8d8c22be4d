//! What a replay reads: a bundle, and perhaps another trace for it.

use std::io;
use std::path::Path;

use nearpage_machine::Budget;
use nearpage_replay::Bundle;

use super::ReplayFailure;
use crate::commands::input::{STANDARD_INPUT, is_standard};

/// As named on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a> {
    /// The one that comes along, if none is named.
    pub(super) bundle: Option<&'a Path>,
    /// The bundle's own, if none is named.
    pub(super) trace: Option<&'a Path>,
    pub(super) budget: Budget,
}

impl Input<'_> {
    /// How many of its parts are read from standard input.
    pub(super) fn standard_inputs(&self) -> usize {
        self.paths().filter(|path| is_standard(path)).count()
    }

    /// Opens the bundle.
    pub(super) fn open(&self) -> Result<Bundle, ReplayFailure> {
        let bundle = match self.bundle {
            None => Bundle::shipped(),
            Some(path) if is_standard(path) => {
                Bundle::read(STANDARD_INPUT, io::stdin().lock(), &self.budget)?
            }
            Some(path) => Bundle::open(path, &self.budget)?,
        };
        Ok(match self.trace {
            None => bundle,
            Some(path) if is_standard(path) => {
                bundle.with_trace_from(STANDARD_INPUT, io::stdin().lock())?
            }
            Some(path) => bundle.with_trace(path)?,
        })
    }

    /// What is named.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        [self.bundle, self.trace].into_iter().flatten()
    }
}
