//! `nearpage doctor`: what about a machine helps or hinders an allocator.

mod text;

use std::path::PathBuf;

use clap::Args;
use nearpage_bundle::{BundleError, Recording, RecordingKind};
use nearpage_doctor::{Facts, Report};
use nearpage_machine::open_tree;

use super::input::{self, STANDARD_INPUT};
use super::{CommandError, environment, print, print_json, vmcore};
use crate::confined::Rights;

/// List settings of a machine that slow allocation down, and how to fix them.
///
/// Without --sysroot: this machine, with the limits and denied system calls of this process.
/// Nothing is changed.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct DoctorArgs {
    /// Read a copy of /sys and /proc, or a recording: a folder, a tar (.gz, .bz2, .xz, .zst) of one, or an oracle JSON; - is
    /// standard input
    #[arg(long, value_name = "PATH|-")]
    sysroot: Option<PathBuf>,

    /// Read an image of a kernel's memory: /proc/kcore, or an ELF dump of QEMU, libvirt or kdump
    #[arg(long, value_name = "FILE", conflicts_with = "sysroot")]
    vmcore: Option<PathBuf>,

    /// Which capture of a recording; the default is restored where there is one, else boot, or before
    #[arg(long, value_name = "NAME", requires = "sysroot")]
    capture: Option<String>,

    /// Print one JSON object; --help says what is in it
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    limit: input::Limit,
}

impl DoctorArgs {
    /// What it needs for another machine than this one.
    pub(super) fn rights(&self) -> Option<Rights> {
        let input = self.sysroot.as_ref().or(self.vmcore.as_ref())?;
        Some(Rights::default().reading([input]))
    }
}

const AFTER_HELP: &str = "\
Exit status: 0 no problem, 1 at least one problem, 2 wrong usage or unreadable input. A file that cannot be
read or understood is a finding (unreadable, of level problem), and the others are judged all the same.

What is looked at: kernel.numa_balancing, vm.zone_reclaim_mode, transparent_hugepage/enabled and defrag,
vm.overcommit_memory, vm.percpu_pagelist_high_fraction, vm.max_map_count; CPUs against memory allowed
(/proc/self/status), memoryless nodes, nodes without CPUs. Of this machine also: the system calls mbind,
membarrier and move_pages, rseq, RLIMIT_AS. What a copy lacks is not judged: each rule without its file, no /proc, no
size of a node, or not both lists of /proc/self/status is a finding (missing, of level note).

JSON (--json):
  schema                 1
  source                 where the machine comes from
  problems               how many findings are of level problem
  findings[]             check, level (good, note, problem), found, meaning, advice (null if none)
  capture                which capture of a recording was looked at; only of recordings";

/// Why the command does not end with 0, with all findings printed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DoctorFailure {
    /// Problems were found.
    #[error("{0} {noun} found", noun = if *.0 == 1 { "problem" } else { "problems" })]
    Problems(usize),
    /// Some files could not be judged: their names, and what is wrong there.
    #[error("{}", .0.join("; "))]
    Unreadable(Vec<String>),
}

impl DoctorFailure {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            DoctorFailure::Problems(_) => 1,
            DoctorFailure::Unreadable(_) => 2,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// The input is wrong, problems were found, or the output cannot be written.
pub fn run(arguments: &DoctorArgs) -> Result<(), CommandError> {
    let (report, unreadable) = report(arguments)?;
    match arguments.json {
        true => print_json(&report)?,
        false => print(&text::format(&report))?,
    }
    match report.problems {
        _ if !unreadable.is_empty() => Err(DoctorFailure::Unreadable(unreadable).into()),
        0 => Ok(()),
        problems => Err(DoctorFailure::Problems(problems).into()),
    }
}

/// The report, and the files that it leaves out because they cannot be understood.
fn report(arguments: &DoctorArgs) -> Result<(Report, Vec<String>), CommandError> {
    if let Some(path) = &arguments.vmcore {
        let facts = Facts::read(&vmcore::tree(path)?);
        return Ok((Report::new(path.to_string_lossy(), &facts), facts.unreadable));
    }
    let Some(path) = &arguments.sysroot else {
        let environment =
            environment::read().map_err(|error| CommandError::Usage(error.to_string()))?;
        let facts = Facts::of_this_machine(&environment);
        return Ok((Report::new("this machine", &facts), facts.unreadable));
    };
    let source = match input::is_standard(path) {
        true => STANDARD_INPUT.into(),
        false => path.to_string_lossy(),
    };
    let budget = arguments.limit.budget();
    match input::read_recording(path, &budget) {
        Ok(recording) => of_recording(&source, &recording, arguments.capture.as_deref()),
        // A folder may have fewer files, or have them one folder deeper.
        Err(BundleError::NoRecording { .. }) if !input::is_standard(path) => {
            let facts = Facts::read(&*open_tree(path, &budget)?);
            Ok((Report::new(source, &facts), facts.unreadable))
        }
        Err(error) => Err(error.into()),
    }
}

fn of_recording(
    source: &str,
    recording: &Recording,
    capture: Option<&str>,
) -> Result<(Report, Vec<String>), CommandError> {
    let capture = recording.capture(capture)?;
    let facts = Facts::read(&*capture.tree);
    let report = Report::new(source, &facts);
    let report = match recording.kind {
        RecordingKind::Root => report,
        RecordingKind::Bundle | RecordingKind::Oracle => report.of_capture(&capture.name),
    };
    Ok((report, facts.unreadable))
}
