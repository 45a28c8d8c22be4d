//! `/proc/slabinfo` of this allocator, in the kernel's layout. `mm/slab.c: print_slabinfo_header, s_show`, 2.6.35;
//! facts 12.

use core::fmt;

use nearpage::NodeIndex;

use crate::allocator::SlabAllocator;
use crate::events::RemoteReason;
use crate::place::{Cache, CacheInfo, KmemCache};
use crate::platform::SlabPlatform;
use crate::stats::NodeStats;

const HEADER: &str = "slabinfo - version: 2.1\n\
    # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> \
    <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n";

/// What a line says of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SlabCounts {
    /// Objects that do not lie in slabs: in somebody's hands, or in a stack.
    pub active_objects: u64,
    /// All objects.
    pub objects: u64,
    /// Slabs of which some object does not lie there.
    pub active_slabs: u64,
    /// All slabs.
    pub slabs: u64,
    /// Objects on shared stacks.
    pub shared: u64,
}

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// What `slabinfo` counts of a cache.
    pub fn counts(&self, cache: &KmemCache<'m, P>) -> SlabCounts {
        Self::counts_of(cache.cache)
    }

    pub(super) fn counts_of(cache: &Cache<'m, P>) -> SlabCounts {
        let mut counts = SlabCounts::default();
        for node in cache.nodes {
            let lists = node.look();
            counts.active_objects += lists.objects_out();
            counts.slabs += lists.slabs() as u64;
            counts.active_slabs += (lists.full.len() + lists.partial.len()) as u64;
            counts.objects += lists.slabs() as u64 * lists.geometry.objects as u64;
            counts.shared += lists.shared().len() as u64;
        }
        counts
    }

    /// Writes `slabinfo`: a line a cache.
    ///
    /// # Errors
    /// Of the writer.
    pub fn write_slabinfo(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        f.write_str(HEADER)?;
        for (cache, info) in self.live_caches() {
            write_line(f, &info, &Self::counts_of(cache))?;
        }
        Ok(())
    }

    /// Writes what caches did: a line a cache, and a line for each of its nodes that has something to say.
    ///
    /// # Errors
    /// Of the writer.
    pub fn write_stats(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        for (cache, info) in self.live_caches() {
            let stats = self.stats_of(cache);
            writeln!(
                f,
                "{} alloc_hits {} alloc_misses {} free_hits {} free_misses {} refills {} flushes {}",
                info.options.name,
                stats.alloc_hits,
                stats.alloc_misses,
                stats.free_hits,
                stats.free_misses,
                stats.refills,
                stats.flushes
            )?;
            for at in 0..self.node_count() {
                let node = NodeIndex(at as u16);
                let stats = self.node_stats_of(cache, node);
                if stats != NodeStats::default() {
                    write!(f, "  node {}", self.pages.topology().node(node).id)?;
                    write_node(f, &stats)?;
                }
            }
        }
        Ok(())
    }
}

fn write_line(f: &mut dyn fmt::Write, info: &CacheInfo, counts: &SlabCounts) -> fmt::Result {
    let (geometry, tunables) = (&info.geometry, &info.tunables);
    writeln!(
        f,
        "{:<17} {:>6} {:>6} {:>6} {:>4} {:>4} : tunables {:>4} {:>4} {:>4} : slabdata {:>6} {:>6} {:>6}",
        info.options.name,
        counts.active_objects,
        counts.objects,
        geometry.size,
        geometry.objects,
        geometry.order.pages(),
        tunables.limit,
        tunables.batch,
        tunables.shared_factor,
        counts.active_slabs,
        counts.slabs,
        counts.shared
    )
}

fn write_node(f: &mut dyn fmt::Write, stats: &NodeStats) -> fmt::Result {
    write!(
        f,
        " list_locks {} alien_locks {} alien_frees {} alien_overflows {} barn_locks {} bypasses {} grown {} grow_failures {} reaped {}",
        stats.list_locks,
        stats.alien_locks,
        stats.alien_frees,
        stats.alien_overflows,
        stats.barn_locks,
        stats.bypasses,
        stats.grown,
        stats.grow_failures,
        stats.reaped
    )?;
    for reason in RemoteReason::ALL {
        write!(f, " remote_{} {}", reason.name(), stats.remote[reason as usize])?;
    }
    writeln!(
        f,
        " slabs {} objects_free {} shared {} alien {} barn {}",
        stats.slabs, stats.objects_free, stats.shared, stats.alien, stats.barn
    )
}
