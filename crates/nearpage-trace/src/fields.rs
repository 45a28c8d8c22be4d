//! The fields of an event: `page=… pfn=0x14a04 order=0 migratetype=0 gfp_flags=GFP_KERNEL`.

use memchr::{memchr, memmem};
use nearpage::{Order, Pfn};

use super::binary::UPKEEP;
use super::event::{BULK_PAGES_TOLD, Event};
use super::gfp::{Flags, GfpTexts};

/// Frames of the longest physical addresses, 52 bits.
const FRAMES_MOST: u64 = 1 << 40;
/// What tools print of the frame -1 of old kernels if they do not know how the kernel prints it.
const NO_FRAME: [&[u8]; 2] = [b"-1", b"18446744073709551615"];

/// Reads the fields of an event; `Err` says what was expected. The second value is what the text of its flags said.
pub(super) fn parse<'a, 'g>(
    name: &'a [u8],
    fields: &'a [u8],
    texts: &'g mut GfpTexts,
) -> Result<(Event<'a>, Option<&'g Flags>), &'static str> {
    let event = match name {
        b"mm_page_alloc" => return alloc(fields, texts),
        // The second name is that of kernels up to 3.2, as is that of batches.
        b"mm_page_free" | b"mm_page_free_direct" => {
            let mut block = Block::parse(fields)?;
            Event::Free { pfn: block.pfn()?, order: block.order("order=")? }
        }
        b"mm_page_free_batched" | b"mm_pagevec_free" => Event::FreeBatched,
        b"mm_page_alloc_zone_locked" => {
            let mut block = Block::parse(fields)?;
            let (pfn, order) = (block.pfn()?, block.order("order=")?);
            let migratetype = block.migratetype("migratetype=")?;
            // LTTng has no such field: pagesets had single pages when its event was made.
            let percpu_refill =
                block.number("percpu_refill=").unwrap_or((order.0 == 0).into()) != 0;
            Event::ZoneLocked { pfn, order, migratetype, percpu_refill }
        }
        b"mm_page_pcpu_drain" => {
            let mut block = Block::parse(fields)?;
            Event::PcpuDrain { pfn: block.pfn()?, order: block.order("order=")? }
        }
        b"mm_page_alloc_extfrag" => {
            let mut block = Block::parse(fields)?;
            Event::Extfrag { pfn: block.pfn()?, order: block.order("alloc_order=")? }
        }
        b"kmem_cache_alloc" | b"kmem_cache_alloc_node" | b"kmalloc" | b"kmalloc_node" => {
            object_alloc(fields)?
        }
        b"kmem_cache_free" | b"kfree" => {
            Event::ObjectFree { pointer: pointer(&mut Fields(fields))? }
        }
        b"workqueue_execute_start" if function(fields) == UPKEEP.as_bytes() => Event::Upkeep,
        b"nearpage_bulk" => bulk(fields)?,
        b"nearpage_bulk_done" => bulk_done(fields)?,
        b"tracing_mark_write" => Event::Marker(fields),
        // trace-cmd and perf print who wrote the text: `tracing_mark_write: …` or an address.
        b"print" => {
            let text = memchr(b':', fields).map_or(fields, |colon| &fields[colon + 1..]);
            Event::Marker(text.trim_ascii())
        }
        other => Event::Other(other),
    };
    Ok((event, None))
}

fn alloc<'a, 'g>(
    fields: &'a [u8],
    texts: &'g mut GfpTexts,
) -> Result<(Event<'a>, Option<&'g Flags>), &'static str> {
    let page = Fields(fields).text("page=").and_then(address).unwrap_or(0);
    let mut block = Block::parse(fields)?;
    // A failed allocation has no page: pfn=0x0, or -1 in old kernels.
    let pfn = block.frame.filter(|&pfn| pfn != 0).map(Pfn);
    let order = block.order("order=")?;
    let migratetype = block.migratetype("migratetype=")?;
    // Trace option fields, and LTTng, have them in the order in which the kernel keeps them: flags before the type.
    let text = block.text("gfp_flags=").or_else(|| Fields(fields).text("gfp_flags="));
    let text = text.ok_or("gfp_flags= with names of flags")?;
    let flags = texts.flags(text);
    Ok((Event::Alloc { pfn, page, order, migratetype, gfp: flags.gfp }, Some(flags)))
}

