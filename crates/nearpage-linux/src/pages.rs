//! The core's page allocator of a memory, whatever its storage and its test at a free.
//!
//! An allocator has one of four types ([`Allocator`]). Calls that must be fast are made on the common type directly. All
//! others go through one trait, [`Pages`].

use std::fmt;
use std::time::Duration;

use nearpage::rules::WaitersBit;
use nearpage::stats::WaitCounts;
use nearpage::stats::{CheckError, Checked, ScanCounts, Zone};
use nearpage::{
    AllocError, BulkFreeError, CpuError, CpuId, DrainBusy, Fallbacks, FreeError, LimitError,
    LimitOf, Limits, Marks, NodeAccess, NodeId, NodeIndex, OfflineError, OnlineError, Order,
    PageAllocator, PageCount, Pfn, PfnRange, Placement, Request, SettingError, Settings, Topology,
    UnknownNode,
};
use nearpage_pagelock::internals::LockWord;
use nearpage_pagelock::{BitWord, PageLockError, PageLocks};

use crate::host::Host;
use crate::locked::CpuLocks;
use crate::misuse::MisuseLog;
use crate::rseq::Sequences;
use crate::storage::{RingAccess, Rings};
use crate::trim::{Trimmed, Trims, Turn};

/// The core's allocator on this host.
pub(crate) type PagesOn<A, const HARDENED: bool> = PageAllocator<'static, Host<Rings<A>, HARDENED>>;

/// The allocator, in the four types that it can have.
pub(crate) enum Allocator {
    Rseq(PagesOn<Sequences, false>),
    RseqHardened(PagesOn<Sequences, true>),
    Locked(PagesOn<CpuLocks, false>),
    LockedHardened(PagesOn<CpuLocks, true>),
}

impl Allocator {
    /// The allocator for all calls but those that must be fast.
    #[inline]
    pub fn cold(&self) -> &dyn Pages {
        match self {
            Self::Rseq(pages) => pages,
            Self::RseqHardened(pages) => pages,
            Self::Locked(pages) => pages,
            Self::LockedHardened(pages) => pages,
        }
    }
}

/// What the word of a frame tells a lock of its page.
pub(crate) struct LockOfPage<'a> {
    /// The word.
    pub word: LockWord<'a>,
    /// The word while nobody has or wants the lock.
    pub idle: u32,
    /// The same, if the page is the first of its block: only then the word changes when the block is freed.
    pub idle_of_first: Option<u32>,
    /// Whether an unlock can tell by the word that nobody waits.
    pub waiters_bit: WaitersBit,
}

