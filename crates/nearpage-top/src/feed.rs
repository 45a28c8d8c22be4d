//! Where samples come from: a machine now, or a recording.

use std::io;
use std::time::{Duration, Instant};

use nearpage_watch::{Sample, Sampler, Tape, TapeWriter, Traffic, marks};

use crate::shown::Past;

/// Lines that somebody makes while panes are shown.
pub type Lines = Box<dyn FnMut() -> Vec<String>>;

/// Samples for [`run`](crate::run), live or played.
pub struct Feed {
    source: Source,
    past: Past,
    before: Option<Sample>,
    now: Sample,
    advice: Option<(Lines, Instant)>,
    program: Option<Lines>,
    /// Whether pagesets are those of this machine's kernel, and who counts what they move.
    may_count: bool,
    traffic: Option<Traffic>,
}

enum Source {
    Live { sampler: Box<Sampler>, tape: Recorder },
    Played { tape: Box<Tape>, at: usize },
}

/// Whether samples are recorded.
enum Recorder {
    No,
    To(Box<TapeWriter>),
    /// It ended with an error, which stays on the screen.
    Ended(String),
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("time_ms", &self.now.time_ms).finish_non_exhaustive()
    }
}

/// How often settings are judged anew.
const ADVICE_HOLDS: Duration = Duration::from_secs(60);
/// Samples before a place that tell since when something has been wrong there.
const RUN_UP: usize = 600;

impl Feed {
    /// A machine, from now on.
    pub fn live(mut sampler: Sampler) -> Feed {
        let now = sampler.sample();
        let source = Source::Live { sampler: Box::new(sampler), tape: Recorder::No };
        Feed::of(source, now)
    }

    /// A recording, from its first sample on.
    pub fn play(mut tape: Tape) -> Feed {
        let now = tape.sample(0);
        Feed::of(Source::Played { tape: Box::new(tape), at: 0 }, now)
    }

    fn of(source: Source, now: Sample) -> Feed {
        let past = Past::default();
        let (advice, program, traffic) = (None, None, None);
        let mut feed =
            Feed { source, past, before: None, now, advice, program, may_count: false, traffic };
        feed.follow();
        feed
    }

    /// The same, recorded. A tape that can no longer be written ends the recording, not the panes, which say so.
    #[must_use]
    pub fn recorded(mut self, writer: TapeWriter) -> Feed {
        if let Source::Live { tape, .. } = &mut self.source {
            *tape = Recorder::To(Box::new(writer));
        }
        self.record();
        self
    }

    /// The same, with lines of whoever judges settings, which are made anew each minute.
    #[must_use]
    pub fn with_advice(mut self, mut advice: Lines) -> Feed {
        self.past.advice = advice();
        self.advice = Some((advice, Instant::now()));
        self
    }

    /// The same, with lines about the allocator of a process, made for each sample.
    #[must_use]
    pub fn with_program(mut self, mut program: Lines) -> Feed {
        self.past.program = Some(program());
        self.program = Some(program);
        self
    }

    /// The same, of this machine: where its kernel allows it, refills and drains of pagesets are counted while their pane
    /// is shown.
    #[must_use]
    pub fn with_traffic(mut self) -> Feed {
        self.may_count = true;
        self
    }

    /// Begins to count what pagesets move, or ends it.
    pub(crate) fn count_traffic(&mut self, is_wanted: bool) {
        if !self.may_count || is_wanted == self.past.traffic.is_some() {
            return;
        }
        (self.traffic, self.past.traffic) = (None, None);
        if is_wanted {
            let pagesets = self.now.zones.iter().flat_map(|zone| &zone.pagesets);
            let mut cpus: Vec<u32> = pagesets.map(|pageset| pageset.cpu).collect();
            cpus.sort_unstable();
            cpus.dedup();
            let opened = Traffic::open(&cpus);
            // Rates come with the next sample.
            self.past.traffic = Some(opened.as_ref().map(|_| Vec::new()).map_err(io_text));
            self.traffic = opened.ok();
        }
    }

    pub(crate) fn before(&self) -> Option<&Sample> {
        self.before.as_ref()
    }

    pub(crate) fn now(&self) -> &Sample {
        &self.now
    }

