//! From a memory map to an allocator, with metadata in each node's own memory.

use nearpage::{
    AddressMap, Config, CpuId, Gfp, NodeId, NodeIndex, Order, PageCount, Pfn, PfnRange, Request,
    ZoneKind,
};
use nearpage_kernel::boot::{EarlyError, EarlyMemory, LeftOut};
use nearpage_kernel::firmware::{Machine, Note};
use nearpage_kernel::{Interrupts, Kernel, Pages};

use crate::machine::{Played, alone, memory, run_on};

const MIB: u64 = 1 << 20;

/// Two nodes with memory and a hole, one with a CPU alone, and room for memory to be plugged in.
fn machine() -> Machine {
    let mut machine = Machine::new();
    for (id, node) in [(10, 0), (11, 2), (12, 1)] {
        let cpu = machine.add_cpu(id, 0).expect("room");
        machine.place_cpu(cpu, NodeId(node)).expect("room");
    }
    machine.place_memory(0, 32 * MIB, NodeId(0), false).expect("room");
    machine.place_memory(32 * MIB, 32 * MIB, NodeId(1), false).expect("room");
    machine.place_memory(128 * MIB, 32 * MIB, NodeId(1), true).expect("room");
    machine.set_distance(NodeId(2), NodeId(1), 15);
    machine
}

fn map() -> EarlyMemory<64> {
    let mut memory = EarlyMemory::new();
    memory.add(0, 0x9_fc00).expect("room");
    memory.add(MIB, 63 * MIB).expect("room");
    // Of no node.
    memory.add(64 * MIB, MIB).expect("room");
    memory.reserve(MIB, 2 * MIB + 5).expect("room");
    memory
}

/// A machine for one test alone, whose memory is there, on its first CPU.
fn before_boot() -> impl Drop {
    let machine = alone();
    memory();
    run_on(0);
    machine
}

