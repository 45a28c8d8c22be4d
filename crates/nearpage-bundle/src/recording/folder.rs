//! Bundles and roots: recordings that are folders, on disk or in an archive.

use std::collections::HashMap;
use std::sync::Arc;

use nearpage_machine::sysfs::{Source, TextFile};
use nearpage_machine::{FileTree, Kept, Unpacking};
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

/// Reads the folder with `meta.json` at the root of `tree`, which `unpacking` unpacked.
pub(super) fn read_bundle(
    source: &str,
    tree: &dyn FileTree,
    unpacking: &Unpacking,
) -> Result<Recording, BundleError> {
    let meta = require(tree, "meta.json")?;
    let meta: Meta = serde_json::from_str(&meta.text)
        .map_err(|error| BundleError::json(&tree.display("meta.json"), &error))?;
    let (mut captures, mut lists) = (Vec::new(), Lists::new(tree, unpacking));
    for name in CAPTURES {
        let unreadable = |error| BundleError::Unreadable { input: tree.display(name), error };
        // Reading the machine of a capture without zones is an error.
        if !tree.names(name).map_err(unreadable)?.is_empty() {
            captures.push(read_capture(source, tree, name, &mut lists)?);
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

fn read_capture(
    source: &str,
    tree: &dyn FileTree,
    name: &str,
    lists: &mut Lists<'_>,
) -> Result<Capture, BundleError> {
    let mut files = RecordedTree::new(format!("{source}: {name}"));
    for file in PROC_FILES {
        if let Some(text) = read_near(tree, name, file)? {
            files.insert(&format!("proc/{file}"), text.name, text.text);
        }
    }
    if let Some(state) = read(tree, &format!("{name}/{KERNEL_STATE}"))? {
        files.insert(KERNEL_STATE, state.name, state.text);
    }
    for (list, each) in LISTS {
        for capture in [name, BEFORE] {
            if let Some(shared) = lists.read(&format!("{capture}/{list}"), each)? {
                files.add(shared);
                break;
            }
        }
    }
    Ok(Capture::of_tree(name.into(), Box::new(files)))
}

/// The capture that has what changes slowly.
const BEFORE: &str = "before";

/// A file of a capture, or that of `before` if the capture lacks it. The zones are never taken from `before`.
fn read_near(
    tree: &dyn FileTree,
    capture: &str,
    file: &str,
) -> Result<Option<TextFile>, BundleError> {
    match read(tree, &format!("{capture}/{file}"))? {
        Some(text) => Ok(Some(text)),
        None if file == "zoneinfo" => Ok(None),
        None => read(tree, &format!("{BEFORE}/{file}")),
    }
}

/// What reads a list, and hands on each of its files.
type Each = fn(&TextFile, Insert<'_>) -> Result<(), BundleError>;

/// Lists of a capture: settings, and files of /sys.
const LISTS: [(&str, Each); 2] = [("sysctl", each_setting), ("sysfs", each_of_system)];

/// What a file of a list takes in memory beside its path and content.
const FILE_COSTS: usize = 160;

/// Files with a line for each of many files. Captures share them.
struct Lists<'a> {
    tree: &'a dyn FileTree,
    unpacking: &'a Unpacking,
    kept: Kept,
    read: HashMap<String, Option<RecordedTree>>,
}

impl<'a> Lists<'a> {
    fn new(tree: &'a dyn FileTree, unpacking: &'a Unpacking) -> Lists<'a> {
        Lists { tree, unpacking, kept: Kept::new(unpacking), read: HashMap::new() }
    }

    /// The files that a list has, by its path; `None` if it is not there.
    fn read(&mut self, path: &str, each: Each) -> Result<Option<&RecordedTree>, BundleError> {
        if !self.read.contains_key(path) {
            let list = read(self.tree, path)?.map(|list| self.files(&list, each)).transpose()?;
            self.read.insert(path.into(), list);
        }
        Ok(self.read[path].as_ref())
    }

    fn files(&mut self, list: &TextFile, each: Each) -> Result<RecordedTree, BundleError> {
        self.unpacking.add_file(list.text.len() as u64);
        let kept = &mut self.kept;
        let mut files = RecordedTree::new(list.name.clone());
        let name = Arc::from(list.name.as_str());
        let mut insert = |path: &str, line: usize, content: &str| {
            let unreadable = |error| BundleError::Unreadable { input: list.name.clone(), error };
            kept.add_member(FILE_COSTS + path.len() + content.len()).map_err(unreadable)?;
            files.insert_lines(path, (&name, line), content);
            Ok(())
        };
        each(list, &mut insert)?;
        Ok(files.shared())
    }
}

/// What takes a path, a line and a content.
type Insert<'a> = &'a mut dyn FnMut(&str, usize, &str) -> Result<(), BundleError>;

/// Lines `vm.KEY = VALUE`.
fn each_setting(settings: &TextFile, insert: Insert<'_>) -> Result<(), BundleError> {
    for (index, line) in settings.text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let Some((key, value)) = line.split_once(" =") else {
            let expected = "a setting such as vm.min_free_kbytes = 67584";
            return Err(settings.syntax(index + 1, 1, line, expected).into());
        };
        let path = format!("proc/sys/{}", key.trim().replacen('.', "/", 1));
        insert(&path, index + 1, value.trim())?;
    }
    Ok(())
}

/// Lines `PATH:LINE`, those of a file one after the other.
fn each_of_system(system: &TextFile, insert: Insert<'_>) -> Result<(), BundleError> {
    let mut file: Option<(&str, usize, String)> = None;
    for (index, line) in system.text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let Some((path, content)) = line.strip_prefix('/').and_then(|line| line.split_once(':'))
        else {
            let expected = "a path and a line such as /sys/devices/system/node/online:0-1";
            return Err(system.syntax(index + 1, 1, line, expected).into());
        };
        match &mut file {
            Some((last, _, text)) if *last == path => {
                text.push_str(content);
                text.push('\n');
            }
            _ => {
                if let Some((path, line, text)) =
                    file.replace((path, index + 1, format!("{content}\n")))
                {
                    insert(path, line, &text)?;
                }
            }
        }
    }
    match file {
        Some((path, line, text)) => insert(path, line, &text),
        None => Ok(()),
    }
}
