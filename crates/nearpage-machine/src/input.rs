//! Machines as input: this one, a copy of /sys and /proc, `numactl --hardware` text, hwloc's XML, or the short form.
//!
//! Every reader makes a [`Machine`]; [`MachineDescription::new`] gives it addresses and checks it with
//! the core's own rules.

#[cfg(feature = "archive")]
mod archive;
mod layout;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nearpage::{NodeBuf, TopologyBuf, ZoneKind};

use crate::budget::{Budget, read_within};
use crate::description::{DescriptionProblem, Place};
use crate::error::{InputError, InputProblem as Problem};
use crate::machine::{Machine, MachineNode};
use crate::shown::shown;
use crate::sysfs::{read_machine, read_this_machine};
use crate::tree::{FileTree, FolderTree, MemoryTree};
use crate::{numactl, short_form};

const EXPECTED: &str = "the output of `numactl --hardware`, the short form \
                        (--numa SIZE,cpus=LIST ...), the XML of `lstopo --of xml`, or a tar archive (.gz, .bz2, \
                        .xz, .zst) of /sys and /proc";

/// What is wanted in place of lscpu's text.
const EXPECTED_MEMORY: &str =
    "the output of `numactl --hardware`: that of lscpu does not tell how much memory a node has";

const EXPECTED_TREE: &str = "a folder or a tar archive with a copy of /sys and /proc";

/// Where a machine's description comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MachineInput {
    /// The machine that this program runs on, with the nodes that its kernel has.
    ThisMachine,
    /// A copy of /sys and /proc: a folder or an archive.
    Sysroot(PathBuf),
    /// A file or folder of any kind: a copy of /sys and /proc, the text of `numactl --hardware`, the XML of hwloc, or
    /// the short form.
    Path(PathBuf),
    /// The short form, by its values.
    ShortForm {
        /// Values of `--numa`.
        nodes: Vec<String>,
        /// Values of `--numa-distance`.
        distances: Vec<String>,
    },
}

/// Where the addresses of a machine's memory come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addresses {
    /// The kernel's zones.
    Recorded,
    /// Made up from the sizes: the nodes lie one after the other, around a PC's hole below 4 GiB.
    Assumed,
}

/// A machine, wherever its description came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineDescription {
    /// Where the description came from, as a path or a name. Messages show it with [`shown`].
    pub source: String,
    /// The machine as described. Zones are of kinds that `topology` has.
    pub machine: Machine,
    /// Its nodes, memory and distances for the core, which accepts them.
    pub topology: TopologyBuf,
    /// Where the addresses in `topology` come from.
    pub addresses: Addresses,
    /// What had to be assumed, a sentence each.
    pub warnings: Vec<String>,
}

impl MachineDescription {
    /// Reads a machine.
    ///
    /// # Errors
    ///
    /// [`InputError`] if the input cannot be read, or describes no machine; it names the line.
    pub fn read(input: &MachineInput, budget: &Budget) -> Result<MachineDescription, InputError> {
        match input {
            MachineInput::ThisMachine => Self::new("this machine".into(), read_this_machine()?),
            MachineInput::Sysroot(path) => {
                let machine = read_machine(&*open_tree(path, budget)?)?;
                Self::new(path.to_string_lossy().into_owned(), machine)
            }
            MachineInput::Path(path) if path.is_dir() => {
                let folder = tree_below(path);
                let machine = read_machine(&FolderTree::new(&folder).within(budget))?;
                Self::new(folder.to_string_lossy().into_owned(), machine)
            }
            MachineInput::Path(path) => match File::open(path) {
                Ok(file) => Self::from_reader(&path.to_string_lossy(), file, budget),
                Err(error) => Err(unreadable(&path.to_string_lossy(), error)),
            },
            MachineInput::ShortForm { nodes, distances } => {
                let machine = short_form::parse_options(nodes, distances)?;
                Self::placed("short form".into(), &Place::Values, machine)
            }
        }
    }

