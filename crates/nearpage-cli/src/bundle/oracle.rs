//! The JSON of one boot: captures under several settings, and the answers of a kernel module.

use std::collections::BTreeMap;

use nearpage::units::{CpuId, NodeId, ZoneKind};
use nearpage_linux::sysfs::zoneinfo::{PagesetRecord, ZoneRecord};
use serde::Deserialize;
use serde::de::Error;
use serde_json::Value;

use super::error::BundleError;
use super::log::KernelLog;
use super::tree::RecordedTree;
use super::{Capture, Recording, RecordingKind, folder};

#[derive(Deserialize)]
struct OracleFile {
    captures: BTreeMap<String, OracleCapture>,
    #[serde(default)]
    sys: BTreeMap<String, Value>,
    #[serde(default)]
    dmesg: Dmesg,
    #[serde(default)]
    module: BTreeMap<String, Value>,
    #[serde(default)]
    spec: Spec,
    kernel: Option<String>,
}

/// The log, with what was read of it.
#[derive(Deserialize, Default)]
struct Dmesg {
    fallback: Option<BTreeMap<u32, Vec<u32>>>,
    raw: Option<String>,
}

/// What the boot was asked to do; a made-up recording may have none.
#[derive(Deserialize, Default)]
struct Spec {
    #[serde(default)]
    module: Vec<ModuleCall>,
}

#[derive(Deserialize)]
struct ModuleCall {
    name: String,
}

#[derive(Deserialize)]
struct OracleCapture {
    zoneinfo: Option<String>,
    buddyinfo: Option<String>,
    pagetypeinfo: Option<String>,
    vmstat: Option<String>,
    meminfo: Option<String>,
    parsed: Option<Parsed>,
    #[serde(default)]
    sysctl_vm: BTreeMap<String, Value>,
}

/// `/proc/zoneinfo`, as somebody read it.
#[derive(Deserialize)]
struct Parsed {
    zones: Vec<ParsedZone>,
}

#[derive(Deserialize)]
struct ParsedZone {
    node: u32,
    #[serde(deserialize_with = "zone_kind")]
    zone: ZoneKind,
    free: Option<u64>,
    boost: Option<u64>,
    min: Option<u64>,
    low: Option<u64>,
    high: Option<u64>,
    promo: Option<u64>,
    spanned: Option<u64>,
    present: Option<u64>,
    managed: Option<u64>,
    protection: Option<Vec<u64>>,
    start_pfn: Option<u64>,
    pcp: Option<Vec<ParsedPageset>>,
}

#[derive(Deserialize)]
struct ParsedPageset {
    cpu: u32,
    count: Option<u64>,
    high: Option<u64>,
    batch: Option<u64>,
    high_min: Option<u64>,
    high_max: Option<u64>,
    stat_threshold: Option<u64>,
}

fn zone_kind<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<ZoneKind, D::Error> {
    let name = String::deserialize(deserializer)?;
    let kind = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name);
    kind.ok_or_else(|| {
        let expected = "DMA, DMA32, Normal, Movable or Device";
        D::Error::custom(format!("found zone {name:?}, expected {expected}"))
    })
}

impl From<ParsedZone> for ZoneRecord {
    fn from(zone: ParsedZone) -> ZoneRecord {
        ZoneRecord {
            free: zone.free,
            boost: zone.boost,
            min: zone.min,
            low: zone.low,
            high: zone.high,
            promo: zone.promo,
            spanned: zone.spanned,
            present: zone.present,
            managed: zone.managed,
            protection: zone.protection,
            pagesets: zone.pcp.into_iter().flatten().map(PagesetRecord::from).collect(),
            start_pfn: zone.start_pfn,
            ..ZoneRecord::new(NodeId(zone.node), Some(zone.zone))
        }
    }
}

impl From<ParsedPageset> for PagesetRecord {
    fn from(pageset: ParsedPageset) -> PagesetRecord {
        let ParsedPageset { cpu, count, high, batch, high_min, high_max, stat_threshold } = pageset;
        let cpu = CpuId(cpu);
        PagesetRecord { cpu, count, high, batch, high_min, high_max, stat_threshold }
    }
}

/// Reads the JSON; `source` is the file's name.
pub(super) fn read(source: &str, content: &[u8]) -> Result<Recording, BundleError> {
    let file: OracleFile =
        serde_json::from_slice(content).map_err(|error| BundleError::json(source, &error))?;
    let system = system_tree(source, &file.sys);
    let kernel = match file.sys.get("version").and_then(Value::as_str) {
        Some(version) => folder::release_of(version),
        None => file.dmesg.raw.as_deref().map(folder::release_of).unwrap_or_default(),
    };
    let kernel = if kernel.is_empty() { file.kernel.unwrap_or_default() } else { kernel };
    let mut log = KernelLog::parse(file.dmesg.raw.as_deref().unwrap_or_default());
    if let Some(read) = file.dmesg.fallback {
        let ids = |ids: Vec<u32>| ids.into_iter().map(NodeId).collect();
        log.fallback = read.into_iter().map(|(node, order)| (NodeId(node), ids(order))).collect();
    }
    let mut captures: Vec<Capture> = file
        .captures
        .into_iter()
        .map(|(name, capture)| read_capture(source, name, capture, &system))
        .collect();
    captures.sort_by_key(|capture| stage(&capture.name));
    attach_answers(&mut captures, &file.module, &file.spec.module);
    let (source, kind) = (source.into(), RecordingKind::Oracle);
    Ok(Recording { source, kind, kernel, page_bytes: None, log, captures })
}

