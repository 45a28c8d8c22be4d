//! One recording, from the first look at the machine to the bundle.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;
use std::time::Duration;

use nearpage_machine::shown;
use serde::Serialize;

use super::archive::{Files, packed};
use super::compress::zstd;
use super::control::Control;
use super::count::{Counted, TraceSize};
use super::error::{Kept, RecordError};
use super::instance::{EventChoice, Instance, buffer_kb};
use super::kernel_log::KernelLog;
use super::kernel_state::KernelStates;
use super::meta::{Machine, Meta, Times};
use super::output::{Output, memory_file};
use super::redact::Redacted;
use super::rings::{BufferStats, Full, Rings};
use super::session::{Ended, Observed, Progress, SAMPLE_EVERY, SNAPSHOTS, Session, TAIL};
use super::target::Target;
use super::tracefs::Tracefs;
use super::windows::Windowed;

/// What is kept of a command's output.
const OUTPUT_BYTES_MAX: u64 = 65_536;

/// What to record.
#[derive(Debug)]
pub struct Recorder<'a> {
    /// What says when the recording begins and ends.
    pub target: Target<'a>,
    /// Events beside those of pages.
    pub events: EventChoice,
    /// After so long the recording ends, and with it a command.
    pub duration: Option<Duration>,
    /// How much memory and disk the trace may take.
    pub limits: Limits,
    /// What is told of the machine and its users.
    pub contents: Contents,
}

/// What a bundle tells of the machine and its users.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Contents {
    /// All that was recorded.
    #[default]
    Whole,
    /// What a replay needs. Names of tasks are numbers; kernel addresses are tokens, and those of pages begin where they do
    /// without KASLR. Command lines, outputs, logs, the time of day, texts of programs, and what companies add to the name of a
    /// kernel, are left out.
    Redacted,
}

/// What a trace may take. What a limit leaves no room for is lost, and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Bytes of each CPU's ring in the kernel; `None` for what suits the machine.
    pub ring_bytes: Option<u64>,
    /// Bytes of the trace as the kernel has it, on disk while it is recorded; `None` for as much as there is room.
    pub trace_bytes: Option<u64>,
    /// What happened so long before the end is kept, and up to twice as much; `None` for all.
    pub last: Option<Duration>,
}

/// A finished recording. Its serialization is the JSON of `nearpage record`.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Recorded {
    /// The version of the JSON: 1. Fields are added without another number.
    pub schema: u32,
    /// Where the bundle is; `None` if a stream got it.
    pub bundle: Option<String>,
    /// Its bytes.
    pub bundle_bytes: u64,
    /// The release of the kernel.
    pub kernel: String,
    /// The words of the command, or of the process.
    pub command: Vec<String>,
    /// The number of a process that ran already.
    pub pid: Option<u32>,
    /// Why the recording ended.
    pub ended: Ended,
    /// The exit code of a child, as a shell has it; 0 of what is no child.
    pub exit_code: i32,
    /// Events in the trace.
    pub events: u64,
    /// Events that are not in it, since a ring or the disk was full, or since the trace may have no more bytes.
    pub lost_events: u64,
    /// Markers that are not in it, among them.
    pub lost_marks: u32,
    /// Bytes of the trace as the kernel had it.
    pub ring_bytes: u64,
    /// Bytes of each CPU's ring in the kernel: less than was asked for if the kernel had not so much.
    pub buffer_bytes: u64,
    /// Why no more was taken from the rings, in words.
    pub cut: Option<String>,
    /// Samples.
    pub samples: u32,
    /// Seconds from the begin of tracing to its end.
    pub seconds: f64,
    /// Whether a tracefs was mounted, which stays.
    pub has_mounted_tracefs: bool,
    /// Whether it has the kernel's own state at its begin and its end.
    pub has_state: bool,
    /// What it lacks of what a replay could use, and why, one sentence each.
    pub lacks: Vec<String>,
    /// What the kernel keeps of the recorder although it should be gone.
    #[serde(serialize_with = "in_words")]
    pub left: Option<Kept>,
    /// What a command printed, cut after 64 KiB.
    #[serde(skip)]
    pub printed: Vec<u8>,
}

fn in_words<S: serde::Serializer>(left: &Option<Kept>, to: S) -> Result<S::Ok, S::Error> {
    left.as_ref().map(ToString::to_string).serialize(to)
}

