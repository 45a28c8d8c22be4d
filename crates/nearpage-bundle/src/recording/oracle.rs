//! The JSON of one boot: captures under several settings, and the answers of a kernel module.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::marker::PhantomData;

use nearpage::{CpuId, NodeId, ZoneKind};
use nearpage_machine::Kept;
use nearpage_machine::sysfs::zoneinfo::{PagesetRecord, ZoneRecord};
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::data::{Capture, Computed, Recording, RecordingKind};
use super::error::BundleError;
use super::folder;
use super::log::KernelLog;
use super::tree::RecordedTree;

/// Captures, settings, phases, calls and nodes of a recording: the most of each. Recordings have a dozen.
const ENTRIES_MAX: usize = 1024;

#[derive(Deserialize)]
struct OracleFile {
    #[serde(deserialize_with = "in_order")]
    captures: Vec<(String, OracleCapture)>,
    sys: Option<BTreeMap<String, Loose>>,
    dmesg: Option<Dmesg>,
    module: Option<BTreeMap<String, Loose>>,
    spec: Option<Spec>,
    kernel: Option<String>,
}

/// The log, with the values that the recorder read.
#[derive(Deserialize, Default)]
struct Dmesg {
    #[serde(default, deserialize_with = "in_order")]
    fallback: Vec<(u32, Vec<u32>)>,
    raw: Option<String>,
}

/// The settings and calls of the recording; a recording made by hand may have none.
#[derive(Deserialize, Default)]
struct Spec {
    #[serde(default, deserialize_with = "few")]
    module: Vec<ModuleCall>,
    #[serde(default, deserialize_with = "in_order")]
    sysctl: Vec<(String, IgnoredAny)>,
    #[serde(default, deserialize_with = "in_order")]
    phases: Vec<(String, BTreeMap<String, IgnoredAny>)>,
}

