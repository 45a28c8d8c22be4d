//! What tests of programs share: the library of this build, programs in C, what processes counted.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The library of this build.
pub fn library() -> PathBuf {
    let deps = std::env::current_exe().expect("this test has a file");
    let library = deps.parent().expect("it lies in a folder").join("libnearpage_preload.so");
    assert!(library.exists(), "{} is not there", library.display());
    library
}

pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder")).path()
}

pub fn is_there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: {program} is not installed (apt install {program})");
    }
    found
}

/// Compiles a program of the tests; `None` without the compiler.
pub fn compiled(compiler: &str, source: &str, name: &str) -> Option<String> {
    if !is_there(compiler) {
        return None;
    }
    // Tests run side by side: each has a file of its own.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let out = folder().join(format!("{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let output = Command::new(compiler)
        .args(["-O1", "-fno-builtin", "-w", "-pthread", "-o"])
        .args([&out, &source])
        .arg("-lm")
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(out.to_str().expect("a name").to_owned())
}

/// A file for reports, and what adds their allocations.
pub fn report_of() -> (PathBuf, fn(&Path) -> u64) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    (folder().join(format!("report-{number}")), |report| {
        let lines = std::fs::read_to_string(report).unwrap_or_default();
        let counted = lines.lines().filter_map(|line| {
            let number = line.split("\"allocations\":").nth(1)?;
            number.split(',').next()?.parse::<u64>().ok()
        });
        counted.sum()
    })
}
