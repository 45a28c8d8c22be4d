//! Models: named sets of rules to reproduce.

mod about;

pub use about::UnknownModel;

use crate::buddy::{FallbackModel, FallbackRules, HeldMovable};
use crate::pcp::tuning::{PcpRules, Series2023};
use crate::topology::ZoneInstances;
use crate::units::PageCount;
use crate::waiters::PageLockRules;
use crate::watermark::MovableMin;
use crate::zonelist::cache::CacheRule;
use crate::zonelist::{CpuTerm, MemorylessCpu, MemorylessLine};

/// What differs between the kernels that nearpage reproduces, and itself: data, so that no path pays for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Model {
    /// The name by which `--model` knows it.
    pub name: &'static str,
    /// How Movable zones get their `min` watermark.
    pub movable_min: MovableMin,
    /// Whether nodes without CPUs are preferred before the zonelists were first rebuilt.
    pub cpu_term_at_boot: CpuTerm,
    /// How the fallback order of a memoryless node is printed.
    pub memoryless_line: MemorylessLine,
    /// What `numa_mem_id()` answers on a memoryless node.
    pub memoryless_cpu: MemorylessCpu,
    /// How a request finds a block of another migratetype.
    pub fallback: FallbackRules,
    /// How pagesets are tuned.
    pub pcp: PcpRules,
    /// Who owns pageblocks.
    pub owners: PageblockOwners,
    /// Whether scans remember which zones were full.
    pub zonelist_cache: CacheRule,
    /// How many zones the Normal memory of a node makes.
    pub zone_instances: ZoneInstances,
    /// How locked pages are waited for.
    pub page_lock: PageLockRules,
    /// The kernel whose texts are printed.
    pub text_layout: TextLayout,
    /// What differs where nearpage departs from Linux on purpose.
    pub departures: Departures,
}

/// Who owns pageblocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PageblockOwners {
    /// Nobody: a page that is freed goes to the pageset of the CPU that frees it.
    Nobody,
    /// CPUs: a CPU takes whole pageblocks from the zone and owns them. A page that is freed goes to the pageset of the
    /// owner, whoever frees it, and pieces of owned pageblocks merge there. Only on storages that are
    /// [exact](crate::platform::Storage::EXACT): others cannot reach the lists of another CPU, and have no owners.
    Cpus,
    /// Nobody, and there is no buddy: free pages are bits in maps of their pageblocks, which every CPU sets and takes, and each
    /// CPU has a quota of how many it may take.
    Quotas,
}

/// The kernel whose `/proc` texts are printed ([`crate::vmstat`]): their lines differ by release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum TextLayout {
    /// Linux 6.1.
    Linux6_1,
    /// Linux 6.12.
    Linux6_12,
    /// Linux 6.18: the bounds of each pageset's `high` are lines of their own.
    Linux6_18,
}

/// Where nearpage departs from Linux on purpose (design 16), each with a switch back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Departures {
    /// A bulk request takes what a zone has above its watermark, and straight from the zone what the
    /// pageset does not have. Linux takes all from one zone or nothing, through the pageset.
    pub bulk_from_zone: bool,
    /// Pagesets are drained before an allocation fails, whether reclaim made progress or not; and those of a zone
    /// after its node was reclaimed, before a further node is asked.
    pub drains_before_failing: bool,
    /// As long as reclaim makes progress, a request goes on asking for it, though the host does not say
    /// how much more it could free.
    pub retries_after_progress: bool,
}

impl Departures {
    /// The same after a change: `Model::NEARPAGE.departures.with(|departures| departures.bulk_from_zone = false)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    const NONE: Self =
        Self { bulk_from_zone: false, drains_before_failing: false, retries_after_progress: false };
    const ALL: Self =
        Self { bulk_from_zone: true, drains_before_failing: true, retries_after_progress: true };
}

/// A host's pages count as movable if they were asked for as movable.
const fn fallback(model: FallbackModel) -> FallbackRules {
    FallbackRules { model, held: HeldMovable::ByWord }
}

