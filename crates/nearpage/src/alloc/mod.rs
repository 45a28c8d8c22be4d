//! The entry: allocate and free.
//!
//! In call order: [`fast`] is the whole life of a page while its CPU's pageset has pages and
//! the zone has room; [`refill`] and [`drain`] move pages between a pageset and its zone, as the rules say, [`taken`] counts who takes another CPU's; [`scan`] walks
//! the zonelist, with the [`hints`] of its cache; [`placed`] is what has a policy or a cpuset; [`slow`] is the
//! ladder when nothing was found, of which [`stalls`] counts the steps, [`balance`] what reclaim and it agree on; [`bulk`] is many pages at once;
//! [`reasons`] counts why pages came from elsewhere, [`report`] tells why a request failed; [`waiters`] is what pages know of page locks; [`hold`] keeps settings
//! still from outside; [`build`] makes all of it out of the caller's memory; [`settings`] keeps watermarks and
//! zonelists, [`limits`] how much may be in use; memory comes and goes by [`online`] and [`offline`], CPUs by [`cpus`],
//! and [`plugged`] counts it.
//!
//! Locks: a CPU's pagesets before a zone's lock; the lock of [`settings`] before zone locks. No two zone
//! locks are held at once.

mod allocator;
mod arrange;
mod balance;
mod build;
mod build_error;
mod bulk;
mod bulk_free;
mod cached;
mod carve;
mod config;
mod contiguous;
mod cpus;
mod drain;
mod fallbacks;
mod fast;
mod free;
mod hints;
mod hold;
mod lend;
mod limits;
mod near;
mod notes;
mod offline;
mod online;
mod online_map;
mod pageblocks;
mod parts;
mod placed;
mod plan;
mod plugged;
mod reasons;
mod refill;
mod report;
mod request;
mod scan;
mod settings;
mod slow;
mod stalls;
mod state;
mod taken;
mod waiters;
mod walk;
mod wanted;

use core::ops::Range;

use crate::frame::{Word, WordCell};
use crate::host::Platform;
use crate::pcp::list_index;
use crate::pcp::pageset::{OnCpu, Pageset, PagesetRules};
pub use crate::reason::{Fallbacks, Reason};
use crate::rule_set::{ByModel, RuleParts, rules};
use crate::units::{Order, PageCount, Pfn, ZoneIndex};
use crate::watermark::AllocFlags;
use crate::zone::{Zone, ZoneGuard, ZoneRules};
pub(crate) use allocator::Cpu;
pub use allocator::{NodeAccess, PageAllocator};
pub use balance::ReclaimPass;
pub use build::metadata_size;
pub use build_error::BuildError;
pub use bulk_free::BulkFreeError;
pub use carve::Carver;
pub use config::Config;
pub use cpus::CpuError;
pub use drain::DrainBusy;
pub use hints::ScanCounts;
pub use hold::{CpuPagesets, Stillness, StoppedPagesets, ZoneHold};
pub use lend::{Lending, LentPages};
pub use limits::Limits;
pub(crate) use near::hand_out;
pub use notes::PageNote;
pub use plan::Plan;
pub use plugged::HotplugCounts;
pub(crate) use refill::FromPageset;
pub use report::AllocReport;
pub use request::Request;
pub use stalls::StallCounts;
pub use waiters::NoLock;
pub(crate) use wanted::{Wanted, ZoneRequest, first_flags};

