//! What fills memory, and why it does not leave.

use nearpage::{Gfp, Order};

use crate::cause::{Cause, CauseKind, kib};
use crate::figure::Figure;
use crate::held::NoProgress;
use crate::judge::Rule;
use crate::report::{Kind, Report, ZoneRow};
use crate::verdict::Verdict;
use crate::zones::{Zones, hidden_pages};

/// A cache that is smaller is no cause on a machine of which nothing else is known, in KiB.
const CACHE_LEAST: u64 = 256 << 10;

/// What fills memory, the largest first. Of a refusal without a kill that of which no reclaim would have freed enough.
pub(crate) fn of(zones: &Zones<'_>, verdict: &Verdict, held: &NoProgress) -> Vec<Cause> {
    let report = zones.report;
    let is_kill = report.kind == Kind::Oom;
    let by_pages =
        matches!(verdict.rule, Rule::Watermark | Rule::LowmemReserve | Rule::HighatomicReserve)
            || verdict.depends_on == ["reserved_highatomic"];
    let is_fragmented = verdict.rule == Rule::NoBlock;
    if !is_kill && !by_pages && !is_fragmented && verdict.rule != Rule::Passes {
        return Vec::new();
    }
    let counted = if is_kill { counted(report) } else { Vec::new() };
    if !counted.is_empty() {
        return counted;
    }
    let can_wait = zones.gfp.contains(Gfp::DIRECT_RECLAIM) && !is_reclaiming(zones);
    let may_be_late = zones.order == Order(0) && !zones.gfp.contains(Gfp::DIRECT_RECLAIM);
    let Some(shown) = shown_kib(zones, held) else {
        return cache(report).into_iter().collect();
    };
    let low = low_kib(report).unwrap_or(shown);
    let filled = Filled { zones, held, shown, low, is_kill };
    if is_fragmented && !is_kill {
        return filled.unmovable().into_iter().collect();
    }
    let mut causes: Vec<Cause> = [
        filled.waiting(by_pages || verdict.rule == Rule::Passes && may_be_late),
        filled.anon(by_pages && can_wait),
        filled.shmem(),
        filled.slab(),
        filled.reclaimable_slab(),
        filled.files(),
        filled.huge_pages(),
        filled.page_tables(),
        filled.stacks(),
        filled.unexplained(),
        filled.unevictable(),
    ]
    .into_iter()
    .flatten()
    .collect();
    if causes.is_empty() {
        causes.extend(filled.waiting_for_little(by_pages));
    }
    // Who cannot wait is refused for want of time, whatever fills memory.
    let is_late = |cause: &Cause| cause.kind == CauseKind::CannotWait;
    // What is most of a larger one tells more than that.
    let shared = causes.iter().find(|cause| cause.kind == CauseKind::Shmem);
    let shared = shared.and_then(|cause| cause.kib).unwrap_or(0);
    let is_of_shared = |cause: &Cause| {
        use CauseKind::{Anonymous, NoSwap, SwapFull};
        matches!(cause.kind, Anonymous | NoSwap | SwapFull)
            && cause.kib.is_some_and(|kib| kib / 2 < shared)
    };
    let size = |cause: &Cause| if is_of_shared(cause) { Some(shared - 1) } else { cause.kib };
    causes.sort_by_key(|cause| std::cmp::Reverse((is_late(cause), size(cause))));
    causes
}

