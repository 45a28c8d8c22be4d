//! Multiboot2's boot information (crate `multiboot2`): GRUB, and others.

use multiboot2::{BootInformation, MemoryArea, MemoryAreaType};

use crate::boot::{EarlyError, EarlyMemory};

/// Adds the available memory, and reserves the boot information itself, the modules and the first MiB. `address` is where the loader left the
/// boot information, physically. `false` if it has no memory map: then the kernel was loaded by EFI alone, whose map
/// [`uefi`](super) reads.
///
/// # Errors
/// [`EarlyError`].
pub fn add<const RANGES: usize>(
    information: &BootInformation<'_>,
    address: u64,
    memory: &mut EarlyMemory<RANGES>,
) -> Result<bool, EarlyError> {
    memory.reserve(address, information.total_size() as u64)?;
    memory.leave_first_mib()?;
    for module in information.module_tags() {
        let (start, end) = (module.start_address(), module.end_address());
        // The crate takes the difference as it is; one that is none is a module of no bytes.
        memory.reserve(start.into(), end.saturating_sub(start).into())?;
    }
    let Some(map) = information.memory_map_tag() else { return Ok(false) };
    let available = |area: &MemoryArea| area.typ() == MemoryAreaType::Available;
    let entry = |area: &MemoryArea| (area.start_address(), area.size(), available(area));
    memory.add_map(map.memory_areas().iter().map(entry));
    Ok(true)
}
