//! What was recorded and predicted at each sample: free pages of zones, and the largest pagesets.

use std::cmp::Reverse;

use nearpage::CpuId;
use nearpage_machine::sysfs::zoneinfo::{PagesetRecord, ZoneRecord};

use crate::outcome::{PagesetAt, Snapshot};
use crate::samples::Sample;
use crate::start::{Start, StartZone};
use crate::truth::find;

/// So many pagesets, those with the highest limits, have series.
const PAGESETS_MOST: usize = 6;

/// Series over the samples of a bundle; all are empty if it has no samples.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Series {
    /// Free pages of each zone.
    pub zones: Vec<ZoneSeries>,
    /// The pagesets with the highest limits, highest first.
    pub pagesets: Vec<PagesetSeries>,
}

/// Free pages of a zone.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ZoneSeries {
    /// `node 0 zone Normal`.
    pub zone: String,
    /// Its `min` and `high` marks.
    pub marks: [u64; 2],
    /// Free pages.
    pub free: Vec<SeriesPoint>,
}

/// A CPU's pageset for a zone.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PagesetSeries {
    /// The CPU.
    pub cpu: CpuId,
    /// `node 0 zone Normal`.
    pub zone: String,
    /// Pages in it.
    pub count: Vec<SeriesPoint>,
    /// The limit.
    pub high: Vec<SeriesPoint>,
}

/// A figure at a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SeriesPoint {
    /// The number of the sample.
    pub sample: u32,
    /// What the kernel printed, if it did.
    pub recorded: Option<u64>,
    /// What the replay came to.
    pub predicted: Option<u64>,
}

impl Series {
    /// Joins samples with the states of a run at the same moments.
    pub(crate) fn of(start: &Start, snapshots: &[Snapshot], samples: &[Sample]) -> Series {
        let moments: Vec<Moment<'_>> = snapshots
            .iter()
            .filter_map(|snapshot| {
                let number = snapshot.sample?;
                let sample = samples.iter().find(|sample| sample.number == number)?;
                Some(Moment { number, snapshot, sample })
            })
            .collect();
        if samples.is_empty() {
            return Series::default();
        }
        let zones = start.zones.iter().enumerate();
        let pagesets = largest(&moments).into_iter();
        Series {
            zones: zones.map(|(at, zone)| free_pages(&moments, at, zone)).collect(),
            pagesets: pagesets
                .map(|(cpu, at)| pageset(&moments, cpu, at, &start.zones[at]))
                .collect(),
        }
    }
}

/// A sample, and the run at that moment.
struct Moment<'a> {
    number: u32,
    snapshot: &'a Snapshot,
    sample: &'a Sample,
}

impl Moment<'_> {
    fn zone(&self, zone: &StartZone) -> Option<&ZoneRecord> {
        find(&self.sample.zones, zone)
    }

    fn predicted(&self, cpu: CpuId, zone: usize) -> Option<&PagesetAt> {
        self.snapshot.pagesets.iter().find(|of| (of.cpu, of.zone) == (cpu, zone))
    }
}

fn free_pages(moments: &[Moment<'_>], at: usize, zone: &StartZone) -> ZoneSeries {
    let point = |moment: &Moment<'_>| SeriesPoint {
        sample: moment.number,
        recorded: moment.zone(zone).and_then(|record| record.free),
        predicted: moment.snapshot.free_pages.get(at).copied(),
    };
    let marks = [zone.marks.min.0, zone.marks.high.0];
    ZoneSeries { zone: zone.name(), marks, free: moments.iter().map(point).collect() }
}

fn pageset(moments: &[Moment<'_>], cpu: CpuId, at: usize, zone: &StartZone) -> PagesetSeries {
    let series = |told: fn(&PagesetRecord) -> Option<u64>, predicted: fn(&PagesetAt) -> u64| {
        let point = |moment: &Moment<'_>| {
            let records = moment.zone(zone).map_or(&[][..], |record| &record.pagesets);
            // A record without one of the two is damaged, and no point.
            let record = records.iter().find(|record| record.cpu == cpu);
            let record = record.filter(|record| record.count.is_some() && record.high.is_some());
            SeriesPoint {
                sample: moment.number,
                recorded: record.and_then(told),
                predicted: moment.predicted(cpu, at).map(predicted),
            }
        };
        moments.iter().map(point).collect()
    };
    PagesetSeries {
        cpu,
        zone: zone.name(),
        count: series(|record| record.count, |pageset| pageset.count),
        high: series(|record| record.high, |pageset| pageset.high),
    }
}

/// The pagesets whose predicted limits are highest at any moment.
fn largest(moments: &[Moment<'_>]) -> Vec<(CpuId, usize)> {
    let mut highs: Vec<(u64, CpuId, usize)> = Vec::new();
    for pageset in moments.iter().flat_map(|moment| &moment.snapshot.pagesets) {
        let PagesetAt { cpu, zone, high, .. } = *pageset;
        match highs.iter_mut().find(|(_, of, at)| (*of, *at) == (cpu, zone)) {
            Some((most, ..)) => *most = high.max(*most),
            None => highs.push((high, cpu, zone)),
        }
    }
    highs.sort_by_key(|&(high, cpu, zone)| (Reverse(high), cpu, zone));
    highs.into_iter().take(PAGESETS_MOST).map(|(_, cpu, zone)| (cpu, zone)).collect()
}