fn object_alloc(fields: &[u8]) -> Result<Event<'_>, &'static str> {
    let mut rest = Fields(fields);
    let pointer = pointer(&mut rest)?;
    // Kernels before 6.1 tell no name, and tell it of kmalloc never.
    let cache = Fields(rest.0).text("name=").unwrap_or_default();
    let bytes = rest.number("bytes_alloc=").ok_or("bytes_alloc= with a number")?;
    Ok(Event::ObjectAlloc { pointer, cache, bytes })
}

fn pointer(fields: &mut Fields<'_>) -> Result<u64, &'static str> {
    let text = fields.text("ptr=").ok_or("ptr= with an address")?;
    let is_null = text.starts_with(b"(n") || text.is_empty();
    if is_null { Ok(0) } else { address(text).ok_or("ptr= with an address") }
}

/// The name in `work struct 00000000c0ffee00: function vmstat_update`, or none.
fn function(fields: &[u8]) -> &[u8] {
    const KEY: &[u8] = b"function ";
    memmem::find(fields, KEY).map_or(b"", |at| fields[at + KEY.len()..].trim_ascii())
}

fn bulk(fields: &[u8]) -> Result<Event<'_>, &'static str> {
    let mut fields = Fields::after_place(fields);
    let expected = "gfp= nid= nr= with numbers";
    let gfp = fields.number("gfp=").ok_or(expected)?;
    let node = fields.text("nid=").ok_or(expected)?;
    let wanted = fields.number("nr=").ok_or(expected)?;
    // -1 is the CPU's own node.
    let node =
        number(node).and_then(|node| u32::try_from(node).ok()).filter(|&node| node < 1 << 20);
    Ok(Event::Bulk { gfp: nearpage::Gfp(gfp as u32), node, wanted })
}

fn bulk_done(fields: &[u8]) -> Result<Event<'_>, &'static str> {
    let mut fields = Fields::after_place(fields);
    let got = fields.number("n=").ok_or("n= with a number of pages")?;
    let mut pages = [0; BULK_PAGES_TOLD];
    for slot in pages.iter_mut().take(got.min(BULK_PAGES_TOLD as u64) as usize) {
        let Some(field) = fields.next() else { break };
        let value = memchr(b'=', field).map(|at| &field[at + 1..]);
        *slot = value.and_then(number).unwrap_or(0);
    }
    Ok(Event::BulkDone { got, pages })
}

/// The fields of an event about a block.
struct Block<'a> {
    frame: Option<u64>,
    rest: Fields<'a>,
}

impl<'a> Block<'a> {
    fn parse(fields: &'a [u8]) -> Result<Self, &'static str> {
        let mut rest = Fields(fields);
        let text = rest.text("pfn=").ok_or("pfn= with the number of a frame")?;
        let frame = number(text).filter(|&frame| frame < FRAMES_MOST);
        let is_none = NO_FRAME.contains(&text);
        if frame.is_none() && number(text).is_none() && !is_none {
            return Err("pfn= with the number of a frame");
        }
        Ok(Self { frame, rest })
    }

    fn pfn(&self) -> Result<Pfn, &'static str> {
        self.frame.map(Pfn).ok_or("pfn= with the number of a frame")
    }

