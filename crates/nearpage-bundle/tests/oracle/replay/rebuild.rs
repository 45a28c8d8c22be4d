//! Zonelists at boot and after a rebuild at run time.

use nearpage::{CpuId, Model};

use crate::fields::lines;
use crate::lab::{self, Lab};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::recordings::Recording;
use crate::tally::Tally;

/// Pages of each zone: only which zones there are counts here.
const PAGES: u64 = 64;

/// Compares the fallback list of each node: as built at boot, rebuilt, and rebuilt once more.
pub fn replay(
    recording: &Recording,
    text: &str,
    model: Model,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut machine = Machine::of(recording)?;
    number_cpus(&mut machine, text)?;
    let topology = machine.topology(|_| Layout::Whole(PAGES))?;
    lab::with(&machine, topology, model, CpuId(0), |lab| {
        let mut list = "ZL_BOOT";
        for line in lines(text) {
            match line.word() {
                "NODECPUS" => continue,
                "ZL_BOOT" | "ZL_REBUILT" | "ZL_REBUILT_TWICE" => {}
                _ => return line.unknown(),
            }
            if line.word() != list {
                lab.core.rebuild_zonelists();
                list = line.word();
            }
            let node = line.number("node")? as u32;
            tally.at(format!("{}: {list} of node {node}", recording.name));
            tally.compare("zonelists", line.text("order")?, &zonelist(lab, node)?);
        }
        Ok(())
    })
}

/// Gives each node as many CPUs as the kernel counted there.
fn number_cpus(machine: &mut Machine, text: &str) -> Result<(), String> {
    let mut next = 0;
    for line in lines(text).filter(|line| line.word() == "NODECPUS") {
        let (node, cpus) = (line.number("node")? as u32, line.number("cpus")? as u32);
        let node = machine.nodes.iter_mut().find(|found| found.id == node);
        let node = node.ok_or_else(|| format!("no such node: {}", line.0))?;
        node.cpus = (next..next + cpus).map(CpuId).collect();
        next += cpus;
    }
    Ok(())
}

fn zonelist(lab: &Lab<'_, '_>, node: u32) -> Result<String, String> {
    let index = lab.core.topology().index_of(nearpage::NodeId(node));
    let index = index.ok_or_else(|| format!("the core has no node {node}"))?;
    let name = |zone: &lab::CoreZone<'_>| {
        let zone = lab.name(zone);
        format!("{}:{}", zone.node, zone.kind.name())
    };
    Ok(lab.core.fallback_zones(index).map(name).collect::<Vec<_>>().join(","))
}
