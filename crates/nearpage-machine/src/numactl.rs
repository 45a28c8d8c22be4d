//! The text that `numactl --hardware` prints.
//!
//! ```text
//! available: 3 nodes (0,8,252)
//! node 0 cpus: 0 1 2 3
//! node 0 size: 126801 MB
//! node 0 free: 100000 MB
//! ...
//! node distances:
//! node     0    8  252
//!    0:   10   40   80
//! ```
//!
//! The reader also understands `--cpu-compress` lists (`0-3, 8-11 (8)`), `<not available>`, columns of any width,
//! tables that are not symmetric, texts without a table (old versions, `No distance information available.`),
//! libnuma's warnings, blank and comment lines, and what a paste puts around it: quotes, prompts, other commands, broken lists, the
//! same text twice.

mod pasted;

use nearpage::NodeId;

use crate::description::{DescriptionProblem, Draft, Place};
use crate::error::{InputError, InputProblem as Problem};
use crate::idlist;
use crate::machine::{Machine, MachineNode, Note};
use crate::numactl::pasted::PastedLine;

const EXPECTED: &str = "the output of `numactl --hardware`";
const EXPECTED_SAME: &str = "the machine of the text before once more, or one machine in a file";
const EXPECTED_LINE: &str = "a line of `numactl --hardware`: available:, node N cpus:, \
                             node N size:, node N free:, node distances:, or a row of distances";

/// The state of reading.
#[derive(Default)]
struct Reader {
    draft: Draft,
    /// The ids above the columns of the table of distances, once its header was read.
    columns: Option<Vec<NodeId>>,
    /// The nodes whose row was read.
    rows: Vec<NodeId>,
    /// How many nodes there are, if the text says so.
    announced: Option<usize>,
    /// Whether the line above the table of distances was read.
    has_table: bool,
}

/// Reads the text; `input` is its name.
pub fn parse(input: &str, text: &str) -> Result<Machine, InputError> {
    let text = pasted::unquoted_printable(text);
    let texts = pasted::texts(&text);
    let Some(first) = texts.first() else {
        let place = Place::Input(input.into());
        return Err(DescriptionProblem::NoNodes { expected: EXPECTED }.at(&place).into());
    };
    let mut machine = parse_one(input, first)?;
    for text in &texts[1..] {
        let again = parse_one(input, text)?;
        if !is_same(&machine, &again) {
            let place = Place::Line { input: input.into(), line: text[0].number };
            let error = Problem::syntax(text[0].text(), EXPECTED_SAME).at(&place);
            return Err(with_column(error, &text[0].raw));
        }
    }
    if texts.len() > 1 {
        machine.notes.push(Note::Again { times: texts.len() });
    }
    Ok(machine)
}

/// Whether two texts describe one machine: what is free changes.
fn is_same(one: &Machine, other: &Machine) -> bool {
    let node = |node: &MachineNode| (node.id, node.cpus.clone(), node.memory_bytes);
    let nodes = |machine: &Machine| machine.nodes.iter().map(node).collect::<Vec<_>>();
    nodes(one) == nodes(other) && one.distances == other.distances
}

fn parse_one(input: &str, lines: &[PastedLine]) -> Result<Machine, InputError> {
    let mut reader = Reader::default();
    for line in lines {
        let place = Place::Line { input: input.into(), line: line.number };
        reader.read_line(line.text(), &place).map_err(|error| with_column(error, &line.raw))?;
    }
    // A missing part is reported at the last line.
    let last = lines.last().map_or(1, |line| line.number);
    reader.check_end(&Place::Line { input: input.into(), line: last })?;
    let has_distances = reader.columns.is_some();
    let mut machine = reader.draft.finish(&Place::Input(input.into()), EXPECTED)?;
    if !has_distances && machine.nodes.len() > 1 {
        let nodes = machine.nodes.iter().map(|node| node.id.0).collect();
        machine.notes.push(Note::DistancesAssumed { nodes });
    }
    Ok(machine)
}

