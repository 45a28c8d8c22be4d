//! nearpage itself: `nearpage`, `nearpage-locked`, `nearpage-hardened`, the bound `rseq-limit`, and
//! the facts that are not a time per page.

use crate::check::Fact;
use crate::peers::Entry;

/// nearpage's variants and the bare restartable sequence, on a node of 2 GiB each.
pub fn all() -> Vec<Entry> {
    Vec::new()
}

/// [`Fact::ONLINE_64G_MS`] and [`Fact::ONLINE_64G_RESIDENT_MIB`].
pub fn facts() -> Vec<Fact> {
    Vec::new()
}

/// The pageset storage in use: `rseq` or `locked`.
pub fn storage() -> Option<&'static str> {
    None
}
