//! Which rule refused a request: the core's watermark check on each zone of the report.

use nearpage::rules::watermarks::AllocFlags;
use nearpage::{Gfp, Order};
use serde::Serialize;

use crate::figure::Side;
use crate::held::{NoProgress, no_progress};
use crate::judge::{Answer, Judgement, Rule, ZoneVerdict, of_zone};
use crate::report::{Kind, Memcg, NodeRow, Reached, Report, ZoneRow};
use crate::zones::{Excluded, MACHINE_KIB_MOST, Mark, Zones, hidden_pages};

/// What kept a request from memory that was there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Confinement {
    /// What.
    pub by: Excluded,
    /// A zone beyond that would have given the block: node and zone.
    pub elsewhere: Option<(u32, String)>,
    /// Pages in nodes and zones that the kernel left out of the report since the request could not use them.
    pub hidden_pages: u64,
}

/// Why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verdict {
    /// The rule that refused it in [`node`](Self::node) and [`zone`](Self::zone).
    pub rule: Rule,
    /// How sure that is.
    pub answer: Answer,
    /// The mark that the rule is about: `high` where zones pass against `min`, and none does in the last try before a kill.
    pub mark: Mark,
    /// The figures on which an open answer depends.
    pub depends_on: Vec<&'static str>,
    /// The node whose zone decides: of those that could be asked, the largest, or one with pages and no block.
    pub node: Option<u32>,
    /// Its zone.
    pub zone: Option<String>,
    /// What kept the request from other memory.
    pub confined_by: Option<Confinement>,
    /// The highest zone that the flags allow.
    pub highest_zone: String,
    /// The rights of the request, in words.
    pub rights: String,
    /// All zones, in the order in which a node's are tried: nodes as printed, highest zone first.
    pub zones: Vec<ZoneVerdict>,
    /// Of OOM reports whose nodes are there.
    pub no_progress: Option<NoProgress>,
}

