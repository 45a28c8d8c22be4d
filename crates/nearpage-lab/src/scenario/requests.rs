//! The keys of requests to a block driver.

use serde::Deserialize;
use toml::Spanned;

use super::figures::{at_least_one, time_ns};
use super::machine::{MachineOf, NamedMachineTable, named_machine};
use super::wrong::{Checked, wrong};

/// Requests to a block driver, on a machine with nodes without memory and on one with memory everywhere.
#[derive(Clone, Debug)]
pub struct RequestsWorkload {
    /// Bytes of a request's object.
    pub object: u64,
    /// Requests of a job on their way, at most.
    pub depth: u64,
    /// Requests that a job sends at once.
    pub turn: u64,
    /// Time before anything counts (ns).
    pub warm_up_ns: f64,
    /// Time that counts (ns).
    pub window_ns: f64,
    /// What is known of the time of a request.
    pub speed: Speed,
    /// The machine, by name.
    pub machine: (String, MachineOf),
    /// The machine with memory on all nodes, by name.
    pub whole: (String, MachineOf),
}

/// What is known of the time of a request.
#[derive(Clone, Copy, Debug)]
pub enum Speed {
    /// What a request takes each of its CPUs, beside the allocator (ns).
    Request {
        /// Nanoseconds.
        ns: f64,
    },
    /// Requests a second that were published: the first calibrates.
    Published {
        /// Before sheaves.
        before: f64,
        /// With them.
        after: f64,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestsTable {
    object: Spanned<u64>,
    depth: Spanned<u64>,
    turn: Spanned<u64>,
    warm_up_ns: Spanned<f64>,
    window_ns: Spanned<f64>,
    request_ns: Option<Spanned<f64>>,
    published: Option<Spanned<PublishedTable>>,
    machine: Spanned<NamedMachineTable>,
    whole: Spanned<NamedMachineTable>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedTable {
    before: f64,
    after: f64,
}

impl RequestsTable {
    pub(super) fn check(table: Spanned<Self>) -> Checked<RequestsWorkload> {
        let span = table.span();
        let table = table.into_inner();
        let object = *table.object.get_ref();
        if !(8..=4096).contains(&object) {
            let message = format!("object is {object}; accepted: 8 to 4096 bytes");
            return wrong(table.object.span(), message);
        }
        let depth = at_least_one("depth", &table.depth)?;
        let turn = at_least_one("turn", &table.turn)?;
        if turn > depth || depth > 65_536 {
            let message =
                "turn and depth: accepted: a turn of at most the depth, which is at most 65536";
            return wrong(table.depth.span(), message);
        }
        let window_ns = time_ns("window_ns", &table.window_ns)?;
        if window_ns < 1000.0 {
            return wrong(table.window_ns.span(), "window_ns: accepted: 1000 or more");
        }
        let speed = match (&table.request_ns, &table.published) {
            (Some(ns), None) => Speed::Request { ns: time_ns("request_ns", ns)? },
            (None, Some(published)) => {
                let PublishedTable { before, after } = *published.get_ref();
                if [before, after].iter().any(|figure| !(1.0..=1e12).contains(figure)) {
                    let message =
                        "published: accepted: before and after, 1 to 1e12 requests a second";
                    return wrong(published.span(), message);
                }
                Speed::Published { before, after }
            }
            _ => return wrong(span, "block-requests: accepted: one of request_ns and published"),
        };
        let (machine, whole) = (named_machine(table.machine)?, named_machine(table.whole.clone())?);
        let is_whole =
            |(_, of): &(String, MachineOf)| of.machine.nodes.iter().all(|node| node.bytes > 0);
        if is_whole(&machine) || !is_whole(&whole) {
            let message = "block-requests: accepted: a machine with a node without memory, and a whole one without any";
            return wrong(table.whole.span(), message);
        }
        let warm_up_ns = time_ns("warm_up_ns", &table.warm_up_ns)?;
        Ok(RequestsWorkload { object, depth, turn, warm_up_ns, window_ns, speed, machine, whole })
    }
}
