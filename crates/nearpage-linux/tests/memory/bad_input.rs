//! Wrong requests and wrong frees, on real memory with each storage, plain and hardened: what the caller is
//! told, and that nothing was changed. The walker proves that no page is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};

use nearpage::{
    CpuId, Cursor, Gfp, LimitOf, Limits, Model, NodeAccess, NodeId, NodeSet, Order, Pfn, Placement,
    Policy, Request, Settings, Turn,
};
use nearpage_linux::{
    BindMode, HostMachine, HostNode, HugePages, Memory, MemoryBuilder, MemoryError, OnMisuse,
};

const SINGLE: Request = Request::new(Order(0), Gfp::KERNEL);
const NODE_BYTES: u64 = 32 << 20;

/// Nodes 0 and 5 with memory, 9 without; all CPUs are near node 0.
fn machine() -> HostMachine {
    let node = |id, cpus: std::ops::Range<u32>, has_memory| HostNode {
        id: NodeId(id),
        cpus: cpus.map(CpuId).collect(),
        has_memory,
    };
    HostMachine {
        nodes: vec![node(0, 0..1024, true), node(5, 0..0, true), node(9, 1024..1025, false)],
        distances: vec![10, 20, 15, 20, 10, 20, 15, 20, 10],
        emulated: true,
    }
}

/// Runs a test on memory of each kind, and checks that all its pages are free or cached after.
fn on_each(test: impl Fn(&Memory)) {
    let storages = [(true, false), (true, true), (false, false), (false, true)];
    let models = [Model::LINUX_6_18, Model::NEARPAGE];
    for ((use_rseq, hardened), model) in
        storages.into_iter().flat_map(|storage| models.map(|model| (storage, model)))
    {
        let builder = Memory::builder().machine(machine()).model(model).bytes_per_node(NODE_BYTES);
        let memory = builder.use_rseq(use_rseq).hardened(hardened).build().unwrap();
        test(&memory);
        let checked = memory.check().unwrap();
        assert_eq!(checked.free.0 + checked.cached.0, 2 * NODE_BYTES / 4096);
    }
}

/// What a request is told that must be refused.
fn refusal(memory: &Memory, request: Request) -> String {
    memory.alloc(request).unwrap_err().to_string()
}

/// What a free is told that must be refused, with P for the number of the frame.
fn refused_free(memory: &Memory, pfn: Pfn, order: Order) -> String {
    let before = memory.misuses();
    // SAFETY: refused, so nothing is freed that somebody uses.
    let error = unsafe { memory.free_frames(pfn, order) }.unwrap_err();
    assert_eq!(memory.misuses(), before + 1);
    error.to_string().replace(&pfn.to_string(), "P")
}

#[test]
fn requests_that_nobody_can_meet() {
    on_each(|memory| {
        for order in [11, 64, 255] {
            assert_eq!(
                refusal(memory, Request::new(Order(order), Gfp::KERNEL)),
                format!("order {order} is too large: 0 to 10 are possible")
            );
        }
        assert_eq!(
            memory.alloc_pages(1025).unwrap_err().to_string(),
            "1025 pages in a block: 1 to 1024 are possible"
        );
        for pages in [1 << 63, u64::MAX] {
            let told = format!("{pages} pages in a block: 1 to 1024 are possible");
            assert_eq!(memory.alloc_pages(pages).unwrap_err().to_string(), told);
        }
        assert_eq!(memory.alloc_pages(0).unwrap().order(), Order(0));
        for node in [1, u32::MAX] {
            assert_eq!(
                refusal(memory, SINGLE.on(NodeId(node))),
                format!("node {node} is not in the topology")
            );
        }
        let contradiction = "contradict each other: at most one of __GFP_DMA, __GFP_HIGHMEM and \
                             __GFP_DMA32, and not both of __GFP_MOVABLE and __GFP_RECLAIMABLE";
        for gfp in [Gfp::DMA.union(Gfp::DMA32), Gfp::MOVABLE.union(Gfp::RECLAIMABLE)] {
            let request = Request::new(Order(0), gfp);
            assert_eq!(refusal(memory, request), format!("flags {gfp} {contradiction}"));
        }
    });
}

