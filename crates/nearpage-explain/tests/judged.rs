//! Figures that older kernels, large machines and odd requests have: what decides, what stands behind it, and what would help.

mod first;

use nearpage_explain::{
    Answer, CauseKind, Change, Effect, Explanation, Figure, Mark, Rule, Verdict,
};

use first::explained;

fn decided(verdict: &Verdict) -> (Rule, Answer) {
    (verdict.rule, verdict.answer)
}

fn kinds(explanation: &Explanation) -> Vec<CauseKind> {
    explanation.causes.iter().map(|cause| cause.kind).collect()
}

fn says(explanation: &Explanation, kind: CauseKind, part: &str) -> bool {
    explanation.causes.iter().any(|cause| cause.kind == kind && cause.text.contains(part))
}

fn effect(explanation: &Explanation, change: Change) -> Option<Effect> {
    let mut remedies = explanation.remedies.iter();
    remedies.find(|remedy| remedy.change == change).map(|remedy| remedy.effect)
}

/// Rows that break off before their blocks: the machine's free pages tell how large one is, and figures that are no multiple of
/// a size that it is not.
#[test]
fn pages_without_blocks_are_as_large_as_free_pages_say() {
    let log = |counters: &str, min: &str| {
        format!(
            "\
a invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
Mem-Info:
active_anon:400 inactive_anon:500 isolated_anon:0
{counters}Node 0 DMA free:640000kB min:64000kB low:80000kB high:96000kB reserved_highatomic:0KB active_anon:0kB ...
lowmem_reserve[]: 0 0 9000 9000 9000
Node 0 Normal free:1280000kB min:{min} low:1600064kB high:1920064kB reserved_highatomic:0KB active_anon:64kB ...
lowmem_reserve[]: 0 0 0 0 0
"
        )
    };
    let counters = "                free:30000 free_pcp:1 free_cma:0\n";
    // 10000 pages of 64 KiB are free in DMA, which keeps 9000 of them.
    let large = explained(&log(counters, "1280064kB"));
    let dma = large.verdict.zones.iter().find(|zone| zone.zone == "DMA").unwrap();
    assert_eq!(
        (large.report.page_kib(), dma.at_min.rule, dma.at_min.needed),
        (64, Rule::LowmemReserve, Figure::exact(1000 + 9000 + 1))
    );
    assert_eq!(decided(&large.verdict), (Rule::Watermark, Answer::Refused));
    // Of pages of 4 KiB DMA keeps a fourteenth of what is free.
    let open = explained(&log("", "1280064kB"));
    assert_eq!(decided(&open.verdict), (Rule::Unknown, Answer::Open));
    assert_eq!(open.verdict.depends_on, ["page_size"]);
    assert!(open.unknown.iter().any(|text| text.starts_with("how large a page is")));
    let small = explained(&log("", "1280068kB"));
    // It passes against min; the last try may not have counted pages of CMA.
    assert_eq!(small.verdict.zones[1].at_min.rule, Rule::Passes);
    assert_eq!(small.verdict.depends_on, ["free_cma"]);
}

/// Somebody came to a size of 0: nothing was short.
#[test]
fn areas_of_no_size() {
    let rest = "\
CPU: 5 PID: 34 Comm: a Not tainted 5.10.0 #1
Mem-Info:
Node 0 Normal free:330000kB min:11000kB low:14000kB high:17000kB present:520000kB managed:510000kB free_cma:0kB
lowmem_reserve[]: 0 0 0
";
    let heads = [
        ("a: vmalloc: allocation failure: BYTES bytes, mode:0xdc0(GFP_KERNEL|__GFP_ZERO)", rest),
        ("a: vmalloc: allocation failure: BYTES bytes,\nmode:0xdc0(GFP_KERNEL|__GFP_ZERO)", rest),
        (
            "vmalloc: allocation failure: BYTES bytes\na: page allocation failure: order:0, mode:0xd2",
            "",
        ),
    ];
    for (head, rest) in heads {
        let of = |bytes: &str| explained(&format!("{}\n{rest}", head.replace("BYTES", bytes)));
        let empty = of("0");
        assert_eq!(decided(&empty.verdict), (Rule::EmptyArea, Answer::Refused), "{head}");
        assert_eq!(kinds(&empty), [CauseKind::EmptyArea]);
        assert!(empty.remedies.is_empty());
        let expected = if rest.is_empty() { Rule::Unknown } else { Rule::Addresses };
        assert_eq!(of("425984").verdict.rule, expected, "{head}");
    }
}

