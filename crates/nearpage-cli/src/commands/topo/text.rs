//! Tables for people.

use std::fmt::{self, Display, Formatter};

use comfy_table::{CellAlignment, Table, presets};
use nearpage::{AddressMap, NodeIndex};
use nearpage_machine::plan::{PlannedNode, PlannedZone};
use nearpage_machine::{Addresses, Lists, Machine, MachineDescription, Plan, idlist, size};

use nearpage_machine::Replaced;

/// The content of the tables.
pub(super) struct Text<'a> {
    /// The input's name.
    pub(super) source: String,
    /// Where its addresses come from.
    pub(super) addresses: &'static str,
    /// The storage and the binding of memory that this process would have.
    pub(super) process: Option<(String, &'a str)>,
    pub(super) machine: &'a Machine,
    pub(super) plan: &'a Plan,
    /// Settings that were replaced.
    pub(super) set: &'a [Replaced],
    /// What had to be assumed.
    pub(super) warnings: &'a [String],
}

/// Where the addresses of a described machine come from, in words.
pub(super) fn addresses(description: &MachineDescription) -> &'static str {
    match (description.addresses, description.topology.address_map) {
        (Addresses::Recorded, _) => RECORDED,
        (Addresses::Assumed, AddressMap::X86) => "addresses assumed: those of a PC",
        (Addresses::Assumed, _) => "addresses assumed: from 0 up",
    }
}

/// Addresses from the zones of a kernel.
pub(super) const RECORDED: &str = "addresses as the kernel has them";

impl Text<'_> {
    /// The whole text.
    pub(super) fn format(&self) -> impl Display {
        fmt::from_fn(|out| {
            write!(out, "{}\nNodes\n{}\n", self.heading(), self.nodes().trim_fmt())?;
            self.write_distances(out)?;
            write!(out, "\nZones, in pages\n{}\n", zones(self.plan).trim_fmt())?;
            write!(out, "\nPagesets, in pages a CPU\n{}\n", pagesets(self.plan).trim_fmt())?;
            for warning in self.warnings {
                write!(out, "\nNote: {warning}.")?;
            }
            if !self.warnings.is_empty() {
                writeln!(out)?;
            }
            Ok(())
        })
    }

    fn heading(&self) -> String {
        let lists = match self.plan.lists {
            Lists::Boot => "at boot",
            Lists::Rebuilt => "after a rebuild",
        };
        let process = self.process.as_ref().map_or(String::new(), |(storage, binding)| {
            format!("Storage   {storage}\nBinding   {binding}\n")
        });
        let set = self.set.iter().map(|set| {
            let why = set.no_effect.iter().map(|why| format!("          {why}\n"));
            let why: String = why.collect();
            format!("Set       {}: {} -> {}\n{why}", set.key, set.before, set.after)
        });
        let set: String = set.collect();
        format!(
            "Machine   {}; pages of {}; {}\n\
             Model     {}, zonelists as {lists}; min_free_kbytes {}, watermark_scale_factor {}\n\
             {set}{process}",
            self.source,
            size::format(self.machine.page_bytes),
            self.addresses,
            self.plan.model.name,
            self.plan.min_free_kbytes,
            self.plan.settings.watermark_scale_factor,
        )
    }

    fn nodes(&self) -> Table {
        let plan = self.plan;
        let mut table =
            table(&names(&["node", "CPUs", "memory", "free", "memory from", "fallback order"]), 6);
        for (node, machine) in plan.nodes.iter().zip(&self.machine.nodes) {
            let bytes = |bytes: Option<u64>| bytes.map_or("unknown".into(), size::format);
            let cpus: Vec<u32> = node.cpus.iter().map(|cpu| cpu.0).collect();
            table.add_row([
                node.id.to_string(),
                if cpus.is_empty() { "none".into() } else { idlist::format(&cpus) },
                bytes(machine.memory_bytes),
                bytes(machine.free_bytes),
                node.effective.map_or("none".into(), |index| id(plan, index)),
                node.fallback.iter().map(|&index| id(plan, index)).collect::<Vec<_>>().join(" "),
            ]);
        }
        table
    }

    /// Writes what [`table`] would, which takes some 250 MB for a million cells.
    fn write_distances(&self, out: &mut Formatter<'_>) -> fmt::Result {
        const CORNER: &str = "from \\ to";
        let nodes = &self.plan.nodes;
        let rows = || self.machine.distances.chunks(nodes.len());
        let digits = |node: &PlannedNode| node.id.to_string().len();
        let first = nodes.iter().map(digits).fold(CORNER.len(), usize::max);
        let width = |(to, node): (usize, &PlannedNode)| {
            let largest = rows().map(|row| row[to]).max().unwrap_or(0);
            largest.to_string().len().max(digits(node))
        };
        let widths: Vec<usize> = nodes.iter().enumerate().map(width).collect();
        write!(out, "\nDistances\n {CORNER:<first$}")?;
        for (node, width) in nodes.iter().zip(&widths) {
            write!(out, "  {:>width$}", node.id.0)?;
        }
        writeln!(out)?;
        for (node, row) in nodes.iter().zip(rows()) {
            write!(out, " {:<first$}", node.id.0)?;
            for (distance, width) in row.iter().zip(&widths) {
                write!(out, "  {distance:>width$}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// A table whose columns are aligned to the right, but for the first `left` ones.
fn table(header: &[String], left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for (index, column) in table.column_iter_mut().enumerate() {
        let side = if index < left { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(side);
    }
    table
}

fn names(header: &[&str]) -> Vec<String> {
    header.iter().map(ToString::to_string).collect()
}

fn id(plan: &Plan, index: NodeIndex) -> String {
    plan.nodes[index.0 as usize].id.to_string()
}

fn zones(plan: &Plan) -> Table {
    let header = [
        "node",
        "zone",
        "start",
        "spanned",
        "present",
        "managed",
        "min",
        "low",
        "high",
        "promo",
        "protection",
    ];
    let mut table = table(&names(&header), 2);
    for (node, zone) in populated(plan) {
        let protection: Vec<String> = zone.protection.iter().map(ToString::to_string).collect();
        let numbers = [
            zone.extent.start.0,
            zone.extent.spanned.0,
            zone.extent.present.0,
            zone.extent.managed.0,
            zone.marks.min.0,
            zone.marks.low.0,
            zone.marks.high.0,
            zone.marks.promo.0,
        ];
        let row = [node.id.to_string(), zone.extent.kind.name().into()].into_iter();
        let row = row.chain(numbers.iter().map(ToString::to_string));
        table.add_row(row.chain([protection.join(" ")]));
    }
    table
}

fn pagesets(plan: &Plan) -> Table {
    let header = ["node", "zone", "batch", "high min", "high max", "counter threshold"];
    let mut table = table(&names(&header), 2);
    for (node, zone) in populated(plan) {
        table.add_row([
            node.id.to_string(),
            zone.extent.kind.name().into(),
            zone.pageset.batch.to_string(),
            zone.pageset.high_min.to_string(),
            zone.pageset.high_max.to_string(),
            zone.stat_threshold.to_string(),
        ]);
    }
    table
}

/// The populated zones and their nodes.
fn populated(plan: &Plan) -> impl Iterator<Item = (&PlannedNode, &PlannedZone)> {
    plan.nodes
        .iter()
        .flat_map(|node| node.zones.iter().map(move |zone| (node, zone)))
        .filter(|(_, zone)| zone.is_populated())
}
