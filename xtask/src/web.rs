//! `cargo xtask web`: the page of `crates/nearpage-web`, built into a folder that any file server serves, and tried in Chromium.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::step::{StepError, has_target, ran, root, step, target_dir};

/// Build the page that answers in a browser, into target/web
///
/// It needs Rust's target wasm32-unknown-unknown and the program wasm-bindgen. What is missing is named in one line, and nothing is
/// built: the exit status is 0 then.
#[derive(Args)]
pub struct WebArgs {
    /// Also try the page in Chromium, three ways at two widths, beside the command's JSON: needs chromium and node; pictures are in
    /// target/web-test
    #[arg(long)]
    test: bool,
    /// Test with a trace of 100 MB instead of 20 MB, and judge times: minutes
    #[arg(long, requires = "test")]
    long: bool,
    /// Also hand damaged files to the page's worker in node: none may end the compiled libraries. NEARPAGE_INPUTS says how many
    /// (500), NEARPAGE_FUZZ_SEED which
    #[arg(long)]
    damaged: bool,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// A step was not done.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// It takes too long to load.
    #[error("the page has {bytes} bytes when packed, at most {BYTES_MOST} are promised")]
    TooLarge {
        /// Without recordings.
        bytes: usize,
    },
}

/// What a browser loads before it can answer, packed by gzip.
const BYTES_MOST: usize = 1_500_000;
const TARGET: &str = "wasm32-unknown-unknown";
const MODULE: &str = "nearpage_web";
/// Inputs to look at, by the names that the page has for them.
const EXAMPLES: [(&str, &str); 3] = [
    ("two-sockets.numactl", "docs/src/examples/two-sockets.numactl"),
    ("refused.log", "crates/nearpage-explain/tests/reports/6.12/lowmem-reserve-order3.log"),
    ("q612-n2-mixed.tar.zst", "crates/nearpage-replay/bundles/q612-n2-mixed.tar.zst"),
];

/// What is damaged, by kind: files, and folders of them.
const WHOLES: [(&str, &str); 11] = [
    ("machine", "docs/src/examples/two-sockets.numactl"),
    ("machine", "docs/src/examples/memoryless.machine"),
    ("machine", "crates/nearpage-machine/src/hwloc/data"),
    ("log", "crates/nearpage-explain/tests/reports/6.1"),
    ("log", "crates/nearpage-explain/tests/reports/public"),
    ("trace", "crates/nearpage-trace/tests/binary/trace-v6.dat"),
    ("trace", "crates/nearpage-trace/tests/binary/trace-v7.dat"),
    ("trace", "crates/nearpage-trace/tests/binary/trace-v7.txt.zst"),
    ("trace", "crates/nearpage-trace/tests/binary/perf.data.zst"),
    ("trace", "crates/nearpage-trace/tests/binary/perf.txt.zst"),
    ("recording", "bundles/q612-n2-state.tar.zst"),
];

/// Builds the page, or says what is missing.
///
/// # Errors
///
/// [`WebError`].
pub fn run(arguments: &WebArgs) -> Result<(), WebError> {
    if let Some(missing) = missing() {
        println!("SKIPPED: the page is not built: {missing}");
        return Ok(());
    }
    let folder = target_dir().join("web");
    build(&folder)?;
    let bytes = sizes(&folder)?;
    if bytes > BYTES_MOST {
        return Err(WebError::TooLarge { bytes });
    }
    if arguments.damaged {
        damaged(&folder)?;
    }
    if arguments.test {
        test(&folder, arguments.long)?;
    }
    Ok(())
}

