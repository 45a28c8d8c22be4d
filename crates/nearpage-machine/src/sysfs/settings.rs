//! The settings of the kernel that decide its watermarks and pagesets.

use super::error::SysfsError;
use super::source::{Source, TextFile, unless_hidden};
use crate::machine::KernelSettings;

/// Reads the settings; those that are missing or hidden are `None`.
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
