//! `cargo xtask pairs`: was a what-if ever right? The same load, recorded under two settings of the same kernel, A and B. What
//! `nearpage whatif` predicts from A's recordings is set beside B's.
//!
//! ```text
//! load, setting A ── recorded N times ──> whatif --change B ──> predictions of B ──┐
//! load, setting B ── recorded N times ─────────────────────────> what B did ───────┴─> verdicts
//! ```
//!
//! Recordings of the same setting differ: how much is in each verdict (`judge`). A guest has nothing else to do, but takes longer where
//! other work shares its processors; this machine records that work, too (`record`).

mod judge;
mod list;
mod record;
mod table;

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::record::RecordError;
use crate::step::StepError;
use judge::{Figures, Judged};
use list::{PAIRS, Pair, Side};
use record::Machines;

/// Record loads under two settings of the same kernel, and compare what is predicted from one with the other
#[derive(Args)]
#[command(after_long_help = HELP)]
pub struct PairsArgs {
    /// Where recordings are kept: those that are there already are not made again
    #[arg(long, value_name = "DIR")]
    recordings: PathBuf,
    /// Where kernels were unpacked
    #[arg(long, value_name = "DIR")]
    kernels: Option<PathBuf>,
    /// Recordings of each setting
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    times: u32,
    /// Only pairs whose names have one of these parts
    #[arg(long, value_name = "PART", num_args = 1..)]
    only: Vec<String>,
    /// Write the tables to this file
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const HELP: &str = "\
Guests need QEMU (Debian's qemu-system-x86) and kernels 6.1, 6.12, 6.18 and 7.2: linux-image-VERSION-cloud-amd64-unsigned,
unpacked by `dpkg -x`, each as vmlinuz-VERSION…-amd64 in DIR. A recording there takes about a minute. The
pairs whose names begin with `host` need root and tracefs, and Linux 6.18; they change a setting of this machine for some
seconds, and take it back. What cannot be recorded is named, and the others go on.

Example:
  cargo xtask pairs --kernels /tmp/kernels --recordings /tmp/pairs --output bench/pairs.txt";

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum PairsError {
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// A guest has no recording.
    #[error("{0}")]
    Guest(#[from] RecordError),
    /// A program failed.
    #[error("{0}")]
    Step(#[from] StepError),
    /// This machine is not one that can be recorded.
    #[error("{0}")]
    Host(&'static str),
    /// A program printed something else than expected.
    #[error("{program} printed no {wanted}")]
    Printed {
        /// The program.
        program: &'static str,
        /// What was expected.
        wanted: &'static str,
    },
    /// No pair is there.
    #[error("no pair was recorded")]
    None,
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> PairsError {
    let path = path.display().to_string();
    move |error| PairsError::File { path, error }
}

/// A pair, and what came of it.
pub struct Done {
    pair: &'static Pair,
    kernel: String,
    judged: Vec<Judged>,
}

/// Runs the command.
///
/// # Errors
///
/// Nothing could be recorded, or a recording is damaged.
pub fn run(arguments: &PairsArgs) -> Result<(), PairsError> {
    let PairsArgs { recordings, kernels, times, only, output } = arguments;
    std::fs::create_dir_all(recordings).map_err(file(recordings))?;
    let machines = Machines::new(recordings, kernels.as_deref())?;
    let is_wanted = |pair: &&Pair| {
        let name = pair.name();
        only.is_empty() || only.iter().any(|part| name.contains(part))
    };
    let (mut done, mut missing) = (Vec::new(), Vec::new());
    for pair in PAIRS.iter().filter(is_wanted) {
        match recorded(pair, *times, &machines) {
            Ok(of) => {
                print!("{}", table::each(&of));
                done.push(of);
            }
            Err(error) => {
                println!("{}: not recorded: {error}", pair.name());
                missing.push((pair, error.to_string()));
            }
        }
    }
    if done.is_empty() {
        return Err(PairsError::None);
    }
    let text = table::all(&done, &missing, *times);
    match output {
        Some(path) => std::fs::write(path, text).map_err(file(path)),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

/// Records both settings in turn, so that what drifts drifts in both.
fn recorded(pair: &'static Pair, times: u32, machines: &Machines<'_>) -> Result<Done, PairsError> {
    let (mut a, mut b): (Vec<Figures>, Vec<Figures>) = Default::default();
    let mut kernel = String::new();
    for time in 0..times {
        for (side, figures) in [(Side::A, &mut a), (Side::B, &mut b)] {
            let bundle = machines.bundle(pair, side, time)?;
            let (told, of) = machines.ask(pair, &bundle, side)?;
            kernel = of;
            figures.push(told);
        }
    }
    Ok(Done { pair, kernel, judged: judge::all(&a, &b) })
}
