//! The kernel's texts of its zones beside what `nearpage topo` predicts for the machine.
//!
//! Two predictions. Of the machine's short form alone: which nodes have which zones, and every line by its name; PCs only, since
//! the short form has the addresses of a PC. Of the sizes that the kernel found (the pages of each zone, without what its own
//! image and metadata take): every figure that is derived from sizes, to the last page. What counts allocations is left out.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::emulator::Ran;
use super::machines::GuestMachine;
use super::{KernelError, Processor};

/// Lines that count what was allocated or cached so far, by their first word.
const COUNTED: [&str; 6] =
    ["pages", "nr_free_pages", "nr_free_pages_blocks", "count:", "high:", "numa_"];

/// Compares them.
///
/// # Errors
///
/// [`KernelError::Text`] with the lines that differ.
pub fn compare(ran: &Ran, machine: &GuestMachine, processor: Processor) -> Result<(), KernelError> {
    let zoneinfo = ran.text("zoneinfo");
    let told = vec![managed(&zoneinfo, "Node").to_string()];
    differ("what zones manage", &told, &walked(ran))?;
    present(machine, &zoneinfo)?;
    let folder = tempfile::tempdir().map_err(KernelError::io("a folder for the machine"))?;
    write_machine(folder.path(), machine, &zoneinfo)?;
    let predicted = topo(&["--sysroot".into(), folder.path().display().to_string()])?;
    differ("zoneinfo", &figures(&zoneinfo), &figures(&lines(&predicted)))?;
    if processor == Processor::X86_64 {
        let predicted = topo(&machine.short_form)?;
        differ("the structure of zoneinfo", &names(&zoneinfo), &names(&lines(&predicted)))?;
    }
    differ("the distances", &owned(&ran.text("distances")), &distances(machine))?;
    let (found, zones) = (free_by_zone(&ran.text("buddyinfo")), populated(&zoneinfo));
    differ("buddyinfo", &said(&found), &said(&allowed(&found, &zones)))
}

/// What buddyinfo may say of each zone: what is free in the zone, and those pages of CPUs that lie in maps still, for which they
/// have quotas.
fn allowed(found: &[(String, u64)], zones: &[FreeInZone]) -> Vec<(String, u64)> {
    let of_zone = |FreeInZone { heading, free, cached }: &FreeInZone| {
        let said = found.iter().find(|(of, _)| of == heading).map(|&(_, pages)| pages);
        let pages = said.filter(|pages| (*free..=free + cached).contains(pages)).unwrap_or(*free);
        (heading.clone(), pages)
    };
    zones.iter().map(of_zone).collect()
}

fn said(zones: &[(String, u64)]) -> Vec<String> {
    zones.iter().map(|(heading, pages)| format!("{heading}: {pages} free")).collect()
}

/// Of zoneinfo: pages of a zone that are free, and those that CPUs have of it.
struct FreeInZone {
    heading: String,
    free: u64,
    cached: u64,
}

/// Pages that the walker found after the stress: each is counted where it is.
fn walked(ran: &Ran) -> Vec<String> {
    let line = ran.lines.iter().find_map(|line| line.strip_prefix("walker, after the stress: "));
    line.and_then(|line| line.split_once(" pages: "))
        .map(|(pages, _)| pages.to_owned())
        .into_iter()
        .collect()
}

/// A node has no more pages than the machine gave it, and no fewer than firmware leaves of them.
fn present(machine: &GuestMachine, zoneinfo: &[&str]) -> Result<(), KernelError> {
    const FIRMWARE_TAKES_MAX: u64 = 512;
    for (id, mib, _) in machine.nodes() {
        let (whole, found) = (mib << 8, pages(zoneinfo, &format!("Node {id},"), "present"));
        if !(whole.saturating_sub(FIRMWARE_TAKES_MAX)..=whole).contains(&found) {
            let found = vec![format!("node {id}: {found} pages present")];
            return differ(
                "zoneinfo",
                &found,
                &[format!("node {id}: {whole}, but for the firmware's")],
            );
        }
    }
    Ok(())
}

fn owned(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|&line| line.to_owned()).collect()
}

