//! Why a request was refused: the cause that decides first, then what stands behind it.

use nearpage::rules::watermarks::AllocFlags;
use nearpage::{Gfp, Order};
use nearpage_machine::size;

use crate::cause::{Cause, CauseKind, kib};
use crate::figure::{Figure, Side};
use crate::filled;
use crate::held::NoProgress;
use crate::judge::{Answer, Judgement, Rule, ZoneVerdict};
use crate::piece::numbers;
use crate::report::{FreeBlocks, Kind, Limit, Memcg, Reached, Report, Task, ZoneRow};
use crate::verdict::{Verdict, is_vmalloc_of_addresses, large_blocks};
use crate::zones::{Excluded, Figures, Mark, Zones, hidden_pages};

/// The causes of a report: the one that decides first, then what fills memory, the largest first.
pub(crate) fn of(zones: &Zones<'_>, verdict: &Verdict, held: &NoProgress) -> Vec<Cause> {
    let report = zones.report;
    if report.is_forced {
        let text = "fault injection, a test of the kernel (failslab, fail_page_alloc), forced a failure right before: no memory need have been short";
        return vec![Cause::new(CauseKind::Forced, None, text.into())];
    }
    if report.kind == Kind::Slub {
        return of_slub(report).or_else(|| of_first_line(zones, verdict)).into_iter().collect();
    }
    if verdict.rule == Rule::Memcg {
        return of_memcg(report);
    }
    let is_of_area = matches!(verdict.rule, Rule::AreaTooLarge | Rule::EmptyArea);
    if is_vmalloc_of_addresses(report) || is_of_area {
        return vec![of_addresses(report, verdict)];
    }
    if verdict.rule == Rule::NoRequest {
        return of_no_request(zones, verdict, held);
    }
    if let Some(cause) = of_first_line(zones, verdict) {
        return vec![cause];
    }
    // Where a small zone gives, what the large one says tells more.
    let refused = verdict.refusal_of_main();
    let gives_little = refused.is_some();
    let passed = verdict;
    let verdict = refused.as_ref().unwrap_or(verdict);
    let row = verdict.row(report);
    // What raised the mark tells more than the reserve that it made decide.
    let is_of_urgent = verdict.rule == Rule::HighatomicReserve;
    let sought = Sought { report, verdict, zones, row };
    let mut causes: Vec<Cause> = [
        sought.confined(),
        sought.no_zone(),
        sought.too_large(),
        sought.wrong_mark(),
        sought.hidden_policy(),
        sought.cma(),
        sought.empty_lists(),
        sought.blocks(),
        sought.boost().filter(|_| is_of_urgent),
        sought.highatomic(),
        sought.reserve(),
        sought.elsewhere(),
        sought.slab_of_zone(),
        sought.unmanaged(),
        sought.boost().filter(|_| !is_of_urgent),
        sought.late(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let filled = filled::of(zones, verdict, held);
    let of_low = |cause: &Cause| {
        cause.kib.is_some_and(|kib| kib > filled::low_kib(report).unwrap_or(u64::MAX) / 2)
    };
    // A small reserve or a boost tips a kill; what fills memory is why it came to that, unless it could have left.
    let stays = |cause: &&Cause| {
        use CauseKind::{Anonymous, Files, ReclaimableSlab};
        !matches!(cause.kind, Anonymous | Files | ReclaimableSlab)
    };
    let most = filled.first().filter(stays).and_then(|cause| cause.kib).unwrap_or(0);
    let tips = |cause: &mut Cause| {
        use CauseKind::{Boost, Cma, Highatomic, LowmemReserve};
        let raises = matches!(cause.kind, Boost | Cma | Highatomic | LowmemReserve);
        report.kind == Kind::Oom
            && raises
            && cause.kib.is_some_and(|kib| kib.saturating_mul(4) <= most)
    };
    let tipping: Vec<Cause> = causes.extract_if(.., tips).collect();
    // High memory is free on each machine whose kernel has filled what is below.
    let is_first = zones.has_high_beyond() && filled.first().filter(stays).is_some_and(of_low);
    let at = if is_first { 0 } else { causes.len() };
    causes.splice(at..at, filled);
    causes.extend(tipping);
    if report.kind == Kind::Oom {
        causes.extend(sought.task());
    }
    if gives_little {
        let row = passed.row(report);
        causes.extend(Sought { report, verdict: passed, zones, row }.late());
    } else if let Some(at) = causes.iter().position(|cause| cause.kind == CauseKind::Late) {
        // Memory that nobody gives back is why, also where a zone would give again.
        let is_full = report.kind == Kind::Oom
            && !sought.is_over()
            && causes.get(at + 1).is_some_and(|next| stays(&next));
        let late = causes.remove(at);
        causes.insert(if is_full { causes.len() } else { at }, late);
    }
    causes
}

/// A kill for which no request is known.
fn of_no_request(zones: &Zones<'_>, verdict: &Verdict, held: &NoProgress) -> Vec<Cause> {
    let report = zones.report;
    let group = report.memcg.as_ref();
    let text = match (group.and_then(|memcg| Some((memcg, memcg.usage?))), report.is_sysrq) {
        (Some((memcg, usage)), _) => {
            let name = memcg.path.as_deref().unwrap_or("the group");
            format!(
                "{name} has no limit that it could reach ({} used): the kill was asked for, by a program or a setting",
                kib(usage)
            )
        }
        (None, true) => "somebody asked for a kill (sysrq f): nothing was refused".into(),
        (None, false) => "no request is known, there are no flags: a page fault that got no page before calls the OOM killer so, or a program asked for a kill; what was refused is not in the report".into(),
    };
    let mut causes = vec![Cause::new(CauseKind::NoRequest, None, text)];
    let gives =
        !report.is_sysrq && verdict.zones.iter().any(|zone| zone.at_min.answer == Answer::Passes);
    let free = report.zones.iter().map(|zone| zone.free).sum::<Figure>();
    let free = report.free_pages.map_or(free.least(), |pages| zones.kib(pages));
    if gives && group.is_none() {
        let text = format!(
            "{} are free, and zones are above their marks: for the machine a false OOM",
            kib(free)
        );
        causes.push(Cause::new(CauseKind::Elsewhere, free, text));
    }
    causes.extend(group.into_iter().flat_map(|memcg| memcg_parts(report, memcg)));
    // How near the end memory was.
    let is_end = |cause: &Cause| matches!(cause.kind, CauseKind::NoSwap | CauseKind::SwapFull);
    causes.extend(filled::of(zones, verdict, held).into_iter().filter(is_end));
    causes
}

fn of_memcg(report: &Report) -> Vec<Cause> {
    let Some(memcg) = &report.memcg else {
        let text = "a cgroup's limit: its lines are not there".into();
        return vec![Cause::new(CauseKind::MemcgLimit, None, text)];
    };
    let block = report.page_kib() << report.order.unwrap_or(0).min(20);
    let group = memcg.path.as_deref().unwrap_or("a group");
    let told = |Limit { usage, limit }: Limit| match kib(usage) == kib(limit) && usage != limit {
        // Rounded they would seem equal.
        true => format!("{usage} of {limit} KiB ({})", kib(limit)),
        false => format!("{} of {}", kib(usage), kib(limit)),
    };
    let memory = memcg.usage.zip(memcg.limit).map(|(usage, limit)| Limit { usage, limit });
    if let Some((usage, missing)) = memcg.usage.zip(memcg.below_zero()) {
        let text = format!(
            "the usage of {group} is no number of KiB ({usage}, {} below zero): a count went wrong in the kernel, and any charge exceeds any limit",
            kib(missing)
        );
        return vec![Cause::new(CauseKind::WrongCount, None, text)];
    }
    let mut causes = Vec::new();
    causes.push(match (memcg.reached(block), memory, memcg.memory_and_swap) {
        (Reached::MemoryAndSwap, memory, Some(both)) => {
            let rest = memory.map_or(String::new(), |memory| {
                format!(
                    "; that of memory is not the reason: {} are left",
                    kib(memory.limit.saturating_sub(memory.usage))
                )
            });
            let text = format!(
                "the limit of memory and swap together of {group}: {} used{rest}",
                told(both)
            );
            Cause::new(CauseKind::MemcgSwapLimit, both.limit, text)
        }
        (_, Some(memory), _) => {
            let rest = memcg.came_back().map_or(String::new(), |left| {
                format!(
                    "; {} are left: it was reached before, and memory came back until these numbers were read (an end of a process)",
                    kib(left)
                )
            });
            let text = format!("the limit of memory of {group}: {} used{rest}", told(memory));
            Cause::new(CauseKind::MemcgLimit, memory.limit, text)
        }
        _ => {
            let text = format!("a limit of {group}: usage and limit are not in the lines");
            Cause::new(CauseKind::MemcgLimit, None, text)
        }
    });
    let left = memcg.left_with_swap().filter(|_| memcg.reached(block) == Reached::Memory);
    if let Some((left, both)) = left.zip(memcg.memory_and_swap) {
        let text = format!(
            "its limit of memory and swap together is reached as well: {} used, {} left: nothing can be swapped out for more",
            told(both),
            kib(left)
        );
        causes.push(Cause::new(CauseKind::MemcgSwapLimit, both.limit, text));
    }
    if let Some(task) = memcg.task.as_ref().filter(|_| memcg.is_parent()) {
        let text = format!("the limit is of a group above that of the task, which is {task}");
        causes.push(Cause::new(CauseKind::MemcgParent, None, text));
    }
    causes.extend(memcg_parts(report, memcg));
    causes.extend(memcg_task(report, memcg));
    // Memory of files can leave: what it waits for tells more than the limit.
    let unwritten = causes.iter().position(|cause| cause.kind == CauseKind::Files);
    if let Some(at) = unwritten.filter(|_| memcg.is_unwritten()) {
        let files = causes.remove(at);
        causes.insert(0, files);
    }
    causes
}

/// The task that has most of a group's memory.
fn memcg_task(report: &Report, memcg: &Memcg) -> Option<Cause> {
    let task = report.tasks.first()?;
    let size = task.pages().saturating_mul(report.page_kib());
    let alike = named_alike(report, size);
    (size > memcg.usage.unwrap_or(0) / 4 || !alike.is_empty()).then(|| {
        let text = format!(
            "the largest of its {} tasks is {}{alike}",
            report.tasks_listed,
            told(report, task)
        );
        Cause::new(CauseKind::Task, size, text)
    })
}

/// A task with its memory.
fn told(report: &Report, task: &Task) -> String {
    let size = |pages: u64| kib(pages.saturating_mul(report.page_kib()));
    let swapped = match task.swap_pages {
        0 => String::new(),
        pages => format!(" and {} in swap", size(pages)),
    };
    format!("{} (process {}) with {} resident{swapped}", task.name, task.pid, size(task.rss_pages))
}

/// What a group's memory is, if most of it is not what its programs hold.
fn memcg_parts(report: &Report, memcg: &Memcg) -> Vec<Cause> {
    let (kernel, tables) = (report.kernel_of_group(), report.tables_of_group());
    // Without the lines of the limit the counters tell what there was.
    let counted = || [memcg.anonymous(), memcg.file, kernel].into_iter().flatten().sum();
    let usage: u64 = memcg.usage.unwrap_or_else(counted);
    if usage == 0 {
        return Vec::new();
    }
    let part = |kind, part: Option<u64>, rest: &str| {
        let part = part.filter(|part| part.saturating_mul(100) / usage >= 30)?;
        let text = format!("{} of the {} are {rest}", kib(part), kib(usage));
        Some(Cause::new(kind, part, text))
    };
    let files = memcg.file.map(|file| file.saturating_sub(memcg.shmem.unwrap_or(0)));
    let state = match (memcg.dirty, memcg.writeback) {
        (Some(dirty), Some(writeback)) => {
            format!(", {} of it dirty and {} being written", kib(dirty), kib(writeback))
        }
        _ => String::new(),
    };
    let why = match memcg.is_unwritten() {
        true => ": nobody writes it, and it cannot leave before",
        false => ", and reclaim did not free it",
    };
    let swap = match memcg.swap {
        Some(swap) if swap.refuses(1) => "; its limit of swap is reached",
        _ => "",
    };
    let cached = memcg.swapcached.filter(|cached| *cached > usage / 8);
    let cached = cached.map_or(String::new(), |cached| {
        format!(
            ", {} of it in the swap cache: it takes memory and swap both, and cannot leave where swap is full",
            kib(cached)
        )
    });
    let parts = [
        part(
            CauseKind::MemcgKernel,
            kernel,
            match tables > kernel.unwrap_or(0) / 2 {
                true => "the kernel's memory for the group, most of it page tables of its tasks",
                false => {
                    "the kernel's memory for the group (slab, stacks, page tables): no task of it holds them, and a kill frees few"
                }
            },
        ),
        part(
            CauseKind::MemcgSockets,
            memcg.sockets,
            "buffers of sockets: its connections hold them, no heap of a program does",
        ),
        part(CauseKind::Files, files, &format!("memory of files{state}{why}")),
        part(
            CauseKind::Shmem,
            memcg.shmem,
            &format!("tmpfs and shared memory: a kill frees none of a file in tmpfs{swap}"),
        ),
        part(
            CauseKind::Anonymous,
            memcg.anonymous(),
            &format!("anonymous memory of its tasks{cached}{swap}"),
        ),
    ];
    let mut causes: Vec<Cause> = parts.into_iter().flatten().collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.kib));
    causes
}

