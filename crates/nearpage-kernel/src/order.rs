//! The order of locks, learned and checked.
//!
//! A *kind* of lock is the type that it guards: `Buddy` is the lock of a zone, `State` that of the settings. Each CPU notes
//! the kinds that it holds. Whoever takes a lock of kind B while it holds one of kind A has shown that A comes before B;
//! a CPU that later shows the opposite is told so at once, whether the two would have met or not. The same kind twice, and
//! the same lock twice, are faults too: the first may deadlock with another CPU, the second surely does.
//!
//! The order that the allocator's own locks show is the one of the front page's table ([`crate`]).
//!
//! All of this is compiled where locks are checked only: `debug_assertions`, or the feature `checks`.

use core::fmt;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use nearpage::CpuId;

/// Whether this build checks its locks.
pub const IS_CHECKED: bool = cfg!(any(debug_assertions, feature = "checks"));

/// Kinds of locks that can be told apart. Locks of further kinds are taken unchecked.
const KINDS_MAX: usize = 32;
/// CPUs whose locks are noted; those of CPUs with higher numbers are taken unchecked.
const CPUS_MAX: usize = 256;
/// "No lock".
const NO_KIND: u8 = u8::MAX;

/// What is wrong with the locks that a CPU takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LockFault {
    /// A CPU waits for a lock that it holds: it will wait for ever. An interrupt handler that wants a lock whose holder left
    /// interrupts on looks so.
    Deadlock {
        /// The CPU.
        cpu: CpuId,
        /// What the lock guards.
        kind: &'static str,
    },
    /// A CPU holds a lock of this kind already.
    Twice {
        /// The CPU.
        cpu: CpuId,
        /// What the locks guard.
        kind: &'static str,
    },
    /// Two kinds were taken in one order, and now in the other.
    Order {
        /// The CPU that takes them now.
        cpu: CpuId,
        /// What it holds.
        held: &'static str,
        /// What it takes.
        taken: &'static str,
    },
}

impl fmt::Display for LockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Deadlock { cpu, kind } => write!(
                f,
                "deadlock: CPU {cpu} waits for the lock of a {kind} that it holds; was it interrupted with the lock held?"
            ),
            Self::Twice { cpu, kind } => {
                write!(f, "CPU {cpu} takes a second lock of a {kind}; one at a time is accepted")
            }
            Self::Order { cpu, held, taken } => write!(
                f,
                "CPU {cpu} takes the lock of a {taken} while it holds that of a {held}; they were taken in the other order before"
            ),
        }
    }
}

impl core::error::Error for LockFault {}

/// The kinds that each CPU holds, and which came before which.
pub(crate) struct Order {
    /// Where the names of kinds begin, null for none yet.
    names: [AtomicPtr<u8>; KINDS_MAX],
    lengths: [AtomicUsize; KINDS_MAX],
    /// By kind: the kinds that were taken while it was held, and all that these came before.
    later: [AtomicU32; KINDS_MAX],
    /// By CPU: the kinds that it holds.
    held: [AtomicU32; CPUS_MAX],
}

/// A kind of lock that a CPU is about to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind(u8);

/// The one table of the kernel: locks know no other.
pub(crate) static ORDER: Order = Order {
    names: [const { AtomicPtr::new(null_mut()) }; KINDS_MAX],
    lengths: [const { AtomicUsize::new(0) }; KINDS_MAX],
    later: [const { AtomicU32::new(0) }; KINDS_MAX],
    held: [const { AtomicU32::new(0) }; CPUS_MAX],
};

impl Order {
    /// Notes that `cpu` is about to take a lock that guards a `name`. It has interrupts off.
    pub(crate) fn take(&self, cpu: CpuId, name: &'static str) -> (Kind, Option<LockFault>) {
        let Some(kind) = self.kind(name) else { return (Kind(NO_KIND), None) };
        let Some(held) = self.held.get(cpu.0 as usize) else { return (Kind(NO_KIND), None) };
        let before = held.load(Ordering::Relaxed);
        if before >> kind & 1 == 1 {
            return (Kind(NO_KIND), Some(LockFault::Twice { cpu, kind: short(name) }));
        }
        // Nobody else writes this CPU's word.
        held.store(before | 1 << kind, Ordering::Relaxed);
        let mut wrong = None;
        for earlier in ones(before) {
            if self.later[kind].load(Ordering::Relaxed) >> earlier & 1 == 1 {
                let held = short(self.name(earlier));
                wrong = Some(LockFault::Order { cpu, held, taken: short(name) });
            } else {
                self.note(earlier, kind);
            }
        }
        (Kind(kind as u8), wrong)
    }

