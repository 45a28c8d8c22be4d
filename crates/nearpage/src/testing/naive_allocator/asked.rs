//! A request that was checked, and the nodes that it may use.

use std_alloc::collections::BTreeSet;
use std_alloc::vec::Vec;

use crate::alloc::Reason;
use crate::frame::Migratetype;
use crate::gfp::Gfp;
use crate::units::{CpuId, NodeIndex, Order, ZoneKind};

/// Nodes.
pub type Nodes = BTreeSet<NodeIndex>;

/// A request that makes sense.
#[derive(Clone)]
pub(super) struct Asked {
    pub cpu: CpuId,
    pub order: Order,
    pub gfp: Gfp,
    pub migratetype: Migratetype,
    pub kind: ZoneKind,
    pub node: NodeIndex,
    /// Zone numbers in the order of the scan.
    pub zonelist: Vec<usize>,
    /// Beside them those that are left out, and why.
    pub walk: Vec<(usize, Option<Reason>)>,
    /// The zone that stands first on the list.
    pub head: Option<usize>,
    /// The zone that requests of the node prefer.
    pub near: Option<usize>,
    /// The nodes that may be used.
    pub scope: NaiveScope,
}

/// The nodes that a request may use.
#[derive(Clone, Default)]
pub(super) struct NaiveScope {
    pub only: Option<Nodes>,
    pub allowed: Option<Nodes>,
    pub named: Nodes,
}

impl NaiveScope {
    pub(super) fn excludes(&self, node: NodeIndex, is_private: bool) -> Option<Reason> {
        let is_outside = |nodes: &Option<Nodes>| nodes.as_ref().is_some_and(|n| !n.contains(&node));
        if is_private && !self.named.contains(&node) {
            return Some(Reason::PrivateNode);
        }
        if is_outside(&self.only) {
            return Some(Reason::Policy);
        }
        is_outside(&self.allowed).then_some(Reason::Cpuset)
    }
}
