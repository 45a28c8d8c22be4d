//! How objects lie in a slab: pure arithmetic.
//!
//! A slab is a block of pages cut into objects of one size. Two sets of rules say how many fit and how large the
//! block is:
//!
//! * [`Descriptors::Within`] is Linux 2.6.35 (facts 9.1, 9.2; `mm/slab.c: cache_estimate, calculate_slab_order,
//!   kmem_cache_create`): a slab's descriptor and 4 bytes an object lie at its beginning, or elsewhere for
//!   objects from an eighth of a page on. Here nothing is written there; the room is left, so that slabs have
//!   Linux's objects at Linux's places.
//! * [`Descriptors::Beside`] is nearpage: descriptors lie in a table by frame (see [`super`]), and objects fill
//!   the block.
//!
//! What is left of a block shifts its objects by a colour, another one for each slab, so that objects of the same
//! index do not meet in the same sets of a cache.

use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::Order;

/// `sizeof(struct slab)` of 64-bit Linux 2.6.35.
const DESCRIPTOR_BYTES: u64 = 48;
/// `sizeof(kmem_bufctl_t)`.
const INDEX_BYTES: u64 = 4;
/// The width of a cache line, and so of a colour.
pub const LINE_BYTES: u64 = 64;
/// Objects of a slab at most: the bits of a descriptor. Only objects of 8 bytes would be more, 512 a page.
pub const OBJECTS_MAX: u32 = 384;
/// The largest object: as much as the largest block of pages.
pub const fn size_max(page_shift: u32) -> u64 {
    Order::MAX.pages().to_bytes(page_shift)
}

/// Where slabs keep what describes them, and so how many objects they have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Descriptors {
    /// In a table by frame: a slab is all objects.
    #[default]
    Beside,
    /// As Linux 2.6.35: room for a descriptor is left in the slab, or not, by the size of objects.
    Within,
}

/// What decides about the geometry, apart from the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Where descriptors are.
    pub descriptors: Descriptors,
    /// Log2 of the page size in bytes.
    pub page_shift: u32,
    /// Whether the machine has more than 32 MiB: then slabs may have two pages where one wastes too much.
    /// `mm/slab.c: slab_break_gfp_order`.
    pub is_large_machine: bool,
    /// The least alignment of any object: what a machine asks for whose memory spans more than a compact object
    /// number reaches ([`super::entry`]).
    pub align_min: u64,
}

/// The objects to lay out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectLayout {
    /// Bytes of an object, at least 1.
    pub size: u64,
    /// The alignment that its user needs, a power of two; 1 if any will do.
    pub align: u64,
    /// Whether objects begin at a cache line, as far as they are not much smaller (`SLAB_HWCACHE_ALIGN`).
    pub line_aligned: bool,
    /// Whether slabs can be freed on request (`SLAB_RECLAIM_ACCOUNT`): they stay as small as possible.
    pub reclaimable: bool,
}

/// The layout of the slabs of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes from one object to the next.
    pub size: u32,
    /// Every object begins at a multiple of it.
    pub align: u32,
    /// The block of a slab.
    pub order: Order,
    /// Objects of a slab.
    pub objects: u32,
    /// Colours; a slab of colour `c` begins `c * colour_bytes` later.
    pub colours: u32,
    /// Bytes of a colour.
    pub colour_bytes: u32,
    /// Bytes before the first object of a slab of colour 0.
    pub first: u32,
    /// Whether the room for a descriptor is elsewhere; with [`Descriptors::Beside`] it always is.
    pub off_slab: bool,
    /// 2^44 / size, rounded up: division by the size.
    reciprocal: u64,
}

/// Log2 of the numerator of [`Geometry::reciprocal`]. Offsets and sizes are at most 2^22 (the largest block), so
/// that `offset * error < 2^44` and the quotient is exact, and `offset * reciprocal <= 2^22 * 2^41`.
const RECIPROCAL_SHIFT: u32 = 44;
const _: () = assert!(size_max(12) == 1 << 22);

impl Geometry {
    /// The geometry of a cache that is not there: no objects.
    pub const NONE: Geometry = Geometry {
        size: 1,
        align: 1,
        order: Order(0),
        objects: 0,
        colours: 0,
        colour_bytes: 0,
        first: 0,
        off_slab: true,
        reciprocal: 0,
    };

