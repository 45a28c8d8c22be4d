//! Random loads on all CPUs, with the walker.

use core::cell::RefCell;
use std_alloc::boxed::Box;
use std_alloc::rc::Rc;
use std_alloc::vec;
use std_alloc::vec::Vec;

use crate::alloc::PageAllocator;
use crate::alloc::{Config, Limits, Request, metadata_size};
use crate::error::LimitOf;
use crate::frame::Migratetype;
use crate::gfp::Gfp;
use crate::host::Platform;
use crate::model::Model;
use crate::pcp::{CountedList, HOMEBOUND};
use crate::single::{SingleLock, SingleStorage, SingleThreaded};
use crate::testing::machine::TestMachine;
use crate::testing::plain::PlainPlatform;
use crate::testing::random::Random;
use crate::topology::{AddressMap, NodeBuf, Topology, TopologyBuf};
use crate::units::{CpuId, NodeId, NodeIndex, Order, PageCount, Pfn, PfnRange};
use crate::watermark::Settings;

const GFPS: [Gfp; 3] = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL.union(Gfp::RECLAIMABLE)];

/// The most operations of one hold: of a zone's lock, or of another CPU's pagesets.
fn most_of_a_hold(allocator: &PageAllocator<'_, PlainPlatform>) -> u64 {
    let zones = allocator.zones().iter().map(|zone| zone.work());
    let cpus = allocator.cpus().map(|(cpu, ..)| allocator.taken_by_others(cpu));
    zones.chain(cpus).map(|work| work.most_operations).max().unwrap()
}

/// Drains all CPUs: what that says went to the zones is what they have more.
fn drain_all(allocator: &PageAllocator<'_, PlainPlatform>) {
    let free = || allocator.zones().iter().map(|zone| zone.free_pages().0).sum::<u64>();
    let (before, drained) = (free(), allocator.drain_all().unwrap());
    assert_eq!(free(), before + drained.0);
}

fn run_on_all(allocator: &PageAllocator<'_, PlainPlatform>, cpus: u32, seed: u64) {
    let (mut random, mut held) = (Random(seed), Vec::new());
    let mut now = 0;
    for step in 0..20_000 {
        now += random.below(3_000_000);
        allocator.platform().set_now_ns(now);
        let cpu = CpuId(random.below(cpus.into()) as u32);
        allocator.platform().run_on(cpu);
        // Loads that grow and that shrink take turns.
        let grows = step / 2000 % 2 == 0;
        let order = if random.one_in(8) { random.below(11) as u8 } else { 0 };
        for _ in 0..random.below(60) {
            if random.one_in(3) != grows {
                let gfp = GFPS[random.below(3) as usize];
                let request = Request::new(Order(order), gfp);
                held.extend(allocator.alloc(request).ok().map(|pfn| (pfn, order)));
            } else if !held.is_empty() {
                let recent = random.below(2) * 40;
                let from = held.len().saturating_sub(recent.max(1) as usize);
                let at = match recent {
                    0 => random.below(held.len() as u64) as usize,
                    _ => from + random.below((held.len() - from) as u64) as usize,
                };
                let (pfn, order) = held.swap_remove(at);
                allocator.free(pfn, Order(order)).unwrap();
            }
        }
        match random.below(400) {
            0 => drop(allocator.drain_cpu(cpu)),
            1 => drain_all(allocator),
            2..20 => drop(allocator.decay_cpu(CpuId(random.below(cpus.into()) as u32))),
            _ => {}
        }
        if step % 500 == 0 {
            allocator.check().unwrap();
        }
    }
    assert!((1..=256).contains(&most_of_a_hold(allocator)), "{}", most_of_a_hold(allocator));
    for (pfn, order) in held {
        allocator.free(pfn, Order(order)).unwrap();
    }
    allocator.check().unwrap();
    drain_all(allocator);
    let found = allocator.check().unwrap();
    assert_eq!((found.cached, found.allocated), (PageCount(0), PageCount(0)));
    for zone in allocator.zones() {
        let largest = |of| zone.free_blocks(Order(10), of);
        let blocks: u32 = Migratetype::ALL.into_iter().map(largest).sum();
        assert!(u64::from(blocks) >= zone.managed().0 / 1024 - 1, "all is whole again");
    }
}

