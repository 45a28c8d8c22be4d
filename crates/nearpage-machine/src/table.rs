//! A machine as a table of TOML: groups of nodes that are alike, and rules for distances.
//!
//! ```toml
//! page_size = "16K"
//! nodes = [{ ids = "0-3", cpus_each = 8, memory = "0" }, { ids = "4", memory = "32G" }]
//! distance = { groups = [{ nodes = 2, distance = 16 }], other = 22 }
//! ```
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `page_size` | 4K to 64K | 4K |
//! | `nodes[].ids` | node ids such as `0-3,8` | |
//! | `nodes[].cpus_each` | CPUs of each of these nodes, numbered through the whole table from 0 | 0 |
//! | `nodes[].memory` | memory of each of these nodes; 0 makes them memoryless | |
//! | `distance.matrix` | one row of distances a node, in place of the other keys | |
//! | `distance.groups[]` | `distance` between nodes in the same group of that many `nodes`; the first rule that fits holds | |
//! | `distance.other` | the distance between other nodes | |
//! | `distance.local` | the distance of a node to itself | 10 |
//!
//! Values keep their place in the text ([`Spanned`]), so that a reader of a larger file, of which the table is a
//! part, can name the line of a [`TableError`].

use std::ops::Range;

use nearpage::{CpuId, NodeId};
use serde::Deserialize;
use toml::Spanned;

use crate::idlist::{self, IdListError, excerpt};
use crate::machine::{Machine, MachineNode, NODES_MAX, PAGE_BYTES_DEFAULT};
use crate::size;

/// The most CPUs that a machine may have: `NR_CPUS` of x86's largest configuration (`CONFIG_MAXSMP`).
const CPUS_MAX: u64 = 8192;

/// A machine as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineTable {
    /// The size of a page.
    pub page_size: Option<Spanned<String>>,
    /// Nodes that are alike, group by group.
    pub nodes: Spanned<Vec<NodesTable>>,
    /// Distances.
    pub distance: Spanned<DistanceTable>,
}

/// Nodes that are alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodesTable {
    ids: Spanned<String>,
    #[serde(default)]
    cpus_each: u32,
    memory: Spanned<String>,
}

/// Distances: a matrix, or rules.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistanceTable {
    local: Option<Spanned<u8>>,
    #[serde(default)]
    groups: Vec<GroupTable>,
    other: Option<u8>,
    matrix: Option<Vec<Vec<u8>>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupTable {
    nodes: Spanned<u32>,
    distance: u8,
}

/// A table that describes no machine.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{problem}")]
pub struct TableError {
    /// The bytes of the text that are wrong.
    pub span: Range<usize>,
    /// What is wrong with them.
    #[source]
    pub problem: TableProblem,
}

/// What is wrong with a table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableProblem {
    /// The text is no TOML, or lacks a key, or has one too many.
    #[error("{0}")]
    Syntax(String),
    /// A size that cannot be read.
    #[error("{key} is {found:?}; accepted: {}", size::EXPECTED)]
    Size {
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
    },
    /// A size of pages that no machine has.
    #[error("page_size is {found:?}; accepted: 4K, 8K, 16K, 32K or 64K")]
    PageSize {
        /// The size as written.
        found: String,
    },
    /// A list of node ids that cannot be read.
    #[error("ids: {0}; accepted: a list such as 0-3,8")]
    Ids(#[source] IdListError),
    /// More nodes or CPUs than a machine may have.
    #[error(
        "machine: {nodes} nodes and {cpus} CPUs up to here; accepted: {NODES_MAX} and {CPUS_MAX}"
    )]
    TooMany {
        /// Nodes so far.
        nodes: usize,
        /// CPUs so far.
        cpus: u64,
    },
    /// Two groups of nodes name the same id.
    #[error("ids: node {0} is in two groups; accepted: each node once")]
    NodeTwice(NodeId),
    /// A matrix beside rules.
    #[error(
        "machine.distance: accepted: `matrix`, or `other` with optional `local` and `groups`, not both"
    )]
    TwoDistances,
    /// A matrix that is not square, or not as large as the machine.
    #[error("machine.distance.matrix must be {nodes} rows of {nodes} distances")]
    Matrix {
        /// The machine's nodes.
        nodes: usize,
    },
    /// Neither a matrix nor rules.
    #[error(
        "machine.distance: distances are missing; accepted: `matrix`, or `other` with optional `groups`"
    )]
    NoDistances,
    /// A group of no nodes.
    #[error("groups: nodes is 0; accepted: 1 or more")]
    EmptyGroup,
}

