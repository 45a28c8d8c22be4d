//! `cargo xtask programs`: real programs under nearpage's malloc and under others, the table of the book.
//!
//! A *row* is a program with its work (`rows`), a *column* is a malloc (`mallocs`). Each round runs a row under every column
//! in turn, so that what disturbs the machine disturbs all of them; figures are ratios of the same round (`figures`).

mod figures;
mod inputs;
mod mallocs;
mod rows;
mod saved;
mod table;
mod trial;

use std::io;
use std::path::PathBuf;
use std::process::Command;

use figures::Measured;
use inputs::Inputs;
use mallocs::Malloc;
use rows::{ROWS, Row};
use saved::Saved;
use trial::{Ran, Trial, TrialError};

use crate::step::{root, target_dir};

#[derive(clap::Args)]
/// Run real programs under nearpage's malloc and others, and print the table of the book
///
/// Columns are the C library's malloc, mimalloc, jemalloc and tcmalloc (libmimalloc2.0, libjemalloc2,
/// libtcmalloc-minimal4), mimalloc once more, which shows what chance does, and nearpage. What is not installed is named
/// and left out. Every program must print what it prints under the C library's malloc, and nearpage's counters must show
/// its allocations. It also runs once with `hardened=1` and once with `fake=4`.
///
/// With --watch the columns are nearpage's malloc under all that a row starts, the same once more, which shows what chance
/// does, and the same watched by `nearpage run --report`; the time of the watcher itself counts.
///
/// Exit status: 0, or 1 if a program did not do what it does under the C library's malloc.
pub struct ProgramsArgs {
    /// Timed rounds of each row: 15 for figures that mean something
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only these rows: names, or parts of names
    #[arg(long, value_name = "NAME", num_args = 1..)]
    only: Vec<String>,
    /// python3, sort and our six programs, one round of nearpage alone: less than a minute
    #[arg(long)]
    short: bool,
    /// What it costs to watch: nearpage's malloc alone, once more, and watched by `nearpage run --report`
    #[arg(long, conflicts_with = "short")]
    watch: bool,
    /// Write each row's rounds to this file as soon as they are measured, and take rows from it that it has already: of the
    /// same columns, the same nearpage and as many rounds. A table that was broken off goes on there
    #[arg(long, value_name = "FILE", conflicts_with = "short")]
    resume: Option<PathBuf>,
    /// Print the rows and what each needs, and run nothing
    #[arg(long)]
    list: bool,
}

