//! The core in a recorded start state: the real allocator on plain storage.

use nearpage::internals::Insertion;
use nearpage::rules::pagesets::{Sizes, Tuning};
use nearpage::rules::{FallbackRules, HeldMovable, PcpRules};
use nearpage::stats::Pageset;
use nearpage::testing::machine::TestMachine;
use nearpage::testing::plain::PlainPlatform;
use nearpage::{
    Config, CpuId, Gfp, Migratetype, Model, NodeId, Order, PageAllocator, PageCount, Pfn, PfnRange,
    Request, TopologyBuf,
};

use super::machine::{Machine, ZoneName};

/// A zone of the core.
pub type CoreZone<'m> = nearpage::stats::Zone<'m, PlainPlatform>;

/// The rules of a recorded kernel.
pub fn model(kernel: &str) -> Result<Model, String> {
    let model = match kernel {
        "6.1" => Model::LINUX_6_1,
        "6.12" => Model::LINUX_6_12,
        other => return Err(format!("kernel {other} is not modelled; 6.1 and 6.12 are")),
    };
    // The pages that the module holds stand on no LRU: none counts as movable.
    let fallback = FallbackRules { held: HeldMovable::Never, ..model.fallback };
    Ok(model.with(|changed| changed.fallback = fallback))
}

/// What stands on which CPU of the core.
pub struct Lab<'a, 'm> {
    /// The allocator under test.
    pub core: &'a PageAllocator<'m, PlainPlatform>,
    /// The CPU that all operations run on.
    pub cpu: CpuId,
}

/// Makes the core of `memory` with the marks and pageset sizes that `machine` was recorded with, and
/// calls `f` with it. All of the memory is free.
pub fn with<R>(
    machine: &Machine,
    memory: TopologyBuf,
    model: Model,
    cpu: CpuId,
    f: impl FnOnce(&Lab<'_, '_>) -> R,
) -> R {
    let config = Config::new().with_model(model);
    TestMachine::from(memory).config(config).run(|core| {
        let lab = Lab { core, cpu };
        core.platform().run_on(cpu);
        for zone in core.zones() {
            if let Ok(recorded) = machine.zone(lab.name(zone)) {
                core.set_marks(
                    zone.index(),
                    recorded.marks,
                    recorded.reserve,
                    machine.boost_factor,
                );
                lab.set_sizes(zone, recorded.sizes);
            }
        }
        f(&lab)
    })
}

impl<'m> Lab<'_, 'm> {
    /// Node and kind of a zone.
    pub fn name(&self, zone: &CoreZone<'_>) -> ZoneName {
        let node = self.core.topology().node(zone.node()).id.0;
        ZoneName { node, kind: zone.kind() }
    }

    /// The zone of that name.
    pub fn zone(&self, name: ZoneName) -> Result<&'m CoreZone<'m>, String> {
        let found = self.core.zones().iter().copied().find(|zone| self.name(zone) == name);
        found.ok_or_else(|| format!("the core has no zone {name:?}"))
    }

    /// The zone that a page is of.
    pub fn zone_of(&self, pfn: Pfn) -> &'m CoreZone<'m> {
        let zones = self.core.zones();
        let holds = |zone: &&&CoreZone<'m>| {
            let topology = self.core.topology();
            topology.ranges_in(zone.node(), zone.span()).any(|range| range.contains(pfn))
        };
        zones.iter().find(holds).expect("a page of the core is of a zone")
    }

    /// This CPU's pageset for a zone.
    pub fn pageset(&self, zone: &CoreZone<'_>) -> &'m Pageset<'m, PlainPlatform> {
        let pagesets = self.core.pagesets(self.cpu).expect("the recorded CPU is of a node");
        &pagesets[zone.index().0 as usize]
    }

    /// The rules of pagesets.
    pub fn rules(&self) -> &PcpRules {
        &self.core.model().pcp
    }

    /// Gives the pagesets of all CPUs for a zone their sizes.
    pub fn set_sizes(&self, zone: &CoreZone<'_>, sizes: Sizes) {
        let Sizes { batch, high_min, high_max } = sizes;
        self.tune(zone, |rules, tuning| tuning.resize(rules, high_min, high_max, batch));
    }

    /// Switches the pagesets of all CPUs for a zone off: each page comes from the buddy, and goes there.
    pub fn pagesets_off(&self, zone: &CoreZone<'_>) {
        self.tune(zone, |_, tuning| {
            tuning.disable();
            tuning.high = PageCount(0);
        });
    }

    fn tune(&self, zone: &CoreZone<'_>, change: impl Fn(&PcpRules, &mut Tuning)) {
        for (cpu, _, pagesets) in self.core.cpus() {
            let mut tuning = pagesets[zone.index().0 as usize].tuning();
            change(self.rules(), &mut tuning);
            self.core.set_tuning(cpu, zone.index(), tuning);
        }
    }

    /// What the module does between experiments: drains this CPU and forgets what the tuning learnt.
    pub fn reset(&self, zone: &CoreZone<'_>, free_high_batch: bool) {
        self.core.drain_cpu(self.cpu).expect("nobody else drains");
        let pageset = self.pageset(zone);
        let old = pageset.tuning();
        let high = if self.rules().tunes_high { old.high_min } else { old.high };
        let Tuning { high_min, high_max, batch, expire, .. } = old;
        let tuning =
            Tuning { high_min, high_max, batch, high, expire, free_high_batch, ..Tuning::BOOT };
        self.core.set_tuning(self.cpu, zone.index(), tuning);
    }

    /// Drains this CPU and forgets what the tuning learnt, once more.
    pub fn reset_again(&self, zone: &CoreZone<'_>) {
        self.reset(zone, self.pageset(zone).tuning().free_high_batch);
    }

    /// Allocates near a node.
    pub fn alloc(&self, order: Order, gfp: Gfp, node: u32) -> Option<Pfn> {
        self.core.alloc(Request::new(order, gfp).on(NodeId(node))).ok()
    }

    /// Frees a block that [`alloc`](Self::alloc) gave.
    pub fn free(&self, pfn: Pfn, order: Order) {
        self.core.free(pfn, order).expect("the block was allocated");
    }

    /// Takes pages straight from the buddy, in blocks as large as can be, until `free` are left; or gives back the last
    /// of those that are `held`.
    pub fn leave(&self, zone: &CoreZone<'_>, free: u64, held: &mut Vec<(Pfn, Order)>) {
        while zone.free_pages().0 < free
            && let Some((pfn, order)) = held.pop()
        {
            let returned = self.core.return_to_zone(pfn, order, Insertion::Usual);
            returned.expect("the block was taken");
        }
        for order in (0..=Order::MAX.0).rev().map(Order) {
            while zone.free_pages().0 >= free + order.pages().0
                && let Some(pfn) =
                    self.core.take_from_zone(zone.index(), order, Migratetype::Movable)
            {
                held.push((pfn, order));
            }
        }
    }

    /// Makes the pageblocks of some ranges a type's own.
    pub fn retype(&self, zone: &CoreZone<'_>, ranges: &[PfnRange], migratetype: Migratetype) {
        for range in ranges {
            self.core.retype_pageblock(zone.index(), range.start, migratetype);
        }
    }
}
