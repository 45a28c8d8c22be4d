//! UEFI's memory map (crate `uefi-raw`, whose types the crate `uefi` has too).

use uefi_raw::table::boot::{MemoryDescriptor, MemoryType};

use crate::boot::EarlyMemory;

/// UEFI's pages, whatever the processor's are.
const PAGE: u64 = 4096;

/// Adds what is free once boot services have been left: conventional memory, and theirs, as far as no other descriptor says that
/// it is something else. What the loader allocated
/// ([`MemoryType::LOADER_CODE`], [`MemoryType::LOADER_DATA`]) holds the kernel, its tables, and often this map; a kernel
/// adds of that by [`EarlyMemory::add`] what it does not need.
pub fn add<'a, I, const RANGES: usize>(map: I, memory: &mut EarlyMemory<RANGES>)
where
    I: IntoIterator<Item = &'a MemoryDescriptor, IntoIter: Clone>,
{
    const FREE: [MemoryType; 3] =
        [MemoryType::CONVENTIONAL, MemoryType::BOOT_SERVICES_CODE, MemoryType::BOOT_SERVICES_DATA];
    let entry = |of: &MemoryDescriptor| {
        let (start, bytes) = match of.page_count.checked_mul(PAGE) {
            Some(bytes) => (of.phys_start, bytes),
            // Bytes that no word holds wrap around, wherever they begin.
            None => (of.phys_start.max(1), u64::MAX),
        };
        (start, bytes, FREE.contains(&of.ty))
    };
    memory.add_map(map.into_iter().map(entry));
}
