//! Unnamed files, for what is too long for memory.

use std::fs::File;
use std::io;
use std::sync::OnceLock;

/// Makes an unnamed file.
pub type MakeFile = fn() -> io::Result<File>;

static MAKE: OnceLock<MakeFile> = OnceLock::new();

/// An unnamed file in the folder for temporary files ([`std::env::temp_dir`]), or of whoever makes them for this process.
///
/// # Errors
///
/// None can be made.
pub fn scratch_file() -> io::Result<File> {
    MAKE.get().map_or_else(tempfile::tempfile, |make| make())
}

/// From now on this makes the unnamed files of the process, which may have given up the right to do so itself. The first call counts.
pub fn make_scratch_files_by(make: MakeFile) {
    let _ = MAKE.set(make);
}
