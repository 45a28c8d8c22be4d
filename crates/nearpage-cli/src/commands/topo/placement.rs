//! `--verify-placement`: whether memory lies on the nodes that it was asked from.

use std::process::ExitCode;

use nearpage::alloc::Request;
use nearpage::gfp::Gfp;
use nearpage::units::{NodeId, Order};
use nearpage_linux::placement::{Placement, PlacementReport};
use nearpage_linux::{Memory, MemoryError};
use serde::Serialize;

use crate::commands::CommandError;

/// The most pages of a node that the kernel is asked about.
const PAGES_MAX: u64 = 1 << 16;
/// The least memory of a node that says anything: of less, most stays free below the watermarks.
const BYTES_MIN: u64 = 2 << 20;

/// Placement could not be verified, or is wrong.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// So little memory that nothing would be looked at.
    #[error("--verify-placement: found {bytes} bytes, expected a size of 2M or more")]
    TooLittle {
        /// What was asked for.
        bytes: u64,
    },
    /// The memory could not be made.
    #[error("{0}")]
    Memory(#[from] MemoryError),
    /// The kernel does not tell.
    #[error("the kernel does not tell where pages are: move_pages: {0}")]
    Denied(std::io::Error),
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
    pub(in crate::commands) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if matches!(self, Self::TooLittle { .. }) { 2 } else { 1 })
    }
}

/// Runs the command with this much memory on each node.
pub(super) fn run(bytes: u64, json: bool) -> Result<(), CommandError> {
    let (report, binding) = verify(bytes)?;
    let text = if json { document(&report, &binding) } else { lines(&report, &binding) };
    super::super::print(&text)?;
    let sum = |of: fn(&(NodeId, Placement)) -> u64| report.nodes.iter().map(of).sum();
    match sum(|(node, placement)| placement.misplaced(*node)) {
        0 => Ok(()),
        misplaced => {
            let placed = sum(|(_, placement)| placement.placed());
            Err(PlacementError::Misplaced { misplaced, placed }.into())
        }
    }
}

fn verify(bytes: u64) -> Result<(PlacementReport, String), PlacementError> {
    if bytes < BYTES_MIN {
        return Err(PlacementError::TooLittle { bytes });
    }
    let memory = Memory::builder().bytes_per_node(bytes).build()?;
    let nodes: Vec<NodeId> = memory.topology().nodes().iter().map(|node| node.id).collect();
    let mut blocks = Vec::new();
    for node in nodes {
        let all = Gfp::HIGHUSER_MOVABLE.or(Gfp::THISNODE).or(Gfp::NORETRY);
        while let Ok(mut block) = memory.alloc(Request::new(Order(0), all).on(node)) {
            block[0] = 1;
            blocks.push(block);
        }
    }
    let report = memory.verify_placement(PAGES_MAX).map_err(PlacementError::Denied)?;
    Ok((report, memory.binding().to_string()))
}

fn lines(report: &PlacementReport, binding: &str) -> String {
    format!("Binding   {binding}\n\n{report}")
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    binding: &'a str,
    nodes: Vec<Node>,
}

#[derive(Serialize)]
struct Node {
    asked: u32,
    pages: u64,
    misplaced: u64,
    untouched: u64,
    unknown: u64,
    pages_on: Vec<PagesOn>,
}

#[derive(Serialize)]
struct PagesOn {
    node: u32,
    pages: u64,
}

fn document(report: &PlacementReport, binding: &str) -> String {
    let pages_on = |(node, pages): (&NodeId, &u64)| PagesOn { node: node.0, pages: *pages };
    let node = |(asked, placement): &(NodeId, Placement)| Node {
        asked: asked.0,
        pages: placement.placed(),
        misplaced: placement.misplaced(*asked),
        untouched: placement.untouched,
        unknown: placement.unknown,
        pages_on: placement.pages_on.iter().map(pages_on).collect(),
    };
    let document = Document { schema: 1, binding, nodes: report.nodes.iter().map(node).collect() };
    let text = serde_json::to_string_pretty(&document);
    text.expect("plain numbers and strings can be written") + "\n"
}
