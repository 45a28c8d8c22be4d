//! Machines by name: the machines of published results, and unusual machines such as memoryless ones.
//!
//! Each machine is a [table](crate::table) in the folder `machines`. Scenarios of `nearpage-lab` refer to it, and their
//! names find the machine that they run on.
//!
//! ```
//! use nearpage_machine::catalog;
//!
//! let machine = catalog::machine("memoryless-8n2m").expect("a machine of the catalogue");
//! let with_memory = machine.nodes.iter().filter(|node| node.memory_bytes > Some(0));
//! assert_eq!((machine.nodes.len(), with_memory.count()), (8, 2));
//! ```

use crate::machine::Machine;
use crate::table::MachineTable;

/// Each machine's name and table.
const MACHINES: [(&str, &str); 13] = [
    ("altix-28n", include_str!("../machines/altix-28n.toml")),
    ("ia64-memoryless", include_str!("../machines/ia64-memoryless.toml")),
    ("2s-128c-128g", include_str!("../machines/2s-128c-128g.toml")),
    ("2s-128c-128g-d21", include_str!("../machines/2s-128c-128g-d21.toml")),
    ("2s-128c-32g", include_str!("../machines/2s-128c-32g.toml")),
    ("2s-32c-32g", include_str!("../machines/2s-32c-32g.toml")),
    ("8s-160c", include_str!("../machines/8s-160c.toml")),
    ("memoryless-8n2m", include_str!("../machines/memoryless-8n2m.toml")),
    ("gb200-34n", include_str!("../machines/gb200-34n.toml")),
    ("cxl-2s+1", include_str!("../machines/cxl-2s+1.toml")),
    ("p9-sparse", include_str!("../machines/p9-sparse.toml")),
    ("node0-empty", include_str!("../machines/node0-empty.toml")),
    ("3n-768m", include_str!("../machines/3n-768m.toml")),
];

/// The names of scenarios, and the machine of each.
const OF_SCENARIOS: [(&str, &str); 9] = [
    ("zonelist-cache", "altix-28n"),
    ("memoryless-slab", "ia64-memoryless"),
    ("pcp-autotune", "2s-128c-128g"),
    ("page-waitqueue", "8s-160c"),
    ("hot-add-later", "2s-32c-32g"),
    ("container-exit-18x6GB", "2s-128c-128g-d21"),
    ("jemalloc-purger", "2s-128c-32g"),
    ("thp-then-order0", "3n-768m"),
    ("skb-order3", "2s-128c-32g"),
];

/// All names that [`machine`] knows.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    MACHINES.iter().chain(&OF_SCENARIOS).map(|(name, _)| *name)
}

/// The machine of a name; `None` if the catalogue has none.
pub fn machine(name: &str) -> Option<Machine> {
    let of_name = |name: &str| MACHINES.iter().find(|(known, _)| *known == name);
    let of_scenario = || OF_SCENARIOS.iter().find(|(known, _)| *known == name);
    let (_, text) = of_name(name).or_else(|| of_name(of_scenario()?.1))?;
    let table = MachineTable::parse(text).and_then(|table| table.machine());
    Some(table.expect("the catalogue's own tables describe machines"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::input::MachineDescription;

    #[test]
    fn every_name_is_a_machine_that_the_core_takes() {
        let all: BTreeSet<&str> = names().collect();
        assert_eq!(all.len(), MACHINES.len() + OF_SCENARIOS.len(), "each name once");
        for name in all {
            let machine = machine(name).unwrap_or_else(|| panic!("{name}"));
            assert!(machine.nodes.iter().any(|node| !node.cpus.is_empty()), "{name}");
            MachineDescription::new(name.into(), machine).unwrap();
        }
        assert_eq!(machine("no-such-machine"), None);
    }
}
