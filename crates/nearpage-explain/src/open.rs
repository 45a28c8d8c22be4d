//! A report of which not all lines have come yet.
//!
//! Lines of two reports may be mixed, when two CPUs print at once. Kernels that print the caller tell them apart; of
//! others a line belongs to the oldest report that it can belong to: a report has its parts in one order, and no zone
//! twice.

mod kill;

use nearpage::Gfp;

use crate::figure::Figure;
use crate::head::Header;
use crate::mode;
use crate::piece::{self, Counters, Limited, Piece};
use crate::report::{
    Kind, Memcg, Mode, NodeRow, Report, Slub, UNREADABLE_MOST, Unreadable, ZoneRow, version,
};
use crate::rows;

/// Nodes and zones that a report keeps: Linux has at most 1024 nodes.
const NODES_MOST: usize = 1024;
const ZONES_MOST: usize = 4096;

/// How far a report has come, in the order of its parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Head,
    Who,
    Memory,
    Nodes,
    Zones,
    Blocks,
    Totals,
    Tasks,
    Reason,
    Victim,
}

/// Lines between what somebody tells of a report and the report.
const TOLD_MOST: u64 = 40;

/// Lines over which a mail breaks one of a kill.
const WRAP_MOST: u64 = 4;

/// A report of which lines may still come.
#[derive(Debug)]
pub(crate) struct Open {
    report: Report,
    caller: Option<String>,
    /// How many mails quote it.
    pub(crate) quotes: usize,
    part: Part,
    mode: String,
    /// Whether its first line is all that the kernel prints.
    is_alone: bool,
    /// Whether the nodes of the first line may be those of the cpuset.
    is_of_cpuset: bool,
    /// Whether all of a group are ended: each has a line.
    is_group_kill: bool,
    /// Whether rows of caches may follow.
    is_in_caches: bool,
    /// Whether counters of a group may follow.
    is_in_stats: bool,
    task_head: Vec<String>,
    /// Whether the last zone's reserve may go on in the next line.
    reserve_open: bool,
    /// The zone whose blocks came last, until others or their sum end them.
    blocks_of: Option<usize>,
}

/// Whether a line comes right behind another by the kernel's clock, or at the same time by others.
fn is_soon(before: Option<&str>, time: Option<&str>) -> bool {
    const SECONDS_MOST: f64 = 0.1;
    let seconds = |time: Option<&str>| time.and_then(|time| time.parse::<f64>().ok());
    match (seconds(before), seconds(time)) {
        (Some(before), Some(time)) => (time - before).abs() < SECONDS_MOST,
        _ => before == time,
    }
}

impl Open {
    pub(crate) fn new(header: Header, line: u64, time: Option<&str>, caller: Option<&str>) -> Open {
        let slub =
            (header.kind == Kind::Slub).then(|| Slub { node: header.node, ..Slub::default() });
        let report = Report {
            first_line: line,
            last_line: line,
            time: time.map(String::from),
            kind: header.kind,
            process: header.process,
            pid: header.pid,
            cpu: None,
            kernel: None,
            order: header.order,
            length: header.length,
            is_sysrq: header.is_sysrq,
            mode: Default::default(),
            nodemask: header.nodemask,
            cpuset: None,
            mems_allowed: None,
            stalled_ms: header.stalled_ms,
            failed: header.failed,
            area: header.area,
            constraint: None,
            memcg: None,
            nodes: Vec::new(),
            zones: Vec::new(),
            slab_reclaimable_pages: None,
            slab_unreclaimable_pages: None,
            slab_pages: None,
            shmem_pages: None,
            page_table_pages: None,
            secondary_table_pages: None,
            free_cma_pages: None,
            mapped_pages: None,
            lists_pages: Default::default(),
            has_page_cache: false,
            free_pages: None,
            ram_pages: None,
            reserved_pages: None,
            highmem_pages: None,
            swap_free: None,
            swap_total: None,
            swap_leaving: None,
            hugetlb: None,
            tasks: Vec::new(),
            by_name: Default::default(),
            task_tables: 0,
            tasks_listed: 0,
            victim: None,
            chosen: None,
            reaped: None,
            panic: None,
            also_ended: 0,
            slub,
            largest_cache: None,
            unreadable: Vec::new(),
            is_mixed: false,
            lacks_head: false,
            is_forced: false,
            page_kib: None,
        };
        Open {
            report,
            caller: caller.map(String::from),
            quotes: 0,
            part: Part::Head,
            mode: header.mode,
            is_alone: header.is_alone,
            is_of_cpuset: header.is_of_cpuset,
            is_group_kill: false,
            is_in_caches: false,
            is_in_stats: false,
            task_head: Vec::new(),
            reserve_open: false,
            blocks_of: None,
        }
    }

