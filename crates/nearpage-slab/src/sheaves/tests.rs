//! Sheaves and barns: who takes which lock how often, and what the walker finds.

use std_alloc::vec::Vec;

use crate::testing::{SlabMachine as _, TestSlab};
use nearpage::platform::Lock;
use nearpage::testing::machine::TestMachine;
use nearpage::testing::plain::PlainPlatform;
use nearpage::{Address, CpuId, Gfp, NodeId, NodeIndex};

use crate::*;

type TestCache<'m> = KmemCache<'m, PlainPlatform>;

/// Objects of a sheaf of objects of 64 bytes.
const SHEAF: u64 = 60;

fn run_on(slab: &TestSlab<'_, '_>, cpu: u32) {
    slab.pages().platform().run_on(CpuId(cpu));
}

fn cache64<'m>(slab: &TestSlab<'_, 'm>) -> TestCache<'m> {
    slab.create(CacheOptions::new("test-64", 64)).unwrap()
}

fn take<'m>(slab: &TestSlab<'_, 'm>, cache: &TestCache<'m>, objects: u64) -> Vec<Address> {
    (0..objects).map(|_| slab.alloc(cache, Gfp::KERNEL).unwrap()).collect()
}

fn give<'m>(slab: &TestSlab<'_, 'm>, cache: &TestCache<'m>, objects: Vec<Address>) {
    objects.into_iter().for_each(|object| slab.free(cache, object).unwrap());
}

/// CPUs 0 and 1 on a node with memory, CPUs 2 and 3 on one without.
fn memoryless() -> TestMachine {
    TestMachine::new().node(0, 16_384, &[0, 1]).node(1, 0, &[2, 3])
}

/// `messages` objects from one CPU to another, fifty at a time; what nodes 0 and 1 counted for them.
fn send<'m>(
    slab: &TestSlab<'_, 'm>,
    cache: &TestCache<'m>,
    [from, to]: [u32; 2],
    messages: u64,
) -> [NodeStats; 2] {
    let stats = || [0, 1].map(|node| slab.node_stats(cache, NodeIndex(node)));
    let send = |messages: u64| {
        for _ in 0..messages / 50 {
            run_on(slab, from);
            let objects = take(slab, cache, 50);
            run_on(slab, to);
            give(slab, cache, objects);
        }
    };
    // Until slabs are made and barns are filled.
    send(10_000);
    let before = stats();
    send(messages);
    let mut after = stats();
    for (after, before) in after.iter_mut().zip(before) {
        after.barn_locks -= before.barn_locks;
        after.list_locks -= before.list_locks;
        after.bypasses -= before.bypasses;
    }
    after
}

#[test]
fn sheaves_go_through_the_barn_and_slabs_rest() {
    for config in [SlabConfig::LINUX_7_0, SlabConfig::LINUX_7_1] {
        memoryless().run_slab(config, |slab| {
            let [here, _] = send(slab, &cache64(slab), [0, 1], 60_000);
            // One lock for each sheaf that leaves, and one for each that comes back.
            assert_eq!((here.barn_locks, here.list_locks), (2 * 60_000 / SHEAF, 0));
            assert_eq!(here.bypasses, 0);
        });
    }
}

#[test]
fn hits_and_misses_are_all_allocations_and_all_frees() {
    for config in [SlabConfig::LINUX_7_0, SlabConfig::LINUX_7_1] {
        memoryless().run_slab(config, |slab| {
            for cpus in [[0, 1], [2, 3], [0, 2], [2, 0]] {
                let cache = cache64(slab);
                let _ = send(slab, &cache, cpus, 5_000);
                let stats = slab.stats(&cache);
                let [allocs, frees] =
                    [stats.alloc_hits + stats.alloc_misses, stats.free_hits + stats.free_misses];
                assert_eq!((allocs, frees), (15_000, 15_000), "{cpus:?}: {stats:?}");
                slab.destroy(cache).unwrap();
            }
        });
    }
}

#[test]
fn objects_that_a_cpu_allocates_and_frees_itself_take_no_lock() {
    memoryless().run_slab(SlabConfig::LINUX_7_0, |slab| {
        let [here, _] = send(slab, &cache64(slab), [0, 0], 60_000);
        assert_eq!((here.barn_locks, here.list_locks, here.bypasses), (0, 0, 0));
    });
}

