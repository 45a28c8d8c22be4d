//! Forks while threads allocate and free objects. `NEARPAGE_FORKS=n` forks so often instead of 60 times.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nearpage::Gfp;
use nearpage_linux::{KmemCache, SlabAllocator};
use nearpage_slab::{CacheOptions, SlabConfig};

use super::{number, three_nodes};

fn work(cache: &KmemCache<'_>, rounds: usize) {
    for _ in 0..rounds {
        let held: Vec<NonNull<u8>> =
            (0..200).filter_map(|_| cache.alloc(Gfp::KERNEL).ok()).collect();
        for object in held {
            // SAFETY: just allocated, and freed once.
            unsafe { cache.free(object) }.unwrap();
        }
    }
}

/// What a child does, which has one thread.
fn live(slab: &SlabAllocator<'_>, cache: &KmemCache<'_>) {
    work(cache, 5);
    slab.reap().unwrap();
    cache.shrink().unwrap();
    work(cache, 5);
    slab.memory().drain_all().unwrap();
    assert!(slab.slabinfo().contains("forked"));
}

/// Forks once; returns whether the child lived.
fn fork(slab: &SlabAllocator<'_>, cache: &KmemCache<'_>) -> bool {
    // SAFETY: the child allocates with glibc's malloc, which is made for this.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: has no preconditions.
        unsafe { libc::alarm(30) };
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| live(slab, cache)));
        // SAFETY: ends the child without the parent's exit handlers.
        unsafe { libc::_exit(lived.is_err().into()) };
    }
    let mut status = 0;
    // SAFETY: writes the status of our own child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn children_of_a_busy_process_go_on() {
    for use_rseq in [true, false] {
        let memory = three_nodes().use_rseq(use_rseq).build().unwrap();
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("forked", 72)).unwrap();
        let stop = AtomicBool::new(false);
        let forks = number("NEARPAGE_FORKS", 60);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        work(&cache, 10);
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = (slab.reap(), cache.shrink(), slab.statistics());
                }
            });
            let lived = (0..forks).all(|_| fork(&slab, &cache));
            stop.store(true, Ordering::Relaxed);
            assert!(lived, "a child did not live: {}", memory.storage());
        });
        assert_eq!(cache.check().unwrap().held, 0);
        cache.destroy().unwrap();
    }
}
