//! A scenario of the lab as a page: one file that a browser opens from disk.

use std::error::Error;

use nearpage_lab::{Options, Scenario, run};
use nearpage_report::file::PageFile;
use nearpage_report::{Origin, lab};

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

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join("nearpage-example-page.html");
    // Before the work: a path that nothing can be written to is told at once.
    let file = PageFile::at(&path, &[], None)?;
    let report = run(&Scenario::parse("mine.toml", SCENARIO)?, &Options::default())?;
    let origin = Origin { command: "the example `page`".into(), seed: "no randomness".into() };
    let page = lab::page_of(&[report], &[], &origin);
    file.write(&page)?;
    println!("{}: {} bytes", path.display(), page.len());
    assert!(page.contains("one of them memoryless"));
    Ok(())
}
