//! `nearpage run`: runs a program with the malloc preloaded or under a policy, and tells what its memory did.

mod child;
mod page;
mod program;
mod report;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use nearpage_malloc::Options;

use super::CommandError;
use crate::terminal;

/// Run a program with nearpage's malloc, or under a policy, and tell what its memory did.
///
/// The malloc is preloaded into the program and its children. Each process writes what it counted when it ends. The
/// command tells it on standard error, after the program has ended, and ends with the program's exit code.
///
/// A program that is statically linked, has more rights than its user (setuid), or brings a malloc of its own runs as
/// always; no calls are counted then, and the command says why.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct RunArgs {
    /// Options of the malloc, as in NEARPAGE_MALLOC: policy=interleave,nodes=0-1,huge=transparent,hardened=1
    #[arg(short, long, default_value = "", value_name = "OPTIONS", value_parser = options)]
    options: String,

    /// Run the program with its own malloc, under the policy of the options (set_mempolicy)
    #[arg(long)]
    policy_only: bool,

    /// Print one JSON object, on standard error, instead
    #[arg(long)]
    json: bool,

    /// Write the report to this file instead of standard error
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write a page of HTML with plots over time to this file, too
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// The library to preload: by default libnearpage_preload.so beside this program, or libnearpage-malloc.so below ../lib
    #[arg(long, value_name = "FILE", conflicts_with = "policy_only")]
    library: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  nearpage run -- python3 -c 'print(1)'
  nearpage run --options hardened=1 -- sort --parallel=2 lines
  nearpage run --report redis.html -- redis-server
  nearpage run --policy-only --options policy=interleave,nodes=0-1 -- redis-server

JSON (--json): schema, command, exit_code, wall_s, cpu_s, peak_rss_kib (of its largest process; null where that cannot be
told from this command's own, which it began as a copy of), peak_rss_most_kib (no process had more), minor_faults,
pages_by_node (of the program's own process, last looked at), uncounted (why nothing was counted, or null), processes[]
(what each wrote, the largest first).

Exit status: that of the program, 128 and the number of the signal that ended it; 2 wrong usage, 126 the program cannot
be run, 127 there is no such program.";

fn options(text: &str) -> Result<String, String> {
    match Options::parse(text).1 {
        Some(wrong) => Err(wrong.to_string()),
        None => Ok(text.to_owned()),
    }
}

/// The program could not be run.
#[derive(Debug, thiserror::Error)]
pub enum RunFailure {
    /// There is no such program, or no permission to run it.
    #[error("{program}: {error}")]
    NotRun {
        /// The program.
        program: String,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// The library to preload is not there.
    #[error(
        "{0} is not there: `cargo build --release -p nearpage-preload` makes it, and --library names another place"
    )]
    NoLibrary(String),
    /// There is no place for what processes count.
    #[error(
        "no file for what processes count can be made in {folder}: {error}; TMPDIR names another folder"
    )]
    NoFile {
        /// The folder for temporary files.
        folder: String,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// No node of the policy has memory.
    #[error(
        "no node of nodes={} has memory; this machine has it on {}",
        child::node_list(*asked),
        child::node_list(*there)
    )]
    NoNode {
        /// The nodes that were named, a bit each.
        asked: u64,
        /// Those that have memory.
        there: u64,
    },
    /// The program ended with this exit code, which is not 0. It has said itself what there was to say.
    #[error("exit code {0}")]
    Ended(u8),
}

impl RunFailure {
    /// The exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            RunFailure::NotRun { error, .. } if error.kind() == std::io::ErrorKind::NotFound => 127,
            RunFailure::NotRun { .. } => 126,
            RunFailure::NoLibrary(_) | RunFailure::NoFile { .. } | RunFailure::NoNode { .. } => 2,
            RunFailure::Ended(code) => *code,
        }
    }
}

/// Runs the command.
pub fn run(arguments: &RunArgs) -> Result<(), CommandError> {
    let library = match arguments.policy_only {
        true => check_policy(&arguments.options).map(|()| None)?,
        false => Some(library(arguments)?),
    };
    let uncounted = match &library {
        Some(_) => program::why_uncounted(&arguments.command[0]),
        None if has_policy(&arguments.options) => Some("it ran under a policy only".to_owned()),
        None => Some("it ran with its own malloc, and under no policy".to_owned()),
    };
    // Checked first: a program must not run for an hour in vain.
    let checked = |file: &Option<PathBuf>| {
        file.as_deref().map(|file| super::input::page_file(file, std::iter::empty()))
    };
    let page = checked(&arguments.report).transpose()?;
    let output = checked(&arguments.output).transpose()?;
    let begun = Instant::now();
    let (command, options) = (&arguments.command, &arguments.options);
    let ended = child::run(command, options, library.as_deref(), page.is_some())?;
    let report = report::Report::new(command, &ended, begun.elapsed(), uncounted);
    if let Some(page) = page {
        page.write(&page::page(&report, &ended))?;
    }
    let text = if arguments.json {
        serde_json::to_string_pretty(&report).map_err(std::io::Error::from)? + "\n"
    } else {
        report.to_string()
    };
    match output {
        Some(file) => file.write(&text)?,
        None => terminal::report(&text),
    }
    match report.exit_code {
        0 => Ok(()),
        code => Err(RunFailure::Ended(code).into()),
    }
}

fn has_policy(options: &str) -> bool {
    options.split(',').any(|word| word.starts_with("policy="))
}

/// Where no malloc runs, options are a policy and its nodes.
fn check_policy(options: &str) -> Result<(), CommandError> {
    let expected = "expected policy=local|preferred|bind|interleave, and nodes=LIST";
    let words = || options.split(',').filter(|word| !word.is_empty());
    let is_of_policy = |word: &str| word.starts_with("policy=") || word.starts_with("nodes=");
    let problem = match words().find(|word| !is_of_policy(word)) {
        Some(word) => {
            format!(
                "--policy-only: {word} is an option of the malloc, which does not run: {expected}"
            )
        }
        None if !options.is_empty() && !has_policy(options) => {
            format!("--policy-only: nodes without a policy do nothing: {expected}")
        }
        None => return Ok(()),
    };
    Err(CommandError::Usage(problem))
}

/// The library that is preloaded.
fn library(arguments: &RunArgs) -> Result<PathBuf, RunFailure> {
    /// As it is built, and as it is installed.
    const NAME: &str = "libnearpage_preload.so";
    const INSTALLED: &str = "libnearpage-malloc.so";
    // Where distributions keep libraries.
    let multiarch = format!("../lib/{}-linux-gnu", std::env::consts::ARCH);
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.parent().map(PathBuf::from).unwrap_or_default();
    let places = match &arguments.library {
        Some(file) => vec![file.clone()],
        None => vec![
            beside.join(NAME),
            beside.join("../lib").join(INSTALLED),
            beside.join("../lib64").join(INSTALLED),
            beside.join(multiarch).join(INSTALLED),
            beside.join("deps").join(NAME),
        ],
    };
    let found = places.iter().find(|place| place.is_file());
    let missing = || RunFailure::NoLibrary(places[0].display().to_string());
    let found = found.ok_or_else(missing)?;
    std::fs::canonicalize(found).map_err(|_| missing())
}
