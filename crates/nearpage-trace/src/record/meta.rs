//! `meta.json`: its fields in the order in which it has them.

use std::collections::BTreeMap;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::count::TraceSize;
use super::rings::BufferStats;
use super::{redact, system};

/// What is known of a recording.
#[derive(Serialize)]
pub(super) struct Meta {
    pub format: &'static str,
    pub name: String,
    pub note: &'static str,
    /// 1 if what names somebody was left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub redacted: u32,
    #[serde(flatten)]
    pub machine: Machine,
    pub command: Vec<String>,
    /// Of a process that ran already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    pub exit_status: i32,
    #[serde(flatten)]
    pub times: Times,
    pub sample_every_s: f64,
    pub tail_s: u64,
    /// 1 if the trace was read while it was made.
    pub streamed: u32,
    pub raw_pointers: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub recorder_pid: u32,
    pub snapshots: [&'static str; 3],
    pub buffer_kb_per_cpu: u64,
    pub events_enabled: Vec<String>,
    pub per_cpu: BTreeMap<u32, BufferStats>,
    pub lost_events: u64,
    #[serde(flatten)]
    pub trace: TraceSize,
}

impl Meta {
    /// Leaves out what names somebody.
    pub(super) fn redact(&mut self) {
        let kernel = redact::release(&self.machine.kernel);
        self.name = "redacted".into();
        self.redacted = 1;
        self.machine.version = format!("Linux version {kernel}");
        self.machine.kernel = kernel;
        self.command = Vec::new();
        (self.pid, self.recorder_pid) = (None, 0);
        (self.times.start_epoch, self.times.end_epoch) = (0, 0);
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_unknown(epoch: &u64) -> bool {
    *epoch == 0
}

/// What stays the same while it is recorded.
#[derive(Serialize)]
pub(super) struct Machine {
    pub kernel: String,
    pub version: String,
    pub arch: &'static str,
    pub page_size: u64,
    /// Of the trace.
    pub clock: &'static str,
    pub cpus: u64,
    pub cpus_online: String,
    pub nodes_online: String,
    pub nodes_with_memory: String,
    pub mem_total_kb: u64,
}

/// When tracing began and ended.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Times {
    #[serde(skip_serializing_if = "is_unknown")]
    pub start_epoch: u64,
    #[serde(skip_serializing_if = "is_unknown")]
    pub end_epoch: u64,
    pub start_uptime: f64,
    pub end_uptime: f64,
}

impl Machine {
    /// Reads it; what a kernel lacks is that of a machine with one node.
    pub(super) fn read() -> Machine {
        let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let cpus_online = line("/sys/devices/system/cpu/online").unwrap_or_else(|| "0".into());
        let nodes = |name: &str| line(&format!("/sys/devices/system/node/{name}"));
        Machine {
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            version: line("/proc/version").unwrap_or_default(),
            arch: std::env::consts::ARCH,
            page_size: system::page_bytes(),
            clock: "mono",
            cpus: nearpage_machine::idlist::parse(&cpus_online).map_or(1, |cpus| cpus.len() as u64),
            cpus_online,
            nodes_online: nodes("online").unwrap_or_else(|| "0".into()),
            nodes_with_memory: nodes("has_memory").unwrap_or_else(|| "0".into()),
            mem_total_kb: memory_kb(&fs::read_to_string("/proc/meminfo").unwrap_or_default()),
        }
    }
}

fn memory_kb(meminfo: &str) -> u64 {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    total.and_then(|total| total.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

impl Times {
    /// Begins and ends now.
    pub(super) fn now() -> Times {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let uptime = uptime_s();
        Times { start_epoch: epoch, end_epoch: epoch, start_uptime: uptime, end_uptime: uptime }
    }

    /// Ends now.
    pub(super) fn until_now(self) -> Times {
        let Times { end_epoch, end_uptime, .. } = Times::now();
        Times { end_epoch, end_uptime, ..self }
    }
}

/// Seconds since boot, with two decimals.
pub(super) fn uptime_s() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split_whitespace().next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0.0)
}