fn build(folder: &Path) -> Result<(), WebError> {
    let mut compile = Command::new(env!("CARGO"));
    compile.args(["build", "--quiet", "--package", "nearpage-web", "--profile", "web"]);
    step(
        "the build",
        compile
            .args(["--target", TARGET])
            .arg("--target-dir")
            .arg(target_dir())
            .current_dir(root()),
    )?;
    let _ = fs::remove_dir_all(folder);
    let compiled = target_dir().join(TARGET).join("web").join(MODULE).with_extension("wasm");
    let mut bind = Command::new("wasm-bindgen");
    bind.args(["--target", "web", "--no-typescript", "--remove-name-section"]);
    bind.args(["--out-name", MODULE, "--out-dir"]);
    step("wasm-bindgen", bind.arg(folder).arg(compiled))?;
    copy_all(&root().join("crates/nearpage-web/page"), folder)?;
    // What pages of reports have within them: this page has no policy for what stands inline.
    copy_all(&root().join("crates/nearpage-report/src/script"), folder)?;
    for (name, from) in EXAMPLES {
        copy(&root().join(from), &folder.join("examples").join(name))?;
    }
    Ok(())
}

/// Tells the size of each file as it is and packed; the sum of those that are loaded first.
fn sizes(folder: &Path) -> Result<usize, WebError> {
    let mut all = 0;
    let entries = fs::read_dir(folder).map_err(failed(folder))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    for path in files {
        let content = fs::read(&path).map_err(failed(&path))?;
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        let packed =
            packed.write_all(&content).and_then(|()| packed.finish()).map_err(failed(&path))?.len();
        let name = path.file_name().unwrap_or_default().display();
        println!("{name:<22} {:>9} bytes, {packed:>8} by gzip", content.len());
        all += packed;
    }
    println!("{}: {all} bytes by gzip, without examples", folder.display());
    Ok(all)
}

fn test(folder: &Path, is_long: bool) -> Result<(), WebError> {
    if !has("chromium", "chromium", "the page is not tried") || !has_node("the page is not tried") {
        return Ok(());
    }
    let out = target_dir().join("web-test");
    fs::create_dir_all(&out).map_err(failed(&out))?;
    // What the command prints of the same inputs, by the same names.
    let examples = folder.join("examples");
    let command = |name: &str, words: &[&str]| -> Result<(), WebError> {
        let mut command = Command::new(env!("CARGO"));
        command.args(["run", "--quiet", "--package", "nearpage-cli", "--manifest-path"]);
        command.arg(root().join("Cargo.toml")).arg("--").args(words).current_dir(&examples);
        let output = command.output().map_err(ran(&command))?;
        if !output.status.success() {
            let _ = io::stderr().write_all(&output.stderr);
            return Err(StepError::Failed { step: "nearpage", status: output.status }.into());
        }
        let path = out.join(name);
        fs::write(&path, output.stdout).map_err(failed(&path))
    };
    let (machine, log, bundle) = (EXAMPLES[0].0, EXAMPLES[1].0, EXAMPLES[2].0);
    let topo = ["topo", "--topology", machine, "--model", "linux-6.18", "--json"];
    command("topo.json", &topo)?;
    command("topo-set.json", &[&topo[..], &["--set", "vm.watermark_scale_factor=200"]].concat())?;
    command("explain.json", &["explain", "--json", log])?;
    command("replay.json", &["replay", bundle, "--json"])?;
    command(
        "replay-set.json",
        &["replay", bundle, "--json", "--set", "pcp.batch_scale_max=0", "--model", "linux-6.1"],
    )?;
    let other = "--numa 2G,cpus=0-3 --numa 0,cpus=4-7 --numa 2G";
    command(
        "replay-machine.json",
        &["replay", bundle, "--json", "--topology", other, "--map-cpus", "round-robin"],
    )?;
    let script = root().join("crates/nearpage-web/tests/browser.mjs");
    let megabytes = if is_long { "100" } else { "20" };
    let mut node = Command::new("node");
    node.arg(script).arg(folder).arg(&out).arg(megabytes);
    Ok(step("the test in Chromium", &mut node)?)
}

/// Hands damaged files to the page's worker, where there is no browser.
fn damaged(folder: &Path) -> Result<(), WebError> {
    if !has_node("damaged files are not tried") {
        return Ok(());
    }
    let wholes = tempfile::tempdir().map_err(failed(folder))?;
    gather(wholes.path())?;
    let script = root().join("crates/nearpage-web/tests/damaged.mjs");
    let mut node = Command::new("node");
    node.arg(script).arg(folder).arg(wholes.path()).arg(target_dir().join("web-damaged"));
    Ok(step("damaged files", &mut node)?)
}

