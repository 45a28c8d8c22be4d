//! Finds out which kind of recording a path is, and unpacks it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use nearpage_machine::{
    Budget, FileTree, FolderTree, Kept, MemoryTree, Packing, Unpacking, is_machine_file, read_kept,
    read_tar_files, read_within, shown,
};

use super::data::Recording;
use super::error::BundleError;
use super::{folder, oracle};

/// Bytes of a tar's first block, which has the magic number.
const HEAD_BYTES: u64 = 512;

impl Recording {
    /// Reads a recording of any kind.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is none.
    pub fn read(path: &Path, budget: &Budget) -> Result<Recording, BundleError> {
        read(path, budget)
    }

    /// Reads a recording from the content of a file; `source` is its name.
    ///
    /// # Errors
    ///
    /// The content is none.
    pub fn read_bytes(
        source: &str,
        content: &[u8],
        budget: &Budget,
    ) -> Result<Recording, BundleError> {
        read_stream(source, content, budget)
    }

    /// Reads a recording from the beginning of `content` to its end; `source` names it in messages. The content is
    /// read once, from front to back, so a pipe serves as well as a file.
    ///
    /// # Errors
    ///
    /// The content cannot be read, or is none.
    pub fn read_from(
        source: &str,
        content: impl Read,
        budget: &Budget,
    ) -> Result<Recording, BundleError> {
        read_stream(source, content, budget)
    }
}

fn read(path: &Path, budget: &Budget) -> Result<Recording, BundleError> {
    let source = shown(path).to_string();
    let unreadable = |error| BundleError::Unreadable { input: source.clone(), error };
    if std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        let tree = FolderTree::new(path).within(budget);
        return read_tree(&source, Box::new(tree), &Unpacking::new(budget));
    }
    let file = File::open(path).map_err(unreadable)?;
    read_stream(&source, io::BufReader::new(file), budget)
}

/// Reads packed or plain content. An archive is never held as a whole, so its trace may have any length.
fn read_stream(
    source: &str,
    content: impl Read,
    budget: &Budget,
) -> Result<Recording, BundleError> {
    let unreadable = |error| BundleError::Unreadable { input: source.into(), error };
    let unpacking = Unpacking::new(budget);
    let (packing, content) = recognised(unpacking.file(content)).map_err(unreadable)?;
    let Some(packing) = packing else {
        let content = read_within(content, budget.input_bytes).map_err(unreadable)?;
        return read_plain(source, &content, Kept::new(&unpacking));
    };
    let packed = |error| BundleError::Packed { input: source.into(), what: packing.name(), error };
    let stream = unpacking.stream(packing, content).map_err(packed)?;
    match recognised(stream).map_err(packed)? {
        (Some(Packing::Tar), archive) => {
            let tree = unpack(source, archive, &unpacking).map_err(packed)?;
            read_tree(source, Box::new(tree), &unpacking)
        }
        (_, mut content) => {
            let mut kept = Kept::new(&unpacking);
            let content = read_kept(&mut content, u64::MAX, &kept).map_err(packed)?;
            kept.add(content.len() as u64).map_err(packed)?;
            read_plain(source, &content, kept)
        }
    }
}

/// Recognises a stream by its first bytes, and returns the stream with them.
fn recognised<'a>(mut content: impl Read + 'a) -> io::Result<(Option<Packing>, impl Read + 'a)> {
    let mut head = Vec::new();
    content.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok((Packing::of(&head), io::Cursor::new(head).chain(content)))
}

fn read_plain(source: &str, content: &[u8], kept: Kept) -> Result<Recording, BundleError> {
    match content.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => oracle::read(source, content, kept),
        _ => Err(BundleError::NoRecording { input: format!("{source}:1:1") }),
    }
}

fn read_tree(
    source: &str,
    tree: Box<dyn FileTree + Send + Sync>,
    unpacking: &Unpacking,
) -> Result<Recording, BundleError> {
    let unreadable = |error| BundleError::Unreadable { input: tree.display("meta.json"), error };
    if tree.read("meta.json").map_err(unreadable)?.is_some() {
        return folder::read_bundle(source, &*tree, unpacking);
    }
    let holds = |folder: &str| tree.names(folder).is_ok_and(|names| !names.is_empty());
    if holds("proc") || holds("sys") {
        return folder::read_root(source, tree);
    }
    Err(BundleError::NoRecording { input: source.into() })
}

/// Unpacks those files of a tar that belong to captures. The bundle or root stands at the archive's root or one folder
/// deep.
fn unpack(source: &str, content: impl Read, unpacking: &Unpacking) -> io::Result<MemoryTree> {
    let mut members = Vec::new();
    let name = |path: &str| is_wanted(path).then(|| path.to_owned());
    read_tar_files(content, unpacking, name, |path, file| {
        members.push((path, file));
    })?;
    let top = top_folder(&members);
    let mut tree = MemoryTree::new(source);
    for (path, file) in members {
        if let Some(below) = path.strip_prefix(&top) {
            tree.insert(below, file);
        }
    }
    Ok(tree)
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

/// Whether a file belongs to a capture: the trace and most of /proc do not.
fn is_wanted(path: &str) -> bool {
    const CAPTURES: [&str; 3] = ["before/", "cmdend/", "after/"];
    let is_wanted = |path: &str| {
        path == "meta.json"
            || CAPTURES.iter().any(|capture| path.starts_with(capture))
            || is_machine_file(path)
    };
    is_wanted(path) || path.split_once('/').is_some_and(|(_, below)| is_wanted(below))
}
