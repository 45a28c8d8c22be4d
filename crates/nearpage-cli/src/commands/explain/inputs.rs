//! What `explain` reads: logs, packed or not, and the logs of a sosreport, a folder or an archive of one.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use nearpage_machine::{
    Budget, FileTree, FolderTree, Packing, Unpacking, each_tar_file, open_beneath, shown,
};

use super::ExplainFailure;
use crate::commands::input::{self, STANDARD_INPUT};

/// What of an input is handed on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Logs,
    /// Texts that tell of the machine: a pasted log may have some itself.
    Texts,
}

/// Takes a part of an input: its name and its content.
pub(super) type Take<'t> = &'t mut dyn FnMut(&str, Box<dyn BufRead + '_>) -> ControlFlow<()>;

/// Folders with logs, of a sosreport and of a machine.
const LOG_FOLDERS: [&str; 5] =
    ["", "var/log", "sos_commands/kernel", "sos_commands/logs", "sos_commands/general"];
/// How names of logs begin, with which kernels' messages are kept.
const LOG_NAMES: [&str; 7] =
    ["dmesg", "messages", "kern.log", "syslog", "journalctl", "console", "vmcore-dmesg"];
/// Texts about the machine.
const TEXTS: [&str; 8] = [
    "proc/zoneinfo",
    "proc/buddyinfo",
    "proc/pagetypeinfo",
    "proc/meminfo",
    "proc/slabinfo",
    "sos_commands/numa/numactl_--hardware",
    "sos_commands/kernel/sysctl_-a",
    "sos_commands/processor/lscpu",
];
/// Bytes by which archives are recognised.
const HEAD_BYTES: u64 = 512;
const BUFFER_BYTES: usize = 256 << 10;

/// Whether an input can be read twice.
fn is_read_twice(path: &Path) -> bool {
    !input::is_standard(path)
        && path.metadata().is_ok_and(|found| found.is_file() || found.is_dir())
}

/// The name of an input.
pub(super) fn name(path: &Path) -> String {
    match input::is_standard(path) {
        true => STANDARD_INPUT.to_owned(),
        false => shown(path).to_string(),
    }
}

/// Checks that an input is there, before anything is printed.
pub(super) fn check(path: &Path) -> Result<(), ExplainFailure> {
    let failed = |source| ExplainFailure::Open { path: name(path), source };
    if input::is_standard(path) {
        return Ok(());
    }
    if path.is_dir() {
        return folder(path).map(|_| ()).map_err(failed);
    }
    // A FIFO is opened once.
    match path.metadata().map_err(failed)?.is_file() {
        true => File::open(path).map(|_| ()).map_err(failed),
        false => Ok(()),
    }
}

/// Hands on the parts of an input, until one is enough.
pub(super) fn each(
    path: &Path,
    wanted: Wanted,
    budget: &Budget,
    take: Take<'_>,
) -> Result<(), ExplainFailure> {
    let failed = |source| ExplainFailure::Open { path: name(path), source };
    if wanted == Wanted::Texts && !is_read_twice(path) {
        return Ok(());
    }
    if input::is_standard(path) {
        let _ = take(STANDARD_INPUT, Box::new(io::stdin().lock()));
        return Ok(());
    }
    if path.is_dir() {
        return each_of_folder(path, wanted, budget, take).map_err(failed);
    }
    let file = File::open(path).map_err(failed)?;
    each_of_stream(&name(path), file, wanted, budget, take).map_err(failed)
}

/// A log as it is or packed, or an archive with some.
fn each_of_stream(
    name: &str,
    file: File,
    wanted: Wanted,
    budget: &Budget,
    take: Take<'_>,
) -> io::Result<()> {
    let (packing, stream) = recognised(file)?;
    let (packing, stream): (_, Box<dyn Read>) = match packing {
        None | Some(Packing::Tar) => (packing, Box::new(stream)),
        Some(packing) => {
            let (packing, stream) = recognised(Unpacking::new(budget).stream(packing, stream)?)?;
            (packing, Box::new(stream))
        }
    };
    if packing != Some(Packing::Tar) {
        let _ = take(name, Box::new(BufReader::with_capacity(BUFFER_BYTES, stream)));
        return Ok(());
    }
    let mut found = false;
    each_tar_file(stream, |path, member| {
        // The archive of a sosreport has one folder with all of it.
        let is_wanted = |path: &str| is_wanted(path, wanted);
        let below = path.split_once('/').map(|(_, below)| below);
        let is_part = is_wanted(path) || below.is_some_and(is_wanted);
        if !is_part {
            return Ok(ControlFlow::Continue(()));
        }
        found = true;
        let name = format!("{name}: {}", shown(path));
        Ok(take(&name, Box::new(BufReader::with_capacity(BUFFER_BYTES, member))))
    })?;
    match found || wanted == Wanted::Texts {
        true => Ok(()),
        false => Err(no_log()),
    }
}

fn recognised<'a>(mut stream: impl Read + 'a) -> io::Result<(Option<Packing>, impl Read + 'a)> {
    let mut head = Vec::new();
    stream.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok((Packing::of(&head), io::Cursor::new(head).chain(stream)))
}

