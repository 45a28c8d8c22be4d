//! Tasks whose blocks a memory policy places.
//!
//! Policies are in no event. But a block that was taken from another node than the nearest, while the nearest had much
//! more free than its marks ask for, was asked for there. A task with several of them has a policy: its blocks were asked
//! for on the nodes where they lie, as those with `__GFP_THISNODE` were.

use std::collections::{HashMap, HashSet};

use nearpage::{NodeIndex, ZoneKind};

use crate::events::Actor;
use crate::machine::Core;
use crate::run::preferred;

/// So many blocks that nothing else explains make a policy.
const BLOCKS_LEAST: u32 = 16;

/// By task, blocks that were asked for where they lie.
#[derive(Debug, Default)]
pub(crate) struct Policies(HashMap<u32, u32>);

impl Policies {
    /// Notes a block that a task took from a zone, which did not have to be of that node. The core is as the kernel was.
    pub(crate) fn note(&mut self, core: &Core<'_>, actor: Actor, kind: ZoneKind, zone: usize) {
        let own = core.topology().node_of_cpu(actor.cpu);
        let Some(nearest) = own.and_then(|node: NodeIndex| preferred(core, node, kind)) else {
            return;
        };
        let (nearest, zone) = (core.zones()[nearest], core.zones()[zone]);
        if nearest.node() == zone.node() {
            return;
        }
        let hold = core
            .pagesets(actor.cpu)
            .map_or(0, |of| of[nearest.index().0 as usize].tuning().hold_max(&core.model().pcp).0);
        // What other CPUs have taken and not told yet is less than what they hold at once.
        let margin = nearest.marks().high.0 + 2 * hold;
        if nearest.free_pages().0 > margin {
            *self.0.entry(actor.pid).or_default() += 1;
        }
    }

    /// The tasks that have policies.
    pub(crate) fn tasks(self) -> HashSet<u32> {
        self.0.into_iter().filter(|(_, blocks)| *blocks >= BLOCKS_LEAST).map(|of| of.0).collect()
    }
}
