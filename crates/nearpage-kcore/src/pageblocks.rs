//! Types of pageblocks: bits beside the sections of memory.
//!
//! ```text
//! mem_section[section / sections of a page] -> struct mem_section -> usage -> pageblock_flags: bits of each pageblock
//! ```
//!
//! Until 6.16 a pageblock has four bits, three of them its type; since then isolation is a bit of its own.

use crate::btf::Btf;
use crate::error::KcoreError;
use crate::kernel::Kernel;
use crate::lists::Frames;

/// Log2 of the pages of a pageblock: that of a huge page.
const PAGEBLOCK_ORDER: u32 = 9;
const PAGE_SHIFT: u32 = 12;

/// Bits of a pageblock.
struct Bits {
    width: u32,
    type_mask: u64,
    isolated: Option<(u32, u64)>,
}

impl Bits {
    fn of(btf: &Btf) -> Bits {
        let value = |name| btf.value("pageblock_bits", name);
        let count = value("NR_PAGEBLOCK_BITS").or(value("__NR_PAGEBLOCK_BITS")).unwrap_or(4);
        // A bit of its own for what is isolated, and the type that it stands for.
        let isolated = value("PB_migrate_isolate").zip(btf.value("migratetype", "MIGRATE_ISOLATE"));
        let isolated = isolated.map(|(bit, kind)| (bit.min(63) as u32, kind));
        let width = (count.clamp(4, 32) as u32).next_power_of_two();
        Bits { width, type_mask: 7, isolated }
    }

    fn type_of(&self, flags: u64) -> u8 {
        match self.isolated {
            Some((bit, kind)) if flags >> bit & 1 != 0 => kind as u8,
            _ => (flags & self.type_mask) as u8,
        }
    }
}

/// Names of types, in the order of free lists, as `/proc/pagetypeinfo` has them.
pub(crate) fn names(btf: &Btf) -> Vec<String> {
    const NAMES: [(&str, &str); 6] = [
        ("MIGRATE_UNMOVABLE", "Unmovable"),
        ("MIGRATE_MOVABLE", "Movable"),
        ("MIGRATE_RECLAIMABLE", "Reclaimable"),
        ("MIGRATE_HIGHATOMIC", "HighAtomic"),
        ("MIGRATE_CMA", "CMA"),
        ("MIGRATE_ISOLATE", "Isolate"),
    ];
    let mut names = Vec::new();
    let count = btf.value("migratetype", "MIGRATE_TYPES").unwrap_or(0).min(32);
    for value in 0..count {
        let is_own = |name: &&(&str, &str)| btf.value("migratetype", name.0) == Some(value);
        let name = NAMES.iter().find(is_own).map_or("?", |(_, name)| name);
        names.push(name.to_owned());
    }
    names
}

/// The types of the pageblocks of a zone.
pub(crate) fn types(kernel: &Kernel, frames: Frames) -> Result<Vec<Option<u8>>, KcoreError> {
    /// 16 TiB.
    const BLOCKS_MAX: u64 = 1 << 23;
    let bits = Bits::of(&kernel.btf);
    let sections = Sections::of(kernel)?;
    let first = frames.start >> PAGEBLOCK_ORDER;
    let end = frames.end.div_ceil(1 << PAGEBLOCK_ORDER).min(first.saturating_add(BLOCKS_MAX));
    let mut types = Vec::new();
    let mut block = first;
    while block < end {
        let blocks_of_section = 1 << (sections.section_shift - PAGEBLOCK_ORDER);
        let next = (block / blocks_of_section + 1) * blocks_of_section;
        let flags = sections.flags(kernel, block / blocks_of_section)?;
        for block in block..next.min(end) {
            let Some(flags) = flags else {
                types.push(None);
                continue;
            };
            let bit = (block % blocks_of_section) * u64::from(bits.width);
            let at = flags.wrapping_add(bit / 64 * 8);
            let word = kernel.memory.number("pageblock_flags", at, 8)?;
            types.push(Some(bits.type_of(word >> (bit % 64))));
        }
        block = next;
    }
    Ok(types)
}

/// Where sections are.
struct Sections {
    roots: u64,
    roots_count: u64,
    of_root: u64,
    bytes: u64,
    usage: u64,
    flags: u64,
    /// Log2 of the pages of a section.
    section_shift: u32,
}

impl Sections {
    fn of(kernel: &Kernel) -> Result<Sections, KcoreError> {
        let lacks = |what: &str| kernel.lacks(format!("{what}: no sections of memory"));
        let (info, btf) = (&kernel.info, &kernel.btf);
        let section = kernel.structure("mem_section")?;
        let usage = kernel.structure("mem_section_usage")?;
        let bytes = btf.size(section).filter(|bytes| (1..=4096).contains(bytes));
        let shift = info.number("SECTION_SIZE_BITS").and_then(|bits| u32::try_from(bits).ok());
        let shift = shift.and_then(|bits| bits.checked_sub(PAGE_SHIFT));
        let bytes = bytes.ok_or_else(|| lacks("struct mem_section has no size"))?;
        Ok(Sections {
            roots: info
                .symbol("mem_section")
                .ok_or_else(|| lacks("VMCOREINFO has no mem_section"))?,
            roots_count: info.length("mem_section").unwrap_or(0),
            of_root: 4096 / bytes,
            bytes,
            usage: btf.member(section, "usage").ok_or_else(|| lacks("no usage"))?.offset,
            flags: btf.member(usage, "pageblock_flags").ok_or_else(|| lacks("no flags"))?.offset,
            section_shift: shift
                .filter(|shift| (PAGEBLOCK_ORDER..40).contains(shift))
                .ok_or_else(|| lacks("VMCOREINFO has no SECTION_SIZE_BITS"))?,
        })
    }

    /// Where the bits of a section's pageblocks are; `None` if there is no memory.
    fn flags(&self, kernel: &Kernel, section: u64) -> Result<Option<u64>, KcoreError> {
        let root = section / self.of_root;
        if root >= self.roots_count {
            return Ok(None);
        }
        let table = kernel.memory.number("mem_section", self.roots.wrapping_add(8 * root), 8)?;
        if table == 0 {
            return Ok(None);
        }
        let own = table.wrapping_add(section % self.of_root * self.bytes).wrapping_add(self.usage);
        let usage = kernel.memory.number("mem_section", own, 8)?;
        Ok((usage != 0).then(|| usage.wrapping_add(self.flags)))
    }
}
