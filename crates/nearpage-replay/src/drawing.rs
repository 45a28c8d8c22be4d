//! A bundle as a timeline or event by event: its trace, and what its captures and samples say of the zones at the moments when they were taken.

use std::cell::RefCell;
use std::io::Write;

use nearpage_machine::sysfs::zoneinfo::ZoneRecord;
use nearpage_machine::work::Observer;
use nearpage_trace::summary::{Summarizer, Summary};
use nearpage_trace::timeline::{Levels, Timeline, ZoneFrames};
use nearpage_trace::{Event, TraceCounts, TraceEvent, read_trace, read_trace_with_frames};

use crate::bundle::Bundle;
use crate::error::ReplayError;
use crate::watch::Watch;

impl Bundle {
    /// The zones of the bundle's machine, as timelines want them; none if the bundle does not tell their frames.
    ///
    /// # Errors
    ///
    /// The capture `before` is damaged.
    pub fn zone_frames(&self) -> Result<Vec<ZoneFrames>, ReplayError> {
        let frames = |zone: &ZoneRecord| {
            let (first, spanned) = (zone.start_pfn?, zone.spanned?);
            Some(ZoneFrames { name: name(zone)?, frames: first..first.checked_add(spanned)? })
        };
        Ok(self.zones("before")?.iter().filter_map(frames).collect())
    }

    /// Adds all events of the trace, with their call chains, to a summary.
    ///
    /// # Errors
    ///
    /// The trace cannot be read; [`ReplayError::Stopped`].
    pub fn summarize(
        &self,
        summarizer: Summarizer,
        observer: &dyn Observer,
    ) -> Result<Summary, ReplayError> {
        let watch = Watch::new(observer, self.pass_bytes(), 1);
        let summarizer = RefCell::new(summarizer);
        let counts = self.with_trace_text(&watch, |input, text| {
            let each = |event: &TraceEvent<'_>| {
                summarizer.borrow_mut().note(event);
                Ok::<(), ReplayError>(())
            };
            read_trace_with_frames(input, text, each, |line| summarizer.borrow_mut().frame(line))
        })?;
        Ok(summarizer.into_inner().finish(&counts))
    }

    /// Adds all events of the trace to timelines that were begun with [`zone_frames`](Self::zone_frames), and the levels of
    /// zones at the markers of captures and samples.
    ///
    /// # Errors
    ///
    /// The trace or a capture cannot be read; [`ReplayError::Stopped`].
    pub fn draw<W: Write>(
        &self,
        timelines: &mut [Timeline<W>],
        observer: &dyn Observer,
    ) -> Result<TraceCounts, ReplayError> {
        let watch = Watch::new(observer, self.pass_bytes(), 1);
        let samples = self.samples(&watch)?;
        let places: Vec<String> = self.zone_frames()?.into_iter().map(|zone| zone.name).collect();
        let (before, after) = (self.zones("before")?, self.zones("after")?);
        let at_marker = |text: &[u8]| -> &[ZoneRecord] {
            if text.starts_with(b"nearpage: before begin") {
                return &before;
            }
            if text.starts_with(b"nearpage: after begin") {
                return &after;
            }
            let number = std::str::from_utf8(text).ok().and_then(|text| {
                text.strip_prefix("nearpage: sample ")?.strip_suffix(" begin")?.parse().ok()
            });
            let sample = samples.iter().find(|sample| Some(sample.number) == number);
            sample.map_or(&[], |sample| &sample.zones)
        };
        let timelines = RefCell::new(timelines);
        self.with_trace_text(&watch, |input, text| {
            let each = |event: &TraceEvent<'_>| {
                for timeline in &mut **timelines.borrow_mut() {
                    timeline.event(event);
                    let Event::Marker(text) = event.event else { continue };
                    for zone in at_marker(text) {
                        let place = name(zone)
                            .and_then(|name| places.iter().position(|other| *other == name));
                        let Some(place) = place else { continue };
                        let ZoneRecord { free, min, low, high, .. } = *zone;
                        timeline.levels(place, event.time_ns, Levels { free, min, low, high });
                    }
                }
                Ok::<(), ReplayError>(())
            };
            read_trace_with_frames(input, text, each, |line| {
                timelines.borrow_mut().iter_mut().for_each(|timeline| timeline.frame(line));
            })
        })
    }

    /// Makes a pass over the trace, and hands on each of its events in the order of the text.
    ///
    /// The observer is told bytes of the packed trace.
    ///
    /// ```
    /// use nearpage_machine::work::Unwatched;
    /// use nearpage_replay::Bundle;
    ///
    /// let mut events = 0;
    /// let counts = Bundle::shipped().events(&Unwatched, |_| {
    ///     events += 1;
    ///     Ok(())
    /// })?;
    /// assert_eq!((events, counts.events), (303_236, 303_236));
    /// # Ok::<(), nearpage_replay::ReplayError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The trace cannot be read; what `each` says, [`Stopped`](nearpage_machine::work::Stopped) for one; [`ReplayError::Stopped`].
    pub fn events(
        &self,
        observer: &dyn Observer,
        each: impl FnMut(&TraceEvent<'_>) -> Result<(), ReplayError>,
    ) -> Result<TraceCounts, ReplayError> {
        let watch = Watch::new(observer, self.pass_bytes(), 1);
        self.with_trace_text(&watch, |input, text| read_trace(input, text, each))
    }

    /// The zones of a capture with memory; none if there is no such capture.
    pub(crate) fn zones(&self, capture: &str) -> Result<Vec<ZoneRecord>, ReplayError> {
        let recording = self.recording();
        let Some(capture) = recording.captures.iter().find(|other| other.name == capture) else {
            return Ok(Vec::new());
        };
        let mut zones = capture.machine()?.zones;
        zones.retain(ZoneRecord::is_populated);
        Ok(zones)
    }
}

fn name(zone: &ZoneRecord) -> Option<String> {
    Some(format!("node {} {}", zone.node, zone.kind?.name()))
}
