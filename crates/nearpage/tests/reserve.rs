//! The reserve for urgent requests, and what lower zones keep from requests that could have had higher ones: what ordinary
//! requests leave of each zone, while they take all that they can and when they have it.
//!
//! Counted are the pages that are free in the zone, without those that CPUs cache. The lists are exact here; the Linux host
//! has a test of the same name for its own.

use nearpage::testing::machine::TestMachine;
use nearpage::testing::plain::PlainPlatform;
use nearpage::{
    AddressMap, Config, CpuId, Gfp, Model, NodeBuf, NodeId, Order, PageAllocator, Pfn, PfnRange,
    Request, Settings, TopologyBuf, ZoneKind,
};

/// Requests, and the highest zone that they may use.
const ORDINARY: [(Gfp, ZoneKind); 4] = [
    (Gfp::KERNEL, ZoneKind::Normal),
    (Gfp::NOWAIT, ZoneKind::Normal),
    (Gfp::KERNEL.union(Gfp::DMA32), ZoneKind::Dma32),
    (Gfp::HIGHUSER_MOVABLE, ZoneKind::Movable),
];
/// A refill is of up to so many pages.
const REFILL_MOST: u64 = 2016;

/// Some 128 MiB below 4 GiB, 512 MiB above, 128 MiB more of movable pages; two CPUs. Odd sizes: whole refills would end at
/// the marks by chance.
fn machine(model: Model) -> TestMachine {
    let bound = 1 << 20;
    let (below, above, movable) = (32_749, 131_101, 32_707);
    let node = NodeBuf {
        id: NodeId(0),
        memory: vec![PfnRange::new(bound - below, bound + above + movable)],
        cpus: vec![CpuId(0), CpuId(1)],
        movable_from: Some(Pfn(bound + above)),
    };
    let (nodes, distances) = (vec![node], vec![10]);
    let settings = Settings::default().with(|settings| {
        // Boosted marks are not the reserve.
        settings.watermark_boost_factor = 0;
        settings.lowmem_reserve_ratio = [256, 32, 32, 0, 0];
    });
    let config = Config::new().with_model(model).with_settings(settings);
    TestMachine::from(TopologyBuf { nodes, distances, address_map: AddressMap::X86 }).config(config)
}

/// The most that a zone's free pages are below what it keeps from requests whose highest zone is `highest`; 0 if no zone
/// is below.
fn missing(allocator: &PageAllocator<'_, PlainPlatform>, highest: ZoneKind) -> u64 {
    let usable = allocator.zones().iter().filter(|zone| zone.kind() <= highest);
    let missing = usable.map(|zone| {
        let kept = zone.marks().min.0 + zone.reserve(highest).0;
        // A zone may be smaller than what it keeps.
        kept.min(zone.managed().0).saturating_sub(zone.free_pages().0)
    });
    missing.max().unwrap_or(0)
}

/// What is missing of the reserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Missing {
    /// The most after a request that succeeded.
    at_worst: u64,
    /// When every ordinary request fails.
    at_the_end: u64,
}

const NOTHING: Missing = Missing { at_worst: 0, at_the_end: 0 };

/// Takes blocks, by turns on both CPUs, until every request fails.
fn take_all(
    allocator: &PageAllocator<'_, PlainPlatform>,
    request: Request,
    highest: ZoneKind,
) -> Missing {
    const TURN: u32 = 64;
    let (mut at_worst, mut failed) = (0, 0);
    for request_number in 0.. {
        allocator.platform().run_on(CpuId(request_number / TURN % 2));
        if allocator.alloc(request).is_ok() {
            at_worst = at_worst.max(missing(allocator, highest));
            failed = 0;
        } else {
            failed += 1;
        }
        if failed > TURN {
            break;
        }
    }
    Missing { at_worst, at_the_end: missing(allocator, highest) }
}

fn missing_of(model: Model, order: Order, gfp: Gfp, highest: ZoneKind) -> Missing {
    machine(model).run(|allocator| take_all(allocator, Request::new(order, gfp), highest))
}

/// Blocks that no pageset keeps come from the zone one at a time, each after a look at the mark.
#[test]
fn orders_that_are_not_cached_leave_all_reserves_whole() {
    for model in Model::ALL {
        for order in (4..=8).chain([10]).map(Order) {
            for (gfp, highest) in ORDINARY {
                let missing = missing_of(model, order, gfp, highest);
                assert_eq!(missing, NOTHING, "{}, order {order}, {highest:?}", model.name);
            }
        }
    }
}

/// A refill looks at the mark before it begins, as Linux's, and then takes what it wants: Linux's rules stay as they are.
#[test]
fn refills_of_linux_eat_of_the_reserves() {
    for model in Model::ALL.into_iter().filter(|&model| model != Model::NEARPAGE) {
        let missing = missing_of(model, Order(0), Gfp::KERNEL, ZoneKind::Normal);
        assert!((1..REFILL_MOST).contains(&missing.at_worst), "{}: {missing:?}", model.name);
    }
}

/// What is missing under rules, of all orders and kinds of ordinary requests. Then urgent requests have the min mark to
/// themselves: one of them brings pages of the reserve to a pageset, which are not for ordinary ones either.
fn missed(model: Model) -> Vec<String> {
    let mut missed = Vec::new();
    for order in (0..=Order::MAX.0).map(Order) {
        for (gfp, highest) in ORDINARY {
            machine(model).run(|allocator| {
                let mut note = |missing: Missing, then: &str| {
                    if missing != NOTHING {
                        missed.push(format!("order {order}, {highest:?}{then}: {missing:?}"));
                    }
                };
                note(take_all(allocator, Request::new(order, gfp), highest), "");
                let urgent = Request::new(Order(0), Gfp::ATOMIC);
                let taken = u64::from(allocator.alloc(urgent).is_ok());
                take_all(allocator, Request::new(Order(0), gfp), highest);
                allocator.drain_all().unwrap();
                let at_the_end = missing(allocator, highest).saturating_sub(taken);
                note(Missing { at_the_end, ..NOTHING }, ", single pages after an urgent one");
            });
        }
    }
    missed
}

/// What a refill claims is above what is kept, to the page.
#[test]
fn claims_leave_all_reserves_whole() {
    let missed = missed(Model::NEARPAGE);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// The same load finds that refills of Linux take what they want once the mark was passed.
#[test]
fn refills_of_linux_miss_reserves_where_pagesets_keep_an_order() {
    let missed = missed(Model::LINUX_6_12);
    println!("{}", missed.join("\n"));
    let of_order = |order: u8| {
        let start = format!("order {order}, ");
        missed.iter().filter(|missed| missed.starts_with(&start)).count()
    };
    let missing: Vec<u8> = (0..=Order::MAX.0).filter(|&order| of_order(order) > 0).collect();
    assert_eq!(missing, [0, 1, 2, 3, 9]);
}