    /// Lays objects out, or `None` if not even the largest block holds one.
    pub fn of(layout: ObjectLayout, rules: &Rules) -> Option<Geometry> {
        let wanted = layout.size.checked_next_multiple_of(8)?;
        let align = align_of(&layout, wanted).max(rules.align_min);
        let size = wanted.checked_next_multiple_of(align)?;
        let starts_off_slab =
            rules.descriptors == Descriptors::Beside || wanted >= (1 << rules.page_shift) / 8;
        let (order, objects) = choose_order(size, align, starts_off_slab, &layout, rules)?;
        let within = management_bytes(objects, align);
        let mut left = (1 << (order.0 as u32 + rules.page_shift)) - objects as u64 * size;
        let mut off_slab = starts_off_slab;
        if rules.descriptors == Descriptors::Within && left >= within {
            off_slab = false;
        }
        let first = if off_slab { 0 } else { within };
        left -= first;
        let colour_bytes = LINE_BYTES.max(align);
        Some(Geometry {
            size: u32::try_from(size).ok()?,
            align: u32::try_from(align).ok()?,
            order,
            objects,
            colours: (left / colour_bytes) as u32,
            colour_bytes: colour_bytes as u32,
            first: first as u32,
            off_slab,
            reciprocal: (1_u64 << RECIPROCAL_SHIFT).div_ceil(size),
        })
    }

    /// Where the first object of a slab of `colour` begins, from the beginning of its block.
    #[inline]
    pub const fn first_of_colour(&self, colour: u32) -> u32 {
        self.first + colour * self.colour_bytes
    }

    /// The object that begins `offset` bytes after the first one, if one does.
    #[inline]
    pub const fn index_at(&self, offset: u32) -> Option<u32> {
        let index = ((offset as u64 * self.reciprocal) >> RECIPROCAL_SHIFT) as u32;
        if index < self.objects && index * self.size == offset { Some(index) } else { None }
    }
}

/// A geometry that readers find without a lock. It changes only while nobody has the cache.
#[derive(Debug)]
pub struct GeometryCell([AtomicU64; 5]);

impl GeometryCell {
    /// The cell of a cache that is not there.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 5])
    }

    /// Stores a geometry.
    pub fn set(&self, geometry: &Geometry) {
        let pair = |low: u32, high: u32| low as u64 | (high as u64) << 32;
        let words = [
            pair(geometry.size, geometry.align),
            pair(geometry.objects, geometry.colours),
            pair(geometry.colour_bytes, geometry.first),
            pair(geometry.order.0 as u32, geometry.off_slab as u32),
            geometry.reciprocal,
        ];
        for (cell, word) in self.0.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
    }

    /// The geometry.
    #[inline(always)]
    pub fn get(&self) -> Geometry {
        let word = |at: usize| self.0[at].load(Ordering::Relaxed);
        let (low, high) = (|at| word(at) as u32, |at| (word(at) >> 32) as u32);
        Geometry {
            size: low(0),
            align: high(0),
            objects: low(1),
            colours: high(1),
            colour_bytes: low(2),
            first: high(2),
            order: Order(low(3) as u8),
            off_slab: high(3) != 0,
            reciprocal: word(4),
        }
    }
}

impl Default for GeometryCell {
    fn default() -> Self {
        Self::new()
    }
}

/// What a descriptor takes within a slab.
const fn management_bytes(objects: u32, align: u64) -> u64 {
    (DESCRIPTOR_BYTES + INDEX_BYTES * objects as u64).next_multiple_of(align)
}

fn align_of(layout: &ObjectLayout, size: u64) -> u64 {
    let mut line = 8;
    if layout.line_aligned {
        line = LINE_BYTES;
        while size <= line / 2 {
            line /= 2;
        }
    }
    line.max(layout.align).max(8)
}

/// Objects of a block of `bytes`. `mm/slab.c: cache_estimate`.
fn estimate(bytes: u64, size: u64, align: u64, off_slab: bool) -> u32 {
    if off_slab {
        return (bytes / size).min(OBJECTS_MAX as u64) as u32;
    }
    let mut objects = bytes.saturating_sub(DESCRIPTOR_BYTES) / (size + INDEX_BYTES);
    if objects > 0 && management_bytes(objects as u32, align) + objects * size > bytes {
        objects -= 1;
    }
    objects.min(OBJECTS_MAX as u64) as u32
}

