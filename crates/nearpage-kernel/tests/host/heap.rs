//! The heap, before and after its pages are there.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::Ordering;

use nearpage::testing::random::Random;
use nearpage::{Address, Gfp, NodeId};
use nearpage_kernel::{ByRings, Heap, HeapError, Kernel, ObjectCache};
use nearpage_slab::{CacheOptions, SlabConfig};

use crate::machine::{MISUSES, Played, alone, boot, memory, run_on};

const EARLY: usize = 1 << 16;

fn started() -> &'static Heap<Played, EARLY> {
    run_on(0);
    memory();
    let heap: &'static Heap<Played, EARLY> = Box::leak(Box::new(Heap::new()));
    let pages = boot::<ByRings<Played>>();
    heap.start(pages, SlabConfig::default(), |_, bytes| vec![0; bytes].leak()).expect("it starts");
    assert!(matches!(
        heap.start(pages, SlabConfig::default(), |_, _| &mut []),
        Err(HeapError::Twice)
    ));
    heap
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a layout")
}

#[test]
fn all_that_a_program_does_with_a_heap() {
    let _machine = alone();
    let heap = started();
    let seed = 0x4ea9;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let mut held: Vec<(*mut u8, Layout, u8)> = Vec::new();
    for step in 0..40_000_u32 {
        let bits = random.below(15);
        let size = 1 + random.below(1 << bits) as usize;
        let align = 1 << random.below(13);
        let fill = step as u8;
        if held.len() < 200 && random.below(3) > 0 {
            let layout = layout(size, align);
            // SAFETY: the size is not 0.
            let address = unsafe { heap.alloc(layout) };
            assert!(!address.is_null() && address.addr().is_multiple_of(align));
            // SAFETY: the memory is that large, and this test's.
            unsafe { address.write_bytes(fill, size) };
            held.push((address, layout, fill));
        } else if !held.is_empty() {
            let at = random.below(held.len() as u64) as usize;
            let (address, old, fill) = held.swap_remove(at);
            // SAFETY: it was written so far.
            let bytes = unsafe { core::slice::from_raw_parts(address, old.size()) };
            assert!(bytes.iter().all(|&byte| byte == fill), "somebody else wrote there");
            if random.below(4) == 0 {
                // SAFETY: the layout is the one that it was allocated with, and the size is not 0.
                let new = unsafe { heap.realloc(address, old, size) };
                // SAFETY: as large as the smaller of both.
                let kept = unsafe { core::slice::from_raw_parts(new, size.min(old.size())) };
                assert!(kept.iter().all(|&byte| byte == fill));
                // SAFETY: the memory is that large.
                unsafe { new.write_bytes(fill, size) };
                held.push((new, layout(size, old.align()), fill));
            } else {
                // SAFETY: it is not used any more.
                unsafe { heap.dealloc(address, old) };
            }
        }
    }
    for (address, layout, _) in held {
        // SAFETY: as above.
        unsafe { heap.dealloc(address, layout) };
    }
    let objects = heap.objects().expect("it is started");
    objects.check_all().expect("every object is in one place");
    objects.shrink_all();
    objects.pages().drain_all().expect("nobody is at the pagesets");
    assert_eq!(objects.pages().check().expect("in order").allocated.0, 0);
}

/// What no block holds is as many pages as it needs: it grows, shrinks, becomes a block and an object, and all of it is free again.
#[test]
fn more_than_the_largest_block() {
    let _machine = alone();
    let heap = started();
    let pages = heap.objects().expect("it is started").pages();
    let held = || {
        heap.objects().expect("it is started").shrink_all();
        pages.check().expect("each frame is in one place").allocated
    };
    let (before, refused) = (held(), MISUSES.load(Ordering::Relaxed));
    let large = layout((8 << 20) + 5, 16);
    // SAFETY: no size is 0, and each layout is the one that the memory has.
    unsafe {
        let first = heap.alloc(large);
        assert_eq!(held().0 - before.0, (8 << 8) + 1, "to the page");
        first.write_bytes(7, large.size());
        let larger = heap.realloc(first, large, 20 << 20);
        assert!(!larger.is_null() && larger != first);
        let smaller = heap.realloc(larger, layout(20 << 20, 16), 5 << 20);
        assert_eq!((smaller, held().0 - before.0), (larger, 5 << 8));
        let block = heap.realloc(smaller, layout(5 << 20, 16), 3 << 20);
        let bytes = core::slice::from_raw_parts(block, 3 << 20);
        assert!(bytes.iter().all(|&byte| byte == 7), "all that was written is there");
        assert!(heap.alloc(layout(1 << 30, 16)).is_null());
        let again = heap.realloc(block, layout(3 << 20, 16), 6 << 20);
        heap.dealloc(again, layout(6 << 20, 16));
        // More aligned than a block is.
        let aligned = layout(100, 16 << 20);
        let place = heap.alloc_with(aligned, Gfp::KERNEL, Some(NodeId(1))).expect("there is room");
        assert!(Played::virt_to_phys(place).is_multiple_of(16 << 20));
        heap.dealloc(place, aligned);
    }
    assert_eq!((held(), MISUSES.load(Ordering::Relaxed)), (before, refused));
}