    /// Reads a machine from the content of a file of any kind: an archive of /sys and /proc, the text of
    /// `numactl --hardware`, the XML of hwloc, or the short form. `source` is its name.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn from_reader(
        source: &str,
        reader: impl Read,
        budget: &Budget,
    ) -> Result<MachineDescription, InputError> {
        let content = read_content(reader, budget).map_err(|error| unreadable(source, error))?;
        let name = shown(source).to_string();
        let machine = match unpacked(&name, &content, budget)? {
            Some(tree) => read_machine(&tree)?,
            None => read_text(&name, &content)?,
        };
        Self::new(source.into(), machine)
    }

    /// Gives a machine addresses and checks it. `source` is its name.
    ///
    /// # Errors
    ///
    /// More memory than can be addressed, or what the core refuses.
    pub fn new(source: String, machine: Machine) -> Result<MachineDescription, InputError> {
        let place = Place::Input(shown(&source).to_string());
        Self::placed(source, &place, machine)
    }

    fn placed(
        source: String,
        place: &Place,
        mut machine: Machine,
    ) -> Result<MachineDescription, InputError> {
        check_memory(&machine).map_err(|problem| problem.at(place))?;
        let warnings: Vec<String> = machine.notes.iter().map(ToString::to_string).collect();
        let recorded = layout::from_zones(&machine.nodes);
        let addresses = if recorded.is_some() { Addresses::Recorded } else { Addresses::Assumed };
        let (address_map, memory) = recorded.unwrap_or_else(|| {
            let sizes = machine.nodes.iter().map(|node| node.memory_bytes.unwrap_or(0));
            layout::from_sizes(sizes, machine.page_bytes)
        });
        if addresses == Addresses::Assumed {
            machine.nodes.iter_mut().for_each(|node| node.zones.clear());
        }
        let nodes = machine.nodes.iter().zip(memory).map(|(node, memory)| NodeBuf {
            id: node.id,
            memory,
            cpus: node.cpus.clone(),
            movable_from: node.zones.iter().find(|z| z.kind == ZoneKind::Movable).map(|z| z.start),
        });
        let distances = machine.distances.clone();
        let topology = TopologyBuf { nodes: nodes.collect(), distances, address_map };
        topology.with(|_| ()).map_err(|error| Problem::Topology(error).at(place))?;
        Ok(MachineDescription { source, machine, topology, addresses, warnings })
    }
}

fn check_memory(machine: &Machine) -> Result<(), Problem> {
    let add = |sum: u64, node: &MachineNode| sum.checked_add(node.memory_bytes.unwrap_or(0));
    match machine.nodes.iter().try_fold(0, add) {
        Some(bytes) if bytes <= layout::MEMORY_BYTES_MAX => Ok(()),
        _ => Err(Problem::TooMuchMemory { max_tebibytes: layout::MEMORY_BYTES_MAX >> 40 }),
    }
}

/// Opens a copy of /sys and /proc: a folder, or an archive of one.
///
/// # Errors
///
/// [`InputError`] if it cannot be read, or is neither.
pub fn open_tree(path: &Path, budget: &Budget) -> Result<Box<dyn FileTree>, InputError> {
    if path.is_dir() {
        return Ok(Box::new(FolderTree::new(tree_below(path)).within(budget)));
    }
    let source = path.to_string_lossy();
    let file = File::open(path).map_err(|error| unreadable(&source, error))?;
    Ok(Box::new(read_tree(&source, file, budget)?))
}

/// Reads an archive of /sys and /proc; `source` is its name.
///
/// # Errors
///
/// [`InputError`] if it cannot be read, or is no archive.
pub fn read_tree(
    source: &str,
    reader: impl Read,
    budget: &Budget,
) -> Result<MemoryTree, InputError> {
    let content = read_content(reader, budget).map_err(|error| unreadable(source, error))?;
    let name = shown(source).to_string();
    unpacked(&name, &content, budget)?.ok_or_else(|| {
        let problem = check_not_zeros(&content, EXPECTED_TREE).err().unwrap_or(Problem::NoTree);
        problem.at(&Place::Input(name))
    })
}

