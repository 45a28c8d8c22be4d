//! Cells of the matrix of reasons ([`super::reasons`]).

use crate::reason::Reason;
use crate::sync::AtomicU64;
use crate::units::NodeIndex;

/// A node's row of the matrix: [`Fallbacks`] by the node that gave.
pub(super) struct FallbackRow<'m>(&'m [AtomicU64]);

impl<'m> FallbackRow<'m> {
    /// Cells for so many nodes.
    pub(super) const fn cells(nodes: usize) -> usize {
        nodes * Reason::COUNT
    }

    /// A row from zeroes.
    pub(super) const fn new(cells: &'m [AtomicU64]) -> Self {
        Self(cells)
    }

    pub(super) fn cell(&self, to: NodeIndex, reason: Reason) -> &'m AtomicU64 {
        &self.0[to.0 as usize * Reason::COUNT + reason as usize]
    }
}
