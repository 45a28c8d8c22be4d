//! Many pages at once: how many come, from where, and what it does to the pageset.
//!
//! On 6.1 a page of an unmovable request may lie in a movable pageblock. It comes back to the movable list then,
//! and the next such request takes a whole refill more. Which pageblocks are of which type is not recorded and
//! differs from boot to boot; so where boots differ, the count is compared up to whole batches.

use nearpage::{Gfp, Model, NodeId, Order, Pfn, Request};

use super::low::{Bench, LowRequest};
use super::pageset::{is_old, state};
use super::target;
use crate::lab::{self, CoreZone, Lab};
use crate::layout::Layout;
use crate::recordings::Recording;
use crate::tally::Tally;
use crate::text::bulk::{Entry, read};
use crate::text::pcp::{State, Target};

/// Flags of the module's requests: nobody reclaims, on any node.
const ANYWHERE: Gfp = Gfp::NOWARN;

/// Replays all entries of a text.
pub fn replay(
    recording: &Recording,
    text: &str,
    model: Model,
    tally: &mut Tally,
) -> Result<(), String> {
    let Some((target, entries)) = read(text)? else {
        tally.unanswered("empty text: the node of CPU 0 has no memory");
        return Ok(());
    };
    let machine = target::machine(recording, &target)?;
    let (mut near, before) = (Vec::new(), tally.differences());
    let topology = machine.topology(|zone| Layout::Whole(zone.free))?;
    lab::with(&machine, topology, model, target.cpu, |lab| {
        let zone = lab.zone(target.zone)?;
        let mut run = Run { lab, zone, target: &target, boots: Boots::Agree };
        for (number, entry) in entries.iter().enumerate() {
            tally.at(format!("{}: entry {number}", recording.name));
            // The first line is that of the target.
            run.boots = match crate::collection().boots_differ(recording, "bulk", number + 1) {
                Some(false) => Boots::Agree,
                Some(true) => Boots::Differ,
                None if is_old(&model) => Boots::Differ,
                None => Boots::Agree,
            };
            match entry {
                Entry::Low { goal, low } => {
                    let place = format!("{}: entry {number}", recording.name);
                    near.push(LowRequest { place, goal: *goal, low: *low });
                }
                _ => run.entry(entry, tally),
            }
        }
        Ok::<_, String>(())
    })?;
    let small = recording.small_blocks(target.zone);
    let bench = Bench { machine: &machine, target: &target, model, small };
    bench.replay(&near, tally.differences() == before, tally)
}

struct Run<'a, 'm> {
    lab: &'a Lab<'a, 'm>,
    zone: &'m CoreZone<'m>,
    target: &'a Target,
    boots: Boots,
}

/// Whether boots of the same kernel on the same machine gave the same answer, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Boots {
    Agree,
    Differ,
}

impl Run<'_, '_> {
    fn entry(&self, entry: &Entry, tally: &mut Tally) {
        match entry {
            Entry::Reset(after) => {
                self.lab.reset(self.zone, after.free_high_batch());
                tally.compare("pageset after a reset", *after, self.state());
            }
            Entry::Bulk { pages, got, after } => {
                let given = self.bulk(*pages);
                tally.compare("pages given", *got, given.len() as u64);
                self.compare_after(*after, tally);
                given.iter().for_each(|&page| self.lab.free(page, Order(0)));
            }
            Entry::Holes { slots, filled, returned, after } => {
                let given = self.bulk(slots - filled);
                tally.compare("pages given", *returned, filled + given.len() as u64);
                self.compare_after(*after, tally);
                given.iter().for_each(|&page| self.lab.free(page, Order(0)));
            }
            Entry::Low { .. } => unreachable!("has a start of its own"),
        }
    }

    fn compare_after(&self, kernel: State, tally: &mut Tally) {
        let core = self.state();
        if self.boots == Boots::Agree || kernel == core {
            return tally.compare("pageset after it", kernel, core);
        }
        let rest = |state: State| State { count: state.count % self.target.sizes.batch.0, ..state };
        tally.compare("pageset after it, up to whole batches", rest(kernel), rest(core));
    }

    fn state(&self) -> State {
        state(self.lab, self.zone)
    }

    fn bulk(&self, pages: u64) -> Vec<Pfn> {
        let mut given = vec![Pfn(0); pages as usize];
        let request = Request::new(Order(0), ANYWHERE).on(NodeId(self.target.zone.node));
        let got = self.lab.core.alloc_bulk(request, &mut given).unwrap_or(0);
        given.truncate(got);
        given
    }
}
