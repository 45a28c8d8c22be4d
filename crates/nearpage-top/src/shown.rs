//! What is shown: a sample, and one of the panes.

use nearpage_watch::{Mark, Sample, marks};

/// A pane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pane {
    /// Sizes, distances and where allocations came from.
    #[default]
    Nodes,
    /// Free pages against the marks.
    Zones,
    /// Free blocks by order.
    Blocks,
    /// What CPUs cache.
    Pagesets,
    /// Counters of the kernel.
    Events,
}

impl Pane {
    /// All panes, in the order of their keys.
    pub const ALL: [Pane; 5] =
        [Pane::Nodes, Pane::Zones, Pane::Blocks, Pane::Pagesets, Pane::Events];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Pane::Nodes => "nodes",
            Pane::Zones => "zones",
            Pane::Blocks => "blocks",
            Pane::Pagesets => "pagesets",
            Pane::Events => "events",
        }
    }
}

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    /// Where it comes from.
    pub(crate) source: &'a str,
    pub(crate) before: Option<&'a Sample>,
    pub(crate) now: &'a Sample,
    pub(crate) marks: Vec<Mark>,
}

impl<'a> Shown<'a> {
    /// A sample and the one before it, for rates; `source` names the machine.
    pub fn new(source: &'a str, before: Option<&'a Sample>, now: &'a Sample) -> Shown<'a> {
        Shown { source, before, now, marks: marks(before, now) }
    }
}
