//! Sizes and classes. Pure.
//!
//! Multiples of 16 up to 128, then four classes to each doubling: 160, 192, 224, 256, 320, … 32768. A size is rounded up by
//! less than a quarter, over all sizes by a tenth.

/// Classes of small objects.
pub const CLASSES: usize = 40;

/// The largest size of a class.
pub const CLASS_SIZE_MAX: usize = 32 << 10;

/// Sizes up to this have their class in a table.
const TABLE_SIZE_MAX: usize = 1024;

/// The size of a class.
///
/// ```
/// assert_eq!(nearpage_malloc::class_size(0), 16);
/// assert_eq!(nearpage_malloc::class_size(nearpage_malloc::CLASSES - 1), nearpage_malloc::CLASS_SIZE_MAX);
/// ```
///
/// # Panics
/// If there is no such class.
pub const fn class_size(class: usize) -> usize {
    assert!(class < CLASSES, "there are 40 classes");
    if class < 8 {
        return (class + 1) * 16;
    }
    let doubling = (class - 8) / 4;
    let quarter = (class - 8) % 4 + 1;
    (128 << doubling) + quarter * (32 << doubling)
}

const fn class_by_search(size: usize) -> usize {
    let mut class = 0;
    while class_size(class) < size {
        class += 1;
    }
    class
}

const TABLE: [u8; TABLE_SIZE_MAX / 16 + 1] = {
    let mut table = [0; TABLE_SIZE_MAX / 16 + 1];
    let mut at = 0;
    while at < table.len() {
        table[at] = class_by_search(at * 16) as u8;
        at += 1;
    }
    table
};

/// The class of a size of at most [`CLASS_SIZE_MAX`].
#[inline(always)]
pub(crate) fn class_of(size: usize) -> usize {
    if size <= TABLE_SIZE_MAX {
        return TABLE[(size + 15) >> 4] as usize;
    }
    class_of_larger(size)
}

#[inline(always)]
fn class_of_larger(size: usize) -> usize {
    // Above 128, the two bits below the highest of `size - 1` tell the quarter.
    let last = size - 1;
    let doubling = last.ilog2() as usize;
    8 + (doubling - 7) * 4 + ((last >> (doubling - 2)) & 3)
}

/// The class whose objects are aligned to `align` and have at least `size` bytes, if there is one.
pub(crate) fn class_aligned(size: usize, align: usize) -> Option<usize> {
    // Spans are aligned to more than a page, so an object is as aligned as its size.
    if align > 4096 || size > CLASS_SIZE_MAX {
        return None;
    }
    (class_of(size)..CLASSES).find(|class| class_size(*class).is_multiple_of(align))
}

/// The order of a class's spans: 32 KiB, or at least four objects.
pub(crate) const fn span_order(class: usize) -> u8 {
    let size = class_size(class);
    match size {
        0..=4096 => 3,
        4097..=16384 => 5,
        _ => 6,
    }
}

/// Objects in a span of a class.
pub(crate) const fn span_objects(class: usize) -> u32 {
    ((4096_usize << span_order(class)) / class_size(class)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_least_class_that_holds_it() {
        for size in 0..=CLASS_SIZE_MAX {
            let class = class_of(size);
            assert!(class_size(class) >= size, "{size}");
            assert!(class == 0 || class_size(class - 1) < size, "{size}: class {class}");
        }
    }

    #[test]
    fn at_most_an_eighth_is_lost_on_average() {
        let above = 17..=CLASS_SIZE_MAX;
        let lost: f64 =
            above.clone().map(|size| 1.0 - size as f64 / class_size(class_of(size)) as f64).sum();
        let mean = lost / above.count() as f64;
        assert!(mean <= 0.125, "{mean}");
        for class in 0..CLASSES {
            let used = span_objects(class) as usize * class_size(class);
            let bytes = 4096 << span_order(class);
            assert!(used * 8 >= bytes * 7, "class of {}: {used} of {bytes}", class_size(class));
        }
    }

    #[test]
    fn aligned_classes_are_multiples() {
        for align in [16, 32, 64, 128, 256, 512, 1024, 2048, 4096] {
            for size in [1, 16, 17, 100, 1000, 5000, 32768] {
                let class = class_aligned(size, align).unwrap();
                assert!(class_size(class) >= size && class_size(class).is_multiple_of(align));
            }
        }
        assert_eq!(class_aligned(1, 8192), None);
    }
}
