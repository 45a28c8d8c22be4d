//! What happens while tracing is on.

use std::array;
use std::fs::File;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use serde::Serialize;

use super::capture::{HotFiles, Snapshot, Text};
use super::cgroups::Cgroups;
use super::control::Control;
use super::error::RecordError;
use super::instance::{Instance, Switch};
use super::kernel_state::{KernelStates, Moment};
use super::meta::{Times, uptime_s};
use super::rings::{BufferStats, Rings, Taken};
use super::system::Urgent;
use super::target::{Running, Target};
use super::tracefs;

pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Pagesets decay once a second when nobody uses them.
pub(super) const TAIL: Duration = Duration::from_secs(1);
/// What the setting up itself has set in motion comes to rest.
const SETTLING: Duration = Duration::from_millis(300);
/// So often a marker is tried whose ring is full: others fill it meanwhile.
const MARK_TRIES: u32 = 8;
/// A command that was asked to end gets as long before it is killed.
const GRACE: Duration = Duration::from_secs(5);

pub(super) const SNAPSHOTS: [&str; 3] = ["before", "cmdend", "after"];

/// What a recorder does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Progress {
    /// It mounted a tracefs, which stays.
    Mounted,
    /// It records.
    Running(Gauge),
    /// The trace is copied: bytes so far.
    Copying(u64),
}

/// How far a recording is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Gauge {
    /// Since when.
    pub time: Duration,
    /// Samples.
    pub samples: u32,
    /// Events that are kept.
    pub events: u64,
    /// Bytes of the trace, in the rings of the kernel and in the file.
    pub bytes: u64,
    /// How full the fullest ring is, in percent.
    pub fullest_percent: u64,
    /// Events that no ring had room for.
    pub lost_events: u64,
}

/// Why a recording ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ended {
    /// What was recorded ended by itself.
    ByItself,
    /// The time was over.
    AfterDuration,
    /// It was asked to stop.
    Stopped,
}

/// What a wait ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    /// The target has ended.
    TargetEnded,
    /// The recording is asked to stop.
    Stop,
    /// The time is over.
    Deadline,
}

/// Why a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slept {
    TargetEnded,
    RingHalfFull,
    /// The time is over, or somebody wants something.
    Longer,
}

/// What was read.
pub(super) struct Observed {
    /// In the order of [`SNAPSHOTS`].
    pub snapshots: [Snapshot; 3],
    pub samples: Vec<u8>,
    pub sample_count: u32,
    /// The window with which it begins, from 1, and when that was.
    pub window: u32,
    pub times: Times,
    /// What rings had lost before, by CPU.
    pub stats_before: Vec<(u32, BufferStats)>,
    pub ended: Ended,
    pub exit_code: i32,
    /// Markers for which there was no room.
    pub lost_marks: u32,
}

/// A part of a recording with which a bundle may begin.
struct Window {
    /// From 1.
    number: u32,
    times: Times,
    before: Snapshot,
    samples: Vec<u8>,
    sample_count: u32,
    stats_before: Vec<(u32, BufferStats)>,
}

impl Window {
    /// One that begins now. Its capture comes.
    fn new(number: u32, stats_before: Vec<(u32, BufferStats)>) -> Window {
        let before = Snapshot { texts: Vec::new() };
        let (times, samples) = (Times::now(), Vec::new());
        Window { number, times, before, samples, sample_count: 0, stats_before }
    }

    /// What marks of it begin with. Those of the window with which a bundle begins are without it there.
    fn prefix(number: u32) -> String {
        if number == 1 { String::new() } else { format!("window {number} ") }
    }
}

/// A recording under way.
pub(super) struct Session<'a> {
    instance: &'a mut Instance,
    rings: &'a mut Rings,
    states: &'a mut KernelStates,
    control: &'a Control,
    duration: Option<Duration>,
    /// Of a recording that keeps what happened last: how long a window is.
    last: Option<Duration>,
    progress: &'a mut dyn FnMut(Progress),
    /// Wishes to stop that were heard.
    stops_heard: u32,
    hot: HotFiles,
    sample: Text,
    /// Samples of all windows.
    sample_count: u32,
    former: Option<Window>,
    window: Window,
    lost_marks: u32,
    cgroups: Option<Cgroups>,
    begun: Instant,
    next_sample: Instant,
    next_window: Option<Instant>,
}

impl<'a> Session<'a> {
    /// Opens the files that are read.
    ///
    /// # Errors
    ///
    /// One cannot be read.
    pub(super) fn open(
        instance: &'a mut Instance,
        rings: &'a mut Rings,
        states: &'a mut KernelStates,
        control: &'a Control,
        [duration, last]: [Option<Duration>; 2],
        tells_cgroups: bool,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Session<'a>, RecordError> {
        let hot = HotFiles::open()?;
        let (sample, now) = (hot.sample_text(), Instant::now());
        let (begun, next_sample) = (now, now);
        let window = Window::new(1, Vec::new());
        let session = Session {
            instance,
            rings,
            states,
            control,
            duration,
            last,
            progress,
            stops_heard: 0,
            hot,
            sample,
            sample_count: 0,
            former: None,
            window,
            lost_marks: 0,
            cgroups: tells_cgroups.then(Cgroups::default),
            begun,
            next_sample,
            next_window: None,
        };
        Ok(session)
    }