/// What fills memory by the machine's counters alone, where who pasted a kill left out what follows them. They count pages, of
/// which the size is not told there.
fn counted(report: &Report) -> Vec<Cause> {
    let has_no_rows = report.zones.is_empty() && report.nodes.is_empty();
    let Some(free) = report.free_pages.filter(|_| has_no_rows) else { return Vec::new() };
    let parts = [
        (CauseKind::Anonymous, report.on_lists(0), "anonymous"),
        (CauseKind::Files, report.on_lists(2), "of files, on the lists of reclaim"),
        (CauseKind::Slab, report.slab_unreclaimable_pages, "slab that cannot be reclaimed"),
        (CauseKind::ReclaimableSlab, report.slab_reclaimable_pages, "slab that can be reclaimed"),
        (CauseKind::Unevictable, report.lists_pages[6], "unevictable"),
        (CauseKind::PageTables, report.page_table_pages, "page tables"),
    ];
    let all = parts.iter().filter_map(|(_, pages, _)| *pages).fold(free, u64::saturating_add);
    let mut told: Vec<(u64, Cause)> = Vec::new();
    for (kind, pages, name) in parts {
        let Some(pages) = pages.filter(|pages| pages.saturating_mul(4) >= all.max(1)) else {
            continue;
        };
        let text = format!(
            "{pages} of the {all} pages that the counters tell of are {name} ({} where a page has 4 KiB)",
            kib(pages.saturating_mul(4))
        );
        told.push((pages, Cause::new(kind, None, text)));
    }
    told.sort_by_key(|(pages, _)| std::cmp::Reverse(*pages));
    told.into_iter().map(|(_, cause)| cause).collect()
}

/// The largest cache, where nothing tells how much memory there is.
fn cache(report: &Report) -> Option<Cause> {
    let cache = report.largest_cache.as_ref().filter(|cache| cache.total >= CACHE_LEAST)?;
    let text = format!(
        "of slab that cannot be reclaimed the largest cache is {} with {}: the kernel or a driver holds it, no kill frees it",
        cache.name,
        kib(cache.total)
    );
    Some(Cause::new(CauseKind::Slab, cache.total, text))
}

/// Memory of the zones shown: what is managed, or present, where the row does not say; else the machine's, or what is counted.
fn shown_kib(zones: &Zones<'_>, held: &NoProgress) -> Option<u64> {
    let report = zones.report;
    let managed = |zone: &ZoneRow| zone.managed.known().filter(|_| !zones.has_wrong_mark(zone));
    let size = |zone: &ZoneRow| managed(zone).or(zone.present.known());
    let sizes = report.zones.iter().map(size).collect::<Option<Vec<u64>>>();
    let shown = sizes.map(|sizes| sizes.into_iter().fold(0, u64::saturating_add));
    let ram = report.ram_pages.map(|pages| zones.kib(pages));
    let free = report.zones.iter().map(|zone| zone.free).sum::<Figure>();
    let counted = [held.anon, held.file, held.slab_unreclaimable, held.slab_reclaimable, free];
    let counted = counted.into_iter().sum::<Figure>().known();
    let counted = counted.filter(|_| !report.nodes.is_empty());
    [shown, ram, counted].into_iter().flatten().find(|kib| *kib > 0)
}

/// Memory of the zones shown in which the kernel's own may lie, where others are shown, too.
pub(crate) fn low_kib(report: &Report) -> Option<u64> {
    let is_low = |zone: &&ZoneRow| !matches!(zone.name.as_str(), "HighMem" | "Movable" | "Device");
    // Old kernels do not print what is managed.
    let size = |zone: &ZoneRow| zone.managed.known().or(zone.present.known()).into();
    let low = report.zones.iter().filter(is_low).map(size);
    low.sum::<Figure>().known().filter(|low| *low > 0)
}

/// Whether kswapd asked, which does not reclaim for what it asks itself, and may not take of the reserves.
fn is_reclaiming(zones: &Zones<'_>) -> bool {
    zones.report.process.starts_with("kswapd") && zones.gfp.contains(Gfp::NOMEMALLOC)
}

fn at_least(figure: Figure) -> &'static str {
    if figure.is_exact() { "" } else { "at least " }
}

struct Filled<'a> {
    zones: &'a Zones<'a>,
    held: &'a NoProgress,
    /// Memory of the zones shown, in KiB.
    shown: u64,
    /// That of it in which the kernel's own may lie.
    low: u64,
    is_kill: bool,
}

