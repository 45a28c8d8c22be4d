//! The slab allocator on the plain platform.

use core::sync::atomic::{AtomicU32, Ordering};
use std_alloc::string::{String, ToString};
use std_alloc::vec::Vec;
use std_alloc::{format, vec};

use crate::testing::{SlabMachine as _, TestSlab};
use nearpage::internals::{LOCKED, SECTION_FRAMES};
use nearpage::platform::Storage;
use nearpage::testing::machine::TestMachine;
use nearpage::testing::plain::PlainPlatform;
use nearpage::{
    Address, AllocError, CpuError, CpuId, Gfp, NodeAccess, NodeId, NodeIndex, Order, PageCount,
    Pfn, PfnRange,
};

use crate::geometry::Descriptors;
use crate::*;

type TestCache<'m> = KmemCache<'m, PlainPlatform>;

fn run_on(slab: &TestSlab<'_, '_>, cpu: u32) {
    slab.pages().platform().run_on(CpuId(cpu));
}

fn take<'m>(slab: &TestSlab<'_, 'm>, cache: &TestCache<'m>, objects: usize) -> Vec<Address> {
    (0..objects).map(|_| slab.alloc(cache, Gfp::KERNEL).unwrap()).collect()
}

fn give<'m>(slab: &TestSlab<'_, 'm>, cache: &TestCache<'m>, objects: Vec<Address>) {
    objects.into_iter().for_each(|object| slab.free(cache, object).unwrap());
}

fn misuses(slab: &TestSlab<'_, '_>) -> u64 {
    slab.pages().platform().misuses.get()
}

fn node_of(slab: &TestSlab<'_, '_>, object: Address) -> u32 {
    slab.owner(object).expect("an object has an owner").node.0
}

/// A cache of 64-byte objects.
fn cache64<'m>(slab: &TestSlab<'_, 'm>) -> TestCache<'m> {
    slab.create(CacheOptions::new("test-64", 64)).unwrap()
}

fn one_node() -> TestMachine {
    TestMachine::new().node(0, 16_384, &[0, 1])
}

#[test]
fn objects_do_not_overlap_and_come_back() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        for (name, size, align) in [("a", 1, 1), ("b", 24, 8), ("c", 100, 64), ("d", 5000, 4096)] {
            let cache = slab.create(CacheOptions::new(name, size).align(align)).unwrap();
            let mut objects = take(slab, &cache, 1000);
            objects.sort();
            for pair in objects.windows(2) {
                assert!(pair[1].0 - pair[0].0 >= size, "{name}: {pair:?}");
            }
            assert!(objects.iter().all(|object| object.0.is_multiple_of(align)), "{name}");
            assert_eq!(slab.check(&cache).unwrap().held, 1000);
            give(slab, &cache, objects);
            assert_eq!(slab.check(&cache).unwrap().held, 0);
            slab.destroy(cache).unwrap();
        }
        slab.pages().drain_all().unwrap();
        assert_eq!(slab.pages().check().unwrap().allocated, PageCount(0));
        assert_eq!(misuses(slab), 0);
    });
}

#[test]
fn a_fresh_slab_is_used_in_ascending_order() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        let objects = take(slab, &cache, 16);
        assert!(objects.windows(2).all(|pair| pair[0].0 + 64 == pair[1].0), "{objects:?}");
    });
}

#[test]
fn slabs_have_colours_in_turn() {
    let config = SlabConfig { descriptors: Descriptors::Beside, ..SlabConfig::default() };
    one_node().run_slab(config, |slab| {
        // 5 objects leave 256 bytes: 4 colours.
        let cache = slab.create(CacheOptions::new("coloured", 768)).unwrap();
        assert_eq!((cache.geometry().objects, cache.geometry().colours), (5, 4));
        let objects = take(slab, &cache, 40);
        let mut firsts: Vec<u64> = objects.iter().map(|object| object.0 % 4096 % 768).collect();
        firsts.sort();
        firsts.dedup();
        assert_eq!(firsts, [0, 64, 128, 192]);
    });
}

#[test]
fn batches_and_limits_are_those_of_the_facts() {
    one_node().run_slab(SlabConfig::LINUX_2_6_35, |slab| {
        let cache = cache64(slab);
        // The first refill of a stack that nobody took from yet is of 16, the second takes the other 43 of the
        // slab, the third and fourth all of a new one.
        let objects = take(slab, &cache, 120);
        let stats = slab.stats(&cache);
        assert_eq!((stats.refills, stats.alloc_misses, stats.alloc_hits), (4, 4, 116));
        give(slab, &cache, objects);
        // The stack held 57 and takes 63 more; the next flushes 60 to the shared stack.
        let stats = slab.stats(&cache);
        assert_eq!((stats.flushes, stats.free_misses, stats.free_hits), (1, 1, 119));
        let node = slab.node_stats(&cache, NodeIndex(0));
        assert_eq!((node.shared, node.slabs, node.objects_free), (60, 3, 0));
    });
}

#[test]
fn slabinfo_is_that_of_the_kernel() {
    one_node().run_slab(SlabConfig::LINUX_2_6_35, |slab| {
        let cache = slab.create(CacheOptions::new("size-64", 64)).unwrap();
        let large = slab.create(CacheOptions::new("size-8192", 8192)).unwrap();
        let objects = (take(slab, &cache, 1), take(slab, &large, 3));
        let mut text = String::new();
        slab.write_slabinfo(&mut text).unwrap();
        let expected = "slabinfo - version: 2.1\n\
            # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>\n\
            size-64               16     59     64   59    1 : tunables  120   60    8 : slabdata      1      1      0\n\
            size-8192              3      3   8192    1    2 : tunables    8    4    0 : slabdata      3      3      0\n";
        assert_eq!(text, expected);
        give(slab, &cache, objects.0);
        give(slab, &large, objects.1);
    });
}

#[test]
fn objects_of_a_slab_are_found_by_any_address() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = slab.create(CacheOptions::new("three-pages", 3000)).unwrap();
        assert!(cache.geometry().order > Order(0));
        for object in take(slab, &cache, 20) {
            for inside in [0, 1, 1500, 2999] {
                let owner = slab.owner(Address(object.0 + inside)).unwrap();
                let expected = ("three-pages", NodeId(0), object, 3000);
                assert_eq!((owner.cache, owner.node, owner.start, owner.size), expected);
            }
            assert_eq!(slab.usable_size(object), Some(3000));
            assert_eq!(slab.usable_size(Address(object.0 + 8)), None);
        }
        let outside = Address::from_pfn(Pfn(3), 12);
        assert_eq!((slab.owner(outside), slab.usable_size(outside)), (None, None));
    });
}