#[test]
fn a_machine_boots() {
    let _machine = before_boot();
    let (mut machine, mut map) = (machine(), map());
    // SAFETY: the memory is an array that no other test uses while this one is alone.
    let boot = unsafe { map.begin::<Played>(&mut machine, AddressMap::X86) };
    let mut boot = boot.expect("it is a machine");
    let pages = boot.pages(Config::new()).expect("metadata fits");
    assert_eq!(
        machine.notes().collect::<Vec<_>>(),
        [Note::UnplacedMemory { start: 64 * MIB, end: 65 * MIB }]
    );
    let topology = *boot.topology();
    assert_eq!(topology.nodes().iter().map(|node| node.id.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(topology.node_of_cpu(CpuId(1)), Some(NodeIndex(2)));
    assert_eq!(topology.distance(NodeIndex(2), NodeIndex(1)), 15);
    let deferred = boot.finish(pages, 16 * MIB).expect("it comes online");
    let left = deferred.pages_left();
    assert!(left > PageCount(4096), "{left} pages wait");
    while deferred.step(PageCount(1000)).expect("nobody else does it").0 > 0 {}
    assert_eq!(deferred.pages_left(), PageCount(0));
    let managed: u64 = pages.zones().iter().map(|zone| zone.managed().0).sum();
    let free = map.ranges().map(|range| (range.end - range.start) >> 12).sum::<u64>();
    assert!((free - 2200..free - 512).contains(&managed), "{managed} of {free} pages");
    // The kernel's image, and the page that it ends in, are nobody's.
    assert!(!pages.is_online(Pfn(256)) && !pages.is_online(Pfn(768)) && pages.is_online(Pfn(769)));
    assert!(!pages.is_online(Pfn(0x9f)), "no whole page");
    run_on(1);
    let page = pages.alloc(Request::new(Order(0), Gfp::KERNEL)).expect("there is memory");
    assert_eq!(topology.node_of_pfn(page), Some(NodeIndex(1)), "the nearest that has some");
    let plugged = nearpage::PfnRange::new(128 << 8, 160 << 8);
    assert_eq!(pages.online(plugged), Ok(PageCount(8192)));
    assert_eq!(pages.offline(plugged), Ok(PageCount(8192)));
    pages.free(page, Order(0)).expect("it is ours");
    pages.check().expect("every frame is in one place");
    assert!(!Played::phys_to_virt(0).is_null());
}

fn begun(
    machine: &mut Machine,
    map: &mut EarlyMemory<64>,
) -> Result<&'static Pages<'static, Played>, EarlyError> {
    // SAFETY: as above.
    let mut boot = unsafe { map.begin::<Played>(machine, AddressMap::X86) }?;
    let pages = boot.pages(Config::new())?;
    boot.finish(pages, u64::MAX)?;
    Ok(pages)
}

/// SRAT without MADT: memory of two nodes, and no CPU that anybody named.
#[test]
fn memory_of_nodes_without_named_cpus_boots() {
    let _machine = before_boot();
    let mut machine = Machine::new();
    machine.place_memory(0, 32 * MIB, NodeId(3), false).expect("room");
    machine.place_memory(32 * MIB, 32 * MIB, NodeId(7), false).expect("room");
    let pages = begun(&mut machine, &mut map()).expect("it is a machine");
    assert_eq!(pages.topology().node_of_cpu(CpuId(0)), Some(NodeIndex(0)));
    assert_eq!(pages.topology().node(NodeIndex(1)).cpus, []);
    pages.check().expect("every frame is in one place");
}

/// A CPU that was added by hand, and placed nowhere.
#[test]
fn a_cpu_of_no_node_is_of_the_first() {
    let _machine = before_boot();
    let mut machine = Machine::new();
    machine.add_cpu(9, 0).expect("room");
    machine.place_memory(0, 64 * MIB, NodeId(3), false).expect("room");
    let pages = begun(&mut machine, &mut map()).expect("it is a machine");
    assert_eq!(pages.topology().node_of_cpu(CpuId(0)), Some(NodeIndex(0)));
    assert!(machine.notes().any(|note| note == Note::UnplacedCpu { cpu: CpuId(0) }));
}

#[test]
fn what_went_to_the_allocator_is_not_early_any_more() {
    let _machine = before_boot();
    let mut map = map();
    begun(&mut machine(), &mut map).expect("it is a machine");
    assert_eq!(map.alloc(0x1000, 0x1000), Err(EarlyError::NoRoom { bytes: 0x1000 }));
    assert_eq!(map.free_bytes(), 0);
}

/// As `maxmem=1T` of a small virtual machine: metadata of all of it would take more than there is.
#[test]
fn more_that_may_be_plugged_in_than_there_is_room_for_boots() {
    let _machine = before_boot();
    let mut machine = machine();
    machine.place_memory(1 << 40, 1 << 40, NodeId(2), true).expect("room");
    let mut map = map();
    let there: u64 = map.ranges().map(|range| range.end - range.start).sum();
    let pages = begun(&mut machine, &mut map).expect("it is a machine");
    let kept = 8 * there - 32 * MIB;
    let note = Note::PluggableLeftOut { bytes: (1 << 40) - kept };
    assert!(machine.notes().any(|told| told == note), "{:?}", machine.notes().collect::<Vec<_>>());
    let pluggable = pages.topology().node(NodeIndex(2)).memory;
    assert_eq!(pluggable, [PfnRange::new(1 << 28, (1 << 28) + (kept >> 12))]);
    pages.check().expect("every frame is in one place");
}

/// "All that is left" is a step, wherever the rest begins.
#[test]
fn a_step_may_ask_for_all_that_is_left() {
    let _machine = before_boot();
    for first_page in [0, 1] {
        let mut map = EarlyMemory::<8>::new();
        map.add(0, 64 * MIB).expect("room");
        // SAFETY: as above.
        let boot = unsafe { map.begin::<Played>(&mut Machine::new(), AddressMap::Flat) };
        let mut boot = boot.expect("it is a machine");
        let pages = boot.pages(Config::new()).expect("metadata fits");
        let deferred = boot.finish(pages, first_page << 12).expect("it comes online");
        let left = deferred.pages_left();
        assert_eq!(deferred.step(PageCount(u64::MAX)), Ok(left));
        assert_eq!(deferred.pages_left(), PageCount(0));
        pages.check().expect("every frame is in one place");
    }
}

/// A kernel whose memory begins at 5 GiB.
struct High;

const HIGH: u64 = 5 << 30;

// SAFETY: it is `Played`, whose memory has other addresses.
unsafe impl Kernel for High {
    type Rules = nearpage::rules::Places;
    fn this_cpu() -> CpuId {
        Played::this_cpu()
    }
    fn interrupts_off() -> Interrupts {
        Played::interrupts_off()
    }
    fn interrupts_restore(before: Interrupts) {
        Played::interrupts_restore(before);
    }
    fn now_ns() -> u64 {
        Played::now_ns()
    }
    fn phys_to_virt(address: u64) -> *mut u8 {
        Played::phys_to_virt(address.wrapping_sub(HIGH))
    }
}

#[test]
fn there_may_be_no_memory_below_4_gib() {
    let _machine = before_boot();
    let mut map = EarlyMemory::<8>::new();
    map.add(HIGH + MIB, 63 * MIB).expect("room");
    let mut machine = Machine::new();
    // SAFETY: as above.
    let boot = unsafe { map.begin::<High>(&mut machine, AddressMap::X86) };
    let mut boot = boot.expect("it is a machine");
    let pages = boot.pages(Config::new()).expect("metadata fits");
    boot.finish(pages, u64::MAX).expect("it comes online");
    assert_eq!(
        pages.zones().iter().map(|zone| zone.kind()).collect::<Vec<_>>(),
        [ZoneKind::Normal]
    );
    let request = |gfp| pages.alloc(Request::new(Order(0), gfp));
    let page = request(Gfp::KERNEL).expect("there is memory");
    // Devices that need low addresses are told that there are none.
    for gfp in [Gfp::DMA, Gfp::DMA32] {
        let error = request(gfp).expect_err("there is no low memory").to_string();
        assert!(error.contains("there is no zone that it may use"), "{error}");
    }
    pages.free(page, Order(0)).expect("it is ours");
    pages.check().expect("every frame is in one place");
}

/// A map of 10 000 entries that do not touch, and more nodes' ranges than there is room for: the boot has the large ones, and says
/// how much it leaves out.
#[test]
fn a_map_that_is_too_long_boots() {
    let _machine = before_boot();
    let mut machine = machine();
    let mut map = EarlyMemory::<64>::new();
    let single = |at: u64| (40 * MIB + at * 0x2000, 0x1000, true);
    let large = [(0, 16 * MIB, true), (20 * MIB, 8 * MIB, true), (33 * MIB, 4 * MIB, true)];
    map.add_map(large.into_iter().chain((0..9_997).map(single)));
    assert_eq!(map.left_out(), LeftOut { ranges: 9_936, bytes: 9_936 << 12 });
    // SAFETY: as above.
    let boot = unsafe { map.begin::<Played>(&mut machine, AddressMap::X86) };
    let mut boot = boot.expect("it is a machine");
    // What may be plugged in takes the place of one range more.
    let left_out = LeftOut { ranges: 9_937, bytes: 9_937 << 12 };
    assert!(machine.notes().any(|note| note == Note::MemoryLeftOut(left_out)));
    let pages = boot.pages(Config::new()).expect("metadata fits");
    boot.finish(pages, u64::MAX).expect("it comes online");
    let managed: u64 = pages.zones().iter().map(|zone| zone.managed().0).sum();
    assert!((28 << 8) - 2200 < managed && managed < (28 << 8) + 64, "{managed} pages");
    pages.check().expect("every frame is in one place");
}

#[test]
fn what_cannot_boot_is_told() {
    let _machine = alone();
    memory();
    let begin = |memory: &mut EarlyMemory<64>| {
        // SAFETY: as above.
        let boot = unsafe { memory.begin::<Played>(&mut Machine::new(), AddressMap::X86) };
        boot.and_then(|mut boot| boot.pages(Config::new()).map(|_| ())).expect_err("it cannot")
    };
    assert_eq!(begin(&mut EarlyMemory::new()), EarlyError::NoMemory);
    let mut half_a_page = EarlyMemory::new();
    half_a_page.add(MIB, 2048).expect("room");
    assert_eq!(begin(&mut half_a_page), EarlyError::NoMemory);
    let mut taken = map();
    taken.reserve(0, u64::MAX).expect("room");
    assert_eq!(begin(&mut taken), EarlyError::NoMemory);
    let mut small = EarlyMemory::new();
    small.add(MIB, 65_536).expect("room");
    assert!(matches!(begin(&mut small), EarlyError::NoRoom { .. }), "metadata does not fit");
}
