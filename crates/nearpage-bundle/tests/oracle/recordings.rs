//! The recordings: where they are, how they are packed, what of them the experiments need.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{env, fs};

use nearpage::Order;
use serde::Deserialize;

use super::fields::lines;
use super::machine::ZoneName;

/// The folders of a collection.
const FOLDERS: [&str; 3] = ["corpus", "exp", "rebuild"];

/// Recordings of real kernels.
pub struct Collection {
    /// Where it is.
    pub root: PathBuf,
    /// Folders that it does not have, or that are empty.
    pub missing: Vec<&'static str>,
    /// The recordings, by name.
    pub recordings: Vec<Recording>,
}

/// One boot of one kernel on one machine.
pub struct Recording {
    /// Folder and file, without the endings.
    pub name: String,
    /// The kernel, as `6.12`.
    pub kernel: String,
    /// Texts of the recording module, by name.
    pub module: BTreeMap<String, String>,
    /// What was captured, by the time of it.
    pub captures: BTreeMap<String, Capture>,
    /// Files of each node's folder in `/sys`, by node.
    pub nodes: BTreeMap<u32, NodeFiles>,
}

/// What a node says of itself in `/sys`.
#[derive(Deserialize)]
pub struct NodeFiles {
    /// CPUs, as `0-3,8`.
    pub cpulist: String,
    /// Distances to all online nodes.
    pub distance: String,
}

#[derive(Deserialize)]
struct File {
    kernel: String,
    captures: BTreeMap<String, Capture>,
    sys: BTreeMap<String, serde_json::Value>,
    /// Missing where nobody asked a module.
    #[serde(default)]
    module: BTreeMap<String, serde_json::Value>,
}

/// What the kernel said of itself at some time.
#[derive(Deserialize)]
pub struct Capture {
    /// `/proc/zoneinfo`; missing where the capture failed.
    #[serde(default)]
    pub zoneinfo: String,
    /// `/proc/buddyinfo`.
    #[serde(default)]
    pub buddyinfo: String,
    /// `/proc/sys/vm`.
    #[serde(default)]
    pub sysctl_vm: BTreeMap<String, String>,
}

impl Recording {
    /// The configuration: boots of the same one have the same.
    pub fn configuration(&self) -> &str {
        match self.name.rsplit_once("-r") {
            Some((configuration, boot)) if boot.parse::<u32>().is_ok() => configuration,
            _ => &self.name,
        }
    }
}

impl Recording {
    /// Free pages of a zone in blocks below a pageblock, after the experiments or at the last capture before them.
    pub fn small_blocks(&self, zone: ZoneName) -> Option<u64> {
        const CAPTURES: [&str; 4] = ["after_module", "restored", "sysctl", "boot"];
        let texts = CAPTURES.iter().filter_map(|name| self.captures.get(*name));
        texts.filter_map(|capture| small_blocks(&capture.buddyinfo, zone)).next()
    }
}

/// Of the lines `Node 0, zone DMA32 13 6 21 ...`: blocks by order.
fn small_blocks(buddyinfo: &str, zone: ZoneName) -> Option<u64> {
    let name = format!("Node {}, zone {}", zone.node, zone.kind.name());
    let mut blocks = buddyinfo.lines().filter_map(|line| {
        let line = line.split_whitespace().collect::<Vec<_>>();
        let (head, blocks) = line.split_at_checked(4)?;
        (head.join(" ") == name).then(|| blocks.to_vec())
    });
    let pages = |(order, blocks): (usize, &str)| Some(blocks.parse::<u64>().ok()? << order);
    blocks.next()?.into_iter().take(Order::PAGEBLOCK.0.into()).enumerate().map(pages).sum()
}

impl Collection {
    /// Whether the boots of a recording's configuration have different lines at a place of a text; `None`
    /// if there is no other boot.
    pub fn boots_differ(&self, recording: &Recording, kind: &str, line: usize) -> Option<bool> {
        let is_other = |other: &&Recording| {
            other.name != recording.name && other.configuration() == recording.configuration()
        };
        let line_of = |recording: &Recording| {
            let text = recording.module.get(kind)?;
            lines(text).nth(line).map(|line| line.0.to_owned())
        };
        let mut others = self.recordings.iter().filter(is_other).map(line_of).peekable();
        others.peek()?;
        let own = line_of(recording);
        Some(others.any(|other| other != own))
    }
}

/// Where the recordings are: `NEARPAGE_ORACLE`, or the project's own.
pub fn root() -> PathBuf {
    env::var_os("NEARPAGE_ORACLE").map_or_else(own_root, PathBuf::from)
}

/// Where the project's own recordings are.
pub fn own_root() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle");
    path.canonicalize().unwrap_or(path)
}

/// Reads a collection.
///
/// # Errors
/// What is wrong with which file, or that there is no recording.
pub fn collection(root: &Path) -> Result<Collection, String> {
    if !root.is_dir() {
        return Err(format!("{}: no such folder; expected recordings in it", root.display()));
    }
    let mut collection =
        Collection { root: root.into(), missing: Vec::new(), recordings: Vec::new() };
    for folder in FOLDERS {
        let path = root.join(folder);
        if !path.is_dir() {
            collection.missing.push(folder);
            continue;
        }
        let files = recording_files(&path)?;
        if files.is_empty() {
            collection.missing.push(folder);
        }
        for file in files {
            let recording = read(folder, &file);
            let failed = |error| format!("{}: {error}", file.display());
            collection.recordings.push(recording.map_err(failed)?);
        }
    }
    if collection.recordings.is_empty() {
        let folders = FOLDERS.join("/, ");
        return Err(format!("{}: nothing in {folders}/; {EXPECTED}", root.display()));
    }
    Ok(collection)
}

