//! Scenario files: a machine, rules of the allocator, what runs, and a published table beside it.
//!
//! `nearpage lab --help` describes the keys. Each kind of work has the file of its keys here. Values keep their places
//! in the text, so that an error names the line.

mod contention;
mod figures;
mod hog;
mod huge;
mod lifetimes;
mod locks;
mod machine;
mod messages;
mod reference;
mod requests;
mod slab;
mod variants;
mod workload;
mod wrong;

use std::ops::Range;
use std::path::Path;

use nearpage::{Config, Model};
use nearpage_sim::Machine;
use serde::Deserialize;
use toml::Spanned;

use crate::error::LabError;
use crate::text;
pub use contention::{BuildWork, ContentionWorkload, Does, FillWork, Target};
use hog::CalibrateTable;
pub use hog::{HogCalibration, HogWorkload};
pub use huge::HugeWorkload;
pub use lifetimes::LifetimesWorkload;
pub(crate) use lifetimes::groups_of;
pub use locks::LocksWorkload;
pub use machine::MachineOf;
use machine::{MachineTable, can_be};
pub use messages::MessagesWorkload;
pub use reference::Reference;
pub use requests::{RequestsWorkload, Speed};
pub use slab::SlabWorkload;
pub use variants::Variant;
use variants::{VariantsTable, instances_of};
use workload::WorkloadTable;
pub use workload::{PatchedWorkload, Workload};
use wrong::{Checked, Wrong, line_of, wrong};

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub title: String,
    /// The machine, and the name of its table of costs.
    pub machine: MachineOf,
    /// Rules and settings of the allocator.
    pub config: Config,
    /// Choices of patches of the 2023 series that are compared: all up to each.
    pub patches: Vec<u8>,
    /// Models that contention is compared between; the first one calibrates.
    pub models: Vec<Variant>,
    /// What runs.
    pub workload: Workload,
    /// What a published table says.
    pub reference: Option<Reference>,
}

