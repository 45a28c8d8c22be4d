//! The fields of zones: watermarks, protection, pageset sizes, thresholds.

use nearpage::{CpuId, NodeId, PageCount, ZoneKind};
use nearpage_machine::sysfs::zoneinfo::{PagesetRecord, ZoneRecord};
use serde_json::json;

use super::field::{Class, Comparison, zone_field};
use crate::RecordedMachine;
use crate::module::{Asked, AskedPageset, AskedZone};
use nearpage_machine::plan::{Plan, PlannedZone};

const MIN: &str = "min_free_kbytes / 4 * managed / managed of all zones; Movable since 6.2: \
                   managed / 1024, 32 to 128 (mm/page_alloc.c: __setup_per_zone_wmarks)";
const ABOVE_MIN: &str = "min + 1, 2, 3 steps of max(share / 4, managed * watermark_scale_factor / 10000) \
                         + boost (mm/page_alloc.c: __setup_per_zone_wmarks)";
const PROTECTION: &str = "managed of the node's zones above / lowmem_reserve_ratio \
                          (mm/page_alloc.c: setup_per_zone_lowmem_reserve)";
const BATCH: &str = "managed / 4096, at most 64, as a power of two less one \
                     (mm/page_alloc.c: zone_batchsize)";
const HIGH: &str = "low, or managed / percpu_pagelist_high_fraction, by the CPUs of the node; at least 4 \
                    batches (mm/page_alloc.c: zone_highsize)";
const HIGH_MAX: &str = "managed / 8, or / percpu_pagelist_high_fraction, by the CPUs of the node; at \
                        least 4 batches (mm/page_alloc.c: zone_highsize)";
const THRESHOLD: &str = "2 * bits(CPUs) * (1 + bits(managed / 128 MiB)), at most 125 \
                         (mm/vmstat.c: calculate_normal_threshold)";

/// Compares all zones, with the recorded texts and with the answers of the module.
pub(super) fn fields(
    plan: &Plan,
    kinds: &[ZoneKind],
    machine: &RecordedMachine,
    asked: &[Asked],
) -> Vec<Comparison> {
    let mut fields = Fields { plan, kinds, found: Vec::new() };
    for zone in machine.zones.iter().chain(machine.zones_of_text.iter().flatten()) {
        fields.add_zone(zone);
    }
    for asked in asked {
        asked.zones.iter().for_each(|zone| fields.add_asked_zone(zone));
        asked.pagesets.iter().for_each(|pageset| fields.add_asked_pageset(pageset));
    }
    without_repetitions(fields.found)
}

/// A recording may have a value twice. If the two differ, both are compared.
fn without_repetitions(fields: Vec<Comparison>) -> Vec<Comparison> {
    let mut seen = std::collections::HashSet::new();
    fields
        .into_iter()
        .filter(|field| seen.insert((field.field.clone(), field.recorded.to_string())))
        .collect()
}

struct Fields<'a> {
    plan: &'a Plan,
    kinds: &'a [ZoneKind],
    found: Vec<Comparison>,
}

