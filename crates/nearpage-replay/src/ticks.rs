//! The once-a-second work of each CPU, in which pagesets decay.
//!
//! Linux does it in a work item per CPU that rests on a timer rounded to whole seconds of its tick counter, a few ticks
//! apart from CPU to CPU (`mm/vmstat.c: vmstat_update`, `kernel/time/timer.c: round_jiffies_relative`, 6.12). The
//! counter begins 300 s before it wraps at 2^32, so with 250 ticks a second its whole seconds are 0.816 s after those
//! of the clock of traces, and a little more: the counter starts later at boot, and the timer may be some ticks late. The timer does not wake an idle CPU: work that was due is done, once, when the CPU is seen
//! to run again.

use nearpage::CpuId;

/// Ticks a second of most distributions. `kernel/Kconfig.hz`.
const TICKS_PER_SECOND: u64 = 250;
const SECOND_NS: u64 = 1_000_000_000;
const TICK_NS: u64 = SECOND_NS / TICKS_PER_SECOND;
/// Where in a second the tick counter is at a multiple of a second.
const PHASE_NS: u64 = (TICKS_PER_SECOND - (1_u64 << 32) % TICKS_PER_SECOND) * TICK_NS;
/// How late the counter and the timer are, in recordings: 10 to 130 ms.
pub const LATE_NS: u64 = 80_000_000;
/// CPUs are this far apart.
const SKEW_NS: u64 = 3 * TICK_NS;

/// When each CPU's work is due.
#[derive(Clone, Debug)]
pub struct Ticks {
    due_ns: Vec<(CpuId, u64)>,
    late_ns: u64,
}

impl Ticks {
    /// CPUs whose work is due within a second from `now_ns`. The counter and the timer are `late_ns` late.
    pub fn new(cpus: impl IntoIterator<Item = CpuId>, now_ns: u64, late_ns: u64) -> Ticks {
        let due_ns = cpus.into_iter().map(|cpu| (cpu, next(cpu, now_ns, late_ns)));
        Ticks { due_ns: due_ns.collect(), late_ns }
    }

    /// Whether the work of a CPU, which runs now, is due; then it is due again a second later.
    pub fn take_due(&mut self, cpu: CpuId, now_ns: u64) -> bool {
        let Some((_, due)) = self.due_ns.iter_mut().find(|(of, _)| *of == cpu) else {
            return false;
        };
        let is_due = *due <= now_ns;
        if is_due {
            *due = next(cpu, now_ns, self.late_ns);
        }
        is_due
    }
}

/// The first time after `now_ns` when the work of a CPU is due.
fn next(cpu: CpuId, now_ns: u64, late_ns: u64) -> u64 {
    let skew = u64::from(cpu.0) * SKEW_NS % SECOND_NS;
    let phase = (PHASE_NS + late_ns + SECOND_NS - skew) % SECOND_NS;
    let past = (now_ns + SECOND_NS - phase) % SECOND_NS;
    now_ns + SECOND_NS - past
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_due_once_a_second() {
        let cpu = CpuId(2);
        let mut ticks = Ticks::new([CpuId(0), cpu], 5 * SECOND_NS, LATE_NS);
        let due = 5 * SECOND_NS + PHASE_NS + LATE_NS - 2 * SKEW_NS;
        assert!(!ticks.take_due(cpu, due - 1));
        assert!(ticks.take_due(cpu, due));
        assert!(!ticks.take_due(cpu, due + SECOND_NS - 1));
        // Three seconds without the CPU: once.
        assert!(ticks.take_due(cpu, due + 4 * SECOND_NS));
        assert!(!ticks.take_due(cpu, due + 4 * SECOND_NS));
        assert!(!ticks.take_due(CpuId(9), due));
    }
}