#[derive(thiserror::Error, Debug)]
pub enum ProgramsError {
    #[error("{what}: {error}")]
    Io { what: String, error: io::Error },
    #[error("{0}")]
    Trial(#[from] TrialError),
    #[error("no row has a name with {0:?}; --list prints them")]
    NoRow(String),
    #[error("nearpage's malloc, or nearpage itself, did not build")]
    NotBuilt,
    #[error("{0} did not do what they do under the C library's malloc")]
    Wrong(String),
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> ProgramsError {
    let what = what.into();
    move |error| ProgramsError::Io { what, error }
}

pub fn run(arguments: &ProgramsArgs) -> Result<(), ProgramsError> {
    let rows = chosen(arguments)?;
    if arguments.list {
        print!("{}", table::rows(&rows));
        return Ok(());
    }
    let profile = if arguments.short { "release" } else { "library" };
    // Beside the program, whose crates CI has by now: a package alone would get them with other features.
    let beside = if arguments.short { &["nearpage-cli", "nearpage-machine"][..] } else { &[] };
    let library = build(profile, &[&["nearpage-preload"], beside].concat(), inputs::LIBRARY)?;
    let inputs = Inputs::new(&library)?;
    let mallocs = match arguments.watch {
        true => mallocs::watched(&inputs, &build("release", &["nearpage-cli"], "nearpage")?),
        false => mallocs::installed(&inputs, arguments.short),
    };
    let open = |path: &PathBuf| {
        Saved::open(path, &mallocs, &library).map_err(failed(path.display().to_string()))
    };
    let saved = arguments.resume.as_ref().map(open).transpose()?;
    let mut measured = Vec::new();
    let mut wrong = Vec::new();
    for row in rows {
        if let Some(missing) = row.missing() {
            println!(
                "SKIPPED: {}: {} is not installed (apt install {})",
                row.name, missing.program, missing.package
            );
            continue;
        }
        let rounds = if arguments.short || !row.is_timed { 0 } else { arguments.rounds };
        if let Some(row) = saved.as_ref().and_then(|saved| saved.find(row, rounds)) {
            println!("{} (measured before)", table::progress(&row));
            measured.push(row);
            continue;
        }
        inputs.prepare(row)?;
        let trial = Trial::new(row, &inputs)?;
        // Who watches, or does not, has one mode.
        let modes = if arguments.watch { &[][..] } else { &MODES };
        match measure(&trial, &mallocs, rounds, modes)? {
            Ok(row) => {
                println!("{}", table::progress(&row));
                if let Some(saved) = &saved {
                    saved.add(&row).map_err(failed("the file of --resume"))?;
                }
                measured.push(row);
            }
            Err(why) => {
                println!("WRONG: {}: {why}", row.name);
                wrong.push(row.name);
            }
        }
    }
    if arguments.watch {
        print!("{}", table::watched(&mallocs, &measured, arguments.rounds));
    } else if !arguments.short {
        print!("{}", table::text(&mallocs, &measured, arguments.rounds));
    }
    if wrong.is_empty() { Ok(()) } else { Err(ProgramsError::Wrong(wrong.join(", "))) }
}

fn chosen(arguments: &ProgramsArgs) -> Result<Vec<&'static Row>, ProgramsError> {
    let is_named = |row: &Row, name: &String| row.name.contains(name.as_str());
    if let Some(name) =
        arguments.only.iter().find(|name| !ROWS.iter().any(|row| is_named(row, name)))
    {
        return Err(ProgramsError::NoRow(name.clone()));
    }
    let is_wanted = |row: &&Row| {
        (arguments.only.is_empty() || arguments.only.iter().any(|name| is_named(row, name)))
            && (!arguments.short || row.is_short)
    };
    Ok(ROWS.iter().filter(is_wanted).collect())
}

/// Builds what is measured; returns its file. `library` is what is handed out; `release` builds sooner.
fn build(profile: &str, packages: &[&str], file: &str) -> Result<PathBuf, ProgramsError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--profile", profile])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .current_dir(root())
        .status()
        .map_err(failed("cargo build"))?;
    let built = target_dir().join(profile).join(file);
    if status.success() && built.is_file() { Ok(built) } else { Err(ProgramsError::NotBuilt) }
}

/// Modes of nearpage, and their options.
const MODES: [(&str, &str); 3] = [("", ""), ("hardened", "hardened=1"), ("fake", "fake=4")];

/// Runs a row: first for what it prints, in each of some modes of nearpage, then in rounds. The inner error says what was wrong.
fn measure(
    trial: &Trial<'_>,
    mallocs: &[Malloc],
    rounds: u32,
    modes: &[(&str, &str)],
) -> Result<Result<Measured, String>, ProgramsError> {
    let expected = trial.run(&mallocs[0], "")?;
    if let Some(why) = expected.failure() {
        return Ok(Err(format!("under the C library's malloc: {why}")));
    }
    let nearpage = mallocs.iter().find(|malloc| malloc.is_nearpage).unwrap_or(&mallocs[0]);
    let mut measured = Measured::new(trial.row, mallocs.len());
    for &(mode, options) in modes {
        let ran = trial.run(nearpage, options)?;
        if let Some(why) =
            ran.failure().or_else(|| ran.differs_from(&expected)).or_else(|| trial.uncounted(&ran))
        {
            return Ok(Err(format!(
                "under {}: {why}",
                if options.is_empty() { "nearpage" } else { options }
            )));
        }
        measured.note_mode(mode, &ran, &expected);
    }
    Ok(time(trial, mallocs, rounds, &expected, &mut measured)?.map_or(Ok(measured), Err))
}

/// Adds rounds; returns what was wrong, if something was.
fn time(
    trial: &Trial<'_>,
    mallocs: &[Malloc],
    rounds: u32,
    expected: &Ran,
    measured: &mut Measured,
) -> Result<Option<String>, ProgramsError> {
    for round in 0..rounds as usize {
        let mut of_round = Vec::new();
        for turn in 0..mallocs.len() {
            // Another one begins each time: who comes first meets what the one before left in caches.
            let at = (turn + round) % mallocs.len();
            let ran = trial.run(&mallocs[at], "")?;
            if let Some(why) = ran.failure().or_else(|| ran.differs_from(expected)) {
                return Ok(Some(format!("under {}, round {round}: {why}", mallocs[at].name)));
            }
            of_round.push((at, ran));
        }
        of_round.sort_by_key(|(at, _)| *at);
        measured.add_round(of_round.into_iter().map(|(_, ran)| ran));
    }
    Ok(None)
}
