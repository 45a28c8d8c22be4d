//! Bundles and roots: recordings that are folders, on disk or in an archive.

use nearpage_machine::FileTree;
use nearpage_machine::sysfs::{Source, TextFile};
use serde::Deserialize;

use super::data::{Capture, Recording, RecordingKind};
use super::error::BundleError;
use super::log::KernelLog;
use super::tree::RecordedTree;

/// The captures of a bundle, as they were made.
const CAPTURES: [&str; 3] = ["before", "cmdend", "after"];
/// Copies of files of /proc.
const PROC_FILES: [&str; 9] = [
    "zoneinfo",
    "buddyinfo",
    "pagetypeinfo",
    "vmstat",
    "slabinfo",
    "meminfo",
    "version",
    "cmdline",
    "iomem",
];

/// The kernel's own state, by its path in a capture's tree.
const KERNEL_STATE: &str = "kernel.json";

/// The keys of `meta.json` that are read.
#[derive(Deserialize)]
struct Meta {
    kernel: Option<String>,
    page_size: Option<u64>,
    lost_events: Option<u64>,
}

/// Reads the folder with `meta.json` at the root of `tree`.
pub(super) fn read_bundle(source: &str, tree: &dyn FileTree) -> Result<Recording, BundleError> {
    let meta = require(tree, "meta.json")?;
    let meta: Meta = serde_json::from_str(&meta.text)
        .map_err(|error| BundleError::json(&tree.display("meta.json"), &error))?;
    let mut captures = Vec::new();
    for name in CAPTURES {
        let unreadable = |error| BundleError::Unreadable { input: tree.display(name), error };
        // Reading the machine of a capture without zones is an error.
        if !tree.names(name).map_err(unreadable)?.is_empty() {
            captures.push(read_capture(source, tree, name)?);
        }
    }
    if !captures.iter().any(Capture::has_zones) {
        require(tree, "before/zoneinfo")?;
    }
    let version = read(tree, "before/version")?.map(|file| release_of(&file.text));
    let log = read(tree, "before/dmesg")?.map(|file| KernelLog::parse(&file.text));
    Ok(Recording {
        source: source.into(),
        kind: RecordingKind::Bundle,
        kernel: meta.kernel.or(version).unwrap_or_default(),
        page_bytes: meta.page_size,
        lost_events: meta.lost_events.unwrap_or(0),
        log: log.unwrap_or_default(),
        captures,
    })
}

/// Reads a root with `proc/` and `sys/`.
pub(super) fn read_root(
    source: &str,
    tree: Box<dyn FileTree + Send + Sync>,
) -> Result<Recording, BundleError> {
    let release = read(&*tree, "proc/sys/kernel/osrelease")?;
    let kernel = match release {
        Some(release) => release.text.trim().into(),
        None => read(&*tree, "proc/version")?.map(|v| release_of(&v.text)).unwrap_or_default(),
    };
    let name = "root".into();
    let capture = Capture::of_tree(name, tree);
    Ok(Recording {
        source: source.into(),
        kind: RecordingKind::Root,
        kernel,
        page_bytes: None,
        lost_events: 0,
        log: KernelLog::default(),
        captures: vec![capture],
    })
}

/// The release in `Linux version 6.12.95+deb12-amd64 (…`, which may stand anywhere in a log.
pub(super) fn release_of(text: &str) -> String {
    let release = text.split_once("Linux version ").map(|(_, rest)| rest);
    release.and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().into()
}

fn read(tree: &dyn FileTree, path: &str) -> Result<Option<TextFile>, BundleError> {
    Ok(Source::new(tree).read_if_allowed(path)?)
}

fn require(tree: &dyn FileTree, path: &str) -> Result<TextFile, BundleError> {
    read(tree, path)?.ok_or_else(|| BundleError::Incomplete {
        input: tree.display(path),
        what: "missing".into(),
        expected: "the file of a bundle",
    })
}

fn read_capture(source: &str, tree: &dyn FileTree, name: &str) -> Result<Capture, BundleError> {
    let mut files = RecordedTree::new(format!("{source}: {name}"));
    for file in PROC_FILES {
        if let Some(text) = read_near(tree, name, file)? {
            files.insert(&format!("proc/{file}"), text.name, text.text);
        }
    }
    if let Some(state) = read(tree, &format!("{name}/{KERNEL_STATE}"))? {
        files.insert(KERNEL_STATE, state.name, state.text);
    }
    if let Some(settings) = read_near(tree, name, "sysctl")? {
        add_settings(&mut files, &settings)?;
    }
    if let Some(system) = read_near(tree, name, "sysfs")? {
        add_system(&mut files, &system)?;
    }
    Ok(Capture::of_tree(name.into(), Box::new(files)))
}

/// A file of a capture, or that of `before` if the capture lacks it. The zones are never taken from `before`.
fn read_near(
    tree: &dyn FileTree,
    capture: &str,
    file: &str,
) -> Result<Option<TextFile>, BundleError> {
    match read(tree, &format!("{capture}/{file}"))? {
        Some(text) => Ok(Some(text)),
        None if file == "zoneinfo" => Ok(None),
        None => read(tree, &format!("before/{file}")),
    }
}

/// Adds files for lines `vm.KEY = VALUE`.
fn add_settings(files: &mut RecordedTree, settings: &TextFile) -> Result<(), BundleError> {
    for (index, line) in settings.text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let Some((key, value)) = line.split_once(" =") else {
            let expected = "a setting such as vm.min_free_kbytes = 67584";
            return Err(settings.syntax(index + 1, 1, line, expected).into());
        };
        let place = format!("{}:{}: {key}", settings.name, index + 1);
        let path = format!("proc/sys/{}", key.trim().replacen('.', "/", 1));
        files.insert(&path, place, value.trim());
    }
    Ok(())
}

/// Adds files for lines `PATH:LINE`.
fn add_system(files: &mut RecordedTree, system: &TextFile) -> Result<(), BundleError> {
    for (index, line) in system.text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let Some((path, content)) = line.strip_prefix('/').and_then(|line| line.split_once(':'))
        else {
            let expected = "a path and a line such as /sys/devices/system/node/online:0-1";
            return Err(system.syntax(index + 1, 1, line, expected).into());
        };
        let place = || format!("{}:{}: /{path}", system.name, index + 1);
        files.append_line(path, place, content);
    }
    Ok(())
}