fn of_slub(report: &Report) -> Option<Cause> {
    let group = report.group_of_cache()?;
    let text = format!(
        "the cache is that of the cgroup {group}: its limit (of memory, or of kernel memory) refused the object's page, and no zone was asked, unless a page allocation failure stands before it in the log"
    );
    Some(Cause::new(CauseKind::MemcgCache, None, text))
}

/// What follows from the first line alone, where no zone is shown: a single page is refused by marks, and by nothing else.
fn of_first_line(zones: &Zones<'_>, verdict: &Verdict) -> Option<Cause> {
    let report = zones.report;
    let order = match (report.kind, &report.slub) {
        (Kind::Failure, _) => report.order?,
        (Kind::Vmalloc, _) if report.failed.as_deref()?.ends_with("failed to allocate pages") => {
            report.order?
        }
        (Kind::Slub, Some(slub)) => slub.orders?.1,
        _ => return None,
    };
    let has_no_rows = report.zones.is_empty() && report.nodes.is_empty();
    if !has_no_rows || report.mode.is_cut || verdict.rule != Rule::Unknown {
        return None;
    }
    let (mark, _) = verdict.rights.split_once(':').unwrap_or((&verdict.rights, ""));
    let free = report.free_pages.map(|free| kib(zones.kib(free)));
    let mut text = match order {
        0 if free.is_some() && report.ram_pages.is_some() => format!(
            "a single page was refused, and no zone is shown, though {} are free: no zone that it may use has memory (early in the boot, or addresses that this machine has not), or rows were lost",
            free.clone().unwrap_or_default()
        ),
        0 if zones.flags.contains(AllocFlags::NO_WATERMARKS) => {
            "a single page was refused to who may ignore the marks: the zones for it had none free"
                .into()
        }
        0 => format!(
            "a single page was refused, so blocks are not why: what the zones for it had free was not above {mark} and their reserves"
        ),
        1..=3 => format!(
            "a block of order {order} ({}) was refused: too few pages were free, or too few of them lay together",
            kib(zones.kib(1 << order))
        ),
        _ => format!(
            "a block of order {order} ({}) was refused: above order 3 the kernel gives up early, also where pages enough are free and do not lie together",
            kib(zones.kib(1 << order.min(31)))
        ),
    };
    if !zones.gfp.contains(Gfp::DIRECT_RECLAIM) {
        text += "; the request could not wait for reclaim";
    }
    if let Some(free) = free.filter(|_| report.ram_pages.is_none()) {
        text += &format!(
            "; {free} were free in all zones of the machine, of which it may use those up to {}",
            zones.highest_name()
        );
    }
    Some(Cause::new(CauseKind::NoFigures, None, text))
}