impl Scenario {
    /// Reads a scenario; `file` is the name that errors begin with.
    ///
    /// # Errors
    ///
    /// [`LabError::File`] with line, key and what is accepted.
    pub fn parse(file: &str, text: &str) -> Result<Self, LabError> {
        let refuse = |message| LabError::File { file: file.into(), message };
        let parsed: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            refuse(format!("line {line}: {}", error.message()))
        })?;
        parsed.check().map_err(|Wrong { span, message }| {
            refuse(format!("line {}: {message}", line_of(text, span.start)))
        })
    }

    /// Reads a scenario from the bytes of a file.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), and [`LabError::NoText`].
    pub fn from_bytes(file: &str, bytes: &[u8]) -> Result<Self, LabError> {
        Self::parse(file, text::of(file, bytes, "a scenario as TOML")?)
    }

    /// The files that the scenario names: tables of costs, and recordings of processes.
    pub fn files(&self) -> Vec<&Path> {
        let mut names = vec![&*self.machine.costs];
        match &self.workload {
            Workload::SlabMessages(work) => {
                names.extend(work.others.iter().map(|(_, of)| &*of.costs));
                let requests = work.requests.iter().flat_map(|work| [&work.machine, &work.whole]);
                names.extend(requests.map(|(_, of)| &*of.costs));
            }
            Workload::Patched(PatchedWorkload { lifetimes, contention, .. }) => {
                let lifetimes = lifetimes.iter();
                names.extend(lifetimes.flat_map(|work| [&*work.machine.costs, &*work.trace]));
                names.extend(contention.iter().filter_map(|work| match &work.does {
                    Does::Build(build) => Some(&*build.trace),
                    _ => None,
                }));
            }
            _ => {}
        }
        names.into_iter().map(Path::new).collect()
    }

    /// Pages that a run of works that are compared allocates, about; 0 if nothing tells. A host simulates a million in a second, about.
    pub fn pages(&self) -> u64 {
        let page_bytes = self.machine.machine.page_bytes();
        let pages = |work: &PatchedWorkload| {
            work.contention.iter().map(|work| work.pages(page_bytes)).sum()
        };
        if let Workload::Patched(work) = &self.workload { pages(work) } else { 0 }
    }

    /// All machines that the scenario runs on, by name: its own has the scenario's.
    pub fn machines(&self) -> Vec<(&str, &Machine)> {
        let mut machines = vec![(&*self.name, &self.machine.machine)];
        match &self.workload {
            Workload::SlabMessages(work) => {
                machines.extend(work.others.iter().map(|(name, of)| (&**name, &of.machine)));
                let requests = work.requests.iter().flat_map(|work| [&work.machine, &work.whole]);
                machines.extend(requests.map(|(name, of)| (&**name, &of.machine)));
            }
            Workload::Patched(PatchedWorkload { lifetimes: Some(work), .. }) => {
                machines.push((&work.name, &work.machine.machine));
            }
            _ => {}
        }
        machines
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: Spanned<u32>,
    name: String,
    title: String,
    machine: Spanned<MachineTable>,
    #[serde(default)]
    allocator: AllocatorTable,
    #[serde(default)]
    variants: VariantsTable,
    workload: Spanned<WorkloadTable>,
    calibrate: Option<Spanned<CalibrateTable>>,
    reference: Option<Spanned<Reference>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllocatorTable {
    model: Option<Spanned<String>>,
    #[serde(default)]
    zone_reclaim: bool,
    zone_instances: Option<Spanned<i64>>,
}

impl File {
    fn check(self) -> Checked<Scenario> {
        if *self.schema.get_ref() != 1 {
            let message = format!("schema is {}; accepted: 1", self.schema.get_ref());
            return wrong(self.schema.span(), message);
        }
        let nodes = self.machine.get_ref().span_or(self.machine.span());
        let MachineOf { machine, costs } = self.machine.into_inner().check(nodes.clone())?;
        let config = self.allocator.check()?;
        let span = self.workload.span();
        let mut workload =
            WorkloadTable::check(self.workload, &machine, self.variants.models_count())?;
        let patched = match &workload {
            Workload::Patched(work) => Some(work),
            _ => None,
        };
        let has_patches =
            patched.is_some_and(|work| !work.messages.is_empty() || work.lifetimes.is_some());
        let patches = self.variants.patches(has_patches, span.clone())?;
        let has_models = patched.is_some_and(|work| !work.contention.is_empty());
        let models = self.variants.models(has_models, span)?;
        let reference = check_reference(self.reference, &workload)?;
        calibrate(self.calibrate, &mut workload, reference.as_ref(), &machine)?;
        match &workload {
            Workload::MemoryHog(work) => can_be(&work.scaled(&machine), nodes)?,
            Workload::Patched(work) if has_models && !has_patches => {
                let scaled = work.contention.iter().map(|of| of.scaled(&machine));
                scaled.into_iter().try_for_each(|machine| can_be(&machine, nodes.clone()))?;
            }
            _ => can_be(&machine, nodes)?,
        }
        let (name, title) = (self.name, self.title);
        let machine = MachineOf { machine, costs };
        Ok(Scenario { name, title, machine, config, patches, models, workload, reference })
    }
}

fn check_reference(
    table: Option<Spanned<Reference>>,
    workload: &Workload,
) -> Checked<Option<Reference>> {
    let Some(table) = table else { return Ok(None) };
    match workload.columns() {
        Ok(columns) => columns.check(table).map(Some),
        Err(message) => wrong(table.span(), message),
    }
}

fn calibrate(
    table: Option<Spanned<CalibrateTable>>,
    workload: &mut Workload,
    reference: Option<&Reference>,
    machine: &Machine,
) -> Checked<()> {
    let Some(table) = table else { return Ok(()) };
    let (Workload::MemoryHog(work), Some(reference)) = (workload, reference) else {
        return wrong(table.span(), "calibrate belongs to memory-hog with a reference");
    };
    work.calibrate = Some(table.get_ref().check(reference, machine)?);
    Ok(())
}

impl AllocatorTable {
    fn check(self) -> Checked<Config> {
        let model = match &self.model {
            None => Model::NEARPAGE,
            Some(name) => model_called(name.get_ref(), name.span())?,
        };
        let model = match &self.zone_instances {
            None => model,
            Some(count) => {
                let instances = instances_of(*count.get_ref(), count.span())?;
                model.with(|changed| changed.zone_instances = instances)
            }
        };
        let config = Config::new().with_model(model);
        let node_reclaim_mode = self.zone_reclaim.into();
        Ok(config.with_settings(
            config.settings.with(|changed| changed.node_reclaim_mode = node_reclaim_mode),
        ))
    }
}

/// The model of a name, at a place of the text.
fn model_called(name: &str, span: Range<usize>) -> Checked<Model> {
    Model::named(name).or_else(|unknown| wrong(span, unknown.to_string()))
}