/// 2^63 is no limit: nobody reached it.
#[test]
fn groups_without_a_limit_are_not_at_it() {
    let log = |limit: u64, constraint: &str| {
        format!(
            "\
a invoked oom-killer: gfp_mask=0x0(), order=0, oom_score_adj=0
memory: usage 51200kB, limit {limit}kB, failcnt 0
Memory cgroup stats for /blue:
anon 50331648
oom-kill:constraint={constraint},nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/blue,task_memcg=/blue,task=b,pid=7,uid=0
"
        )
    };
    for constraint in ["CONSTRAINT_BPF_GREEN", "CONSTRAINT_MEMCG"] {
        let unlimited = explained(&log(9_007_199_254_740_988, constraint));
        assert_eq!(unlimited.verdict.rule, Rule::NoRequest);
        assert_eq!(kinds(&unlimited), [CauseKind::NoRequest, CauseKind::Anonymous]);
        assert!(unlimited.remedies.is_empty(), "no limit would have helped");
        assert_eq!(explained(&log(51_200, constraint)).verdict.rule, Rule::Memcg);
    }
}

/// A policy's nodes are printed from 4.9 on: before, node 1 passes, and may have been forbidden.
#[test]
fn policies_that_are_not_printed_leave_the_answer_open() {
    let log = |release: &str, mode: &str| {
        format!(
            "\
a invoked oom-killer: gfp_mask={mode}, order=0, oom_score_adj=0
a cpuset=/ mems_allowed=0-1
Pid: 3, comm: a Not tainted {release} #1
Mem-Info:
Node 0 Normal free:2000kB min:8160kB low:10200kB high:12240kB active_anon:7900000kB inactive_anon:0kB active_file:0kB inactive_file:0kB present:8300000kB free_cma:0kB
lowmem_reserve[]: 0 0
Node 1 Normal free:12000000kB min:8192kB low:10240kB high:12288kB active_anon:0kB inactive_anon:0kB active_file:0kB inactive_file:0kB present:12600000kB free_cma:0kB
lowmem_reserve[]: 0 0
Node 0 Normal: 500*4kB 0*8kB = 2000kB
Node 1 Normal: 3000000*4kB 0*8kB = 12000000kB
"
        )
    };
    let hidden = explained(&log("3.0.101", "0x280da"));
    assert_eq!(decided(&hidden.verdict), (Rule::Unknown, Answer::Open));
    assert_eq!((&hidden.verdict.depends_on[..], &hidden.verdict.node), (&["policy"][..], &None));
    assert!(says(&hidden, CauseKind::HiddenPolicy, "11.4 GiB (3000000 pages) are free on node 1"));
    let printed = "0x14280ca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), nodemask=(null)";
    assert_eq!(explained(&log("4.15.0", printed)).verdict.rule, Rule::Passes);
    // A request that cannot wait may come from an interrupt, which has no policy.
    assert_eq!(explained(&log("3.0.101", "0x20")).verdict.rule, Rule::Passes);
}

