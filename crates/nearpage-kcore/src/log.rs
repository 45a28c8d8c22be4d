//! The kernel's log, out of its ring of records.
//!
//! ```text
//! prb -> descs[id % count]: state and id, where the text begins and ends -> text ring: id, then the text
//!     `-> infos[id % count]: sequence, time, length
//! ```
//!
//! VMCOREINFO says where each of these lies, for tools that read dumps.

use crate::error::KcoreError;
use crate::kernel::Kernel;

/// Records and bytes of a ring: `log_buf_len` may make it larger than usual.
const COUNT_BITS_MAX: u64 = 22;
const SIZE_BITS_MAX: u64 = 28;
/// The state of a record stands above its id.
const STATE_SHIFT: u32 = 62;

impl Kernel {
    /// The lines of the kernel's log, as `dmesg` prints them.
    ///
    /// # Errors
    ///
    /// VMCOREINFO does not say where the log is, or it cannot be read. A record that is damaged is left out.
    pub fn log(&self) -> Result<String, KcoreError> {
        let ring = Ring::open(self)?;
        let mut text = String::new();
        let mut id = ring.tail;
        for _ in 0..ring.count {
            if let Ok(Some(record)) = ring.record(id) {
                let (seconds, rest) =
                    (record.time_ns / 1_000_000_000, record.time_ns % 1_000_000_000);
                for line in record.text.lines() {
                    text.push_str(&format!("[{seconds:5}.{:06}] {line}\n", rest / 1000));
                }
            }
            if id == ring.head {
                break;
            }
            id = (id + 1) & !(3 << STATE_SHIFT);
        }
        Ok(text)
    }
}

struct Ring<'k> {
    kernel: &'k Kernel,
    count: u64,
    tail: u64,
    head: u64,
    descriptors: u64,
    infos: u64,
    data: u64,
    bytes: u64,
    layout: Layout,
}

/// Bytes of a descriptor and of what is told of it, and where their members lie.
struct Layout {
    descriptor_bytes: u64,
    info_bytes: u64,
    state: u64,
    begin: u64,
    next: u64,
    text_length: u64,
    time: u64,
}

struct Record {
    time_ns: u64,
    text: String,
}

impl<'k> Ring<'k> {
    fn open(kernel: &'k Kernel) -> Result<Ring<'k>, KcoreError> {
        let place = kernel.info.symbol("prb").ok_or_else(|| {
            kernel.lacks("VMCOREINFO has no SYMBOL(prb): it does not say where the log is".into())
        })?;
        let prb = kernel.memory.number("prb", place, 8)?;
        let number = |names: &[&str], bytes: usize| {
            let mut at = prb;
            for name in names {
                at = at.wrapping_add(kernel.told_offset(name)?);
            }
            kernel.memory.number("the ring of the log", at, bytes)
        };
        let ring = "printk_ringbuffer.desc_ring";
        let text = "printk_ringbuffer.text_data_ring";
        let count_bits = number(&[ring, "prb_desc_ring.count_bits"], 4)?;
        let size_bits = number(&[text, "prb_data_ring.size_bits"], 4)?;
        if count_bits > COUNT_BITS_MAX || size_bits > SIZE_BITS_MAX {
            return Err(
                kernel.lacks(format!("a log of 2^{count_bits} records and 2^{size_bits} bytes"))
            );
        }
        Ok(Ring {
            kernel,
            count: 1 << count_bits,
            tail: number(&[ring, "prb_desc_ring.tail_id"], 8)?,
            head: number(&[ring, "prb_desc_ring.head_id"], 8)?,
            descriptors: number(&[ring, "prb_desc_ring.descs"], 8)?,
            infos: number(&[ring, "prb_desc_ring.infos"], 8)?,
            data: number(&[text, "prb_data_ring.data"], 8)?,
            bytes: 1 << size_bits,
            layout: Layout::of(kernel)?,
        })
    }

    /// A record; `None` if it is not there any more, or not yet, or has no text.
    fn record(&self, id: u64) -> Result<Option<Record>, KcoreError> {
        let (kernel, layout, index) = (self.kernel, &self.layout, id % self.count);
        let element = |array: u64, bytes: u64| array.wrapping_add(bytes.wrapping_mul(index));
        let descriptor = element(self.descriptors, layout.descriptor_bytes);
        let info = element(self.infos, layout.info_bytes);
        let word = |of: u64, member: u64, bytes: usize| {
            kernel.memory.number("a record of the log", of.wrapping_add(member), bytes)
        };
        let state = word(descriptor, layout.state, 8)?;
        // 1 is committed, 2 is finalized.
        let is_there = state & !(3 << STATE_SHIFT) == id & !(3 << STATE_SHIFT);
        if !is_there || !matches!(state >> STATE_SHIFT, 1 | 2) {
            return Ok(None);
        }
        let begin = word(descriptor, layout.begin, 8)?;
        let next = word(descriptor, layout.next, 8)?;
        // Odd places say that there is no text.
        if begin & 1 != 0 {
            return Ok(None);
        }
        let has_wrapped = begin / self.bytes != next.wrapping_sub(1) / self.bytes;
        let from = if has_wrapped { 0 } else { begin % self.bytes };
        let length = word(info, layout.text_length, 2)?;
        let mut text = vec![0; length.min(self.bytes - from) as usize];
        // The id of the record stands before its text.
        kernel.memory.read("the text of the log", self.data.wrapping_add(from + 8), &mut text)?;
        let time_ns = word(info, layout.time, 8)?;
        Ok(Some(Record { time_ns, text: String::from_utf8_lossy(&text).into_owned() }))
    }
}

impl Layout {
    fn of(kernel: &Kernel) -> Result<Layout, KcoreError> {
        let size = |name: &str| {
            let size = kernel.info.size(name);
            size.ok_or_else(|| kernel.lacks(format!("VMCOREINFO has no SIZE({name})")))
        };
        let offset = |name: &str| kernel.told_offset(name);
        let block = offset("prb_desc.text_blk_lpos")?;
        Ok(Layout {
            descriptor_bytes: size("prb_desc")?,
            info_bytes: size("printk_info")?,
            state: offset("prb_desc.state_var")?,
            begin: block.wrapping_add(offset("prb_data_blk_lpos.begin")?),
            next: block.wrapping_add(offset("prb_data_blk_lpos.next")?),
            text_length: offset("printk_info.text_len")?,
            time: offset("printk_info.ts_nsec")?,
        })
    }
}

impl Kernel {
    fn told_offset(&self, name: &str) -> Result<u64, KcoreError> {
        let offset = self.info.offset(name);
        offset.ok_or_else(|| self.lacks(format!("VMCOREINFO has no OFFSET({name})")))
    }
}