#[test]
fn what_is_early_may_be_freed_late() {
    let _machine = alone();
    let heap: Heap<Played, EARLY> = Heap::new();
    // SAFETY: the size is not 0.
    let early = unsafe { heap.alloc(layout(100, 16)) };
    assert_eq!(heap.early_bytes(), 100);
    // SAFETY: its layout.
    let same = unsafe { heap.realloc(early, layout(100, 16), 80) };
    assert_eq!(same, early);
    // SAFETY: its layout; nobody uses it any more.
    unsafe { heap.dealloc(early, layout(100, 16)) };
    assert_eq!(heap.early_bytes(), 0);
    // SAFETY: the size is not 0.
    let too_large = unsafe { heap.alloc(layout(EARLY + 1, 1)) };
    assert!(too_large.is_null());
    assert!(heap.objects().is_none());
}

#[test]
fn objects_come_from_the_node_asked_for() {
    let _machine = alone();
    let heap = started();
    let pages = heap.objects().expect("it is started").pages();
    for node in [0, 1].map(NodeId) {
        for size in [16, 100, 5000, 20_000] {
            let layout = layout(size, 8);
            let address = heap.on(node).alloc(layout).expect("there is room");
            let pfn = Address(Played::virt_to_phys(address)).to_pfn(12);
            let of = pages.topology().node_of_pfn(pfn).expect("it is memory");
            assert_eq!(pages.topology().node(of).id, node);
            // SAFETY: nobody uses it.
            unsafe { heap.on(node).free(address, layout) };
        }
    }
}

#[test]
fn a_wrong_free_is_told_and_changes_nothing() {
    let _machine = alone();
    let heap = started();
    let layout = layout(8192, 4096);
    let before = MISUSES.load(Ordering::Relaxed);
    // SAFETY: the size is not 0.
    let address = unsafe { heap.alloc(layout) };
    // SAFETY: the second one is refused, which is what this is about: nobody uses the memory.
    unsafe {
        heap.dealloc(address, layout);
        heap.dealloc(address, layout);
    }
    assert!(MISUSES.load(Ordering::Relaxed) > before);
}

#[cfg(feature = "allocator-api2")]
#[test]
fn collections_choose_their_node() {
    let _machine = alone();
    let heap = started();
    let mut numbers = allocator_api2::vec::Vec::new_in(heap.on(NodeId(1)));
    numbers.extend(0..10_000_u64);
    let pfn = Address(Played::virt_to_phys(numbers.as_mut_ptr().cast())).to_pfn(12);
    let topology = heap.objects().expect("it is started").pages().topology();
    assert_eq!(topology.node_of_pfn(pfn).map(|node| topology.node(node).id), Some(NodeId(1)));
    assert!(numbers.iter().copied().eq(0..10_000));
}

/// Objects are made in their place, dropped once, and free themselves.
#[test]
fn objects_are_made_and_dropped() {
    use std::sync::atomic::AtomicU32;
    static ALIVE: AtomicU32 = AtomicU32::new(0);
    #[derive(Debug)]
    #[repr(align(64))]
    struct Counted(u64);
    impl Drop for Counted {
        fn drop(&mut self) {
            ALIVE.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let _machine = alone();
    let objects = started().objects().expect("it is started");
    let make = || {
        ObjectCache::<Played, Counted>::new(objects, CacheOptions::new("counted", 0), |place| {
            ALIVE.fetch_add(1, Ordering::Relaxed);
            place.write(Counted(7))
        })
    };
    let cache = make().expect("the name is free");
    assert!(make().is_err(), "the name is taken");
    let mut held: Vec<_> =
        (0..500).map(|_| cache.alloc(Gfp::KERNEL).expect("there is memory")).collect();
    held.push(cache.alloc_node(Gfp::KERNEL, NodeId(1)).expect("there is memory"));
    for (at, object) in held.iter_mut().enumerate() {
        assert_eq!((object.0, (&raw const **object).addr() % 64), (7, 0), "it is new");
        object.0 = at as u64;
    }
    assert!(held.iter().enumerate().all(|(at, object)| object.0 == at as u64));
    let there = held.pop().expect("there are 501");
    let page = nearpage::Pfn(there.address().0 >> 12);
    let node = objects.pages().topology().node_of_pfn(page);
    assert_eq!(node, Some(nearpage::NodeIndex(1)), "it is on the node asked for");
    drop(there);
    assert_eq!(ALIVE.load(Ordering::Relaxed), 500);
    drop(held);
    assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
    let leaked = std::mem::ManuallyDrop::new(cache.alloc(Gfp::KERNEL).expect("there is memory"));
    let address = leaked.address();
    let (cache, live) = cache.destroy().expect_err("an object of it lives");
    assert!(live.to_string().contains("counted"), "{live}");
    drop(cache);
    assert!(make().is_err(), "the cache keeps its name for the one that was leaked");
    assert!(objects.owner(address).is_some());
    objects.check_all().expect("every object is in one place");
}