/// Each node's distances, as the kernel takes them: a table that says 10 of another node says nothing.
fn distances(machine: &GuestMachine) -> Vec<String> {
    let count = machine.machine.nodes.len();
    let rows = machine.machine.distances.chunks(count).enumerate();
    let is_absurd = |(at, row): (usize, &[u8])| {
        row.iter().filter(|&&far| far == 10).count() != 1 || row[at] != 10
    };
    let is_told = !rows.clone().any(is_absurd);
    let far = |from: usize, to: usize, far: u8| match is_told || from == to {
        true => far.to_string(),
        false => "20".into(),
    };
    let line = |(from, row): (usize, &[u8])| {
        let row = row.iter().enumerate().map(|(to, &distance)| far(from, to, distance));
        row.collect::<Vec<_>>().join(" ")
    };
    let ids = machine.nodes().map(|(id, ..)| id);
    ids.zip(rows).map(|(id, row)| format!("node {id}: {}", line(row))).collect()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

fn differ(what: &'static str, found: &[String], predicted: &[String]) -> Result<(), KernelError> {
    if found == predicted && !found.is_empty() {
        return Ok(());
    }
    let wrong = found.iter().zip(predicted).filter(|(found, predicted)| found != predicted);
    let shown =
        wrong.take(10).map(|(found, predicted)| format!("  {found}\n  predicted: {predicted}\n"));
    let counts = format!("  {} lines, {} predicted", found.len(), predicted.len());
    Err(KernelError::Text { what, difference: shown.chain([counts]).collect() })
}

/// Lines with figures that are derived from sizes.
fn figures(text: &[&str]) -> Vec<String> {
    let is_derived = |line: &&&str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        !COUNTED.iter().any(|counted| first == *counted || first.starts_with("numa_"))
    };
    text.iter().filter(is_derived).map(|line| line.trim_end().to_owned()).collect()
}

/// Headings as they are, other lines without their figures.
fn names(text: &[&str]) -> Vec<String> {
    let name = |line: &&str| match line.starts_with("Node") {
        true => (*line).to_owned(),
        false => line.chars().filter(|letter| !letter.is_ascii_digit()).collect::<String>(),
    };
    text.iter()
        .map(name)
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// `Node N, zone KIND: PAGES free` of each line of buddyinfo.
fn free_by_zone(text: &[&str]) -> Vec<(String, u64)> {
    let zone = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (heading, blocks) = words.split_at_checked(4)?;
        let pages: u64 =
            blocks.iter().zip(0..).map(|(n, order)| n.parse::<u64>().unwrap_or(0) << order).sum();
        Some((heading.join(" "), pages))
    };
    text.iter().filter_map(zone).collect()
}

/// The same of zoneinfo: of zones that have pages.
fn populated(text: &[&str]) -> Vec<FreeInZone> {
    let mut zones: Vec<FreeInZone> = Vec::new();
    let (mut heading, mut free) = (String::new(), 0);
    for line in text {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Node", ..] => heading = words.join(" "),
            ["pages", "free", pages] => free = pages.parse().unwrap_or(0_u64),
            ["managed", pages] if pages != "0" => {
                zones.push(FreeInZone { heading: heading.clone(), free, cached: 0 });
            }
            ["count:", pages] => {
                let of_cpu: u64 = pages.parse().unwrap_or(0);
                zones.last_mut().into_iter().for_each(|zone| zone.cached += of_cpu);
            }
            _ => {}
        }
    }
    zones
}

/// What a kernel without huge pages keeps free. `mm/page_alloc.c: calculate_min_free_kbytes`.
fn min_free_kbytes(zoneinfo: &[&str]) -> u64 {
    (managed(zoneinfo, "Node") * 4 * 16).isqrt().clamp(128, 262_144)
}

/// Pages that the zones of a node manage.
fn managed(text: &[&str], node: &str) -> u64 {
    pages(text, node, "managed")
}

/// The sum of a figure over the zones of a node.
fn pages(text: &[&str], node: &str, figure: &str) -> u64 {
    let mut is_of_node = false;
    let mut pages = 0;
    for line in text {
        let line = line.trim();
        if line.starts_with("Node") {
            is_of_node = line.starts_with(node);
        }
        if let Some(of_zone) = line.strip_prefix(figure).filter(|_| is_of_node) {
            pages += of_zone.trim().parse::<u64>().unwrap_or(0);
        }
    }
    pages
}