/// Writes the trait of calls that others have written, and passes them on.
macro_rules! calls_of {
    (
        $(#[$doc:meta])* $calls:ident of $of:ident:
        $(fn $name:ident(&self $(, $argument:ident: $type:ty)* $(,)?) $(-> $answer:ty)?;)*
    ) => {
        $(#[$doc])*
        pub(crate) trait $calls {
            $(fn $name(&self $(, $argument: $type)*) $(-> $answer)?;)*
        }

        impl<A: RingAccess, const HARDENED: bool> $calls for PagesOn<A, HARDENED> {
            $(fn $name(&self $(, $argument: $type)*) $(-> $answer)? {
                $of::$name(self $(, $argument)*)
            })*
        }
    };
}

calls_of! {
    /// Calls of page locks, with their names and their contracts.
    LockCalls of PageLocks:
    fn try_lock_page(&self, pfn: Pfn) -> Result<bool, PageLockError>;
    fn lock_page(&self, pfn: Pfn) -> Result<(), PageLockError>;
    fn lock_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError>;
    fn unlock_page(&self, pfn: Pfn) -> Result<(), PageLockError>;
    fn wait_on_page(&self, pfn: Pfn) -> Result<(), PageLockError>;
    fn wait_on_page_timeout(&self, pfn: Pfn, timeout: Duration) -> Result<(), PageLockError>;
    fn reset_page_locks(&self, first: Pfn, order: Order) -> Result<(), PageLockError>;
}

calls_of! {
    /// Calls of the core's allocator, with its names and its contracts.
    CorePages of PageAllocator:
    fn alloc_bulk(&self, request: Request, out: &mut [Pfn]) -> Result<usize, AllocError>;
    fn alloc_with(&self, placement: &Placement<'_>, request: Request) -> Result<Pfn, AllocError>;
    fn alloc_bulk_with(
        &self,
        placement: &Placement<'_>,
        request: Request,
        out: &mut [Pfn],
    ) -> Result<usize, AllocError>;
    fn free(&self, first: Pfn, order: Order) -> Result<(), FreeError>;
    fn free_bulk(&self, pages: &[Pfn]) -> Result<(), BulkFreeError>;

    fn topology(&self) -> &Topology<'_>;
    fn settings(&self) -> Settings;
    fn min_free_kbytes(&self) -> u64;
    fn set_settings(&self, settings: Settings) -> Result<(), SettingError>;
    fn set_access(&self, node: NodeId, access: NodeAccess) -> Result<(), UnknownNode>;
    fn set_limits(&self, of: LimitOf, limits: Limits) -> Result<(), LimitError>;
    fn limits(&self, of: LimitOf) -> Result<Limits, UnknownNode>;
    fn in_use(&self, of: LimitOf) -> Result<PageCount, UnknownNode>;

    fn is_online(&self, pfn: Pfn) -> bool;
    fn online_all(&self, ranges: &[PfnRange]) -> Result<PageCount, OnlineError>;
    fn offline(&self, range: PfnRange) -> Result<PageCount, OfflineError>;
    fn online_cpu(&self, cpu: CpuId) -> Result<(), CpuError>;
    fn offline_cpu(&self, cpu: CpuId) -> Result<PageCount, CpuError>;

    fn drain_all(&self) -> Result<PageCount, DrainBusy>;
    fn drain_cpu(&self, cpu: CpuId) -> Result<PageCount, DrainBusy>;
    fn decay_cpu(&self, cpu: CpuId) -> Result<PageCount, DrainBusy>;
    fn check(&self) -> Result<Checked, CheckError>;

    fn fallbacks(&self, from: NodeIndex, to: NodeIndex) -> Fallbacks;
    fn scan_counts(&self, node: NodeIndex) -> ScanCounts;
    fn wait_counts(&self, node: NodeIndex) -> WaitCounts;
    fn write_fallbacks(&self, out: &mut String) -> fmt::Result;
    fn write_zoneinfo(&self, out: &mut String) -> fmt::Result;
    fn write_buddyinfo(&self, out: &mut String) -> fmt::Result;
    fn write_pagetypeinfo(&self, out: &mut String) -> fmt::Result;
    fn write_numastat(&self, node: NodeIndex, out: &mut String) -> fmt::Result;
    fn write_vmstat(&self, out: &mut String) -> fmt::Result;
}

/// All calls of the allocator but those that must be fast: the core's own, and what this host makes of them.
pub(crate) trait Pages: CorePages + LockCalls {
    /// Allocates a block, or tells why there is none. By reference: the request is copied once, where it is known to be
    /// needed.
    fn alloc(&self, request: &Request, error: &mut Option<AllocError>) -> Option<Pfn>;
    /// The address of the platform, which is in the allocator itself.
    fn platform_address(&self) -> usize;
    /// What was refused so far.
    fn misuses(&self) -> &MisuseLog;
    /// Panics of callbacks that were to wake background reclaim.
    fn pressure_panics(&self) -> u64;
    /// Free pages of a node, all zones together.
    fn free_pages(&self, node: NodeId) -> PageCount;
    /// Pages of a node that were brought online, all zones together.
    fn managed_pages(&self, node: NodeId) -> PageCount;
    /// The watermarks of a node, all zones together.
    fn watermarks(&self, node: NodeId) -> Marks;
    /// Gives memory of free pages back to the kernel.
    fn trim(&self, trims: &Trims<'_>, turn: &Turn) -> Trimmed;
    /// A number that changes when pages move.
    fn moves(&self) -> u64;
    /// The same of the lists of one CPU, and the pages on them.
    fn moves_of(&self, cpu: CpuId) -> (u64, PageCount);
    /// A report on a request, with a placement or without.
    fn report(
        &self,
        placement: Option<&Placement<'_>>,
        request: Request,
    ) -> Result<String, AllocError>;
    /// The lock of a page.
    fn lock_of_page(&self, pfn: Pfn) -> Result<LockOfPage<'_>, PageLockError>;
    /// Whether somebody has a page locked.
    fn is_page_locked(&self, pfn: Pfn) -> Result<bool, PageLockError>;
    /// Waits until a bit of the word at `address` is clear.
    fn wait_on_bit(
        &self,
        is_clear: &dyn Fn() -> bool,
        address: u64,
        bit: u32,
        timeout: Option<Duration>,
    ) -> Result<(), PageLockError>;
    /// Wakes all who wait for a bit of the word at `address`.
    fn wake_up_bit(&self, address: u64, bit: u32) -> Result<(), PageLockError>;
}

/// A bit of a word of any type; its number was compared with the word's bits before.
struct AnyBit<'a>(&'a dyn Fn() -> bool);

impl BitWord for AnyBit<'_> {
    const BITS: u32 = u32::MAX;

    fn is_clear(&self, _bit: u32) -> bool {
        (self.0)()
    }
}

impl<A: RingAccess, const HARDENED: bool> Pages for PagesOn<A, HARDENED> {
    fn alloc(&self, request: &Request, error: &mut Option<AllocError>) -> Option<Pfn> {
        PageAllocator::alloc(self, *request).map_err(|refused| *error = Some(refused)).ok()
    }

    fn platform_address(&self) -> usize {
        std::ptr::from_ref(self.platform()).addr()
    }

    fn misuses(&self) -> &MisuseLog {
        self.platform().misuses()
    }

    fn pressure_panics(&self) -> u64 {
        self.platform().pressure_panics()
    }

    fn free_pages(&self, node: NodeId) -> PageCount {
        sum_of_zones(self, node, Zone::free_pages)
    }

    fn managed_pages(&self, node: NodeId) -> PageCount {
        sum_of_zones(self, node, Zone::managed)
    }

    fn watermarks(&self, node: NodeId) -> Marks {
        let sum = |of: fn(Marks) -> PageCount| sum_of_zones(self, node, |zone| of(zone.marks()));
        Marks {
            min: sum(|marks| marks.min),
            low: sum(|marks| marks.low),
            high: sum(|marks| marks.high),
            promo: sum(|marks| marks.promo),
        }
    }

    fn trim(&self, trims: &Trims<'_>, turn: &Turn) -> Trimmed {
        trims.turn(self, turn)
    }

    fn moves(&self) -> u64 {
        let stats = self.totals();
        stats.pgalloc.0.wrapping_add(stats.pgfree.0).wrapping_add(stats.drained_pages.0)
    }

    fn moves_of(&self, cpu: CpuId) -> (u64, PageCount) {
        let pagesets = self.pagesets(cpu).unwrap_or_default();
        let lists =
            pagesets.iter().flat_map(|set| (0..set.list_count()).map(|list| set.list_counts(list)));
        let moves =
            lists.fold(0_u64, |sum, list| sum.wrapping_add(list.pops).wrapping_add(list.pushes));
        (moves, pagesets.iter().map(|set| set.count()).sum())
    }

    fn report(
        &self,
        placement: Option<&Placement<'_>>,
        request: Request,
    ) -> Result<String, AllocError> {
        Ok(match placement {
            None => PageAllocator::report(self, request)?.to_string(),
            Some(placement) => self.report_with(placement, request)?.to_string(),
        })
    }

    fn lock_of_page(&self, pfn: Pfn) -> Result<LockOfPage<'_>, PageLockError> {
        let page = self.page_lock(pfn)?;
        let word = page.lock_word();
        Ok(LockOfPage {
            word,
            idle: word.idle(),
            idle_of_first: page.idle_of_first(),
            waiters_bit: self.model().page_lock.waiters_bit,
        })
    }

    fn is_page_locked(&self, pfn: Pfn) -> Result<bool, PageLockError> {
        Ok(self.page_lock(pfn)?.is_locked())
    }

    fn wait_on_bit(
        &self,
        is_clear: &dyn Fn() -> bool,
        address: u64,
        bit: u32,
        timeout: Option<Duration>,
    ) -> Result<(), PageLockError> {
        PageLocks::wait_on_bit(self, &AnyBit(is_clear), address, bit, timeout)
    }

    fn wake_up_bit(&self, address: u64, bit: u32) -> Result<(), PageLockError> {
        PageLocks::wake_up_bit::<AnyBit<'_>>(self, address, bit)
    }
}

fn sum_of_zones<A: RingAccess, const HARDENED: bool>(
    pages: &PagesOn<A, HARDENED>,
    node: NodeId,
    of: impl Fn(&Zone<'static, Host<Rings<A>, HARDENED>>) -> PageCount,
) -> PageCount {
    let index = pages.topology().index_of(node);
    let of_node = pages.zones().iter().filter(|zone| Some(zone.node()) == index);
    PageCount(of_node.map(|zone| of(zone).0).sum())
}
