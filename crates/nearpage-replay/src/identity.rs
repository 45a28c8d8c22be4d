//! Whether a trace is of the recording that it is replayed with.
//!
//! A trace that was given for a bundle may be of another machine, or of another time. Frames outside of all zones and CPUs that
//! the machine does not have show a trace of a larger machine. A trace of a smaller machine fits; then what the recorder
//! and the kernel counted tells:
//!
//! - The recorder writes a marker for each sample. Another number of markers than of samples: another recording. The last
//!   sample may begin after the window.
//! - The kernel counts each allocation (`numa_hit`, `numa_miss`). More events than it counted: another recording. Fewer
//!   are usual, since allocations in bulk have no event, but not fewer than a quarter.
//!
//! A trace without the markers of `before` and `after` may begin and end anywhere, and one that lost events may lack any:
//! of those, only a surplus shows that the trace is of another recording. The report names what could not be judged.

use nearpage_trace::{Event, TraceEvent};

use crate::error::ReplayError;
use crate::source::Kinship;

/// Of the blocks of a trace that was given beside a bundle, one in so many may lie in no zone or on no CPU: memory or a CPU
/// that came or went. Of a bundle's own trace, half of them; of a trace alone, all: nothing tells where its zones are.
const FOREIGN_PART: u64 = 16;

/// Counters of a CPU that it has not yet added to those of its zone, when they are read.
const NOT_YET_COUNTED: u64 = 1000;

/// What of a trace tells where it comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// Blocks allocated and freed.
    blocks: u64,
    /// Those of them in no zone of the machine, and where the first of them stands in the trace.
    foreign_blocks: u64,
    first_foreign: Option<u64>,
    /// Those of them on CPUs that the machine does not have.
    on_foreign_cpus: u64,
    /// Allocations of the window, those in bulk included.
    allocs: u64,
    /// Markers of samples in the window and after it.
    samples: u64,
}

impl Evidence {
    /// The window begins: what was counted of it so far was before it.
    pub(crate) fn begin_window(&mut self) {
        (self.allocs, self.samples) = (0, 0);
    }

    /// Notes a block that was allocated or freed.
    pub(crate) fn note_block(&mut self, event: &TraceEvent<'_>, is_of_zone: bool, has_cpu: bool) {
        self.blocks += 1;
        self.on_foreign_cpus += u64::from(!has_cpu);
        if !is_of_zone {
            self.foreign_blocks += 1;
            self.first_foreign.get_or_insert(event.offset);
        }
    }

    /// Notes a marker of the window, or after it.
    pub(crate) fn note_marker(&mut self, event: &Event<'_>) {
        if let Event::Marker(text) = *event {
            let is_sample = text.starts_with(b"nearpage: sample ") && text.ends_with(b" begin");
            self.samples += u64::from(is_sample);
        }
    }

    /// Notes what is counted on both sides.
    pub(crate) fn note_counted(&mut self, event: &Event<'_>) {
        match *event {
            Event::Alloc { pfn: Some(_), .. } => self.allocs += 1,
            Event::BulkDone { got, .. } => self.allocs += got,
            _ => {}
        }
    }

    /// Refuses a trace that has no blocks, or too many of them in no zone or on no CPU of the machine. `input` names it,
    /// it has so many bytes.
    ///
    /// # Errors
    ///
    /// As above.
    pub(crate) fn check_machine(
        &self,
        input: &str,
        bytes: u64,
        kinship: Kinship,
    ) -> Result<(), ReplayError> {
        let Evidence { blocks, foreign_blocks: foreign, .. } = *self;
        let most = match kinship {
            Kinship::Own => blocks / 2,
            Kinship::Given => blocks / FOREIGN_PART,
            Kinship::Alone => blocks,
        };
        let input = || input.to_owned();
        match self.first_foreign {
            _ if blocks == 0 => Err(ReplayError::NoBlocks { input: input(), offset: bytes }),
            Some(offset) if foreign > most => {
                Err(ReplayError::OtherMachine { input: input(), offset, foreign, blocks })
            }
            _ if self.on_foreign_cpus > most => {
                let foreign = self.on_foreign_cpus;
                Err(ReplayError::OtherCpus { input: input(), foreign, blocks })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a trace that is of another recording than the captures beside it. The bundle has so many samples; `counted`
    /// is what the kernel counted of allocations between `before` and `after`, if both tell. A trace that may be a part
    /// (`is_part`) may have fewer of both.
    ///
    /// # Errors
    ///
    /// The trace is of another recording.
    pub(crate) fn check_recording(
        &self,
        input: &str,
        samples: u64,
        counted: Option<u64>,
        is_part: bool,
    ) -> Result<(), ReplayError> {
        let refused = |what, of_trace, of_bundle| {
            Err(ReplayError::OtherRecording { input: input.into(), what, of_trace, of_bundle })
        };
        let has_fewer = self.samples < samples && !is_part;
        if (has_fewer || self.samples > samples) && self.samples > 0 && samples > 0 {
            return refused("markers of samples", self.samples, samples);
        }
        match counted {
            Some(counted)
                if self.allocs > counted + counted / 16 + NOT_YET_COUNTED
                    || (!is_part && self.allocs + NOT_YET_COUNTED < counted / 4) =>
            {
                refused("allocations", self.allocs, counted)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_other(evidence: &Evidence, samples: u64, counted: Option<u64>) -> bool {
        evidence.check_recording("t", samples, counted, false).is_err()
    }

    #[test]
    fn what_the_kernel_counted_tells() {
        for (allocs, expected) in
            [(100_000, false), (107_000, false), (107_300, true), (24_000, false), (23_999, true)]
        {
            let evidence = Evidence { allocs, ..Evidence::default() };
            assert_eq!(is_other(&evidence, 0, Some(100_000)), expected, "{allocs}");
            assert!(!is_other(&evidence, 0, None));
            let is_part = evidence.check_recording("t", 0, Some(100_000), true).is_err();
            assert_eq!(is_part, allocs == 107_300, "a part may have fewer, {allocs}");
        }
        let few = Evidence { allocs: 900, ..Evidence::default() };
        assert!(!is_other(&few, 0, Some(0)), "counters lag behind");
    }

    #[test]
    fn samples_tell() {
        let evidence = |samples| Evidence { samples, ..Evidence::default() };
        assert!(!is_other(&evidence(14), 14, None) && is_other(&evidence(22), 14, None));
        assert!(!is_other(&evidence(0), 14, None), "a trace without these markers");
        assert!(!is_other(&evidence(14), 0, None), "a bundle without samples");
    }

    #[test]
    fn cpus_and_frames_tell() {
        let of = |foreign_blocks, on_foreign_cpus| {
            let first_foreign = (foreign_blocks > 0).then_some(7);
            let blocks = 10;
            Evidence {
                blocks,
                foreign_blocks,
                first_foreign,
                on_foreign_cpus,
                ..Evidence::default()
            }
        };
        assert!(of(5, 5).check_machine("t", 9, Kinship::Own).is_ok());
        assert!(of(1, 0).check_machine("t", 9, Kinship::Given).is_err(), "beside a bundle");
        let message =
            |of: Evidence| of.check_machine("t", 9, Kinship::Own).unwrap_err().to_string();
        assert!(message(of(6, 0)).starts_with("t: byte 7: 6 of 10 blocks lie in no zone"));
        assert!(message(of(0, 6)).starts_with("t: 6 of 10 blocks were moved by CPUs"));
        assert!(message(Evidence::default()).starts_with("t: byte 9: the trace ends without"));
    }
}
