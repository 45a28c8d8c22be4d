//! `cargo xtask soak`: the tests that take longer than a change can wait, again and again with fresh seeds.
//!
//! A round runs each step once. Steps that draw at random come again in each round, with a seed of their own that
//! comes from the seed of the soak; the others are in the first round alone. Before a step runs, its command is
//! printed: that line replays it. The soak ends when its time is up, after the step that runs then, or with the
//! first step that fails.

use std::io;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

/// Run what takes longer than CI allows, with fresh seeds, until the time is up or something fails
#[derive(Args)]
pub struct SoakArgs {
    /// How long; the step that runs then ends first
    #[arg(long, value_name = "N", default_value_t = 30)]
    minutes: u64,
    /// Where the seeds come from, to run the same steps again
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only steps whose commands contain this
    filter: Option<String>,
}

/// Why a soak ended early.
#[derive(Debug, thiserror::Error)]
pub enum SoakError {
    /// Cargo could not be run.
    #[error("cargo: {0}")]
    Cargo(#[from] io::Error),
    /// No step has the words that were asked for.
    #[error(
        "no step contains `{0}`; `cargo xtask soak --minutes 0` prints the first, and its source has all"
    )]
    NoStep(String),
    /// A step failed; it has said why.
    #[error("{status}\nreplay: {command}\nreplay the soak: cargo xtask soak --seed {seed}")]
    Failed {
        /// How the step ended.
        status: ExitStatus,
        /// What runs the step again.
        command: String,
        /// The seed of the soak.
        seed: u64,
    },
}

/// One command.
struct Step {
    /// The variable that takes the step's seed; a step without one is in the first round alone.
    seed: Option<&'static str>,
    /// What else the environment says: how much, how long.
    environment: &'static [(&'static str, &'static str)],
    /// Arguments of cargo.
    arguments: &'static str,
}

/// What there is to run. Each but the last takes some minutes at most, so that a round has all kinds.
const STEPS: [Step; 26] = [
    random(&[("NEARPAGE_SEEDS", "200")], "test -p nearpage --test random"),
    random(&[("NEARPAGE_SEEDS", "20")], "test -p nearpage-slab --test slab"),
    random(&[("NEARPAGE_SEEDS", "200")], "test -p nearpage-pagelock --test pagelock"),
    random(&[("NEARPAGE_SEEDS", "40")], "test -p nearpage --test storage"),
    random(&[], "test -p nearpage --lib buddy::"),
    random(
        &[("NEARPAGE_SCHEDULES", "500000")],
        "test -p nearpage-sim --test hunt leave_every_frame",
    ),
    random(&[("NEARPAGE_STRESS_SECONDS", "20")], "test -p nearpage-linux --test threads"),
    random(
        &[("NEARPAGE_STRESS_SECONDS", "20"), ("NEARPAGE_FORKS", "2000")],
        "test -p nearpage-linux --test slab",
    ),
    random(
        &[("NEARPAGE_HOTPLUG_SECONDS", "30"), ("NEARPAGE_FORKS", "2000")],
        "test -p nearpage-linux --test memory",
    ),
    fuzz("test -p nearpage-cli --test recorded fuzz"),
    counted(
        &[("NEARPAGE_INPUTS", "1000000")],
        "test --release -p nearpage-cli --test recorded no_damaged_input",
    ),
    counted(
        &[("NEARPAGE_INPUTS", "10000")],
        "test --release -p nearpage-cli --test recorded no_hostile_archive",
    ),
    counted(
        &[("NEARPAGE_INPUTS", "1000")],
        "test --release -p nearpage-cli --test recorded no_hostile_folder",
    ),
    counted(&[("NEARPAGE_INPUTS", "10000")], "xtask web --damaged"),
    fuzz("test -p nearpage-cli --test cli one_hostile_field"),
    fuzz("test -p nearpage-cli --test replay fuzz"),
    fuzz("test -p nearpage-kernel --lib noise"),
    random(&[("NEARPAGE_INPUTS", "100000")], "test --release -p nearpage-explain --test spliced"),
    once(&[("NEARPAGE_LOGS", "1000")], "test --release -p nearpage-explain --test transports"),
    once(
        &[("NEARPAGE_LOG_MB", "100"), ("NEARPAGE_LOG_SECONDS", "1")],
        "test --release -p nearpage-explain --test hostile memory_does_not_grow",
    ),
    once(&[("NEARPAGE_SEEDS", "12")], "test -p nearpage-linux --lib interrupted"),
    once(&[("NEARPAGE_PREEMPTIONS", "1")], "xtask loom"),
    once(&[("NEARPAGE_CHURN_HOURS", "48")], "test -p nearpage-preload --test programs churn"),
    once(&[("BOOK_SLOW", "1"), ("TRYCMD", "overwrite")], "test -p nearpage-cli --test book slow_"),
    once(&[], "run --release -- lab all"),
    // An hour: it comes last, or alone by `cargo xtask soak dist`.
    once(&[], "xtask dist --check source program deb rpm wheels crates image"),
];

const fn random(
    environment: &'static [(&'static str, &'static str)],
    arguments: &'static str,
) -> Step {
    Step { seed: Some("NEARPAGE_SEED"), environment, arguments }
}

const fn fuzz(arguments: &'static str) -> Step {
    Step {
        seed: Some("NEARPAGE_FUZZ_SEED"),
        environment: &[("NEARPAGE_FUZZ_SECONDS", "10")],
        arguments,
    }
}

