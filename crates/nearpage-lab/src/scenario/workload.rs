//! What runs: one kind of work, or messages and processes.

use nearpage_sim::Machine;
use serde::Deserialize;
use toml::Spanned;

use super::contention::{ContentionTable, ContentionWorkload};
use super::hog::{HogTable, HogWorkload};
use super::huge::{HugeTable, HugeWorkload};
use super::lifetimes::{LifetimesTable, LifetimesWorkload};
use super::locks::{LocksTable, LocksWorkload};
use super::messages::{MessagesTable, MessagesWorkload};
use super::reference::{self, Columns};
use super::requests::RequestsTable;
use super::slab::{SlabTable, SlabWorkload};
use super::wrong::{Checked, wrong};

/// What runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Workload {
    /// Threads of one process that write to new memory.
    MemoryHog(HogWorkload),
    /// Work that is compared under the patches of 2023.
    Patched(PatchedWorkload),
    /// All CPUs send each other messages of objects.
    SlabMessages(SlabWorkload),
    /// Processes that lock a page at each fault.
    PageLocks(LocksWorkload),
    /// A huge page that fails, and single ones after it.
    HugeThenSingle(HugeWorkload),
}

/// Pairs of CPUs that send each other messages, one kind after the other; then processes, if there are any; then what is
/// compared between models.
#[derive(Clone, Debug)]
pub struct PatchedWorkload {
    /// Kinds of messages.
    pub messages: Vec<MessagesWorkload>,
    /// Processes.
    pub lifetimes: Option<LifetimesWorkload>,
    /// What is compared between models.
    pub contention: Vec<ContentionWorkload>,
}

/// One of them; `messages`, `process-lifetimes` and `contention` may stand together, and `block-requests` beside `slab-messages`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct WorkloadTable {
    memory_hog: Option<HogTable>,
    messages: Option<Vec<MessagesTable>>,
    process_lifetimes: Option<LifetimesTable>,
    contention: Option<Vec<Spanned<ContentionTable>>>,
    slab_messages: Option<SlabTable>,
    block_requests: Option<Spanned<RequestsTable>>,
    page_lock_storm: Option<LocksTable>,
    huge_then_single: Option<HugeTable>,
}

impl Workload {
    /// The columns that a published table of this kind has; an error says why there can be none.
    pub(super) fn columns(&self) -> Result<&'static Columns, &'static str> {
        match self {
            Self::MemoryHog(_) => Ok(&reference::HOG),
            Self::Patched(_) => Ok(&reference::MESSAGES),
            Self::SlabMessages(work) if work.others.len() == 2 => Ok(&reference::SLAB),
            Self::PageLocks(_) => Ok(&reference::LOCKS),
            Self::SlabMessages(_) => Err(
                "reference: one of slab-messages is about three machines; accepted with two `others`",
            ),
            Self::HugeThenSingle(_) => Err("reference: huge-then-single has none"),
        }
    }
}

impl WorkloadTable {
    pub(super) fn check(
        table: Spanned<Self>,
        machine: &Machine,
        models_count: usize,
    ) -> Checked<Workload> {
        let (span, cpus) = (table.span(), machine.cpus().count());
        let mut table = table.into_inner();
        let table_of_requests = table.block_requests.take();
        if let (Some(requests), None) = (&table_of_requests, &table.slab_messages) {
            return wrong(requests.span(), "block-requests stands beside slab-messages");
        }
        if table.kinds() != 1 {
            return wrong(
                span,
                "workload: accepted: one of memory-hog, messages, process-lifetimes, contention, slab-messages, \
                 page-lock-storm, huge-then-single; messages, process-lifetimes and contention may stand together",
            );
        }
        if let Some(table) = table.memory_hog {
            return Ok(Workload::MemoryHog(table.check(machine)?));
        }
        if let Some(table) = table.slab_messages {
            let requests = table_of_requests.map(RequestsTable::check).transpose()?;
            return Ok(Workload::SlabMessages(table.check(requests)?));
        }
        if let Some(table) = table.page_lock_storm {
            return Ok(Workload::PageLocks(table.check(cpus)?));
        }
        if let Some(table) = table.huge_then_single {
            return Ok(Workload::HugeThenSingle(table.check(machine)?));
        }
        let messages = table.messages.iter().flatten().map(|table| table.check(machine));
        let messages = messages.collect::<Checked<_>>()?;
        let lifetimes = table.process_lifetimes.map(LifetimesTable::check).transpose()?;
        let contention = table.contention.into_iter().flatten();
        let contention =
            contention.map(|table| ContentionTable::check(table, machine, models_count));
        let contention = contention.collect::<Checked<_>>()?;
        Ok(Workload::Patched(PatchedWorkload { messages, lifetimes, contention }))
    }

    /// How many kinds of work there are.
    fn kinds(&self) -> usize {
        let kinds = [
            self.memory_hog.is_some(),
            self.messages.is_some()
                || self.process_lifetimes.is_some()
                || self.contention.is_some(),
            self.slab_messages.is_some(),
            self.page_lock_storm.is_some(),
            self.huge_then_single.is_some(),
        ];
        kinds.into_iter().filter(|is_there| *is_there).count()
    }
}
