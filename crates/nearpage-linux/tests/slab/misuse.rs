//! What is refused, through the pointers of a program.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use nearpage::{CpuId, Gfp, PageCount};
use nearpage_linux::{Memory, MemoryError, OnMisuse};
use nearpage_slab::{
    CacheOptions, CreateError, LiveObjects, ObjectError, SizeError, SizeFreeError, SlabConfig,
};

use super::{allowed_cpus, restrict};

fn at(object: NonNull<u8>, offset: usize) -> NonNull<u8> {
    // SAFETY: tests stay within the page of the object.
    unsafe { object.add(offset) }
}

#[test]
fn a_hardened_host_finds_wrong_frees_at_once() {
    for use_rseq in [true, false] {
        let builder = Memory::builder().bytes_per_node(64 << 20).hardened(true);
        let memory = builder.use_rseq(use_rseq).build().unwrap();
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("hard", 72)).unwrap();
        let object = cache.alloc(Gfp::KERNEL).unwrap();
        // SAFETY: refused frees change nothing, which is what is tested.
        unsafe {
            let inside = cache.free(at(object, 8));
            assert!(matches!(inside, Err(ObjectError::NotAnObject { .. })), "{inside:?}");
            cache.free(object).unwrap();
            let twice = cache.free(object);
            assert!(matches!(twice, Err(ObjectError::NotAllocated { .. })), "{twice:?}");
            // An object that nobody was ever given.
            let wild = cache.free(at(object, 72 * 3));
            assert!(matches!(wild, Err(ObjectError::NotAllocated { .. })), "{wild:?}");
        }
        assert_eq!((memory.misuses(), cache.check().unwrap().held), (3, 0));
    }
}

#[test]
fn wrong_frees_are_typed() {
    let memory = Memory::builder().bytes_per_node(64 << 20).build().unwrap();
    let slab = memory.slab(SlabConfig::default()).unwrap();
    let cache = slab.create(CacheOptions::new("mine", 64)).unwrap();
    let other = slab.create(CacheOptions::new("other", 64)).unwrap();
    let object = cache.alloc(Gfp::KERNEL).unwrap();
    let mut local = 0_u64;
    // SAFETY: refused frees change nothing, which is what is tested.
    unsafe {
        let wrong = other.free(object);
        assert!(matches!(
            wrong,
            Err(ObjectError::WrongCache { given: "other", owner: "mine", .. })
        ));
        let inside = cache.free(at(object, 16));
        assert!(matches!(inside, Err(ObjectError::NotAnObject { .. })));
        let foreign = cache.free(NonNull::from(&mut local).cast());
        assert!(matches!(foreign, Err(ObjectError::NotOfSlab { .. })));
        let objects = [object.as_ptr(), NonNull::from(&mut local).cast().as_ptr()];
        let bulk = cache.free_bulk(&objects).unwrap_err();
        assert_eq!((bulk.freed, bulk.refused), (1, 1));
    }
    assert_eq!(memory.misuses(), 4);
}

/// Without `hardened` these are found when the objects go home: reported, counted, and nobody else is harmed.
#[test]
fn double_frees_and_frees_inside_objects_are_reported_when_they_go_home() {
    for use_rseq in [true, false] {
        let memory = Memory::builder().bytes_per_node(64 << 20).use_rseq(use_rseq).build().unwrap();
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("soft", 72)).unwrap();
        let objects: Vec<_> = (0..100).map(|_| cache.alloc(Gfp::KERNEL).unwrap()).collect();
        // SAFETY: wrong frees are refused in the end, which is what is tested; nobody uses the objects.
        unsafe {
            cache.free(objects[0]).unwrap();
            cache.free(objects[0]).unwrap();
            cache.free(at(objects[1], 8)).unwrap();
        }
        assert_eq!(memory.misuses(), 0);
        cache.shrink().unwrap();
        assert_eq!((memory.misuses(), cache.check().unwrap().held), (2, 99));
        // SAFETY: allocated above, and not freed since.
        objects[1..].iter().for_each(|&object| unsafe { cache.free(object) }.unwrap());
        cache.destroy().unwrap();
    }
}

