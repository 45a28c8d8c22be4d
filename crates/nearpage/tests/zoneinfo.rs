//! `/proc/zoneinfo` as real kernels printed it: Debian's 6.1.192 and 6.12.95 on two nodes of 2 and 6 GiB
//! without huge pages, after every sysctl had been written once; and 6.18.44 on one node of 24 GiB.

use std::collections::BTreeMap;

use nearpage::rules::TextLayout;
use nearpage::stats::{PagesetLines, ZonePages, ZoneStats, ZoneinfoWriter};
use nearpage::testing::machine::TestMachine;
use nearpage::{
    AddressMap, Config, CpuId, Marks, Model, NodeBuf, NodeId, PageCount, Pfn, PfnRange, Settings,
    TopologyBuf, ZoneKind,
};

const LINUX_6_1: &str = include_str!("data/zoneinfo-6.1.txt");
const LINUX_6_12: &str = include_str!("data/zoneinfo-6.12.txt");
const LINUX_6_18: &str = include_str!("data/zoneinfo-6.18.txt");

/// A zone of a recording.
struct Zone {
    node: NodeId,
    kind: ZoneKind,
    has_node_items: bool,
    /// All lines of a name and a value but those of nodes and pagesets.
    values: BTreeMap<String, u64>,
    protection: [PageCount; ZoneKind::COUNT],
    pagesets: Vec<(CpuId, BTreeMap<String, u64>)>,
}

impl Zone {
    /// Reads from `Node 0, zone   Normal` to the next such line.
    fn parse(text: &str) -> Zone {
        let mut lines = text.lines();
        let heading = lines.next().expect("a zone has a heading");
        let (node, name) = heading[5..].split_once(", zone").expect(heading);
        let kind = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name.trim());
        let mut zone = Zone {
            node: NodeId(node.parse().expect(heading)),
            kind: kind.expect(heading),
            has_node_items: text.contains("per-node stats"),
            values: BTreeMap::new(),
            protection: Default::default(),
            pagesets: Vec::new(),
        };
        lines.skip_while(|line| !line.contains("pages free")).for_each(|line| zone.add(line));
        zone
    }

    fn add(&mut self, line: &str) {
        if let Some(list) = line.trim().strip_prefix("protection: (") {
            let pages = list.trim_end_matches(')').split(", ");
            for (slot, pages) in self.protection.iter_mut().zip(pages) {
                *slot = PageCount(pages.parse().expect(line));
            }
        } else if let Some((name, value)) = line.trim().rsplit_once(' ') {
            let (name, value) = (name.trim().to_owned(), value.parse().expect(line));
            match (name.as_str(), self.pagesets.last_mut()) {
                ("cpu:", _) => self.pagesets.push((CpuId(value as u32), BTreeMap::new())),
                ("node_unreclaimable:" | "start_pfn:", _) | (_, None) => {
                    self.values.insert(name, value);
                }
                (_, Some((_, pageset))) => {
                    pageset.insert(name, value);
                }
            }
        }
    }

    fn pages(&self, name: &str) -> PageCount {
        PageCount(self.values.get(name).copied().unwrap_or_default())
    }

    fn write(&self, writer: &mut ZoneinfoWriter<'_, String>) -> std::fmt::Result {
        writer.heading(self.node, self.kind)?;
        if self.has_node_items {
            writer.node_items()?;
        }
        let marks = ["min", "low", "high", "promo"].map(|name| self.pages(name));
        writer.pages(&ZonePages {
            free: self.pages("pages free"),
            boost: self.pages("boost"),
            marks: Marks { min: marks[0], low: marks[1], high: marks[2], promo: marks[3] },
            spanned: self.pages("spanned"),
            present: self.pages("present"),
            managed: self.pages("managed"),
            protection: self.protection,
        })?;
        if self.pages("present").0 == 0 {
            return Ok(());
        }
        self.write_populated(writer)
    }

    fn write_populated(&self, writer: &mut ZoneinfoWriter<'_, String>) -> std::fmt::Result {
        let mut stats = ZoneStats::default();
        stats.numa_hit = self.pages("numa_hit").0;
        stats.numa_miss = self.pages("numa_miss").0;
        stats.numa_foreign = self.pages("numa_foreign").0;
        stats.numa_interleave = self.pages("numa_interleave").0;
        stats.numa_local = self.pages("numa_local").0;
        stats.numa_other = self.pages("numa_other").0;
        writer.items(self.pages("nr_free_pages"), self.pages("nr_free_pages_blocks"), &stats)?;
        for (cpu, values) in &self.pagesets {
            let pages = |name: &str| PageCount(values.get(name).copied().unwrap_or_default());
            writer.pageset(
                *cpu,
                &PagesetLines {
                    count: pages("count:"),
                    high: pages("high:"),
                    batch: pages("batch:"),
                    high_min: pages("high_min:"),
                    high_max: pages("high_max:"),
                    stat_threshold: pages("vm stats threshold:").0 as u32,
                },
            )?;
        }
        writer.end(Pfn(self.pages("start_pfn:").0))
    }
}

