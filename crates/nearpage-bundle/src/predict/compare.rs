//! Predicted against recorded, field by field.
//!
//! A kernel computes the fields of a zone from the pages that the zone manages at that time. A write to the right setting
//! recomputes them; after it, the same text prints these pages as `managed`. Before the first such write the zone may
//! have managed fewer pages: boot computes watermarks, and frees its own memory later. Such fields are compared *apart*,
//! with the sizes that the log implies. A value that no smaller sizes could give is a difference like any other.

mod earlier;
mod field;
mod zones;

use nearpage::NodeId;
use nearpage::rules::watermarks::MinFreeRule;
use nearpage::rules::zonelists::ZoneRef;
use nearpage_machine::Plan;
use nearpage_machine::sysfs::TextFile;
use serde_json::json;

use super::error::PredictError;
use super::prediction::{Prediction, written_min_free};
use crate::module::{Asked, AskedZonelist, parse_info, parse_rebuild};
use crate::{BundleError, Capture, Computed, RecordedMachine, Recording};
use earlier::Contradictions;

pub use field::{Class, Comparison, Comparisons, Counts};

/// Compares all fields of a capture.
///
/// # Errors
///
/// What a kernel module answered cannot be read.
pub fn compare(
    recording: &Recording,
    capture: &Capture,
    machine: &RecordedMachine,
    prediction: &Prediction,
) -> Result<Comparisons, PredictError> {
    let answers = Answers::read(recording, capture)?;
    let mut fields = sized_fields(recording, capture, machine, prediction, &answers);
    fields.extend(min_free(recording, capture, machine, prediction));
    if is_first(recording, capture) {
        fields.extend(fallback_orders(recording, prediction));
    }
    fields.extend(zonelists(prediction, &answers));
    fields.extend(numa_mem_ids(prediction, &answers.asked));
    Ok(Comparisons { fields })
}

fn is_first(recording: &Recording, capture: &Capture) -> bool {
    recording.captures.first().is_some_and(|first| first.name == capture.name)
}

/// The answers of a kernel module in the state of a capture.
#[derive(Default)]
struct Answers {
    /// About zones, pagesets and CPUs.
    asked: Vec<Asked>,
    /// Zonelists as boot made them.
    boot_lists: Vec<AskedZonelist>,
    /// Zonelists as made anew at run time.
    rebuilt_lists: Vec<AskedZonelist>,
}

impl Answers {
    fn read(recording: &Recording, capture: &Capture) -> Result<Answers, PredictError> {
        let mut answers = Answers::default();
        let mut is_rebuilt = false;
        for (name, text) in &capture.module_texts {
            let name = name.as_str();
            let file = TextFile {
                name: format!("{}: module.{name}", recording.source),
                text: text.clone(),
            };
            if name == "info" || name.starts_with("info_") {
                let mut asked = parse_info(&file).map_err(BundleError::from)?;
                let lists = std::mem::take(&mut asked.zonelists);
                let of_state =
                    if is_rebuilt { &mut answers.rebuilt_lists } else { &mut answers.boot_lists };
                of_state.extend(lists);
                answers.asked.push(asked);
            } else if name == "rebuild" {
                let lists = parse_rebuild(&file).map_err(BundleError::from)?;
                let (boot, rebuilt): (Vec<_>, Vec<_>) =
                    lists.into_iter().partition(|list| list.kind == "ZL_BOOT");
                answers.boot_lists.extend(boot);
                answers.rebuilt_lists.extend(rebuilt);
                // Answers after a rebuild have the new lists.
                is_rebuilt = true;
            }
        }
        Ok(answers)
    }
}

/// The fields that follow from the managed pages of zones.
fn sized_fields(
    recording: &Recording,
    capture: &Capture,
    machine: &RecordedMachine,
    prediction: &Prediction,
    answers: &Answers,
) -> Vec<Comparison> {
    let fields = |plan: &Plan| zones::fields(plan, &prediction.kinds, machine, &answers.asked);
    let mut now = fields(&prediction.plan);
    // Only background reclaim recomputes thresholds. The sizes at boot are known from the log alone.
    let has_old_thresholds = !machine.has_reclaimed && recording.log.late.is_empty();
    let is_apart = |field: &Comparison| match (capture.computed, field.class) {
        (_, Class::Thresholds) if has_old_thresholds && !field.is_match() => true,
        (Some(computed), Class::Protection) => !computed.protection,
        (Some(computed), Class::Watermarks | Class::PagesetSizes) => !computed.marks,
        (Some(computed), _) => computed == Computed::default(),
        (None, _) => true,
    };
    // If the recording does not say what was recomputed, the watermarks show it.
    let fits = |field: &Comparison| field.class != Class::Watermarks || field.is_match();
    if capture.computed.is_none() && now.iter().all(fits) {
        return now;
    }
    // A write to or a read of a setting may have recomputed some of them.
    let at_boot = fields(&prediction.at_boot());
    let sizes = &prediction.sizes;
    let contradictions = Contradictions::of(machine, &sizes.settings, sizes.page_shift);
    for (field, at_boot) in now.iter_mut().zip(at_boot).filter(|(field, _)| is_apart(field)) {
        let may_be_earlier = field.is_match() || contradictions.may_explain(field);
        if !field.is_match() {
            *field = at_boot;
        }
        field.is_apart = may_be_earlier || field.is_match();
    }
    now
}

