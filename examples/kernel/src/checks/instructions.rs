//! Instructions of operations, beside other allocators: counted by an emulator that counts one nanosecond for each
//! (`-icount shift=0`). One CPU runs, no interrupts come, and this build checks no locks.

use core::fmt;

use beside::{
    Bitmap, Blocks, Buddy, Byte, FRAME_WORK, Frames, HEAP_WORK, HELD, LinkedList, OurHeap, Ours,
    Refused, TalcHeap, Work, run_frames, run_heap,
};
use bitmap_allocator::{BitAlloc as _, BitAlloc1M};
use nearpage::{Gfp, Order, Request};
use nearpage_kernel::{Pages, TicketLock, page_address};

use crate::mine::{HEAP, Mine};
use crate::{arch, log};

/// Frames that the others have: about as many as this machine.
const FRAMES: usize = 1 << 14;
/// The order of the memory that each of the other heaps has: 4 MiB.
const HEAP_ORDER: Order = Order(10);

static MAP: TicketLock<Mine, BitAlloc1M> = TicketLock::new(BitAlloc1M::DEFAULT);
static HELD_FRAMES: TicketLock<Mine, [u64; HELD]> = TicketLock::new([0; HELD]);

/// Instructions of one operation, in tenths.
type Tenths = Result<u64, Refused>;

pub fn run(pages: &'static Pages<'static, Mine>) {
    let ours = Ours(pages);
    let buddy = Buddy::<Mine>::new(FRAMES);
    // The guard is never dropped: the map is this allocator's for good.
    let map = alloc::boxed::Box::leak(alloc::boxed::Box::new(MAP.lock()));
    let bitmap = Bitmap::<Mine>::new(map, FRAMES);
    line(&"work", &[name(&ours), name(&buddy), name(&bitmap)]);
    let held = &mut *HELD_FRAMES.lock();
    for work in FRAME_WORK {
        let counted = [
            count(|| run_frames(&ours, work, held, arch::now_ns)),
            count(|| run_frames(&buddy, work, held, arch::now_ns)),
            count(|| run_frames(&bitmap, work, held, arch::now_ns)),
        ];
        figures(work, counted);
    }
    let ours = OurHeap(&HEAP);
    let list = LinkedList::<Mine>::new(memory(pages));
    let talc = TalcHeap::<Mine>::new(memory(pages));
    line(&"work", &[heap_name(&ours), heap_name(&list), heap_name(&talc)]);
    for work in HEAP_WORK {
        let counted = [
            count(|| run_heap(&ours, work, arch::now_ns)),
            count(|| run_heap(&list, work, arch::now_ns)),
            count(|| run_heap(&talc, work, arch::now_ns)),
        ];
        figures(work, counted);
    }
    super::walk(pages, "after the count");
}

const fn name<F: Frames>(_: &F) -> &'static str {
    F::NAME
}

const fn heap_name<B: Blocks>(_: &B) -> &'static str {
    B::NAME
}

/// A round that is not counted, to fill what is empty, and one that is.
fn count(mut round: impl FnMut() -> Result<(u64, u64), Refused>) -> Tenths {
    round()?;
    let (operations, ticks) = round()?;
    Ok(ticks * 10 / operations)
}

fn figures(work: Work, counted: [Tenths; 3]) {
    line(&work, &counted.map(Figure));
}

/// Tenths with their point, or that memory was out.
struct Figure(Tenths);

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(tenths) => write!(f, "{}.{}", tenths / 10, tenths % 10),
            Err(Refused) => f.write_str("refused"),
        }
    }
}

fn line(work: &dyn fmt::Display, [a, b, c]: &[impl fmt::Display; 3]) {
    log!("instructions: | {work} | {a} | {b} | {c} |");
}

/// Memory of the kernel's, for good.
fn memory(pages: &Pages<'_, Mine>) -> &'static mut [Byte] {
    let block = pages.alloc(Request::new(HEAP_ORDER, Gfp::KERNEL)).expect("there is memory");
    let bytes = (HEAP_ORDER.pages().0 as usize) << 12;
    // SAFETY: the block is this heap's alone, and is never freed.
    unsafe { core::slice::from_raw_parts_mut(page_address::<Mine>(block).cast(), bytes) }
}
