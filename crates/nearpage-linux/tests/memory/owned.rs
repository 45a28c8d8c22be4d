//! Blocks that one may own, and waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nearpage::{AllocError, CpuId, Gfp, LimitOf, Limits, NodeId, Order, Request};
use nearpage_linux::{FRAME_BYTES, HostMachine, HostNode, Memory, OwnedPages, PageBlock};

use super::alone::alone;

fn memory() -> Arc<Memory> {
    let cpus = (0..256).map(CpuId).collect();
    let node = HostNode { id: NodeId(0), cpus, has_memory: true };
    let machine = HostMachine { nodes: vec![node], distances: vec![10], emulated: true };
    Arc::new(Memory::builder().machine(machine).bytes_per_node(16 << 20).build().unwrap())
}

const fn block(order: u8) -> Request {
    Request::new(Order(order), Gfp::HIGHUSER_MOVABLE)
}

fn is_static_and_send<T: Send + Sync + AsRef<[u8]> + AsMut<[u8]> + 'static>(_: &T) {}

#[test]
fn an_owned_block_keeps_its_memory_and_goes_anywhere() {
    let memory = memory();
    let mut owned = memory.alloc_owned(block(3)).unwrap();
    is_static_and_send(&owned);
    assert_eq!(owned.as_ptr().as_ptr().addr() % owned.len(), 0, "aligned as O_DIRECT wants it");
    owned.fill(7);
    let bytes = Bytes::from_owner(owned);
    let (head, weak) = (bytes.slice(..4), Arc::downgrade(&memory));
    drop((memory, bytes));
    let kept = thread::spawn(move || {
        assert!(weak.upgrade().is_some_and(|memory| memory.check().unwrap().allocated.0 == 8));
        assert_eq!(head, [7; 4][..]);
        weak
    });
    assert!(kept.join().unwrap().upgrade().is_none(), "the last slice freed the block");
}

#[test]
fn frames_become_blocks_again() {
    let memory = memory();
    let mut owned = memory.alloc_owned(block(1)).unwrap();
    owned[9] = 9;
    let (kept, frame) = owned.into_frames();
    assert_eq!((Arc::strong_count(&memory), memory.check().unwrap().allocated.0), (2, 2));
    // SAFETY: the block was given up just now.
    let borrowed = unsafe { PageBlock::from_frames(&memory, frame, Order(1)) };
    assert_eq!((borrowed[9], borrowed.len()), (9, 8192));
    let frame = borrowed.into_owned(&memory).into_frames().1;
    // SAFETY: as above.
    let again = unsafe { OwnedPages::from_frames(kept, frame, Order(1)) };
    assert_eq!(
        (again[9], again.pfn(), again.order(), again.node()),
        (9, frame, Order(1), NodeId(0))
    );
    drop(again);
    assert_eq!((Arc::strong_count(&memory), memory.misuses()), (1, 0));
    assert_eq!(memory.check().unwrap().allocated.0, 0);
}

#[test]
#[should_panic(expected = "of another memory")]
fn a_block_is_owned_with_its_own_memory() {
    let (one, other) = (memory(), memory());
    let _ = one.alloc(block(0)).unwrap().into_owned(&other);
}

/// Twelve threads share four blocks: whoever waits is served, in the order in which they came.
#[test]
fn who_waits_is_served() {
    const THREADS: usize = 12;
    let memory = memory();
    let hard = Limits { hard_bytes: Some(1024 * FRAME_BYTES), ..Limits::default() };
    memory.set_limits(LimitOf::Allocator, hard).unwrap();
    let served = AtomicUsize::new(0);
    thread::scope(|scope| {
        for stamp in 0..THREADS as u8 {
            let (memory, served) = (&memory, &served);
            scope.spawn(move || {
                for _ in 0..5 {
                    let mut own = memory.alloc_timeout(block(8), Duration::from_secs(120)).unwrap();
                    own.fill(stamp);
                    thread::sleep(Duration::from_micros(300));
                    assert!(own.iter().all(|&byte| byte == stamp));
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(served.into_inner(), 5 * THREADS);
    assert_eq!(memory.check().unwrap().allocated.0, 0);
}

#[test]
fn a_wait_ends_with_its_time_or_at_once_if_it_is_vain() {
    let memory = memory();
    let held: Vec<_> = std::iter::from_fn(|| memory.alloc(block(0)).ok()).collect();
    let start = Instant::now();
    let error = memory.alloc_timeout(block(0), Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, AllocError::OutOfMemory { .. }), "{error}");
    assert!(start.elapsed() >= Duration::from_millis(30));
    let error = memory.alloc_timeout(block(11), Duration::MAX).unwrap_err();
    assert!(matches!(error, AllocError::OrderTooLarge { .. }), "{error}");
    // A thread that gave up stands in nobody's way.
    drop(held);
    assert!(memory.alloc_timeout(block(0), Duration::ZERO).is_ok());
}

/// Those who wait in the parent are not there in a child.
#[test]
fn a_child_waits_behind_nobody() {
    alone("owned::a_child_waits_behind_nobody", || {
        let memory = memory();
        let held: Vec<_> = std::iter::from_fn(|| memory.alloc(block(0)).ok()).collect();
        thread::scope(|scope| {
            let waits = || memory.alloc_timeout(block(0), Duration::from_secs(60)).map(drop);
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(waits)).collect();
            thread::sleep(Duration::from_millis(20));
            // SAFETY: the child uses this memory, and allocates nothing else.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: has no preconditions.
                unsafe { libc::alarm(30) };
                let page = held[0].pfn();
                // SAFETY: the child's copy of the block is its own, and is not used or dropped.
                unsafe { memory.free_frames(page, Order(0)) }.unwrap();
                let served = memory.alloc_timeout(block(0), Duration::from_secs(20)).is_ok();
                // SAFETY: ends the child without the parent's exit handlers.
                unsafe { libc::_exit(i32::from(!served)) };
            }
            let mut status = 0;
            // SAFETY: writes the status of our own child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
            drop(held);
            threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
    });
}
