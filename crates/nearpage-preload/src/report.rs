//! What was counted, written when the process ends: one line of JSON.
//!
//! The descriptor is opened at the start, since many programs close standard error before they end, and moved up, out of the
//! way of programs that count their descriptors. A program that closes all may have another file there by the end: then the
//! report's is opened once more. A child of a fork writes a line of its own; lines are written at once, to a file that is open
//! for appending. With `NEARPAGE_MALLOC_SAMPLES` each writes short lines meanwhile, for plots.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use nearpage_malloc::{Statistics, class_size, statistics};

use crate::environment::variable;
use crate::message::{Line, tell};

static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
static FILE: OnceLock<File> = OnceLock::new();
/// The process that the descriptor is of.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// Allocations of the parent before the fork that made this process.
static FORKED_AT: AtomicU64 = AtomicU64::new(0);

/// Descriptors from this number on are out of a program's way.
const HIGH: i32 = 700;

const NAME_BYTES: usize = 4096;

/// The file, by its name and by what the kernel knows it by.
struct File {
    name: &'static CStr,
    identity: (libc::dev_t, libc::ino_t),
}

/// Where the name is. Stacks may be small.
struct Name(UnsafeCell<[u8; NAME_BYTES]>);

// SAFETY: only the start writes it, once, before the file is known.
unsafe impl Sync for Name {}

static NAME: Name = Name(UnsafeCell::new([0; NAME_BYTES]));

/// What the kernel knows the file of a descriptor by.
fn identity(descriptor: i32) -> Option<(libc::dev_t, libc::ino_t)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the place is there, and zeroes are a value.
    unsafe {
        let answer = libc::fstat(descriptor, status.as_mut_ptr());
        let status = status.assume_init();
        (answer == 0).then_some((status.st_dev, status.st_ino))
    }
}

/// Opens a file out of the program's way; less than 0 if it cannot be.
fn open_high(name: &CStr, create: i32) -> i32 {
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC | create;
    // SAFETY: the name is a string; descriptors are those of this function.
    unsafe {
        let opened = libc::open(name.as_ptr(), flags, 0o644);
        if opened < 0 {
            return opened;
        }
        let moved = libc::fcntl(opened, libc::F_DUPFD_CLOEXEC, HIGH);
        if moved < 0 {
            return opened;
        }
        libc::close(opened);
        moved
    }
}

/// The descriptor, if it still is the report's, or a new one.
fn descriptor() -> Option<i32> {
    let file = FILE.get()?;
    let descriptor = DESCRIPTOR.load(Ordering::Relaxed);
    if descriptor < 0 || identity(descriptor) == Some(file.identity) {
        return Some(descriptor).filter(|descriptor| *descriptor >= 0);
    }
    let again = open_high(file.name, 0);
    if again < 0 {
        return None;
    }
    if identity(again) != Some(file.identity) {
        // SAFETY: it was just opened.
        unsafe { libc::close(again) };
        return None;
    }
    DESCRIPTOR.store(again, Ordering::Relaxed);
    Some(again)
}

/// Opens the descriptor that options or `nearpage run` name.
pub(crate) fn open(options: &str) {
    let file = options.split(',').find_map(|word| word.trim().strip_prefix("report="));
    let passed = variable("NEARPAGE_MALLOC_REPORT");
    let Some(path) = file.or(passed) else { return };
    if path.is_empty() || path.len() >= NAME_BYTES {
        return;
    }
    // SAFETY: the start runs once, and the last byte stays zero.
    let name = unsafe {
        let name = &mut *NAME.0.get();
        name[..path.len()].copy_from_slice(path.as_bytes());
        CStr::from_ptr(name.as_ptr().cast())
    };
    // One that is there may be somebody else's: the kernel may refuse to create it where all may create files.
    let mut opened = open_high(name, 0);
    if opened < 0 {
        opened = open_high(name, libc::O_CREAT);
    }
    // SAFETY: asks only, and registers a handler.
    unsafe {
        let Some(identity) = identity(opened) else {
            tell(format_args!("the report {path}: {}", std::io::Error::last_os_error()));
            return;
        };
        let _ = FILE.set(File { name, identity });
        DESCRIPTOR.store(opened, Ordering::Relaxed);
        PROCESS.store(libc::getpid(), Ordering::Relaxed);
        libc::pthread_atfork(None, None, Some(is_forked));
    }
}

