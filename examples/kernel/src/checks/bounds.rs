//! What each public call takes at most, of instructions, in all and with interrupts off, and of stack, once all memory was in use and random halves of it came
//! back: counted by an emulator that counts one nanosecond for each instruction (`-icount shift=0`). One CPU runs, interrupts
//! are on and none comes.

use alloc::vec;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::fmt::{self, Write};
use core::hint::black_box;

use nearpage::testing::random::Random;
use nearpage::{Gfp, Order, PageCount, Pfn, PfnRange, Request};
use nearpage_kernel::Pages;

use crate::mine::{HEAP, Mine};
use crate::painted::stack_of;
use crate::{arch, log, masked};

/// Rounds of a call that is short; the most of them counts.
const ROUNDS: u32 = 20_000;
/// Rounds of one that looks at the whole machine.
const FEW: u32 = 3;
/// Pages in bulk.
const BULK: usize = 512;

const PAGE: Request = Request::new(Order(0), Gfp::KERNEL);

/// Text that goes nowhere.
struct Nowhere(u64);

impl Write for Nowhere {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len() as u64;
        Ok(())
    }
}

/// Pages that this check holds, a bit each.
struct Held {
    first: Pfn,
    bits: Vec<u64>,
}

impl Held {
    fn flip(&mut self, page: Pfn) {
        let at = page.0 - self.first.0;
        self.bits[at as usize / 64] ^= 1 << (at % 64);
    }

    fn pages(&self) -> impl Iterator<Item = Pfn> + '_ {
        let all = 0..self.bits.len() as u64 * 64;
        let is_held = |&at: &u64| self.bits[at as usize / 64] >> (at % 64) & 1 == 1;
        all.filter(is_held).map(|at| Pfn(self.first.0 + at))
    }
}

/// Takes all memory, page by page, and frees a random half.
fn use_memory(pages: &Pages<'_, Mine>, random: &mut Random) -> Held {
    let spans = || pages.zones().iter().map(|zone| zone.span());
    let first = spans().map(|span| span.start).min().expect("a zone");
    let end = spans().map(|span| span.end).max().expect("a zone");
    let words = (end.0 - first.0).div_ceil(64) as usize;
    let mut held = Held { first, bits: vec![0; words] };
    while let Ok(page) = pages.alloc(PAGE) {
        held.flip(page);
    }
    for word in 0..words {
        let some = held.bits[word] & random.below(u64::MAX);
        for bit in (0..64).filter(|bit| some >> bit & 1 == 1) {
            let page = Pfn(first.0 + word as u64 * 64 + bit);
            held.flip(page);
            pages.free(page, Order(0)).expect("it is held");
        }
    }
    held
}

/// The most that a call takes, the longest stretch of it with interrupts off, and the most of the stack.
fn row(name: &str, rounds: u32, mut call: impl FnMut()) {
    let (mut most, mut stretch) = (0, 0);
    let stack = stack_of(|| {
        for _ in 0..rounds {
            masked::take_longest();
            let begin = arch::now_ns();
            call();
            most = most.max(arch::now_ns() - begin);
            stretch = stretch.max(masked::take_longest());
        }
    });
    log!("bounds: | {name} | {most} | {stretch} | {stack} |");
}

/// `boot_stack` is what the boot took of the stack.
pub fn run(pages: &'static Pages<'static, Mine>, boot_stack: u64) {
    log!("bounds: | the boot | 0 | 0 | {boot_stack} |");
    arch::interrupts_on();
    let mut random = Random(0xb0_07d5);
    let begin = arch::now_ns();
    let mut held = use_memory(pages, &mut random);
    let (free, all) = pages
        .zones()
        .iter()
        .fold((0, 0), |(free, all), zone| (free + zone.free_pages().0, all + zone.managed().0));
    let used = (arch::now_ns() - begin) / 1_000_000;
    log!("bounds: {free} of {all} pages are free, after {used} M instructions of use");
    single(pages, &mut held, &mut random);
    blocks(pages);
    ranges(pages);
    heap();
    texts(pages);
    row("drain_all", FEW, || _ = black_box(pages.drain_all()));
    row("settings, set", FEW, || _ = black_box(pages.set_settings(pages.settings())));
    arch::interrupts_off();
    held.pages().for_each(|page| pages.free(page, Order(0)).expect("it is held"));
    super::walk(pages, "after the bounds");
}