#[test]
fn bad_options_are_refused() {
    one_node().run_slab(SlabConfig { caches_max: 2, ..SlabConfig::default() }, |slab| {
        let refused = |options| slab.create(options).unwrap_err();
        let new = |size| CacheOptions::new("bad", size);
        assert_eq!(refused(new(0)), CreateError::ZeroSize { cache: "bad" });
        assert_eq!(refused(new(8).align(24)), CreateError::Alignment { cache: "bad", align: 24 });
        assert_eq!(refused(new(8).align(0)), CreateError::Alignment { cache: "bad", align: 0 });
        let too_large =
            |size, align| CreateError::TooLarge { cache: "bad", size, align, size_max: 4 << 20 };
        assert_eq!(refused(new((4 << 20) + 1)), too_large((4 << 20) + 1, 1));
        assert_eq!(refused(new(u64::MAX)), too_large(u64::MAX, 1));
        assert_eq!(refused(new(8).align(1 << 63)), too_large(8, 1 << 63));
        let _two = [cache64(slab), slab.create(CacheOptions::new("second", 8)).unwrap()];
        assert_eq!(refused(new(8)), CreateError::TooManyCaches { cache: "bad", caches_max: 2 });
        assert_eq!(
            refused(new(0)).to_string(),
            "cache bad: objects of 0 bytes; 1 byte is the least"
        );
    });
}

#[test]
fn names_that_slabinfo_cannot_show_are_refused() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let named = |name| slab.create(CacheOptions::new(name, 8));
        for cache in ["", " ", "two words", "a\nb", "tab\t", "\0", "no\u{a0}break", "#comment"] {
            assert_eq!(named(cache).unwrap_err(), CreateError::BadName { cache });
        }
        assert_eq!(
            named("a\nb").unwrap_err().to_string(),
            "cache \"a\\nb\": a name is one word, without white space and control characters, and does not begin with #"
        );
        let umlauts = named("Grüße").unwrap();
        let taken = named("Grüße").unwrap_err();
        assert_eq!(taken, CreateError::NameTaken { cache: "Grüße" });
        slab.destroy(umlauts).unwrap();
        let again = named("Grüße").unwrap();
        slab.destroy(again).unwrap();

        // The size classes have names too, and leave none behind that is refused.
        let own = named("kmalloc-192").unwrap();
        let refused = SizeClasses::new(slab).err();
        assert_eq!(refused, Some(CreateError::NameTaken { cache: "kmalloc-192" }));
        slab.destroy(own).unwrap();
        let classes = SizeClasses::new(slab).unwrap();
        let second = SizeClasses::new(slab).err();
        assert_eq!(second, Some(CreateError::NameTaken { cache: "kmalloc-8" }));
        assert!(slab.destroy_classes(classes).is_ok());
    });
}

#[test]
fn flags_that_mean_nothing_for_all_pages_of_a_cache_are_refused() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let with = |gfp| slab.create(CacheOptions { gfp, ..CacheOptions::new("flags", 8) });
        for bad in [Gfp::ZERO, Gfp::THISNODE, Gfp::MOVABLE, Gfp::HIGHMEM, Gfp(0x200), Gfp(1 << 31)] {
            for gfp in [bad, bad.union(Gfp::KERNEL), bad.union(Gfp::DMA32)] {
                assert_eq!(with(gfp).unwrap_err(), CreateError::Flags { cache: "flags", gfp: bad });
            }
        }
        let zones = Gfp::DMA.union(Gfp::DMA32);
        let refused = with(zones.union(Gfp::KERNEL)).unwrap_err();
        assert_eq!(refused, CreateError::Flags { cache: "flags", gfp: zones });
        assert_eq!(
            refused.to_string(),
            "cache flags: flags __GFP_DMA|__GFP_DMA32 for all of its pages; possible are one of __GFP_DMA and \
             __GFP_DMA32, and those of reclaim and urgency"
        );
        for good in [Gfp::DMA, Gfp::DMA32, Gfp::RECLAIMABLE, Gfp::ATOMIC, Gfp::KERNEL.union(Gfp::ACCOUNT)] {
            let cache = with(good).unwrap();
            slab.destroy(cache).unwrap();
        }
    });
}

#[test]
fn a_cache_with_objects_is_not_destroyed() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        let mut objects = take(slab, &cache, 65);
        let kept = objects.split_off(64);
        give(slab, &cache, objects);
        let (cache, live) = slab.destroy(cache).unwrap_err();
        assert_eq!(live, LiveObjects { cache: "test-64", objects: 1, slabs: 1 });
        give(slab, &cache, kept);
        slab.destroy(cache).unwrap();
    });
}

#[test]
fn a_place_is_used_again_from_the_start() {
    one_node().run_slab(SlabConfig { caches_max: 1, ..SlabConfig::default() }, |slab| {
        for size in [64, 100, 9000, 8] {
            let cache = slab.create(CacheOptions::new("again", size)).unwrap();
            let objects = take(slab, &cache, 300);
            assert_eq!(slab.check(&cache).unwrap().held, 300);
            give(slab, &cache, objects);
            let stats = slab.stats(&cache);
            assert_eq!(stats.alloc_hits + stats.alloc_misses, 300);
            assert_eq!(stats.free_hits + stats.free_misses, 300);
            slab.destroy(cache).unwrap();
        }
    });
}

#[test]
fn wrong_frees_are_refused_and_told() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let (cache, other) = (cache64(slab), slab.create(CacheOptions::new("other", 64)).unwrap());
        let object = take(slab, &cache, 1)[0];
        let wrong = ObjectError::WrongCache { address: object, given: "other", owner: "test-64" };
        assert_eq!(slab.free(&other, object), Err(wrong));
        let inside = Address(object.0 + 8);
        let not_an_object = ObjectError::NotAnObject { address: inside, cache: "test-64" };
        assert_eq!(slab.free(&cache, inside), Err(not_an_object));
        for address in [Address(0), Address(u64::MAX), Address(1 << 20), Address(16_384 << 12)] {
            let expected = ObjectError::NotOfSlab { address };
            assert_eq!(slab.free(&cache, address), Err(expected), "{address}");
        }
        let page = slab.pages().alloc(nearpage::Request::new(Order(0), Gfp::KERNEL)).unwrap();
        let address = Address::from_pfn(page, 12);
        assert_eq!(slab.free(&cache, address), Err(ObjectError::NotOfSlab { address }));
        assert_eq!(misuses(slab), 7);
        slab.free(&cache, object).unwrap();
        assert_eq!(slab.check_all().unwrap().held, 0);
    });
}

