//! The CPUs and nodes that a process may use, from `/proc/self/status`.

use nearpage_machine::FileTree;
use nearpage_machine::Machine;
use nearpage_machine::idlist;
use nearpage_machine::sysfs::{SysfsError, TextFile};

use crate::machine::{cpus, refuse, shown};
use crate::reader::Reader;

const STATUS: &str = "proc/self/status";
const CPUS: &str = "Cpus_allowed_list";
const NODES: &str = "Mems_allowed_list";
const EXPECTED: &str = "a list of ids such as 0-3,8";

/// CPUs and nodes that a process may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// `Cpus_allowed_list`.
    pub cpus: Vec<u32>,
    /// `Mems_allowed_list`.
    pub nodes: Vec<u32>,
}

/// A list in the file, and where it stands.
struct List {
    line: usize,
    column: usize,
    ids: Vec<u32>,
}

/// The two lists, if the file has both. Some kernels and sandboxes leave one out; it is then `missing`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    machine: Option<&Machine>,
    missing: &mut Vec<String>,
) -> Option<Allowed> {
    let lists = reader.file(STATUS, |status| lists(status, machine))?;
    for (key, list) in [CPUS, NODES].iter().zip(&lists) {
        if list.is_none() {
            missing.push(format!("{}: no line {key}, expected {EXPECTED}", reader.display(STATUS)));
        }
    }
    let [cpus, nodes] = lists.map(|list| list.map(|list| list.ids));
    Some(Allowed { cpus: cpus?, nodes: nodes? })
}

/// The lists of CPUs and of nodes. All of them must be possible on the machine, if it is known.
fn lists(status: &TextFile, machine: Option<&Machine>) -> Result<[Option<List>; 2], SysfsError> {
    let (allowed_cpus, allowed_nodes) = (list(status, CPUS)?, list(status, NODES)?);
    if allowed_cpus.is_none() && allowed_nodes.is_none() {
        let expected = format!("lines {CPUS} and {NODES}");
        return Err(status.syntax(1, 1, status.text.trim(), expected));
    }
    if let (Some(machine), Some(list)) = (machine, &allowed_cpus) {
        let possible = machine.possible_cpus.iter().map(|cpu| cpu.0);
        check(status, list, &cpus(machine), possible, "CPUs")?;
    }
    if let (Some(machine), Some(list)) = (machine, &allowed_nodes) {
        let online: Vec<u32> = machine.nodes.iter().map(|node| node.id.0).collect();
        let possible = machine.possible_nodes.iter().map(|node| node.0);
        check(status, list, &online, possible, "nodes")?;
    }
    Ok([allowed_cpus, allowed_nodes])
}

fn list(status: &TextFile, key: &str) -> Result<Option<List>, SysfsError> {
    let mut lines = status.text.lines().zip(1..);
    let found = lines.find_map(|(text, line)| {
        let (name, value) = text.split_once(':')?;
        (name == key).then_some((text, line, value.trim()))
    });
    let Some((text, line, value)) = found else { return Ok(None) };
    let column = text.trim_end().len() - value.len() + 1;
    match idlist::parse(value) {
        Ok(ids) if !ids.is_empty() => Ok(Some(List { line, column, ids })),
        _ => Err(status.syntax(line, column, value, EXPECTED)),
    }
}

/// Refuses ids that are neither online nor possible. The kernel lists offline CPUs too.
fn check(
    status: &TextFile,
    list: &List,
    online: &[u32],
    possible: impl Iterator<Item = u32>,
    what: &str,
) -> Result<(), SysfsError> {
    let mut known: Vec<u32> = possible.chain(online.iter().copied()).collect();
    known.sort_unstable();
    known.dedup();
    let is_unknown = |id: &u32| known.binary_search(id).is_err();
    let unknown: Vec<u32> = list.ids.iter().copied().filter(is_unknown).collect();
    let expected = format!("{what} of this machine: {}", shown(&known));
    refuse((status, list.line, list.column), &unknown, &expected)
}

#[cfg(test)]
mod tests {
    use nearpage_machine::MemoryTree;
    use nearpage_machine::read_machine;

    use super::*;

    /// CPU 0 on node 0 and CPU 1 on node 1; CPUs 2-3 and node 2 are possible.
    fn machine() -> Machine {
        let mut tree = MemoryTree::new("machine");
        for node in 0..2 {
            tree.insert(format!("sys/devices/system/node/node{node}/cpulist"), node.to_string());
        }
        tree.insert("sys/devices/system/node/possible", "0-2");
        tree.insert("sys/devices/system/cpu/possible", "0-3");
        read_machine(&tree).unwrap()
    }

    /// What a status allows, and why not, or what is missing.
    fn allowed(status: &str, machine: Option<&Machine>) -> (Option<Allowed>, Vec<String>) {
        let mut tree = MemoryTree::new("box");
        tree.insert(STATUS, status);
        let (mut reader, mut told) = (Reader::new(&tree), Vec::new());
        let allowed = read(&mut reader, machine, &mut told);
        told.extend(reader.refused().iter().map(ToString::to_string));
        (allowed, told)
    }

    #[test]
    fn offline_cpus_and_nodes_may_be_allowed() {
        let status = "Name:\tcp\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0,2\n";
        let expected = Allowed { cpus: vec![0, 1, 2, 3], nodes: vec![0, 2] };
        for machine in [None, Some(machine())] {
            assert_eq!(allowed(status, machine.as_ref()), (Some(expected.clone()), vec![]));
        }
    }

    #[test]
    fn what_cannot_be_judged_is_named() {
        let machine = machine();
        for (status, expected) in [
            (
                "Cpus_allowed_list:\t0\nMems_allowed_list:\t3-1\n",
                "2:20: found \"3-1\", expected a list of ids such as 0-3,8",
            ),
            (
                "Cpus_allowed_list:\t\nMems_allowed_list:\t0\n",
                "1:19: found \"\", expected a list of ids such as 0-3,8",
            ),
            (
                "Cpus_allowed_list:\t0,8-9\nMems_allowed_list:\t0\n",
                "1:20: found \"8-9\", expected CPUs of this machine: 0-3",
            ),
            (
                "Cpus_allowed_list:\t0\nMems_allowed_list:\t0-3\n",
                "2:20: found \"3\", expected nodes of this machine: 0-2",
            ),
            (
                "garbage\n",
                "1:1: found \"garbage\", expected lines Cpus_allowed_list and Mems_allowed_list",
            ),
            ("", "1:1: found \"\", expected lines Cpus_allowed_list and Mems_allowed_list"),
        ] {
            let expected = format!("box: {STATUS}:{expected}");
            assert_eq!(allowed(status, Some(&machine)), (None, vec![expected]));
        }
    }

    #[test]
    fn a_line_may_be_missing() {
        let missing = |key| format!("box: {STATUS}: no line {key}, expected {EXPECTED}");
        assert_eq!(allowed("Cpus_allowed_list:\t0\n", None), (None, vec![missing(NODES)]));
        assert_eq!(allowed("Mems_allowed_list:\t0\n", None), (None, vec![missing(CPUS)]));
    }
}
