//! Rules of your own, judged over recordings before a kernel has them.
//!
//! `cargo run --release -p nearpage-replay --example own_rules -- [BUNDLE]...`; without one, over the recording that is built in.
//!
//! The rules are those of Linux 6.18 but for three decisions: how many pages move at once, how many a CPU may keep, and how many
//! a drain gives back. Change the functions, and run it again.

use std::env;
use std::error::Error;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

use nearpage::rules::pagesets::{DrainSize, SizeRule, Sizes, Tuning, ZoneShare};
use nearpage::{Model, PageCount};
use nearpage_machine::work::Unwatched;
use nearpage_replay::Replay;
use nearpage_replay::rules::{RuleRow, compare_rules};

// ANCHOR: rules
/// Half of Linux's batch. A CPU keeps at most its share of a 64th of the zone, and never less than four batches.
fn sizes(zone: ZoneShare, of_linux: Sizes) -> Sizes {
    let batch = PageCount((of_linux.batch.0 / 2).max(1));
    let share = PageCount(zone.managed.0 / 64 / u64::from(zone.cpus.max(1)));
    let high_min = of_linux.high_min.max(PageCount(4 * batch.0));
    Sizes { batch, high_min, high_max: share.max(high_min) }
}

/// A drain gives back half of what was freed in a row, where Linux gives back all.
fn drain(state: &Tuning) -> PageCount {
    PageCount(state.free_count.0 / 2)
}

/// What the three come to.
fn mine() -> Model {
    Model::LINUX_6_18.with(|model| {
        model.name = "patched";
        model.pcp.sizes = SizeRule::Own(sizes);
        model.pcp.drain = DrainSize::Own(drain);
    })
}
// ANCHOR_END: rules

fn main() -> ExitCode {
    match compare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("own_rules: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare() -> Result<(), Box<dyn Error>> {
    let open = |path: String| {
        Replay::open(Path::new(&path), &nearpage_machine::Budget::DEFAULT)
            .map_err(|error| format!("{path}: {error}"))
    };
    let mut replays = env::args().skip(1).map(open).collect::<Result<Vec<Replay>, _>>()?;
    if replays.is_empty() {
        replays.push(Replay::shipped());
    }
    let models = [mine(), Model::NEARPAGE];
    let compared = compare_rules(&replays, &models, NonZeroUsize::MIN, &Unwatched)?;

    println!("bundle            rules         holds  longest   fewest     kept  to the bound");
    for row in &compared.rows {
        let RuleRow { bundle, model, holds, longest_hold_operations: longest, .. } = row;
        let RuleRow { fewest, kept_pages_mean: kept, bound_ratio: ratio, .. } = row;
        println!(
            "{bundle:<17} {model:<10} {holds:>8} {longest:>8} {fewest:>8} {kept:>8.0} {ratio:>13.2}"
        );
    }
    println!("\nWhat nearpage's own rules must reach, against linux-6.18; a patch need not:");
    for must in &compared.musts {
        let said = if must.is_met { "met" } else { "missed" };
        println!("{:<10} {:?} {}: {said}", must.model, must.figure, must.must);
    }
    Ok(())
}
