//! Replays a bundle into a struct, and asks what would be different with smaller drains.
//!
//! `cargo run -p nearpage-replay --example replay [BUNDLE]`

use std::error::Error;
use std::path::Path;

use nearpage_machine::work::Unwatched;
use nearpage_replay::{Options, Replay, Report, Wish};

fn main() -> Result<(), Box<dyn Error>> {
    let replay = match std::env::args().nth(1) {
        Some(path) => Replay::open(Path::new(&path), &nearpage_machine::Budget::DEFAULT)?,
        None => Replay::shipped(),
    };
    let wish = Wish { tunables: vec!["pcp.batch_scale_max=0".parse()?], ..Wish::default() };
    let report: Report = replay.run(&Options { wish, ..Options::default() }, &Unwatched)?;

    println!("{} on Linux {}", report.bundle, report.kernel);
    println!("fidelity: {:.1} %", report.fidelity.percent.unwrap_or(0.0));
    for row in report.fidelity.rows.iter().filter(|row| row.place == "all") {
        println!("{}: predicted {:?}, recorded {:?}", row.quantity, row.predicted, row.recorded);
    }
    if let Some(what_if) = &report.what_if {
        let [now, then] = [&what_if.predicted, &what_if.what_if];
        println!("drains: {} as it is, {} with pcp.batch_scale_max=0", now.drains, then.drains);
    }
    Ok(())
}
