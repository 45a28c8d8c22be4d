//! The keys of a memory hog.

use nearpage::NodeId;
use nearpage_machine::size;
use nearpage_sim::Machine;
use serde::Deserialize;
use toml::Spanned;

use super::figures::{at_least_one, bytes_of, threads_of};
use super::reference::Reference;
use super::wrong::{Checked, wrong};

/// Memory hog: each amount of memory with each number of threads.
#[derive(Clone, Debug)]
pub struct HogWorkload {
    /// Memory of the machine and of the workload is divided by this.
    pub scale: u64,
    /// Amounts, bytes.
    pub memory: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Writes to a page, the first included.
    pub stores_per_page: u64,
    /// The cells that calibrate, if any: memory in bytes and threads.
    pub calibrate: Option<HogCalibration>,
    /// The node whose memory comes only after the threads have run once.
    pub hot_add: Option<NodeId>,
}

/// The cells of a memory hog's table that calibrate the model.
#[derive(Clone, Copy, Debug)]
pub struct HogCalibration {
    /// Sets the factor between the model's seconds and the table's.
    pub scale: (u64, usize),
    /// Sets [`nearpage_sim::Costs::load_slowdown`].
    pub load_slowdown: (u64, usize),
}

/// Writes to a page: more than a page has bytes say nothing.
const MOST_STORES: u64 = 65_536;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HogTable {
    scale: Spanned<u64>,
    memory: Spanned<Vec<Spanned<String>>>,
    threads: Spanned<Vec<Spanned<usize>>>,
    stores_per_page: Spanned<u64>,
    hot_add: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CalibrateTable {
    scale: CellTable,
    load_slowdown: CellTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellTable {
    memory: Spanned<String>,
    threads: Spanned<usize>,
}

impl HogTable {
    pub(super) fn check(self, machine: &Machine) -> Checked<HogWorkload> {
        let scale = at_least_one("scale", &self.scale)?;
        let stores_per_page = *self.stores_per_page.get_ref();
        if !(1..=MOST_STORES).contains(&stores_per_page) {
            let message =
                format!("stores_per_page is {stores_per_page}; accepted: 1 to {MOST_STORES}");
            return wrong(self.stores_per_page.span(), message);
        }
        for (key, span, is_empty) in [
            ("memory", self.memory.span(), self.memory.get_ref().is_empty()),
            ("threads", self.threads.span(), self.threads.get_ref().is_empty()),
        ] {
            if is_empty {
                return wrong(span, format!("{key} is empty; accepted: one or more"));
            }
        }
        let cpus = machine.cpus().count();
        let least = scale.saturating_mul(machine.page_bytes());
        let memory = self.memory.get_ref().iter().map(|text| {
            let bytes = bytes_of("memory", text)?;
            if bytes >= least {
                return Ok(bytes);
            }
            let (text, least) = (text.get_ref(), size::format(least));
            let message = format!(
                "memory is {text:?}; accepted: at least {least}, a page after division by scale"
            );
            wrong(self.memory.span(), message)
        });
        let threads = self.threads.get_ref().iter().map(|threads| threads_of(threads, cpus));
        let comes_later = |id: &Spanned<u32>| {
            let node = NodeId(*id.get_ref());
            let with_memory = machine.nodes.iter().filter(|node| node.bytes > 0);
            match with_memory.map(|node| node.id).collect::<Vec<_>>() {
                ids if ids.contains(&node) && ids.len() > 1 => Ok(node),
                ids => wrong(
                    id.span(),
                    format!(
                        "hot_add is {node:?}; accepted: one of two or more nodes with memory: {ids:?}"
                    ),
                ),
            }
        };
        Ok(HogWorkload {
            scale,
            memory: memory.collect::<Checked<_>>()?,
            threads: threads.collect::<Checked<_>>()?,
            stores_per_page,
            calibrate: None,
            hot_add: self.hot_add.as_ref().map(comes_later).transpose()?,
        })
    }
}

impl HogWorkload {
    /// The machine with the memory that is simulated.
    pub(crate) fn scaled(&self, machine: &Machine) -> Machine {
        let mut machine = machine.clone();
        machine.nodes.iter_mut().for_each(|node| node.bytes /= self.scale);
        machine
    }
}

impl CalibrateTable {
    /// Cells of a memory hog's reference.
    pub(super) fn check(
        &self,
        reference: &Reference,
        machine: &Machine,
    ) -> Checked<HogCalibration> {
        let cell = |cell: &CellTable| {
            let cpus = machine.cpus().count();
            let (bytes, threads) =
                (bytes_of("memory", &cell.memory)?, threads_of(&cell.threads, cpus)?);
            let is_it = |row: &Vec<f64>| row[0] == (bytes >> 30) as f64 && row[1] == threads as f64;
            if reference.column("sys_before").is_none() || !reference.rows.iter().any(is_it) {
                let message = "calibrate: the reference has no sys_before for that";
                return wrong(cell.memory.span(), message);
            }
            Ok((bytes, threads))
        };
        Ok(HogCalibration { scale: cell(&self.scale)?, load_slowdown: cell(&self.load_slowdown)? })
    }
}