#[test]
fn a_double_free_is_found_when_it_goes_home_and_harms_nobody() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        let objects = take(slab, &cache, 200);
        slab.free(&cache, objects[7]).unwrap();
        slab.free(&cache, objects[7]).unwrap();
        assert!(matches!(slab.check(&cache), Err(SlabCheckError::Twice { .. })));
        slab.shrink(&cache).unwrap();
        assert_eq!(misuses(slab), 1);
        assert_eq!(slab.check(&cache).unwrap().held, 199);
        // Between two objects of a size that is no power of two: refused when it goes home.
        let odd = slab.create(CacheOptions::new("odd", 72)).unwrap();
        let object = take(slab, &odd, 1)[0];
        slab.free(&odd, Address(object.0 + 8)).unwrap();
        slab.shrink(&odd).unwrap();
        assert_eq!((misuses(slab), slab.check(&odd).unwrap().held), (2, 1));
    });
}

#[test]
fn bulk_is_as_many_single_ones() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        let mut objects = vec![Address(0); 1000];
        assert_eq!(slab.alloc_bulk(&cache, Gfp::KERNEL, &mut objects), Ok(1000));
        assert_eq!(slab.check(&cache).unwrap().held, 1000);
        objects.sort();
        objects.dedup();
        assert_eq!(objects.len(), 1000);
        objects[500] = Address(17);
        let refused = slab.free_bulk(&cache, &objects).unwrap_err();
        assert_eq!((refused.freed, refused.refused), (999, 1));
        assert_eq!(slab.check(&cache).unwrap().held, 1);
        assert_eq!(slab.alloc_bulk(&cache, Gfp::KERNEL, &mut []), Ok(0));
    });
}

#[test]
fn memory_that_runs_out_is_an_error_with_all_objects_in_place() {
    TestMachine::new().node(0, 1024, &[0]).run_slab(SlabConfig::default(), |slab| {
        let cache = slab.create(CacheOptions::new("big", 4096)).unwrap();
        let mut objects = Vec::new();
        let error = loop {
            match slab.alloc(&cache, Gfp::KERNEL) {
                Ok(object) => objects.push(object),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, AllocError::OutOfMemory { .. }), "{error}");
        assert!(objects.len() > 900, "{}", objects.len());
        assert_eq!(slab.check(&cache).unwrap().held, objects.len() as u64);
        let mut out = vec![Address(0); 10];
        assert!(slab.alloc_bulk(&cache, Gfp::KERNEL, &mut out).is_err());
        give(slab, &cache, objects);
        slab.destroy(cache).unwrap();
    });
}

/// Node 0 with CPU 0 and memory, node 1 with CPU 1 and none, node 2 with memory.
fn memoryless() -> TestMachine {
    TestMachine::new().node(0, 16_384, &[0]).node(1, 0, &[1]).node(2, 16_384, &[2])
}

#[test]
fn a_memoryless_node_has_stacks_of_the_nearest_memory() {
    memoryless().distances(&[10, 20, 20, 20, 10, 15, 20, 15, 10]).run_slab(
        SlabConfig::default(),
        |slab| {
            let cache = cache64(slab);
            run_on(slab, 1);
            assert_eq!(slab.effective_node(CpuId(1)), Some(NodeIndex(2)));
            let objects = take(slab, &cache, 1000);
            assert!(objects.iter().all(|&object| node_of(slab, object) == 2));
            give(slab, &cache, objects);
            let stats = slab.stats(&cache);
            assert!(stats.alloc_hits > 950 && stats.free_hits > 950, "{stats:?}");
            assert_eq!(slab.node_stats(&cache, NodeIndex(2)).remote, [0; 3]);
        },
    );
}

#[test]
fn before_2010_a_memoryless_node_had_no_fast_path() {
    let config = SlabConfig { local: LocalNode::OwnNode, ..SlabConfig::default() };
    memoryless().run_slab(config, |slab| {
        let cache = cache64(slab);
        run_on(slab, 1);
        let objects = take(slab, &cache, 1000);
        give(slab, &cache, objects);
        let stats = slab.stats(&cache);
        assert_eq!((stats.alloc_hits, stats.free_hits), (0, 0));
        let node = slab.node_stats(&cache, NodeIndex(1));
        assert_eq!((node.alien_frees, node.alien_locks), (1000, 1000));
        assert_eq!(node.remote[RemoteReason::Memoryless as usize], 1000);
        assert_eq!(slab.check(&cache).unwrap().held, 0);
    });
}

#[test]
fn a_private_node_gives_objects_only_to_who_names_it() {
    for local in [LocalNode::NearestMemory, LocalNode::OwnNode] {
        let machine = TestMachine::new().node(0, 16_384, &[0]).node(1, 16_384, &[1]);
        machine.run_slab(SlabConfig { local, ..SlabConfig::default() }, |slab| {
            let cache = cache64(slab);
            run_on(slab, 0);
            let before = take(slab, &cache, 100);
            give(slab, &cache, before);
            slab.set_access(NodeId(0), NodeAccess::Private).unwrap();
            assert_eq!(slab.effective_node(CpuId(0)), Some(NodeIndex(1)));
            let node_0 = Some(NodeId(0));
            let asked = [None, node_0].map(|node| match node {
                None => take(slab, &cache, 500),
                Some(node) => {
                    (0..500).map(|_| slab.alloc_node(&cache, Gfp::KERNEL, node).unwrap()).collect()
                }
            });
            for object in asked.into_iter().flatten() {
                assert_eq!(node_of(slab, object), 1, "{local:?}");
                slab.free(&cache, object).unwrap();
            }
            let named =
                slab.alloc_node(&cache, Gfp::KERNEL.union(Gfp::THISNODE), NodeId(0)).unwrap();
            assert_eq!(node_of(slab, named), 0);
            slab.free(&cache, named).unwrap();
            slab.set_access(NodeId(0), NodeAccess::General).unwrap();
            assert_eq!(slab.effective_node(CpuId(0)), Some(NodeIndex(0)));
            assert_eq!(slab.check(&cache).unwrap().held, 0);
            let unknown = slab.set_access(NodeId(9), NodeAccess::Private);
            assert!(unknown.is_err());
        });
    }
}

