//! The keys of process lifetimes.

use nearpage_sim::workload::lifetimes::{self, Lifetime};
use serde::Deserialize;
use toml::Spanned;

use super::{Checked, MachineOf, NamedMachineTable, Reference, wrong};

/// Processes as in a recorded compile, under the patches of 2023.
#[derive(Clone, Debug)]
pub struct LifetimesWorkload {
    /// What the rows of the table are called.
    pub name: String,
    /// The machine.
    pub machine: MachineOf,
    /// CPUs that run processes, from the first one on.
    pub cpus: usize,
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
    machine: NamedMachineTable,
    cpus: Spanned<usize>,
    trace: Spanned<String>,
    warm_up: u64,
    count: Spanned<u64>,
    moves_percent: Spanned<u32>,
    free_ns: f64,
    #[serde(default)]
    page_ns: f64,
    zone_lock_percent: Option<f64>,
    reference: Option<Reference>,
}

impl LifetimesTable {
    pub(super) fn check(self) -> Checked<LifetimesWorkload> {
        let (name, machine) = self.machine.check()?;
        let most = machine.machine.cpus().count();
        let cpus = *self.cpus.get_ref();
        if !(1..=most).contains(&cpus) {
            return wrong(self.cpus.span(), format!("cpus is {cpus}; accepted: 1 to {most}"));
        }
        if *self.count.get_ref() == 0 {
            return wrong(self.count.span(), "count is 0; accepted: 1 or more");
        }
        let moves_percent = *self.moves_percent.get_ref();
        if moves_percent > 100 {
            let message = format!("moves_percent is {moves_percent}; accepted: 0 to 100");
            return wrong(self.moves_percent.span(), message);
        }
        Ok(LifetimesWorkload {
            name,
            machine,
            cpus,
            groups: groups(&self.trace)?,
            warm_up: self.warm_up,
            count: self.count.into_inner(),
            moves_percent,
            free_ns: self.free_ns,
            page_ns: self.page_ns,
            zone_lock_percent: self.zone_lock_percent,
            reference: self.reference,
        })
    }
}

/// The recording of a name, or in a file.
fn groups(trace: &Spanned<String>) -> Checked<Vec<Vec<Lifetime>>> {
    let name = trace.get_ref();
    let read;
    let text = match name.as_str() {
        "gcc" => lifetimes::GCC,
        "container" => lifetimes::CONTAINER,
        _ => {
            let text = std::fs::read_to_string(name);
            read = text.or_else(|error| {
                let accepted = "accepted: gcc, container, or a file";
                wrong(trace.span(), format!("trace {name:?}: {error}; {accepted}"))
            })?;
            &read
        }
    };
    match lifetimes::parse(text) {
        Ok(groups) if groups.is_empty() => wrong(trace.span(), format!("trace {name:?} is empty")),
        Ok(groups) => Ok(groups),
        Err(error) => wrong(trace.span(), format!("trace {name:?}: {error}")),
    }
}
