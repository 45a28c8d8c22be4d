//! `steal`: requests of types that have nothing take from the movable lists; how many blocks there are by
//! type and order before and after.

use std::collections::BTreeMap;

use nearpage::{Migratetype, Order};

use super::pcp::Target;
use crate::fields::{Line, lines};

/// Blocks by order, of each migratetype.
pub type Table = BTreeMap<usize, Vec<u64>>;

/// The experiment.
pub struct Experiment {
    /// The zone.
    pub target: Target,
    /// The allocations.
    pub steals: Vec<Steal>,
}

/// One allocation, after all blocks of its type were taken away.
pub struct Steal {
    /// The type.
    pub migratetype: Migratetype,
    /// The order.
    pub order: Order,
    /// Blocks before.
    pub before: Table,
    /// What came of it, unless it failed.
    pub given: Option<Given>,
}

/// What came of an allocation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// Where the block lies within a block of the highest order, and the type that its pageblock has now;
    /// `None` if the block is of another zone: what that one had is not recorded.
    pub place: Option<(u64, Migratetype)>,
    /// Blocks after.
    pub after: Table,
}

/// The letter that the module writes for a migratetype.
pub fn migratetype(letter: &str) -> Result<Migratetype, String> {
    let letters = ["U", "M", "R", "H"];
    let index = letters.iter().position(|&known| known == letter);
    let index = index.ok_or_else(|| format!("{letter:?} is no migratetype"))?;
    Ok([
        Migratetype::Unmovable,
        Migratetype::Movable,
        Migratetype::Reclaimable,
        Migratetype::HighAtomic,
    ][index])
}

/// Reads a text.
pub fn read(text: &str) -> Result<Experiment, String> {
    let mut lines = lines(text);
    let target = Target::of(lines.next().ok_or("an empty text")?)?;
    let (mut steals, mut before) = (Vec::<Steal>::new(), Table::new());
    for line in lines {
        match line.word() {
            // The types' lists with what others hold, before and after it all.
            "STEAL_SETUP" | "MT_BEFORE" | "MT_END" | "STEAL_END" | "GRAB_FAIL" | "GRAB_ZONE" => {}
            "STEAL_PRE" => before = table(line)?,
            "STEAL" => steals.push(steal(line, std::mem::take(&mut before))?),
            "STEAL_POST" => {
                let steal = steals.last_mut().and_then(|steal| steal.given.as_mut());
                let steal = steal.ok_or_else(|| format!("no STEAL before: {}", line.0))?;
                steal.after = table(line)?;
            }
            _ => return line.unknown(),
        }
    }
    Ok(Experiment { target, steals })
}

fn steal(line: Line<'_>, before: Table) -> Result<Steal, String> {
    let given = match line.find("pfn_in_block") {
        Some(offset) => {
            let offset = line.parse(offset)?;
            let pageblock = migratetype(line.text("pageblock_now")?)?;
            let place = (line.text("zone_same")? == "1").then_some((offset, pageblock));
            Some(Given { place, after: Table::new() })
        }
        None => None,
    };
    let (migratetype, order) = (migratetype(line.text("type")?)?, line.number("order")?);
    Ok(Steal { migratetype, order: Order(order as u8), before, given })
}

fn table(line: Line<'_>) -> Result<Table, String> {
    let types = ["U", "M", "R", "H"].into_iter();
    types.map(|letter| Ok((migratetype(letter)?.index(), line.numbers(letter)?))).collect()
}
