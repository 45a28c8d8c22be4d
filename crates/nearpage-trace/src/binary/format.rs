//! The format of an event, as a kernel describes it in tracefs, and the line of text that a record becomes.

use std::io::Write;

use super::UPKEEP;
use super::flags::Flags;
use super::source::{Addresses, DESCRIPTOR_BYTES, Order};
use super::symbols::Symbols;

/// Fields of an event: the widest of all kernels have some dozens.
const FIELDS_MAX: usize = 512;

/// The longest name of an event, which each record repeats.
const NAME_BYTES_MAX: usize = 128;

/// Functions of a call chain.
pub(super) const CALLS_MAX: usize = 1024;

/// An event's format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Format {
    pub id: u16,
    pub name: String,
    fields: Vec<Field>,
    flags: Flags,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Field {
    name: String,
    offset: usize,
    size: usize,
    is_signed: bool,
    /// A number that says where a text lies in the record.
    is_place: bool,
}

impl Format {
    /// Reads a description; `None` if it is none.
    ///
    /// ```text
    /// name: mm_page_free
    /// ID: 650
    /// format:
    ///         field:unsigned long pfn;  offset:8;  size:8;  signed:0;
    ///
    /// print fmt: "page=%p pfn=0x%lx order=%d", ...
    /// ```
    pub fn parse(text: &str) -> Option<Format> {
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let (name, id) = (value("name:")?, value("ID:")?.parse().ok()?);
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        let fields = text.lines().filter_map(Field::parse).take(FIELDS_MAX).collect();
        let flags = Flags::parse(value("print fmt:").unwrap_or_default(), "gfp_flags");
        Some(Format { id, name: name.to_owned(), fields, flags })
    }

    fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// A field's value, widened with its sign.
    pub fn value(&self, name: &str, record: &[u8], order: Order) -> Option<u64> {
        let field = self.field(name)?;
        let bytes = record.get(field.offset..field.offset.checked_add(field.size)?)?;
        let value = order.number(bytes)?;
        let unused = 64 - 8 * bytes.len() as u32;
        Some(match field.is_signed {
            true => ((value << unused) as i64 >> unused) as u64,
            false => value,
        })
    }

