//! `spill`, `spill_nopcp`: allocations from one preferred node until the first failure, in runs by zone.

use nearpage::{Gfp, Order};

use crate::fields::{Line, lines};
use crate::machine::ZoneName;

/// Allocations until the first failure.
#[derive(Debug)]
pub struct Spill {
    /// What was asked for, by the module's name.
    pub gfp_name: String,
    /// Its flags.
    pub gfp: Gfp,
    /// Its order.
    pub order: Order,
    /// The preferred node.
    pub node: u32,
    /// The CPU that asked.
    pub cpu: u32,
    /// Whether pagesets were off, and counters exact.
    pub pagesets_off: bool,
    /// Free pages of each zone before.
    pub before: Vec<Level>,
    /// Blocks in a row from one zone.
    pub runs: Vec<Run>,
    /// Free pages of each zone at the end.
    pub end: Vec<Level>,
    /// NUMA events of each zone.
    pub numa: Vec<(ZoneName, [u64; 5])>,
    /// Blocks given.
    pub total: u64,
    /// The module stopped before the first failure.
    pub limited: bool,
}

/// Pages of a zone at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// The zone.
    pub zone: ZoneName,
    /// Free pages: with pagesets off the counter that watermark checks read, else what there is, with the
    /// differences that CPUs have not added up yet.
    pub free: u64,
    /// Pages in the pageset of the CPU that asks.
    pub cached: u64,
}

impl Spill {
    /// Pages of a zone that somebody else took, or gave back, meanwhile: what the runs do not explain.
    pub fn others(&self, zone: ZoneName) -> u64 {
        let held = |levels: &[Level]| {
            levels
                .iter()
                .find(|level| level.zone == zone)
                .map_or(0, |level| level.free + level.cached)
        };
        let runs = self.runs.iter().filter(|run| run.after.zone == zone);
        let taken = runs.map(|run| run.blocks << self.order.0).sum::<u64>();
        held(&self.before).abs_diff(held(&self.end) + taken)
    }
}

/// Blocks in a row from one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Blocks.
    pub blocks: u64,
    /// The zone when the run was over.
    pub after: Level,
}

/// One entry of the text.
pub enum Entry {
    /// An experiment.
    Spill(Spill),
    /// One that the module left out: its budget of pages was used up.
    Skipped,
}

/// Reads a text.
pub fn read(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut open: Option<Spill> = None;
    for line in lines(text) {
        if line.word() == "SPILL" {
            open = Some(begin(line)?);
            continue;
        }
        if line.word() == "SPILL_SKIP" {
            entries.push(Entry::Skipped);
            continue;
        }
        let spill = open.as_mut().ok_or_else(|| format!("no SPILL before: {}", line.0))?;
        match line.word() {
            "SPILL_RUN" => spill.runs.push(run(line, spill.pagesets_off)?),
            "SPILL_BEFORE" => spill.before = levels(line, spill.pagesets_off)?,
            "SPILL_AT_END" => spill.end = levels(line, spill.pagesets_off)?,
            "SPILL_NUMA" => spill.numa.push((ZoneName::of(line)?, numa(line)?)),
            "SPILL_END" => {
                spill.total = line.number("total")?;
                spill.limited = line.find("limited").is_some();
                entries.extend(open.take().map(Entry::Spill));
            }
            _ => return line.unknown(),
        }
    }
    Ok(entries)
}

fn begin(line: Line<'_>) -> Result<Spill, String> {
    let flags = line.text("flags")?.trim_start_matches("0x");
    let flags = u32::from_str_radix(flags, 16).map_err(|error| format!("{error}: {}", line.0))?;
    Ok(Spill {
        gfp_name: line.text("gfp")?.into(),
        gfp: Gfp(flags),
        order: Order(line.number("order")? as u8),
        node: line.number("node")? as u32,
        cpu: line.number("cpu")? as u32,
        pagesets_off: line.number("nopcp")? == 1,
        before: Vec::new(),
        runs: Vec::new(),
        end: Vec::new(),
        numa: Vec::new(),
        total: 0,
        limited: false,
    })
}

fn run(line: Line<'_>, pagesets_off: bool) -> Result<Run, String> {
    let zone = ZoneName::of(line)?;
    let free = line.counter(if pagesets_off { "free" } else { "free_exact" })?;
    let cached = line.number("pcp")?;
    Ok(Run { blocks: line.number("n")?, after: Level { zone, free, cached } })
}

fn levels(line: Line<'_>, pagesets_off: bool) -> Result<Vec<Level>, String> {
    line.rest().split(' ').map(|text| level(line, text, pagesets_off)).collect()
}

/// `node:zone:free:exact:cached:boost`.
fn level(line: Line<'_>, text: &str, pagesets_off: bool) -> Result<Level, String> {
    let [node, zone, counted, exact, cached, boost] = text.split(':').collect::<Vec<_>>()[..]
    else {
        return Err(format!("{text:?} is no zone, in: {}", line.0));
    };
    if boost != "0" {
        return Err(format!("a boosted zone, {text:?}: boosts were to be off"));
    }
    let zone = ZoneName::parse(&format!("{node}:{zone}"))?;
    let free = line.parse_counter(if pagesets_off { counted } else { exact })?;
    Ok(Level { zone, free, cached: line.parse(cached)? })
}

fn numa(line: Line<'_>) -> Result<[u64; 5], String> {
    let mut events = [0; 5];
    for (event, key) in events.iter_mut().zip(["hit", "miss", "foreign", "local", "other"]) {
        *event = line.number(key)?;
    }
    Ok(events)
}

mod tests {
    use super::*;

    #[test]
    fn counters_below_zero_read_as_nothing() {
        let line = "SPILL_RUN i=0 node=0 zone=DMA n=5 free=-3 free_exact=2 pcp=1";
        let free = |pagesets_off| run(Line(line), pagesets_off).map(|run| run.after.free);
        assert_eq!([free(true), free(false)], [Ok(0), Ok(2)]);
        let line = Line("SPILL_AT_END 0:DMA:-3:2:1:0");
        let free = |pagesets_off| levels(line, pagesets_off).map(|levels| levels[0].free);
        assert_eq!([free(true), free(false)], [Ok(0), Ok(2)]);
    }
}
