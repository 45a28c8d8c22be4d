//! Where memory is that reclaim did not free.

use serde::Serialize;

use crate::figure::Figure;
use crate::report::{NodeRow, ZoneRow};
use crate::zones::{Zones, hidden_pages};

/// Where memory is that reclaim could not free, in KiB: why the OOM killer saw no progress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NoProgress {
    /// Memory of files, which can be freed, in zones that the request may use.
    pub file: Figure,
    /// Slab that can be freed.
    pub slab_reclaimable: Figure,
    /// Anonymous memory in zones that the request may use; it can leave as far as there is swap.
    pub anon: Figure,
    /// Free swap.
    pub swap_free: Option<u64>,
    /// Slab that cannot be freed.
    pub slab_unreclaimable: Figure,
    /// What reclaim may not touch: locked, or of a kind that has no way out.
    pub unevictable: Figure,
    /// Page tables.
    pub page_tables: Figure,
    /// Stacks of threads in the kernel.
    pub kernel_stack: Figure,
    /// Managed memory that no counter of the report explains; `None` if one that holds much is missing.
    pub unexplained: Option<u64>,
}

/// Where memory is, on the numbers of a report.
pub(crate) fn no_progress(zones: &Zones<'_>) -> NoProgress {
    let report = zones.report;
    let of_nodes = |of: &dyn Fn(&NodeRow) -> Figure| report.nodes.iter().map(of).sum::<Figure>();
    let kib = |pages: Option<u64>| Figure::from(pages).map(|pages| zones.kib(pages));
    // What lies in zones that the request may not use is of no use to it.
    let of_asked = |all: Figure, of: &dyn Fn(&ZoneRow) -> Figure| {
        let (asked, others): (Vec<&ZoneRow>, Vec<&ZoneRow>) =
            report.zones.iter().partition(|zone| zones.excluded(zone).is_none());
        let sum = |rows: Vec<&ZoneRow>| rows.into_iter().map(of).sum::<Figure>();
        if others.is_empty() { all } else { all.minus(sum(others)).and(sum(asked)) }
    };
    // Rows of nodes and zones are long, and break off; the machine's counters are not, and count the same where all are shown.
    let is_all = hidden_pages(report) == 0 && !report.zones.is_empty();
    let or_counted = |of_nodes: Figure, pages: Option<u64>| match pages.filter(|_| is_all) {
        Some(pages) if !of_nodes.is_exact() => of_nodes.and(Figure::exact(zones.kib(pages))),
        _ => of_nodes,
    };
    let (anon, file, unevictable) = (
        or_counted(of_nodes(&|node| node.anon), report.on_lists(0)),
        or_counted(of_nodes(&|node| node.file), report.on_lists(2)),
        or_counted(of_nodes(&|node| node.unevictable), report.lists_pages[6]),
    );
    let slab_reclaimable = kib(report.slab_reclaimable_pages);
    let slab_unreclaimable = kib(report.slab_unreclaimable_pages);
    let page_tables = kib(report.page_table_pages);
    let kernel_stack = of_nodes(&|node| node.kernel_stack);
    // Where high memory is not for the request, what fills the zones below is the question.
    let is_low = zones.has_high_beyond();
    let of_zones = |of: &dyn Fn(&ZoneRow) -> Figure| {
        let is_of = |zone: &&ZoneRow| !is_low || zones.excluded(zone).is_none();
        report.zones.iter().filter(is_of).map(of).sum::<Figure>()
    };
    let is_old = zones.is_before((3, 9)) == Some(true);
    let managed = of_zones(&|zone| if is_old { zone.present } else { zone.managed });
    // Where rows were cut: what the machine has, if the zones shown are all.
    let free = of_zones(&|zone| zone.free);
    let all_free = kib(report.free_pages).known().zip(free.known());
    let has_all = all_free.is_some_and(|(all, shown)| all.abs_diff(shown) <= all / 16);
    let machine = report.ram_pages.zip(report.reserved_pages);
    let machine = machine.map(|(ram, reserved)| zones.kib(ram.saturating_sub(reserved)));
    let managed = match machine.filter(|_| has_all && !is_low && !managed.is_exact()) {
        Some(machine) => Figure::exact(machine),
        None => managed,
    };
    let pool = report.hugetlb.map_or(0, |(_, all)| all);
    // These are little where they are not told of.
    let little = |figure: Figure| Figure::exact(figure.known().unwrap_or(0));
    let lists = of_zones(&|zone| zone.lists);
    let lists = match lists.is_exact() && !anon.is_exact() {
        true => lists,
        false if is_low => of_zones(&|zone| zone.anon.plus(zone.file)),
        false => anon.plus(file),
    };
    let slab = match report.slab_unreclaimable_pages {
        None => kib(report.slab_pages),
        Some(_) => slab_unreclaimable,
    };
    let explained = [lists, slab, of_zones(&|zone| zone.free), Figure::exact(pool)]
        .into_iter()
        .chain([unevictable, slab_reclaimable, page_tables, kernel_stack].map(little))
        .chain([little(kib(report.secondary_table_pages))])
        .sum::<Figure>();
    let is_wrong = report.zones.iter().any(|zone| zones.has_wrong_mark(zone));
    NoProgress {
        file: of_asked(file, &|zone| zone.file),
        slab_reclaimable,
        anon: of_asked(anon, &|zone| zone.anon),
        swap_free: report.swap_free,
        slab_unreclaimable,
        unevictable,
        page_tables,
        kernel_stack,
        unexplained: managed.minus(explained).known().filter(|_| !is_wrong),
    }
}
