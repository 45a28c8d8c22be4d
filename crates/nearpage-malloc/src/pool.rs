//! All heaps, those without a thread among them.
//!
//! A thread takes a heap when it first allocates, and gives it up when it ends. The next thread takes the heap over, of its
//! node first. What is freed to a heap without a thread is taken in by the thread that frees, under the pool's lock.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::boot::map_table;
use crate::heap::{HEAPS, HEAPS_MAX, Heap};
use crate::idle::{POOL, Pool};
use crate::link::is_hardened;
use crate::pages;
use crate::thread::{self, ENDING};

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Makes the key whose destructor tells that a thread ends.
pub(crate) fn make_key() {
    let mut key = 0;
    // SAFETY: the function lives as long as the process does: this library is never closed.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0 {
        KEY.store(key, Ordering::Relaxed);
    }
}

/// The heaps that were made.
pub(crate) fn all() -> impl Iterator<Item = *mut Heap> {
    let made = POOL.lock().made as usize;
    (1..=made).map(|id| HEAPS[id].load(Ordering::Acquire)).filter(|heap| !heap.is_null())
}

/// The calling thread's heap, which it takes now if it has none. `None` for a thread that ends.
pub(crate) fn mine() -> Option<&'static mut Heap> {
    let thread = thread::this();
    // SAFETY: the words are this thread's.
    unsafe {
        if (*thread).heap.is_null() {
            if (*thread).flags & ENDING != 0 {
                return None;
            }
            let heap = acquire();
            if heap.is_null() {
                return None;
            }
            (*thread).heap = heap.cast();
            if !is_hardened() {
                (*thread).fast = heap.cast();
                (*thread).id = (*heap).id.into();
            }
            let key = KEY.load(Ordering::Relaxed);
            if key != u32::MAX {
                // It may allocate, from the heap that the thread has by now.
                libc::pthread_setspecific(key, heap.cast());
            }
        }
        Some(&mut *(*thread).heap.cast::<Heap>())
    }
}

/// Runs `act` with a heap that the thread has only meanwhile.
pub(crate) fn borrow<R>(act: impl FnOnce(&mut Heap) -> R) -> Option<R> {
    let heap = acquire();
    if heap.is_null() {
        return None;
    }
    // SAFETY: it is this thread's until it is given up.
    unsafe {
        let result = act(&mut *heap);
        retire(heap);
        Some(result)
    }
}

fn acquire() -> *mut Heap {
    let here = pages::here();
    let mut pool = POOL.lock();
    let (mut before, mut heap): (*mut Heap, *mut Heap) = (null_mut(), pool.idle.cast());
    // SAFETY: heaps on the list have no thread, and are the lock's.
    unsafe {
        let is_elsewhere = |heap: *mut Heap| !heap.is_null() && (*heap).node() != here;
        if pages::is_local() {
            while is_elsewhere(heap) {
                (before, heap) = (heap, (*heap).next_idle);
            }
        }
        if heap.is_null() {
            return make(&mut pool);
        }
        if before.is_null() {
            pool.idle = (*heap).next_idle.cast();
        } else {
            (*before).next_idle = (*heap).next_idle;
        }
        (*heap).set_idle(false);
    }
    heap
}

fn make(pool: &mut Pool) -> *mut Heap {
    if pool.made as usize >= HEAPS_MAX {
        return null_mut();
    }
    let Some(place) = map_table(size_of::<Heap>()) else { return null_mut() };
    let heap: *mut Heap = place.as_ptr().cast();
    pool.made += 1;
    // SAFETY: pages of the kernel are aligned and zero.
    unsafe { Heap::make(heap, pool.made) };
    HEAPS[pool.made as usize].store(heap, Ordering::Release);
    heap
}

/// # Safety
/// * The heap is the calling thread's, which does not use it any more.
unsafe fn retire(heap: *mut Heap) {
    // SAFETY: the caller's promise, and then the lock's.
    unsafe {
        (*heap).flush();
        (*heap).settle();
        (*heap).release_empty();
        let mut pool = POOL.lock();
        (*heap).next_idle = pool.idle.cast();
        pool.idle = heap.cast();
        (*heap).set_idle(true);
        // Whoever put something there before did not see that it has no thread.
        (*heap).collect();
    }
}

extern "C" fn thread_ends(heap: *mut libc::c_void) {
    let thread = thread::this();
    // SAFETY: the words are this thread's, and so is the heap.
    unsafe {
        (*thread).fast = null_mut();
        (*thread).id = 0;
        (*thread).heap = null_mut();
        (*thread).flags |= ENDING;
        retire(heap.cast());
    }
}

/// Lets the calling thread and all heaps without a thread give back what they can.
pub(crate) fn release_all() {
    if let Some(heap) = mine() {
        heap.flush();
        heap.settle();
        heap.release_empty();
    }
    release_idle();
}

/// Lets the heaps without a thread give back what they can.
pub(crate) fn release_idle() {
    let pool = POOL.lock();
    let mut heap: *mut Heap = pool.idle.cast();
    while !heap.is_null() {
        // SAFETY: heaps on the list have no thread, and are the lock's.
        unsafe {
            (*heap).flush();
            (*heap).release_empty();
            heap = (*heap).next_idle;
        }
    }
}
