//! What happens to a machine beside allocation and free: drains, decay, settings, memory that comes.

use nearpage::testing::generate::{any_settings, next_arrival};
use nearpage::{
    LimitError, LimitOf, Limits, NodeId, NodeIndex, OnlineError, PageCount, PfnRange, ZoneIndex,
};

use super::Pair;
use crate::compare::{Difference, same};
use crate::run::Planted;

impl Pair<'_, '_> {
    /// Operations that are rare in life, but the reason for many states.
    pub(super) fn rare(&mut self, which: u64) -> Result<(), Difference> {
        match which {
            0 => self.drain_cpu(),
            1 => self.drain_zone(),
            2 => self.drain_all(),
            3 | 4 => self.decay(),
            5 => self.change_settings(),
            6 => self.rebuild_zonelists(),
            7 => self.grow(),
            8 => self.change_pressure(),
            9 => {
                self.balance();
                Ok(())
            }
            10 => {
                self.pass_time();
                Ok(())
            }
            11 => {
                self.prepare_host();
                Ok(())
            }
            12 if self.habits.placed_percent > 0 => self.change_access(),
            13 => {
                self.prepare_placements();
                Ok(())
            }
            14 => self.shrink_memory(),
            15 => self.shrink_node(),
            16 => self.grow_node(),
            17 => self.switch_cpu(),
            _ => self.change_limits(),
        }
    }

    /// The next calls for help will be answered: there is something to reclaim, or somebody to kill.
    fn prepare_host(&mut self) {
        // More than sixteen and 256: rounds without progress, and all rounds, are counted up to those.
        self.naive.calls.reclaims_that_help = self.random.one_of(&[0, 1, 2, 5, 40, 300]);
        self.naive.calls.kills_that_help = self.random.one_of(&[0, 1, 2, 300]);
        self.naive.calls.reclaimable = PageCount(self.random.one_of(&[0, 0, 100, 10_000]));
        self.naive.calls.answers_from = self.random.below(20);
        self.allocator.platform().calls.set(self.naive.calls);
    }

    /// Hints of zonelist caches grow old, and visits to zones lie apart.
    fn pass_time(&mut self) {
        let ns = [1, 30_000_000, 70_000_000, 300_000_000, 1_000_000_000, 1_000_000_001];
        let ns = self.random.one_of(&ns);
        self.pass(ns);
    }

    /// Time passes.
    pub(super) fn pass(&mut self, ns: u64) {
        self.naive.now_ns += ns;
        self.allocator.platform().now_ns.set(self.naive.now_ns);
    }

    /// Background reclaim ends a boost, or what it saw of it.
    fn balance(&mut self) {
        let zone = self.any_zone();
        let boost = self.naive.zones()[zone].boost;
        let seen = if self.one_in(3) { PageCount(self.random.below(2000)) } else { boost };
        self.naive.lower_boost(zone, seen);
        self.allocator.lower_boost(ZoneIndex(zone as u16), seen);
    }

    fn drain_cpu(&mut self) -> Result<(), Difference> {
        let cpu = if self.cpus.is_empty() { self.cpu } else { self.random.one_of(&self.cpus) };
        self.narrate(format_args!("drain_cpu({cpu})"));
        let pages = self.naive.drain_cpu(cpu);
        same("answer", self.allocator.drain_cpu(cpu), Ok(pages))?;
        self.done("drain_cpu", pages.0);
        Ok(())
    }

    fn drain_zone(&mut self) -> Result<(), Difference> {
        let zone = self.any_zone();
        self.narrate(format_args!("drain_zone(zone {zone})"));
        let pages = self.naive.drain_zone(zone);
        let got = self.allocator.drain_zone(self.allocator.zones()[zone]);
        same("answer", got, Ok(pages))?;
        self.done("drain_zone", pages.0);
        Ok(())
    }

    pub(super) fn drain_all(&mut self) -> Result<(), Difference> {
        self.narrate(format_args!("drain_all()"));
        let pages = self.naive.drain_all();
        same("answer", self.allocator.drain_all(), Ok(pages))?;
        self.done("drain_all", pages.0);
        Ok(())
    }

    fn any_zone(&mut self) -> usize {
        self.random.below(self.allocator.zones().len() as u64) as usize
    }

    fn decay(&mut self) -> Result<(), Difference> {
        for cpu in self.cpus.clone() {
            self.narrate(format_args!("decay_cpu({cpu})"));
            let pages = self.naive.decay_cpu(cpu);
            same("answer", self.allocator.decay_cpu(cpu), Ok(pages))?;
            self.done("decay_cpu", pages.0);
        }
        Ok(())
    }

