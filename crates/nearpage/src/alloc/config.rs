//! What an allocator is made with.

use crate::model::Model;
use crate::watermark::Settings;

/// What an allocator is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The rules.
    pub model: Model,
    /// Sizes of watermarks and pagesets.
    pub settings: Settings,
    /// Log2 of the page size in bytes, where [`Platform::PAGE_SHIFT`](crate::host::Platform::PAGE_SHIFT) does not say it.
    pub page_shift: u32,
    /// Whether a slab allocator may be made on it: it keeps notes beside its pages, 8 bytes each.
    pub notes: bool,
}

impl Config {
    /// nearpage's own rules for pages of 4 KiB, with the settings that Linux starts with, but without transparent huge
    /// pages.
    pub fn new() -> Self {
        let settings = Settings { transparent_hugepage: false, ..Settings::default() };
        Self { model: Model::NEARPAGE, settings, page_shift: 12, notes: true }
    }

    /// The same with the rules of `model`.
    #[must_use]
    pub fn with_model(self, model: Model) -> Self {
        Self { model, ..self }
    }

    /// The same with `settings`, of which the model decides
    /// [`movable_min`](Settings::movable_min).
    #[must_use]
    pub fn with_settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// The same for pages of `1 << page_shift` bytes.
    #[must_use]
    pub fn with_page_shift(self, page_shift: u32) -> Self {
        Self { page_shift, ..self }
    }

    /// The same for pages alone, on which no slab allocator can be made: under nearpage's own rules a frame then has 4 bytes
    /// of metadata instead of 12, where pagesets are rings.
    #[must_use]
    pub fn without_notes(self) -> Self {
        Self { notes: false, ..self }
    }
}

impl Default for Config {
    /// As [`new`](Self::new).
    fn default() -> Self {
        Self::new()
    }
}