    /// A field's text.
    fn text<'r>(&self, name: &str, record: &'r [u8], order: Order) -> Option<&'r [u8]> {
        let field = self.field(name)?;
        let bytes = if field.is_place {
            let place = self.value(name, record, order)?;
            let (offset, length) = ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize);
            record.get(offset..offset + length)?
        } else if field.size == 0 {
            record.get(field.offset..)?
        } else {
            record.get(field.offset..field.offset.checked_add(field.size)?)?
        };
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        Some(&bytes[..end])
    }

    /// Writes the event's name and those of its fields that this crate reads, as the event's own tools do. False if the
    /// record is too short for its format.
    pub fn write(
        &self,
        record: &[u8],
        order: Order,
        addresses: Addresses,
        out: &mut Vec<u8>,
    ) -> bool {
        // Markers have the name that the kernel's own text gives them.
        let name = if self.name == "print" { "tracing_mark_write" } else { &self.name };
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b":");
        self.write_fields(record, order, addresses, out).is_some()
    }

    /// Writes a call chain, a line a function, if the record is one.
    pub fn write_chain(
        &self,
        record: &[u8],
        order: Order,
        long_bytes: u64,
        symbols: &Symbols,
        out: &mut Vec<u8>,
    ) {
        if self.name != "kernel_stack" {
            return;
        }
        let Some(begin) = self.field("caller").map(|field| field.offset) else { return };
        let calls = self.value("size", record, order).unwrap_or(0);
        let calls = usize::try_from(calls).unwrap_or(0).min(CALLS_MAX);
        let addresses = record.get(begin..).unwrap_or_default();
        for address in addresses.chunks_exact(long_bytes as usize).take(calls) {
            if let Some(address) = order.number(address) {
                write_call(address, symbols, out);
            }
        }
    }

    fn write_fields(
        &self,
        record: &[u8],
        order: Order,
        addresses: Addresses,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let number = |name| self.value(name, record, order);
        // The descriptor and the frame. Kernels to 3.19 have no frame.
        let block = || match number("pfn") {
            Some(u64::MAX) => Some((0, 0)),
            Some(pfn) => Some((addresses.descriptor(pfn), pfn)),
            None => number("page").map(|page| (page, frame_of(page))),
        };
        match self.name.as_str() {
            "mm_page_alloc" => {
                let ((page, pfn), order_of) = (block()?, number("order")?);
                let migratetype = number("migratetype")?;
                put(out, format_args!(" page={page:#x} pfn={pfn:#x} order={order_of}"));
                put(out, format_args!(" migratetype={migratetype} gfp_flags="));
                self.flags.write(number("gfp_flags")?, out);
            }
            // The second name is that of kernels up to 3.2, as is that of batches.
            "mm_page_free" | "mm_page_free_direct" | "mm_page_pcpu_drain" => {
                let ((page, pfn), order_of) = (block()?, number("order")?);
                put(out, format_args!(" page={page:#x} pfn={pfn:#x} order={order_of}"));
            }
            "mm_page_free_batched" | "mm_pagevec_free" => {
                let (page, pfn) = block()?;
                put(out, format_args!(" page={page:#x} pfn={pfn:#x} order=0"));
            }
            "mm_page_alloc_zone_locked" => {
                let ((page, pfn), order_of) = (block()?, number("order")?);
                // Before 6.1 the kernel computes it where it prints: pagesets had single pages.
                let refill = number("percpu_refill").unwrap_or(u64::from(order_of == 0));
                let migratetype = number("migratetype")?;
                put(out, format_args!(" page={page:#x} pfn={pfn:#x} order={order_of}"));
                put(out, format_args!(" migratetype={migratetype} percpu_refill={refill}"));
            }
            "mm_page_alloc_extfrag" => {
                let ((page, pfn), order_of) = (block()?, number("alloc_order")?);
                put(out, format_args!(" page={page:#x} pfn={pfn:#x} alloc_order={order_of}"));
            }
            "kmem_cache_alloc" | "kmem_cache_alloc_node" | "kmalloc" | "kmalloc_node" => {
                put(out, format_args!(" ptr={:#x}", number("ptr")?));
                if let Some(name) = self.text("name", record, order) {
                    out.extend_from_slice(b" name=");
                    out.extend(
                        name.iter().map(|byte| if byte.is_ascii_graphic() { *byte } else { b'?' }),
                    );
                }
                put(out, format_args!(" bytes_alloc={}", number("bytes_alloc")?));
            }
            "kmem_cache_free" | "kfree" => put(out, format_args!(" ptr={:#x}", number("ptr")?)),
            "nearpage_bulk" => {
                let node = number("nid")? as i64;
                put(out, format_args!(" gfp={} nid={node} nr={}", number("gfp")?, number("nr")?));
            }
            "nearpage_bulk_done" => {
                put(out, format_args!(" n={}", number("n")?));
                for field in self.fields.iter().filter(|field| is_page(&field.name)) {
                    put(out, format_args!(" {}={:#x}", field.name, number(&field.name)?));
                }
            }
            "print" => {
                let text = self.text("buf", record, order)?.trim_ascii_end();
                out.push(b' ');
                out.extend(text.iter().map(|byte| if *byte < b' ' { b' ' } else { *byte }));
            }
            "workqueue_execute_start" if addresses.upkeep == number("function") => {
                put(out, format_args!(" function {UPKEEP}"));
            }
            // Of other events only the name is read.
            _ => {}
        }
        Some(())
    }
}

/// The frame of a descriptor where x86-64 had them before their place was random. Elsewhere it is a number for the block, and no more.
fn frame_of(page: u64) -> u64 {
    const FIRST: u64 = 0xffff_ea00_0000_0000;
    const FRAMES: u64 = 1 << 40;
    page.checked_sub(FIRST).unwrap_or(page) / DESCRIPTOR_BYTES % FRAMES
}

/// `p0` to `p15`.
fn is_page(name: &str) -> bool {
    name.strip_prefix('p').is_some_and(|digits| digits.parse::<u8>().is_ok())
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to memory cannot fail");
}

impl Field {
    /// `field:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;`
    fn parse(line: &str) -> Option<Field> {
        let mut parts = line.trim().split(';').map(str::trim);
        let declared = parts.next()?.strip_prefix("field:")?;
        let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse::<usize>().ok();
        let (offset, size) = (number("offset:")?, number("size:")?);
        let is_signed = number("signed:").unwrap_or(0) != 0;
        // `char comm[16]`, `unsigned long pfn`.
        let name = declared.rsplit(' ').next()?.split('[').next()?.trim_start_matches('*');
        let is_place = declared.starts_with("__data_loc");
        Some(Field { name: name.to_owned(), offset, size, is_signed, is_place })
    }
}

