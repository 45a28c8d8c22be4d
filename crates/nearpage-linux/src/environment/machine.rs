//! The machine that the environment asks for: this one, shares of it, or that of a file.

use std::fs::File;
use std::io;

use nearpage::CpuId;

use super::asked::{Environment, Nodes};
use super::error::EnvironmentError;
use crate::machine::HostMachine;
use crate::warning::Warning;
use nearpage_machine::MachineDescription;
use nearpage_machine::idlist;
use nearpage_machine::short_form;
use nearpage_machine::shown;
use nearpage_machine::{Budget, read_at_most};
use nearpage_machine::{Machine, SysfsError, read_this_machine};

impl Environment {
    /// The machine to make a memory for.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError`] if this machine or the topology file cannot be read.
    pub fn machine(&self) -> Result<HostMachine, EnvironmentError> {
        Ok(self.machine_and_warnings()?.0)
    }

    /// The machine, and warnings about CPUs that only the topology file or only this machine has.
    pub(crate) fn machine_and_warnings(
        &self,
    ) -> Result<(HostMachine, Vec<Warning>), EnvironmentError> {
        let (machine, warnings) = self.description_on(read_this_machine)?;
        Ok((self.host_machine(&machine), warnings))
    }

    /// What a user should know: variables and values that are not understood, and CPUs that only the topology file or only
    /// this machine has. A topology file that cannot be read gives no warning; [`machine`](Self::machine) fails then.
    pub fn warnings(&self) -> Vec<Warning> {
        let of_file = match self.nodes {
            Nodes::File(_) => {
                self.machine_and_warnings().map(|(_, warnings)| warnings).unwrap_or_default()
            }
            Nodes::Kernel | Nodes::Shares(_) => Vec::new(),
        };
        self.ignored.iter().cloned().map(Warning::Ignored).chain(of_file).collect()
    }

    fn host_machine(&self, machine: &Machine) -> HostMachine {
        match self.nodes {
            Nodes::Kernel => HostMachine::from(machine),
            Nodes::Shares(_) | Nodes::File(_) => HostMachine::emulated(machine),
        }
    }

    /// The same machine, laid out and checked. Its warnings say how emulated nodes differ from the kernel's.
    ///
    /// # Errors
    ///
    /// As [`machine`](Self::machine), and [`EnvironmentError::Machine`] if the core refuses the machine.
    pub fn described(&self) -> Result<MachineDescription, EnvironmentError> {
        let (machine, _) = self.description_on(read_this_machine)?;
        if self.nodes == Nodes::Kernel {
            return Ok(MachineDescription::new("this machine".into(), machine)?);
        }
        let variable = format!("NEARPAGE_NUMA={}", self.nodes);
        let mut description =
            MachineDescription::new(format!("this machine, {variable}"), machine)?;
        description.warnings.push(format!(
            "{variable} emulates these nodes: the kernel does not know them, and memory is not bound to them"
        ));
        if let Nodes::File(_) = self.nodes {
            description.warnings.push(
                "sizes in a topology file count for nothing in a memory, but 0 for a memoryless node"
                    .into(),
            );
        }
        Ok(description)
    }

    fn description_on(
        &self,
        this: impl FnOnce() -> Result<Machine, SysfsError>,
    ) -> Result<(Machine, Vec<Warning>), EnvironmentError> {
        match &self.nodes {
            Nodes::Kernel => Ok((this()?, Vec::new())),
            Nodes::Shares(count) => Ok((this()?.split(*count), Vec::new())),
            Nodes::File(path) => {
                let name = shown(path).to_string();
                let machine = read_topology(path, &name)?;
                // Without /sys there is nothing to compare the file with.
                let notes = this().map(|this| compare_cpus(&name, &machine, &this));
                Ok((machine, notes.unwrap_or_default()))
            }
        }
    }
}

/// Reads a topology file; `name` is its path for messages.
fn read_topology(path: &str, name: &str) -> Result<Machine, EnvironmentError> {
    let text = read_text(path)
        .map_err(|error| EnvironmentError::Unreadable { file: name.into(), error })?;
    Ok(short_form::parse_text(name, &text)?)
}

