//! What an allocator has counted, and the kernel's own texts for it.
//!
//! **Nothing is counted on the fast path.** Each list of a pageset knows exactly how many blocks were
//! popped and pushed since it was made ([`ListCounts`]), and a pop is an allocation, a push is a free:
//! refills and drains use the other end of the list. So the events of a zone are sums over what is there
//! anyway:
//!
//! ```text
//! for each CPU, for each list of its pageset for the zone
//!   pops                  allocations: numa_local if the zone is of the CPU's node, else numa_other
//!   pops << order         pgalloc          pushes << order       pgfree
//! of the zone (ZoneEvents; only slow paths add to them)
//!   direct_*              the same for blocks that no pageset had, or would take
//!   miss, foreign         numa_miss, numa_foreign: the scan of the zonelist knows them
//! numa_hit = allocations - numa_miss
//! ```
//!
//! A block is popped or comes straight from the buddy, never both, and so with frees; hence
//! `numa_hit + numa_miss = numa_local + numa_other`, and what was allocated and not freed is what the zone
//! manages and neither it nor a pageset has: `pgalloc - pgfree = managed - free - cached`.
//! (Definitions: `mm/page_alloc.c: zone_statistics`, 6.12. An allocation is one NUMA event whatever
//! its order, a bulk of n pages is n.)
//!
//! **Readers stop nobody** and take no lock, so while others allocate, two counters may be of two moments.
//! The texts of free lists ([`write_buddyinfo`], [`write_pagetypeinfo`], and [`write_zoneinfo`] where it needs
//! them) take the lock of one zone at a time, as the kernel does for its own.
//!
//! Not here: per-CPU differences that Linux folds into its counters now and then
//! (`vm stats threshold` is printed, since readers expect it, but no counter lags), and `numa_interleave`,
//! which is 0 as long as no policy interleaves.
//!
//! [`ListCounts`]: crate::pcp::storage::ListCounts
//! [`write_buddyinfo`]: crate::alloc::PageAllocator::write_buddyinfo
//! [`write_pagetypeinfo`]: crate::alloc::PageAllocator::write_pagetypeinfo
//! [`write_zoneinfo`]: crate::alloc::PageAllocator::write_zoneinfo

mod buddyinfo;
mod counters;
mod events;
mod items;
mod pagetypeinfo;
mod zoneinfo;

pub use counters::ZoneStats;
pub use zoneinfo::{PagesetLines, ZonePages, ZoneinfoWriter};
