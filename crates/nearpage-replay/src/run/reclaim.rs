//! On which nodes background reclaim works, and what that does to their zones.

use nearpage::{NodeId, Order, ZoneKind};

use crate::machine::Core;

/// Nodes on which background reclaim works: from when it is woken until the node is balanced.
#[derive(Debug, Default)]
pub(crate) struct Reclaims(Vec<Reclaim>);

#[derive(Clone, Copy, Debug)]
struct Reclaim {
    node: NodeId,
    /// The highest kind of zone that it works for.
    kind: ZoneKind,
    /// Until then it is at work even if the node is balanced: the trace says so.
    until_ns: u64,
}

impl Reclaims {
    /// Begins where the core asked for it.
    pub(crate) fn begin_asked(&mut self, core: &Core<'_>) {
        while let Some((node, kind)) = core.platform().take_asked() {
            let Some(index) = core.topology().index_of(node) else { continue };
            if self.0.iter().any(|reclaim| reclaim.node == node)
                || core.is_balanced(index, Order(0), kind)
            {
                continue;
            }
            switch(core, node, kind, true);
            self.0.push(Reclaim { node, kind, until_ns: 0 });
        }
    }

    /// The kernel's reclaim is seen to work on a node until some time, whether the core would have woken it by then or
    /// not. While it does, the pagesets of the node's zones are kept small: what it frees must reach the free lists.
    pub(crate) fn note_seen(&mut self, core: &Core<'_>, node: NodeId, until_ns: u64) {
        if let Some(reclaim) = self.0.iter_mut().find(|reclaim| reclaim.node == node) {
            reclaim.until_ns = until_ns;
        } else {
            let kind = ZoneKind::Movable;
            switch(core, node, kind, true);
            self.0.push(Reclaim { node, kind, until_ns });
        }
    }

    /// Ends where the node is balanced by now. Returns whether it ended somewhere.
    pub(crate) fn end_balanced(&mut self, core: &Core<'_>, now_ns: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|&Reclaim { node, kind, until_ns }| {
            let index = core.topology().index_of(node);
            let is_balanced = index.is_some_and(|index| core.is_balanced(index, Order(0), kind));
            let is_over = is_balanced && now_ns >= until_ns;
            if is_over {
                switch(core, node, kind, false);
            }
            !is_over
        });
        self.0.len() < before
    }
}

fn switch(core: &Core<'_>, node: NodeId, kind: ZoneKind, active: bool) {
    let Some(index) = core.topology().index_of(node) else { return };
    for zone in core.zones() {
        if zone.node() == index && zone.kind() <= kind {
            core.set_reclaim_active(zone.index(), active);
            if !active {
                core.lower_boost(zone.index(), zone.boost());
            }
        }
    }
}