    /// A report of which only the end is there: why somebody was ended, or who.
    pub(crate) fn without_head(line: u64, time: Option<&str>, caller: Option<&str>) -> Open {
        let mut open = Open::new(Header::default(), line, time, caller);
        open.report.lacks_head = true;
        open
    }

    pub(crate) fn caller(&self) -> Option<&str> {
        self.caller.as_deref()
    }

    pub(crate) fn first_line(&self) -> u64 {
        self.report.first_line
    }

    pub(crate) fn last_line(&self) -> u64 {
        self.report.last_line
    }

    /// Whether nothing but lines of no report can follow.
    pub(crate) fn is_complete(&self) -> bool {
        match self.report.kind {
            Kind::Oom => self.part == Part::Victim,
            // Which nodes have free objects comes right behind the name of the cache.
            Kind::Slub => self.report.slub.as_ref().is_some_and(|slub| !slub.cache.is_empty()),
            Kind::Vmalloc if self.mode.is_empty() => true,
            _ if self.is_alone => true,
            _ => self.part >= Part::Totals && self.report.ram_pages.is_some(),
        }
    }

    /// Whether it is of a mapping without an MMU, of that process.
    pub(crate) fn is_mapping_of(&self, pid: Option<u32>) -> bool {
        self.report.length.is_some() && pid.is_some() && self.report.pid == pid
    }

    /// Whether a mapping wants pages in a row, without an MMU.
    pub(crate) fn wants_length(&self) -> bool {
        self.report.length.is_some()
    }

    /// Whether its first line is lost: the next report ends it.
    pub(crate) fn lacks_head(&self) -> bool {
        self.report.lacks_head
    }

    /// Whether lines about others of a group that were ended may follow: each has one.
    pub(crate) fn is_group_kill(&self) -> bool {
        self.is_group_kill
    }

    /// The report as far as it came. `kernel` is the release that the log named last, for reports that name none.
    pub(crate) fn close(mut self, kernel: Option<&str>) -> Report {
        self.seal_blocks(None);
        if self.report.kernel.is_none() {
            self.report.kernel = kernel.map(String::from);
        }
        let release = self.report.kernel.as_deref().and_then(version);
        let release = release.max(self.report.least_version());
        // Flags that cannot be read are as unknown as those that were cut.
        let is_cut = !self.mode.is_empty();
        let mode = mode::parse(&self.mode, release);
        self.report.mode = mode.unwrap_or(Mode { is_cut, ..Mode::default() });
        if self.report.is_nameless_kill() {
            // The bit was that of another flag.
            self.report.mode.gfp = self.report.mode.gfp - Gfp::THISNODE;
        }
        if self.report.length.is_some() {
            self.report.mode.gfp = Gfp::KERNEL;
            self.report.order = self.report.order_of_length();
        }
        self.settle_nodemask(release);
        self.report
    }

    /// Linux 4.9 and 4.10 print the nodes of the cpuset where there is no policy: they are a policy's if they differ.
    fn settle_nodemask(&mut self, release: Option<(u32, u32)>) {
        let report = &mut self.report;
        let may_be_cpusets = self.is_of_cpuset && release.is_none_or(|release| release < (4, 11));
        let differs = report.mems_allowed.is_some() && report.mems_allowed != report.nodemask;
        if may_be_cpusets && !differs {
            report.nodemask = None;
        }
    }

