//! Many pages at once, near the low mark of their zone.
//!
//! Before each request the module takes blocks of the zone, and how much of it was in large ones the text does not tell.
//! There must be one amount from which all requests come out as recorded: that of a capture, or another one, which is
//! looked for only where everything else came out.

use nearpage::{Model, NodeId, Order, Pfn, Request};

use super::{HERE, LARGE_BLOCKS, hold};
use crate::lab::{self, CoreZone, Lab};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::tally::Tally;
use crate::text::bulk::Low;
use crate::text::pcp::Target;

/// Pages above what is to be left at which the module goes on with single ones.
const SINGLES: u64 = 300;

/// A request of a text.
pub struct LowRequest {
    /// Where it stands.
    pub place: String,
    /// Pages that were to be left in the zone before it.
    pub goal: u64,
    /// What came of it.
    pub low: Low,
}

/// A machine and its zone under test.
pub struct Bench<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The zone.
    pub target: &'a Target,
    /// Its kernel.
    pub model: Model,
    /// Pages of the zone that were not in large blocks, as a capture tells.
    pub small: Option<u64>,
}

impl Bench<'_> {
    /// Replays the requests of a text.
    pub fn replay(
        &self,
        requests: &[LowRequest],
        rules_hold: bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let shortages = requests.iter().map(|request| hold::shortage(request.goal + SINGLES));
        let small: Vec<u64> = self.small.into_iter().chain(shortages).chain([0]).collect();
        let mut told = Tally::default();
        self.replay_from(small[0], requests, &mut told)?;
        if told.differences() > 0 && rules_hold {
            for &small in &small[1..] {
                let mut other = Tally::default();
                self.replay_from(small, requests, &mut other)?;
                if other.differences() == 0 {
                    other.unanswered(LARGE_BLOCKS);
                    tally.add(other);
                    return Ok(());
                }
            }
        }
        tally.add(told);
        Ok(())
    }

    /// Replays them on a zone with so many pages in small blocks.
    fn replay_from(
        &self,
        small: u64,
        requests: &[LowRequest],
        tally: &mut Tally,
    ) -> Result<(), String> {
        let Self { machine, target, model, .. } = *self;
        let topology = machine.topology(|zone| match zone.name == target.zone {
            true => hold::layout(zone, zone.free, 0, small),
            false => Layout::Whole(zone.free),
        })?;
        lab::with(machine, topology, model, target.cpu, |lab| {
            let zone = lab.zone(target.zone)?;
            for request in requests {
                tally.at(&request.place);
                let low = again(lab, zone, target, request);
                tally.compare("request near the low mark", request.low, low);
            }
            Ok(())
        })
    }
}

/// Does what the module did for one request, and gives everything back.
fn again(lab: &Lab<'_, '_>, zone: &CoreZone<'_>, target: &Target, request: &LowRequest) -> Low {
    let LowRequest { goal, low, .. } = request;
    lab.reset_again(zone);
    let mut held = hold::take(lab, zone, goal + SINGLES);
    lab.reset_again(zone);
    lab.pagesets_off(zone);
    let is_ours = |pfn: Pfn| core::ptr::addr_eq(lab.zone_of(pfn), zone);
    while zone.free_pages().0 > low.free_before
        && let Some(pfn) = lab.alloc(Order(0), HERE, target.zone.node)
    {
        held.push((pfn, Order(0)));
        if !is_ours(pfn) {
            break;
        }
    }
    lab.set_sizes(zone, target.sizes);
    lab.reset_again(zone);
    lab.leave(zone, low.free_before, &mut held);
    let mut given = vec![Pfn(0); low.pages as usize];
    let bulk = Request::new(Order(0), HERE).on(NodeId(target.zone.node));
    let got = lab.core.alloc_bulk(bulk, &mut given).unwrap_or(0);
    given.truncate(got);
    let answer = Low {
        free_before: low.free_before,
        pages: low.pages,
        got: got as u64,
        in_zone: given.iter().filter(|&&pfn| is_ours(pfn)).count() as u64,
        free_after: zone.free_pages().0,
        cached: lab.pageset(zone).count().0,
    };
    given.into_iter().for_each(|pfn| lab.free(pfn, Order(0)));
    held.into_iter().rev().for_each(|(pfn, order)| lab.free(pfn, order));
    answer
}
