//! `pcp`: the state of one pageset after bursts of allocations and frees.

use nearpage::rules::pagesets::Sizes;
use nearpage::{CpuId, Marks, Order, PageCount};

use crate::fields::{Line, cpu, lines};
use crate::machine::ZoneName;

/// The zone under test, and the pageset: a line that several kinds of experiments begin with.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The zone.
    pub zone: ZoneName,
    /// The CPU whose pageset it is.
    pub cpu: CpuId,
    /// Free pages of the zone at the start.
    pub free: u64,
    /// Watermarks.
    pub marks: Marks,
    /// Pages kept from the experiment's requests.
    pub reserve: PageCount,
    /// Sizes of the pageset.
    pub sizes: Sizes,
}

impl Target {
    /// Reads the line.
    pub fn of(line: Line<'_>) -> Result<Self, String> {
        if line.word() != "TARGET" {
            return Err(format!("expected the line TARGET, found: {}", line.0));
        }
        let pages = |key| line.number(key).map(PageCount);
        // On 6.1 a second `high` is the pageset's.
        let one_size = || line.last_number("high").map(PageCount);
        let mark = pages("high")?;
        Ok(Self {
            zone: ZoneName::of(line)?,
            cpu: CpuId(line.number("cpu")? as u32),
            free: line.counter("free")?,
            marks: Marks { min: pages("min")?, low: pages("low")?, high: mark, promo: mark },
            reserve: pages("reserve")?,
            sizes: Sizes {
                batch: pages("batch")?,
                high_min: pages("high_min").or_else(|_| one_size())?,
                high_max: pages("high_max").or_else(|_| one_size())?,
            },
        })
    }
}

/// State of a pageset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Pages in it.
    pub count: u64,
    /// Its limit.
    pub high: u64,
    /// `alloc_factor`; on 6.1 `free_factor`.
    pub factor: u64,
    /// `free_count`; 6.1 has none.
    pub free_count: Option<u64>,
    /// Flags; 6.1 has none, nor has the state within a burst.
    pub flags: Option<u64>,
}

/// The flag of a pageset that a free of order 1 to 3 was the last: `PCPF_PREV_FREE_HIGH_ORDER`.
pub const PREV_FREE_HIGH: u64 = 1;
/// The flag of a pageset whose CPU has a large slice of the cache: `PCPF_FREE_HIGH_BATCH`.
pub const FREE_HIGH_BATCH: u64 = 2;

impl State {
    /// From the fields of a line.
    pub fn of(line: Line<'_>) -> Result<Self, String> {
        let is_old = line.find("ff").is_some();
        let newer = |key| if is_old { Ok(None) } else { line.number(key).map(Some) };
        Ok(Self {
            count: line.number("count")?,
            high: line.number("high")?,
            factor: line.number(if is_old { "ff" } else { "af" })?,
            free_count: newer("fc")?,
            flags: newer("fl")?,
        })
    }

    /// Whether the CPU has a large slice of the cache.
    pub fn free_high_batch(&self) -> bool {
        self.flags.is_some_and(|flags| flags & FREE_HIGH_BATCH != 0)
    }
}

/// A refill or a drain: the state right after that operation of a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Which operation of the burst.
    pub operation: u64,
    /// The state, without flags.
    pub state: State,
}

/// What a burst does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Burst {
    /// Allocates.
    Alloc,
    /// Frees what was allocated last, last first.
    Free,
    /// Frees what was allocated last, first first.
    FreeInOrder,
}

/// How a burst ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// After all operations.
    Complete,
    /// At an allocation that another zone gave, after so many of this one.
    OtherZone(u64),
    /// At an allocation that no zone gave.
    Failure,
}

/// One line of an experiment.
pub enum Record {
    /// The pageset was drained, and its tuning forgot.
    Reset(State),
    /// Pages were taken from the zone until it was near its high mark.
    Held(Held),
    /// A turn of the decay: whether there is more to do, and the state before (`high`, `count`) and after.
    Decay { again: bool, before: [u64; 2], after: State },
    /// Operations of one kind.
    Burst(BurstRecord),
}

/// How many pages were taken from the zone.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// How many.
    pub pages: u64,
    /// How many were to be left.
    pub goal: u64,
}

/// Operations of one kind, with what the kernel answered.
pub struct BurstRecord {
    /// What they do.
    pub burst: Burst,
    /// How many at most.
    pub operations: u64,
    /// Of which order.
    pub order: Order,
    /// Refills and drains.
    pub events: Vec<Event>,
    /// The state at the end.
    pub after: State,
    /// How it ended.
    pub ending: Ending,
    /// Free pages of the zone at the end.
    pub zone_free: u64,
    /// `zone->flags` at the end.
    pub zone_flags: u64,
}