    /// Whether a piece is more likely this report's than that of one of which only the first line came, such as one that somebody
    /// quotes.
    pub(crate) fn is_likely(&self, piece: &Piece, time: Option<&str>) -> bool {
        match piece {
            Piece::SlubCache(..) | Piece::SlubNode(..) => {
                is_soon(self.report.time.as_deref(), time)
            }
            _ => self.part > Part::Head,
        }
    }

    /// Whether it is no more than a first line without a clock, as somebody tells of it before the report itself.
    pub(crate) fn is_told_before(&self, report: &Open) -> bool {
        let asked = |open: &Open| (open.report.kind, open.report.order, open.mode.clone());
        let lines = report.report.first_line.saturating_sub(self.report.last_line);
        self.part == Part::Head
            && self.report.time.is_none()
            && report.report.time.is_some()
            && asked(self) == asked(report)
            && lines <= TOLD_MOST
    }

    /// Whether its first line has a clock, as another line has or has not.
    pub(crate) fn is_timed_as(&self, time: Option<&str>) -> bool {
        self.report.time.is_some() == time.is_some()
    }

    /// Whether a piece that it does not take is of another process or kernel than it has.
    pub(crate) fn is_over(&self, piece: &Piece, time: Option<&str>, caller: Option<&str>) -> bool {
        let Piece::Cpu(cpu, pid, release, _) = piece else { return false };
        // An oops, or a lockup, of another CPU at the same time is printed over this one.
        const SECONDS_MOST: f64 = 2.0;
        let seconds = |time: Option<&str>| time.and_then(|time| time.parse::<f64>().ok());
        let since = seconds(self.report.time.as_deref()).zip(seconds(time));
        let is_of_another_cpu = self.report.cpu.zip(*cpu).is_some_and(|(own, cpu)| own != cpu);
        if is_of_another_cpu && since.is_some_and(|(began, now)| now - began < SECONDS_MOST) {
            return false;
        }
        let differs = |of: &Option<String>| of.is_some() && release.is_some() && of != release;
        (self.report.pid.is_some() && self.report.pid != *pid || differs(&self.report.kernel))
            && (caller.is_none() || self.caller.as_deref() == caller)
    }

    /// Takes the first line about an area of which a line before told that there were no addresses.
    pub(crate) fn take_area(&mut self, header: &Header) -> bool {
        // The area with a page behind it, in whole pages of at most 64 KiB.
        const MORE_MOST: u64 = 128 << 10;
        let bytes = |text: &str| piece::numbers(text).next();
        let area = self.report.failed.as_deref().and_then(bytes);
        let is_own = self.report.kind == Kind::Vmalloc
            && header.kind == Kind::Vmalloc
            && self.mode.is_empty()
            && !header.mode.is_empty()
            && header.failed.as_deref().zip(area).is_some_and(|(failed, area)| {
                let is_like =
                    |bytes: u64| (bytes..=bytes.saturating_add(MORE_MOST)).contains(&area);
                failed.starts_with("vm_struct") || bytes(failed).is_some_and(is_like)
            });
        if is_own {
            self.mode.clone_from(&header.mode);
            self.report.process.clone_from(&header.process);
            (self.report.order, self.report.nodemask) = (header.order, header.nodemask.clone());
        }
        is_own
    }

    /// Takes a piece, if it can belong to this report.
    pub(crate) fn take(&mut self, piece: &Piece, line: u64, caller: Option<&str>) -> bool {
        let is_others =
            self.caller.is_some() && caller.is_some() && self.caller.as_deref() != caller;
        // A victim's line may be printed by who reaps it.
        if is_others && !matches!(piece, Piece::Killed(..)) {
            return false;
        }
        // Some kernels, and some who paste, have the kill in front of what memory had.
        let is_next = line.saturating_sub(self.report.last_line) <= WRAP_MOST;
        if *piece == Piece::MemInfo && self.has_no_memory() && is_next {
            self.part = Part::Who;
        }
        let taken = self.take_own(piece);
        if taken {
            self.report.last_line = line;
        }
        taken
    }

