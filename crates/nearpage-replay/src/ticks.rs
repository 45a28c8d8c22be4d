//! The once-a-second work of each CPU, in which pagesets decay: when it is done.
//!
//! Linux does it in a work item per CPU that rests on a timer rounded to whole seconds of its tick counter, a few ticks
//! apart from CPU to CPU (`mm/vmstat.c: vmstat_update`, `kernel/time/timer.c: round_jiffies_relative`, 6.12). The
//! counter begins 300 s before it wraps at 2^32, so with 250 ticks a second its whole seconds are 0.816 s after those
//! of the clock of traces, and a little more, as the counter starts later at boot.
//!
//! The timer and its worker are 10 to 130 ms late. The timer does not wake an idle CPU: there the work waits until
//! something else does. A CPU that allocates or frees is awake. What wakes one that does not is in no event; in recordings,
//! the work of idle CPUs is up to 850 ms late. The next turn is due a second after the work is done, rounded to a whole
//! second, and rounded up from a quarter of one on: work that is later than that misses a turn. In the recorded kernels
//! of 6.1 and 6.12, three turns of a CPU (from one batch that a pageset of another node's zone gives back to the next)
//! take 4.0 s, in the median.

use nearpage::CpuId;
use nearpage_machine::Budget;

use crate::drawn::Draw;

/// Ticks a second of most distributions. `kernel/Kconfig.hz`.
const TICKS_PER_SECOND: u64 = 250;
const SECOND_NS: u64 = 1_000_000_000;
const TICK_NS: u64 = SECOND_NS / TICKS_PER_SECOND;
/// Where in a second the tick counter is at a multiple of a second.
const PHASE_NS: u64 = (TICKS_PER_SECOND - (1_u64 << 32) % TICKS_PER_SECOND) * TICK_NS;
/// How late the counter is.
const COUNTER_LATE_NS: u64 = 10_000_000;
/// How late the timer and its worker are, if nothing is drawn.
const LATE_NS: u64 = 80_000_000;
/// How late the work of a CPU is that neither allocates nor frees, turn by turn, if nothing is drawn: three turns take four seconds.
const IDLE_LATE_NS: [u64; 3] = [LATE_NS, LATE_NS, 300_000_000];
/// CPUs are this far apart.
const SKEW_NS: u64 = 3 * TICK_NS;
/// The longest time without an event in which each turn is done. Half of it empties any pageset that decays; what a
/// longer one leaves out may move the turns behind the gap. One damaged time stamp would otherwise be work for hours.
const GAP_NS: u64 = Budget::GAP_SECONDS * SECOND_NS;
/// A time is rounded down to a whole second that is nearer than this.
const DOWN_NS: u64 = SECOND_NS / 4;

/// How much of the time between two events has no turns.
pub(crate) fn left_out_ns(since_ns: u64, now_ns: u64) -> u64 {
    match now_ns.saturating_sub(since_ns) {
        gap_ns if gap_ns > 2 * GAP_NS => gap_ns - GAP_NS,
        _ => 0,
    }
}

/// When each CPU's work is due.
#[derive(Clone, Debug)]
pub struct Ticks {
    /// By CPU.
    turns: Vec<Turn>,
    /// When the first of them is done in any case.
    first_ns: u64,
    draw: Option<Draw>,
}

/// The next turn of a CPU.
#[derive(Clone, Debug)]
struct Turn {
    cpu: CpuId,
    number: u64,
    /// From then on, it is done when the CPU is awake.
    ready_ns: u64,
    /// Then it is done in any case.
    latest_ns: u64,
}

impl Ticks {
    /// CPUs whose work is due within a second from `now_ns`. How late it is on idle CPUs is drawn, if something is.
    pub fn new(cpus: impl IntoIterator<Item = CpuId>, now_ns: u64, draw: Option<Draw>) -> Ticks {
        let turns = cpus.into_iter().map(|cpu| {
            let due_ns = now_ns + SECOND_NS - since_second(cpu, now_ns);
            Turn::new(cpu, 0, due_ns, draw)
        });
        let mut turns: Vec<Turn> = turns.collect();
        turns.sort_unstable_by_key(|turn| turn.cpu);
        let mut ticks = Ticks { turns, first_ns: u64::MAX, draw };
        ticks.find_first();
        ticks
    }

    /// Takes a CPU whose work is done by now, the earliest first, and when it is. At `now_ns`, `awake` is awake, if any is
    /// known to be.
    #[inline]
    pub fn take_done(&mut self, awake: Option<CpuId>, now_ns: u64) -> Option<(CpuId, u64)> {
        let own =
            awake.and_then(|awake| self.turns.binary_search_by_key(&awake, |turn| turn.cpu).ok());
        let is_own_due = own.is_some_and(|at| self.turns[at].ready_ns <= now_ns);
        if self.first_ns > now_ns && !is_own_due {
            return None;
        }
        if left_out_ns(self.first_ns, now_ns) > 0 {
            self.pass_gap(now_ns - GAP_NS);
        }
        let turns = self.turns.iter_mut();
        let turn = turns.min_by_key(|turn| turn.done_ns(awake, now_ns))?;
        let (cpu, done_ns) = (turn.cpu, turn.done_ns(awake, now_ns));
        *turn = Turn::new(cpu, turn.number + 1, next_due(cpu, done_ns), self.draw);
        self.find_first();
        Some((cpu, done_ns))
    }