/// Whether a paste has a line that numactl writes, and nobody else.
pub fn is_in(paste: &str) -> bool {
    pasted::lines(paste).any(|(_, line)| is_heading(pasted::unquoted(line)))
}

fn is_heading(line: &str) -> bool {
    const BEGINS: [&str; 4] = ["available:", "No NUMA ", "No distance ", "node distances:"];
    let digit = |text: &str| text.starts_with(|character: char| character.is_ascii_digit());
    let of_node = line.strip_prefix("node ").map(str::trim_start);
    BEGINS.iter().any(|begin| line.starts_with(begin)) || of_node.is_some_and(digit)
}

/// Whether numactl writes such a line: also a row of distances, of numbers alone.
fn is_line(line: &str) -> bool {
    let is_row = |(id, row): (&str, &str)| {
        let is_number = |byte: u8| byte.is_ascii_digit();
        !id.is_empty()
            && id.bytes().all(is_number)
            && row.starts_with(' ')
            && row.bytes().all(|byte| is_number(byte) || byte == b' ')
    };
    is_heading(line) || line.split_once(':').is_some_and(is_row)
}

/// The error with the column of the words that it quotes from its line.
fn with_column(error: InputError, text: &str) -> InputError {
    let InputError::Content { place: Place::Line { input, line }, problem } = error else {
        return error;
    };
    let quoted = match &problem {
        Problem::Description(DescriptionProblem::Syntax { found, .. }) => found,
        Problem::Description(DescriptionProblem::Ids { list, .. }) => list,
        _ => return InputError::Content { place: Place::Line { input, line }, problem },
    };
    // Values stand behind the colon. The quotation of a long line is an excerpt.
    let values = text.find(':').map_or(0, |colon| colon + 1);
    let in_values = text[values..].find(quoted.as_str()).map(|at| values + at);
    let first = text.len() - text.trim_start().len();
    let column = in_values.or_else(|| text.find(quoted.as_str())).unwrap_or(first) + 1;
    InputError::Content { place: Place::Column { input, line, column }, problem }
}

impl Reader {
    fn read_line(&mut self, line: &str, place: &Place) -> Result<(), InputError> {
        if line.starts_with("No distance ") {
            Ok(())
        } else if line == "node distances:" {
            self.has_table = true;
            Ok(())
        } else if line.starts_with("available:") {
            self.announced = Some(parse_available(line, place)?);
            Ok(())
        } else if line.starts_with("No NUMA ") {
            Err(Problem::NoNuma.at(place))
        } else if let Some((heading, rest)) = line.split_once(':') {
            match heading.strip_prefix("node ") {
                Some(heading) => self.read_fact(heading, rest.trim(), place),
                None => self.read_row(heading, rest, place),
            }
        } else if let Some(ids) = line.strip_prefix("node ") {
            self.read_columns(ids, place)
        } else {
            Err(Problem::syntax(line, EXPECTED_LINE).at(place))
        }
    }

    /// Reads `8 cpus` and what follows the colon.
    fn read_fact(&mut self, heading: &str, value: &str, place: &Place) -> Result<(), InputError> {
        let Some((id, what)) = heading.split_once(' ') else {
            return Err(Problem::syntax(heading, EXPECTED_LINE).at(place));
        };
        let id = parse_node(id, place)?;
        self.draft.add_node(id, place)?;
        match what.trim() {
            "cpus" => self.draft.set_cpus(id, parse_cpus(value, place)?, place)?,
            "size" => self.draft.set_memory(id, parse_megabytes(value, place)?, place)?,
            "free" => self.draft.set_free(id, parse_megabytes(value, place)?, place)?,
            _ => return Err(Problem::syntax(what, "cpus, size or free").at(place)),
        }
        Ok(())
    }

    /// Reads the ids above the table of distances.
    fn read_columns(&mut self, ids: &str, place: &Place) -> Result<(), InputError> {
        if self.columns.is_some() {
            let what = "the table of distances".into();
            return Err(DescriptionProblem::Repeated { what }.at(place).into());
        }
        let ids = ids.split_whitespace().map(|id| self.known_node(id, place));
        self.columns = Some(ids.collect::<Result<_, _>>()?);
        Ok(())
    }

