//! Node orders and zonelists against those of real kernels, recorded in `data/fallback-orders.txt`.

use std::collections::BTreeMap;
use std::str::FromStr;

use nearpage::rules::zonelists::{NodeOrder, Online, fallback_zones, write_fallback_order};
use nearpage::rules::{CpuTerm, MemorylessLine};
use nearpage::{AddressMap, NodeBuf, NodeId, NodeIndex, Topology, TopologyBuf, ZoneKind};

const RECORDINGS: &str = include_str!("data/fallback-orders.txt");

/// One boot of one machine. Texts by node are as recorded.
#[derive(Default)]
struct Recording {
    name: String,
    kernel: String,
    memory: Vec<u16>,
    cpus: Vec<u16>,
    distances: Vec<u8>,
    zones: BTreeMap<u16, String>,
    logged: BTreeMap<u16, String>,
    boot: BTreeMap<u16, String>,
    rebuilt: BTreeMap<u16, String>,
}

fn numbers<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> Vec<T> {
    text.split_whitespace().map(|number| number.parse().expect(text)).collect()
}

fn parse(text: &str) -> Vec<Recording> {
    let mut recordings = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once(' ').expect(line);
        if key == "machine" {
            recordings.push(Recording::default());
        }
        recordings.last_mut().expect("a machine comes first").add(key, value);
    }
    recordings
}

impl Recording {
    fn add(&mut self, key: &str, value: &str) {
        match key {
            "machine" => {
                let (name, kernel) = value.split_once(' ').expect(value);
                (self.name, self.kernel) = (name.to_owned(), kernel.to_owned());
            }
            "memory" => self.memory = numbers(value),
            "cpus" => self.cpus = numbers(value),
            "distance" => self.distances.extend(numbers::<u8>(value)),
            _ => {
                let (node, text) = value.split_once(": ").expect(value);
                self.by_node(key).insert(node.parse().expect(value), text.to_owned());
            }
        }
    }

    fn by_node(&mut self, key: &str) -> &mut BTreeMap<u16, String> {
        match key {
            "zones" => &mut self.zones,
            "logged" => &mut self.logged,
            "boot" => &mut self.boot,
            "rebuilt" => &mut self.rebuilt,
            _ => panic!("unknown line: {key}"),
        }
    }
}

impl Online for Recording {
    fn is_populated(&self, node: NodeIndex, kind: ZoneKind) -> bool {
        self.zones
            .get(&node.0)
            .is_some_and(|kinds| kinds.split_whitespace().any(|name| name == kind.name()))
    }

    fn has_cpus(&self, node: NodeIndex) -> bool {
        self.cpus.contains(&node.0)
    }

    fn has_memory(&self, node: NodeIndex) -> bool {
        self.memory.contains(&node.0)
    }
}

impl Recording {
    fn topology(&self) -> TopologyBuf {
        let node = |&id: &u16| NodeBuf { id: NodeId(id.into()), ..NodeBuf::default() };
        TopologyBuf {
            nodes: self.logged.keys().map(node).collect(),
            distances: self.distances.clone(),
            address_map: AddressMap::X86,
        }
    }

    /// Calls `each` with the topology, every node and its order.
    fn orders(&self, cpu_term: CpuTerm, mut each: impl FnMut(&Topology, NodeIndex, &[NodeIndex])) {
        let run = |topology: &Topology<'_>| {
            let mut loads = vec![0; topology.len()];
            let mut order = vec![NodeIndex(0); topology.len()];
            let rule = NodeOrder { topology, online: self, cpu_term };
            rule.rebuild(&mut loads, &mut order, |node, order| each(topology, node, order));
        };
        self.topology().with(run).unwrap_or_else(|error| panic!("{}: {error}", self.name));
    }

    /// Compares the lines that the kernel logged; returns how many.
    fn compare_logged(&self) -> usize {
        let memoryless = match self.kernel.as_str() {
            "6.1" => MemorylessLine::WithSelf,
            _ => MemorylessLine::WithoutSelf,
        };
        let mut compared = 0;
        self.orders(CpuTerm::Ignored, |topology, node, order| {
            let mut line = String::new();
            write_fallback_order(&mut line, topology, node, order, memoryless).unwrap();
            let logged = format!("Fallback order for Node {}: {} \n", node.0, self.logged[&node.0]);
            assert_eq!(line, logged, "{} {}", self.name, self.kernel);
            compared += 1;
        });
        compared
    }

    /// Compares zonelists, if there are any; returns how many.
    fn compare_zonelists(&self, cpu_term: CpuTerm, recorded: &BTreeMap<u16, String>) -> usize {
        let mut compared = 0;
        if recorded.is_empty() {
            return compared;
        }
        self.orders(cpu_term, |_, node, order| {
            let zones: Vec<String> = fallback_zones(order, self)
                .map(|zone| format!("{}:{}", zone.node.0, zone.kind.name()))
                .collect();
            let place = format!("{} {} {cpu_term:?} node {}", self.name, self.kernel, node.0);
            assert_eq!(zones.join(" "), recorded[&node.0], "{place}");
            compared += 1;
        });
        compared
    }
}

#[test]
fn every_recorded_order_is_reproduced() {
    let recordings = parse(RECORDINGS);
    let sum = |compare: &dyn Fn(&Recording) -> usize| recordings.iter().map(compare).sum::<usize>();
    let logged = sum(&Recording::compare_logged);
    let boot = sum(&|recording| recording.compare_zonelists(CpuTerm::Ignored, &recording.boot));
    let rebuilt =
        sum(&|recording| recording.compare_zonelists(CpuTerm::Counted, &recording.rebuilt));
    println!(
        "{} boots: {logged} logged orders, {boot} zonelists at boot, {rebuilt} after a rebuild",
        recordings.len()
    );
    // Boots whose order changed: without them the CPU term would not be tested.
    let changed = recordings.iter().filter(|recording| recording.boot != recording.rebuilt).count();
    assert_eq!(changed, 4);
    assert_eq!((recordings.len(), logged, boot, rebuilt), (73, 304, 156, 156));
}
