//! What is shown: a sample, the one before it, and what was true until then.

use nearpage_watch::{CpuTraffic, History, Mark, Sample, Trends, TypeBlocks, marks};

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
    /// Where processes have their memory.
    Processes,
    /// What is wrong, what began and ended, and counters of the kernel.
    Events,
    /// The allocator of a process: only where one is watched.
    Program,
}

impl Pane {
    /// All panes, in the order of their keys.
    pub const ALL: [Pane; 7] = [
        Pane::Nodes,
        Pane::Zones,
        Pane::Blocks,
        Pane::Pagesets,
        Pane::Processes,
        Pane::Events,
        Pane::Program,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Pane::Nodes => "nodes",
            Pane::Zones => "zones",
            Pane::Blocks => "blocks",
            Pane::Pagesets => "pagesets",
            Pane::Processes => "processes",
            Pane::Events => "events",
            Pane::Program => "program",
        }
    }
}

/// What was true until now: since when something is wrong, what gets less, and what else is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Past {
    /// Marks over time.
    pub history: History,
    /// Free blocks over the last minute.
    pub trends: Trends,
    /// Lines of somebody who judges settings, as `nearpage doctor` does.
    pub advice: Vec<String>,
    /// Lines about the allocator of a process, if one is watched.
    pub program: Option<Vec<String>>,
    /// What CPUs move between zones and pagesets, or why it is not counted; `None` where nobody asked.
    pub traffic: Option<Result<Vec<CpuTraffic>, String>>,
    /// Free blocks by type when somebody asked last, in milliseconds since 1970, or why they are not known.
    pub types: Option<(u64, Result<Vec<TypeBlocks>, String>)>,
}

impl Past {
    /// Takes a sample with its marks.
    pub fn follow(&mut self, now: &Sample, marks: &[Mark]) {
        self.history.follow(now.time_ms, marks);
        self.trends.follow(now);
    }
}

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    /// Where it comes from.
    pub(crate) source: &'a str,
    /// What is said beside the time: that it is played, or recorded.
    pub(crate) status: &'a str,
    pub(crate) before: Option<&'a Sample>,
    pub(crate) now: &'a Sample,
    pub(crate) past: Option<&'a Past>,
    pub(crate) marks: Vec<Mark>,
}

impl<'a> Shown<'a> {
    /// A sample and the one before it, for rates; `source` names the machine.
    pub fn new(source: &'a str, before: Option<&'a Sample>, now: &'a Sample) -> Shown<'a> {
        let marks = marks(before, now);
        Shown { source, status: "", before, now, past: None, marks }
    }

    /// The same, with what was true until then.
    #[must_use]
    pub fn with_past(mut self, past: &'a Past) -> Shown<'a> {
        self.past = Some(past);
        self
    }

    /// The same, with words beside the time.
    #[must_use]
    pub fn with_status(mut self, status: &'a str) -> Shown<'a> {
        self.status = status;
        self
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        self.before.map_or(0, |before| self.now.time_ms.saturating_sub(before.time_ms))
    }

    /// The panes that there are.
    pub(crate) fn panes(&self) -> &'static [Pane] {
        let has_program = self.past.is_some_and(|past| past.program.is_some());
        &Pane::ALL[..Pane::ALL.len() - usize::from(!has_program)]
    }
}
