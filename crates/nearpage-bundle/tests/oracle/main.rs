//! The module's experiments on real kernels, done again with the core: the same start, the same
//! operations, and what came of them compared with what the kernel answered.
//!
//! `cargo test --test oracle` takes the recordings of the project, `NEARPAGE_ORACLE=FOLDER` others of the
//! same layout. The counts of comparisons are printed past the test harness, which would swallow them.
//!
//! ```text
//! recordings   files to texts                 fields    the words of the texts
//! machine      texts to nodes and zones       lab       the core in a start state
//! text/KIND    a text to operations and answers of one kind of experiment
//! replay/KIND  operations applied to the core, answers compared (tally)
//! ```

mod canary;
mod fields;
mod lab;
mod layout;
mod machine;
mod recordings;
mod replay;
mod tally;
mod text;

use std::io::Write;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::thread;

use nearpage::Model;

use recordings::{Collection, Recording};
use tally::Tally;

/// Does an experiment of one kind again.
type Replay = fn(&Recording, &str, Model, &mut Tally) -> Result<(), String>;

fn collection() -> &'static Collection {
    static COLLECTION: OnceLock<Result<Collection, String>> = OnceLock::new();
    let read = || recordings::collection(&recordings::root());
    COLLECTION.get_or_init(read).as_ref().unwrap_or_else(|error| panic!("{error}"))
}

/// Replays all texts of one kind under the rules that `model` has for their kernels, on all CPUs.
fn tally(
    recordings: &[Recording],
    kind: &str,
    replay: Replay,
    model: impl Fn(&str) -> Result<Model, String> + Sync,
) -> Tally {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let share = |first: usize| recordings.iter().skip(first).step_by(threads);
    let model = &model;
    let mut sum = Tally::default();
    thread::scope(|scope| {
        let start = |first| scope.spawn(move || tally_of(share(first), kind, replay, model));
        let started: Vec<_> = (0..threads).map(start).collect();
        for thread in started {
            sum.add(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
    });
    sum
}

fn tally_of<'a>(
    recordings: impl Iterator<Item = &'a Recording>,
    kind: &str,
    replay: Replay,
    model: impl Fn(&str) -> Result<Model, String>,
) -> Tally {
    let mut tally = Tally::default();
    for recording in recordings {
        let Some(text) = recording.module.get(kind) else { continue };
        tally.recordings += 1;
        tally.at(&recording.name);
        let replayed =
            model(&recording.kernel).and_then(|model| replay(recording, text, model, &mut tally));
        if let Err(error) = replayed {
            tally.at(&recording.name);
            tally.unreadable(&error);
        }
    }
    tally
}

/// Replays all texts of one kind, prints the counts, and fails if there is a difference.
fn check(kind: &str, replay: Replay) {
    let tally = tally(&collection().recordings, kind, replay, lab::model);
    writeln!(std::io::stdout(), "{kind}: {tally}").expect("somebody reads the output");
    let found = tally.differences();
    assert!(found == 0, "{kind}: {found} differences:\n  {}", tally.first_differences());
    let own = std::env::var_os("NEARPAGE_ORACLE").is_none();
    assert!(tally.comparisons() > 0 || !own, "{kind}: the project has no recording of this kind");
}

#[test]
fn spill_nopcp() {
    check("spill_nopcp", replay::spill::replay);
}

#[test]
fn spill() {
    check("spill", replay::spill::replay);
}

#[test]
fn bulk() {
    check("bulk", replay::bulk::replay);
}

#[test]
fn pcp() {
    check("pcp", replay::pcp::replay);
}

#[test]
fn buddy() {
    check("buddy", replay::buddy::replay);
}

#[test]
fn buddypcp() {
    check("buddypcp", replay::buddy::replay);
}

#[test]
fn steal() {
    check("steal", replay::steal::replay);
}

#[test]
fn steal2() {
    check("steal2", replay::steal2::replay);
}

#[test]
fn rebuild() {
    check("rebuild", replay::rebuild::replay);
}

/// Nothing in a recording is passed over in silence.
#[test]
fn every_text_is_of_a_known_kind() {
    const REPLAYED: [&str; 9] =
        ["spill_nopcp", "spill", "bulk", "pcp", "buddy", "buddypcp", "steal", "steal2", "rebuild"];
    let Collection { root, missing, recordings } = collection();
    let mut out = std::io::stdout();
    writeln!(out, "{} recordings in {}", recordings.len(), root.display()).expect("as above");
    for folder in missing {
        writeln!(out, "    there is nothing in {folder}/").expect("as above");
    }
    for recording in recordings {
        for kind in recording.module.keys() {
            // `info` is the start state of the others; predicting it is another test's business.
            let known = REPLAYED.contains(&kind.as_str()) || kind.starts_with("info");
            assert!(known || kind == "times", "{}: unknown experiment {kind}", recording.name);
        }
    }
}
