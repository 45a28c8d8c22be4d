//! The seven restartable sequences on aarch64.
//!
//! As on x86-64, where the steps are explained. Two things differ:
//!
//! * Stores of another CPU may be seen in any order. A drain from outside writes the cold end, then returns
//!   the list to its owner; so the owner is loaded with acquire semantics (`ldar`), which pairs with the
//!   release in `resume`. What threads of one CPU write to a list they see in order, and the kernel's
//!   barriers between threads and in `membarrier(2)` do the rest.
//! * A conditional branch reaches 1 MiB, so everything stands in one piece: abort handler and exits behind the
//!   commit, which jumps over them.

use core::arch::asm;

use nearpage::platform::{Pop, Push};

use super::{IN_HOT_PLACE, MOVED};
use crate::ring::{BATCH_MOST, HALF_ROUND, ONE_POP, RingList};

/// The CPU that this thread runs on: `rseq->cpu_id`.
#[inline(always)]
pub fn current_cpu(area: isize) -> u32 {
    let cpu: u32;
    // SAFETY: `area` is glibc's `__rseq_offset` (see `super::Area`): the thread pointer plus it is this
    // thread's registered `struct rseq`; offset 4 is `cpu_id`.
    unsafe {
        asm!(
            "mrs {t}, tpidr_el0",
            "add {t}, {t}, {area}",
            "ldr {cpu:w}, [{t}, #4]",
            area = in(reg) area,
            t = out(reg) _,
            cpu = lateout(reg) cpu,
            options(nostack, readonly, preserves_flags),
        );
    }
    cpu
}

/// A sequence: descriptor in a section of its own, arming, comparison of the CPU; the body, whose last
/// instruction commits; the abort handler; the exits.
/// Labels: 2 restart, 3 descriptor, 4 start, 5 one past the commit, 6 abort, 7 moved, 9 end.
macro_rules! sequence {
    ([$($body:literal),* $(,)?], [$($exit:literal),* $(,)?] $(,)?) => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "3: .long 0, 0\n",
            ".quad 4f, 5f - 4f, 6f\n",
            ".popsection\n",
            "mrs {rseq}, tpidr_el0\n",
            "add {rseq}, {rseq}, {area}\n",
            "2: adrp {t}, 3b\n",
            "add {t}, {t}, :lo12:3b\n",
            "str {t}, [{rseq}, #8]\n",
            "4: ldr {t:w}, [{rseq}, #4]\n",
            "add {v}, {list}, #{owner}\n",
            "ldar {v:w}, [{v}]\n",
            "cmp {t:w}, {v:w}\n",
            "b.ne 7f\n",
            $($body, "\n",)*
            "5: b 9f\n",
            // The kernel refuses an abort address without the signature that glibc registered before it:
            // `brk #0x45e0`.
            ".inst 0xd428bc00\n",
            "6: b 2b\n",
            $($exit, "\n",)*
            "9:\n",
        )
    };
}

/// Takes the hottest entry: what is in a [`Pop`].
#[inline(always)]
pub fn pop(area: isize, list: &RingList<'_>) -> u32 {
    let after: u32;
    // SAFETY: `area` as in `current_cpu`. The sequence writes only the cursor of `list` and what it has seen of it, and
    // reads one slot of its ring, below `mask + 1` entries; `RingStorage::list` tied ring and mask together.
    unsafe {
        list_asm!(
            sequence!(
                [
                    "ldr {c}, [{list}, #{cursor}]",
                    // One more than the entry in the hot place.
                    "lsr {n:x}, {c}, #32",
                    "cbnz {n:w}, 33f",
                    "ldr {t}, [{list}, #{cold}]",
                    "eor {t:w}, {t:w}, {c:w}",
                    "tst {t:w}, #0xffff",
                    "b.eq 8f",
                    "sub {v:w}, {c:w}, #1",
                    "bfi {c:w}, {v:w}, #0, #16",
                    "ldrh {v:w}, [{list}, #{mask}]",
                    "and {v:w}, {v:w}, {c:w}",
                    "ldr {t}, [{list}, #{ring}]",
                    "ldr {n:w}, [{t}, {v:w}, uxtw #2]",
                    "add {n:w}, {n:w}, #1",
                    "b 33f",
                    // Half of a round of pops is over. If the sequence starts over, it finds nothing more to add.
                    "32: sub {t:w}, {c:w}, #{ONE_POP} >> 12, lsl #12",
                    "lsr {t:w}, {t:w}, #16",
                    "ldr {v}, [{list}, #{pops_seen}]",
                    "sub {t:w}, {t:w}, {v:w}",
                    "and {t:w}, {t:w}, #0xffff",
                    "add {v}, {v}, {t}",
                    "str {v}, [{list}, #{pops_seen}]",
                    "b 34f",
                    // One pop. This also empties the hot place.
                    "33: add {c:w}, {c:w}, #{ONE_POP} >> 12, lsl #12",
                    "tst {c:w}, #{HALF_ROUND}",
                    "b.eq 32b",
                    "34: str {c}, [{list}, #{cursor}]",
                ],
                ["7: mov {n:w}, #{AFTER_MOVED}", "b 9f", "8: mov {n:w}, #{AFTER_EMPTY}"],
            ),
            area = in(reg) area,
            list = in(reg) list,
            rseq = out(reg) _,
            t = out(reg) _,
            v = out(reg) _,
            c = out(reg) _,
            n = out(reg) after,
            ONE_POP = const ONE_POP,
            HALF_ROUND = const HALF_ROUND,
            AFTER_MOVED = const Pop::MOVED.0.wrapping_add(1),
            AFTER_EMPTY = const Pop::EMPTY.0.wrapping_add(1),
        );
    }
    after.wrapping_sub(1)
}