/// The head of a line, in the manner of ftrace.
pub(super) struct LineHead<'a> {
    pub comm: &'a [u8],
    pub pid: u32,
    pub cpu: u32,
    pub time_ns: u64,
}

impl LineHead<'_> {
    pub fn write(&self, out: &mut Vec<u8>) {
        // A name that a head may not have would end the line's head early.
        let comm = self.comm.iter().take(15);
        out.extend(comm.map(|byte| if (b' '..0x7f).contains(byte) { *byte } else { b'?' }));
        let (seconds, rest) = (self.time_ns / 1_000_000_000, self.time_ns % 1_000_000_000);
        put(out, format_args!("-{} [{:03}] ..... {seconds}.{rest:09}: ", self.pid, self.cpu));
    }
}

/// Writes a call of a chain: the function's name as ftrace does, or the address as perf script does for one that it cannot name.
pub(super) fn write_call(address: u64, symbols: &Symbols, out: &mut Vec<u8>) {
    match symbols.name(address) {
        Some(name) => {
            out.extend_from_slice(b" => ");
            out.extend_from_slice(name);
            out.push(b'\n');
        }
        None => put(out, format_args!("\t{address:016x} [unknown]\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 describes and writes them: as many addresses as the size says.
    #[test]
    fn call_chains_are_lines_of_ftrace() {
        let format = Format::parse(
            "name: kernel_stack\nID: 4\nformat:\n\tfield:int size;\toffset:8;\tsize:4;\tsigned:1;\n\
             \tfield:unsigned long caller[8];\toffset:16;\tsize:64;\tsigned:0;\n",
        );
        let format = format.unwrap();
        let symbols = Symbols::read(b"1000 T get_page\n2000 t allocate_slab\n".to_vec());
        let chain = |size: u32, calls: &[u64]| {
            let mut record = vec![0; 8];
            record.extend(size.to_le_bytes());
            record.extend([0; 4]);
            record.extend(calls.iter().flat_map(|call| call.to_le_bytes()));
            let mut out = Vec::new();
            format.write_chain(&record, Order::Little, 8, &symbols, &mut out);
            String::from_utf8(out).unwrap()
        };
        let calls = [0x1010, 0x5, 0x2004, 0x2008];
        assert_eq!(
            chain(3, &calls),
            " => get_page\n\t0000000000000005 [unknown]\n => allocate_slab\n"
        );
        assert_eq!(chain(u32::MAX, &calls), chain(4, &calls), "no more than there are");
        assert_eq!(chain(4, &[]), "");
    }

    /// Kernels to 3.19 keep the descriptor in place of the frame, and those to 3.2 have other names for frees.
    #[test]
    fn old_kernels_have_descriptors_in_place_of_frames() {
        let text = |name: &str, page: u64| {
            let format = format!(
                "name: {name}\nID: 7\nformat:\n\
                 \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
                 \tfield:struct page * page;\toffset:8;\tsize:8;\tsigned:0;\n\
                 \tfield:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;\n\
                 \tfield:gfp_t gfp_flags;\toffset:20;\tsize:4;\tsigned:0;\n\
                 \tfield:int migratetype;\toffset:24;\tsize:4;\tsigned:1;\n\n\
                 print fmt: \"page=%p\", REC->page\n"
            );
            let mut record = vec![7, 0, 0, 0, 0, 0, 0, 0];
            record.extend(page.to_le_bytes());
            record.extend([3_u32, 0xcc0, 1].iter().flat_map(|number| number.to_le_bytes()));
            let mut out = Vec::new();
            let format = Format::parse(&format).unwrap();
            assert!(format.write(&record, Order::Little, Addresses::default(), &mut out));
            String::from_utf8(out).unwrap()
        };
        let page = 0xffff_ea00_0000_0000 + 0x1234 * DESCRIPTOR_BYTES;
        let block = format!(" page={page:#x} pfn=0x1234 order=");
        assert_eq!(text("mm_page_free_direct", page), format!("mm_page_free_direct:{block}3"));
        assert_eq!(text("mm_pagevec_free", page), format!("mm_pagevec_free:{block}0"));
        let allocated = text("mm_page_alloc", page);
        assert_eq!(allocated, format!("mm_page_alloc:{block}3 migratetype=1 gfp_flags=0xcc0"));
        assert!(text("mm_page_alloc", 0).contains(" pfn=0x0 "), "it failed");
    }
}
