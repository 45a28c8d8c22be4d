//! Tests that need a process of their own: those that fork (a child may find locks of the C library taken that another
//! test's thread held just then, while it unwound), and those that ask what only a process without memories can ask.

use std::process::Command;

/// Says that a process runs one test.
const ALONE: &str = "NEARPAGE_TEST_ALONE";

/// Says that the machine is the tests' own, and they are root: settings of all of it are changed, and what needs root is not
/// skipped.
const OWN_MACHINE: &str = "NEARPAGE_OWN_MACHINE";

/// Whether the machine is the tests' own.
pub fn is_own_machine() -> bool {
    std::env::var_os(OWN_MACHINE).is_some()
}

/// Runs the body of the test with this name in a process of its own.
pub fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let (told, errors) =
        (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success() && told.contains("1 passed"), "{test}:\n{told}\n{errors}");
    print!("{told}");
}