#[test]
fn a_panic_of_the_host_leaves_no_cpu_stopped() {
    for use_rseq in [true, false] {
        let builder = Memory::builder().bytes_per_node(64 << 20).use_rseq(use_rseq);
        let memory = builder.on_misuse(OnMisuse::Panic).build().unwrap();
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("panics", 64)).unwrap();
        let object = cache.alloc(Gfp::KERNEL).unwrap();
        // SAFETY: the second free is refused in the end, which is what is tested.
        unsafe {
            cache.free(object).unwrap();
            cache.free(object).unwrap();
        }
        let shrink = std::panic::AssertUnwindSafe(|| cache.shrink());
        assert!(std::panic::catch_unwind(shrink).is_err(), "the double free is told by a panic");
        cache.shrink().expect("the CPU goes on");
        cache.destroy().expect("all objects are home");
    }
}

#[test]
fn size_classes_are_destroyed_and_made_again() {
    for (use_rseq, hardened) in [(true, false), (true, true), (false, false), (false, true)] {
        let memory = Memory::builder().use_rseq(use_rseq).hardened(hardened);
        let memory = memory.bytes_per_node(64 << 20).build().unwrap();
        let slab = memory.slab(SlabConfig::default().with_caches_max(14)).unwrap();
        for _ in 0..3 {
            let classes = slab.size_classes().unwrap();
            let some = [8, 8, 3000].map(|bytes| classes.alloc(bytes, Gfp::KERNEL).unwrap());
            let (classes, live) = classes.destroy().unwrap_err();
            let expected = LiveObjects { cache: "kmalloc-*", objects: 3, slabs: 2 };
            assert_eq!(live, expected);
            // SAFETY: each is freed once, and not used.
            some.into_iter().for_each(|memory| unsafe { classes.free(memory) }.unwrap());
            classes.destroy().unwrap();
        }
        assert_eq!(slab.slabinfo().lines().count(), 2, "no cache is left");
        memory.drain_all().unwrap();
        assert_eq!(memory.check().unwrap().allocated.0, 0);
    }
}

#[test]
fn a_typed_cache_is_destroyed() {
    let memory = Memory::builder().bytes_per_node(64 << 20).build().unwrap();
    let slab = memory.slab(SlabConfig::default().with_caches_max(1)).unwrap();
    let numbers = slab.typed::<u64>("numbers").unwrap();
    drop(numbers.alloc(1).unwrap());
    numbers.destroy().unwrap();
    // The place is free again.
    let bytes = slab.typed::<u8>("bytes").unwrap();
    std::mem::forget(bytes.alloc(2).unwrap());
    let (_, live) = bytes.destroy().unwrap_err();
    assert_eq!(live, LiveObjects { cache: "bytes", objects: 1, slabs: 1 });
}

#[test]
fn bad_options_and_sizes_are_typed() {
    let memory = Memory::builder().bytes_per_node(64 << 20).build().unwrap();
    let slab = memory.slab(SlabConfig::default().with_caches_max(14)).unwrap();
    let new = |size, align| slab.create(CacheOptions::new("bad", size).align(align)).unwrap_err();
    assert_eq!(new(0, 1), CreateError::ZeroSize { cache: "bad" });
    for align in [0, 3] {
        assert_eq!(new(1, align), CreateError::Alignment { cache: "bad", align });
    }
    for (size, align) in [(u64::MAX, 1), (u64::MAX, 1 << 63), (8, 1 << 63), ((4 << 20) + 1, 1)] {
        assert!(matches!(new(size, align), CreateError::TooLarge { .. }), "{size} {align}");
    }
    assert!(matches!(slab.typed::<()>("unit"), Err(CreateError::ZeroSize { cache: "unit" })));
    let classes = slab.size_classes().unwrap();
    assert_eq!(classes.alloc(0, Gfp::KERNEL), Err(SizeError::ZeroSize));
    let bad = classes.alloc_aligned(8, 12, Gfp::KERNEL, None);
    assert_eq!(bad, Err(SizeError::Alignment { align: 12 }));
    let none = classes.alloc_aligned(8, 0, Gfp::KERNEL, None);
    assert_eq!(none, Err(SizeError::Alignment { align: 0 }));
    assert!(matches!(classes.alloc(usize::MAX, Gfp::KERNEL), Err(SizeError::Pages(_))));
    for (size, align) in [(8, 1 << 63), (usize::MAX, 64), (usize::MAX, 1 << 63)] {
        let overflow = classes.alloc_aligned(size, align, Gfp::KERNEL, None);
        assert!(matches!(overflow, Err(SizeError::Pages(_))), "{size} {align}: {overflow:?}");
    }
    let large = classes.alloc(10_000, Gfp::KERNEL).unwrap();
    assert_eq!(classes.usable_size(large.as_ptr()), Some(16_384));
    // SAFETY: refused frees change nothing, which is what is tested; the last one is right.
    unsafe {
        assert!(matches!(classes.free(at(large, 64)), Err(SizeFreeError::Object(_))));
        assert!(matches!(classes.free(at(large, 4096)), Err(SizeFreeError::Pages(_))));
        classes.free(large).unwrap();
    }
    let second = memory.slab(SlabConfig::default());
    assert!(matches!(second, Err(MemoryError::Slab(_))), "{second:?}");
}

