//! Extents of zones from /proc/zoneinfo: the one place where the kernel tells addresses.

use nearpage::units::{NodeId, PageCount, Pfn, ZoneKind};

use super::error::SysfsError;
use super::source::{Source, TextFile, words};

/// A populated zone as the kernel prints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneExtent {
    /// The node that has the zone.
    pub node: NodeId,
    /// The kind of zone.
    pub kind: ZoneKind,
    /// First frame (`start_pfn`).
    pub start: Pfn,
    /// Frames from first to last, holes included.
    pub spanned: PageCount,
    /// Frames that are memory of this node.
    pub present: PageCount,
    /// Frames that the allocator was given.
    pub managed: PageCount,
    /// Frames free when it was read.
    pub free: PageCount,
}

/// The zone that is being read.
struct Draft {
    node: NodeId,
    kind: Option<ZoneKind>,
    start: Option<u64>,
    spanned: Option<u64>,
    present: Option<u64>,
    managed: Option<u64>,
    free: Option<u64>,
}

/// The populated zones. None if the file is absent, or if it is of a kernel too old or too foreign to
/// tell the extents of each of its zones (32-bit kernels have HighMem).
pub(super) fn read(source: &Source<'_>) -> Result<Vec<ZoneExtent>, SysfsError> {
    match source.read_if_allowed("proc/zoneinfo")? {
        Some(file) => Ok(parse(&file)?.unwrap_or_default()),
        None => Ok(Vec::new()),
    }
}

fn parse(file: &TextFile) -> Result<Option<Vec<ZoneExtent>>, SysfsError> {
    let mut drafts: Vec<Draft> = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with("Node ") {
            drafts.push(parse_heading(file, index + 1, line)?);
        } else if let Some(draft) = drafts.last_mut() {
            parse_field(file, index + 1, line, draft)?;
        }
    }
    // An unpopulated zone has no `start_pfn`. Device memory is in no zonelist.
    let is_populated =
        |draft: &Draft| draft.present != Some(0) && draft.kind != Some(ZoneKind::Device);
    let populated = drafts.into_iter().filter(is_populated);
    Ok(populated.map(Draft::finish).collect())
}

/// Reads `Node 0, zone      DMA`.
fn parse_heading(file: &TextFile, line: usize, text: &str) -> Result<Draft, SysfsError> {
    let expected = "a heading such as Node 0, zone Normal";
    let parts = text.strip_prefix("Node ").and_then(|rest| rest.split_once(", zone"));
    let Some((node, name)) = parts else { return Err(file.syntax(line, 1, text, expected)) };
    let node = node.parse().map_err(|_| file.syntax(line, 6, node, expected))?;
    let kind = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name.trim());
    Ok(Draft {
        node: NodeId(node),
        kind,
        start: None,
        spanned: None,
        present: None,
        managed: None,
        free: None,
    })
}

/// Takes a line that tells the extent; leaves all others, which differ from kernel to kernel.
fn parse_field(
    file: &TextFile,
    line: usize,
    text: &str,
    draft: &mut Draft,
) -> Result<(), SysfsError> {
    let mut words = words(text).peekable();
    words.next_if(|(_, word)| *word == "pages");
    let slot = match words.next() {
        Some((_, "free")) => &mut draft.free,
        Some((_, "spanned")) => &mut draft.spanned,
        Some((_, "present")) => &mut draft.present,
        Some((_, "managed")) => &mut draft.managed,
        Some((_, "start_pfn:")) => &mut draft.start,
        _ => return Ok(()),
    };
    let (column, word) = words.next().unwrap_or((text.chars().count() + 1, ""));
    *slot = Some(word.parse().map_err(|_| file.syntax(line, column, word, "a number of pages"))?);
    Ok(())
}

impl Draft {
    fn finish(self) -> Option<ZoneExtent> {
        Some(ZoneExtent {
            node: self.node,
            kind: self.kind?,
            start: Pfn(self.start?),
            spanned: PageCount(self.spanned?),
            present: PageCount(self.present?),
            managed: PageCount(self.managed?),
            free: PageCount(self.free?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened from a recording of 6.12: unpopulated zones, a memoryless node, a node of its own.
    const RECORDED: &str = "\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 0
  pages free     3776
        boost    0
        min      128
        spanned  4095
        present  3998
        managed  3840
        cma      0
        protection: (0, 954, 954, 954, 954)
      nr_free_pages 3776
  pagesets
    cpu: 0
              count: 0
  node_unreclaimable:  0
  start_pfn:           1
Node 0, zone   Normal
  pages free     0
        spanned  0
        present  0
        managed  0
        protection: (0, 0, 0, 0, 0)
Node 2, zone    DMA32
  pages free     245890
        spanned  262112
        present  262112
        managed  256020
  start_pfn:           262144
";

    fn zones(text: &str) -> Result<Option<Vec<ZoneExtent>>, String> {
        let file = TextFile { name: "zoneinfo".into(), text: text.into() };
        parse(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn populated_zones_are_read() {
        let zones = zones(RECORDED).unwrap().unwrap();
        assert_eq!(zones.len(), 2);
        assert_eq!(
            zones[0],
            ZoneExtent {
                node: NodeId(0),
                kind: ZoneKind::Dma,
                start: Pfn(1),
                spanned: PageCount(4095),
                present: PageCount(3998),
                managed: PageCount(3840),
                free: PageCount(3776),
            }
        );
        assert_eq!((zones[1].node, zones[1].start), (NodeId(2), Pfn(262_144)));
    }

    #[test]
    fn foreign_kernels_tell_nothing() {
        assert_eq!(zones("Node 0, zone  HighMem\n  pages free 1\n  present 5\n"), Ok(None));
        assert_eq!(zones("Node 0, zone  Normal\n  pages free 1\n  present 5\n"), Ok(None));
    }

    #[test]
    fn errors_name_the_place() {
        assert_eq!(
            zones("Node x, zone Normal\n").unwrap_err(),
            "zoneinfo:1:6: found \"x\", expected a heading such as Node 0, zone Normal"
        );
        assert_eq!(
            zones("Node 0, zone Normal\n  pages free     -1\n").unwrap_err(),
            "zoneinfo:2:18: found \"-1\", expected a number of pages"
        );
    }
}