/// Puts what is to be damaged into a folder, a folder for each kind.
fn gather(folder: &Path) -> Result<(), WebError> {
    for (kind, from) in WHOLES {
        let from = root().join(from);
        let to = folder.join(kind);
        if from.is_dir() {
            copy_all(&from, &to)?;
            continue;
        }
        copy(&from, &to.join(from.file_name().unwrap_or_default()))?;
        // Damage to what is packed seldom gets further than to what unpacks it.
        if from.extension().is_some_and(|extension| extension == "zst") {
            let packed = fs::File::open(&from).map_err(failed(&from))?;
            let unpacked = ruzstd::decoding::StreamingDecoder::new(packed)
                .map_err(|error| failed(&from)(io::Error::other(error)));
            let to = to.join(from.file_stem().unwrap_or_default());
            let mut file = fs::File::create(&to).map_err(failed(&to))?;
            io::copy(&mut unpacked?, &mut file).map_err(failed(&to))?;
        }
    }
    Ok(())
}

fn has_node(what_not: &str) -> bool {
    has("node", "nodejs", what_not)
}

/// Whether a program runs; a line says what is not done without it.
fn has(program: &str, package: &str, what_not: &str) -> bool {
    let is_there = answers(program);
    if !is_there {
        println!("SKIPPED: {what_not}: there is no {program} (apt install {package})");
    }
    is_there
}

/// What there is not, and how it comes.
fn missing() -> Option<String> {
    if !has_target(TARGET) {
        return Some(format!("there is no target {TARGET} (rustup target add {TARGET})"));
    }
    let wanted = locked("wasm-bindgen")?;
    let found = Command::new("wasm-bindgen").arg("--version").output().ok();
    let found = found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match found {
        Some(found) if found.ends_with(&wanted) => None,
        found => {
            let found = found.map_or("is not installed".into(), |found| format!("is {found}"));
            Some(format!(
                "wasm-bindgen {found}, expected {wanted} (cargo install wasm-bindgen-cli --version {wanted})"
            ))
        }
    }
}

/// The version of a crate that is built: its program and it must be the same.
fn locked(name: &str) -> Option<String> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).ok()?;
    let mut lines = lock.lines().skip_while(|line| *line != format!("name = \"{name}\""));
    Some(lines.nth(1)?.strip_prefix("version = \"")?.trim_end_matches('"').to_owned())
}

fn answers(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn copy_all(from: &Path, to: &Path) -> Result<(), WebError> {
    for entry in fs::read_dir(from).map_err(failed(from))?.flatten() {
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), WebError> {
    let folder = to.parent().unwrap_or(to);
    fs::create_dir_all(folder).map_err(failed(folder))?;
    fs::copy(from, to).map(|_| ()).map_err(failed(from))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> WebError {
    let path = path.display().to_string();
    move |error| WebError::File { path: path.clone(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_lock_file() {
        let version = locked("wasm-bindgen").expect("it is locked");
        assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{version}");
        assert_eq!(locked("no-such-crate"), None);
    }

    #[test]
    fn what_is_damaged_is_there_packed_and_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        gather(folder.path()).unwrap();
        let recordings = folder.path().join("recording");
        let of = |name: &str| fs::metadata(recordings.join(name)).unwrap().len();
        assert!(of("q612-n2-state.tar") > of("q612-n2-state.tar.zst"));
        assert!(fs::read_dir(folder.path().join("log")).unwrap().count() > 50);
        assert!(folder.path().join("trace/perf.data").is_file());
    }

    #[test]
    fn examples_are_where_they_are_taken_from() {
        for (name, from) in EXAMPLES {
            assert!(root().join(from).is_file(), "{name}");
        }
        let page = fs::read_to_string(root().join("crates/nearpage-web/page/main.js")).unwrap();
        assert!(EXAMPLES.iter().all(|(name, _)| page.contains(&format!("'{name}'"))));
    }
}
