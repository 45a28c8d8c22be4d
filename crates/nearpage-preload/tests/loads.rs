//! Memory near what is used: programs that replace objects at random, for long.

mod common;

use std::process::Command;

use common::{compiled, library, report_of};

/// What `loads.c` tells: resident to live in thousandths, the most of it, and MiB that live, are resident, and are after a trim.
fn load(name: &str, slots: usize, turns: usize, options: &str) -> Option<[u64; 5]> {
    let program = compiled("gcc", "loads.c", "loads")?;
    let times: usize =
        std::env::var("NEARPAGE_LOADS_TIMES").map_or(1, |times| times.parse().expect("a number"));
    let (report, counted) = report_of();
    let output = Command::new(program)
        .args([name, &slots.to_string(), &(turns * times).to_string()])
        .env("LD_PRELOAD", library())
        .env("NEARPAGE_MALLOC", options)
        .env("NEARPAGE_MALLOC_REPORT", &report)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<u64> =
        text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    println!("{name}, {options:?}: {numbers:?}");
    assert!(counted(&report) >= slots as u64);
    Some(numbers.try_into().expect("five numbers"))
}

/// `NEARPAGE_LOADS_TIMES=100` replaces a hundred times as often.
#[test]
fn resident_memory_stays_near_what_lives() {
    for (name, slots, turns) in [
        ("mixed", 12_000, 200_000),
        ("middle", 400, 20_000),
        ("threads", 12_000, 200_000),
        ("cache", 400, 20_000),
    ] {
        let Some([now, _, live, full, trimmed]) = load(name, slots, turns, "") else { return };
        // Of each class a heap has few objects here: its spans are less full than where many live. A run of a second ends before all is
        // given back that will be.
        let [most, most_trimmed] = match name {
            "threads" => [155, 130],
            "mixed" => [150, 110],
            _ => [135, 110],
        };
        // The tables and what the kernel counts of the library are 4 MiB, a share that is small where much lives.
        assert!(full * 100 <= live * most + 600, "{name}: {now} thousandths, {full} of {live} MiB");
        assert!(
            trimmed * 100 <= live * most_trimmed + 600,
            "{name}: {trimmed} of {live} after a trim"
        );
    }
    // The harness can tell.
    let Some([_, _, live, full, _]) = load("mixed", 12_000, 200_000, "rss=9") else { return };
    assert!(full * 100 > live * 150 + 600, "{full} of {live} MiB");
}

#[test]
fn little_is_left_after_all_was_freed() {
    let Some([_, _, live, _, left]) = load("gone", 12_000, 12_000, "") else { return };
    assert!(live > 100 && left < 24, "{left} of {live} MiB");
}
