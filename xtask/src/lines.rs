//! `cargo xtask lines`: lines of Rust by package and concern.
//!
//! A line counts if it has a token of the language: blank lines, comments and doc comments do not. Of a package's `src`, a
//! concern is a folder right below it, with the file of the same name beside it; what lies beside the folders is `src`
//! itself. Its `tests` and `examples` are concerns too.
//!
//! A line is a test's if it is compiled for tests alone:
//!
//! - items, fields and statements with `#[test]`, or with a `#[cfg(..)]` that can hold only with `test` or the feature
//!   `testing`;
//! - files of modules that are declared so, and of modules below them;
//! - all files below a package's folder `tests`, and all of a package whose name ends in `-testing`.
//!
//! Everything else is code: examples, xtask, and the programs that measure and record.

mod count;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::{fmt, fs, io};

use count::Counted;

/// Why lines could not be counted.
#[derive(Debug, thiserror::Error)]
pub enum LinesError {
    /// A file or folder cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is not what rustc accepts.
    #[error("{} is not Rust: {error}, line {}", path.display(), error.span().start().line)]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Why.
        error: syn::Error,
    },
}

/// Prints the table of this repository.
///
/// # Errors
///
/// [`LinesError`].
pub fn run() -> Result<(), LinesError> {
    print!("{}", Lines::below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?);
    Ok(())
}

/// Files and lines.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
struct Sum {
    files: usize,
    code: usize,
    tests: usize,
}

impl Sum {
    fn of<'a>(sums: impl IntoIterator<Item = &'a Sum>) -> Sum {
        sums.into_iter().fold(Sum::default(), |all, of| Sum {
            files: all.files + of.files,
            code: all.code + of.code,
            tests: all.tests + of.tests,
        })
    }
}

/// Sums by package and concern.
#[derive(Debug, PartialEq, Eq)]
struct Lines(BTreeMap<String, BTreeMap<String, Sum>>);

impl Lines {
    /// Counts all that lies below a folder, what is built or hidden left out.
    fn below(root: &Path) -> Result<Self, LinesError> {
        let mut files = Vec::new();
        find(root, None, &mut files)?;
        let mut counted = Vec::new();
        let mut test_modules = BTreeSet::new();
        for file in files {
            let counts = file.count()?;
            let folder = folder_of_modules(&file.path);
            test_modules.extend(counts.test_modules.iter().map(|module| folder.join(module)));
            counted.push((file, counts));
        }
        let mut lines = Lines(BTreeMap::new());
        for (file, Counted { code, tests, .. }) in counted {
            let is_test = file.is_in_tests()
                || file.path.with_extension("").ancestors().any(|path| test_modules.contains(path));
            let (code, tests) = if is_test { (0, code + tests) } else { (code, tests) };
            let sum = lines.0.entry(file.package.name.clone()).or_default();
            let sum = sum.entry(file.concern()).or_default();
            *sum = Sum::of([&*sum, &Sum { files: 1, code, tests }]);
        }
        Ok(lines)
    }
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |package: &str, concern: &str, sum: Sum| {
            let Sum { files, code, tests } = sum;
            writeln!(f, "{package:<22}{concern:<18}{files:>6}{code:>8}{tests:>8}")
        };
        let sums = || self.0.values().flat_map(BTreeMap::values);
        for (package, concerns) in &self.0 {
            for (concern, &sum) in concerns {
                row(package, concern, sum)?;
            }
            if concerns.len() > 1 {
                row(package, "all", Sum::of(concerns.values()))?;
            }
        }
        let all = Sum::of(sums());
        row("all", "", all)?;
        writeln!(f, "\n{} lines of Rust: neither blank nor comment", all.code + all.tests)?;
        writeln!(
            f,
            "tests: what is compiled for #[test], cfg(test) or the feature testing alone, folders tests, packages *-testing"
        )
    }
}

/// The package that a file belongs to.
#[derive(Clone, Debug)]
struct Package {
    name: String,
    folder: PathBuf,
}

/// A file of Rust.
#[derive(Debug)]
struct File {
    path: PathBuf,
    package: Package,
}

impl File {
    fn count(&self) -> Result<Counted, LinesError> {
        let path = || self.path.clone();
        let text = fs::read_to_string(&self.path)
            .map_err(|error| LinesError::Read { path: path(), error })?;
        count::count(&text).map_err(|error| LinesError::Syntax { path: path(), error })
    }

    fn is_in_tests(&self) -> bool {
        self.package.name.ends_with("-testing") || self.inside().next().as_deref() == Some("tests")
    }

