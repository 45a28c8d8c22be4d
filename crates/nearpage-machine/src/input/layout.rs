//! Addresses of memory: those of the machine's zones, or those of a PC where only sizes are known.

use nearpage::{AddressMap, PageCount, Pfn, PfnRange};

use crate::machine::{MachineNode, PAGE_BYTES_DEFAULT, ZoneExtent};

/// The most memory that addresses of 52 bits, the longest of x86-64, can reach.
pub(super) const MEMORY_BYTES_MAX: u64 = 1 << 52;

/// The addresses that a PC uses for devices: 3 GiB to 4 GiB.
const HOLE: PfnRange =
    PfnRange::new((3 << 30) / PAGE_BYTES_DEFAULT, (4 << 30) / PAGE_BYTES_DEFAULT);

/// Lays memory of known sizes out as a PC's. The nodes lie one after the other from address 0 up, around the hole below
/// 4 GiB. Firmware owns the first page, so zone DMA begins at frame 1. There are no other holes, so a zone manages all
/// of its pages. A page size other than 4 KiB is not x86: then there is no hole, and frame 0 is memory.
pub(super) fn from_sizes(
    sizes: impl Iterator<Item = u64>,
    page_bytes: u64,
) -> (AddressMap, Vec<Vec<PfnRange>>) {
    let is_pc = page_bytes == PAGE_BYTES_DEFAULT;
    let mut next = 0;
    let mut place = |bytes: u64| {
        let mut pages = bytes / page_bytes;
        let mut ranges = Vec::new();
        if is_pc && next < HOLE.start.0 {
            let below = pages.min(HOLE.start.0 - next);
            // Frame 0 is never memory.
            push(&mut ranges, PfnRange::new(next.max(1), next + below));
            (next, pages) = (next + below, pages - below);
        }
        if is_pc && next == HOLE.start.0 {
            next = HOLE.end.0;
        }
        push(&mut ranges, PfnRange::new(next, next + pages));
        next += pages;
        ranges
    };
    let map = if is_pc { AddressMap::X86 } else { AddressMap::Flat };
    (map, sizes.map(&mut place).collect())
}

fn push(ranges: &mut Vec<PfnRange>, range: PfnRange) {
    if !range.is_empty() {
        ranges.push(range);
    }
}

/// The memory of nodes with known zones: ascending ranges of each node. `None` if the extents contradict each other;
/// those of a running kernel never do.
///
/// An extent does not say where its holes are, nor which of its frames belong to the zone of another node inside it. So
/// each zone gets the lowest frames of its span that no other zone needs. Zones that end first choose first.
pub(super) fn from_zones(nodes: &[MachineNode]) -> Option<(AddressMap, Vec<Vec<PfnRange>>)> {
    let mut zones: Vec<(usize, &ZoneExtent)> = nodes
        .iter()
        .enumerate()
        .flat_map(|(node, machine)| machine.zones.iter().map(move |zone| (node, zone)))
        .collect();
    let is_sane = |zone: &ZoneExtent| {
        let end = zone.start.0.checked_add(zone.spanned.0);
        end.is_some_and(|end| end <= MEMORY_BYTES_MAX / PAGE_BYTES_DEFAULT)
            && zone.managed <= zone.present
            && zone.present <= zone.spanned
    };
    if zones.is_empty() || !zones.iter().all(|(_, zone)| is_sane(zone)) {
        return None;
    }
    zones.sort_by_key(|(_, zone)| zone.start.0 + zone.spanned.0);
    let mut memory = vec![Vec::new(); nodes.len()];
    let mut taken: Vec<PfnRange> = Vec::new();
    for (node, zone) in zones.iter().copied() {
        for range in take(zone, &mut taken)? {
            memory[node].push(range);
        }
    }
    for ranges in &mut memory {
        ranges.sort_unstable();
    }
    let span =
        |zone: &ZoneExtent| PfnRange { start: zone.start, end: Pfn(zone.start.0 + zone.spanned.0) };
    let map = AddressMap::of_zones(zones.iter().map(|(_, zone)| (zone.kind, span(zone))))?;
    Some((map, memory))
}

/// Takes `present` frames out of a zone's span, and adds them to `taken`, which is ascending.
fn take(zone: &ZoneExtent, taken: &mut Vec<PfnRange>) -> Option<Vec<PfnRange>> {
    let end = Pfn(zone.start.0 + zone.spanned.0);
    let mut missing = zone.present;
    let mut next = zone.start;
    let mut ranges = Vec::new();
    let after = PfnRange { start: end, end };
    for obstacle in taken.iter().filter(|range| range.end > zone.start).chain([&after]) {
        let gap = PfnRange { start: next, end: obstacle.start.min(end) };
        let range = PfnRange { start: next, end: Pfn(next.0 + gap.pages().min(missing).0) };
        push(&mut ranges, range);
        missing = PageCount(missing.0 - range.pages().0);
        next = next.max(obstacle.end);
    }
    taken.extend(&ranges);
    taken.sort_unstable();
    (missing == PageCount(0)).then_some(ranges)
}

