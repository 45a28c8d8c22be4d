//! `buddy`, `buddypcp`: free lists after every operation, and positions of the blocks handed out.

use nearpage::Order;

use super::lists::{self, Lists, Position};
use super::pcp::{State, Target};
use crate::fields::{Line, lines};

/// An experiment with a zone's free lists.
pub struct Experiment {
    /// The zone.
    pub target: Target,
    /// Whether the pagesets of the zone are on.
    pub pagesets: bool,
    /// Free movable blocks of the highest order at the start. Smaller ones there are none.
    pub blocks: u64,
    /// What was done.
    pub steps: Vec<Step>,
}

/// One line of the text.
pub enum Step {
    /// A script begins: no block has a slot yet, and none a number.
    Script,
    /// Blocks of the script that are left are freed, by slot.
    ScriptEnd(Lists),
    /// Random operations begin.
    Random,
    /// Blocks that are left are freed.
    RandomEnd(Lists),
    /// An allocation into the next slot.
    Alloc { order: Order, at: Position, after: Option<After> },
    /// A free of the block at a position.
    Free { at: Position, after: Option<After> },
    /// The pageset was drained, and its tuning forgot.
    Reset(State),
    /// This CPU was drained.
    Drained(Lists),
    /// All movable blocks below the highest order are taken away.
    NotClean,
    /// Pages from the pageset, one by one: their order.
    Order(PageOrder),
}

/// What was found after an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct After {
    /// The movable free lists.
    pub lists: Lists,
    /// Pages in the pageset; not said of random operations.
    pub cached: Option<u64>,
}

/// The order in which a pageset hands out pages.
pub enum PageOrder {
    /// These were given.
    Given(Vec<Position>),
    /// All pages were freed, in the order in which they were given; the pageset has so many.
    Freed { cached: u64 },
    /// All pages were freed, in reverse order, and these were given.
    FreedInReverse(Vec<Position>),
}

/// How many blocks of a list scripts and random operations print.
pub const SHOWN_BY_SCRIPTS: usize = 16;
/// As above.
pub const SHOWN_BY_RANDOM: usize = 24;

/// Reads a text.
pub fn read(text: &str) -> Result<Experiment, String> {
    let mut lines = lines(text);
    let target = Target::of(lines.next().ok_or("an empty text")?)?;
    let mut experiment = Experiment { target, pagesets: false, blocks: 0, steps: Vec::new() };
    for line in lines {
        match line.word() {
            "MODE" => experiment.pagesets = line.number("pcp")? == 1,
            "MT_CLEAN" => experiment.blocks = line.numbers("M")?.last().copied().unwrap_or(0),
            // What the module took away before, and the types' lists as they were for others.
            "MT_BEFORE" | "MT_END" | "HELD" | "GRAB_FAIL" | "GRAB_ZONE" | "BUDDY_END" => {}
            // The first one stands before the scripts, of which each has its own.
            _ => experiment.steps.push(step(line)?),
        }
    }
    Ok(experiment)
}

fn step(line: Line<'_>) -> Result<Step, String> {
    match line.word() {
        "SCRIPT" => Ok(Step::Script),
        "RANDOM" => Ok(Step::Random),
        "NOTCLEAN" => Ok(Step::NotClean),
        "RESET" => Ok(Step::Reset(State::of(line)?)),
        "SCRIPT_END" => Ok(Step::ScriptEnd(lists::read(line.0)?)),
        "RANDOM_END" => Ok(Step::RandomEnd(lists::read(line.0)?)),
        "DRAINED" => Ok(Step::Drained(lists::read(line.0)?)),
        "OP" | "ROP" => operation(line),
        "PCPORDER" => Ok(Step::Order(page_order(line)?)),
        _ => line.unknown(),
    }
}

/// `OP a3 slot=0 at=0:8 | lists pcp=0`, `OP f0 order=3 at=0:8 | lists pcp=0`, `ROP a3 0:8`.
fn operation(line: Line<'_>) -> Result<Step, String> {
    let (head, tail) = match line.0.split_once('|') {
        Some((head, tail)) => (Line(head), Some(Line(tail))),
        None => (line, None),
    };
    let mut words = head.rest().split_whitespace();
    let (what, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let at = match head.find("at") {
        Some(at) => Position::parse(at)?,
        None => Position::parse(second)?,
    };
    let after = match tail {
        Some(tail) => {
            let cached = tail.find("pcp").map(|pages| tail.parse(pages)).transpose()?;
            Some(After { lists: lists::read(tail.0)?, cached })
        }
        None => None,
    };
    match what.split_at_checked(1) {
        Some(("a", order)) => Ok(Step::Alloc { order: Order(line.parse(order)? as u8), at, after }),
        Some(("f", _)) => Ok(Step::Free { at, after }),
        _ => line.unknown(),
    }
}

fn page_order(line: Line<'_>) -> Result<PageOrder, String> {
    if let Some(pages) = line.find("pcp") {
        return Ok(PageOrder::Freed { cached: line.parse(pages)? });
    }
    let (words, positions) =
        line.0.split_once(": ").ok_or_else(|| format!("no positions: {}", line.0))?;
    let positions = positions.split_whitespace().map(Position::parse).collect::<Result<_, _>>()?;
    Ok(match words.contains("freed in reverse") {
        true => PageOrder::FreedInReverse(positions),
        false => PageOrder::Given(positions),
    })
}
