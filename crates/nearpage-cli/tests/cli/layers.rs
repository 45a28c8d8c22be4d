//! The order of the crates, and of the files in each of them: a file uses only what stands below it.
//!
//! A crate's files have an order if no circle leads from a file over others back to it. A file and the files of the
//! folder with its name are one family: a child may name what its ancestors define, since they are one module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::tidy::{complain, files, root, text};

/// The crates, lowest floor first: a crate depends only on crates that stand above it in this list.
const CRATES: [&str; 24] = [
    "nearpage",
    "nearpage-pagelock",
    "nearpage-slab",
    "nearpage-machine",
    "nearpage-linux",
    "nearpage-kernel",
    "nearpage-c",
    "nearpage-malloc",
    "nearpage-preload",
    "nearpage-sim",
    "nearpage-bundle",
    "nearpage-kcore",
    "nearpage-trace",
    "nearpage-replay",
    "nearpage-lab",
    "nearpage-explain",
    "nearpage-watch",
    "nearpage-top",
    "nearpage-report",
    "nearpage-web",
    "nearpage-bench",
    "nearpage-doctor",
    "nearpage-cli",
    "peers",
];

#[test]
fn crates_depend_only_on_crates_below_them() {
    let mut complaints = Vec::new();
    for (floor, name) in CRATES.iter().enumerate() {
        let manifest = text(&root().join("crates").join(name).join("Cargo.toml"));
        // What tests use may stand anywhere.
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        for line in dependencies.lines() {
            let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if used.starts_with("nearpage") && !CRATES[..floor].contains(&used) {
                complaints.push(format!("{name} depends on {used}"));
            }
        }
    }
    complain("a crate depends on one that does not stand below it", &complaints);
}

#[test]
fn every_crate_has_a_floor() {
    let folders = std::fs::read_dir(root().join("crates")).expect("the folder of crates").flatten();
    let names: BTreeSet<String> =
        folders.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(names, CRATES.iter().map(|name| (*name).to_owned()).collect());
}

/// A package has only files of its crate's folder.
#[test]
fn every_published_crate_has_the_licences() {
    for name in CRATES {
        let folder = root().join("crates").join(name);
        if text(&folder.join("Cargo.toml")).contains("publish = false") {
            continue;
        }
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert_eq!(
                text(&folder.join(licence)),
                text(&root().join(licence)),
                "{name}: {licence}"
            );
        }
    }
}

#[test]
fn files_of_a_crate_form_no_circle() {
    let mut complaints = Vec::new();
    for name in CRATES {
        let source = Source::read(&root().join("crates").join(name).join("src"));
        for circle in source.circles() {
            complaints.push(format!("{name}:"));
            for (from, to, used) in circle {
                complaints.push(format!("    {from} takes {used} from {to}"));
            }
        }
    }
    complain("files that use each other", &complaints);
}

/// The check finds what it is for.
#[test]
fn a_circle_is_found() {
    let source = |files: &[(&str, &str)]| {
        let module =
            |(path, text): &(&str, &str)| (module_of(Path::new(path)), Module::parse(text));
        Source { modules: files.iter().map(module).collect() }
    };
    let circle = source(&[
        ("lib.rs", "mod a; mod b; mod c; pub use c::C;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "fn f() { crate::C::new() } pub struct B;"),
        ("c.rs", "use super::a::{self, A}; pub struct C;"),
    ]);
    let found: Vec<_> = circle.circles().concat();
    assert_eq!(found.len(), 3, "{found:?}");
    let line = source(&[
        ("lib.rs", "mod a; mod b; mod c; pub use c::C; // crate::a"),
        ("a.rs", "use crate::b::B; mod part; pub struct A; fn f() { part::g() }"),
        ("a/part.rs", "use super::A; use crate::C;"),
        (
            "b.rs",
            "fn f() { \"crate::a::A\" } pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }",
        ),
        ("c.rs", "pub struct C;"),
    ]);
    assert!(line.circles().is_empty(), "{:?}", line.circles());
}

/// The one circle: a host names its rules, and what rules do is done to what is generic over the host.
pub(super) const KNOT: [&str; 2] = ["host", "alloc"];

/// A module by its path in the crate: `[]` is the crate's root, `["pcp", "tuning"]` the file `pcp/tuning.rs`.
type ModulePath = Vec<String>;

/// The modules of a crate, one a file.
struct Source {
    modules: BTreeMap<ModulePath, Module>,
}

/// What one file says about names.
#[derive(Default)]
struct Module {
    /// Paths that it names, as they stand there.
    paths: BTreeSet<Vec<String>>,
    /// Names that `use` brings in, and the paths that they stand for; `*` for all.
    imports: Vec<(String, Vec<String>)>,
    /// Names that it defines.
    defined: BTreeSet<String>,
}

fn module_of(path: &Path) -> ModulePath {
    let path = path.with_extension("");
    let mut names: ModulePath =
        path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        names.pop();
    }
    names
}

