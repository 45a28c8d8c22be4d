//! Pages: blocks, bulk, limits.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use nearpage::{LimitOf, Limits, NodeId, Order, Pfn, Request};

use crate::error::{Failure, call};
use crate::memory::{given, nearpage_memory, place, the};
use crate::options::{NEARPAGE_ANY_NODE, gfp, node};

/// Pages that a bulk call moves at a time, in an array on the stack.
const CHUNK: usize = 64;

/// Frame numbers are addresses divided by this.
const FRAME_SHIFT: u32 = 12;

/// The frame that an address lies in.
pub(crate) fn frame_of(address: *const c_void) -> Pfn {
    Pfn(address.addr() as u64 >> FRAME_SHIFT)
}

fn order(order: u32) -> Result<Order, Failure> {
    u8::try_from(order)
        .map(Order)
        .map_err(|_| Failure::invalid(format!("order {order}: 0 to 10 are accepted")))
}

/// Allocates a block of 2^order pages of 4096 bytes, aligned to its size.
///
/// The block is near the calling thread's CPU, or on `node`. The order is 0 to 10. `flags` are NEARPAGE_ZERO,
/// NEARPAGE_THISNODE and NEARPAGE_NOWAIT, added.
///
/// Errors: -ENOMEM without memory or above a limit, -EINVAL for an unknown node or flag.
///
/// # Safety
/// * `memory` is a memory; `out` points to a place for the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_pages_alloc(
    memory: *const nearpage_memory,
    order: u32,
    flags: u32,
    node: i32,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    let (Some(memory_ref), Some(out)) = (unsafe { memory.as_ref() }, NonNull::new(out)) else {
        return Failure::invalid("the memory or the place for the result is NULL").answer();
    };
    // What pools ask for takes no detour.
    if flags == 0 && node == NEARPAGE_ANY_NODE && order <= 10 {
        let request = Request::new(Order(order as u8), nearpage::Gfp::HIGHUSER_MOVABLE);
        return match memory_ref.memory.alloc_frames(request) {
            // SAFETY: the caller's promise.
            Ok(pfn) => unsafe {
                out.write((pfn.0 << FRAME_SHIFT) as *mut c_void);
                0
            },
            Err(error) => Failure::from(error).answer(),
        };
    }
    // SAFETY: the caller's promises.
    unsafe { alloc_otherwise(memory, order, flags, node, out) }
}

#[cold]
unsafe fn alloc_otherwise(
    memory: *const nearpage_memory,
    blocks: u32,
    flags: u32,
    on: i32,
    out: NonNull<*mut c_void>,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { the(memory) }?;
        let mut request = Request::new(order(blocks)?, gfp(flags)?);
        request.node = node(on)?;
        let block = memory.memory.alloc(request)?;
        let address = block.as_ptr();
        block.into_frames();
        // SAFETY: the caller's promise.
        unsafe { out.write(address.as_ptr().cast()) };
        Ok(())
    })
}

/// Frees a block by its first address and its order. NULL is accepted.
///
/// Errors: -EINVAL if no such block is allocated, -EFAULT if the address is of no node's range, -EBUSY if its first page is
/// locked. The call then changes nothing.
///
/// # Safety
/// * `memory` is a memory. Nobody uses the block any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_pages_free(
    memory: *const nearpage_memory,
    pages: *mut c_void,
    order: u32,
) -> c_int {
    let address = pages.addr() as u64;
    // SAFETY: the caller's promise.
    let Some(memory) = (unsafe { memory.as_ref() }) else {
        return Failure::invalid("the memory is NULL").answer();
    };
    if address & 0xfff != 0 || order > 10 || address == 0 {
        return refused_or_null(address, order);
    }
    // SAFETY: the caller's promise.
    match unsafe { memory.memory.free_frames(Pfn(address >> FRAME_SHIFT), Order(order as u8)) } {
        Ok(()) => 0,
        Err(error) => Failure::from(error).answer(),
    }
}

#[cold]
fn refused_or_null(address: u64, order: u32) -> c_int {
    if address == 0 {
        return 0;
    }
    let message = format!(
        "{address:#x}, order {order}: the address of a block is a multiple of 4096, and its order 0 to 10"
    );
    Failure::invalid(message).answer()
}

