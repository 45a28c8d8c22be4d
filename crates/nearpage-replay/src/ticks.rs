//! The once-a-second work of each CPU, in which pagesets decay.
//!
//! Linux does it in a work item per CPU that rests on a timer rounded to whole seconds of its tick counter, a few ticks
//! apart from CPU to CPU (`mm/vmstat.c: vmstat_update`, `kernel/time/timer.c: round_jiffies_relative`, 6.12). The
//! counter begins 300 s before it wraps at 2^32, so with 250 ticks a second its whole seconds are 0.816 s after those
//! of the clock of traces, and a little more: the counter starts later at boot, and the timer may be some ticks late.
//! Idle CPUs do it too: in recordings of 6.12 and 6.18, pagesets of CPUs without an event for seconds decay and expire
//! once a second.

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
    /// When the first of them is.
    first_ns: u64,
}

impl Ticks {
    /// CPUs whose work is due within a second from `now_ns`. The counter and the timer are `late_ns` late.
    pub fn new(cpus: impl IntoIterator<Item = CpuId>, now_ns: u64, late_ns: u64) -> Ticks {
        let due_ns = cpus.into_iter().map(|cpu| (cpu, next(cpu, now_ns, late_ns)));
        let mut ticks = Ticks { due_ns: due_ns.collect(), first_ns: u64::MAX };
        ticks.find_first();
        ticks
    }

    /// Takes a CPU whose work is due by now, the earliest first; it is due again a second later.
    #[inline]
    pub fn take_due(&mut self, now_ns: u64) -> Option<(CpuId, u64)> {
        if self.first_ns > now_ns {
            return None;
        }
        let (cpu, due_ns) = self.due_ns.iter_mut().min_by_key(|(_, due_ns)| *due_ns)?;
        let taken = (*cpu, *due_ns);
        *due_ns += SECOND_NS;
        self.find_first();
        Some(taken)
    }

    fn find_first(&mut self) {
        self.first_ns = self.due_ns.iter().map(|(_, due_ns)| *due_ns).min().unwrap_or(u64::MAX);
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
        let (early, late) = (CpuId(2), CpuId(0));
        let mut ticks = Ticks::new([late, early], 5 * SECOND_NS, LATE_NS);
        let due = 5 * SECOND_NS + PHASE_NS + LATE_NS;
        let of_early = due - 2 * SKEW_NS;
        assert_eq!(ticks.take_due(of_early - 1), None);
        assert_eq!(ticks.take_due(due), Some((early, of_early)));
        assert_eq!(ticks.take_due(due), Some((late, due)));
        assert_eq!(ticks.take_due(due), None);
        // Two seconds without an event: twice each.
        let taken: Vec<_> = std::iter::from_fn(|| ticks.take_due(due + 2 * SECOND_NS)).collect();
        assert_eq!(
            taken.iter().map(|(cpu, _)| *cpu).collect::<Vec<_>>(),
            [early, late, early, late]
        );
        assert_eq!(taken[3].1, due + 2 * SECOND_NS);
    }
}
