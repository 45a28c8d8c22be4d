//! Units of the allocator: page frame numbers, orders, counts, and the ids of nodes, zones and CPUs.
//!
//! This is the only place with shifts between them. Ids (`NodeId`, `CpuId`) are the numbers that the
//! machine prints, sparse and without bound; indexes (`NodeIndex`, `ZoneIndex`) are dense, given out
//! by this allocator in ascending order of ids, and never leave it as ids.

use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// [`Order::MAX`].
pub(crate) const MAX_ORDER: Order = Order::MAX;
/// [`Order::COUNT`].
pub(crate) const ORDERS: usize = Order::COUNT;
/// [`Order::PAGEBLOCK`].
pub(crate) const PAGEBLOCK_ORDER: Order = Order::PAGEBLOCK;
/// [`Order::COSTLY`].
pub(crate) const COSTLY_ORDER: Order = Order::COSTLY;
/// Log2 of the frames in a section, the unit in which memory is described: 128 MiB of 4 KiB pages.
pub const SECTION_SHIFT: u32 = if cfg!(miri) { 11 } else { 15 };
/// Frames in a section.
pub const SECTION_FRAMES: usize = 1 << SECTION_SHIFT;

/// A page frame number: physical address divided by the page size (on a user-space host, address
/// within the reserved range divided by the page size).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Pfn(pub u64);

impl Pfn {
    /// The frame `count` pages above this one, in constants.
    #[inline]
    pub(crate) const fn plus(self, count: PageCount) -> Pfn {
        Pfn(self.0 + count.0)
    }

    /// Whether a block of `order` may start here: blocks are aligned to their own size.
    #[inline]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & (order.pages().0 - 1) == 0
    }

    /// Number of the section that holds this frame.
    #[inline]
    pub const fn section(self) -> u64 {
        self.0 >> SECTION_SHIFT
    }

    /// Position of this frame within its section.
    #[inline]
    pub const fn section_offset(self) -> usize {
        (self.0 & (SECTION_FRAMES as u64 - 1)) as usize
    }

    /// Position of this frame's pageblock within its section.
    #[inline]
    pub const fn pageblock_offset(self) -> usize {
        self.section_offset() >> PAGEBLOCK_ORDER.0
    }
}

impl Add<PageCount> for Pfn {
    type Output = Pfn;

    /// The frame `pages` above this one.
    #[inline]
    fn add(self, pages: PageCount) -> Pfn {
        self.plus(pages)
    }
}

impl AddAssign<PageCount> for Pfn {
    #[inline]
    fn add_assign(&mut self, pages: PageCount) {
        self.0 += pages.0;
    }
}

impl Sub<PageCount> for Pfn {
    type Output = Pfn;

    /// The frame `pages` below this one.
    #[inline]
    fn sub(self, pages: PageCount) -> Pfn {
        Pfn(self.0 - pages.0)
    }
}

impl Sub for Pfn {
    type Output = PageCount;

