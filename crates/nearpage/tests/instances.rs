//! Several zones of one kind on one node: who begins where, what comes after that, and what the texts say.

use nearpage::platform::Platform;
use nearpage::testing::machine::TestMachine;
use nearpage::testing::plain::PlainPlatform;
use nearpage::{
    AddressMap, AllocError, BuildError, Config, CpuId, Gfp, Model, Node, NodeBuf, NodeId,
    NodeIndex, NodeSet, Order, PageAllocator, PageCount, Pfn, PfnRange, Placement, Policy, Request,
    Topology, TopologyBuf, ZoneIndex, ZoneInstances, ZoneKind, metadata_size,
};

const PAGE: Request = Request::new(Order(0), Gfp::KERNEL);
const THIS_NODE: Request = Request::new(Order(0), Gfp::KERNEL.union(Gfp::THISNODE));
/// Of each instance.
const PAGES: u64 = 8192;

fn config(count: u16) -> Config {
    let rules = |model: &mut Model| model.zone_instances = ZoneInstances::Count(count);
    Config::new().with_model(Model::LINUX_6_18.with(rules))
}

/// Two nodes with memory of four instances each, and one without memory; a lower zone on the first.
fn machine() -> TestMachine {
    let bound = 1 << 20;
    let memory = |from: u64, to: u64| vec![PfnRange::new(bound + from, bound + to)];
    let node = |id: u32, memory: Vec<PfnRange>, cpus: &[u32]| NodeBuf {
        id: NodeId(id),
        memory,
        cpus: cpus.iter().copied().map(CpuId).collect(),
        movable_from: None,
    };
    let mut first = vec![PfnRange::new(bound - PAGES, bound)];
    first.extend(memory(0, 4 * PAGES));
    let nodes = vec![
        node(0, first, &[0, 1, 2, 3]),
        node(4, memory(4 * PAGES, 8 * PAGES), &[4, 5]),
        node(9, vec![], &[7]),
    ];
    let distances = vec![10, 20, 30, 20, 10, 30, 20, 20, 10];
    TestMachine::from(TopologyBuf { nodes, distances, address_map: AddressMap::X86 })
        .config(config(4))
}

/// The zone of a page.
fn zone_of<P: Platform>(allocator: &PageAllocator<'_, P>, pfn: Pfn) -> ZoneIndex {
    let has_page = |zone: &&&nearpage::stats::Zone<'_, P>| zone.span().contains(pfn);
    allocator.zones().iter().find(has_page).expect("a page has a zone").index()
}

/// The zones of pages as they come, each once, until a request fails.
fn zones_until_failure<P: Platform>(
    allocator: &PageAllocator<'_, P>,
    request: Request,
) -> Vec<u16> {
    let mut zones: Vec<u16> = Vec::new();
    while let Ok(pfn) = allocator.alloc(request) {
        let zone = zone_of(allocator, pfn).0;
        if zones.last() != Some(&zone) {
            zones.push(zone);
        }
    }
    zones
}

#[test]
fn a_zone_for_each_instance_and_no_other_kind_is_divided() {
    machine().run(|allocator| {
        let zones = allocator.zones().iter();
        let zones: Vec<_> =
            zones.map(|zone| (zone.node().0, zone.kind(), zone.managed().0)).collect();
        let normal = |node| std::iter::repeat_n((node, ZoneKind::Normal, PAGES), 4);
        let mut expected = vec![(0, ZoneKind::Dma32, PAGES)];
        expected.extend(normal(0).chain(normal(1)));
        assert_eq!(zones, expected);
    });
}

#[test]
fn a_cpu_begins_at_the_instance_of_its_number_and_goes_on_to_the_others_of_its_node() {
    for (cpu, expected) in [
        (0, [1, 2, 3, 4, 0, 5, 6, 7, 8]),
        (2, [3, 4, 1, 2, 0, 7, 8, 5, 6]),
        // On the second node.
        (5, [6, 7, 8, 5, 2, 3, 4, 1, 0]),
        // On the node without memory, nearer to neither.
        (7, [4, 1, 2, 3, 0, 8, 5, 6, 7]),
    ] {
        machine().run(|allocator| {
            allocator.platform().run_on(CpuId(cpu));
            let mut zones = zones_until_failure(allocator, PAGE);
            // Below the low mark requests go around once more, down to the min mark.
            zones.truncate(expected.len());
            assert_eq!(zones, expected, "CPU {cpu}");
        });
    }
}

