//! A scenario of your own: objects between CPUs, on a machine whose second node has no memory.

use nearpage_lab::{LabError, Options, Scenario, run};

const SCENARIO: &str = r#"
schema = 1
name = "mine"
title = "two nodes, one of them memoryless"

[machine]
costs = "amd-8x6"
nodes = [{ ids = "0", cpus_each = 2, memory = "256M" }, { ids = "1", cpus_each = 2, memory = "0" }]
distance = { other = 21 }

[workload.slab-messages]
objects = [256, 512]
messages = 2000
burst = 500
published_messages = 1e6
message_ns = 3000.0
"#;

fn main() -> Result<(), LabError> {
    let scenario = Scenario::parse("mine.toml", SCENARIO)?;
    let report = run(&scenario, &Options::default())?;
    println!("{}", report.table.header.join(" | "));
    for row in &report.table.rows {
        println!("{}", row.join(" | "));
    }
    for hold in &report.holds {
        println!("{} {}: {}", if hold.ok { "holds" } else { "FAILS" }, hold.what, hold.value);
    }
    assert!(!report.has_failed());
    Ok(())
}