/// Puts objects of a cache onto all kinds of stacks: of CPUs, and shared and alien ones of nodes.
fn spread<'m>(slab: &TestSlab<'_, 'm>, cache: &TestCache<'m>, cpus: &[u32]) {
    for &cpu in cpus {
        run_on(slab, cpu);
        let mut objects = take(slab, cache, 300);
        let half = objects.split_off(150);
        give(slab, cache, objects);
        run_on(slab, cpus[(cpu as usize + 1) % cpus.len()]);
        give(slab, cache, half);
    }
}

#[test]
fn a_cpu_that_is_off_keeps_no_objects_nor_does_a_node_without_one() {
    let machine = TestMachine::new().node(0, 16_384, &[0, 1]).node(1, 16_384, &[2]);
    machine.run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        spread(slab, &cache, &[0, 1, 2]);
        let node_1 = || slab.node_stats(&cache, NodeIndex(1));
        assert!(node_1().slabs > 1 && node_1().alien > 0);
        let most = slab.stack_bytes_max();
        slab.offline_cpu(CpuId(2)).unwrap();
        // Objects of a slab are on their way home from node 0.
        assert_eq!((node_1().slabs, node_1().alien, node_1().shared), (1, 0, 0));
        assert_eq!(most - slab.stack_bytes_max(), 120 * 64);
        // A thread that still runs there goes to the lists of its node.
        run_on(slab, 2);
        let before = slab.stats(&cache);
        let objects = take(slab, &cache, 100);
        assert!(objects.iter().all(|&object| node_of(slab, object) == 1));
        give(slab, &cache, objects);
        let after = slab.stats(&cache);
        assert_eq!((after.alloc_hits, after.free_hits), (before.alloc_hits, before.free_hits));
        assert_eq!(slab.offline_cpu(CpuId(2)), Err(CpuError::AlreadyOff { cpu: CpuId(2) }));
        slab.online_cpu(CpuId(2)).unwrap();
        assert_eq!(slab.stack_bytes_max(), most);
        let objects = take(slab, &cache, 100);
        assert!(slab.stats(&cache).alloc_hits > after.alloc_hits + 90);
        give(slab, &cache, objects);
        assert_eq!(slab.check(&cache).unwrap().held, 0);
    });
}

#[test]
fn a_cpu_switched_behind_our_back_is_noticed_by_the_next_round() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        spread(slab, &cache, &[0, 1]);
        let in_stacks = || slab.check(&cache).unwrap().in_stacks;
        slab.pages().offline_cpu(CpuId(0)).unwrap();
        slab.pages().offline_cpu(CpuId(1)).unwrap();
        assert!(in_stacks() > 0);
        slab.reap_cpu(CpuId(0)).unwrap();
        slab.reap_cpu(CpuId(1)).unwrap();
        assert_eq!(in_stacks(), 0);
        slab.pages().online_cpu(CpuId(0)).unwrap();
        slab.reap_cpu(CpuId(0)).unwrap();
        spread(slab, &cache, &[0, 1]);
        assert!(in_stacks() > 0);
    });
}

#[test]
fn nodes_that_no_cpu_looks_to_are_reaped() {
    let machine = TestMachine::new().node(0, 16_384, &[0, 1]).node(1, 16_384, &[]);
    machine.run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        run_on(slab, 0);
        let far = || slab.alloc_node(&cache, Gfp::KERNEL, NodeId(1)).unwrap();
        let objects = (0..1000).map(|_| far()).collect();
        give(slab, &cache, objects);
        let node = || slab.node_stats(&cache, NodeIndex(1));
        assert!(node().shared > 0 && node().slabs > 0);
        for round in 1..100 {
            slab.pages().platform().set_now_ns(round * REAP_PERIOD_NS);
            slab.reap_cpu(CpuId(0)).unwrap();
        }
        assert_eq!((node().shared, node().slabs), (0, 0));
    });
}

#[test]
fn a_node_that_lost_its_last_cpu_keeps_nothing_ready() {
    let section = SECTION_FRAMES as u64;
    let machine = TestMachine::new().node(0, section, &[]).node(9, section, &[1]);
    machine.run_slab_offline(SlabConfig::default(), |slab| {
        slab.online_all(&[PfnRange::new(section, 2 * section)]).unwrap();
        let cache = cache64(slab);
        run_on(slab, 1);
        let objects = take(slab, &cache, 500);
        give(slab, &cache, objects);
        slab.online_all(&[PfnRange::new(2 * section, 3 * section)]).unwrap();
        let node = slab.node_stats(&cache, NodeIndex(0));
        assert_eq!((node.shared, node.alien, node.slabs), (0, 0, 0));
    });
}

#[test]
fn a_thread_that_moves_in_the_midst_of_a_bulk_free_leaves_no_object_on_a_wrong_stack() {
    let machine = TestMachine::new().node(0, 16_384, &[0]).node(1, 16_384, &[1]);
    machine.run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        run_on(slab, 0);
        let objects = take(slab, &cache, 20);
        slab.pages().platform().move_after(1, CpuId(1));
        slab.free_bulk(&cache, &objects).unwrap();
        assert_eq!(slab.storage().current_cpu(), CpuId(1), "it moved");
        let checked = slab.check(&cache).unwrap();
        assert_eq!((checked.held, checked.foreign), (0, 0));
        assert_eq!(slab.node_stats(&cache, NodeIndex(1)).alien_frees, 20);
    });
}

#[test]
fn a_flush_that_a_change_of_nodes_overtook_moves_nothing() {
    let machine = TestMachine::new().node(0, 16_384, &[0, 1]).node(1, 16_384, &[2]);
    machine.run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        run_on(slab, 0);
        let objects = take(slab, &cache, 60);
        give(slab, &cache, objects);
        let (cpu, stack) = (slab.this_cpu().unwrap(), &cache.stacks[0]);
        let flush = |node| slab.flush_batch(cache.cache, cache.code, cpu, stack, NodeIndex(node));
        let in_stacks = || slab.check(&cache).unwrap().in_stacks;
        let before = in_stacks();
        flush(1);
        assert_eq!((in_stacks(), slab.check(&cache).unwrap().foreign), (before, 0));
        flush(0);
        assert_eq!(in_stacks(), before - 60);
        // The walker sees what stands on a stack of another node.
        stack.tag.store(cache.cache.tag(NodeIndex(1)).0, Ordering::Relaxed);
        cpu.effective.store(1, Ordering::Relaxed);
        assert_eq!(slab.check(&cache).unwrap().foreign, in_stacks());
    });
}