#[test]
fn the_fast_path_takes_from_the_own_instance_of_a_node_that_is_named_too() {
    machine().run(|allocator| {
        for (cpu, expected) in [(0, [1, 5]), (1, [2, 6]), (3, [4, 8]), (4, [1, 5]), (5, [2, 6])] {
            allocator.platform().run_on(CpuId(cpu));
            for (node, zone) in [NodeId(0), NodeId(4)].into_iter().zip(expected) {
                for _ in 0..3 {
                    let pfn = allocator.alloc(PAGE.on(node)).unwrap();
                    assert_eq!(zone_of(allocator, pfn), ZoneIndex(zone), "CPU {cpu}, node {node}");
                }
            }
        }
    });
}

#[test]
fn instances_are_of_their_node_for_this_node_policies_and_statistics() {
    machine().run(|allocator| {
        allocator.platform().run_on(CpuId(1));
        let of_first: Vec<u16> = vec![2, 3, 4, 1, 0];
        assert_eq!(zones_until_failure(allocator, THIS_NODE)[..5], of_first);
        let first = allocator.node_stats(NodeIndex(0));
        assert_eq!((first.numa_miss, first.numa_foreign), (0, 0));
        assert!(first.numa_hit > 4 * PAGES);

        let mut words = [0];
        let nodes = NodeSet::new(allocator.topology(), [NodeId(4)], &mut words).unwrap();
        let bound = Placement::by(Policy::Bind(nodes));
        let mut zones = Vec::new();
        while let Ok(pfn) = allocator.alloc_with(&bound, PAGE) {
            zones.push(zone_of(allocator, pfn).0);
        }
        zones.dedup();
        assert_eq!(zones[..4], [6, 7, 8, 5]);
        assert!(zones.iter().all(|zone| *zone >= 5), "{zones:?}");

        allocator.platform().run_on(CpuId(7));
        let gfp = THIS_NODE.gfp;
        let refused = AllocError::MemorylessNode { node: NodeId(9), gfp };
        assert_eq!(allocator.alloc(THIS_NODE), Err(refused));
    });
}

#[test]
fn pages_go_home_to_their_instance() {
    machine().run(|allocator| {
        let mut pages = Vec::new();
        for cpu in [0, 1, 2, 3] {
            allocator.platform().run_on(CpuId(cpu));
            pages.extend((0..100).map(|_| allocator.alloc(PAGE).unwrap()));
        }
        // One CPU frees what all of them have.
        pages.iter().for_each(|&page| allocator.free(page, Order(0)).unwrap());
        allocator.drain_all().unwrap();
        for zone in allocator.zones() {
            assert_eq!(zone.free_pages(), zone.managed());
        }
    });
}

#[test]
fn an_instance_goes_offline_and_comes_back() {
    machine().run(|allocator| {
        let span = allocator.zones()[2].span();
        allocator.platform().run_on(CpuId(1));
        let page = allocator.alloc(PAGE).unwrap();
        assert_eq!(zone_of(allocator, page), ZoneIndex(2));
        assert!(allocator.offline(span).is_err());
        allocator.free(page, Order(0)).unwrap();
        assert_eq!(allocator.offline(span), Ok(PageCount(PAGES)));
        let next = allocator.alloc(PAGE).unwrap();
        assert_eq!(zone_of(allocator, next), ZoneIndex(3), "the next of the node");
        allocator.free(next, Order(0)).unwrap();
        assert_eq!(allocator.online(span), Ok(PageCount(PAGES)));
        let page = allocator.alloc(PAGE).unwrap();
        assert_eq!(zone_of(allocator, page), ZoneIndex(2));
        allocator.free(page, Order(0)).unwrap();
        // Half of one instance and half of the next.
        let half = PageCount(PAGES / 2);
        let over = PfnRange { start: span.start + half, end: span.end + half };
        assert_eq!(allocator.offline(over), Ok(PageCount(PAGES)));
        let managed = |zone: usize| allocator.zones()[zone].managed();
        assert_eq!((managed(2), managed(3)), (half, half));
        assert_eq!(allocator.offline_node(NodeId(0)), Ok(PageCount(4 * PAGES)));
        assert_eq!(allocator.online_node(NodeId(0)), Ok(PageCount(5 * PAGES)));
    });
}

