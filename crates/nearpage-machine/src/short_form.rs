//! The short form of a machine: `--numa 2G,cpus=0-1 --numa 0,cpus=2 --numa-distance 0,1=21`.
//!
//! Users of virtme-ng and QEMU write machines like this. The Nth `--numa` is node N, from 0. CPUs are optional. A list
//! of CPUs may have several parts (`cpus=0-1,4-5` or `cpus=0-1,cpus=4-5`). A distance counts for both directions unless
//! the text gives the other one too. A distance that is not given is 20. In a file the words stand on one line or on
//! several, and `#` starts a comment. A program may also hand over the values alone ([`parse_options`]).

use nearpage::NodeId;

use crate::description::{DescriptionError, DescriptionProblem as Problem, Draft, Place};
use crate::machine::{Machine, PAGE_BYTES_DEFAULT};
use crate::{idlist, size};

const EXPECTED: &str = "--numa SIZE[,cpus=LIST] and --numa-distance NODE,NODE=DISTANCE";
const EXPECTED_NODE: &str = "SIZE[,cpus=LIST] such as 2G,cpus=0-1";
const EXPECTED_DISTANCE: &str = "NODE,NODE=DISTANCE such as 0,1=21";

/// Reads the values of `--numa` and of `--numa-distance`, without these words.
///
/// # Errors
///
/// [`DescriptionError`] counts the values up to the wrong one ([`Place::NodeValue`], [`Place::DistanceValue`]).
pub fn parse_options(nodes: &[String], distances: &[String]) -> Result<Machine, DescriptionError> {
    let mut draft = Draft::default();
    for (id, value) in (0..).map(NodeId).zip(nodes) {
        let place = Place::NodeValue(id.0 as usize + 1);
        add_node(&mut draft, id, value, &place)?;
    }
    for (index, value) in distances.iter().enumerate() {
        let place = Place::DistanceValue(index + 1);
        add_distance(&mut draft, value, &place)?;
    }
    draft.finish(&Place::Values, EXPECTED)
}

/// Reads a text in the short form; `input` is its name in messages.
///
/// # Errors
///
/// [`DescriptionError`] names the line.
pub fn parse_text(input: &str, text: &str) -> Result<Machine, DescriptionError> {
    let mut draft = Draft::default();
    let mut nodes = (0..).map(NodeId);
    for (index, line) in text.lines().enumerate() {
        let place = Place::Line { input: input.into(), line: index + 1 };
        let line = line.split_once('#').map_or(line, |(options, _comment)| options);
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            let (option, value) = match word.split_once('=') {
                // The `=` of `--numa=2G,cpus=0-1`, not one of the value.
                Some((option, value)) if option.starts_with("--") => (option, Some(value)),
                _ => (word, words.next()),
            };
            let value =
                || value.ok_or_else(|| Problem::syntax(word, format!("{word} VALUE")).at(&place));
            match option {
                "--numa" => {
                    let id = nodes.next().expect("too many nodes are refused long before");
                    add_node(&mut draft, id, value()?, &place)?;
                }
                "--numa-distance" => add_distance(&mut draft, value()?, &place)?,
                _ => return Err(Problem::syntax(word, EXPECTED).at(&place)),
            }
        }
    }
    draft.finish(&Place::Input(input.into()), EXPECTED)
}

/// Reads `2G,cpus=0-1`.
fn add_node(
    draft: &mut Draft,
    id: NodeId,
    value: &str,
    place: &Place,
) -> Result<(), DescriptionError> {
    let mut parts = value.split(',');
    // `split` yields a first part even for an empty text.
    draft.set_memory(id, Some(parse_size(parts.next().unwrap_or(""), place)?), place)?;
    let mut cpus = Vec::new();
    let mut in_list = false;
    for part in parts {
        let list = match part.strip_prefix("cpus=") {
            Some(list) => list,
            None if in_list => part,
            None => return Err(Problem::syntax(part, EXPECTED_NODE).at(place)),
        };
        in_list = true;
        cpus.extend(parse_ids(list, place)?);
    }
    draft.set_cpus(id, cpus, place)
}

fn parse_size(text: &str, place: &Place) -> Result<u64, DescriptionError> {
    match size::parse(text) {
        Some(bytes) if bytes.is_multiple_of(PAGE_BYTES_DEFAULT) => Ok(bytes),
        Some(_) => Err(Problem::syntax(text, "a multiple of the page size, 4K").at(place)),
        None => Err(Problem::syntax(text, size::EXPECTED).at(place)),
    }
}

/// A list of CPUs that is not empty.
fn parse_ids(list: &str, place: &Place) -> Result<Vec<u32>, DescriptionError> {
    if list.is_empty() {
        return Err(Problem::syntax(list, "CPUs such as 0-3").at(place));
    }
    idlist::parse(list)
        .map_err(|error| Problem::Ids { list: list.into(), problem: error.problem }.at(place))
}

/// Reads `0,1=21`.
fn add_distance(draft: &mut Draft, value: &str, place: &Place) -> Result<(), DescriptionError> {
    let parts = value.split_once('=').and_then(|(pair, distance)| {
        let (from, to) = pair.split_once(',')?;
        Some((from.parse().ok()?, to.parse().ok()?, distance.parse().ok()?))
    });
    let Some((from, to, distance)) = parts else {
        return Err(Problem::syntax(value, EXPECTED_DISTANCE).at(place));
    };
    draft.set_distance(NodeId(from), NodeId(to), distance, place)
}

#[cfg(test)]
mod tests {
    use nearpage::CpuId;
    use proptest::prelude::*;

    use super::*;

    fn options(nodes: &[&str], distances: &[&str]) -> Result<Machine, String> {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        parse_options(&owned(nodes), &owned(distances)).map_err(|error| error.to_string())
    }