impl Filled<'_> {
    fn report(&self) -> &Report {
        self.zones.report
    }

    /// A cause, if it is a part of memory that is large enough: so much in a hundred of a kill, a quarter at least of what may
    /// have other reasons.
    fn part(&self, kind: CauseKind, kib: u64, percent: u64, text: String) -> Option<Cause> {
        // What nobody counts, such as a balloon's, is not there for others.
        let unexplained = self.held.unexplained.filter(|_| kind != CauseKind::Unexplained);
        let there = self.shown.saturating_sub(unexplained.unwrap_or(0));
        self.part_of(there, kind, kib, percent, text)
    }

    fn part_of(
        &self,
        all: u64,
        kind: CauseKind,
        kib: u64,
        percent: u64,
        text: String,
    ) -> Option<Cause> {
        let least = if self.is_kill { percent } else { percent.max(25) };
        let is_part = kib > 0 && kib.saturating_mul(100) / all.max(1) >= least;
        is_part.then(|| Cause::new(kind, kib, text))
    }

    /// The same of a counter of the machine, which may have more memory than is shown.
    fn part_of_machine(
        &self,
        kind: CauseKind,
        pages: Option<u64>,
        text: impl FnOnce(String) -> String,
    ) -> Option<Cause> {
        let part = self.zones.kib(pages?);
        // What lies on nodes that are not shown may be the kernel's, too.
        let all = self.low.saturating_add(self.zones.kib(hidden_pages(self.report())));
        self.part_of(all, kind, part, 10, text(kib(part)))
    }

    /// Why anonymous memory does not leave.
    fn swap(&self) -> (CauseKind, String) {
        let report = self.report();
        match (report.swap_leaving, report.swap_free, report.swap_total) {
            (Some(leaving), ..) => (
                CauseKind::SwapOff,
                format!(
                    "swap is being switched off, and {} are still to come back from it",
                    kib(leaving)
                ),
            ),
            (_, _, Some(0)) => (CauseKind::NoSwap, "there is no swap: it cannot leave".into()),
            (_, Some(free), Some(total)) if free <= total / 100 => (
                CauseKind::SwapFull,
                format!(
                    "swap is full ({} of {} used): it cannot leave",
                    kib(total - free),
                    kib(total)
                ),
            ),
            (_, Some(free), Some(total)) => {
                (CauseKind::Anonymous, format!("{} of {} of swap are free", kib(free), kib(total)))
            }
            // The first kernels tell no more.
            (_, Some(0), None) => (CauseKind::SwapFull, "no swap is free: it cannot leave".into()),
            (_, None, None) if report.has_page_cache && report.ram_pages.is_some() => (
                CauseKind::Anonymous,
                "no row tells of swap, as of a kernel that was built without: it cannot leave then"
                    .into(),
            ),
            _ => (CauseKind::Anonymous, "how much swap is free is not told".into()),
        }
    }

    fn anon(&self, would_reclaim: bool) -> Option<Cause> {
        let (kind, swap) = self.swap();
        let cannot_leave = kind != CauseKind::Anonymous;
        let anon = self.held.anon;
        // Kernels before 2.6.28 do not tell anonymous memory from that of files; rows can be cut.
        if self.is_kill && anon.least() == 0 && !anon.is_exact() && !cannot_leave {
            return self.on_lists(&swap);
        }
        if self.is_kill && anon.least() == 0 && !anon.is_exact() {
            let swapped = self.report().swap_leaving.or(self.report().swap_total);
            let lists = self.report().zones.iter().map(|zone| zone.lists).sum::<Figure>();
            let text = match lists.known() {
                Some(lists) => format!(
                    "{} are on the lists of reclaim{}, how much of it anonymous is not told; {swap}",
                    kib(lists),
                    self.mapped(lists)
                ),
                None => format!("how much memory is anonymous is not told; {swap}"),
            };
            return Some(Cause::new(
                kind,
                lists.known().unwrap_or(0).max(swapped.unwrap_or(0)),
                text,
            ));
        }
        let text = format!("{}{} anonymous memory; {swap}", at_least(anon), kib(anon.least()));
        match self.is_kill {
            true => self.part(kind, anon.least(), 20, text),
            false if would_reclaim && cannot_leave => self.part(kind, anon.least(), 50, text),
            // What leaves no faster than swap takes it.
            false if would_reclaim && anon.least() / 4 > self.reclaimable() => {
                let text = match self.report().swap_free {
                    Some(_) => format!("{text}, and it is written there first, page by page"),
                    None => format!("{text}; little else can be reclaimed"),
                };
                self.part(kind, anon.least(), 50, text)
            }
            false => None,
        }
    }

    /// Memory on the lists of reclaim that had somewhere to go, of kernels that do not tell what is anonymous.
    fn on_lists(&self, swap: &str) -> Option<Cause> {
        let report = self.report();
        let asked = report.zones.iter().filter(|zone| self.zones.excluded(zone).is_none());
        let figure = asked.map(|zone| zone.lists).sum::<Figure>();
        let counted = report.on_lists(4).map(|pages| Figure::exact(self.zones.kib(pages)));
        let is_all = report.zones.iter().all(|zone| self.zones.excluded(zone).is_none());
        let figure = match counted.filter(|_| is_all && !figure.is_exact()) {
            Some(counted) => figure.and(counted),
            None => figure,
        };
        let lists = figure.least();
        let mapped = self.mapped(lists);
        let text = format!(
            "{}{} are on the lists of reclaim{mapped}, how much of it anonymous is not told; {swap}: reclaim gave up all the same",
            at_least(figure),
            kib(lists)
        );
        self.part(CauseKind::Anonymous, lists, 20, text)
    }

    /// How much of what is on the lists processes have mapped, if it is most.
    fn mapped(&self, lists: u64) -> String {
        let mapped = self.report().mapped_pages.map_or(0, |pages| self.zones.kib(pages)).min(lists);
        match mapped > lists / 2 {
            true => format!(", about {} mapped by processes", kib(mapped)),
            false => String::new(),
        }
    }

    /// Memory of files and slab that can be reclaimed, as far as it is told.
    fn reclaimable(&self) -> u64 {
        self.held.file.least().saturating_add(self.held.slab_reclaimable.least())
    }

    fn shmem(&self) -> Option<Cause> {
        let report = self.report();
        let of_nodes = report.nodes.iter().map(|node| node.shmem);
        let of_nodes = of_nodes.sum::<Figure>().known();
        let shmem = of_nodes.or(report.shmem_pages.map(|pages| self.zones.kib(pages)))?;
        let text = format!(
            "{} are tmpfs and shared memory, part of the anonymous: a kill frees none of a file in tmpfs",
            kib(shmem)
        );
        self.part(CauseKind::Shmem, shmem, 15, text)
    }

    /// What can be reclaimed, and was not.
    fn reclaimable_slab(&self) -> Option<Cause> {
        let slab = self.held.slab_reclaimable.known().filter(|_| self.is_kill)?;
        let text = format!(
            "{} of slab that can be reclaimed, and still a kill: reclaim freed too little of it (caches of files and names that are in use)",
            kib(slab)
        );
        self.part_of(self.low, CauseKind::ReclaimableSlab, slab, 20, text)
    }

    fn slab(&self) -> Option<Cause> {
        let report = self.report();
        if report.slab_unreclaimable_pages.is_none() {
            let all = self.part_of_machine(CauseKind::Slab, report.slab_pages, |slab| {
                format!("{slab} of slab: how much of it can be reclaimed this kernel does not tell")
            });
            return all.or_else(|| cache(report));
        }
        let cache = report.largest_cache.as_ref().map_or(String::new(), |cache| {
            format!(", {} of it the cache {}", kib(cache.total), cache.name)
        });
        self.part_of_machine(CauseKind::Slab, report.slab_unreclaimable_pages, |slab| {
            format!(
                "{slab} of slab that cannot be reclaimed{cache}: the kernel or a driver holds it, no kill frees it"
            )
        })
    }

    /// What stands between free blocks.
    fn unmovable(&self) -> Option<Cause> {
        let reclaimable = self.held.slab_reclaimable.known()?;
        let slab = self.held.slab_unreclaimable.known()?.saturating_add(reclaimable);
        let text = format!(
            "{} are slab, {} of it reclaimable: its pages cannot be moved, and stand between those that are free",
            kib(slab),
            kib(reclaimable)
        );
        self.part_of(self.low, CauseKind::Slab, slab, 25, text)
    }

    fn files(&self) -> Option<Cause> {
        let file = self.held.file;
        let written = self.report().nodes.iter().map(|node| node.writeback).sum::<Figure>();
        let state = match written.known() {
            None => "dirty, written, in use, or locked".into(),
            Some(written) if written < file.least() / 4 => format!(
                "no more than {} are dirty or being written: the rest is in use, protected (memory.low), held by a file system, or reclaim went wrong",
                kib(written)
            ),
            Some(written) => format!(
                "{} are dirty or being written, and leave when they are; the rest is in use or locked",
                kib(written)
            ),
        };
        let text = format!(
            "{}{} of file pages are on the lists and still a kill: reclaim failed ({state})",
            at_least(file),
            kib(file.least())
        );
        self.part(CauseKind::Files, file.least(), 10, text).filter(|_| self.is_kill)
    }

    /// What kswapd could have freed for who cannot wait.
    fn waiting(&self, by_pages: bool) -> Option<Cause> {
        let gfp = self.zones.gfp;
        let can_wait = gfp.contains(Gfp::DIRECT_RECLAIM);
        if !by_pages || self.is_kill {
            return None;
        }
        let held = self.held;
        let most = held.file.known()?.saturating_add(held.slab_reclaimable.known().unwrap_or(0));
        let left = |text: &str| {
            format!("{} of file pages and slab can be reclaimed, and {text}", kib(most))
        };
        if is_reclaiming(self.zones) {
            let text = left(
                "the asker is kswapd itself: it does not reclaim for its own request, and __GFP_NOMEMALLOC keeps it from the reserves",
            );
            return Some(Cause::new(CauseKind::CannotWait, most, text));
        }
        let text = match can_wait {
            true if gfp.contains(Gfp::NORETRY) => {
                "the request gives up early (__GFP_NORETRY): ".to_owned()
                    + &left("it reclaimed once; who asks so has another way")
            }
            true => return self.slow(&left),
            false => {
                "the request cannot wait: ".to_owned()
                    + &left("kswapd had not freed enough of it in time")
            }
        };
        // A request that may not wait at all is refused for a little, too.
        let is_some = !can_wait && most >= self.shown / 16;
        if is_some {
            return Some(Cause::new(CauseKind::CannotWait, most, text));
        }
        self.part(CauseKind::CannotWait, most, 10, text)
    }

    /// The same where nothing else is told, and little can be freed soon.
    fn waiting_for_little(&self, by_pages: bool) -> Option<Cause> {
        if !by_pages || self.is_kill || self.zones.gfp.contains(Gfp::DIRECT_RECLAIM) {
            return None;
        }
        let (most, anon) = (self.reclaimable(), self.held.anon.known()?);
        let text = match anon > most {
            true => format!(
                "the request cannot wait, and little can leave soon: {} of file pages and slab, while {} are anonymous ({})",
                kib(most),
                kib(anon),
                self.swap().1
            ),
            false => format!(
                "the request cannot wait: of {} of file pages and slab kswapd had not freed enough in time",
                kib(most)
            ),
        };
        Some(Cause::new(CauseKind::CannotWait, most, text))
    }

    /// What direct reclaim did not free for who could wait.
    fn slow(&self, left: &dyn Fn(&str) -> String) -> Option<Cause> {
        let (report, gfp) = (self.report(), self.zones.gfp);
        let written = report.nodes.iter().map(|node| node.writeback).sum::<Figure>();
        let written = match written.known().filter(|written| *written > 0) {
            Some(written) => format!(" ({} of it dirty or being written)", kib(written)),
            None => String::new(),
        };
        let text = match report.stalled_ms {
            Some(ms) => left(&format!("reclaim{written} took more than {ms} ms")),
            None if !gfp.contains(Gfp::IO) => {
                left(&format!("the request may start no writing (without __GFP_IO){written}"))
            }
            None if !gfp.contains(Gfp::FS) => left(&format!(
                "the request may not enter file systems, which hold most of it (without __GFP_FS){written}"
            )),
            None => left(&format!(
                "reclaim got too little of it{written}, or the task may not reclaim: it does so itself, or is being ended"
            )),
        };
        self.part(CauseKind::Files, self.reclaimable(), 25, text)
    }

    fn huge_pages(&self) -> Option<Cause> {
        let (free, pool) = self.report().hugetlb?;
        let text = format!(
            "{} are in the pool of huge pages, {} of them unused: nobody else gets them",
            kib(pool),
            kib(free)
        );
        self.part(CauseKind::HugePages, pool, 10, text)
    }

    fn page_tables(&self) -> Option<Cause> {
        let report = self.report();
        let all = report.page_table_pages.map_or(0, |pages| self.zones.kib(pages));
        let victim = report.victim.as_ref();
        let of_victim = victim.and_then(|victim| Some((victim, victim.pgtables?)));
        let whose = match of_victim.filter(|(_, tables)| *tables > all / 2) {
            Some((victim, tables)) => format!(
                "{} of them of {} (process {}), which maps much and touched it",
                kib(tables),
                victim.name,
                victim.pid
            ),
            None => "many processes map much, each with its own".into(),
        };
        self.part_of_machine(CauseKind::PageTables, report.page_table_pages, |tables| {
            format!("{tables} are page tables: {whose}")
        })
    }

    fn stacks(&self) -> Option<Cause> {
        let stacks = self.held.kernel_stack.least();
        let text = format!("{} are stacks of threads in the kernel: there are many", kib(stacks));
        self.part_of(self.low, CauseKind::KernelStack, stacks, 10, text)
    }

    /// Whether nothing has been given to the allocator yet.
    fn is_before_boot(&self) -> bool {
        let held = self.held;
        let used = [held.anon, held.file, held.slab_reclaimable, held.slab_unreclaimable];
        let free = self.report().zones.iter().map(|zone| zone.free);
        used.into_iter().chain(free).all(|figure| figure == Figure::exact(0))
    }

    fn unexplained(&self) -> Option<Cause> {
        let unexplained = self.held.unexplained?;
        // Counters of the machine are of nodes that are not shown, too.
        let at_least = if hidden_pages(self.report()) > 0 { "at least " } else { "" };
        let tables = if self.held.page_tables.is_exact() { "" } else { "page tables " };
        if self.is_before_boot() {
            let text = "nothing is free, and nothing is in use by any counter: the allocator has no pages yet, it was asked too early in the boot";
            return Some(Cause::new(CauseKind::Unexplained, unexplained, text.into()));
        }
        let whose = format!("pages that a driver, a balloon, {tables}or the kernel took");
        if !self.zones.has_high_beyond() {
            let text = format!(
                "{at_least}{} no counter of the report explains: {whose}",
                kib(unexplained)
            );
            return self.part(CauseKind::Unexplained, unexplained, 15, text);
        }
        let text = format!(
            "of {} in the zones for this request {} no counter explains: {whose}{}",
            kib(self.low),
            kib(unexplained),
            self.descriptions()
        );
        self.part_of(self.low, CauseKind::Unexplained, unexplained, 15, text)
    }

    /// The descriptions of high memory's pages, which lie below: 32 bytes each at least. Where the rows say what is managed,
    /// they are not part of it.
    fn descriptions(&self) -> String {
        let report = self.report();
        let counts_them = !report.zones.iter().any(|zone| zone.managed.is_exact());
        let taken = report.highmem_pages.filter(|_| counts_them).unwrap_or(0) / 32;
        match taken > self.low / 16 {
            true => format!(
                "; {} or more of it describe the pages of high memory, of which this machine has too much for 32 bits",
                kib(taken)
            ),
            false => String::new(),
        }
    }

    /// What reclaim may not touch: most of it is locked by mlock, or is not.
    fn unevictable(&self) -> Option<Cause> {
        let locked = self.report().zones.iter().map(|zone| zone.mlocked);
        let locked = locked.sum::<Figure>();
        let stuck = self.held.unevictable.least();
        let shown = kib(self.shown);
        if stuck <= locked.least().saturating_mul(2) {
            let locked = locked.least().max(stuck);
            let text =
                format!("{} of {shown} are locked (mlock): they cannot be reclaimed", kib(locked));
            return self.part(CauseKind::Mlocked, locked, 14, text);
        }
        let mlocked = match locked.known() {
            Some(locked) => format!("mlock locked {} of it, the rest is", kib(locked)),
            None => "locked by mlock, or".into(),
        };
        let text = format!(
            "{} of {shown} cannot be reclaimed (unevictable): {mlocked} held by a driver, in ramfs, or shared memory that is locked",
            kib(stuck)
        );
        self.part(CauseKind::Unevictable, stuck, 15, text)
    }
}