#[test]
fn a_cache_with_objects_is_given_back() {
    let memory = Memory::builder().bytes_per_node(64 << 20).build().unwrap();
    let slab = memory.slab(SlabConfig::default()).unwrap();
    let cache = slab.create(CacheOptions::new("live", 64)).unwrap();
    let object = cache.alloc(Gfp::KERNEL).unwrap();
    let (cache, live) = cache.destroy().unwrap_err();
    assert_eq!((live.cache, live.objects, live.slabs), ("live", 1, 1));
    // SAFETY: allocated above, and freed once.
    unsafe { cache.free(object) }.unwrap();
    cache.destroy().unwrap();
}

#[test]
fn values_are_dropped_and_free_themselves() {
    let memory = Memory::builder().bytes_per_node(64 << 20).build().unwrap();
    let slab = memory.slab(SlabConfig::default()).unwrap();
    let strings = slab.typed::<String>("strings").unwrap();
    let mut held: Vec<_> =
        (0..1000).map(|number| strings.alloc(number.to_string()).unwrap()).collect();
    held[7].push('!');
    assert_eq!((held[7].as_str(), held[999].as_str()), ("7!", "999"));
    std::thread::scope(|scope| {
        scope.spawn(move || drop(held));
    });
    assert_eq!((strings.cache().check().unwrap().held, memory.misuses()), (0, 0));
    assert!(slab.slabinfo().contains("\nstrings "));
}

/// A value whose end panics.
struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("bomb {}", self.0);
    }
}

#[test]
fn a_value_whose_end_panics_leaves_its_object() {
    let memory = Memory::builder().bytes_per_node(64 << 20).build().unwrap();
    let slab = memory.slab(SlabConfig::default()).unwrap();
    let bombs = slab.typed::<Bomb>("bombs").unwrap();
    let bomb = bombs.alloc(Bomb(7)).unwrap();
    let end = std::panic::AssertUnwindSafe(|| drop(bomb));
    assert!(std::panic::catch_unwind(end).is_err());
    assert_eq!(bombs.cache().check().unwrap().held, 0);
}

#[test]
fn objects_are_cleared_if_asked() {
    for use_rseq in [true, false] {
        let memory = Memory::builder().bytes_per_node(64 << 20).use_rseq(use_rseq).build().unwrap();
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("cleared", 100)).unwrap();
        let classes = slab.size_classes().unwrap();
        // What was freed last comes first to the CPU that freed it, if the object is of its node.
        let (allowed, mut nodes) = (allowed_cpus(), memory.topology().nodes().iter());
        let is_here = |cpu: &&CpuId| allowed.contains(*cpu);
        let own = nodes.find_map(|of| {
            Some((of.id, *of.cpus.iter().find(is_here).filter(|_| !of.memory.is_empty())?))
        });
        let (node, cpu) = own.expect("a node with a CPU and memory");
        restrict(&[cpu]);
        let zero = Gfp::KERNEL.union(Gfp::ZERO);
        let one = |gfp| {
            let mut objects = [std::ptr::null_mut()];
            assert_eq!(cache.alloc_bulk(gfp, &mut objects), Ok(1));
            NonNull::new(objects[0]).unwrap()
        };
        let ways: [&dyn Fn(Gfp) -> NonNull<u8>; 6] = [
            &|gfp| cache.alloc(gfp).unwrap(),
            &|gfp| cache.alloc_node(gfp, node).unwrap(),
            &one,
            &|gfp| classes.alloc(1000, gfp).unwrap(),
            &|gfp| classes.alloc_aligned(100, 64, gfp, Some(node)).unwrap(),
            &|gfp| classes.alloc(10_000, gfp).unwrap(),
        ];
        for (way, alloc) in ways.iter().enumerate() {
            let object = alloc(Gfp::KERNEL);
            let bytes = classes.usable_size(object.as_ptr()).unwrap();
            // SAFETY: so many bytes are ours; both objects are freed once.
            unsafe {
                object.write_bytes(7, bytes);
                classes.free(object).unwrap();
                let again = alloc(zero);
                assert_eq!(again, object, "{way}: what was freed last");
                let cleared = std::slice::from_raw_parts(again.as_ptr(), bytes);
                assert!(cleared.iter().all(|&byte| byte == 0), "{way}");
                classes.free(again).unwrap();
            }
        }
        restrict(&allowed);
    }
}

