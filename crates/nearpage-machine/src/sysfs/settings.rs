//! The kernel's own settings that its watermarks and pagesets follow from.

use super::error::SysfsError;
use super::source::{Source, TextFile, unless_hidden};

/// Settings of the kernel; `None` where the machine does not tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelSettings {
    /// `vm.min_free_kbytes`.
    pub min_free_kbytes: Option<u64>,
    /// `vm.watermark_scale_factor`, in fractions of 10 000.
    pub watermark_scale_factor: Option<u32>,
    /// `vm.lowmem_reserve_ratio`, one entry a kind of zone that the kernel is built with.
    pub lowmem_reserve_ratio: Option<Vec<u32>>,
    /// `vm.percpu_pagelist_high_fraction`; 0 leaves the pagesets to tune themselves.
    pub percpu_pagelist_high_fraction: Option<u32>,
    /// Whether transparent huge pages are `always` or `madvise`, which raises `min_free_kbytes`.
    pub transparent_hugepages: Option<bool>,
}

/// Reads what the machine tells of its settings.
pub(super) fn read(source: &Source<'_>) -> Result<KernelSettings, SysfsError> {
    let vm = |name: &str| source.read_if_allowed(&format!("proc/sys/vm/{name}")).map(unless_hidden);
    let hugepages = source.read_if_allowed("sys/kernel/mm/transparent_hugepage/enabled")?;
    let ratios = vm("lowmem_reserve_ratio")?;
    Ok(KernelSettings {
        min_free_kbytes: number(vm("min_free_kbytes")?)?,
        watermark_scale_factor: number(vm("watermark_scale_factor")?)?,
        lowmem_reserve_ratio: ratios.map(|file| file.numbers("ratios")).transpose()?,
        percpu_pagelist_high_fraction: number(vm("percpu_pagelist_high_fraction")?)?,
        transparent_hugepages: hugepages.map(|file| !file.text.contains("[never]")),
    })
}

fn number<T: std::str::FromStr>(file: Option<TextFile>) -> Result<Option<T>, SysfsError> {
    file.map(|file| file.number("a number")).transpose()
}