/// When a capture was made: the settings of `spec.sysctl` were written after boot, and the phases, in
/// an order that does not matter, came between them and the restored settings.
fn stage(name: &str) -> u8 {
    match name {
        "boot" => 0,
        "sysctl" => 1,
        "restored" => 3,
        "after_module" => 4,
        _ => 2,
    }
}

/// What does not change from capture to capture.
fn system_tree(source: &str, sys: &BTreeMap<String, Value>) -> RecordedTree {
    let mut tree = RecordedTree::new(source);
    for (key, value) in sys {
        let path = match key.as_str() {
            "version" | "cmdline" | "iomem" | "cpuinfo" => format!("proc/{key}"),
            "cpu_online" => "sys/devices/system/cpu/online".into(),
            "thp" => "sys/kernel/mm/transparent_hugepage/enabled".into(),
            "cache" => "sys/devices/system/cpu/cpu0/cache".into(),
            "memory" => "sys/devices/system/memory".into(),
            "llc" => continue,
            _ => format!("sys/devices/system/node/{key}"),
        };
        insert_values(&mut tree, source, &format!("sys.{key}"), &path, value);
    }
    add_caches(&mut tree, source, sys);
    tree
}

/// Adds a string as a file, and an object as a folder.
fn insert_values(tree: &mut RecordedTree, source: &str, key: &str, path: &str, value: &Value) {
    match value {
        Value::String(text) => tree.insert(path, format!("{source}: {key}"), text.as_bytes()),
        Value::Object(entries) => {
            for (name, value) in entries {
                let (key, path) = (format!("{key}.{name}"), format!("{path}/{name}"));
                insert_values(tree, source, &key, &path, value);
            }
        }
        _ => {}
    }
}

/// CPUs other than 0 have the last cache that CPU 0 has, shared as `llc` tells.
fn add_caches(tree: &mut RecordedTree, source: &str, sys: &BTreeMap<String, Value>) {
    let first = sys.get("cache").and_then(Value::as_object);
    let last = first.and_then(|leaves| leaves.iter().max_by_key(|(name, _)| name.as_str()));
    let sharers = sys.get("llc").and_then(Value::as_object);
    let (Some((index, leaf)), Some(sharers)) = (last, sharers) else { return };
    for (cpu, list) in sharers.iter().filter(|(cpu, _)| cpu.as_str() != "cpu0") {
        let folder = format!("sys/devices/system/cpu/{cpu}/cache/{index}");
        for name in ["type", "size"] {
            if let Some(value) = leaf.get(name) {
                let key = format!("sys.cache.{index}.{name}");
                insert_values(tree, source, &key, &format!("{folder}/{name}"), value);
            }
        }
        let key = format!("sys.llc.{cpu}");
        insert_values(tree, source, &key, &format!("{folder}/shared_cpu_list"), list);
    }
}

fn read_capture(
    source: &str,
    name: String,
    capture: OracleCapture,
    system: &RecordedTree,
) -> Capture {
    let mut tree = system.clone();
    let texts = [
        ("zoneinfo", capture.zoneinfo),
        ("buddyinfo", capture.buddyinfo),
        ("pagetypeinfo", capture.pagetypeinfo),
        ("vmstat", capture.vmstat),
        ("meminfo", capture.meminfo),
    ];
    for (file, text) in texts {
        if let Some(text) = text {
            tree.insert(&format!("proc/{file}"), format!("{source}: captures.{name}.{file}"), text);
        }
    }
    for (key, value) in capture.sysctl_vm {
        let place = format!("{source}: captures.{name}.sysctl_vm.{key}");
        let text = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        tree.insert(&format!("proc/sys/vm/{key}"), place, text);
    }
    let parsed_zones =
        capture.parsed.map(|parsed| parsed.zones.into_iter().map(ZoneRecord::from).collect());
    Capture { name, tree: Box::new(tree), parsed_zones, module_texts: Vec::new() }
}

/// Gives each text of the module to the capture whose state it was asked in: `info_NAME` to the capture
/// NAME, others to the last one before the module ran.
fn attach_answers(captures: &mut [Capture], texts: &BTreeMap<String, Value>, calls: &[ModuleCall]) {
    let order = |name: &str| calls.iter().position(|call| call.name == name);
    let mut texts: Vec<(&String, &str)> =
        texts.iter().filter_map(|(name, text)| Some((name, text.as_str()?))).collect();
    // A stable sort: by name, which the map gave, where the order of the calls is not told.
    texts.sort_by_key(|(name, _)| order(name));
    for (name, text) in texts.into_iter().filter(|(name, _)| !name.ends_with(".err")) {
        let asked_in = name.strip_prefix("info_");
        let named = captures.iter().position(|capture| Some(capture.name.as_str()) == asked_in);
        let before = captures
            .iter()
            .rposition(|capture| matches!(capture.name.as_str(), "boot" | "sysctl" | "restored"));
        if let Some(capture) = named.or(before).and_then(|at| captures.get_mut(at)) {
            capture.module_texts.push((name.clone(), text.into()));
        }
    }
}
