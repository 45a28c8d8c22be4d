//! `nearpage doctor`: what about a machine helps or hinders an allocator.

mod json;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use nearpage_machine::shown::shown;
use nearpage_machine::tree::{FileTree, FolderTree};

use super::{CommandError, environment};
use nearpage_doctor::{Facts, Finding, Level, Process, findings};
use nearpage_machine::topology::open_tree;

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
Exit status: 0 no problem, 1 at least one problem, 2 wrong usage or unreadable input. A file that cannot be
read or understood is a finding (unreadable, of level problem), and the others are judged all the same.

What is looked at: kernel.numa_balancing, vm.zone_reclaim_mode, transparent_hugepage/enabled and defrag,
vm.overcommit_memory, vm.percpu_pagelist_high_fraction, vm.max_map_count; CPUs against memory allowed
(/proc/self/status), memoryless nodes, nodes without CPUs. Of this machine also: the system calls mbind,
membarrier and move_pages, rseq, RLIMIT_AS. What a copy lacks is not judged; that it has no /proc, no size of a
node, or not both lists of /proc/self/status is a finding (missing, of level note).

JSON (--json):
  schema                 1
  source                 where the machine comes from
  problems               how many findings are of level problem
  findings[]             check, level (good, note, problem), found, meaning, advice (null if none)";

/// Why the command does not end with 0, with all findings printed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DoctorFailure {
    /// Problems were found.
    #[error("{0} {noun} found", noun = if *.0 == 1 { "problem" } else { "problems" })]
    Problems(usize),
    /// Not all could be judged: the files, and what is wrong there.
    #[error("{}", .0.join("; "))]
    Unreadable(Vec<String>),
}

impl DoctorFailure {
    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            DoctorFailure::Problems(_) => ExitCode::from(1),
            DoctorFailure::Unreadable(_) => ExitCode::from(2),
        }
    }
}

/// What every format prints.
struct Report {
    source: String,
    findings: Vec<Finding>,
    unreadable: Vec<String>,
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
        _ if !report.unreadable.is_empty() => {
            Err(DoctorFailure::Unreadable(report.unreadable).into())
        }
        0 => Ok(()),
        problems => Err(DoctorFailure::Problems(problems).into()),
    }
}

fn report(arguments: &DoctorArgs) -> Result<Report, CommandError> {
    let tree: Box<dyn FileTree> = match &arguments.sysroot {
        Some(path) => open_tree(path)?,
        None => Box::new(FolderTree::new("/")),
    };
    let mut facts = Facts::read(&*tree);
    let source = match &arguments.sysroot {
        Some(path) => shown(path).to_string(),
        None => {
            let environment =
                environment::read().map_err(|error| CommandError::Usage(error.to_string()))?;
            facts.process = Some(Process::probe(&environment));
            "this machine".into()
        }
    };
    Ok(Report { source, findings: findings(&facts), unreadable: facts.unreadable })
}
