//! The state of the core's pageset in the words of the recordings.

use nearpage::Model;
use nearpage::rules::pagesets::RefillScale;

use crate::lab::{CoreZone, Lab};
use crate::text::pcp::{FREE_HIGH_BATCH, PREV_FREE_HIGH, State};

/// The state now, as a kernel of these rules would log it.
pub fn state(lab: &Lab<'_, '_>, zone: &CoreZone<'_>) -> State {
    let pageset = lab.pageset(zone);
    let tuning = pageset.tuning();
    let is_old = is_old(lab.core.model());
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    let flags =
        flag(tuning.prev_free_high, PREV_FREE_HIGH) | flag(tuning.free_high_batch, FREE_HIGH_BATCH);
    let factor = if is_old { tuning.free_factor } else { tuning.alloc_factor };
    State {
        count: pageset.count().0,
        high: tuning.high.0,
        factor: factor.into(),
        free_count: (!is_old).then_some(tuning.free_count.0),
        flags: (!is_old).then_some(flags),
    }
}

/// Whether the kernel logs the state of before 6.7.
pub fn is_old(model: &Model) -> bool {
    model.pcp.refill == RefillScale::Fixed
}