/// Single pages: allocated and freed in any order, so that lists fill, empty and go through all tempers.
fn single(pages: &Pages<'_, Mine>, held: &mut Held, random: &mut Random) {
    let mut some: Vec<Pfn> = Vec::with_capacity(ROUNDS as usize);
    row("a page, allocated", ROUNDS, || some.extend(pages.alloc(PAGE)));
    for at in (1..some.len()).rev() {
        some.swap(at, random.below(at as u64 + 1) as usize);
    }
    row("a page, freed", some.len() as u32, || {
        if let Some(page) = some.pop() {
            pages.free(page, Order(0)).expect("it is held");
        }
    });
    let old: Vec<Pfn> = held.pages().step_by(7).take(ROUNDS as usize).collect();
    old.iter().for_each(|&page| held.flip(page));
    let mut old = old.into_iter();
    row("an old page, freed", old.len() as u32, || {
        if let Some(page) = old.next() {
            pages.free(page, Order(0)).expect("it is held");
        }
    });
    let mut many = vec![Pfn(0); BULK];
    let mut got = 0;
    row("512 pages in bulk, allocated", 1, || got = pages.alloc_bulk(PAGE, &mut many).unwrap_or(0));
    row("512 pages in bulk, freed", 1, || pages.free_bulk(&many[..got]).expect("they are held"));
}

/// Blocks that are there, and blocks that are not.
fn blocks(pages: &Pages<'_, Mine>) {
    let wanted =
        [(3, "a block of order 3"), (9, "a block of order 9"), (10, "a block of order 10")];
    for (order, name) in wanted.map(|(order, name)| (Order(order), name)) {
        let mut block = None;
        row(name, FEW, || {
            if let Some(block) = block.take() {
                pages.free(block, order).expect("it is held");
            }
            block = black_box(pages.alloc(Request::new(order, Gfp::KERNEL))).ok();
        });
        if let Some(block) = block {
            pages.free(block, order).expect("it is held");
        }
    }
    let urgent = Request::new(Order(3), Gfp::ATOMIC);
    row("an urgent block of order 3", 64, || {
        if let Ok(block) = black_box(pages.alloc(urgent)) {
            pages.free(block, Order(3)).expect("it is held");
        }
    });
}

/// Ranges that are there, and ranges that are not.
fn ranges(pages: &Pages<'_, Mine>) {
    let all = PfnRange::new(0, u64::MAX);
    row("alloc_contiguous of 64 MiB, refused", FEW, || {
        let told = pages.alloc_contiguous(PageCount(1 << 14), Order(0), PAGE);
        assert!(told.is_err(), "half of it is in use");
    });
    row("alloc_within of 64 MiB, refused", FEW, || {
        assert!(pages.alloc_within(all, PageCount(1 << 14), Order(0)).is_err());
    });
    row("alloc_within of 3 pages, and freed", FEW, || {
        let range = pages.alloc_within(all, PageCount(3), Order(0)).expect("three are free");
        pages.free_range(range).expect("it is held");
    });
}

fn heap() {
    let sizes = [64, 4096, 100 << 10, 3 << 20].map(|size| Layout::from_size_align(size, 8));
    for layout in sizes.into_iter().flatten() {
        let name = match layout.size() {
            64 => "64 bytes of the heap, and freed",
            4096 => "4 KiB of the heap, and freed",
            0..0x10_0000 => "100 KiB of the heap, and freed",
            _ => "3 MiB of the heap, and freed",
        };
        row(name, 64, || {
            if let Some(place) = HEAP.alloc_with(layout, Gfp::ATOMIC, None) {
                // SAFETY: it was just allocated, by this layout.
                unsafe { core::alloc::GlobalAlloc::dealloc(&HEAP, place, layout) };
            }
        });
    }
    let objects = HEAP.objects().expect("the heap is started");
    row("shrink of all caches", FEW, || _ = black_box(objects.shrink_all()));
}

fn texts(pages: &Pages<'_, Mine>) {
    row("buddyinfo", FEW, || _ = pages.write_buddyinfo(&mut Nowhere(0)));
    row("pagetypeinfo", FEW, || _ = pages.write_pagetypeinfo(&mut Nowhere(0)));
    row("zoneinfo", FEW, || _ = pages.write_zoneinfo(&mut Nowhere(0)));
    let refused = Request::new(Order(9), Gfp::KERNEL);
    row("the report of a refused request", FEW, || {
        let report = pages.report(refused).expect("it can be met");
        _ = write!(Nowhere(0), "{report}");
    });
}
