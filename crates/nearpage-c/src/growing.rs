//! A memory grows before anybody is asked to free something.

use std::sync::{Arc, OnceLock, Weak};

use nearpage::platform::{NodeReclaimed, Shortage};
use nearpage::{LimitOf, PageCount};
use nearpage_linux::{FRAME_BYTES, Memory, Pressure, Reclaim};

use crate::large::refused_by;
use crate::options::GROWTH_BYTES;

/// Reclaim, and growth before it.
#[derive(Clone)]
pub(crate) struct Growing {
    reclaim: Reclaim,
    memory: Arc<OnceLock<Weak<Memory>>>,
}

impl Growing {
    pub fn new(reclaim: Reclaim) -> Self {
        Self { reclaim, memory: Arc::default() }
    }

    /// The memory that grows.
    pub fn set(&self, memory: &Arc<Memory>) {
        let _ = self.memory.set(Arc::downgrade(memory));
    }

    /// Brings a piece of the node's reserve online; returns its pages.
    fn grow(&self, shortage: &Shortage) -> Option<PageCount> {
        let memory = self.memory.get()?.upgrade()?;
        let (node, wanted) = (shortage.node, shortage.order.pages().0 * FRAME_BYTES);
        // What a limit refuses no growth gives.
        let is_refused = |of| refused_by(&memory, of, 0, wanted).is_some();
        let left = memory.reserve_left(node);
        if left == 0 || [LimitOf::Node(node), LimitOf::Allocator].into_iter().any(is_refused) {
            return None;
        }
        memory.bring_online(node, left.min(GROWTH_BYTES)).ok()
    }
}

impl Pressure for Growing {
    fn background(&self, shortage: &Shortage) {
        self.reclaim.background(shortage);
    }

    fn direct(&self, shortage: &Shortage) -> PageCount {
        self.grow(shortage).unwrap_or_else(|| self.reclaim.direct(shortage))
    }

    fn node(&self, shortage: &Shortage) -> NodeReclaimed {
        self.reclaim.node(shortage)
    }
}