    /// Leaves out the turns before a time of all CPUs, and those of no other time.
    fn pass_gap(&mut self, until_ns: u64) {
        for turn in &mut self.turns {
            let due_ns = next_due(turn.cpu, until_ns);
            *turn = Turn::new(turn.cpu, turn.number, due_ns, self.draw);
        }
        self.find_first();
    }

    fn find_first(&mut self) {
        self.first_ns = self.turns.iter().map(|turn| turn.latest_ns).min().unwrap_or(u64::MAX);
    }
}

impl Turn {
    fn new(cpu: CpuId, number: u64, due_ns: u64, draw: Option<Draw>) -> Turn {
        let [late_ns, idle_late_ns] = match draw {
            Some(draw) => draw.late_ns(cpu, number),
            None => [LATE_NS, IDLE_LATE_NS[(number % IDLE_LATE_NS.len() as u64) as usize]],
        };
        Turn { cpu, number, ready_ns: due_ns + late_ns, latest_ns: due_ns + idle_late_ns }
    }

    /// When it is done, as far as is known at `now_ns`.
    fn done_ns(&self, awake: Option<CpuId>, now_ns: u64) -> u64 {
        let is_awake = Some(self.cpu) == awake && self.ready_ns <= now_ns;
        if is_awake { self.latest_ns.min(now_ns) } else { self.latest_ns }
    }
}

/// How long ago the last whole second of a CPU's timer was.
fn since_second(cpu: CpuId, now_ns: u64) -> u64 {
    let skew = u64::from(cpu.0) * SKEW_NS % SECOND_NS;
    let phase = (PHASE_NS + COUNTER_LATE_NS + SECOND_NS - skew) % SECOND_NS;
    (now_ns + SECOND_NS - phase) % SECOND_NS
}

/// When the work of a CPU is due that was done last at `done_ns`.
fn next_due(cpu: CpuId, done_ns: u64) -> u64 {
    let past = since_second(cpu, done_ns);
    let due_ns = done_ns - past + SECOND_NS;
    if past < DOWN_NS { due_ns } else { due_ns + SECOND_NS }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_NS: u64 = 5 * SECOND_NS + PHASE_NS + COUNTER_LATE_NS;

    #[test]
    fn three_turns_of_idle_cpus_take_four_seconds() {
        let (early, late) = (CpuId(2), CpuId(0));
        let mut ticks = Ticks::new([late, early], 5 * SECOND_NS, None);
        let done = FIRST_NS + IDLE_LATE_NS[0];
        let of_early = done - 2 * SKEW_NS;
        assert_eq!(ticks.take_done(None, of_early - 1), None);
        assert_eq!(ticks.take_done(None, done), Some((early, of_early)));
        assert_eq!(ticks.take_done(None, done), Some((late, done)));
        assert_eq!(ticks.take_done(None, done), None);
        // Four seconds without an event: three times each.
        let taken: Vec<_> =
            std::iter::from_fn(|| ticks.take_done(None, done + 4 * SECOND_NS)).collect();
        assert_eq!(
            taken.iter().map(|(cpu, _)| *cpu).collect::<Vec<_>>(),
            [early, late, early, late, early, late]
        );
        assert_eq!(taken[5].1, done + 4 * SECOND_NS);
    }

    #[test]
    fn a_gap_of_any_length_has_some_hundred_turns() {
        for gap_s in [900, 1_000_000, 9_000_000_000] {
            let mut ticks = Ticks::new([CpuId(0), CpuId(1)], 5 * SECOND_NS, None);
            let now = 5 * SECOND_NS + gap_s * SECOND_NS;
            let taken: Vec<_> = std::iter::from_fn(|| ticks.take_done(None, now)).collect();
            assert!(
                taken.is_sorted_by_key(|(_, at)| *at) && taken.iter().all(|(_, at)| *at <= now)
            );
            for cpu in [CpuId(0), CpuId(1)] {
                let turns = taken.iter().filter(|(of, _)| *of == cpu).count() as u64;
                let expected = 3 * if gap_s == 900 { gap_s } else { GAP_NS / SECOND_NS } / 4;
                assert!(turns.abs_diff(expected) < 4, "{gap_s} s: {turns}");
            }
            // And it goes on as ever.
            let next: Vec<_> =
                std::iter::from_fn(|| ticks.take_done(None, now + 4 * SECOND_NS)).collect();
            assert_eq!(next.len(), 6, "{gap_s} s");
        }
    }

    #[test]
    fn a_cpu_that_is_awake_does_it_at_once() {
        let cpu = CpuId(0);
        let mut ticks = Ticks::new([cpu], 5 * SECOND_NS, None);
        let turn = FIRST_NS + LATE_NS;
        assert_eq!(ticks.take_done(None, turn + 2 * SECOND_NS - 1).map(|(_, at)| at), Some(turn));
        assert_eq!(
            ticks.take_done(Some(cpu), turn + SECOND_NS).map(|(_, at)| at),
            Some(turn + SECOND_NS)
        );
        // In its third turn an idle CPU would be late.
        let third = turn + 2 * SECOND_NS;
        assert_eq!(ticks.take_done(Some(cpu), third - 1), None);
        assert_eq!(ticks.take_done(None, third + 7), None);
        assert_eq!(ticks.take_done(Some(cpu), third + 7), Some((cpu, third + 7)));
    }

    #[test]
    fn late_work_misses_a_turn() {
        let cpu = CpuId(0);
        assert_eq!(next_due(cpu, FIRST_NS + DOWN_NS - 1), FIRST_NS + SECOND_NS);
        assert_eq!(next_due(cpu, FIRST_NS + DOWN_NS), FIRST_NS + 2 * SECOND_NS);
    }
}
