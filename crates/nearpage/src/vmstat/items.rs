//! Items of `/proc/zoneinfo` that this allocator does not have, in the order of the kernel: readers of the
//! text expect the lines, so they are printed with 0.
//!
//! Source: recordings of Debian's 6.1.192 and 6.12.95, and of a 6.18 host. Which of them a kernel prints
//! also depends on how it was built (`nr_unaccepted`, `nr_writeback_temp`, `nr_hugetlb`).

use core::ops::RangeInclusive;

use crate::model::TextLayout::{self, Linux6_1, Linux6_12, Linux6_18};

/// A name, and the first and the last layout that has it.
pub(super) type Item = (&'static str, RangeInclusive<TextLayout>);

const ALWAYS: RangeInclusive<TextLayout> = Linux6_1..=Linux6_18;
const UNTIL_6_12: RangeInclusive<TextLayout> = Linux6_1..=Linux6_12;
const IN_6_12: RangeInclusive<TextLayout> = Linux6_12..=Linux6_12;
const FROM_6_12: RangeInclusive<TextLayout> = Linux6_12..=Linux6_18;
const FROM_6_18: RangeInclusive<TextLayout> = Linux6_18..=Linux6_18;

/// What is counted for a node.
pub(super) const NODE_ITEMS: [Item; 52] = [
    ("nr_inactive_anon", ALWAYS),
    ("nr_active_anon", ALWAYS),
    ("nr_inactive_file", ALWAYS),
    ("nr_active_file", ALWAYS),
    ("nr_unevictable", ALWAYS),
    ("nr_slab_reclaimable", ALWAYS),
    ("nr_slab_unreclaimable", ALWAYS),
    ("nr_isolated_anon", ALWAYS),
    ("nr_isolated_file", ALWAYS),
    ("workingset_nodes", ALWAYS),
    ("workingset_refault_anon", ALWAYS),
    ("workingset_refault_file", ALWAYS),
    ("workingset_activate_anon", ALWAYS),
    ("workingset_activate_file", ALWAYS),
    ("workingset_restore_anon", ALWAYS),
    ("workingset_restore_file", ALWAYS),
    ("workingset_nodereclaim", ALWAYS),
    ("nr_anon_pages", ALWAYS),
    ("nr_mapped", ALWAYS),
    ("nr_file_pages", ALWAYS),
    ("nr_dirty", ALWAYS),
    ("nr_writeback", ALWAYS),
    ("nr_writeback_temp", UNTIL_6_12),
    ("nr_shmem", ALWAYS),
    ("nr_shmem_hugepages", ALWAYS),
    ("nr_shmem_pmdmapped", ALWAYS),
    ("nr_file_hugepages", ALWAYS),
    ("nr_file_pmdmapped", ALWAYS),
    ("nr_anon_transparent_hugepages", ALWAYS),
    ("nr_vmscan_write", ALWAYS),
    ("nr_vmscan_immediate_reclaim", ALWAYS),
    ("nr_dirtied", ALWAYS),
    ("nr_written", ALWAYS),
    ("nr_throttled_written", ALWAYS),
    ("nr_kernel_misc_reclaimable", ALWAYS),
    ("nr_foll_pin_acquired", ALWAYS),
    ("nr_foll_pin_released", ALWAYS),
    ("nr_kernel_stack", ALWAYS),
    ("nr_page_table_pages", ALWAYS),
    ("nr_sec_page_table_pages", ALWAYS),
    ("nr_iommu_pages", FROM_6_12),
    ("nr_swapcached", ALWAYS),
    ("pgpromote_success", ALWAYS),
    ("pgpromote_candidate", ALWAYS),
    ("pgpromote_candidate_nrl", FROM_6_18),
    ("pgdemote_kswapd", FROM_6_12),
    ("pgdemote_direct", FROM_6_12),
    ("pgdemote_khugepaged", FROM_6_12),
    ("pgdemote_proactive", FROM_6_18),
    ("nr_hugetlb", FROM_6_18),
    ("nr_balloon_pages", FROM_6_18),
    ("nr_kernel_file_pages", FROM_6_18),
];

/// What is counted for a zone, between its free pages and its NUMA events.
pub(super) const ZONE_ITEMS: [Item; 11] = [
    ("nr_zone_inactive_anon", ALWAYS),
    ("nr_zone_active_anon", ALWAYS),
    ("nr_zone_inactive_file", ALWAYS),
    ("nr_zone_active_file", ALWAYS),
    ("nr_zone_unevictable", ALWAYS),
    ("nr_zone_write_pending", ALWAYS),
    ("nr_mlock", ALWAYS),
    ("nr_bounce", UNTIL_6_12),
    ("nr_zspages", ALWAYS),
    ("nr_free_cma", ALWAYS),
    ("nr_unaccepted", IN_6_12),
];
