//! The mallocs: columns of the table.

use std::path::{Path, PathBuf};

use super::inputs::Inputs;

/// The library of nearpage's malloc.
pub(super) const LIBRARY: &str = "libnearpage_preload.so";

/// A malloc that programs run under.
pub(super) struct Malloc {
    pub name: &'static str,
    /// What is preloaded; the C library itself where it is the C library's malloc.
    pub library: PathBuf,
    pub is_nearpage: bool,
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
    let mut mallocs = vec![Malloc { name: "glibc", library: libc, is_nearpage: false }];
    for (name, file, package) in OTHERS.iter().filter(|_| !is_short) {
        match found(file) {
            Some(library) => mallocs.push(Malloc { name, library, is_nearpage: false }),
            None => println!("SKIPPED: {name}: {file} is not installed (apt install {package})"),
        }
    }
    mallocs.push(Malloc { name: "nearpage", library: inputs.library(), is_nearpage: true });
    mallocs
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
