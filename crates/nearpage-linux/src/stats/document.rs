//! A memory as a JSON document: what no text of the kernel has room for.

use std::collections::BTreeMap;

use nearpage::{LimitOf, Limits, NodeId, Reason};
use serde::Serialize;

use crate::bind::BindMode;
use crate::memory::Memory;

/// Raised when a field gets another meaning; new fields do not raise it.
const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document {
    schema: u32,
    version: &'static str,
    pid: u32,
    program: Option<String>,
    storage: String,
    binding: &'static str,
    warnings: Vec<String>,
    misuses: u64,
    pressure_panics: u64,
    settings: Settings,
    limits: OfLimits,
    in_use_pages: u64,
    nodes: Vec<OfNode>,
}

#[derive(Serialize)]
struct Settings {
    min_free_kbytes: u64,
    watermark_scale_factor: u32,
    watermark_boost_factor: u32,
    lowmem_reserve_ratio: Vec<u32>,
    percpu_pagelist_high_fraction: u32,
    pageset_budget_kbytes: Option<u64>,
    node_reclaim_mode: u32,
    memory_tiering: bool,
}

#[derive(Serialize)]
struct OfLimits {
    hard_bytes: Option<u64>,
    soft_bytes: Option<u64>,
}

impl From<Limits> for OfLimits {
    fn from(limits: Limits) -> OfLimits {
        OfLimits { hard_bytes: limits.hard_bytes, soft_bytes: limits.soft_bytes }
    }
}

#[derive(Serialize)]
struct OfNode {
    node: u32,
    cpus: Vec<u32>,
    managed_pages: u64,
    free_pages: u64,
    in_use_pages: u64,
    reserve_left_bytes: u64,
    min_pages: u64,
    low_pages: u64,
    high_pages: u64,
    promo_pages: u64,
    limits: OfLimits,
    /// Pages that were wanted here and came from elsewhere.
    fallbacks: Vec<OfFallback>,
}

#[derive(Serialize)]
struct OfFallback {
    to: u32,
    pages_by_reason: BTreeMap<&'static str, u64>,
}

/// The document, with a newline at its end. Figures are of slightly different moments while other threads allocate.
pub(super) fn of(memory: &Memory) -> String {
    let settings = memory.settings();
    let binding = BindMode::NAMES.iter().find(|(_, mode)| *mode == memory.binding().effective);
    let program = std::fs::read_to_string("/proc/self/comm").ok();
    let document = Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        program: program.map(|name| name.trim_end().to_owned()),
        storage: memory.storage().to_string(),
        binding: binding.map_or("unknown", |(name, _)| name),
        warnings: memory.warnings().iter().map(ToString::to_string).collect(),
        misuses: memory.misuses(),
        pressure_panics: memory.pressure_panics(),
        settings: Settings {
            min_free_kbytes: memory.min_free_kbytes(),
            watermark_scale_factor: settings.watermark_scale_factor,
            watermark_boost_factor: settings.watermark_boost_factor,
            lowmem_reserve_ratio: settings.lowmem_reserve_ratio.to_vec(),
            percpu_pagelist_high_fraction: settings.percpu_pagelist_high_fraction,
            pageset_budget_kbytes: settings.pageset_budget_kbytes,
            node_reclaim_mode: settings.node_reclaim_mode,
            memory_tiering: settings.memory_tiering,
        },
        limits: memory.limits(LimitOf::Allocator).unwrap_or_default().into(),
        in_use_pages: memory.in_use(LimitOf::Allocator).unwrap_or_default().0,
        nodes: memory.topology().nodes().iter().map(|node| of_node(memory, node.id)).collect(),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("all keys are strings");
    text.push('\n');
    text
}

fn of_node(memory: &Memory, id: NodeId) -> OfNode {
    let nodes = memory.topology().nodes();
    let cpus = nodes.iter().find(|node| node.id == id).map_or(&[][..], |node| node.cpus);
    let marks = memory.watermarks(id);
    let fallbacks = nodes.iter().filter_map(|to| {
        let counts = memory.fallbacks(id, to.id).filter(|counts| counts.total().0 > 0)?;
        let reasons = Reason::ALL.iter().map(|reason| (reason.name(), counts.pages(*reason).0));
        let pages_by_reason = reasons.filter(|(_, pages)| *pages > 0).collect();
        Some(OfFallback { to: to.id.0, pages_by_reason })
    });
    OfNode {
        node: id.0,
        cpus: cpus.iter().map(|cpu| cpu.0).collect(),
        managed_pages: memory.managed_pages(id).0,
        free_pages: memory.free_pages(id).0,
        in_use_pages: memory.in_use(LimitOf::Node(id)).unwrap_or_default().0,
        reserve_left_bytes: memory.reserve_left(id),
        min_pages: marks.min.0,
        low_pages: marks.low.0,
        high_pages: marks.high.0,
        promo_pages: marks.promo.0,
        limits: memory.limits(LimitOf::Node(id)).unwrap_or_default().into(),
        fallbacks: fallbacks.collect(),
    }
}