#[test]
fn the_walker_changes_nothing_whatever_it_finds() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        let [kept, freed] = take(slab, &cache, 2)[..] else { unreachable!("two were asked for") };
        slab.free(&cache, freed).unwrap();
        slab.shrink(&cache).unwrap();
        // Now it lies in its slab, and stands in a stack.
        slab.free(&cache, freed).unwrap();
        let twice = SlabCheckError::Twice { cache: "test-64", address: freed };
        assert_eq!(slab.check(&cache), Err(twice));
        assert_eq!(slab.check(&cache), Err(twice), "as it was before");
        slab.shrink(&cache).unwrap();
        assert_eq!((misuses(slab), slab.check(&cache).unwrap().held), (1, 1));
        slab.free(&cache, kept).unwrap();
        slab.destroy(cache).unwrap();
    });
}

/// The word of a page that somebody locks.
#[allow(unsafe_code)]
fn lock_bit<'m>(slab: &TestSlab<'_, 'm>, page: Pfn) -> &'m AtomicU32 {
    // SAFETY: its lock bit is changed alone.
    unsafe { slab.pages().lock_cell(page) }.unwrap()
}

#[test]
fn a_slab_whose_page_somebody_locked_stays_until_it_is_unlocked() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = slab.create(CacheOptions::new("page", 4096)).unwrap();
        let objects = take(slab, &cache, 100);
        let pfn = objects[40].to_pfn(12);
        lock_bit(slab, pfn).fetch_or(LOCKED, Ordering::Relaxed);
        give(slab, &cache, objects);
        assert!(slab.shrink(&cache).unwrap() > PageCount(90));
        let checked = slab.check(&cache).unwrap();
        assert_eq!((checked.slabs, checked.held), (1, 0));
        assert!(misuses(slab) > 0);
        let (cache, live) = slab.destroy(cache).unwrap_err();
        assert_eq!((live.objects, live.slabs), (0, 1));
        assert!(live.to_string().ends_with("1 of its slabs are locked"), "{live}");
        // It is used like any other.
        let objects = take(slab, &cache, 1);
        assert_eq!(objects[0].to_pfn(12), pfn);
        give(slab, &cache, objects);
        lock_bit(slab, pfn).fetch_and(!LOCKED, Ordering::Relaxed);
        slab.destroy(cache).unwrap();
        slab.pages().drain_all().unwrap();
        assert_eq!(slab.pages().check().unwrap().allocated, PageCount(0));
    });
}

#[test]
fn addresses_of_slabs_that_go_meanwhile_are_nobodys() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        let object = take(slab, &cache, 1)[0];
        slab.shrink(&cache).unwrap();
        let page = object.to_pfn(12);
        let note = slab.pages().note(page).unwrap();
        let (tag, number) = (note.tag(), note.number());
        let set_number = |number| slab.pages().set_notes(page, Order(0), tag, number);
        // As somebody sees it who read the tag before the slab went, and the rest after: links of any kind.
        for stale in [u32::MAX, u32::MAX - 1, 1 << 30, number + 1] {
            set_number(stale);
            assert_eq!((slab.owner(object), slab.usable_size(object)), (None, None));
        }
        set_number(u32::MAX);
        // Told when they go home, which is where a slab is looked for.
        slab.free(&cache, object).unwrap();
        slab.free_bytes(object).unwrap();
        slab.shrink(&cache).unwrap();
        assert_eq!(misuses(slab), 2);
        set_number(number);
        slab.free(&cache, object).unwrap();
        assert_eq!(slab.check_all().unwrap().held, 0);
    });
}

/// Acquisitions of the list locks of nodes with memory, per message of hackbench: one object of 232 bytes and one
/// of 1024 are allocated by a sender and freed by a receiver on another CPU.
fn locks_per_message(local: LocalNode) -> f64 {
    const MESSAGES: u64 = 20_000;
    let machine = TestMachine::new().node(0, 0, &[0]).node(1, 0, &[1]).node(2, 32_768, &[]);
    machine.run_slab(SlabConfig { local, ..SlabConfig::LINUX_2_6_35 }, |slab| {
        let head = slab.create(CacheOptions::new("skbuff_head_cache", 232)).unwrap();
        let data = slab.create(CacheOptions::new("size-1024", 1024)).unwrap();
        let locks = || {
            let of = |cache| slab.node_stats(cache, NodeIndex(2)).list_locks;
            of(&head) + of(&data)
        };
        let exchange = |messages: u64| {
            // A sender writes on until the receiver runs.
            for _ in 0..messages / 20 {
                run_on(slab, 0);
                let sent = (take(slab, &head, 20), take(slab, &data, 20));
                run_on(slab, 1);
                give(slab, &head, sent.0);
                give(slab, &data, sent.1);
            }
        };
        exchange(2000);
        let before = locks();
        exchange(MESSAGES);
        (locks() - before) as f64 / MESSAGES as f64
    })
}

#[test]
fn list_locks_per_message_are_those_of_the_reference() {
    let (old, new) =
        (locks_per_message(LocalNode::OwnNode), locks_per_message(LocalNode::NearestMemory));
    let near = |value: f64, expected: f64| (value / expected - 1.0).abs() <= 0.01;
    assert!(near(old, 2.17), "{old}");
    assert!(near(new, 0.107), "{new}");
}

#[test]
fn objects_go_home_in_batches() {
    let machine = TestMachine::new().node(0, 16_384, &[0]).node(5, 16_384, &[1]);
    machine.run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        run_on(slab, 0);
        let objects = take(slab, &cache, 25);
        run_on(slab, 1);
        give(slab, &cache, objects);
        let node = slab.node_stats(&cache, NodeIndex(1));
        assert_eq!((node.alien_frees, node.alien_overflows, node.alien), (25, 2, 1));
        assert_eq!(slab.node_stats(&cache, NodeIndex(0)).shared, 24);
        assert_eq!(slab.check(&cache).unwrap().held, 0);
        // What was asked for elsewhere is counted, and comes from there.
        let object = slab.alloc_node(&cache, Gfp::KERNEL, NodeId(0)).unwrap();
        assert_eq!(node_of(slab, object), 0);
        assert_eq!(slab.node_stats(&cache, NodeIndex(1)).remote, [1, 0, 0]);
        let unknown = slab.alloc_node(&cache, Gfp::KERNEL, NodeId(1));
        assert_eq!(unknown, Err(AllocError::UnknownNode { node: NodeId(1) }));
    });
}

