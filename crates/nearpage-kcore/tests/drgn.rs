//! Dumps of real kernels, compared with what drgn reads of them, field by field.
//!
//! `NEARPAGE_DUMPS` names a folder with a folder for each dump: `vmcore`, and `pagesets.drgn`, the lines that a drgn script
//! prints: `node 0 DMA cpu 0 {'count': 0, 'high': 0, ...} lists [0, 0, ...]`. Without it the test is skipped, and says so.

use std::collections::HashMap;
use std::path::Path;

use nearpage_kcore::{Kernel, PagesetState};

/// What a line says: fields and the lengths of lists.
fn line(text: &str) -> Option<(String, HashMap<&str, i64>, Vec<usize>)> {
    let (place, rest) = text.split_once(" {")?;
    let (fields, lists) = rest.split_once("} lists [")?;
    let mut found = HashMap::new();
    for field in fields.split(", ") {
        let (name, value) = field.split_once(": ")?;
        found.insert(name.trim_matches('\''), value.parse().ok()?);
    }
    let lists = lists.trim_end_matches(']').split(", ");
    Some((place.into(), found, lists.map(|length| length.parse().ok()).collect::<Option<_>>()?))
}

fn field(pageset: &PagesetState, name: &str) -> Option<i64> {
    match name {
        "count" => Some(pageset.count),
        "high" => Some(pageset.high),
        "batch" => Some(pageset.batch),
        "high_min" => pageset.high_min,
        "high_max" => pageset.high_max,
        "alloc_factor" => pageset.alloc_factor,
        "free_count" => pageset.free_count,
        "flags" => pageset.flags,
        _ => None,
    }
}

/// Compares a dump; returns how many fields were.
fn compare(folder: &Path) -> usize {
    let own = Kernel::open(&folder.join("vmcore")).and_then(|kernel| kernel.state());
    let own = own.unwrap_or_else(|error| panic!("{error}"));
    let text = std::fs::read_to_string(folder.join("pagesets.drgn")).unwrap();
    let mut pagesets = HashMap::new();
    for node in &own.nodes {
        for zone in node.zones.iter().filter(|zone| zone.managed_pages > 0) {
            for pageset in &zone.pagesets {
                let place = format!("node {} {} cpu {}", node.id, zone.name, pageset.cpu);
                pagesets.insert(place, pageset);
            }
        }
    }
    let (mut lines, mut fields) = (0, 0);
    for text in text.lines() {
        let (place, told, lists) =
            line(text).unwrap_or_else(|| panic!("{}: {text}", folder.display()));
        let pageset = pagesets[&place];
        for (name, value) in &told {
            assert_eq!(field(pageset, name), Some(*value), "{}: {place}: {name}", folder.display());
        }
        let own: Vec<usize> = pageset.lists.iter().map(Vec::len).collect();
        assert_eq!(own, lists, "{}: {place}", folder.display());
        fields += told.len() + lists.len();
        lines += 1;
    }
    assert_eq!(lines, pagesets.len(), "{}: pagesets that one of both lacks", folder.display());
    assert_eq!(own.told, Vec::<String>::new(), "{}", folder.display());
    fields
}

#[test]
fn dumps_are_read_as_drgn_reads_them() {
    let Some(folder) = std::env::var_os("NEARPAGE_DUMPS") else {
        eprintln!(
            "SKIPPED: dumps_are_read_as_drgn_reads_them: NEARPAGE_DUMPS names no folder with dumps"
        );
        return;
    };
    let (mut dumps, mut fields) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().join("pagesets.drgn").exists() {
            fields += compare(&entry.path());
            dumps += 1;
        }
    }
    assert!(dumps > 0);
    println!("{dumps} dumps, {fields} fields: 0 different");
}

#[test]
fn a_difference_is_found() {
    let (place, told, lists) =
        line("node 1 DMA32 cpu 0 {'count': 530, 'high': 7973, 'flags': 2} lists [134, 72, 0]")
            .unwrap();
    assert_eq!(
        (place.as_str(), told["count"], lists),
        ("node 1 DMA32 cpu 0", 530, vec![134, 72, 0])
    );
    assert!(line("node 1 DMA32").is_none());
}