#[test]
fn bulk_gives_as_many_as_asked() {
    let memory = Memory::builder().bytes_per_node(64 << 20).build().unwrap();
    let slab = memory.slab(SlabConfig::default()).unwrap();
    let cache = slab.create(CacheOptions::new("bulk", 128)).unwrap();
    let mut objects = vec![std::ptr::null_mut(); 1000];
    assert_eq!(cache.alloc_bulk(Gfp::KERNEL, &mut objects), Ok(1000));
    assert_eq!(cache.check().unwrap().held, 1000);
    // SAFETY: allocated above, and freed once.
    unsafe { cache.free_bulk(&objects) }.unwrap();
    assert_eq!(cache.check().unwrap().held, 0);
}

/// A host that panics when it is told of a misuse loses no pages by it: neither those of the slab that somebody locked nor
/// those that were to be freed with it.
#[test]
fn a_panic_over_a_locked_slab_loses_no_pages() {
    for locked in [0, 50, 100] {
        let builder = Memory::builder().bytes_per_node(64 << 20).on_misuse(OnMisuse::Panic);
        let memory = builder.build().unwrap();
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("pages", 4096)).unwrap();
        let objects: Vec<_> =
            (0..100 + locked).map(|_| cache.alloc(Gfp::KERNEL).unwrap()).collect();
        let page = memory.frame_of(objects[locked]);
        memory.lock_page(page).unwrap();
        for &object in &objects {
            // SAFETY: the caller has the object. A panic comes after it is free.
            let _ = catch_unwind(AssertUnwindSafe(|| unsafe { cache.free(object) }));
        }
        let shrunk = catch_unwind(AssertUnwindSafe(|| cache.shrink()));
        assert!(shrunk.is_err() || memory.misuses() > 0, "somebody was told");
        // SAFETY: it was locked above.
        unsafe { memory.unlock_page(page) }.unwrap();
        cache.shrink().unwrap();
        cache.destroy().map_err(|(_, live)| live).unwrap();
        slab.check().unwrap();
        memory.drain_all().unwrap();
        assert_eq!(memory.check().unwrap().allocated, PageCount(0));
    }
}

/// As of single objects: those before the wrong one are free, those after it still the caller's.
#[test]
fn a_panic_in_a_bulk_free_loses_no_objects() {
    for (use_rseq, hardened) in [(true, false), (true, true), (false, false), (false, true)] {
        let builder = Memory::builder().bytes_per_node(64 << 20).use_rseq(use_rseq);
        let builder = builder.hardened(hardened).on_misuse(OnMisuse::Panic);
        let memory = builder.build().unwrap();
        let slab = memory.slab(SlabConfig::default()).unwrap();
        let cache = slab.create(CacheOptions::new("bulk", 64)).unwrap();
        for wrong_at in [0, 1, 40, 99] {
            let mut objects: Vec<_> =
                (0..100).map(|_| cache.alloc(Gfp::KERNEL).unwrap().as_ptr()).collect();
            let mut nobodys = 0u64;
            objects.insert(wrong_at, (&raw mut nobodys).cast());
            // SAFETY: the objects are this test's; the wrong one is refused.
            let freed = catch_unwind(AssertUnwindSafe(|| unsafe { cache.free_bulk(&objects) }));
            assert!(freed.is_err(), "the wrong object is told by a panic");
            // SAFETY: these were not reached.
            unsafe { cache.free_bulk(&objects[wrong_at + 1..]) }.unwrap();
        }
        cache.shrink().unwrap();
        cache.destroy().map_err(|(_, live)| live).unwrap();
        slab.check().unwrap();
    }
}
