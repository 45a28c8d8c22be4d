//! Counters, and the texts of the kernel.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use std::sync::PoisonError;

use nearpage::NodeId;
use nearpage_linux::StatsError;

use crate::error::{Failure, call};
use crate::memory::{given, nearpage_memory, place, the};
use crate::options::{node, size_of_given};

/// As /proc/zoneinfo.
pub const NEARPAGE_TEXT_ZONEINFO: u32 = 0;
/// As /proc/buddyinfo.
pub const NEARPAGE_TEXT_BUDDYINFO: u32 = 1;
/// As /proc/pagetypeinfo.
pub const NEARPAGE_TEXT_PAGETYPEINFO: u32 = 2;
/// As /proc/vmstat.
pub const NEARPAGE_TEXT_VMSTAT: u32 = 3;
/// As /sys/devices/system/node/nodeN/numastat, of the named node.
pub const NEARPAGE_TEXT_NUMASTAT: u32 = 4;
/// As /proc/slabinfo.
pub const NEARPAGE_TEXT_SLABINFO: u32 = 5;
/// Pages that came from another node than wanted, by pair of nodes and reason.
pub const NEARPAGE_TEXT_FALLBACKS: u32 = 6;

/// Writes a text of the memory into `buffer`, as snprintf does: at most `bytes` bytes with the zero at the end.
///
/// Returns the bytes that the whole text needs, without that zero. `of` is the node of NEARPAGE_TEXT_NUMASTAT; for other
/// kinds it means nothing.
///
/// Errors: -EINVAL for an unknown kind or node.
///
/// # Safety
/// * `memory` is a memory. `buffer` has room for `bytes` bytes, or `bytes` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_text(
    memory: *const nearpage_memory,
    kind: u32,
    of: i32,
    buffer: *mut c_char,
    bytes: usize,
) -> i64 {
    let mut length = 0;
    let answer = call(|| {
        // SAFETY: the caller's promise.
        let owner = unsafe { the(memory) }?;
        let memory = &owner.memory;
        let text = match kind {
            NEARPAGE_TEXT_ZONEINFO => memory.zoneinfo(),
            NEARPAGE_TEXT_BUDDYINFO => memory.buddyinfo(),
            NEARPAGE_TEXT_PAGETYPEINFO => memory.pagetypeinfo(),
            NEARPAGE_TEXT_VMSTAT => memory.vmstat(),
            NEARPAGE_TEXT_NUMASTAT => {
                let id = node(of)?.ok_or_else(|| Failure::invalid("numastat is of one node"))?;
                let unknown = || Failure::invalid(format!("node {} is unknown", id.0));
                memory.numastat(id).ok_or_else(unknown)?
            }
            NEARPAGE_TEXT_SLABINFO => owner.slab()?.slabinfo(),
            NEARPAGE_TEXT_FALLBACKS => memory.fallbacks_text(),
            other => return Err(Failure::invalid(format!("text {other}: 0 to 6 are accepted"))),
        };
        if bytes != 0 {
            let out = given(buffer, "the buffer")?.cast::<u8>();
            let copied = text.len().min(bytes - 1);
            // SAFETY: the buffer has `bytes` bytes, by the caller's promise.
            unsafe {
                out.copy_from_nonoverlapping(
                    std::ptr::NonNull::from(text.as_bytes()).cast(),
                    copied,
                );
                out.add(copied).write(0);
            }
        }
        length = text.len() as i64;
        Ok(())
    });
    if answer == 0 { length } else { answer.into() }
}

/// Counters of a node, in pages. Set `size` to `sizeof(nearpage_stats)` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nearpage_stats {
    /// The size of this structure.
    pub size: usize,
    /// Pages that are online.
    pub managed_pages: u64,
    /// Pages that are free: neither callers nor CPUs have them.
    pub free_pages: u64,
    /// Below this, requests use the reserves.
    pub watermark_min: u64,
    /// Below this, the background thread works.
    pub watermark_low: u64,
    /// Until this, the background thread works.
    pub watermark_high: u64,
    /// Bytes of addresses that are not online yet.
    pub reserve_left_bytes: u64,
    /// Frees and unlocks of the whole memory that were refused.
    pub misuses: u64,
}

/// Reads the counters of a node.
///
/// Errors: -EINVAL for an unknown node, or a `size` that is not set.
///
/// # Safety
/// * `memory` is a memory; `out` points to counters whose `size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_node_stats(
    memory: *const nearpage_memory,
    node: u32,
    out: *mut nearpage_stats,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let memory = &unsafe { the(memory) }?.memory;
        let out = place(out)?;
        let id = Some(NodeId(node));
        let known = id.filter(|id| memory.topology().index_of(*id).is_some());
        let id = known.ok_or_else(|| Failure::invalid(format!("node {node} is unknown")))?;
        let marks = memory.watermarks(id);
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_given(out.as_ptr(), "nearpage_stats") }?;
        let stats = nearpage_stats {
            size,
            managed_pages: memory.managed_pages(id).0,
            free_pages: memory.free_pages(id).0,
            watermark_min: marks.min.0,
            watermark_low: marks.low.0,
            watermark_high: marks.high.0,
            reserve_left_bytes: memory.reserve_left(id),
            misuses: memory.misuses(),
        };
        let bytes = size.min(size_of::<nearpage_stats>());
        // SAFETY: the caller's structure has `size` bytes, by its promise, and this one is as long.
        unsafe { (&raw const stats).cast::<u8>().copy_to(out.as_ptr().cast(), bytes) };
        Ok(())
    })
}

/// Serves the figures of the memory on a unix socket at `path`, for `nearpage top --process`, `nearpage export --process` and
/// `nearpage proc`. Only this user and root can read it. NULL ends it; another path replaces it. A child of a fork serves
/// nothing until it calls this.
///
/// Errors: -EEXIST if something is at `path` already, -EAGAIN if no thread can be started, or what the system says.
///
/// # Safety
/// * `memory` is a memory; `path` is null or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_stats_serve(
    memory: *const nearpage_memory,
    path: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let owner = unsafe { the(memory) }?;
        let mut served = owner.stats.lock().unwrap_or_else(PoisonError::into_inner);
        // The old name may be the new one.
        *served = None;
        if !path.is_null() {
            // SAFETY: the caller's promise.
            let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
            *served = Some(owner.memory.serve_stats(path).map_err(not_served)?);
        }
        Ok(())
    })
}

fn not_served(error: StatsError) -> Failure {
    let errno = match &error {
        StatsError::Taken { .. } => libc::EEXIST,
        StatsError::Refused { error, .. } | StatsError::Thread(error) => {
            error.raw_os_error().unwrap_or(libc::EINVAL)
        }
        _ => libc::EINVAL,
    };
    Failure::new(errno, error)
}

/// Empties all caches and gives free memory above the `high` watermarks back to the kernel. Returns the pages of the blocks
/// that went back.
///
/// # Safety
/// * `memory` is a memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_trim(memory: *const nearpage_memory) -> i64 {
    let mut pages = 0;
    let answer = call(|| {
        // SAFETY: the caller's promise.
        pages = unsafe { the(memory) }?.memory.trim().0 as i64;
        Ok(())
    });
    if answer == 0 { pages } else { answer.into() }
}
