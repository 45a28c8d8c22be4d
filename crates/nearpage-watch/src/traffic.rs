//! What CPUs move between zones and their pagesets, counted by the kernel where it allows that.
//!
//! No file of /proc has these counts. The kernel's tracepoints do: `perf_event_open(2)` counts them on each CPU, for as
//! long as its descriptors are open, and leaves nothing behind.

use std::ffi::{CString, c_long, c_ulong};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::Instant;

/// CPUs that are counted: each takes two descriptors, and two interrupts of that CPU when it is read.
const CPUS_MAX: usize = 256;
/// Where tracefs is, first choice first.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// A block that a zone gave, and of these those for a pageset: newer kernels say so, older ones tell by the order.
const REFILL: &str = "mm_page_alloc_zone_locked";
const REFILL_FILTERS: [&str; 2] = ["percpu_refill == 1", "order == 0"];
/// A block that went from a pageset to its zone.
const DRAIN: &str = "mm_page_pcpu_drain";

/// What a CPU moved since the reading before, in blocks a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuTraffic {
    /// The CPU.
    pub cpu: u32,
    /// Blocks from zones into its pagesets.
    pub refills: u64,
    /// Blocks back. Those that another CPU drains count there.
    pub drains: u64,
}

/// Counts what CPUs move, until it is dropped. Each event costs the kernel about a tenth of a microsecond meanwhile.
///
/// ```no_run
/// let mut traffic = nearpage_watch::Traffic::open(&[0, 1])?;
/// std::thread::sleep(std::time::Duration::from_secs(1));
/// for cpu in traffic.rates() {
///     println!("CPU {}: {} refills and {} drains a second", cpu.cpu, cpu.refills, cpu.drains);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Traffic {
    cpus: Vec<Counted>,
    read_at: Instant,
}

#[derive(Debug)]
struct Counted {
    cpu: u32,
    refills: Counter,
    drains: Counter,
}

#[derive(Debug)]
struct Counter {
    file: File,
    last: u64,
}

impl Traffic {
    /// Counts on these CPUs from now on. CPUs that are offline are left out.
    ///
    /// # Errors
    ///
    /// The system does not allow it: it takes root, or `CAP_PERFMON` and a tracefs that may be read. More than 256 CPUs
    /// are refused.
    pub fn open(cpus: &[u32]) -> io::Result<Traffic> {
        if cpus.len() > CPUS_MAX {
            let why = format!("{} CPUs; at most {CPUS_MAX} are counted", cpus.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let (refill, drain) = (tracepoint(REFILL)?, tracepoint(DRAIN)?);
        let mut counted = Vec::new();
        for &cpu in cpus {
            let opened = Counter::open(refill, cpu).and_then(|refills| {
                refills.filter(&REFILL_FILTERS)?;
                Ok(Counted { cpu, refills, drains: Counter::open(drain, cpu)? })
            });
            match opened {
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                opened => counted.push(opened?),
            }
        }
        Ok(Traffic { cpus: counted, read_at: Instant::now() })
    }

    /// What each CPU moved since the reading before, or since it was opened. A CPU that went offline moves nothing.
    pub fn rates(&mut self) -> Vec<CpuTraffic> {
        let now = Instant::now();
        let micros = now.duration_since(self.read_at).as_micros().max(1);
        self.read_at = now;
        let rate = |counter: &mut Counter| {
            (u128::from(counter.more()) * 1_000_000 / micros).try_into().unwrap_or(u64::MAX)
        };
        let cpus = self.cpus.iter_mut().map(|counted| CpuTraffic {
            cpu: counted.cpu,
            refills: rate(&mut counted.refills),
            drains: rate(&mut counted.drains),
        });
        cpus.collect()
    }
}

/// The number of a tracepoint of `kmem`.
fn tracepoint(name: &str) -> io::Result<u64> {
    let mut failed = None;
    for root in TRACEFS {
        let path = format!("{root}/events/kmem/{name}/id");
        match fs::read_to_string(&path) {
            Ok(text) => {
                let id = text.trim().parse();
                return id.map_err(|_| io::Error::other(format!("{path}: no number")));
            }
            Err(error) => {
                failed.get_or_insert(io::Error::new(error.kind(), format!("{error}: {path}")));
            }
        }
    }
    Err(failed.expect("there are two places"))
}

/// `struct perf_event_attr` as its first version has it (`PERF_ATTR_SIZE_VER0`): all that a plain count needs.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: c_ulong = 8;
/// `PERF_EVENT_IOC_SET_FILTER`: `_IOW('$', 6, char *)`.
const SET_FILTER: c_ulong =
    1 << 30 | (size_of::<usize>() as c_ulong) << 16 | (b'$' as c_ulong) << 8 | 6;

impl Counter {
    /// Counts a tracepoint on one CPU, of all processes.
    fn open(tracepoint: u64, cpu: u32) -> io::Result<Counter> {
        let size = size_of::<EventAttributes>() as u32;
        let attributes =
            EventAttributes { kind: TRACEPOINT, size, config: tracepoint, ..Default::default() };
        let (all, no_group): (c_long, c_long) = (-1, -1);
        // SAFETY: the kernel reads `size` bytes of the attributes, which live until the call returns, and writes nothing.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                all,
                c_long::from(cpu),
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        let descriptor = i32::try_from(answer).ok().filter(|descriptor| *descriptor >= 0);
        let descriptor = descriptor.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the call returned this descriptor, and nobody else has it.
        let file = unsafe { File::from_raw_fd(descriptor) };
        Ok(Counter { file, last: 0 })
    }

    /// Counts only what one of these lets through: the first that the kernel understands.
    fn filter(&self, filters: &[&str]) -> io::Result<()> {
        let mut failed = io::Error::from(ErrorKind::InvalidInput);
        for filter in filters {
            let filter = CString::new(*filter)?;
            // SAFETY: the kernel reads the filter up to its NUL, and the descriptor is open.
            let answer =
                unsafe { libc::ioctl(self.file.as_raw_fd(), SET_FILTER as _, filter.as_ptr()) };
            if answer == 0 {
                return Ok(());
            }
            failed = io::Error::last_os_error();
        }
        Err(failed)
    }

    /// Events since the last reading.
    fn more(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let count = match self.file.read_exact(&mut bytes) {
            Ok(()) => u64::from_ne_bytes(bytes),
            Err(_) => self.last,
        };
        let more = count.saturating_sub(self.last);
        self.last = count;
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_size_of_the_first_version() {
        assert_eq!(size_of::<EventAttributes>(), 64);
    }

    #[test]
    fn too_many_cpus_are_refused() {
        let cpus: Vec<u32> = (0..257).collect();
        assert_eq!(Traffic::open(&cpus).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    /// Where counting is allowed, memory that is taken and given back is seen as blocks that move.
    #[test]
    fn blocks_that_move_are_counted() {
        let cpus: Vec<u32> = (0..64).collect();
        let mut traffic = match Traffic::open(&cpus) {
            Ok(traffic) => traffic,
            Err(error) => return eprintln!("SKIPPED: the system counts nothing here ({error})"),
        };
        assert!(!traffic.cpus.is_empty());
        for _ in 0..4 {
            drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        }
        let moved: u64 = traffic.rates().iter().map(|cpu| cpu.refills).sum();
        assert!(moved > 0);
    }
}
