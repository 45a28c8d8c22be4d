//! `cargo xtask python`: the package of `python/`, built and tested in a virtual environment of its own.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::step::{StepError, root, status, step, target_dir, with_path};

/// What the tests need always, and what they need beside it.
const SHORT: [&str; 7] = [
    "maturin>=1.9,<2",
    "pytest",
    "pytest-xdist>=3",
    "numpy",
    "pandas>=2",
    "pyarrow>=17",
    "scipy>=1.11",
];
const LONG: [&str; 13] = [
    "polars",
    "duckdb",
    "mypy",
    "pandas-stubs",
    "scipy-stubs",
    "fsspec>=2024.12",
    "s3fs>=2025",
    "moto[server,s3]>=5",
    "dask[distributed]>=2024.5",
    "optuna>=5",
    "matplotlib",
    "nbclient",
    "ipykernel",
];

/// Build the package of `python/`, and run its tests in a virtual environment
///
/// It needs CPython 3.10 or later (`NEARPAGE_PYTHON` names another than `python3`) and, the first time, a package index. What is
/// missing is named in one line, and the rest is skipped: the exit status is 0 then.
#[derive(Args)]
pub struct PythonArgs {
    /// Without polars, DuckDB, mypy, Dask, S3, Optuna and the notebooks
    #[arg(long)]
    short: bool,
}

/// Builds and tests, or says what is missing.
///
/// # Errors
///
/// [`StepError`].
pub fn run(arguments: &PythonArgs) -> Result<(), StepError> {
    let python = env::var_os("NEARPAGE_PYTHON").unwrap_or_else(|| "python3".into());
    if let Some(missing) = missing(&python) {
        println!("SKIPPED: the package for Python is not tested: {missing}");
        return Ok(());
    }
    let venv = target_dir().join("python");
    let binaries = venv.join("bin");
    let inside = binaries.join("python");
    if !inside.exists() {
        step("venv", Command::new(&python).args(["-m", "venv"]).arg(&venv))?;
    }
    let mut packages = Command::new(&inside);
    packages.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries=1",
    ]);
    let wanted = wanted(arguments.short);
    packages.args(&wanted);
    if !status(&mut packages)?.success() {
        println!(
            "SKIPPED: the package for Python is not tested: pip did not get all of {} (its message is above; a package index is needed once)",
            wanted.join(", ")
        );
        return Ok(());
    }
    let mut build = Command::new(&inside);
    build.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    build.args(["--no-build-isolation", "--no-deps", "--force-reinstall"]).arg(package());
    if arguments.short {
        // The profile of tests takes half as long to compile, and crates whose features agree are there already.
        build
            .arg("--config-settings=build-args=--profile=dev")
            .env("CARGO_TARGET_DIR", target_dir());
    }
    step("the build of python/", build.env("PATH", with_path(&binaries)))?;
    // Not as a module of `python`, which would look for the package in the folder first.
    step(
        "pytest",
        Command::new(binaries.join("pytest"))
            .args(["--quiet", "-rs", "--numprocesses=auto"])
            .current_dir(package()),
    )?;
    if !arguments.short {
        step("mypy", Command::new(&inside).args(["-m", "mypy"]).current_dir(package()))?;
        let mut stubtest = Command::new(&inside);
        stubtest.args(["-m", "mypy.stubtest", "--concise", "nearpage", "--allowlist"]);
        stubtest.arg(package().join("stubtest.allow"));
        stubtest.arg("--mypy-config-file").arg(package().join("pyproject.toml"));
        // From elsewhere: it is to look at what is installed.
        step("stubtest", stubtest.current_dir(&venv))?;
    }
    Ok(())
}

/// The packages of the short form, or of both.
fn wanted(is_short: bool) -> Vec<&'static str> {
    if is_short { SHORT.to_vec() } else { [&SHORT[..], &LONG].concat() }
}

/// What there is not, and how it comes.
fn missing(python: &OsString) -> Option<String> {
    const PROBE: &str =
        "import sys, venv, ensurepip; sys.exit(0 if sys.version_info >= (3, 10) else 3)";
    let name = python.display();
    match Command::new(python).args(["-c", PROBE]).output() {
        Err(_) => Some(format!("there is no {name} (apt install python3 python3-venv)")),
        Ok(output) if output.status.success() => None,
        Ok(output) if output.status.code() == Some(3) => {
            Some(format!("{name} is older than 3.10 (NEARPAGE_PYTHON names another)"))
        }
        Ok(_) => Some(format!("{name} has no venv (apt install python3-venv)")),
    }
}

fn package() -> PathBuf {
    root().join("python")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let told = missing(&"no-such-python".into()).expect("there is none");
        assert!(told.contains("no-such-python") && told.contains("apt install"), "{told}");
        // A program that does not know Python.
        assert!(missing(&"false".into()).is_some());
    }

    #[test]
    fn what_pip_is_to_get_is_named() {
        assert!(wanted(false).contains(&"polars") && wanted(false).contains(&"pytest"));
        assert_eq!(wanted(true), SHORT);
    }
}