impl Verdict {
    /// The row of the zone that decides.
    pub(crate) fn row<'r>(&self, report: &'r Report) -> Option<&'r ZoneRow> {
        let (node, name) = (self.node?, self.zone.as_ref()?);
        report.zones.iter().find(|row| row.node == node && row.name == *name)
    }

    /// What that zone answers.
    pub(crate) fn of_row(&self) -> Option<&ZoneVerdict> {
        let (node, name) = (self.node?, self.zone.as_ref()?);
        self.zones.iter().find(|zone| zone.node == node && zone.zone == *name)
    }

    /// The same on the largest zone, which refuses, where one that gives has less than an eighth of its memory.
    pub(crate) fn refusal_of_main(&self) -> Option<Verdict> {
        let passing = self.of_row().filter(|_| self.rule == Rule::Passes)?;
        let is_refusing =
            |zone: &&ZoneVerdict| zone.excluded.is_none() && zone.at_min.answer == Answer::Refused;
        let size = |zone: &ZoneVerdict| zone.managed.known().unwrap_or(zone.managed.most());
        let main = self.zones.iter().filter(is_refusing).max_by_key(|zone| size(zone))?;
        (size(main) < u64::MAX && size(main) / 8 > size(passing)).then(|| Verdict {
            rule: main.at_min.rule,
            answer: main.at_min.answer,
            mark: Mark::Min,
            depends_on: Vec::new(),
            node: Some(main.node),
            zone: Some(main.zone.clone()),
            ..self.clone()
        })
    }

    /// Judges a report. Where the size of a page is not told, what is said holds for each that is possible.
    pub fn of(report: &Report) -> Verdict {
        let mut verdict = Verdict::of_one_size(report);
        for size in report.page_sizes().into_iter().skip(1) {
            let other = Report { page_kib: Some(size), ..report.clone() };
            verdict.open_where_other(&Verdict::of_one_size(&other));
        }
        verdict
    }

    /// Opens what another size of pages answers otherwise.
    fn open_where_other(&mut self, other: &Verdict) {
        let depends_on = vec!["page_size"];
        let decided =
            |of: &Verdict| (of.rule, of.answer, of.node, of.zone.clone(), of.confined_by.is_some());
        if decided(self) != decided(other) {
            (self.rule, self.answer) = (Rule::Unknown, Answer::Open);
            self.depends_on = depends_on.clone();
            (self.node, self.zone, self.mark) = (None, None, Mark::Min);
        }
        for (zone, other) in self.zones.iter_mut().zip(&other.zones) {
            let judgements = [
                (Some(&mut zone.at_min), Some(&other.at_min)),
                (zone.at_high.as_mut(), other.at_high.as_ref()),
            ];
            for (own, other) in judgements {
                let Some((own, other)) = own.zip(other) else { continue };
                if (own.rule, own.answer) != (other.rule, other.answer) {
                    (own.rule, own.answer) = (Rule::Unknown, Answer::Open);
                    own.depends_on = depends_on.clone();
                }
            }
        }
    }

    fn of_one_size(report: &Report) -> Verdict {
        let zones = Zones::new(report);
        let mut rows: Vec<&ZoneRow> = report.zones.iter().collect();
        rows.sort_by_key(|zone| (zone.node, std::cmp::Reverse(zones.index(&zone.name))));
        let mut judged: Vec<ZoneVerdict> = rows.iter().map(|zone| of_zone(&zones, zone)).collect();
        if zones.lacks_flags() {
            judged.iter_mut().for_each(|zone| zone.open("gfp_mask"));
        }
        let (mark, decisive) = decisive(&judged);
        let confined_by = confinement(&zones, &judged);
        // What refuses before any zone is asked.
        let lost = lost(&zones, confined_by.is_some());
        let lost = lost.or_else(|| may_be_a_policys(&zones, &judged).then_some("policy"));
        let before = refuses_before(report, &judged);
        let before = before.or_else(|| lost.map(|_| (Rule::Unknown, Answer::Open)));
        let named = decisive.filter(|_| before.is_none());
        let judgement = named.map(|zone| zone.at(mark));
        let (rule, answer) = match (before, judgement) {
            (Some(before), _) => before,
            (None, Some(judgement)) => (judgement.rule, judgement.answer),
            (None, None) => (Rule::Unknown, Answer::Open),
        };
        let is_confined = before.is_none_or(|(rule, _)| rule == Rule::NoZone);
        let is_killed = report.kind == Kind::Oom && !matches!(rule, Rule::Memcg | Rule::NoRequest);
        Verdict {
            rule,
            answer,
            mark: if named.is_some() { mark } else { Mark::Min },
            depends_on: match judgement {
                Some(judgement) => judgement.depends_on.clone(),
                None if rule == Rule::Unknown => {
                    lost.or(lacks_order(report).then_some("order")).into_iter().collect()
                }
                None => Vec::new(),
            },
            node: named.map(|zone| zone.node),
            zone: named.map(|zone| zone.zone.clone()),
            confined_by: confined_by.filter(|_| is_confined),
            highest_zone: zones.highest_name().into(),
            rights: match zones.is_harder() {
                true => "3/4 of the min mark: it cannot wait".into(),
                false => rights(zones.flags),
            },
            no_progress: (is_killed && !report.nodes.is_empty()).then(|| no_progress(&zones)),
            zones: judged,
        }
    }
}

/// Whether the first line has lost its order, or its kernel prints none.
fn lacks_order(report: &Report) -> bool {
    report.order.is_none() && report.kind != Kind::Slub && !report.lacks_head && !report.is_sysrq
}