#[test]
fn in_7_0_each_object_freed_without_memory_bypasses_the_sheaves() {
    memoryless().run_slab(SlabConfig::LINUX_7_0, |slab| {
        for cpus in [[2, 2], [2, 3], [0, 2]] {
            let cache = cache64(slab);
            let [memory, none] = send(slab, &cache, cpus, 60_000);
            assert_eq!(
                (none.bypasses, none.barn_locks, none.list_locks),
                (60_000, 0, 0),
                "{cpus:?}"
            );
            // One for each object that comes, and for each refill.
            assert!(memory.list_locks >= 60_000 + 60_000 / SHEAF, "{cpus:?}: {memory:?}");
            assert_eq!(none.barn, 0);
            slab.destroy(cache).unwrap();
        }
    });
}

#[test]
fn in_7_0_rc1_who_may_not_block_took_objects_one_by_one() {
    for (config, refills) in [(SlabConfig::LINUX_7_0_RC1, 0), (SlabConfig::LINUX_7_0, 1)] {
        memoryless().run_slab(config, |slab| {
            let cache = cache64(slab);
            run_on(slab, 2);
            let before = slab.alloc(&cache, Gfp::NOWAIT).unwrap();
            slab.shrink(&cache).unwrap();
            let locks = || slab.node_stats(&cache, NodeIndex(0)).list_locks;
            let (locks_before, refills_before) = (locks(), slab.stats(&cache).refills);
            let objects: Vec<Address> =
                (1..SHEAF).map(|_| slab.alloc(&cache, Gfp::NOWAIT).unwrap()).collect();
            assert_eq!(slab.stats(&cache).refills - refills_before, refills);
            let each = if refills == 0 { SHEAF - 1 } else { 1 };
            assert_eq!(locks() - locks_before, each);
            give(slab, &cache, objects);
            slab.free(&cache, before).unwrap();
        });
    }
}

#[test]
fn in_7_1_they_are_kept_and_nodes_without_memory_have_barns() {
    memoryless().run_slab(SlabConfig::LINUX_7_1, |slab| {
        for (cpus, barn_locks) in [([2, 2], 0), ([2, 3], 2 * 60_000 / SHEAF)] {
            let cache = cache64(slab);
            let [memory, none] = send(slab, &cache, cpus, 60_000);
            assert_eq!((none.bypasses, none.barn_locks), (0, barn_locks), "{cpus:?}");
            assert_eq!((memory.list_locks, memory.barn_locks), (0, 0), "{cpus:?}");
            slab.destroy(cache).unwrap();
        }
    });
}

#[test]
fn a_flow_to_a_node_without_memory_ends_at_slabs_with_barns_too() {
    memoryless().run_slab(SlabConfig::LINUX_7_1, |slab| {
        let cache = cache64(slab);
        let [memory, none] = send(slab, &cache, [0, 2], 60_000);
        // The barn there is full: each sheaf goes home whole, under one lock for each run of its objects of a node.
        assert_eq!((none.bypasses, none.barn), (0, 10 * SHEAF));
        assert!(memory.list_locks <= 3 * 60_000 / SHEAF, "{memory:?}");
    });
}

#[test]
fn a_request_with_a_node_takes_from_sheaves_what_fits_and_goes_past_them_else() {
    let machine = TestMachine::new().node(0, 16_384, &[0]).node(1, 16_384, &[1]).node(2, 0, &[2]);
    machine.run_slab(SlabConfig::LINUX_7_1, |slab| {
        let cache = cache64(slab);
        for (cpu, stacks) in [(0, true), (1, false), (2, false)] {
            run_on(slab, cpu);
            give(slab, &cache, take(slab, &cache, 1));
            let hits = slab.stats(&cache).alloc_hits;
            let object = slab.alloc_node(&cache, Gfp::KERNEL, NodeId(0)).unwrap();
            assert_eq!(slab.owner(object).unwrap().node, NodeId(0));
            assert_eq!(slab.stats(&cache).alloc_hits - hits, u64::from(stacks), "CPU {cpu}");
            slab.free(&cache, object).unwrap();
        }
        // There is memory on the node, but it is not the CPU's.
        assert_eq!(slab.node_stats(&cache, NodeIndex(1)).bypasses, 1);
        assert_eq!(slab.node_stats(&cache, NodeIndex(2)).bypasses, 0);
        run_on(slab, 2);
        let strict = Gfp::KERNEL.union(Gfp::THISNODE);
        assert!(slab.alloc_node(&cache, strict, NodeId(2)).is_err());
        assert_eq!(slab.check(&cache).unwrap().held, 0);
    });
}

