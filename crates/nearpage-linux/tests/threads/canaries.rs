//! Canaries: a stress of a broken storage must fail, or a stress that passes would mean nothing.
//!
//! Each runs in a process of its own, since a broken allocator may loop or crash.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nearpage::PageCount;
use nearpage::platform::{SerialStorage, Storage};
use nearpage_linux::internals::{LockedStorage, RingStorage};

use super::affinity;
use super::broken::{BrokenRings, Bug, Unlocked};
use super::pages::core;
use super::stress::{Plan, stress};

/// Names the canary that a child process is to be.
const CANARY: &str = "NEARPAGE_TEST_CANARY";
/// What the child prints if the stress passed.
const PASSED: &str = "canary: the stress passed";
/// What it prints if the stress failed as it should.
const FOUND: &str = "canary: found: ";
const PAGES: PageCount = PageCount(16_384);

fn run_canary<S: Storage + Sync + 'static>(storage: S) {
    let pages = core(storage, &affinity::allowed_cpus(), PAGES);
    match stress(&pages, &Plan::new(PAGES, 70, 1.0)) {
        Ok(figures) => println!("{PASSED}: {figures}"),
        Err(wrong) => println!("{FOUND}{wrong}"),
    }
}

/// The child process: nothing to do unless it is one.
#[test]
fn child() {
    let Ok(canary) = std::env::var(CANARY) else { return };
    let rings = || RingStorage::new().unwrap();
    let broken = |bug| BrokenRings { rings: rings(), bug };
    match canary.as_str() {
        "rings" => run_canary(rings()),
        "locks" => run_canary(LockedStorage::default()),
        "unlocked" => run_canary(SerialStorage::<Unlocked>::default()),
        "drains" => run_canary(broken(Bug::DrainsWithoutStopping)),
        "pushes" => run_canary(broken(Bug::ForgetsPushes)),
        "batches" => run_canary(broken(Bug::ForgetsBatches)),
        other => panic!("no canary {other}"),
    }
}

/// Whether a stress of this storage passed, and what the child said.
fn passes(canary: &str) -> (bool, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "canaries::child", "--nocapture"])
        .env(CANARY, canary)
        .env_remove("NEARPAGE_STRESS_SECONDS")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    // A list that leads back to itself makes a thread loop; that is a find too.
    while child.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    child.wait().unwrap();
    let mut said = String::new();
    child.stdout.unwrap().read_to_string(&mut said).unwrap();
    let line = said.lines().find(|line| line.contains("canary: ")).unwrap_or("crashed or looped");
    (line.contains(PASSED), line.to_owned())
}

#[test]
fn sound_storages_pass_and_broken_ones_do_not() {
    let have_rings = RingStorage::new().is_ok();
    for (canary, is_sound, wants_rings) in [
        ("rings", true, true),
        ("locks", true, false),
        ("unlocked", false, false),
        ("drains", false, true),
        ("pushes", false, true),
        ("batches", false, true),
    ] {
        if wants_rings && !have_rings {
            println!("{canary}: skipped, no restartable sequences");
            continue;
        }
        // A race has to happen: on a busy machine not every second has one.
        let attempts = if is_sound { 1 } else { 10 };
        let has_passed = (0..attempts).all(|_| {
            let (passed, said) = passes(canary);
            println!("{canary}: {said}");
            passed
        });
        assert_eq!(has_passed, is_sound, "{canary}");
    }
}
