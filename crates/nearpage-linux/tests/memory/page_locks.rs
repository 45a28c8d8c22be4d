//! Page locks of real threads: exclusion, waits in the kernel, bad input, forks, threads that come, go and move.
//!
//! `NEARPAGE_FORKS=n` forks so often instead of for a second each way.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nearpage::rules::{PageLockRules, WaitTables, WaitersBit};
use nearpage::stats::WaitCounts;
use nearpage::testing::random::Random;
use nearpage::{FreeError, Gfp, Model, Order, Pfn, Request};
use nearpage_linux::{HostMachine, LockError, LockablePages, Memory, MemoryBuilder, OnMisuse};
use nearpage_machine::read_this_machine;
use nearpage_pagelock::PageLockError;

use super::affinity::{allowed_cpus, run_on};
use super::alone::alone;
use super::child_threads;

/// Two emulated nodes.
fn builder() -> MemoryBuilder {
    let machine = read_this_machine().unwrap().split(2.try_into().unwrap());
    Memory::builder().machine(HostMachine::emulated(&machine)).bytes_per_node(32 << 20)
}

/// Memories of all rules and both storages.
fn memories() -> Vec<Memory> {
    let tables = [WaitTables::PerNode, WaitTables::Global, WaitTables::PerZone];
    let rules = tables.into_iter().flat_map(|tables| {
        [WaitersBit::On, WaitersBit::Off].map(|waiters_bit| PageLockRules { tables, waiters_bit })
    });
    rules
        .enumerate()
        .map(|(at, page_lock)| {
            let model = if at < 3 { Model::LINUX_6_18 } else { Model::NEARPAGE };
            let model = model.with(|changed| changed.page_lock = page_lock);
            builder().use_rseq(at % 2 == 0).hardened(at % 3 == 0).model(model).build().unwrap()
        })
        .collect()
}

fn counts(memory: &Memory) -> WaitCounts {
    let nodes = memory.topology().nodes().iter();
    let counts = nodes.map(|node| memory.wait_counts(node.id).unwrap());
    counts.fold(WaitCounts::default(), WaitCounts::merged)
}

/// Adds to a number in the page that only its lock keeps whole.
fn add_one(page: &mut [u8]) {
    let number = u64::from_le_bytes(page[..8].try_into().unwrap());
    if number.is_multiple_of(64) {
        thread::yield_now();
    }
    page[..8].copy_from_slice(&(number + 1).to_le_bytes());
}

fn number_in(pages: &LockablePages<'_>, index: usize) -> u64 {
    u64::from_le_bytes(pages.lock(index).unwrap()[..8].try_into().unwrap())
}

#[test]
fn one_thread_at_a_time_has_a_page() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 5000;
    for memory in memories() {
        let request = Request::new(Order(2), Gfp::KERNEL.union(Gfp::ZERO));
        let pages = memory.alloc(request).unwrap().lockable();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let pages = &pages;
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for _ in 0..ROUNDS {
                        let index = random.below(4) as usize;
                        // A page that is not the block's first has its lock bits in a frame of its own.
                        match random.below(4) {
                            0 => loop {
                                if let Some(mut page) = pages.try_lock(index).unwrap() {
                                    break add_one(&mut page);
                                }
                                pages.wait_on(index).unwrap();
                            },
                            1 => loop {
                                match pages.lock_timeout(index, Duration::from_micros(50)) {
                                    Ok(mut page) => break add_one(&mut page),
                                    Err(error) => assert_eq!(error, PageLockError::TimedOut.into()),
                                }
                            },
                            _ => add_one(&mut pages.lock(index).unwrap()),
                        }
                    }
                });
            }
        });
        let sum: u64 = (0..4).map(|index| number_in(&pages, index)).sum();
        assert_eq!(sum, THREADS * ROUNDS, "{:?}", memory.storage());
        drop(pages);
        assert_eq!(memory.check().unwrap().allocated.0, 0);
        assert_eq!(memory.misuses(), 0);
    }
}