#[test]
fn objects_come_from_elsewhere_when_a_node_is_full() {
    let machine = TestMachine::new().node(0, 1024, &[0]).node(1, 16_384, &[1]);
    machine.run_slab(SlabConfig::default(), |slab| {
        let cache = slab.create(CacheOptions::new("pages", 4096)).unwrap();
        run_on(slab, 0);
        let mut objects = take(slab, &cache, 2000);
        let far = objects.iter().filter(|&&object| node_of(slab, object) == 1).count();
        assert!(far > 900, "{far}");
        let node = slab.node_stats(&cache, NodeIndex(0));
        assert_eq!(node.remote[RemoteReason::Exhausted as usize], far as u64);
        // Who goes nowhere else drains pagesets, so that there may be a few more.
        let this_node = || slab.alloc_node(&cache, Gfp::KERNEL.union(Gfp::THISNODE), NodeId(0));
        objects.extend((0..1024).map_while(|_| this_node().ok()));
        assert!(this_node().is_err());
        objects.reverse();
        give(slab, &cache, objects);
        assert_eq!(slab.check(&cache).unwrap().held, 0);
        slab.destroy(cache).unwrap();
    });
}

#[test]
fn nobody_waits_for_a_full_node_while_another_has_room() {
    let machine = TestMachine::new().node(0, 1024, &[0]).node(1, 16_384, &[1]);
    // The flags may be those of the cache.
    for of_cache in [Gfp(0), Gfp::KERNEL, Gfp::KERNEL.union(Gfp::NOFAIL)] {
        machine.run_slab(SlabConfig::default(), |slab| {
            let options = CacheOptions { gfp: of_cache, ..CacheOptions::new("pages", 4096) };
            let cache = slab.create(options).unwrap();
            run_on(slab, 0);
            let mut objects = Vec::new();
            while objects.last().is_none_or(|&object| node_of(slab, object) == 0) {
                objects.extend(slab.alloc(&cache, Gfp::NOWAIT));
            }
            let reclaims = || slab.pages().stall_counts(NodeIndex(0));
            let before = reclaims();
            for gfp in [Gfp::KERNEL, Gfp::KERNEL.union(Gfp::NOFAIL)] {
                let object = slab.alloc(&cache, gfp).unwrap();
                assert_eq!(node_of(slab, object), 1);
                objects.push(object);
            }
            assert_eq!(reclaims(), before);
            give(slab, &cache, objects);
            slab.destroy(cache).unwrap();
        });
    }
}

#[test]
fn who_may_not_fail_gets_the_objects_that_there_are() {
    TestMachine::new().node(0, 4096, &[0, 1]).run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        run_on(slab, 1);
        let mut objects = take(slab, &cache, cache.geometry().objects as usize);
        let kept = objects.pop().unwrap();
        give(slab, &cache, objects);
        let checked = slab.check(&cache).unwrap();
        assert_eq!((checked.in_slabs, checked.slabs), (0, 1), "all stand in the stack of CPU 1");
        run_on(slab, 0);
        let pages = slab.pages();
        let page = |gfp| pages.alloc(nearpage::Request::new(Order(0), gfp));
        // To the last page.
        while page(Gfp::KERNEL.union(Gfp::MEMALLOC)).is_ok() {}
        for gfp in [Gfp::NOFAIL, Gfp::NOFAIL.union(Gfp::THISNODE)] {
            let object = slab.alloc_node(&cache, Gfp::KERNEL.union(gfp), NodeId(0)).unwrap();
            assert_eq!(object.to_pfn(12), kept.to_pfn(12));
            // All go to the stack of CPU 1 again.
            let mut others = vec![object];
            others.extend(
                (1..cache.geometry().objects - 1).map(|_| slab.alloc(&cache, Gfp::NOWAIT).unwrap()),
            );
            run_on(slab, 1);
            give(slab, &cache, others);
            assert_eq!(slab.check(&cache).unwrap().in_slabs, 0);
            run_on(slab, 0);
        }
        give(slab, &cache, vec![kept]);
        slab.destroy(cache).unwrap();
    });
}

#[test]
fn an_object_of_one_node_alone_is_of_that_node_though_the_thread_moves() {
    let machine = TestMachine::new().node(0, 16_384, &[0]).node(1, 16_384, &[1]);
    machine.run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        run_on(slab, 1);
        let objects = take(slab, &cache, 20);
        give(slab, &cache, objects);
        run_on(slab, 0);
        slab.pages().platform().move_after(1, CpuId(1));
        let this_node = Gfp::KERNEL.union(Gfp::THISNODE);
        let object = slab.alloc_node(&cache, this_node, NodeId(0)).unwrap();
        assert_eq!(slab.storage().current_cpu(), CpuId(1), "it moved");
        assert_eq!(node_of(slab, object), 0);
        assert_eq!(slab.check(&cache).unwrap().held, 1);
        slab.free(&cache, object).unwrap();
        slab.destroy(cache).unwrap();
    });
}

#[test]
fn idle_stacks_and_slabs_are_reaped() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        let objects = take(slab, &cache, 2000);
        give(slab, &cache, objects);
        let in_stacks = || slab.check(&cache).unwrap().in_stacks;
        let before = (in_stacks(), slab.check(&cache).unwrap().shared);
        assert!(before.0 > 48 && before.1 == 480, "{before:?}");
        let round = || {
            let platform = slab.pages().platform();
            platform.set_now_ns(nearpage::platform::Platform::now_ns(platform) + REAP_PERIOD_NS);
            slab.reap_cpu(CpuId(0)).unwrap();
        };
        // The first round only notes that it was used.
        round();
        assert_eq!(in_stacks(), before.0);
        round();
        assert_eq!(in_stacks(), before.0 - 24);
        (0..200).for_each(|_| round());
        let checked = slab.check(&cache).unwrap();
        assert_eq!((checked.in_stacks, checked.shared, checked.slabs), (0, 0, 0));
        slab.pages().drain_all().unwrap();
        assert_eq!(slab.pages().check().unwrap().allocated, PageCount(0));
    });
}