#[test]
fn lower_zones_are_kept_for_others_by_the_memory_of_all_instances() {
    let divided = machine().run(|allocator| allocator.zones()[0].reserve(ZoneKind::Normal));
    let whole = machine().config(config(1));
    let whole = whole.run(|allocator| allocator.zones()[0].reserve(ZoneKind::Normal));
    assert_eq!((divided, divided > PageCount(0)), (whole, true));
}

#[test]
fn background_reclaim_ends_the_boost_that_each_instance_had() {
    let rules = config(2)
        .with_settings(Config::new().settings.with(|settings| settings.min_free_kbytes = Some(0)));
    let machine = TestMachine::new().node(0, 2 * PAGES, &[0, 1]).config(rules);
    machine.run(|allocator| {
        let boost = |zone: usize| allocator.zones()[zone].boost();
        // Half of each pageblock is movable: unmovable pages mix them.
        let half = Request::new(Order(8), Gfp::HIGHUSER_MOVABLE);
        let blocks: Vec<Pfn> = std::iter::from_fn(|| allocator.alloc(half).ok()).collect();
        for &block in blocks.iter().filter(|block| block.0 % 512 == 0) {
            allocator.free(block, Order(8)).unwrap();
        }
        allocator.platform().run_on(CpuId(1));
        allocator.alloc(PAGE).unwrap();
        assert_eq!(boost(0), PageCount(0));
        let first = boost(1);
        assert!(first > PageCount(0));
        let pass = allocator.begin_reclaim(NodeIndex(0), ZoneKind::Movable);
        allocator.platform().run_on(CpuId(0));
        // Of a type that the other instance has no pageblock of by now.
        allocator.alloc(Request::new(Order(0), Gfp::KERNEL.union(Gfp::RECLAIMABLE))).unwrap();
        let later = boost(0);
        assert!(later > PageCount(0));
        allocator.end_reclaim(pass);
        assert_eq!((boost(0), boost(1)), (later, PageCount(0)));
    });
}

#[test]
fn texts_have_a_part_for_each_instance() {
    machine().run(|allocator| {
        let mut text = String::new();
        allocator.write_zoneinfo(&mut text).unwrap();
        let count = |text: &str, line: &str| text.lines().filter(|of| of.starts_with(line)).count();
        assert_eq!(count(&text, "Node 0, zone   Normal"), 4);
        assert_eq!(count(&text, "Node 0, zone    DMA32"), 1);
        assert_eq!(count(&text, "Node 9, zone   Normal"), 1);
        assert_eq!(count(&text, "  per-node stats"), 2);
        let spanned = text.lines().filter_map(|line| line.trim().strip_prefix("spanned"));
        let spanned: Vec<u64> = spanned.map(|pages| pages.trim().parse().unwrap()).collect();
        assert_eq!(spanned.iter().filter(|&&pages| pages == PAGES).count(), 9);
        let mut text = String::new();
        allocator.write_buddyinfo(&mut text).unwrap();
        assert_eq!(count(&text, "Node 4, zone   Normal"), 4);
    });
}

#[test]
fn a_small_machine_has_one_zone_by_the_rfc_too() {
    let machine = machine().config(Config::new().with_model(Model::RFC_2023_ZONES));
    assert_eq!(machine.run(|allocator| allocator.zones().len()), 3);
    let large = |pages| Model::RFC_2023_ZONES.zone_instances.count(PageCount(pages));
    let gibibyte = 1 << 18;
    assert_eq!(
        [128, 256, 383, 384, 512, 1024].map(|size| large(size * gibibyte)),
        [1, 1, 1, 2, 2, 4]
    );
}

#[test]
fn more_zones_than_there_are_numbers_are_refused() {
    let memory = [PfnRange::new(0, 1 << 26), PfnRange::new(1 << 26, 1 << 27)];
    let node = |id: usize| Node {
        id: NodeId(id as u32),
        memory: &memory[id..=id],
        cpus: &[],
        movable_from: None,
    };
    let nodes = [node(0), node(1)];
    let topology = Topology::new(&nodes, &[10, 20, 20, 10], AddressMap::Flat).unwrap();
    let size = |count| metadata_size::<PlainPlatform>(&topology, &config(count), NodeIndex(0));
    assert!(size(64).unwrap() > size(1).unwrap());
    assert_eq!(size(40_000), Err(BuildError::TooManyZones { zones: 80_000 }));
}
