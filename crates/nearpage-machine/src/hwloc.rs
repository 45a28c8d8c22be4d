//! The XML of hwloc: `lstopo --of xml`, of versions 1 to 3.
//!
//! Read are the NUMA nodes with their memory, CPUs and distances, the size of a page, and the caches of the last level.
//! Where nodes share their CPUs (memory without CPUs stands beside the node that is nearest), a CPU belongs to the node
//! with the fewest CPUs, then to the one deepest in the document, then to the first by number.

use std::collections::BTreeSet;

use nearpage::{CpuId, NodeId};
use roxmltree::{Document, Node, ParsingOptions};

use crate::description::{Draft, Place};
use crate::error::{InputError, InputProblem as Problem};
use crate::machine::{LastLevelCache, Machine, NODES_MAX, Note};

const EXPECTED: &str = "the XML that `lstopo --of xml` writes";
/// The most elements and attributes of a document; one of 4096 CPUs has a twentieth.
const ELEMENTS_MAX: u32 = 4 << 20;
/// The most words of 32 bits of a set of CPUs: of 65 536.
const SET_WORDS_MAX: usize = 2048;

/// Whether a text begins as XML.
pub fn is_xml(text: &str) -> bool {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    ["<?xml", "<!DOCTYPE", "<topology"].iter().any(|tag| start.starts_with(tag))
}

/// Attributes of an element at most: the parser compares each with all others. hwloc writes some thirty.
const ATTRIBUTES_MAX: usize = 256;

/// The line of the first element with more attributes than that. What stands between two `<` has those of one element at most.
fn too_many_attributes(text: &str) -> Option<usize> {
    let mut line = 1;
    text.split('<').find_map(|element| {
        let at = line;
        line += element.bytes().filter(|byte| *byte == b'\n').count();
        let values =
            element.split('=').skip(1).filter(|value| value.trim_start().starts_with(['"', '\'']));
        (values.count() > ATTRIBUTES_MAX).then_some(at)
    })
}

/// Reads the text; `input` is its name.
pub fn parse(input: &str, text: &str) -> Result<Machine, InputError> {
    if let Some(line) = too_many_attributes(text) {
        let place = Place::Line { input: input.into(), line };
        return Err(Problem::Xml(format!("an element has more than {ATTRIBUTES_MAX} attributes"))
            .at(&place));
    }
    let options =
        ParsingOptions { allow_dtd: true, nodes_limit: ELEMENTS_MAX, ..Default::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        let position = error.pos();
        let place = Place::Column {
            input: input.into(),
            line: position.row as usize,
            column: position.col as usize,
        };
        // The message ends with the position.
        let message = error.to_string();
        let message = message.split(" at ").next().unwrap_or(&message);
        Problem::Xml(message.into()).at(&place)
    })?;
    let breaks =
        text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at).collect();
    Reader { input, breaks }.read(&document)
}

/// What finds the line of an element.
struct Reader<'a> {
    input: &'a str,
    /// Where lines end.
    breaks: Vec<usize>,
}

/// A NUMA node of the document.
struct Memory {
    id: NodeId,
    cpus: Vec<u32>,
    /// How many elements are around it.
    depth: usize,
    bytes: u64,
    place: Place,
}