#[test]
fn bulk_is_for_single_pages() {
    on_each(|memory| {
        let mut out = [Pfn(7); 4];
        let refused = memory.alloc_frames_bulk(Request::new(Order(3), Gfp::KERNEL), &mut out);
        let told = "order 3 in bulk: bulk requests are for single pages, order 0";
        assert_eq!(refused.unwrap_err().to_string(), told);
        assert_eq!(out, [Pfn(7); 4]);
    });
}

#[test]
fn this_node_is_memoryless() {
    on_each(|memory| {
        let request = Request::new(Order(0), Gfp::KERNEL.union(Gfp::THISNODE)).on(NodeId(9));
        let told = "node 9 has no memory for GFP_KERNEL|__GFP_THISNODE, and __GFP_THISNODE allows \
                    no other node";
        assert_eq!(refusal(memory, request), told);
        let mut out = [Pfn(7); 4];
        assert_eq!(memory.alloc_frames_bulk(request, &mut out).unwrap_err().to_string(), told);
        assert_eq!(out, [Pfn(7); 4]);
        // Without the flag, the page comes from the nearest node with memory.
        assert_eq!(memory.alloc(SINGLE.on(NodeId(9))).unwrap().node(), NodeId(0));
    });
}

#[test]
fn sets_of_nodes_that_are_none() {
    on_each(|memory| {
        let told = |ids: &[u32], words: &mut [u64]| {
            let ids = ids.iter().copied().map(NodeId);
            NodeSet::new(memory.topology(), ids, words).unwrap_err().to_string()
        };
        assert_eq!(told(&[], &mut [0]), "the set of nodes is empty: at least one node is needed");
        assert_eq!(told(&[0, 6], &mut [0]), "node 6 is not in the topology");
        let too_few = "a set of nodes needs 1 words of memory, and 0 were given";
        assert_eq!(told(&[0], &mut []), too_few);
    });
}

fn set<'a>(memory: &Memory, id: u32, words: &'a mut [u64]) -> NodeSet<'a> {
    NodeSet::new(memory.topology(), [NodeId(id)], words).unwrap()
}

#[test]
fn policies_that_nobody_can_follow() {
    on_each(|memory| {
        let mut words = [[0]; 3];
        let [zero, five, nine] = &mut words;
        let (zero, five, nine) = (set(memory, 0, zero), set(memory, 5, five), set(memory, 9, nine));
        let told = |placement: Placement<'_>, request: Request| {
            let mut out = [Pfn(7); 4];
            let in_bulk = memory.alloc_frames_bulk_with(&placement, request, &mut out);
            let told = memory.alloc_with(&placement, request).unwrap_err().to_string();
            assert_eq!((in_bulk.unwrap_err().to_string(), out), (told.clone(), [Pfn(7); 4]));
            told
        };
        let cursor = Cursor::new();
        let turn = Turn::Next(&cursor);
        let policies = |nodes| {
            [
                Policy::Preferred(nodes),
                Policy::PreferredMany(nodes),
                Policy::Bind(nodes),
                Policy::Interleave { nodes, turn },
                Policy::WeightedInterleave { nodes, weights: &[], turn },
            ]
        };
        let of_policy = "no node of the policy's set has memory and is allowed: at least one must";
        for (memoryless, elsewhere) in policies(nine).into_iter().zip(policies(five)) {
            assert_eq!(told(Placement::by(memoryless), SINGLE), of_policy);
            assert_eq!(told(Placement::by(elsewhere).within(zero), SINGLE), of_policy);
            let of_cpuset = "no node of the cpuset has memory: at least one must";
            assert_eq!(told(Placement::by(elsewhere).within(nine), SINGLE), of_cpuset);
            let placement = Placement::by(elsewhere).for_cpu(CpuId(5000));
            assert_eq!(told(placement, SINGLE), "CPU 5000 is not in the topology");
            let placement = Placement::by(elsewhere);
            assert_eq!(told(placement, SINGLE.on(NodeId(4))), "node 4 is not in the topology");
            let too_large = "order 11 is too large: 0 to 10 are possible";
            assert_eq!(told(placement, Request { order: Order(11), ..SINGLE }), too_large);
            let mut out = [Pfn(7); 4];
            let request = Request { order: Order(3), ..SINGLE };
            let in_bulk = memory.alloc_frames_bulk_with(&placement, request, &mut out);
            let bulk_order = "order 3 in bulk: bulk requests are for single pages, order 0";
            assert_eq!(in_bulk.unwrap_err().to_string(), bulk_order);
        }
        // No turn was taken.
        assert_eq!(format!("{:?}", Cursor::new()), format!("{cursor:?}"));
    });
}

