//! The file: an ELF core, its segments and its notes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use elf::ElfBytes;
use elf::abi::{ELFCLASS64, EM_X86_64, ET_CORE, PT_LOAD, PT_NOTE};
use elf::endian::AnyEndian;
use elf::note::Note;

use crate::error::KcoreError;

/// What the headers of a file may take: some hundred thousand segments.
const HEADERS_BYTES_MAX: u64 = 16 << 20;
/// What all notes may take: one of some hundred bytes a CPU, and VMCOREINFO.
const NOTES_BYTES_MAX: u64 = 16 << 20;
/// From here on addresses are the kernel's.
pub(crate) const KERNEL_HALF: u64 = 1 << 63;

/// An image of memory.
#[derive(Debug)]
pub(crate) struct Image {
    pub path: PathBuf,
    file: File,
    /// By their addresses, those that the kernel uses.
    virtual_segments: Vec<Segment>,
    /// By their addresses, those of the machine's memory.
    physical_segments: Vec<Segment>,
    /// The text of the note VMCOREINFO, if there is one.
    pub vmcoreinfo: Option<String>,
}

/// A range of addresses, and where its bytes are.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    bytes: u64,
    offset: u64,
}

impl Image {
    pub fn open(path: &Path) -> Result<Image, KcoreError> {
        let unreadable = |source| KcoreError::Unreadable { path: path.into(), source };
        let no_core = |what: String| KcoreError::NoCore { path: path.into(), what };
        let file = File::open(path).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.is_dir() {
            return Err(no_core("is a folder".into()));
        }
        let mut begin = [0; 64];
        let got = read_up_to(&file, &mut begin, 0).map_err(unreadable)?;
        let kind = kind_of(&begin[..got]);
        if let Some(other) = kind {
            return Err(no_core(other.into()));
        }
        let number = |at: usize, bytes: usize| {
            begin[at..at + bytes].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        // e_phoff, e_phentsize and e_phnum: where the program headers end.
        let end = number(32, 8).checked_add(number(54, 2) * number(56, 2));
        let Some(end) = end.filter(|&end| end <= HEADERS_BYTES_MAX) else {
            return Err(no_core("its program headers lie beyond 16 MiB".into()));
        };
        let mut head = vec![0; end.max(64) as usize];
        let got = read_up_to(&file, &mut head, 0).map_err(unreadable)?;
        // Sections, which some dumps have for their number of segments, are beyond what is looked at.
        head[40..48].fill(0);
        head[60..64].fill(0);
        let parsed = ElfBytes::<AnyEndian>::minimal_parse(&head[..got]);
        let elf = parsed.map_err(|error| no_core(format!("a damaged ELF file: {error}")))?;
        if elf.ehdr.class != elf::file::Class::ELF64 || elf.ehdr.e_type != ET_CORE {
            return Err(no_core(format!("an ELF file of type {}, no core", elf.ehdr.e_type)));
        }
        if elf.ehdr.e_machine != EM_X86_64 {
            let name = match elf.ehdr.e_machine {
                elf::abi::EM_AARCH64 => "aarch64",
                elf::abi::EM_S390 => "s390",
                elf::abi::EM_PPC64 => "ppc64",
                elf::abi::EM_RISCV => "riscv",
                _ => "another machine",
            };
            let what = format!("a core of {name} (e_machine {})", elf.ehdr.e_machine);
            return Err(no_core(what));
        }
        let segments = elf.segments().ok_or_else(|| no_core("a core without segments".into()))?;
        let (mut virtual_segments, mut physical_segments) = (Vec::new(), Vec::new());
        let (mut vmcoreinfo, mut notes_left) = (None, NOTES_BYTES_MAX);
        for header in segments.iter() {
            let (offset, bytes) = (header.p_offset, header.p_filesz);
            match header.p_type {
                PT_LOAD => {
                    let of = |address| Segment { address, bytes, offset };
                    if header.p_vaddr >= KERNEL_HALF {
                        virtual_segments.push(of(header.p_vaddr));
                    }
                    // /proc/kcore says 0 or -1 where there is no one physical address.
                    let is_told = header.p_vaddr < KERNEL_HALF || header.p_paddr != 0;
                    if is_told && header.p_paddr != u64::MAX {
                        physical_segments.push(of(header.p_paddr));
                    }
                }
                PT_NOTE => {
                    let Some(left) = notes_left.checked_sub(bytes) else {
                        return Err(no_core("its notes have more than 16 MiB".into()));
                    };
                    notes_left = left;
                    let mut notes = vec![0; bytes as usize];
                    let got = read_up_to(&file, &mut notes, offset).map_err(unreadable)?;
                    vmcoreinfo = vmcoreinfo.or(vmcoreinfo_of(&notes[..got]));
                }
                _ => {}
            }
        }
        virtual_segments.sort_by_key(|segment| segment.address);
        physical_segments.sort_by_key(|segment| segment.address);
        let path = path.into();
        Ok(Image { path, file, virtual_segments, physical_segments, vmcoreinfo })
    }

    /// Reads memory by an address that the file has as the kernel's. Returns how many bytes follow each other there; 0 if
    /// none do.
    pub fn read_virtual(&self, address: u64, into: &mut [u8]) -> io::Result<usize> {
        self.read(&self.virtual_segments, address, into)
    }

    /// Reads memory by its physical address, as [`read_virtual`](Self::read_virtual).
    pub fn read_physical(&self, address: u64, into: &mut [u8]) -> io::Result<usize> {
        self.read(&self.physical_segments, address, into)
    }

    fn read(&self, segments: &[Segment], address: u64, into: &mut [u8]) -> io::Result<usize> {
        let after = segments.partition_point(|segment| segment.address <= address);
        let Some(segment) = after.checked_sub(1).map(|at| segments[at]) else { return Ok(0) };
        let inside = address - segment.address;
        let left = segment.bytes.saturating_sub(inside).min(into.len() as u64);
        let Some(offset) = segment.offset.checked_add(inside) else { return Ok(0) };
        read_up_to(&self.file, &mut into[..left as usize], offset)
    }

    /// Physical ranges, by address.
    pub fn physical_ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.physical_segments.iter().map(|segment| (segment.address, segment.bytes))
    }
}

