//! The once-a-second work of each CPU, done on the core.

use nearpage::CpuId;

use crate::machine::{Core, CoreZone};
use crate::ticks::Ticks;

/// When each CPU's work is due, and which pagesets it used since.
#[derive(Debug)]
pub(crate) struct Upkeep {
    ticks: Ticks,
    zones: usize,
    /// By CPU and zone: blocks through each pageset at its last turn.
    uses: Vec<u64>,
}

impl Upkeep {
    /// For CPUs whose numbers are below `cpu_limit`.
    pub(crate) fn new(ticks: Ticks, cpu_limit: usize, zones: usize) -> Upkeep {
        Upkeep { ticks, zones, uses: vec![0; cpu_limit * zones] }
    }

    /// Does the work of a CPU, if some is due by now, the earliest first. Returns whose it was, and when it was due.
    #[inline]
    pub(crate) fn run_due(&mut self, core: &Core<'_>, now_ns: u64) -> Option<(CpuId, u64)> {
        let (cpu, due_ns) = self.ticks.take_due(now_ns)?;
        core.platform().play(cpu, due_ns);
        core.decay_cpu(cpu).expect("no other thread drains");
        self.expire_remote(core, cpu);
        Some((cpu, due_ns))
    }

    /// Linux takes a pageset for used if the CPU changed a counter of its zone: free pages, or pages of a list of
    /// user memory. Here any page through it counts, to and from the zone too: what expires counts as use.
    /// `mm/vmstat.c: refresh_cpu_vm_stats`, 6.12.
    fn expire_remote(&mut self, core: &Core<'_>, cpu: CpuId) {
        let Some(pagesets) = core.pagesets(cpu) else { return };
        let uses = &mut self.uses[cpu.0 as usize * self.zones..][..self.zones];
        let now: Vec<u64> = pagesets
            .iter()
            .map(|pageset| {
                let (totals, counts) = (pageset.totals(), pageset.counts());
                let moved = counts.refilled_pages.0.wrapping_add(counts.drained_pages.0);
                totals.allocs.wrapping_add(totals.freed_pages).wrapping_add(moved)
            })
            .collect();
        let used = |zone: &CoreZone<'_>| {
            let zone = zone.index().0 as usize;
            now[zone] != uses[zone]
        };
        core.expire_remote(cpu, used).expect("no other thread drains");
        uses.copy_from_slice(&now);
    }
}
