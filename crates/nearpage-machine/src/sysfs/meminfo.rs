//! `MemTotal` and `MemFree` of a node's meminfo, and of /proc/meminfo.

use nearpage::NodeId;

use super::error::SysfsError;
use super::source::{TextFile, words};

/// Memory in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Meminfo {
    pub(super) total: Option<u64>,
    pub(super) free: Option<u64>,
}

/// Reads lines such as `MemTotal:  992500 kB`. In the file of a node they begin with `Node 0`.
pub(super) fn parse(file: &TextFile, node: Option<NodeId>) -> Result<Meminfo, SysfsError> {
    let mut meminfo = Meminfo::default();
    for (index, line) in file.text.lines().enumerate() {
        check_node(file, index + 1, line, node)?;
        let mut words = words(line).skip_while(|(_, word)| !word.ends_with(':'));
        let Some((column_of_key, key)) = words.next() else { continue };
        let slot = match key {
            "MemTotal:" => &mut meminfo.total,
            "MemFree:" => &mut meminfo.free,
            _ => continue,
        };
        let end = line.chars().count() + 1;
        let (column, word) = words.next().unwrap_or((end, ""));
        let kilobytes = word.parse::<u64>().ok().and_then(|count| count.checked_mul(1024));
        let Some(bytes) = kilobytes else {
            return Err(file.syntax(index + 1, column, word, "a number of kB"));
        };
        let (column, unit) = words.next().unwrap_or((end, ""));
        if unit != "kB" {
            // A line without its end may also lack digits.
            return Err(file.syntax(index + 1, column, unit, "kB"));
        }
        if slot.replace(bytes).is_some() {
            return Err(file.syntax(index + 1, column_of_key, key, "each line once"));
        }
    }
    Ok(meminfo)
}

/// Checks that a line of a node's file names that node. If not, the file of another node was copied in its place.
fn check_node(
    file: &TextFile,
    line: usize,
    text: &str,
    node: Option<NodeId>,
) -> Result<(), SysfsError> {
    let mut words = words(text);
    let (Some(node), Some((_, "Node")), Some((column, id))) = (node, words.next(), words.next())
    else {
        return Ok(());
    };
    match id.parse() {
        Ok(id) if NodeId(id) == node => Ok(()),
        _ => Err(file.syntax(line, column, id, format!("{node}, the node that the file is of"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meminfo(text: &str) -> Result<Meminfo, String> {
        let file = TextFile { name: "meminfo".into(), text: text.into() };
        parse(&file, Some(NodeId(0))).map_err(|error| error.to_string())
    }

    #[test]
    fn both_forms() {
        let expected = Meminfo { total: Some(992_500 * 1024), free: Some(1024) };
        let node = "\nNode 0 MemTotal:         992500 kB\nNode 0 MemFree:  1 kB\nNode 0 Slab: x\n";
        assert_eq!(meminfo(node), Ok(expected));
        assert_eq!(meminfo("MemTotal: 992500 kB\nMemFree: 1 kB\n"), Ok(expected));
        assert_eq!(meminfo(""), Ok(Meminfo::default()));
    }

    #[test]
    fn errors_name_the_place() {
        assert_eq!(
            meminfo("Node 0 MemFree: 5 kB\nNode 0 MemTotal: many kB").unwrap_err(),
            "meminfo:2:18: found \"many\", expected a number of kB"
        );
        assert_eq!(
            meminfo("MemTotal:").unwrap_err(),
            "meminfo:1:10: found \"\", expected a number of kB"
        );
        assert!(meminfo("MemTotal: 18446744073709551615 kB").is_err());
        assert_eq!(
            meminfo("MemTotal: 4 kB\nMemFree: 9925").unwrap_err(),
            "meminfo:2:14: found \"\", expected kB"
        );
        assert_eq!(
            meminfo("Node 0 MemFree: 1 kB\nNode 0 MemTotal: 4 kB\nNode 0 MemFree: 1 kB\n")
                .unwrap_err(),
            "meminfo:3:8: found \"MemFree:\", expected each line once"
        );
        assert_eq!(
            meminfo("Node 1 MemTotal: 4 kB\n").unwrap_err(),
            "meminfo:1:6: found \"1\", expected 0, the node that the file is of"
        );
    }
}
