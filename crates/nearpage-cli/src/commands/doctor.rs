//! `nearpage doctor`: what about a machine helps or hinders an allocator.

mod json;
mod text;

use std::path::PathBuf;

use clap::Args;
use nearpage_linux::environment::Environment;
use nearpage_linux::tree::{FileTree, FolderTree};

use super::CommandError;
use crate::doctor::{Facts, Finding, Level, Process, findings};
use crate::topology::open_tree;

/// Say what about a machine helps or hinders an allocator, and what to do.
///
/// Without --sysroot: this machine, with the limits and denied system calls of this process.
/// Nothing is changed.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct DoctorArgs {
    /// Read a copy of /sys and /proc: a folder, or a tar (.gz, .bz2, .zst) of one
    #[arg(long, value_name = "PATH")]
    sysroot: Option<PathBuf>,

    /// Print one JSON object; --help says what is in it
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Exit status: 0 no problem, 1 at least one problem, 2 wrong usage or unreadable input.

What is looked at: kernel.numa_balancing, vm.zone_reclaim_mode, transparent_hugepage/enabled and defrag,
vm.overcommit_memory, vm.percpu_pagelist_high_fraction, vm.max_map_count; CPUs against memory allowed
(/proc/self/status), memoryless nodes, nodes without CPUs. Of this machine also: the system calls mbind,
membarrier and move_pages, rseq, RLIMIT_AS. What a copy lacks is not judged.

JSON (--json):
  schema                 1
  source                 where the machine comes from
  problems               how many findings are of level problem
  findings[]             check, level (good, note, problem), found, meaning, advice (null if none)";

/// Problems were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} {noun} found", noun = if *.0 == 1 { "problem" } else { "problems" })]
pub struct ProblemsFound(usize);

/// What every format prints.
struct Report {
    source: String,
    findings: Vec<Finding>,
}

impl Report {
    fn problems(&self) -> usize {
        self.findings.iter().filter(|finding| finding.level == Level::Problem).count()
    }
}

/// Runs the command.
///
/// # Errors
///
/// The input is wrong, problems were found, or the output cannot be written.
pub fn run(arguments: &DoctorArgs) -> Result<(), CommandError> {
    let report = report(arguments)?;
    super::print(&if arguments.json { json::format(&report) } else { text::format(&report) })?;
    match report.problems() {
        0 => Ok(()),
        problems => Err(ProblemsFound(problems).into()),
    }
}

fn report(arguments: &DoctorArgs) -> Result<Report, CommandError> {
    let tree: Box<dyn FileTree> = match &arguments.sysroot {
        Some(path) => open_tree(path)?,
        None => Box::new(FolderTree::new("/")),
    };
    let mut facts = Facts::read(&*tree).map_err(crate::topology::InputError::Sysfs)?;
    let source = match &arguments.sysroot {
        Some(path) => path.display().to_string(),
        None => {
            let environment =
                Environment::read().map_err(|error| CommandError::Usage(error.to_string()))?;
            facts.process = Some(Process::probe(&environment));
            "this machine".into()
        }
    };
    Ok(Report { source, findings: findings(&facts) })
}
