//! `steal2`: in a zone where nothing is free but what a scenario frees, requests of all types; free lists
//! and types of both pageblocks after each.

use nearpage::{Migratetype, Order};

use super::lists::{self, Lists, Position};
use super::pcp::Target;
use super::steal::migratetype;
use crate::fields::{Line, lines};

/// The experiment.
pub struct Experiment {
    /// The zone.
    pub target: Target,
    /// What was done, each with two fresh pageblocks.
    pub scenarios: Vec<Scenario>,
}

/// One scenario.
pub struct Scenario {
    /// As the module writes it.
    pub text: String,
    /// Pages of the two pageblocks that are free at the start, in the order in which they are freed.
    pub free: Vec<u64>,
    /// After they were freed.
    pub freed: View,
    /// What follows.
    pub operations: Vec<Operation>,
    /// After everything was freed.
    pub end: View,
}

/// The two pageblocks and the free lists.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Types of the pageblocks.
    pub pageblocks: Vec<Migratetype>,
    /// Lists of unmovable, movable and reclaimable blocks.
    pub lists: [Lists; 3],
}

/// One operation.
pub struct Operation {
    /// What it does.
    pub what: What,
    /// What was seen after it.
    pub after: View,
}

/// What an operation does.
pub enum What {
    /// Allocates; where the block lies, unless there was none.
    Alloc { migratetype: Migratetype, order: Order, at: Option<Position> },
    /// Frees all that the scenario allocated.
    FreeAll,
}

/// How many blocks of a list are printed.
pub const SHOWN: usize = 12;
/// The types whose lists are printed.
pub const TYPES: [(&str, Migratetype); 3] =
    [("U", Migratetype::Unmovable), ("M", Migratetype::Movable), ("R", Migratetype::Reclaimable)];

/// Reads a text.
pub fn read(text: &str) -> Result<Experiment, String> {
    let mut lines = lines(text);
    let target = Target::of(lines.next().ok_or("an empty text")?)?;
    let mut scenarios: Vec<Scenario> = Vec::new();
    for line in lines {
        if line.word() == "SCEN" {
            scenarios.push(begin(line)?);
            continue;
        }
        let scenario = scenarios.last_mut().ok_or_else(|| format!("no SCEN before: {}", line.0));
        match line.word() {
            // Tables of all blocks, and the end for want of a block for the next scenario.
            "MT_BEFORE" | "MT_EMPTY" | "MT_END" | "STEAL2_END" | "NO_BLOCK" => {}
            "GRAB_FAIL" | "GRAB_ZONE" => {}
            "SCEN_FREED" => scenario?.freed = view(line)?,
            "SOP" => scenario?.operations.push(operation(line)?),
            "SCEN_END" => scenario?.end = view(line)?,
            _ => return line.unknown(),
        }
    }
    Ok(Experiment { target, scenarios })
}

/// `SCEN 0+128/4,512+64/1|u0 r3`: from page 0 on 128 pages, each fourth, and so on.
fn begin(line: Line<'_>) -> Result<Scenario, String> {
    let text = line.rest().to_owned();
    let (frees, _) = text.split_once('|').ok_or_else(|| format!("no scenario: {}", line.0))?;
    let mut free = Vec::new();
    for part in frees.split(',') {
        let parts: Vec<&str> = part.split(['+', '/']).collect();
        let [start, count, step] = parts[..] else {
            return Err(format!("{part:?} are no pages: {}", line.0));
        };
        let (start, step) = (line.parse(start)?, line.parse(step)?);
        free.extend((0..line.parse(count)?).map(|page| start + page * step));
    }
    let (freed, end) = (View::default(), View::default());
    Ok(Scenario { text, free, freed, operations: Vec::new(), end })
}

fn operation(line: Line<'_>) -> Result<Operation, String> {
    let after = view(line)?;
    let what = line.rest().split(' ').next().unwrap_or_default();
    if what == "x" {
        return Ok(Operation { what: What::FreeAll, after });
    }
    let (letter, order) = what.split_at_checked(1).ok_or_else(|| format!("? {}", line.0))?;
    if line.find("zone").is_some_and(|zone| zone != "same") {
        return Err(format!("a block of another zone: {}", line.0));
    }
    let at = line.find("at").map(Position::parse).transpose()?;
    let migratetype = migratetype(&letter.to_uppercase())?;
    let order = Order(line.parse(order)? as u8);
    Ok(Operation { what: What::Alloc { migratetype, order, at }, after })
}

/// `pb=UM … U{ 0[0:4] } M{ } R{ }`.
fn view(line: Line<'_>) -> Result<View, String> {
    let letters = line.text("pb")?.split("").filter(|letter| !letter.is_empty());
    let pageblocks = letters.map(migratetype).collect::<Result<_, _>>()?;
    let mut view = View { pageblocks, ..View::default() };
    for (lists, (letter, _)) in view.lists.iter_mut().zip(TYPES) {
        let start = format!(" {letter}{{");
        let (_, rest) = line.0.split_once(&start).ok_or_else(|| format!("no lists: {}", line.0))?;
        *lists = lists::read(rest.split('}').next().unwrap_or_default())?;
    }
    Ok(view)
}
