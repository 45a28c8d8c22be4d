//! Who takes part, and where.

use std::time::Duration;

use nearpage::Model;
use nearpage::rules::{PageLockRules, WaitTables, WaitersBit};
use nearpage_linux::internals::BareLists;
use nearpage_linux::{Memory, MemoryBuilder, MemoryError, StorageInUse};

use crate::measure::Clock;
use crate::threads::Cpus;

/// How much is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Rounds that count.
    pub rounds: usize,
    /// How long a pair is repeated in a round, at least.
    pub pair: Duration,
    /// How long pages are allocated by batches in a round, and how long they are freed, at least.
    pub batch: Duration,
    /// How long pages travel in a round, at least.
    pub cross: Duration,
    /// Pages held by `random` and `replace`, by all threads together.
    pub fill_pages: usize,
    /// Calls of each thread in a round of `tails`.
    pub calls: usize,
    /// Calls of each thread in a round of `mixed`, of which few are of blocks.
    pub mixed_calls: usize,
    /// Objects held by `slab`.
    pub objects: usize,
    /// The largest batch of `bulk`.
    pub batch_max: usize,
}

impl Effort {
    /// What `bench` does if nothing is said.
    pub const FULL: Effort = Effort {
        rounds: 5,
        pair: Duration::from_millis(3),
        batch: Duration::from_millis(5),
        cross: Duration::from_millis(20),
        fill_pages: 200_000,
        calls: 200_000,
        mixed_calls: 500_000,
        objects: 1_000_000,
        batch_max: 16_384,
    };
    /// What `bench --quick` does.
    pub const QUICK: Effort = Effort {
        rounds: 5,
        pair: Duration::from_micros(500),
        batch: Duration::from_micros(500),
        cross: Duration::from_millis(3),
        fill_pages: 20_000,
        calls: 20_000,
        mixed_calls: 50_000,
        objects: 50_000,
        batch_max: 16_384,
    };
}

/// nearpage in its variants, and its limit.
pub struct Field {
    /// As everybody gets it: `nearpage`.
    pub nearpage: Memory,
    /// `nearpage-locked`, if that is another storage than nearpage's.
    pub locked: Option<Memory>,
    /// `nearpage-hardened`.
    pub hardened: Memory,
    /// Other rules, by the model's name.
    pub models: Vec<(&'static str, Memory)>,
    /// Page locks under other rules, by name.
    pub page_locks: Vec<(&'static str, Memory)>,
    /// `rseq-limit`.
    pub limit: Option<BareLists>,
    /// Who does not take part, and why.
    pub absent: Vec<String>,
}

/// Numbers on a list of `rseq-limit`; a pair needs one.
const LIMIT_ENTRIES: u32 = 64;

/// Rules that are not nearpage's own.
const PAGE_LOCK_RULES: [(&str, PageLockRules); 3] = [
    ("nearpage-global", PageLockRules { tables: WaitTables::Global, ..PageLockRules::NEARPAGE }),
    ("nearpage-per-zone", PageLockRules { tables: WaitTables::PerZone, ..PageLockRules::NEARPAGE }),
    (
        "nearpage-no-waiters-bit",
        PageLockRules { waiters_bit: WaitersBit::Off, ..PageLockRules::NEARPAGE },
    ),
];
/// Enough for a page.
const PAGE_LOCK_BYTES: u64 = 16 << 20;

impl Field {
    /// Makes memories of `bytes` on each node, each beginning as `begin` says, for nearpage and for each of the models.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn new(
        begin: impl Fn() -> MemoryBuilder,
        bytes: u64,
        cpus: &Cpus,
        models: &[Model],
    ) -> Result<Self, MemoryError> {
        let builder = || begin().bytes_per_node(bytes);
        let nearpage = builder().build()?;
        let mut absent = Vec::new();
        let locked = match nearpage.storage() {
            StorageInUse::Rseq => Some(builder().use_rseq(false).build()?),
            storage => {
                absent.push(format!("nearpage-locked: nearpage itself is {storage}"));
                None
            }
        };
        let limit = BareLists::new(cpus.last().0 + 1, LIMIT_ENTRIES)
            .inspect_err(|why| absent.push(format!("rseq-limit: {why}")))
            .ok();
        let hardened = builder().hardened(true).build()?;
        let with_rules = |&model: &Model| Ok((model.name, builder().model(model).build()?));
        let models = models.iter().map(with_rules).collect::<Result<_, MemoryError>>()?;
        let page_locks = PAGE_LOCK_RULES.into_iter().map(|(name, page_lock)| {
            let model = Model::NEARPAGE.with(|changed| changed.page_lock = page_lock);
            let builder = begin().bytes_per_node(PAGE_LOCK_BYTES).model(model);
            builder.build().map(|memory| (name, memory))
        });
        let page_locks = page_locks.collect::<Result<_, _>>()?;
        Ok(Self { nearpage, locked, hardened, models, page_locks, limit, absent })
    }

    /// Memories of `bytes` that [`new`](Self::new) makes for so many models, each node's counted for itself.
    pub fn memories_on(nodes: usize, storage: StorageInUse, models: usize) -> usize {
        nodes * (models + if storage == StorageInUse::Rseq { 3 } else { 2 })
    }

    /// The variants by their names, and the models.
    pub fn memories(&self) -> impl Iterator<Item = (&'static str, &Memory)> {
        let locked = self.locked.as_ref().map(|locked| ("nearpage-locked", locked));
        [("nearpage", &self.nearpage), ("nearpage-hardened", &self.hardened)]
            .into_iter()
            .chain(locked)
            .chain(self.models.iter().map(|(name, memory)| (*name, memory)))
    }
}

/// What every step knows.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Who takes part.
    pub field: &'a Field,
    /// Where.
    pub cpus: &'a Cpus,
    /// How much.
    pub effort: Effort,
    /// By which clock.
    pub clock: Clock,
}
