//! Values that no earlier sizes explain. Watermarks that boot computed need not fit the pages that zones manage now, but
//! they must fit each other.

use nearpage::rules::MovableMin;
use nearpage::{NodeId, Settings, ZoneKind};
use nearpage_machine::sysfs::zoneinfo::ZoneRecord;

use super::field::{Class, Comparison, zone_field};
use crate::RecordedMachine;

/// The zones of a capture whose watermarks are impossible with any sizes.
pub(super) struct Contradictions(Vec<(NodeId, ZoneKind)>);

impl Contradictions {
    /// Checks the watermarks of all zones, both of the text and of the values that the recorder read.
    pub(super) fn of(machine: &RecordedMachine, settings: &Settings, page_shift: u32) -> Self {
        let texts = [Some(&machine.zones), machine.zones_of_text.as_ref()];
        let of_text = |zones: &Vec<ZoneRecord>| {
            let has_sum = adds_up(machine, zones, settings, page_shift);
            let is_wrong = move |zone: &&ZoneRecord| !has_sum || !has_steps(zone, settings);
            let name = |zone: &ZoneRecord| Some((zone.node, zone.kind?));
            zones.iter().filter(is_wrong).filter_map(name).collect::<Vec<_>>()
        };
        Self(texts.into_iter().flatten().flat_map(of_text).collect())
    }

    /// Whether smaller sizes may explain the recorded value of a field, whose prediction is from the sizes of now.
    pub(super) fn may_explain(&self, field: &Comparison) -> bool {
        let is_of = |(node, kind): &(NodeId, ZoneKind)| {
            field.field.starts_with(&zone_field(*node, *kind, ""))
        };
        // These grow with the managed pages, whatever the sizes of the other zones.
        let grows = ["protection", "batch", "high_max"];
        match field.class {
            Class::Watermarks => !self.0.iter().any(is_of),
            Class::Thresholds => !exceeds(field),
            _ if grows.iter().any(|name| field.field.ends_with(name)) => !exceeds(field),
            _ => true,
        }
    }
}

/// Whether a recorded number, or one of a list, is more than the predicted one.
fn exceeds(field: &Comparison) -> bool {
    use serde_json::Value;
    match (&field.recorded, &field.predicted) {
        (Value::Array(recorded), Value::Array(predicted)) => {
            let mut pairs = recorded.iter().zip(predicted);
            pairs.any(|(recorded, predicted)| recorded.as_u64() > predicted.as_u64())
        }
        (recorded, predicted) => recorded.as_u64() > predicted.as_u64(),
    }
}

/// Whether low, high and promo are one, two and three steps above min, each as large as the zone's share of
/// `min_free_kbytes` or `watermark_scale_factor` asks for. `mm/page_alloc.c: __setup_per_zone_wmarks`.
fn has_steps(zone: &ZoneRecord, settings: &Settings) -> bool {
    let (Some(min), Some(low), Some(high)) = (zone.min, zone.low, zone.high) else { return true };
    let step = low.checked_sub(min);
    let is_even = high.checked_sub(low) == step
        && zone.promo.is_none_or(|promo| promo.checked_sub(high) == step);
    let (Some(step), Some(raw)) = (step, min.checked_sub(zone.boost.unwrap_or(0))) else {
        return false;
    };
    if has_own_min(zone, settings) {
        return is_even;
    }
    let scaled = u128::from(zone.managed.unwrap_or(0))
        * u128::from(settings.watermark_scale_factor)
        / 10_000;
    is_even && step >= raw / 4 && (step == raw / 4 || u128::from(step) <= scaled)
}

/// Whether the min marks of all zones add up to `min_free_kbytes`, less one page a zone for rounding.
fn adds_up(
    machine: &RecordedMachine,
    zones: &[ZoneRecord],
    settings: &Settings,
    page_shift: u32,
) -> bool {
    let Some(kbytes) = machine.machine.settings.min_free_kbytes else { return true };
    let pages = (u128::from(kbytes) << 10) >> page_shift;
    let sharing = zones.iter().filter(|zone| !has_own_min(zone, settings));
    let raw = |zone: &ZoneRecord| zone.min?.checked_sub(zone.boost.unwrap_or(0)).map(u128::from);
    let Some(sum) = sharing.clone().map(raw).sum::<Option<u128>>() else { return true };
    let cut = sharing.filter(|zone| zone.managed.unwrap_or(0) > 0).count() as u128;
    sum <= pages && pages < sum + cut.max(1)
}

/// Since 6.2 Movable has a min mark of its own.
fn has_own_min(zone: &ZoneRecord, settings: &Settings) -> bool {
    zone.kind == Some(ZoneKind::Movable) && settings.movable_min == MovableMin::Small
}
