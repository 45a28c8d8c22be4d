//! Memory that the kernel took for itself before there was an allocator is never handed out.

use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::{Pfn, PfnRange};
use nearpage_kernel::boot::{EarlyError, EarlyMemory};
use nearpage_kernel::{Kernel as _, Pages};

use crate::log;
use crate::mine::Mine;

/// The largest block, so that it would be handed out as one.
const BYTES: u64 = 4 << 20;

static START: AtomicU64 = AtomicU64::new(0);

fn words() -> &'static mut [u64] {
    let start = Mine::phys_to_virt(START.load(Ordering::Relaxed)).cast();
    // SAFETY: `take` took this memory, for ever, and only the first CPU uses it, here.
    unsafe { core::slice::from_raw_parts_mut(start, BYTES as usize / 8) }
}

fn mark(at: usize) -> u64 {
    (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Takes some, and marks it.
pub fn take(memory: &mut EarlyMemory) -> Result<(), EarlyError> {
    START.store(memory.alloc(BYTES, BYTES)?, Ordering::Relaxed);
    words().iter_mut().enumerate().for_each(|(at, word)| *word = mark(at));
    Ok(())
}

/// Plants a fault, in builds that have it: the range is handed to the allocator too.
pub fn hand_over_too(pages: &Pages<'_, Mine>) {
    if cfg!(feature = "fault-range-twice") {
        let start = START.load(Ordering::Relaxed);
        let range = PfnRange { start: Pfn(start >> 12), end: Pfn((start + BYTES) >> 12) };
        pages.online(range).expect("nobody knows that it is in use");
    }
}

/// All of it is as it was.
pub fn check() {
    let wrong = words().iter().enumerate().find(|&(at, &word)| word != mark(at));
    if let Some((at, word)) = wrong {
        panic!("the kernel's own memory is somebody else's too: word {at} of it is {word:#x}");
    }
    log!("own: {} KiB that were taken before the boot are as they were", BYTES >> 10);
}