const EXPECTED: &str = "expected recordings *.json, *.json.zst or *.json.gz";

fn recording_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = paths.filter(|path| is_recording(path)).collect();
    files.sort();
    Ok(files)
}

/// Tables of what was the same in all boots lie beside the recordings: `STABLE.json`.
fn is_recording(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let packed = [".json", ".json.zst", ".json.gz"].iter().any(|ending| name.ends_with(ending));
    packed && !name.starts_with("STABLE")
}

fn read(folder: &str, path: &Path) -> Result<Recording, String> {
    let packed = fs::read(path).map_err(|error| error.to_string())?;
    let text = unpack(path, &packed).map_err(|error| error.to_string())?;
    let file: File = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split(".json").next().unwrap_or_default();
    Ok(Recording {
        name: format!("{folder}/{name}"),
        kernel: file.kernel,
        module: file.module.into_iter().filter_map(text_of).collect(),
        captures: file.captures,
        nodes: nodes(file.sys)?,
    })
}

fn unpack(path: &Path, packed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("zst") => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(packed);
            decoder.map_err(std::io::Error::other)?.read_to_end(&mut text)?;
        }
        Some("gz") => _ = flate2::read::MultiGzDecoder::new(packed).read_to_end(&mut text)?,
        _ => text.extend(packed),
    }
    Ok(text)
}

/// A text of the module. How it ended (`.err`) and how long it took stand beside it.
fn text_of((name, value): (String, serde_json::Value)) -> Option<(String, String)> {
    let text = value.as_str()?.to_owned();
    (!name.ends_with(".err") || !text.is_empty()).then_some((name, text))
}

fn nodes(sys: BTreeMap<String, serde_json::Value>) -> Result<BTreeMap<u32, NodeFiles>, String> {
    let mut nodes = BTreeMap::new();
    for (name, value) in sys {
        if let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) {
            let files = NodeFiles::deserialize(value).map_err(|e| format!("sys.{name}: {e}"))?;
            nodes.insert(id, files);
        }
    }
    Ok(nodes)
}

mod tests {
    use std::io::Write;

    use super::*;

    const RECORDING: &str = r#"{"kernel": "6.12", "captures": {"boot": {"zoneinfo": ""}},
        "sys": {"node0": {"cpulist": "0-1", "distance": "10"}, "online": "0"},
        "module": {"bulk": "SYMS\n", "bulk.err": "", "times": 3}}"#;

    #[test]
    fn small_blocks_are_those_below_a_pageblock() {
        let text = "Node 0, zone DMA 1 0\nNode 1, zone   DMA32      3  2 0 0 0 0 0 0 1 7 99 \n";
        let zone = |text: &str| ZoneName::parse(text).unwrap();
        assert_eq!(small_blocks(text, zone("1:DMA32")), Some(3 + 2 * 2 + 256));
        assert_eq!(small_blocks(text, zone("0:DMA")), Some(1));
        assert_eq!(small_blocks(text, zone("0:DMA32")), None);
        assert_eq!(small_blocks("Node 1, zone DMA32 3 x", zone("1:DMA32")), None);
    }

    fn refusal(root: &Path) -> String {
        collection(root).err().expect("there is nothing to read")
    }

    #[test]
    fn a_folder_without_recordings_is_no_success() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().display();
        let nowhere = root.path().join("nowhere");
        assert!(refusal(&nowhere).ends_with("no such folder; expected recordings in it"));
        let nothing = format!("{path}: nothing in corpus/, exp/, rebuild/; {EXPECTED}");
        assert_eq!(refusal(root.path()), nothing);
        fs::create_dir(root.path().join("exp")).unwrap();
        fs::write(root.path().join("exp/STABLE.json"), "{}").unwrap();
        assert_eq!(refusal(root.path()), nothing);
        fs::write(root.path().join("exp/a.json"), "{\n  \"kernel\": }").unwrap();
        let damaged = refusal(root.path());
        assert_eq!(damaged, format!("{path}/exp/a.json: expected value at line 2 column 13"));
    }

    #[test]
    fn recordings_are_plain_or_packed() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("exp");
        fs::create_dir(&folder).unwrap();
        // An empty folder is as none, and so is a capture that failed.
        fs::create_dir(root.path().join("corpus")).unwrap();
        let failing =
            RECORDING.replace(r#"{"zoneinfo": ""}"#, r#"{"error": "the machine was lost"}"#);
        assert_ne!(failing, RECORDING);
        fs::write(folder.join("a-6.12-r1.json"), failing).unwrap();
        let file = fs::File::create(folder.join("a-6.12-r2.json.gz")).unwrap();
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        let differing = RECORDING.replace(r"SYMS\n", r"BULK n=1\n");
        packed.write_all(differing.as_bytes()).unwrap();
        packed.finish().unwrap();
        let collection = collection(root.path()).unwrap();
        assert_eq!(collection.missing, ["corpus", "rebuild"]);
        let [first, second] = &collection.recordings[..] else { panic!("two recordings") };
        assert_eq!(first.configuration(), second.configuration());
        assert_eq!(first.module.keys().collect::<Vec<_>>(), ["bulk"]);
        assert_eq!(collection.boots_differ(first, "bulk", 0), Some(true));
        assert_eq!(collection.boots_differ(first, "bulk", 1), Some(false));
    }
}