#[cfg(test)]
mod tests {
    use nearpage::{NodeId, ZoneKind};

    use super::*;

    const GIB: u64 = 1 << 30;

    fn sizes(sizes: &[u64]) -> Vec<Vec<PfnRange>> {
        from_sizes(sizes.iter().copied(), PAGE_BYTES_DEFAULT).1
    }

    #[test]
    fn sizes_go_around_the_hole() {
        let gib = GIB / PAGE_BYTES_DEFAULT;
        assert_eq!(
            sizes(&[5 * GIB, 0, 3 * GIB]),
            [
                vec![PfnRange::new(1, 3 * gib), PfnRange::new(4 * gib, 6 * gib)],
                vec![],
                vec![PfnRange::new(6 * gib, 9 * gib)],
            ]
        );
        // A node that ends at the hole, and one that starts after it.
        assert_eq!(
            sizes(&[0, 3 * GIB, GIB]),
            [vec![], vec![PfnRange::new(1, 3 * gib)], vec![PfnRange::new(4 * gib, 5 * gib)]]
        );
        // A node of firmware's page only has no memory.
        assert_eq!(sizes(&[4096, 4096]), [vec![], vec![PfnRange::new(1, 2)]]);
    }

    #[test]
    fn large_pages_are_no_pc() {
        let (map, memory) = from_sizes([5 * GIB].into_iter(), 64 << 10);
        assert_eq!(map, AddressMap::Flat);
        assert_eq!(memory, [vec![PfnRange::new(0, (5 * GIB) >> 16)]]);
    }

    fn node(id: u32, zones: &[(ZoneKind, u64, u64, u64)]) -> MachineNode {
        let extent = |&(kind, start, spanned, present)| ZoneExtent {
            node: NodeId(id),
            kind,
            start: Pfn(start),
            spanned: PageCount(spanned),
            present: PageCount(present),
            managed: PageCount(present),
            free: PageCount(0),
        };
        MachineNode {
            id: NodeId(id),
            cpus: vec![],
            memory_bytes: None,
            free_bytes: None,
            zones: zones.iter().map(extent).collect(),
        }
    }

    #[test]
    fn zones_keep_their_sizes() {
        // As recorded with 5 GiB and 3 GiB.
        let nodes = [
            node(
                0,
                &[
                    (ZoneKind::Dma, 1, 4095, 3998),
                    (ZoneKind::Dma32, 4096, 1_044_480, 782_304),
                    (ZoneKind::Normal, 1_048_576, 524_288, 524_288),
                ],
            ),
            node(1, &[(ZoneKind::Normal, 1_572_864, 786_432, 786_432)]),
        ];
        let (map, memory) = from_zones(&nodes).unwrap();
        assert_eq!(map, AddressMap::X86);
        assert_eq!(memory[0].len(), 3);
        assert_eq!(memory[0][0], PfnRange::new(1, 3999));
        assert_eq!(memory[1], [PfnRange::new(1_572_864, 2_359_296)]);
    }

    #[test]
    fn zones_of_nodes_may_interleave() {
        let nodes = [
            node(0, &[(ZoneKind::Normal, 2_000_000, 300, 200)]),
            node(1, &[(ZoneKind::Normal, 2_000_100, 300, 190)]),
            node(2, &[(ZoneKind::Normal, 2_000_150, 10, 10)]),
        ];
        let (_, memory) = from_zones(&nodes).unwrap();
        let pages = |ranges: &[PfnRange]| ranges.iter().map(|range| range.pages().0).sum::<u64>();
        assert_eq!(memory.iter().map(|ranges| pages(ranges)).collect::<Vec<_>>(), [200, 190, 10]);
        let mut all = memory.concat();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "{all:?}");
    }

    #[test]
    fn contradictions_are_refused() {
        let twice = (ZoneKind::Normal, 0, 100, 100);
        assert_eq!(from_zones(&[node(0, &[twice]), node(1, &[twice])]), None);
        assert_eq!(from_zones(&[node(0, &[(ZoneKind::Normal, u64::MAX, 1, 1)])]), None);
        assert_eq!(from_zones(&[node(0, &[(ZoneKind::Normal, 0, 1, 2)])]), None);
        assert_eq!(from_zones(&[node(0, &[])]), None);
    }

    #[test]
    fn other_processors_have_other_zones() {
        let dma = (ZoneKind::Dma, 0x80000, 0x80000, 0x80000);
        let map = AddressMap::Divided { dma_end: Pfn(0x100000), dma32_end: Pfn(0x100000) };
        assert_eq!(from_zones(&[node(0, &[dma])]).unwrap().0, map);
        // One zone reaches over another.
        assert_eq!(from_zones(&[node(0, &[dma, (ZoneKind::Normal, 0x70000, 9, 9)])]), None);
    }
}
