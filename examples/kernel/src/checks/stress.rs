//! All CPUs at once: blocks of orders 0 to 10, bulk, objects, page locks, frees on other CPUs, and timers that interrupt with
//! handlers that allocate and free.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nearpage::testing::random::Random;
use nearpage::{Gfp, Order, Pfn, Request};
use nearpage_kernel::{Pages, TicketLock, page_address};
use nearpage_pagelock::PageLocks as _;

use crate::mine::Mine;
use crate::options::Options;
use crate::start::pages;
use crate::{arch, cpus, interrupt, log};

/// Blocks that a CPU holds at most, and that are on their way between CPUs.
const HELD: usize = 64;
const MAILED: usize = 512;

static OPERATIONS: AtomicU32 = AtomicU32::new(0);
static SEED: AtomicU64 = AtomicU64::new(0);
static COUNTS: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
const NAMES: [&str; 8] = [
    "blocks",
    "mailed",
    "bulk pages",
    "objects",
    "page locks",
    "refused",
    "freed",
    "locks of pages that all CPUs want",
];
const BLOCKS: usize = 0;
const MAILS: usize = 1;
const BULK: usize = 2;
const OBJECTS: usize = 3;
const LOCKS: usize = 4;
const NONE: usize = 5;
const FREED: usize = 6;
const SHARED: usize = 7;

/// Pages that all CPUs lock, and count in: who has the lock is alone there.
static WANTED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Blocks on their way to a CPU that frees them.
struct Mail {
    blocks: [(Pfn, Order); MAILED],
    count: usize,
}

static MAIL: TicketLock<Mine, Mail> =
    TicketLock::new(Mail { blocks: [(Pfn(0), Order(0)); MAILED], count: 0 });

fn count(what: usize, by: u64) {
    COUNTS[what].fetch_add(by, Ordering::Relaxed);
}

pub fn run(pages: &Pages<'_, Mine>, options: Options) {
    OPERATIONS.store(options.operations, Ordering::Relaxed);
    SEED.store(options.seed, Ordering::Relaxed);
    let before = interrupt::INTERRUPTS.load(Ordering::Relaxed);
    allocate_wanted(pages);
    interrupt::WORKS.store(true, Ordering::Relaxed);
    cpus::on_all(work);
    interrupt::WORKS.store(false, Ordering::Relaxed);
    // A handler that had begun ends before the next one comes.
    cpus::on_all(|_| {
        let seen = interrupt::INTERRUPTS.load(Ordering::Relaxed);
        while interrupt::INTERRUPTS.load(Ordering::Relaxed) < seen + 2 * u64::from(cpus::running())
        {
            arch::wait();
        }
    });
    interrupt::free_all();
    let mail = MAIL.lock();
    let left: Vec<(Pfn, Order)> = mail.blocks[..mail.count].to_vec();
    drop(mail);
    left.into_iter().for_each(free_marked);
    free_wanted(pages);
    for (name, count) in NAMES.iter().zip(&COUNTS) {
        log!("stress: {} {name}", count.load(Ordering::Relaxed));
    }
    log!(
        "stress: {} operations on {} CPUs, seed {}, {} timer interrupts, of which {} allocated and {} found nothing",
        u64::from(options.operations) * u64::from(cpus::running()),
        cpus::running(),
        options.seed,
        interrupt::INTERRUPTS.load(Ordering::Relaxed) - before,
        interrupt::ALLOCATED.load(Ordering::Relaxed),
        interrupt::REFUSED.load(Ordering::Relaxed),
    );
    log!(
        "unmaskable: {} interrupts that cannot be masked, of which {} got a page",
        interrupt::UNMASKABLE.load(Ordering::Relaxed),
        interrupt::UNMASKABLE_GOT.load(Ordering::Relaxed),
    );
    assert!(interrupt::ALLOCATED.load(Ordering::Relaxed) > 0, "interrupts came in the midst of it");
    let idle = (0..cpus::running()).find(|&cpu| !interrupt::has_worked(cpu as usize));
    assert_eq!(idle, None, "a CPU that no timer interrupted");
    for what in [BLOCKS, MAILS, BULK, OBJECTS, LOCKS, SHARED] {
        assert!(COUNTS[what].load(Ordering::Relaxed) > 0, "no {} at all", NAMES[what]);
    }
    let [allocated, freed] = [BLOCKS, FREED].map(|what| COUNTS[what].load(Ordering::Relaxed));
    assert_eq!(allocated, freed, "each block was freed once");
    let objects = crate::mine::HEAP.objects().expect("the heap is started");
    objects.check_all().unwrap_or_else(|error| panic!("objects: {error}"));
    super::walk(pages, "after the stress");
}

/// What one CPU does.
fn work(cpu: nearpage::CpuId) {
    let mut random = Random(SEED.load(Ordering::Relaxed) ^ u64::from(cpu.0) << 32);
    let mut held: [(Pfn, Order); HELD] = [(Pfn(0), Order(0)); HELD];
    let mut len = 0;
    let mut boxes: Vec<Vec<u8>> = Vec::new();
    for _ in 0..OPERATIONS.load(Ordering::Relaxed) {
        match random.below(16) {
            0..=5 if len < HELD => {
                // Large blocks are rare, as memory is.
                let order =
                    Order(random.below(11).min(random.below(11)).min(random.below(11)) as u8);
                if let Some(block) = alloc_marked(order, &mut random) {
                    held[len] = (block, order);
                    len += 1;
                }
            }
            0..=9 if len > 0 => {
                let at = random.below(len as u64) as usize;
                let block = held[at];
                held[at] = held[len - 1];
                len -= 1;
                if random.below(3) == 0 { mail(block) } else { free_marked(block) }
            }
            10 => bulk(&mut random),
            11 | 12 => objects(&mut boxes, &mut random),
            13 if len > 0 => lock_page(held[random.below(len as u64) as usize].0),
            14 => lock_wanted(&mut random),
            _ => take_mail(),
        }
    }
    held[..len].iter().copied().for_each(free_marked);
}