impl Reader<'_> {
    fn place(&self, element: Node<'_, '_>) -> Place {
        let line = self.breaks.partition_point(|&end| end < element.range().start) + 1;
        Place::Line { input: self.input.into(), line }
    }

    fn read(&self, document: &Document<'_>) -> Result<Machine, InputError> {
        let root = document.root_element();
        if !root.has_tag_name("topology") {
            return Err(Problem::syntax(root.tag_name().name(), EXPECTED).at(&self.place(root)));
        }
        // Version 1 says none.
        let version = root.attribute("version").unwrap_or("1");
        if !matches!(version.split('.').next(), Some("1" | "2" | "3")) {
            let found = format!("version {version}");
            let accepted = "version 1, 2 or 3 of hwloc's XML";
            return Err(Problem::syntax(&found, accepted).at(&self.place(root)));
        }
        let objects: Vec<Node<'_, '_>> =
            root.descendants().filter(|element| element.has_tag_name("object")).collect();
        let of_type = |name: &'static str| {
            objects.iter().copied().filter(move |object| object.attribute("type") == Some(name))
        };
        // One more than allowed, which the draft refuses.
        let mut elements: Vec<Node<'_, '_>> = of_type("NUMANode").take(NODES_MAX + 1).collect();
        let machine_object = of_type("Machine").next();
        if elements.is_empty() {
            // Version 1 has no object for the only node.
            elements.extend(machine_object);
        }
        let memories: Vec<Memory> =
            elements.iter().map(|&element| self.memory(element)).collect::<Result<_, _>>()?;
        let mut draft = Draft::default();
        let owners = owners(&memories);
        for memory in &memories {
            draft.set_memory(memory.id, Some(memory.bytes), &memory.place)?;
            let cpus = memory
                .cpus
                .iter()
                .copied()
                .filter(|cpu| owners[*cpu as usize] == Some(memory.id))
                .collect();
            draft.set_cpus(memory.id, cpus, &memory.place)?;
        }
        let has_distances =
            self.distances(root, machine_object, &elements, &memories, &mut draft)?;
        let mut machine = draft.finish(&Place::Input(self.input.into()), EXPECTED)?;
        if !has_distances && machine.nodes.len() > 1 {
            let nodes = machine.nodes.iter().map(|node| node.id.0).collect();
            machine.notes.push(Note::DistancesAssumed { nodes });
        }
        if let Some(bytes) = self.page_bytes(root)? {
            machine.page_bytes = bytes;
        }
        machine.last_level_caches = self.caches(&objects, &machine)?;
        if let Some(object) = machine_object {
            self.add_possible(object, &mut machine)?;
        }
        Ok(machine)
    }

    fn memory(&self, object: Node<'_, '_>) -> Result<Memory, InputError> {
        let place = self.place(object);
        let id = match (object.attribute("type"), self.number(object, "os_index")?) {
            (Some("Machine"), _) => 0,
            (_, Some(id)) => u32::try_from(id)
                .map_err(|_| Problem::syntax(&id.to_string(), "the number of a node").at(&place))?,
            (_, None) => {
                return Err(
                    Problem::syntax("<object type=\"NUMANode\">", "its os_index").at(&place)
                );
            }
        };
        let bytes = self.number(object, "local_memory")?.unwrap_or(0);
        let depth = object.ancestors().take(NODES_MAX).count();
        Ok(Memory { id: NodeId(id), cpus: self.set(object, "cpuset")?, depth, bytes, place })
    }

    fn number(&self, object: Node<'_, '_>, name: &str) -> Result<Option<u64>, InputError> {
        let Some(text) = object.attribute(name) else { return Ok(None) };
        match whole(text) {
            Some(value) => Ok(Some(value)),
            None => {
                let expected = format!("a whole number as {name}");
                Err(Problem::syntax(text, expected).at(&self.place(object)))
            }
        }
    }

    /// A set in hwloc's format, words of 32 bits in hexadecimal, the highest first: `0x0000000f,,0x00000001`.
    fn set(&self, object: Node<'_, '_>, name: &str) -> Result<Vec<u32>, InputError> {
        let text = object.attribute(name).unwrap_or_default();
        let mut ids = Vec::new();
        for (position, word) in text.rsplit(',').enumerate() {
            let digits = word.trim().strip_prefix("0x").unwrap_or(word.trim());
            let is_hexadecimal = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let bits = match digits {
                "" => Some(0),
                _ if is_hexadecimal => u32::from_str_radix(digits, 16).ok(),
                _ => None,
            };
            let Some(bits) = bits.filter(|_| position < SET_WORDS_MAX) else {
                let expected = format!("a set such as 0x00000001,0x0000000f as {name}");
                return Err(Problem::syntax(word, expected).at(&self.place(object)));
            };
            let base = position as u32 * 32;
            ids.extend((0..32).filter(|bit| bits >> bit & 1 != 0).map(|bit| base + bit));
        }
        Ok(ids)
    }

    /// Reads the distances between nodes, if there are some.
    fn distances(
        &self,
        root: Node<'_, '_>,
        machine: Option<Node<'_, '_>>,
        elements: &[Node<'_, '_>],
        memories: &[Memory],
        draft: &mut Draft,
    ) -> Result<bool, InputError> {
        if memories.len() < 2 {
            return Ok(false);
        }
        let is_of_nodes = |table: &Node<'_, '_>| {
            // Bit 2 of the kind: the values are latencies.
            let is_latency = table.attribute("name") == Some("NUMALatency")
                || table.attribute("kind").and_then(whole).is_some_and(|kind| kind & 4 != 0);
            table.attribute("type") == Some("NUMANode") && is_latency
        };
        let second =
            root.children().filter(|child| child.has_tag_name("distances2")).find(is_of_nodes);
        let count = memories.len().to_string();
        let first = machine.into_iter().flat_map(|machine| machine.children()).find(|child| {
            child.has_tag_name("distances") && child.attribute("nbobjs") == Some(count.as_str())
        });
        let (table, ids, values) = match (second, first) {
            (Some(table), _) => {
                let place = self.place(table);
                let is_by_object = table.attribute("indexing") == Some("gp");
                let ids = self.words(table, "indexes").map(|word| {
                    let known =
                        elements.iter().zip(memories).find(
                            |(element, memory)| match is_by_object {
                                true => element.attribute("gp_index") == Some(word),
                                false => Some(u64::from(memory.id.0)) == whole(word),
                            },
                        );
                    let unknown = || Problem::syntax(word, "the index of a NUMANode").at(&place);
                    known.map(|(_, memory)| memory.id).ok_or_else(unknown)
                });
                let ids = ids.collect::<Result<Vec<NodeId>, _>>()?;
                let values = self.words(table, "u64values").map(|word| {
                    whole(word).ok_or_else(|| Problem::syntax(word, "a distance").at(&place))
                });
                (table, ids, values.collect::<Result<Vec<u64>, _>>()?)
            }
            (None, Some(table)) => {
                let base = table.attribute("latency_base").unwrap_or("1");
                let values = table.children().filter(|child| child.has_tag_name("latency"));
                let values = values.map(|latency| self.latency(latency, base));
                (
                    table,
                    memories.iter().map(|memory| memory.id).collect(),
                    values.collect::<Result<_, _>>()?,
                )
            }
            (None, None) => return Ok(false),
        };
        let place = self.place(table);
        if ids.len() > NODES_MAX || values.len() != ids.len() * ids.len() {
            let found = format!("{} distances", values.len());
            let expected = format!("one from each of {} nodes to each", ids.len());
            return Err(Problem::syntax(&found, expected).at(&place));
        }
        for (row, &from) in ids.iter().enumerate() {
            for (column, &to) in ids.iter().enumerate() {
                draft.set_distance(from, to, values[row * ids.len() + column], &place)?;
            }
        }
        Ok(true)
    }

    /// The words of all children of a name.
    fn words<'a>(&self, table: Node<'a, '_>, name: &'static str) -> impl Iterator<Item = &'a str> {
        let children = table.children().filter(move |child| child.has_tag_name(name));
        children.filter_map(|child| child.text()).flat_map(str::split_ascii_whitespace)
    }

    /// A latency of version 1, which is divided by that of a node to itself.
    fn latency(&self, latency: Node<'_, '_>, base: &str) -> Result<u64, InputError> {
        let value = latency.attribute("value").unwrap_or_default();
        let product = value.parse::<f64>().ok().zip(base.parse::<f64>().ok()).map(|(a, b)| a * b);
        match product {
            Some(distance) if (0.0..=255.0).contains(&distance) => Ok(distance.round() as u64),
            _ => Err(Problem::syntax(value, "a distance up to 255").at(&self.place(latency))),
        }
    }

    /// The smallest size of a page.
    fn page_bytes(&self, root: Node<'_, '_>) -> Result<Option<u64>, InputError> {
        let mut smallest = None;
        for element in root.descendants().filter(|element| element.has_tag_name("page_type")) {
            let Some(bytes) = self.number(element, "size")? else { continue };
            if !bytes.is_power_of_two() || !(4096..=1 << 40).contains(&bytes) {
                let expected = "a power of two from 4096 up as size";
                return Err(Problem::syntax(&bytes.to_string(), expected).at(&self.place(element)));
            }
            smallest = Some(smallest.map_or(bytes, |least: u64| least.min(bytes)));
        }
        Ok(smallest)
    }

    /// The caches of the highest level that has one.
    fn caches(
        &self,
        objects: &[Node<'_, '_>],
        machine: &Machine,
    ) -> Result<Vec<LastLevelCache>, InputError> {
        let level = |object: &Node<'_, '_>| -> Option<u8> {
            let data = object.attribute("cache_type") != Some("2");
            match object.attribute("type")? {
                "Cache" if data => object.attribute("depth")?.parse().ok(),
                "L1Cache" => Some(1),
                "L2Cache" => Some(2),
                "L3Cache" => Some(3),
                "L4Cache" => Some(4),
                "L5Cache" => Some(5),
                _ => None,
            }
        };
        let Some(last) = objects.iter().filter_map(level).max() else { return Ok(Vec::new()) };
        let known: BTreeSet<CpuId> =
            machine.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        let mut caches = Vec::new();
        for &object in objects.iter().filter(|object| level(object) == Some(last)) {
            let cpus = self.set(object, "cpuset")?.into_iter().map(CpuId);
            let cpus: Vec<CpuId> = cpus.filter(|cpu| known.contains(cpu)).collect();
            let Some(bytes) = self.number(object, "cache_size")?.filter(|_| !cpus.is_empty())
            else {
                continue;
            };
            caches.push(LastLevelCache { bytes, cpus });
        }
        Ok(caches)
    }

    /// Adds the nodes and CPUs that may come online.
    fn add_possible(&self, object: Node<'_, '_>, machine: &mut Machine) -> Result<(), InputError> {
        let cpus = self.set(object, "complete_cpuset")?.into_iter().map(CpuId);
        let cpus: BTreeSet<CpuId> = machine.possible_cpus.iter().copied().chain(cpus).collect();
        machine.possible_cpus = cpus.into_iter().collect();
        let nodes = self.set(object, "complete_nodeset")?.into_iter().map(NodeId);
        let nodes: BTreeSet<NodeId> = machine.possible_nodes.iter().copied().chain(nodes).collect();
        machine.possible_nodes = nodes.into_iter().collect();
        Ok(())
    }
}

/// The node of each CPU.
fn owners(memories: &[Memory]) -> Vec<Option<NodeId>> {
    let mut by_claim: Vec<&Memory> = memories.iter().collect();
    by_claim.sort_by_key(|memory| (memory.cpus.len(), usize::MAX - memory.depth, memory.id));
    let mut owners = vec![None; SET_WORDS_MAX * 32];
    for memory in by_claim {
        for &cpu in &memory.cpus {
            owners[cpu as usize].get_or_insert(memory.id);
        }
    }
    owners
}

/// A whole number; `parse` alone would accept a sign.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
