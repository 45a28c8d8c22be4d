//! One recording, from the first look at the machine to the bundle.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::time::Duration;

use super::archive::{Files, packed};
use super::child::Program;
use super::compress::zstd;
use super::count::{Counted, TraceSize};
use super::error::RecordError;
use super::instance::{EventChoice, Instance, buffer_kb};
use super::kernel_log::KernelLog;
use super::meta::{Machine, Meta, Times};
use super::output::{Output, memory_file};
use super::session::{Ended, Observed, Progress, SAMPLE_EVERY, SNAPSHOTS, Session, TAIL};
use super::signals::Inbox;
use super::tracefs::Tracefs;

/// What is kept of the command's output.
const OUTPUT_BYTES_MAX: u64 = 65_536;

/// What to record, and whom to tell.
pub struct Recorder<'a> {
    /// The command.
    pub program: Program,
    /// Events beside those of pages.
    pub events: EventChoice,
    /// After so long the command is ended.
    pub duration: Option<Duration>,
    /// Signals.
    pub inbox: Inbox,
    /// Called with what is going on.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// A finished recording.
#[derive(Debug)]
pub struct Recorded {
    /// Why the command ended.
    pub ended: Ended,
    /// Its exit code, as a shell has it.
    pub exit_code: i32,
    /// What it printed, cut after 64 KiB.
    pub printed: Vec<u8>,
    /// Events in the trace.
    pub events: u64,
    /// Events that are not in it.
    pub lost: u64,
    /// Samples.
    pub samples: u32,
    /// The bundle's bytes.
    pub bundle_bytes: u64,
}

impl Recorder<'_> {
    /// Records the command into `output`. However it ends, nothing is left in the kernel but a mounted tracefs.
    ///
    /// # Errors
    ///
    /// Nothing could be recorded: there is no bundle then.
    pub fn record(&mut self, output: Output) -> Result<Recorded, RecordError> {
        let tracefs = Tracefs::open()?;
        if tracefs.is_mounted_now {
            (self.progress)(Progress::Mounted);
        }
        tracefs.remove_abandoned();
        let machine = Machine::read();
        let buffer_kb = buffer_kb(machine.mem_total_kb, machine.cpus);
        let mut instance = Instance::create(&tracefs, &machine.kernel, self.events, buffer_kb)?;

        let (mut slow, mut log) = (Files::new(), KernelLog::open());
        slow.add_surroundings("before", "dmesg", log.read_new());
        let mut printed = memory_file()?;
        let times = Times::now();
        let session = Session::open(&mut instance, &self.inbox, self.duration, self.progress)?;
        let observed = session.run(&self.program, &printed)?;
        let times = times.until_now();
        slow.add_surroundings("after", "dmesg.new", log.read_new());

        let mut trace = output.scratch()?;
        let size = self.copy_trace(&instance, &mut trace)?;
        let meta = self.meta(&output, machine, times, &instance, &observed, size)?;
        drop(instance);

        let printed = beginning(&mut printed).map_err(RecordError::Setup)?;
        let files = files(&meta, slow, &observed, &printed);
        let scratch = output.scratch()?;
        let archive = files.write(scratch, &output.name(), times.end_epoch, &mut trace);
        let mut archive = archive.map_err(RecordError::file(output.path(), "write it"))?;
        Ok(Recorded {
            ended: observed.ended,
            exit_code: observed.exit_code,
            printed,
            events: meta.trace.event_lines,
            lost: meta.lost_events,
            samples: observed.sample_count,
            bundle_bytes: output.finish(&mut archive)?,
        })
    }

    /// Reads the trace, packs it and counts what is in it.
    fn copy_trace(
        &mut self,
        instance: &Instance,
        packed: &mut File,
    ) -> Result<TraceSize, RecordError> {
        let (path, file) = instance.trace()?;
        let (inbox, progress) = (&self.inbox, &mut *self.progress);
        let signals_before = inbox.signals();
        let mut text = Watched { text: Counted::new(file), inbox, signals_before, progress };
        let copied = zstd(&mut text, packed);
        if text.is_given_up() {
            return Err(RecordError::Abandoned);
        }
        copied.map_err(RecordError::file(&path, "copy it"))?;
        Ok(text.text.size)
    }

    fn meta(
        &self,
        output: &Output,
        machine: Machine,
        times: Times,
        instance: &Instance,
        observed: &Observed,
        trace: TraceSize,
    ) -> Result<Meta, RecordError> {
        let per_cpu = instance.buffers()?;
        Ok(Meta {
            format: "nearpage-bundle 1",
            name: output.name(),
            note: "",
            machine,
            command: self.program.words().collect(),
            exit_status: observed.exit_code,
            times,
            sample_every_s: SAMPLE_EVERY.as_secs_f64(),
            tail_s: TAIL.as_secs(),
            streamed: 0,
            raw_pointers: instance.has_raw_pointers.into(),
            recorder_pid: std::process::id(),
            snapshots: SNAPSHOTS,
            buffer_kb_per_cpu: instance.buffer_kb,
            events_enabled: instance.events.clone(),
            lost_events: per_cpu.values().map(|buffer| buffer.lost()).sum(),
            per_cpu,
            trace,
        })
    }
}

/// A trace that is read: tells how far, and ends when it is given up.
struct Watched<'a> {
    text: Counted<File>,
    inbox: &'a Inbox,
    /// Those that were meant for the command.
    signals_before: usize,
    progress: &'a mut dyn FnMut(Progress),
}

impl Watched<'_> {
    fn is_given_up(&self) -> bool {
        self.inbox.signals() > self.signals_before
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_given_up() {
            return Err(io::Error::other("given up"));
        }
        (self.progress)(Progress::Copying(self.text.size.trace_bytes));
        self.text.read(buffer)
    }
}

/// All of a bundle but the trace. What describes it comes first, so that it is found soon.
fn files(meta: &Meta, slow: Files, observed: &Observed, printed: &[u8]) -> Files {
    let mut files = Files::new();
    let text = serde_json::to_string_pretty(meta).expect("texts and numbers");
    files.add("meta.json", format!("{text}\n").into_bytes());
    for (name, snapshot) in SNAPSHOTS.into_iter().zip(&observed.snapshots) {
        files.add_snapshot(name, snapshot);
    }
    files.append(slow);
    files.add("cmd.txt", printed.into());
    if !observed.samples.is_empty() {
        files.add("samples.txt.zst", packed(&observed.samples));
    }
    files
}

fn beginning(file: &mut File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.rewind()?;
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}
