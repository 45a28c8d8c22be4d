//! What Linux 6.12 makes of a machine before anybody allocates: its zones with their watermarks.
//!
//! The argument is a copy of /sys and /proc (a folder or a tar archive), or the output of `numactl --hardware`.
//! Without an argument it is this machine.

use std::error::Error;

use nearpage::Model;
use nearpage_machine::{Budget, Lists, MachineDescription, MachineInput, Plan};

fn main() -> Result<(), Box<dyn Error>> {
    let input = match std::env::args_os().nth(1) {
        Some(path) => MachineInput::Path(path.into()),
        None => MachineInput::ThisMachine,
    };
    let description = MachineDescription::read(&input, &Budget::DEFAULT)?;
    let plan = Plan::new(&description, Model::LINUX_6_12, Lists::Boot)?;
    println!("{}: min_free_kbytes {}", description.source, plan.min_free_kbytes);
    for node in &plan.nodes {
        for zone in node.zones.iter().filter(|zone| zone.is_populated()) {
            let (kind, marks) = (zone.extent.kind.name(), zone.marks);
            println!("node {} {kind}: min {} low {}", node.id, marks.min, marks.low);
        }
    }
    Ok(())
}
