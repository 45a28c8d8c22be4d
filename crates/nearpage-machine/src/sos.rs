//! What a sosreport has in the place of files of /proc and /sys: the answers of commands.
//!
//! | absent | taken from |
//! |---|---|
//! | `proc/sys/vm/swappiness` | `vm.swappiness = 60` in `sos_commands/kernel/sysctl_-a` |
//! | lists of CPUs, sizes and distances of nodes | `sos_commands/numa/numactl_--hardware` |

use std::collections::HashMap;
use std::io;
use std::sync::OnceLock;

use crate::idlist;
use crate::machine::Machine;
use crate::numactl;

/// The answers that are looked at.
pub(crate) const ANSWERS: [&str; 3] = [SETTINGS, NODES_OF, NODES_OF_OLD];
const SETTINGS: &str = "sos_commands/kernel/sysctl_-a";
const NODES_OF: &str = "sos_commands/numa/numactl_--hardware";
const NODES_OF_OLD: &str = "sos_commands/hardware/numactl_--hardware";

/// What stands in for files that a tree lacks. An answer is read when it is first asked for, and once.
#[derive(Debug, Default)]
pub(crate) struct StandIns {
    settings: OnceLock<HashMap<String, String>>,
    machine: OnceLock<Option<Machine>>,
}