impl Recorder<'_> {
    /// Records into `output`, until the target or the duration ends or `control` stops it. `progress` is called with what
    /// is going on.
    ///
    /// However a recording ends, nothing is left in the kernel but a mounted tracefs ([`Recorded::left`] tells if the
    /// kernel refuses to remove something).
    ///
    /// # Errors
    ///
    /// Nothing could be recorded: there is no bundle then.
    pub fn record(
        mut self,
        output: Output,
        control: &Control,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Recorded, RecordError> {
        output.register(control);
        self.target.check()?;
        let tracefs = Tracefs::open()?;
        if tracefs.is_mounted_now {
            progress(Progress::Mounted);
        }
        tracefs.remove_abandoned();
        let machine = Machine::read();
        let own_kb = || buffer_kb(machine.mem_total_kb, machine.cpus);
        let buffer_kb = self.limits.ring_bytes.map_or_else(own_kb, |bytes| bytes.div_ceil(1024));
        let mut instance = Instance::create(&tracefs, &machine.kernel, self.events, buffer_kb)?;

        let (file, bytes_max) = (output.scratch()?, self.limits.trace_bytes);
        let mut rings = Rings::open(&instance.path, &tracefs.path, file, bytes_max)?;

        let mut states = KernelStates::open();
        let (mut slow, mut log) = (Files::new(), KernelLog::open());
        slow.add_surroundings("before", "dmesg", log.read_new());
        let mut printed = memory_file()?;
        let words = self.target.words();
        let session = Session::open(
            &mut instance,
            &mut rings,
            &mut states,
            control,
            [self.duration, self.limits.last],
            self.events.cgroups,
            progress,
        )?;
        let observed = session.run(&mut self.target, &printed)?;
        let times = observed.times.until_now();
        slow.add_surroundings("after", "dmesg.new", log.read_new());
        let (states, mut lacks) = states.finish();
        let has_state = !states.is_empty();
        for (name, content) in states {
            slow.add(&name, content);
        }
        lacks.extend(instance.lacks_upkeep.iter().map(|why| {
            format!("no times of the once-a-second work, in which pagesets decay: {why}")
        }));

        let mut trace = output.scratch()?;
        let before: BTreeMap<u32, BufferStats> = observed.stats_before.iter().copied().collect();
        let since = |(cpu, stats): (u32, BufferStats)| {
            (cpu, stats.since(before.get(&cpu).copied().unwrap_or_default()))
        };
        let stats = rings.stats().map_err(RecordError::Setup)?;
        let per_cpu = stats.into_iter().map(since).collect();
        let (ring_bytes, cut) = (rings.bytes(), rings.ended().map(Full::to_string));
        let contents = self.contents;
        let how = (observed.window, contents);
        let size = copy_trace(&instance, rings, how, &mut trace, control, progress)?;
        let (name, pid) = (output.name().to_owned(), self.target.pid());
        let who = (name, words, pid);
        let mut meta = meta(who, machine, times, &instance, &observed, size, per_cpu);
        let left = instance.remove().err();

        let printed = beginning(&mut printed).map_err(RecordError::Setup)?;
        let (kernel, command) = (meta.machine.kernel.clone(), meta.command.clone());
        let mut end_epoch = times.end_epoch;
        if contents == Contents::Redacted {
            meta.redact();
            end_epoch = 0;
        }
        let mut files = files(&meta, slow, &observed, &printed);
        if contents == Contents::Redacted {
            files.redact();
        }
        let bundle = output.path().map(|path| shown(path).to_string());
        let bundle_bytes = output.finish(&files, end_epoch, &mut trace)?;
        control.set_finished();
        Ok(Recorded {
            schema: 1,
            bundle,
            bundle_bytes,
            kernel,
            command,
            pid,
            ended: observed.ended,
            exit_code: observed.exit_code,
            events: meta.trace.event_lines,
            lost_events: meta.lost_events,
            lost_marks: observed.lost_marks,
            ring_bytes,
            buffer_bytes: meta.buffer_kb_per_cpu << 10,
            cut,
            samples: observed.sample_count,
            seconds: (times.end_uptime - times.start_uptime).max(0.0),
            has_state,
            lacks,
            has_mounted_tracefs: tracefs.is_mounted_now,
            left,
            printed,
        })
    }
}

/// Names of the kernel's functions.
const SYMBOLS: &str = "/proc/kallsyms";

/// Makes text of what was taken, packs it and counts what is in it.
fn copy_trace(
    instance: &Instance,
    rings: Rings,
    (window, contents): (u32, Contents),
    packed: &mut File,
    control: &Control,
    progress: &mut dyn FnMut(Progress),
) -> Result<TraceSize, RecordError> {
    let symbols = match instance.has_stacks {
        true => fs::read(SYMBOLS).map_err(RecordError::file(Path::new(SYMBOLS), "read it"))?,
        false => Vec::new(),
    };
    let text = rings.into_text(instance.formats(), instance.addresses, symbols);
    // Marks of the first window are the bundle's as they are.
    let text: Box<dyn Read> = match window {
        1 => Box::new(text),
        later => Box::new(Windowed::new(text, later)),
    };
    let text: Box<dyn Read> = match contents {
        Contents::Whole => text,
        Contents::Redacted => Box::new(Redacted::new(text)),
    };
    let stops_before = control.stops();
    let mut text = Watched { text: Counted::new(text), control, stops_before, progress };
    let copied = zstd(&mut text, packed);
    if text.is_given_up() {
        return Err(RecordError::Abandoned);
    }
    copied.map_err(RecordError::file(&instance.path, "copy its trace"))?;
    Ok(text.text.size)
}

fn meta(
    (name, command, pid): (String, Vec<String>, Option<u32>),
    machine: Machine,
    times: Times,
    instance: &Instance,
    observed: &Observed,
    trace: TraceSize,
    per_cpu: BTreeMap<u32, BufferStats>,
) -> Meta {
    // What is left in the rings was not taken.
    let lost_events = per_cpu.values().map(|of| of.lost() + of.entries).sum();
    Meta {
        format: "nearpage-bundle 1",
        name,
        note: "",
        redacted: 0,
        machine,
        command,
        pid,
        exit_status: observed.exit_code,
        times,
        sample_every_s: SAMPLE_EVERY.as_secs_f64(),
        tail_s: TAIL.as_secs(),
        streamed: 1,
        raw_pointers: instance.has_raw_pointers.into(),
        recorder_pid: std::process::id(),
        snapshots: SNAPSHOTS,
        buffer_kb_per_cpu: instance.buffer_kb,
        events_enabled: instance.events.clone(),
        lost_events,
        per_cpu,
        trace,
    }
}

/// A trace that is read: tells how far, and ends when it is given up.
struct Watched<'a, R> {
    text: Counted<R>,
    control: &'a Control,
    /// Wishes to stop that were meant for the command.
    stops_before: u32,
    progress: &'a mut dyn FnMut(Progress),
}

impl<R> Watched<'_, R> {
    fn is_given_up(&self) -> bool {
        self.control.stops() > self.stops_before
    }
}

impl<R: Read> Read for Watched<'_, R> {
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