    pub(crate) fn past(&self) -> &Past {
        &self.past
    }

    pub(crate) fn is_played(&self) -> bool {
        matches!(self.source, Source::Played { .. })
    }

    /// What is said beside the time; `speed` is how fast it is played.
    pub(crate) fn status(&self, speed: f64) -> String {
        match &self.source {
            Source::Live { tape: Recorder::No, .. } => String::new(),
            Source::Live { tape: Recorder::To(_), .. } => "recording".into(),
            Source::Live { tape: Recorder::Ended(why), .. } => format!("recording ended: {why}"),
            Source::Played { tape, at } => {
                let end = if at + 1 == tape.len() { ", the end" } else { "" };
                format!("sample {} of {}{end}  speed {speed}", at + 1, tape.len())
            }
        }
    }

    /// The time from this sample to the next, if it is played and there is one.
    pub(crate) fn gap(&self) -> Option<Duration> {
        let Source::Played { tape, at } = &self.source else { return None };
        (at + 1 < tape.len()).then(|| {
            let ms = tape.time_ms(at + 1).saturating_sub(tape.time_ms(*at));
            // A machine that slept is not waited for.
            Duration::from_millis(ms.min(10_000))
        })
    }

    /// Goes to the next sample. The last of a recording stays.
    pub(crate) fn advance(&mut self) {
        let next = match &mut self.source {
            Source::Live { sampler, .. } => sampler.sample(),
            Source::Played { tape, at } if *at + 1 < tape.len() => {
                *at += 1;
                tape.sample(*at)
            }
            Source::Played { .. } => return,
        };
        self.before = Some(std::mem::replace(&mut self.now, next));
        self.follow();
        self.record();
        if let Some((advice, made)) = &mut self.advice
            && made.elapsed() >= ADVICE_HOLDS
        {
            (self.past.advice, *made) = (advice(), Instant::now());
        }
        if let Some(traffic) = &mut self.traffic {
            self.past.traffic = Some(Ok(traffic.rates()));
        }
        if let Some(program) = &mut self.program {
            self.past.program = Some(program());
        }
    }

    /// Reads the placement of a process for the sample on the screen.
    pub(crate) fn want_process(&mut self, pid: u32) {
        if let Source::Live { sampler, .. } = &mut self.source {
            sampler.want_process(pid);
        }
    }

    /// Reads free blocks by type, once.
    pub(crate) fn want_types(&mut self) {
        if let Source::Live { sampler, .. } = &self.source {
            let types = sampler.type_blocks().map_err(|error| io_text(&error));
            self.past.types = Some((self.now.time_ms, types));
        }
    }

    /// Goes this many samples back or forth, as far as there are any.
    pub(crate) fn seek(&mut self, steps: i64) {
        let Source::Played { tape, at } = &self.source else { return };
        let steps =
            isize::try_from(steps).unwrap_or(if steps < 0 { isize::MIN } else { isize::MAX });
        let to = at.saturating_add_signed(steps).min(tape.len() - 1);
        self.go(to);
    }

    /// Goes to the nearest sample after this one, or before it, at which something begins to be wrong.
    pub(crate) fn seek_mark(&mut self, way: Way) {
        let Source::Played { tape, at } = &mut self.source else { return };
        let (first, last) = match way {
            Way::On => (*at, tape.len() - 1),
            Way::Back => (0, at.saturating_sub(1)),
        };
        let words = |before: Option<&Sample>, now: &Sample| -> Vec<_> {
            let marks = marks(before, now).into_iter();
            marks.map(|mark| (mark.word, mark.node, mark.zone)).collect()
        };
        let mut old = tape.sample(first);
        let mut had = words(None, &old);
        let mut found = None;
        for at in first + 1..=last {
            let now = tape.sample(at);
            let has = words(Some(&old), &now);
            if has.iter().any(|mark| !had.contains(mark)) {
                found = Some(at);
                if way == Way::On {
                    break;
                }
            }
            (old, had) = (now, has);
        }
        if let Some(found) = found {
            self.go(found);
        }
    }