/// Allocates, and marks the block as this one: whoever else is given it is found out.
fn alloc_marked(order: Order, random: &mut Random) -> Option<Pfn> {
    let gfp = random.one_of(&[
        Gfp::KERNEL,
        Gfp::ATOMIC,
        Gfp::HIGHUSER_MOVABLE,
        Gfp::KERNEL | Gfp::RECLAIMABLE,
    ]);
    let Ok(block) = pages().alloc(Request::new(order, gfp | Gfp::NOWARN)) else {
        count(NONE, 1);
        return None;
    };
    count(BLOCKS, 1);
    for at in [0, order.pages().0 - 1] {
        let place = page_address::<Mine>(Pfn(block.0 + at)).cast::<u64>();
        // SAFETY: the block is this CPU's.
        unsafe { place.write_volatile(mark(block, order)) };
    }
    Some(block)
}

fn mark(block: Pfn, order: Order) -> u64 {
    block.0 << 8 | u64::from(order.0) | 1 << 63
}

fn free_marked((block, order): (Pfn, Order)) {
    for at in [0, order.pages().0 - 1] {
        let place = page_address::<Mine>(Pfn(block.0 + at)).cast::<u64>();
        // SAFETY: the block is this CPU's, and was marked.
        let found = unsafe { place.read_volatile() };
        assert_eq!(
            found,
            mark(block, order),
            "block {block} of order {} is somebody else's too",
            order.0
        );
    }
    // What is free is marked as nobody's.
    // SAFETY: as above.
    unsafe { page_address::<Mine>(block).cast::<u64>().write_volatile(0) };
    count(FREED, 1);
    pages().free(block, order).expect("it is this CPU's");
}

fn mail(block: (Pfn, Order)) {
    let mut mail = MAIL.lock();
    let at = mail.count;
    if at == MAILED {
        drop(mail);
        return free_marked(block);
    }
    mail.blocks[at] = block;
    mail.count += 1;
    count(MAILS, 1);
}

fn take_mail() {
    let mut mail = MAIL.lock();
    let Some(last) = mail.count.checked_sub(1) else { return };
    mail.count = last;
    let block = mail.blocks[last];
    drop(mail);
    free_marked(block);
}

fn bulk(random: &mut Random) {
    let mut some = [Pfn(0); 96];
    let wanted = 1 + random.below(96) as usize;
    let request = Request::new(Order(0), Gfp::KERNEL | Gfp::NOWARN);
    let got = pages().alloc_bulk(request, &mut some[..wanted]).unwrap_or(0);
    count(BULK, got as u64);
    pages().free_bulk(&some[..got]).expect("they are this CPU's");
}

fn objects(boxes: &mut Vec<Vec<u8>>, random: &mut Random) {
    if boxes.len() < 32 {
        let bits = random.below(13);
        let bytes = 1 + random.below(1 << bits) as usize;
        let mut new = Vec::new();
        if new.try_reserve_exact(bytes).is_ok() {
            new.resize(bytes, bytes as u8);
            boxes.push(new);
            count(OBJECTS, 1);
        }
    } else {
        let old = boxes.swap_remove(random.below(boxes.len() as u64) as usize);
        assert!(
            old.iter().all(|&byte| byte == old.len() as u8),
            "an object is somebody else's too"
        );
    }
}

fn lock_page(page: Pfn) {
    pages().lock_page(page).expect("it is allocated");
    count(LOCKS, 1);
    pages().unlock_page(page).expect("this CPU locked it");
}

fn allocate_wanted(pages: &Pages<'_, Mine>) {
    for wanted in &WANTED {
        let page = pages.alloc(Request::new(Order(0), Gfp::KERNEL)).expect("there is memory");
        // SAFETY: the page was just allocated.
        unsafe { page_address::<Mine>(page).cast::<u64>().write_volatile(0) };
        wanted.store(page.0, Ordering::Relaxed);
    }
}

/// Locks a page that other CPUs want too, and counts in it, as nobody could who is not alone.
fn lock_wanted(random: &mut Random) {
    let wanted = &WANTED[random.below(WANTED.len() as u64) as usize];
    let page = Pfn(wanted.load(Ordering::Relaxed));
    let place = page_address::<Mine>(page).cast::<u64>();
    pages().lock_page(page).expect("it is allocated");
    // SAFETY: who has the lock of the page has its memory.
    let seen = unsafe { place.read_volatile() };
    // In emulation the next CPU goes on, and may come to wait.
    arch::pause();
    // SAFETY: as above.
    unsafe { place.write_volatile(seen + 1) };
    pages().unlock_page(page).expect("this CPU locked it");
    count(SHARED, 1);
}

fn free_wanted(pages: &Pages<'_, Mine>) {
    let mut counted = 0;
    for wanted in &WANTED {
        let page = Pfn(wanted.load(Ordering::Relaxed));
        // SAFETY: all CPUs are done with it.
        counted += unsafe { page_address::<Mine>(page).cast::<u64>().read_volatile() };
        pages.free(page, Order(0)).expect("it was allocated for the stress");
    }
    let locks = COUNTS[SHARED].load(Ordering::Relaxed);
    assert_eq!(counted, locks, "two CPUs had the lock of one page at once");
}
