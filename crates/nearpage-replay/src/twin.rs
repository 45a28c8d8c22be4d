//! Statistical twins: a made-up load on a made-up machine, after a recorded one, with more CPUs, nodes or hours.
//!
//! # How it is made
//!
//! The recording is cut into stretches. Each group of CPUs, a copy of the recorded ones, plays them one after the other, shuffled; then it
//! cuts elsewhere, and plays them in another order (a block bootstrap of time series, Künsch 1989, without replacement: a twin as long as
//! the recording has as much of everything). All CPUs of a group play the same stretch, so that what passes between them does. A block lives as long as the recorded one did, beyond the end of a stretch too, and is freed by the
//! same CPU of the group and the same task.
//!
//! A block that was still there at the end of the recording **stays**. The recording also frees blocks that nobody saw being allocated; in
//! the twin such a free takes the one of its zone and order that has stayed longest. When the twin's memory is full, what has stayed longest
//! goes as if it were reclaimed, and is counted ([`Played::reclaimed`]).
//!
//! # What is kept, and what is lost
//!
//! Kept, by construction: rates of each CPU, orders, migratetypes, flags, lifetimes, who frees, and bursts that are shorter than a stretch.
//! Lost: what happens at longer times than a stretch (phases of a load are shuffled, and groups are independent of each other), what the
//! recorded kernel did (refills, drains, waits: there was no kernel), the frames of blocks, and flows between groups. Watermarks grow with
//! memory, where a kernel's grow with its square root. [`Profile`] has what is kept as figures, and [`Profile::distance`] compares a twin
//! with a second recording.

mod frames;
mod machine;
mod play;
mod profile;
mod source;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use nearpage_machine::shown;
use nearpage_machine::work::{Observer, Stopped};

pub use play::Played;
pub use profile::{Distance, LIFETIMES_NS, Profile, SLICES_NS};

use crate::error::ReplayError;
use crate::replay::Replay;
use crate::survey::Survey;
use crate::watch::Watch;
use machine::TwinMachine;
use play::{Course, play};
use source::Source;

/// What a twin is to be like. What is `None` is as recorded.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct TwinWish {
    /// CPUs; as recorded for each copy of the nodes if there is nothing else asked for.
    pub cpus: Option<u32>,
    /// Nodes: a multiple of the recorded ones.
    pub nodes: Option<u32>,
    /// Length of the trace in seconds.
    pub seconds: Option<f64>,
    /// Length of a stretch in seconds: an eighth of the recording by default, and no more than 2 s.
    pub stretch_seconds: Option<f64>,
    /// Of all that is drawn.
    pub seed: u64,
}

/// The most CPUs and nodes of a twin.
const CPUS_MOST: u32 = 1 << 13;
const NODES_MOST: u32 = 1 << 10;
/// Stretches of a recording.
const STRETCHES_MOST: u64 = 1 << 20;
/// The longest twin: a month.
const SECONDS_MOST: f64 = 31.0 * 86_400.0;

/// Writes a twin as a bundle, a folder that [`Replay::open`] takes. It is there wholly or not at all; a folder that is there is refused.
///
/// The recorded window is kept in memory, some 60 bytes an event, and so are the blocks that are live; the twin's events are not. The
/// observer is told what is done of what there is to do.
///
/// ```
/// use nearpage_machine::work::Unwatched;
/// use nearpage_replay::Replay;
/// use nearpage_replay::twin::{TwinWish, write_twin};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("twin");
/// let wish = TwinWish { cpus: Some(8), seconds: Some(1.0), ..TwinWish::default() };
/// let played = write_twin(&Replay::shipped(), &wish, &path, &Unwatched)?;
/// let twin = Replay::open(&path, &nearpage_machine::Budget::DEFAULT)?;
/// println!("{} blocks allocated by 8 CPUs of {}", played.allocs, twin.bundle().name());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The bundle cannot be read, there can be no such twin, or it cannot be written; [`ReplayError::Stopped`].
pub fn write_twin(
    replay: &Replay,
    wish: &TwinWish,
    folder: &Path,
    observer: &dyn Observer,
) -> Result<Played, ReplayError> {
    let unwritten =
        |error: io::Error| ReplayError::Unwritten { output: shown(folder).to_string(), error };
    size(replay, wish)?;
    if fs::symlink_metadata(folder).is_ok() {
        return Err(unwritten(io::Error::new(io::ErrorKind::AlreadyExists, "it is there already")));
    }
    let near = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let made = tempfile::Builder::new()
        .prefix(".twin")
        .tempdir_in(near.unwrap_or(Path::new(".")))
        .map_err(unwritten)?;
    fs::create_dir(made.path().join("before")).map_err(unwritten)?;
    let create = |name: &str| File::create(made.path().join(name));
    let played = write_twin_files(replay, wish, folder, &create, observer)?;
    fs::rename(made.path(), folder).map_err(unwritten)?;
    // It is where it belongs.
    let _ = made.keep();
    Ok(played)
}

