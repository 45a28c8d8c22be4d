//! How much the caches of objects keep: by the size of an object. `mm/slab.c: enable_cpucache`, 2.6.35; facts 9.1.
//! Sheaves: facts 9.9.

use crate::rules::SlabRules;

/// Objects of a refill or a flush at most.
pub const BATCH_MAX: usize = 60;
/// Objects of a CPU's stack at most.
pub const LIMIT_MAX: u32 = 120;
/// Batches of a node's shared stack.
const SHARED_FACTOR: u32 = 8;
/// Objects of a node's shared stack at most.
pub const SHARED_MAX: usize = SHARED_FACTOR as usize * BATCH_MAX;
/// Objects of an alien stack. `mm/slab.c: alloc_alien_cache`.
pub const ALIEN_MAX: usize = 12;
/// Objects of a refill of a stack that nobody took from lately. `mm/slab.c: BATCHREFILL_LIMIT`.
pub const BATCH_IDLE: u32 = 16;

/// Objects of a sheaf at most.
pub const SHEAF_MAX: usize = BATCH_MAX;
/// Full sheaves of a barn at most.
pub const BARN_SHEAVES: usize = 10;

/// What a cache keeps ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tunables {
    /// Objects of a CPU's stack at most.
    pub limit: u32,
    /// Objects of a refill or a flush.
    pub batch: u32,
    /// Batches that a node's shared stack holds; 0 is none.
    pub shared_factor: u32,
    /// Objects of an alien stack; 0 is none.
    pub alien_limit: u32,
    /// Full sheaves of a barn; 0 is none. A sheaf has a batch of objects, and a stack is two sheaves.
    pub barn_sheaves: u32,
}

impl Tunables {
    /// The tunables for objects of `size` bytes on a machine that may have so many CPUs and nodes.
    pub const fn of(
        rules: SlabRules,
        size: u32,
        cpus: usize,
        nodes: usize,
        page_bytes: u32,
    ) -> Tunables {
        if rules.has_sheaves() {
            let (batch, barn_sheaves) = (sheaf_of(size), BARN_SHEAVES as u32);
            return Tunables {
                limit: 2 * batch,
                batch,
                shared_factor: 0,
                alien_limit: 0,
                barn_sheaves,
            };
        }
        let limit = match size {
            131_073.. => 1,
            4097.. => 8,
            1025.. => 24,
            257.. => 54,
            _ => LIMIT_MAX,
        };
        let shared_factor = if size <= page_bytes && cpus > 1 { SHARED_FACTOR } else { 0 };
        let alien_limit = match (nodes, limit) {
            (..=1, _) => 0,
            (_, 1) => 1,
            _ => ALIEN_MAX as u32,
        };
        Tunables { limit, batch: batch_of(limit), shared_factor, alien_limit, barn_sheaves: 0 }
    }

    /// Objects of a node's shared stack at most.
    pub const fn shared_limit(&self) -> u32 {
        self.shared_factor * self.batch
    }

    /// The most objects that all stacks keep, on a machine of so many CPUs and nodes.
    pub const fn most_kept(&self, cpus: u64, nodes: u64) -> u64 {
        let aliens = nodes * nodes.saturating_sub(1) * self.alien_limit as u64;
        let barns = nodes * self.barn_sheaves as u64 * self.batch as u64;
        cpus * self.limit as u64 + nodes * self.shared_limit() as u64 + aliens + barns
    }

    /// These tunables, shrunk by `part` of `whole`.
    pub fn scaled(&self, part: u64, whole: u64) -> Tunables {
        if part >= whole {
            return *self;
        }
        let scale = |objects: u32| (objects as u64 as u128 * part as u128 / whole as u128) as u32;
        if self.barn_sheaves > 0 {
            // Half of an odd limit would be no whole sheaf.
            let batch = scale(self.batch);
            let barn_sheaves = if batch > 0 { self.barn_sheaves } else { 0 };
            return Tunables { limit: 2 * batch, batch, barn_sheaves, ..*self };
        }
        let limit = scale(self.limit);
        let batch = batch_of(limit);
        // Whole batches, of the smaller size, within the smaller room.
        let shared = scale(self.shared_limit());
        let shared_factor = shared.checked_div(batch).unwrap_or(0);
        Tunables { limit, batch, shared_factor, alien_limit: scale(self.alien_limit), ..*self }
    }

    /// Free objects that a node keeps in slabs. `mm/slab.c: kmem_list3.free_limit`.
    pub const fn free_limit(&self, cpus_of_node: u32, objects_of_slab: u32) -> u32 {
        (1 + cpus_of_node) * self.batch + objects_of_slab
    }