rules! {
    /// What rules do for the allocator.
    trait RuleSet: ZoneRules, PagesetRules;

    /// Fills an empty list of this CPU, and takes one block from it.
    fn refill(
        pages: &PageAllocator,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        wants: ZoneRequest,
        list: usize,
    ) -> FromPageset => refill_by_quota | refill_from_buddy;
    /// A block that this CPU may take without asking anybody; who asks may have interrupted anything.
    fn take_held(pages: &PageAllocator, pageset: &Pageset<'m, P>, request: Request) -> Option<u32>
        => take_by_own_quota | { None };
    /// A block past the lists, for a request that passed the zone's marks.
    fn take_block(
        pages: &PageAllocator,
        zone: &Zone<'m, P>,
        wanted: &Wanted<'_>,
        flags: AllocFlags,
    ) -> Option<u32> => take_from_maps | take_from_buddy;
    /// The word of a block that a scan found.
    fn held_word(pages: &PageAllocator, zone: &Zone<'m, P>, number: u32, wanted: &Wanted<'_>) -> Word
        => word_of_taken | { zone.frames().allocated(wanted.order, wanted.migratetype) };
    /// Fills `out` from a zone that has room for as many pages; returns how many it got.
    fn bulk(
        pages: &PageAllocator,
        zone: &'m Zone<'m, P>,
        wanted: &Wanted<'_>,
        out: &mut [Pfn],
    ) -> usize => bulk_from_maps | bulk_through_lists;

    /// Brings a block home that nobody holds any more; its word was `held`.
    fn free_home(pages: &PageAllocator, held: Word, pfn: Pfn, order: Order) => free_by_word | free_by_pageblock;
    /// The list of this CPU that a page goes to; its word was `held`.
    fn list_of_freed(pages: &PageAllocator, held: Word, pfn: Pfn) -> Option<usize>
        => list_of_word | { list_index(Order(0), pages.map.pageblock(pfn)) };
    /// Whether a page is allocated, and goes to a list of this CPU.
    fn is_of_list(
        pages: &PageAllocator,
        zone: ZoneIndex,
        list: usize,
        word: WordCell<'_>,
        number: u32,
    ) -> bool => is_single_of_quota | is_single_of_list;
    /// After a free to a list of an exact storage.
    fn after_free(
        pages: &PageAllocator,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        order: Order,
        list: usize,
    ) => { pages.after_free_to_list(on, pageset, list) } | after_free_by_tuning;
    /// Makes room in a list that is full.
    fn make_room(
        pages: &PageAllocator,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        order: Order,
        list: usize,
    ) => { pages.after_free_to_list(on, pageset, list) } | make_room_by_tuning;
    /// Frees what a list did not take of a batch; returns how many blocks it did not leave to the caller.
    fn free_rest(
        pages: &PageAllocator,
        on: &OnCpu<'_, P>,
        pageset: &Pageset<'m, P>,
        list: usize,
        numbers: &[u32],
    ) -> usize => {
        pages.free_past_lists(pageset.zone(), numbers, Order(0));
        numbers.len()
    } | {
        pages.make_room_by_tuning(on, pageset, Order(0), list);
        pageset.push_batch(&pages.platform, on, list, numbers)
    };
    /// Puts a block into the pageset of the CPU that owns its pageblock.
    fn free_to_owner(
        pages: &PageAllocator,
        pageset: &Pageset<'m, P>,
        number: u32,
        order: Order,
        list: usize,
    ) => {} | free_to_owner;
    /// Frees a block straight to its zone.
    fn free_block(pages: &PageAllocator, zone: &Zone<'m, P>, number: u32, order: Order)
        => { pages.free_past_lists(zone, &[number], order) } | free_to_buddy;
    /// Frees blocks straight to their zone.
    fn free_blocks(pages: &PageAllocator, zone: &Zone<'m, P>, numbers: &[u32], order: Order)
        => free_past_lists | free_all_to_buddy;
    /// Whether pageblocks that come back page by page are freed as such.
    fn frees_pageblocks(pages: &PageAllocator) -> bool => { true } | { false };

    /// Gives back what a CPU has of some zones; returns how many pages.
    fn drain_cpu(
        pages: &PageAllocator,
        cpu: &'m Cpu<'m, P>,
        wanted: impl Fn(&Pageset<'m, P>) -> bool,
    ) -> Result<PageCount, DrainBusy> => drain_quotas | drain_by_holds;
    /// Gives back some of what a CPU did not use for a second.
    fn decay_cpu(pages: &PageAllocator, cpu: &'m Cpu<'m, P>) -> Result<PageCount, DrainBusy>
        => decay_quotas | decay_by_tuning;
    /// Gives back some of what a CPU has of zones of other nodes and did not use for a while.
    fn expire_remote(
        pages: &PageAllocator,
        on: &OnCpu<'_, P>,
        cpu: &'m Cpu<'m, P>,
        used: impl Fn(&Zone<'m, P>) -> bool,
    ) -> PageCount => { PageCount(0) } | expire_by_tuning;
    /// Takes isolated and free pages of a pageblock: they are somebody's from now on.
    fn take_isolated(pages: &PageAllocator, guard: &mut ZoneGuard<'_, 'm, P>, range: Range<u32>)
        => take_captured | take_isolated_from_buddy;
    /// Takes isolated and free pages out of the zone.
    fn take_out(pages: &PageAllocator, guard: &mut ZoneGuard<'_, 'm, P>, range: Range<u32>)
        => { guard.zone().take_out(range) } | take_out_of_buddy;
}

impl<P: Platform<Rules = ByModel>> PageAllocator<'_, P> {
    #[inline(always)]
    fn has_maps(&self) -> bool {
        ByModel::have_maps(self.model.owners)
    }
}