#[test]
fn a_shrink_empties_barns_and_idle_ones_are_reaped() {
    memoryless().run_slab(SlabConfig::LINUX_7_1, |slab| {
        let cache = cache64(slab);
        let fill = || {
            run_on(slab, 2);
            give(slab, &cache, take(slab, &cache, 720));
            slab.node_stats(&cache, NodeIndex(1)).barn
        };
        assert_eq!(fill(), 10 * SHEAF);
        slab.shrink(&cache).unwrap();
        let checked = slab.check(&cache).unwrap();
        assert_eq!((checked.in_barns, checked.slabs, checked.held), (0, 0, 0));
        assert_eq!(fill(), 10 * SHEAF);
        let rounds = (1..1000).find(|round| {
            slab.pages().platform().set_now_ns(round * REAP_PERIOD_NS);
            (0..4).for_each(|cpu| slab.reap_cpu(CpuId(cpu)).unwrap());
            slab.check(&cache).unwrap() == SlabChecked::default()
        });
        assert!(rounds.is_some_and(|rounds| rounds < 50), "{rounds:?}");
    });
}

#[test]
fn a_budget_of_nothing_leaves_nothing_in_barns() {
    memoryless().run_slab(SlabConfig::LINUX_7_1, |slab| {
        let cache = cache64(slab);
        run_on(slab, 0);
        give(slab, &cache, take(slab, &cache, 1000));
        for kbytes in [Some(100), Some(0), None] {
            let settings = slab.pages().settings();
            let settings = settings.with(|changed| changed.pageset_budget_kbytes = kbytes);
            slab.pages().set_settings(settings).unwrap();
            slab.apply_budget().unwrap();
            give(slab, &cache, take(slab, &cache, 1000));
            let checked = slab.check(&cache).unwrap();
            let kept = (checked.in_stacks + checked.in_barns) * 64;
            assert!(kbytes.is_none_or(|kbytes| kept <= kbytes * 1024 / 2), "{kbytes:?}: {kept}");
        }
        assert_eq!(slab.check(&cache).unwrap().in_barns, 10 * SHEAF);
    });
}

#[test]
fn a_barn_in_a_place_that_is_used_again_is_idle() {
    memoryless().run_slab(SlabConfig::LINUX_7_0, |slab| {
        let before = cache64(slab);
        run_on(slab, 0);
        give(slab, &before, take(slab, &before, 720));
        slab.destroy(before).unwrap();
        let after = cache64(slab);
        assert!(!after.cache.nodes[0].barn().unwrap().lock().touched);
    });
}

/// The canaries of the walker: a barn is damaged, and found to be.
#[test]
fn the_walker_finds_what_stands_in_a_barn_wrongly() {
    memoryless().run_slab(SlabConfig::LINUX_7_0, |slab| {
        let cache = cache64(slab);
        run_on(slab, 0);
        give(slab, &cache, take(slab, &cache, 720));
        assert_eq!(slab.check(&cache).unwrap().in_barns, 10 * SHEAF);
        let barn = |node: usize| cache.cache.nodes[node].barn().unwrap().lock();
        let mut sheaf = [0; crate::tunables::SHEAF_MAX];
        let len = barn(0).take(&mut sheaf).len();
        assert_eq!(slab.check(&cache).unwrap().held, SHEAF, "a sheaf is missing");
        let address = cache.code.address(sheaf[1]);
        barn(0).put(&[sheaf[1], sheaf[1]]);
        let twice = SlabCheckError::Twice { cache: "test-64", address };
        assert_eq!(slab.check(&cache), Err(twice));
        barn(0).take(&mut [0; crate::tunables::SHEAF_MAX]);
        let wrong = |node| Err(SlabCheckError::Barn { cache: "test-64", node: NodeIndex(node) });
        barn(0).put(&[]);
        assert_eq!(slab.check(&cache), wrong(0), "an empty one");
        barn(0).take(&mut [0; crate::tunables::SHEAF_MAX]);
        barn(0).put(&sheaf[..len]);
        slab.check(&cache).unwrap();
        barn(0).limit = 9;
        assert_eq!(slab.check(&cache), wrong(0), "one too many");
        barn(0).limit = 10;
        // A place is there for a barn that the node has not.
        let len = barn(0).take(&mut sheaf).len();
        barn(1).put(&sheaf[..len]);
        assert_eq!(slab.check(&cache), wrong(1), "no barn");
        let len = barn(1).take(&mut sheaf).len();
        barn(0).put(&sheaf[..len]);
    });
}
