//! A trace instance: buffers, events and a clock of its own, so that other tracers are not disturbed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;

use nearpage_machine::shown;

use super::error::{Kept, RecordError};
use super::leftovers::{Leftovers, instance_name};
use super::probes::{Probes, is_since};
use super::tracefs::{Tracefs, write};
use crate::binary::{Addresses, DESCRIPTOR_BYTES, UPKEEP};

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
    /// The call chain of each event, of the kernel's part: each takes several times the bytes.
    pub stacks: bool,
    /// The cgroup of each task that lives for a second or so.
    pub cgroups: bool,
}

/// An instance. [`remove`](Self::remove) removes it with its probes, and says if the kernel keeps it; when it is dropped
/// before, that is done as far as it goes.
pub(super) struct Instance {
    pub path: PathBuf,
    tracefs: PathBuf,
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
    /// Where the kernel has what the rings tell of.
    pub addresses: Addresses,
    /// Why the once-a-second work is not recorded, if so.
    pub lacks_upkeep: Option<String>,
    /// Whether call chains are recorded.
    pub has_stacks: bool,
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
            tracefs: tracefs.path.clone(),
            leftovers: Leftovers::of_this_process(&tracefs.path),
            is_removed: false,
            marker: None,
            probes: None,
            events: Vec::new(),
            buffer_kb,
            has_raw_pointers: false,
            addresses: Addresses::default(),
            lacks_upkeep: None,
            has_stacks: choice.stacks,
        };
        instance.set("tracing_on", "0")?;
        if choice.stacks {
            instance.set("options/stacktrace", "1")?;
        }
        instance.set("trace_clock", "mono")?;
        // A full buffer loses the newest events: the beginning, which is replayed first, stays whole.
        instance.set("options/overwrite", "0")?;
        // Kernels without the file wake whoever waits for any event: the rings are then taken more often.
        let _ = instance.set("buffer_percent", "50");
        instance.size_buffers()?;
        // Before 6.12 the texts of flags are lost with raw pointers.
        instance.has_raw_pointers =
            is_since(release, (6, 12)) && instance.set("options/hash-ptr", "0").is_ok();
        instance.enable(choice)?;
        instance.lacks_upkeep = instance.enable_upkeep().err();
        instance.probes = Probes::set(&tracefs.path, release);
        let bulk: Vec<String> = instance.probes.iter().flat_map(Probes::events).collect();
        bulk.iter().for_each(|event| instance.enable_if_there(event));
        let marker = instance.path.join("trace_marker");
        let opened = OpenOptions::new().write(true).open(&marker);
        instance.marker = Some(opened.map_err(RecordError::file(&marker, "open it"))?);
        if instance.has_raw_pointers {
            instance.addresses.descriptors = instance.find_descriptors();
        }
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

    /// Records when a CPU does its once-a-second work, of all works this one alone.
    fn enable_upkeep(&mut self) -> Result<(), String> {
        let event = "workqueue/workqueue_execute_start";
        let address = address_of(UPKEEP).map_err(|error| format!("{SYMBOLS}: {error}"))?;
        let filter = self.path.join("events").join(event).join("filter");
        write(&filter, &format!("function == {address:#x}"))
            .and_then(|()| write(&filter.with_file_name("enable"), "1"))
            .map_err(|error| format!("{}: {error}", shown(&filter)))?;
        self.events.push(event.replace('/', ":"));
        self.addresses.upkeep = Some(address);
        Ok(())
    }

    /// Begins or ends tracing.
    pub(super) fn switch(&self, is_on: Switch) -> Result<(), RecordError> {
        self.set("tracing_on", if is_on == Switch::On { "1" } else { "0" })
    }

    /// Writes a marker into the trace. Returns false if the ring of this CPU is full.
    ///
    /// # Errors
    ///
    /// The kernel refuses it for another reason.
    pub(super) fn mark(&mut self, text: std::fmt::Arguments<'_>) -> Result<bool, RecordError> {
        // One write is one marker, so the text is put together first.
        let text = format!("nearpage: {text}\n");
        let marker = self.marker.as_mut().expect("open until the instance is removed");
        let path = self.path.join("trace_marker");
        match marker.write_all(text.as_bytes()) {
            Ok(()) => Ok(true),
            // What the kernel answers if a ring that keeps its oldest events has no room.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(false),
            Err(error) => Err(RecordError::file(&path, "write a marker")(error)),
        }
    }

    /// The formats of the events that are recorded, and of markers.
    pub(super) fn formats(&self) -> Vec<Vec<u8>> {
        let own = self.events.iter().map(|event| event.replacen(':', "/", 1));
        let folders = own.chain(["ftrace/print".into(), "ftrace/kernel_stack".into()]);
        let read = |folder: String| fs::read(self.path.join("events").join(folder).join("format"));
        // Groups of ftrace itself are in the tracefs alone.
        let above =
            |folder: &str| fs::read(self.tracefs.join("events").join(folder).join("format"));
        folders.filter_map(|folder| above(&folder).or_else(|_| read(folder)).ok()).collect()
    }

    /// Where the descriptor of frame 0 would be: the addresses in a few lines of text say it, if they are not hashed.
    /// Tracing is off, and what was traced until now is gone.
    fn find_descriptors(&self) -> Option<u64> {
        let path = self.path.join("trace");
        self.switch(Switch::On).ok()?;
        // Pages that are touched for the first time.
        drop(std::hint::black_box(vec![1_u8; 1 << 20]));
        self.switch(Switch::Off).ok()?;
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(1 << 16).read_to_string(&mut text));
        // Truncation empties the rings.
        File::create(&path).ok()?;
        read.ok()?;
        let mut firsts = text.lines().filter_map(descriptor_of_first);
        let first = firsts.next()?;
        firsts.all(|other| other == first).then_some(first)
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

/// Names of functions and where they are.
const SYMBOLS: &str = "/proc/kallsyms";

/// The address of a function.
fn address_of(function: &str) -> io::Result<u64> {
    for line in BufReader::new(File::open(SYMBOLS)?).lines() {
        let line = line?;
        let mut words = line.split(' ');
        if let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next())
            && name == function
        {
            return match u64::from_str_radix(address, 16) {
                Ok(address) if address != 0 => Ok(address),
                _ => Err(io::Error::other("addresses are hidden (kernel.kptr_restrict)")),
            };
        }
    }
    Err(io::Error::other(format!("no function {function}")))
}

/// The place of the descriptor of frame 0, of a line with `page=00000000c0ffee00 pfn=0x1234`.
fn descriptor_of_first(line: &str) -> Option<u64> {
    let (_, fields) = line.split_once(" page=")?;
    let mut words = fields.split_whitespace();
    let number = |digits: &str| u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok();
    let (page, pfn) = (number(words.next()?)?, number(words.next()?.strip_prefix("pfn=")?)?);
    (page != 0).then(|| page.wrapping_sub(pfn.wrapping_mul(DESCRIPTOR_BYTES)))
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
    fn descriptors_are_found_in_text() {
        let line = " a-1 [000] ..... 1.0: mm_page_free: page=000000009ae0e9b1 pfn=0x2 order=0";
        assert_eq!(descriptor_of_first(line), Some(0x9ae0_e9b1 - 128));
        for other in ["", "page=0 pfn=0x0", " x page=(____ptrval____) pfn=0x2", " x page=12"] {
            assert_eq!(descriptor_of_first(other), None, "{other}");
        }
    }
}
