//! The commands: each parses its arguments, runs, and says how it went.

pub mod bench;
mod beside;
mod completions;
pub mod doctor;
mod environment;
pub mod explain;
pub mod export;
mod failure;
mod help;
mod input;
mod interrupt;
pub mod lab;
mod man;
pub mod proc;
mod progress;
pub mod record;
pub mod replay;
pub mod run;
mod snapshot;
pub mod top;
pub mod topo;
pub mod trace;
pub mod verify;
mod vmcore;
mod watched;
pub mod whatif;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{ArgMatches, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use nearpage_linux::EnvironmentError;
use nearpage_machine::escaped;
use nearpage_report::file::WriteError;
use serde::Serialize;

use crate::confined::{self, Rights};
use crate::escaping::Escaping;
use crate::memory;
use crate::{outputs, terminal};

/// Predict what Linux's page allocator does with a load, on machines that you do not have; explain what it did; run programs on another one.
#[derive(Parser, Debug)]
#[command(name = "nearpage", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Show results and errors only: no notes, no progress
    #[arg(short, long, global = true)]
    quiet: bool,

    /// Use colours on a terminal; NO_COLOR counts where this is auto
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    color: ColorChoice,
}

const EXIT_CODES: &str =
    "Exit status: 0 done, 1 the work found a failure, 2 wrong usage or unreadable input.";

