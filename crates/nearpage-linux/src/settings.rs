//! Settings that a process has no use for.

use nearpage::Settings;

/// The settings in force of those asked for: see [`MemoryBuilder::settings`](crate::MemoryBuilder::settings).
pub(crate) fn for_a_process(settings: Settings) -> Settings {
    settings.with(|changed| changed.transparent_hugepage = false)
}