#[derive(Deserialize)]
struct ModuleCall {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct OracleCapture {
    zoneinfo: Option<String>,
    buddyinfo: Option<String>,
    pagetypeinfo: Option<String>,
    vmstat: Option<String>,
    meminfo: Option<String>,
    error: Option<Loose>,
    parsed: Option<Parsed>,
    #[serde(default)]
    sysctl_vm: BTreeMap<String, Loose>,
}

/// `/proc/zoneinfo`, as the recorder read it.
#[derive(Deserialize)]
struct Parsed {
    zones: Vec<Zone>,
}

/// A zone as it is kept: the one that was read is larger.
#[derive(Deserialize)]
#[serde(from = "ParsedZone")]
struct Zone(ZoneRecord);

impl From<ParsedZone> for Zone {
    fn from(zone: ParsedZone) -> Zone {
        Zone(zone.into())
    }
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

fn zone_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ZoneKind, D::Error> {
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

/// The entries of an object in the order of the text, because phases follow each other. `null` has no entries.
fn in_order<'de, D: Deserializer<'de>, K: Deserialize<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<(K, T)>, D::Error> {
    struct Entries<K, T>(PhantomData<(K, T)>);
    impl<'de, K: Deserialize<'de>, T: Deserialize<'de>> Visitor<'de> for Entries<K, T> {
        type Value = Vec<(K, T)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = map.next_entry()? {
                check_count(entries.len())?;
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_any(Entries(PhantomData))
}

/// A list that is not long.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct List<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = list.next_element()? {
                check_count(entries.len())?;
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_seq(List(PhantomData))
}

fn check_count<E: Error>(count: usize) -> Result<(), E> {
    match count < ENTRIES_MAX {
        true => Ok(()),
        false => Err(E::custom(format!("more than {ENTRIES_MAX} entries"))),
    }
}

/// A value of which only texts and objects matter. A list is not kept: it would take tens of times its length.
enum Loose {
    Text(String),
    /// A number or a word, as it is written.
    Scalar(String),
    Object(Vec<(String, Loose)>),
    List,
}

impl Loose {
    fn text(&self) -> Option<&str> {
        match self {
            Loose::Text(text) => Some(text),
            _ => None,
        }
    }

    fn object(&self) -> Option<&[(String, Loose)]> {
        match self {
            Loose::Object(entries) => Some(entries),
            _ => None,
        }
    }

    fn get(&self, key: &str) -> Option<&Loose> {
        Some(&self.object()?.iter().rev().find(|(name, _)| name == key)?.1)
    }

    /// A string without its quotes, anything else as it is written.
    fn into_text(self) -> String {
        match self {
            Loose::Text(text) | Loose::Scalar(text) => text,
            Loose::Object(_) => "{...}".into(),
            Loose::List => "[...]".into(),
        }
    }
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Loose, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Loose;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Loose, E> {
                Ok(Loose::Text(text.into()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Loose, E> {
                Ok(Loose::Scalar(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Loose, E> {
                Ok(Loose::Scalar(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Loose, E> {
                Ok(Loose::Scalar(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Loose, E> {
                Ok(Loose::Scalar(format!("{value:?}")))
            }

            fn visit_unit<E>(self) -> Result<Loose, E> {
                Ok(Loose::Scalar("null".into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Loose, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Loose::List)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Loose::Object(entries))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// What a key and its value take in memory beside their texts.
const KEY_COSTS: u64 = 100;

/// Keys of all objects: colons outside of texts.
fn keys(content: &[u8]) -> u64 {
    let (mut keys, mut is_text, mut is_escaped) = (0, false, false);
    for byte in content {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b':' if !is_text => keys += 1,
            _ => {}
        }
    }
    keys
}

/// Reads the JSON; `source` is the file's name.
pub(super) fn read(source: &str, content: &[u8], mut kept: Kept) -> Result<Recording, BundleError> {
    let unreadable = |error| BundleError::Unreadable { input: source.into(), error };
    kept.add(keys(content).saturating_mul(KEY_COSTS)).map_err(unreadable)?;
    let file: OracleFile = serde_json::from_slice(content).map_err(|error| {
        let is_json = serde_json::from_slice::<IgnoredAny>(content).is_ok();
        match is_json && error.to_string().starts_with("missing field `captures`") {
            true => BundleError::Incomplete {
                input: source.into(),
                what: "no captures".into(),
                expected: "captures.NAME",
            },
            false => BundleError::json(source, &error),
        }
    })?;
    let (sys, dmesg) = (file.sys.unwrap_or_default(), file.dmesg.unwrap_or_default());
    let (module, spec) = (file.module.unwrap_or_default(), file.spec.unwrap_or_default());
    if file.captures.is_empty() {
        let (input, what) = (source.into(), "no captures".into());
        return Err(BundleError::Incomplete { input, what, expected: "captures.NAME" });
    }
    let system = system_tree(source, &sys, &mut kept).map_err(unreadable)?;
    // By name, and of several of a name the last.
    let captures: BTreeMap<String, OracleCapture> = file.captures.into_iter().collect();
    let captures = captures
        .into_iter()
        .map(|(name, capture)| read_capture(source, name, capture, &system, &mut kept));
    let mut captures: Vec<Capture> = captures.collect::<io::Result<_>>().map_err(unreadable)?;
    let phases: Vec<&str> = spec.phases.iter().map(|(name, _)| name.as_str()).collect();
    captures.sort_by_cached_key(|capture| stage(&capture.name, &phases));
    tell_computed(&mut captures, &spec);
    attach_answers(&mut captures, &module, &spec.module);
    let kernel = release(&sys, &dmesg).or(file.kernel).unwrap_or_default();
    let log = log(dmesg);
    let (source, kind) = (source.into(), RecordingKind::Oracle);
    Ok(Recording { source, kind, kernel, page_bytes: None, lost_events: 0, log, captures })
}

/// The kernel's release, from its version or from the log's first line.
fn release(sys: &BTreeMap<String, Loose>, dmesg: &Dmesg) -> Option<String> {
    let texts = [sys.get("version").and_then(Loose::text), dmesg.raw.as_deref()];
    let releases = texts.into_iter().flatten().map(folder::release_of);
    releases.into_iter().find(|release| !release.is_empty())
}

/// The log: the orders that the recorder read, and those of the text where they differ.
fn log(dmesg: Dmesg) -> KernelLog {
    let mut log = KernelLog::parse(dmesg.raw.as_deref().unwrap_or_default());
    if !dmesg.fallback.is_empty() {
        let ids = |ids: Vec<u32>| ids.into_iter().map(NodeId).collect();
        // By node, and of several of a node the last.
        let read: BTreeMap<u32, Vec<u32>> = dmesg.fallback.into_iter().collect();
        let read = read.into_iter().map(|(node, order)| (NodeId(node), ids(order)));
        let of_text = std::mem::replace(&mut log.fallback, read.collect());
        for order in of_text {
            if !log.fallback.contains(&order) {
                log.fallback.push(order);
            }
        }
    }
    log
}

/// When a capture was made. The settings of `spec.sysctl` are written after boot, then the phases follow in the order of
/// `spec`, then the restored settings. Phases that `spec` lacks count as the last ones.
fn stage(name: &str, phases: &[&str]) -> (u8, usize) {
    let phase = name.strip_prefix("phase_");
    let place = phases.iter().position(|known| Some(*known) == phase);
    match name {
        "boot" => (0, 0),
        "sysctl" => (1, 0),
        "restored" => (3, 0),
        "after_module" => (4, 0),
        _ => (2, place.unwrap_or(phases.len())),
    }
}

const MIN_FREE_KBYTES: &str = "vm.min_free_kbytes";

/// Notes at each capture what the kernel had recomputed by then, and whether `min_free_kbytes` had been written. The
/// settings of a phase are restored after it, which are writes too.
fn tell_computed(captures: &mut [Capture], spec: &Spec) {
    let mut computed = Computed::default();
    let written_for_good = spec.sysctl.iter().any(|(key, _)| key == MIN_FREE_KBYTES);
    for capture in captures {
        let phase = capture.name.strip_prefix("phase_");
        let settings = spec.phases.iter().find(|(name, _)| Some(name.as_str()) == phase);
        match (capture.name.as_str(), settings) {
            ("sysctl", _) => computed.write(spec.sysctl.iter().map(|(key, _)| key)),
            ("restored", _) if spec.phases.is_empty() => computed = Computed::ALL,
            (_, Some((_, settings))) => computed.write(settings.keys()),
            // A phase that `spec` lacks may have written anything.
            (_, None) if phase.is_some() => computed = Computed::ALL,
            _ => {}
        }
        capture.min_free_written = match (capture.name.as_str(), settings) {
            ("boot", _) => Some(false),
            ("sysctl", _) => Some(written_for_good),
            // The settings of a phase are taken back after it.
            ("restored", _) if !spec.phases.is_empty() => Some(written_for_good),
            (_, Some((_, settings))) => {
                Some(written_for_good || settings.contains_key(MIN_FREE_KBYTES))
            }
            _ => None,
        };
        capture.computed = Some(match capture.name.as_str() {
            // The settings of `spec.sysctl` may or may not have caused a recomputation: these fields are compared apart.
            "boot" | "sysctl" => Computed::default(),
            _ => computed,
        });
        // The recorder reads the settings at the end of each capture.
        computed.protection = true;
    }
}

impl Computed {
    const ALL: Computed = Computed { marks: true, protection: true };

    fn write<'a>(&mut self, keys: impl Iterator<Item = &'a String>) {
        for key in keys {
            self.marks |= [MIN_FREE_KBYTES, "vm.watermark_scale_factor"].contains(&&**key);
            self.protection |= key == "vm.lowmem_reserve_ratio";
        }
    }
}

/// The files that all captures share.
fn system_tree(
    source: &str,
    sys: &BTreeMap<String, Loose>,
    kept: &mut Kept,
) -> io::Result<RecordedTree> {
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
        insert_values(&mut tree, source, &format!("sys.{key}"), &path, value, kept)?;
    }
    add_caches(&mut tree, source, sys, kept)?;
    Ok(tree.shared())
}

/// Adds a string as a file, and an object as a folder.
fn insert_values(
    tree: &mut RecordedTree,
    source: &str,
    key: &str,
    path: &str,
    value: &Loose,
    kept: &mut Kept,
) -> io::Result<()> {
    match value {
        Loose::Text(text) => {
            kept.add_member(source.len() + key.len() + path.len() + text.len())?;
            // The recorder removes the last newline. Without it an empty list would look like a hidden one.
            tree.insert(path, format!("{source}: {key}"), format!("{text}\n"));
        }
        Loose::Object(entries) => {
            for (name, value) in entries {
                let (key, path) = (format!("{key}.{name}"), format!("{path}/{name}"));
                insert_values(tree, source, &key, &path, value, kept)?;
            }
        }
        Loose::Scalar(_) | Loose::List => {}
    }
    Ok(())
}

/// CPUs other than 0 have the last cache that CPU 0 has, shared as `llc` tells.
fn add_caches(
    tree: &mut RecordedTree,
    source: &str,
    sys: &BTreeMap<String, Loose>,
    kept: &mut Kept,
) -> io::Result<()> {
    let first = sys.get("cache").and_then(Loose::object);
    let last = first.and_then(|leaves| leaves.iter().max_by_key(|(name, _)| name.as_str()));
    let sharers = sys.get("llc").and_then(Loose::object);
    let (Some((index, leaf)), Some(sharers)) = (last, sharers) else { return Ok(()) };
    let leaves = ["type", "size"].map(|name| (name, leaf.get(name)));
    for (cpu, list) in sharers.iter().filter(|(cpu, _)| cpu.as_str() != "cpu0") {
        let folder = format!("sys/devices/system/cpu/{cpu}/cache/{index}");
        for (name, value) in leaves {
            if let Some(value) = value {
                let key = format!("sys.cache.{index}.{name}");
                insert_values(tree, source, &key, &format!("{folder}/{name}"), value, kept)?;
            }
        }
        let key = format!("sys.llc.{cpu}");
        insert_values(tree, source, &key, &format!("{folder}/shared_cpu_list"), list, kept)?;
    }
    Ok(())
}

fn read_capture(
    source: &str,
    name: String,
    capture: OracleCapture,
    system: &RecordedTree,
    kept: &mut Kept,
) -> io::Result<Capture> {
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
            let place = format!("{source}: captures.{name}.{file}");
            kept.add_member(place.len() + text.len())?;
            tree.insert(&format!("proc/{file}"), place, text);
        }
    }
    for (key, value) in capture.sysctl_vm {
        let place = format!("{source}: captures.{name}.sysctl_vm.{key}");
        let text = value.into_text();
        kept.add_member(place.len() + key.len() + text.len())?;
        tree.insert(&format!("proc/sys/vm/{key}"), place, text);
    }
    let parsed_zones =
        capture.parsed.map(|parsed| parsed.zones.into_iter().map(|Zone(zone)| zone).collect());
    let failed = capture.error.map(Loose::into_text);
    Ok(Capture { parsed_zones, failed, ..Capture::of_tree(name, Box::new(tree)) })
}

/// Attaches each text of the module to the capture of the same state: `info_NAME` to the capture NAME, others to the
/// last capture before the module ran.
fn attach_answers(captures: &mut [Capture], texts: &BTreeMap<String, Loose>, calls: &[ModuleCall]) {
    // Of several of a name the first.
    let calls = calls.iter().enumerate().rev();
    let order: HashMap<&str, usize> = calls.map(|(at, call)| (&*call.name, at)).collect();
    let mut texts: Vec<(&String, &str)> =
        texts.iter().filter_map(|(name, text)| Some((name, text.text()?))).collect();
    // The sort is stable: texts of unknown calls stay in the order of their names.
    texts.sort_by_key(|(name, _)| order.get(name.as_str()));
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