#[derive(Subcommand, Debug)]
enum Command {
    Topo(topo::TopoArgs),
    Top(top::TopArgs),
    Bench(bench::BenchArgs),
    Doctor(doctor::DoctorArgs),
    Explain(explain::ExplainArgs),
    Export(export::ExportArgs),
    Proc(proc::ProcArgs),
    Lab(lab::LabArgs),
    Verify(verify::VerifyArgs),
    Replay(replay::ReplayArgs),
    Whatif(whatif::WhatIfArgs),
    Record(record::RecordArgs),
    Snapshot(snapshot::SnapshotArgs),
    Trace(trace::TraceArgs),
    Run(run::RunArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

impl Command {
    /// The rights that are enough where the input may be a stranger's file; `None` where the command is about this machine, a
    /// process or a program.
    fn rights(&self) -> Option<Rights> {
        match self {
            Command::Topo(arguments) => arguments.rights(),
            Command::Top(arguments) => arguments.rights(),
            Command::Doctor(arguments) => arguments.rights(),
            Command::Explain(arguments) => Some(arguments.rights()),
            Command::Export(arguments) => arguments.rights(),
            Command::Lab(arguments) => arguments.rights(),
            Command::Verify(arguments) => Some(arguments.rights()),
            Command::Replay(arguments) => Some(arguments.rights()),
            Command::Whatif(arguments) => Some(arguments.rights()),
            Command::Trace(arguments) => Some(arguments.rights()),
            Command::Snapshot(arguments) => arguments.rights(),
            Command::Bench(_)
            | Command::Proc(_)
            | Command::Record(_)
            | Command::Run(_)
            | Command::Completions(_)
            | Command::Man(_) => None,
        }
    }
}

/// Why a command did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The input is wrong.
    #[error(transparent)]
    Input(#[from] input::DescriptionFailure),
    /// The environment asks for what cannot be understood, or this machine cannot be read.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The options contradict each other.
    #[error("{0}")]
    Usage(String),
    /// A recording cannot be read.
    #[error(transparent)]
    Bundle(#[from] nearpage_bundle::BundleError),
    /// A recorded machine cannot be predicted.
    #[error(transparent)]
    Predict(#[from] nearpage_bundle::predict::PredictError),
    /// A bundle cannot be replayed.
    #[error(transparent)]
    Replay(#[from] replay::ReplayFailure),
    /// Nothing was recorded, or the recorded command failed.
    #[error(transparent)]
    Record(#[from] record::RecordFailure),
    /// The program could not be run, or ended with another exit code than 0.
    #[error(transparent)]
    Run(#[from] run::RunFailure),
    /// Recordings were compared: there was a difference, or one could not be read.
    #[error("{0}")]
    Verify(#[from] verify::VerifyError),
    /// Nothing, or not all, could be measured.
    #[error(transparent)]
    Bench(#[from] bench::BenchFailure),
    /// Memory is elsewhere than asked, or nobody could tell.
    #[error(transparent)]
    Placement(#[from] topo::VerifyError),
    /// A scenario cannot be read or run, or something came out as it must not.
    #[error(transparent)]
    Lab(#[from] lab::LabFailure),
    /// The machine was looked at, and something should be done.
    #[error(transparent)]
    Doctor(#[from] doctor::DoctorFailure),
    /// Metrics could not be served or written.
    #[error(transparent)]
    Export(#[from] export::ExportFailure),
    /// A timeline could not be written.
    #[error(transparent)]
    Trace(#[from] trace::TraceFailure),
    /// A process's figures could not be written.
    #[error(transparent)]
    Proc(#[from] proc::ProcFailure),
    /// A process does not serve its figures, or not to this user.
    #[error(transparent)]
    Process(#[from] nearpage_watch::ProcessError),
    /// The terminal cannot be used.
    #[error(transparent)]
    Top(#[from] nearpage_top::TopError),
    /// A recording of `top` cannot be played, or not begun.
    #[error(transparent)]
    Tape(#[from] nearpage_watch::TapeError),
    /// It ended before it should.
    #[error("recording ended: {0}")]
    Recording(nearpage_watch::TapeError),
    /// A log could not be read.
    #[error(transparent)]
    Explain(#[from] explain::ExplainFailure),
    /// The page of `--report` could not be written.
    #[error(transparent)]
    Report(#[from] WriteError),
    /// A manual page could not be written.
    #[error(transparent)]
    Man(#[from] man::ManError),
    /// The output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl From<nearpage_machine::InputError> for CommandError {
    fn from(error: nearpage_machine::InputError) -> CommandError {
        CommandError::Input(error.into())
    }
}

impl CommandError {
    fn exit_code(&self) -> u8 {
        match self {
            CommandError::Report(WriteError::Unwritten { .. })
            | CommandError::Man(_)
            | CommandError::Top(_)
            | CommandError::Recording(_)
            | CommandError::Output(_) => 1,
            CommandError::Input(_)
            | CommandError::Environment(_)
            | CommandError::Usage(_)
            | CommandError::Bundle(_)
            | CommandError::Explain(_)
            | CommandError::Predict(_)
            | CommandError::Process(_)
            | CommandError::Tape(_)
            | CommandError::Report(_) => 2,
            CommandError::Record(failure) => failure.exit_code(),
            CommandError::Run(failure) => failure.exit_code(),
            CommandError::Verify(error) => error.exit_code(),
            CommandError::Bench(error) => error.exit_code(),
            CommandError::Lab(failure) => failure.exit_code(),
            CommandError::Replay(failure) => failure.exit_code(),
            CommandError::Placement(error) => error.exit_code(),
            CommandError::Doctor(failure) => failure.exit_code(),
            CommandError::Export(failure) => failure.exit_code(),
            CommandError::Proc(failure) => failure.exit_code(),
            CommandError::Trace(failure) => failure.exit_code(),
        }
    }
}

/// Runs the program with these arguments, the first being its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let is_json = failure::wants_json(&arguments);
    let program = help::grouped(Cli::command()).color(terminal::color_of(&arguments));
    let (cli, is_limit_raised) = match parsed(program.clone(), arguments.iter().cloned()) {
        Ok(parsed) => parsed,
        Err(error) => {
            // The message quotes arguments, and scripts pass names of strangers' files: it is made anew of escaped ones.
            let shown = arguments.iter().map(|word| escaped(&word.to_string_lossy()).into_owned());
            let error = parsed(program, shown.map(OsString::from)).err().unwrap_or(error);
            return not_parsed(&error, is_json);
        }
    };
    terminal::set(cli.quiet, cli.color);
    if let Some(rights) = cli.command.rights() {
        give_up(&rights);
        // A thread that began before would keep its rights.
        if !is_limit_raised {
            let is_model =
                matches!(cli.command, Command::Lab(_) | Command::Whatif(_) | Command::Replay(_));
            memory::bound(rights.inputs(), is_model);
        }
    }
    let result = match cli.command {
        Command::Topo(arguments) => topo::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Proc(arguments) => proc::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Whatif(arguments) => whatif::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Snapshot(arguments) => snapshot::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
    };
    outputs::end();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The program that was run has said why.
        Err(CommandError::Run(run::RunFailure::Ended(code))) => ExitCode::from(code),
        Err(error) => {
            let code = error.exit_code();
            if is_json && !HAS_PRINTED.load(Ordering::Relaxed) {
                failure::print(&error, code);
            }
            terminal::error(&error);
            ExitCode::from(code)
        }
    }
}

/// Gives up what a command does not need.
fn give_up(rights: &Rights) {
    let lacking = match confined::keep(rights) {
        Ok(kept) => {
            if let Some(clerk) = kept.clerk {
                outputs::leave_to(clerk);
            }
            kept.lacking
        }
        Err(error) => Some(format!("a second process: {error}")),
    };
    if let Some(lacking) = lacking.filter(|_| !terminal::is_hidden()) {
        terminal::note(format_args!(
            "not all rights that are not needed could be given up: {lacking}"
        ));
    }
}

/// The command, and whether `--limit` is given.
fn parsed(
    program: clap::Command,
    arguments: impl Iterator<Item = OsString>,
) -> Result<(Cli, bool), clap::Error> {
    let matches = program.try_get_matches_from(arguments)?;
    let commands = std::iter::successors(Some(&matches), |of| Some(of.subcommand()?.1));
    let has_limit = |of: &ArgMatches| matches!(of.try_get_one::<u64>("limit"), Ok(Some(_)));
    let is_limit_raised = commands.into_iter().any(has_limit);
    Ok((Cli::from_arg_matches(&matches)?, is_limit_raised))
}

/// Shows help, or what is wrong with the arguments.
fn not_parsed(error: &clap::Error, is_json: bool) -> ExitCode {
    if error.use_stderr() {
        let code = error.exit_code() as u8;
        if is_json {
            failure::print(&failure::Usage::of(error), code);
        }
        // Nobody may be listening: the exit code tells all the same.
        let _ = error.print();
        return ExitCode::from(code);
    }
    match error.print().and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            terminal::error(CommandError::Output(error));
            ExitCode::from(1)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Whether somebody sees the output as it is made.
fn is_output_seen() -> bool {
    io::stdout().is_terminal()
}

/// Writes a command's output as it is made: texts of large machines have more than a gigabyte.
fn print(text: &(impl Display + ?Sized)) -> Result<(), CommandError> {
    write_output(|output| write!(output, "{text}"))
}

/// The same of a JSON document, with a newline at its end.
fn print_json(document: &impl Serialize) -> Result<(), CommandError> {
    write_output(|output| {
        serde_json::to_writer_pretty(&mut *output, document)?;
        writeln!(output)
    })
}

/// A reader that has seen enough (`| head`) is no failure.
fn write_output(
    write: impl FnOnce(&mut BufWriter<Escaping<StdoutLock<'_>>>) -> io::Result<()>,
) -> Result<(), CommandError> {
    HAS_PRINTED.store(true, Ordering::Relaxed);
    let output = Escaping::new(io::stdout().lock());
    let mut output = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, output);
    match write(&mut output).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether a result, or a part of one, is on standard output: then no document of an error may follow it.
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

/// As much as a pipe takes.
const OUTPUT_BUFFER_BYTES: usize = 64 << 10;