    fn go(&mut self, to: usize) {
        let Source::Played { tape, at } = &mut self.source else { return };
        *at = to;
        let first = to.saturating_sub(RUN_UP);
        (self.past.history, self.past.trends) = Default::default();
        let mut before = None;
        for near in first..to {
            let now = tape.sample(near);
            self.past.follow(&now, &marks(before.as_ref(), &now));
            before = Some(now);
        }
        self.now = tape.sample(to);
        self.before = before;
        self.follow();
    }

    fn follow(&mut self) {
        let marks = marks(self.before.as_ref(), &self.now);
        self.past.follow(&self.now, &marks);
    }

    fn record(&mut self) {
        if let Source::Live { tape, .. } = &mut self.source
            && let Recorder::To(writer) = tape
            && let Err(error) = writer.append(&self.now)
        {
            *tape = Recorder::Ended(error.to_string());
        }
    }
}

fn io_text(error: &io::Error) -> String {
    error.to_string()
}

/// A direction in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    On,
    Back,
}

#[cfg(test)]
mod tests {
    use nearpage_machine::MemoryTree;
    use nearpage_watch::ZoneSample;

    use super::*;

    /// Five minutes, in which a zone is below its mark from the second minute on to the third.
    fn tape(folder: &std::path::Path) -> Tape {
        let path = folder.join("tape");
        let mut writer = TapeWriter::open(&path, None, None, "a box").unwrap();
        for second in 0..300 {
            let zone = ZoneSample {
                zone: "Normal".into(),
                free: Some(if (60..180).contains(&second) { 150 } else { 5000 }),
                min: Some(100),
                low: Some(200),
                high: Some(300),
                managed: Some(10_000),
                ..ZoneSample::default()
            };
            let time_ms = second * 1000;
            writer.append(&Sample { time_ms, zones: vec![zone], ..Sample::default() }).unwrap();
        }
        Tape::open(&path).unwrap()
    }

    #[test]
    fn a_recording_is_played_and_sought() {
        let folder = tempfile::tempdir().unwrap();
        let mut feed = Feed::play(tape(folder.path()));
        assert_eq!(feed.status(1.0), "sample 1 of 300  speed 1");
        assert_eq!((feed.now().time_ms, feed.gap()), (0, Some(Duration::from_secs(1))));
        feed.advance();
        assert_eq!((feed.now().time_ms, feed.before().unwrap().time_ms), (1000, 0));
        feed.seek_mark(Way::On);
        assert_eq!(feed.now().time_ms, 60_000);
        // There is no other one.
        feed.seek_mark(Way::On);
        assert_eq!(feed.now().time_ms, 60_000);
        feed.seek(40);
        let mark = marks(feed.before(), feed.now()).remove(0);
        assert_eq!((mark.word, feed.past().history.age_ms(&mark)), ("reclaiming", 40_000));
        feed.seek_mark(Way::Back);
        assert_eq!(feed.now().time_ms, 60_000);
        feed.seek(i64::MAX);
        assert_eq!(feed.status(2.0), "sample 300 of 300, the end  speed 2");
        assert_eq!(feed.gap(), None);
        feed.advance();
        assert_eq!(feed.now().time_ms, 299_000);
        feed.seek(i64::MIN);
        assert_eq!((feed.now().time_ms, feed.before()), (0, None));
        assert_eq!(feed.past().history.changes().count(), 0);
    }

    #[test]
    fn a_machine_is_recorded_with_lines_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tape");
        let sampler = Sampler::new(Box::new(MemoryTree::new("empty")));
        let writer = TapeWriter::open(&path, None, None, "").unwrap();
        let mut turns = 0;
        let mut feed = Feed::live(sampler)
            .recorded(writer)
            .with_advice(Box::new(|| vec!["advice".into()]))
            .with_program(Box::new(move || {
                turns += 1;
                vec![turns.to_string()]
            }));
        (0..4).for_each(|_| feed.advance());
        assert_eq!(Tape::open(&path).unwrap().len(), 5);
        assert_eq!(feed.past().advice, ["advice"]);
        assert_eq!(feed.past().program, Some(vec!["5".into()]));
        assert_eq!((feed.status(1.0).as_str(), feed.is_played()), ("recording", false));
        // Nothing happens to what is live.
        feed.seek(-3);
        feed.seek_mark(Way::On);
        feed.want_process(1);
        assert!(feed.gap().is_none());
    }
}
