//! Predicted against recorded, field by field.
//!
//! What a kernel prints of a zone follows from what the zone managed when it was last computed. After a
//! write to the right setting that is what the same text prints as `managed`. Before the first such write
//! it may be less: watermarks are computed during boot, and at its end the memory that served boot is
//! freed. Such fields are compared *apart*, with what the log says was freed late; but what no smaller sizes
//! could have given is a difference like any other.

mod earlier;
mod zones;

use nearpage::rules::watermarks::MinFreeRule;
use nearpage::rules::zonelists::ZoneRef;
use nearpage::{NodeId, ZoneKind};
use nearpage_machine::sysfs::TextFile;
use serde_json::{Value, json};

use self::earlier::Contradictions;
use super::{PredictError, Prediction};
use crate::{
    Asked, AskedZonelist, Capture, Computed, RecordedMachine, Recording, parse_info, parse_rebuild,
};
use nearpage_machine::plan::Plan;

/// What a field belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// min, low, high, promo.
    Watermarks,
    /// Lowmem reserve.
    Protection,
    /// batch, high_min, high_max; 6.1's high.
    PagesetSizes,
    /// vm stats threshold.
    Thresholds,
    /// As logged at boot.
    FallbackOrder,
    /// As the kernel has them.
    Zonelists,
    /// As boot left it.
    MinFreeKbytes,
    /// Of each CPU.
    NumaMemId,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 8] = [
        Class::Watermarks,
        Class::Protection,
        Class::PagesetSizes,
        Class::Thresholds,
        Class::FallbackOrder,
        Class::Zonelists,
        Class::MinFreeKbytes,
        Class::NumaMemId,
    ];

    /// The name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Class::Watermarks => "watermarks",
            Class::Protection => "protection",
            Class::PagesetSizes => "pageset_sizes",
            Class::Thresholds => "thresholds",
            Class::FallbackOrder => "fallback_order",
            Class::Zonelists => "zonelists",
            Class::MinFreeKbytes => "min_free_kbytes",
            Class::NumaMemId => "numa_mem_id",
        }
    }

    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Class::PagesetSizes => "pageset sizes",
            Class::FallbackOrder => "fallback order",
            other => other.key(),
        }
    }
}

/// A field, as predicted and as recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// What it belongs to.
    pub class: Class,
    /// Its name.
    pub field: String,
    /// Ours.
    pub predicted: Value,
    /// The kernel's.
    pub recorded: Value,
    /// What gave ours.
    pub rule: &'static str,
    /// Whether the kernel computed it from sizes that it no longer prints.
    pub is_apart: bool,
}

impl Comparison {
    fn new(
        class: Class,
        field: String,
        predicted: impl Into<Value>,
        recorded: impl Into<Value>,
        rule: &'static str,
    ) -> Comparison {
        let (predicted, recorded) = (predicted.into(), recorded.into());
        Comparison { class, field, predicted, recorded, rule, is_apart: false }
    }

    /// Whether both are the same.
    pub fn is_match(&self) -> bool {
        self.predicted == self.recorded
    }
}

/// All fields of a capture that can be compared.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Comparisons {
    /// The fields.
    pub fields: Vec<Comparison>,
}

/// How many fields there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// The same.
    pub matched: usize,
    /// All.
    pub total: usize,
}

impl Counts {
    fn count(&mut self, comparison: &Comparison) {
        self.total += 1;
        self.matched += usize::from(comparison.is_match());
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.matched += other.matched;
        self.total += other.total;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.matched, self.total)
    }
}

impl Comparisons {
    /// The fields of a class, without those that are compared apart.
    pub fn counts(&self, class: Class) -> Counts {
        self.sum(|field| field.class == class && !field.is_apart)
    }

    /// The fields of a class that are compared apart.
    pub fn apart(&self, class: Class) -> Counts {
        self.sum(|field| field.class == class && field.is_apart)
    }

    /// The differences, apart or not.
    pub fn mismatches(&self, apart: bool) -> impl Iterator<Item = &Comparison> {
        self.fields.iter().filter(move |field| field.is_apart == apart && !field.is_match())
    }

    fn sum(&self, is_counted: impl Fn(&Comparison) -> bool) -> Counts {
        let mut counts = Counts::default();
        self.fields.iter().filter(|field| is_counted(field)).for_each(|field| counts.count(field));
        counts
    }
}

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

/// What a kernel module answered in the state of a capture.
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
                let mut asked = parse_info(&file).map_err(crate::BundleError::from)?;
                let lists = std::mem::take(&mut asked.zonelists);
                let of_state =
                    if is_rebuilt { &mut answers.rebuilt_lists } else { &mut answers.boot_lists };
                of_state.extend(lists);
                answers.asked.push(asked);
            } else if name == "rebuild" {
                let lists = parse_rebuild(&file).map_err(crate::BundleError::from)?;
                let (boot, rebuilt): (Vec<_>, Vec<_>) =
                    lists.into_iter().partition(|list| list.kind == "ZL_BOOT");
                answers.boot_lists.extend(boot);
                answers.rebuilt_lists.extend(rebuilt);
                // Whoever asks after that is told the new lists.
                is_rebuilt = true;
            }
        }
        Ok(answers)
    }
}

/// The fields that follow from what zones manage.
fn sized_fields(
    recording: &Recording,
    capture: &Capture,
    machine: &RecordedMachine,
    prediction: &Prediction,
    answers: &Answers,
) -> Vec<Comparison> {
    let fields = |plan: &Plan| zones::fields(plan, &prediction.kinds, machine, &answers.asked);
    let mut now = fields(&prediction.plan);
    // Nothing but background reclaim makes thresholds anew, and what boot made them from the log tells.
    let has_old_thresholds = !machine.has_reclaimed && recording.log.late.is_empty();
    let is_apart = |field: &Comparison| match (capture.computed, field.class) {
        (_, Class::Thresholds) if has_old_thresholds && !field.is_match() => true,
        (Some(computed), Class::Protection) => !computed.protection,
        (Some(computed), Class::Watermarks | Class::PagesetSizes) => !computed.marks,
        (Some(computed), _) => computed == Computed::default(),
        (None, _) => true,
    };
    // Where nobody tells what was computed anew, the watermarks show it.
    let fits = |field: &Comparison| field.class != Class::Watermarks || field.is_match();
    if capture.computed.is_none() && now.iter().all(fits) {
        return now;
    }
    // Some may have been computed since, by a write or a read of their setting.
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

/// `min_free_kbytes` where it is still what boot made it: a later value that differs was written.
fn min_free(
    recording: &Recording,
    capture: &Capture,
    machine: &RecordedMachine,
    prediction: &Prediction,
) -> Option<Comparison> {
    let recorded = machine.settings.min_free_kbytes?;
    if super::written_min_free(recording, capture, machine).is_some() {
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
pub fn zone_names(plan: &Plan, zones: &[ZoneRef]) -> Vec<String> {
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

/// `node 0 zone DMA32 min`.
fn zone_field(node: NodeId, kind: ZoneKind, what: &str) -> String {
    format!("node {node} zone {} {what}", kind.name())
}
