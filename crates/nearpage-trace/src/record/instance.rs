//! A trace instance: buffers, events and a clock of its own, so that other tracers are not disturbed.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use serde::Serialize;

use super::error::{Kept, RecordError};
use super::leftovers::{Leftovers, instance_name};
use super::probes::{Probes, is_since};
use super::tracefs::{Tracefs, write};

/// Events without which nothing can be replayed.
const NEEDED: [&str; 6] = [
    "kmem/mm_page_alloc",
    "kmem/mm_page_free",
    "kmem/mm_page_free_batched",
    "kmem/mm_page_alloc_zone_locked",
    "kmem/mm_page_pcpu_drain",
    "kmem/mm_page_alloc_extfrag",
];
/// Whose pages they are.
const TASKS: [&str; 2] = ["sched/sched_process_fork", "sched/sched_process_exit"];
const LOCK: [&str; 2] = ["lock/contention_begin", "lock/contention_end"];
/// Those with `_node` are gone since 6.1, in which the others tell the node.
const SLAB: [&str; 6] = [
    "kmem/kmem_cache_alloc",
    "kmem/kmem_cache_free",
    "kmem/kmalloc",
    "kmem/kfree",
    "kmem/kmalloc_node",
    "kmem/kmem_cache_alloc_node",
];

/// All buffers together take at most this share of memory.
const MEMORY_PER_BUFFERS: u64 = 32;
/// The smallest buffer of a CPU that is tried: some 50 000 events.
const BUFFER_KB_MIN: u64 = 2048;
/// The largest: some 3 million events.
const BUFFER_KB_MAX: u64 = 131_072;

/// Which events are recorded beside those of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EventChoice {
    /// Those of the slab: ten times as many.
    pub slab: bool,
    /// Contention of locks.
    pub lock: bool,
}

/// What a CPU's buffer says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct BufferStats {
    entries: u64,
    overrun: u64,
    commit_overrun: u64,
    dropped: u64,
    read: u64,
    bytes: u64,
}

/// An instance. [`remove`](Self::remove) removes it with its probes, and says if the kernel keeps it; when it is dropped
/// before, that is done as far as it goes.
pub(super) struct Instance {
    path: PathBuf,
    leftovers: Leftovers,
    is_removed: bool,
    /// Must be closed before the instance can be removed.
    marker: Option<File>,
    /// Dropped after the instance is removed, which uses the probes.
    probes: Option<Probes>,
    /// `kmem:mm_page_alloc` and so on.
    pub events: Vec<String>,
    /// KB of each CPU's buffer.
    pub buffer_kb: u64,
    /// Whether pointers are printed as they are.
    pub has_raw_pointers: bool,
}

impl Instance {
    /// Makes one with buffers for `cpus` CPUs of a machine with so much memory. Tracing is off.
    ///
    /// # Errors
    ///
    /// The kernel lacks something, or memory for the buffers.
    pub(super) fn create(
        tracefs: &Tracefs,
        release: &str,
        choice: EventChoice,
        buffer_kb: u64,
    ) -> Result<Instance, RecordError> {
        let path = tracefs.path.join("instances").join(instance_name(std::process::id()));
        fs::create_dir(&path).map_err(RecordError::file(&path, "make a trace instance"))?;
        let mut instance = Instance {
            path,
            leftovers: Leftovers::of_this_process(&tracefs.path),
            is_removed: false,
            marker: None,
            probes: None,
            events: Vec::new(),
            buffer_kb,
            has_raw_pointers: false,
        };
        instance.set("tracing_on", "0")?;
        instance.set("trace_clock", "mono")?;
        // A full buffer loses the newest events: the beginning, which is replayed first, stays whole.
        instance.set("options/overwrite", "0")?;
        instance.size_buffers()?;
        // Before 6.12 the texts of flags are lost with raw pointers.
        instance.has_raw_pointers =
            is_since(release, (6, 12)) && instance.set("options/hash-ptr", "0").is_ok();
        instance.enable(choice)?;
        instance.probes = Probes::set(&tracefs.path, release);
        let bulk: Vec<String> = instance.probes.iter().flat_map(Probes::events).collect();
        bulk.iter().for_each(|event| instance.enable_if_there(event));
        let marker = instance.path.join("trace_marker");
        let opened = OpenOptions::new().write(true).open(&marker);
        instance.marker = Some(opened.map_err(RecordError::file(&marker, "open it"))?);
        Ok(instance)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), RecordError> {
        let path = self.path.join(file);
        write(&path, value).map_err(RecordError::file(&path, "write it"))
    }

    /// Takes half as much while the kernel has not so much to give.
    fn size_buffers(&mut self) -> Result<(), RecordError> {
        while let Err(error) = self.set("buffer_size_kb", &self.buffer_kb.to_string()) {
            if self.buffer_kb <= BUFFER_KB_MIN {
                return Err(error);
            }
            self.buffer_kb = (self.buffer_kb / 2).max(BUFFER_KB_MIN);
        }
        Ok(())
    }