    fn change_settings(&mut self) -> Result<(), Difference> {
        let (topology, page_shift) = (&self.machine.topology, self.machine.config.page_shift);
        let mut settings = any_settings(&mut self.random, topology, page_shift);
        match self.random.below(20) {
            0 => settings.watermark_scale_factor = self.random.one_of(&[0, 3001]),
            1 => settings.percpu_pagelist_high_fraction = 1 + self.random.below(7) as u32,
            2 => settings.min_free_kbytes = Some(1 << 31),
            _ => {}
        }
        self.narrate(format_args!("set_settings({settings:?})"));
        let expected = self.naive.set_settings(settings);
        same("answer", self.allocator.set_settings(settings), expected)?;
        let kbytes = self.naive.min_free_kbytes();
        same("min_free_kbytes", self.allocator.min_free_kbytes(), kbytes)?;
        same("settings", self.allocator.settings(), self.naive.settings())?;
        if expected.is_err() {
            self.tally.count("SettingError");
        }
        self.done("set_settings", kbytes);
        Ok(())
    }

    fn rebuild_zonelists(&mut self) -> Result<(), Difference> {
        self.narrate(format_args!("rebuild_zonelists()"));
        self.allocator.rebuild_zonelists();
        self.naive.rebuild_zonelists();
        self.done("rebuild_zonelists", 0);
        Ok(())
    }

    /// More memory comes, all of a range or its first part; or an attempt that must fail.
    fn grow(&mut self) -> Result<(), Difference> {
        if self.one_in(3) {
            let pages = if self.one_in(8) { 0 } else { self.random.below(3000) };
            let start = self.any_frame();
            return self.online(PfnRange { start, end: start + PageCount(pages) });
        }
        match next_arrival(&mut self.later, &mut self.random) {
            Some(range) => self.online(range),
            None => Ok(()),
        }
    }

    pub(super) fn online(&mut self, range: PfnRange) -> Result<(), Difference> {
        self.narrate(format_args!("online({range})"));
        let expected = self.naive.online(range);
        same("answer", self.allocator.online(range), expected)?;
        match expected {
            Ok(PageCount(pages)) => {
                // Even an attempt that was to fail may hit memory that is still to come.
                self.later.retain(|later| later.intersection(range).is_empty());
                self.done("online", pages);
            }
            Err(error) => {
                self.tally.count(match error {
                    OnlineError::Empty { .. } => "Empty",
                    OnlineError::NotInTopology { .. } => "NotInTopology",
                    OnlineError::AlreadyOnline { .. } => "AlreadyOnline",
                    OnlineError::UnknownNode { .. } => "UnknownNode (online)",
                    other => panic!("an error without a name: {other}"),
                });
                self.done("online", 0);
            }
        }
        Ok(())
    }

    /// A limit near what is out now, or none.
    fn change_limits(&mut self) -> Result<(), Difference> {
        let node = self.random.below(self.allocator.topology().len() as u64) as u16;
        let node = if self.one_in(3) { None } else { Some(NodeIndex(node)) };
        let of = match node {
            None => LimitOf::Allocator,
            Some(_) if self.one_in(20) => LimitOf::Node(NodeId(9999)),
            Some(node) => LimitOf::Node(self.allocator.topology().node(node).id),
        };
        let out = self.naive.out(node).0;
        let shift = self.machine.config.page_shift;
        let mut near = |is_set: u64| {
            let pages = (out + self.random.below(2000)).saturating_sub(self.random.below(1000));
            (self.random.below(4) < is_set)
                .then_some((pages << shift) + self.random.below(1 << shift))
        };
        let limits = Limits { hard_bytes: near(2), soft_bytes: near(1), ..Limits::default() };
        self.narrate(format_args!("set_limits({of:?}, {limits:?})"));
        let mut expected = self.naive.set_limits(of, limits);
        if matches!(self.planted, Planted::LooseLimit) && expected.is_ok() {
            let hard_bytes = limits.hard_bytes.map(|bytes| bytes + (1 << shift));
            expected = self.naive.set_limits(of, Limits { hard_bytes, ..limits });
        }
        same("answer", self.allocator.set_limits(of, limits), expected)?;
        if let Err(LimitError::SoftNotBelowHard { .. }) = expected {
            self.tally.count("SoftNotBelowHard");
        }
        self.done("set_limits", out);
        Ok(())
    }

    fn change_pressure(&mut self) -> Result<(), Difference> {
        let (zone, active) = (self.any_zone(), self.one_in(3));
        self.narrate(format_args!("set_reclaim_active(zone {zone}, {active})"));
        self.allocator.set_reclaim_active(ZoneIndex(zone as u16), active);
        self.naive.set_reclaim_active(zone, active);
        Ok(())
    }
}
