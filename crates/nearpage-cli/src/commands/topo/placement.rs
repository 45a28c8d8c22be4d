//! `--verify-placement`: whether memory lies on the nodes that it was asked from.

use std::io;
use std::ptr::NonNull;

use nearpage::{Gfp, NodeId, Order, Request};
use nearpage_linux::internals::page_size;
use nearpage_linux::{
    Environment, HostMachine, Memory, MemoryError, NodeSample, PageBlock, PlacementReport,
};
use nearpage_machine::FolderTree;
use nearpage_machine::size;
use serde::Serialize;

use crate::commands::{CommandError, environment, print, print_json};
use nearpage_doctor::Room;

/// The most pages of a node that the kernel is asked about.
const PAGES_MAX: usize = 1 << 16;
/// The least memory of a node that says anything: of less, most stays free below the watermarks.
const BYTES_MIN: u64 = 2 << 20;
const MEBIBYTE: u64 = 1 << 20;

/// Placement could not be verified, or is wrong.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// So little memory that nothing would be looked at.
    #[error("--verify-placement: found {bytes} bytes, expected a size of 2M or more")]
    TooLittle {
        /// What was asked for.
        bytes: u64,
    },
    /// More memory than there is: the kernel would kill this process or another one for it.
    #[error(
        "--verify-placement: found {} on each of {nodes} nodes, and {} are available ({}), expected {}",
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
    /// The memory could not be made.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// The kernel does not tell.
    #[error("the kernel does not tell where pages are: move_pages: {0}")]
    Denied(io::Error),
    /// Some pages are elsewhere.
    #[error("{misplaced} of {placed} pages are on other nodes than asked")]
    Misplaced {
        /// How many are elsewhere.
        misplaced: u64,
        /// How many were looked at.
        placed: u64,
    },
}

impl PlacementError {
    pub(in crate::commands) fn exit_code(&self) -> u8 {
        let is_usage = matches!(self, Self::TooLittle { .. } | Self::TooMuch { .. });
        if is_usage { 2 } else { 1 }
    }
}

/// What to ask for, if no more than `most` bytes are there for each node.
fn accepted(most: u64) -> String {
    match most / MEBIBYTE {
        0 | 1 => "2M or more, which is not there".into(),
        most => format!("a size of 2M to {most}M"),
    }
}

/// Where memory is that was asked for.
struct Verified {
    report: PlacementReport,
    /// Pages of the kernel that were touched, node by node as in the report.
    touched: Vec<u64>,
    binding: String,
    /// Why there is nothing to verify, on nodes that the kernel does not know.
    note: Option<String>,
}

/// Runs the command with this much memory on each node.
pub(super) fn run(bytes: u64, json: bool) -> Result<(), CommandError> {
    if bytes < BYTES_MIN {
        return Err(PlacementError::TooLittle { bytes }.into());
    }
    let environment = environment::read()?;
    let machine = environment.machine()?;
    if let Some(room) = Room::of(&FolderTree::new("/")) {
        check_room(bytes, &machine, room)?;
    }
    let note = machine.emulated.then(|| {
        format!(
            "NEARPAGE_NUMA={} emulates these nodes: the kernel does not know them and nothing can be asked of them, so \
             what follows tells only on which real nodes their memory lies",
            environment.nodes
        )
    });
    let verified = verify(bytes, environment, note)?;
    match json {
        true => print_json(&document(&verified))?,
        false => print(&lines(&verified))?,
    }
    let sum = |of: fn(&(NodeId, NodeSample)) -> u64| verified.report.nodes.iter().map(of).sum();
    match sum(|(node, placement)| placement.misplaced(*node)) {
        misplaced if misplaced > 0 && verified.note.is_none() => {
            let placed = sum(|(_, placement)| placement.placed());
            Err(PlacementError::Misplaced { misplaced, placed }.into())
        }
        _ => Ok(()),
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

fn verify(
    bytes: u64,
    environment: Environment,
    note: Option<String>,
) -> Result<Verified, PlacementError> {
    let memory = Memory::builder().environment(environment).bytes_per_node(bytes).build()?;
    environment::tell(memory.warnings().iter().cloned());
    let nodes = memory.topology().nodes().iter().map(|node| node.id);
    let nodes: Vec<NodeId> = nodes.filter(|node| memory.managed_pages(*node).0 > 0).collect();
    // All of them are held until all were asked about.
    let blocks: Vec<Vec<PageBlock<'_>>> =
        nodes.iter().map(|&node| touch_all(&memory, node)).collect();
    let pages: Vec<Vec<NonNull<u8>>> = blocks.iter().map(|blocks| kernel_pages(blocks)).collect();
    let placed = |(&node, pages): (&NodeId, &Vec<_>)| {
        NodeSample::of_pages(&sample(pages)).map(|placement| (node, placement))
    };
    let nodes = nodes.iter().zip(&pages).map(placed).collect::<io::Result<_>>();
    Ok(Verified {
        report: PlacementReport { nodes: nodes.map_err(PlacementError::Denied)? },
        touched: pages.iter().map(|pages| pages.len() as u64).collect(),
        binding: memory.binding().to_string(),
        note,
    })
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
fn sample(pages: &[NonNull<u8>]) -> Vec<NonNull<u8>> {
    let count = pages.len().min(PAGES_MAX);
    (0..count).map(|at| pages[at * pages.len() / count]).collect()
}

fn lines(verified: &Verified) -> String {
    let Verified { report, touched, binding, note } = verified;
    let asked: u64 = report.nodes.iter().map(|(_, placement)| placement.asked_about()).sum();
    let touched: u64 = touched.iter().sum();
    let note = note.as_ref().map_or(String::new(), |note| format!("Note      {note}\n"));
    format!(
        "Binding   {binding}\n{note}Sample    {asked} of {touched} pages that were touched\n\n{report}"
    )
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    binding: &'a str,
    note: Option<&'a str>,
    nodes: Vec<Node>,
}

#[derive(Serialize)]
struct Node {
    asked: u32,
    pages: u64,
    misplaced: u64,
    untouched: u64,
    unknown: u64,
    touched: u64,
    pages_on: Vec<PagesOn>,
}

#[derive(Serialize)]
struct PagesOn {
    node: u32,
    pages: u64,
}

fn document(verified: &Verified) -> Document<'_> {
    let Verified { report, touched, binding, note } = verified;
    let pages_on = |(node, pages): (&NodeId, &u64)| PagesOn { node: node.0, pages: *pages };
    let node = |((asked, placement), touched): (&(NodeId, NodeSample), &u64)| Node {
        asked: asked.0,
        pages: placement.placed(),
        misplaced: if note.is_some() { 0 } else { placement.misplaced(*asked) },
        untouched: placement.untouched,
        unknown: placement.unknown,
        touched: *touched,
        pages_on: placement.pages_on.iter().map(pages_on).collect(),
    };
    let nodes = report.nodes.iter().zip(touched).map(node).collect();
    Document { schema: 1, binding, note: note.as_deref(), nodes }
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
            check_room(size::parse(bytes).unwrap(), &machine, room).map_err(|error| {
                assert_eq!(error.exit_code(), 2);
                error.to_string()
            })
        };
        let told = |asked, available, expected| {
            Err(format!(
                "--verify-placement: found {asked} on each of 2 nodes, and {available} are available \
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