#[test]
fn limits_that_there_cannot_be() {
    on_each(|memory| {
        let limits =
            |hard, soft| Limits { hard_bytes: hard, soft_bytes: soft, ..Limits::default() };
        let told = |of, limits| memory.set_limits(of, limits).unwrap_err().to_string();
        let unknown = "node 7 is not in the topology";
        assert_eq!(told(LimitOf::Node(NodeId(7)), limits(Some(1 << 20), None)), unknown);
        assert_eq!(memory.limits(LimitOf::Node(NodeId(7))).unwrap_err().to_string(), unknown);
        assert_eq!(memory.in_use(LimitOf::Node(NodeId(7))).unwrap_err().to_string(), unknown);
        let refused = memory.set_access(NodeId(7), NodeAccess::Private).unwrap_err();
        assert_eq!(refused.to_string(), unknown);
        assert_eq!(
            told(LimitOf::Allocator, limits(Some(8192), Some(1 << 20))),
            "limits of the allocator: the soft limit, 256 pages, must be below the hard limit, 2 pages"
        );
        assert_eq!(memory.limits(LimitOf::Allocator), Ok(Limits::default()));
        assert!(memory.alloc_pages(16).is_ok());
    });
}

#[test]
fn limits_that_are_reached() {
    on_each(|memory| {
        let five = LimitOf::Node(NodeId(5));
        let bytes = |pages: u64| Limits { hard_bytes: Some(pages << 12), ..Limits::default() };
        memory.set_limits(five, bytes(100)).unwrap();
        let request = Request::new(Order(0), Gfp::KERNEL.union(Gfp::THISNODE)).on(NodeId(5));
        let blocks: Vec<_> = std::iter::from_fn(|| memory.alloc(request).ok()).collect();
        assert_eq!((blocks.len(), memory.in_use(five).unwrap().0), (100, 100));
        assert_eq!(
            refusal(memory, request),
            "no block of order 0 for GFP_KERNEL|__GFP_THISNODE: with it, more than the 100 pages of \
             the hard limit of node 5 would be in use"
        );
        memory.set_limits(LimitOf::Allocator, bytes(99)).unwrap();
        assert_eq!(
            refusal(memory, SINGLE),
            "no block of order 0 for GFP_KERNEL: with it, more than the 99 pages of the hard limit \
             of the allocator would be in use"
        );
        let told = memory.report(SINGLE).unwrap();
        let line = "the hard limit of the allocator, 99 pages, is in the way: 100 are in use";
        assert!(told.contains(line), "{told}");
        assert_eq!(memory.in_use(LimitOf::Allocator).unwrap().0, 100);
    });
}

