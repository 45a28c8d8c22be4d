//! When what is free will be used up, if it goes on like in the last minute.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sample::{Sample, ZoneSample};

/// Over which time a trend is taken, and how far its points are apart.
const WINDOW_MS: u64 = 60_000;
const STEP_MS: u64 = 5000;
/// What is further away is no forecast.
const FAR: Duration = Duration::from_secs(24 * 3600);
/// Orders that are followed: pages, those of small kernel allocations, huge pages of x86.
const ORDERS: [usize; 3] = [0, 3, 9];

/// What is free in each zone over the last minute.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trends {
    zones: Vec<OfZone>,
    last_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct OfZone {
    node: u32,
    zone: String,
    /// Time, and pages in blocks of each of the orders or larger.
    points: VecDeque<(u64, [u64; ORDERS.len()])>,
}

/// Pages above `min` for order 0, else pages in blocks that are large enough.
fn pages_of(zone: &ZoneSample) -> [u64; ORDERS.len()] {
    ORDERS.map(|order| match order {
        0 => zone.free.unwrap_or(0).saturating_sub(zone.min.unwrap_or(0)),
        _ => zone
            .blocks
            .iter()
            .enumerate()
            .skip(order)
            .map(|(order, count)| count.saturating_mul(1 << order.min(40)))
            .fold(0, u64::saturating_add),
    })
}

impl Trends {
    /// Takes a sample. One before the last, as after a seek, begins anew; zones that are gone are forgotten.
    pub fn follow(&mut self, now: &Sample) {
        if now.time_ms < self.last_ms {
            self.zones.clear();
        }
        self.last_ms = now.time_ms;
        let old = std::mem::take(&mut self.zones);
        let mut old: VecDeque<OfZone> = old.into();
        for zone in &now.zones {
            let at = old.iter().position(|old| (old.node, &old.zone) == (zone.node, &zone.zone));
            let mut of_zone = at.and_then(|at| old.remove(at)).unwrap_or_else(|| OfZone {
                node: zone.node,
                zone: zone.zone.clone(),
                points: VecDeque::new(),
            });
            let points = &mut of_zone.points;
            // The last point moves until it is a step from the one before.
            if points.len() > 1 && points[points.len() - 1].0 < points[points.len() - 2].0 + STEP_MS
            {
                points.pop_back();
            }
            points.push_back((now.time_ms, pages_of(zone)));
            while points.len() > 2 && points[1].0 + WINDOW_MS <= now.time_ms {
                points.pop_front();
            }
            self.zones.push(of_zone);
        }
    }

    /// How long pages above `min` (order 0), or blocks of at least order 3 or 9, last at the pace of the last minute.
    /// `None` if there are none, or they do not get fewer, last for more than a day, or the order is another.
    pub fn none_in(&self, node: u32, zone: &str, order: usize) -> Option<Duration> {
        let at = ORDERS.iter().position(|other| *other == order)?;
        let zone =
            self.zones.iter().find(|other| (other.node, other.zone.as_str()) == (node, zone))?;
        let (begin, before) = zone.points.front()?;
        let (end, after) = zone.points.back()?;
        if after[at] == 0 {
            return None;
        }
        let elapsed = end.checked_sub(*begin).filter(|elapsed| *elapsed > 0)?;
        let lost = before[at].checked_sub(after[at]).filter(|lost| *lost > 0)?;
        let ms = u128::from(after[at]) * u128::from(elapsed) / u128::from(lost);
        Some(Duration::from_millis(u64::try_from(ms).ok()?)).filter(|time| *time < FAR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: u64, free: u64, huge: u64) -> Sample {
        let zone = ZoneSample {
            node: 1,
            zone: "Normal".into(),
            free: Some(free),
            min: Some(1000),
            blocks: [vec![0; 9], vec![huge]].concat(),
            ..ZoneSample::default()
        };
        Sample { time_ms: second * 1000, zones: vec![zone], ..Sample::default() }
    }

    #[test]
    fn what_gets_less_has_an_end() {
        let mut trends = Trends::default();
        let none_in = |trends: &Trends, order| trends.none_in(1, "Normal", order);
        trends.follow(&sample(100, 11_000, 5));
        assert_eq!(none_in(&trends, 0), None);
        for second in 101..=110 {
            trends.follow(&sample(second, 11_000 - 100 * (second - 100), 5));
        }
        // 9000 pages above min, 100 a second.
        assert_eq!(none_in(&trends, 0), Some(Duration::from_secs(90)));
        assert_eq!((none_in(&trends, 9), none_in(&trends, 4)), (None, None));
        assert_eq!(trends.none_in(0, "Normal", 0), None);
        // A minute without change is no trend any more, and old points are not kept.
        for second in 111..=180 {
            trends.follow(&sample(second, 10_000, if second == 180 { 4 } else { 5 }));
        }
        assert_eq!(none_in(&trends, 0), None);
        assert!(none_in(&trends, 9).is_some() && trends.zones[0].points.len() < 20);
        trends.follow(&sample(10, 5, 5));
        assert_eq!(trends.zones[0].points.len(), 1);
        trends.follow(&Sample { time_ms: 11_000, ..Sample::default() });
        assert_eq!(trends.zones, []);
    }
}
