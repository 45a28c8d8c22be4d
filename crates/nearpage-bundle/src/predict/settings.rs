//! The settings of a prediction: the recorded ones.

use nearpage::{Model, Settings, ZoneKind};

use nearpage_machine::plan::settings_of;

use crate::RecordedMachine;

/// The settings of a capture; Linux's defaults where they are unknown.
pub(super) fn recorded(machine: &RecordedMachine, kinds: &[ZoneKind], model: Model) -> Settings {
    let mut settings = settings_of(&machine.machine.settings, model);
    // A kernel that is built without a kind of zone lacks its ratio.
    if let Some(ratios) = &machine.machine.settings.lowmem_reserve_ratio
        && ratios.len() == kinds.len()
    {
        for (kind, &ratio) in kinds.iter().zip(ratios) {
            settings.lowmem_reserve_ratio[kind.index()] = ratio;
        }
    }
    settings
}
