//! Which zone a frame of the recorded machine is of.

use nearpage::{Pfn, PfnRange};

/// Disjoint ranges of frames, ascending, each of a zone by its position in the recording.
#[derive(Clone, Debug, Default)]
pub struct ZoneMap {
    ranges: Vec<(PfnRange, usize)>,
}

impl ZoneMap {
    /// From the spans of zones. Where spans overlap, as those of nodes that interleave do, a frame is of the zone
    /// that begins last.
    pub fn new(spans: &[PfnRange]) -> ZoneMap {
        let mut borders: Vec<u64> =
            spans.iter().flat_map(|span| [span.start.0, span.end.0]).collect();
        borders.sort_unstable();
        borders.dedup();
        let mut ranges: Vec<(PfnRange, usize)> = Vec::new();
        for pair in borders.windows(2) {
            let part = PfnRange::new(pair[0], pair[1]);
            let holders = spans.iter().enumerate().filter(|(_, span)| span.contains(part.start));
            let Some((zone, _)) = holders.max_by_key(|(_, span)| span.start) else { continue };
            match ranges.last_mut() {
                Some((last, same)) if *same == zone && last.end == part.start => {
                    last.end = part.end
                }
                _ => ranges.push((part, zone)),
            }
        }
        ZoneMap { ranges }
    }

    /// From disjoint ranges.
    pub fn of_parts(mut ranges: Vec<(PfnRange, usize)>) -> ZoneMap {
        ranges.sort_by_key(|(range, _)| range.start);
        ZoneMap { ranges }
    }

    /// The zone of a frame, by its position; `None` if no zone has it.
    pub fn zone_of(&self, pfn: Pfn) -> Option<usize> {
        let after = self.ranges.partition_point(|(range, _)| range.start <= pfn);
        let (range, zone) = self.ranges.get(after.checked_sub(1)?)?;
        range.contains(pfn).then_some(*zone)
    }

    /// The frames of a zone.
    pub fn ranges(&self, zone: usize) -> impl Iterator<Item = PfnRange> + use<'_> {
        self.ranges.iter().filter(move |(_, of)| *of == zone).map(|(range, _)| *range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_that_begins_last_has_the_frame() {
        let spans = [PfnRange::new(1, 100), PfnRange::new(200, 1000), PfnRange::new(400, 600)];
        let map = ZoneMap::new(&spans);
        let zones =
            [0, 1, 99, 100, 200, 399, 400, 599, 600, 999, 1000].map(|pfn| map.zone_of(Pfn(pfn)));
        let (a, b, c) = (Some(0), Some(1), Some(2));
        assert_eq!(zones, [None, a, a, None, b, b, c, c, b, b, None]);
        let of_second: Vec<PfnRange> = map.ranges(1).collect();
        assert_eq!(of_second, [PfnRange::new(200, 400), PfnRange::new(600, 1000)]);
    }
}
