//! Recordings of machines: what a kernel printed, and what it was asked, read back.
//!
//! Four kinds of recordings give the same thing, a [`Recording`]:
//!
//! | kind | what it is | its captures |
//! |---|---|---|
//! | bundle | a folder with `meta.json`, or a tar of one | `before`, `cmdend`, `after` |
//! | oracle | one JSON file of one boot, plain or compressed | `boot`, `sysctl`, `phase_…`, `restored`, … |
//! | root | a folder, or a tar of one, with `proc/` and `sys/` | `root` |
//! | this machine | `/` | `root` |
//!
//! A capture is a tree of files, whatever it was made of, so that one reader understands them all; its
//! messages name the place in the recording. Nothing is read from a capture before it is asked for.

mod buddyinfo;
mod error;
mod folder;
mod log;
mod machine;
mod module;
mod open;
mod oracle;
mod pagetypeinfo;
mod tree;

pub use buddyinfo::{FreeBlocks, parse_buddyinfo};
pub use error::BundleError;
pub use log::KernelLog;
pub use machine::{RecordedMachine, RecordedNode};
pub use module::{
    Asked, AskedPageset, AskedZone, AskedZonelist, KeyValues, parse_info, parse_rebuild,
};
pub use pagetypeinfo::{Pageblocks, TypeBlocks, TypeCounts, parse_pagetypeinfo};
pub use tree::RecordedTree;

use std::io::Read;
use std::path::Path;

use nearpage_machine::sysfs::zoneinfo::ZoneRecord;
use nearpage_machine::tree::FileTree;

/// A recorded machine.
pub struct Recording {
    /// Where it was read, for messages.
    pub source: String,
    /// What kind of recording it is.
    pub kind: RecordingKind,
    /// The kernel's release, such as `6.12.95+deb12-amd64`; empty if the recording does not tell.
    pub kernel: String,
    /// Bytes of a page, where the recording tells.
    pub page_bytes: Option<u64>,
    /// Events that the recorder's buffers had no room for, as it tells.
    pub lost_events: u64,
    /// What the kernel logged.
    pub log: KernelLog,
    /// The captures, as they were made.
    pub captures: Vec<Capture>,
}

/// What a [`Recording`] was made of.
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
    /// The zones, if somebody read `/proc/zoneinfo` before us and kept what it says.
    pub parsed_zones: Option<Vec<ZoneRecord>>,
    /// What a kernel module answered in this state: the name of its text, and the text.
    pub module_texts: Vec<(String, String)>,
    /// What the kernel had computed anew by then; `None` if the recording does not tell.
    pub computed: Option<Computed>,
    /// Whether somebody had written `min_free_kbytes`; `None` if the recording does not tell.
    pub min_free_written: Option<bool>,
}

/// What a kernel computed anew since the end of boot, from the sizes that it prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Computed {
    /// Watermarks and pageset sizes: somebody wrote `min_free_kbytes` or `watermark_scale_factor`.
    pub marks: bool,
    /// Protection: somebody wrote or read `lowmem_reserve_ratio`.
    pub protection: bool,
}

impl Recording {
    /// Reads a recording of any kind.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is none.
    pub fn read(path: &Path) -> Result<Recording, BundleError> {
        open::read(path)
    }

    /// Reads a recording from the content of a file; `source` is its name.
    ///
    /// # Errors
    ///
    /// The content is none.
    pub fn read_bytes(source: &str, content: &[u8]) -> Result<Recording, BundleError> {
        open::read_stream(source, content)
    }

    /// Reads a recording from the beginning of `content` to its end; `source` names it in messages. The content is
    /// read once, from front to back, so a pipe serves as well as a file.
    ///
    /// # Errors
    ///
    /// The content cannot be read, or is none.
    pub fn read_from(source: &str, content: impl Read) -> Result<Recording, BundleError> {
        open::read_stream(source, content)
    }

    /// The capture called `name`, or the one that is looked at if none is named: the state after all
    /// settings were restored, or else the first.
    ///
    /// # Errors
    ///
    /// There is none of that name.
    pub fn capture(&self, name: Option<&str>) -> Result<&Capture, BundleError> {
        const DEFAULTS: [&str; 4] = ["restored", "boot", "before", "root"];
        let find = |name: &str| self.captures.iter().find(|capture| capture.name == name);
        let found = match name {
            Some(name) => find(name),
            None => DEFAULTS.into_iter().find_map(find),
        };
        found.ok_or_else(|| BundleError::NoCapture {
            input: self.source.clone(),
            wanted: name.unwrap_or("restored, boot or before").into(),
            available: self.captures.iter().map(|capture| capture.name.clone()).collect(),
        })
    }
}

impl Capture {
    /// A capture of which there is nothing but its files.
    fn of_tree(name: String, tree: Box<dyn FileTree + Send + Sync>) -> Capture {
        let (parsed_zones, module_texts) = (None, Vec::new());
        let (computed, min_free_written) = (None, None);
        Capture { name, tree, parsed_zones, module_texts, computed, min_free_written }
    }

    /// Reads the machine as it was at this moment.
    ///
    /// # Errors
    ///
    /// A file of the capture is damaged, or what describes a machine is missing.
    pub fn machine(&self) -> Result<RecordedMachine, BundleError> {
        RecordedMachine::read(&*self.tree, self.parsed_zones.as_deref())
    }

    /// Whether anything was recorded of its zones.
    pub fn has_zones(&self) -> bool {
        let text = || self.tree.read("proc/zoneinfo").ok().flatten();
        self.parsed_zones.is_some() || text().is_some_and(|text| !text.is_empty())
    }

    /// `vm.min_free_kbytes`, if the capture has it and it can be read.
    pub fn min_free_kbytes(&self) -> Option<u64> {
        let content = self.tree.read("proc/sys/vm/min_free_kbytes").ok()??;
        String::from_utf8(content).ok()?.trim().parse().ok()
    }
}