/// Each thread takes the lock again and again until it is its turn.
#[test]
fn a_lock_goes_round_many_threads() {
    const THREADS: usize = 16;
    const ROUNDS: u64 = 50;
    for memory in memories() {
        let pages = memory.alloc_pages(THREADS as u64).unwrap().lockable();
        let turn = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (pages, turn) = (&pages, &turn);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let expected = round * THREADS as u64 + thread as u64;
                        while turn.load(Ordering::Acquire) != expected {
                            drop(pages.lock(0).unwrap());
                            thread::yield_now();
                        }
                        let _page = pages.lock(0).unwrap();
                        turn.fetch_add(1, Ordering::Release);
                    }
                });
            }
        });
        assert_eq!(turn.load(Ordering::Relaxed), THREADS as u64 * ROUNDS);
    }
}

#[test]
fn all_readers_are_woken_by_one_unlock() {
    const READERS: u64 = 40;
    for memory in memories() {
        let block = memory.alloc_pages(1).unwrap();
        let pfn = block.pfn();
        memory.lock_page(pfn).unwrap();
        let before = counts(&memory).waits;
        thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| memory.wait_on_page(pfn).unwrap());
            }
            while counts(&memory).waits < before + READERS {
                thread::yield_now();
            }
            // SAFETY: it was locked above.
            unsafe { memory.unlock_page(pfn) }.unwrap();
        });
        let counts = counts(&memory);
        assert_eq!((counts.wakes, counts.longest_chain), (READERS, READERS));
        assert_eq!(counts.collisions, 0);
        assert!(memory.vmstat().contains(&format!("\npage_lock_wakes {READERS}\n")));
    }
}

#[test]
fn a_bit_of_a_word_in_the_memory_can_be_waited_for() {
    for memory in memories() {
        let block = memory.alloc_pages(1).unwrap();
        // SAFETY: the block is aligned, zeroed by nobody else, and lives as long as the word is used.
        let word = unsafe { &*block.as_ptr().cast::<AtomicU32>().as_ptr() };
        word.store(0b1010, Ordering::Relaxed);
        assert_eq!(memory.wait_on_bit(word, 0, None), Ok(()));
        let soon = Some(Duration::from_millis(1));
        assert_eq!(memory.wait_on_bit(word, 1, soon), Err(PageLockError::TimedOut));
        thread::scope(|scope| {
            for bit in [1, 3, 3] {
                let memory = &memory;
                scope.spawn(move || memory_waits(memory, word, bit));
            }
            while counts(&memory).waits < 4 {
                thread::yield_now();
            }
            word.fetch_and(!0b1000, Ordering::Release);
            memory.wake_up_bit(word, 3).unwrap();
            word.fetch_and(!0b0010, Ordering::Release);
            memory.wake_up_bit(word, 1).unwrap();
        });
        assert_eq!(counts(&memory).wakes, 3);
        memory.wake_up_bit(word, 1).unwrap();
    }
}

fn memory_waits(memory: &Memory, word: &AtomicU32, bit: u32) {
    memory.wait_on_bit(word, bit, None).unwrap();
    assert_eq!(word.load(Ordering::Relaxed) >> bit & 1, 0);
}