#[test]
fn nothing_is_lost_whoever_frees() {
    for seed in 0..6 {
        let config = Config { model: Model::NEARPAGE, ..Config::default() };
        let machine = TestMachine::new().node(0, 40_000, &[0, 1]).node(1, 20_480, &[2]);
        machine.node(2, 0, &[3]).config(config).run(|allocator| run_on_all(allocator, 4, seed));
    }
}

fn run_next(settings: Settings, run: impl FnOnce(&PageAllocator<'_, PlainPlatform>)) {
    let config = Config { model: Model::NEARPAGE, settings, ..Config::default() };
    TestMachine::new().node(0, 16_384, &[0]).config(config).run(|allocator| run(allocator));
}

const PAGE: Request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
/// A CPU without pagesets.
const NO_CPU: CpuId = CpuId(9);

/// Of two pageblocks that are in use, 60 pages of the first are free in the zone, and `keep` changes what is kept there. Then
/// the CPU brings other pages of that pageblock home: for nearly full ones it may have what is free in them too.
fn beside_what_comes_home(
    keep: impl Fn(&PageAllocator<'_, PlainPlatform>),
    mut holds: impl FnMut(&PageAllocator<'_, PlainPlatform>, u64),
) {
    run_next(Settings::default(), |allocator| {
        // From its first refill on, the CPU knows which pages are its own.
        allocator.alloc(PAGE).unwrap();
        allocator.platform().run_on(NO_CPU);
        let pages: Vec<Pfn> = (0..1024).map(|_| allocator.alloc(PAGE).unwrap()).collect();
        pages[..60].iter().for_each(|&page| allocator.free(page, Order(0)).unwrap());
        keep(allocator);
        let free = allocator.zones()[0].free_pages().0;
        allocator.platform().run_on(CpuId(0));
        pages[100..512].iter().for_each(|&page| allocator.free(page, Order(0)).unwrap());
        holds(allocator, free);
        allocator.check().unwrap();
    });
}

#[test]
fn what_comes_home_takes_nothing_below_min() {
    let free_after = |kbytes: Option<u64>| {
        let mut changed = 0;
        let keep = |allocator: &PageAllocator<'_, PlainPlatform>| {
            let settings = Settings { min_free_kbytes: kbytes, ..allocator.settings() };
            allocator.set_settings(settings).unwrap();
        };
        beside_what_comes_home(keep, |allocator, before| {
            let zone = allocator.zones()[0];
            changed = zone.free_pages().0 as i64 - before as i64;
            assert!(zone.free_pages().0 >= before.min(zone.marks().min.0));
        });
        changed
    };
    // Else the pageblock becomes the CPU's.
    let [none, all] = [0, 16_384 << 2].map(|kbytes| free_after(Some(kbytes)));
    assert!(none < 0 && all > 0, "{none} {all}");
}

#[test]
fn what_comes_home_takes_nothing_above_a_limit() {
    let limit = |allocator: &PageAllocator<'_, PlainPlatform>| {
        let out = allocator.in_use(LimitOf::Allocator).unwrap().0;
        let limits = Limits { hard_bytes: Some((out + 10) << 12), soft_bytes: None };
        allocator.set_limits(LimitOf::Allocator, limits).unwrap();
    };
    beside_what_comes_home(limit, |allocator, before| {
        assert!(allocator.zones()[0].free_pages().0 > before);
    });
}

#[test]
fn a_refill_takes_no_more_than_a_limit_allows() {
    run_next(Settings::default(), |allocator| {
        let limits = Limits { hard_bytes: Some(10 << 12), soft_bytes: None };
        allocator.set_limits(LimitOf::Allocator, limits).unwrap();
        let pages: Vec<Pfn> = core::iter::from_fn(|| allocator.alloc(PAGE).ok()).collect();
        assert_eq!(pages.len(), 10);
        assert_eq!(allocator.in_use(LimitOf::Allocator), Ok(PageCount(10)));
    });
}

/// What is kept whole is no limit.
#[test]
fn who_may_have_nothing_for_min_is_not_counted_as_sent_away_by_a_limit() {
    run_next(Settings { min_free_kbytes: Some(8192), ..Settings::default() }, |allocator| {
        let limits = Limits { hard_bytes: None, soft_bytes: Some(1 << 40) };
        allocator.set_limits(LimitOf::Allocator, limits).unwrap();
        allocator.platform().run_on(NO_CPU);
        let zone = allocator.zones()[0];
        while allocator.alloc(PAGE).is_ok() {}
        let mut out = [Pfn(0); 600];
        assert!(allocator.alloc_bulk(PAGE, &mut out).is_err());
        assert!(zone.free_pages() >= zone.marks().min);
        assert_eq!(zone.counts().limit_refused, 0);
    });
}

#[test]
fn no_hold_from_outside_is_long() {
    let load = |freer: CpuId, take_back: &dyn Fn(&PageAllocator<'_, PlainPlatform>)| {
        let config = Config { model: Model::NEARPAGE, ..Config::default() };
        TestMachine::new().node(0, 1 << 20, &[0, 1]).config(config).run(|allocator| {
            // Lists of all types and orders are full, and so is that of pages on their way home.
            let mut now = 0;
            let mut held = Vec::new();
            for order in (0..9).map(Order) {
                for gfp in GFPS {
                    let request = Request::new(order, gfp);
                    let blocks = (0..20_000 >> order.0).map(|_| (allocator.alloc(request), order));
                    held.extend(blocks.map(|(block, order)| (block.unwrap(), order)));
                }
            }
            // What another CPU frees of the CPU's pageblocks is in the inbox.
            let halves = (0..held.len()).step_by(2).chain((1..held.len()).step_by(2));
            for (turn, at) in halves.enumerate() {
                let ((block, order), is_second) = (held[at], turn > held.len() / 2);
                allocator.platform().run_on(if is_second { freer } else { CpuId(0) });
                now += u64::from(at % 100 == 0) << 20;
                allocator.platform().set_now_ns(now);
                allocator.free(block, order).unwrap();
            }
            let pageset = &allocator.pagesets(CpuId(0)).unwrap()[0];
            let (blocks, pages) = (pageset.blocks(), pageset.count().0);
            assert!(blocks > 512 || freer == CpuId(1) && pages > 8192, "{blocks}, {pages}");
            allocator.platform().run_on(CpuId(1));
            take_back(allocator);
            allocator.check().unwrap();
            let taken = allocator.taken_by_others(CpuId(0));
            assert!(taken.holds > 1 && taken.operations >= 256, "{taken:?}");
            assert!(most_of_a_hold(allocator) <= 256, "{}", most_of_a_hold(allocator));
        });
    };
    for freer in [0, 1].map(CpuId) {
        load(freer, &|allocator| {
            allocator.drain_all().unwrap();
            assert_eq!(allocator.check().unwrap().cached, PageCount(0));
        });
        load(freer, &|allocator| {
            allocator.decay_cpu(CpuId(0)).unwrap();
            allocator.decay_cpu(CpuId(0)).unwrap();
        });
    }
}

#[test]
fn bulk_requests_live_on_the_cpus_own_pageblocks() {
    TestMachine::new().node(0, 1 << 18, &[0]).run(|allocator| {
        let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
        let (mut random, mut held, mut taken) = (Random(7), Vec::new(), 0);
        let mut out = [Pfn(0); 1500];
        let mut turn = |pages: usize| {
            let got = allocator.alloc_bulk(request, &mut out[..pages]).unwrap();
            taken += got as u64;
            held.extend_from_slice(&out[..got]);
            let rest = random.below(held.len() as u64 + 1) as usize;
            allocator.free_bulk(&held.split_off(rest)).unwrap();
            got
        };
        for pages in [1, 16, 63, 64, 65, 256, 511, 512, 700, 1500] {
            (0..20).for_each(|_| assert_eq!(turn(pages), pages));
        }
        allocator.check().unwrap();
        let holds = || allocator.zones()[0].holds().acquisitions;
        let before = holds();
        (0..100).for_each(|_| assert_eq!(turn(256), 256));
        assert!(holds() - before < 25, "{}", holds() - before);
        let stats = allocator.totals();
        assert_eq!((stats.pgalloc.0, stats.numa_local), (taken, taken));
        assert_eq!(stats.pgalloc.0 - stats.pgfree.0, held.len() as u64);
        allocator.free_bulk(&held).unwrap();
        assert_eq!(allocator.check().unwrap().allocated, PageCount(0));
    });
}

/// What comes home of a pageblock that two zones share merges page by page: holds end in the middle of it.
#[test]
fn no_hold_for_a_shared_pageblock_is_long() {
    // Frames 4607 to 5119 are node 1's, within the span of node 0.
    let node = |id, memory: [(u64, u64); 2]| NodeBuf {
        id: NodeId(id),
        memory: memory.map(|(start, end)| PfnRange::new(start, end)).to_vec(),
        cpus: vec![CpuId(id)],
        movable_from: None,
    };
    let nodes = vec![node(0, [(0, 4607), (5120, 9216)]), node(1, [(4607, 5120), (9216, 16_384)])];
    let distances = vec![10, 20, 20, 10];
    let machine =
        TestMachine::from(TopologyBuf { nodes, distances, address_map: AddressMap::Flat });
    let most = |free: &dyn Fn(&PageAllocator<'_, PlainPlatform>, &[Pfn])| {
        machine.run(|allocator| {
            let mut pages = Vec::new();
            let gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::MEMALLOC);
            while let Ok(page) = allocator.alloc(Request::new(Order(0), gfp)) {
                pages.push(page);
            }
            let is_shared = |page: &Pfn| (4096..4607).contains(&page.0);
            let (shared, others): (Vec<Pfn>, Vec<Pfn>) = pages.into_iter().partition(is_shared);
            assert_eq!(shared.len(), 511);
            // Each of the others merges with what is free around it.
            let (odd, even): (Vec<Pfn>, Vec<Pfn>) = shared.iter().partition(|page| page.0 % 2 == 1);
            for part in [odd, even, others] {
                free(allocator, &part);
            }
            allocator.drain_all().unwrap();
            let found = allocator.check().unwrap();
            assert_eq!((found.cached, found.allocated), (PageCount(0), PageCount(0)));
            most_of_a_hold(allocator)
        })
    };
    let mosts = [
        most(&|allocator, pages| {
            pages.iter().for_each(|&page| allocator.free(page, Order(0)).unwrap());
        }),
        most(&|allocator, pages| allocator.free_bulk(pages).unwrap()),
        most(&|allocator, pages| {
            allocator.platform().run_on(NO_CPU);
            allocator.free_bulk(pages).unwrap();
        }),
    ];
    assert!(mosts.iter().all(|&most| (50..=256).contains(&most)), "{mosts:?}");
}