/// `min_free_kbytes`, unless it was written after boot.
fn min_free(
    recording: &Recording,
    capture: &Capture,
    machine: &RecordedMachine,
    prediction: &Prediction,
) -> Option<Comparison> {
    let recorded = machine.machine.settings.min_free_kbytes?;
    if written_min_free(recording, capture, machine).is_some() {
        return None;
    }
    let predicted = prediction.plan.boot_min_free;
    let rule = match predicted.rule {
        MinFreeRule::Given => "the setting",
        MinFreeRule::Memory => {
            "4 sqrt(KiB of managed pages up to Normal) (mm/page_alloc.c: calculate_min_free_kbytes)"
        }
        MinFreeRule::MemoryAboveHigh => {
            "4 sqrt(KiB of managed pages up to Normal above their high marks), without huge pages \
             (mm/khugepaged.c: set_recommended_min_free_kbytes)"
        }
        MinFreeRule::HugePages => {
            "11 pageblocks for each populated zone up to Normal \
             (mm/khugepaged.c: set_recommended_min_free_kbytes)"
        }
        MinFreeRule::HugePagesLimited => {
            "a twentieth of managed pages up to Normal above their high marks \
             (mm/khugepaged.c: set_recommended_min_free_kbytes)"
        }
    };
    let field = "min_free_kbytes".into();
    let comparison = Comparison::new(Class::MinFreeKbytes, field, predicted.kbytes, recorded, rule);
    Some(Comparison { is_apart: predicted.rule.depends_on_managed(), ..comparison })
}

fn fallback_orders(recording: &Recording, prediction: &Prediction) -> Vec<Comparison> {
    let plan = &prediction.plan;
    let ids = |order: &[NodeId]| order.iter().map(|id| id.0).collect::<Vec<u32>>();
    let compare = |(node, recorded): &(NodeId, Vec<NodeId>)| {
        let index = plan.nodes.iter().position(|planned| planned.id == *node);
        let predicted = index.map(|index| ids(&plan.logged_order(index)));
        Comparison::new(
            Class::FallbackOrder,
            format!("node {node} fallback"),
            json!(predicted),
            json!(ids(recorded)),
            "by distance, then by how often a node came first (mm/page_alloc.c: find_next_best_node)",
        )
    };
    recording.log.fallback.iter().map(compare).collect()
}

fn zonelists(prediction: &Prediction, answers: &Answers) -> Vec<Comparison> {
    let mut fields = compare_lists(&prediction.plan, &answers.boot_lists);
    if !answers.rebuilt_lists.is_empty() {
        fields.extend(compare_lists(&prediction.rebuilt(), &answers.rebuilt_lists));
    }
    fields
}

fn compare_lists(plan: &Plan, lists: &[AskedZonelist]) -> Vec<Comparison> {
    let compare = |list: &AskedZonelist| {
        let node = plan.nodes.iter().find(|node| node.id == list.node);
        let predicted = node.map(|node| match list.kind.as_str() {
            "NOFALLBACK" => zone_names(plan, &node.zonelist_this_node),
            _ => zone_names(plan, &node.zonelist),
        });
        Comparison::new(
            Class::Zonelists,
            format!("node {} {}", list.node, list.kind),
            json!(predicted),
            json!(list.order),
            "populated zones from highest to lowest, nodes in fallback order \
             (mm/page_alloc.c: build_zonelists)",
        )
    };
    lists.iter().map(compare).collect()
}

/// Zones as `NODE:ZONE`.
pub(super) fn zone_names(plan: &Plan, zones: &[ZoneRef]) -> Vec<String> {
    let name =
        |zone: &ZoneRef| format!("{}:{}", plan.nodes[zone.node.0 as usize].id, zone.kind.name());
    zones.iter().map(name).collect()
}

fn numa_mem_ids(prediction: &Prediction, asked: &[Asked]) -> Vec<Comparison> {
    let recorded = asked.iter().flat_map(|asked| &asked.numa_mem_ids);
    let compare = |&(cpu, recorded): &(_, NodeId)| {
        let predicted = prediction.numa_mem_ids.iter().find(|(known, _)| *known == cpu);
        Comparison::new(
            Class::NumaMemId,
            format!("cpu {cpu} numa_mem_id"),
            json!(predicted.map(|(_, node)| node.0)),
            recorded.0,
            "the CPU's own node, memoryless or not (x86 has no CONFIG_HAVE_MEMORYLESS_NODES)",
        )
    };
    recorded.map(compare).collect()
}