/// What a report lost without which no zone can be said to decide: a part of the flags, or rows of zones.
fn lost(zones: &Zones<'_>, is_confined: bool) -> Option<&'static str> {
    let report = zones.report;
    let has_zones_of = |row: &NodeRow| report.zones.iter().any(|zone| zone.node == row.node);
    let is_hidden = hidden_pages(report) > 0 && !is_confined;
    // Zones of nodes outside the cpuset are not printed.
    let is_outside = |row: &NodeRow| {
        report.mems_allowed.as_ref().is_some_and(|nodes| !nodes.contains(&row.node))
    };
    let may_lack = |row: &NodeRow| row.is_empty() || is_confined && is_outside(row);
    let lacks_node = !report.nodes.iter().all(|row| may_lack(row) || has_zones_of(row));
    let is_damaged = report.zones.iter().any(|zone| zone.is_damaged || !zone.has_all_blocks);
    // One node refused, and none that is there does.
    let lacks_refusal = zones.is_insisted_on_another();
    match () {
        () if report.mode.is_cut => Some("gfp_mask"),
        // Whether it asked for pages at all.
        () if report.kind == Kind::Vmalloc && report.failed.is_none() => Some("vmalloc"),
        () if report.zones.is_empty() => None,
        () if is_hidden || lacks_node || zones.lacks_zones() => Some("zones"),
        () if lacks_refusal && (is_damaged || report.ram_pages.is_none()) => Some("zones"),
        () => None,
    }
}

/// Whether a policy may confine the request that its kernel does not print: all zones of a node refuse, and those of another
/// would give.
fn may_be_a_policys(zones: &Zones<'_>, judged: &[ZoneVerdict]) -> bool {
    let report = zones.report;
    let first_printed = if report.kind == Kind::Oom { (4, 9) } else { (4, 11) };
    // Interrupts have none.
    let has_policy = zones.gfp.contains(Gfp::DIRECT_RECLAIM) && !zones.gfp.contains(Gfp::THISNODE);
    let asked = || judged.iter().filter(|zone| zone.excluded.is_none());
    let says = |zone: &ZoneVerdict, answer| {
        zone.at_min.answer == answer
            && zone.at_high.as_ref().is_none_or(|at_high| at_high.answer == answer)
    };
    let refuses = |node| {
        let is_refusing = |zone: &ZoneVerdict| {
            says(zone, Answer::Refused) || zone.at(Mark::High).answer == Answer::Refused
        };
        asked().filter(|zone| zone.node == node).all(is_refusing)
    };
    has_policy
        && report.nodemask.is_none()
        && zones.is_before(first_printed).unwrap_or(report.mode.words.is_none())
        && asked().any(|zone| says(zone, Answer::Passes))
        && asked().any(|zone| refuses(zone.node))
}

/// The rule that refuses before any zone is asked, if one does.
fn refuses_before(report: &Report, judged: &[ZoneVerdict]) -> Option<(Rule, Answer)> {
    let is_memcg = match report.constraint.as_deref() {
        Some("CONSTRAINT_MEMCG") => true,
        Some(_) => report.memcg.as_ref().is_some_and(|memcg| memcg.limit.is_some()),
        None => report.memcg.is_some(),
    };
    if report.is_forced {
        return Some((Rule::Unknown, Answer::Open));
    }
    let page = report.page_kib();
    let has_limit = report.memcg.as_ref().is_none_or(|memcg| memcg.reached(page) != Reached::None);
    if is_memcg && has_limit {
        let came_back = report.memcg.as_ref().and_then(Memcg::came_back);
        return Some((Rule::Memcg, came_back.map_or(Answer::Refused, |_| Answer::Open)));
    }
    if is_memcg || lacks_request(report) {
        return Some((Rule::NoRequest, Answer::Open));
    }
    if report.group_of_cache().is_some() {
        return Some((Rule::Memcg, Answer::Open));
    }
    if told_area(report) == Some(0) {
        return Some((Rule::EmptyArea, Answer::Refused));
    }
    if is_vmalloc_of_addresses(report) {
        // Without the line that tells of addresses it may be the area's description, a small object.
        let is_told = !report.failed.as_deref().unwrap_or_default().starts_with("vm_struct");
        return Some((Rule::Addresses, if is_told { Answer::Refused } else { Answer::Open }));
    }
    if !is_asked(report) {
        return Some((Rule::AreaTooLarge, Answer::Refused));
    }
    // What gives no page gives no block of any order.
    let mut asked = judged.iter().filter(|zone| zone.excluded.is_none()).peekable();
    let gives_none = asked.peek().is_some()
        && !report.lacks_head
        && asked.all(|zone| zone.at_min.answer == Answer::Refused);
    let is_open = report.order.is_none() && !gives_none;
    if report.kind == Kind::Slub || is_open || told_area(report).is_some() {
        return Some((Rule::Unknown, Answer::Open));
    }
    // A report that has all but zones: kernels print those that the request could use.
    let is_low = report.mode.gfp.intersects(Gfp::DMA | Gfp::DMA32) && !report.mode.is_cut;
    let has_rest = report.free_pages.is_some() && report.ram_pages.is_some();
    if is_low && has_rest && report.zones.is_empty() && report.nodes.is_empty() {
        return Some((Rule::NoZone, Answer::Open));
    }
    // The zones of the nodes to which a request is confined are all there.
    let is_confined = matches!(
        report.constraint.as_deref(),
        Some("CONSTRAINT_CPUSET" | "CONSTRAINT_MEMORY_POLICY")
    );
    let has_none = !judged.is_empty() && judged.iter().all(|zone| zone.excluded.is_some());
    (is_confined && has_none).then_some((Rule::NoZone, Answer::Refused))
}

/// Whether a kill is for no request: sysrq has no order, and a fault that asks anew no flags.
pub(crate) fn lacks_request(report: &Report) -> bool {
    let has_no_flags = report.mode.bits == Some(0);
    let is_told = report.kind == Kind::Oom && !report.lacks_head && !report.mode.is_cut;
    is_told && (has_no_flags || report.is_sysrq)
}

/// Whether vmalloc lacked addresses, not pages.
pub(crate) fn is_vmalloc_of_addresses(report: &Report) -> bool {
    let failed = report.failed.as_deref().unwrap_or_default();
    failed.starts_with("vmap allocation")
        || failed.starts_with("vmalloc_node_range")
        || failed.contains("vm_struct allocation failed")
        || told_area(report).is_some_and(|pages| pages > 0)
            && memory(report).is_some()
            && is_asked(report)
}

/// Pages of an area of which the size alone is told: before Linux 5.13 it is larger than memory, or found no addresses.
fn told_area(report: &Report) -> Option<u64> {
    let bytes = report.failed.as_deref()?.strip_suffix(" bytes")?.parse::<u64>().ok()?;
    Some(bytes.div_ceil(report.page_kib().saturating_mul(1024)))
}

/// Pages of the machine, or of the zones that are shown.
fn memory(report: &Report) -> Option<u64> {
    let present = report.zones.iter().map(|zone| zone.present.known());
    let shown = present.collect::<Option<Vec<u64>>>().filter(|zones| !zones.is_empty());
    let shown = shown.map(|zones| zones.into_iter().fold(0, u64::saturating_add));
    report.ram_pages.or_else(|| Some(shown? / report.page_kib()))
}

/// Whether any zone was asked: an area larger than all memory is refused before, and one of no size.
pub(crate) fn is_asked(report: &Report) -> bool {
    let most = || MACHINE_KIB_MOST / report.page_kib();
    let is_odd = |pages| pages == 0 || pages > memory(report).unwrap_or_else(most);
    !told_area(report).is_some_and(is_odd)
        && !report.failed.as_deref().unwrap_or_default().contains("exceeds tot")
}

/// The zone that decides, and the mark that it decides by. Small ones, such as the 16 MiB below the addresses of old devices,
/// refuse nearly everything nearly always: what has less than an eighth of the memory that could be asked is passed over.
fn decisive(judged: &[ZoneVerdict]) -> (Mark, Option<&ZoneVerdict>) {
    let sizes = &Sizes::new(judged);
    let asked = || asked(judged);
    let is_refused_last = |zone: &ZoneVerdict| {
        zone.at_high.as_ref().is_some_and(|at_high| at_high.answer == Answer::Refused)
    };
    let gives = |answer| asked().find(move |zone| zone.at_min.answer == answer);
    let may_give = gives(Answer::Passes).or_else(|| open(sizes));
    // Of rows that were cut the last try may have refused all.
    let is_open_last = |zone: &ZoneVerdict| {
        let is_open = |at_high: &Judgement| at_high.answer == Answer::Open;
        zone.is_damaged && zone.at_high.as_ref().is_some_and(is_open)
    };
    let mark = match may_give {
        Some(_) if asked().all(is_refused_last) => Mark::High,
        Some(_) if asked().all(|zone| is_refused_last(zone) || is_open_last(zone)) => {
            return (Mark::High, asked().find(|zone| is_open_last(zone)));
        }
        Some(_) => return (Mark::Min, may_give),
        None => Mark::Min,
    };
    let rule = |zone: &ZoneVerdict| zone.at(mark).rule;
    let large = || sizes.large();
    let by_size = |zone: &&ZoneVerdict| sizes.of(zone);
    // What passes against `min` tells more than what is refused by both marks.
    let is_first = |zone: &ZoneVerdict| {
        asked().find(|other| other.node == zone.node).is_some_and(|first| first == zone)
    };
    let may_pass =
        |zone: &&ZoneVerdict| sizes.is_large(zone) || sizes.has_part(zone, 16) && is_first(zone);
    let passing = asked()
        .rev()
        .filter(may_pass)
        .filter(|zone| mark == Mark::High && zone.at_min.answer != Answer::Refused);
    // Whichever rule refused in a large one that was cut, another may have decided.
    let unknown = large().filter(|zone| zone.is_damaged && rule(zone) == Rule::Unknown);
    if let Some(zone) = unknown.max_by_key(by_size) {
        return (mark, Some(zone));
    }
    // The first of equals.
    let blocked = large().filter(|zone| rule(zone) == Rule::NoBlock).rev().max_by_key(by_size);
    // A reserve decides where it is what keeps most of the memory.
    let by_reserve = |zone: &&ZoneVerdict| {
        rule(zone) != Rule::LowmemReserve || zone.reserve.least() > zone.at(mark).mark.most()
    };
    let largest = || large().rev().filter(by_reserve).max_by_key(by_size);
    // Of two that are about as large the one that has nothing left tells more than one with a small reserve.
    let by_mark = || {
        let by_mark = large().filter(|zone| rule(zone) == Rule::Watermark).max_by_key(by_size)?;
        let largest = large().max_by_key(by_size)?;
        let has_little = largest.reserve.most() < largest.managed.least() / 16;
        (sizes.of(by_mark) >= sizes.of(largest) / 2 && has_little).then_some(by_mark)
    };
    let zone = passing.max_by_key(by_size).or(blocked).or_else(by_mark).or_else(largest);
    let zone = zone.or_else(|| large().rev().max_by_key(by_size));
    let is_at_min = zone.is_some_and(|zone| zone.at_min.answer == Answer::Refused);
    (if is_at_min { Mark::Min } else { mark }, zone)
}

/// The largest zone of which it is open whether it gives, unless it is small for sure.
fn open<'z>(sizes: &Sizes<'z>) -> Option<&'z ZoneVerdict> {
    let is_open = |zone: &&ZoneVerdict| zone.at_min.answer == Answer::Open;
    sizes.large().rev().filter(is_open).max_by_key(|zone| sizes.of(zone))
}

