//! Changes of the marks: settings tried in the core's formulas, on the zones of a report.

use nearpage::rules::watermarks::{WatermarkCheck, Watermarks, ZoneSize};
use nearpage::{PageCount, Settings, ZoneKind};

use crate::cause::kib;
use crate::figure::{Figure, Side};
use crate::remedy::{Change, Effect, Remedy, Tried, with_free};
use crate::report::ZoneRow;
use crate::zones::hidden_pages;

impl Tried<'_> {
    /// The zones as the formulas take them. HighMem counts as Movable, whose small `min` has the same formula.
    fn sizes(&self) -> Option<Vec<ZoneSize>> {
        let size = |row: &ZoneRow| {
            let managed = self.zones.managed(row).known()?;
            Some(ZoneSize { kind: kind(&row.name), managed: PageCount(managed) })
        };
        self.zones.report.zones.iter().map(size).collect()
    }

    /// The `min_free_kbytes` in force: what the marks of the zones come to. All zones must be in the report.
    fn min_free_now(&self) -> Option<u64> {
        let report = self.zones.report;
        let is_whole = report.ram_pages.is_some() && !report.zones.is_empty();
        if !is_whole || hidden_pages(report) > 0 {
            return None;
        }
        let sharing = report.zones.iter().filter(|row| kind(&row.name) != ZoneKind::Movable);
        let without_boost = |row: &ZoneRow| row.min.minus(Figure::exact(self.boost_kib(row)));
        sharing.map(without_boost).sum::<Figure>().known()
    }

    /// The boost of a zone in KiB: what is printed, or proven.
    fn boost_kib(&self, row: &ZoneRow) -> u64 {
        row.boost.known().unwrap_or_else(|| self.zones.kib(self.zones.boost(row).least()))
    }

    /// The factor in force: the distance of two marks of the largest zone, unless a quarter of `min` is larger.
    fn factor_now(&self) -> Option<u32> {
        let row = self.row;
        let step = row.low.minus(row.min).known()?;
        let quarter = row.min.known()?.saturating_sub(self.boost_kib(row)) / 4;
        let managed = self.zones.kib(self.zones.managed(row).known()?).max(1);
        if step <= quarter.saturating_add(self.zones.kib(1)) {
            return Some(10);
        }
        Some((u128::from(step) * 10_000 / u128::from(managed)).clamp(10, 3000) as u32)
    }

    /// Whether the request passes with the marks of other settings. kswapd is taken to keep as many more pages free as `low` is
    /// higher: it would have been woken so much earlier.
    fn passes_with(&self, now: (u64, u32), then: (u64, u32)) -> Effect {
        let Some((sizes, managed)) = self.sizes().zip(self.zones.managed(self.row).known()) else {
            return Effect::Unknown;
        };
        let shift = self.zones.kib(1).max(1).ilog2() + 10;
        let marks = |(min_free, factor)| {
            let settings =
                Settings::default().with(|settings| settings.watermark_scale_factor = factor);
            let size = ZoneSize { kind: kind(&self.row.name), managed: PageCount(managed) };
            Watermarks::new(sizes.iter().copied(), min_free, &settings, shift).marks(size)
        };
        let (now, then) = (marks(now), marks(then));
        let earlier = then.low.0.saturating_sub(now.low.0);
        self.passes(|check| WatermarkCheck {
            mark: PageCount(check.mark.0.saturating_add(then.min.0.saturating_sub(now.min.0))),
            ..with_free(check, earlier)
        })
    }

    /// Why a change of marks helps no request where nothing is left to reclaim, or before a kill, if it does not.
    fn marks_of_no_use(&self) -> Option<(Effect, String)> {
        if self.ignores_marks() {
            let text = "no mark applies to this request: a higher min leaves more to such as it, and how much they take is not in the report";
            return Some((Effect::Unknown, text.into()));
        }
        let block = self.zones.kib(self.zones.order.pages().0);
        let needed = self.zones.check(&self.figures, Side::Best).free_needed().0;
        // Little more than the zone has to have free: most of it is in use all the time. A request that was refused without
        // a kill may not have reclaimed all.
        let times = if self.is_kill() { 4 } else { 1 };
        let little = self.zones.kib(needed).max(block).saturating_mul(times);
        Some(match self.left {
            Some(left) if left < little => (
                Effect::Harmful,
                format!(
                    "nothing is left to reclaim ({}): higher marks take memory from programs, and the next {} comes earlier",
                    kib(left),
                    if self.is_kill() { "kill" } else { "refusal" }
                ),
            ),
            _ if !self.is_kill() => return None,
            Some(left) => (
                Effect::NoEffect,
                format!(
                    "the request reclaimed itself and got nothing of the {} that seem reclaimable: kswapd, woken earlier, would not either",
                    kib(left)
                ),
            ),
            None => (
                Effect::Unknown,
                "higher marks wake kswapd earlier; how much it could reclaim is not in the report"
                    .into(),
            ),
        })
    }

    pub(crate) fn min_free_kbytes(&self) -> Option<Remedy> {
        let change = Change::MinFreeKbytes;
        if self.zones.has_wrong_mark(self.row) {
            return None;
        }
        if let Some((effect, text)) = self.marks_of_no_use() {
            return Some(Remedy { change, effect, amount: None, text });
        }
        let known = self.min_free_now().zip(self.factor_now()).zip(self.sizes());
        let Some(((now, factor), sizes)) = known else {
            let text =
                "cannot tell: each zone has a share of it, and what all of them manage is not in the report (kernels before 3.9 do not print it, or rows are missing)".into();
            return Some(Remedy { change, effect: Effect::Unknown, amount: None, text });
        };
        let managed = sizes.iter().map(|zone| zone.managed.0).fold(0, u64::saturating_add);
        // More than a twentieth of memory is not left free for the sake of one request.
        let most = (self.zones.kib(managed) / 20).max(now);
        let passes = |kbytes| self.passes_with((now, factor), (kbytes, factor)) == Effect::Helps;
        Some(match least(now, most, passes) {
            Some(kbytes) => {
                let text = format!(
                    "vm.min_free_kbytes={kbytes} ({}; now about {}): kswapd starts earlier, if it keeps up",
                    kib(kbytes),
                    kib(now)
                );
                Remedy { change, effect: Effect::Helps, amount: Some(kbytes), text }
            }
            None => {
                let text = format!(
                    "vm.min_free_kbytes up to {most} ({}, a twentieth of memory) is not enough (now about {})",
                    kib(most),
                    kib(now)
                );
                Remedy { change, effect: Effect::NoEffect, amount: None, text }
            }
        })
    }

    pub(crate) fn scale_factor(&self) -> Option<Remedy> {
        let change = Change::WatermarkScaleFactor;
        // Without a version the words of the flags tell a kernel of which it is one.
        let has_none = self.zones.is_before((4, 6)) == Some(true) || self.ignores_marks();
        if has_none || self.zones.has_wrong_mark(self.row) {
            return None;
        }
        if let Some((effect, text)) = self.marks_of_no_use() {
            return Some(Remedy { change, effect, amount: None, text });
        }
        let (min_free, now) = self.min_free_now().zip(self.factor_now())?;
        let passes =
            |factor| self.passes_with((min_free, now), (min_free, factor as u32)) == Effect::Helps;
        Some(match least(now.into(), 1000, passes) {
            Some(factor) => {
                let text = format!(
                    "vm.watermark_scale_factor={factor} (now about {now}): kswapd starts earlier, if it keeps up"
                );
                Remedy { change, effect: Effect::Helps, amount: Some(factor), text }
            }
            None => Remedy {
                change,
                effect: Effect::NoEffect,
                amount: None,
                text: format!(
                    "vm.watermark_scale_factor up to 1000 is not enough (now about {now})"
                ),
            },
        })
    }

    pub(crate) fn boost_factor(&self) -> Option<Remedy> {
        let boost = self.zones.boost(self.row).least();
        let amount = self.zones.kib(boost);
        let effect = self.passes(|check| WatermarkCheck {
            mark: PageCount(check.mark.0.saturating_sub(boost)),
            boost: PageCount(0),
            ..check
        });
        let text =
            format!("vm.watermark_boost_factor=0: without a boost min is {} lower", kib(amount));
        let change = Change::WatermarkBoostFactor;
        (boost > 0).then_some(Remedy { change, effect, amount: Some(amount), text })
    }
}

/// The least value between `from` and `to` for which something holds that keeps on holding.
fn least(from: u64, to: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (from, to);
    if high < low || !holds(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

fn kind(name: &str) -> ZoneKind {
    match name {
        "DMA" => ZoneKind::Dma,
        "DMA32" => ZoneKind::Dma32,
        "HighMem" | "Movable" => ZoneKind::Movable,
        "Device" => ZoneKind::Device,
        _ => ZoneKind::Normal,
    }
}
