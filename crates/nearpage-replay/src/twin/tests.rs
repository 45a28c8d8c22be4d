use std::ops::ControlFlow;

use nearpage_machine::work::Unwatched;

use super::*;
use crate::Options;

fn twin(wish: &TwinWish) -> (tempfile::TempDir, Replay, Played) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twin");
    let played = write_twin(&Replay::shipped(), wish, &path, &Unwatched).unwrap();
    let replay = Replay::open(&path, &nearpage_machine::Budget::DEFAULT).unwrap();
    (folder, replay, played)
}

fn profile(replay: &Replay) -> Profile {
    Profile::of(replay, &Unwatched).unwrap()
}

#[test]
fn a_twin_of_the_same_size_is_near_the_recording() {
    let (_folder, twin, played) = twin(&TwinWish { seed: 7, ..TwinWish::default() });
    let (recorded, made) = (profile(&Replay::shipped()), profile(&twin));
    let apart = recorded.distance(&made);
    assert!(apart.rates < 0.3 && apart.orders < 0.05 && apart.types < 0.1, "{apart:?}");
    assert!(
        apart.lifetimes < 0.15 && apart.freed_elsewhere < 0.1 && apart.bursts < 0.7,
        "{apart:?}"
    );
    assert_eq!((played.left_out, played.reclaimed), (0, 0), "{played:?}");
    assert_eq!(made.cpus, 4);
    // The canary: what ignores lifetimes, or has other orders, is far.
    let mut other = made.clone();
    (other.lifetimes[0], other.lifetimes[8]) = (other.lifetimes[8] + 0.5, 0.0);
    assert!(recorded.distance(&other).lifetimes > 0.2);
}

#[test]
fn a_replay_takes_it_as_it_takes_a_recording() {
    let wish =
        TwinWish { cpus: Some(16), nodes: Some(4), seconds: Some(15.0), ..TwinWish::default() };
    let (_folder, twin, played) = twin(&wish);
    let report = twin.run(&Options::default(), &Unwatched).unwrap();
    assert_eq!(
        (report.machine.topology.nodes.len(), report.kernel.as_str()),
        (4, "6.12.95+deb12-amd64")
    );
    let cpus: usize = report.machine.topology.nodes.iter().map(|node| node.cpus.len()).sum();
    assert_eq!(cpus, 16);
    assert_eq!(report.trace.allocs, played.allocs);
    assert_eq!(report.trace.frees, played.frees);
    let recorded = profile(&Replay::shipped());
    let made = profile(&twin);
    assert!((14.0..15.1).contains(&made.seconds), "{made:?}");
    assert!(
        (made.allocs_per_cpu_second / recorded.allocs_per_cpu_second).ln().abs() < 0.3,
        "{made:?}"
    );
    assert!(report.lacks_flows && report.fidelity.percent.is_none());
}

#[test]
fn no_block_is_allocated_twice_nor_freed_twice() {
    let (_folder, twin, _) =
        twin(&TwinWish { cpus: Some(6), seconds: Some(15.0), ..TwinWish::default() });
    let mut live = std::collections::HashSet::new();
    let mut last = 0;
    let mut old = 0_u64;
    twin.bundle()
        .events(&Unwatched, |event| {
            assert!(event.time_ns >= last, "by time");
            last = event.time_ns;
            match event.event {
                nearpage_trace::Event::Alloc { pfn: Some(pfn), order, .. } => {
                    (0..order.pages().0).for_each(|page| assert!(live.insert(pfn.0 + page)));
                }
                nearpage_trace::Event::Free { pfn, order } => {
                    let freed =
                        (0..order.pages().0).filter(|page| live.remove(&(pfn.0 + page))).count();
                    assert!(freed == 0 || freed as u64 == order.pages().0);
                    old += u64::from(freed == 0);
                }
                _ => {}
            }
            Ok(())
        })
        .unwrap();
    assert!(old < 5000, "{old}");
}

#[test]
fn a_seed_makes_the_same_bytes() {
    let wish = TwinWish { cpus: Some(8), seconds: Some(2.0), seed: 3, ..TwinWish::default() };
    let trace = |wish: &TwinWish| {
        let (folder, _, _) = twin(wish);
        std::fs::read(folder.path().join("twin/trace.txt.gz")).unwrap()
    };
    let first = trace(&wish);
    assert!(first == trace(&wish));
    assert!(first != trace(&TwinWish { seed: 4, ..wish }));
}

#[test]
fn full_memory_reclaims_what_stayed() {
    // A load that keeps what it allocates, for longer than there is memory.
    let wish = TwinWish { seconds: Some(300.0), cpus: Some(1), ..TwinWish::default() };
    let (_folder, twin, played) = twin(&wish);
    assert!(played.left_out == 0, "{played:?}");
    let report = twin.run(&Options::default(), &Unwatched).unwrap();
    assert_eq!(report.trace.lost_frees, 0);
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twin");
    let refused = |wish: TwinWish| {
        write_twin(&Replay::shipped(), &wish, &path, &Unwatched).unwrap_err().to_string()
    };
    let none = TwinWish::default();
    assert!(
        refused(TwinWish { nodes: Some(3), ..none })
            .contains("no twin has 3 nodes, expected a multiple of its 2")
    );
    assert!(refused(TwinWish { cpus: Some(0), ..none }).contains("expected 1 to 8192"));
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(refused(TwinWish { seconds: Some(seconds), ..none }).contains("up to 31 days"));
        assert!(refused(TwinWish { stretch_seconds: Some(seconds), ..none }).contains("a stretch"));
    }
    let stop = |done: u64, all: u64| match all > 0 && done * 4 < all * 3 {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    let stopped =
        write_twin(&Replay::shipped(), &TwinWish { seconds: Some(100.0), ..none }, &path, &stop);
    assert!(matches!(stopped, Err(ReplayError::Stopped(_))), "{stopped:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    std::fs::create_dir(&path).unwrap();
    assert!(refused(none).contains("it is there already"));
}
