//! The work, and what is counted of it.

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::others::{Frames, Refused};

/// Frames that a fill takes.
pub const HELD: usize = 8192;
/// Pairs of a round.
const PAIRS: u64 = 4096;
/// Objects that are held at once.
const OBJECTS: usize = 4096;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A block of this order (0, 3 or 9) is allocated, and freed at once.
    Pair(u8),
    /// [`HELD`] frames are allocated one by one, and kept.
    Fill,
    /// They are freed, the last one first.
    Lifo,
    /// They are freed in random order.
    Random,
    /// 512 frames are allocated by one call, and freed by one: what is counted is a frame.
    Bulk,
    /// An object of so many bytes is allocated, and freed at once.
    Object(usize),
    /// Many objects of so many bytes are allocated, and freed in random order: what is counted is an object.
    Objects(usize),
}

/// What is done with frames.
pub const FRAME_WORK: [Work; 7] =
    [Work::Pair(0), Work::Pair(3), Work::Pair(9), Work::Fill, Work::Lifo, Work::Random, Work::Bulk];
/// What is done with a heap.
pub const HEAP_WORK: [Work; 3] = [Work::Object(64), Work::Object(1024), Work::Objects(64)];

impl core::fmt::Display for Work {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Pair(order) => write!(f, "a pair, order {order}"),
            Self::Fill => write!(f, "an allocation of a fill of {HELD}"),
            Self::Lifo => f.write_str("a free of those, last in first out"),
            Self::Random => f.write_str("a free of those, in random order"),
            Self::Bulk => f.write_str("a frame, of 512 in bulk"),
            Self::Object(bytes) => write!(f, "a pair of {bytes} bytes"),
            Self::Objects(bytes) => write!(f, "an object of {bytes} bytes, {OBJECTS} held"),
        }
    }
}

/// A heap, as far as the work needs it.
pub trait Blocks {
    /// Its name in tables.
    const NAME: &'static str;

    /// Allocates; the layout's size is not 0.
    fn alloc(&self, layout: Layout) -> Option<NonNull<u8>>;

    /// Frees.
    ///
    /// # Safety
    /// The block is from [`alloc`](Self::alloc) with this layout, and nobody uses it any more.
    unsafe fn free(&self, block: NonNull<u8>, layout: Layout);
}

/// Does one round of work on frames: operations, and ticks of the clock that they took. `held` has room for [`HELD`] frames.
///
/// # Errors
/// [`Refused`], if memory is out.
pub fn run_frames<F: Frames>(
    frames: &F,
    work: Work,
    held: &mut [u64],
    clock: impl Fn() -> u64,
) -> Result<(u64, u64), Refused> {
    let held = &mut held[..HELD];
    match work {
        // Callers know the order when they are compiled.
        Work::Pair(0) => pairs::<0>(frames, clock),
        Work::Pair(3) => pairs::<3>(frames, clock),
        Work::Pair(9) => pairs::<9>(frames, clock),
        Work::Pair(_) => Err(Refused),
        Work::Bulk => {
            let (part, begin) = (&mut held[..512], clock());
            for _ in 0..PAIRS / 512 {
                frames.alloc_bulk(part)?;
                frames.free_bulk(part)?;
            }
            Ok((PAIRS, clock() - begin))
        }
        _ => {
            let begin = clock();
            for frame in &mut *held {
                *frame = frames.alloc(0)?;
            }
            let filled = clock() - begin;
            if work == Work::Random {
                shuffle(held);
            }
            let begin = clock();
            for &frame in held.iter().rev() {
                frames.free(frame, 0)?;
            }
            let freed = clock() - begin;
            Ok((HELD as u64, if work == Work::Fill { filled } else { freed }))
        }
    }
}

fn pairs<const ORDER: u8>(
    frames: &impl Frames,
    clock: impl Fn() -> u64,
) -> Result<(u64, u64), Refused> {
    let begin = clock();
    for _ in 0..PAIRS {
        let frame = frames.alloc(ORDER)?;
        frames.free(frame, ORDER)?;
    }
    Ok((PAIRS, clock() - begin))
}

/// Does one round of work on a heap.
///
/// # Errors
/// [`Refused`], if memory is out.
pub fn run_heap<B: Blocks>(
    heap: &B,
    work: Work,
    clock: impl Fn() -> u64,
) -> Result<(u64, u64), Refused> {
    let (Work::Object(bytes) | Work::Objects(bytes)) = work else { return Err(Refused) };
    let layout = Layout::from_size_align(bytes, 8).map_err(|_| Refused)?;
    if matches!(work, Work::Object(_)) {
        let begin = clock();
        for _ in 0..PAIRS {
            let block = heap.alloc(layout).ok_or(Refused)?;
            // SAFETY: it was allocated just now, with this layout.
            unsafe { heap.free(block, layout) };
        }
        return Ok((PAIRS, clock() - begin));
    }
    let mut held = [NonNull::<u8>::dangling(); OBJECTS];
    let begin = clock();
    for block in &mut held {
        *block = heap.alloc(layout).ok_or(Refused)?;
    }
    let filled = clock() - begin;
    shuffle(&mut held);
    let begin = clock();
    for &block in &held {
        // SAFETY: it was allocated above, with this layout, and is freed once.
        unsafe { heap.free(block, layout) };
    }
    Ok((OBJECTS as u64, filled + clock() - begin))
}

/// In random order, the same each time (Fisher and Yates, with a generator of Steele, Lea and Flood 2014).
fn shuffle<T>(items: &mut [T]) {
    let mut state = 1_u64;
    for last in (1..items.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        items.swap(last, ((mixed ^ (mixed >> 31)) % (last as u64 + 1)) as usize);
    }
}