    fn order(&mut self, key: &'static str) -> Result<Order, &'static str> {
        let order = self.rest.number(key).filter(|&order| order <= u64::from(Order::MAX.0));
        order.map(|order| Order(order as u8)).ok_or(
            "order= from 0 to 10 (kernels with larger blocks, of pages of 64 KiB, are not modelled)",
        )
    }

    fn migratetype(&mut self, key: &'static str) -> Result<u8, &'static str> {
        let value = self.rest.number(key).filter(|&value| value < 8);
        value.map(|value| value as u8).ok_or("migratetype= from 0 to 7")
    }

    fn number(&mut self, key: &'static str) -> Result<u64, &'static str> {
        self.rest.number(key).ok_or("a number of each field of the event")
    }

    fn text(&mut self, key: &'static str) -> Option<&'a [u8]> {
        self.rest.text(key)
    }
}

/// Fields that are left, separated by spaces; they are asked for in their order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields behind `(place in the code)`.
    fn after_place(fields: &'a [u8]) -> Self {
        let end = if fields.first() == Some(&b'(') { memchr(b')', fields) } else { None };
        Self(end.map_or(fields, |end| &fields[end + 1..]))
    }

    fn number(&mut self, key: &str) -> Option<u64> {
        self.text(key).and_then(number)
    }

    /// The value of the next field of that name; fields before it are left.
    fn text(&mut self, key: &str) -> Option<&'a [u8]> {
        self.find_map(|field| field.strip_prefix(key.as_bytes()))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while let [b' ' | b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
        let end = memchr(b' ', self.0).unwrap_or(self.0.len());
        let (field, rest) = self.0.split_at(end);
        self.0 = rest;
        (!field.is_empty()).then_some(field)
    }
}

/// An address: hexadecimal, with 0x or without.
fn address(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    if digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &digit| {
        Some(value << 4 | u64::from((digit as char).to_digit(16)?))
    })
}

/// A number: decimal, or hexadecimal with 0x.
fn number(text: &[u8]) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix(b"0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let most = if radix == 16 { 16 } else { 18 };
    if digits.is_empty() || digits.len() > most {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &digit| {
        let digit = (digit as char).to_digit(radix)?;
        Some(value * u64::from(radix) + u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearpage::Gfp;

    /// Trace option `fields`, as Linux 6.18 prints it.
    #[test]
    fn fields_come_in_the_order_of_the_kernel_too() {
        let fields = "pfn=0x10 (16) order=0x3 (3) gfp_flags=0x40cc0 (265408) migratetype=0x1 (1)";
        let found = event("mm_page_alloc", fields).unwrap();
        let Event::Alloc { pfn, order, migratetype, gfp, .. } = found else { panic!("{found:?}") };
        assert_eq!((pfn, order, migratetype), (Some(Pfn(16)), Order(3), 1));
        assert_eq!(gfp, Gfp::KERNEL.union(Gfp::COMP));
    }

    fn event<'a>(name: &'a str, fields: &'a str) -> Result<Event<'a>, &'static str> {
        let mut texts = GfpTexts::default();
        parse(name.as_bytes(), fields.as_bytes(), &mut texts).map(|(event, _)| event)
    }

    fn allocated(pfn: Option<u64>) -> Event<'static> {
        let (order, gfp) = (Order(3), Gfp::KERNEL.union(Gfp::COMP));
        let page = if pfn.is_some() { 0xffff_ea00_040a_9640 } else { 0 };
        Event::Alloc { pfn: pfn.map(Pfn), page, order, migratetype: 0, gfp }
    }

    #[test]
    fn frames_are_hexadecimal_or_decimal_or_none() {
        for (text, pfn) in [
            ("page=ffffea00040a9640 pfn=0x102a59", Some(0x102a59)),
            ("page=0xffffea00040a9640 pfn=1059417", Some(0x102a59)),
            ("page=(null) pfn=0x0", None),
            ("page=          (null) pfn=18446744073709551615", None),
            ("page=(nil) pfn=-1", None),
            ("page=(nil) pfn=0xffffffffffffffff", None),
        ] {
            let fields = format!("{text} order=3 migratetype=0 gfp_flags=GFP_KERNEL|__GFP_COMP");
            assert_eq!(event("mm_page_alloc", &fields), Ok(allocated(pfn)), "{text}");
        }
    }

    #[test]
    fn events_of_objects_are_read() {
        let fields = "call_site=alloc_empty_file+0x3c/0x110 ptr=ffff888307608d80 name=filp bytes_req=184 bytes_alloc=192 \
                      gfp_flags=GFP_KERNEL node=-1 accounted=true";
        let pointer = 0xffff_8883_0760_8d80;
        let object = |cache, bytes| Ok(Event::ObjectAlloc { pointer, cache, bytes });
        assert_eq!(event("kmem_cache_alloc", fields), object(b"filp", 192));
        let fields = "call_site=x+0x1/0x2 ptr=0xffff888307608d80 bytes_req=5 bytes_alloc=8 gfp_flags=GFP_KERNEL";
        assert_eq!(event("kmalloc", fields), object(b"", 8));
        let freed = |pointer| Ok(Event::ObjectFree { pointer });
        assert_eq!(event("kfree", "call_site=x ptr=ffff888307608d80"), freed(pointer));
        assert_eq!(event("kfree", "call_site=x ptr=(null)"), freed(0));
        assert!(event("kfree", "call_site=x").is_err());
        assert!(event("kmem_cache_alloc", "ptr=ffff888307608d80 name=filp").is_err());
    }

    #[test]
    fn other_events_are_read() {
        let (pfn, order) = (Pfn(0x10), Order(2));
        assert_eq!(
            event("mm_page_free", "page=00000000079e6968 pfn=0x10 order=2"),
            Ok(Event::Free { pfn, order })
        );
        assert_eq!(
            event("mm_page_pcpu_drain", "page=1 pfn=0x10 order=2 migratetype=1"),
            Ok(Event::PcpuDrain { pfn, order })
        );
        assert_eq!(
            event(
                "mm_page_alloc_zone_locked",
                "page=1 pfn=0x10 order=2 migratetype=1 percpu_refill=1"
            ),
            Ok(Event::ZoneLocked { pfn, order, migratetype: 1, percpu_refill: true })
        );
        let extfrag = "page=1 pfn=0x10 alloc_order=2 fallback_order=10 pageblock_order=9 \
            alloc_migratetype=0 fallback_migratetype=1 fragmenting=0 change_ownership=1";
        assert_eq!(event("mm_page_alloc_extfrag", extfrag), Ok(Event::Extfrag { pfn, order }));
        assert_eq!(
            event("print", "tracing_mark_write: nearpage: x"),
            Ok(Event::Marker(b"nearpage: x"))
        );
        assert_eq!(
            event("sched_process_exit", "comm=cat"),
            Ok(Event::Other(b"sched_process_exit"))
        );
        // As the kernel prints it, and as its rings are printed here.
        for fields in
            ["work struct 00000000c0ffee00: function vmstat_update", "function vmstat_update"]
        {
            assert_eq!(event("workqueue_execute_start", fields), Ok(Event::Upkeep));
        }
        for fields in ["work struct 00000000c0ffee00: function vmstat_update2", "function 0x1", ""]
        {
            let other = Ok(Event::Other(b"workqueue_execute_start"));
            assert_eq!(event("workqueue_execute_start", fields), other, "{fields}");
        }
    }

    #[test]
    fn bulk_allocations_are_read() {
        let begins = "(alloc_pages_bulk_noprof+0x4/0x650) gfp=0x100cc0 nid=-1 nr=16";
        let bulk = Event::Bulk { gfp: Gfp(0x100cc0), node: None, wanted: 16 };
        assert_eq!(event("nearpage_bulk", begins), Ok(bulk));
        let ends = "(copy_splice_read+0xe5/0x370 <- alloc_pages_bulk_noprof) n=2 p0=0xffd4000000000040 p1=0xffd4000000000080 p2=0x0";
        let mut pages = [0; BULK_PAGES_TOLD];
        pages[..2].copy_from_slice(&[0xffd4_0000_0000_0040, 0xffd4_0000_0000_0080]);
        assert_eq!(event("nearpage_bulk_done", ends), Ok(Event::BulkDone { got: 2, pages }));
        let untold = Event::BulkDone { got: 4, pages: [0; BULK_PAGES_TOLD] };
        assert_eq!(event("nearpage_bulk_done", "(a <- b) n=4"), Ok(untold));
    }

    #[test]
    fn fields_that_no_kernel_writes_are_refused() {
        for (name, fields) in [
            ("mm_page_alloc", "page=1 pfn=0x10 order=11 migratetype=0 gfp_flags=GFP_KERNEL"),
            ("mm_page_alloc", "page=1 pfn=0x10 order=1 migratetype=9 gfp_flags=GFP_KERNEL"),
            ("mm_page_alloc", "page=1 pfn=0x10 order=1 migratetype=0"),
            ("mm_page_free", "page=1 pfn=0xzz order=0"),
            ("mm_page_free", "page=1 order=0"),
            ("mm_page_free", "page=1 pfn=-1 order=0"),
            ("nearpage_bulk", "gfp=0x1"),
        ] {
            assert!(event(name, fields).is_err(), "{name}: {fields}");
        }
    }
}
