//! Slab events through the slab caches.

use std::fmt::Write;

use serde_json::Value;

use super::{stdout, trace, unpack_shipped};

/// A bundle with slab events: two CPUs pass objects to each other, and one object is freed that was there before.
fn with_objects(bundle: &std::path::Path) {
    let text = trace(bundle);
    let at = text.find("nearpage: cmd begin").unwrap();
    let (before, after) = text.split_at(at + text[at..].find('\n').unwrap() + 1);
    let line = &before[before[..before.len() - 1].rfind('\n').unwrap() + 1..];
    let time = line.split_whitespace().find(|word| word.ends_with(':')).unwrap();
    let mut events = String::new();
    let fields =
        "name=message bytes_req=200 bytes_alloc=256 gfp_flags=GFP_KERNEL node=-1 accounted=false";
    for object in 0..5000 {
        let pointer = 0xffff_8880_0000_0000_u64 + object * 256;
        for (cpu, event) in [
            (0, format!("kmem_cache_alloc: call_site=a+0x1/0x2 ptr={pointer:x} {fields}")),
            (1, format!("kmem_cache_free: call_site=b+0x1/0x2 ptr={pointer:x} name=message")),
        ] {
            let _ = writeln!(events, " load-7{cpu}   [00{cpu}] ..... {time} {event}");
        }
    }
    let _ = writeln!(
        events,
        " load-70   [000] ..... {time} kfree: call_site=b+0x1/0x2 ptr=ffff888fffffff00"
    );
    std::fs::write(bundle.join("trace.txt"), format!("{before}{events}{after}")).unwrap();
}

#[test]
fn the_story_of_memoryless_nodes_is_in_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    with_objects(&bundle);
    let path = bundle.to_str().unwrap();
    let machine = ["--topology", "memoryless-8n2m", "--map-cpus", "round-robin"];
    let report = stdout(&[&["replay", path, "--json"], &machine[..]].concat());
    let report: Value = serde_json::from_str(&report).unwrap();
    let objects = &report["objects"];
    let counts = ["allocated", "freed", "unpaired_frees", "left_out"].map(|key| &objects[key]);
    assert_eq!(counts, [5000, 5001, 1, 0]);
    let columns = objects["columns"].as_array().unwrap();
    assert_eq!(columns.len(), 3);
    let count = |column: usize, key: &str| columns[column][key].as_u64().unwrap();
    // CPU 0 keeps its node, which has memory; CPU 1 plays one of a node that has none.
    assert_eq!(count(1, "allocated"), 5000);
    assert!(count(1, "alien_locks") > 0, "{objects}");
    assert!(count(2, "memoryless_node_locks") == 0 && count(2, "failed_this_node") == 0);
    let text = stdout(&[&["replay", path], &machine[..]].concat());
    assert!(
        text.contains("own node: 2010, 2026") && text.contains("could not be paired"),
        "{text}"
    );
}
