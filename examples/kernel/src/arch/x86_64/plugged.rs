//! Memory that is plugged in while the machine runs, by the registers of QEMU's chipsets. A kernel would be told by ACPI's
//! methods, which read the same registers. Source: `docs/specs/acpi_mem_hotplug.rst` of QEMU.

use core::ops::Range;

use super::{in8, in32, out32};

const BASE: u16 = 0xa00;
const SLOTS: u32 = 8;

/// The memory in the first slot that has some, and its node.
pub fn plugged_memory() -> Option<(Range<u64>, u32)> {
    (0..SLOTS).find_map(|slot| {
        // SAFETY: the registers of the memory controller, which only this file uses. Where there is none, all bits are set.
        let (start, length, node, flags) = unsafe {
            out32(BASE, slot);
            let word = |offset| u64::from(in32(BASE + offset));
            let start = word(0) | word(4) << 32;
            (start, word(8) | word(12) << 32, in32(BASE + 16), in8(BASE + 20))
        };
        let is_there = flags & 1 == 1 && flags != u8::MAX && length > 0;
        is_there.then_some((start..start + length, node))
    })
}