impl Module {
    fn parse(text: &str) -> Module {
        let mut module = Module::default();
        let words = words(text);
        let mut at = 0;
        while let Some(word) = words.get(at) {
            at += 1;
            let next = words.get(at);
            match word.as_str() {
                "use" => {
                    let mut found = Vec::new();
                    at = use_tree(&words, at, &[], &mut found);
                    module.paths.extend(found.iter().map(|(_, path)| path.clone()));
                    module.imports.extend(found);
                }
                "struct" | "enum" | "union" | "trait" | "fn" | "const" | "static" | "type" => {
                    module.defined.extend(next.cloned());
                }
                word if is_name(word) && next.is_some_and(|next| next == "::") => {
                    let mut path = vec![word.to_owned()];
                    while words.get(at).is_some_and(|word| word == "::")
                        && words.get(at + 1).is_some_and(|word| is_name(word))
                    {
                        path.push(words[at + 1].clone());
                        at += 2;
                    }
                    module.paths.insert(path);
                }
                _ => {}
            }
        }
        module
    }
}

/// Reads `a::{b, c::d as e}` from `at`; answers where it ends.
fn use_tree(
    words: &[String],
    mut at: usize,
    prefix: &[String],
    found: &mut Vec<(String, Vec<String>)>,
) -> usize {
    let mut path = prefix.to_vec();
    while let Some(word) = words.get(at) {
        match word.as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                while words.get(at).is_some_and(|word| word != "}") {
                    at = use_tree(words, at, &path, found);
                    at += usize::from(words.get(at).is_some_and(|word| word == ","));
                }
                return at + 1;
            }
            "as" => {
                found.push((words[at + 1].clone(), path));
                return at + 2;
            }
            word if is_name(word) || word == "*" => {
                path.push(word.to_owned());
                at += 1;
            }
            _ => break,
        }
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(last) = path.last().cloned() {
        found.push((last, path));
    }
    at
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Names, `::` and single characters of a source, without comments, texts and what is built for tests only.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_char = |rest: &str| {
            let mut chars = rest.chars().skip(1);
            matches!((chars.next(), chars.next()), (Some(c), Some('\'')) if c != '\\')
        };
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            end_of_text(rest)
        } else if rest.starts_with("'\\") {
            3 + rest[3..].find('\'').unwrap_or(0)
        } else if first == '\'' && is_char(rest) {
            rest.char_indices().nth(2).map_or(rest.len(), |(at, _)| at + 1)
        } else if rest.starts_with("#[cfg(test)]\nmod tests {") {
            // Tests stand at the end of a file.
            break;
        } else if rest.starts_with("::") {
            words.push("::".into());
            2
        } else if first.is_alphabetic() || first == '_' {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            words.push(rest[..length].to_owned());
            length
        } else {
            if !first.is_whitespace() {
                words.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    words
}

fn end_of_text(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

impl Source {
    fn read(folder: &Path) -> Source {
        let module = |path: &std::path::PathBuf| {
            let inside = path.strip_prefix(folder).expect("below the folder");
            (module_of(inside), Module::parse(&text(path)))
        };
        Source { modules: files(folder, ".rs").iter().map(module).collect() }
    }

    /// The module that a path of `here` leads to, or `None` for another crate's.
    fn resolve(&self, here: &[String], path: &[String], depth: usize) -> Option<ModulePath> {
        let mut module = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" => here.to_vec(),
            "super" => here.split_last()?.1.to_vec(),
            name => {
                let child = [here, &[name.to_owned()]].concat();
                return match self.modules.contains_key(&child) {
                    true => self.walk(child, &path[1..], depth),
                    false => None,
                };
            }
        };
        let mut rest = &path[1..];
        while rest.first().is_some_and(|name| name == "super") {
            module.pop()?;
            rest = &rest[1..];
        }
        self.walk(module, rest, depth)
    }

    fn walk(&self, mut module: ModulePath, path: &[String], depth: usize) -> Option<ModulePath> {
        for name in path {
            let child = [&module[..], std::slice::from_ref(name)].concat();
            if self.modules.contains_key(&child) {
                module = child;
                continue;
            }
            return Some(self.definer(&module, name, depth).unwrap_or(module));
        }
        Some(module)
    }

    /// Where a name of a module is defined, if the module only passes it on.
    fn definer(&self, module: &[String], name: &str, depth: usize) -> Option<ModulePath> {
        let of = self.modules.get(module)?;
        if depth > 8 || of.defined.contains(name) {
            return None;
        }
        if let Some((_, path)) = of.imports.iter().find(|(import, _)| import == name) {
            return self.resolve(module, path, depth + 1);
        }
        let globs = of.imports.iter().filter(|(import, _)| import == "*");
        let targets =
            globs.filter_map(|(_, path)| self.resolve(module, path.split_last()?.1, depth + 1));
        targets
            .map(|target| self.definer(&target, name, depth + 1).unwrap_or(target))
            .find(|target| self.modules[target].defined.contains(name))
    }

    /// From each module to those that it takes names from, with one of the names.
    fn arrows(&self) -> BTreeMap<&ModulePath, BTreeMap<ModulePath, String>> {
        let arrows = |(here, module): (_, &Module)| {
            let here: &ModulePath = here;
            let to = module.paths.iter().filter_map(|path| {
                let to = self.resolve(here, path, 0)?;
                let is_knot = [here.join("::"), to.join("::")] == KNOT;
                (!here.starts_with(&to) && !is_knot).then(|| (to, path.join("::")))
            });
            (here, to.collect())
        };
        self.modules.iter().map(arrows).collect()
    }

    /// Each circle once, as its arrows.
    fn circles(&self) -> Vec<Vec<(String, String, String)>> {
        let arrows = self.arrows();
        let reach = |from: &ModulePath| {
            let mut reached = BTreeSet::new();
            let mut open = vec![from.clone()];
            while let Some(module) = open.pop() {
                for to in arrows.get(&module).into_iter().flat_map(BTreeMap::keys) {
                    if reached.insert(to.clone()) {
                        open.push(to.clone());
                    }
                }
            }
            reached
        };
        let reached: BTreeMap<&ModulePath, BTreeSet<ModulePath>> =
            arrows.keys().map(|module| (*module, reach(module))).collect();
        let mut done = BTreeSet::new();
        let mut circles = Vec::new();
        for (module, all) in &reached {
            let together = |other: &ModulePath| {
                all.contains(other) && reached.get(other).is_some_and(|back| back.contains(*module))
            };
            if !all.contains(*module) || done.contains(*module) {
                continue;
            }
            let members: BTreeSet<&ModulePath> =
                arrows.keys().copied().filter(|other| together(other)).collect();
            let shown = |path: &ModulePath| path.join("::");
            let mut circle = Vec::new();
            for from in &members {
                for (to, used) in &arrows[*from] {
                    if members.contains(to) {
                        circle.push((shown(from), shown(to), used.clone()));
                    }
                }
            }
            done.extend(members);
            circles.push(circle);
        }
        circles
    }
}
