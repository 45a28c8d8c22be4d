//! Options and flags, as C has them.

use nearpage::{Gfp, NodeId};
use nearpage_linux::internals::{address_limit, physical_bytes};
use nearpage_linux::{BindMode, Environment, HostMachine, HugePages, Memory, MemoryBuilder, Nodes};

use crate::error::Failure;

/// Bytes by which a memory grows.
pub(crate) const GROWTH_BYTES: u64 = 128 << 20;

/// Any node: the one of the calling thread's CPU first.
pub const NEARPAGE_ANY_NODE: i32 = -1;

/// The memory is cleared.
pub const NEARPAGE_ZERO: u32 = 1;
/// Only the named node will do.
pub const NEARPAGE_THISNODE: u32 = 2;
/// The call fails instead of waiting for reclaim. As for any call, the pages below the `min` watermark stay.
pub const NEARPAGE_NOWAIT: u32 = 4;

/// Memory of a node comes from this node, or the call fails.
pub const NEARPAGE_BIND_STRICT: u32 = 1;
/// Memory comes from its node as long as the kernel can.
pub const NEARPAGE_BIND_ADVISORY: u32 = 2;
/// The kernel is not asked.
pub const NEARPAGE_BIND_NONE: u32 = 3;

/// Transparent huge pages are asked for.
pub const NEARPAGE_HUGE_ADVISED: u32 = 1;
/// Explicit huge pages of 2 MiB.
pub const NEARPAGE_HUGE_EXPLICIT: u32 = 2;
/// No huge pages.
pub const NEARPAGE_HUGE_NEVER: u32 = 3;

/// CPUs cache pages behind locks, not by restartable sequences.
pub const NEARPAGE_MEMORY_NO_RSEQ: u32 = 1;
/// Wrong frees are looked for on the fast path, too.
pub const NEARPAGE_MEMORY_HARDENED: u32 = 2;
/// The variables NEARPAGE_NUMA, NEARPAGE_RSEQ, NEARPAGE_STATS and NEARPAGE_ENV are read.
pub const NEARPAGE_MEMORY_READS_ENVIRONMENT: u32 = 4;

/// Options of a memory. Set `size` to `sizeof(nearpage_memory_options)` and all else to 0 before you choose.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct nearpage_memory_options {
    /// The size of this structure.
    pub size: usize,
    /// Bytes of each node that are online from the start, rounded down to whole pages; at least 4096. What lies below the
    /// node's `min` watermark stays free: of 64 MiB, 63 can be had. 0: 64 MiB, and growth as the next option says.
    pub bytes_per_node: u64,
    /// Bytes of addresses of each node, which the memory may grow to, by 128 MiB each time that a request finds nothing else.
    /// 0: if `bytes_per_node` is 0, what the machine has, shared by the nodes; else no growth. Without as many addresses
    /// (`ulimit -v`) there is no growth that nobody asked for.
    pub reserve_per_node: u64,
    /// As many emulated nodes, which share the CPUs. 0: the nodes of the kernel.
    pub fake_nodes: u32,
    /// A constant NEARPAGE_BIND_*, or 0 for the default.
    pub bind: u32,
    /// A constant NEARPAGE_HUGE_*, or 0 for what the kernel does by itself.
    pub huge: u32,
    /// Constants NEARPAGE_MEMORY_*, added.
    pub flags: u32,
}

/// Reads a structure that starts with its size: what the caller's header did not know stays as in the default. What this
/// library does not know must be 0, or a program would believe in what nobody does.
///
/// # Safety
/// * `from` is null, or points to a structure of C of that kind whose first field is its size.
pub(crate) unsafe fn sized<T: Default + Copy>(from: *const T, name: &str) -> Result<T, Failure> {
    let mut options = T::default();
    if from.is_null() {
        return Ok(options);
    }
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_given(from, name) }?;
    let known = size.min(size_of::<T>());
    // SAFETY: the caller's structure has `size` bytes.
    if let Some(at) = (known..size).find(|&at| unsafe { from.cast::<u8>().add(at).read() } != 0) {
        return Err(Failure::invalid(format!(
            "{name} has an option at byte {at} that this version does not know; 0 is accepted there, and sizeof({name}) is \
             {known} in this version"
        )));
    }
    // SAFETY: the caller's structure has `size` bytes and this one has `size_of::<T>()`; it is made of integers and pointers.
    unsafe { from.cast::<u8>().copy_to((&raw mut options).cast(), known) };
    Ok(options)
}

/// The size that a structure of C says it has.
///
/// # Safety
/// * `given` points to a structure of C whose first field is its size.
pub(crate) unsafe fn size_of_given<T>(given: *const T, name: &str) -> Result<usize, Failure> {
    // SAFETY: the first field is a size, by the caller's promise.
    let size = unsafe { given.cast::<usize>().read() };
    if size < size_of::<usize>() || size > 4096 {
        return Err(Failure::invalid(format!(
            "{name}.size is {size}; sizeof({name}) is accepted, {} in this version",
            size_of::<T>()
        )));
    }
    Ok(size)
}

impl nearpage_memory_options {
    /// The options of a memory that grows as the machine allows; `None` if the program named sizes itself.
    pub(crate) fn growing(&self, environment: &Environment) -> Option<Self> {
        if self.bytes_per_node != 0 || self.reserve_per_node != 0 || address_limit().is_some() {
            return None;
        }
        let nodes = match self.fake_nodes {
            0 => environment.machine().ok()?.nodes.iter().filter(|node| node.has_memory).count(),
            fake => fake as usize,
        };
        let share = physical_bytes() / nodes.max(1) as u64;
        Some(Self { reserve_per_node: share - share % GROWTH_BYTES, ..*self })
    }