/// The block of a slab, and its objects. `mm/slab.c: calculate_slab_order`.
fn choose_order(
    size: u64,
    align: u64,
    off_slab: bool,
    layout: &ObjectLayout,
    rules: &Rules,
) -> Option<(Order, u32)> {
    let break_order = if rules.is_large_machine { 1 } else { 0 };
    let mut chosen = None;
    for order in 0..=Order::MAX.0 {
        let bytes = 1_u64 << (order as u32 + rules.page_shift);
        let objects = estimate(bytes, size, align, off_slab);
        if objects == 0 {
            continue;
        }
        // The indexes of Linux's slabs lie in an object of a size class that has its descriptors within.
        let is_linux = rules.descriptors == Descriptors::Within;
        if is_linux && off_slab && objects as u64 > (size - DESCRIPTOR_BYTES) / INDEX_BYTES {
            break;
        }
        chosen = Some((Order(order), objects));
        let within = if off_slab { 0 } else { management_bytes(objects, align) };
        let left = bytes - objects as u64 * size - within;
        if layout.reclaimable || order >= break_order || left * 8 <= bytes {
            break;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX: Rules = Rules {
        descriptors: Descriptors::Within,
        page_shift: 12,
        is_large_machine: true,
        align_min: 8,
    };

    fn plain(size: u64) -> ObjectLayout {
        ObjectLayout { size, align: 1, line_aligned: false, reclaimable: false }
    }

    fn linux(layout: ObjectLayout) -> (u32, u64) {
        let geometry = Geometry::of(layout, &LINUX).expect("it fits");
        (geometry.objects, geometry.order.pages().0)
    }

    #[test]
    fn slabinfo_of_linux_2_6_35() {
        // Facts 9.2: lines of a real x86-64 slabinfo.
        let vectors = [
            (16, (202, 1)),
            (24, (144, 1)),
            (32, (112, 1)),
            (40, (92, 1)),
            (56, (67, 1)),
            (64, (59, 1)),
            (128, (30, 1)),
            (136, (28, 1)),
            (192, (20, 1)),
            (256, (15, 1)),
            (408, (9, 1)),
            (512, (8, 1)),
            (1024, (4, 1)),
            (2048, (2, 1)),
            (2608, (3, 2)),
            (3240, (2, 2)),
            (4096, (1, 1)),
            (8192, (1, 2)),
        ];
        for (size, expected) in vectors {
            assert_eq!(linux(plain(size)), expected, "objects and pages of {size} bytes");
        }
        let reclaimable = ObjectLayout { reclaimable: true, ..plain(872) };
        assert_eq!(linux(reclaimable), (4, 1));
    }

    #[test]
    fn linux_keeps_descriptors_of_large_objects_elsewhere() {
        let off_slab = |size| Geometry::of(plain(size), &LINUX).expect("it fits").off_slab;
        // 512 fills the page; 1280 leaves 256 bytes, which have room for the descriptor after all.
        assert_eq!([408, 504, 512, 1024, 1280].map(off_slab), [false, false, true, true, false]);
    }

    #[test]
    fn lines_are_kept_apart_for_objects_that_are_large_enough() {
        let aligned = |size| {
            let layout = ObjectLayout { line_aligned: true, ..plain(size) };
            let geometry = Geometry::of(layout, &LINUX).expect("it fits");
            (geometry.align, geometry.size)
        };
        assert_eq!(aligned(100), (64, 128));
        assert_eq!(aligned(33), (64, 64));
        // 24 bytes are at most half a line, 32: two objects a line.
        assert_eq!(aligned(24), (32, 32));
        assert_eq!(aligned(8), (8, 8));
    }

    #[test]
    fn every_object_lies_in_its_slab_and_is_found_by_its_offset() {
        for descriptors in [Descriptors::Beside, Descriptors::Within] {
            let rules = Rules { descriptors, ..LINUX };
            let sizes = (1..2000).chain((2000..70_000).step_by(61)).chain([1 << 20, 1 << 22]);
            for size in sizes {
                for align in [1, 64, 256] {
                    let layout = ObjectLayout { align, ..plain(size) };
                    let Some(geometry) = Geometry::of(layout, &rules) else {
                        assert!(size + 64 > 1 << 22, "{layout:?}");
                        continue;
                    };
                    assert!(geometry.size as u64 >= size && geometry.objects <= OBJECTS_MAX);
                    let last = geometry.first_of_colour(geometry.colours);
                    let end = last as u64 + geometry.objects as u64 * geometry.size as u64;
                    assert!(end <= geometry.order.pages().to_bytes(12), "{layout:?}: {geometry:?}");
                    assert!(last.is_multiple_of(geometry.align) && align <= geometry.align as u64);
                    for index in [0, 1, geometry.objects / 2, geometry.objects - 1] {
                        let offset = index * geometry.size;
                        let expected = (index < geometry.objects).then_some(index);
                        assert_eq!(geometry.index_at(offset), expected);
                        assert_eq!(geometry.index_at(offset + 4), None);
                    }
                    assert_eq!(geometry.index_at(geometry.objects * geometry.size), None);
                }
            }
        }
    }

    #[test]
    fn without_descriptors_a_page_is_all_objects() {
        let rules = Rules { descriptors: Descriptors::Beside, ..LINUX };
        let objects = |size| Geometry::of(plain(size), &rules).expect("it fits").objects;
        assert_eq!([8, 16, 64, 192, 1024].map(objects), [384, 256, 64, 21, 4]);
    }

    #[test]
    fn a_cell_keeps_a_geometry() {
        let cell = GeometryCell::new();
        for geometry in [Geometry::of(plain(136), &LINUX), Geometry::of(plain(3240), &LINUX)] {
            cell.set(&geometry.expect("it fits"));
            assert_eq!(Some(cell.get()), geometry);
        }
    }

    #[test]
    fn what_no_block_holds_has_no_geometry() {
        assert_eq!(Geometry::of(plain((1 << 22) + 1), &LINUX), None);
        assert_eq!(Geometry::of(plain(u64::MAX), &LINUX), None);
        let misfit = ObjectLayout { align: 1 << 30, ..plain(8) };
        assert_eq!(Geometry::of(misfit, &LINUX), None);
    }
}
