//! Limits: what is out is what is managed and not free.

use std_alloc::vec::Vec;

use super::NaiveAllocator;
use crate::alloc::Limits;
use crate::error::{LimitError, LimitOf, UnknownNode};
use crate::units::{NodeIndex, Order, PageCount};
use crate::watermark::AllocFlags;

impl NaiveAllocator {
    /// Limits a node or the allocator.
    pub fn set_limits(&mut self, of: LimitOf, limits: Limits) -> Result<(), LimitError> {
        let node = match of {
            LimitOf::Allocator => None,
            LimitOf::Node(node) => {
                let at = self.nodes.iter().position(|known| known.id == node);
                Some(NodeIndex(at.ok_or(UnknownNode { node })? as u16))
            }
        };
        let pages = |bytes: Option<u64>| bytes.map(|bytes| bytes >> self.page_shift);
        let (hard, soft) = (pages(limits.hard_bytes), pages(limits.soft_bytes));
        if hard.is_some_and(|hard| soft.is_some_and(|soft| soft >= hard)) {
            let pages = |limit: Option<u64>| PageCount(limit.unwrap_or_default());
            return Err(LimitError::SoftNotBelowHard { of, soft: pages(soft), hard: pages(hard) });
        }
        self.limits.insert(node, (hard, soft));
        if self.is_exceeded(node) {
            let nodes: Vec<NodeIndex> = self.zones.iter().map(|zone| zone.node).collect();
            self.drain_where(|_, zone| node.is_none_or(|node| nodes[zone] == node));
        }
        Ok(())
    }

    fn is_exceeded(&self, of: Option<NodeIndex>) -> bool {
        let hard = self.limits.get(&of).and_then(|(hard, _)| *hard);
        hard.is_some_and(|hard| self.out(of).0 > hard)
    }

    /// Whether more is out than a hard limit allows that a zone counts for.
    pub(super) fn is_over_limit(&self, zone: usize) -> bool {
        self.is_exceeded(Some(self.zones[zone].node)) || self.is_exceeded(None)
    }

    /// Pages that are out of the zones of a node, or of all.
    pub fn out(&self, node: Option<NodeIndex>) -> PageCount {
        let zones = self.zones.iter().filter(|zone| node.is_none_or(|node| zone.node == node));
        PageCount(zones.map(|zone| zone.managed.0 - zone.free.0).sum())
    }

    fn room(&self, of: Option<NodeIndex>) -> u64 {
        let hard = self.limits.get(&of).and_then(|(hard, _)| *hard);
        hard.map_or(u64::MAX, |hard| hard.saturating_sub(self.out(of).0))
    }

    /// How many of `blocks` of an order may leave a zone.
    pub(super) fn may_leave(
        &mut self,
        zone: usize,
        blocks: u64,
        order: Order,
        flags: AllocFlags,
    ) -> u64 {
        let room = self.room(Some(self.zones[zone].node)).min(self.room(None));
        let fit = blocks.min(room >> order.0);
        let least = u64::from(blocks > 0 && flags.contains(AllocFlags::OVER_LIMIT));
        let fit = fit.max(least);
        self.zones[zone].events.limit_refused += u64::from(fit == 0 && blocks > 0);
        fit
    }

    /// The limit that keeps pages from leaving a zone, and its pages.
    pub(super) fn limit_reached(&self, zone: usize, pages: u64) -> Option<(LimitOf, PageCount)> {
        let node = self.zones[zone].node;
        let of = if self.room(Some(node)) < pages {
            Some(node)
        } else if self.room(None) < pages {
            None
        } else {
            return None;
        };
        let hard = self.limits[&of].0.expect("there is no room");
        let name = |node: NodeIndex| LimitOf::Node(self.nodes[node.0 as usize].id);
        Some((of.map_or(LimitOf::Allocator, name), PageCount(hard)))
    }

    /// Background reclaim is woken if too much is out.
    pub(super) fn wake_above_soft(&mut self, zone: usize, flags: AllocFlags) {
        let of = [Some(self.zones[zone].node), None];
        let is_above = of.iter().any(|of| {
            let soft = self.limits.get(of).and_then(|(_, soft)| *soft);
            soft.is_some_and(|soft| self.out(*of).0 > soft)
        });
        let wakes = u64::from(is_above && flags.contains(AllocFlags::KSWAPD));
        self.zones[zone].events.soft_limit_wakes += wakes;
        self.calls.wakes += wakes;
    }
}