/// A named experiment.
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// What was done.
    pub records: Vec<Record>,
}

/// Reads a text.
pub fn read(text: &str) -> Result<(Target, Vec<Experiment>), String> {
    cpu(text)?;
    let mut lines = lines(text);
    let target = Target::of(lines.next().ok_or("an empty text")?)?;
    let mut experiments: Vec<Experiment> = Vec::new();
    for line in lines {
        match line.word() {
            // How much room there is, and which sizes were left out for want of it.
            "ROOM" | "NOROOM" | "EXP_END" => {}
            "EXP" => {
                let name = line.text("name")?.into();
                experiments.push(Experiment { name, records: Vec::new() });
            }
            _ => {
                let experiment = experiments.last_mut();
                let experiment = experiment.ok_or_else(|| format!("no EXP before: {}", line.0))?;
                experiment.records.push(record(line)?);
            }
        }
    }
    Ok((target, experiments))
}

fn record(line: Line<'_>) -> Result<Record, String> {
    match line.word() {
        "RESET" => Ok(Record::Reset(State::of(line)?)),
        "HELD" => {
            Ok(Record::Held(Held { pages: line.number("pages")?, goal: line.counter("target")? }))
        }
        // The module logged a whole register; the kernel's answer is a bool, its lowest byte.
        "DECAY" => Ok(Record::Decay {
            again: line.signed("todo")? as u8 != 0,
            before: [line.number("before_high")?, line.number("before_count")?],
            after: State::of(line)?,
        }),
        "B" => Ok(Record::Burst(burst(line)?)),
        _ => line.unknown(),
    }
}

fn burst(line: Line<'_>) -> Result<BurstRecord, String> {
    let malformed = || format!("a burst without its parts: {}", line.0);
    let (head, rest) = line.0.split_once(" :").ok_or_else(malformed)?;
    let (events, tail) = rest.split_once('|').ok_or_else(malformed)?;
    let (head, tail) = (Line(head), Line(tail));
    let burst = match (head.rest().get(..1), head.0.ends_with("fifo")) {
        (Some("a"), _) => Burst::Alloc,
        (Some("f"), false) => Burst::Free,
        (Some("f"), true) => Burst::FreeInOrder,
        _ => return Err(malformed()),
    };
    let flags = tail.text("zflags")?;
    Ok(BurstRecord {
        burst,
        operations: head.number("n")?,
        order: Order(head.number("order")? as u8),
        events: events.split_whitespace().map(event).collect::<Result<_, _>>()?,
        after: State::of(tail)?,
        ending: match (tail.find("fails"), tail.find("spilled_at")) {
            (None, None) => Ending::Complete,
            (None, Some(at)) => Ending::OtherZone(tail.parse(at)?),
            (Some("1"), None) => Ending::Failure,
            _ => return Err(format!("the module went wrong: {}", line.0)),
        },
        zone_free: tail.counter("zfree")?,
        zone_flags: u64::from_str_radix(flags, 16).map_err(|error| format!("{error}: {flags}"))?,
    })
}

/// `operation/count/high/alloc_factor/free_count`, or on 6.1 `operation/count/high/free_factor`.
fn event(text: &str) -> Result<Event, String> {
    let numbers = text.split('/').map(|number| Line(text).parse(number));
    let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
    let ([operation, count, high, factor] | [operation, count, high, factor, _]) = numbers[..]
    else {
        return Err(format!("{text:?} is no event"));
    };
    let state = State { count, high, factor, free_count: numbers.get(4).copied(), flags: None };
    Ok(Event { operation, state })
}

mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_decay_is_the_lowest_byte_of_a_register() {
        let again = |todo: &str| {
            let state = "before_high=938 before_count=343 count=343 high=821 af=0 fc=64 fl=0";
            match record(Line(&format!("DECAY k=0 todo={todo} {state}"))) {
                Ok(Record::Decay { again, before: [938, 343], .. }) => Ok(again),
                Ok(_) => panic!("another record"),
                Err(error) => Err(error),
            }
        };
        assert_eq!([again("-1791"), again("1"), again("257")], [Ok(true), Ok(true), Ok(true)]);
        assert_eq!([again("-256"), again("0")], [Ok(false), Ok(false)]);
        assert!(again("-").unwrap_err().starts_with("\"-\" is no number, in: DECAY k=0 todo=-"));
    }
}
