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
    let mut nodes: Vec<NodeBuf> = Vec::new();
    for node in &machine.nodes {
        let mut buffer = NodeBuf { id: node.id, cpus: node.own_cpus.clone(), ..NodeBuf::default() };
        for (index, zone) in zones.iter().enumerate().filter(|(_, zone)| zone.node == node.id) {
            if zone.kind == ZoneKind::Movable {
                buffer.movable_from = records[index].start_pfn.map(nearpage::Pfn);
            }
            let memory = memory_of(zone, records[index], map.ranges(index));
            for range in &memory {
                check_place(input, zone, *range)?;
            }
            buffer.memory.extend(memory);
        }
        buffer.memory.sort_by_key(|range| range.start);
        nodes.push(buffer);
    }
    let distances = machine.machine.distances.clone();
    let topology = TopologyBuf { nodes, distances, address_map: AddressMap::X86 };
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

/// The core divides addresses into zones as x86-64 does.
fn check_place(input: &str, zone: &StartZone, range: PfnRange) -> Result<(), ReplayError> {
    let limits = match zone.kind {
        ZoneKind::Dma => PfnRange::new(0, 1 << 12),
        ZoneKind::Dma32 => PfnRange::new(1 << 12, 1 << 20),
        ZoneKind::Normal => PfnRange::new(1 << 20, u64::MAX),
        ZoneKind::Movable | ZoneKind::Device => PfnRange::new(0, u64::MAX),
    };
    if range.intersection(limits) == range {
        return Ok(());
    }
    let what = format!("{} lies at frames {range}", zone.name());
    Err(ReplayError::incomplete(
        input,
        what,
        "zones where x86-64 has them: below 16 MiB, below 4 GiB, above",
    ))
}