/// A fault that got VM_FAULT_OOM has no flags, sysrq f an order of -1.
#[test]
fn kills_without_a_request() {
    let zones = "\
CPU: 2 PID: 15 Comm: a Not tainted 5.15.0 #55
Mem-Info:
 free:2500000 free_pcp:0 free_cma:0
Node 0 Normal free:10000000kB boost:0kB min:60000kB low:75000kB high:90000kB reserved_highatomic:0KB present:16000000kB managed:15000000kB free_cma:0kB
lowmem_reserve[]: 0 0 0
Node 0 Normal: 2500000*4kB (UM) 0*8kB = 10000000kB
";
    let of = |head: &str, zones: &str| explained(&format!("a invoked oom-killer: {head}\n{zones}"));
    let fault = of("gfp_mask=0x0(), order=0, oom_score_adj=1000", zones);
    assert_eq!(fault.verdict.rule, Rule::NoRequest);
    assert!(says(&fault, CauseKind::NoRequest, "a page fault"));
    assert!(says(&fault, CauseKind::Elsewhere, "9.5 GiB are free"), "a false OOM");
    let short = zones.replace("free:10000000kB", "free:59000kB").replace("2500000", "14750");
    let short = short.replace("= 10000000kB", "= 59000kB");
    let short = of("gfp_mask=0x0(), order=0, oom_score_adj=0", &short);
    assert_eq!(kinds(&short), [CauseKind::NoRequest]);
    let sysrq = of("gfp_mask=0xcc0(GFP_KERNEL), order=-1, oom_score_adj=0", "");
    assert_eq!(sysrq.verdict.rule, Rule::NoRequest);
    assert!(says(&sysrq, CauseKind::NoRequest, "sysrq"));
    let damaged = of("gfp_mask=0xcc0(GFP_KERNEL), order=?, oom_score_adj=0", "");
    assert_eq!(damaged.verdict.rule, Rule::Unknown);
}

/// The end of a name may be cut: `/lab/run-41x` is not below `/lab/run-41`.
#[test]
fn a_group_is_a_parent_of_those_below_it() {
    let is_parent = |group: &str, task: &str| {
        let log = format!(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={group},task_memcg={task}\n"
        );
        kinds(&explained(&log)).contains(&CauseKind::MemcgParent)
    };
    assert!(is_parent("/lab", "/lab/run-41") && is_parent("/", "/lab"));
    for task in ["/lab/run-41x", "/lab/run-41", "/lab/run", "/"] {
        assert!(!is_parent("/lab/run-41", task), "{task}");
    }
}

/// Nobody writes what fills the group.
#[test]
fn dirty_memory_of_files_fills_a_group() {
    let log = |writeback: u64| {
        format!(
            "\
a invoked oom-killer: gfp_mask=0x101c4a(GFP_NOFS|__GFP_HIGHMEM|__GFP_MOVABLE), order=0, oom_score_adj=0
memory: usage 65536kB, limit 65536kB, failcnt 114
Memory cgroup stats for /slow:
anon 0
file 61000000
file_dirty 60900000
file_writeback {writeback}
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/slow,task_memcg=/slow,task=a,pid=5,uid=0
"
        )
    };
    let unwritten = explained(&log(0));
    assert_eq!(kinds(&unwritten), [CauseKind::Files, CauseKind::MemcgLimit]);
    assert_eq!(effect(&unwritten, Change::MemcgLimit), Some(Effect::HelpsALittle));
    assert_eq!(kinds(&explained(&log(50_000_000))), [CauseKind::MemcgLimit, CauseKind::Files]);
}

/// A kill of one zone in pages of 4 KiB, with counters, a row of its node and what follows the zones.
fn kill(release: &str, counters: &str, node: &str, zone: &str, end: &str) -> Explanation {
    explained(&format!(
        "\
a invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
CPU: 1 PID: 49 Comm: a Not tainted {release} #1
Mem-Info:
{counters}
Node 0 {node} active_file:40kB inactive_file:80kB all_unreclaimable? yes
Node 0 DMA32 free:4000kB boost:0kB min:4096kB low:5120kB high:6144kB reserved_highatomic:0KB active_file:40kB inactive_file:80kB present:1048576kB {zone} free_pcp:0kB free_cma:0kB
lowmem_reserve[]: 0 0 0 0
Node 0 DMA32: 1000*4kB (UM) 0*8kB = 4000kB
{end}
262144 pages RAM
"
    ))
}