#[test]
fn bad_input_is_refused_by_name() {
    for memory in memories() {
        let pages = memory.alloc_pages(4).unwrap().lockable();
        let outside = LockError::NoSuchPage { index: 4, pages: 4 };
        assert_eq!(pages.lock(4).unwrap_err(), outside);
        assert_eq!(pages.try_lock(usize::MAX).unwrap_err().to_string().split(':').count(), 2);
        assert_eq!(pages.wait_on(4), Err(outside));
        assert_eq!(pages.is_locked(4), Err(outside));
        assert_eq!(outside.to_string(), "page 4 of a block: it has pages 0 to 3");

        let foreign = Pfn(1);
        assert_eq!(memory.lock_page(foreign), Err(PageLockError::Foreign { pfn: foreign }));
        assert_eq!(memory.wait_on_page(foreign), Err(PageLockError::Foreign { pfn: foreign }));
        let free = Pfn(pages.pfn().0 + 4096);
        assert_eq!(memory.try_lock_page(free), Err(PageLockError::NotAllocated { pfn: free }));

        let elsewhere = AtomicU64::new(1);
        let address = std::ptr::from_ref(&elsewhere).addr() as u64;
        let outside = PageLockError::OutsideMemory { address };
        assert_eq!(memory.wait_on_bit(&elsewhere, 0, None), Err(outside));
        assert_eq!(memory.wake_up_bit(&elsewhere, 0), Err(outside));
        let no_bit = PageLockError::NoSuchBit { bit: 64, bits: 64 };
        assert_eq!(memory.wait_on_bit(&elsewhere, 64, None), Err(no_bit));
        assert_eq!(memory.wake_up_bit(&elsewhere, 64), Err(no_bit));
        assert_eq!(no_bit.to_string(), "bit 64 of a word of 64 bits, which are counted from 0");
        // SAFETY: nobody uses a page of that number.
        let refused = unsafe { memory.unlock_page(foreign) }.unwrap_err();
        let text = format!("page {foreign} has no lock: it belongs to no memory of this allocator");
        assert_eq!(refused.to_string(), text);
    }
}

#[test]
fn an_unlock_of_an_unlocked_page_is_counted_and_changes_nothing() {
    for memory in memories() {
        let block = memory.alloc_pages(2).unwrap();
        let inner = Pfn(block.pfn().0 + 1);
        for pfn in [block.pfn(), inner] {
            // SAFETY: nobody uses the page as if it were locked.
            let unlocked = unsafe { memory.unlock_page(pfn) };
            assert_eq!(unlocked, Err(PageLockError::NotLocked { pfn }));
            assert_eq!(memory.is_page_locked(pfn), Ok(false));
        }
        assert_eq!(memory.misuses(), 2);
    }
}

#[test]
#[should_panic(expected = "unlock of page")]
fn a_wrong_unlock_panics_if_asked() {
    let memory = builder().on_misuse(OnMisuse::Panic).build().unwrap();
    let block = memory.alloc_pages(1).unwrap();
    // SAFETY: nobody uses the page as if it were locked.
    let _ = unsafe { memory.unlock_page(block.pfn()) };
}

#[test]
fn a_locked_page_is_not_freed() {
    for memory in memories() {
        for order in [Order(0), Order(3)] {
            let pfn = memory.alloc_frames(Request::new(order, Gfp::KERNEL)).unwrap();
            memory.lock_page(pfn).unwrap();
            // SAFETY: nobody uses the block.
            let freed = unsafe { memory.free_frames(pfn, order) };
            assert_eq!(freed, Err(FreeError::Locked { pfn, order }));
            // SAFETY: it was locked above, and is not used.
            unsafe {
                memory.unlock_page(pfn).unwrap();
                memory.free_frames(pfn, order).unwrap();
            }
        }
        assert_eq!(memory.misuses(), 2);
        assert_eq!(memory.check().unwrap().allocated.0, 0);
    }
}

#[test]
fn a_handle_does_not_lock_a_page_that_was_freed() {
    for memory in memories() {
        for (order, inside) in [(Order(0), 0), (Order(2), 0), (Order(2), 3)] {
            let first = memory.alloc_frames(Request::new(order, Gfp::KERNEL)).unwrap();
            let pfn = Pfn(first.0 + inside);
            let handle = memory.page_handle(pfn).unwrap();
            assert_eq!((handle.try_lock(), handle.try_lock()), (Ok(true), Ok(false)));
            // SAFETY: locked above, and nobody uses the block.
            unsafe {
                handle.unlock().unwrap();
                handle.lock().unwrap();
                handle.unlock().unwrap();
                memory.free_frames(first, order).unwrap();
            }
            let refused = PageLockError::NotAllocated { pfn };
            assert_eq!((handle.try_lock(), handle.lock()), (Err(refused), Err(refused)));
            assert_eq!(memory.check().unwrap().allocated.0, 0, "{order:?} {inside}");
        }
    }
}