#[test]
fn memory_that_is_used_up() {
    on_each(|memory| {
        let request = Request::new(Order(10), Gfp::KERNEL.union(Gfp::THISNODE)).on(NodeId(5));
        let blocks: Vec<_> = std::iter::from_fn(|| memory.alloc(request).ok()).collect();
        let free = memory.free_pages(NodeId(5)).0;
        assert_eq!(free, NODE_BYTES / 4096 - 1024 * blocks.len() as u64);
        assert_eq!(
            refusal(memory, request),
            format!(
                "no block of order 10 for GFP_KERNEL|__GFP_THISNODE preferring node 5: zones that it may use: 1, \
                 with {free} free pages; below their watermark: 1; without a block that large: 0"
            )
        );
        assert_eq!(memory.free_pages(NodeId(5)).0, free);
    });
}

#[test]
fn frees_of_what_was_not_given() {
    on_each(|memory| {
        let single = memory.alloc_frames(SINGLE).unwrap();
        assert_eq!(
            refused_free(memory, single, Order(11)),
            "free of frame P: order 11 is too large, 0 to 10 are possible"
        );
        // SAFETY: the frame is this test's, and unused.
        unsafe { memory.free_frames(single, Order(0)) }.unwrap();
        let twice =
            "free of frame P with order 0: it is free already (double free), or inside a block";
        assert_eq!(refused_free(memory, single, Order(0)), twice);

        let block = memory.alloc(Request::new(Order(3), Gfp::KERNEL)).unwrap();
        assert_eq!(
            refused_free(memory, block.pfn(), Order(0)),
            "free of frame P with order 0: it was allocated with order 3; the block stays allocated"
        );
        let inside = block.pfn() + Order(0).pages();
        assert_eq!(
            refused_free(memory, inside, Order(3)),
            "free of frame P: not aligned to order 3"
        );
        let told = refused_free(memory, inside, Order(0));
        assert!(
            told.ends_with("or inside a block")
                || told.ends_with("not the head of an allocated block"),
            "{told}"
        );
        for foreign in [0, 1 << 52, u64::MAX] {
            assert_eq!(
                refused_free(memory, Pfn(foreign), Order(0)),
                "free of frame P: it belongs to no memory of this allocator"
            );
        }
    });
}

#[test]
fn a_bulk_free_refuses_what_is_wrong_and_frees_the_rest() {
    on_each(|memory| {
        let mut pages = [Pfn(0); 4];
        assert_eq!(memory.alloc_frames_bulk(SINGLE, &mut pages), Ok(4));
        let [a, b, c, d] = pages;
        let mixed = [a, Pfn(3), b, a, c, d];
        // SAFETY: the pages are this test's, and unused; what is wrong is refused.
        let error = unsafe { memory.free_frames_bulk(&mixed) }.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("4 pages freed, 2 refused, the first because: free of frame "),
            "{error}"
        );
        assert_eq!(memory.misuses(), 2);
        // SAFETY: nothing is freed.
        unsafe { memory.free_frames_bulk(&[]) }.unwrap();
    });
}

#[test]
fn memory_that_cannot_be_brought_online() {
    on_each(|memory| {
        let told = |node, bytes| memory.bring_online(NodeId(node), bytes).unwrap_err().to_string();
        assert_eq!(told(7, 4096), "node 7 is not in the topology");
        let full = |bytes, node| {
            format!("{bytes} bytes to bring online on node {node}: its reserve has 0 left")
        };
        assert_eq!(told(0, 4096), full(4096, 0));
        assert_eq!(told(0, u64::MAX), full(u64::MAX, 0));
        assert_eq!(told(9, 4096), full(4096, 9));
        for (node, bytes) in [(0, 0), (5, 1), (9, 0), (9, 4095)] {
            let page = 4096;
            let nothing = format!(
                "{bytes} bytes to bring online on node {node}: that is no page; {page} or more are accepted"
            );
            assert_eq!(told(node, bytes), nothing);
        }
    });
}