fn read_text(path: &str) -> io::Result<String> {
    let text = read_at_most(File::open(path)?, Budget::DEFAULT.file_bytes)?;
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Where the CPUs of a topology file differ from those that are online.
fn compare_cpus(file: &str, emulated: &Machine, this: &Machine) -> Vec<Warning> {
    let cpus = |machine| HostMachine::from(machine).cpus();
    let (named, online) = (cpus(emulated), cpus(this));
    let (absent, unnamed) = (list_without(&named, &online), list_without(&online, &named));
    let mut notes = Vec::new();
    if !absent.is_empty() {
        notes.push(Warning::AbsentCpus { file: file.into(), cpus: absent });
    }
    if !unnamed.is_empty() {
        notes.push(Warning::UnnamedCpus { file: file.into(), cpus: unnamed });
    }
    notes
}

/// Those of `cpus` that are not among the `others`, as a list. Both are ascending.
fn list_without(cpus: &[CpuId], others: &[CpuId]) -> String {
    let rest = cpus.iter().filter(|cpu| others.binary_search(cpu).is_err());
    idlist::format(&rest.map(|cpu| cpu.0).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nearpage::NodeId;

    use super::*;
    use nearpage_machine::MemoryTree;
    use nearpage_machine::read_machine;

    /// What `NEARPAGE_NUMA` asks for on `this` machine, and the notes.
    fn machine_for(
        value: &str,
        this: fn() -> Result<Machine, SysfsError>,
    ) -> Result<(HostMachine, Vec<String>), String> {
        let variable = ("NEARPAGE_NUMA".into(), value.into());
        let environment = Environment::from_variables([variable]).unwrap();
        assert_eq!(environment.ignored, []);
        let (machine, notes) =
            environment.description_on(this).map_err(|error| error.to_string())?;
        let machine = environment.host_machine(&machine);
        Ok((machine, notes.iter().map(ToString::to_string).collect()))
    }

    /// One node with memory and CPUs 0-3.
    fn four_cpus() -> Result<Machine, SysfsError> {
        let mut tree = MemoryTree::new("box");
        tree.insert("sys/devices/system/cpu/online", "0-3");
        tree.insert("proc/meminfo", "MemTotal: 4096 kB\n");
        read_machine(&tree)
    }

    fn no_machine() -> Result<Machine, SysfsError> {
        read_machine(&MemoryTree::new("empty"))
    }

    /// The nodes' CPUs, and whether they have memory.
    fn nodes(machine: &HostMachine) -> Vec<(Vec<u32>, bool)> {
        let cpus = |cpus: &[CpuId]| cpus.iter().map(|cpu| cpu.0).collect();
        machine.nodes.iter().map(|node| (cpus(&node.cpus), node.has_memory)).collect()
    }

    #[test]
    fn the_kernels_nodes_or_shares_of_the_machine() {
        let machine = |value| {
            let (machine, notes) = machine_for(value, four_cpus).unwrap();
            assert_eq!(notes, [""; 0]);
            machine
        };
        assert_eq!(nodes(&machine("")), [(vec![0, 1, 2, 3], true)]);
        assert!(!machine("strict").emulated);
        assert_eq!(nodes(&machine("off")), [(vec![0, 1, 2, 3], true)]);
        assert!(machine("off").emulated);
        assert_eq!(nodes(&machine("fake=2")), [(vec![0, 1], true), (vec![2, 3], true)]);
        assert_eq!(machine("fake=2").distances, [10, 20, 20, 10]);
        let more_than_cpus = machine("fake=6");
        let cpus: Vec<usize> = more_than_cpus.nodes.iter().map(|node| node.cpus.len()).collect();
        assert_eq!((cpus.len(), cpus.iter().sum::<usize>(), cpus.iter().max()), (6, 4, Some(&1)));
        assert!(more_than_cpus.nodes.iter().all(|node| node.has_memory));
    }

    #[test]
    fn a_machine_that_cannot_be_read() {
        for value in ["", "fake=2"] {
            assert_eq!(
                machine_for(value, no_machine).unwrap_err(),
                "this machine cannot be read: empty: has no sys/devices/system/node and no \
                 sys/devices/system/cpu, expected the root of a copy of /sys and /proc"
            );
        }
    }

    /// What a topology file of this content makes of a machine, and its notes or the error, with FILE for
    /// the file's path.
    fn with_file(
        content: &[u8],
        this: fn() -> Result<Machine, SysfsError>,
    ) -> Result<(HostMachine, Vec<String>), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        let path = file.path().to_str().unwrap();
        let without_path = |message: String| message.replace(path, "FILE");
        match machine_for(&format!("topology={path}"), this) {
            Ok((machine, notes)) => Ok((machine, notes.into_iter().map(without_path).collect())),
            Err(message) => Err(without_path(message)),
        }
    }

    #[test]
    fn a_topology_file() {
        let text = b"--numa 2G,cpus=0-1 --numa 0,cpus=2-3 --numa 1G\n--numa-distance 0,1=21\n";
        let (machine, notes) = with_file(text, four_cpus).unwrap();
        assert_eq!(nodes(&machine), [(vec![0, 1], true), (vec![2, 3], false), (vec![], true)]);
        assert_eq!(machine.nodes[2].id, NodeId(2));
        assert_eq!(machine.distances, [10, 21, 20, 21, 10, 20, 20, 20, 10]);
        assert!(machine.emulated);
        assert_eq!(notes, [""; 0]);
    }

    #[test]
    fn a_topology_file_with_other_cpus_than_the_machine() {
        let text = b"--numa 2G,cpus=8-9 --numa 2G,cpus=1";
        let (machine, notes) = with_file(text, four_cpus).unwrap();
        assert_eq!(nodes(&machine), [(vec![8, 9], true), (vec![1], true)]);
        assert_eq!(
            notes,
            [
                "FILE: CPUs that are not online here, so that nobody runs there: 8-9",
                "FILE: CPUs of this machine that are on no node, so that they have no pagesets: 0,2-3",
            ]
        );
        let (same, notes) = with_file(text, no_machine).unwrap();
        assert_eq!((same, notes), (machine, vec![]));
    }

    #[test]
    fn a_topology_file_that_describes_no_machine() {
        assert_eq!(
            with_file(b"--numa 2G,cpus=0\n--numa 2G,cpus=0\n", four_cpus).unwrap_err(),
            "NEARPAGE_NUMA: FILE:2: CPU 0 is already on node 0, \
             expected each CPU on one node"
        );
        assert_eq!(
            with_file(b"--numa \xff", four_cpus).unwrap_err(),
            "NEARPAGE_NUMA: FILE: invalid utf-8 sequence of 1 bytes from index 7"
        );
        assert_eq!(
            machine_for("topology=/no/such.numa", four_cpus).unwrap_err(),
            "NEARPAGE_NUMA: /no/such.numa: No such file or directory (os error 2)"
        );
        assert_eq!(
            machine_for("topology=/no/su\u{1b}ch.numa", four_cpus).unwrap_err(),
            "NEARPAGE_NUMA: /no/su\\u{1b}ch.numa: No such file or directory (os error 2)"
        );
    }
}