    /// Reads the row of the table that starts with `id`.
    fn read_row(&mut self, id: &str, values: &str, place: &Place) -> Result<(), InputError> {
        let Some(columns) = &self.columns else {
            return Err(Problem::syntax(id, EXPECTED_LINE).at(place));
        };
        let from = self.known_node(id, place)?;
        let values: Vec<&str> = values.split_whitespace().collect();
        if values.len() != columns.len() {
            let (found, expected) = (values.len(), columns.len());
            return Err(Problem::DistanceCount { node: from, found, expected }.at(place));
        }
        for (&to, value) in columns.iter().zip(values) {
            let distance = value
                .parse()
                .map_err(|_| Problem::syntax(value, "a distance from 10 to 255").at(place))?;
            self.draft.set_distance(from, to, distance, place)?;
        }
        self.rows.push(from);
        Ok(())
    }

    /// A node that the table names. The lines before must have described it.
    fn known_node(&self, id: &str, place: &Place) -> Result<NodeId, InputError> {
        let node = parse_node(id, place)?;
        if self.draft.contains(node) {
            return Ok(node);
        }
        let known: Vec<u32> = self.draft.ids().map(|id| id.0).collect();
        let known = idlist::format(&known);
        Err(DescriptionProblem::UnknownNode { node, known }.at(place).into())
    }

    /// Checks that all nodes are described, and that the table, if there is one, has a row and a column for each.
    fn check_end(&self, place: &Place) -> Result<(), InputError> {
        let described = self.draft.ids().count();
        if let Some(announced) = self.announced.filter(|announced| *announced != described) {
            return Err(Problem::NodeCount { announced, described }.at(place));
        }
        if self.columns.is_none() && !self.has_table {
            return Ok(());
        }
        let columns = self.columns.as_deref().unwrap_or_default();
        let is_missing = |node: &NodeId| !self.rows.contains(node) || !columns.contains(node);
        match self.draft.ids().find(is_missing) {
            Some(node) => Err(Problem::DistancesMissing { node }.at(place)),
            None => Ok(()),
        }
    }
}

/// Reads the number of `available: 3 nodes (0,8,252)`. The nodes themselves are taken from their own lines: old
/// versions print the first and last id and leave out the holes between.
fn parse_available(line: &str, place: &Place) -> Result<usize, InputError> {
    const EXPECTED: &str = "available: N nodes (LIST)";
    let words: Vec<&str> = line.split_whitespace().collect();
    let count = match words[..] {
        [_, count, "nodes", ..] => count.parse::<u32>().ok(),
        _ => None,
    };
    count.map(|count| count as usize).ok_or_else(|| Problem::syntax(line, EXPECTED).at(place))
}

fn parse_node(id: &str, place: &Place) -> Result<NodeId, InputError> {
    match id.trim().parse() {
        Ok(number) if number <= idlist::MAX_ID => Ok(NodeId(number)),
        _ => Err(Problem::syntax(id.trim(), format!("the id of a node, 0 to {}", idlist::MAX_ID))
            .at(place)),
    }
}

/// Reads `0 1 2 3`, or of `--cpu-compress` `0-3, 8-11 (8)`.
fn parse_cpus(list: &str, place: &Place) -> Result<Vec<u32>, InputError> {
    let ids = list.rsplit_once('(').map_or(list, |(ids, _count)| ids);
    let mut cpus = Vec::new();
    for word in ids.split([' ', '\t', ',']).filter(|word| !word.is_empty()) {
        let range = idlist::parse(word);
        cpus.extend(range.map_err(|error| {
            DescriptionProblem::Ids { list: word.into(), problem: error.problem }.at(place)
        })?);
    }
    Ok(cpus)
}

/// Reads `126801 MB`; `<not available>` is `None`.
fn parse_megabytes(size: &str, place: &Place) -> Result<Option<u64>, InputError> {
    if size == "<not available>" {
        return Ok(None);
    }
    let bytes = size
        .strip_suffix("MB")
        .and_then(|count| count.trim().parse::<u64>().ok())
        .and_then(|count| count.checked_mul(1 << 20));
    match bytes {
        Some(bytes) => Ok(Some(bytes)),
        None => {
            Err(Problem::syntax(size, "a size such as 126801 MB, or <not available>").at(place))
        }
    }
}

