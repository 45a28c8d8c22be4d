//! `cargo xtask census`: instructions of the fast paths: one allocation and one free of a page and of an object, one
//! lock and one unlock of a page.
//!
//! valgrind counts what runs between the marks of `crates/nearpage-linux/examples/census.rs`. Unlike
//! nanoseconds, the counts are the same on every machine with the same processor architecture and
//! compiler, so that they show what a change adds to the fast path.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Operations between the marks of one run.
const OPERATIONS: u64 = 100_000;
/// What is counted: heads of columns, and functions of the example.
const COUNTED: [(&str, &str); 6] = [
    ("page alloc", "census_alloc"),
    ("free", "census_free"),
    ("object alloc", "census_object_alloc"),
    ("free", "census_object_free"),
    ("page lock", "census_lock"),
    ("unlock", "census_unlock"),
];
/// The allocators, by the names that the example and the benchmarks have for them.
const VARIANTS: [(&str, &str); 3] =
    [("rseq", "nearpage"), ("hardened", "nearpage-hardened"), ("locked", "nearpage-locked")];

/// Why there is no census.
#[derive(Debug, thiserror::Error)]
pub enum CensusError {
    /// valgrind is not there.
    #[error(
        "valgrind is not installed, and nothing else counts instructions everywhere; it is in the package \
         `valgrind` of every distribution (apt install valgrind)"
    )]
    NoValgrind,
    /// A program could not be run, or a file not be read.
    #[error("{what}: {error}")]
    Io {
        /// What could not.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// A program failed; it has said why on standard error.
    #[error("{program} failed")]
    Failed {
        /// The program, with its first argument.
        program: String,
    },
    /// cargo built nothing that can be run.
    #[error("cargo names no executable for the example `census`")]
    NoExecutable,
    /// valgrind wrote something else than expected.
    #[error("callgrind counted nothing in {function}: its output has no line `totals: COUNT`")]
    NoTotals {
        /// What should have been counted.
        function: &'static str,
    },
}

/// Builds the example, counts, and prints a table.
///
/// # Errors
///
/// [`CensusError`].
pub fn run() -> Result<(), CensusError> {
    let valgrind = first_line("valgrind", &["--version"]).ok_or(CensusError::NoValgrind)?;
    let example = build()?;
    let rustc = first_line("rustc", &["--version"]).unwrap_or_default();
    println!("Instructions on {}, {rustc}, {valgrind}; order 0, hot.\n", std::env::consts::ARCH);
    let heads: String = COUNTED.iter().map(|(head, _)| format!(" {head} |")).collect();
    println!("| allocator |{heads}\n|---|{}", "---|".repeat(COUNTED.len()));
    for (variant, allocator) in VARIANTS {
        let mark = instructions(&example, variant, "census_nothing")?;
        print!("| {allocator} |");
        for (_, function) in COUNTED {
            print!(" {:.1} |", instructions(&example, variant, function)? - mark);
        }
        println!();
    }
    Ok(())
}

/// The first line that a program prints, or `None` if it cannot be run.
fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

/// Builds the example; returns where it is.
fn build() -> Result<PathBuf, CensusError> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["build", "--release", "--package", "nearpage-linux", "--example", "census"]);
    command.arg("--message-format=json-render-diagnostics");
    let messages = stdout_of(&mut command)?;
    executable(&messages).ok_or(CensusError::NoExecutable)
}

/// The executable that cargo's messages name last.
fn executable(messages: &str) -> Option<PathBuf> {
    let mut named = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    named.next_back()
}

/// Instructions per call of a function of the example, those of what it calls included.
fn instructions(example: &Path, variant: &str, function: &'static str) -> Result<f64, CensusError> {
    let counts =
        tempfile::NamedTempFile::new().map_err(|error| io_error("a file for counts", error))?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--quiet", "--collect-atstart=no"]);
    command.arg(format!("--toggle-collect={function}"));
    command.arg(format!("--callgrind-out-file={}", counts.path().display()));
    command.arg(example).args([variant, &OPERATIONS.to_string()]);
    // The environment could choose another storage or other nodes.
    for variable in ["NEARPAGE_NUMA", "NEARPAGE_RSEQ", "NEARPAGE_ENV"] {
        command.env_remove(variable);
    }
    stdout_of(&mut command)?;
    let text = fs::read_to_string(counts.path()).map_err(|error| io_error("the counts", error))?;
    let total = totals(&text).ok_or(CensusError::NoTotals { function })?;
    Ok(total as f64 / OPERATIONS as f64)
}

/// The sum of what callgrind counted.
fn totals(counts: &str) -> Option<u64> {
    counts.lines().find_map(|line| line.strip_prefix("totals: "))?.trim().parse().ok()
}

/// Runs a program that must succeed; standard error is the user's.
fn stdout_of(command: &mut Command) -> Result<String, CensusError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let first = command.get_args().next().map(|argument| argument.to_string_lossy().into_owned());
    let program = format!("{name} {}", first.unwrap_or_default());
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| io_error(&program, error))?;
    if !output.status.success() {
        return Err(CensusError::Failed { program });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn io_error(what: &str, error: io::Error) -> CensusError {
    CensusError::Io { what: what.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_names_the_executable() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
                        {\"reason\":\"compiler-artifact\",\"executable\":\"/t/census\"}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/t/census")));
        assert_eq!(executable("{\"reason\":\"build-finished\"}\nnothing\n"), None);
    }

    #[test]
    fn callgrind_names_the_total() {
        let counts =
            "# callgrind format\nevents: Ir\nsummary: 7\n\nfn=(1) x\n0 7\n\ntotals: 70000000\n";
        assert_eq!(totals(counts), Some(70_000_000));
        assert_eq!(totals("summary: 7\n"), None);
        assert_eq!(totals("totals: many\n"), None);
    }

    #[test]
    fn a_program_that_fails_or_is_missing_is_an_error() {
        let failed = stdout_of(Command::new("false").arg("now")).unwrap_err();
        assert_eq!(failed.to_string(), "false now failed");
        let missing = stdout_of(&mut Command::new("no-such-program")).unwrap_err();
        assert!(matches!(missing, CensusError::Io { .. }));
        assert_eq!(first_line("no-such-program", &[]), None);
    }
}