impl Clone for StandIns {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl StandIns {
    /// Reads a file, or what stands in for it where a tree lacks it. `read` reads a file of the tree.
    pub(crate) fn read_or_stand_in(
        &self,
        path: &str,
        read: impl Fn(&str) -> io::Result<Option<Vec<u8>>>,
    ) -> io::Result<Option<Vec<u8>>> {
        let found = read(path)?;
        let has_stand_in = path.starts_with(PROC_SYS) || path.starts_with(DEVICES);
        if found.is_some() || !has_stand_in {
            return Ok(found);
        }
        let text = |path: &str| -> io::Result<Option<String>> {
            Ok(read(path)?.map(|text| String::from_utf8_lossy(&text).into_owned()))
        };
        if let Some(setting) = path.strip_prefix(PROC_SYS) {
            let settings =
                kept(&self.settings, || Ok(values(&text(SETTINGS)?.unwrap_or_default())))?;
            let value = settings.get(&setting.replace('/', "."));
            return Ok(value.map(|value| format!("{value}\n").into_bytes()));
        }
        let machine = kept(&self.machine, || {
            let nodes = match text(NODES_OF)? {
                Some(nodes) => Some(nodes),
                None => text(NODES_OF_OLD)?,
            };
            // What cannot be read stands in for nothing: the file is missing then.
            Ok(nodes.and_then(|nodes| numactl::parse(NODES_OF, &nodes).ok()))
        })?;
        let found = machine.as_ref().and_then(|machine| of_machine(machine, path));
        Ok(found.map(String::into_bytes))
    }
}

/// What a cell has, or what is made now and put there.
fn kept<T>(cell: &OnceLock<T>, make: impl FnOnce() -> io::Result<T>) -> io::Result<&T> {
    match cell.get() {
        Some(kept) => Ok(kept),
        None => {
            let made = make()?;
            Ok(cell.get_or_init(|| made))
        }
    }
}

const PROC_SYS: &str = "proc/sys/";
const DEVICES: &str = "sys/devices/system/";

/// Values by name, of lines `vm.swappiness = 60`: the first of each.
fn values(settings: &str) -> HashMap<String, String> {
    let lines = settings.lines().filter_map(|line| line.split_once('='));
    let mut values = HashMap::new();
    for (name, value) in lines {
        values.entry(name.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
    }
    values
}

fn of_machine(machine: &Machine, path: &str) -> Option<String> {
    let ids = |ids: Vec<u32>| Some(format!("{}\n", idlist::format(&ids)));
    match path.strip_prefix(DEVICES)? {
        "node/online" => return ids(machine.nodes.iter().map(|node| node.id.0).collect()),
        "cpu/online" => {
            let cpus = machine.nodes.iter().flat_map(|node| &node.cpus);
            let mut cpus: Vec<u32> = cpus.map(|cpu| cpu.0).collect();
            cpus.sort_unstable();
            return ids(cpus);
        }
        _ => {}
    }
    let (id, file) = path.strip_prefix(DEVICES)?.strip_prefix("node/node")?.split_once('/')?;
    let at = machine.nodes.iter().position(|node| node.id.to_string() == id)?;
    let node = &machine.nodes[at];
    match file {
        "cpulist" => ids(node.cpus.iter().map(|cpu| cpu.0).collect()),
        "distance" => {
            let row = machine.distances.chunks(machine.nodes.len()).nth(at)?;
            let row: Vec<String> = row.iter().map(u8::to_string).collect();
            Some(format!("{}\n", row.join(" ")))
        }
        "meminfo" => {
            let line = |name: &str, bytes: Option<u64>| {
                bytes.map_or(String::new(), |bytes| {
                    format!("Node {id} {name}: {} kB\n", bytes >> 10)
                })
            };
            Some(line("MemTotal", node.memory_bytes) + &line("MemFree", node.free_bytes))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::sysfs::read_machine;
    use crate::tree::{FileTree, MemoryTree};

    use super::*;

    fn tree() -> MemoryTree {
        let mut tree = MemoryTree::new("sosreport-box");
        tree.insert(
            SETTINGS,
            "kernel.osrelease = 4.18.0\nvm.zone_reclaim_mode = 1\nvm.min_free_kbytes = 67584\n",
        );
        tree.insert(
            NODES_OF,
            "available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 0 size: 100 MB\nnode 0 free: 10 MB\nnode 1 cpus: 2 3\n\
             node 1 size: 200 MB\nnode 1 free: 20 MB\nnode distances:\nnode   0   1\n  0:  10  21\n  1:  21  10\n",
        );
        tree
    }

    #[test]
    fn answers_of_commands_stand_in() {
        let tree = tree();
        let read = |path| tree.read(path).unwrap().map(|text| String::from_utf8(text).unwrap());
        assert_eq!(read("proc/sys/vm/zone_reclaim_mode").as_deref(), Some("1\n"));
        assert_eq!(read("proc/sys/kernel/osrelease").as_deref(), Some("4.18.0\n"));
        assert_eq!(read("proc/sys/vm/nothing"), None);
        let machine = read_machine(&tree).unwrap();
        assert_eq!(machine.nodes.len(), 2);
        assert_eq!(machine.nodes[1].memory_bytes, Some(200 << 20));
        assert_eq!(machine.distances, [10, 21, 21, 10]);
        assert_eq!(machine.settings.min_free_kbytes, Some(67584));
    }

    /// Each file of /sys asks for the answer: it was parsed anew for each, the cube of the nodes.
    #[test]
    fn an_answer_is_read_once() {
        let reads = std::cell::Cell::new(0);
        let answers = tree();
        let stand_ins = StandIns::default();
        let read = |path: &str| {
            reads.set(reads.get() + u32::from(ANSWERS.contains(&path)));
            answers.read(path)
        };
        for _ in 0..5 {
            for path in ["sys/devices/system/node/online", "proc/sys/vm/zone_reclaim_mode"] {
                // The tree has the answers alone.
                let lacks =
                    |path: &str| if ANSWERS.contains(&path) { read(path) } else { Ok(None) };
                assert!(stand_ins.read_or_stand_in(path, lacks).unwrap().is_some());
            }
        }
        assert_eq!(reads.get(), 2);
    }

    #[test]
    fn what_is_there_is_not_replaced() {
        let mut tree = tree();
        tree.insert("proc/sys/vm/zone_reclaim_mode", "0\n");
        assert_eq!(tree.read("proc/sys/vm/zone_reclaim_mode").unwrap().unwrap(), b"0\n");
        let mut damaged = MemoryTree::new("box");
        damaged.insert(NODES_OF, "available: many nodes\n");
        assert_eq!(damaged.read("sys/devices/system/node/online").unwrap(), None);
    }
}