/// A node whose range ends where the addresses of the memory end.
#[test]
fn nothing_to_bring_online_behind_the_last_address() {
    let machine = HostMachine {
        nodes: vec![HostNode { id: NodeId(0), cpus: vec![CpuId(0)], has_memory: true }],
        distances: vec![10],
        emulated: true,
    };
    let memory = Memory::builder().machine(machine).bytes_per_node(128 << 20).build().unwrap();
    let told = memory.bring_online(NodeId(0), 0).unwrap_err().to_string();
    assert!(told.ends_with("that is no page; 4096 or more are accepted"), "{told}");
}

#[test]
fn memory_that_cannot_go_offline() {
    on_each(|memory| {
        let told = |node, bytes| memory.take_offline(NodeId(node), bytes).unwrap_err().to_string();
        assert_eq!(told(7, 4096), "node 7 is not in the topology");
        let beyond = |bytes, node, online| {
            format!("{bytes} bytes to take offline on node {node}: it has {online} online")
        };
        assert_eq!(told(9, 4096), beyond(4096, 9, 0));
        assert_eq!(told(5, u64::MAX), beyond(u64::MAX, 5, NODE_BYTES));
        let nothing = "0 bytes to take offline on node 5: that is no page; 1 or more are accepted";
        assert_eq!(told(5, 0), nothing);
        let request = Request::new(Order(0), Gfp::KERNEL.union(Gfp::THISNODE)).on(NodeId(5));
        let blocks = [(); 3].map(|()| memory.alloc(request).unwrap());
        let first = blocks.iter().map(|block| block.pfn()).min().unwrap();
        assert_eq!(
            told(5, NODE_BYTES),
            format!("memory to take offline: 3 pages are in use, the first is frame {first}")
        );
        drop(blocks);
        let all: Vec<_> = std::iter::from_fn(|| memory.alloc(request).ok()).collect();
        let rounded = "1 bytes to take offline on node 5 are 2097152 in whole pageblocks; memory to take offline: ";
        assert!(told(5, 1).starts_with(rounded), "{}", told(5, 1));
        drop(all);
        assert_eq!(memory.take_offline(NodeId(5), NODE_BYTES).unwrap().0, NODE_BYTES / 4096);
        let nothing = "node 5 has no memory for GFP_KERNEL|__GFP_THISNODE, and __GFP_THISNODE allows no other node";
        assert_eq!(refusal(memory, request), nothing);
        memory.bring_online(NodeId(5), NODE_BYTES).unwrap();
    });
}

#[test]
fn cpus_that_cannot_be_switched() {
    on_each(|memory| {
        let (off, on) = (|cpu| memory.offline_cpu(CpuId(cpu)), |cpu| memory.online_cpu(CpuId(cpu)));
        assert_eq!(off(5000).unwrap_err().to_string(), "CPU 5000 is not in the topology");
        assert_eq!(on(5000).unwrap_err().to_string(), "CPU 5000 is not in the topology");
        assert_eq!(on(3).unwrap_err().to_string(), "CPU 3 to switch on: it is on already");
        off(3).unwrap();
        assert_eq!(off(3).unwrap_err().to_string(), "CPU 3 to switch off: it is off already");
        on(3).unwrap();
    });
}

#[test]
fn settings_and_binding_that_there_cannot_be() {
    let told = |builder: MemoryBuilder| {
        builder.machine(machine()).build().map(|_| ()).unwrap_err().to_string()
    };
    let builder = || Memory::builder().bytes_per_node(NODE_BYTES);
    let settings = Settings::default().with(|changed| changed.watermark_scale_factor = 0);
    let scale = told(builder().settings(settings));
    assert!(scale.ends_with("watermark_scale_factor is 0; accepted: 1 to 3000"), "{scale}");
    assert_eq!(
        told(builder().bind(BindMode::Strict)),
        "strict binding was asked for on emulated nodes, which the kernel does not know; the modes \
         `advisory` and `none` are accepted"
    );
    assert_eq!(
        told(Memory::builder().bytes_per_node(3 << 20).huge_pages(HugePages::Explicit)),
        "3145728 bytes of explicit huge pages for node 0: a multiple of 2097152 is accepted"
    );
}

