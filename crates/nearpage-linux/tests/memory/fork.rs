//! Child processes: a memory goes on in a child of a quiet process, and in one that a sandbox denies
//! drains from outside.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nearpage::{Gfp, Order, Request};
use nearpage_linux::{Memory, StorageInUse};

use super::alone::alone;
use super::child_threads;

/// Runs `work` in a child process, which must end well within a minute.
fn in_child(work: impl FnOnce()) {
    // SAFETY: the child runs what the parent could; what its other threads held at the fork, if anything, is
    // not touched by `work`: the heap is glibc's, which is made for this, and nothing is printed unless a
    // test fails.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: has no preconditions.
        unsafe { libc::alarm(60) };
        let failed = catch_unwind(AssertUnwindSafe(work)).is_err();
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(failed.into()) };
    }
    let mut status = 0;
    // SAFETY: writes the status of our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
}

fn memories() -> [Memory; 2] {
    [true, false].map(|use_rseq| {
        Memory::builder().use_rseq(use_rseq).bytes_per_node(64 << 20).build().unwrap()
    })
}

/// Takes blocks of all orders that pagesets have, and one that they have not, and frees them.
fn work(memory: &Memory) {
    let mut blocks = Vec::new();
    for round in 0..20_000 {
        let order = Order([0, 0, 0, 1, 2, 3, 5][round % 7]);
        let mut block = memory.alloc(Request::new(order, Gfp::KERNEL)).unwrap();
        block[0] = round as u8;
        blocks.push((block, round as u8));
        if round % 300 == 299 {
            for (block, value) in blocks.drain(..) {
                assert_eq!(block[0], value);
            }
        }
    }
}

#[test]
fn a_child_of_a_quiet_process_goes_on() {
    alone("fork::a_child_of_a_quiet_process_goes_on", || {
        for memory in memories() {
            work(&memory);
            let mut mine = memory.alloc_pages(1).unwrap();
            mine[7] = 42;
            in_child(|| {
                assert_eq!(mine[7], 42);
                work(&memory);
                memory.drain_all().unwrap();
                // The kernel lets the child stop CPUs as it let its parent.
                let drain = || {
                    (0..100).for_each(|_| {
                        memory.drain_all().unwrap();
                    })
                };
                child_threads::beside(4, || work(&memory), drain);
                memory.drain_all().unwrap();
                let checked = memory.check().unwrap();
                assert_eq!((checked.cached.0, checked.allocated.0), (0, 1));
                // The child has a copy of the page, and may free that.
                mine[7] = 1;
                // SAFETY: the child ends without dropping `mine`, and nobody uses the page any more.
                unsafe { memory.free_frames(mine.pfn(), mine.order()) }.unwrap();
                assert_eq!(memory.check().unwrap().allocated.0, 0);
            });
            assert_eq!(mine[7], 42);
            drop(mine);
            work(&memory);
            memory.drain_all().unwrap();
            assert_eq!(memory.check().unwrap().allocated.0, 0);
        }
    });
}

/// What threads of the parent held as they began or ended, those of the child do not need.
#[test]
fn children_start_threads_while_those_of_the_parent_begin_and_end() {
    alone("fork::children_start_threads_while_those_of_the_parent_begin_and_end", || {
        let memories = memories();
        let stop = AtomicBool::new(false);
        let forks = std::env::var("NEARPAGE_FORKS").map_or(300, |forks| forks.parse().unwrap());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        // Several at once, so that they wait for each other's locks.
                        let some: Vec<_> = (0..8).map(|_| thread::spawn(|| ())).collect();
                        some.into_iter().for_each(|thread| thread.join().unwrap());
                    }
                });
            }
            let child = |memory: &Memory| {
                let few = || (0..20).for_each(|_| drop(memory.alloc_pages(1).unwrap()));
                child_threads::beside(2, few, few);
            };
            let lived = catch_unwind(AssertUnwindSafe(|| {
                for round in 0..forks {
                    in_child(|| child(&memories[round % 2]));
                }
            }));
            stop.store(true, Ordering::Relaxed);
            lived.expect("all children live");
        });
    });
}

/// Denies `membarrier` to the calling process from now on: `EPERM`.
fn deny_membarrier() {
    let statement = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let load_number = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let denied = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [
        statement(load_number, 0, 0, 0),
        statement(equals, libc::SYS_membarrier as u32, 0, 1),
        statement(answer, denied, 0, 0),
        statement(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is four statements, which the kernel checks and copies.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
    }
}

#[test]
fn a_sandbox_that_denies_drains_denies_nothing_else() {
    alone("fork::a_sandbox_that_denies_drains_denies_nothing_else", || {
        for memory in memories() {
            work(&memory);
            in_child(|| {
                deny_membarrier();
                work(&memory);
                let cached = memory.check().unwrap().cached.0;
                assert!(cached > 0);
                match memory.storage() {
                    StorageInUse::Rseq => {
                        memory.drain_all().unwrap_err();
                        assert_eq!(memory.check().unwrap().cached.0, cached);
                    }
                    _ => assert_eq!(memory.drain_all().unwrap().0, cached),
                }
                work(&memory);
                let checked = memory.check().unwrap();
                assert_eq!(checked.allocated.0, 0);
            });
        }
    });
}
