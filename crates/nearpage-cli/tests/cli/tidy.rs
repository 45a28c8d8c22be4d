//! What a program can judge about the sources without taste.

use std::fs;
use std::path::{Path, PathBuf};

use super::layers::KNOT;

/// The layers of the core, lowest first: a module uses only what stands above it in this list.
const LAYERS: [&str; 45] = [
    "units",
    "sync",
    "places::bitmap",
    "places::map",
    "slot",
    "frame",
    "arena",
    "gfp",
    "error",
    "pcp::sizes",
    "pcp::tuning",
    "pcp::storage",
    "pcp::serial",
    "waiters",
    "host",
    "pcp::pieces",
    "places::size",
    "places::quota",
    "places::zone_maps",
    "topology",
    "watermark",
    "zonelist",
    "buddy",
    "model",
    "limit",
    "check_error",
    "rule_set",
    "zone",
    "places::zone",
    "places::reserve",
    "places::isolation",
    "pcp::pageset",
    "places::pageset",
    "reason",
    "policy",
    "alloc",
    "places",
    "linux",
    "vmstat",
    "check",
    "single",
    "platform",
    "rules",
    "stats",
    "internals",
];

pub(super) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.join("../..").canonicalize().expect("the workspace is there")
}

/// All files below `folder` that could be tracked, by ending.
pub(super) fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a readable folder").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && (!name.starts_with('.') || name == ".ci") {
                found.extend(files(&path, ending));
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub(super) fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

pub(super) fn complain(what: &str, complaints: &[String]) {
    assert!(complaints.is_empty(), "{what}:\n{}", complaints.join("\n"));
}

#[test]
fn nothing_unfinished_and_no_traces_of_a_workplace() {
    // In two pieces, so that this file does not find itself.
    let words = [
        ("TO", "DO"),
        ("FIX", "ME"),
        ("XX", "X"),
        ("dbg", "!("),
        ("todo", "!("),
        ("unimplemented", "!("),
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("allow(dead", "_code"),
        ("#[ig", "nore"),
    ]
    .map(|(head, tail)| format!("{head}{tail}"));
    let mut complaints = Vec::new();
    for ending in [".rs", ".md", ".toml", ".c", ".h", "run"] {
        for path in files(&root(), ending) {
            for (at, line) in text(&path).lines().enumerate() {
                for word in words.iter().filter(|word| line.contains(*word)) {
                    complaints.push(format!("{}:{}: {word}", shown(&path), at + 1));
                }
            }
        }
    }
    complain("these have no place here", &complaints);
}

#[test]
fn only_one_file_of_the_core_names_atomics() {
    let core = root().join("crates/nearpage/src");
    let mut complaints = Vec::new();
    for path in files(&core, ".rs").iter().filter(|path| !path.ends_with("sync.rs")) {
        for (at, line) in text(path).lines().enumerate() {
            if !line.trim_start().starts_with("//") && line.contains("sync::atomic") {
                complaints.push(format!("{}:{}", shown(path), at + 1));
            }
        }
    }
    complain("atomics come from crate::sync", &complaints);
}

/// The layer of a module, or of the module that it is a part of.
fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| module == *layer || module.starts_with(&format!("{layer}::")))
}

/// Whether it is the one circle that there is.
fn is_knot(module: &str, used: &str) -> bool {
    [module, used.split("::").next().unwrap_or_default()] == KNOT
}

/// `pcp/tuning.rs` is `pcp::tuning`, `alloc/mod.rs` is `alloc`.
fn module_of(core: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(core).expect("below the core").with_extension("");
    inside.to_string_lossy().replace('/', "::").trim_end_matches("::mod").to_owned()
}

/// The modules of the crate that a line names.
fn used_in(line: &str) -> impl Iterator<Item = String> + '_ {
    let is_path = |c: &char| c.is_alphanumeric() || *c == '_' || *c == ':';
    line.split("crate::").skip(1).map(move |rest| {
        rest.chars().take_while(is_path).collect::<String>().trim_end_matches(':').to_owned()
    })
}

#[test]
fn core_modules_use_only_what_is_below_them() {
    let core = root().join("crates/nearpage/src");
    let mut complaints = Vec::new();
    for path in files(&core, ".rs") {
        let module = module_of(&core, &path);
        // Tests may use all.
        let is_test = module.starts_with("testing") || module.ends_with("::tests");
        if is_test || ["lib", "pcp"].contains(&module.as_str()) {
            continue;
        }
        let Some(own) = layer_of(&module) else {
            complaints.push(format!("{}: not in the list of layers", shown(&path)));
            continue;
        };
        let text = text(&path);
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let is_above = |used: &String| layer_of(used).is_some_and(|used| used > own);
            for used in used_in(line).filter(is_above).filter(|used| !is_knot(&module, used)) {
                complaints.push(format!("{}: {module} uses {used}", shown(&path)));
            }
        }
    }
    complain("a module uses one that stands above it", &complaints);
}

#[test]
fn links_between_documents_resolve() {
    let mut complaints = Vec::new();
    for path in files(&root(), ".md") {
        let folder = path.parent().expect("a file has a folder");
        for target in text(&path).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            // The front page of a library names items of the crate, too.
            let is_front_page = path.ends_with("README.md") && folder.join("src/lib.rs").exists();
            let is_item = is_front_page && (file.contains("::") || !file.contains(['.', '/']));
            let is_local = !file.is_empty() && !file.contains("://") && !is_item;
            if is_local && !folder.join(file).exists() {
                complaints.push(format!("{}: {target}", shown(&path)));
            }
        }
    }
    complain("links that lead nowhere", &complaints);
}

/// A file that no module declares is compiled by nobody and rots.
#[test]
fn every_source_file_is_part_of_a_crate() {
    let mut complaints = Vec::new();
    let crates = fs::read_dir(root().join("crates")).expect("the folder of crates").flatten();
    let sources = crates.map(|of| of.path().join("src"));
    for source in sources.chain([root().join("xtask/src")]) {
        let all: String = files(&source, ".rs").iter().map(|path| text(path)).collect();
        for path in files(&source, ".rs") {
            let named = if path.ends_with("mod.rs") { path.parent() } else { Some(&*path) };
            let name =
                named.and_then(Path::file_stem).expect("a file has a name").to_string_lossy();
            let declared = all.contains(&format!("mod {name};"))
                || all.contains(&format!("\"{name}.rs\""))
                || ["lib", "main"].contains(&&*name);
            if !declared {
                complaints.push(shown(&path));
            }
        }
    }
    complain("files that no module declares", &complaints);
}

/// Where there is no unsafe code there shall be none.
#[test]
fn crates_without_unsafe_code_forbid_it() {
    let (mut complaints, mut forbidden) = (Vec::new(), 0);
    let crates = fs::read_dir(root().join("crates")).expect("the folder of crates").flatten();
    for source in crates.map(|of| of.path().join("src")) {
        let Ok(front) = fs::read_to_string(source.join("lib.rs")) else { continue };
        let forbids = front.contains("#![forbid(unsafe_code)]");
        forbidden += usize::from(forbids);
        let is_unsafe = files(&source, ".rs").iter().any(|path| {
            let text = text(path);
            let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            code.any(|line| {
                ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern", "unsafe(no"]
                    .iter()
                    .any(|word| line.contains(word))
            })
        });
        if !is_unsafe && !forbids {
            complaints.push(shown(&source));
        }
    }
    complain("crates without unsafe code that do not forbid it", &complaints);
    assert!(forbidden >= 8, "{forbidden}");
}