/// So many damaged inputs, with the memory and the time that each takes.
const fn counted(
    environment: &'static [(&'static str, &'static str)],
    arguments: &'static str,
) -> Step {
    Step { seed: Some("NEARPAGE_FUZZ_SEED"), environment, arguments }
}

const fn once(
    environment: &'static [(&'static str, &'static str)],
    arguments: &'static str,
) -> Step {
    Step { seed: None, environment, arguments }
}

/// Runs rounds until the time is up.
///
/// # Errors
///
/// [`SoakError`].
pub fn run(arguments: &SoakArgs) -> Result<(), SoakError> {
    let begun = Instant::now();
    let time = Duration::from_secs(arguments.minutes * 60);
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    let filter = arguments.filter.as_deref().unwrap_or_default();
    println!("seed {seed}; the same again: cargo xtask soak --seed {seed}");
    let count = soak(seed, filter, || begun.elapsed() >= time, run_step)?;
    println!("{count} steps in {} s, none failed", begun.elapsed().as_secs());
    Ok(())
}

/// Runs steps until `is_over`, but one at least; returns how many.
fn soak(
    seed: u64,
    filter: &str,
    is_over: impl Fn() -> bool,
    mut run: impl FnMut(&Step, u32) -> io::Result<ExitStatus>,
) -> Result<u64, SoakError> {
    let steps: Vec<&Step> = STEPS.iter().filter(|step| step.arguments.contains(filter)).collect();
    if steps.is_empty() {
        return Err(SoakError::NoStep(filter.to_owned()));
    }
    let mut count = 0;
    for round in 0.. {
        let steps = steps.iter().filter(|step| round == 0 || step.seed.is_some());
        let before = count;
        for step in steps {
            let step_seed = mixed(seed.wrapping_add(count));
            let status = run(step, step_seed)?;
            if !status.success() {
                let command = shown(step, step_seed);
                return Err(SoakError::Failed { status, command, seed });
            }
            count += 1;
            if is_over() {
                return Ok(count);
            }
        }
        if count == before {
            break;
        }
    }
    Ok(count)
}

fn run_step(step: &Step, seed: u32) -> io::Result<ExitStatus> {
    println!("\n$ {}", shown(step, seed));
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(step.arguments.split(' ')).envs(variables(step, seed)).status()
}

/// The line of a shell that runs the step.
fn shown(step: &Step, seed: u32) -> String {
    let variables = variables(step, seed);
    let variables: String = variables.map(|(name, value)| format!("{name}={value} ")).collect();
    format!("{variables}cargo {}", step.arguments)
}

fn variables(step: &Step, seed: u32) -> impl Iterator<Item = (&'static str, String)> {
    let seed = step.seed.map(|name| (name, seed.to_string()));
    let others = step.environment.iter().map(|(name, value)| (*name, (*value).to_owned()));
    seed.into_iter().chain(others)
}

/// A number that differs from that of its neighbours. It leaves room above it: tests count up from their seed.
fn mixed(number: u64) -> u32 {
    let mixed = (number ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed >> 33) as u32
}

/// A seed that nobody chose: the time, below a million so that it is easily typed.
fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 / 1000 % 1_000_000
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    /// The commands that a soak of so many steps runs.
    fn commands(seed: u64, filter: &str, steps: usize) -> Vec<String> {
        let ran = RefCell::new(vec![]);
        let is_over = || ran.borrow().len() >= steps;
        soak(seed, filter, is_over, |step, seed| {
            ran.borrow_mut().push(shown(step, seed));
            Ok(ExitStatus::default())
        })
        .unwrap();
        ran.into_inner()
    }

    #[test]
    fn a_seed_runs_the_same_again_and_rounds_have_fresh_ones() {
        let first = commands(5, "", 2 * STEPS.len());
        assert_eq!(first, commands(5, "", 2 * STEPS.len()));
        assert_ne!(first, commands(6, "", 2 * STEPS.len()));
        let mut different = first.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), first.len(), "{first:#?}");
        let lab = first.iter().filter(|command| command.contains("lab all")).count();
        assert_eq!(lab, 1, "what has no seed runs once");
    }

    #[test]
    fn a_soak_of_steps_without_a_seed_ends() {
        assert_eq!(commands(5, "loom", 10), ["NEARPAGE_PREEMPTIONS=1 cargo xtask loom"]);
        let none = soak(5, "nothing", || false, |_, _| unreachable!()).unwrap_err();
        assert!(matches!(none, SoakError::NoStep(_)));
    }

    #[test]
    fn the_first_failure_ends_the_soak_with_what_replays_it() {
        let ran = Cell::new(0);
        let failed = soak(
            5,
            "--test",
            || false,
            |_, _| {
                ran.set(ran.get() + 1);
                Ok(ExitStatus::from_raw(if ran.get() == 2 { 101 << 8 } else { 0 }))
            },
        );
        let told = failed.unwrap_err().to_string();
        assert_eq!(ran.get(), 2);
        let replay = format!(
            "\nreplay: NEARPAGE_SEED={} NEARPAGE_SEEDS=20 cargo test -p nearpage-slab --test slab\n",
            mixed(6)
        );
        assert!(told.contains(&replay) && told.ends_with("soak --seed 5"), "{told}");
    }
}