/// Whether somebody wants samples.
pub(crate) fn wants_samples() -> bool {
    variable("NEARPAGE_MALLOC_SAMPLES").is_some()
}

/// Writes a sample.
pub(crate) fn sample() {
    // SAFETY: asks only.
    let process = unsafe { libc::getpid() };
    if process != PROCESS.load(Ordering::Relaxed) {
        return;
    }
    let Some(descriptor) = descriptor() else { return };
    let all = statistics();
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the answer is there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let mut line = Line::<1024>::new();
    let _ = writeln!(
        line,
        "{{\"sample\":{process},\"ms\":{},\"allocations\":{},\"in_use\":{},\"held\":{},\"faults\":{},\"nodes\":{:?}}}",
        time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000,
        allocations_of_this_process(&all),
        all.bytes_in_use(),
        all.bytes_held(),
        usage().ru_minflt,
        &all.bytes_by_node[..4],
    );
    line.write_to(descriptor);
}

/// Allocations since the process began, or since the fork that made it. At the fork the list of its thread counted too: a child
/// may have given more of that back than it allocated.
fn allocations_of_this_process(all: &Statistics) -> u64 {
    all.allocations().saturating_sub(FORKED_AT.load(Ordering::Relaxed))
}

fn usage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the place is there, and zeroes are a value.
    unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    }
}

/// Writes the report, at the end of the process.
pub(crate) extern "C" fn end() {
    // The child of a `vfork` has the memory of its parent, and is not the process that counted.
    // SAFETY: asks only.
    if unsafe { libc::getpid() } != PROCESS.load(Ordering::Relaxed) {
        return;
    }
    if let Some(descriptor) = descriptor()
        && DESCRIPTOR.swap(-1, Ordering::Relaxed) >= 0
    {
        write(descriptor);
    }
}

/// The child of a fork counts on its own account from here on.
extern "C" fn is_forked() {
    // SAFETY: asks only.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    if DESCRIPTOR.load(Ordering::Relaxed) >= 0 {
        FORKED_AT.store(statistics().allocations(), Ordering::Relaxed);
    }
}

#[used]
#[cfg_attr(feature = "symbols", unsafe(link_section = ".fini_array"))]
static END: extern "C" fn() = at_end;

/// A process that called no malloc has not started it, and says so.
extern "C" fn at_end() {
    if PROCESS.load(Ordering::Relaxed) == 0 {
        open(variable("NEARPAGE_MALLOC").unwrap_or_default());
    }
    end();
}