/// A bulk request of a type that has no pageblocks yet makes many its own: in holds of which none is long.
#[test]
fn no_hold_of_a_large_bulk_request_is_long() {
    for (gfp, pages) in GFPS.into_iter().flat_map(|gfp| [(gfp, 9000), (gfp, 60_000)]) {
        TestMachine::new().node(0, 1 << 17, &[0]).run(|allocator| {
            let mut out = vec![Pfn(0); pages];
            assert_eq!(allocator.alloc_bulk(Request::new(Order(0), gfp), &mut out), Ok(pages));
            allocator.check().unwrap();
            let most = most_of_a_hold(allocator);
            assert!((8..=256).contains(&most), "{gfp}, {pages}: {most}");
        });
    }
}

/// Who cannot wait has no right to what is kept whole by that alone.
#[test]
fn requests_that_cannot_wait_leave_min_whole() {
    for gfp in [Gfp::NOWAIT, Gfp::KERNEL] {
        let mut refused = 0;
        for seed in 1..6 {
            run_next(Settings::default(), |allocator| {
                let (mut random, mut held) = (Random(seed), Vec::new());
                let zone = &allocator.zones()[0];
                for _ in 0..2000 {
                    for _ in 0..random.below(80) {
                        let order = Order(if random.one_in(2) { 0 } else { random.below(8) as u8 });
                        let before = zone.free_pages();
                        match allocator.alloc(Request::new(order, gfp)) {
                            Ok(page) => held.push((page, order)),
                            Err(_) => refused += 1,
                        }
                        let after = zone.free_pages();
                        assert!(after >= before || after >= zone.marks().min, "{after:?}");
                    }
                    for _ in 0..random.below(60).min(held.len() as u64) {
                        let at = random.below(held.len() as u64) as usize;
                        let (page, order) = held.swap_remove(at);
                        allocator.free(page, order).unwrap();
                    }
                }
                allocator.check().unwrap();
            });
        }
        assert!(refused > 100, "{gfp}: {refused}");
    }
}