#[test]
fn memories_that_cannot_be_made() {
    let told = |bytes| {
        let built = Memory::builder().machine(machine()).bytes_per_node(bytes).build();
        built.map(|_| ()).unwrap_err()
    };
    assert_eq!(told(0).to_string(), "no node of the topology has memory; at least one must");
    assert_eq!(told(4095).to_string(), told(0).to_string());
    for bytes in [1 << 62, u64::MAX] {
        assert!(matches!(told(bytes), MemoryError::NoAddresses { .. }), "{bytes}");
    }
    let unknown = Memory::builder().machine(machine()).bytes_on(NodeId(7), 4096).build();
    assert_eq!(unknown.map(|_| ()).unwrap_err().to_string(), "node 7 is not in the topology");
}

#[test]
#[should_panic(expected = "frame 0x0 is not of this memory")]
fn the_address_of_a_foreign_frame() {
    let memory = Memory::builder().machine(machine()).bytes_per_node(NODE_BYTES).build().unwrap();
    memory.address(Pfn(0));
}

/// Hundreds of nodes are made within a second, since what follows from their sizes is computed once.
#[test]
fn many_nodes() {
    const NODES: u32 = 400;
    let nodes: Vec<HostNode> = (0..NODES)
        .map(|id| HostNode { id: NodeId(3 * id), cpus: vec![CpuId(id)], has_memory: id % 3 > 0 })
        .collect();
    let entries = 0..NODES * NODES;
    let distances = entries.map(|at| if at / NODES == at % NODES { 10 } else { 20 }).collect();
    let machine = HostMachine { nodes, distances, emulated: true };
    let memory = Memory::builder().machine(machine).bytes_per_node(1 << 20).build().unwrap();
    let last = NodeId(3 * (NODES - 2));
    assert_eq!(memory.alloc(SINGLE.on(last)).unwrap().node(), last);
    memory.check().unwrap();
}

/// What was looked at before the wrong page is free, and what comes after it is still the caller's.
#[test]
fn a_panic_in_a_bulk_free_loses_no_pages() {
    for (use_rseq, hardened) in [(true, false), (true, true), (false, false), (false, true)] {
        let builder = Memory::builder().machine(machine()).bytes_per_node(NODE_BYTES);
        let builder = builder.use_rseq(use_rseq).hardened(hardened);
        let memory = builder.on_misuse(OnMisuse::Panic).build().unwrap();
        let block = memory.alloc_frames(Request::new(Order::PAGEBLOCK, Gfp::KERNEL)).unwrap();
        // SAFETY: the block is this test's, and nothing of it is used again.
        unsafe { memory.free_frames(block, Order::PAGEBLOCK) }.unwrap();
        for wrong_at in [0, 1, 15, 600, 1100] {
            let mut pages = vec![Pfn(0); 1200];
            let mut got = 0;
            while got < pages.len() {
                got += memory.alloc_frames_bulk(SINGLE, &mut pages[got..]).unwrap();
            }
            pages[..1024].sort_unstable();
            pages.insert(wrong_at, Pfn(1 << 40));
            // SAFETY: the pages are this test's; the wrong one is refused.
            let freed =
                catch_unwind(AssertUnwindSafe(|| unsafe { memory.free_frames_bulk(&pages) }));
            assert!(freed.is_err(), "the wrong page is told by a panic");
            // SAFETY: these were not reached.
            unsafe { memory.free_frames_bulk(&pages[wrong_at + 1..]) }.unwrap();
            let checked = memory.check().unwrap();
            let all = 2 * NODE_BYTES / 4096;
            assert_eq!(checked.free.0 + checked.cached.0, all, "{wrong_at} came before");
        }
    }
}