/// Puts an entry at the hot end: what is in a [`Push`].
#[inline(always)]
pub fn push(area: isize, list: &RingList<'_>, number: u32) -> u32 {
    let answer: u32;
    // SAFETY: as in `pop`. The slot written is above the ring's hot end, and the list holds less than `limit <= mask + 1`
    // entries, so it belongs to nobody until the cursor is stored.
    unsafe {
        list_asm!(
            sequence!(
                [
                    "ldr {c}, [{list}, #{cursor}]",
                    "ldr {t}, [{list}, #{cold}]",
                    "sub {t:w}, {c:w}, {t:w}",
                    "and {t:w}, {t:w}, #0xffff",
                    "lsr {r:x}, {c}, #32",
                    // What is in the hot place counts too, and goes to the ring.
                    "cmp {r:w}, #0",
                    "cinc {t:w}, {t:w}, ne",
                    "ldrh {v:w}, [{list}, #{limit}]",
                    "cmp {t:w}, {v:w}",
                    "b.hs 8f",
                    "cbz {r:w}, 33f",
                    "ldrh {v:w}, [{list}, #{mask}]",
                    "and {v:w}, {v:w}, {c:w}",
                    "ldr {t}, [{list}, #{ring}]",
                    "sub {r:w}, {r:w}, #1",
                    "str {r:w}, [{t}, {v:w}, uxtw #2]",
                    "add {v:w}, {c:w}, #1",
                    "bfi {c:w}, {v:w}, #0, #16",
                    "33: add {v:w}, {n:w}, #1",
                    "bfi {c}, {v}, #32, #32",
                    "mov {r:w}, #0",
                    "str {c}, [{list}, #{cursor}]",
                ],
                ["7: mov {r:w}, #{PUSH_MOVED}", "b 9f", "8: mov {r:w}, #{FULL}"],
            ),
            area = in(reg) area,
            list = in(reg) list,
            n = in(reg) number,
            rseq = out(reg) _,
            t = out(reg) _,
            v = out(reg) _,
            c = out(reg) _,
            r = out(reg) answer,
            PUSH_MOVED = const Push::MOVED.0,
            FULL = const Push::FULL.0,
        );
    }
    answer
}

/// Moves the entry in the hot place, if there is one, to the ring; nothing if this thread has moved.
#[inline(never)]
pub fn settle(area: isize, list: &RingList<'_>) {
    // SAFETY: as in `push`.
    unsafe {
        list_asm!(
            sequence!(
                [
                    "ldr {c}, [{list}, #{cursor}]",
                    "lsr {n}, {c}, #32",
                    "cbz {n:w}, 7f",
                    "ldrh {v:w}, [{list}, #{mask}]",
                    "and {v:w}, {v:w}, {c:w}",
                    "ldr {t}, [{list}, #{ring}]",
                    "sub {n:w}, {n:w}, #1",
                    "str {n:w}, [{t}, {v:w}, uxtw #2]",
                    "add {v:w}, {c:w}, #1",
                    "bfi {c:w}, {v:w}, #0, #16",
                    "str {c}, [{list}, #{cursor}]",
                ],
                ["7:"],
            ),
            area = in(reg) area,
            list = in(reg) list,
            rseq = out(reg) _,
            t = out(reg) _,
            v = out(reg) _,
            c = out(reg) _,
            n = out(reg) _,
        );
    }
}

