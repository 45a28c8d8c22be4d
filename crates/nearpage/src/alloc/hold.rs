//! Holding settings still from outside: for hosts whose memory can be copied while threads run (`fork`).

use super::allocator::PageAllocator;
use super::state::State;
use crate::platform::{Lock, Platform};

/// The lock under which settings, zonelists and what is online change. It does not belong to the value of the
/// allocator, which may move, but to its memory.
pub struct SettingsLock<'m, P: Platform>(&'m P::Lock<State<'m>>);

impl<'m, P: Platform> SettingsLock<'m, P> {
    /// Keeps all of that as it is until the answer is dropped. To be taken before a CPU is stopped and before
    /// the lock of a zone.
    pub fn hold(&self) -> impl Sized + use<'m, P> {
        self.0.lock()
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// The lock of the settings.
    pub fn settings_lock(&self) -> SettingsLock<'m, P> {
        SettingsLock(self.state)
    }
}
