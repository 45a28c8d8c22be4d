//! Which node and zone a frame of the recorded machine is of.

use nearpage::{NodeId, Pfn, PfnRange, ZoneKind};

use crate::bundle::Bundle;
use crate::error::ReplayError;
use crate::zones::ZoneMap;

/// The zones of a recorded machine by their frames.
#[derive(Clone, Debug, Default)]
pub struct FramePlaces {
    map: ZoneMap,
    places: Vec<(NodeId, ZoneKind)>,
}

impl FramePlaces {
    /// Where a frame is; `None` for one of no zone that is known.
    #[must_use]
    pub fn of(&self, pfn: Pfn) -> Option<(NodeId, ZoneKind)> {
        self.map.zone_of(pfn).map(|zone| self.places[zone])
    }
}

impl Bundle {
    /// The zones of the bundle's machine by their frames; none if the bundle does not tell them.
    ///
    /// # Errors
    ///
    /// The capture `before` is damaged.
    pub fn frame_places(&self) -> Result<FramePlaces, ReplayError> {
        let mut spans = Vec::new();
        let mut places = Vec::new();
        for zone in self.zones("before")? {
            let (Some(first), Some(spanned), Some(kind)) =
                (zone.start_pfn, zone.spanned, zone.kind)
            else {
                continue;
            };
            let Some(end) = first.checked_add(spanned) else { continue };
            spans.push(PfnRange::new(first, end));
            places.push((zone.node, kind));
        }
        Ok(FramePlaces { map: ZoneMap::new(&spans), places })
    }
}
