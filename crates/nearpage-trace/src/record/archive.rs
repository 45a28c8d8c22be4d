//! The files of a bundle, and the archive that they become.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use nearpage_machine::OutputFolder;

use super::capture::{NAMES, Snapshot};
use super::compress::zstd;
use super::{redact, surroundings};

/// The trace, packed.
const TRACE_NAME: &str = "trace.txt.zst";

/// Files that are small enough to be held, in the order of the archive.
pub(super) struct Files(Vec<(String, Vec<u8>)>);

impl Files {
    /// None.
    pub(super) fn new() -> Files {
        Files(Vec::new())
    }

    /// Adds what changes slowly, as it is now, and what the kernel has logged.
    pub(super) fn add_surroundings(&mut self, capture: &str, log_name: &str, log: String) {
        for (name, content) in surroundings::read() {
            self.0.push((format!("{capture}/{name}"), content));
        }
        self.0.push((format!("{capture}/{log_name}"), log.into_bytes()));
    }

    /// Adds a capture.
    pub(super) fn add_snapshot(&mut self, capture: &str, snapshot: &Snapshot) {
        let texts = NAMES.into_iter().zip(&snapshot.texts);
        for (name, text) in texts.filter(|(_, text)| !text.bytes().is_empty()) {
            self.0.push((format!("{capture}/{name}"), text.bytes().to_vec()));
        }
    }

    /// Adds a file.
    pub(super) fn add(&mut self, name: &str, content: Vec<u8>) {
        self.0.push((name.into(), content));
    }

    /// Adds others.
    pub(super) fn append(&mut self, others: Files) {
        self.0.extend(others.0);
    }

    /// Leaves out what names somebody; what describes the bundle and its samples stays.
    pub(super) fn redact(&mut self) {
        let files = std::mem::take(&mut self.0).into_iter();
        let kept = files.filter_map(|(name, content)| match &*name {
            "meta.json" | "samples.txt.zst" => Some((name, content)),
            _ => redact::file(&name, &content).map(|content| (name, content)),
        });
        self.0 = kept.collect();
    }

    /// Writes all into an archive below one folder, the packed trace last.
    ///
    /// # Errors
    ///
    /// The archive cannot be written, or the trace not be read.
    pub(super) fn write_archive<W: Write>(
        &self,
        archive: W,
        folder: &str,
        epoch_s: u64,
        trace: &mut File,
    ) -> io::Result<W> {
        let mut builder = tar::Builder::new(archive);
        let mut add = |name: &str, bytes: u64, content: &mut dyn Read| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes);
            header.set_mode(0o644);
            header.set_mtime(epoch_s);
            builder.append_data(&mut header, format!("{folder}/{name}"), content)
        };
        for (name, content) in &self.0 {
            add(name, content.len() as u64, &mut &**content)?;
        }
        let bytes = trace.seek(SeekFrom::End(0))?;
        trace.rewind()?;
        add(TRACE_NAME, bytes, trace)?;
        let mut archive = builder.into_inner()?;
        archive.flush()?;
        Ok(archive)
    }

    /// Writes all into a folder that was made for it; returns the bytes.
    ///
    /// # Errors
    ///
    /// A file cannot be written, or the trace not be read.
    pub(super) fn write_folder(&self, folder: &OutputFolder, trace: &mut File) -> io::Result<u64> {
        let (mut bytes, mut captures) = (0, BTreeMap::new());
        for (name, content) in &self.0 {
            let mut file = match name.split_once('/') {
                None => folder.create(name.as_ref())?,
                Some((capture, name)) => {
                    let inner = match captures.entry(capture) {
                        Entry::Occupied(made) => made.into_mut(),
                        Entry::Vacant(new) => new.insert(folder.create_folder(capture.as_ref())?),
                    };
                    inner.create(name.as_ref())?
                }
            };
            file.write_all(content)?;
            bytes += content.len() as u64;
        }
        for capture in captures.values() {
            capture.give()?;
        }
        trace.rewind()?;
        Ok(bytes + io::copy(trace, &mut folder.create(TRACE_NAME.as_ref())?)?)
    }
}

/// A text, packed.
pub(super) fn packed(mut text: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    zstd(&mut text, &mut packed).expect("memory is read and written");
    packed
}
