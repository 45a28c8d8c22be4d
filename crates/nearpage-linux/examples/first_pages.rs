//! First pages: one near this CPU, one from a node that is asked for, and what was counted.
//!
//! `cargo run -p nearpage-linux --example first_pages`; `NEARPAGE_NUMA=fake=2` makes two nodes of any machine.

use std::error::Error;

use nearpage::{CallSite, Gfp, NodeSet, Order, Placement, Policy, Request};
use nearpage_linux::MemoryBuilder;

/// Where in this program pages are asked for.
static READ_AHEAD: CallSite = CallSite::new();

fn main() -> Result<(), Box<dyn Error>> {
    let memory = MemoryBuilder::from_env()?.bytes_per_node(64 << 20).build()?;
    memory.warnings().iter().for_each(|warning| eprintln!("{warning}"));

    let mut near = memory.alloc_pages(4)?;
    near[0] = 1;
    println!("{} bytes on node {}", near.len(), near.node());

    let last = memory.topology().nodes().last().ok_or("a machine without nodes")?.id;
    let mut words = vec![0; NodeSet::words(memory.topology())];
    let nodes = NodeSet::new(memory.topology(), [last], &mut words)?;
    let there = Placement::by(Policy::Bind(nodes)).counted_at(&READ_AHEAD);
    let far = memory.alloc_with(&there, Request::new(Order(0), Gfp::HIGHUSER_MOVABLE))?;
    println!("{} bytes on node {}, {} pages counted", far.len(), far.node(), READ_AHEAD.pages());

    print!("{}", memory.numastat(last).ok_or("a node without counters")?);
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
