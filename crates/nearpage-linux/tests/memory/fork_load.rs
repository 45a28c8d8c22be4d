//! Forks while threads allocate, free, drain and bring memory online: each child goes on.
//!
//! `NEARPAGE_FORKS=n` forks so often instead of for a second, and ten times at least, each way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nearpage::{Gfp, Model, NodeId, Order, Request};
use nearpage_linux::{HostMachine, Memory};
use nearpage_machine::read_this_machine;

use super::alone::alone;

const FORKS_LEAST: u32 = 10;
const ORDERS: [u8; 7] = [0, 0, 0, 1, 3, 5, 9];

/// Two emulated nodes, the second with a reserve that grows.
fn memory(use_rseq: bool) -> Memory {
    memory_under(Model::NEARPAGE, use_rseq)
}

fn memory_under(model: Model, use_rseq: bool) -> Memory {
    let machine = read_this_machine().unwrap().split(2.try_into().unwrap());
    let host = HostMachine::emulated(&machine);
    let builder = Memory::builder().machine(host).model(model).use_rseq(use_rseq);
    builder.bytes_per_node(32 << 20).reserve_per_node(1 << 30).build().unwrap()
}

/// Takes blocks, stamps them, and looks at the stamps before they go back.
fn work(memory: &Memory, rounds: usize, stamp: u64) {
    let mut blocks = Vec::new();
    for round in 0..rounds {
        let order = Order(ORDERS[round % ORDERS.len()]);
        // Other threads may have all of it at the moment.
        let Ok(mut block) = memory.alloc(Request::new(order, Gfp::KERNEL)) else { continue };
        block[..8].copy_from_slice(&stamp.to_le_bytes());
        blocks.push(block);
        if round % 50 == 49 {
            blocks.drain(..).for_each(|block| assert_eq!(block[..8], stamp.to_le_bytes()));
        }
    }
}

/// What a child does; it has one thread and needs nothing that another one had.
fn live(memory: &Memory) {
    work(memory, 100, 1 << 32);
    memory.drain_all().unwrap();
    assert!(memory.vmstat().contains("nr_free_pages"));
    memory.zoneinfo();
    // Its own memory may grow.
    let _ = memory.bring_online(NodeId(1), 4 << 20);
    work(memory, 100, 2 << 32);
}

/// Forks once; returns whether the child lived.
fn fork(memory: &Memory) -> bool {
    fork_and(|| live(memory))
}

/// Forks once; returns whether the child did what it was to do within 30 seconds.
fn fork_and(live: impl Fn()) -> bool {
    // SAFETY: the child allocates with glibc's malloc, which is made for this, and prints nothing unless it
    // fails.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: has no preconditions.
        unsafe { libc::alarm(30) };
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&live)).is_ok();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(!lived as i32) };
    }
    let mut status = 0;
    // SAFETY: writes the status of our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn fork_under_load(memory: &Memory) -> u32 {
    let wanted: Option<u32> = std::env::var("NEARPAGE_FORKS").ok().map(|n| n.parse().unwrap());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..4 {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    work(memory, 500, thread);
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // On a crowded machine a fork may hold the CPUs for longer than a drain waits.
                let _ = memory.drain_all();
                let _ = memory.bring_online(NodeId(1), 4096);
            }
        });
        let start = Instant::now();
        let mut forks = 0;
        let goes_on = |forks| match wanted {
            Some(wanted) => forks < wanted,
            // On a crowded machine a fork takes long.
            None => forks < FORKS_LEAST || start.elapsed() < Duration::from_secs(1),
        };
        while goes_on(forks) {
            let lived = fork(memory);
            forks += 1;
            if !lived {
                stop.store(true, Ordering::Relaxed);
                panic!("the child of fork {forks} did not live: {}", memory.storage());
            }
        }
        stop.store(true, Ordering::Relaxed);
        forks
    })
}

#[test]
fn children_of_a_busy_process_go_on() {
    alone("fork_load::children_of_a_busy_process_go_on", || {
        for use_rseq in [true, false] {
            let memory = memory(use_rseq);
            let forks = fork_under_load(&memory);
            println!("{forks} forks, {}", memory.storage());
            memory.drain_all().unwrap();
            let checked = memory.check().unwrap();
            assert_eq!((checked.allocated.0, checked.cached.0), (0, 0));
        }
    });
}