impl Fields<'_> {
    fn planned(&self, node: NodeId, kind: ZoneKind) -> Option<PlannedZone> {
        let node = self.plan.nodes.iter().find(|planned| planned.id == node)?;
        node.zones.iter().find(|zone| zone.extent.kind == kind).copied()
    }

    /// Compares a field if the recording has it.
    fn add(
        &mut self,
        class: Class,
        field: impl FnOnce() -> String,
        predicted: PageCount,
        recorded: Option<u64>,
        rule: &'static str,
    ) {
        if let Some(recorded) = recorded {
            self.found.push(Comparison::new(class, field(), predicted.0, recorded, rule));
        }
    }

    fn add_marks(
        &mut self,
        node: NodeId,
        zone: &PlannedZone,
        boost: PageCount,
        recorded: [Option<u64>; 4],
    ) {
        let kind = zone.extent.kind;
        let marks = zone.marks.boosted(boost);
        let marks = [marks.min, marks.low, marks.high, marks.promo];
        let names = ["min", "low", "high", "promo"];
        for ((name, mark), recorded) in names.into_iter().zip(marks).zip(recorded) {
            let rule = if name == "min" { MIN } else { ABOVE_MIN };
            self.add(Class::Watermarks, || zone_field(node, kind, name), mark, recorded, rule);
        }
    }

    fn add_protection(&mut self, node: NodeId, zone: &PlannedZone, recorded: Option<&[u64]>) {
        let Some(recorded) = recorded else { return };
        // A kernel prints only the kinds of zones that it is built with.
        let kinds = if recorded.len() == self.kinds.len() { self.kinds } else { &ZoneKind::ALL };
        let predicted: Vec<u64> = kinds.iter().map(|k| zone.protection[k.index()].0).collect();
        let field = zone_field(node, zone.extent.kind, "protection");
        let (predicted, recorded) = (json!(predicted), json!(recorded));
        self.found.push(Comparison::new(Class::Protection, field, predicted, recorded, PROTECTION));
    }

    fn add_zone(&mut self, recorded: &ZoneRecord) {
        let (node, kind) = (recorded.node, recorded.kind);
        let Some(zone) = kind.and_then(|kind| self.planned(node, kind)) else { return };
        let boost = zone.extent.boost;
        let marks = [recorded.min, recorded.low, recorded.high, recorded.promo];
        self.add_marks(node, &zone, boost, marks);
        self.add_protection(node, &zone, recorded.protection.as_deref());
        for pageset in &recorded.pagesets {
            self.add_pageset(node, &zone, pageset);
        }
    }

    fn add_pageset(&mut self, node: NodeId, zone: &PlannedZone, recorded: &PagesetRecord) {
        // Since 6.7 `high` changes while the kernel runs.
        let fixed_high = recorded.high.filter(|_| !self.plan.model.pcp.tunes_high);
        let PagesetRecord { cpu, batch, high_min, high_max, stat_threshold, .. } = *recorded;
        let sizes = [batch, high_min.or(fixed_high), high_max];
        self.add_pageset_sizes(node, zone, Some(cpu), sizes);
        self.add_threshold(node, zone, cpu, stat_threshold);
    }

    /// Batch and bounds of `high`, of one CPU or of all.
    fn add_pageset_sizes(
        &mut self,
        node: NodeId,
        zone: &PlannedZone,
        cpu: Option<CpuId>,
        recorded: [Option<u64>; 3],
    ) {
        let whose = cpu.map(|cpu| format!("cpu {cpu} ")).unwrap_or_else(|| "pageset ".into());
        let least = if self.plan.model.pcp.tunes_high { "high_min" } else { "high" };
        let sizes = zone.pageset;
        let predicted = [
            ("batch", sizes.batch, BATCH),
            (least, sizes.high_min, HIGH),
            ("high_max", sizes.high_max, HIGH_MAX),
        ];
        for ((name, size, rule), recorded) in predicted.into_iter().zip(recorded) {
            let field = || zone_field(node, zone.extent.kind, &format!("{whose}{name}"));
            self.add(Class::PagesetSizes, field, size, recorded, rule);
        }
    }

    fn add_threshold(
        &mut self,
        node: NodeId,
        zone: &PlannedZone,
        cpu: CpuId,
        recorded: Option<u64>,
    ) {
        let field = || zone_field(node, zone.extent.kind, &format!("cpu {cpu} stat_threshold"));
        let predicted = PageCount(zone.stat_threshold.into());
        self.add(Class::Thresholds, field, predicted, recorded, THRESHOLD);
    }

    fn add_asked_zone(&mut self, recorded: &AskedZone) {
        let node = recorded.node;
        let Some(zone) = self.planned(node, recorded.kind) else { return };
        // The module reads marks without the boost, and promo even of kernels that do not print it.
        self.add_marks(node, &zone, PageCount(0), recorded.marks);
        self.add_protection(node, &zone, recorded.reserve.as_deref());
        let sizes = [recorded.batch, recorded.high_min, recorded.high_max];
        self.add_pageset_sizes(node, &zone, None, sizes);
    }

    fn add_asked_pageset(&mut self, recorded: &AskedPageset) {
        let AskedPageset { node, kind, cpu, batch, high_min, high_max, stat_threshold } = *recorded;
        let Some(zone) = self.planned(node, kind) else { return };
        self.add_pageset_sizes(node, &zone, Some(cpu), [batch, high_min, high_max]);
        self.add_threshold(node, &zone, cpu, stat_threshold);
    }
}