#[test]
fn shrinking_gives_all_pages_back() {
    let machine = TestMachine::new().node(0, 16_384, &[0]).node(1, 16_384, &[1]);
    machine.run_slab(SlabConfig::default(), |slab| {
        let caches = [cache64(slab), slab.create(CacheOptions::new("odd", 840)).unwrap()];
        for cache in &caches {
            run_on(slab, 0);
            let objects = take(slab, cache, 3000);
            run_on(slab, 1);
            give(slab, cache, objects);
        }
        assert!(slab.shrink_all() > PageCount(10));
        let checked = slab.check_all().unwrap();
        assert_eq!((checked.slabs, checked.in_stacks, checked.shared), (0, 0, 0));
        slab.pages().drain_all().unwrap();
        assert_eq!(slab.pages().check().unwrap().allocated, PageCount(0));
    });
}

#[test]
fn stacks_keep_within_the_budget() {
    let machine = TestMachine::new().node(0, 65_536, &[0, 1]).node(1, 65_536, &[2]);
    machine.run_slab(SlabConfig::default(), |slab| {
        let caches = [cache64(slab), slab.create(CacheOptions::new("large", 2048)).unwrap()];
        let unbounded = slab.stack_bytes_max();
        let kbytes = 64;
        let kept = || -> u64 {
            let bytes = |cache| {
                let checked = slab.check(cache).unwrap();
                (checked.in_stacks + checked.shared) * cache.object_size()
            };
            caches.iter().map(bytes).sum()
        };
        for cache in &caches {
            spread(slab, cache, &[0, 1, 2]);
        }
        assert!(kept() > kbytes * 1024 / 2);
        let mut settings = slab.pages().settings();
        settings.pageset_budget_kbytes = Some(kbytes);
        slab.pages().set_settings(settings).unwrap();
        slab.apply_budget().unwrap();
        let most = slab.stack_bytes_max();
        assert!(most <= kbytes * 1024 / 2 && most < unbounded, "{most} of {unbounded}");
        assert!(kept() <= most, "what was kept before went home: {} of {most}", kept());
        for cpu in [0, 1, 2] {
            run_on(slab, cpu);
            for cache in &caches {
                let objects = take(slab, cache, 2000);
                give(slab, cache, objects);
            }
        }
        assert!(kept() <= most, "{} of {most}", kept());
        // Without a budget the limits are as before; a round of reaping notices.
        settings.pageset_budget_kbytes = None;
        slab.pages().set_settings(settings).unwrap();
        slab.reap_cpu(CpuId(0)).unwrap();
        assert_eq!(slab.stack_bytes_max(), unbounded);
    });
}

#[test]
fn a_small_budget_is_dealt_out_over_many_caches() {
    let machine =
        (0..4).fold(TestMachine::new(), |machine, node| machine.node(node, 16_384, &[node]));
    machine.run_slab(SlabConfig::default(), |slab| {
        let sizes = [8, 32, 64, 192, 256, 1024, 2048, 8192];
        let names = "abcdefghijklmnopqrs".split_inclusive(char::is_alphabetic);
        let caches: Vec<_> = (names.zip(sizes.into_iter().cycle()))
            .map(|(name, size)| slab.create(CacheOptions::new(name, size)).unwrap())
            .collect();
        assert_eq!(caches.len(), 19);
        let mut settings = slab.pages().settings();
        for kbytes in [64, 100, 1000] {
            settings.pageset_budget_kbytes = Some(kbytes);
            slab.pages().set_settings(settings).unwrap();
            slab.apply_budget().unwrap();
            // Whole pages of half of it.
            let (most, room) = (slab.stack_bytes_max(), kbytes * 1024 / 2 / 4096 * 4096);
            assert!(most <= room && most > room * 3 / 4, "{kbytes} kB: {most} of {room}");
        }
        caches.into_iter().for_each(|cache| slab.destroy(cache).unwrap());
    });
}

#[test]
fn memory_that_arrives_becomes_the_node_of_its_cpus() {
    let section = SECTION_FRAMES as u64;
    let machine = TestMachine::new().node(0, section, &[0]).node(9, section, &[1]);
    machine.run_slab_offline(SlabConfig::default(), |slab| {
        slab.online_all(&[PfnRange::new(section, 2 * section)]).unwrap();
        let cache = cache64(slab);
        run_on(slab, 1);
        assert_eq!(slab.effective_node(CpuId(1)), Some(NodeIndex(0)));
        let mut objects = take(slab, &cache, 100);
        give(slab, &cache, objects.split_off(50));
        assert!(slab.check(&cache).unwrap().in_stacks > 0);
        slab.online_all(&[PfnRange::new(2 * section, 3 * section)]).unwrap();
        assert_eq!(slab.effective_node(CpuId(1)), Some(NodeIndex(1)));
        assert_eq!(slab.check(&cache).unwrap().in_stacks, 0);
        assert!(take(slab, &cache, 100).iter().all(|&object| node_of(slab, object) == 9));
        // What came from the other node goes back there.
        give(slab, &cache, objects);
        assert_eq!(slab.node_stats(&cache, NodeIndex(1)).alien_frees, 50);
        assert_eq!(slab.check(&cache).unwrap().held, 100);
    });
}

#[test]
fn every_kind_of_memoryless_machine_has_a_fast_path() {
    // Pages by node: node 0 empty, the last one empty, all but one empty.
    let machines: [&[u64]; 4] =
        [&[0, 8192, 8192], &[8192, 8192, 0], &[0, 0, 8192, 0], &[8192, 0, 0, 8192]];
    for pages in machines {
        for step in [1, 7] {
            let mut machine = TestMachine::new();
            for (at, &pages) in pages.iter().enumerate() {
                machine = machine.node(at as u32 * step, pages, &[at as u32 * 3]);
            }
            machine.run_slab(SlabConfig::default(), |slab| {
                let cache = cache64(slab);
                let mut held = Vec::new();
                for cpu in 0..pages.len() as u32 {
                    run_on(slab, cpu * 3);
                    // What the CPU before allocated is freed here: a thread that moved.
                    give(slab, &cache, core::mem::take(&mut held));
                    let before = slab.stats(&cache).alloc_hits;
                    held = take(slab, &cache, 1000);
                    let hits = slab.stats(&cache).alloc_hits - before;
                    assert!(hits > 950, "{pages:?} CPU {cpu}: {hits}");
                    let node = slab.effective_node(CpuId(cpu * 3)).unwrap().0 as usize;
                    assert!(pages[node] > 0 && (pages[cpu as usize] == 0 || node == cpu as usize));
                    let expected = node as u32 * step;
                    assert!(held.iter().all(|&object| node_of(slab, object) == expected));
                    slab.check(&cache).unwrap();
                }
                give(slab, &cache, held);
                assert_eq!(slab.check(&cache).unwrap().held, 0, "{pages:?}");
            });
        }
    }
}