#[cfg(test)]
mod tests {
    use nearpage::CpuId;
    use proptest::prelude::*;

    use super::*;

    /// A POWER9 with GPU memory: sparse ids, nodes without CPUs, trailing blanks.
    const POWER9: &str = "\
available: 6 nodes (0,8,252-255)
node 0 cpus: 0 1 2 3
node 0 size: 126801 MB
node 0 free: 110218 MB
node 8 cpus: 64 65 66 67
node 8 size: 130718 MB
node 8 free: 121003 MB
node 252 cpus:
node 252 size: 16128 MB
node 252 free: 16127 MB
node 253 cpus:
node 253 size: 16128 MB
node 253 free: 16127 MB
node 254 cpus:
node 254 size: 16128 MB
node 254 free: 16127 MB
node 255 cpus:
node 255 size: 16128 MB
node 255 free: 16127 MB
node distances:
node   0   8  252  253  254  255
  0:  10  40  80  80  80  80
  8:  40  10  80  80  80  80
 252:  80  80  10  80  80  80
 253:  80  80  80  10  80  80
 254:  80  80  80  80  10  80
 255:  80  80  80  80  80  10
";

    /// A text is whole, or says that nodes or distances are missing. Old versions print no table.
    #[test]
    fn a_cut_text_is_no_smaller_machine() {
        let lines: Vec<&str> = POWER9.split_inclusive('\n').collect();
        let table = lines.iter().position(|line| line.starts_with("node distances")).unwrap();
        for cut in 1..lines.len() {
            let read = parse("box.txt", &lines[..cut].concat());
            // What memory node 255 has may be missing: that is noted.
            assert_eq!(read.is_ok(), (table - 2..=table).contains(&cut), "{cut} lines: {read:?}");
        }
        let message =
            |cut: usize| parse("box.txt", &lines[..cut].concat()).unwrap_err().to_string();
        assert_eq!(
            message(4),
            "box.txt:4: 6 nodes are announced and 1 described, expected the whole text of one machine"
        );
        let others = POWER9.replacen("available: 6 nodes", "available: 2 nodes", 1);
        assert_eq!(
            parse("box.txt", &others).unwrap_err().to_string(),
            "box.txt:27: 2 nodes are announced and 6 described, expected the whole text of one machine"
        );
        assert_eq!(
            message(table + 1),
            "box.txt:20: the table of distances has no row for node 0, expected one for each node"
        );
    }

    /// Two sockets and a CXL expander, as numactl 2.0.19 prints it with --cpu-compress.
    const CXL: &str = "\
libnuma: Warning: node argument 3 is out of range
available: 3 nodes (0-2)
node 0 cpus: 0-31, 64-95 (64)
node 0 size: 128000 MB
node 0 free: <not available>
node 1 cpus: 32-63, 96-127 (64)
node 1 size: 129022 MB
node 1 free: 120000 MB
node 2 cpus: (0)
node 2 size: 256000 MB
node 2 free: 255000 MB
node distances:
node     0    1    2
   0:   10   21   14
   1:   21   10   24
   2:   14   25   10
";

    fn machine(text: &str) -> Result<Machine, String> {
        parse("box.txt", text).map_err(|error| error.to_string())
    }

    /// `POWER9` with one line replaced.
    fn changed(from: &str, to: &str) -> String {
        assert!(POWER9.contains(from), "{from}");
        machine(&POWER9.replace(from, to)).unwrap_err()
    }

    #[test]
    fn sparse_ids_and_nodes_without_cpus() {
        let machine = machine(POWER9).unwrap();
        let ids: Vec<u32> = machine.nodes.iter().map(|node| node.id.0).collect();
        assert_eq!(ids, [0, 8, 252, 253, 254, 255]);
        assert_eq!(machine.nodes[1].cpus, [64, 65, 66, 67].map(CpuId));
        assert_eq!(machine.nodes[2].memory_bytes, Some(16128 << 20));
        assert_eq!(machine.nodes[2].free_bytes, Some(16127 << 20));
        assert_eq!(machine.distances[..6], [10, 40, 80, 80, 80, 80]);
        assert_eq!(machine.distances[30..], [80, 80, 80, 80, 80, 10]);
    }

