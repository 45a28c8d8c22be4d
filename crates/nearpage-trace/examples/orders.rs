//! Counts the allocations of a trace by order.
//!
//! `cargo run -p nearpage-trace --example orders [TRACE]`

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::Read;

use nearpage_machine::Budget;
use nearpage_trace::{Event, TraceError, read_trace, unpacked};

const FEW_LINES: &str = "\
 load-71 [001] ..... 12.000001: mm_page_alloc: page=1 pfn=0x14a04 order=0 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE
 load-71 [001] ..... 12.000002: mm_page_alloc: page=2 pfn=0x14a08 order=3 migratetype=0 gfp_flags=GFP_KERNEL|__GFP_COMP
 load-71 [001] ..... 12.000003: mm_page_free: page=1 pfn=0x14a04 order=0
";

fn main() -> Result<(), Box<dyn Error>> {
    let (name, text): (String, Box<dyn Read>) = match std::env::args().nth(1) {
        // Plain, or packed by zstd, gzip or bzip2.
        Some(path) => (path.clone(), unpacked(File::open(path)?, &Budget::DEFAULT)?),
        None => ("three lines".into(), Box::new(FEW_LINES.as_bytes())),
    };
    let mut by_order: BTreeMap<u8, u64> = BTreeMap::new();
    let counts = read_trace::<TraceError>(&name, text, |event| {
        if let Event::Alloc { pfn: Some(_), order, .. } = event.event {
            *by_order.entry(order.0).or_default() += 1;
        }
        Ok(())
    })?;
    println!("{name}: {} events, {} lost", counts.events, counts.lost_events);
    for (order, count) in by_order {
        println!("order {order}: {count}");
    }
    Ok(())
}
