//! A prediction: the recorded sizes and settings in, a plan out.

use nearpage::rules::watermarks::HugePages;
use nearpage::{CpuId, NodeId, PageCount, Pfn, Settings, ZoneKind};
use nearpage_machine::plan::{Extent, NodeSizes, Sizes, huge_pages};
use nearpage_machine::sysfs::zoneinfo::ZoneRecord;
use nearpage_machine::tunable::Override;
use nearpage_machine::{Lists, Plan};

use super::error::PredictError;
use super::kernel::{KernelModel, ModelChoice};
use super::settings::recorded;
use crate::{Capture, KernelLog, RecordedMachine, RecordedNode, Recording, RecordingKind};

/// The values that a kernel prints of a recorded machine.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The recording's kernel.
    pub kernel: String,
    /// The capture whose settings hold.
    pub capture: String,
    /// The rules.
    pub model: KernelModel,
    /// `vm.min_free_kbytes` if it was written, or the value that boot computes.
    pub min_free_kbytes: u64,
    /// Zones, watermarks, pagesets and zonelists.
    pub plan: Plan,
    /// The input of the plan.
    pub sizes: Sizes,
    /// The kinds of zones that the kernel is built with.
    pub kinds: Vec<ZoneKind>,
    /// What `numa_mem_id()` answers, by CPU.
    pub numa_mem_ids: Vec<(CpuId, NodeId)>,
}

/// The choices of a user about a prediction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wishes {
    /// The rules.
    pub model: ModelChoice,
    /// Settings that replace the recorded ones.
    pub settings: Vec<Override>,
}

impl Wishes {
    fn min_free_kbytes(&self) -> Option<u64> {
        let kbytes = |wish: &Override| match wish {
            Override::MinFreeKbytes(kbytes) => Some(*kbytes),
            _ => None,
        };
        self.settings.iter().rev().find_map(kbytes)
    }
}

/// `min_free_kbytes` of a capture, if it was written. If the recording does not say so, a value that differs from the
/// first capture's was written.
pub(super) fn written_min_free(
    recording: &Recording,
    capture: &Capture,
    machine: &RecordedMachine,
) -> Option<u64> {
    if let Some(is_written) = capture.min_free_written {
        return machine.machine.settings.min_free_kbytes.filter(|_| is_written);
    }
    let first = recording.captures.first().filter(|first| first.name != capture.name)?;
    let at_first = first.min_free_kbytes()?;
    machine.machine.settings.min_free_kbytes.filter(|&kbytes| kbytes != at_first)
}

impl Prediction {
    /// Predicts a capture.
    ///
    /// # Errors
    ///
    /// The machine is impossible, or has settings that no Linux accepts.
    pub fn new(
        recording: &Recording,
        capture: &Capture,
        machine: &RecordedMachine,
        wishes: &Wishes,
    ) -> Result<Prediction, PredictError> {
        let model = wishes.model.for_kernel(&recording.kernel);
        let input = || format!("{}: capture {}", recording.source, capture.name);
        let kinds = kinds(machine);
        let mut settings = recorded(machine, &kinds, model.model);
        for wish in &wishes.settings {
            wish.apply(&mut settings);
        }
        settings.check().map_err(|error| PredictError::Setting { input: input(), error })?;
        let sizes = sizes(recording, machine, settings);
        let plan = Plan::of(&sizes, model.model, Lists::Boot)
            .map_err(|error| PredictError::Topology { input: input(), error })?;
        let answer = |index: usize| plan.numa_mem_id(&plan.nodes[index]);
        let of_node = |(index, node): (usize, &RecordedNode)| {
            let node_answer = answer(index);
            node.own_cpus.iter().map(move |&cpu| (cpu, node_answer)).collect::<Vec<_>>()
        };
        let mut numa_mem_ids: Vec<_> = machine.nodes.iter().enumerate().flat_map(of_node).collect();
        numa_mem_ids.sort_unstable();
        let written = wishes.min_free_kbytes().or(written_min_free(recording, capture, machine));
        let min_free_kbytes = written.unwrap_or(plan.boot_min_free.kbytes);
        let (kernel, capture) = (recording.kernel.clone(), capture.name.clone());
        Ok(Prediction { kernel, capture, model, min_free_kbytes, plan, sizes, kinds, numa_mem_ids })
    }

