//! `thp-then-order0`: the case that got the zonelist cache deleted. A failed huge page marks the next node full, and single
//! pages, for which it has room, go past it.

use std::cell::Cell;

use nearpage::rules::CacheRule;
use nearpage::{Config, CpuId, Gfp, NodeId, Order, Pfn, Request};
use nearpage_sim::scheduler::VirtualTime;
use nearpage_sim::{Costs, Machine, MachineError, Setup, Sim, Tasks, simulate};

use crate::error::LabError;
use crate::kind::{Kind, Probe};
use crate::options::{Options, Sampled, sampled};
use crate::report::Report;
use crate::scenario::{HugeWorkload, Scenario};

/// Rules of the cache, in the order of tables.
pub(super) const RULES: [(&str, CacheRule); 3] =
    [("off", CacheRule::Off), ("original", CacheRule::Original), ("keyed", CacheRule::Keyed)];

/// The rules of a configuration with another cache.
pub(super) fn with_rule(config: Config, rule: CacheRule) -> Config {
    config.with_model(config.model.with(|changed| changed.zonelist_cache = rule))
}

impl Kind for HugeWorkload {
    fn run(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        options: &Options<'_>,
    ) -> Result<Report, LabError> {
        let mut report = Report::new(&scenario.name, &scenario.title);
        let machine = &scenario.machine.machine;
        let case = Case { machine, costs, pages: self.pages, is_sampled: options.samples };
        hold(&scenario.name, &case, scenario.config, &mut report)?;
        Ok(report)
    }

    /// The work is pages from the near node: there is one CPU, and time tells nothing.
    fn probe(
        &self,
        scenario: &Scenario,
        costs: &Costs,
        config: Config,
        _seed: u64,
    ) -> Result<Probe, LabError> {
        let machine = &scenario.machine.machine;
        let case = Case { machine, costs, pages: self.pages, is_sampled: false };
        let (near, _) = near_pages(&case, config)
            .map_err(|error| LabError::Machine { name: scenario.name.clone(), error })?;
        Ok(Probe {
            work_per_second: near as f64,
            worst_hold_pages: 0,
            cached_bytes: 0,
            waits: None,
        })
    }
}

/// What is common to all rules.
pub(super) struct Case<'a> {
    pub(super) machine: &'a Machine,
    pub(super) costs: &'a Costs,
    /// Single pages.
    pub(super) pages: u64,
    pub(super) is_sampled: bool,
}

/// Node 1 of the machine must serve single pages after a failed huge one, but not under the rules of 2006.
pub(super) fn hold(
    name: &str,
    case: &Case<'_>,
    config: Config,
    report: &mut Report,
) -> Result<(), LabError> {
    for (rule_name, rule) in RULES {
        let (near, samples) = near_pages(case, with_rule(config, rule))
            .map_err(|error| LabError::Machine { name: name.into(), error })?;
        report.sampled.extend(samples.map(|samples| (format!("cache {rule_name}"), samples)));
        let percent = near as f64 / case.pages as f64 * 100.0;
        let (what, ok) = match rule {
            CacheRule::Original => ("at most 10: poisoned", percent <= 10.0),
            _ => ("at least 90", percent >= 90.0),
        };
        let text = format!(
            "after a failed huge page, percent of single pages from the near node, {rule_name}: {what}"
        );
        report.hold(text, percent, ok);
    }
    Ok(())
}

/// How many of so many single pages come from the second node.
fn near_pages(case: &Case<'_>, config: Config) -> Result<Sampled<u64>, MachineError> {
    const FAULT_NS: f64 = 1e5;
    let &Case { machine, costs, pages, is_sampled } = case;
    let setup = Setup { machine, costs, config, slab: None };
    let near = Cell::new(0u64);
    let task = |sim: &Sim<'_, '_>| {
        fill_near(sim, machine);
        let huge = Gfp::TRANSHUGE_LIGHT.union(Gfp::NORETRY);
        // Whether it is got does not matter: the second node has no such block.
        let _ = sim.allocator.alloc(Request::new(Order(9), huge));
        for _ in 0..pages {
            sim.world.point();
            sim.world.charge_ns(FAULT_NS);
            let page = sim.allocator.alloc(Request::new(Order(0), Gfp::HIGHUSER_MOVABLE));
            let is_near = page.is_ok_and(|page| sim.world.node_of_page(page) == 1);
            near.set(near.get() + u64::from(is_near));
        }
    };
    let first = machine.cpus().next().map_or(CpuId(0), |(cpu, _)| cpu);
    let run = |sim: &Sim<'_, '_>| {
        let mut tasks = Tasks::default();
        tasks.add(first, || task(sim));
        let run = || sim.run(tasks).expect("nobody waits for anybody");
        let (_, samples) = sampled(sim, is_sampled, run);
        (near.get(), samples)
    };
    simulate(&setup, Box::new(VirtualTime::default()), run)
}

/// The first node has nothing left; the second one has every other page.
fn fill_near(sim: &Sim<'_, '_>, machine: &Machine) {
    let take = |node: NodeId| {
        let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE.union(Gfp::THISNODE)).on(node);
        core::iter::from_fn(|| sim.allocator.alloc(request).ok()).collect::<Vec<Pfn>>()
    };
    take(machine.nodes[0].id);
    for page in take(machine.nodes[1].id).into_iter().filter(|page| page.0 % 2 == 0) {
        sim.allocator.free(page, Order(0)).expect("it was just allocated");
    }
    sim.allocator.drain_all().expect("nobody else drains");
}
