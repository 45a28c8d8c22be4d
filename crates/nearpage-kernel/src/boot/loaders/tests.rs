//! Maps of loaders, built here.

#![allow(unused_imports, dead_code, reason = "what is tested depends on features")]

use std::vec;
use std::vec::Vec;

use crate::boot::{EarlyMemory, LeftOut};

const MIB: u64 = 1 << 20;

#[cfg(feature = "uefi")]
#[test]
fn what_boot_services_left_is_memory() {
    use uefi_raw::table::boot::{MemoryDescriptor, MemoryType};
    let area = |ty, start, page_count| MemoryDescriptor {
        ty,
        phys_start: start,
        page_count,
        ..MemoryDescriptor::default()
    };
    let mut map = vec![
        area(MemoryType::CONVENTIONAL, 0x1000, 0x9f),
        area(MemoryType::RESERVED, 0xa_0000, 0x60),
        area(MemoryType::BOOT_SERVICES_CODE, MIB, 256),
        area(MemoryType::BOOT_SERVICES_DATA, 2 * MIB, 256),
        area(MemoryType::LOADER_DATA, 3 * MIB, 256),
        area(MemoryType::RUNTIME_SERVICES_DATA, 4 * MIB, 256),
        area(MemoryType::ACPI_RECLAIM, 5 * MIB, 256),
        area(MemoryType::CONVENTIONAL, 6 * MIB, 256),
    ];
    let mut memory = EarlyMemory::<8>::new();
    super::uefi::add(&map, &mut memory);
    let expected = [0x1000..0xa_0000, MIB..3 * MIB, 6 * MIB..7 * MIB];
    assert!(memory.ranges().eq(expected), "{memory:?}");
    // Runtime services' memory in the midst of what is said to be free is theirs.
    let mut overlapping = map.clone();
    overlapping.push(area(MemoryType::RUNTIME_SERVICES_DATA, 6 * MIB, 16));
    let mut memory = EarlyMemory::<8>::new();
    super::uefi::add(&overlapping, &mut memory);
    assert_eq!(memory.free_bytes(), 0x9_f000 + 3 * MIB - 0x1_0000);
    map.push(area(MemoryType::CONVENTIONAL, 0, 1 << 60));
    let mut memory = EarlyMemory::<8>::new();
    super::uefi::add(&map, &mut memory);
    assert!(memory.ranges().eq([0x1000..0xa_0000, MIB..3 * MIB, 6 * MIB..7 * MIB]), "{memory:?}");
    assert_eq!(memory.left_out(), LeftOut { ranges: 1, bytes: 0 });
}

#[cfg(feature = "limine")]
#[test]
fn what_limine_says_is_usable_is_memory() {
    use limine::memory_map::{Entry, EntryType};
    let entry = |entry_type, base, length| Entry { base, length, entry_type };
    let entries = [
        entry(EntryType::USABLE, 0x1000, 0x9_e000),
        entry(EntryType::RESERVED, 0xa_0000, 0x6_0000),
        entry(EntryType::BOOTLOADER_RECLAIMABLE, MIB, MIB),
        entry(EntryType::USABLE, 2 * MIB, 30 * MIB),
        entry(EntryType::BAD_MEMORY, 40 * MIB, MIB),
    ];
    let entries: Vec<&Entry> = entries.iter().collect();
    let mut memory = EarlyMemory::<8>::new();
    super::limine::add(&entries, &mut memory);
    assert!(memory.ranges().eq([0x1000..0x9_f000, 2 * MIB..32 * MIB]), "{memory:?}");
    super::limine::add_reclaimable(&entries, &mut memory);
    assert!(memory.ranges().eq([0x1000..0x9_f000, MIB..32 * MIB]), "{memory:?}");
    let wrong = entry(EntryType::USABLE, u64::MAX, 2);
    super::limine::add(&[&wrong], &mut memory);
    assert_eq!(memory.left_out(), LeftOut { ranges: 1, bytes: 0 });
}

#[cfg(feature = "multiboot2")]
#[test]
fn what_multiboot2_says_is_available_is_memory() {
    use multiboot2::{BootInformation, BootInformationHeader};
    /// Tags of type 6 (memory map) and 3 (module), aligned as the loader leaves them.
    fn information(areas: &[(u64, u64, u32)], modules: &[(u32, u32)]) -> Vec<u64> {
        let mut bytes = Vec::new();
        let tag = |typ: u32, body: Vec<u8>, bytes: &mut Vec<u8>| {
            bytes.extend(typ.to_le_bytes());
            bytes.extend((body.len() as u32 + 8).to_le_bytes());
            bytes.extend(body);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        };
        if !areas.is_empty() {
            let mut body: Vec<u8> =
                [24_u32, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
            for &(start, length, typ) in areas {
                body.extend([start, length, typ.into()].iter().flat_map(|word| word.to_le_bytes()));
            }
            tag(6, body, &mut bytes);
        }
        for &(start, end) in modules {
            let mut body: Vec<u8> =
                [start, end].iter().flat_map(|word| word.to_le_bytes()).collect();
            body.extend(b"disk\0");
            tag(3, body, &mut bytes);
        }
        tag(0, Vec::new(), &mut bytes);
        let mut all = (bytes.len() as u32 + 8).to_le_bytes().to_vec();
        all.extend([0; 4]);
        all.extend(bytes);
        all.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8"))).collect()
    }
    let words = information(
        &[(0, 0x9_f000, 1), (0xf_0000, 0x1_0000, 2), (MIB, 31 * MIB, 1), (32 * MIB, MIB, 3)],
        &[(0x20_0000, 0x30_0000)],
    );
    // SAFETY: the words are boot information of the length that they say, and stay as they are.
    let read = |words: &[u64]| unsafe {
        BootInformation::load(words.as_ptr().cast::<BootInformationHeader>()).map(|information| {
            let mut memory = EarlyMemory::<8>::new();
            let has_map = super::multiboot2::add(&information, 0x8000, &mut memory);
            (has_map, memory)
        })
    };
    let (has_map, memory) = read(&words).expect("it is right");
    assert_eq!(has_map, Ok(true));
    assert!(memory.ranges().eq([0..0x9_f000, MIB..32 * MIB]), "{memory:?}");
    // The first MiB has the boot information; the module's MiB is taken, too.
    assert_eq!(memory.free_bytes(), 31 * MIB - MIB);
    let (has_map, _) = read(&information(&[], &[])).expect("it is right");
    assert_eq!(has_map, Ok(false));
    let wrong = [(0, 0x9_f000, 1), (u64::MAX, 2, 1)];
    let (has_map, memory) = read(&information(&wrong, &[])).expect("it is right");
    assert_eq!((has_map, memory.left_out()), (Ok(true), LeftOut { ranges: 1, bytes: 0 }));
    assert!(memory.ranges().eq(core::iter::once(0..0x9_f000)), "{memory:?}");
}