/// As [`write_twin`], into files that `create` makes by their names in a folder, some of them in its folder `before`. The
/// path of the folder is for messages.
///
/// # Errors
///
/// As there.
pub fn write_twin_files(
    replay: &Replay,
    wish: &TwinWish,
    folder: &Path,
    create: &Create<'_>,
    observer: &dyn Observer,
) -> Result<Played, ReplayError> {
    let unwritten =
        |error: io::Error| ReplayError::Unwritten { output: shown(folder).to_string(), error };
    let (bundle, start) = (replay.bundle(), replay.start());
    let (copies, cpus) = size(replay, wish)?;
    // The two passes over the recording are the smaller half of the work.
    let half = |done: u64, all: u64| observer.progress(done, all.saturating_mul(2));
    let watch = Watch::new(&half, bundle.pass_bytes(), 2);
    let survey = Survey::of(bundle, start, &watch)?;
    let source = Source::read(bundle, start, &survey, &watch)?;
    let machine = TwinMachine::new(start, copies, cpus);
    let recorded = source.span_ns as f64 / 1e9;
    let seconds = wish.seconds.unwrap_or(recorded);
    let stretch = wish.stretch_seconds.unwrap_or((recorded / 8.0).min(2.0)).min(recorded);
    let stretches = ((recorded / stretch).round() as u64).clamp(1, STRETCHES_MOST);
    let course = Course {
        begin_ns: survey.begin_ns,
        span_ns: (seconds * 1e9) as u64,
        stretch_ns: source.span_ns.div_ceil(stretches).max(1),
        seed: wish.seed,
    };
    write_captures(replay, &machine, create).map_err(unwritten)?;
    let played = write_trace(create, |out| {
        let other_half = |done: u64, all: u64| {
            observer.progress(all.saturating_add(done), all.saturating_mul(2))
        };
        play(&source, &machine, start, course, out, &other_half)
    });
    let played = match played {
        // Whoever asked for the end is the reason for any error.
        Err(_) if observer.progress(0, 0).is_break() => return Err(Stopped.into()),
        played => played.map_err(unwritten)?,
    };
    write_meta(replay, &machine, wish, &played, create).map_err(unwritten)?;
    Ok(played)
}

/// Copies of the nodes, and CPUs.
fn size(replay: &Replay, wish: &TwinWish) -> Result<(usize, usize), ReplayError> {
    let recorded = &replay.start().topology.nodes;
    let own_cpus = recorded.iter().map(|node| node.cpus.len()).sum::<usize>();
    let wrong = |what: String, expected: String| ReplayError::Twin {
        input: replay.bundle().name().into(),
        what,
        expected,
    };
    let nodes = wish.nodes.unwrap_or(recorded.len() as u32);
    if nodes == 0 || nodes > NODES_MOST || !(nodes as usize).is_multiple_of(recorded.len()) {
        let expected = format!("a multiple of its {} up to {NODES_MOST}", recorded.len());
        return Err(wrong(format!("{nodes} nodes"), expected));
    }
    let copies = nodes as usize / recorded.len();
    let cpus = wish.cpus.unwrap_or((own_cpus * copies) as u32);
    if cpus == 0 || cpus > CPUS_MOST || own_cpus == 0 {
        return Err(wrong(
            format!("{cpus} CPUs"),
            format!("1 to {CPUS_MOST} of a machine with CPUs"),
        ));
    }
    for (name, seconds) in [("long", wish.seconds), ("a stretch", wish.stretch_seconds)] {
        if let Some(seconds) =
            seconds.filter(|seconds| !(*seconds > 0.0 && *seconds <= SECONDS_MOST))
        {
            return Err(wrong(
                format!("{seconds} s {name}"),
                "more than 0 s, up to 31 days".into(),
            ));
        }
    }
    Ok((copies, cpus as usize))
}

/// Makes a file by its name.
pub type Create<'c> = dyn Fn(&str) -> io::Result<File> + 'c;

fn write_captures(replay: &Replay, machine: &TwinMachine, create: &Create<'_>) -> io::Result<()> {
    let start = replay.start();
    let settings = format!("vm.watermark_boost_factor = {}\n", start.boost_factor);
    for (name, text) in [
        ("before/zoneinfo", machine.zoneinfo(start)),
        ("before/buddyinfo", machine.buddyinfo(start)),
        ("before/pagetypeinfo", machine.pagetypeinfo(start)),
        ("before/sysfs", machine.sysfs(start)),
        ("before/sysctl", settings),
    ] {
        create(name)?.write_all(text.as_bytes())?;
    }
    Ok(())
}

fn write_trace(
    create: &Create<'_>,
    play: impl FnOnce(&mut dyn Write) -> io::Result<Played>,
) -> io::Result<Played> {
    let file = create("trace.txt.gz")?;
    let packed = flate2::write::GzEncoder::new(BufWriter::new(file), flate2::Compression::fast());
    let mut out = BufWriter::with_capacity(1 << 16, packed);
    out.write_all(b"# tracer: nop\n")?;
    let played = play(&mut out)?;
    let packed = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    packed.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(played)
}

/// What `meta.json` of a twin says.
#[derive(serde::Serialize)]
struct Meta<'m> {
    format: &'static str,
    name: String,
    note: String,
    kernel: &'m str,
    page_size: u64,
    clock: &'static str,
    cpus: usize,
    nodes: usize,
    lost_events: u64,
    seed: u64,
    twin_of: &'m str,
    played: Played,
}

fn write_meta(
    replay: &Replay,
    machine: &TwinMachine,
    wish: &TwinWish,
    played: &Played,
    create: &Create<'_>,
) -> io::Result<()> {
    let bundle = replay.bundle();
    let short = bundle.name().trim_end_matches('/').rsplit('/').next().unwrap_or("bundle");
    let short = short.split_once(".tar").map_or(short, |(stem, _)| stem);
    let meta = Meta {
        format: "nearpage-bundle 1",
        name: format!("twin-of-{short}"),
        note: "made up after a recording: no kernel ran".into(),
        kernel: &bundle.recording().kernel,
        page_size: 1 << replay.start().page_shift,
        clock: "mono",
        cpus: machine.cpus.len(),
        nodes: machine.nodes(),
        lost_events: 0,
        seed: wish.seed,
        twin_of: short,
        played: *played,
    };
    let text = serde_json::to_string_pretty(&meta)? + "\n";
    create("meta.json")?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests;
