//! A kernel in an image: its release, where its variables are, and how its types lie.

use std::path::Path;

use crate::btf::{Btf, Number};
use crate::error::KcoreError;
use crate::image::Image;
use crate::memory::Memory;
use crate::symbols::Symbols;
use crate::vmcoreinfo::{self, Vmcoreinfo};

/// Variables that are read, if the kernel has them. Only [`Kernel::needed`] refuses a kernel without one.
const VARIABLES: [&str; 22] = [
    "__start_BTF",
    "__stop_BTF",
    "__per_cpu_offset",
    "__cpu_online_mask",
    "node_states",
    "numa_node",
    "numa_distance",
    "numa_distance_cnt",
    "min_free_kbytes",
    "user_min_free_kbytes",
    "watermark_boost_factor",
    "watermark_scale_factor",
    "percpu_pagelist_high_fraction",
    "node_reclaim_mode",
    "sysctl_lowmem_reserve_ratio",
    "numa_zonelist_order",
    "movable_zone",
    "page_group_by_mobility_disabled",
    "defrag_mode",
    "pageblock_order",
    "vm_numa_stat_key",
    "totalreserve_pages",
];
/// BTF of a kernel is some megabytes.
const BTF_BYTES_MAX: u64 = 64 << 20;

/// The memory of the running kernel.
const RUNNING: &str = "/proc/kcore";

/// A kernel whose memory can be read.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) memory: Memory,
    pub(crate) info: Vmcoreinfo,
    pub(crate) symbols: Symbols,
    pub(crate) btf: Btf,
    /// Whether it goes on while it is read.
    pub(crate) is_running: bool,
}

impl Kernel {
    /// Opens the memory of the running kernel, `/proc/kcore`.
    ///
    /// # Errors
    ///
    /// It is refused (it needs root, and no lockdown) or absent, or the kernel lacks what its memory is read by.
    pub fn running() -> Result<Kernel, KcoreError> {
        let kernel = Kernel::open(Path::new(RUNNING))?;
        Ok(Kernel { is_running: true, ..kernel })
    }

    /// Opens an image of a kernel's memory.
    ///
    /// # Errors
    ///
    /// The file is no such image, is damaged, or of a kernel that does not tell what its memory is read by.
    pub fn open(path: &Path) -> Result<Kernel, KcoreError> {
        let image = Image::open(path)?;
        let (memory, info) = described(image)?;
        let symbols = Symbols::find(&memory, &info, &VARIABLES)?;
        let btf = btf(&memory, &symbols)?;
        let kernel = Kernel { memory, info, symbols, btf, is_running: false };
        kernel.compare_types()?;
        Ok(kernel)
    }

    /// Its release, as `uname -r` prints it.
    pub fn release(&self) -> &str {
        self.info.release()
    }

    /// Refuses BTF that is not of the kernel that is read: VMCOREINFO has some sizes and places, too.
    fn compare_types(&self) -> Result<(), KcoreError> {
        for name in ["zone", "page", "pglist_data", "free_area"] {
            let told = self.info.size(name);
            let own = self.btf.structure(name).and_then(|id| self.btf.size(id));
            if let (Some(told), Some(own)) = (told, own)
                && told != own
            {
                let what = format!(
                    "its BTF is of another kernel: struct {name} has {own} bytes there, {told} in VMCOREINFO"
                );
                return Err(self.lacks(what));
            }
        }
        Ok(())
    }

    pub(crate) fn lacks(&self, what: String) -> KcoreError {
        lacks(&self.memory, what)
    }

    /// The address of a variable that every kernel has.
    pub(crate) fn needed(&self, name: &str) -> Result<u64, KcoreError> {
        self.symbols.get(name).ok_or_else(|| self.lacks(format!("it has no symbol {name}")))
    }

    /// A structure that every kernel has.
    pub(crate) fn structure(&self, name: &str) -> Result<u32, KcoreError> {
        self.btf.structure(name).ok_or_else(|| self.lacks(format!("its BTF has no struct {name}")))
    }

    /// A member that is a number.
    pub(crate) fn number(&self, structure: u32, name: &str) -> Result<Number, KcoreError> {
        self.btf
            .number(structure, name)
            .ok_or_else(|| self.lacks(format!("its BTF has no member {name} where it should be")))
    }

    /// The value of a number in a structure at an address.
    pub(crate) fn value(&self, what: &str, at: u64, number: Number) -> Result<i64, KcoreError> {
        let value = self.memory.number(what, at.wrapping_add(number.offset), number.bytes)?;
        let unused = 64 - 8 * number.bytes as u32;
        Ok(match number.is_signed {
            true => (value << unused) as i64 >> unused,
            false => value as i64,
        })
    }