/// Takes up to `out.len()` entries from the hot end, at most [`BATCH_MOST`], hottest first: how many, [`MOVED`], or
/// [`IN_HOT_PLACE`]. What is in the rest of `out` afterwards is anything.
#[inline(always)]
pub fn pop_batch(area: isize, list: &RingList<'_>, out: &mut [u32]) -> u32 {
    let popped: u32;
    // SAFETY: as in `pop`; it reads entries between the two ends, and writes at most `out.len()` to `out`.
    unsafe {
        list_asm!(
            sequence!(
                [
                    "ldr {c}, [{list}, #{cursor}]",
                    "lsr {t}, {c}, #32",
                    "cbnz {t:w}, 31f",
                    // What the cursor has counted of pops is noted first, as in `pop`.
                    "lsr {t:w}, {c:w}, #16",
                    "ldr {v}, [{list}, #{pops_seen}]",
                    "sub {t:w}, {t:w}, {v:w}",
                    "and {t:w}, {t:w}, #0xffff",
                    "add {v}, {v}, {t}",
                    "str {v}, [{list}, #{pops_seen}]",
                    "ldr {k:x}, [{list}, #{cold}]",
                    "sub {k:w}, {c:w}, {k:w}",
                    "and {k:w}, {k:w}, #0xffff",
                    "cmp {k:w}, {most:w}",
                    "csel {k:w}, {k:w}, {most:w}, ls",
                    "ldrh {m:w}, [{list}, #{mask}]",
                    "ldr {base}, [{list}, #{ring}]",
                    "mov {i:w}, {k:w}",
                    "cbz {i:w}, 23f",
                    // Entry i - 1 of `out` stands i below the hot end.
                    "22: sub {t:w}, {c:w}, {i:w}",
                    "and {t:w}, {t:w}, {m:w}",
                    "ldr {v:w}, [{base}, {t:w}, uxtw #2]",
                    "sub {i:w}, {i:w}, #1",
                    "str {v:w}, [{out}, {i:w}, uxtw #2]",
                    "cbnz {i:w}, 22b",
                    "23: sub {t:w}, {c:w}, {k:w}",
                    "bfi {c:w}, {t:w}, #0, #16",
                    "add {c:w}, {c:w}, {k:w}, lsl #16",
                    "str {c}, [{list}, #{cursor}]",
                ],
                ["7: mov {k:w}, #{MOVED}", "b 9f", "31: mov {k:w}, #{IN_HOT_PLACE}"],
            ),
            area = in(reg) area,
            list = in(reg) list,
            out = in(reg) out.as_mut_ptr(),
            most = in(reg) out.len().min(BATCH_MOST),
            rseq = out(reg) _,
            t = out(reg) _,
            v = out(reg) _,
            c = out(reg) _,
            i = out(reg) _,
            m = out(reg) _,
            base = out(reg) _,
            k = out(reg) popped,
        );
    }
    popped
}

/// Pushes entries at the hot end, the last one hottest, as far as the limit allows; returns how many, [`MOVED`], or
/// [`IN_HOT_PLACE`].
#[inline(always)]
pub fn push_batch(area: isize, list: &RingList<'_>, numbers: &[u32]) -> u32 {
    let pushed: u32;
    // SAFETY: as in `push`; it writes at most `limit` minus the count of slots, all above the hot end,
    // and reads at most `numbers.len()` entries of `numbers`.
    unsafe {
        list_asm!(
            sequence!(
                [
                    "ldr {c}, [{list}, #{cursor}]",
                    "lsr {t}, {c}, #32",
                    "cbnz {t:w}, 31f",
                    "ldr {t}, [{list}, #{cold}]",
                    "sub {t:w}, {c:w}, {t:w}",
                    "and {t:w}, {t:w}, #0xffff",
                    "ldrh {k:w}, [{list}, #{limit}]",
                    "subs {k:w}, {k:w}, {t:w}",
                    "b.ls 8f",
                    "cmp {k:w}, {length:w}",
                    "csel {k:w}, {k:w}, {length:w}, ls",
                    "ldrh {m:w}, [{list}, #{mask}]",
                    "ldr {base}, [{list}, #{ring}]",
                    "mov {i:w}, #0",
                    "22: cmp {i:w}, {k:w}",
                    "b.hs 23f",
                    "add {t:w}, {c:w}, {i:w}",
                    "and {t:w}, {t:w}, {m:w}",
                    "ldr {v:w}, [{numbers}, {i:w}, uxtw #2]",
                    "str {v:w}, [{base}, {t:w}, uxtw #2]",
                    "add {i:w}, {i:w}, #1",
                    "b 22b",
                    "23: add {t:w}, {c:w}, {k:w}",
                    "bfi {c:w}, {t:w}, #0, #16",
                    "str {c}, [{list}, #{cursor}]",
                ],
                [
                    "7: mov {k:w}, #{MOVED}",
                    "b 9f",
                    "8: mov {k:w}, #0",
                    "b 9f",
                    "31: mov {k:w}, #{IN_HOT_PLACE}",
                ],
            ),
            area = in(reg) area,
            list = in(reg) list,
            numbers = in(reg) numbers.as_ptr(),
            length = in(reg) numbers.len().min(u16::MAX as usize),
            rseq = out(reg) _,
            t = out(reg) _,
            v = out(reg) _,
            c = out(reg) _,
            i = out(reg) _,
            m = out(reg) _,
            base = out(reg) _,
            k = out(reg) pushed,
        );
    }
    pushed
}