#[test]
fn forgotten_guards_do_not_outlive_their_block() {
    for memory in memories() {
        let pages = memory.alloc_pages(4).unwrap().lockable();
        for index in 0..4 {
            std::mem::forget(pages.lock(index).unwrap());
        }
        let block = pages.into_block();
        let pages = block.lockable();
        std::mem::forget(pages.lock(1).unwrap());
        drop(pages);
        let pages = memory.alloc_pages(4).unwrap().lockable();
        assert!((0..4).all(|index| pages.is_locked(index) == Ok(false)));
        assert_eq!(memory.misuses(), 0);
    }
}

#[test]
fn time_is_up_after_it_and_leaves_nothing() {
    for memory in memories() {
        let pages = memory.alloc_pages(1).unwrap().lockable();
        let held = pages.lock(0).unwrap();
        let start = Instant::now();
        let late = pages.lock_timeout(0, Duration::from_millis(20));
        assert_eq!(late.unwrap_err(), PageLockError::TimedOut.into());
        assert!(start.elapsed() >= Duration::from_millis(20));
        let late = pages.wait_on_timeout(0, Duration::from_millis(20));
        assert_eq!(late, Err(PageLockError::TimedOut.into()));
        assert!(start.elapsed() >= Duration::from_millis(40));
        drop(held);
        assert_eq!(pages.wait_on_timeout(0, Duration::from_secs(60)), Ok(()));
        drop(pages.lock(0).unwrap());
        drop(pages);
        memory.check().unwrap();
    }
}

/// Threads that fight over a few pages until told to stop.
fn fight(pages: &LockablePages<'_>, stop: &AtomicBool, seed: u64) {
    let mut random = Random(seed);
    while !stop.load(Ordering::Relaxed) {
        let index = random.below(pages.len() as u64) as usize;
        match random.below(8) {
            0 => pages.wait_on(index).unwrap(),
            1 => drop(pages.lock_timeout(index, Duration::from_micros(random.below(200)))),
            _ => add_one(&mut pages.lock(index).unwrap()),
        }
    }
}

#[test]
fn threads_come_and_go_and_move() {
    let cpus = allowed_cpus();
    for memory in memories() {
        let pages = memory.alloc_pages(2).unwrap().lockable();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for seed in 0..4 {
                let (pages, stop, cpus) = (&pages, &stop, &cpus);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    while !stop.load(Ordering::Relaxed) {
                        run_on(&[random.one_of(cpus)]);
                        // A thread that ends while others wait beside it, and maybe for it.
                        let brief = AtomicBool::new(false);
                        thread::scope(|inner| {
                            inner.spawn(|| fight(pages, &brief, seed));
                            thread::sleep(Duration::from_micros(300));
                            run_on(cpus);
                            brief.store(true, Ordering::Relaxed);
                        });
                    }
                });
            }
            thread::sleep(Duration::from_millis(200));
            stop.store(true, Ordering::Relaxed);
        });
        assert!((0..2).all(|index| pages.is_locked(index) == Ok(false)));
        drop(pages);
        memory.check().unwrap();
    }
}

