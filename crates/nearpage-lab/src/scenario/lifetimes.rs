//! The keys of process lifetimes.

use nearpage_machine::Budget;
use nearpage_sim::workload::lifetimes::{self, Lifetime};
use serde::Deserialize;
use toml::Spanned;

use super::figures::{at_least_one, at_most, lock_percent, time_ns, time_ns_or_0};
use super::machine::{MachineOf, NamedMachineTable, named_machine};
use super::reference::{self, Reference};
use super::wrong::{Checked, wrong};
use crate::error::LabError;
use crate::text;

/// Processes as in a recorded compile, under the patches of 2023.
#[derive(Clone, Debug)]
pub struct LifetimesWorkload {
    /// What the rows of the table are called.
    pub name: String,
    /// The machine.
    pub machine: MachineOf,
    /// CPUs that run processes, from the first one on.
    pub cpus: usize,
    /// The recording: a name or a file.
    pub trace: String,
    /// Groups of processes.
    pub groups: Vec<Vec<Lifetime>>,
    /// Groups that each CPU runs before anything counts.
    pub warm_up: u64,
    /// Groups that each CPU runs.
    pub count: u64,
    /// Of a hundred processes, those whose pages another CPU frees.
    pub moves_percent: u32,
    /// Time for a page that a process frees (ns).
    pub free_ns: f64,
    /// Time for a page that it asks for (ns), unless it is calibrated.
    pub page_ns: f64,
    /// Calibrates that time: the share of time that CPUs wait for locks without any patch.
    pub zone_lock_percent: Option<f64>,
    /// What a published table says.
    pub reference: Option<Reference>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LifetimesTable {
    machine: Spanned<NamedMachineTable>,
    cpus: Spanned<usize>,
    trace: Spanned<String>,
    warm_up: Spanned<u64>,
    count: Spanned<u64>,
    moves_percent: Spanned<u32>,
    free_ns: Spanned<f64>,
    page_ns: Option<Spanned<f64>>,
    zone_lock_percent: Option<Spanned<f64>>,
    reference: Option<Spanned<Reference>>,
}

impl LifetimesTable {
    pub(super) fn check(self) -> Checked<LifetimesWorkload> {
        let (name, machine) = named_machine(self.machine)?;
        let most = machine.machine.cpus().count();
        let cpus = *self.cpus.get_ref();
        if !(1..=most).contains(&cpus) {
            return wrong(self.cpus.span(), format!("cpus is {cpus}; accepted: 1 to {most}"));
        }
        let moves_percent = percent_of("moves_percent", &self.moves_percent)?;
        Ok(LifetimesWorkload {
            name,
            machine,
            cpus,
            groups: groups(&self.trace)?,
            trace: self.trace.into_inner(),
            warm_up: at_most("warm_up", &self.warm_up)?,
            count: at_least_one("count", &self.count)?,
            moves_percent,
            free_ns: time_ns("free_ns", &self.free_ns)?,
            page_ns: time_ns_or_0("page_ns", self.page_ns.as_ref())?,
            zone_lock_percent: self.zone_lock_percent.as_ref().map(lock_percent).transpose()?,
            reference: self.reference.map(|table| reference::LIFETIMES.check(table)).transpose()?,
        })
    }
}

/// A part of a hundred.
pub(super) fn percent_of(key: &str, value: &Spanned<u32>) -> Checked<u32> {
    match *value.get_ref() {
        percent if percent <= 100 => Ok(percent),
        percent => wrong(value.span(), format!("{key} is {percent}; accepted: 0 to 100")),
    }
}

/// The groups of a recording that comes along: gcc, container.
pub(crate) fn groups_of(name: &str) -> Option<Vec<Vec<Lifetime>>> {
    let text = match name {
        "gcc" => lifetimes::GCC,
        "container" => lifetimes::CONTAINER,
        _ => return None,
    };
    lifetimes::parse(text).ok()
}

/// The recording of a name, or in a file.
pub(super) fn groups(trace: &Spanned<String>) -> Checked<Vec<Vec<Lifetime>>> {
    let name = trace.get_ref();
    let read;
    let text = match name.as_str() {
        "gcc" | "container" => return Ok(groups_of(name).expect("both come along")),
        _ => {
            let accepted = "accepted: gcc, container, or a file of the current folder";
            let refused = |error: LabError| format!("trace {error}; {accepted}");
            let named = text::read_named(name, Budget::DEFAULT.file_bytes);
            read = named.or_else(|error| wrong(trace.span(), refused(error)))?;
            let Some(read) = &read else {
                return wrong(trace.span(), format!("trace {name:?} is not there; {accepted}"));
            };
            text::of(name, read, "lifetimes of pages")
                .or_else(|error| wrong(trace.span(), refused(error)))?
        }
    };
    match lifetimes::parse(text) {
        Ok(groups) if groups.is_empty() => wrong(trace.span(), format!("trace {name:?} is empty")),
        Ok(groups) => Ok(groups),
        Err(error) => wrong(trace.span(), format!("trace {name:?}: {error}")),
    }
}
