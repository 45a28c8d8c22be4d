//! The benchmarks by name.

use std::fmt;
use std::str::FromStr;

use nearpage_linux::StorageInUse;

use crate::field::{Context, Effort, Field};
use crate::step::Step;
use crate::work::bulk::SingleLoop;
use crate::work::{bulk, cross, orders, pagelock, pairs, random, replace, slab};

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Bench {
    /// `n` pages at a time and by one call, `n` = 1 to 16384: the table of 2017.
    Bulk,
    /// A page allocated and freed, again and again.
    Pairs,
    /// 200000 pages, and 2000000, freed in the best and in a random order.
    Random,
    /// One of 200000 pages that are held, chosen at random, replaced by another.
    Replace,
    /// Pages allocated on one CPU and freed on another.
    Cross,
    /// Blocks of all orders, allocated and freed again and again.
    Orders,
    /// The slowest of many requests of order 0 and order 9, one by one, in a memory that is four fifths full.
    Tails,
    /// The same of single pages and blocks of order 9 that come and go side by side.
    Mixed,
    /// Ranges of 512 pages that stay whole while threads hold pages at random.
    Fragmentation,
    /// The first request of order 9 after many single pages were freed, and what others wait meanwhile.
    Order9,
    /// A page past 27 and past 255 full nodes, with and without the zonelist cache.
    Zonelist,
    /// The lock of a page, locked and unlocked by one thread, and by two.
    Pagelock,
    /// Objects of some sizes, held and travelling, and on nodes without memory.
    Slab,
}

impl Bench {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Bench; 13] = [
        Bench::Bulk,
        Bench::Pairs,
        Bench::Random,
        Bench::Replace,
        Bench::Cross,
        Bench::Orders,
        Bench::Tails,
        Bench::Mixed,
        Bench::Fragmentation,
        Bench::Order9,
        Bench::Zonelist,
        Bench::Pagelock,
        Bench::Slab,
    ];

    /// The name, as [`FromStr`] reads it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Pairs => "pairs",
            Self::Random => "random",
            Self::Replace => "replace",
            Self::Cross => "cross",
            Self::Orders => "orders",
            Self::Tails => "tails",
            Self::Mixed => "mixed",
            Self::Fragmentation => "fragmentation",
            Self::Order9 => "order9",
            Self::Zonelist => "zonelist",
            Self::Pagelock => "pagelock",
            Self::Slab => "slab",
        }
    }

    /// Whether it is measured without being named: it takes seconds, and addresses that most machines have.
    pub fn is_usual(self) -> bool {
        !matches!(self, Self::Mixed | Self::Fragmentation | Self::Order9 | Self::Zonelist)
    }

    /// Whether it measures other rules beside nearpage's own.
    pub fn compares_models(self) -> bool {
        let has_memories_of_models =
            matches!(self, Self::Pairs | Self::Random | Self::Replace | Self::Cross | Self::Orders);
        has_memories_of_models || self.has_one_memory()
    }

    /// Whether it has a memory of its own at a time, and none of the field.
    pub(crate) fn has_one_memory(self) -> bool {
        matches!(self, Self::Tails | Self::Mixed | Self::Fragmentation | Self::Order9)
    }

    /// Pages that the benchmark holds at once, at most; where there is no such number, those for which it was made.
    pub(crate) fn pages(self, effort: &Effort, cpus: usize) -> usize {
        match self {
            Self::Bulk => effort.batch_max + 1,
            Self::Random | Self::Replace => effort.fill_pages,
            Self::Pairs | Self::Cross | Self::Zonelist => 4096,
            Self::Orders => 1024 * cpus,
            Self::Tails | Self::Mixed => 16_384,
            Self::Order9 => 8192,
            // So many a thread.
            Self::Fragmentation => 2048 * cpus,
            Self::Pagelock => 1,
            // A page has 64 objects.
            Self::Slab => effort.objects / 64 + 4096,
        }
    }

    /// Memories of one size that are there at once: those of the field, and of `slab` those of objects beside them.
    pub(crate) fn memories(self, nodes: usize, storage: StorageInUse, models: usize) -> usize {
        if self.has_one_memory() {
            return 1;
        }
        let of_field = Field::memories_on(nodes, storage, models);
        if self == Self::Slab { of_field + slab::Memories::count_on(nodes) } else { of_field }
    }

    /// The steps on the memories of the field; none for what has memories of its own.
    pub(crate) fn steps(self, context: Context<'_>, single_loop: SingleLoop) -> Vec<Step<'_>> {
        match self {
            Self::Bulk => bulk::steps(context, single_loop),
            Self::Pairs => pairs::steps(context),
            Self::Random => random::steps(context),
            Self::Replace => replace::steps(context),
            Self::Cross => cross::steps(context),
            Self::Orders => orders::steps(context),
            Self::Pagelock => pagelock::steps(context),
            Self::Tails
            | Self::Mixed
            | Self::Fragmentation
            | Self::Order9
            | Self::Zonelist
            | Self::Slab => Vec::new(),
        }
    }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No benchmark has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0:?} is no benchmark; accepted: {accepted}", accepted = Bench::ALL.map(Bench::name).join(", "))]
pub struct UnknownBench(String);

impl FromStr for Bench {
    type Err = UnknownBench;

    fn from_str(name: &str) -> Result<Self, UnknownBench> {
        let found = Self::ALL.into_iter().find(|bench| bench.name() == name);
        found.ok_or_else(|| UnknownBench(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for bench in Bench::ALL {
            assert_eq!(bench.name().parse(), Ok(bench));
        }
        let error = "pears".parse::<Bench>().unwrap_err().to_string();
        assert!(error.starts_with("\"pears\" is no benchmark; accepted: bulk, pairs"), "{error}");
    }
}
