//! The format of an event, as a kernel describes it in tracefs, and the line of text that a record becomes.

use std::io::Write;

use super::UPKEEP;
use super::flags::Flags;
use super::source::{Addresses, Order};

/// Fields of an event: the widest of all kernels have some dozens.
const FIELDS_MAX: usize = 512;

/// An event's format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Format {
    pub id: u16,
    name: String,
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
        let (name, id) = (value("name:")?.to_owned(), value("ID:")?.parse().ok()?);
        let fields = text.lines().filter_map(Field::parse).take(FIELDS_MAX).collect();
        let flags = Flags::parse(value("print fmt:").unwrap_or_default(), "gfp_flags");
        Some(Format { id, name, fields, flags })
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

    fn write_fields(
        &self,
        record: &[u8],
        order: Order,
        addresses: Addresses,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        let page_of = |pfn: u64| addresses.descriptor(pfn);
        let number = |name| self.value(name, record, order);
        match self.name.as_str() {
            "mm_page_alloc" => {
                let (pfn, order_of) = (number("pfn")?, number("order")?);
                match pfn {
                    u64::MAX => out.extend_from_slice(b" page=(nil) pfn=0x0"),
                    pfn => put(out, format_args!(" page={:#x} pfn={pfn:#x}", page_of(pfn))),
                }
                put(
                    out,
                    format_args!(
                        " order={order_of} migratetype={} gfp_flags=",
                        number("migratetype")?
                    ),
                );
                self.flags.write(number("gfp_flags")?, out);
            }
            "mm_page_free" | "mm_page_pcpu_drain" => {
                let (pfn, order_of) = (number("pfn")?, number("order")?);
                put(out, format_args!(" page={:#x} pfn={pfn:#x} order={order_of}", page_of(pfn)));
            }
            "mm_page_free_batched" => {
                let pfn = number("pfn")?;
                put(out, format_args!(" page={:#x} pfn={pfn:#x} order=0", page_of(pfn)));
            }
            "mm_page_alloc_zone_locked" => {
                let (pfn, order_of) = (number("pfn")?, number("order")?);
                // Before 6.1 the kernel computes it where it prints: pagesets had single pages.
                let refill = number("percpu_refill").unwrap_or(u64::from(order_of == 0));
                put(out, format_args!(" page={:#x} pfn={pfn:#x} order={order_of}", page_of(pfn)));
                put(
                    out,
                    format_args!(" migratetype={} percpu_refill={refill}", number("migratetype")?),
                );
            }
            "mm_page_alloc_extfrag" => {
                let pfn = number("pfn")?;
                put(
                    out,
                    format_args!(
                        " page={:#x} pfn={pfn:#x} alloc_order={}",
                        page_of(pfn),
                        number("alloc_order")?
                    ),
                );
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