    /// Notes that a figure of a line is none, if the line can be this report's: it was taken, or is a row of which nothing could
    /// be read.
    pub(crate) fn note_unreadable(
        &mut self,
        word: &str,
        line: u64,
        caller: Option<&str>,
        is_taken: bool,
    ) -> bool {
        let is_others =
            self.caller.is_some() && caller.is_some() && self.caller.as_deref() != caller;
        let is_own = match is_taken {
            true => self.report.last_line == line,
            false => !is_others && self.part >= Part::Who,
        };
        if is_own && self.report.unreadable.len() < UNREADABLE_MOST {
            let word = word.chars().take(64).collect();
            self.report.unreadable.push(Unreadable { line, word });
        }
        // The reserve of the zone before it.
        if is_own && !is_taken && self.part == Part::Zones && self.reserve_open {
            self.report.zones.iter_mut().rev().take(1).for_each(|zone| zone.is_damaged = true);
        }
        is_own
    }

    /// Notes that a test of the kernel made the request fail.
    pub(crate) fn note_forced(&mut self) {
        self.report.is_forced = self.report.kind != Kind::Oom;
    }

    /// Notes that lines of another report stand among its own.
    pub(crate) fn note_mixed(&mut self) {
        self.report.is_mixed = true;
    }

    /// Whether it is a kill of which all came but what memory had.
    fn has_no_memory(&self) -> bool {
        let report = &self.report;
        let has_none = report.zones.is_empty() && report.nodes.is_empty();
        self.part >= Part::Reason && has_none && report.free_pages.is_none()
    }

    fn reach(&mut self, part: Part) -> bool {
        let may = part >= self.part;
        if may {
            self.part = part;
        }
        may
    }

    fn take_own(&mut self, piece: &Piece) -> bool {
        match piece {
            Piece::Header(_) | Piece::Other => false,
            Piece::Cpuset(..) | Piece::Cpu(..) if self.report.kind == Kind::Slub => false,
            Piece::Cpuset(..) | Piece::Cpu(..) => {
                (self.part <= Part::Who || self.report.panic.is_some()) && self.take_who(piece)
            }
            Piece::SlubCache(..) | Piece::SlubNode(..) => self.take_slub(piece),
            _ if self.report.kind == Kind::Slub => false,
            // Of a group whose first line is lost no zones are told.
            Piece::MemInfo | Piece::Counters(_) | Piece::Node(_) | Piece::Zone(_)
                if self.report.lacks_head && self.report.memcg.is_some() =>
            {
                false
            }
            Piece::SysrqWork => {
                let is_own = self.report.kind == Kind::Oom && self.part <= Part::Who;
                self.report.is_sysrq |= is_own;
                is_own
            }
            Piece::MemInfo => self.part < Part::Memory && self.reach(Part::Memory),
            Piece::Counters(counters) => self.take_counters(*counters),
            Piece::Node(_) | Piece::Zone(_) | Piece::Reserve(_) | Piece::Numbers(_) => {
                self.take_row(piece)
            }
            Piece::Blocks(..) | Piece::MoreBlocks(_) => self.take_blocks(piece),
            Piece::Huge(..)
            | Piece::SwapFree(_)
            | Piece::SwapTotal(_)
            | Piece::Ram(_)
            | Piece::HighMem(_)
            | Piece::Reserved(_)
            | Piece::PageCache
            | Piece::Total => self.take_total(piece),
            Piece::MemcgLimit(..) | Piece::MemcgPath(..) | Piece::MemcgStats(..) => {
                self.take_memcg(piece)
            }
            Piece::Call(_) if self.report.kind != Kind::Oom || self.part > Part::Who => false,
            Piece::Call(is_of_group) => {
                self.part = Part::Who;
                self.is_group(Some(*is_of_group).filter(|is| *is))
            }
            Piece::SlabHead | Piece::SlabRow(_) => self.take_cache(piece),
            Piece::TaskHead(_)
            | Piece::TaskRow(_)
            | Piece::Constraint(_)
            | Piece::GroupKill
            | Piece::Chosen(..)
            | Piece::Reaped(..)
            | Piece::Panic(_)
            | Piece::Killed(..) => self.report.kind == Kind::Oom && self.take_end(piece),
        }
    }