type Checked<T> = Result<T, TableError>;

fn wrong<T>(span: Range<usize>, problem: TableProblem) -> Checked<T> {
    Err(TableError { span, problem })
}

impl MachineTable {
    /// Reads a text that is such a table and nothing else.
    ///
    /// # Errors
    ///
    /// [`TableError`] with the place in the text.
    pub fn parse(text: &str) -> Checked<MachineTable> {
        toml::from_str(text).or_else(|error: toml::de::Error| {
            let span = error.span().unwrap_or(0..0);
            wrong(span, TableProblem::Syntax(error.message().to_owned()))
        })
    }

    /// The machine that the table describes: its nodes ascending by id, its memory without addresses.
    ///
    /// # Errors
    ///
    /// [`TableError`] with the place in the text. Distances are not checked: the core does that.
    pub fn machine(&self) -> Checked<Machine> {
        let page_bytes = self.page_size.as_ref().map_or(Ok(PAGE_BYTES_DEFAULT), page_bytes)?;
        let nodes = self.nodes()?;
        let distances = self.distance.get_ref().distances(self.distance.span(), nodes.len())?;
        Ok(Machine::new(nodes, distances, page_bytes))
    }

    fn nodes(&self) -> Checked<Vec<MachineNode>> {
        let mut nodes: Vec<MachineNode> = Vec::new();
        let mut next_cpu: u32 = 0;
        for table in self.nodes.get_ref() {
            let bytes = bytes_of("memory", &table.memory)?;
            let ids = idlist::parse(table.ids.get_ref())
                .or_else(|error| wrong(table.ids.span(), TableProblem::Ids(error)))?;
            let cpus = u64::from(next_cpu) + ids.len() as u64 * u64::from(table.cpus_each);
            let count = nodes.len() + ids.len();
            if count > NODES_MAX || cpus > CPUS_MAX {
                return wrong(table.ids.span(), TableProblem::TooMany { nodes: count, cpus });
            }
            for id in ids.into_iter().map(NodeId) {
                if nodes.iter().any(|node| node.id == id) {
                    return wrong(table.ids.span(), TableProblem::NodeTwice(id));
                }
                let cpus = (next_cpu..next_cpu + table.cpus_each).map(CpuId).collect();
                next_cpu += table.cpus_each;
                nodes.push(MachineNode::new(id, cpus, Some(bytes), None));
            }
        }
        nodes.sort_by_key(|node| node.id);
        Ok(nodes)
    }
}

impl DistanceTable {
    /// Distances between so many nodes, row by row.
    fn distances(&self, span: Range<usize>, nodes: usize) -> Checked<Vec<u8>> {
        if let Some(matrix) = &self.matrix {
            if self.other.is_some() || self.local.is_some() || !self.groups.is_empty() {
                return wrong(span, TableProblem::TwoDistances);
            }
            if matrix.len() != nodes || matrix.iter().any(|row| row.len() != nodes) {
                return wrong(span, TableProblem::Matrix { nodes });
            }
            return Ok(matrix.concat());
        }
        let Some(other) = self.other else {
            return wrong(span, TableProblem::NoDistances);
        };
        if let Some(group) = self.groups.iter().find(|group| *group.nodes.get_ref() == 0) {
            return wrong(group.nodes.span(), TableProblem::EmptyGroup);
        }
        let local = self.local.as_ref().map_or(10, |local| *local.get_ref());
        let between = |from: usize, to: usize| {
            let shares = |group: &&GroupTable| {
                let size = *group.nodes.get_ref() as usize;
                from / size == to / size
            };
            self.groups.iter().find(shares).map_or(other, |group| group.distance)
        };
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        Ok(pairs.map(|(from, to)| if from == to { local } else { between(from, to) }).collect())
    }
}