    /// Records the target between the captures. What a command prints goes to `output`.
    ///
    /// # Errors
    ///
    /// The target cannot be started or found, or a file of the kernel not be read or written.
    pub(super) fn run(
        mut self,
        target: &mut Target<'_>,
        output: &File,
    ) -> Result<Observed, RecordError> {
        let [mut cmdend, mut after]: [Snapshot; 2] = array::from_fn(|_| self.hot.snapshot());
        // Folds counters of CPUs into those of zones; a kernel without it shows them a little late.
        let _ = tracefs::write(Path::new("/proc/sys/vm/stat_refresh"), "1");
        thread::sleep(SETTLING);
        self.instance.switch(Switch::On)?;
        self.begin_window()?;
        self.begun = Instant::now();
        self.next_sample = self.begun + SAMPLE_EVERY;
        let (ended, exit_code) = self.target(target, output)?;
        self.mark(format_args!("cmd end rc={exit_code}"))?;
        self.capture("", SNAPSHOTS[1], &mut cmdend)?;
        // The bundle begins with this window, or the former.
        self.next_window = None;
        self.quiet_tail()?;
        self.take_state("", Moment::After)?;
        self.capture("", SNAPSHOTS[2], &mut after)?;
        self.instance.switch(Switch::Off)?;
        // Nobody writes any more.
        while self.take()? == Taken::Some {}
        let Session { former, window, lost_marks, .. } = self;
        let window = match former {
            None => window,
            Some(former) => Window {
                samples: [former.samples, window.samples].concat(),
                sample_count: former.sample_count + window.sample_count,
                ..former
            },
        };
        let Window { number, times, before, samples, sample_count, stats_before } = window;
        Ok(Observed {
            snapshots: [before, cmdend, after],
            samples,
            sample_count,
            window: number,
            times,
            stats_before,
            ended,
            exit_code,
            lost_marks,
        })
    }

    /// Reads what a bundle that begins here begins with.
    fn begin_window(&mut self) -> Result<(), RecordError> {
        let prefix = Window::prefix(self.window.number);
        let mut before = self.hot.snapshot();
        self.capture(&prefix, SNAPSHOTS[0], &mut before)?;
        self.window.before = before;
        self.take_state(&prefix, Moment::Before)?;
        self.cgroups = self.cgroups.take().map(|_| Cgroups::default());
        self.tell_cgroups()?;
        self.mark(format_args!("{prefix}cmd begin"))?;
        self.next_window = self.last.map(|last| Instant::now() + last);
        Ok(())
    }

    /// Forgets the former window, and begins another.
    fn next_window(&mut self) -> Result<(), RecordError> {
        while self.take()? == Taken::Some {}
        self.rings.next_window();
        self.states.next_window();
        let stats = self.rings.stats().map_err(RecordError::Setup)?;
        let window = Window::new(self.window.number + 1, stats);
        self.former = Some(std::mem::replace(&mut self.window, window));
        self.begin_window()
    }

    fn target(
        &mut self,
        target: &mut Target<'_>,
        output: &File,
    ) -> Result<(Ended, i32), RecordError> {
        let running = target.begin(output, self.control)?;
        let mut ended = Ended::ByItself;
        let mut deadline = self.duration.map(|duration| self.begun + duration);
        let mut is_asked = false;
        loop {
            match self.wait(Some(&running), deadline)? {
                Woken::TargetEnded => {
                    let code = running.exit_code().map_err(RecordError::Setup)?;
                    return Ok((ended, code));
                }
                Woken::Stop => ended = Ended::Stopped,
                Woken::Deadline if is_asked => {}
                Woken::Deadline => ended = Ended::AfterDuration,
            }
            if !running.stop(is_asked) {
                return Ok((ended, 0));
            }
            is_asked = true;
            deadline = Some(Instant::now() + GRACE);
        }
    }

