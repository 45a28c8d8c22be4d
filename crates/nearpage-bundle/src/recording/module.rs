//! The answers of a kernel module that reads the kernel's own structures.
//!
//! ```text
//! ZONE node=0 idx=0 zone=DMA … min=32 low=40 high=48 promo=56 boost=0 … reserve=0,190,190,190,190
//!      pageset_high_min=20 pageset_high_max=240 pageset_batch=1          (6.1: pageset_high)
//! PCP node=0 zone=DMA cpu=0 batch=1 high_min=20 high_max=240 … stat_threshold=4
//! ZONELIST node=0 kind=FALLBACK order=0:DMA32,0:DMA
//! CPU cpu=0 numa_node=0 numa_mem=0 cpu_to_node=0
//! ZL_BOOT node=0 order=0:DMA32,0:DMA      (ZL_REBUILT, ZL_REBUILT_TWICE)
//! ```

use nearpage::{CpuId, NodeId, ZoneKind};
use nearpage_machine::sysfs::{SysfsError, TextFile, words};

/// Words `key=value` of a line.
struct KeyValues<'a> {
    file: &'a TextFile,
    line: usize,
    text: &'a str,
}

impl<'a> KeyValues<'a> {
    /// The words of a line of a text.
    fn new(file: &'a TextFile, line: usize, text: &'a str) -> Self {
        Self { file, line, text }
    }

    /// The value of a key and its column, if the line has it.
    fn text(&self, key: &str) -> Option<(usize, &'a str)> {
        words(self.text).find_map(|(column, word)| {
            let value = word.strip_prefix(key)?.strip_prefix('=')?;
            Some((column + word.len() - value.len(), value))
        })
    }

    /// The value of a key as a number, if the line has it.
    fn number(&self, key: &str) -> Result<Option<u64>, SysfsError> {
        let Some((column, value)) = self.text(key) else { return Ok(None) };
        let number = value.parse();
        number.map(Some).map_err(|_| self.file.syntax(self.line, column, value, "a number"))
    }

    /// The value of a key that every such line has.
    fn id(&self, key: &str) -> Result<u32, SysfsError> {
        let id = self.number(key)?.and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| self.file.syntax(self.line, 1, self.text, format!("{key}=NUMBER")))
    }

    /// The numbers of a list separated by commas.
    fn numbers(&self, key: &str) -> Result<Option<Vec<u64>>, SysfsError> {
        let Some((column, list)) = self.text(key) else { return Ok(None) };
        let number = |word: &str| {
            word.parse()
                .map_err(|_| self.file.syntax(self.line, column, list, "numbers with commas"))
        };
        list.split(',').map(number).collect::<Result<_, _>>().map(Some)
    }

    fn kind(&self) -> Result<ZoneKind, SysfsError> {
        let (column, name) = self.text("zone").unwrap_or((1, self.text));
        let kind = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| self.file.syntax(self.line, column, name, "zone=NAME"))
    }

    /// `order=0:DMA32,0:DMA`; empty for a node without zones.
    fn order(&self) -> Vec<String> {
        let (_, list) = self.text("order").unwrap_or((1, ""));
        list.split(',').filter(|zone| !zone.is_empty()).map(String::from).collect()
    }
}

/// The answers to `what=info`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// Zones.
    pub zones: Vec<AskedZone>,
    /// Pagesets of some CPUs.
    pub pagesets: Vec<AskedPageset>,
    /// Zonelists.
    pub zonelists: Vec<AskedZonelist>,
    /// The answer of `numa_mem_id()` on each CPU.
    pub numa_mem_ids: Vec<(CpuId, NodeId)>,
}

/// A zone of [`Asked`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedZone {
    /// The node.
    pub node: NodeId,
    /// The kind.
    pub kind: ZoneKind,
    /// `min`, `low`, `high` and `promo`, raw.
    pub marks: [Option<u64>; 4],
    /// The lowmem reserve, by zone kind.
    pub reserve: Option<Vec<u64>>,
    /// Batch of its pagesets.
    pub batch: Option<u64>,
    /// Lower bound of its pagesets' `high`; on 6.1 `high` itself.
    pub high_min: Option<u64>,
    /// Upper bound of its pagesets' `high`; 6.12.
    pub high_max: Option<u64>,
}

