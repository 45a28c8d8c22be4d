//! What a user can set, with the defaults and the limits of Linux.

use core::fmt;

use crate::units::{PageCount, ZoneKind};

/// The sysctls (`vm.*`) that size watermarks and pagesets, and the two choices that go with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// KiB that the zones together keep free at `min`; `None` derives it from the size of memory.
    pub min_free_kbytes: Option<u64>,
    /// Distance between two marks in 1/10000 of a zone's pages, 1 to 3000.
    pub watermark_scale_factor: u32,
    /// Highest boost in 1/10000 of the high mark; 0 turns boosts off.
    pub watermark_boost_factor: u32,
    /// For each zone kind, what fraction of the higher zones' pages it keeps from requests that could
    /// have used those: 1/ratio; 0 protects nothing.
    pub lowmem_reserve_ratio: [u32; ZoneKind::COUNT],
    /// Fixes the size of pagesets at 1/fraction of the zone, 8 or more; 0 lets them tune themselves.
    pub percpu_pagelist_high_fraction: u32,
    /// Most KiB that all pagesets together keep; `None`: what the sizes of the zones allow. Each pageset gets
    /// its part of it; beyond its part a list may hold one block.
    pub pageset_budget_kbytes: Option<u64>,
    /// Whether huge pages are in use, so that a derived `min_free_kbytes` leaves room for whole
    /// pageblocks.
    pub transparent_hugepage: bool,
    /// How Movable zones get their `min`.
    pub movable_min: MovableMin,
    /// If not 0, memory of a near node is reclaimed before a further node is asked. The bits of `vm.zone_reclaim_mode`:
    /// 1 on, 2 may write, 4 may unmap; what they allow is the host's business.
    pub node_reclaim_mode: u32,
    /// Background reclaim works up to the promo mark, to make room for pages that are promoted from slower
    /// memory (`kernel.numa_balancing` 2).
    pub memory_tiering: bool,
}

/// How Movable zones get their `min` mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MovableMin {
    /// As any other zone: Linux 6.1.
    Proportional,
    /// 1/1024 of the zone, 32 to 128 pages, and other zones share all of `min_free_kbytes`:
    /// Linux 6.12.
    Small,
}

impl Default for Settings {
    /// What Linux 6.12 starts with.
    fn default() -> Self {
        Self {
            min_free_kbytes: None,
            watermark_scale_factor: 10,
            watermark_boost_factor: 15_000,
            lowmem_reserve_ratio: [256, 256, 32, 0, 0],
            percpu_pagelist_high_fraction: 0,
            pageset_budget_kbytes: None,
            transparent_hugepage: true,
            movable_min: MovableMin::Small,
            node_reclaim_mode: 0,
            memory_tiering: false,
        }
    }
}

impl Settings {
    /// The same after a change: `Settings::default().with(|settings| settings.min_free_kbytes = Some(8192))`.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// [`pageset_budget_kbytes`](Self::pageset_budget_kbytes) in pages of `1 << page_shift` bytes.
    pub fn pageset_budget(&self, page_shift: u32) -> Option<PageCount> {
        let page_bytes = PageCount(1).to_bytes(page_shift);
        Some(PageCount(self.pageset_budget_kbytes?.saturating_mul(1024) / page_bytes))
    }

    /// Checks the values that Linux refuses to take. The formulas are total: they accept any value.
    ///
    /// # Errors
    ///
    /// The first setting out of range.
    pub fn check(&self) -> Result<(), SettingError> {
        let refuse = |name, value, accepted| Err(SettingError { name, value, accepted });
        if let Some(kbytes) = self.min_free_kbytes.filter(|&kbytes| kbytes > i32::MAX as u64) {
            return refuse("min_free_kbytes", kbytes, "0 to 2147483647");
        }
        if !(1..=3000).contains(&self.watermark_scale_factor) {
            let factor = self.watermark_scale_factor.into();
            return refuse("watermark_scale_factor", factor, "1 to 3000");
        }
        if (1..8).contains(&self.percpu_pagelist_high_fraction) {
            let fraction = self.percpu_pagelist_high_fraction.into();
            return refuse("percpu_pagelist_high_fraction", fraction, "0, or 8 and more");
        }
        if self.node_reclaim_mode > 7 {
            return refuse("zone_reclaim_mode", self.node_reclaim_mode.into(), "0 to 7");
        }
        Ok(())
    }
}

/// A setting out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettingError {
    /// Name of the sysctl, without `vm.`.
    pub name: &'static str,
    /// The value given.
    pub value: u64,
    /// What would be accepted, in words.
    pub accepted: &'static str,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}; accepted: {}", self.name, self.value, self.accepted)
    }
}

impl core::error::Error for SettingError {}

#[cfg(test)]
mod tests {
    use std_alloc::string::ToString;

    use super::*;

    #[test]
    fn settings_out_of_range_are_refused() {
        assert_eq!(Settings::default().check(), Ok(()));
        let scale = Settings { watermark_scale_factor: 3001, ..Settings::default() };
        assert_eq!(
            scale.check().unwrap_err().to_string(),
            "watermark_scale_factor is 3001; accepted: 1 to 3000"
        );
        let kbytes = Settings { min_free_kbytes: Some(1 << 31), ..Settings::default() };
        assert_eq!(
            kbytes.check().unwrap_err().to_string(),
            "min_free_kbytes is 2147483648; accepted: 0 to 2147483647"
        );
        let fraction = Settings { percpu_pagelist_high_fraction: 7, ..Settings::default() };
        assert_eq!(
            fraction.check().unwrap_err().to_string(),
            "percpu_pagelist_high_fraction is 7; accepted: 0, or 8 and more"
        );
        let mode = Settings { node_reclaim_mode: 8, ..Settings::default() };
        assert_eq!(
            mode.check().unwrap_err().to_string(),
            "zone_reclaim_mode is 8; accepted: 0 to 7"
        );
    }
}
