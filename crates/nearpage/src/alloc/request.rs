//! What somebody asks for.

use crate::gfp::Gfp;
use crate::units::{NodeId, Order};

/// What somebody wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Size of the block.
    pub order: Order,
    /// Zone, urgency, migratetype.
    pub gfp: Gfp,
    /// The node to prefer; `None` is the node of the CPU that asks.
    pub node: Option<NodeId>,
}

impl Request {
    /// A block of `order` near the CPU that asks.
    #[inline]
    pub const fn new(order: Order, gfp: Gfp) -> Self {
        Self { order, gfp, node: None }
    }

    /// The same, near `node`.
    #[inline]
    pub const fn on(self, node: NodeId) -> Self {
        Self { node: Some(node), ..self }
    }
}