/// What reclaim may not touch is not all locked by mlock, and free swap below zero is no damage: it is switched off.
#[test]
fn unevictable_memory_and_swap_that_leaves() {
    let of = |mlocked: &str| {
        kill(
            "4.16.0",
            " slab_reclaimable:10 slab_unreclaimable:20000",
            "active_anon:400000kB inactive_anon:100000kB unevictable:300000kB",
            &format!("managed:1000000kB mlocked:{mlocked}"),
            "Free swap  = -245804kB\nTotal swap = 0kB",
        )
    };
    let found = of("16kB");
    assert_eq!(kinds(&found), [CauseKind::SwapOff, CauseKind::Unevictable]);
    assert!(says(&found, CauseKind::SwapOff, "240 MiB"));
    assert!(says(&found, CauseKind::Unevictable, "mlock locked 16 KiB"));
    assert!(found.report.unreadable.is_empty());
    assert_eq!(kinds(&of("300000kB"))[1], CauseKind::Mlocked);
}

/// Page tables and stacks are counted.
#[test]
fn page_tables_and_stacks_fill_memory() {
    let found = kill(
        "5.16.0",
        " slab_reclaimable:10 slab_unreclaimable:10000\n mapped:10 shmem:0 pagetables:170000 bounce:0\n sec_pagetables:10000 bounce:0",
        "active_anon:4000kB inactive_anon:4000kB unevictable:0kB kernel_stack:160000kB",
        "managed:1000000kB mlocked:0kB",
        "Free swap  = 0kB\nTotal swap = 0kB",
    );
    assert_eq!(kinds(&found), [CauseKind::PageTables, CauseKind::KernelStack]);
    let held = found.verdict.no_progress.unwrap();
    let counted = 8000 + 120 + 10_010 * 4 + 680_000 + 40_000 + 160_000 + 4000;
    assert_eq!(held.unexplained, Some(1_000_000 - counted));
    // Up to 5.10 stacks stand with the zones.
    let zone = "managed:1000000kB mlocked:0kB kernel_stack:160000kB pagetables:0kB";
    let older = kill("5.4.0", "", "active_anon:4000kB", zone, "");
    assert_eq!(older.report.nodes[0].kernel_stack, Figure::exact(160_000));
}

/// Linux 2.6 up to 27 tells no anonymous memory; a whole row without CMA and blocks without types are of a kernel that has none.
#[test]
fn full_swap_of_old_kernels() {
    let found = explained(
        "\
a invoked oom-killer: gfp_mask=0x201d2, order=0, oomkilladj=0
Mem-info:
Normal free:4400kB min:3456kB low:4320kB high:5184kB active:364000kB inactive:360000kB present:763524kB pages_scanned:1209494 all_unreclaimable? yes
lowmem_reserve[]: 0 0 0
Normal: 1100*4kB 0*8kB 0*16kB = 4400kB
Free swap:            0kB
Total swap = 700000kB
",
    );
    let verdict = &found.verdict;
    assert_eq!(
        (verdict.rule, verdict.answer, verdict.mark),
        (Rule::Watermark, Answer::Refused, Mark::High)
    );
    assert_eq!(verdict.zones[0].at_min.answer, Answer::Passes);
    assert_eq!(kinds(&found), [CauseKind::SwapFull]);
}

/// 258 pages are free, and one block of 32 KiB: too few for a kernel that counts what is free in blocks of each order.
#[test]
fn old_kernels_count_by_order() {
    let log = |large: u64| {
        format!(
            "\
a: page allocation failure. order:3, mode:0x4020
Mem-info:
Normal free:1032kB min:508kB low:632kB high:760kB active:2400kB inactive:16kB present:16256kB pages_scanned:89 all_unreclaimable? no
lowmem_reserve[]: 0
Normal: {}*4kB 43*8kB 23*16kB {large}*32kB = 1032kB
",
            72 + 8 - 8 * large
        )
    };
    let found = explained(&log(1));
    assert_eq!(decided(&found.verdict), (Rule::NoBlock, Answer::Refused));
    assert!(says(
        &found,
        CauseKind::Fragmentation,
        "of blocks of order 3 (32 KiB) and more only 1: this kernel"
    ));
    assert!(says(&explained(&log(0)), CauseKind::Fragmentation, "no block of order 3"));
    assert_eq!(explained(&log(3)).verdict.rule, Rule::Passes);
}