fn write(descriptor: i32) {
    let all = statistics();
    let mut line = Line::<16384>::new();
    // SAFETY: asks only.
    let (process, parent) = unsafe { (libc::getpid(), libc::getppid()) };
    let mut buffer = [0; FILE_BYTES];
    let peak = peak_kib(own_file(c"/proc/self/status", &mut buffer));
    let _ = write!(line, "{{\"program\":\"{Program}\",\"command\":\"");
    write_command(&mut line, own_file(c"/proc/self/cmdline", &mut buffer));
    let _ = write!(line, "\",\"peak_rss_kib\":");
    let _ = match peak {
        Some(peak) => write!(line, "{peak}"),
        None => write!(line, "null"),
    };
    let _ = write!(
        line,
        ",\"pid\":{process},\"parent\":{parent},\"minor_faults\":{},\"allocations\":{},\
         \"bytes_in_use\":{},\"bytes_held\":{},\"large\":{},\"large_bytes\":{},\"mapped\":{},\"mapped_bytes\":{},\
         \"freed_elsewhere\":{},\"batches\":{},\"heaps\":{},\"trims\":{},\"free_resident_bytes\":{},\"target_bytes\":{},\"misuses\":{},\"boot_bytes\":{},\
         \"bytes_by_node\":{:?},\"forked\":{},\"freed_on_other_node\":{},\"wrong_node_bytes\":{},\"elsewhere\":{:?},\
         \"by_cpu\":{:?},\"lock_waits\":{},\"lock_wait_ns\":{},\"classes\":[",
        usage().ru_minflt,
        allocations_of_this_process(&all),
        all.bytes_in_use(),
        all.bytes_held(),
        all.large,
        all.large_bytes,
        all.mapped,
        all.mapped_bytes,
        all.freed_elsewhere,
        all.batches,
        all.heaps,
        all.trims,
        all.free_resident_bytes,
        all.target_bytes,
        all.misuses,
        all.boot_bytes,
        all.bytes_by_node,
        FORKED_AT.load(Ordering::Relaxed) > 0,
        all.freed_on_other_node,
        all.wrong_node_bytes,
        all.elsewhere,
        all.by_cpu,
        all.lock_waits,
        all.lock_wait_ns,
    );
    let mut is_first = true;
    for (class, of) in all.classes.iter().enumerate().filter(|(_, of)| of.allocated > 0) {
        let comma = if is_first { "" } else { "," };
        is_first = false;
        let _ = write!(
            line,
            "{comma}{{\"size\":{},\"allocated\":{},\"in_use\":{},\"spans\":{},\"span_bytes\":{}}}",
            class_size(class),
            of.allocated,
            of.in_use,
            of.spans,
            of.span_bytes,
        );
    }
    let _ = writeln!(line, "]}}");
    line.write_to(descriptor);
}

/// What is read of a file of the process's own, at most.
const FILE_BYTES: usize = 2048;

/// The start of a file of the process's own; nothing where it cannot be read.
fn own_file<'a>(name: &CStr, buffer: &'a mut [u8; FILE_BYTES]) -> &'a [u8] {
    // SAFETY: the name is a string, the buffer has as much room as is said, and the descriptor is that of this function.
    let length = unsafe {
        let opened = libc::open(name.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if opened < 0 {
            return &[];
        }
        let length = libc::read(opened, buffer.as_mut_ptr().cast(), FILE_BYTES);
        libc::close(opened);
        length
    };
    &buffer[..usize::try_from(length).unwrap_or(0)]
}

/// The most that was resident of this program, of `/proc/self/status`. What `getrusage` tells has also what the process was
/// before it became this program: a copy of its parent.
fn peak_kib(status: &[u8]) -> Option<u64> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let rest = lines.find_map(|line| line.strip_prefix(b"VmHWM:"))?;
    std::str::from_utf8(rest).ok()?.split_whitespace().next()?.parse().ok()
}

/// Bytes of a command line that are told.
const COMMAND_BYTES: usize = 256;

/// Words with spaces in between, without what JSON would have to escape.
fn write_command(out: &mut impl Write, words: &[u8]) {
    let words = words.strip_suffix(b"\0").unwrap_or(words);
    for byte in &words[..words.len().min(COMMAND_BYTES)] {
        let shown = match byte {
            0 => ' ',
            b'"' | b'\\' => '\'',
            b' '..=b'~' => (*byte).into(),
            _ => '?',
        };
        let _ = out.write_char(shown);
    }
    if words.len() > COMMAND_BYTES {
        let _ = out.write_str("...");
    }
}

unsafe extern "C" {
    static program_invocation_short_name: *const libc::c_char;
}

/// The name of the program, without what JSON would have to escape.
struct Program;

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // SAFETY: the C library keeps the name, a string that ends with a zero.
        let name = unsafe {
            if program_invocation_short_name.is_null() {
                return Ok(());
            }
            CStr::from_ptr(program_invocation_short_name).to_bytes()
        };
        let is_plain = |byte: &&u8| byte.is_ascii_graphic() && !b"\"\\".contains(byte);
        name.iter().filter(is_plain).take(64).try_for_each(|byte| f.write_char((*byte).into()))
    }
}