/// Allocates up to `count` single pages at once; `*got` says how many there were, 0 after an error. Fewer are all that could be
/// had.
///
/// Errors: as nearpage_pages_alloc, if there was not even one.
///
/// # Safety
/// * `memory` is a memory, `pages` has room for `count` addresses, `got` points to a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_pages_alloc_bulk(
    memory: *const nearpage_memory,
    flags: u32,
    on: i32,
    count: usize,
    pages: *mut *mut c_void,
    got: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { the(memory) }?;
        let (pages, got) = (given(pages, "the array of pages")?, place(got)?);
        // SAFETY: the caller's promise.
        unsafe { got.write(0) };
        let mut request = Request::new(Order(0), gfp(flags & !crate::NEARPAGE_ZERO)?);
        request.node = node(on)?;
        let mut done = 0;
        while done < count {
            let mut frames = [Pfn(0); CHUNK];
            let want = (count - done).min(CHUNK);
            let more = match memory.memory.alloc_frames_bulk(request, &mut frames[..want]) {
                Ok(more) => more,
                Err(error) if done == 0 => return Err(error.into()),
                Err(_) => 0,
            };
            for frame in &frames[..more] {
                let address = memory.memory.address(*frame).as_ptr();
                // SAFETY: the page is new and this call's; the array has room, by the caller's promise.
                unsafe {
                    if flags & crate::NEARPAGE_ZERO != 0 {
                        address.write_bytes(0, 1 << FRAME_SHIFT);
                    }
                    pages.add(done).write(address.cast());
                }
                done += 1;
            }
            // Where no zone has room for more than one, one comes: the next call may find another.
            if more == 0 {
                break;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { got.write(done) };
        Ok(())
    })
}

/// Frees single pages.
///
/// Errors: -EINVAL if some were refused; the others are free then.
///
/// # Safety
/// * `memory` is a memory, `pages` has `count` addresses of pages that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_pages_free_bulk(
    memory: *const nearpage_memory,
    count: usize,
    pages: *const *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { the(memory) }?;
        if count == 0 {
            return Ok(());
        }
        let pages = given(pages, "the array of pages")?;
        // SAFETY: the caller's promise.
        let pages = unsafe { std::slice::from_raw_parts(pages.as_ptr(), count) };
        let mut refused = None;
        for chunk in pages.chunks(CHUNK) {
            let mut frames = [Pfn(0); CHUNK];
            for (frame, page) in frames.iter_mut().zip(chunk) {
                *frame = frame_of(*page);
            }
            // SAFETY: the caller's promise.
            let freed = unsafe { memory.memory.free_frames_bulk(&frames[..chunk.len()]) };
            refused = refused.or(freed.err());
        }
        refused.map_or(Ok(()), |error| Err(Failure::invalid(error)))
    })
}

/// The node that an address belongs to, or -EFAULT if it is of no node's range, and in no bytes that were asked for on a node.
///
/// # Safety
/// * `memory` is a memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_node_of(
    memory: *const nearpage_memory,
    address: *const c_void,
) -> c_int {
    let mut found = 0;
    let answer = call(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { the(memory) }?;
        let node = memory.memory.node_of(frame_of(address));
        let node = node.or_else(|| memory.large.node_of(address.addr()));
        let outside = || Failure::new(libc::EFAULT, format!("{address:p} is in no node's range"));
        found = node.ok_or_else(outside)?.0 as c_int;
        Ok(())
    });
    if answer == 0 { found } else { answer }
}

fn limit_of(on: i32) -> Result<LimitOf, Failure> {
    Ok(node(on)?.map_or(LimitOf::Allocator, |NodeId(node)| LimitOf::Node(NodeId(node))))
}

/// Limits the bytes in use on a node, or on all with NEARPAGE_ANY_NODE: what callers have and what CPUs cache. A limit of
/// 0 is none. More than the hard limit is never in use: requests then pass over the node, and fail if no other may serve
/// them. Above the soft one, reclaim works.
///
/// Errors: -EINVAL for an unknown node, or a soft limit that is not below the hard one.
///
/// # Safety
/// * `memory` is a memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_set_limits(
    memory: *const nearpage_memory,
    node: i32,
    hard_bytes: u64,
    soft_bytes: u64,
) -> c_int {
    call(|| {
        let some = |bytes| (bytes != 0).then_some(bytes);
        let limits = Limits {
            hard_bytes: some(hard_bytes),
            soft_bytes: some(soft_bytes),
            ..Limits::default()
        };
        // SAFETY: the caller's promise.
        let memory = unsafe { the(memory) }?;
        memory.memory.set_limits(limit_of(node)?, limits).map_err(Failure::invalid)
    })
}

/// Bytes of a node, or of all with NEARPAGE_ANY_NODE, that callers have or CPUs cache.
///
/// Errors: -EINVAL for an unknown node.
///
/// # Safety
/// * `memory` is a memory; `out` points to a place for the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_in_use(
    memory: *const nearpage_memory,
    node: i32,
    out: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let memory = unsafe { the(memory) }?;
        let of = limit_of(node)?;
        let pages = memory.memory.in_use(of).map_err(Failure::invalid)?;
        // SAFETY: the caller's promise.
        unsafe { place(out)?.write((pages.0 << FRAME_SHIFT) + memory.large.bytes(of)) };
        Ok(())
    })
}