/// The turn of each second stops no CPU for zones of which it keeps nothing.
#[test]
fn who_keeps_nothing_is_not_stopped() {
    let machine = TestMachine::new().node(0, 4096, &[0, 1]).node(1, 8192, &[]);
    machine.run(|allocator| {
        let holds = |cpu| allocator.taken_by_others(CpuId(cpu)).holds;
        allocator.platform().run_on(CpuId(1));
        allocator.decay_cpu(CpuId(0)).unwrap();
        assert_eq!(holds(0), 0);
        allocator.platform().run_on(CpuId(0));
        let page = allocator.alloc(Request::new(Order(0), Gfp::KERNEL)).unwrap();
        allocator.platform().run_on(CpuId(1));
        allocator.decay_cpu(CpuId(0)).unwrap();
        assert_eq!(holds(0), 1, "it has pages of one zone");
        allocator.free(page, Order(0)).unwrap();
        allocator.check().unwrap();
    });
}

/// A drain from outside ends with nothing kept, also where a hold of it ends just as what is for other CPUs has gone.
#[test]
fn a_drain_from_outside_leaves_nothing_wherever_a_hold_of_it_ends() {
    for (single, triples) in (60..140).flat_map(|single| (0..4).map(move |runs| (single, runs))) {
        TestMachine::new().node(0, 1 << 16, &[0, 1]).run(|allocator| {
            allocator.platform().run_on(CpuId(1));
            let theirs: Vec<Pfn> = (0..448).map(|_| allocator.alloc(PAGE).unwrap()).collect();
            allocator.platform().run_on(CpuId(0));
            let own: Vec<Pfn> = (0..64).map(|_| allocator.alloc(PAGE).unwrap()).collect();
            // Triples of adjoining pages, and pages of which no two adjoin: what they cost gives all sums.
            let is_now = |page: &Pfn| match page.0 % 512 {
                at @ 0..16 => at % 4 < 3 && at / 4 < triples,
                at => at % 2 == 0 && (at - 16) / 2 < single,
            };
            let (now, later): (Vec<Pfn>, Vec<Pfn>) = theirs.iter().partition(|page| is_now(page));
            now.iter().for_each(|&page| allocator.free(page, Order(0)).unwrap());
            allocator.platform().run_on(CpuId(1));
            allocator.drain_cpu(CpuId(0)).unwrap();
            let left = allocator.pagesets(CpuId(0)).unwrap()[0].count();
            assert_eq!(left, PageCount(0), "{single} single pages, {triples} triples");
            later.iter().chain(&own).for_each(|&page| allocator.free(page, Order(0)).unwrap());
        });
    }
}