/// A refusal of one zone in pages of 4 KiB.
fn failure(release: &str, head: &str, zone: &str, counters: &str, end: &str) -> Explanation {
    explained(&format!(
        "\
a: page allocation failure: {head}
CPU: 1 PID: 49 Comm: a Not tainted {release} #1
Mem-Info:
{counters}
Node 0 DMA32 {zone}
lowmem_reserve[]: 0 0 0 0
{end}
"
    ))
}

/// A refusal without a kill names what fills memory, too. Higher marks help nobody where nothing is left to reclaim.
#[test]
fn slab_and_programs_fill_memory_without_a_kill() {
    let zone = "free:16400kB min:44600kB low:55700kB high:66900kB reserved_highatomic:0KB active_anon:ANON inactive_anon:0kB active_file:400kB inactive_file:0kB present:2096624kB managed:1620000kB free_pcp:0kB free_cma:0kB";
    let blocks = "Node 0 DMA32: 4100*4kB (UM) 0*8kB = 16400kB\nFree swap  = 0kB\nTotal swap = 0kB\n524156 pages RAM";
    let counters = " slab_reclaimable:400 slab_unreclaimable:SLAB";
    let of = |head: &str, anon: &str, slab: &str| {
        let (zone, counters) = (zone.replace("ANON", anon), counters.replace("SLAB", slab));
        failure("5.7.0", head, &zone, &counters, blocks)
    };
    let atomic = "order:1, mode:0x40a20(GFP_ATOMIC|__GFP_COMP), nodemask=(null)";
    let leak = of(atomic, "16000kB", "385000");
    assert_eq!(decided(&leak.verdict), (Rule::Watermark, Answer::Refused));
    assert_eq!(kinds(&leak), [CauseKind::Slab]);
    assert_eq!(effect(&leak, Change::MinFreeKbytes), Some(Effect::Harmful));
    let user = "order:0, mode:0x100cca(GFP_HIGHUSER_MOVABLE), nodemask=(null)";
    let full = of(user, "1400000kB", "3850");
    assert_eq!(kinds(&full), [CauseKind::NoSwap]);
    assert_eq!(effect(&full, Change::WatermarkScaleFactor), Some(Effect::Harmful));
}

/// The table of caches tells where nothing else is left of a report.
#[test]
fn the_largest_cache_is_told_without_zones() {
    let found = explained(
        "\
a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=3, oom_score_adj=0
Unreclaimable slab info:
Name                      Used          Total
leaf_map         3207098KB    3375622KB
",
    );
    assert!(says(&found, CauseKind::Slab, "leaf_map with 3.2 GiB"));
}

/// A row that broke off has no size: what is counted tells what fills memory.
#[test]
fn tmpfs_fills_memory_of_an_unknown_size() {
    let found = explained(
        "\
a invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
CPU: 1 PID: 49 Comm: a Not tainted 5.10.0 #1
Mem-Info:
active_anon:44000 inactive_anon:1000 isolated_anon:0
 slab_reclaimable:1000 slab_unreclaimable:3000
 mapped:334 shmem:42000 pagetables:226 bounce:0
 free:400 free_pcp:0 free_cma:0
Node 0 active_anon:176000kB inactive_anon:4000kB active_file:0kB inactive_file:100kB unevictable:0kB
Normal free:1600kB min:1872kB low:2340kB high:2808kB
lowmem_reserve[]: 0 0 0
",
    );
    assert_eq!(found.verdict.rule, Rule::Watermark);
    assert_eq!(kinds(&found), [CauseKind::Shmem, CauseKind::Anonymous]);
}

