//! The start state where the kernel's own was recorded: nothing is left open.

use std::sync::Arc;

use nearpage::{AddressMap, Migratetype, Order, PageCount};
use nearpage_machine::work::Unwatched;
use nearpage_trace::{TraceError, read_trace};

use super::Start;
use crate::bundle::Bundle;
use crate::error::ReplayError;
use crate::kernel_state::{KernelState, Moment, Roll};
use crate::watch::Watch;

/// The state of the kernel with which the window of a bundle's trace can begin, at the end of its reading; or a sentence that
/// says why there is none.
///
/// # Errors
///
/// The state or the trace is damaged.
pub(crate) fn known_state(
    bundle: &Bundle,
    start: &Start,
) -> Result<Result<KernelState, String>, ReplayError> {
    let watch = Watch::new(&Unwatched, bundle.pass_bytes(), 1);
    if !bundle.reads_state() {
        return Ok(Err(format!("{} is not read, as asked", Moment::Before.file())));
    }
    if bundle.other_trace().is_some() {
        return Ok(Err("the trace is not the bundle's own".into()));
    }
    let Some(read) = bundle.state(Moment::Before)? else {
        return Ok(Err(format!("the bundle has no {}", Moment::Before.file())));
    };
    let zones: Vec<_> = start.zones.iter().map(|zone| (zone.node, zone.kind)).collect();
    let state = match KernelState::of(&read, &zones, &start.map) {
        Ok(state) => state,
        Err(why) => return Ok(Err(format!("{}: {why}", Moment::Before.file()))),
    };
    let mut roll = Roll::new(Moment::Before, state, &start.map);
    bundle.with_trace_text(&watch, |name, text| {
        let read = read_trace::<Found>(name, text, |event| match roll.note(event) {
            Some(state) => Err(Found::State(Box::new(state))),
            None => Ok(()),
        });
        match read {
            Err(Found::State(state)) => Ok(Ok(*state)),
            Err(Found::Error(error)) => Err(error.into()),
            Ok(_) => Ok(Err("the trace has no markers around its reading".into())),
        }
    })
}

/// Why a pass ends early.
enum Found {
    State(Box<KernelState>),
    Error(TraceError),
}

impl From<TraceError> for Found {
    fn from(error: TraceError) -> Found {
        Found::Error(error)
    }
}

impl Start {
    /// The same with what the kernel's state tells in place of what `before` does.
    pub(crate) fn with_state(
        mut self,
        input: &str,
        state: KernelState,
    ) -> Result<Start, ReplayError> {
        for (index, (zone, known)) in self.zones.iter_mut().zip(&state.zones).enumerate() {
            zone.free = Migratetype::ALL.map(|of| {
                let blocks = |order: usize| state.free(index, of, Order(order as u8)).len() as u64;
                std::array::from_fn(blocks)
            });
            zone.pageblocks = known.pageblocks();
            for pageset in &mut zone.pagesets {
                let Some(own) = known.pageset(pageset.cpu) else { continue };
                let pages = state.cached_pages(index, pageset.cpu);
                let told = |value: i64| PageCount(value.max(0) as u64);
                pageset.count = PageCount(pages.iter().sum());
                pageset.high = told(own.fields.high);
                pageset.sizes.batch = told(own.fields.batch);
                pageset.sizes.high_min = own.fields.high_min.map_or(pageset.high, told);
                pageset.sizes.high_max = own.fields.high_max.map_or(pageset.high, told);
            }
        }
        let mut spans = Vec::new();
        for node in &mut self.topology.nodes {
            node.memory.clear();
            let own = self.zones.iter().zip(&state.zones).filter(|(zone, _)| zone.node == node.id);
            for (zone, known) in own {
                node.memory.extend(&known.memory);
                spans.extend(known.memory.iter().map(|range| (zone.kind, *range)));
            }
            node.memory.sort_by_key(|range| range.start);
        }
        if let Some(address_map) = AddressMap::of_zones(spans) {
            self.topology.address_map = address_map;
        }
        let checked = self.topology.with(|_| ());
        checked.map_err(|source| ReplayError::Topology { input: input.into(), source })?;
        Ok(Start { state: Some(Arc::new(state)), ..self })
    }
}