    fn concern(&self) -> String {
        let mut parts = self.inside();
        match (parts.next().as_deref(), parts.next()) {
            (Some("src"), Some(part)) => {
                let name = part.trim_end_matches(".rs");
                match self.package.folder.join("src").join(name).is_dir() {
                    true => format!("src/{name}"),
                    false => "src".into(),
                }
            }
            (Some(folder), Some(_)) => folder.into(),
            _ => ".".into(),
        }
    }

    /// Folders and file within the package.
    fn inside(&self) -> impl Iterator<Item = String> + '_ {
        let inside = self.path.strip_prefix(&self.package.folder).unwrap_or(&self.path);
        inside.components().filter_map(|part| match part {
            Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
            _ => None,
        })
    }
}

/// Where the files of a file's modules lie.
fn folder_of_modules(path: &Path) -> PathBuf {
    let is_folders = ["mod.rs", "lib.rs", "main.rs"].iter().any(|name| path.ends_with(name));
    if is_folders { path.with_file_name("") } else { path.with_extension("") }
}

/// Finds files of Rust, each with the innermost package around it. Those of no package are not compiled.
fn find(folder: &Path, around: Option<&Package>, files: &mut Vec<File>) -> Result<(), LinesError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |error| LinesError::Read { path, error }
    };
    let own = package(folder).map_err(failed(folder))?;
    let package = own.as_ref().or(around);
    for entry in fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_symlink() || name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            find(&path, package, files)?;
        } else if let Some(package) = package.filter(|_| name.ends_with(".rs")) {
            files.push(File { package: package.clone(), path });
        }
    }
    Ok(())
}

/// The package whose manifest lies in a folder.
fn package(folder: &Path) -> io::Result<Option<Package>> {
    let text = match fs::read_to_string(folder.join("Cargo.toml")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let lines = text.lines().skip_while(|line| line.trim() != "[package]").skip(1);
    let mut lines = lines.take_while(|line| !line.starts_with('['));
    let name = lines.find_map(|line| line.strip_prefix("name = "));
    Ok(name.map(|name| Package { name: name.trim_matches('"').into(), folder: folder.into() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn files_are_counted_by_package_and_concern_and_tests_apart() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &[
                ("Cargo.toml", "[workspace]\n"),
                ("outside.rs", "fn nobodys() {}\n"),
                ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
                ("a/src/lib.rs", "mod part;\nmod alone;\n#[cfg(test)]\nmod model;\n"),
                ("a/src/alone.rs", "fn f() {}\n"),
                ("a/src/part.rs", "mod deep;\n#[cfg(test)]\nmod tests;\n"),
                ("a/src/part/deep.rs", "// Why.\nfn g() {}\n#[test]\nfn t() {}\n"),
                ("a/src/part/tests.rs", "fn t() {}\nmod more;\n"),
                ("a/src/part/tests/more.rs", "fn t() {}\n"),
                ("a/src/model/mod.rs", "fn m() {}\n"),
                ("a/tests/it.rs", "fn t() {\n}\n"),
                ("a/examples/e.rs", "fn main() {}\n"),
                ("a/target/built.rs", "fn b() {}\n"),
                ("a/inner/Cargo.toml", "[package]\nname = \"a-testing\"\n"),
                ("a/inner/src/lib.rs", "fn m() {}\n"),
            ],
        );
        let lines = Lines::below(folder.path()).unwrap();
        let sum = |package: &str, concern: &str| {
            let Sum { files, code, tests } = lines.0[package][concern];
            (files, code, tests)
        };
        assert_eq!(sum("a", "src"), (2, 3, 2));
        assert_eq!(sum("a", "src/part"), (4, 2, 7));
        assert_eq!(sum("a", "src/model"), (1, 0, 1));
        assert_eq!(sum("a", "tests"), (1, 0, 2));
        assert_eq!(sum("a", "examples"), (1, 1, 0));
        assert_eq!(sum("a-testing", "src"), (1, 0, 1));
        assert_eq!(lines.0.values().map(BTreeMap::len).sum::<usize>(), 6);
        let text = lines.to_string();
        assert!(text.contains("\n19 lines of Rust"), "{text}");
    }

    #[test]
    fn what_is_not_rust_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let files =
            [("Cargo.toml", "[package]\nname = \"a\"\n"), ("src/lib.rs", "fn f() {}\nfn {\n")];
        write(folder.path(), &files);
        let error = Lines::below(folder.path()).unwrap_err().to_string();
        assert!(error.contains("src/lib.rs is not Rust") && error.ends_with("line 2"), "{error}");
    }

    /// Some of this repository's own files, of which all kinds are known.
    #[test]
    fn xtask_is_counted() {
        let lines = Lines::below(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let own = &lines.0["xtask"];
        assert!(own["src/lines"].code > 100 && own["src/lines"].tests > 50, "{own:?}");
        assert!(lines.0.contains_key("guest"));
    }
}