    /// The pages from `other`, which is not above this frame, up to it.
    #[inline]
    fn sub(self, other: Pfn) -> PageCount {
        PageCount(self.0 - other.0)
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// An address in the machine: of memory that the allocator manages, not of the core's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Address(pub u64);

impl Address {
    /// The first address of a frame of `1 << page_shift` bytes.
    #[inline]
    pub const fn from_pfn(pfn: Pfn, page_shift: u32) -> Address {
        Address(pfn.0 << page_shift)
    }

    /// The frame that holds the address.
    #[inline]
    pub const fn to_pfn(self, page_shift: u32) -> Pfn {
        Pfn(self.0 >> page_shift)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A number of pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct PageCount(pub u64);

impl PageCount {
    /// The bytes of this many pages of `1 << page_shift` bytes each.
    #[inline]
    pub const fn to_bytes(self, page_shift: u32) -> u64 {
        self.0 << page_shift
    }

    /// The whole pages of `1 << page_shift` bytes each that fit into this many bytes.
    #[inline]
    pub const fn from_bytes(bytes: u64, page_shift: u32) -> PageCount {
        PageCount(bytes >> page_shift)
    }

    /// The difference, or none if `other` is more.
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, other: PageCount) -> PageCount {
        PageCount(self.0.saturating_sub(other.0))
    }

    /// The sum, or `None` if it does not fit 64 bits.
    #[inline]
    pub const fn checked_add(self, other: PageCount) -> Option<PageCount> {
        match self.0.checked_add(other.0) {
            Some(pages) => Some(PageCount(pages)),
            None => None,
        }
    }
}

impl Add for PageCount {
    type Output = PageCount;

    #[inline]
    fn add(self, other: PageCount) -> PageCount {
        PageCount(self.0 + other.0)
    }
}

impl AddAssign for PageCount {
    #[inline]
    fn add_assign(&mut self, other: PageCount) {
        self.0 += other.0;
    }
}

impl Sub for PageCount {
    type Output = PageCount;

    #[inline]
    fn sub(self, other: PageCount) -> PageCount {
        PageCount(self.0 - other.0)
    }
}

impl SubAssign for PageCount {
    #[inline]
    fn sub_assign(&mut self, other: PageCount) {
        self.0 -= other.0;
    }
}

impl Mul<u64> for PageCount {
    type Output = PageCount;

    #[inline]
    fn mul(self, times: u64) -> PageCount {
        PageCount(self.0 * times)
    }
}

impl Sum for PageCount {
    fn sum<I: Iterator<Item = PageCount>>(counts: I) -> PageCount {
        PageCount(counts.map(|count| count.0).sum())
    }
}

impl<'a> Sum<&'a PageCount> for PageCount {
    fn sum<I: Iterator<Item = &'a PageCount>>(counts: I) -> PageCount {
        counts.copied().sum()
    }
}

impl fmt::Display for PageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Log2 of the number of pages in a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Order(pub u8);

impl Order {
    /// The highest order that the allocator hands out: 2^10 pages. `include/linux/mmzone.h: MAX_PAGE_ORDER`, 6.12.
    pub const MAX: Order = Order(10);
    /// How many orders there are, 0 to [`MAX`](Self::MAX).
    pub const COUNT: usize = 11;
    /// The order of a pageblock, the unit of migratetype grouping: 2 MiB of 4 KiB pages on x86-64.
    pub const PAGEBLOCK: Order = Order(9);
    /// Orders above this one are "costly": the allocator tries less hard for them.
    /// `include/linux/mmzone.h: PAGE_ALLOC_COSTLY_ORDER`.
    pub const COSTLY: Order = Order(3);

    /// Pages in a block of this order.
    #[inline]
    pub const fn pages(self) -> PageCount {
        PageCount(1 << self.0)
    }

    /// Pages in so many blocks of this order.
    #[inline]
    pub const fn pages_in(self, blocks: u32) -> PageCount {
        PageCount((blocks as u64) << self.0)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number by which the machine knows a node. Sparse: 0, 8, 252 is a machine with three nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The number by which the machine knows a CPU. Sparse as node ids are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct CpuId(pub u32);

impl CpuId {
    /// No CPU: above all ids that an allocator accepts, and none of the numbers by which Linux says that it
    /// does not know (-1, -2).
    pub const NONE: CpuId = CpuId(1 << 31);
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Dense index of a node in this allocator: position in ascending order of [`NodeId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct NodeIndex(pub u16);

/// Dense index of a populated zone in this allocator: by node index, then by [`ZoneKind`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct ZoneIndex(pub u16);

/// The kinds of zones, in the order of their addresses; the discriminant is Linux's zone index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneKind {
    /// Below 16 MiB.
    Dma = 0,
    /// Below 4 GiB.
    Dma32 = 1,
    /// All other memory; the only kind on a user-space host.
    Normal = 2,
    /// Memory that only movable requests may use.
    Movable = 3,
    /// Device memory; it has a row in the texts and is in no zonelist.
    Device = 4,
}

impl ZoneKind {
    /// Number of kinds: the columns of a `protection:` line.
    pub const COUNT: usize = 5;
    /// All kinds, lowest first.
    pub const ALL: [ZoneKind; Self::COUNT] =
        [Self::Dma, Self::Dma32, Self::Normal, Self::Movable, Self::Device];

    /// Linux's zone index.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name as `/proc/zoneinfo` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
            Self::Device => "Device",
        }
    }
}

/// Frames `start..end`, in PFNs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PfnRange {
    /// First frame.
    pub start: Pfn,
    /// One past the last frame.
    pub end: Pfn,
}

impl PfnRange {
    /// Frames `start..end`; empty if `end <= start`.
    pub const fn new(start: u64, end: u64) -> PfnRange {
        PfnRange { start: Pfn(start), end: Pfn(end) }
    }

    /// Pages in the range.
    pub const fn pages(self) -> PageCount {
        PageCount(self.end.0.saturating_sub(self.start.0))
    }

    /// Whether the range has no page.
    pub const fn is_empty(self) -> bool {
        self.end.0 <= self.start.0
    }

    /// Whether `pfn` lies in the range.
    pub const fn contains(self, pfn: Pfn) -> bool {
        self.start.0 <= pfn.0 && pfn.0 < self.end.0
    }

    /// The frames in both ranges.
    pub fn intersection(self, other: PfnRange) -> PfnRange {
        PfnRange { start: self.start.max(other.start), end: self.end.min(other.end) }
    }
}

impl fmt::Display for PfnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pfn_splits_into_section_and_offset() {
        let pfn = Pfn(3 * SECTION_FRAMES as u64 + 513);
        assert_eq!(pfn.section(), 3);
        assert_eq!(pfn.section_offset(), 513);
        assert_eq!(pfn.pageblock_offset(), 1);
        assert!(Pfn(1024).is_aligned(MAX_ORDER));
        assert!(!Pfn(512).is_aligned(MAX_ORDER));
    }

    #[test]
    fn ranges_intersect() {
        let a = PfnRange::new(10, 20);
        assert_eq!(a.intersection(PfnRange::new(15, 30)), PfnRange::new(15, 20));
        assert!(a.intersection(PfnRange::new(20, 30)).is_empty());
        assert_eq!(PfnRange::new(5, 3).pages(), PageCount(0));
    }
}