    /// A member that a kernel may lack.
    pub(crate) fn optional(
        &self,
        structure: u32,
        name: &str,
        at: u64,
    ) -> Result<Option<i64>, KcoreError> {
        let number = self.btf.number(structure, name);
        number.map(|number| self.value(name, at, number)).transpose()
    }

    /// A variable that is a number of so many bytes, if the kernel has it.
    pub(crate) fn variable(&self, name: &str, bytes: usize) -> Result<Option<u64>, KcoreError> {
        let at = self.symbols.get(name);
        at.map(|at| self.memory.number(name, at, bytes)).transpose()
    }
}

fn lacks(memory: &Memory, what: String) -> KcoreError {
    KcoreError::Lacks {
        path: memory.image.path.clone(),
        what,
        expected: "a kernel since 6.0 with CONFIG_DEBUG_INFO_BTF, CONFIG_KALLSYMS and CONFIG_SPARSEMEM_VMEMMAP",
    }
}

/// The image with its VMCOREINFO: a note of the file, else one that is found in memory.
fn described(image: Image) -> Result<(Memory, Vmcoreinfo), KcoreError> {
    if let Some(text) = &image.vmcoreinfo {
        let info = Vmcoreinfo::parse(text);
        return Ok((Memory::new(image, &info), info));
    }
    let mut memory = Memory::new(image, &Vmcoreinfo::parse(""));
    let mut from = 0;
    while let Some((text, page)) = note_in_memory(&memory.image, from)? {
        let info = Vmcoreinfo::parse(&text);
        memory = Memory::new(memory.image, &info);
        if is_own(&memory, &info) {
            return Ok((memory, info));
        }
        from = page + 1;
    }
    let what = "no VMCOREINFO, neither as a note nor in the memory of the kernel";
    Err(KcoreError::Lacks {
        path: memory.image.path.clone(),
        what: what.into(),
        expected: "a whole image of a kernel with CONFIG_VMCORE_INFO; QEMU adds the note with `-device vmcoreinfo`",
    })
}

/// The next note VMCOREINFO that begins a page of memory, and where. Copies of other kernels may lie about: of one that
/// crashed, of a guest.
fn note_in_memory(image: &Image, from: u64) -> Result<Option<(String, u64)>, KcoreError> {
    /// u32 length of the name, of the text, type; the name, padded to four bytes.
    const NAME: &[u8] = b"VMCOREINFO\0\0";
    const HEAD_BYTES: usize = 24;
    let unreadable = |source| KcoreError::Unreadable { path: image.path.clone(), source };
    let mut head = [0; 64];
    for (begin, bytes) in image.physical_ranges() {
        let end = begin.saturating_add(bytes);
        let mut page = begin.max(from).div_ceil(4096).saturating_mul(4096);
        while page < end {
            let got = image.read_physical(page, &mut head).map_err(unreadable)?;
            if got < head.len() {
                // The file ends before its segment does.
                break;
            }
            if head[12..HEAD_BYTES] == *NAME && head[HEAD_BYTES..].starts_with(b"OSRELEASE=") {
                let mut text = vec![0; vmcoreinfo::BYTES_MAX];
                let at = page + HEAD_BYTES as u64;
                let got = image.read_physical(at, &mut text).map_err(unreadable)?;
                let told = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
                let text = &text[..got.min(told)];
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                return Ok(Some((String::from_utf8_lossy(&text[..end]).into_owned(), page)));
            }
            let Some(next) = page.checked_add(4096) else { break };
            page = next;
        }
    }
    Ok(None)
}

/// Whether the page tables that a VMCOREINFO names lead to a kernel of the release that it names.
fn is_own(memory: &Memory, info: &Vmcoreinfo) -> bool {
    // struct new_utsname: six texts of 65 bytes; the third is the release.
    let name = info.symbol("init_uts_ns").zip(info.offset("uts_namespace.name"));
    let Some((at, offset)) = name else { return false };
    let mut release = [0; 65];
    let read = memory.read("init_uts_ns", at.wrapping_add(offset).wrapping_add(130), &mut release);
    let end = release.iter().position(|byte| *byte == 0).unwrap_or(release.len());
    read.is_ok() && !info.release().is_empty() && release[..end] == *info.release().as_bytes()
}

fn btf(memory: &Memory, symbols: &Symbols) -> Result<Btf, KcoreError> {
    let place = |name: &str| {
        symbols.get(name).ok_or_else(|| lacks(memory, format!("it has no symbol {name}: no BTF")))
    };
    let (begin, end) = (place("__start_BTF")?, place("__stop_BTF")?);
    let bytes = end.wrapping_sub(begin);
    if bytes == 0 || bytes > BTF_BYTES_MAX {
        return Err(lacks(memory, format!("BTF of {bytes} bytes")));
    }
    let mut text = vec![0; bytes as usize];
    memory.read("BTF", begin, &mut text)?;
    Btf::parse(text).map_err(|what| lacks(memory, what))
}