fn of_addresses(report: &Report, verdict: &Verdict) -> Cause {
    let told = || numbers(report.failed.as_deref()?).find(|bytes| *bytes >= 4096);
    let bytes = told().or(report.area.filter(|_| verdict.rule == Rule::AreaTooLarge));
    let area =
        bytes.map_or("the area".into(), |bytes| format!("the area of {}", size::format(bytes)));
    let text = match verdict.rule {
        Rule::EmptyArea => {
            let text = "an area of no size was asked for: vmalloc refuses it before it asks for anything, and no memory was short; who asked came to a size of 0";
            return Cause::new(CauseKind::EmptyArea, None, text.into());
        }
        Rule::AreaTooLarge if bytes.is_some_and(|bytes| bytes >= 1 << 63) => format!(
            "the size of the area is below zero ({}, as a number with a sign): who asked computed it wrongly, and no zone was asked",
            bytes.unwrap_or(0).cast_signed()
        ),
        Rule::AreaTooLarge => format!("{area} is larger than all memory: no zone was asked"),
        _ => format!(
            "{area} found no room among vmalloc's addresses (vmalloc= at boot, /proc/vmallocinfo): addresses, not pages, and no zone was asked"
        ),
    };
    Cause::new(CauseKind::Addresses, bytes.map(|bytes| bytes / 1024), text)
}

struct Sought<'a> {
    report: &'a Report,
    verdict: &'a Verdict,
    zones: &'a Zones<'a>,
    row: Option<&'a ZoneRow>,
}

