//! Whether memory lies on the nodes that it was asked from.

use std::io;
use std::ptr::NonNull;

use nearpage::{Gfp, NodeId, Order, Request};
use nearpage_linux::internals::page_size;
use nearpage_linux::{
    Environment, EnvironmentError, HostMachine, Memory, MemoryError, NodeSample, PageBlock,
    PlacementReport, Warning,
};
use nearpage_machine::{FolderTree, size};
use serde::Serialize;

use crate::room::Room;

/// The most pages of a node that the kernel is asked about.
const PAGES_MAX: usize = 1 << 16;
/// The least memory of a node that says anything: of less, most stays free below the watermarks.
const BYTES_MIN: u64 = 2 << 20;
const MEBIBYTE: u64 = 1 << 20;

/// Why placement could not be verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// So little memory that nothing would be looked at.
    #[error("found {bytes} bytes, expected a size of 2M or more")]
    TooLittle {
        /// What was asked for.
        bytes: u64,
    },
    /// More memory than there is: the kernel would kill this process or another one for it.
    #[error(
        "found {} on each of {nodes} nodes, and {} are available ({}), expected {}",
        size::format(*bytes),
        size::format(room.bytes),
        room.source,
        accepted(*most)
    )]
    TooMuch {
        /// What was asked for.
        bytes: u64,
        /// On how many nodes.
        nodes: u64,
        /// What there is.
        room: Room,
        /// The most that is accepted.
        most: u64,
    },
    /// The environment describes no machine.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The memory could not be made.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The kernel does not tell.
    #[error("the kernel does not tell where pages are: move_pages: {0}")]
    Denied(#[source] io::Error),
}

/// What to ask for, if no more than `most` bytes are there for each node.
fn accepted(most: u64) -> String {
    match most / MEBIBYTE {
        0 | 1 => "2M or more, which is not there".into(),
        most => format!("a size of 2M to {most}M"),
    }
}

/// Where memory is that was asked from each node and touched. Its JSON is that of `topo --verify-placement`.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct VerifiedPlacement {
    /// The version of the JSON: 1. Fields are added without another number.
    pub schema: u32,
    /// How memory is bound, and why.
    pub binding: String,
    /// Why there is nothing to verify, on nodes that the kernel does not know.
    pub note: Option<String>,
    /// The nodes with memory.
    pub nodes: Vec<NodePlacement>,
    /// The sample that the kernel was asked about.
    #[serde(skip)]
    pub sample: PlacementReport,
    /// What did not go as the environment asks.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// Where the memory of a node is, in the kernel's pages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct NodePlacement {
    /// The node that the memory was asked from.
    pub asked: u32,
    /// Pages of the sample whose node is known.
    pub pages: u64,
    /// Those of them on other nodes; 0 of emulated nodes.
    pub misplaced: u64,
    /// Pages of the sample without memory.
    pub untouched: u64,
    /// Pages of the sample about which the kernel said nothing.
    pub unknown: u64,
    /// All pages that were touched; the sample is of these.
    pub touched: u64,
    /// The pages by the node that they are on.
    pub pages_on: Vec<PagesOn>,
}

/// Pages on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct PagesOn {
    /// The node.
    pub node: u32,
    /// How many pages.
    pub pages: u64,
}

impl VerifiedPlacement {
    /// Takes this much memory from each node as `environment` asks, touches it, asks the kernel where it is, and gives it
    /// back.
    ///
    /// # Errors
    ///
    /// There is less memory, none can be made, or the kernel does not tell.
    pub fn of(environment: &Environment, bytes: u64) -> Result<VerifiedPlacement, PlacementError> {
        if bytes < BYTES_MIN {
            return Err(PlacementError::TooLittle { bytes });
        }
        let machine = environment.machine()?;
        if let Some(room) = Room::of(&FolderTree::new("/")) {
            check_room(bytes, &machine, room)?;
        }
        let note = machine.emulated.then(|| {
            format!(
                "NEARPAGE_NUMA={} emulates these nodes: the kernel does not know them and nothing can be asked of them, \
                 so what follows tells only on which real nodes their memory lies",
                environment.nodes
            )
        });
        let memory =
            Memory::builder().environment(environment.clone()).bytes_per_node(bytes).build()?;
        let nodes = memory.topology().nodes().iter().map(|node| node.id);
        let nodes: Vec<NodeId> = nodes.filter(|node| memory.managed_pages(*node).0 > 0).collect();
        // All of them are held until all were asked about.
        let blocks: Vec<Vec<PageBlock<'_>>> =
            nodes.iter().map(|&node| touch_all(&memory, node)).collect();
        let pages: Vec<Vec<NonNull<u8>>> =
            blocks.iter().map(|blocks| kernel_pages(blocks)).collect();
        let placed = |(&node, pages): (&NodeId, &Vec<_>)| {
            NodeSample::of_pages(&spread(pages)).map(|placement| (node, placement))
        };
        let sampled = nodes.iter().zip(&pages).map(placed).collect::<io::Result<Vec<_>>>();
        let sample = PlacementReport { nodes: sampled.map_err(PlacementError::Denied)? };
        let touched = pages.iter().map(|pages| pages.len() as u64);
        let nodes = sample.nodes.iter().zip(touched);
        Ok(VerifiedPlacement {
            schema: 1,
            binding: memory.binding().to_string(),
            nodes: nodes
                .map(|(of, touched)| NodePlacement::of(of, touched, note.is_some()))
                .collect(),
            note,
            warnings: memory.warnings().to_vec(),
            sample,
        })
    }