/// Sizes of zones in pages, or in proportion to others: what is managed, or what their marks say of it where rows were cut.
struct Sizes<'z> {
    judged: &'z [ZoneVerdict],
    /// Whether all that could be asked have a size of the kind.
    have: [bool; Sizes::KINDS.len()],
    /// The sum of what could be asked.
    all: u64,
}

impl<'z> Sizes<'z> {
    const KINDS: [fn(&ZoneVerdict) -> Option<u64>; 3] =
        [|zone| zone.managed.known(), |zone| zone.parts.step, |zone| zone.parts.min];

    fn new(judged: &'z [ZoneVerdict]) -> Sizes<'z> {
        let have = Sizes::KINDS.map(|size| asked(judged).all(|zone| size(zone).is_some()));
        let mut sizes = Sizes { judged, have, all: 0 };
        sizes.all = asked(judged).map(|zone| sizes.of(zone)).fold(0, u64::saturating_add);
        sizes
    }

    fn of(&self, zone: &ZoneVerdict) -> u64 {
        let kinds = Sizes::KINDS.iter().zip(self.have).filter(|(_, have)| *have);
        if let Some(size) = kinds.into_iter().find_map(|(size, _)| size(zone)) {
            return size;
        }
        match (zone.managed.known(), zone.managed.most()) {
            (Some(managed), _) => managed,
            (None, u64::MAX) => zone.managed.least(),
            (None, most) => most,
        }
    }

    /// Whether a zone has one of so many parts of the memory that could be asked, or may have.
    fn has_part(&self, zone: &ZoneVerdict, parts: u64) -> bool {
        self.of(zone) >= self.all / parts
    }

    /// Whether a zone has an eighth of it, or may have.
    fn is_large(&self, zone: &ZoneVerdict) -> bool {
        self.has_part(zone, 8)
    }

    /// The zones that have.
    fn large(&self) -> impl DoubleEndedIterator<Item = &'z ZoneVerdict> {
        asked(self.judged).filter(|zone| self.is_large(zone))
    }
}

