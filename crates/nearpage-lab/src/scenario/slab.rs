//! The keys of messages of objects.

use serde::Deserialize;
use toml::Spanned;

use super::figures::{at_least_one, time_ns_or_0};
use super::machine::{MachineOf, NamedMachineTable, named_machine};
use super::requests::RequestsWorkload;
use super::wrong::{Checked, wrong};

/// Messages of objects, on several machines.
#[derive(Clone, Debug)]
pub struct SlabWorkload {
    /// Sizes of a message's objects, bytes.
    pub objects: Vec<u64>,
    /// Messages that each CPU sends.
    pub messages: u64,
    /// Messages that it sends before it receives.
    pub burst: u64,
    /// Messages that the published seconds are for.
    pub published_messages: f64,
    /// Time of a message (ns), unless it is calibrated.
    pub message_ns: f64,
    /// Further machines, by name.
    pub others: Vec<(String, MachineOf)>,
    /// Requests to a block driver, after the messages.
    pub requests: Option<RequestsWorkload>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlabTable {
    objects: Spanned<Vec<u64>>,
    messages: Spanned<u64>,
    burst: Spanned<u64>,
    published_messages: Spanned<f64>,
    message_ns: Option<Spanned<f64>>,
    #[serde(default)]
    others: Vec<Spanned<NamedMachineTable>>,
}

impl SlabTable {
    pub(super) fn check(self, requests: Option<RequestsWorkload>) -> Checked<SlabWorkload> {
        let objects = self.objects.get_ref();
        if !(1..=4).contains(&objects.len())
            || objects.iter().any(|size| !(8..=4096).contains(size))
        {
            let message = "objects: accepted: 1 to 4 sizes from 8 to 4096 bytes";
            return wrong(self.objects.span(), message);
        }
        let published = *self.published_messages.get_ref();
        if !(1.0..=1e15).contains(&published) {
            let message = format!("published_messages is {published}; accepted: 1 to 1e15");
            return wrong(self.published_messages.span(), message);
        }
        Ok(SlabWorkload {
            messages: at_least_one("messages", &self.messages)?,
            burst: at_least_one("burst", &self.burst)?,
            objects: self.objects.into_inner(),
            published_messages: published,
            message_ns: time_ns_or_0("message_ns", self.message_ns.as_ref())?,
            others: self.others.into_iter().map(named_machine).collect::<Checked<_>>()?,
            requests,
        })
    }
}