/// The machine as a copy of the files that Linux has of one.
fn write_machine(
    root: &Path,
    machine: &GuestMachine,
    zoneinfo: &[&str],
) -> Result<(), KernelError> {
    let count = machine.machine.nodes.len();
    let list = |count: usize| if count == 1 { "0".into() } else { format!("0-{}", count - 1) };
    let write = |path: String, text: String| {
        let path = root.join(path);
        let folder = path.parent().unwrap_or(root);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, text + "\n"))
            .map_err(KernelError::io(path.display().to_string()))
    };
    write("proc/zoneinfo".into(), zoneinfo.join("\n"))?;
    for (name, count) in [("node", count), ("cpu", machine.cpus())] {
        for set in ["online", "possible"] {
            write(format!("sys/devices/system/{name}/{set}"), list(count))?;
        }
    }
    // A kernel without huge pages: `nearpage topo` would take them to be there.
    write("proc/sys/vm/min_free_kbytes".into(), min_free_kbytes(zoneinfo).to_string())?;
    let rows = machine.machine.distances.chunks(count);
    for ((id, _, cpus), row) in machine.nodes().zip(rows) {
        let folder = format!("sys/devices/system/node/node{id}");
        let words = |words: Vec<String>, between: &str| words.join(between);
        write(format!("{folder}/distance"), words(row.iter().map(u8::to_string).collect(), " "))?;
        write(
            format!("{folder}/cpulist"),
            words(cpus.iter().map(|cpu| cpu.0.to_string()).collect(), ","),
        )?;
        let kib = managed(zoneinfo, &format!("Node {id},")) * 4;
        let memory = format!("Node {id} MemTotal: {kib} kB\nNode {id} MemFree: 0 kB");
        write(format!("{folder}/meminfo"), memory)?;
    }
    Ok(())
}

/// What `nearpage topo` prints for nearpage's own rules.
fn topo(machine: &[String]) -> Result<String, KernelError> {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--", "topo"])
        .args(machine)
        .args(["--model", "nearpage", "--format", "zoneinfo"])
        // Its program is that of the workspace's members, as users build it.
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .map_err(KernelError::io("cargo"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(KernelError::Failed(format!("nearpage topo: {said}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buddyinfo_and_zoneinfo_tell_the_same_pages() {
        let buddyinfo = ["Node 0, zone      DMA      1      0      2"];
        let zoneinfo = [
            "Node 0, zone      DMA",
            "  pages free     9",
            "        managed  12",
            "Node 0, zone    DMA32",
            "  pages free     0",
            "        managed  0",
        ];
        let found = free_by_zone(&buddyinfo);
        assert_eq!(said(&found), ["Node 0, zone DMA: 9 free"]);
        let of = |free: u64| vec![("Node 0, zone DMA".to_owned(), free)];
        assert_eq!(allowed(&found, &populated(&zoneinfo)), of(9));
        let zones = [FreeInZone { cached: 5, ..populated(&zoneinfo).remove(0) }];
        assert_eq!(allowed(&of(14), &zones), of(14), "quotas of CPUs are in maps");
        assert_eq!([15, 8].map(|free| allowed(&of(free), &zones)), [of(9), of(9)]);
        assert_eq!(allowed(&[], &zones), of(9));
        assert_eq!(names(&zoneinfo)[..2], ["Node 0, zone DMA", "pages free"]);
        assert_eq!(figures(&zoneinfo)[1], "        managed  12");
    }

    #[test]
    fn distances_are_those_that_the_kernel_takes() {
        let nodes = ["64M,cpus=0".to_owned(), "64M,cpus=1".to_owned()];
        let told = |far: &[&str]| {
            let far: Vec<String> = far.iter().map(ToString::to_string).collect();
            distances(&super::super::machines::of_short_form(&nodes, &far).unwrap())
        };
        assert_eq!(told(&["0,1=30", "1,0=40"]), ["node 0: 10 30", "node 1: 40 10"]);
        assert_eq!(told(&["0,1=10", "1,0=40"]), ["node 0: 10 20", "node 1: 20 10"]);
    }

    #[test]
    fn a_node_has_what_the_machine_gave_it() {
        let of = |nodes: [&str; 2]| {
            super::super::machines::of_short_form(&nodes.map(str::to_owned), &[]).unwrap()
        };
        let zoneinfo = [
            "Node 0, zone      DMA",
            "        present  16000",
            "Node 1, zone    DMA32",
            "        present  16384",
        ];
        assert!(present(&of(["64M,cpus=0", "64M"]), &zoneinfo).is_ok());
        for wrong in [["64M,cpus=0", "63M"], ["64M,cpus=0", "67M"], ["62M,cpus=0", "64M"]] {
            assert!(present(&of(wrong), &zoneinfo).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_difference_is_told() {
        let one = |text: &str| vec![text.to_owned()];
        assert!(differ("zoneinfo", &one("min 1"), &one("min 1")).is_ok());
        assert!(differ("zoneinfo", &[], &[]).is_err(), "a machine that said nothing");
        let error = differ("zoneinfo", &one("min 1"), &one("min 2")).unwrap_err();
        assert!(error.to_string().contains("predicted: min 2"));
    }
}
