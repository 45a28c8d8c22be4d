//! Which frames the core is given for the memory of a recorded machine.

use nearpage::{AddressMap, NodeBuf, PfnRange, TopologyBuf, ZoneKind};
use nearpage_bundle::RecordedMachine;
use nearpage_machine::sysfs::zoneinfo::ZoneRecord;

use super::zone::StartZone;
use crate::error::ReplayError;
use crate::zones::ZoneMap;

/// The nodes with the memory of their zones: as many frames as are managed, from the bottom of each zone up.
pub(super) fn topology(
    input: &str,
    machine: &RecordedMachine,
    zones: &[StartZone],
    records: &[&ZoneRecord],
    map: &ZoneMap,
) -> Result<TopologyBuf, ReplayError> {
    let (mut nodes, mut spans) = (Vec::new(), Vec::new());
    for node in &machine.nodes {
        let mut buffer = NodeBuf { id: node.id, cpus: node.own_cpus.clone(), ..NodeBuf::default() };
        for (index, zone) in zones.iter().enumerate().filter(|(_, zone)| zone.node == node.id) {
            if zone.kind == ZoneKind::Movable {
                buffer.movable_from = records[index].start_pfn.map(nearpage::Pfn);
            }
            let memory = memory_of(zone, records[index], map.ranges(index));
            spans.extend(memory.iter().map(|range| (zone.kind, *range)));
            buffer.memory.extend(memory);
        }
        buffer.memory.sort_by_key(|range| range.start);
        nodes.push(buffer);
    }
    let distances = machine.machine.distances.clone();
    let Some(address_map) = AddressMap::of_zones(spans) else {
        let what = "a zone reaches over one of a higher kind".into();
        let expected = "zones one above the other: DMA, DMA32, Normal";
        return Err(ReplayError::incomplete(input, what, expected));
    };
    let topology = TopologyBuf { nodes, distances, address_map };
    topology
        .with(|_| ())
        .map_err(|source| ReplayError::Topology { input: input.into(), source })?;
    Ok(topology)
}

/// As many frames as the zone's pageblocks have, or as are present.
fn memory_of(
    zone: &StartZone,
    record: &ZoneRecord,
    ranges: impl Iterator<Item = PfnRange>,
) -> Vec<PfnRange> {
    let present = record.present.unwrap_or(0);
    let in_pageblocks: u64 = zone.pageblocks.iter().sum::<u64>() * 512;
    let mut left = present.max(in_pageblocks.min(record.spanned.unwrap_or(0)));
    let mut memory = Vec::new();
    for range in ranges {
        let pages = range.pages().0.min(left);
        left -= pages;
        if pages > 0 {
            memory.push(PfnRange::new(range.start.0, range.start.0 + pages));
        }
    }
    memory
}
