//! The seven restartable sequences on x86-64.
//!
//! Each loads the address of its descriptor into `rseq->rseq_cs`, compares the CPU with the list's owner,
//! works in registers and in slots that belong to nobody, and commits with one store. The kernel jumps
//! to the abort label if the thread was preempted, migrated or signalled in between; the abort label
//! starts over, so no input register is written to. `rseq(2)`, `linux/rseq.h`.
//!
//! Register `area` holds the distance of this thread's `struct rseq` from the thread pointer, `list`
//! the address of a [`RingList`].

use core::arch::asm;
use core::arch::x86_64::{_mm_set_epi32, _mm_set1_epi32};
use core::hint::cold_path;

use nearpage::platform::{Pop, Push};

use super::{IN_HOT_PLACE, MOVED};
use crate::ring::{BATCH_MOST, HALF_ROUND, ONE_POP, RingList};

/// Where `limit` and `mask` begin in the 64 bits from `owner` on.
const LIMIT_SHIFT: usize =
    8 * (core::mem::offset_of!(RingList, limit) - core::mem::offset_of!(RingList, owner));
const MASK_SHIFT: usize =
    8 * (core::mem::offset_of!(RingList, mask) - core::mem::offset_of!(RingList, owner));
const _: () = assert!(LIMIT_SHIFT == 32 && MASK_SHIFT == 48);

/// The CPU that this thread runs on: `rseq->cpu_id`.
#[inline(always)]
pub fn current_cpu(area: isize) -> u32 {
    let cpu: u64;
    // SAFETY: `area` is glibc's `__rseq_offset` (see `super::Area`): the thread pointer plus it is this
    // thread's registered `struct rseq`; offset 4 is `cpu_id`. The load clears the upper half; to say so saves
    // an instruction that does it again.
    unsafe {
        asm!("mov {cpu:e}, dword ptr fs:[{area} + 4]", area = in(reg) area, cpu = lateout(reg) cpu,
             options(pure, nostack, readonly, preserves_flags));
        core::hint::assert_unchecked(cpu <= u32::MAX as u64);
    }
    cpu as u32
}

/// A sequence: descriptor in a section of its own, arming, comparison of the CPU; the body, whose last instruction commits;
/// out of line the abort handler and the exits. Labels: 2 restart, 3 descriptor, 4 start, 5 one past the commit, 6 abort,
/// 9 end. `$compare` compares the CPU in `{t:e}` with the owner; `$moved` is where control goes if they differ.
macro_rules! sequence_from {
    ($compare:literal, $moved:literal, [$($body:literal),* $(,)?], [$($exit:literal),* $(,)?] $(,)?) => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "3: .long 0, 0\n",
            ".quad 4f, 5f - 4f, 6f\n",
            ".popsection\n",
            "2: lea {t}, [rip + 3b]\n",
            "mov qword ptr fs:[{area} + 8], {t}\n",
            "4: mov {t:e}, dword ptr fs:[{area} + 4]\n",
            $compare, "\n",
            "jne ", $moved, "\n",
            $($body, "\n",)*
            "5:\n",
            "9:\n",
            ".pushsection .text.unlikely.nearpage_rseq, \"ax\", @progbits\n",
            // The kernel refuses an abort address without the signature that glibc registered before it;
            // 0f b9 3d makes it the operand of an undefined instruction.
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "6: jmp 2b\n",
            $($exit, "\n",)*
            ".popsection\n",
        )
    };
}

/// A sequence that sets its result at label 7 if the comparison fails.
macro_rules! sequence {
    ($body:tt, $exits:tt $(,)?) => {
        sequence_from!("cmp {t:e}, dword ptr [{list} + {owner}]", "7f", $body, $exits)
    };
}

