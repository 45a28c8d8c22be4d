//! Reasons: why pages came from elsewhere than the zone that their request preferred.

use crate::sync::{AtomicU64, Ordering};
use crate::units::PageCount;

/// Why a page did not come from the zone that its request preferred.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reason {
    /// The preferred zone was below its watermark.
    Watermark,
    /// It had pages above its watermark, which it keeps from requests that could use a higher zone.
    LowmemReserve,
    /// It had enough pages, but no block that was large enough, or none without mixing pageblocks.
    Fragmentation,
    /// A nearer zone was not asked because the zonelist cache said that it was full.
    Hint,
    /// The nearest node is not in the policy's set.
    Policy,
    /// The nearest node is not in the cpuset.
    Cpuset,
    /// The nearest node is private, and the request did not name it.
    PrivateNode,
    /// A hard limit of the nearest node.
    Limit,
}

impl Reason {
    /// Number of reasons.
    pub const COUNT: usize = 8;
    /// All reasons.
    pub const ALL: [Reason; Self::COUNT] = [
        Self::Watermark,
        Self::LowmemReserve,
        Self::Fragmentation,
        Self::Hint,
        Self::Policy,
        Self::Cpuset,
        Self::PrivateNode,
        Self::Limit,
    ];

    /// The name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Watermark => "watermark",
            Self::LowmemReserve => "lowmem_reserve",
            Self::Fragmentation => "fragmentation",
            Self::Hint => "zonelist_hint",
            Self::Policy => "policy",
            Self::Cpuset => "cpuset",
            Self::PrivateNode => "private_node",
            Self::Limit => "limit",
        }
    }
}

/// Pages by reason: those of one node that was preferred and one that gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fallbacks([u64; Reason::COUNT]);

impl Fallbacks {
    /// What `pages` says of each reason.
    pub(crate) fn of(pages: impl Fn(Reason) -> PageCount) -> Self {
        Self(Reason::ALL.map(|reason| pages(reason).0))
    }

    /// Pages that came from elsewhere for a reason.
    pub const fn pages(&self, reason: Reason) -> PageCount {
        PageCount(self.0[reason as usize])
    }

    /// Pages that came from elsewhere.
    pub fn total(&self) -> PageCount {
        PageCount(self.0.iter().sum())
    }

    /// Counts pages that came from elsewhere for a reason.
    pub const fn record(&mut self, reason: Reason, pages: PageCount) {
        self.0[reason as usize] += pages.0;
    }
}

impl core::ops::Add for Fallbacks {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        for reason in Reason::ALL {
            self.record(reason, other.pages(reason));
        }
        self
    }
}

impl core::ops::AddAssign for Fallbacks {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl core::iter::Sum for Fallbacks {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, counts| sum + counts)
    }
}

/// Counts of one place in a program that asks for pages, in the caller's memory: requests name it in their
/// [`Placement`](crate::policy::Placement). Threads may share it.
#[derive(Debug, Default)]
pub struct CallSite {
    pages: AtomicU64,
    elsewhere: [AtomicU64; Reason::COUNT],
}

impl CallSite {
    /// A place that has asked for nothing.
    pub const fn new() -> Self {
        Self { pages: AtomicU64::new(0), elsewhere: [const { AtomicU64::new(0) }; Reason::COUNT] }
    }

    /// Pages that it got.
    pub fn pages(&self) -> PageCount {
        PageCount(self.pages.load(Ordering::Relaxed))
    }

    /// Pages of those that came from elsewhere than the nearest zone, by reason.
    pub fn fallbacks(&self) -> Fallbacks {
        Fallbacks::of(|reason| PageCount(self.elsewhere[reason as usize].load(Ordering::Relaxed)))
    }

    /// Counts pages that it got.
    pub(crate) fn note_pages(&self, pages: PageCount) {
        self.pages.fetch_add(pages.0, Ordering::Relaxed);
    }

    /// Counts pages that came from elsewhere.
    pub(crate) fn note(&self, reason: Reason, pages: PageCount) {
        self.elsewhere[reason as usize].fetch_add(pages.0, Ordering::Relaxed);
    }
}
