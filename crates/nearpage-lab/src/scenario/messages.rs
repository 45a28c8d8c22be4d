//! The keys of messages between CPUs, and of the patches that they are compared under.

use nearpage::Order;
use nearpage_sim::Machine;
use nearpage_sim::workload::messages::{Block, FreedBy};
use serde::Deserialize;
use toml::Spanned;

use super::figures::{at_least_one, lock_percent, time_ns_or_0};
use super::wrong::{Checked, wrong};

/// Messages of one kind.
#[derive(Clone, Debug)]
pub struct MessagesWorkload {
    /// What the rows of the table are called.
    pub name: String,
    /// Pairs of CPUs.
    pub pairs: usize,
    /// Messages of each pair.
    pub messages: u64,
    /// Messages until the two sides change roles.
    pub turn: u64,
    /// Messages under way at most.
    pub window: usize,
    /// What a message is made of.
    pub blocks: Vec<Block>,
    /// Time of each side for a message (ns), unless it is calibrated.
    pub copy_ns: f64,
    /// Calibrates that time: the share of time that CPUs wait for locks without any patch.
    pub zone_lock_percent: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessagesTable {
    name: String,
    pairs: Spanned<usize>,
    messages: Spanned<u64>,
    turn: Spanned<u64>,
    window: Spanned<usize>,
    copy_ns: Option<Spanned<f64>>,
    calibrate: Option<LockShareTable>,
    blocks: Spanned<Vec<BlockTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockShareTable {
    zone_lock_percent: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockTable {
    order: Spanned<u8>,
    every: Spanned<u64>,
    freed_by: FreedByTable,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FreedByTable {
    Receiver,
    Sender,
}

/// Pairs of CPUs of one node each.
pub(super) fn pairs_of(value: &Spanned<usize>, machine: &Machine) -> Checked<usize> {
    let pairs = *value.get_ref();
    let most: usize = machine.nodes.iter().map(|node| node.cpus.len() / 2).sum();
    if !(1..=most).contains(&pairs) {
        let message = format!("pairs is {pairs}; accepted: 1 to {most}, two CPUs of one node each");
        return wrong(value.span(), message);
    }
    Ok(pairs)
}

impl MessagesTable {
    pub(super) fn check(&self, machine: &Machine) -> Checked<MessagesWorkload> {
        let pairs = pairs_of(&self.pairs, machine)?;
        if self.blocks.get_ref().is_empty() {
            return wrong(self.blocks.span(), "blocks is empty; accepted: one or more");
        }
        at_least_one("window", &self.window)?;
        let block = |table: &BlockTable| {
            let order = Order(*table.order.get_ref());
            if order > Order::MAX {
                let message = format!("order is {order}; accepted: 0 to {}", Order::MAX);
                return wrong(table.order.span(), message);
            }
            let freed_by = match table.freed_by {
                FreedByTable::Receiver => FreedBy::Receiver,
                FreedByTable::Sender => FreedBy::Sender,
            };
            Ok(Block { order, every: at_least_one("every", &table.every)?, freed_by })
        };
        Ok(MessagesWorkload {
            name: self.name.clone(),
            pairs,
            messages: at_least_one("messages", &self.messages)?,
            turn: at_least_one("turn", &self.turn)?,
            window: *self.window.get_ref(),
            blocks: self.blocks.get_ref().iter().map(block).collect::<Checked<_>>()?,
            copy_ns: time_ns_or_0("copy_ns", self.copy_ns.as_ref())?,
            zone_lock_percent: self
                .calibrate
                .as_ref()
                .map(|table| lock_percent(&table.zone_lock_percent))
                .transpose()?,
        })
    }
}
