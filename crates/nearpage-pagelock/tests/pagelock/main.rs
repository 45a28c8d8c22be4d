//! Page locks beside naive ones: many threads, played by one, on random machines under all rules. Each call must
//! answer what the naive lock says, wake whom it says in the order that it says, and count what it counts. Memory goes
//! offline and comes back meanwhile.
//!
//! ```sh
//! NEARPAGE_SEED=17 cargo test -p nearpage-pagelock --test pagelock -- --nocapture
//! ```
//!
//! `NEARPAGE_SEEDS=2000` runs that many seeds of 50 000 operations instead of the usual 200.
//! Both together run so many from that seed on.

mod machine;
mod naive;
mod play;

use std::panic::catch_unwind;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[test]
fn page_locks_do_what_naive_locks_do() {
    let seeds = match number("NEARPAGE_SEED") {
        Some(seed) => seed..seed + number("NEARPAGE_SEEDS").unwrap_or(1),
        None => 0..number("NEARPAGE_SEEDS").unwrap_or(if cfg!(miri) { 2 } else { 200 }),
    };
    let mut all = play::Tally::default();
    for seed in seeds {
        match catch_unwind(|| machine::run(seed)) {
            Ok(tally) => all.add(&tally),
            Err(_) => panic!(
                "replay: NEARPAGE_SEED={seed} cargo test -p nearpage-pagelock --test pagelock -- --nocapture"
            ),
        }
    }
    println!("{all:#?}");
}

/// What a default run must have met.
#[test]
#[cfg_attr(miri, ignore = "Miri's machines and runs are too small for it")]
fn the_comparison_meets_all_cases() {
    let mut all = play::Tally::default();
    (0..6).for_each(|seed| all.add(&machine::run(1000 + seed)));
    let met = [all.waits, all.hand_overs, all.timeouts, all.drops, all.collisions, all.late];
    assert!(met.iter().all(|count| *count > 0), "{all:#?}");
    let met = [all.from_other_nodes, all.refused_frees, all.misuses, all.bit_waits, all.freed];
    assert!(met.iter().all(|count| *count > 0), "{all:#?}");
    let met = [all.departures, all.arrivals, all.refused_departures];
    assert!(met.iter().all(|count| *count > 0), "{all:#?}");
}