#[test]
fn a_cpu_that_the_topology_does_not_have_is_served() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        run_on(slab, 77);
        let objects = take(slab, &cache, 10);
        give(slab, &cache, objects);
        assert_eq!(
            slab.check(&cache).unwrap(),
            SlabChecked {
                in_slabs: slab.counts(&cache).objects,
                slabs: slab.counts(&cache).slabs,
                ..SlabChecked::default()
            }
        );
    });
}

#[test]
fn a_wrong_free_on_a_cpu_between_others_is_refused_at_once() {
    TestMachine::new().node(0, 16_384, &[0, 2]).run_slab(SlabConfig::default(), |slab| {
        let cache = cache64(slab);
        // The id of no CPU, in the midst of the table.
        run_on(slab, 1);
        let page = slab.pages().alloc(nearpage::Request::new(Order(0), Gfp::KERNEL)).unwrap();
        let address = Address::from_pfn(page, 12);
        for link in [0, 1, u32::MAX] {
            slab.pages().set_notes(page, Order(0), link, u32::MAX);
            assert_eq!(slab.free(&cache, address), Err(ObjectError::NotOfSlab { address }));
        }
    });
}

#[test]
fn there_is_one_slab_allocator() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let config = SlabConfig::default();
        let second = SlabAllocator::new(slab.pages(), config, |_, bytes| vec![0; bytes].leak());
        assert_eq!(second.err(), Some(SlabBuildError::SecondSlab));
    });
    one_node().run(|pages| {
        let config = SlabConfig { caches_max: 0, ..SlabConfig::default() };
        let none = SlabAllocator::new(pages, config, |_, _| &mut []);
        let expected = SlabBuildError::TooManyCaches { caches_max: 0 };
        assert_eq!(none.err(), Some(expected));
        let config = SlabConfig { caches_max: usize::MAX, ..config };
        let size = config.metadata_size::<PlainPlatform>(pages.topology(), NodeIndex(0));
        let expected = SlabBuildError::TooManyCaches { caches_max: usize::MAX };
        assert_eq!(size, Err(expected));
    });
}

#[test]
fn any_size_is_served_and_freed_by_its_address() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let classes = SizeClasses::new(slab).unwrap();
        let mut held = Vec::new();
        for size in [1, 8, 9, 64, 65, 96, 100, 192, 193, 1024, 1025, 8192, 8193, 100_000, 4 << 20] {
            let address = slab.alloc_bytes(&classes, size, Gfp::KERNEL).unwrap();
            assert!(slab.usable_size(address).unwrap() >= size, "{size}");
            held.push(address);
        }
        for align in (0..=22).map(|shift| 1_u64 << shift) {
            let address = slab
                .alloc_bytes_aligned(&classes, 24, align, Gfp::KERNEL, Some(NodeId(0)))
                .unwrap();
            assert!(address.0.is_multiple_of(align) && slab.usable_size(address).unwrap() >= 24);
            held.push(address);
        }
        for address in held {
            slab.free_bytes(address).unwrap();
        }
        assert_eq!((slab.check_all().unwrap().held, misuses(slab)), (0, 0));
        let bad = |size, align| {
            slab.alloc_bytes_aligned(&classes, size, align, Gfp::KERNEL, None).unwrap_err()
        };
        use classes::SizeError;
        assert_eq!(slab.alloc_bytes(&classes, 0, Gfp::KERNEL), Err(SizeError::ZeroSize));
        assert_eq!(bad(0, 8), SizeError::ZeroSize);
        assert_eq!(bad(8, 3), SizeError::Alignment { align: 3 });
        for (size, align) in [(u64::MAX, 1), (8, 1 << 63), ((4 << 20) + 1, 1), (8, 8 << 20)] {
            let bytes = size.max(align);
            let overflow = SizeError::Pages(AllocError::SizeOverflow { bytes });
            assert_eq!(bad(size, align), overflow);
        }
    });
}

#[test]
fn frees_by_address_that_are_wrong_are_refused() {
    one_node().run_slab(SlabConfig::default(), |slab| {
        let classes = SizeClasses::new(slab).unwrap();
        let large = slab.alloc_bytes(&classes, 20_000, Gfp::KERNEL).unwrap();
        let small = slab.alloc_bytes(&classes, 64, Gfp::KERNEL).unwrap();
        for wrong in [0, 5, large.0 + 1, large.0 + 4096, small.0 + 8, u64::MAX] {
            assert!(slab.free_bytes(Address(wrong)).is_err(), "{wrong:#x}");
        }
        assert_eq!(misuses(slab), 6);
        slab.free_bytes(large).unwrap();
        assert!(slab.free_bytes(large).is_err());
        slab.free_bytes(small).unwrap();
        let text = format!("{}", slab.free_bytes(Address(small.0 + 8)).unwrap_err());
        assert!(text.contains("no object of cache kmalloc-64 begins there"), "{text}");
    });
}

#[test]
fn machines_of_more_than_32_gib_align_objects_to_more() {
    let frames = 64 << (30 - 12);
    let nodes = vec![nearpage::NodeBuf {
        id: NodeId(0),
        memory: vec![PfnRange::new(0, 4096), PfnRange::new(frames, frames + 4096)],
        cpus: vec![CpuId(0)],
        movable_from: None,
    }];
    let machine = nearpage::TopologyBuf {
        nodes,
        distances: vec![10],
        address_map: nearpage::AddressMap::Flat,
    };
    TestMachine::from(machine).run_slab(SlabConfig::default(), |slab| {
        let cache = slab.create(CacheOptions::new("small", 8)).unwrap();
        assert_eq!((cache.object_size(), cache.geometry().align), (32, 32));
        let objects = take(slab, &cache, 1000);
        give(slab, &cache, objects);
        slab.destroy(cache).unwrap();
    });
}