/// However many CPUs own what a CPU frees, and however little that is for the first of them, it keeps no more of it than it may
/// keep, and what a list may hold.
#[test]
fn what_belongs_to_many_cpus_is_sent_to_them() {
    let cpus: Vec<u32> = (0..64).collect();
    for owners in [15, 16, 17, 24, 63] {
        TestMachine::new().node(0, 1 << 21, &cpus).run(|allocator| {
            let take = |owner| {
                allocator.platform().run_on(CpuId(owner));
                (0..448).map(|_| allocator.alloc(PAGE).unwrap()).collect()
            };
            let mut held: Vec<Vec<Pfn>> = (1..=owners).map(take).collect();
            allocator.platform().run_on(CpuId(0));
            let pageset = &allocator.pagesets(CpuId(0)).unwrap()[0];
            let owned = pageset.owned().unwrap();
            let mut most = 0;
            for turn in 0..40 {
                allocator.platform().set_now_ns(turn << 30);
                for (at, theirs) in held.iter_mut().enumerate() {
                    // Of those whose pageblocks come first there is a page each.
                    let left = theirs.len() - if at >= 16 { 11 } else { usize::from(turn == 0) };
                    for page in theirs.split_off(left) {
                        allocator.free(page, Order(0)).unwrap();
                        let listed = u64::from(pageset.list(HOMEBOUND).count());
                        most = most.max(listed + owned.homebound_pages().0);
                    }
                }
            }
            let size = owned.pageblocks.size().0;
            assert!(most <= size + 128, "{owners} owners: {most} pages, {size}");
            held.into_iter().flatten().for_each(|page| allocator.free(page, Order(0)).unwrap());
        });
    }
}