/// What a file is that is no ELF core of 64 bits, little endian; `None` if it is one.
fn kind_of(begin: &[u8]) -> Option<&'static str> {
    const OTHERS: [(&[u8], &str); 5] = [
        (b"KDUMP   ", "a compressed kdump file (`makedumpfile -E` or `kdump-convert` write ELF)"),
        (b"makedumpfile", "a flattened kdump file (`makedumpfile -R` makes a file of it)"),
        (b"QEVM", "a saved state of QEMU"),
        (b"LiME", "a dump of LiME"),
        (b"EMiL", "a dump of LiME"),
    ];
    if begin.is_empty() {
        return Some("is empty");
    }
    if let Some((_, what)) = OTHERS.iter().find(|(magic, _)| begin.starts_with(magic)) {
        return Some(what);
    }
    if begin.len() < 64 || !begin.starts_with(b"\x7fELF") {
        return Some("is no ELF file");
    }
    match (begin[4], begin[5]) {
        (ELFCLASS64, 1) => None,
        (ELFCLASS64, _) => Some("a big-endian ELF file"),
        _ => Some("an ELF file of 32 bits"),
    }
}

/// The text of the note VMCOREINFO.
fn vmcoreinfo_of(notes: &[u8]) -> Option<String> {
    let iterator =
        elf::note::NoteIterator::new(AnyEndian::Little, elf::file::Class::ELF64, 4, notes);
    let mut text = None;
    for note in iterator {
        if let Note::Unknown(note) = note
            && note.name.strip_suffix(b"\0").unwrap_or(note.name) == b"VMCOREINFO"
        {
            let end = note.desc.iter().position(|byte| *byte == 0).unwrap_or(note.desc.len());
            text = text.or(Some(String::from_utf8_lossy(&note.desc[..end]).into_owned()));
        }
    }
    text
}

/// Reads as far as the file goes.
fn read_up_to(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < into.len() {
        match file.read_at(&mut into[got..], offset.saturating_add(got as u64)) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if got > 0 || error.raw_os_error() == Some(14) => {
                // A page that a hypervisor holds back.
                let _ = error;
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
