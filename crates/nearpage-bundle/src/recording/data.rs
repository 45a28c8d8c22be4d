//! A recording as data.

use std::fmt;

use nearpage_machine::FileTree;
use nearpage_machine::sysfs::zoneinfo::ZoneRecord;

use super::error::BundleError;
use super::log::KernelLog;
use super::machine::RecordedMachine;

/// A recorded machine.
#[derive(Debug)]
pub struct Recording {
    /// Where it was read, for messages.
    pub source: String,
    /// What kind of recording it is.
    pub kind: RecordingKind,
    /// The kernel's release, such as `6.12.95+deb12-amd64`; empty if unknown.
    pub kernel: String,
    /// Bytes of a page, if known.
    pub page_bytes: Option<u64>,
    /// Events that the recorder lost because its buffers were full.
    pub lost_events: u64,
    /// What the kernel logged.
    pub log: KernelLog,
    /// The captures, as they were made.
    pub captures: Vec<Capture>,
}

/// The kinds of a [`Recording`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordingKind {
    /// A folder with `meta.json`: captures around a trace.
    Bundle,
    /// One boot with captures under several settings, and the answers of a kernel module.
    Oracle,
    /// A copy of /proc and /sys, or the live ones.
    Root,
}

/// The state of a machine at one moment.
pub struct Capture {
    /// Its name.
    pub name: String,
    /// Its files, by their paths below `/`.
    pub tree: Box<dyn FileTree + Send + Sync>,
    /// The zones, if the recorder read `/proc/zoneinfo` and stored the values.
    pub parsed_zones: Option<Vec<ZoneRecord>>,
    /// Why the capture has no files, if the recorder noted a failure.
    pub failed: Option<String>,
    /// The answers of a kernel module in this state: a name and a text each.
    pub module_texts: Vec<(String, String)>,
    /// What the kernel had recomputed by then; `None` if unknown.
    pub computed: Option<Computed>,
    /// Whether `min_free_kbytes` had been written by then; `None` if unknown.
    pub min_free_written: Option<bool>,
}

/// What a kernel recomputed since the end of boot, from the sizes that it prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Computed {
    /// Watermarks and pageset sizes, by a write to `min_free_kbytes` or `watermark_scale_factor`.
    pub marks: bool,
    /// Protection, by a write to or a read of `lowmem_reserve_ratio`.
    pub protection: bool,
}

impl Recording {
    /// The capture called `name`. Without a name it is `restored`, the state after all settings were restored, or else
    /// the first capture. Captures of a bundle that lack their zones are skipped.
    ///
    /// # Errors
    ///
    /// No capture has that name.
    pub fn capture(&self, name: Option<&str>) -> Result<&Capture, BundleError> {
        const DEFAULTS: [&str; 4] = ["restored", "boot", "before", "root"];
        let counts = |capture: &&Capture| self.kind != RecordingKind::Bundle || capture.has_zones();
        let captures = || self.captures.iter().filter(counts);
        let find = |name: &str| captures().find(|capture| capture.name == name);
        let found = match name {
            Some(name) => find(name),
            None => DEFAULTS.into_iter().find_map(find),
        };
        found.ok_or_else(|| BundleError::NoCapture {
            input: self.source.clone(),
            wanted: name.unwrap_or("restored, boot or before").into(),
            available: captures().map(|capture| capture.name.clone()).collect(),
        })
    }
}

impl Capture {
    /// A capture that consists of its files alone.
    pub(super) fn of_tree(name: String, tree: Box<dyn FileTree + Send + Sync>) -> Capture {
        let (parsed_zones, module_texts) = (None, Vec::new());
        let (failed, computed, min_free_written) = (None, None, None);
        Capture { name, tree, parsed_zones, failed, module_texts, computed, min_free_written }
    }

    /// Reads the machine at this moment.
    ///
    /// # Errors
    ///
    /// A file of the capture is damaged, or the capture lacks files that describe a machine.
    pub fn machine(&self) -> Result<RecordedMachine, BundleError> {
        RecordedMachine::read(&*self.tree, self.parsed_zones.as_deref())
    }

    /// Whether the capture has its zones, as text or as values.
    pub fn has_zones(&self) -> bool {
        let text = || self.tree.read("proc/zoneinfo").ok().flatten();
        self.parsed_zones.is_some() || text().is_some_and(|text| !text.is_empty())
    }

    /// `vm.min_free_kbytes`; `None` if it is missing or unreadable.
    pub fn min_free_kbytes(&self) -> Option<u64> {
        let content = self.tree.read("proc/sys/vm/min_free_kbytes").ok()??;
        String::from_utf8(content).ok()?.trim().parse().ok()
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tree = self.tree.display("");
        f.debug_struct("Capture")
            .field("name", &self.name)
            .field("tree", &tree)
            .finish_non_exhaustive()
    }
}