/// Files in high memory are of no use to a request that may not use it.
#[test]
fn files_in_other_zones_are_not_left_to_reclaim() {
    let found = explained(
        "\
a invoked oom-killer: gfp_mask=0xd0, order=0, oom_adj=0, oom_score_adj=0
Pid: 36, comm: a Not tainted 3.2.0 #1
Mem-Info:
 free:1000000 slab_reclaimable:6 slab_unreclaimable:7200
Normal free:43788kB min:44112kB low:55140kB high:66168kB active_anon:0kB inactive_anon:0kB active_file:900kB inactive_file:0kB present:887976kB mlocked:0kB all_unreclaimable? yes
lowmem_reserve[]: 0 100000 100000
HighMem free:3956000kB min:512kB low:5000kB high:6000kB active_anon:52000kB inactive_anon:0kB active_file:9000kB inactive_file:16576000kB present:21000000kB mlocked:0kB all_unreclaimable? no
lowmem_reserve[]: 0 0 0
Free swap  = 0kB
Total swap = 0kB
",
    );
    assert_eq!(found.verdict.no_progress.as_ref().unwrap().file, Figure::exact(900));
    assert!(!kinds(&found).contains(&CauseKind::Files));
    assert_eq!(effect(&found, Change::MinFreeKbytes), Some(Effect::Harmful));
}

/// Linux 5.0 to 5.15 prints no boost: `low` lies a quarter of `min` above it without one.
#[test]
fn a_boost_that_is_not_printed() {
    let of = |low: &str| {
        let zone = format!(
            "free:1812kB min:5472kB low:{low} high:6160kB reserved_highatomic:0KB present:131072kB managed:118804kB free_cma:0kB"
        );
        failure("5.8.0", "order:0, mode:0xa20(GFP_ATOMIC), nodemask=(null)", &zone, "", "")
    };
    // 86 pages above it: of the 1368 at most 347 are no boost.
    let boosted = of("5816kB");
    assert!(says(&boosted, CauseKind::Boost, "from at most 1.3 MiB to 5.3 MiB"));
    assert_eq!(effect(&boosted, Change::WatermarkBoostFactor), Some(Effect::Helps));
    assert!(!kinds(&of("6840kB")).contains(&CauseKind::Boost));
}

/// A task that helps to free memory needs the block that it asks for, and no pages above it.
#[test]
fn no_mark_applies_to_who_frees_memory() {
    let found = failure(
        "5.18.0",
        "order:0, mode:0x60c40(GFP_NOFS|__GFP_COMP|__GFP_MEMALLOC), nodemask=(null)",
        "free:0kB boost:0kB min:948kB low:1184kB high:1420kB reserved_highatomic:0KB active_anon:8000kB inactive_anon:24000kB active_file:2000kB inactive_file:2000kB present:65536kB managed:57428kB free_pcp:0kB free_cma:0kB",
        "",
        "Node 0 DMA32: 0*4kB 0*8kB = 0kB\n16384 pages RAM",
    );
    let zone = &found.verdict.zones[0];
    assert_eq!((zone.at_min.rule, zone.at_min.needed), (Rule::Watermark, Figure::exact(1)));
    let pages = found.remedies.iter().find(|remedy| remedy.change == Change::FreePages).unwrap();
    assert_eq!((pages.effect, pages.amount), (Effect::Helps, Some(4)));
    assert_eq!(effect(&found, Change::MinFreeKbytes), Some(Effect::Unknown));
}

/// A zone that manages less than nothing.
#[test]
fn marks_above_all_that_a_zone_has() {
    // The row may break off before what the zone has.
    for rest in
        ["reserved_highatomic:0KB present:1048576kB managed:18446744073709533kB free_cma:0kB", ""]
    {
        let found = failure(
            "5.4.0",
            "order:0, mode:0x100cca(GFP_HIGHUSER_MOVABLE), nodemask=(null)",
            &format!(
                "free:193448kB min:99395541895224kB low:73886371836733356kB high:147673348131571488kB {rest}"
            ),
            "",
            "Node 0 DMA32: 48362*4kB (UME) 0*8kB = 193448kB",
        );
        assert_eq!(decided(&found.verdict), (Rule::Watermark, Answer::Refused));
        assert_eq!(kinds(&found), [CauseKind::WrongMark]);
        assert_eq!(effect(&found, Change::FreePages), Some(Effect::NoEffect));
        assert_eq!(effect(&found, Change::MinFreeKbytes), None);
    }
}

