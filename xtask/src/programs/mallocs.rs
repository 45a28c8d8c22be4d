//! The mallocs: columns of the table.

use std::path::{Path, PathBuf};

use super::inputs::Inputs;

/// A malloc that programs run under.
pub(super) struct Malloc {
    pub name: &'static str,
    /// What is preloaded; the C library itself where it is the C library's malloc.
    pub library: PathBuf,
    pub is_nearpage: bool,
    /// How the whole script runs.
    pub way: Way,
}

/// How a script runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// The malloc is under the programs that the row is about.
    Named,
    /// It is under the shell too, and under all that it starts, as `nearpage run` has it.
    All,
    /// So it is, and this program watches: `nearpage run --report`.
    Watched(PathBuf),
}

/// Others: names, files, and packages of Debian.
const OTHERS: [(&str, &str, &str); 4] = [
    ("mimalloc", "libmimalloc.so.2", "libmimalloc2.0"),
    ("jemalloc", "libjemalloc.so.2", "libjemalloc2"),
    ("tcmalloc", "libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
    // The null column: what differs from the first mimalloc is chance.
    ("mimalloc again", "libmimalloc.so.2", "libmimalloc2.0"),
];

/// The column with the same malloc as another one has.
pub(super) const AGAIN: &str = "mimalloc again";

/// The mallocs that are here, the C library's first, nearpage's last. Tells which are not.
pub(super) fn installed(inputs: &Inputs, is_short: bool) -> Vec<Malloc> {
    // Preloaded too: Debian's redis brings jemalloc, and the C library's malloc must come before it.
    let libc = found("libc.so.6").unwrap_or_default();
    let mut mallocs =
        vec![Malloc { name: "glibc", library: libc, is_nearpage: false, way: Way::Named }];
    for (name, file, package) in OTHERS.iter().filter(|_| !is_short) {
        match found(file) {
            Some(library) => {
                mallocs.push(Malloc { name, library, is_nearpage: false, way: Way::Named });
            }
            None => println!("SKIPPED: {name}: {file} is not installed (apt install {package})"),
        }
    }
    mallocs.push(nearpage(inputs, "nearpage", Way::Named));
    mallocs
}

/// nearpage's malloc alone, once more, and watched by `program`.
pub(super) fn watched(inputs: &Inputs, program: &Path) -> Vec<Malloc> {
    vec![
        nearpage(inputs, "nearpage", Way::All),
        nearpage(inputs, "nearpage again", Way::All),
        nearpage(inputs, "watched", Way::Watched(program.to_owned())),
    ]
}

fn nearpage(inputs: &Inputs, name: &'static str, way: Way) -> Malloc {
    Malloc { name, library: inputs.library(), is_nearpage: true, way }
}

fn found(file: &str) -> Option<PathBuf> {
    let architecture = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folders = ["/usr/lib", "/lib", "/usr/lib64", "/usr/local/lib"];
    let places = folders.iter().flat_map(|folder| {
        let folder = Path::new(folder);
        [folder.join(&architecture).join(file), folder.join(file)]
    });
    places.into_iter().find(|place| place.is_file())
}
