//! Making an allocator out of the caller's memory.
//!
//! What belongs to a node lies in that node's buffer: the frames of its sections, its zones and zonelists,
//! and the pagesets of its CPUs. What belongs to a memoryless node lies with the nearest node that has
//! memory. The tables that everybody reads (zones, nodes, CPUs, sections) lie with the first node
//! that has memory. Frames and rings are carved and not touched.

use super::allocator::PageAllocator;
use super::build_error::BuildError;
use super::carve::{COUNTED, Carver};
use super::config::Config;
use super::plan::Plan;
use super::plugged::HotplugCounts;
use super::state::State;
use crate::arena::OutOfMetadata;
use crate::host::{Lock, Platform};
use crate::model::PageblockOwners;
use crate::rule_set::RuleParts;
use crate::sync::AtomicBool;
use crate::topology::Topology;
use crate::units::NodeIndex;

/// Bytes of metadata that the allocator needs on a node: what [`PageAllocator::new`] will ask for, with
/// the same topology and config. Zero for a node without memory.
///
/// # Errors
/// [`BuildError`] if no allocator can be made for this topology.
pub fn metadata_size<P: Platform>(
    topology: &Topology<'_>,
    config: &Config,
    node: NodeIndex,
) -> Result<usize, BuildError> {
    let topology = topology.with_instances(config.model.zone_instances);
    Ok(Plan::new(&topology)?.with(config).need::<P>(node).bytes())
}

fn check_rules<P: Platform>(asked: PageblockOwners) -> Result<(), BuildError> {
    if P::Rules::have(asked) { Ok(()) } else { Err(BuildError::OtherRules { asked }) }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// An allocator for the machine, all of whose memory is offline. `buffer` is called once for each
    /// node that has memory with the bytes that [`metadata_size`] says; it must return that much
    /// memory, **filled with zeroes**, best on that node.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn new(
        platform: P,
        topology: Topology<'m>,
        config: Config,
        mut buffer: impl FnMut(NodeIndex, usize) -> &'m mut [u8],
    ) -> Result<Self, BuildError> {
        Self::build(platform, topology, config, &mut buffer)
    }

    /// What [`new`](Self::new) does, compiled once for all closures.
    fn build(
        platform: P,
        topology: Topology<'m>,
        config: Config,
        buffer: &mut dyn FnMut(NodeIndex, usize) -> &'m mut [u8],
    ) -> Result<Self, BuildError> {
        let mut settings = config.settings;
        settings.movable_min = config.model.movable_min;
        settings.check().map_err(BuildError::Setting)?;
        check_rules::<P>(config.model.owners)?;
        let topology = topology.with_instances(config.model.zone_instances);
        let plan = Plan::new(&topology)?.with(&config);
        let need = |node| plan.need::<P>(node).bytes();
        let (mut carver, mut hub) = Carver::open(plan, &need, buffer)?;
        let parts = carver.carve::<P>(&mut hub, &config).expect(COUNTED);
        let mut state = Some(State {
            settings,
            lent_budget: None,
            booted: false,
            ranges: 0,
            plugged: HotplugCounts::default(),
            loads: parts.loads,
            order: parts.order,
        });
        let state = hub.slice(1, |_, _| Ok(P::Lock::new(state.take().ok_or(OutOfMetadata)?)));
        let state: &'m [P::Lock<State<'m>>] = state.expect(COUNTED);
        let node_reclaim: &'m [AtomicBool] =
            hub.slice(1, |_, _| Ok(AtomicBool::new(false))).expect(COUNTED);
        Ok(Self {
            platform,
            model: config.model,
            map: parts.map,
            online: parts.online,
            ledgers: parts.ledgers,
            homes: parts.homes,
            nobodys: parts.nobodys,
            cpus: parts.cpus,
            zones: parts.zones,
            nodes: parts.nodes,
            lists: parts.lists,
            topology,
            node_reclaim: &node_reclaim[0],
            state: &state[0],
            wait_tables: parts.wait_tables,
            page_shift: config.page_shift,
            notes: config.notes,
        })
    }
}
