//! What an allocator is made with.

use crate::model::Model;
use crate::watermark::Settings;

/// What an allocator is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The rules.
    pub model: Model,
    /// Sizes of watermarks and pagesets.
    pub settings: Settings,
    /// Log2 of the page size in bytes, where [`Platform::PAGE_SHIFT`](crate::host::Platform::PAGE_SHIFT) does not say it.
    pub page_shift: u32,
}

impl Default for Config {
    /// nearpage's own rules for pages of 4 KiB.
    fn default() -> Self {
        let settings = Settings { transparent_hugepage: false, ..Settings::default() };
        Self { model: Model::NEARPAGE, settings, page_shift: 12 }
    }
}