/// Takes the hottest entry: what is in a [`Pop`].
#[inline(always)]
pub fn pop(area: isize, list: &RingList<'_>) -> u32 {
    let after: u64;
    // SAFETY: `area` as in `current_cpu`. The sequence writes only the cursor of `list` and what it has seen of it, and
    // reads one slot of its ring, below `mask + 1` entries; `RingStorage::list` tied ring and mask together.
    unsafe {
        list_asm!(
            sequence!(
                [
                    "mov {c}, qword ptr [{list} + {cursor}]",
                    // One more than the entry in the hot place.
                    "mov {n}, {c}",
                    "shr {n}, 32",
                    "jne 33f",
                    "cmp {c:x}, word ptr [{list} + {cold}]",
                    "je 8f",
                    "dec {c:x}",
                    "movzx {n:e}, word ptr [{list} + {mask}]",
                    "and {n:e}, {c:e}",
                    "mov {t}, qword ptr [{list} + {ring}]",
                    "mov {n:e}, dword ptr [{t} + {n} * 4]",
                    "inc {n:e}",
                    "jmp 33f",
                    // Half of a round of pops is over. If the sequence starts over, it finds nothing more to add.
                    "32: lea {t:e}, [{c:r} - {ONE_POP}]",
                    "shr {t:e}, 16",
                    "sub {t:x}, word ptr [{list} + {pops_seen}]",
                    "movzx {t:e}, {t:x}",
                    "add qword ptr [{list} + {pops_seen}], {t}",
                    "jmp 34f",
                    // This also empties the hot place.
                    "33: add {c:e}, {ONE_POP}",
                    "test {c:e}, {HALF_ROUND}",
                    "je 32b",
                    "34: mov qword ptr [{list} + {cursor}], {c}",
                ],
                ["7: mov {n:e}, {AFTER_MOVED}", "jmp 9b", "8: mov {n:e}, {AFTER_EMPTY}", "jmp 9b"],
            ),
            area = in(reg) area,
            list = in(reg) list,
            t = out(reg) _,
            c = out(reg) _,
            n = out(reg) after,
            ONE_POP = const ONE_POP,
            HALF_ROUND = const HALF_ROUND,
            AFTER_MOVED = const Pop::MOVED.0.wrapping_add(1),
            AFTER_EMPTY = const Pop::EMPTY.0.wrapping_add(1),
        );
        // As in `current_cpu`.
        core::hint::assert_unchecked(after <= u32::MAX as u64);
    }
    (after as u32).wrapping_sub(1)
}

/// Puts an entry at the hot end: what is in a [`Push`].
#[inline(always)]
pub fn push(area: isize, list: &RingList<'_>, number: u32) -> u32 {
    // SAFETY: as in `pop`. The slot written is above the ring's hot end, and the list holds less than `limit <= mask + 1`
    // entries, so it belongs to nobody until the cursor is stored.
    unsafe {
        list_asm!(
            sequence_from!(
                // One load for all that a list has beside its ends: loads are what a pair is short of.
                "mov {m}, qword ptr [{list} + {owner}]\ncmp {t:e}, {m:e}",
                "{moved}",
                [
                    "mov {c}, qword ptr [{list} + {cursor}]",
                    "mov {r:e}, {c:e}",
                    "mov {t:e}, {c:e}",
                    "sub {t:x}, word ptr [{list} + {cold}]",
                    // The limit, and above it the mask.
                    "shr {m}, {LIMIT_SHIFT}",
                    "cmp {t:x}, {m:x}",
                    "jae {full}",
                    "cmp {r}, {c}",
                    "je 33f",
                    // What is in the hot place counts too, and goes to the ring.
                    "inc {t:e}",
                    "cmp {t:x}, {m:x}",
                    "jae {full}",
                    "shr {m:e}, {MASK_SHIFT} - {LIMIT_SHIFT}",
                    "and {m:e}, {r:e}",
                    "mov {t}, qword ptr [{list} + {ring}]",
                    "shr {c}, 32",
                    "dec {c:e}",
                    "mov dword ptr [{t} + {m} * 4], {c:e}",
                    "inc {r:x}",
                    "33: lea {c:e}, [{n:r} + 1]",
                    "shl {c}, 32",
                    "or {c}, {r}",
                    "mov qword ptr [{list} + {cursor}], {c}",
                ],
                [],
            ),
            area = in(reg) area,
            list = in(reg) list,
            n = in(reg) number,
            t = out(reg) _,
            c = out(reg) _,
            r = out(reg) _,
            m = out(reg) _,
            LIMIT_SHIFT = const LIMIT_SHIFT,
            MASK_SHIFT = const MASK_SHIFT,
            moved = label { cold_path(); return Push::MOVED.0 },
            full = label { cold_path(); return Push::FULL.0 },
        );
    }
    Push::DONE.0
}

/// Moves the entry in the hot place, if there is one, to the ring; nothing if this thread has moved.
#[inline(never)]
pub fn settle(area: isize, list: &RingList<'_>) {
    // SAFETY: as in `push`.
    unsafe {
        list_asm!(
            sequence_from!(
                "cmp {t:e}, dword ptr [{list} + {owner}]",
                "9f",
                [
                    "mov {c}, qword ptr [{list} + {cursor}]",
                    "mov {n}, {c}",
                    "shr {n}, 32",
                    "je 9f",
                    "movzx {m:e}, word ptr [{list} + {mask}]",
                    "and {m:e}, {c:e}",
                    "mov {t}, qword ptr [{list} + {ring}]",
                    "dec {n:e}",
                    "mov dword ptr [{t} + {m} * 4], {n:e}",
                    "inc {c:x}",
                    "mov {c:e}, {c:e}",
                    "mov qword ptr [{list} + {cursor}], {c}",
                ],
                [],
            ),
            area = in(reg) area,
            list = in(reg) list,
            t = out(reg) _,
            c = out(reg) _,
            n = out(reg) _,
            m = out(reg) _,
        );
    }
}