impl Model {
    /// The same after a change: `Model::NEARPAGE.with(|model| model.zonelist_cache = CacheRule::Off)`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Linux 6.1.
    pub const LINUX_6_1: Self = Self {
        name: "linux-6.1",
        movable_min: MovableMin::Proportional,
        cpu_term_at_boot: CpuTerm::Ignored,
        memoryless_line: MemorylessLine::WithSelf,
        memoryless_cpu: MemorylessCpu::OwnNode,
        fallback: fallback(FallbackModel::Linux6_1),
        pcp: PcpRules::LINUX_6_1,
        owners: PageblockOwners::Nobody,
        zonelist_cache: CacheRule::Off,
        zone_instances: ZoneInstances::ONE,
        page_lock: PageLockRules::LINUX,
        text_layout: TextLayout::Linux6_1,
        departures: Departures::NONE,
    };

    /// Linux 6.12.
    pub const LINUX_6_12: Self = Self {
        name: "linux-6.12",
        movable_min: MovableMin::Small,
        cpu_term_at_boot: CpuTerm::Ignored,
        memoryless_line: MemorylessLine::WithoutSelf,
        memoryless_cpu: MemorylessCpu::OwnNode,
        fallback: fallback(FallbackModel::Linux6_12),
        pcp: PcpRules::LINUX_6_12,
        owners: PageblockOwners::Nobody,
        zonelist_cache: CacheRule::Off,
        zone_instances: ZoneInstances::ONE,
        page_lock: PageLockRules::LINUX,
        text_layout: TextLayout::Linux6_12,
        departures: Departures::NONE,
    };

    /// Linux 6.18: as 6.12 but for what its traces show otherwise, the drains of high orders.
    pub const LINUX_6_18: Self = Self {
        name: "linux-6.18",
        pcp: PcpRules::LINUX_6_18,
        text_layout: TextLayout::Linux6_18,
        ..Self::LINUX_6_12
    };

    /// nearpage's own rules, the default: places and quotas.
    pub const NEARPAGE: Self = Self {
        name: "nearpage",
        movable_min: MovableMin::Small,
        cpu_term_at_boot: CpuTerm::Counted,
        memoryless_line: MemorylessLine::WithoutSelf,
        memoryless_cpu: MemorylessCpu::NearestMemory,
        fallback: fallback(FallbackModel::Linux6_12),
        // How large a pageset may be; the rest is the quota's.
        pcp: PcpRules::LINUX_6_12,
        owners: PageblockOwners::Quotas,
        zonelist_cache: CacheRule::Keyed,
        zone_instances: ZoneInstances::ONE,
        page_lock: PageLockRules::NEARPAGE,
        text_layout: TextLayout::Linux6_18,
        departures: Departures::ALL,
    };

    /// Whether `/proc/zoneinfo` has the `promo` mark.
    pub fn prints_promo(&self) -> bool {
        self.text_layout >= TextLayout::Linux6_12
    }

    /// Linux 6.6: as 6.1, from which it differs in nothing that is known here but the drains of pagesets.
    pub const LINUX_6_6: Self =
        Self { name: "linux-6.6", pcp: PcpRules::LINUX_6_6, ..Self::LINUX_6_1 };

    /// Linux 6.6 with the ten patches of the 2023 series as posted. [`PcpRules::series_2023`] has the others.
    pub const SERIES_2023: Self = Self {
        name: "series-2023",
        pcp: PcpRules::series_2023(Series2023::ALL),
        ..Self::LINUX_6_6
    };

    /// Linux 6.18 with Normal zones divided into instances of about 256 GiB (pages of 4 KiB), as the RFC of 2023-05 has it.
    /// Smaller machines have one of them.
    pub const RFC_2023_ZONES: Self = Self {
        name: "rfc-2023-zones",
        zone_instances: ZoneInstances::OfPages(PageCount(256 << (30 - 12))),
        ..Self::LINUX_6_18
    };

    /// Linux 6.18 with pageblocks that CPUs own, after the RFC of 2026. What is assumed where its texts say nothing stands
    /// in the book's chapter on models.
    pub const RFC_2026_OWNED: Self =
        Self { name: "rfc-2026-owned", owners: PageblockOwners::Cpus, ..Self::LINUX_6_18 };

    /// All models, nearpage's own first.
    pub const ALL: [Self; 8] = [
        Self::NEARPAGE,
        Self::RFC_2026_OWNED,
        Self::RFC_2023_ZONES,
        Self::LINUX_6_18,
        Self::LINUX_6_12,
        Self::SERIES_2023,
        Self::LINUX_6_6,
        Self::LINUX_6_1,
    ];

    /// The model called `name`.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name == name)
    }
}