    #[test]
    fn compressed_cpus_and_asymmetric_distances() {
        let machine = machine(CXL).unwrap();
        assert_eq!(machine.nodes[0].cpus.len(), 64);
        assert_eq!(machine.nodes[1].cpus[32], CpuId(96));
        assert_eq!(machine.nodes[2].cpus, []);
        assert_eq!(machine.nodes[0].free_bytes, None);
        assert_eq!(machine.distances, [10, 21, 14, 21, 10, 24, 14, 25, 10]);
    }

    #[test]
    fn old_versions_without_distances() {
        let text = "$ numactl -H\navailable: 2 nodes (0-1)\nnode 0 size: 8190 MB\nnode 0 free: 1622 MB\n\
                    node 1 cpus: 2 3 \nnode 1 size: 0 MB\nnode 1 free: 0 MB\r\n\
                    No distance information available.\n";
        let machine = machine(text).unwrap();
        assert_eq!(machine.nodes[0].cpus, []);
        assert_eq!(machine.nodes[1].memory_bytes, Some(0));
        assert_eq!(machine.distances, [10, 20, 20, 10]);
        let notes: Vec<_> = machine.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes[0], "the CPUs of node 0 are unknown: taken as none");
        assert_eq!(
            notes[1..],
            ["the distances of nodes 0-1 are unknown: taken as 10 to themselves, 20 to others"]
        );
    }

    /// As tickets and mails have it.
    #[test]
    fn pastes_are_read() {
        let text = CXL.lines().map(|line| format!("> {line}\n")).collect::<String>();
        let expected = machine(CXL).unwrap();
        for paste in [
            text.clone(),
            format!(
                "Hello,\nas you asked:\n\n> user@host $ numactl -H\n{text}> user@host $\nBye\n"
            ),
            format!("Command: numactl --hardware\n{CXL}\nuptime\n 10:11:12 up 3 days\n"),
            CXL.lines().map(|line| format!("| {line} |\n")).collect::<String>(),
            format!("numactl --hardware\n{}", CXL.replace("\n", "\r\n")),
        ] {
            assert_eq!(machine(&paste).unwrap(), expected, "{paste}");
        }
        let twice = format!("$ numactl -H\n{CXL}\n$ sleep 60; numactl -H\n{CXL}");
        assert_eq!(machine(&twice).unwrap().notes.last(), Some(&Note::Again { times: 2 }));
        let two = format!("{CXL}\nthe other:\n{POWER9}");
        assert_eq!(
            machine(&two).unwrap_err(),
            format!(
                "box.txt:19:1: found \"available: 6 nodes (0,8,252-255)\", expected {EXPECTED_SAME}"
            )
        );
    }

    /// As a kernel prints it that counts free pages on each CPU apart; a copy of its /sys is read alike.
    #[test]
    fn more_free_than_there_is_is_noted() {
        for text in
            ["node 0 free: 3 MB\nnode 0 size: 2 MB\n", "node 0 size: 2 MB\nnode 0 free: 3 MB\n"]
        {
            let machine = machine(text).unwrap();
            assert_eq!(machine.nodes[0].free_bytes, Some(2 << 20));
            assert_eq!(
                machine.notes[1..],
                [Note::FreeExceedsSize { node: NodeId(0), free: 3 << 20, size: 2 << 20 }]
            );
        }
        // Both are rounded down, and of an unknown size nothing is known.
        for text in ["node 0 size: 2 MB\nnode 0 free: 2 MB\n", "node 0 free: 3 MB\n"] {
            let notes = machine(text).unwrap().notes;
            assert!(
                !notes.iter().any(|note| matches!(note, Note::FreeExceedsSize { .. })),
                "{text}"
            );
        }
    }

    #[test]
    fn unknown_sizes_are_noted() {
        let machine = machine("node 0 cpus: 0\nnode 0 size: <not available>\n").unwrap();
        assert_eq!(machine.notes.len(), 1);
        assert_eq!(machine.nodes[0].memory_bytes, None);
    }

    #[test]
    fn errors_name_the_line_and_the_column_of_what_they_quote() {
        assert_eq!(
            changed("node 8 cpus: 64", "node 8 cpus: 3"),
            "box.txt:5: CPU 3 is already on node 0, expected each CPU on one node"
        );
        assert_eq!(
            changed("  8:  40  10", "  9:  40  10"),
            "box.txt:23: node 9 is not there, expected some of 0,8,252-255"
        );
        assert_eq!(
            changed("node   0   8", "node   0   7"),
            "box.txt:21: node 7 is not there, expected some of 0,8,252-255"
        );
        assert_eq!(
            changed("  0:  10  40", "  0:  10   4"),
            "box.txt:22: the distance from node 0 to node 8 is 4, expected 10 to 255"
        );
        assert_eq!(
            changed("  0:  10  40", "  0:  11  40"),
            "box.txt:22: the distance of node 0 to itself is 11, expected 10"
        );
        assert_eq!(
            changed("  8:  40  10  80", "  8:  40  10"),
            "box.txt:23: the row of node 8 has 5 distances, expected 6, one for each node"
        );
        assert_eq!(
            changed(" 255:  80  80  80  80  80  10\n", ""),
            "box.txt:26: the table of distances has no row for node 255, expected one for each node"
        );
        assert_eq!(
            changed(" 254:", " 253:"),
            "box.txt:26: the distance from node 253 to node 0 is given again, expected it once"
        );
        assert_eq!(
            changed("130718 MB", "130718 cups"),
            "box.txt:6:14: found \"130718 cups\", expected a size such as 126801 MB, or <not available>"
        );
        assert_eq!(
            changed("node 8 free", "node 8 size"),
            "box.txt:7: the size of node 8 is given again, expected it once"
        );
        assert_eq!(
            changed("64 65 66", "64 x 66"),
            "box.txt:5:17: in \"x\": found \"x\", expected an id such as 0 or a range such as 0-3"
        );
        assert!(changed("node distances:", "hello").starts_with(
            "box.txt:20:1: found \"hello\", expected a line of `numactl --hardware`: available:,"
        ));
    }

    #[test]
    fn no_numa_says_what_to_do_instead() {
        assert_eq!(
            machine("No NUMA available on this system\n").unwrap_err(),
            "box.txt:1: numactl found no NUMA on that system and says nothing of its memory and \
             CPUs, expected --numa SIZE,cpus=LIST for its only node, or a copy of its /sys and /proc"
        );
        assert_eq!(
            machine("\n").unwrap_err(),
            "box.txt: describes no node, expected the output of `numactl --hardware`"
        );
    }

    #[test]
    fn machines_have_no_more_nodes_than_linux() {
        let nodes = |ids: std::ops::Range<u32>| -> String {
            ids.map(|id| format!("node {id} size: 1 MB\nnode {id} free: 1 MB\n")).collect()
        };
        assert_eq!(machine(&nodes(1000..2024)).unwrap().nodes.len(), 1024);
        assert_eq!(
            machine(&nodes(1000..2025)).unwrap_err(),
            "box.txt:2049: one node more than 1024, expected at most 1024, as Linux has (MAX_NUMNODES)"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "\\PC{0,60}|((available|node|node [0-9]{1,2}|[0-9]|cpus|size|free|distances)[ :]?[0-9 ,MB-]{0,9}\n?){0,20}",
        ) {
            let _ = parse("random", &text);
        }

        /// The real text with one byte changed is read or refused.
        #[test]
        fn any_damage_is_read_or_refused(at in 0usize..POWER9.len(), byte in 0u8..128) {
            let mut text = POWER9.as_bytes().to_vec();
            text[at] = byte;
            let _ = parse("damaged", &String::from_utf8_lossy(&text));
        }
    }
}
