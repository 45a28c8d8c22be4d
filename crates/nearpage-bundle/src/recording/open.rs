//! Tells what a path holds, and unpacks it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path};

use nearpage_machine::shown::shown;
use nearpage_machine::tree::{FileTree, FolderTree, MemoryTree};

use super::error::BundleError;
use super::{Recording, folder, oracle};
use nearpage_machine::packing::Packing;
use nearpage_machine::tree::is_machine_file;

/// The longest file that is read and is no archive, and the most that one may unpack to.
const BYTES_MAX: u64 = 1 << 30;
/// The longest file that is kept of an archive: traces are longer, and are not read here.
const MEMBER_BYTES_MAX: u64 = 64 << 20;
/// The most that is kept of an archive: captures of the largest machines are a tenth of it.
const KEPT_BYTES_MAX: u64 = 256 << 20;
/// A block of a tar, which has the mark of one.
const HEAD_BYTES: u64 = 512;

pub(super) fn read(path: &Path) -> Result<Recording, BundleError> {
    let source = shown(path).to_string();
    let unreadable = |error| BundleError::Unreadable { input: source.clone(), error };
    if std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return read_tree(&source, Box::new(FolderTree::new(path)));
    }
    let file = File::open(path).map_err(unreadable)?;
    read_stream(&source, io::BufReader::new(file))
}

/// Reads what is packed or plain, without ever holding all of it: the trace in an archive may be as long as it likes.
pub(super) fn read_stream(source: &str, content: impl Read) -> Result<Recording, BundleError> {
    let unreadable = |error| BundleError::Unreadable { input: source.into(), error };
    let (packing, content) = recognised(content).map_err(unreadable)?;
    let Some(packing) = packing else {
        return read_plain(source, &read_limited(content).map_err(unreadable)?);
    };
    let packed = |error| BundleError::Packed { input: source.into(), what: packing.name(), error };
    let stream = packing.stream(content).map_err(packed)?;
    match recognised(stream).map_err(packed)? {
        (Some(Packing::Tar), archive) => {
            let tree = unpack(source, archive).map_err(packed)?;
            read_tree(source, Box::new(tree))
        }
        (_, content) => read_plain(source, &read_limited(content).map_err(packed)?),
    }
}

/// What the first bytes of a stream say that it is, and the stream with them.
fn recognised<'a>(mut content: impl Read + 'a) -> io::Result<(Option<Packing>, impl Read + 'a)> {
    let mut head = Vec::new();
    content.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok((Packing::of(&head), io::Cursor::new(head).chain(content)))
}

fn read_plain(source: &str, content: &[u8]) -> Result<Recording, BundleError> {
    match content.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => oracle::read(source, content),
        _ => Err(BundleError::NoRecording { input: format!("{source}:1:1") }),
    }
}

fn read_tree(
    source: &str,
    tree: Box<dyn FileTree + Send + Sync>,
) -> Result<Recording, BundleError> {
    let unreadable = |error| BundleError::Unreadable { input: source.into(), error };
    if tree.read("meta.json").map_err(unreadable)?.is_some() {
        return folder::read_bundle(source, &*tree);
    }
    let holds = |folder: &str| tree.names(folder).is_ok_and(|names| !names.is_empty());
    if holds("proc") || holds("sys") {
        return folder::read_root(source, tree);
    }
    Err(BundleError::NoRecording { input: source.into() })
}

fn read_limited(source: impl Read) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    source.take(BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > BYTES_MAX {
        let message = format!("longer than {BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(content)
}

/// Unpacks the files of a tar that are read of a bundle or of a root, which stands at the archive's root
/// or one folder deep.
fn unpack(source: &str, content: impl Read) -> io::Result<MemoryTree> {
    let mut archive = tar::Archive::new(content);
    let mut members = Vec::new();
    let mut left = KEPT_BYTES_MAX;
    for entry in archive.entries()? {
        let entry = entry?;
        let Some(path) = member_path(&entry.path()?) else { continue };
        if !entry.header().entry_type().is_file() || !is_wanted(&path) {
            continue;
        }
        let mut file = Vec::new();
        let kept = entry.take(MEMBER_BYTES_MAX.min(left)).read_to_end(&mut file)?;
        left -= kept as u64;
        if left == 0 {
            let message = format!("captures longer than {KEPT_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        // tar pads files of /sys, which tell a size of 4096 and have less, with zeros.
        file.truncate(file.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
        members.push((path, file));
    }
    let top = top_folder(&members);
    let mut tree = MemoryTree::new(source);
    for (path, file) in members {
        if let Some(below) = path.strip_prefix(&top) {
            tree.insert(below, file);
        }
    }
    Ok(tree)
}

fn member_path(path: &Path) -> Option<String> {
    let names: Option<Vec<&str>> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_str()),
            _ => None,
        })
        .collect();
    names.map(|names| names.join("/"))
}

/// Where the tree begins in the archive: "" or `FOLDER/`.
fn top_folder(members: &[(String, Vec<u8>)]) -> String {
    let is_root = |path: &str| path == "meta.json" || is_machine_file(path);
    if members.iter().any(|(path, _)| is_root(path)) {
        return String::new();
    }
    let below = |path: &str| path.split_once('/').map(|(top, below)| (top.len(), is_root(below)));
    let found = members.iter().find_map(|(path, _)| match below(path) {
        Some((length, true)) => Some(path[..=length].to_owned()),
        _ => None,
    });
    found.unwrap_or_default()
}

/// Whether a file is read: those of captures, not the trace between them, nor the whole of /proc.
fn is_wanted(path: &str) -> bool {
    const CAPTURES: [&str; 3] = ["before/", "cmdend/", "after/"];
    let is_wanted = |path: &str| {
        path == "meta.json"
            || CAPTURES.iter().any(|capture| path.starts_with(capture))
            || is_machine_file(path)
    };
    is_wanted(path) || path.split_once('/').is_some_and(|(_, below)| is_wanted(below))
}
