//! What is to be different in a what-if.

use nearpage::Model;
use nearpage::rules::CacheRule;
use nearpage_machine::MachineDescription;

use crate::cpus::CpuRule;
use nearpage_machine::tunable::Tunable;

/// What is to be different.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Whose rules; `None` for those of the recorded kernel.
    pub model: Option<Model>,
    /// Tunables, later ones over earlier ones.
    pub tunables: Vec<Tunable>,
    /// Whether scans of zonelists remember full zones.
    pub zonelist_cache: Option<CacheRule>,
    /// Another machine, all of whose memory is free.
    pub machine: Option<MachineDescription>,
    /// Which of its CPUs plays a recorded one.
    pub cpus: CpuRule,
    /// How many copies of the trace run at once on the other machine; 0 is taken for 1.
    pub repeat: u32,
}

impl Wish {
    /// Whether anything is to be different.
    pub fn is_empty(&self) -> bool {
        self.model.is_none()
            && self.tunables.is_empty()
            && self.zonelist_cache.is_none()
            && self.machine.is_none()
            && self.repeat <= 1
    }

    /// The same without other rules and settings.
    pub(crate) fn machine_alone(&self) -> Wish {
        let Wish { machine, cpus, repeat, .. } = self;
        Wish { machine: machine.clone(), cpus: *cpus, repeat: *repeat, ..Wish::default() }
    }

    /// Whether rules and settings are those of the recorded kernel.
    pub(crate) fn is_of_machine_alone(&self) -> bool {
        self.model.is_none() && self.tunables.is_empty() && self.zonelist_cache.is_none()
    }
}
