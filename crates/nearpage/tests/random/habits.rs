//! What the operations of one run have in common, drawn from its seed: runs differ more than operations
//! within a run do.

use nearpage::testing::generate::EXTRAS;
use nearpage::testing::random::Random;
use nearpage::{Gfp, Order};

/// The habits of a run.
pub struct Habits {
    /// Orders asked for are these, with equal weights.
    orders: &'static [u8],
    /// Flags asked for are mostly these.
    flags: Vec<Gfp>,
    /// Operations, of 100, that are bulk.
    pub bulk_percent: u64,
    /// Operations, of 100, that are wrong frees.
    pub wrong_percent: u64,
    /// Frees, of 100, of any block; others are of the block taken last.
    pub free_any_percent: u64,
    /// Allocations, of 100, that have a policy or a cpuset. Without any there are no private nodes either.
    pub placed_percent: u64,
    /// Nineteen rare operations come in so many.
    pub rare_every: u64,
    /// Nanoseconds that each operation takes.
    pub tick_ns: u64,
    /// Whether most of the memory is taken at the start.
    pub ballast: bool,
}

const ORDERS: [&[u8]; 7] = [
    &[0],
    &[0, 0, 0, 0, 0, 0, 1, 2, 3],
    &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 9],
    &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    &[1, 2, 3],
    &[0, 0, 0, 9, 9, 10],
    &[0, 3],
];

const KINDS: [Gfp; 14] = [
    Gfp::KERNEL,
    Gfp::KERNEL,
    Gfp::USER,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::KERNEL.union(Gfp::RECLAIMABLE),
    Gfp::KERNEL.union(Gfp::MOVABLE),
    Gfp::ATOMIC,
    Gfp::NOWAIT,
    Gfp::NOFS.union(Gfp::RECLAIMABLE),
    Gfp::KERNEL.union(Gfp::DMA32),
    Gfp::KERNEL.union(Gfp::DMA),
    Gfp::TRANSHUGE,
    Gfp::TRANSHUGE_LIGHT,
];

impl Habits {
    /// Habits made of `random`.
    pub fn new(random: &mut Random) -> Self {
        let kinds = 1 + random.below(KINDS.len() as u64);
        Self {
            orders: random.one_of(&ORDERS),
            flags: (0..kinds).map(|_| random.one_of(&KINDS)).collect(),
            bulk_percent: random.one_of(&[0, 1, 4, 10]),
            wrong_percent: random.one_of(&[0, 1, 3]),
            free_any_percent: random.one_of(&[0, 50, 90, 100]),
            rare_every: random.one_of(&[400, 1500, 6000, 30_000]),
            tick_ns: random.one_of(&[0, 1000, 100_000, 1_000_000, 10_000_000]),
            placed_percent: random.one_of(&[0, 10, 50]),
            ballast: random.below(2) == 0,
        }
    }

    /// An order to ask for.
    pub fn order(&self, random: &mut Random) -> Order {
        Order(random.one_of(self.orders))
    }

    /// Flags to ask for.
    pub fn gfp(&self, random: &mut Random) -> Gfp {
        let flags = random.one_of(&self.flags);
        if random.below(12) == 0 { flags.union(random.one_of(&EXTRAS)) } else { flags }
    }
}