fn no_log() -> io::Error {
    let message =
        "no log in it, expected a sosreport, or files such as dmesg, messages, kern.log or console";
    io::Error::new(io::ErrorKind::NotFound, message)
}

fn is_wanted(path: &str, wanted: Wanted) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match wanted {
        Wanted::Texts => TEXTS.contains(&path),
        Wanted::Logs => {
            LOG_FOLDERS.contains(&folder) && LOG_NAMES.iter().any(|log| name.starts_with(log))
        }
    }
}

/// The logs of a folder, or of its only folder within: an archive that was unpacked.
fn folder(path: &Path) -> io::Result<(PathBuf, Vec<String>)> {
    let logs = |root: &Path| -> io::Result<Vec<String>> {
        let tree = FolderTree::new(root);
        let mut logs = Vec::new();
        for folder in LOG_FOLDERS {
            let below =
                |name: String| if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let mut names: Vec<String> = tree.names(folder)?.into_iter().map(below).collect();
            names.retain(|path| is_wanted(path, Wanted::Logs));
            names.sort();
            logs.extend(names);
        }
        Ok(logs)
    };
    let found = logs(path)?;
    if !found.is_empty() {
        return Ok((path.into(), found));
    }
    let folders = std::fs::read_dir(path)?.flatten();
    let folders = folders.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let folders: Vec<PathBuf> = folders.take(2).map(|entry| entry.path()).collect();
    if let [only] = &folders[..] {
        let found = logs(only)?;
        if !found.is_empty() {
            return Ok((only.clone(), found));
        }
    }
    Err(no_log())
}

fn each_of_folder(path: &Path, wanted: Wanted, budget: &Budget, take: Take<'_>) -> io::Result<()> {
    let (root, logs) = folder(path)?;
    let parts: Vec<String> = match wanted {
        Wanted::Logs => logs,
        Wanted::Texts => TEXTS.map(String::from).into(),
    };
    let (mut is_taken, mut refused) = (false, None);
    for part in parts {
        let file = match open_beneath(&root, &part) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            // A folder of that name, say, or a link that leads elsewhere.
            Err(error) => {
                let told = || io::Error::new(error.kind(), format!("{}: {error}", shown(&part)));
                refused = refused.or_else(|| Some(told()));
                continue;
            }
        };
        is_taken = true;
        let (packing, stream) = recognised(file)?;
        let stream: Box<dyn Read> = match packing {
            None => Box::new(stream),
            Some(packing) => Unpacking::new(budget).stream(packing, stream)?,
        };
        let name = shown(&root.join(&part)).to_string();
        if take(&name, Box::new(BufReader::with_capacity(BUFFER_BYTES, stream))).is_break() {
            break;
        }
    }
    match refused {
        Some(error) if !is_taken && wanted == Wanted::Logs => Err(error),
        _ => Ok(()),
    }
}