    /// The plan with zonelists as after a rebuild at run time.
    pub fn rebuilt(&self) -> Plan {
        Plan::of(&self.sizes, self.plan.model, Lists::Rebuilt).expect("it was valid before")
    }

    /// The plan at the end of boot, before boot freed its own memory.
    pub fn at_boot(&self) -> Plan {
        let sizes = self.sizes.at_boot();
        Plan::of(&sizes, self.plan.model, self.plan.lists).expect("it was valid before")
    }
}

/// The kinds of zones that the kernel is built with: all, unless `lowmem_reserve_ratio` has fewer entries.
fn kinds(machine: &RecordedMachine) -> Vec<ZoneKind> {
    let count =
        machine.machine.settings.lowmem_reserve_ratio.as_ref().map_or(ZoneKind::COUNT, Vec::len);
    let listed = |kind: &ZoneKind| machine.zones.iter().any(|zone| zone.kind == Some(*kind));
    let listed: Vec<ZoneKind> = ZoneKind::ALL.into_iter().filter(listed).collect();
    if listed.len() == count { listed } else { ZoneKind::ALL.to_vec() }
}

fn sizes(recording: &Recording, machine: &RecordedMachine, settings: Settings) -> Sizes {
    // Oracles and bundles have a known page size; a root may come from any processor.
    let page_bytes = match recording.kind {
        RecordingKind::Root => machine.machine.page_bytes,
        _ => recording.page_bytes.filter(|bytes| bytes.is_power_of_two()).unwrap_or(4096),
    };
    let node = |node: &RecordedNode| NodeSizes {
        id: node.id,
        cpus: node.listed_cpus.clone(),
        zones: extents(machine, node.id),
    };
    let mut nodes: Vec<NodeSizes> = machine.nodes.iter().map(node).collect();
    spread_late_memory(&mut nodes, &recording.log, machine.kernel_code_pfn);
    let pages: u64 =
        nodes.iter().flat_map(|node| &node.zones).map(|z| z.managed.0 - z.late.0).sum();
    let page_shift = page_bytes.trailing_zeros();
    let huge_pages =
        huge_pages(machine.machine.settings.transparent_hugepages, pages << page_shift);
    Sizes {
        nodes,
        distances: machine.machine.distances.clone(),
        cpus: machine.cpus.clone(),
        settings: settings
            .with(|changed| changed.transparent_hugepage = huge_pages == HugePages::Enabled),
        huge_pages,
        has_reclaimed: machine.has_reclaimed,
        page_shift,
    }
}

fn extents(machine: &RecordedMachine, node: NodeId) -> Vec<Extent> {
    let pages = |value: Option<u64>| PageCount(value.unwrap_or(0));
    let extent = |kind| {
        let is_it = |zone: &&ZoneRecord| zone.node == node && zone.kind == Some(kind);
        let Some(zone) = machine.zones.iter().find(is_it) else { return Extent::empty(kind) };
        Extent {
            kind,
            start: Pfn(zone.start_pfn.unwrap_or(0)),
            spanned: pages(zone.spanned),
            present: pages(zone.present),
            managed: pages(zone.managed),
            late: PageCount(0),
            boost: pages(zone.boost),
        }
    };
    ZoneKind::ALL.map(extent).to_vec()
}

/// Notes at each zone how much of its memory boot freed late, as far as the log has it. The kernel's image lies at
/// `kernel_pfn`, or else at 16 MiB.
fn spread_late_memory(nodes: &mut [NodeSizes], log: &KernelLog, kernel_pfn: Option<u64>) {
    const KERNEL_PFN: u64 = (16 << 20) / 4096;
    for late in &log.late {
        let pfn = Pfn(late.pfn.or(kernel_pfn).unwrap_or(KERNEL_PFN));
        let holds = |zone: &Extent| {
            zone.start <= pfn && pfn.0 - zone.start.0 < zone.spanned.0 && zone.managed.0 > 0
        };
        let zones = nodes.iter_mut().flat_map(|node| &mut node.zones);
        // The spans of interleaved nodes overlap: the smaller one is more likely.
        let zone = zones.filter(|zone| holds(zone)).min_by_key(|zone| zone.spanned);
        if let Some(zone) = zone {
            zone.late = PageCount((zone.late.0 + late.pages).min(zone.managed.0));
        }
    }
}