    fn take_counters(&mut self, counters: Counters) -> bool {
        let report = &self.report;
        let is_new = (report.free_pages.is_none() || counters.free.is_none())
            && (report.slab_reclaimable_pages.is_none() || counters.slab_reclaimable.is_none());
        // Somebody who quotes counters leaves out the line `Mem-Info:`.
        if !is_new || !self.reach(Part::Memory) {
            return false;
        }
        let report = &mut self.report;
        report.free_pages = report.free_pages.or(counters.free);
        report.slab_reclaimable_pages = report.slab_reclaimable_pages.or(counters.slab_reclaimable);
        report.slab_unreclaimable_pages =
            report.slab_unreclaimable_pages.or(counters.slab_unreclaimable);
        report.slab_pages = report.slab_pages.or(counters.slab);
        report.shmem_pages = report.shmem_pages.or(counters.shmem);
        report.page_table_pages = report.page_table_pages.or(counters.page_tables);
        report.secondary_table_pages = report.secondary_table_pages.or(counters.secondary_tables);
        report.free_cma_pages = report.free_cma_pages.or(counters.free_cma);
        report.mapped_pages = report.mapped_pages.or(counters.mapped);
        for (pages, told) in report.lists_pages.iter_mut().zip(counters.lists) {
            *pages = pages.or(told);
        }
        true
    }

    fn take_who(&mut self, piece: &Piece) -> bool {
        // Another process prints over this one.
        if let Piece::Cpu(.., Some(name)) = piece
            && !self.report.process.ends_with(name.as_str())
            && (self.report.lacks_head || !self.report.process.is_empty())
            && self.report.panic.is_none()
        {
            return false;
        }
        self.part = self.part.max(Part::Who);
        match piece {
            Piece::Cpuset(name, nodes) if self.report.cpuset.is_none() => {
                self.report.cpuset = Some(name.clone());
                self.report.mems_allowed = nodes.clone();
                true
            }
            Piece::Cpu(cpu, pid, release, name) if self.report.pid.is_none() => {
                // What stood in front of the name in the first line was no part of it.
                if name.as_ref().is_some_and(|name| self.report.process.ends_with(name)) {
                    self.report.process = name.clone().unwrap_or_default();
                }
                (self.report.cpu, self.report.pid) = (*cpu, *pid);
                self.report.kernel = release.clone();
                true
            }
            _ => false,
        }
    }

    fn take_slub(&mut self, piece: &Piece) -> bool {
        let Some(slub) = &mut self.report.slub else { return false };
        match piece {
            Piece::SlubCache(cache, orders) if slub.cache.is_empty() => {
                slub.cache = cache.clone();
                slub.orders = *orders;
                true
            }
            Piece::SlubNode(node, free) if slub.free_objects.len() < NODES_MOST => {
                slub.free_objects.push((*node, *free));
                true
            }
            _ => false,
        }
    }

