//! Two nodes that share a section of 128 MiB: the words of the second one's frames beyond it lie elsewhere than those within.

use nearpage::internals::SECTION_FRAMES;
use nearpage::{
    AddressMap, Config, CpuId, Gfp, Node, NodeId, Order, Pfn, PfnRange, Request, Topology,
};
use nearpage_kernel::{ByRings, KernelPlatform, Pages};

use crate::machine::{Played, alone, run_on};

/// The second section begins here, in the midst of the second node.
const BEYOND: Pfn = Pfn(SECTION_FRAMES as u64);
const ON_THIS_NODE: Request = Request::new(Order(0), Gfp::KERNEL.union(Gfp::THISNODE));

/// As many pages as the second node gives.
fn all(pages: &Pages<'static, Played, ByRings<Played>>) -> impl Iterator<Item = Pfn> {
    std::iter::from_fn(|| pages.alloc(ON_THIS_NODE).ok())
}

fn two_nodes() -> Pages<'static, Played, ByRings<Played>> {
    let bounds = [BEYOND.0 / 2, BEYOND.0, BEYOND.0 * 3 / 2];
    let memory: &'static [PfnRange] =
        Box::leak(Box::new([PfnRange::new(0, bounds[0]), PfnRange::new(bounds[0], bounds[2])]));
    let node = |id: u32| Node {
        id: NodeId(id),
        memory: &memory[id as usize..][..1],
        cpus: if id == 0 { &[CpuId(0)] } else { &[CpuId(1)] },
        movable_from: None,
    };
    let nodes: &'static [Node<'static>] = Box::leak(Box::new([node(0), node(1)]));
    let topology = Topology::new(nodes, &[10, 20, 20, 10], AddressMap::Flat).expect("a machine");
    let buffer = |_, bytes| vec![0; bytes].leak();
    let platform = KernelPlatform::default();
    let pages = Pages::new(platform, topology, Config::new(), buffer).expect("it has room");
    pages.online_all(memory).expect("all of it is offline");
    pages
}

#[test]
fn what_is_cached_is_handed_out_and_not_lost() {
    let _machine = alone();
    run_on(1);
    let pages = two_nodes();
    let mut held: Vec<Pfn> = all(&pages).collect();
    let mut beyond = 0;
    for _ in 0..100 {
        // From another place each time.
        let middle = held.len() / 7;
        held.rotate_left(middle);
        held.drain(..60).for_each(|page| pages.free(page, Order(0)).expect("it is held"));
        let cached: Vec<Pfn> = std::iter::from_fn(|| pages.alloc_cached(ON_THIS_NODE)).collect();
        beyond += cached.iter().filter(|&&page| page >= BEYOND).count();
        held.extend(cached);
        let checked = pages.check().expect("every frame is in one place");
        assert_eq!(checked.allocated.0, held.len() as u64);
    }
    assert!(beyond > 100, "{beyond} pages of the second section");
}

#[test]
fn a_zone_without_room_to_spare_loses_no_page() {
    let _machine = alone();
    run_on(1);
    let pages = two_nodes();
    let mut held = Vec::new();
    for round in 0..20 {
        held.extend(all(&pages));
        let checked = pages.check().expect("every frame is in one place");
        assert_eq!(checked.allocated.0, held.len() as u64, "round {round}");
        let (first, last) = (held.len() / 2, held.len() / 2 + 60);
        for page in held.drain(first..last) {
            pages.free(page, Order(0)).expect("it is held");
        }
    }
}