/// Takes up to `out.len()` entries from the hot end, at most [`BATCH_MOST`], hottest first: how many, [`MOVED`], or
/// [`IN_HOT_PLACE`]. What is in the rest of `out` afterwards is anything.
///
/// The copy is part of the sequence. Copied before, with a commit that only compares both ends, it could be
/// of entries that a drain took and a refill replaced meanwhile: then both ends are where they were.
#[inline(always)]
pub fn pop_batch(area: isize, list: &RingList<'_>, out: &mut [u32]) -> u32 {
    let popped: u32;
    // SAFETY: as in `pop`; it reads entries between the two ends, and writes at most `out.len()` to `out`.
    unsafe {
        list_asm!(
            sequence!(
                [
                    "mov {c}, qword ptr [{list} + {cursor}]",
                    "mov {t}, {c}",
                    "shr {t}, 32",
                    "jne 31f",
                    // What the cursor has counted of pops is noted first, as in `pop`.
                    "mov {t:e}, {c:e}",
                    "shr {t:e}, 16",
                    "sub {t:x}, word ptr [{list} + {pops_seen}]",
                    "movzx {t:e}, {t:x}",
                    "add qword ptr [{list} + {pops_seen}], {t}",
                    "mov {k:e}, {c:e}",
                    "sub {k:x}, word ptr [{list} + {cold}]",
                    "movzx {k:e}, {k:x}",
                    "cmp {k:e}, {most:e}",
                    "cmova {k:e}, {most:e}",
                    "mov {base}, qword ptr [{list} + {ring}]",
                    "mov {o}, {out}",
                    "mov {left:e}, {k:e}",
                    // Slot {i} holds the hottest; {i} + 1 entries come before the ring wraps.
                    "lea {i:e}, [{c:r} - 1]",
                    "and {i:x}, word ptr [{list} + {mask}]",
                    "movzx {i:e}, {i:x}",
                    "21: lea {t:e}, [{i:r} + 1]",
                    "cmp {t:e}, {left:e}",
                    "cmova {t:e}, {left:e}",
                    "sub {left:e}, {t:e}",
                    // Turned round, the hottest goes first: sixteen at a time, then four, then single ones.
                    "sub {t:e}, 16",
                    "jl 27f",
                    "26: movdqu {x}, xmmword ptr [{base} + {i:r} * 4 - 12]",
                    "movdqu {y}, xmmword ptr [{base} + {i:r} * 4 - 28]",
                    "pshufd {x}, {x}, 0x1b",
                    "pshufd {y}, {y}, 0x1b",
                    "movdqu xmmword ptr [{o}], {x}",
                    "movdqu xmmword ptr [{o} + 16], {y}",
                    "movdqu {x}, xmmword ptr [{base} + {i:r} * 4 - 44]",
                    "movdqu {y}, xmmword ptr [{base} + {i:r} * 4 - 60]",
                    "pshufd {x}, {x}, 0x1b",
                    "pshufd {y}, {y}, 0x1b",
                    "movdqu xmmword ptr [{o} + 32], {x}",
                    "movdqu xmmword ptr [{o} + 48], {y}",
                    "add {o}, 64",
                    "sub {i:r}, 16",
                    "sub {t:e}, 16",
                    "jge 26b",
                    "27: add {t:e}, 12",
                    "jl 23f",
                    "22: movdqu {x}, xmmword ptr [{base} + {i:r} * 4 - 12]",
                    "pshufd {x}, {x}, 0x1b",
                    "movdqu xmmword ptr [{o}], {x}",
                    "add {o}, 16",
                    "sub {i:r}, 4",
                    "sub {t:e}, 4",
                    "jge 22b",
                    "23: add {t:e}, 4",
                    "je 25f",
                    "24: movd {x}, dword ptr [{base} + {i:r} * 4]",
                    "movd dword ptr [{o}], {x}",
                    "add {o}, 4",
                    "dec {i:r}",
                    "dec {t:e}",
                    "jne 24b",
                    "25: movzx {i:e}, word ptr [{list} + {mask}]",
                    "test {left:e}, {left:e}",
                    "jne 21b",
                    "sub {c:x}, {k:x}",
                    "mov {t:e}, {k:e}",
                    "shl {t:e}, 16",
                    "add {c:e}, {t:e}",
                    "mov qword ptr [{list} + {cursor}], {c}",
                ],
                ["7: mov {k:e}, {MOVED}", "jmp 9b", "31: mov {k:e}, {IN_HOT_PLACE}", "jmp 9b"],
            ),
            area = in(reg) area,
            list = in(reg) list,
            out = in(reg) out.as_mut_ptr(),
            most = in(reg) out.len().min(BATCH_MOST),
            t = out(reg) _,
            c = out(reg) _,
            i = out(reg) _,
            o = out(reg) _,
            left = out(reg) _,
            x = out(xmm_reg) _,
            y = out(xmm_reg) _,
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
                    "mov {c}, qword ptr [{list} + {cursor}]",
                    "mov {t}, {c}",
                    "shr {t}, 32",
                    "jne 31f",
                    "mov {t:e}, {c:e}",
                    "sub {t:x}, word ptr [{list} + {cold}]",
                    "movzx {t:e}, {t:x}",
                    "movzx {k:e}, word ptr [{list} + {limit}]",
                    "sub {k:e}, {t:e}",
                    "jbe 8f",
                    "cmp {k:e}, {length:e}",
                    "cmova {k:e}, {length:e}",
                    "mov {base}, qword ptr [{list} + {ring}]",
                    "mov {from}, {numbers}",
                    "mov {left:e}, {k:e}",
                    // Slot {i} is the next one; the ring wraps after slot `mask`.
                    "movzx {i:e}, word ptr [{list} + {mask}]",
                    "and {i:e}, {c:e}",
                    "21: movzx {t:e}, word ptr [{list} + {mask}]",
                    "inc {t:e}",
                    "sub {t:e}, {i:e}",
                    "cmp {t:e}, {left:e}",
                    "cmova {t:e}, {left:e}",
                    "sub {left:e}, {t:e}",
                    "sub {t:e}, 4",
                    "jl 23f",
                    "22: movdqu {x}, xmmword ptr [{from}]",
                    "movdqu xmmword ptr [{base} + {i} * 4], {x}",
                    "add {from}, 16",
                    "add {i:e}, 4",
                    "sub {t:e}, 4",
                    "jge 22b",
                    "23: add {t:e}, 4",
                    "je 25f",
                    "24: movd {x}, dword ptr [{from}]",
                    "movd dword ptr [{base} + {i} * 4], {x}",
                    "add {from}, 4",
                    "inc {i:e}",
                    "dec {t:e}",
                    "jne 24b",
                    "25: xor {i:e}, {i:e}",
                    "test {left:e}, {left:e}",
                    "jne 21b",
                    "add {c:x}, {k:x}",
                    "mov qword ptr [{list} + {cursor}], {c}",
                ],
                [
                    "7: mov {k:e}, {MOVED}",
                    "jmp 9b",
                    "8: xor {k:e}, {k:e}",
                    "jmp 9b",
                    "31: mov {k:e}, {IN_HOT_PLACE}",
                    "jmp 9b",
                ],
            ),
            area = in(reg) area,
            list = in(reg) list,
            numbers = in(reg) numbers.as_ptr(),
            length = in(reg) numbers.len().min(u16::MAX as usize),
            t = out(reg) _,
            c = out(reg) _,
            i = out(reg) _,
            from = out(reg) _,
            left = out(reg) _,
            x = out(xmm_reg) _,
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
    let entry = |at: u32| first.wrapping_add(at * step) as i32;
    // SAFETY: as in `push`; it writes at most capacity (`mask + 1`) minus the count of slots, all below
    // the cold end.
    unsafe {
        list_asm!(
            sequence!(
                [
                    "mov {t}, qword ptr [{list} + {cursor}]",
                    "mov {c}, {t}",
                    "shr {c}, 32",
                    "jne 31f",
                    "mov {c}, qword ptr [{list} + {cold}]",
                    "sub {t:x}, {c:x}",
                    "movzx {t:e}, {t:x}",
                    "movzx {k:e}, word ptr [{list} + {mask}]",
                    "inc {k:e}",
                    "sub {k:e}, {t:e}",
                    "cmp {k:e}, {blocks:e}",
                    "cmova {k:e}, {blocks:e}",
                    "mov {base}, qword ptr [{list} + {ring}]",
                    "movdqa {x}, {entries}",
                    "mov {left:e}, {k:e}",
                    // Slot {i} is the next one, downward; {i} + 1 slots come before the ring wraps.
                    "lea {i:e}, [{c:r} - 1]",
                    "and {i:x}, word ptr [{list} + {mask}]",
                    "movzx {i:e}, {i:x}",
                    "21: lea {t:e}, [{i:r} + 1]",
                    "cmp {t:e}, {left:e}",
                    "cmova {t:e}, {left:e}",
                    "sub {left:e}, {t:e}",
                    "sub {t:e}, 4",
                    "jl 23f",
                    "22: movdqu xmmword ptr [{base} + {i:r} * 4 - 12], {x}",
                    "paddd {x}, {four_steps}",
                    "sub {i:e}, 4",
                    "sub {t:e}, 4",
                    "jge 22b",
                    "23: add {t:e}, 4",
                    "je 25f",
                    "24: pshufd {y}, {x}, 0xff",
                    "movd dword ptr [{base} + {i:r} * 4], {y}",
                    "paddd {x}, {one_step}",
                    "dec {i:e}",
                    "dec {t:e}",
                    "jne 24b",
                    "25: movzx {i:e}, word ptr [{list} + {mask}]",
                    "test {left:e}, {left:e}",
                    "jne 21b",
                    "sub {c}, {k:r}",
                    "mov qword ptr [{list} + {cold}], {c}",
                ],
                ["7: mov {k:e}, {MOVED}", "jmp 9b", "31: mov {k:e}, {IN_HOT_PLACE}", "jmp 9b"],
            ),
            area = in(reg) area,
            list = in(reg) list,
            // Four as they will lie: the first is above the others.
            entries = in(xmm_reg) _mm_set_epi32(entry(0), entry(1), entry(2), entry(3)),
            one_step = in(xmm_reg) _mm_set1_epi32(step as i32),
            four_steps = in(xmm_reg) _mm_set1_epi32(4 * step as i32),
            blocks = in(reg) blocks,
            t = out(reg) _,
            c = out(reg) _,
            i = out(reg) _,
            left = out(reg) _,
            x = out(xmm_reg) _,
            y = out(xmm_reg) _,
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
                    "mov {k:r}, qword ptr [{list} + {cursor}]",
                    "mov {c}, {k:r}",
                    "shr {c}, 32",
                    "jne 31f",
                    "mov {c}, qword ptr [{list} + {cold}]",
                    "sub {k:x}, {c:x}",
                    "movzx {k:e}, {k:x}",
                    "cmp {k:e}, {most:e}",
                    "cmova {k:e}, {most:e}",
                    "mov {base}, qword ptr [{list} + {ring}]",
                    "mov {o}, {out}",
                    "mov {left:e}, {k:e}",
                    // Slot {i} holds the coldest; the ring wraps after slot `mask`.
                    "movzx {i:e}, word ptr [{list} + {mask}]",
                    "and {i:e}, {c:e}",
                    "21: movzx {t:e}, word ptr [{list} + {mask}]",
                    "inc {t:e}",
                    "sub {t:e}, {i:e}",
                    "cmp {t:e}, {left:e}",
                    "cmova {t:e}, {left:e}",
                    "sub {left:e}, {t:e}",
                    "sub {t:e}, 4",
                    "jl 23f",
                    "22: movdqu {x}, xmmword ptr [{base} + {i} * 4]",
                    "movdqu xmmword ptr [{o}], {x}",
                    "add {o}, 16",
                    "add {i:e}, 4",
                    "sub {t:e}, 4",
                    "jge 22b",
                    "23: add {t:e}, 4",
                    "je 25f",
                    "24: movd {x}, dword ptr [{base} + {i} * 4]",
                    "movd dword ptr [{o}], {x}",
                    "add {o}, 4",
                    "inc {i:e}",
                    "dec {t:e}",
                    "jne 24b",
                    "25: xor {i:e}, {i:e}",
                    "test {left:e}, {left:e}",
                    "jne 21b",
                    "add {c}, {k:r}",
                    "mov qword ptr [{list} + {cold}], {c}",
                ],
                ["7: mov {k:e}, {MOVED}", "jmp 9b", "31: mov {k:e}, {IN_HOT_PLACE}", "jmp 9b"],
            ),
            area = in(reg) area,
            list = in(reg) list,
            out = in(reg) out.as_mut_ptr(),
            most = in(reg) out.len().min(u16::MAX as usize),
            t = out(reg) _,
            c = out(reg) _,
            i = out(reg) _,
            o = out(reg) _,
            left = out(reg) _,
            x = out(xmm_reg) _,
            base = out(reg) _,
            k = out(reg) taken,
        );
    }
    taken
}
