//! What QEMU's boards `virt` have in common: a devicetree tells all, and a PC's extras are missing.

use core::ops::Range;

use nearpage_kernel::boot::EarlyMemory;
use nearpage_kernel::firmware::{Machine, devicetree};

use super::phys_to_virt;
use crate::{Described, log};

unsafe extern "C" {
    static kernel_start: u8;
    static kernel_end: u8;
}

/// Reads what the devicetree at `address` says of the machine, and keeps it and the kernel.
pub fn describe_by(address: u64, machine: &mut Machine, memory: &mut EarlyMemory) -> Described {
    // SAFETY: the firmware left it there, nobody writes to it, and the length is the devicetree's own.
    let blob: &'static [u8] = unsafe {
        let bytes = |length| core::slice::from_raw_parts(phys_to_virt(address), length);
        bytes(devicetree::size(bytes(8)).expect("the firmware leaves a devicetree"))
    };
    if let Err(error) = devicetree::read(blob, machine, memory) {
        log!("firmware: {error}; one node");
    }
    let image = (&raw const kernel_start).addr() as u64..(&raw const kernel_end).addr() as u64;
    let taken = memory.reserve(image.start, image.end - image.start);
    let taken = taken.and_then(|()| memory.reserve(address, blob.len() as u64));
    taken.expect("room for two ranges");
    Described { command_line: devicetree::command_line(blob) }
}

/// The board has no interrupts that cannot be masked.
pub fn interrupt_unmaskably(_hardware_id: u64) {}

/// QEMU plugs memory into PCs only.
pub fn plugged_memory() -> Option<(Range<u64>, u32)> {
    None
}