impl Sought<'_> {
    fn pages(&self, pages: u64) -> String {
        format!("{} ({pages} pages)", kib(self.zones.kib(pages)))
    }

    /// Free pages of the machine that are in none of the zones shown.
    fn free_elsewhere(&self) -> Option<u64> {
        let shown = self.report.zones.iter().map(|zone| self.zones.pages(zone.free));
        let shown = shown.sum::<Figure>().known()?;
        // Where all zones are there, the counters are of two instants.
        let size = self.report.zones.iter().map(|zone| zone.present).sum::<Figure>();
        let has_all = size.is_exact() && self.report.ram_pages.is_some();
        if has_all && hidden_pages(self.report) == 0 {
            return None;
        }
        let hidden = self.report.free_pages?.saturating_sub(shown);
        // Counters of one instant and of another differ by less.
        (!self.report.zones.is_empty() && hidden > 1024 && hidden > shown / 64).then_some(hidden)
    }

    /// Where the kernel says that a policy or a cpuset confines the request, and not what is free beyond.
    fn confined(&self) -> Option<Cause> {
        let (by, nodes) = match self.report.constraint.as_deref()? {
            "CONSTRAINT_MEMORY_POLICY" => ("a policy (numactl, mbind)", &self.report.nodemask),
            "CONSTRAINT_CPUSET" => ("a cpuset", &self.report.mems_allowed),
            _ => return None,
        };
        let nodes = nodes.as_deref().map_or("some nodes".into(), |nodes| {
            format!("node {}", nearpage_machine::idlist::format(nodes))
        });
        if self.verdict.rule == Rule::NoZone || self.elsewhere().is_some() {
            return None;
        }
        let hidden = self.verdict.confined_by.as_ref().map_or(0, |by| by.hidden_pages);
        let all = self.report.free_pages.filter(|_| self.report.zones.is_empty());
        let beyond = match (self.free_elsewhere(), hidden) {
            _ if all.is_some() => format!(
                "no zone of it is shown: it has no memory now, or rows were lost; the machine has {} free",
                self.pages(all.unwrap_or(0))
            ),
            (Some(free), _) => format!("{} are free on others", self.pages(free)),
            (None, 0) => "what others have the report does not tell".into(),
            (None, pages) => format!(
                "others have {}, and how much of it is free the report does not tell",
                kib(self.zones.kib(pages))
            ),
        };
        let text = format!("the kernel says that {by} confines the request to {nodes}: {beyond}");
        Some(Cause::new(
            CauseKind::Elsewhere,
            self.free_elsewhere().map(|free| self.zones.kib(free)),
            text,
        ))
    }

    fn no_zone(&self) -> Option<Cause> {
        if self.verdict.rule != Rule::NoZone {
            return None;
        }
        let highest = &self.verdict.highest_zone;
        let Some(first) = self.report.zones.first() else {
            let free = self.pages(self.report.free_pages?);
            let text = format!(
                "no zone is shown: there is no memory up to the end of {highest}, where the flags want it, and {free} are free above; unless rows were lost"
            );
            return Some(Cause::new(CauseKind::NoZone, None, text));
        };
        let mut nodes = vec![first.node];
        nodes.extend(self.report.zones.iter().map(|zone| zone.node));
        nodes.dedup();
        let nodes = nearpage_machine::idlist::format(&nodes);
        let movable = match highest.as_str() {
            "Movable" => "",
            _ => "without __GFP_MOVABLE and __GFP_HIGHMEM ",
        };
        let elsewhere = self.free_elsewhere().map_or(String::new(), |pages| {
            format!("; {} are free on nodes that it may not use, one of which with a zone for it would help", self.pages(pages))
        });
        let text = format!(
            "no zone can be asked: {movable}its zones end at {highest}, and node {nodes}, to which it is confined, has none of those{elsewhere}"
        );
        Some(Cause::new(CauseKind::NoZone, None, text))
    }

    /// More than all memory, in one piece; of vmalloc, more than half of it.
    fn too_large(&self) -> Option<Cause> {
        if let Some(cause) = self.large_area() {
            return Some(cause);
        }
        let asked = |zone: &&ZoneRow| self.zones.excluded(zone).is_none();
        let size = |zone: &ZoneRow| zone.managed.known().or(zone.present.known()).into();
        let zones = self.report.zones.iter().filter(asked).map(size).sum::<Figure>().known()?;
        let block = self.zones.kib(self.zones.order.pages().0);
        (zones > 0 && block > zones).then(|| {
            let text = format!(
                "{} are asked for in one piece, and the zones for this request have {} in all: nothing that is set or freed gives it",
                kib(block),
                kib(zones)
            );
            Cause::new(CauseKind::TooLarge, block, text)
        })
    }

    /// Free blocks of CMA alone, of a zone whose figures were lost.
    fn cma_alone(&self) -> Option<Cause> {
        let row = self.row.filter(|row| !row.free.is_exact() && !self.zones.may_use_cma())?;
        let blocks = || row.blocks.iter().filter(|blocks| blocks.count > 0);
        let is_cma = |blocks: &FreeBlocks| blocks.types.as_deref() == Some("C");
        (blocks().next().is_some() && blocks().all(is_cma)).then(|| {
            let free = blocks().map(|blocks| blocks.count.saturating_mul(blocks.kib));
            let free = free.fold(0, u64::saturating_add);
            let text = format!(
                "all free blocks of {} of node {} ({}) are CMA, which only movable requests may use",
                row.name,
                row.node,
                kib(free)
            );
            Cause::new(CauseKind::Cma, free, text)
        })
    }

    fn large_area(&self) -> Option<Cause> {
        let area = self.report.area? / 1024;
        let all = self.zones.kib(self.report.ram_pages?);
        (self.report.kind == Kind::Vmalloc && area > all / 2).then(|| {
            let text = format!(
                "an area of {} is asked for, and the machine has {} in all",
                kib(area),
                kib(all)
            );
            Cause::new(CauseKind::TooLarge, area, text)
        })
    }

    fn cma(&self) -> Option<Cause> {
        if let Some(cause) = self.cma_alone() {
            return Some(cause);
        }
        let row = self.row?;
        let judgement = self.judgement()?;
        let cma = self.zones.free_cma(row);
        let free = self.zones.pages(row.free).known()?;
        // Without CMA there would be enough, or it is most of what is free.
        let at_min = self.verdict.of_row()?.at_min.needed.least();
        let by_pages = !matches!(self.verdict.rule, Rule::NoBlock | Rule::OrderTooLarge);
        let figures = self.zones.figures(row, Mark::Min);
        let with_cma = Figures { cma: Figure::exact(0), ..figures };
        let would_pass = || self.zones.passes(row, &with_cma, Side::Best);
        let decides = cma.least() > 0
            && (by_pages && free >= at_min.min(judgement.needed.least()) && would_pass()
                || cma.least() >= free / 2);
        // What is little decides nothing that is open.
        let decides = decides && (judgement.answer != Answer::Open || cma.least() >= free / 10);
        let counts = judgement.free.most() < free;
        (decides && counts && judgement.answer != Answer::Passes).then(|| {
            let cma_kib = self.zones.kib(cma.least());
            let at_least = if cma.is_exact() { "" } else { "at least " };
            let text = format!(
                "of {} free in {} of node {} {at_least}{} are CMA, which {}",
                self.pages(free),
                row.name,
                row.node,
                self.pages(cma.least()),
                match self.zones.may_use_cma() {
                    true => "the last try before a kill leaves out, also for a movable request",
                    false => "only movable requests may use",
                }
            );
            Cause::new(CauseKind::Cma, cma_kib, text)
        })
    }

    fn judgement(&self) -> Option<&Judgement> {
        Some(self.verdict.of_row()?.at(self.verdict.mark))
    }

    /// A mark that no free pages reach.
    fn wrong_mark(&self) -> Option<Cause> {
        let row = self.row.filter(|row| self.zones.has_wrong_mark(row))?;
        let told = |figure: Figure| figure.known().map_or("unknown".into(), kib);
        let text = format!(
            "the marks of {} of node {} are no marks: min is {}, the zone has {} and manages {}: a count of its pages went wrong in the kernel",
            row.name,
            row.node,
            told(row.min),
            told(row.present),
            told(row.managed)
        );
        Some(Cause::new(CauseKind::WrongMark, None, text))
    }

    /// A policy that may be there.
    fn hidden_policy(&self) -> Option<Cause> {
        if !self.verdict.depends_on.contains(&"policy") {
            return None;
        }
        let asked = || self.verdict.zones.iter().filter(|zone| zone.excluded.is_none());
        let gives = |zone: &ZoneVerdict| zone.at_min.answer == Answer::Passes;
        let giving = |node| asked().any(|zone| zone.node == node && gives(zone));
        let nodes = |is_giving: bool| {
            let nodes = asked().map(|zone| zone.node).filter(|node| giving(*node) == is_giving);
            let mut nodes: Vec<u32> = nodes.collect();
            nodes.dedup();
            nearpage_machine::idlist::format(&nodes)
        };
        let free = asked().filter(|zone| gives(zone)).map(|zone| zone.at_min.free.least());
        let free = free.fold(0, u64::saturating_add);
        let text = format!(
            "node {} gives nothing, and {} are free on node {}: either memory came back, or a policy (numactl, mbind) kept the request from there, which this kernel does not print",
            nodes(false),
            self.pages(free),
            nodes(true)
        );
        Some(Cause::new(CauseKind::HiddenPolicy, self.zones.kib(free), text))
    }

    /// Whether no zone that may be asked has a block that is large enough.
    fn lacks_blocks(&self) -> bool {
        let is_asked = |zone: &&ZoneRow| self.zones.excluded(zone).is_none();
        let has_block = |zone: &ZoneRow| {
            self.zones.has_any_block(zone, self.zones.order, self.zones.flags, Side::Best)
        };
        self.zones.order > Order(0) && !self.report.zones.iter().filter(is_asked).any(has_block)
    }

    /// Whether a zone has memory that could be reclaimed, and no block that is large enough.
    fn is_fragmented(&self, row: &ZoneRow) -> bool {
        let has_files = row.file.least() > row.managed.most() / 8;
        let order = self.zones.order;
        order > Order(0)
            && has_files
            && !self.zones.has_any_block(row, order, self.zones.flags, Side::Best)
    }

    fn empty_lists(&self) -> Option<Cause> {
        let row = self.row?;
        let free = self.zones.pages(row.free).least();
        // Of a zone that was never given its pages nothing can be free.
        let is_refused = self.report.kind == Kind::Failure
            && self.verdict.rule == Rule::Watermark
            && self.unmanaged().is_none();
        if row.free == Figure::exact(0) && row.has_empty_lists() && is_refused {
            let nodes = || self.report.nodes.iter().filter(|node| node.node == row.node);
            let both = nodes().map(|node| node.writeback.least()).fold(0, u64::saturating_add);
            let dirty = nodes().map(|node| node.dirty.least()).fold(0, u64::saturating_add);
            let written = match (dirty, both.saturating_sub(dirty)) {
                (0, 0) => String::new(),
                (0, written) => {
                    format!("; {} are being written, and can leave only then", kib(written))
                }
                (dirty, 0) => {
                    format!("; {} are dirty, and can leave only when they are written", kib(dirty))
                }
                (dirty, written) => format!(
                    "; {} are dirty and {} being written, and can leave only then",
                    kib(dirty),
                    kib(written)
                ),
            };
            let text = format!(
                "no page of {} of node {} is free: not even who may ignore the marks, as reclaim itself does, gets one{written}",
                row.name, row.node
            );
            return Some(Cause::new(CauseKind::EmptyLists, 0, text));
        }
        // Where too few are free anyway, it matters to nobody.
        let by_pages = matches!(self.verdict.rule, Rule::Watermark | Rule::LowmemReserve);
        (row.has_empty_lists() && free > 0 && !by_pages && self.verdict.answer != Answer::Passes).then(|| {
            let text = format!(
                "no page is on a free list of {} of node {}: the counter has {}, of which CPUs have yet to take off what they hold back",
                row.name,
                row.node,
                self.pages(free)
            );
            Cause::new(CauseKind::EmptyLists, None, text)
        })
    }

    /// Whether a zone would give a single page.
    fn gives_a_page(&self) -> bool {
        let gives = |zone: &ZoneVerdict| zone.excluded.is_none() && zone.gives_order.is_some();
        self.verdict.zones.iter().any(gives)
    }

    fn blocks(&self) -> Option<Cause> {
        match self.verdict.rule {
            Rule::NoBlock | Rule::OrderTooLarge => {}
            Rule::Unknown if self.verdict.depends_on.contains(&"blocks") => return self.no_rows(),
            // Of a zone whose own row was left out the blocks tell enough.
            Rule::Unknown
                if self.verdict.answer == Answer::Refused
                    && self.lacks_blocks()
                    && self.row.is_some_and(|row| row.has_all_blocks) => {}
            // More pages would not help.
            Rule::HighatomicReserve | Rule::LowmemReserve if self.lacks_blocks() => {}
            // Memory could be reclaimed, and still there would be no block.
            Rule::Watermark
                if self.report.kind == Kind::Oom
                    && self.row.is_some_and(|row| self.is_fragmented(row)) => {}
            _ => return None,
        }
        let row = self.row?;
        let order = self.zones.order.0;
        let largest = row.blocks.iter().rposition(|blocks| blocks.count > 0);
        let largest = largest.map_or(String::new(), |order| {
            format!(
                "; the largest free block is {} (order {order})",
                kib(self.zones.kib(1 << order))
            )
        });
        let (may, locked) = large_blocks(self.zones, row);
        let locked = match locked {
            0 => String::new(),
            blocks => format!("; {blocks} large enough are for CMA, urgent requests or isolated"),
        };
        let in_blocks = || {
            let sizes = row.blocks.iter().map(|blocks| blocks.count.saturating_mul(blocks.kib));
            Figure::exact(sizes.fold(0, u64::saturating_add))
        };
        let free = if row.free.is_exact() { row.free } else { in_blocks() };
        let free = self.zones.pages(free);
        let block = format!("order {order} ({})", kib(self.zones.kib(1 << order.min(31))));
        let lack = match may {
            0 => format!("no block of {block} for this request"),
            may => format!(
                "of blocks of {block} and more only {may}: this kernel (before 4.4) keeps a part of the mark in blocks of each order"
            ),
        };
        let single = match self.report.kind {
            Kind::Vmalloc if self.gives_a_page() => {
                "; vmalloc takes single pages then, which are there: as a rule nothing but the warning comes of it"
            }
            _ => "",
        };
        let text = format!(
            "fragmentation: {} free in {} of node {}, and {lack}{largest}{locked}{single}",
            free.known().map_or("an unknown number of pages is".into(), |free| self.pages(free)),
            row.name,
            row.node,
        );
        Some(Cause::new(CauseKind::Fragmentation, row.free.known(), text))
    }

    /// Fragmentation by exclusion: pages enough are free, a block was refused, and the rows of blocks are missing.
    fn no_rows(&self) -> Option<Cause> {
        let row = self.row?;
        let order = self.zones.order.0;
        let is_told = self.report.kind == Kind::Failure && order > 0;
        let zone = self.verdict.of_row()?;
        let has_pages = zone.at_min.free.least() >= zone.at_min.needed.least();
        let gives_a_page = zone.gives_order.is_some() || has_pages;
        (is_told && gives_a_page && !row.has_all_blocks).then(|| {
            let free = self.zones.pages(row.free);
            let text = format!(
                "fragmentation, by exclusion: {} free in {} of node {} are enough for single pages, and a block of order {order} ({}) was refused; the rows of free blocks are missing, or cut",
                free.known().map_or("an unknown number of pages".into(), |free| self.pages(free)),
                row.name,
                row.node,
                kib(self.zones.kib(1 << order.min(31))),
            );
            Cause::new(CauseKind::Fragmentation, row.free.known(), text)
        })
    }

    fn highatomic(&self) -> Option<Cause> {
        let row = self.row?;
        let has_letter = row.blocks.iter().filter_map(|blocks| blocks.types.as_ref());
        let has_letter = has_letter.into_iter().any(|types| types.contains('H'));
        let has_pages =
            self.verdict.rule == Rule::HighatomicReserve || self.verdict.depends_on == ["free_pcp"];
        if has_letter && has_pages && !self.zones.may_take_any(row, self.zones.flags) {
            let text = format!(
                "all free blocks of {} of node {} that this request could take are reserved for urgent requests of higher order (H): of {} free none is for it",
                row.name,
                row.node,
                self.pages(self.zones.pages(row.free).least())
            );
            return Some(Cause::new(CauseKind::Highatomic, row.free.known(), text));
        }
        if self.verdict.depends_on == ["reserved_highatomic"] {
            let judgement = self.judgement()?;
            let text = format!(
                "whether it passes depends on how much of {} of node {} is reserved for urgent requests of higher order, which this kernel does not print: {} are free, {} needed without any",
                row.name,
                row.node,
                self.pages(judgement.free.least()),
                self.pages(self.zones.needed(&self.without_urgent(row), Side::Best)),
            );
            return Some(Cause::new(CauseKind::Highatomic, None, text));
        }
        if self.verdict.rule != Rule::HighatomicReserve {
            return None;
        }
        let urgent = self.zones.figures(row, self.verdict.mark).urgent;
        let at_least = if urgent.is_exact() { "" } else { "at least " };
        let text = format!(
            "{at_least}{} of {} of node {} are reserved for urgent requests of higher order{}",
            self.pages(urgent.least()),
            row.name,
            row.node,
            if urgent.is_exact() {
                ""
            } else {
                ": free blocks of that type (H) prove it, this kernel does not print how many"
            }
        );
        Some(Cause::new(CauseKind::Highatomic, self.zones.kib(urgent.least()), text))
    }

    fn without_urgent(&self, row: &ZoneRow) -> Figures {
        Figures { urgent: Figure::exact(0), ..self.zones.figures(row, self.verdict.mark) }
    }

    fn reserve(&self) -> Option<Cause> {
        if self.verdict.rule != Rule::LowmemReserve {
            return None;
        }
        let row = self.row?;
        let kept = self.zones.figures(row, self.verdict.mark).reserve.known()?;
        let text = format!(
            "{} of node {} keeps {} from requests that could have used {}",
            row.name,
            row.node,
            self.pages(kept),
            self.zones.highest_name()
        );
        Some(Cause::new(CauseKind::LowmemReserve, self.zones.kib(kept), text))
    }

    /// What is free and may not be used.
    fn elsewhere(&self) -> Option<Cause> {
        if matches!(self.verdict.rule, Rule::NoZone | Rule::Passes) {
            return None;
        }
        let why = |by| match by {
            Some(Excluded::Policy) => "on nodes that the policy forbids",
            Some(Excluded::Cpuset) => "on nodes outside the cpuset",
            Some(Excluded::ThisNode) => "on other nodes, and __GFP_THISNODE asks for one",
            Some(Excluded::Kind) => "in zones that its flags do not allow",
            None => "on nodes or in zones that are not shown",
        };
        let mut free: Vec<(Option<Excluded>, u64)> = Vec::new();
        let mut add = |by, pages: u64| match free.iter_mut().find(|(of, _)| *of == by) {
            Some((_, sum)) => *sum = sum.saturating_add(pages),
            None => free.push((by, pages)),
        };
        if let Some(hidden) = self.free_elsewhere() {
            add(self.verdict.confined_by.as_ref().map(|confined| confined.by), hidden);
        }
        let gives = |zone: &&ZoneVerdict| zone.at_min.answer == Answer::Passes;
        // Flags that were cut allow nobody knows which zones.
        let is_known = |zone: &&ZoneVerdict| {
            zone.excluded.is_some_and(|by| by != Excluded::Kind || !self.report.mode.is_cut)
        };
        let is_much = |zone: &&ZoneVerdict| !zone.gives_little();
        for zone in self.verdict.zones.iter().filter(is_known).filter(gives).filter(is_much) {
            add(zone.excluded, zone.at_min.free.least());
        }
        // What is free for CMA there is free for the requests that may go there.
        let is_of_cma = |zone: &&ZoneVerdict| zone.excluded == Some(Excluded::Kind) && !gives(zone);
        for zone in self.verdict.zones.iter().filter(is_known).filter(is_of_cma) {
            let is_row = |row: &&ZoneRow| row.node == zone.node && row.name == zone.zone;
            let Some(row) = self.report.zones.iter().find(is_row) else { continue };
            let has_more = row.free.least() > row.high.most() && row.free_cma.least() > 0;
            add(zone.excluded, if has_more { self.zones.pages(row.free).least() } else { 0 });
        }
        let told = |(by, pages): &(_, u64)| format!("{} are free {}", self.pages(*pages), why(*by));
        let told: Vec<String> = free.iter().filter(|(_, pages)| *pages > 0).map(told).collect();
        let pages = free.iter().map(|(_, pages)| *pages).fold(0, u64::saturating_add);
        (pages > 0)
            .then(|| Cause::new(CauseKind::Elsewhere, self.zones.kib(pages), told.join(", ")))
    }

    fn boost(&self) -> Option<Cause> {
        let row = self.row?;
        let (boost, min) = (self.zones.kib(self.zones.boost(row).least()), row.min.known()?);
        let is_most = boost >= min / 3;
        let decides = || match self.verdict.rule {
            Rule::Watermark if !self.holds_up(row) => false,
            Rule::Watermark => is_most && row.free.most() > 0 || self.passes_without_boost(row),
            Rule::HighatomicReserve => {
                let urgent = self.zones.figures(row, self.verdict.mark).urgent;
                boost > self.zones.kib(urgent.least()) && self.passes_without_boost(row)
            }
            _ => false,
        };
        (boost > 0 && decides()).then(|| {
            let (at_most, proof) = match row.boost.is_exact() {
                true => ("", ""),
                false => ("at most ", " (its distance to low proves it, this kernel does not print the boost)"),
            };
            let text = format!(
                "a boost has raised min of {} of node {} from {at_most}{} to {}, after pageblocks were mixed{proof}",
                row.name,
                row.node,
                kib(min.saturating_sub(boost)),
                kib(min)
            );
            Cause::new(CauseKind::Boost, boost, text)
        })
    }

    fn without_boost(&self, row: &ZoneRow) -> Figures {
        let figures = self.zones.figures(row, self.verdict.mark);
        let boost = Figure::exact(self.zones.boost(row).least());
        Figures { mark: figures.mark.minus(boost), boost: Figure::exact(0), ..figures }
    }

    fn passes_without_boost(&self, row: &ZoneRow) -> bool {
        self.zones.passes(row, &self.without_boost(row), Side::Worst)
    }

    /// Whether fewer pages would do without the boost: urgent single pages need none of it.
    fn holds_up(&self, row: &ZoneRow) -> bool {
        let needed = |figures: &Figures| self.zones.needed(figures, Side::Best);
        let figures = self.zones.figures(row, self.verdict.mark);
        needed(&self.without_boost(row)) < needed(&figures)
    }

    /// Slab fills a zone beside others that the request may not use: a driver's, or a cache of its own for such addresses.
    fn slab_of_zone(&self) -> Option<Cause> {
        let row =
            self.row.filter(|_| matches!(self.verdict.rule, Rule::Watermark | Rule::NoBlock))?;
        let is_other = |zone: &ZoneRow| self.zones.excluded(zone) == Some(Excluded::Kind);
        let slab = row.slab_unreclaimable.known()?;
        let managed = row.managed.known().or(row.present.known())?;
        (slab > managed / 2 && self.report.zones.iter().any(is_other)).then(|| {
            let text = format!(
                "{} of the {} of {} of node {} are slab that cannot be reclaimed: a cache whose pages must lie there",
                kib(slab),
                kib(managed),
                row.name,
                row.node
            );
            Cause::new(CauseKind::Slab, slab, text)
        })
    }

    /// Most of what the zones have was never given to the allocator.
    fn unmanaged(&self) -> Option<Cause> {
        let asked = |zone: &&ZoneRow| self.zones.excluded(zone).is_none();
        let sum = |of: fn(&ZoneRow) -> Figure| {
            let asked = self.report.zones.iter().filter(asked);
            asked.map(of).sum::<Figure>().known()
        };
        let (present, managed) = (sum(|zone| zone.present)?, sum(|zone| zone.managed)?);
        let is_refused = matches!(self.verdict.rule, Rule::Watermark | Rule::LowmemReserve);
        // Old kernels do not count pages of CMA among those that are managed.
        let is_counted = sum(|zone| zone.free)? <= managed;
        (is_refused && is_counted && managed < present / 2).then(|| {
            let text = format!(
                "of {} in the zones for this request the allocator manages {}: the rest was reserved at boot (crashkernel, device tree), or is not set up yet",
                kib(present),
                if managed == 0 { "nothing".into() } else { kib(managed) }
            );
            Cause::new(CauseKind::Unmanaged, present - managed, text)
        })
    }

    fn late(&self) -> Option<Cause> {
        if let Some(cause) = self.mapping() {
            return Some(cause);
        }
        (self.verdict.rule == Rule::Passes).then(|| {
            let of_main = self.verdict.refusal_of_main();
            let whom = of_main.and(self.row).map_or(String::new(), |row| {
                format!(" of {} of node {}, which is small", row.name, row.node)
            });
            let why = match self.is_given_up() {
                _ if self.is_over() && self.report.kind == Kind::Oom => "no zone is short: the kill is for something else (the limit of a group whose lines are missing, a program, a fault), or memory came back before the numbers were read",
                true => "a single page for who may reclaim is tried until there is one, so that its task was to be ended (a fatal signal, a choice of the OOM killer), or reclaims itself",
                false => "they were read after the refusal, and some came back meanwhile, or another rule refused",
            };
            let text = format!("by these numbers it would get memory{whom}: {why}{}", self.brink());
            Cause::new(CauseKind::Late, None, text)
        })
    }

    /// Whether pages are far from being short in the zone that gives one.
    fn is_over(&self) -> bool {
        let size = |row: &ZoneRow| row.managed.known().or(row.present.known()).unwrap_or(u64::MAX);
        let is_far = |row: &ZoneRow| {
            row.free.least() / 2 >= row.high.most() && row.free.least() >= size(row) / 8
        };
        self.verdict.rule == Rule::Passes
            && self.zones.order == Order(0)
            && self.row.is_some_and(is_far)
    }

    /// How near the end a zone is that gives to urgent requests alone.
    fn brink(&self) -> String {
        let Some(row) = self.row.filter(|row| row.free.most() < row.min.least()) else {
            return String::new();
        };
        let (free, min) = (kib(row.free.least()), kib(row.min.least()));
        format!(
            "; {} of node {} is nearly empty, with {free} free below its min mark of {min}: none but urgent requests get any of it",
            row.name, row.node
        )
    }

    /// Whether the kernel tries such a request again, unless its task may not: a single page, with reclaim and no flag to give up.
    fn is_given_up(&self) -> bool {
        let gives_up = Gfp::NORETRY | Gfp::RETRY_MAYFAIL | Gfp::THISNODE | Gfp::NOMEMALLOC;
        let gfp = self.zones.gfp;
        self.report.kind == Kind::Failure
            && self.report.order == Some(0)
            && !self.report.mode.is_cut
            && gfp.contains(Gfp::KERNEL)
            && !gfp.intersects(gives_up)
    }

    /// vmalloc before Linux 5.13: all pages were there but the one behind the area, which is never taken.
    fn mapping(&self) -> Option<Cause> {
        let failed = self.report.failed.as_deref()?;
        let area = self
            .report
            .area
            .map_or("the area".into(), |bytes| format!("the area of {}", size::format(bytes)));
        if failed.contains("failed to map pages") {
            let text = format!(
                "all pages of {area} were there: to map them failed, by a page table that was not to be had or an entry that was in use (a fault of the kernel or a driver); pages were not short"
            );
            return Some(Cause::new(
                CauseKind::Addresses,
                self.report.area.map(|bytes| bytes / 1024),
                text,
            ));
        }
        if failed.contains("page array") && self.verdict.rule == Rule::Passes {
            let text = format!(
                "the list of the pages of {area} was not to be had: its pages were not asked for yet"
            );
            return Some(Cause::new(CauseKind::Late, None, text));
        }
        let failed = failed.strip_prefix("allocated ")?;
        let mut bytes = numbers(failed);
        let (got, area) = (bytes.next()?, bytes.next()?);
        let is_all = area.saturating_sub(got) <= self.zones.kib(1024) && got > 0;
        is_all.then(|| {
            let text = format!(
                "all pages of the area were there ({got} of {area} bytes, the rest is the page behind it that is left free): to map them failed, by a page table that was not to be had or an entry that was in use (a fault of the kernel or a driver); pages were not short"
            );
            Cause::new(CauseKind::Addresses, got / 1024, text)
        })
    }

    fn task(&self) -> Option<Cause> {
        let task = self.report.tasks.first()?;
        let size = self.zones.kib(task.pages());
        let managed = self.report.zones.iter().map(|zone| zone.managed);
        let managed = managed.sum::<Figure>().known().unwrap_or(0);
        let ram = self.report.ram_pages.map_or(0, |pages| self.zones.kib(pages));
        let ended = self.report.victim.as_ref().and_then(|victim| victim.anon).unwrap_or(0);
        let all = managed.max(ram).max(ended);
        // One that holds next to nothing explains nothing.
        if size < all / 100 {
            return None;
        }
        let text = format!(
            "the largest of {} tasks is {}{}",
            self.report.tasks_listed,
            told(self.report, task),
            named_alike(self.report, size)
        );
        Some(Cause::new(CauseKind::Task, size, text))
    }
}

/// Tasks of one name that have more together than the largest has.
fn named_alike(report: &Report, size: u64) -> String {
    let Some((name, (count, pages))) = report.by_name.iter().max_by_key(|(_, (_, pages))| *pages)
    else {
        return String::new();
    };
    let all = pages.saturating_mul(report.page_kib());
    match *count > 1 && all > size.saturating_mul(3) / 2 {
        true => format!(
            "; {count} of the name {name} have {} together (what they share is counted in each)",
            kib(all)
        ),
        false => String::new(),
    }
}
