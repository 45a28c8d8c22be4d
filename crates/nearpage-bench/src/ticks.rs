//! Calls timed one by one: by the processor's counter, `rdtscp`, where there is one that runs at one rate, else by the
//! system's clock.
//!
//! Each look waits for what comes before it, and what comes behind it waits for the look: a call cannot begin before it.
//! What two looks in a row cost is taken off.

use std::time::{Duration, Instant};

/// How calls are timed.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    how: How,
    /// Ticks between two looks in a row.
    look: u64,
    ns_per_tick: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// The processor's counter.
    #[cfg(target_arch = "x86_64")]
    Counter,
    /// `Instant`, in nanoseconds since the first.
    System(Instant),
}

/// How long the counter is compared with the system's clock.
const COMPARED: Duration = Duration::from_millis(20);

impl Ticks {
    /// Finds out what this machine has, how fast it counts, and what a look costs.
    pub fn calibrate() -> Self {
        let mut ticks = Self { how: How::of_this_machine(), look: 0, ns_per_tick: 1.0 };
        if !matches!(ticks.how, How::System(_)) {
            let (start, first) = (Instant::now(), ticks.now());
            while start.elapsed() < COMPARED {
                std::hint::spin_loop();
            }
            let (time, last) = (start.elapsed(), ticks.now());
            ticks.ns_per_tick = time.as_nanos() as f64 / (last - first) as f64;
        }
        let mut looks: Vec<u64> = (0..10_001)
            .map(|_| {
                let start = ticks.now();
                ticks.now() - start
            })
            .collect();
        looks.sort_unstable();
        ticks.look = looks[looks.len() / 2];
        ticks
    }

    /// What it is called: `rdtscp` or `clock`.
    pub fn name(&self) -> &'static str {
        match self.how {
            #[cfg(target_arch = "x86_64")]
            How::Counter => "rdtscp",
            How::System(_) => "clock",
        }
    }

    /// Looks.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        match self.how {
            #[cfg(target_arch = "x86_64")]
            How::Counter => counter::now(),
            How::System(start) => start.elapsed().as_nanos() as u64,
        }
    }

    /// Nanoseconds between two looks, without what a look costs.
    pub fn ns(&self, start: u64, end: u64) -> f64 {
        end.saturating_sub(start).saturating_sub(self.look) as f64 * self.ns_per_tick
    }
}

impl How {
    fn of_this_machine() -> Self {
        #[cfg(target_arch = "x86_64")]
        if counter::is_steady() {
            return Self::Counter;
        }
        Self::System(Instant::now())
    }
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::{__cpuid, __rdtscp, _mm_lfence};

    /// Whether the processor has `rdtscp` (leaf 0x80000001, bit 27 of EDX) and its counter runs at one rate in all states
    /// (leaf 0x80000007, bit 8 of EDX). Source: Intel SDM volume 2, `CPUID`; AMD APM volume 3, appendix E.
    pub fn is_steady() -> bool {
        const EXTENDED: u32 = 0x8000_0000;
        let has = |leaf: u32, bit: u32| {
            __cpuid(EXTENDED).eax >= leaf && __cpuid(leaf).edx & (1 << bit) != 0
        };
        has(0x8000_0001, 27) && has(0x8000_0007, 8)
    }

    #[inline(always)]
    pub fn now() -> u64 {
        let mut cpu = 0;
        // SAFETY: the processor has the instruction, as `is_steady` has said of it before there is such a clock; it writes
        // `cpu`, which lies in this frame. Every x86-64 has `lfence`.
        unsafe {
            let ticks = __rdtscp(&mut cpu);
            _mm_lfence();
            ticks
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_the_system_clock() {
        let ticks = Ticks::calibrate();
        // On a busy machine some of many pass while nobody takes the CPU away.
        let is_close = |_| {
            let (start, first) = (Instant::now(), ticks.now());
            std::thread::sleep(Duration::from_millis(2));
            let (last, time) = (ticks.now(), start.elapsed());
            let ratio = ticks.ns(first, last) / time.as_nanos() as f64;
            (0.95..1.05).contains(&ratio)
        };
        assert!((0..20).any(is_close), "{ticks:?}");
    }

    #[test]
    fn looks_in_a_row_take_nothing() {
        let ticks = Ticks::calibrate();
        let mut all: Vec<f64> = (0..1001)
            .map(|_| {
                let start = ticks.now();
                ticks.ns(start, ticks.now())
            })
            .collect();
        all.sort_by(f64::total_cmp);
        assert!(all[500] < 50.0, "{} ns, {ticks:?}", all[500]);
        assert_eq!(ticks.ns(7, 5), 0.0);
    }
}