/// A platform on which something else is done each time that the time is asked for: by another CPU, as it were.
#[derive(Default)]
struct Beside {
    single: SingleThreaded,
    act: RefCell<Option<Rc<dyn Fn()>>>,
}

impl Platform for Beside {
    type Lock<T> = SingleLock<T>;
    type Storage = SingleStorage;

    fn storage(&self) -> &SingleStorage {
        self.single.storage()
    }

    fn now_ns(&self) -> u64 {
        let act = self.act.take();
        act.iter().for_each(|act| act());
        self.act.replace(act);
        self.single.now_ns()
    }
}

/// A CPU fills a list faster than a drain from outside empties it: in the end it is left alone.
#[test]
fn a_drain_from_outside_ends_beside_a_cpu_that_frees() {
    let memory = PfnRange::new(0, 1 << 20);
    let cpus = vec![CpuId(0), CpuId(1)];
    let node = NodeBuf { id: NodeId(0), memory: vec![memory], cpus, movable_from: None };
    let (nodes, distances) = (vec![node], vec![10]);
    let machine = Box::new(TopologyBuf { nodes, distances, address_map: AddressMap::Flat });
    let machine: &'static TopologyBuf = Box::leak(machine);
    let nodes = machine.nodes.iter().map(NodeBuf::as_node).collect::<Vec<_>>().leak();
    let topology = Topology::new(nodes, &machine.distances, machine.address_map).unwrap();
    let config = Config { model: Model::NEARPAGE, ..Config::default() };
    let bytes = metadata_size::<Beside>(&topology, &config, NodeIndex(0)).unwrap();
    let mut metadata = Some(vec![0; bytes].leak());
    let take = |_, _| metadata.take().unwrap();
    let allocator = PageAllocator::new(Beside::default(), topology, config, take).unwrap();
    let allocator = Rc::new(allocator);
    allocator.online(memory).unwrap();
    let pair = Request::new(Order(1), Gfp::HIGHUSER_MOVABLE);
    let held: Vec<Pfn> = (0..400_000).map(|_| allocator.alloc(pair).unwrap()).collect();
    let (theirs, held) = (allocator.clone(), Rc::new(RefCell::new(held)));
    let left = held.clone();
    let free_some = move || {
        theirs.platform().single.run_on(CpuId(0));
        let from = held.borrow().len().saturating_sub(30);
        let blocks = held.borrow_mut().split_off(from);
        blocks.into_iter().for_each(|block| theirs.free(block, Order(1)).unwrap());
        theirs.platform().single.run_on(CpuId(1));
    };
    free_some();
    allocator.platform().act.replace(Some(Rc::new(free_some)));
    allocator.platform().single.run_on(CpuId(1));
    allocator.drain_cpu(CpuId(0)).unwrap();
    allocator.platform().act.replace(None);
    assert!(left.borrow().len() > 100_000, "{}", left.borrow().len());
    allocator.check().unwrap();
}