    /// Objects that a round of reaping takes from a stack of `limit` that holds `held`, and that nobody took
    /// from since the last round. `mm/slab.c: drain_array`; facts 9.5.
    pub const fn reaped(limit: u32, held: u32) -> u32 {
        let fifth = limit.div_ceil(5);
        if fifth > held { held.div_ceil(2) } else { fifth }
    }
}

/// The part of `whole` that all tunables are to be [scaled](Tunables::scaled) by, so that they keep as much as there is
/// room for and no more: more than `room`, since each limit is rounded down for itself. `kept` says what they keep if
/// scaled by a part.
pub fn part_for(room: u64, whole: u64, kept: impl Fn(u64) -> u64) -> u64 {
    if room >= whole {
        return whole;
    }
    let (mut fits, mut too_much) = (room, whole);
    while too_much - fits > 1 {
        let middle = fits.midpoint(too_much);
        if kept(middle) <= room {
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    fits
}

/// Objects of a sheaf: half of what SLUB before 7.0 kept on a CPU's partial slabs, rounded up so that the array with its
/// head of 32 bytes fills a size class of kmalloc.
const fn sheaf_of(size: u32) -> u32 {
    match size {
        4096.. => 4,
        1024.. => 12,
        256.. => 28,
        _ => 60,
    }
}

const fn batch_of(limit: u32) -> u32 {
    limit.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_the_size() {
        let row = |size| {
            let tunables = Tunables::of(SlabRules::Slab2010, size, 4, 2, 4096);
            (tunables.limit, tunables.batch, tunables.shared_factor, tunables.alien_limit)
        };
        assert_eq!(row(8), (120, 60, 8, 12));
        assert_eq!(row(256), (120, 60, 8, 12));
        assert_eq!(row(257), (54, 27, 8, 12));
        assert_eq!(row(1024), (54, 27, 8, 12));
        assert_eq!(row(1025), (24, 12, 8, 12));
        assert_eq!(row(4096), (24, 12, 8, 12));
        assert_eq!(row(4097), (8, 4, 0, 12));
        assert_eq!(row(131_072), (8, 4, 0, 12));
        assert_eq!(row(131_073), (1, 1, 0, 1));
    }

    #[test]
    fn one_cpu_shares_nothing_and_one_node_has_no_aliens() {
        let tunables = Tunables::of(SlabRules::Slab2010, 64, 1, 1, 4096);
        assert_eq!((tunables.shared_limit(), tunables.alien_limit), (0, 0));
        assert_eq!(tunables.free_limit(1, 59), 2 * 60 + 59);
    }

    #[test]
    fn a_stack_is_two_sheaves() {
        let row = |size| {
            let tunables = Tunables::of(SlabRules::Sheaves7_0, size, 4, 2, 4096);
            assert_eq!((tunables.shared_limit(), tunables.alien_limit), (0, 0));
            (tunables.limit, tunables.batch, tunables.barn_sheaves)
        };
        assert_eq!([8, 255].map(row), [(120, 60, 10); 2]);
        assert_eq!([256, 1023].map(row), [(56, 28, 10); 2]);
        assert_eq!([1024, 4095].map(row), [(24, 12, 10); 2]);
        assert_eq!([4096, 200_000].map(row), [(8, 4, 10); 2]);
    }

    #[test]
    fn a_round_of_reaping_takes_a_fifth_or_half() {
        assert_eq!(Tunables::reaped(120, 120), 24);
        assert_eq!(Tunables::reaped(120, 24), 24);
        assert_eq!(Tunables::reaped(120, 23), 12);
        assert_eq!(Tunables::reaped(120, 1), 1);
        assert_eq!(Tunables::reaped(120, 0), 0);
    }

    #[test]
    fn what_is_scaled_keeps_within_its_part() {
        let sizes = [8, 512, 4096, 8192, 200_000];
        for (rules, size) in
            SlabRules::ALL.into_iter().flat_map(|rules| sizes.map(|size| (rules, size)))
        {
            let tunables = Tunables::of(rules, size, 8, 4, 4096);
            let whole = tunables.most_kept(8, 4);
            for part in [0, 1, whole / 7, whole / 2, whole, whole + 1] {
                let kept = tunables.scaled(part, whole).most_kept(8, 4);
                assert!(kept <= part, "{size} bytes: {kept} of {part} of {whole}");
            }
        }
    }
}