    /// Notes that `cpu` has given a lock back.
    pub(crate) fn give_back(&self, cpu: CpuId, kind: Kind) {
        if kind.0 == NO_KIND {
            return;
        }
        if let Some(held) = self.held.get(cpu.0 as usize) {
            held.store(held.load(Ordering::Relaxed) & !(1 << kind.0), Ordering::Relaxed);
        }
    }

    /// Notes that `earlier` came before `kind`, and with it all that came before `earlier`.
    fn note(&self, earlier: usize, kind: usize) {
        let later = 1 << kind | self.later[kind].load(Ordering::Relaxed);
        self.later[earlier].fetch_or(later, Ordering::Relaxed);
        for above in &self.later {
            if above.load(Ordering::Relaxed) >> earlier & 1 == 1 {
                above.fetch_or(later, Ordering::Relaxed);
            }
        }
    }

    fn kind(&self, name: &'static str) -> Option<usize> {
        for (index, place) in self.names.iter().enumerate() {
            let found = place.load(Ordering::Acquire);
            let new = name.as_ptr().cast_mut();
            let is_mine = if found.is_null() {
                let none = null_mut();
                match place.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => {
                        self.lengths[index].store(name.len(), Ordering::Release);
                        true
                    }
                    Err(other) => other == new,
                }
            } else {
                found == new
            };
            if is_mine {
                return Some(index);
            }
        }
        None
    }

    fn name(&self, kind: usize) -> &'static str {
        let start = self.names[kind].load(Ordering::Acquire);
        let length = self.lengths[kind].load(Ordering::Acquire);
        // SAFETY: `kind` stored the beginning and the length of a `&'static str`, the length after the beginning: until it is
        // there it is 0, for which any pointer that is not null will do.
        unsafe { core::str::from_utf8_unchecked(core::slice::from_raw_parts(start, length)) }
    }
}

/// The last part of a type's path, without what it is generic over.
pub(crate) fn short(name: &'static str) -> &'static str {
    let end = name.find('<').unwrap_or(name.len());
    let start = name[..end].rfind("::").map_or(0, |at| at + 2);
    &name[start..end]
}

fn ones(word: u32) -> impl Iterator<Item = usize> {
    (0..KINDS_MAX).filter(move |&bit| word >> bit & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Order {
        Order {
            names: [const { AtomicPtr::new(null_mut()) }; KINDS_MAX],
            lengths: [const { AtomicUsize::new(0) }; KINDS_MAX],
            later: [const { AtomicU32::new(0) }; KINDS_MAX],
            held: [const { AtomicU32::new(0) }; CPUS_MAX],
        }
    }

    #[test]
    fn an_order_is_learned_and_its_reverse_is_told() {
        let order = order();
        let (zero, one) = (CpuId(0), CpuId(1));
        let take = |cpu, name| order.take(cpu, name);
        let (a, fault) = take(zero, "m::A");
        assert_eq!(fault, None);
        let (b, fault) = take(zero, "m::B<m::C>");
        assert_eq!(fault, None);
        let (c, fault) = take(zero, "C");
        assert_eq!(fault, None);
        [c, b, a].into_iter().for_each(|kind| order.give_back(zero, kind));
        // Any that come later may be taken without those between.
        let (a, _) = take(one, "m::A");
        let (c, fault) = take(one, "C");
        assert_eq!(fault, None);
        order.give_back(one, a);
        let (_, fault) = take(one, "m::A");
        assert_eq!(fault, Some(LockFault::Order { cpu: one, held: "C", taken: "A" }));
        order.give_back(one, c);
    }

    #[test]
    fn the_order_reaches_over_kinds_between() {
        let order = order();
        let cpu = CpuId(3);
        let pair = |first, second| {
            let (first, _) = order.take(cpu, first);
            let (second, fault) = order.take(cpu, second);
            order.give_back(cpu, second);
            order.give_back(cpu, first);
            fault
        };
        assert_eq!(pair("B", "C"), None);
        assert_eq!(pair("A", "B"), None);
        assert_eq!(pair("C", "A"), Some(LockFault::Order { cpu, held: "C", taken: "A" }));
    }

    #[test]
    fn one_of_a_kind_at_a_time() {
        let order = order();
        let cpu = CpuId(0);
        let (kind, _) = order.take(cpu, "a::Buddy");
        let (_, fault) = order.take(cpu, "a::Buddy");
        assert_eq!(fault, Some(LockFault::Twice { cpu, kind: "Buddy" }));
        // Another CPU holds none.
        assert_eq!(order.take(CpuId(1), "a::Buddy").1, None);
        order.give_back(cpu, kind);
        assert_eq!(order.take(cpu, "a::Buddy").1, None);
        // What the table does not know is not checked.
        assert_eq!(order.take(CpuId(CPUS_MAX as u32), "a::Buddy").1, None);
    }
}