    /// The environment, if the program wants it to be read.
    pub(crate) fn environment(&self) -> Result<Environment, Failure> {
        if self.flags & NEARPAGE_MEMORY_READS_ENVIRONMENT == 0 {
            return Ok(Environment::default());
        }
        Environment::from_env().map_err(Failure::invalid)
    }

    pub(crate) fn builder(&self, environment: Environment) -> Result<MemoryBuilder, Failure> {
        let unknown = self.flags
            & !(NEARPAGE_MEMORY_NO_RSEQ
                | NEARPAGE_MEMORY_HARDENED
                | NEARPAGE_MEMORY_READS_ENVIRONMENT);
        if unknown != 0 {
            return Err(Failure::invalid(format!(
                "flags of a memory: {unknown:#x} is none; NEARPAGE_MEMORY_NO_RSEQ, NEARPAGE_MEMORY_HARDENED and \
                 NEARPAGE_MEMORY_READS_ENVIRONMENT are accepted"
            )));
        }
        let mut builder = Memory::builder().environment(environment);
        if self.fake_nodes != 0 {
            builder = builder.machine(fake(self.fake_nodes)?);
        }
        let bytes = if self.bytes_per_node == 0 { 64 << 20 } else { self.bytes_per_node };
        if bytes < 4096 {
            return Err(Failure::invalid(format!(
                "bytes_per_node: {bytes}; 0, or a page of 4096 bytes and more, is accepted"
            )));
        }
        builder = builder.bytes_per_node(bytes);
        if self.reserve_per_node != 0 {
            builder = builder.reserve_per_node(self.reserve_per_node);
        }
        builder = match self.bind {
            0 => builder,
            NEARPAGE_BIND_STRICT => builder.bind(BindMode::Strict),
            NEARPAGE_BIND_ADVISORY => builder.bind(BindMode::Advisory),
            NEARPAGE_BIND_NONE => builder.bind(BindMode::None),
            other => return Err(Failure::invalid(format!("bind: {other}; 0 to 3 are accepted"))),
        };
        builder = match self.huge {
            0 => builder,
            NEARPAGE_HUGE_ADVISED => builder.huge_pages(HugePages::Advised),
            NEARPAGE_HUGE_EXPLICIT => builder.huge_pages(HugePages::Explicit),
            NEARPAGE_HUGE_NEVER => builder.huge_pages(HugePages::Never),
            other => return Err(Failure::invalid(format!("huge: {other}; 0 to 3 are accepted"))),
        };
        if self.flags & NEARPAGE_MEMORY_NO_RSEQ != 0 {
            builder = builder.use_rseq(false);
        }
        Ok(builder.hardened(self.flags & NEARPAGE_MEMORY_HARDENED != 0))
    }
}

fn fake(nodes: u32) -> Result<HostMachine, Failure> {
    let count = u16::try_from(nodes).ok().and_then(std::num::NonZeroU16::new);
    let count = count.ok_or_else(|| {
        Failure::invalid(format!("fake_nodes: {nodes}; 1 to {} are accepted", u16::MAX))
    })?;
    let mut environment = Environment::default();
    environment.nodes = Nodes::Shares(count);
    environment.machine().map_err(Failure::invalid)
}

/// The flags of a request.
#[inline]
pub(crate) fn gfp(flags: u32) -> Result<Gfp, Failure> {
    if flags == 0 {
        return Ok(Gfp::HIGHUSER_MOVABLE);
    }
    flags_of(flags, Gfp::HIGHUSER_MOVABLE)
}

/// The flags of a request for objects, whose slabs cannot move.
#[inline]
pub(crate) fn object_gfp(flags: u32) -> Result<Gfp, Failure> {
    if flags == 0 {
        return Ok(Gfp::KERNEL);
    }
    flags_of(flags, Gfp::KERNEL)
}

#[cold]
fn flags_of(flags: u32, usual: Gfp) -> Result<Gfp, Failure> {
    let known = NEARPAGE_ZERO | NEARPAGE_THISNODE | NEARPAGE_NOWAIT;
    if flags & !known != 0 {
        let unknown = flags & !known;
        return Err(Failure::invalid(format!(
            "flags of a request: {unknown:#x} is none; NEARPAGE_ZERO, NEARPAGE_THISNODE and \
             NEARPAGE_NOWAIT are accepted"
        )));
    }
    let mut gfp = usual;
    if flags & NEARPAGE_NOWAIT != 0 {
        gfp = gfp.difference(Gfp::DIRECT_RECLAIM);
    }
    if flags & NEARPAGE_ZERO != 0 {
        gfp = gfp.union(Gfp::ZERO);
    }
    if flags & NEARPAGE_THISNODE != 0 {
        gfp = gfp.union(Gfp::THISNODE);
    }
    Ok(gfp)
}

/// The node of a request; `None` for any.
#[inline]
pub(crate) fn node(node: i32) -> Result<Option<NodeId>, Failure> {
    if node == NEARPAGE_ANY_NODE {
        return Ok(None);
    }
    u32::try_from(node).map(|node| Some(NodeId(node))).map_err(|_| {
        Failure::invalid(format!("node {node}: a node's number or NEARPAGE_ANY_NODE is accepted"))
    })
}