/// The reserve refuses first, and no block is there for anybody.
#[test]
fn blocks_that_nobody_has_come_before_a_reserve() {
    let of = |blocks: &str| {
        failure(
            "6.2.0",
            "order:9, mode:0xc42(GFP_NOFS|__GFP_HIGHMEM), nodemask=(null)",
            "free:49152kB boost:0kB min:45876kB low:57344kB high:68812kB reserved_highatomic:4096KB present:1048436kB managed:955344kB free_pcp:0kB free_cma:0kB",
            "",
            blocks,
        )
    };
    let found = of(
        "Node 0 DMA32: 12288*4kB (UME) 0*8kB 0*16kB 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 0*1024kB 0*2048kB 0*4096kB = 49152kB",
    );
    assert_eq!(found.verdict.rule, Rule::HighatomicReserve);
    assert_eq!(kinds(&found), [CauseKind::Fragmentation, CauseKind::Highatomic]);
    let found = of(
        "Node 0 DMA32: 11776*4kB (UME) 0*8kB 0*16kB 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 0*1024kB 1*2048kB (M) 0*4096kB = 49152kB",
    );
    assert_eq!(kinds(&found), [CauseKind::Highatomic]);
}

/// A figure that the log broke in two is none: 4912 pages are kept, and not 491.
#[test]
fn a_reserve_of_too_many_columns_is_not_known() {
    let rule = |dma: &str| {
        let log = format!(
            "\
a: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null)
CPU: 0 PID: 7 Comm: a Not tainted 6.12.1 #1
Mem-Info:
Node 0 DMA free:14332kB boost:0kB min:7596kB low:9496kB high:11396kB reserved_highatomic:0KB free_highatomic:0KB present:15992kB managed:15360kB free_cma:0kB
lowmem_reserve[]: {dma}
Node 0 DMA32 free:9000kB boost:0kB min:9900kB low:12000kB high:14000kB reserved_highatomic:0KB free_highatomic:0KB present:3000000kB managed:2900000kB free_cma:0kB
lowmem_reserve[]: 0 0 1967 1967 1967
Node 0 Normal free:9000kB boost:0kB min:9900kB low:12000kB high:14000kB reserved_highatomic:0KB free_highatomic:0KB present:2000000kB managed:2000000kB free_cma:0kB
lowmem_reserve[]: 0 0 0 0 0
"
        );
        explained(&log).verdict.zones.into_iter().find(|zone| zone.zone == "DMA").unwrap().at_min
    };
    assert_eq!(rule("0 2944 4912 4912 4912").rule, Rule::LowmemReserve);
    for broken in ["0 2944 491 2 4912 4912", "0 2944 491"] {
        let dma = rule(broken);
        assert_eq!((dma.rule, &dma.depends_on[..]), (Rule::Unknown, &["lowmem_reserve"][..]));
    }
}

/// A row that breaks off before CMA and what is managed: the machine's counters bound both.
#[test]
fn counters_of_the_machine_bound_what_a_row_lost() {
    let of = |counters: &str, end: &str| {
        failure(
            "5.4.3",
            "order:4, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)",
            "free:16820kB min:1808kB low:2260kB high:2712kB active_anon:11436kB inactive_anon:21076kB active_file:2098B",
            counters,
            &format!(
                "Node 0 DMA32: 508*4kB (UME) 242*8kB (UME) 730*16kB (UM) 21*32kB (UME) 5*64kB (UME) 2*128kB (M) 0*256kB\n{end}"
            ),
        )
    };
    let counters = " free:4205 free_pcp:118 free_cma:0";
    let found = of(counters, "65536 pages RAM");
    assert_eq!(decided(&found.verdict), (Rule::Passes, Answer::Passes));
    assert_eq!(of(counters, "").verdict.depends_on, ["reserved_highatomic"]);
    assert_eq!(of("", "65536 pages RAM").verdict.depends_on, ["free_cma"]);
}
