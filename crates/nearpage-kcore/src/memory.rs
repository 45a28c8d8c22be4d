//! The kernel's memory by its own addresses: segments of the file that have them, else a walk through the page tables.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::error::KcoreError;
use crate::image::{Image, KERNEL_HALF};
use crate::vmcoreinfo::Vmcoreinfo;

const PAGE_BYTES: u64 = 4096;
/// Where x86-64 maps the kernel's image; `phys_base` is the physical address of this one.
const IMAGE_BASE: u64 = 0xffff_ffff_8000_0000;
/// The bits of an entry that are an address.
const FRAME: u64 = 0x000f_ffff_ffff_f000;
const PRESENT: u64 = 1;
/// The entry is no table but a large page.
const LARGE: u64 = 1 << 7;
/// Translations that are remembered.
const KEPT_MAX: usize = 1 << 16;

/// Memory that is read.
#[derive(Debug)]
pub(crate) struct Memory {
    pub image: Image,
    tables: Option<Tables>,
    /// Physical pages by virtual ones.
    kept: RefCell<HashMap<u64, u64>>,
}

/// Where the page tables begin, and what is not an address in their entries.
#[derive(Clone, Copy, Debug)]
struct Tables {
    root: u64,
    levels: u32,
    mask: u64,
}

impl Memory {
    /// By what VMCOREINFO says of the page tables.
    pub fn new(image: Image, info: &Vmcoreinfo) -> Memory {
        let root = info.symbol("swapper_pg_dir").map(|at| {
            let base = info.number("phys_base").unwrap_or(0) as u64;
            at.wrapping_sub(IMAGE_BASE).wrapping_add(base)
        });
        let levels = if info.number("pgtable_l5_enabled").unwrap_or(0) != 0 { 5 } else { 4 };
        let encrypted = info.number("sme_mask").unwrap_or(0) as u64;
        let tables = root.map(|root| Tables { root, levels, mask: FRAME & !encrypted });
        Memory { image, tables, kept: RefCell::default() }
    }

    /// Fills a buffer. `what` names it in messages.
    pub fn read(&self, what: &str, address: u64, into: &mut [u8]) -> Result<(), KcoreError> {
        let mut done = 0;
        while done < into.len() {
            let at = address.wrapping_add(done as u64);
            let hole = |why| KcoreError::Hole {
                path: self.image.path.clone(),
                what: what.into(),
                address: at,
                why,
            };
            if at < KERNEL_HALF {
                return Err(hole("is no address of the kernel"));
            }
            let unreadable =
                |source| KcoreError::Unreadable { path: self.image.path.clone(), source };
            let got = self.image.read_virtual(at, &mut into[done..]).map_err(unreadable)?;
            if got > 0 {
                done += got;
                continue;
            }
            let Some(physical) = self.physical(at) else {
                return Err(hole("is not mapped, or its page tables are not in the file"));
            };
            let inside = PAGE_BYTES - at % PAGE_BYTES;
            let end = into.len().min(done.saturating_add(inside as usize));
            let got = self.image.read_physical(physical, &mut into[done..end]);
            match got.map_err(unreadable)? {
                0 => return Err(hole("is a hole of the file")),
                got => done += got,
            }
        }
        Ok(())
    }

    /// A number of up to 8 bytes, little endian.
    pub fn number(&self, what: &str, address: u64, bytes: usize) -> Result<u64, KcoreError> {
        let mut word = [0; 8];
        self.read(what, address, &mut word[..bytes.min(8)])?;
        Ok(u64::from_le_bytes(word))
    }

    /// The physical address of a kernel's one.
    pub fn physical(&self, address: u64) -> Option<u64> {
        let (page, inside) = (address / PAGE_BYTES, address % PAGE_BYTES);
        if let Some(frame) = self.kept.borrow().get(&page) {
            return Some(frame + inside);
        }
        let frame = self.walk(address)? & !(PAGE_BYTES - 1);
        let mut kept = self.kept.borrow_mut();
        if kept.len() == KEPT_MAX {
            kept.clear();
        }
        kept.insert(page, frame);
        Some(frame + inside)
    }

    fn walk(&self, address: u64) -> Option<u64> {
        let Tables { mut root, levels, mask } = self.tables?;
        for level in (0..levels).rev() {
            let shift = 12 + 9 * level;
            let index = address >> shift & 511;
            let mut entry = [0; 8];
            if self.image.read_physical((root & mask) + 8 * index, &mut entry).ok()? < 8 {
                return None;
            }
            let entry = u64::from_le_bytes(entry);
            if entry & PRESENT == 0 {
                return None;
            }
            if level == 0 || level < 3 && entry & LARGE != 0 {
                let inside = (1 << shift) - 1;
                return Some((entry & mask & !inside) | (address & inside));
            }
            root = entry;
        }
        None
    }
}
