//! What is done under a zone's lock, counted.
//!
//! An *operation* is one block linked to a list or unlinked from one, or one word written for a block: the type of a
//! pageblock where it changes. Splits and merges count through these.
//!
//! **Steps that do as much as several.** Linux takes and frees block by block, and this buddy does the same in fewer
//! steps where nobody can tell a difference. Such a step costs what it stands for:
//!
//! ```text
//! n blocks taken from one         n blocks are unlinked; each of the n + rest - 1 splits links one
//!   of which `rest` blocks stay     the step itself: 1 unlinked, `rest` linked;  2 (n - 1) more
//! n blocks freed as one           n blocks are linked; each of the n - 1 merges between them unlinks one
//!                                   the step itself: 1 linked;                    2 (n - 1) more
//! ```
//!
//! Merges with what was free before are the same in both. Where single pages are merged late, the large steps are the rule
//! itself: they cost what they do.
//!
//! Memory that comes online or goes is counted as it is done.

/// A count of operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Operations(u64);

impl Operations {
    pub const NONE: Operations = Operations(0);

    #[inline(always)]
    pub fn add(&mut self, operations: u64) {
        self.0 += operations;
    }

    pub fn take(&mut self) -> u64 {
        core::mem::take(self).0
    }
}