fn unreadable(source: &str, error: io::Error) -> InputError {
    InputError::Unreadable { input: shown(source).to_string(), error }
}

/// The folder that holds `sys` and `proc`: `folder` itself, or its only subfolder that does.
fn tree_below(folder: &Path) -> PathBuf {
    let holds_tree = |folder: &Path| folder.join("sys").is_dir() || folder.join("proc").is_dir();
    if holds_tree(folder) {
        return folder.into();
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A link to a folder elsewhere is none of its folders.
    let own = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut trees = own.map(|entry| entry.path()).filter(|path| holds_tree(path));
    match (trees.next(), trees.next()) {
        (Some(tree), None) => tree,
        _ => folder.into(),
    }
}

fn read_content(source: impl Read, budget: &Budget) -> io::Result<Vec<u8>> {
    read_within(source, budget.input_bytes)
}

/// The files of an archive; `None` if the content is no archive.
#[cfg(feature = "archive")]
fn unpacked(name: &str, content: &[u8], budget: &Budget) -> Result<Option<MemoryTree>, InputError> {
    let packing = crate::packing::Packing::of(content);
    packing.map(|packing| archive::unpack(name, packing, content, budget)).transpose()
}

/// Without the feature `archive` no content is an archive.
#[cfg(not(feature = "archive"))]
fn unpacked(_: &str, _: &[u8], _: &Budget) -> Result<Option<MemoryTree>, InputError> {
    Ok(None)
}

fn read_text(name: &str, content: &[u8]) -> Result<Machine, InputError> {
    let text = check_text(content).map_err(|problem| problem.at(&Place::Input(name.into())))?;
    #[cfg(feature = "hwloc")]
    if crate::hwloc::is_xml(text) {
        return crate::hwloc::parse(name, text);
    }
    let is_short_form = |line: &&str| line.trim_start().starts_with("--");
    let meaningful =
        |(_, line): &(usize, &str)| !matches!(line.trim().chars().next(), None | Some('#'));
    match text.lines().enumerate().find(meaningful) {
        Some((_, first)) if is_short_form(&first) => Ok(short_form::parse_text(name, text)?),
        Some(_) if numactl::is_in(text) => numactl::parse(name, text),
        Some((index, first)) => {
            let place = Place::Line { input: name.into(), line: index + 1 };
            let is_lscpu = first.trim_start().starts_with("Architecture:");
            let expected = if is_lscpu { EXPECTED_MEMORY } else { EXPECTED };
            Err(Problem::syntax(first, expected).at(&place))
        }
        None => {
            let place = Place::Input(name.into());
            Err(DescriptionProblem::NoNodes { expected: EXPECTED }.at(&place).into())
        }
    }
}

/// Refuses a content of zeros alone by a name of its own: tar writes that when it finds no file.
fn check_not_zeros(content: &[u8], expected: &'static str) -> Result<(), Problem> {
    match content.iter().any(|&byte| byte != 0) || content.is_empty() {
        true => Ok(()),
        false => Err(Problem::Zeros { bytes: content.len(), expected }),
    }
}

fn check_text(content: &[u8]) -> Result<&str, Problem> {
    check_not_zeros(content, EXPECTED)?;
    let binary =
        |offset: usize| Problem::Binary { offset, byte: content[offset], expected: EXPECTED };
    if let Some(offset) = content.iter().position(|&byte| byte == 0) {
        return Err(binary(offset));
    }
    std::str::from_utf8(content).map_err(|error| binary(error.valid_up_to()))
}

#[cfg(test)]
mod tests {
    use crate::tree::MemoryTree;
    use nearpage::{AddressMap, NodeId, PageCount, Pfn, PfnRange};
    use proptest::prelude::*;

    use super::*;

    fn read(content: &[u8]) -> Result<MachineDescription, String> {
        MachineDescription::from_reader("box", content, &Budget::DEFAULT)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn kinds_are_told_by_content() {
        let short = read(b"# lab\n --numa 2G,cpus=0 --numa 1G\n").unwrap();
        assert_eq!(short.topology.nodes.len(), 2);
        assert_eq!(short.addresses, Addresses::Assumed);
        let numactl = read(b"$ numactl -H\nnode 8 cpus: 1\nnode 8 size: 10 MB\n").unwrap();
        assert_eq!(numactl.topology.nodes[0].id, NodeId(8));
        assert_eq!(numactl.topology.nodes[0].memory, [PfnRange::new(1, 2560)]);
    }

    #[test]
    fn what_is_none_of_them_is_named() {
        assert_eq!(
            read(b"\n# a machine\nbig \"iron\"\n").unwrap_err(),
            format!("box:3: found \"big \\\"iron\\\"\", expected {EXPECTED}")
        );
        assert_eq!(
            read(b"--numa\xff").unwrap_err(),
            format!("box: byte 6 is 0xff: neither text nor an archive, expected {EXPECTED}")
        );
        assert_eq!(
            read(b"a\0").unwrap_err(),
            format!("box: byte 1 is 0x00: neither text nor an archive, expected {EXPECTED}")
        );
        assert_eq!(
            read(&[0; 10240]).unwrap_err(),
            format!(
                "box: all 10240 bytes are zero, as of a tar archive without files, expected {EXPECTED}"
            )
        );
        assert_eq!(read(b"").unwrap_err(), format!("box: describes no node, expected {EXPECTED}"));
        assert_eq!(
            read(b"--numa 4096T --numa 4K").unwrap_err(),
            "box: the nodes have more memory than the 4096 TiB that can be addressed"
        );
        assert!(read(b"--numa 4096T").is_ok());
    }

    fn machine(zoneinfo: &str) -> MachineDescription {
        let mut tree = MemoryTree::new("box");
        tree.insert("sys/devices/system/cpu/online", "0");
        tree.insert("proc/meminfo", "MemTotal: 400000 kB\n");
        tree.insert("proc/zoneinfo", zoneinfo);
        MachineDescription::new("box".into(), read_machine(&tree).unwrap()).unwrap()
    }

    fn zone(name: &str, start: u64, spanned: u64, present: u64, managed: u64) -> String {
        format!(
            "Node 0, zone {name:>8}\n pages free 7\n spanned {spanned}\n present {present}\n \
             managed {managed}\n start_pfn: {start}\n"
        )
    }

    #[test]
    fn recorded_zones_have_addresses() {
        let zones =
            zone("DMA", 1, 4095, 3998, 3840) + &zone("Movable", 8192, 100_000, 100_000, 96_160);
        let description = machine(&zones);
        assert_eq!(description.addresses, Addresses::Recorded);
        assert_eq!(description.topology.address_map, AddressMap::X86);
        assert_eq!(description.topology.nodes[0].movable_from, Some(Pfn(8192)));
        assert_eq!(description.machine.nodes[0].zones.len(), 2);
        assert_eq!(description.warnings, [""; 0]);
    }

    #[test]
    fn zones_of_other_processors_lie_elsewhere() {
        let zones = zone("DMA", 0x40000, 50_000, 50_000, 40_000)
            + &zone("Normal", 0x100000, 60_000, 50_000, 50_000);
        let description = machine(&zones);
        let dma_end = Pfn(0x40000 + 50_000);
        let expected = AddressMap::Divided { dma_end, dma32_end: dma_end };
        assert_eq!(description.topology.address_map, expected);
        let [dma, normal] = description.machine.nodes[0].zones[..] else { panic!("two zones") };
        assert_eq!((dma.kind, dma.managed), (ZoneKind::Dma, PageCount(40_000)));
        assert_eq!((normal.kind, normal.start), (ZoneKind::Normal, Pfn(0x100000)));
    }

    #[test]
    fn senseless_zones_fall_back_to_sizes() {
        let description = machine(&zone("Normal", u64::MAX, 9, 9, 9));
        assert_eq!(description.addresses, Addresses::Assumed);
        assert!(description.machine.nodes[0].zones.is_empty());
        assert_eq!(description.topology.nodes[0].memory, [PfnRange::new(1, 100_000)]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(content in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = read(&content);
        }
    }
}