    /// Waits while samples are taken.
    fn wait(
        &mut self,
        running: Option<&Running<'_>>,
        deadline: Option<Instant>,
    ) -> Result<Woken, RecordError> {
        loop {
            if self.control.stops() > self.stops_heard {
                self.stops_heard += 1;
                return Ok(Woken::Stop);
            }
            let until =
                deadline.map_or(self.next_sample, |deadline| deadline.min(self.next_sample));
            match self.sleep(running, until).map_err(RecordError::Setup)? {
                Slept::TargetEnded => return Ok(Woken::TargetEnded),
                Slept::RingHalfFull => _ = self.take()?,
                Slept::Longer => {}
            }
            let now = Instant::now();
            if now >= self.next_sample {
                self.take_sample()?;
                self.tell_cgroups()?;
                self.next_sample = now + SAMPLE_EVERY;
            }
            if self.next_window.is_some_and(|next| now >= next) {
                self.next_window()?;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Woken::Deadline);
            }
        }
    }

    /// Sleeps until a time, the end of the target, a wish to stop, or until a ring is half full.
    fn sleep(&self, running: Option<&Running<'_>>, until: Instant) -> io::Result<Slept> {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
        let target = running.and_then(Running::handle);
        let waited_for =
            [self.control.wake()].into_iter().chain(target).chain(self.rings.half_full());
        let mut polled: Vec<PollFd<'_>> =
            waited_for.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
        let woken = poll(&mut polled, Some(&left));
        let is_ready = |file: &PollFd<'_>| !file.revents().is_empty();
        let before_rings = 1 + usize::from(target.is_some());
        let has_ended = target.is_some() && is_ready(&polled[1]);
        let is_half_full = polled[before_rings..].iter().any(is_ready);
        self.control.clear();
        match woken {
            Err(Errno::INTR) => Ok(Slept::Longer),
            Err(error) => Err(error.into()),
            Ok(_) if has_ended => Ok(Slept::TargetEnded),
            Ok(_) if is_half_full => Ok(Slept::RingHalfFull),
            Ok(_) => Ok(Slept::Longer),
        }
    }

    fn take(&mut self) -> Result<Taken, RecordError> {
        let path = self.instance.path.join("per_cpu");
        self.rings.take().map_err(RecordError::file(&path, "read the rings of it"))
    }

    /// Writes a marker. A full ring is emptied first; a marker for which there is no room then is lost, as events are.
    fn mark(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), RecordError> {
        for _ in 0..MARK_TRIES {
            if self.instance.mark(text)? {
                return Ok(());
            }
            self.take()?;
        }
        self.lost_marks += 1;
        Ok(())
    }

    /// Lets pagesets decay; whoever is in a hurry interrupts it.
    fn quiet_tail(&mut self) -> Result<(), RecordError> {
        self.wait(None, Some(Instant::now() + TAIL)).map(|_| ())
    }

    fn capture(
        &mut self,
        prefix: &str,
        name: &str,
        snapshot: &mut Snapshot,
    ) -> Result<(), RecordError> {
        let _urgent = Urgent::begin();
        self.mark(format_args!("{prefix}{name} begin"))?;
        self.hot.read(snapshot)?;
        self.mark(format_args!("{prefix}{name} end"))
    }

    /// Reads the kernel's own state, where it may be read.
    fn take_state(&mut self, prefix: &str, moment: Moment) -> Result<(), RecordError> {
        if self.states.is_readable() {
            self.mark(format_args!("{prefix}state {} begin", moment.name()))?;
            self.states.take(moment);
            self.mark(format_args!("{prefix}state {} end", moment.name()))?;
        }
        Ok(())
    }

    fn take_sample(&mut self) -> Result<(), RecordError> {
        self.sample_count += 1;
        let number = self.sample_count;
        let uptime = {
            let _urgent = Urgent::begin();
            self.mark(format_args!("sample {number} begin"))?;
            self.hot.sample(&mut self.sample)?;
            self.mark(format_args!("sample {number} end"))?;
            uptime_s()
        };
        let heading = format!("# sample {number} uptime {uptime:.2}\n");
        self.window.sample_count += 1;
        self.window.samples.extend_from_slice(heading.as_bytes());
        self.window.samples.extend_from_slice(self.sample.bytes());
        let gauge = self.gauge().map_err(RecordError::Setup)?;
        (self.progress)(Progress::Running(gauge));
        Ok(())
    }

    /// Tells the cgroups of tasks that are new, if they are asked for.
    fn tell_cgroups(&mut self) -> Result<(), RecordError> {
        let fresh = self.cgroups.as_mut().map(Cgroups::due).unwrap_or_default();
        fresh.iter().try_for_each(|(task, path)| self.mark(format_args!("cgroup {task} {path}")))
    }

    fn gauge(&mut self) -> io::Result<Gauge> {
        let stats = self.rings.stats()?;
        let (ring_bytes, all) = (self.instance.buffer_kb << 10, stats.iter().map(|(_, of)| of));
        let fullest = all.clone().map(|of| of.bytes).max().unwrap_or(0);
        Ok(Gauge {
            time: self.begun.elapsed(),
            samples: self.sample_count,
            events: all.clone().map(|of| of.entries + of.read).sum(),
            bytes: self.rings.bytes() + all.clone().map(|of| of.bytes).sum::<u64>(),
            fullest_percent: (fullest * 100 / ring_bytes.max(1)).min(100),
            lost_events: all.map(|of| of.lost()).sum(),
        })
    }
}
