//! `nearpage topo --bundle`: what Linux prints of a recorded machine.

use std::collections::BTreeMap;
use std::path::Path;

use nearpage::PageCount;
use serde::Serialize;

use super::{Format, TopoArgs, zoneinfo};
use crate::commands::{CommandError, print};
use crate::terminal;
use nearpage_bundle::predict::{
    ModelChoice, Override, PredictError, Prediction, Wishes, compare, zone_names,
};
use nearpage_bundle::{Capture, RecordedMachine, Recording};
use nearpage_machine::plan::{Lists, Plan, PlannedNode, PlannedZone};

const SCHEMA: u32 = 1;

/// Predicts a capture and prints it.
pub(super) fn run(path: &Path, arguments: &TopoArgs, format: Format) -> Result<(), CommandError> {
    let model = arguments.model.unwrap_or_default();
    if model == ModelChoice::Nearpage {
        let problem = "--bundle predicts what Linux prints: --model takes a linux-* model or auto";
        return Err(CommandError::Usage(problem.into()));
    }
    let settings = arguments.set.iter().map(|given| Override::parse(given));
    let wishes = Wishes { model, settings: settings.collect::<Result<_, _>>()? };
    let recording = Recording::read(path)?;
    let capture = recording.capture(arguments.capture.as_deref())?;
    let machine = capture.machine()?;
    let mut prediction = Prediction::new(&recording, capture, &machine, &wishes)?;
    if arguments.rebuilt {
        prediction.plan = prediction.rebuilt();
    }
    let text = match format {
        Format::Zoneinfo => zoneinfo::format(&prediction.plan, zoneinfo::Unknown::Zero).to_string(),
        Format::Fallback => prediction.plan.fallback_lines().to_string(),
        Format::Json => json(&prediction),
        Format::Text | Format::Numactl | Format::Dot => {
            let problem = "--bundle has --format zoneinfo, fallback and json";
            return Err(CommandError::Usage(problem.into()));
        }
    };
    terminal::note(summary(&prediction));
    if prediction.model.is_of_other_kernel && arguments.set.is_empty() {
        terminal::note(differences(&recording, capture, &machine, &prediction)?);
    }
    print(&text)
}

/// How well the rules of another kernel do.
fn differences(
    recording: &Recording,
    capture: &Capture,
    machine: &RecordedMachine,
    prediction: &Prediction,
) -> Result<String, PredictError> {
    let compared = compare(recording, capture, machine, prediction)?;
    let differing = compared.fields.iter().filter(|field| !field.is_match()).count();
    Ok(match differing {
        0 => "nothing that this kernel printed differs".into(),
        _ => format!(
            "{differing} fields that this kernel printed differ; nearpage verify names them"
        ),
    })
}

/// Whose rules were used, and for which kernel.
fn summary(prediction: &Prediction) -> String {
    let Prediction { kernel, capture, model, .. } = prediction;
    let kernel = if kernel.is_empty() { "an unknown kernel" } else { kernel };
    let name = model.model.name;
    let other = if model.is_of_other_kernel { ", another kernel" } else { "" };
    let lists = match prediction.plan.lists {
        Lists::Boot => "",
        Lists::Rebuilt => ", zonelists as after a rebuild",
    };
    format!("capture {capture} of {kernel}; model {name}{other}{lists}")
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    kernel: &'a str,
    model: &'a str,
    capture: &'a str,
    min_free_kbytes: u64,
    zones: Vec<Zone>,
    fallback: BTreeMap<u32, Vec<u32>>,
    zonelists: BTreeMap<u32, Zonelists>,
    numa_mem_id: BTreeMap<u32, u32>,
}

#[derive(Serialize)]
struct Zone {
    node: u32,
    zone: &'static str,
    min: u64,
    low: u64,
    high: u64,
    promo: Option<u64>,
    boost: u64,
    protection: Vec<u64>,
    batch: Option<u64>,
    high_min: Option<u64>,
    high_max: Option<u64>,
    stat_threshold: Option<u32>,
}

#[derive(Serialize)]
struct Zonelists {
    fallback: Vec<String>,
    nofallback: Vec<String>,
}

/// The whole document, with a newline at its end.
fn json(prediction: &Prediction) -> String {
    let plan = &prediction.plan;
    let of_nodes = plan.nodes.iter().enumerate();
    let order = |(index, node): (usize, &PlannedNode)| {
        (node.id.0, plan.logged_order(index).iter().map(|id| id.0).collect())
    };
    let document = Document {
        schema: SCHEMA,
        kernel: &prediction.kernel,
        model: plan.model.name,
        capture: &prediction.capture,
        min_free_kbytes: prediction.min_free_kbytes,
        zones: plan.nodes.iter().flat_map(|node| zones(prediction, node)).collect(),
        fallback: of_nodes.map(order).collect(),
        zonelists: plan.nodes.iter().map(|node| (node.id.0, zonelists(plan, node))).collect(),
        numa_mem_id: prediction.numa_mem_ids.iter().map(|(cpu, node)| (cpu.0, node.0)).collect(),
    };
    let text = serde_json::to_string_pretty(&document);
    text.expect("plain numbers and strings can be written") + "\n"
}

fn zonelists(plan: &Plan, node: &PlannedNode) -> Zonelists {
    Zonelists {
        fallback: zone_names(plan, &node.zonelist),
        nofallback: zone_names(plan, &node.zonelist_this_node),
    }
}

fn zones(prediction: &Prediction, node: &PlannedNode) -> Vec<Zone> {
    let is_built = |zone: &&PlannedZone| prediction.kinds.contains(&zone.extent.kind);
    node.zones.iter().filter(is_built).map(|of_node| zone(prediction, node, of_node)).collect()
}

fn zone(prediction: &Prediction, node: &PlannedNode, zone: &PlannedZone) -> Zone {
    let marks = zone.marks.boosted(zone.extent.boost);
    let of_populated = |pages: PageCount| zone.is_populated().then_some(pages.0);
    let has_promo = prediction.plan.model.prints_promo();
    Zone {
        node: node.id.0,
        zone: zone.extent.kind.name(),
        min: marks.min.0,
        low: marks.low.0,
        high: marks.high.0,
        promo: has_promo.then_some(marks.promo.0),
        boost: zone.extent.boost.0,
        protection: prediction.kinds.iter().map(|kind| zone.protection[kind.index()].0).collect(),
        batch: of_populated(zone.pageset.batch),
        high_min: of_populated(zone.pageset.high_min),
        high_max: of_populated(zone.pageset.high_max),
        stat_threshold: zone.is_populated().then_some(zone.stat_threshold),
    }
}