/// Zones that could be asked.
fn asked(judged: &[ZoneVerdict]) -> impl DoubleEndedIterator<Item = &ZoneVerdict> {
    judged.iter().filter(|zone| zone.excluded.is_none())
}

fn confinement(zones: &Zones<'_>, judged: &[ZoneVerdict]) -> Option<Confinement> {
    let report = zones.report;
    let hidden_pages = hidden_pages(report);
    let gives = |zone: &&ZoneVerdict| zone.excluded.is_some() && zone.at_min.rule == Rule::Passes;
    let gives_much = |zone: &&ZoneVerdict| gives(zone) && !zone.gives_little();
    let beyond = judged.iter().find(gives_much).or_else(|| judged.iter().find(gives));
    if let Some(zone) = beyond {
        let elsewhere = Some((zone.node, zone.zone.clone()));
        return Some(Confinement { by: zone.excluded?, elsewhere, hidden_pages });
    }
    let by = match report.constraint.as_deref() {
        Some("CONSTRAINT_CPUSET") => Some(Excluded::Cpuset),
        Some("CONSTRAINT_MEMORY_POLICY") => Some(Excluded::Policy),
        _ if hidden_pages == 0 => None,
        _ if report.nodemask.is_some() => Some(Excluded::Policy),
        _ if zones.highest() < zones.index("Normal") => Some(Excluded::Kind),
        _ if is_high(zones, hidden_pages) => Some(Excluded::Kind),
        // The cpuset at the root has all nodes: the zones were lost on their way.
        _ if report.mems_allowed.is_some() && report.cpuset.as_deref() != Some("/") => {
            Some(Excluded::Cpuset)
        }
        _ => None,
    };
    by.map(|by| Confinement { by, elsewhere: None, hidden_pages })
}