/// The same where nobody owns pageblocks.
#[test]
fn children_go_on_where_nobody_owns_pageblocks() {
    alone("fork_load::children_go_on_where_nobody_owns_pageblocks", || {
        for use_rseq in [true, false] {
            let memory = memory_under(Model::LINUX_6_18, use_rseq);
            let forks = fork_under_load(&memory);
            println!("{forks} forks, {}", memory.storage());
            memory.drain_all().unwrap();
            let checked = memory.check().unwrap();
            assert_eq!((checked.allocated.0, checked.cached.0), (0, 0));
        }
    });
}

/// Memories that come and go in other threads do not matter to a fork, nor it to them.
#[test]
fn memories_come_and_go_while_a_process_forks() {
    alone("fork_load::memories_come_and_go_while_a_process_forks", || {
        let stop = AtomicBool::new(false);
        let kept = memory(true);
        thread::scope(|scope| {
            for thread in 0..2 {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        work(&memory(thread == 0), 20, thread);
                    }
                });
            }
            let lived = (0..100).all(|_| fork(&kept));
            stop.store(true, Ordering::Relaxed);
            assert!(lived);
        });
    });
}

/// A thread that looks for a slab allocator holds the lock of its place, even if the place is empty.
#[test]
fn the_place_of_a_slab_allocator_is_free_in_a_child() {
    alone("fork_load::the_place_of_a_slab_allocator_is_free_in_a_child", || {
        let memory = memory(true);
        let stop = AtomicBool::new(false);
        // Looks, and brings nothing online.
        let look = || assert!(memory.bring_online(NodeId(1), 0).is_err());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        look();
                    }
                });
            }
            let lived = (0..200).all(|_| fork_and(look));
            stop.store(true, Ordering::Relaxed);
            assert!(lived);
        });
    });
}

/// What other threads had in hand at the fork stays out in the child, and for each of them some pages that were on their way. All
/// else is there: what was free or cached, and the blocks of the thread that forked.
#[test]
fn a_child_keeps_all_that_no_other_thread_had_in_hand() {
    const THREADS: u64 = 4;
    const HELD: u64 = 64;
    /// Pages that one thread moves between a list, a quota and the maps.
    const ON_THEIR_WAY: u64 = 128;
    alone("fork_load::a_child_keeps_all_that_no_other_thread_had_in_hand", || {
        for use_rseq in [true, false] {
            let memory = memory(use_rseq);
            let stop = AtomicBool::new(false);
            let mut mine: Vec<_> = (0..100).map(|_| memory.alloc_pages(1).unwrap()).collect();
            mine.iter_mut().zip(0..).for_each(|(page, stamp)| page.fill(stamp));
            let keeps = || {
                // Whatever the threads of the parent were about, nobody has a CPU's lists any more.
                memory.drain_all().unwrap();
                let nodes = [NodeId(0), NodeId(1)];
                let sum = |of: &dyn Fn(NodeId) -> u64| nodes.map(of).iter().sum::<u64>();
                let (all, free) = (
                    sum(&|node| memory.managed_pages(node).0),
                    sum(&|node| memory.free_pages(node).0),
                );
                let most = 100 + THREADS * (HELD + ON_THEIR_WAY);
                assert!(
                    all - free <= most,
                    "{} pages of {all} are out, {most} at most",
                    all - free
                );
                let is_whole = |(page, stamp): (&[u8], u8)| page.iter().all(|&byte| byte == stamp);
                assert!(mine.iter().map(|page| &page[..]).zip(0..).all(is_whole));
            };
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (memory, stop) = (&memory, &stop);
                    scope.spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
                            let few = 1 + thread as usize * 20;
                            let held: Vec<_> =
                                (0..few).filter_map(|_| memory.alloc(request).ok()).collect();
                            assert!(held.len() as u64 <= HELD);
                            drop(held);
                        }
                    });
                }
                let kept = (0..50).all(|_| fork_and(keeps));
                stop.store(true, Ordering::Relaxed);
                assert!(kept, "{}", memory.storage());
            });
        }
    });
}