/// What a child does: the pages that others had locked stay so; all others are as good as new.
fn live(memory: &Memory, pages: &LockablePages<'_>, own: &LockablePages<'_>) {
    add_one(&mut own.lock(0).unwrap());
    for index in 0..pages.len() {
        match pages.lock_timeout(index, Duration::from_micros(1)) {
            Ok(mut page) => add_one(&mut page),
            Err(error) => assert_eq!(error, PageLockError::TimedOut.into()),
        }
    }
    let request = Request::new(Order(1), Gfp::KERNEL.union(Gfp::ZERO));
    let fresh = memory.alloc(request).unwrap().lockable();
    let adds = || (0..100).for_each(|_| add_one(&mut fresh.lock(1).unwrap()));
    child_threads::beside(2, adds, adds);
    assert_eq!(number_in(&fresh, 1), 300);
    assert!(memory.vmstat().contains("page_lock_waits"));
}

/// Forks once; returns whether the child lived.
fn fork(memory: &Memory, pages: &LockablePages<'_>, own: &LockablePages<'_>) -> bool {
    // SAFETY: the child allocates with glibc's malloc, which is made for this, and prints nothing unless it
    // fails.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: has no preconditions.
        unsafe { libc::alarm(30) };
        let living = std::panic::AssertUnwindSafe(|| live(memory, pages, own));
        let lived = std::panic::catch_unwind(living).is_ok();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(!lived as i32) };
    }
    let mut status = 0;
    // SAFETY: writes the status of our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn children_of_a_process_that_fights_over_pages_go_on() {
    alone("page_locks::children_of_a_process_that_fights_over_pages_go_on", || {
        let wanted: Option<u32> = std::env::var("NEARPAGE_FORKS").ok().map(|n| n.parse().unwrap());
        for use_rseq in [true, false] {
            let memory = builder().use_rseq(use_rseq).build().unwrap();
            let pages = memory.alloc_pages(4).unwrap().lockable();
            // A page that only the forking thread has.
            let own = memory.alloc_pages(1).unwrap().lockable();
            let stop = AtomicBool::new(false);
            let (mut forks, start) = (0, Instant::now());
            thread::scope(|scope| {
                for seed in 0..4 {
                    let (pages, stop) = (&pages, &stop);
                    scope.spawn(move || fight(pages, stop, seed));
                }
                while wanted
                    .map_or(start.elapsed() < Duration::from_secs(1), |wanted| forks < wanted)
                {
                    drop(own.lock(0).unwrap());
                    let lived = fork(&memory, &pages, &own) || stop_and_fail(&stop);
                    assert!(lived, "the child of fork {forks} did not live");
                    forks += 1;
                }
                stop.store(true, Ordering::Relaxed);
            });
            println!("{forks} forks, {:?}", counts(&memory));
            drop((pages, own));
            assert_eq!(memory.check().unwrap().allocated.0, 0);
        }
    });
}

fn stop_and_fail(stop: &AtomicBool) -> bool {
    stop.store(true, Ordering::Relaxed);
    false
}

/// A reader that waits by frame number never has the lock: so it cannot unlock the page that somebody else has locked since
/// the block's owner took off all locks.
#[test]
fn a_page_has_one_guard_however_many_wait_for_it() {
    const TIME: Duration = Duration::from_millis(700);
    for use_rseq in [true, false] {
        let memory = Memory::builder().bytes_per_node(32 << 20).use_rseq(use_rseq).build().unwrap();
        let block = memory.alloc_pages(1).unwrap();
        let (pfn, start) = (block.pfn(), Instant::now());
        let (memory, mut block) = (&memory, Some(block));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    while start.elapsed() < TIME {
                        memory.wait_on_page(pfn).unwrap();
                    }
                });
            }
            while start.elapsed() < TIME {
                let pages = block.take().expect("it comes back each time").lockable();
                let guard = pages.lock(0).unwrap();
                let locked = Instant::now();
                while locked.elapsed() < Duration::from_micros(100) {
                    assert!(pages.try_lock(0).unwrap().is_none(), "two guards at once");
                }
                drop(guard);
                block = Some(pages.into_block());
            }
            // Those who wait ask for an allocated page.
            std::thread::sleep(Duration::from_millis(50));
        });
        drop(block);
        assert_eq!(memory.misuses(), 0);
    }
}
