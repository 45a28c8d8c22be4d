//! A prediction as a document for programs. New keys may be added; a change of meaning gets a new `schema`.

use std::collections::BTreeMap;

use nearpage::PageCount;
use nearpage_machine::Plan;
use nearpage_machine::plan::{PlannedNode, PlannedZone};
use serde::Serialize;

use super::compare::zone_names;
use super::prediction::Prediction;

const SCHEMA: u32 = 1;

/// The values that a kernel prints of a recorded machine, to be serialized. Counts are in pages.
#[derive(Debug, Serialize)]
pub struct PredictionDocument<'a> {
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

#[derive(Debug, Serialize)]
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

#[derive(Debug, Serialize)]
struct Zonelists {
    fallback: Vec<String>,
    nofallback: Vec<String>,
}

impl<'a> PredictionDocument<'a> {
    /// The document of a prediction.
    pub fn new(prediction: &'a Prediction) -> PredictionDocument<'a> {
        let plan = &prediction.plan;
        let order = |(index, node): (usize, &PlannedNode)| {
            (node.id.0, plan.logged_order(index).iter().map(|id| id.0).collect())
        };
        let numa_mem_ids = prediction.numa_mem_ids.iter();
        PredictionDocument {
            schema: SCHEMA,
            kernel: &prediction.kernel,
            model: plan.model.name,
            capture: &prediction.capture,
            min_free_kbytes: prediction.min_free_kbytes,
            zones: plan.nodes.iter().flat_map(|node| zones(prediction, node)).collect(),
            fallback: plan.nodes.iter().enumerate().map(order).collect(),
            zonelists: plan.nodes.iter().map(|node| (node.id.0, zonelists(plan, node))).collect(),
            numa_mem_id: numa_mem_ids.map(|(cpu, node)| (cpu.0, node.0)).collect(),
        }
    }
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