fn zones(text: &str) -> Vec<Zone> {
    let starts: Vec<usize> = text.match_indices("Node ").map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    starts.iter().zip(ends).map(|(&start, end)| Zone::parse(&text[start..end])).collect()
}

/// The text with 0 as the value of each line for which `wanted` says so of its name, spaces before it
/// included.
fn zeroed(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    let zero = |line: &str| match line.rsplit_once(' ') {
        Some((name, _)) if wanted(name.trim_end()) => format!("{name} 0\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(zero).collect()
}

/// Items that an allocator of pages does not know.
fn is_unknown(name: &str) -> bool {
    let item = name.trim_start();
    let is_item = name.starts_with("      ") && !name.starts_with("       ");
    is_item && !item.starts_with("numa_") && !item.starts_with("nr_free_pages")
}

#[test]
fn recorded_texts_are_written_back_byte_for_byte() {
    let recordings = [
        (LINUX_6_1, TextLayout::Linux6_1),
        (LINUX_6_12, TextLayout::Linux6_12),
        (LINUX_6_18, TextLayout::Linux6_18),
    ];
    for (recorded, layout) in recordings {
        let mut text = String::new();
        let mut writer = ZoneinfoWriter::new(&mut text, layout);
        for zone in zones(recorded) {
            zone.write(&mut writer).unwrap();
        }
        assert_eq!(text, zeroed(recorded, is_unknown), "{layout:?}");
    }
}

/// A machine with the managed pages of a recording, in one piece a zone: its own CPUs are 0 and 1 on node
/// 0, 2 and 3 on node 1.
fn machine_of(zones: &[Zone]) -> TestMachine {
    let node = |id: u32| NodeBuf {
        id: NodeId(id),
        memory: zones
            .iter()
            .filter(|zone| zone.node.0 == id && zone.pages("managed").0 > 0)
            .map(|zone| (zone.pages("start_pfn:").0, zone.pages("managed").0))
            .map(|(start, pages)| PfnRange::new(start, start + pages))
            .collect(),
        cpus: [2 * id, 2 * id + 1].map(CpuId).to_vec(),
        movable_from: None,
    };
    TestMachine::from(TopologyBuf {
        nodes: vec![node(0), node(1)],
        distances: vec![10, 20, 20, 10],
        address_map: AddressMap::X86,
    })
}

#[test]
fn an_allocator_of_the_same_machine_prints_what_the_kernel_printed() {
    // 6.1's `high` is a setting; 6.12's is a state.
    let of_state = ["              count:", "              high:"];
    let recordings =
        [(LINUX_6_1, Model::LINUX_6_1, 11_384, 1), (LINUX_6_12, Model::LINUX_6_12, 11_389, 2)];
    for (recorded, model, min_free_kbytes, states) in recordings {
        let is_volatile = |name: &str| {
            let sizes = ["  pages free", "        spanned", "        present"];
            name.starts_with("      nr_")
                || name.starts_with("      numa_")
                || is_unknown(name)
                || sizes.contains(&name)
                || of_state[..states].contains(&name)
        };
        let settings = Settings::default().with(|changed| {
            changed.min_free_kbytes = Some(min_free_kbytes);
            changed.transparent_hugepage = false;
        });
        let config = Config::new().with_model(model).with_settings(settings);
        let text = machine_of(&zones(recorded)).config(config).run(|allocator| {
            let mut text = String::new();
            allocator.write_zoneinfo(&mut text).unwrap();
            text
        });
        let (ours, theirs) = (zeroed(&text, is_volatile), zeroed(recorded, is_volatile));
        let difference = ours.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
        assert_eq!(difference, None, "{}", model.name);
        assert_eq!(ours, theirs, "{}", model.name);
    }
}
