//! Policies: which nodes requests take memory from.

use std::ffi::{c_int, c_void};

use nearpage::{Cursor, NodeId, NodeSet, Order, Placement, Policy, Request, Turn};

use crate::error::{Failure, call};
use crate::memory::{nearpage_memory, place, the};
use crate::options::{gfp, sized};

/// The node of the calling thread's CPU first.
pub const NEARPAGE_POLICY_LOCAL: u32 = 0;
/// The nearest of the named nodes first, then others.
pub const NEARPAGE_POLICY_PREFERRED_MANY: u32 = 1;
/// Only the named nodes.
pub const NEARPAGE_POLICY_BIND: u32 = 2;
/// The named nodes in turn.
pub const NEARPAGE_POLICY_INTERLEAVE: u32 = 3;
/// The named nodes in turn, each as often as its weight says.
pub const NEARPAGE_POLICY_WEIGHTED_INTERLEAVE: u32 = 4;

/// Options of a policy. Set `size` to `sizeof(nearpage_policy_options)` and all else to 0 before you choose.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nearpage_policy_options {
    /// The size of this structure.
    pub size: usize,
    /// A constant NEARPAGE_POLICY_*.
    pub kind: u32,
    /// How many nodes there are in `nodes`.
    pub count: u32,
    /// The nodes. They are copied.
    pub nodes: *const u32,
    /// For NEARPAGE_POLICY_WEIGHTED_INTERLEAVE: a weight of 1 to 255 for each of them.
    pub weights: *const u8,
}

impl Default for nearpage_policy_options {
    fn default() -> Self {
        Self { size: 0, kind: 0, count: 0, nodes: std::ptr::null(), weights: std::ptr::null() }
    }
}

/// A policy. Threads that share one take turns in it.
#[expect(non_camel_case_types, reason = "the name in C")]
#[derive(Debug)]
pub struct nearpage_policy {
    kind: u32,
    nodes: Vec<NodeId>,
    words: usize,
    /// By the memory's dense indexes.
    weights: Vec<u8>,
    cursor: Cursor,
}

/// Makes a policy for requests to `memory`.
///
/// Errors: -EINVAL for an unknown kind or node, or without nodes where the kind needs some.
///
/// # Safety
/// * `memory` is a memory, `options` points to options, `out` to a place for the policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_policy_create(
    memory: *const nearpage_memory,
    options: *const nearpage_policy_options,
    out: *mut *mut nearpage_policy,
) -> c_int {
    call(|| {
        let out = place(out)?;
        // SAFETY: the caller's promise.
        let (memory, options) =
            unsafe { (the(memory)?, sized(options, "nearpage_policy_options")?) };
        // SAFETY: the caller's promise.
        let policy = unsafe { read(memory, &options) }?;
        // SAFETY: the caller's promise.
        unsafe { out.write(Box::into_raw(Box::new(policy))) };
        Ok(())
    })
}

/// # Safety
/// * The arrays have `count` elements or are null.
unsafe fn read(
    memory: &nearpage_memory,
    options: &nearpage_policy_options,
) -> Result<nearpage_policy, Failure> {
    let topology = memory.memory.topology();
    if options.kind > NEARPAGE_POLICY_WEIGHTED_INTERLEAVE {
        return Err(Failure::invalid(format!("policy {}: 0 to 4 are accepted", options.kind)));
    }
    let count = options.count as usize;
    let mut nodes = Vec::new();
    let mut weights = vec![1; topology.nodes().len()];
    if count != 0 && options.nodes.is_null() {
        return Err(Failure::invalid("the nodes of the policy are NULL"));
    }
    for at in 0..count {
        // SAFETY: the caller's promise.
        let number = unsafe { options.nodes.add(at).read() };
        let node = Some(NodeId(number));
        let index = node.and_then(|node| topology.index_of(node));
        let (Some(node), Some(_)) = (node, index) else {
            let known: Vec<_> = topology.nodes().iter().map(|node| node.id.0).collect();
            return Err(Failure::invalid(format!("node {number} is not one of {known:?}")));
        };
        nodes.push(node);
        if options.kind == NEARPAGE_POLICY_WEIGHTED_INTERLEAVE && !options.weights.is_null() {
            let place = topology.nodes().iter().position(|other| other.id == node);
            // SAFETY: the caller's promise.
            let weight = unsafe { options.weights.add(at).read() };
            if weight == 0 {
                return Err(Failure::invalid(format!(
                    "the weight of node {number} is 0; 1 to 255 are accepted"
                )));
            }
            weights[place.expect("the node is known")] = weight;
        }
    }
    if nodes.is_empty() && options.kind != NEARPAGE_POLICY_LOCAL {
        return Err(Failure::invalid("this policy needs nodes; there are none"));
    }
    let words = NodeSet::words(topology);
    Ok(nearpage_policy { kind: options.kind, nodes, words, weights, cursor: Cursor::new() })
}

/// Ends a policy. NULL is accepted.
///
/// # Safety
/// * `policy` is null or a policy that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_policy_destroy(policy: *mut nearpage_policy) {
    if !policy.is_null() {
        // SAFETY: the caller's promise; it came from a box.
        drop(unsafe { Box::from_raw(policy) });
    }
}

/// Allocates a block by a policy; otherwise as nearpage_pages_alloc.
///
/// # Safety
/// * `memory` is a memory, `policy` a policy made for it; `out` points to a place for the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nearpage_pages_alloc_by(
    memory: *const nearpage_memory,
    policy: *const nearpage_policy,
    order: u32,
    flags: u32,
    out: *mut *mut c_void,
) -> c_int {
    call(|| {
        let out = place(out)?;
        // SAFETY: the caller's promises.
        let (memory, policy) = unsafe { (the(memory)?, policy.as_ref()) };
        let policy = policy.ok_or_else(|| Failure::invalid("the policy is NULL"))?;
        let order = u8::try_from(order).map_err(|_| Failure::invalid("order: 0 to 10"))?;
        let mut few = [0; 8];
        let mut many = Vec::new();
        let words = if policy.words <= few.len() {
            &mut few[..policy.words]
        } else {
            many.resize(policy.words, 0);
            &mut many[..]
        };
        let turn = Turn::Next(&policy.cursor);
        let by = if policy.kind == NEARPAGE_POLICY_LOCAL {
            Policy::Local
        } else {
            let nodes = policy.nodes.iter().copied();
            let nodes = NodeSet::new(memory.memory.topology(), nodes, words)
                .map_err(|error| Failure::invalid(format!("the nodes of the policy: {error}")))?;
            match policy.kind {
                NEARPAGE_POLICY_PREFERRED_MANY => Policy::PreferredMany(nodes),
                NEARPAGE_POLICY_BIND => Policy::Bind(nodes),
                NEARPAGE_POLICY_INTERLEAVE => Policy::Interleave { nodes, turn },
                _ => Policy::WeightedInterleave { nodes, turn, weights: &policy.weights },
            }
        };
        let request = Request::new(Order(order), gfp(flags)?);
        let block = memory.memory.alloc_with(&Placement::by(by), request)?;
        let address = block.as_ptr();
        block.into_frames();
        // SAFETY: the caller's promise.
        unsafe { out.write(address.as_ptr().cast()) };
        Ok(())
    })
}
