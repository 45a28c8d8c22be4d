//! Last-level caches and the CPUs that share them.

use nearpage::CpuId;

use super::error::SysfsError;
use super::source::Source;
use crate::machine::LastLevelCache;

/// The last-level caches of some CPUs; none for CPUs whose caches are unknown.
pub(super) fn read(source: &Source<'_>, cpus: &[CpuId]) -> Result<Vec<LastLevelCache>, SysfsError> {
    let mut caches: Vec<LastLevelCache> = Vec::new();
    let mut remaining: std::collections::BTreeSet<CpuId> = cpus.iter().copied().collect();
    while let Some(cpu) = remaining.pop_first() {
        if let Some((bytes, sharers)) = last_level(source, cpu)? {
            let mut cpus = vec![cpu];
            cpus.extend(sharers.into_iter().map(CpuId).filter(|sharer| remaining.remove(sharer)));
            caches.push(LastLevelCache { bytes, cpus });
        }
    }
    Ok(caches)
}

/// Size and sharers of a CPU's cache of the highest level; `None` if it holds instructions only.
/// `drivers/base/cacheinfo.c`: the last leaf counts.
fn last_level(source: &Source<'_>, cpu: CpuId) -> Result<Option<(u64, Vec<u32>)>, SysfsError> {
    let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache");
    let Some(last) = source.numbered(&folder, "index")?.pop() else { return Ok(None) };
    let leaf = |name: &str| source.read_if_allowed(&format!("{folder}/index{last}/{name}"));
    let holds_data = leaf("type")?.is_some_and(|kind| kind.text.trim() != "Instruction");
    let (Some(size), true) = (leaf("size")?, holds_data) else { return Ok(None) };
    let kilobytes = size.text.trim().strip_suffix('K').and_then(|count| count.parse::<u64>().ok());
    let Some(bytes) = kilobytes.and_then(|count| count.checked_mul(1024)) else {
        return Err(size.syntax(1, 1, size.text.trim(), "a size such as 32768K"));
    };
    let sharers = match leaf("shared_cpu_list")? {
        Some(list) => list.ids()?,
        None => leaf("shared_cpu_map")?.map(|map| map.mask()).transpose()?.unwrap_or_default(),
    };
    Ok(Some((bytes, sharers)))
}
