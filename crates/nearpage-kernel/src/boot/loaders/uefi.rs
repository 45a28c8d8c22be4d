//! UEFI's memory map (crate `uefi-raw`, whose types the crate `uefi` has too).

use uefi_raw::table::boot::{MemoryDescriptor, MemoryType};

use crate::boot::{EarlyError, EarlyMemory};

/// UEFI's pages, whatever the processor's are.
const PAGE: u64 = 4096;

/// Adds what is free once boot services have been left: conventional memory, and theirs. What the loader allocated
/// ([`MemoryType::LOADER_CODE`], [`MemoryType::LOADER_DATA`]) holds the kernel, its tables, and often this map; a kernel
/// adds of that by [`EarlyMemory::add`] what it does not need.
///
/// # Errors
/// [`EarlyError`].
pub fn add<'a, const RANGES: usize>(
    map: impl IntoIterator<Item = &'a MemoryDescriptor>,
    memory: &mut EarlyMemory<RANGES>,
) -> Result<(), EarlyError> {
    const FREE: [MemoryType; 3] =
        [MemoryType::CONVENTIONAL, MemoryType::BOOT_SERVICES_CODE, MemoryType::BOOT_SERVICES_DATA];
    for descriptor in map.into_iter().filter(|descriptor| FREE.contains(&descriptor.ty)) {
        let start = descriptor.phys_start;
        let wraps = EarlyError::Range { start, length: u64::MAX };
        memory.add(start, descriptor.page_count.checked_mul(PAGE).ok_or(wraps)?)?;
    }
    Ok(())
}
