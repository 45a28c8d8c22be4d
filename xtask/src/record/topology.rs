//! The topology that a machine is given.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::{Architecture, RecordError};

/// A topology, and the JSON that it was read from.
pub struct Topology {
    /// What the recording keeps of it.
    pub spec: Value,
    /// The nodes, by QEMU's ids.
    pub nodes: Vec<Node>,
    /// Distances, row by row; none for 10 and 20.
    pub distances: Option<Vec<Vec<u8>>>,
    /// More words for the kernel's command line.
    pub command_line: String,
    /// The board that QEMU emulates; none for the usual one of the processor.
    pub machine: Option<Machine>,
    /// What QEMU's `-smp` is given; none for the number of CPUs of all nodes.
    pub smp: Option<String>,
    /// Settings that are written after boot.
    pub sysctl: Settings,
    /// Settings that are written, captured and taken back, by name.
    pub phases: Vec<(String, Settings)>,
    /// Steps of a load before the one that is recorded.
    pub prepare: Vec<String>,
    /// Steps of the load that is recorded.
    pub load: Vec<String>,
}

/// Settings, by their keys.
pub type Settings = BTreeMap<String, String>;

/// A board: they have their memory below 4 GiB end elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    /// x86-64, up to 3 GiB.
    Pc,
    /// x86-64, up to 2 GiB.
    Q35,
    /// aarch64, up to 3 GiB, which begin at 1 GiB.
    Virt,
}

impl Machine {
    /// QEMU's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Machine::Pc => "pc",
            Machine::Q35 => "q35",
            Machine::Virt => "virt",
        }
    }

    /// The processor that it has.
    pub const fn architecture(self) -> Architecture {
        match self {
            Machine::Pc | Machine::Q35 => Architecture::X86_64,
            Machine::Virt => Architecture::Aarch64,
        }
    }
}

/// A node of a topology.
#[derive(Deserialize)]
pub struct Node {
    /// Memory in MiB.
    pub mem: u32,
    /// Number of CPUs.
    pub cpus: u32,
}

type Phases = BTreeMap<String, Settings>;

#[derive(Deserialize)]
struct File {
    nodes: Vec<Node>,
    distances: Option<Vec<Vec<u8>>>,
    cmdline: Option<String>,
    machine: Option<Machine>,
    smp: Option<String>,
    sysctl: Option<Settings>,
    phases: Option<Phases>,
    #[serde(default)]
    prepare: Vec<String>,
    #[serde(default)]
    load: Vec<String>,
}

impl Topology {
    /// Reads a topology file.
    pub fn read(path: &Path) -> Result<Topology, RecordError> {
        let text = std::fs::read_to_string(path).map_err(RecordError::file(path))?;
        Self::parse(&text).map_err(|problem| {
            let path = path.display().to_string();
            RecordError::Topology { path, problem }
        })
    }

    /// Reads the text of a topology file.
    pub fn parse(text: &str) -> Result<Topology, String> {
        let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let spec = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let count = file.nodes.len();
        if file.nodes.iter().all(|node| node.cpus == 0) {
            return Err("no node has CPUs, expected at least one".into());
        }
        if file.nodes.iter().all(|node| node.mem == 0) {
            return Err("no node has memory, expected mem in MiB".into());
        }
        let is_square =
            |rows: &Vec<Vec<u8>>| rows.len() == count && rows.iter().all(|row| row.len() == count);
        if file.distances.as_ref().is_some_and(|rows| !is_square(rows)) {
            return Err(format!("distances are no table of {count} rows of {count}"));
        }
        if let Some(smp) = file.smp.as_deref().filter(|smp| !smp.chars().all(is_of_smp)) {
            return Err(format!("{smp:?} is nothing for -smp such as \"4,sockets=2\""));
        }
        let (sysctl, phases) = (file.sysctl.unwrap_or_default(), file.phases.unwrap_or_default());
        let words = sysctl.iter().chain(phases.values().flatten());
        if let Some((key, _)) = words.into_iter().find(|(key, value)| !is_plain(key, value)) {
            return Err(format!("{key} is no setting such as \"vm.min_free_kbytes\": \"65536\""));
        }
        if let Some(name) = phases.keys().find(|name| !name.chars().all(is_of_name)) {
            return Err(format!("{name:?} is no name of a phase, expected letters and digits"));
        }
        Ok(Topology {
            spec,
            nodes: file.nodes,
            distances: file.distances,
            command_line: file.cmdline.unwrap_or_default(),
            machine: file.machine,
            smp: file.smp,
            sysctl,
            phases: phases.into_iter().collect(),
            prepare: file.prepare,
            load: file.load,
        })
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_of_smp(c: char) -> bool {
    c.is_ascii_alphanumeric() || "=,".contains(c)
}

/// Whether a setting can stand in a script as it is.
fn is_plain(key: &str, value: &str) -> bool {
    let name = key.strip_prefix("vm.").or_else(|| key.strip_prefix("kernel."));
    name.is_some_and(|name| name.chars().all(is_of_name))
        && value.chars().all(|c| c.is_ascii_digit() || c == ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topologies_are_read_or_refused() {
        let problem = |text: &str| Topology::parse(text).err().unwrap();
        let topology = Topology::parse(
            r#"{"nodes": [{"mem": 512, "cpus": 1}, {"mem": 0, "cpus": 1}], "phases": {"a": {"vm.x": "1 2"}}}"#,
        );
        assert_eq!(topology.unwrap().phases[0].1, [("vm.x".into(), "1 2".into())].into());
        assert!(problem("{\n\"nodes\": 5}").contains("at line 2 column"));
        assert!(problem(r#"{"nodes": [{"mem": 1, "cpus": 0}]}"#).contains("no node has CPUs"));
        assert!(problem(r#"{"nodes": [{"mem": 0, "cpus": 1}]}"#).contains("no node has memory"));
        let distances = r#"{"nodes": [{"mem": 1, "cpus": 1}], "distances": [[10, 20]]}"#;
        assert!(problem(distances).contains("no table of 1 rows"));
        let other = r#"{"nodes": [{"mem": 1, "cpus": 4}], "machine": "q35", "smp": "4,sockets=2",
            "cmdline": null, "sysctl": null, "phases": null, "distances": null}"#;
        let other = Topology::parse(other).unwrap();
        assert_eq!(
            (other.machine, other.smp.as_deref()),
            (Some(Machine::Q35), Some("4,sockets=2"))
        );
        assert!(problem(r#"{"nodes": [], "machine": "x"}"#).contains("expected one of `pc`"));
        assert!(problem(r#"{"nodes": [{"mem": 1, "cpus": 1}], "smp": "1 -S"}"#).contains("-smp"));
        let injected = r#"{"nodes": [{"mem": 1, "cpus": 1}], "sysctl": {"vm.x": "1; reboot"}}"#;
        assert!(problem(injected).contains("vm.x is no setting"));
    }
}