    fn enable(&mut self, choice: EventChoice) -> Result<(), RecordError> {
        for event in NEEDED {
            let path = self.path.join("events").join(event);
            if !path.exists() {
                return Err(RecordError::NoEvent { path, event });
            }
            self.set(&format!("events/{event}/enable"), "1")?;
            self.events.push(event.replace('/', ":"));
        }
        let mut more = TASKS.to_vec();
        more.extend(choice.lock.then_some(LOCK).into_iter().flatten());
        more.extend(choice.slab.then_some(SLAB).into_iter().flatten());
        more.iter().for_each(|event| self.enable_if_there(event));
        Ok(())
    }

    fn enable_if_there(&mut self, event: &str) {
        if self.set(&format!("events/{event}/enable"), "1").is_ok() {
            self.events.push(event.replace('/', ":"));
        }
    }

    /// Begins or ends tracing.
    pub(super) fn switch(&self, is_on: Switch) -> Result<(), RecordError> {
        self.set("tracing_on", if is_on == Switch::On { "1" } else { "0" })
    }

    /// Writes a marker into the trace.
    pub(super) fn mark(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), RecordError> {
        // One write is one marker, so the text is put together first.
        let text = format!("nearpage: {text}\n");
        let marker = self.marker.as_mut().expect("open until the instance is removed");
        let path = self.path.join("trace_marker");
        marker.write_all(text.as_bytes()).map_err(RecordError::file(&path, "write a marker"))
    }

    /// Opens the text of the trace, all CPUs merged by time.
    pub(super) fn trace(&self) -> Result<(PathBuf, File), RecordError> {
        let path = self.path.join("trace");
        let file = File::open(&path).map_err(RecordError::file(&path, "open it"))?;
        Ok((path, file))
    }

    /// What each CPU's buffer holds and lost, of those that were used.
    pub(super) fn buffers(&self) -> Result<BTreeMap<u32, BufferStats>, RecordError> {
        let folder = self.path.join("per_cpu");
        let entries = fs::read_dir(&folder).map_err(RecordError::file(&folder, "read it"))?;
        let mut buffers = BTreeMap::new();
        for entry in entries.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("cpu"));
            let Some(cpu) = number.and_then(|number| number.parse().ok()) else { continue };
            let path = entry.path().join("stats");
            let text = fs::read_to_string(&path).map_err(RecordError::file(&path, "read it"))?;
            let stats = BufferStats::parse(&text);
            if stats.lost() + stats.entries + stats.read > 0 {
                buffers.insert(cpu, stats);
            }
        }
        Ok(buffers)
    }

    /// Removes it, and its probes.
    ///
    /// # Errors
    ///
    /// The kernel keeps it: somebody has a file of it open.
    pub(super) fn remove(mut self) -> Result<(), Kept> {
        self.clear().map_err(|source| Kept { path: self.path.clone(), source })
    }

    fn clear(&mut self) -> io::Result<()> {
        self.is_removed = true;
        self.marker = None;
        let removed = self.leftovers.remove_instance();
        self.probes = None;
        Ok(removed?)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if !self.is_removed {
            // An earlier error is on its way to the caller; the next recorder removes what is left.
            let _ = self.clear();
        }
    }
}

/// On or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Switch {
    On,
    Off,
}

/// KB of each CPU's buffer that suit a machine.
pub(super) fn buffer_kb(memory_kb: u64, cpus: u64) -> u64 {
    (memory_kb / MEMORY_PER_BUFFERS / cpus.max(1)).clamp(BUFFER_KB_MIN, BUFFER_KB_MAX)
}

impl BufferStats {
    fn parse(text: &str) -> BufferStats {
        let number = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
        };
        BufferStats {
            entries: number("entries"),
            overrun: number("overrun"),
            commit_overrun: number("commit overrun"),
            dropped: number("dropped events"),
            read: number("read events"),
            bytes: number("bytes"),
        }
    }

    /// Events that are not in the trace.
    pub(super) fn lost(self) -> u64 {
        self.overrun + self.commit_overrun + self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_suit_the_machine() {
        assert_eq!(buffer_kb(24_684_084, 2), BUFFER_KB_MAX);
        assert_eq!(buffer_kb(848_016, 6), 4416);
        assert_eq!((buffer_kb(65_536, 8), buffer_kb(65_536, 0)), (BUFFER_KB_MIN, BUFFER_KB_MIN));
    }

    #[test]
    fn what_a_buffer_says_is_read() {
        let text = "entries: 7\noverrun: 1\ncommit overrun: 2\nbytes: 99\noldest event ts:     1.5\n\
            now ts:     2.5\ndropped events: 3\nread events: 4\n";
        let stats = BufferStats::parse(text);
        let (overrun, commit_overrun, dropped) = (1, 2, 3);
        let expected =
            BufferStats { entries: 7, overrun, commit_overrun, dropped, read: 4, bytes: 99 };
        assert_eq!((stats, stats.lost()), (expected, 6));
    }
}