    /// Pages of the sample on other nodes than asked.
    pub fn misplaced(&self) -> u64 {
        self.nodes.iter().map(|node| node.misplaced).sum()
    }
}

impl NodePlacement {
    fn of(
        (asked, sample): &(NodeId, NodeSample),
        touched: u64,
        is_emulated: bool,
    ) -> NodePlacement {
        let pages_on = |(node, pages): (&NodeId, &u64)| PagesOn { node: node.0, pages: *pages };
        NodePlacement {
            asked: asked.0,
            pages: sample.placed(),
            misplaced: if is_emulated { 0 } else { sample.misplaced(*asked) },
            untouched: sample.untouched,
            unknown: sample.unknown,
            touched,
            pages_on: sample.pages_on.iter().map(pages_on).collect(),
        }
    }
}

/// Whether there is room for that much on each node, and a sixteenth of the room for what describes the pages, the
/// kernel's page tables and everybody else.
fn check_room(bytes: u64, machine: &HostMachine, room: Room) -> Result<(), PlacementError> {
    let nodes = machine.nodes.iter().filter(|node| node.has_memory).count() as u64;
    let most = (room.bytes - room.bytes / 16) / nodes.max(1);
    if bytes > most {
        return Err(PlacementError::TooMuch { bytes, nodes, room, most });
    }
    Ok(())
}

/// Takes all that a node gives, and writes to each page.
fn touch_all(memory: &Memory, node: NodeId) -> Vec<PageBlock<'_>> {
    let all = Gfp::HIGHUSER_MOVABLE.union(Gfp::THISNODE).union(Gfp::NORETRY);
    let take = || {
        let mut block = memory.alloc(Request::new(Order(0), all).on(node)).ok()?;
        block[0] = 1;
        Some(block)
    };
    std::iter::from_fn(take).collect()
}

/// The blocks that begin a page of the kernel, which may be larger than theirs.
fn kernel_pages(blocks: &[PageBlock<'_>]) -> Vec<NonNull<u8>> {
    let starts = blocks.iter().map(PageBlock::as_ptr);
    starts.filter(|start| start.as_ptr().addr().is_multiple_of(page_size())).collect()
}

/// Some of them, evenly spread.
fn spread(pages: &[NonNull<u8>]) -> Vec<NonNull<u8>> {
    let count = pages.len().min(PAGES_MAX);
    (0..count).map(|at| pages[at * pages.len() / count]).collect()
}

#[cfg(test)]
mod tests {
    use nearpage_linux::HostNode;
    use nearpage_machine::size;

    use super::*;

    #[test]
    fn more_than_there_is_is_refused_with_what_is_accepted() {
        let node = |id, has_memory| HostNode { id: NodeId(id), cpus: Vec::new(), has_memory };
        let nodes = vec![node(0, true), node(1, false), node(2, true)];
        let machine = HostMachine { nodes, distances: vec![10; 9], emulated: false };
        let check = |bytes, available| {
            let room = Room { bytes: available, source: "memory.max in /a".into() };
            check_room(size::parse(bytes).unwrap(), &machine, room)
                .map_err(|error| error.to_string())
        };
        let told = |asked, available, expected| {
            Err(format!(
                "found {asked} on each of 2 nodes, and {available} are available \
                 (memory.max in /a), expected {expected}"
            ))
        };
        assert_eq!(check("480M", 1 << 30), Ok(()));
        assert_eq!(check("481M", 1 << 30), told("481 MiB", "1 GiB", "a size of 2M to 480M"));
        let most = told("16777215 TiB", "1 GiB", "a size of 2M to 480M");
        assert_eq!(check("16777215T", 1 << 30), most);
        let none = "2M or more, which is not there";
        assert_eq!(check("2M", 1 << 20), told("2 MiB", "1 MiB", none));
    }
}