    fn take_row(&mut self, piece: &Piece) -> bool {
        let report = &mut self.report;
        match piece {
            // Kernels print a node before its zones, or all nodes before all zones.
            Piece::Node(row) => {
                let is_new = report.nodes.iter().all(|other| other.node != row.node);
                let may = is_new && self.part <= Part::Zones;
                if may && report.nodes.len() < NODES_MOST {
                    report.nodes.push(row.clone());
                    self.part = self.part.max(Part::Nodes);
                    return true;
                }
                false
            }
            Piece::Zone(rows) => {
                let (row, node) = (&rows.0, &rows.1);
                let is_new = report
                    .zones
                    .iter()
                    .all(|zone| (zone.node, &zone.name) != (row.node, &row.name));
                // Somebody who quotes rows leaves out the line `Mem-Info:`.
                let may = is_new && report.zones.len() < ZONES_MOST;
                if !may || self.part > Part::Zones {
                    return false;
                }
                self.part = Part::Zones;
                self.add_node(node);
                self.report.zones.push(row.clone());
                self.reserve_open = true;
                true
            }
            Piece::Reserve(numbers) => self.add_reserve(numbers),
            Piece::Numbers(numbers) => self.add_reserve(numbers),
            _ => false,
        }
    }

    /// Before Linux 4.8 a zone's row has the counters of its node.
    fn add_node(&mut self, of_zone: &NodeRow) {
        match self.report.nodes.iter_mut().find(|row| row.node == of_zone.node) {
            Some(row) if row.summed => row.add(of_zone),
            // Up to 5.10 stacks stand with the zones.
            Some(row) => row.add_stacks(of_zone),
            None => self.report.nodes.push(NodeRow { summed: true, ..of_zone.clone() }),
        }
    }

    fn add_reserve(&mut self, numbers: &[u64]) -> bool {
        let may = self.part == Part::Zones && self.reserve_open;
        let Some(zone) = self.report.zones.last_mut().filter(|_| may) else { return false };
        zone.reserve.extend(numbers);
        zone.reserve.truncate(16);
        // With one number or none the log may have broken the line, and goes on with a number a line.
        self.reserve_open = numbers.len() < 2;
        true
    }

    fn take_blocks(&mut self, piece: &Piece) -> bool {
        match piece {
            Piece::Blocks(row) if self.part >= Part::Zones => {
                let is_it = |zone: &ZoneRow| zone.node == row.node && zone.name == row.zone;
                let Some(at) = self.report.zones.iter().position(is_it) else { return false };
                if !self.report.zones[at].blocks.is_empty() || !self.reach(Part::Blocks) {
                    return false;
                }
                self.seal_blocks(None);
                self.report.zones[at].blocks = row.blocks.clone();
                self.blocks_of = Some(at);
                if row.ends.is_some() {
                    self.seal_blocks(row.ends);
                }
                true
            }
            Piece::MoreBlocks(text) if self.part == Part::Blocks => {
                let Some(at) = self.blocks_of else { return false };
                rows::add_blocks(&mut self.report.zones[at].blocks, text);
                let ends = rows::ends_blocks(text);
                if ends.is_some() {
                    self.seal_blocks(ends);
                }
                true
            }
            _ => false,
        }
    }

    /// Takes a row of blocks of a zone whose own row was lost: it is there, and nothing else is known of it.
    pub(crate) fn take_lost_zone(
        &mut self,
        piece: &Piece,
        line: u64,
        caller: Option<&str>,
    ) -> bool {
        let Piece::Blocks(row) = piece else { return false };
        let zones = &mut self.report.zones;
        let is_new = zones.iter().all(|zone| (zone.node, &zone.name) != (row.node, &row.zone));
        let may = is_new && self.part > Part::Head && self.part <= Part::Blocks;
        if !may || self.report.kind == Kind::Slub || zones.len() >= ZONES_MOST {
            return false;
        }
        let (node, name) = (row.node, row.zone.clone());
        zones.push(ZoneRow { node, name, is_damaged: true, ..ZoneRow::default() });
        self.part = self.part.max(Part::Zones);
        self.take(piece, line, caller)
    }

    /// The row of blocks that came last is all that comes of it.
    fn seal_blocks(&mut self, ends: Option<Figure>) {
        if let Some(at) = self.blocks_of.take() {
            let zone = &mut self.report.zones[at];
            zone.has_all_blocks = rows::seal_blocks(&mut zone.blocks, ends);
        }
    }