fn bytes_of(key: &'static str, text: &Spanned<String>) -> Checked<u64> {
    size::parse(text.get_ref()).map_or_else(
        || wrong(text.span(), TableProblem::Size { key, found: excerpt(text.get_ref()) }),
        Ok,
    )
}

fn page_bytes(text: &Spanned<String>) -> Checked<u64> {
    let bytes = bytes_of("page_size", text)?;
    if bytes.is_power_of_two() && (4 << 10..=64 << 10).contains(&bytes) {
        return Ok(bytes);
    }
    wrong(text.span(), TableProblem::PageSize { found: excerpt(text.get_ref()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(text: &str) -> Result<Machine, (Range<usize>, String)> {
        let read = MachineTable::parse(text).and_then(|table| table.machine());
        read.map_err(|TableError { span, problem }| (span, problem.to_string()))
    }

    #[test]
    fn groups_of_nodes_and_of_distances() {
        let machine = machine(
            "page_size = \"16K\"\n\
             nodes = [{ ids = \"0,8\", cpus_each = 2, memory = \"1G\" }, { ids = \"4\", memory = \"0\" }]\n\
             distance = { groups = [{ nodes = 2, distance = 12 }], other = 30 }\n",
        )
        .unwrap();
        let ids: Vec<u32> = machine.nodes.iter().map(|node| node.id.0).collect();
        assert_eq!((ids, machine.page_bytes), (vec![0, 4, 8], 16 << 10));
        assert_eq!(machine.nodes[2].cpus, [CpuId(2), CpuId(3)]);
        assert_eq!(machine.nodes[1].memory_bytes, Some(0));
        assert_eq!(machine.distances, [10, 12, 30, 12, 10, 30, 30, 30, 10]);
        assert_eq!(machine.possible_cpus.len(), 4);
    }

    #[test]
    fn errors_have_a_place() {
        let with = |nodes: &str, distance: &str| {
            machine(&format!("nodes = [{nodes}]\ndistance = {{ {distance} }}\n")).unwrap_err()
        };
        let node = "{ ids = \"0-1\", memory = \"1G\" }";
        assert_eq!(
            with("{ ids = \"1-0\", memory = \"1G\" }", "other = 20"),
            (
                17..22,
                "ids: column 1: the range 1-0 runs backwards, expected 0-1; \
                 accepted: a list such as 0-3,8"
                    .into()
            )
        );
        assert_eq!(
            with(&format!("{node}, {{ ids = \"1\", memory = \"0\" }}"), "other = 20").1,
            "ids: node 1 is in two groups; accepted: each node once"
        );
        assert_eq!(
            with("{ ids = \"0-1024\", memory = \"1G\" }", "other = 20").1,
            "machine: 1025 nodes and 0 CPUs up to here; accepted: 1024 and 8192"
        );
        assert!(with("{ ids = \"0\", memory = \"1\" }", "other = 20").1.starts_with("memory is"));
        assert_eq!(
            with(node, "matrix = [[10]]").1,
            "machine.distance.matrix must be 2 rows of 2 distances"
        );
        assert!(with(node, "local = 10").1.contains("distances are missing"));
        assert!(with(node, "other = 20, matrix = [[10]]").1.ends_with("not both"));
        assert!(
            with(node, "other = 20, groups = [{ nodes = 0, distance = 1 }]").1.contains("is 0")
        );
        assert!(machine("page_size = \"5K\"\nnodes = []\ndistance = {}").is_err());
        assert!(machine("pages = 1").unwrap_err().1.starts_with("unknown field"));
    }
}
