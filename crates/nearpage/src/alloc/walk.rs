//! The zones of a request, in the order of fallback. Facts 3.3, 3.4.

use core::iter::Chain;
use core::ops::Range;

use super::allocator::PageAllocator;
use super::request::Request;
use super::wanted::{Climbs, Scope, Wanted};
use crate::error::AllocError;
use crate::gfp::Gfp;
use crate::host::Platform;
use crate::pcp::Storage;
use crate::reason::Reason;
use crate::units::{MAX_ORDER, NodeIndex};
use crate::zone::Zone;
use crate::zonelist::list::{Reading, Zonelist};

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Checks a request.
    pub(super) fn wanted<'a>(&self, request: Request) -> Result<Wanted<'a>, AllocError> {
        let Request { order, gfp, node } = request;
        if order > MAX_ORDER {
            return Err(AllocError::OrderTooLarge { order });
        }
        let (Some(kind), Some(migratetype)) = (gfp.zone_kind(), gfp.migratetype()) else {
            return Err(AllocError::BadFlags { gfp });
        };
        let node = match node {
            Some(id) => self.node_index(id).ok_or(AllocError::UnknownNode { node: id })?,
            None => self.this_node(),
        };
        let (scope, climbs) = (Scope::default(), Climbs::UntilItHas);
        let lists = self.own_lists();
        let wanted = Wanted { order, gfp, migratetype, kind, node, lists, scope, climbs };
        if gfp.contains(Gfp::THISNODE) && self.zonelist(&wanted).next().is_none() {
            return Err(AllocError::MemorylessNode { node: self.node_id(node), gfp });
        }
        Ok(wanted)
    }

    /// The node of this CPU; of a CPU that the topology does not have, the first node with memory.
    #[doc(hidden)]
    pub fn this_node(&self) -> NodeIndex {
        match self.cpu(self.platform.storage().current_cpu()) {
            Some(cpu) => cpu.owner.node,
            None => self.zones[0].node(),
        }
    }

    /// Where the zonelists for requests of this CPU begin in the table of all. Those for a CPU that the topology does
    /// not have are the first.
    pub(super) fn own_lists(&self) -> u32 {
        self.cpu(self.platform.storage().current_cpu()).map_or(0, |cpu| cpu.lists)
    }

    /// The zones that a request may use, in the order of fallback. Facts 3.3, 3.4.
    pub(super) fn zonelist<'a>(
        &'a self,
        wanted: &Wanted<'a>,
    ) -> impl Iterator<Item = &'m Zone<'m, P>> + use<'a, 'm, P> {
        let (list, wanted) = (self.list(wanted), *wanted);
        let mut reading = list.read();
        let mut positions = self.positions(reading, &wanted);
        core::iter::from_fn(move || {
            loop {
                match self.zone_at(reading, positions.next()?) {
                    Some(zone) if self.excludes(zone, &wanted).is_none() => return Some(zone),
                    Some(_) => {}
                    // The list was written over: again from the beginning of the one in force. That a zone comes
                    // twice does no harm to any caller.
                    None => {
                        reading = list.read();
                        positions = self.positions(reading, &wanted);
                    }
                }
            }
        })
    }

    /// The places of those zones on a list.
    pub(super) fn usable_positions<'a>(
        &'a self,
        list: Reading<'m, 'm>,
        wanted: &'a Wanted<'a>,
    ) -> impl Iterator<Item = usize> + use<'a, 'm, P> {
        let is_usable = |zone: &Zone<'m, P>| self.excludes(zone, wanted).is_none();
        self.positions(list, wanted)
            .filter(move |&at| self.zone_at(list, at).is_some_and(is_usable))
    }

    /// The places of all zones that a request would look at if it were not for its policy and its cpuset. Private
    /// nodes come last, unless the request begins at one that it names.
    pub(super) fn positions(
        &self,
        list: Reading<'m, 'm>,
        wanted: &Wanted<'_>,
    ) -> Chain<Range<usize>, Range<usize>> {
        let general = 0..list.len();
        if wanted.gfp.contains(Gfp::THISNODE) {
            list.own().chain(0..0)
        } else if wanted.scope.named.is_none() {
            general.chain(0..0)
        } else if self.is_private(wanted.node) && wanted.scope.names(wanted.node) {
            (general.end..list.all_len()).chain(general)
        } else {
            general.clone().chain(general.end..list.all_len())
        }
    }

    /// Why a request may not use a zone of its list, if it may not.
    #[inline]
    pub(super) fn excludes(&self, zone: &Zone<'m, P>, wanted: &Wanted<'_>) -> Option<Reason> {
        if wanted.scope.is_general() {
            return None;
        }
        let node = zone.node();
        let is_private = self.is_private(node) && !wanted.gfp.contains(Gfp::THISNODE);
        wanted.scope.excludes(node, is_private)
    }

    pub(super) fn list(&self, wanted: &Wanted<'_>) -> &'m Zonelist<'m> {
        let of_node = &self.lists[wanted.lists as usize + wanted.node.0 as usize];
        &of_node.zonelists[wanted.kind.index()]
    }

    /// `None` if the list was written over meanwhile.
    #[inline]
    pub(super) fn zone_at(
        &self,
        list: Reading<'m, 'm>,
        position: usize,
    ) -> Option<&'m Zone<'m, P>> {
        Some(self.zones[list.zone(position)?.0 as usize])
    }

    /// The zone that a request would look at first if it were not for its policy and its cpuset, and why it may
    /// not use it, if it may not.
    pub(super) fn nearest(&self, wanted: &Wanted<'_>) -> Option<(&'m Zone<'m, P>, Option<Reason>)> {
        loop {
            let list = self.list(wanted).read();
            let position = self.positions(list, wanted).next()?;
            if let Some(zone) = self.zone_at(list, position) {
                return Some((zone, self.excludes(zone, wanted)));
            }
        }
    }

    /// The id of a node.
    pub(super) fn node_id(&self, node: NodeIndex) -> crate::units::NodeId {
        self.nodes[node.0 as usize].id
    }
}
