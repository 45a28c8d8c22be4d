//! What happens while tracing is on.

use std::array;
use std::fs::File;
use std::path::Path;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use super::capture::{HotFiles, Snapshot, Text};
use super::child::{Program, exit_code};
use super::error::RecordError;
use super::instance::{Instance, Switch};
use super::meta::uptime_s;
use super::signals::{Inbox, Message};
use super::system::Urgent;
use super::tracefs;

pub(super) const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Pagesets decay once a second when nobody uses them.
pub(super) const TAIL: Duration = Duration::from_secs(1);
/// What the setting up itself has set in motion comes to rest.
const SETTLING: Duration = Duration::from_millis(300);
/// A command that was asked to end gets as long before it is killed.
const GRACE: Duration = Duration::from_secs(5);
/// For when there is nothing to wait for but messages.
const LONG: Duration = Duration::from_secs(3600);

pub(super) const SNAPSHOTS: [&str; 3] = ["before", "cmdend", "after"];

/// What a recorder does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It mounted a tracefs, which stays.
    Mounted,
    /// The command has run so long, with so many samples.
    Running(Duration, u32),
    /// The trace is copied: bytes so far.
    Copying(u64),
}

/// Why the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// By itself.
    ByItself,
    /// The time was over.
    AfterDuration,
    /// This signal came to the recorder.
    Interrupted(i32),
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

pub(super) struct Session<'a> {
    pub instance: &'a mut Instance,
    pub inbox: &'a Inbox,
    pub duration: Option<Duration>,
    pub progress: &'a mut dyn FnMut(Progress),
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
        inbox: &'a Inbox,
        duration: Option<Duration>,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Session<'a>, RecordError> {
        let hot = HotFiles::open()?;
        let (sample, now) = (hot.sample_text(), Instant::now());
        let (begun, next_sample) = (now, now);
        let (samples, sample_count) = (Vec::new(), 0);
        let session = Session {
            instance,
            inbox,
            duration,
            progress,
            hot,
            sample,
            samples,
            sample_count,
            begun,
            next_sample,
        };
        Ok(session)
    }

    /// Runs the program between the captures. What it prints goes to `output`.
    ///
    /// # Errors
    ///
    /// The program cannot be started, or a file of the kernel not be read or written.
    pub(super) fn run(mut self, program: &Program, output: &File) -> Result<Observed, RecordError> {
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
        let (ended, status) = self.command(program, output)?;
        let exit_code = exit_code(status);
        self.instance.mark(format_args!("cmd end rc={exit_code}"))?;
        self.capture(SNAPSHOTS[1], cmdend)?;
        self.quiet_tail()?;
        self.capture(SNAPSHOTS[2], after)?;
        self.instance.switch(Switch::Off)?;
        let Session { samples, sample_count, .. } = self;
        Ok(Observed { snapshots, samples, sample_count, ended, exit_code })
    }

    fn command(
        &mut self,
        program: &Program,
        output: &File,
    ) -> Result<(Ended, ExitStatus), RecordError> {
        let child = program.start(output, self.inbox.sender())?;
        let mut ended = Ended::ByItself;
        let mut deadline = self.duration.map(|duration| self.begun + duration);
        let mut is_asked = false;
        loop {
            match self.wait(deadline)? {
                Some(Message::Ended(status)) => {
                    child.has_ended();
                    return status.map(|status| (ended, status)).map_err(RecordError::Setup);
                }
                Some(Message::Signal(signal)) => ended = Ended::Interrupted(signal),
                None if is_asked => {}
                None => ended = Ended::AfterDuration,
            }
            child.stop(is_asked);
            is_asked = true;
            deadline = Some(Instant::now() + GRACE);
        }
    }

    /// Waits for a message while samples are taken; `None` at the deadline.
    fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Message>, RecordError> {
        let deadline = deadline.unwrap_or_else(|| Instant::now() + LONG);
        loop {
            if let Some(message) = self.inbox.wait(deadline.min(self.next_sample)) {
                return Ok(Some(message));
            }
            let now = Instant::now();
            if now >= self.next_sample {
                self.take_sample()?;
                self.next_sample = now + SAMPLE_EVERY;
            }
            if now >= deadline {
                return Ok(None);
            }
        }
    }

    /// Lets pagesets decay; whoever is in a hurry interrupts it.
    fn quiet_tail(&mut self) -> Result<(), RecordError> {
        self.wait(Some(Instant::now() + TAIL)).map(|_| ())
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