/// Whether what is not shown is high memory, or movable, which the request may not use: kernels from 6.1 on leave it out.
fn is_high(zones: &Zones<'_>, hidden_pages: u64) -> bool {
    let report = zones.report;
    let is_shown = |name: &str| report.zones.iter().any(|zone| zone.name == name);
    let high = report.highmem_pages.unwrap_or(0);
    let little = report.ram_pages.unwrap_or(0) / 64;
    high > 0
        && hidden_pages <= high.saturating_add(little)
        && !zones.gfp.intersects(Gfp::HIGHMEM | Gfp::MOVABLE)
        && zones.is_before((6, 1)) != Some(true)
        && !is_shown("HighMem")
        && !is_shown("Movable")
}

/// The mark and what may be taken below it.
fn rights(flags: AllocFlags) -> String {
    let has = |flag| flags.contains(flag);
    let mut text = String::from(match () {
        () if has(AllocFlags::NO_WATERMARKS) => "no watermark: it helps to free memory",
        () if has(AllocFlags::MIN_RESERVE | AllocFlags::NON_BLOCK) => {
            "3/8 of the min mark: urgent, and cannot wait"
        }
        () if has(AllocFlags::MIN_RESERVE) => "1/2 of the min mark: urgent",
        () => "the min mark",
    });
    if has(AllocFlags::HIGHATOMIC) {
        text += "; blocks reserved for urgent requests";
    }
    text
}

/// Blocks of at least the order, by whether the request may take them: (it may, it may not).
pub(crate) fn large_blocks(zones: &Zones<'_>, zone: &ZoneRow) -> (u64, u64) {
    let from = usize::from(zones.order.0);
    let mut counts = (0_u64, 0_u64);
    for (order, blocks) in zone.blocks.iter().enumerate().skip(from) {
        let alone = ZoneRow {
            blocks: zone.blocks[..=order].to_vec(),
            has_all_blocks: true,
            ..ZoneRow::default()
        };
        let may = zones.has_any_block(&alone, Order(order as u8), zones.flags, Side::Worst);
        let side = if may { &mut counts.0 } else { &mut counts.1 };
        *side = side.saturating_add(blocks.count);
    }
    counts
}
