//! A request that was checked: what follows from its flags, and from its policy and cpuset.

use crate::buddy::{BlockRequest, Fragmentation};
use crate::frame::Migratetype;
use crate::gfp::Gfp;
use crate::host::Platform;
use crate::policy::NodeSet;
use crate::reason::{CallSite, Reason};
use crate::units::{NodeIndex, Order, ZoneKind};
use crate::watermark::AllocFlags;
use crate::zone::Zone;

/// A request with what follows from its flags.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) order: Order,
    pub(crate) gfp: Gfp,
    pub(crate) migratetype: Migratetype,
    /// Highest zone kind that may be used.
    pub(crate) kind: ZoneKind,
    /// The node whose zonelist is walked.
    pub(super) node: NodeIndex,
    /// Where the zonelists of this CPU begin in the table of all.
    pub(super) lists: u32,
    /// The nodes that may be used.
    pub(super) scope: Scope<'a>,
    /// Of a request that may not fail.
    pub(super) climbs: Climbs,
}

/// How often a request that may not fail climbs the ladder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Climbs {
    /// Until it has a page.
    UntilItHas,
    /// Once: its caller looks elsewhere before it asks again.
    One,
}

impl Wanted<'_> {
    pub(crate) fn of_zone(&self, flags: AllocFlags) -> ZoneRequest {
        ZoneRequest { order: self.order, migratetype: self.migratetype, kind: self.kind, flags }
    }
}

/// A request as a zone sees it.
#[derive(Clone, Copy)]
pub(crate) struct ZoneRequest {
    pub(crate) order: Order,
    pub(crate) migratetype: Migratetype,
    /// Highest zone kind that the request may use.
    pub(crate) kind: ZoneKind,
    pub(crate) flags: AllocFlags,
}

impl ZoneRequest {
    pub(crate) fn block(self) -> BlockRequest {
        let fragmentation = if self.flags.contains(AllocFlags::NOFRAGMENT) {
            Fragmentation::Avoided
        } else {
            Fragmentation::Allowed
        };
        BlockRequest { order: self.order, migratetype: self.migratetype, fragmentation }
    }
}

/// How much of a scan's first zone was tried before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstZone {
    /// Nothing.
    Untried,
    /// It passed its watermark, and the pageset for it could not be filled: the fast path.
    PagesetTried,
}

/// The nodes that a request may use.
#[derive(Clone, Copy, Default)]
pub(super) struct Scope<'a> {
    /// No others: a policy's set.
    pub(super) only: Option<NodeSet<'a>>,
    /// No others: the cpuset.
    pub(super) allowed: Option<NodeSet<'a>>,
    /// Of the private nodes, no others.
    pub(super) named: Option<NodeSet<'a>>,
    /// Where to count beside the matrix.
    pub(super) site: Option<&'a CallSite>,
}

impl Scope<'_> {
    /// All nodes but private ones.
    #[inline]
    pub(super) fn is_general(&self) -> bool {
        self.only.is_none() && self.allowed.is_none() && self.named.is_none()
    }

    /// Whether a policy or a cpuset leaves out nodes that requests with the same names may use.
    pub(super) fn is_limited(&self) -> bool {
        self.only.is_some() || self.has_cpuset()
    }

    /// Whether there is a cpuset.
    pub(super) fn has_cpuset(&self) -> bool {
        self.allowed.is_some()
    }

    /// Whether the request names a node.
    pub(super) fn names(&self, node: NodeIndex) -> bool {
        self.named.is_some_and(|nodes| nodes.contains(node))
    }

    /// Why a node is not one of them, if it is not.
    pub(super) fn excludes(&self, node: NodeIndex, is_private: bool) -> Option<Reason> {
        let is_outside = |nodes: NodeSet<'_>| !nodes.contains(node);
        if is_private && !self.names(node) {
            Some(Reason::PrivateNode)
        } else if self.only.is_some_and(is_outside) {
            Some(Reason::Policy)
        } else if self.allowed.is_some_and(is_outside) {
            Some(Reason::Cpuset)
        } else {
            None
        }
    }

    /// Without the cpuset.
    pub(super) fn beyond_cpuset(self) -> Self {
        Self { allowed: None, ..self }
    }

    /// Without the policy's set.
    pub(super) fn beyond_policy(self) -> Self {
        Self { only: None, ..self }
    }

    /// All nodes but private ones that the request does not name.
    pub(super) fn anywhere(self) -> Self {
        self.beyond_policy().beyond_cpuset()
    }
}

/// The flags of the first scan: the low mark, and no mixing of pageblocks where the preferred zone has
/// alternatives. Facts 4.1.
pub(crate) fn first_flags<P: Platform>(gfp: Gfp, preferred: &Zone<'_, P>) -> AllocFlags {
    let when = |condition, flags| if condition { flags } else { AllocFlags::WMARK_MIN };
    AllocFlags::WMARK_LOW
        .union(when(gfp.contains(Gfp::KSWAPD_RECLAIM), AllocFlags::KSWAPD))
        .union(when(preferred.avoids_fragmentation(), AllocFlags::NOFRAGMENT))
}