/// A pageset of [`Asked`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AskedPageset {
    /// The zone's node.
    pub node: NodeId,
    /// The zone's kind.
    pub kind: ZoneKind,
    /// The CPU.
    pub cpu: CpuId,
    /// Its batch.
    pub batch: Option<u64>,
    /// Lower bound of its `high`; on 6.1 `high` itself.
    pub high_min: Option<u64>,
    /// Upper bound of its `high`; 6.12.
    pub high_max: Option<u64>,
    /// Its counters' threshold.
    pub stat_threshold: Option<u64>,
}

/// A zonelist, its zones written as `NODE:ZONE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedZonelist {
    /// The node whose list it is.
    pub node: NodeId,
    /// Its kind: `FALLBACK`, `NOFALLBACK`, `ZL_BOOT`, `ZL_REBUILT`, `ZL_REBUILT_TWICE`.
    pub kind: String,
    /// Its zones.
    pub order: Vec<String>,
}

/// Reads the text of `what=info`; lines of other kinds are skipped.
///
/// # Errors
///
/// [`SysfsError::Syntax`] with line and column.
pub fn parse_info(file: &TextFile) -> Result<Asked, SysfsError> {
    let mut asked = Asked::default();
    for (index, text) in file.text.lines().enumerate() {
        let line = KeyValues::new(file, index + 1, text);
        match text.split(' ').next() {
            Some("ZONE") => asked.zones.push(parse_zone(&line)?),
            Some("PCP") => asked.pagesets.push(parse_pageset(&line)?),
            Some("ZONELIST") => {
                let (_, kind) = line.text("kind").unwrap_or((1, ""));
                let (node, order) = (NodeId(line.id("node")?), line.order());
                asked.zonelists.push(AskedZonelist { node, kind: kind.into(), order });
            }
            Some("CPU") => {
                let ids = (CpuId(line.id("cpu")?), NodeId(line.id("numa_mem")?));
                asked.numa_mem_ids.push(ids);
            }
            _ => {}
        }
    }
    Ok(asked)
}

fn parse_zone(line: &KeyValues<'_>) -> Result<AskedZone, SysfsError> {
    let [min, low, high, promo] = ["min", "low", "high", "promo"].map(|key| line.number(key));
    Ok(AskedZone {
        node: NodeId(line.id("node")?),
        kind: line.kind()?,
        marks: [min?, low?, high?, promo?],
        reserve: line.numbers("reserve")?,
        batch: line.number("pageset_batch")?,
        high_min: line.number("pageset_high_min")?.or(line.number("pageset_high")?),
        high_max: line.number("pageset_high_max")?,
    })
}

fn parse_pageset(line: &KeyValues<'_>) -> Result<AskedPageset, SysfsError> {
    // 6.12's `high` is a state, 6.1's a size.
    let high_min = match line.number("high_min")? {
        Some(high_min) => Some(high_min),
        None => line.number("high")?,
    };
    Ok(AskedPageset {
        node: NodeId(line.id("node")?),
        kind: line.kind()?,
        cpu: CpuId(line.id("cpu")?),
        batch: line.number("batch")?,
        high_min,
        high_max: line.number("high_max")?,
        stat_threshold: line.number("stat_threshold")?,
    })
}

/// Reads the text of `what=rebuild`: FALLBACK zonelists at boot and after rebuilds at run time.
///
/// # Errors
///
/// [`SysfsError::Syntax`] with line and column.
pub fn parse_rebuild(file: &TextFile) -> Result<Vec<AskedZonelist>, SysfsError> {
    let lines = file.text.lines().enumerate().filter(|(_, text)| text.starts_with("ZL_"));
    let zonelist = |(index, text): (usize, &str)| {
        let line = KeyValues::new(file, index + 1, text);
        let kind = text.split(' ').next().unwrap_or_default().to_owned();
        Ok(AskedZonelist { node: NodeId(line.id("node")?), kind, order: line.order() })
    };
    lines.map(zonelist).collect()
}
