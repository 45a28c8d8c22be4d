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
use super::control::Control;
use super::error::RecordError;
use super::instance::{Instance, Switch};
use super::meta::uptime_s;
use super::system::Urgent;
use super::target::{Running, Target};
use super::tracefs;

pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Pagesets decay once a second when nobody uses them.
pub(super) const TAIL: Duration = Duration::from_secs(1);
/// What the setting up itself has set in motion comes to rest.
const SETTLING: Duration = Duration::from_millis(300);
/// A command that was asked to end gets as long before it is killed.
const GRACE: Duration = Duration::from_secs(5);

pub(super) const SNAPSHOTS: [&str; 3] = ["before", "cmdend", "after"];

/// What a recorder does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Progress {
    /// It mounted a tracefs, which stays.
    Mounted,
    /// It records since so long, with so many samples.
    Running(Duration, u32),
    /// The trace is copied: bytes so far.
    Copying(u64),
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

/// What was read.
pub(super) struct Observed {
    /// In the order of [`SNAPSHOTS`].
    pub snapshots: [Snapshot; 3],
    pub samples: Vec<u8>,
    pub sample_count: u32,
    pub ended: Ended,
    pub exit_code: i32,
}

/// A recording under way.
pub(super) struct Session<'a> {
    instance: &'a mut Instance,
    control: &'a Control,
    duration: Option<Duration>,
    progress: &'a mut dyn FnMut(Progress),
    /// Wishes to stop that were heard.
    stops_heard: u32,
    hot: HotFiles,
    sample: Text,
    samples: Vec<u8>,
    sample_count: u32,
    begun: Instant,
    next_sample: Instant,
}

impl<'a> Session<'a> {
    /// Opens the files that are read.
    ///
    /// # Errors
    ///
    /// One cannot be read.
    pub(super) fn open(
        instance: &'a mut Instance,
        control: &'a Control,
        duration: Option<Duration>,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Session<'a>, RecordError> {
        let hot = HotFiles::open()?;
        let (sample, now) = (hot.sample_text(), Instant::now());
        let (begun, next_sample) = (now, now);
        let (samples, sample_count) = (Vec::new(), 0);
        let session = Session {
            instance,
            control,
            duration,
            progress,
            stops_heard: 0,
            hot,
            sample,
            samples,
            sample_count,
            begun,
            next_sample,
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
        let mut snapshots: [Snapshot; 3] = array::from_fn(|_| self.hot.snapshot());
        let [before, cmdend, after] = &mut snapshots;
        // Folds counters of CPUs into those of zones; a kernel without it shows them a little late.
        let _ = tracefs::write(Path::new("/proc/sys/vm/stat_refresh"), "1");
        thread::sleep(SETTLING);
        self.instance.switch(Switch::On)?;
        self.capture(SNAPSHOTS[0], before)?;
        self.begun = Instant::now();
        self.next_sample = self.begun + SAMPLE_EVERY;
        self.instance.mark(format_args!("cmd begin"))?;
        let (ended, exit_code) = self.target(target, output)?;
        self.instance.mark(format_args!("cmd end rc={exit_code}"))?;
        self.capture(SNAPSHOTS[1], cmdend)?;
        self.quiet_tail()?;
        self.capture(SNAPSHOTS[2], after)?;
        self.instance.switch(Switch::Off)?;
        let Session { samples, sample_count, .. } = self;
        Ok(Observed { snapshots, samples, sample_count, ended, exit_code })
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
            if self.sleep(running, until).map_err(RecordError::Setup)? {
                return Ok(Woken::TargetEnded);
            }
            let now = Instant::now();
            if now >= self.next_sample {
                self.take_sample()?;
                self.next_sample = now + SAMPLE_EVERY;
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Woken::Deadline);
            }
        }
    }

    /// Sleeps until a time, the end of the target, or a wish to stop. Returns whether the target has ended.
    fn sleep(&self, running: Option<&Running<'_>>, until: Instant) -> io::Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
        let wake = PollFd::from_borrowed_fd(self.control.wake(), PollFlags::IN);
        let woken = match running.and_then(Running::handle) {
            Some(target) => {
                let mut both = [wake, PollFd::from_borrowed_fd(target, PollFlags::IN)];
                poll(&mut both, Some(&left)).map(|_| both[1].revents().contains(PollFlags::IN))
            }
            None => poll(&mut [wake], Some(&left)).map(|_| false),
        };
        self.control.clear();
        match woken {
            Err(Errno::INTR) => Ok(false),
            other => Ok(other?),
        }
    }

    /// Lets pagesets decay; whoever is in a hurry interrupts it.
    fn quiet_tail(&mut self) -> Result<(), RecordError> {
        self.wait(None, Some(Instant::now() + TAIL)).map(|_| ())
    }

    fn capture(&mut self, name: &str, snapshot: &mut Snapshot) -> Result<(), RecordError> {
        let _urgent = Urgent::begin();
        self.instance.mark(format_args!("{name} begin"))?;
        self.hot.read(snapshot)?;
        self.instance.mark(format_args!("{name} end"))
    }

    fn take_sample(&mut self) -> Result<(), RecordError> {
        self.sample_count += 1;
        let number = self.sample_count;
        let uptime = {
            let _urgent = Urgent::begin();
            self.instance.mark(format_args!("sample {number} begin"))?;
            self.hot.sample(&mut self.sample)?;
            self.instance.mark(format_args!("sample {number} end"))?;
            uptime_s()
        };
        let heading = format!("# sample {number} uptime {uptime:.2}\n");
        self.samples.extend_from_slice(heading.as_bytes());
        self.samples.extend_from_slice(self.sample.bytes());
        (self.progress)(Progress::Running(self.begun.elapsed(), number));
        Ok(())
    }
}