/// Appends `first`, `first + step`, … at the cold end, `first` hottest, as far as there is room; returns
/// how many, [`MOVED`], or [`IN_HOT_PLACE`].
#[inline(always)]
pub fn append_run(area: isize, list: &RingList<'_>, first: u32, step: u32, blocks: u32) -> u32 {
    let appended: u32;
    // SAFETY: as in `push`; it writes at most capacity (`mask + 1`) minus the count of slots, all below
    // the cold end.
    unsafe {
        list_asm!(
            sequence!(
                [
                    "ldr {t}, [{list}, #{cursor}]",
                    "lsr {c}, {t}, #32",
                    "cbnz {c:w}, 31f",
                    "ldr {c}, [{list}, #{cold}]",
                    "sub {t:w}, {t:w}, {c:w}",
                    "and {t:w}, {t:w}, #0xffff",
                    "ldrh {m:w}, [{list}, #{mask}]",
                    "add {k:w}, {m:w}, #1",
                    "sub {k:w}, {k:w}, {t:w}",
                    "cmp {k:w}, {blocks:w}",
                    "csel {k:w}, {k:w}, {blocks:w}, ls",
                    "ldr {base}, [{list}, #{ring}]",
                    "mov {v:w}, {first:w}",
                    "mov {i:w}, {k:w}",
                    "22: cbz {i:w}, 23f",
                    "sub {c}, {c}, #1",
                    "and {t:w}, {c:w}, {m:w}",
                    "str {v:w}, [{base}, {t:w}, uxtw #2]",
                    "add {v:w}, {v:w}, {step:w}",
                    "sub {i:w}, {i:w}, #1",
                    "b 22b",
                    "23: str {c}, [{list}, #{cold}]",
                ],
                ["7: mov {k:w}, #{MOVED}", "b 9f", "31: mov {k:w}, #{IN_HOT_PLACE}"],
            ),
            area = in(reg) area,
            list = in(reg) list,
            first = in(reg) first,
            step = in(reg) step,
            blocks = in(reg) blocks,
            rseq = out(reg) _,
            t = out(reg) _,
            v = out(reg) _,
            c = out(reg) _,
            i = out(reg) _,
            m = out(reg) _,
            base = out(reg) _,
            k = out(reg) appended,
        );
    }
    appended
}

/// Takes up to `out.len()` entries from the cold end, coldest first: how many, [`MOVED`], or [`IN_HOT_PLACE`]. What is
/// in the rest of `out` afterwards is anything.
#[inline(always)]
pub fn pop_cold(area: isize, list: &RingList<'_>, out: &mut [u32]) -> u32 {
    let taken: u32;
    // SAFETY: as in `pop_batch`; the sequence moves the cold end.
    unsafe {
        list_asm!(
            sequence!(
                [
                    "ldr {k:x}, [{list}, #{cursor}]",
                    "lsr {c}, {k:x}, #32",
                    "cbnz {c:w}, 31f",
                    "ldr {c}, [{list}, #{cold}]",
                    "sub {k:w}, {k:w}, {c:w}",
                    "and {k:w}, {k:w}, #0xffff",
                    "cmp {k:w}, {most:w}",
                    "csel {k:w}, {k:w}, {most:w}, ls",
                    "ldrh {m:w}, [{list}, #{mask}]",
                    "ldr {base}, [{list}, #{ring}]",
                    "mov {i:w}, {k:w}",
                    "22: cbz {i:w}, 23f",
                    // Entry i of `out` stands i above the cold end.
                    "sub {i:w}, {i:w}, #1",
                    "add {t:w}, {c:w}, {i:w}",
                    "and {t:w}, {t:w}, {m:w}",
                    "ldr {v:w}, [{base}, {t:w}, uxtw #2]",
                    "str {v:w}, [{out}, {i:w}, uxtw #2]",
                    "b 22b",
                    "23: add {c}, {c}, {k:w}, uxtw",
                    "str {c}, [{list}, #{cold}]",
                ],
                ["7: mov {k:w}, #{MOVED}", "b 9f", "31: mov {k:w}, #{IN_HOT_PLACE}"],
            ),
            area = in(reg) area,
            list = in(reg) list,
            out = in(reg) out.as_mut_ptr(),
            most = in(reg) out.len().min(u16::MAX as usize),
            rseq = out(reg) _,
            t = out(reg) _,
            v = out(reg) _,
            c = out(reg) _,
            i = out(reg) _,
            m = out(reg) _,
            base = out(reg) _,
            k = out(reg) taken,
        );
    }
    taken
}
