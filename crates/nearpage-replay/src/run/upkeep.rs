//! The once-a-second work of each CPU, done on the core.

use nearpage::rules::pagesets::LISTS;
use nearpage::{CpuId, Migratetype};

use crate::machine::{Core, CorePageset, CoreZone, type_of_list};
use crate::ticks::Ticks;

/// When each CPU's work is due, and which pagesets it used since.
#[derive(Debug)]
pub(crate) struct Upkeep {
    /// `None` where the trace tells when it is done.
    ticks: Option<Ticks>,
    zones: usize,
    /// By CPU and zone: what told at the CPU's last turn that a pageset is used.
    uses: Vec<u64>,
}

impl Upkeep {
    /// For CPUs whose numbers are below `cpu_limit`. Their pagesets were not used since their last turns.
    pub(crate) fn new(ticks: Option<Ticks>, core: &Core<'_>, cpu_limit: usize) -> Upkeep {
        let zones = core.zones().len();
        let mut uses = vec![0; cpu_limit * zones];
        for (cpu, ..) in core.cpus() {
            let Some(pagesets) = core.pagesets(cpu) else { continue };
            let of_cpu = &mut uses[cpu.0 as usize * zones..][..zones];
            of_cpu.iter_mut().zip(pagesets).for_each(|(uses, pageset)| *uses = uses_of(pageset));
        }
        Upkeep { ticks, zones, uses }
    }

    /// Does the work of a CPU, if some is due by now, the earliest first. `awake` is a CPU that is
    /// known to be awake. Returns whose it was, and when it was done.
    #[inline]
    pub(crate) fn run_due(
        &mut self,
        core: &Core<'_>,
        awake: Option<CpuId>,
        now_ns: u64,
    ) -> Option<(CpuId, u64)> {
        let (cpu, done_ns) = self.ticks.as_mut()?.take_done(awake, now_ns)?;
        self.run(core, cpu, done_ns);
        Some((cpu, done_ns))
    }

    /// Does the work of a CPU now.
    pub(crate) fn run(&mut self, core: &Core<'_>, cpu: CpuId, now_ns: u64) {
        core.platform().play(cpu, now_ns);
        core.decay_cpu(cpu).expect("no other thread drains");
        self.expire_remote(core, cpu);
    }

    /// Whether the trace tells when it is done.
    pub(crate) fn is_told(&self) -> bool {
        self.ticks.is_none()
    }

    /// A CPU has used its pageset of a zone since its last turn.
    pub(crate) fn set_used(&mut self, cpu: CpuId, zone: usize) {
        let uses = &mut self.uses[cpu.0 as usize * self.zones + zone];
        *uses = uses.wrapping_sub(1);
    }

    fn expire_remote(&mut self, core: &Core<'_>, cpu: CpuId) {
        let Some(pagesets) = core.pagesets(cpu) else { return };
        let uses = &mut self.uses[cpu.0 as usize * self.zones..][..self.zones];
        let now: Vec<u64> = pagesets.iter().map(uses_of).collect();
        let used = |zone: &CoreZone<'_>| {
            let zone = zone.index().0 as usize;
            now[zone] != uses[zone]
        };
        core.expire_remote(cpu, used).expect("no other thread drains");
        uses.copy_from_slice(&now);
    }
}

/// What changes if a CPU uses a pageset. Linux takes one for used if the CPU changed a counter of its zone: free pages,
/// which refills and drains change, or pages on lists of user memory, which movable pages are on. Pages of the kernel
/// itself are in counters of the node, so they do not keep a pageset. `mm/vmstat.c: refresh_cpu_vm_stats`, 6.12.
fn uses_of(pageset: &CorePageset<'_>) -> u64 {
    let moved = pageset.counts();
    let movable = (0..LISTS).filter(|&list| type_of_list(list) == Migratetype::Movable);
    let blocks = movable.map(|list| {
        let counts = pageset.list_counts(list);
        counts.pops.wrapping_add(counts.pushes)
    });
    blocks.chain([moved.refilled_pages.0, moved.drained_pages.0]).fold(0, u64::wrapping_add)
}