    fn take_total(&mut self, piece: &Piece) -> bool {
        // Zones that the request could not use are not printed.
        if self.part < Part::Memory || !self.reach(Part::Totals) {
            return false;
        }
        self.seal_blocks(None);
        let report = &mut self.report;
        match piece {
            Piece::Huge(free, all, kib) => {
                let (free_before, all_before) = report.hugetlb.unwrap_or((0, 0));
                let sum =
                    |before: u64, pages: &u64| before.saturating_add(pages.saturating_mul(*kib));
                report.hugetlb = Some((sum(free_before, free), sum(all_before, all)));
            }
            Piece::SwapFree(kib) if *kib < 0 => {
                (report.swap_free, report.swap_leaving) = (Some(0), Some(kib.unsigned_abs()));
            }
            Piece::SwapFree(kib) => report.swap_free = Some(kib.unsigned_abs()),
            Piece::SwapTotal(kib) => report.swap_total = Some(*kib),
            Piece::Ram(pages) => report.ram_pages = Some(*pages),
            Piece::Reserved(pages) => report.reserved_pages = Some(*pages),
            Piece::HighMem(pages) => report.highmem_pages = Some(*pages),
            Piece::PageCache => report.has_page_cache = true,
            _ => {}
        }
        true
    }

    fn take_memcg(&mut self, piece: &Piece) -> bool {
        // Counters in bytes are of a group that was named.
        let is_stray = matches!(piece, Piece::MemcgStats(None, _)) && !self.is_in_stats;
        if self.report.kind != Kind::Oom || self.part > Part::Who || is_stray {
            return false;
        }
        self.part = Part::Who;
        let memcg = self.report.memcg.get_or_insert_with(Memcg::default);
        match piece {
            // A paste may have lines twice.
            Piece::MemcgLimit(Limited::Memory, limit)
                if memcg.usage.zip(memcg.limit) == Some((limit.usage, limit.limit)) => {}
            Piece::MemcgPath(task, group)
                if memcg.path.as_ref() == Some(group) && memcg.task == *task => {}
            Piece::MemcgLimit(Limited::Memory, limit) if memcg.limit.is_none() => {
                (memcg.usage, memcg.limit) = (Some(limit.usage), Some(limit.limit));
            }
            Piece::MemcgLimit(of, limit) => {
                let field = match of {
                    Limited::Memory => return false,
                    Limited::MemoryAndSwap => &mut memcg.memory_and_swap,
                    Limited::Swap => &mut memcg.swap,
                    Limited::Kmem => &mut memcg.kmem,
                };
                if field.is_some_and(|before| before != *limit) {
                    return false;
                }
                *field = Some(*limit);
            }
            Piece::MemcgPath(task, group) if memcg.path.is_none() => {
                (memcg.path, memcg.task) = (Some(group.clone()), task.clone());
            }
            Piece::MemcgStats(group, counters) => {
                // Groups below follow with their own before 4.20: the first is that at its limit.
                if let (Some(below), Some(path)) = (group.as_ref(), memcg.path.as_ref())
                    && self.is_in_stats
                {
                    let rest = below.strip_prefix(path.trim_end_matches('/'));
                    // Each counts what is its own.
                    if rest.is_some_and(|rest| rest.len() > 1 && rest.starts_with('/')) {
                        counters.iter().for_each(|(name, kib)| memcg.add(name, *kib));
                    }
                    return rest.is_some();
                }
                self.is_in_stats = true;
                if memcg.path.is_none() {
                    memcg.path = group.clone();
                }
                counters.iter().for_each(|(name, kib)| memcg.add(name, *kib));
            }
            _ => return false,
        }
        true
    }

    fn take_cache(&mut self, piece: &Piece) -> bool {
        match piece {
            Piece::SlabHead if !self.is_in_caches => self.is_in_caches = true,
            Piece::SlabRow(cache) if self.is_in_caches => {
                let largest = self.report.largest_cache.get_or_insert_default();
                if cache.total > largest.total {
                    *largest = cache.clone();
                }
            }
            _ => return false,
        }
        true
    }
}
