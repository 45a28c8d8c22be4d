//! The zone under test: what a text says of it, and the core laid out around it.

use nearpage::{Model, ZoneKind};

use crate::lab::{self, CoreZone, Lab};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::recordings::Recording;
use crate::text::pcp::Target;

/// The recorded machine, with what a text says of its zone.
pub fn machine(recording: &Recording, target: &Target) -> Result<Machine, String> {
    let mut machine = Machine::of(recording)?;
    let zone = machine.zones.iter_mut().find(|zone| zone.name == target.zone);
    let zone = zone.ok_or_else(|| format!("the machine has no zone {:?}", target.zone))?;
    zone.marks = target.marks;
    zone.reserve[ZoneKind::Movable.index()] = target.reserve;
    zone.sizes = target.sizes;
    zone.free = target.free;
    Ok(machine)
}

/// Calls `again` with the core and its zone under test, whose memory is laid out as `layout` says. The other zones
/// have what was free, in one piece.
pub fn with(
    recording: &Recording,
    target: &Target,
    model: Model,
    layout: Layout,
    again: impl for<'a, 'm> FnOnce(&'a Lab<'a, 'm>, &'m CoreZone<'m>) -> Result<(), String>,
) -> Result<(), String> {
    let machine = machine(recording, target)?;
    let topology = machine.topology(|zone| match zone.name == target.zone {
        true => layout.clone(),
        false => Layout::Whole(zone.free),
    })?;
    lab::with(&machine, topology, model, target.cpu, |lab| again(lab, lab.zone(target.zone)?))
}