    fn text(text: &str) -> Result<Machine, String> {
        parse_text("lab.numa", text).map_err(|error| error.to_string())
    }

    #[test]
    fn nodes_are_numbered_in_order() {
        let machine = options(&["2G,cpus=0-1,4", "0,cpus=2,cpus=3", "512M"], &["0,1=21"]).unwrap();
        let memory: Vec<_> = machine.nodes.iter().map(|node| node.memory_bytes.unwrap()).collect();
        assert_eq!(memory, [2 << 30, 0, 512 << 20]);
        assert_eq!(machine.nodes[0].cpus, [0, 1, 4].map(CpuId));
        assert_eq!(machine.nodes[1].cpus, [2, 3].map(CpuId));
        assert_eq!(machine.nodes[2].cpus, []);
        assert_eq!(machine.distances, [10, 21, 20, 21, 10, 20, 20, 20, 10]);
        assert_eq!(machine.notes, []);
    }

    #[test]
    fn distances_may_differ_by_direction() {
        let machine = options(&["1G", "1G"], &["1,0=30", "0,1=21"]).unwrap();
        assert_eq!(machine.distances, [10, 21, 30, 10]);
    }

    #[test]
    fn texts_have_lines_and_comments() {
        let one_line = text("--numa 2G,cpus=0-1 --numa=0,cpus=2 --numa-distance 0,1=21").unwrap();
        let lines = text(
            "# two sockets\n\n--numa 2G,cpus=0-1\r\n  --numa 0,cpus=2  # memoryless\n--numa-distance=0,1=21\n",
        )
        .unwrap();
        assert_eq!(one_line, lines);
    }

    #[test]
    fn errors_name_the_line_or_value() {
        assert_eq!(
            text("--numa 2G,cpus=0-1\n--numa 2G,cpus=1-2\n").unwrap_err(),
            "lab.numa:2: CPU 1 is already on node 0, expected each CPU on one node"
        );
        assert_eq!(
            options(&["2G,cpus=0-1", "2G,cpus=1-2"], &[]).unwrap_err(),
            "node number 2: CPU 1 is already on node 0, expected each CPU on one node"
        );
        assert_eq!(
            text("--numa 2\n").unwrap_err(),
            "lab.numa:1: found \"2\", expected a size such as 0, 512M, 2G or 1T"
        );
        assert_eq!(
            text("--numa 5K\n").unwrap_err(),
            "lab.numa:1: found \"5K\", expected a multiple of the page size, 4K"
        );
        assert_eq!(
            text("--numa 1G,cpu=1\n").unwrap_err(),
            "lab.numa:1: found \"cpu=1\", expected SIZE[,cpus=LIST] such as 2G,cpus=0-1"
        );
        assert_eq!(
            text("--numa 1G,cpus=1-x\n").unwrap_err(),
            "lab.numa:1: in \"1-x\": found \"1-x\", expected an id such as 0 or a range such as 0-3"
        );
        assert_eq!(
            text("\n--numa 1G,cpus=3-1\n").unwrap_err(),
            "lab.numa:2: in \"3-1\": the range 3-1 runs backwards, expected 1-3"
        );
        assert_eq!(
            text("--numa 1G\n--numa-distance 0,2=20").unwrap_err(),
            "lab.numa:2: node 2 is not there, expected some of 0"
        );
        assert_eq!(
            text("--numa 1G --numa 1G\n\n--numa-distance 0,1=9").unwrap_err(),
            "lab.numa:3: the distance from node 0 to node 1 is 9, expected 10 to 255"
        );
        assert_eq!(
            text("--numa 1G --numa-distance 0,0=11").unwrap_err(),
            "lab.numa:1: the distance of node 0 to itself is 11, expected 10"
        );
        assert_eq!(
            text("--numa 1G --numa-distance 0-0=11").unwrap_err(),
            "lab.numa:1: found \"0-0=11\", expected NODE,NODE=DISTANCE such as 0,1=21"
        );
        assert_eq!(
            options(&["1G", "1G"], &["0,1=20", "0,1=30"]).unwrap_err(),
            "distance number 2: the distance from node 0 to node 1 is given again, \
             expected it once"
        );
        assert_eq!(
            text("--memory 1G").unwrap_err(),
            "lab.numa:1: found \"--memory\", expected --numa SIZE[,cpus=LIST] and \
             --numa-distance NODE,NODE=DISTANCE"
        );
        assert_eq!(
            text("--numa").unwrap_err(),
            "lab.numa:1: found \"--numa\", expected --numa VALUE"
        );
        assert_eq!(
            text("# nothing\n").unwrap_err(),
            "lab.numa: describes no node, expected --numa SIZE[,cpus=LIST] and \
             --numa-distance NODE,NODE=DISTANCE"
        );
    }

    #[test]
    fn machines_have_no_more_nodes_than_linux() {
        let nodes = "--numa 4K\n".repeat(1024);
        assert_eq!(text(&nodes).unwrap().nodes.len(), 1024);
        assert_eq!(
            text(&(nodes + "--numa 4K\n--numa 4K\n")).unwrap_err(),
            "lab.numa:1025: one node more than 1024, expected at most 1024, as Linux has (MAX_NUMNODES)"
        );
        let options = vec!["4K".to_owned(); 1025];
        assert_eq!(
            parse_options(&options, &[]).unwrap_err().to_string(),
            "node number 1025: one node more than 1024, expected at most 1024, as Linux has (MAX_NUMNODES)"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "\\PC{0,40}|(--numa(-distance)?[ =][0-9KMGT,=cpus-]{0,12}[ \n]){0,6}",
        ) {
            let _ = parse_text("random", &text);
        }
    }
}
