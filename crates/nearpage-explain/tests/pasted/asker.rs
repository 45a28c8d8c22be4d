//! Causes that the asker tells, and causes that play no part: each kind as a small input.

use nearpage_explain::{Answer, CauseKind, Change, Effect, Explanation, Figure, Rule};

use super::{ORDER_0, failure, filled, first, kill, kinds, normal, only};

fn advice(found: &Explanation, change: Change) -> (Effect, Option<u64>) {
    let remedy = found.remedies.iter().find(|remedy| remedy.change == change).unwrap();
    (remedy.effect, remedy.amount)
}

fn told(found: &Explanation, kind: CauseKind) -> &str {
    let cause = found.causes.iter().find(|cause| cause.kind == kind);
    &cause.unwrap_or_else(|| panic!("{:#?}", found.causes)).text
}

fn killed(found: &Explanation) -> Vec<String> {
    let paragraphs = found.paragraphs();
    paragraphs.into_iter().find(|paragraph| paragraph.label == "killed").unwrap().lines
}

/// A boost decides a kill of a machine that is full without it: what fills it comes first.
#[test]
fn a_boost_of_a_full_machine_is_told_behind_what_fills_it() {
    let log = kill(ORDER_0, &[normal(9000)]).replace(
        "boost:0kB min:5600kB low:7000kB high:8400kB",
        "boost:8000kB min:13600kB low:15000kB high:16400kB",
    );
    let found = only(&log);
    assert_eq!(found.verdict.rule, Rule::Watermark);
    assert_eq!(kinds(&found), [CauseKind::NoSwap, CauseKind::Boost]);
    assert_eq!(advice(&found, Change::WatermarkBoostFactor), (Effect::HelpsALittle, Some(8000)));
}

/// An urgent single page is not held up by a boost: none of it is in what is told.
#[test]
fn a_boost_that_the_rule_leaves_out_is_no_cause() {
    let log = kill(ORDER_0, &[normal(1200)])
        .replace(
            "boost:0kB min:5600kB low:7000kB high:8400kB",
            "boost:16000kB min:21600kB low:23000kB high:24400kB",
        )
        .replace("6.1.30", "6.6.30")
        .replace("active_file:40kB", "active_file:900000kB");
    let found = only(&failure(&log, "order:0, mode:0x820(GFP_ATOMIC), nodemask=(null)"));
    // 3/8 of 5600 KiB, and a page.
    assert_eq!(found.verdict.zones[0].at_min.needed, Figure::exact(526));
    assert_eq!(kinds(&found)[0], CauseKind::CannotWait, "{:#?}", found.causes);
    assert!(!kinds(&found).contains(&CauseKind::Boost), "{:#?}", found.causes);
    assert_eq!(advice(&found, Change::FreePages).1, Some(2104 - 1200));
    assert_eq!(advice(&found, Change::WatermarkBoostFactor).0, Effect::NoEffect);
}

const TABLE: &str = "\
[5.0] Tasks state (memory values in pages):
[5.0] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[5.0] [     60]     0    60     1200      700    53248       20             0 shell
[5.0] [     61]     0    61    70000       50   499712    60000             0 my, eater
";
const CHOSEN: &str = "[5.0] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/box,task_memcg=/box,task=my, eater,pid=61,uid=0\n";

/// The head and the limits are lost: counters and the table tell what fills the group, and who was chosen.
#[test]
fn a_group_without_its_head_is_told_by_its_counters() {
    let stats = "\
[5.0] Memory cgroup stats for /box:
[5.0] anon 104857600
                     file 0
                     shmem 0
                     inactive_anon 209715200
                     active_anon 0
                     pagetables 1048576
";
    let found = only(&format!("{stats}{TABLE}{CHOSEN}"));
    let text = told(&found, CauseKind::Anonymous);
    assert!(text.starts_with("200 MiB of the 201 MiB"), "{text}");
    let text = told(&found, CauseKind::Task);
    let largest = "my, eater (process 61) with 200 KiB resident and 234.3 MiB in swap";
    assert!(text.ends_with(largest), "{text}");
    let lines = killed(&found);
    assert!(lines[0].starts_with("my, eater (process 61) was chosen"), "{lines:?}");
}

/// Page tables of the tasks are in the table alone, before 5.11.
#[test]
fn a_group_full_of_the_kernels_memory() {
    let log = format!(
        "\
[5.0] eater invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
[5.0] CPU: 2 PID: 61 Comm: eater Not tainted 5.2.0 #1
[5.0] memory: usage 1024kB, limit 1024kB, failcnt 70
[5.0] Memory cgroup stats for /box:
[5.0] anon 0
[5.0] file 0
[5.0] kernel_stack 36864
[5.0] slab 270336
{TABLE}{CHOSEN}"
    );
    let found = only(&log);
    let text = told(&found, CauseKind::MemcgKernel);
    assert!(text.starts_with("840 KiB of the 1 MiB"), "{text}");
    assert!(text.ends_with("most of it page tables of its tasks"), "{text}");
    assert_eq!(advice(&found, Change::MemcgLimit).0, Effect::HelpsALittle);
}

/// Dirty pages are not yet being written.
#[test]
fn dirty_pages_are_told_as_such() {
    let log = |written: u64| {
        let log = kill(ORDER_0, &[normal(0)])
            .replace("dirty:0kB writeback:0kB", &format!("dirty:307200kB writeback:{written}kB"));
        let blocks = "Node 0 Normal: 0*4kB (UM)";
        assert!(log.contains(blocks));
        failure(&log, "order:0, mode:0x820(GFP_ATOMIC), nodemask=(null)")
    };
    let found = only(&log(0));
    assert_eq!(kinds(&found)[0], CauseKind::EmptyLists);
    assert!(
        first(&found)
            .text
            .ends_with("; 300 MiB are dirty, and can leave only when they are written")
    );
    let found = only(&log(2048));
    let both = "; 300 MiB are dirty and 2 MiB being written, and can leave only then";
    assert!(first(&found).text.ends_with(both), "{:#?}", found.causes);
}

/// Quoted-printable of a flowed mail, in which no equals sign was written as a code before the rows.
#[test]
fn a_flowed_mail_in_quoted_printable() {
    let log =
        failure(&kill(ORDER_0, &[normal(1000)]), "order:0, mode:0x20").replace("6.1.30", "4.1.3");
    let log =
        log.replace(" boost:0kB", "").replace(" reserved_highatomic:0KB free_highatomic:0KB", "");
    let whole = only(&log);
    let mut mail = String::new();
    for line in log.lines() {
        let flowed = filled(line, 170).trim_end().replace('\n', " \n");
        for line in flowed.lines() {
            let code = if line.ends_with(' ') { "=20" } else { "" };
            let mut rest = line.trim_end().replace('=', "=3D");
            while rest.len() > 75 {
                let end = rest[72..75].find('=').map_or(75, |at| 72 + at);
                mail += &format!("{}=\n", &rest[..end]);
                rest = rest.split_off(end);
            }
            mail += &format!("{rest}{code}\n");
        }
    }
    assert!(mail.contains("kB=20\n"), "{mail}");
    let found = only(&mail);
    assert_eq!(found.report.zones, whole.report.zones, "{mail}");
    assert_eq!(found.verdict, whole.verdict);
}

/// The reason of a vmalloc failure is its cause.
#[test]
fn what_vmalloc_says_is_why() {
    let log = |reason: &str| {
        let head = format!(
            "w: vmalloc error: size 409600, {reason}, mode:0xcc2(GFP_KERNEL|__GFP_HIGHMEM), nodemask=(null)"
        );
        let log = kill(ORDER_0, &[normal(800_000)]);
        format!("[50.0] {head}\n{}", log.split_once('\n').unwrap().1)
    };
    let found = only(&log("failed to map pages"));
    assert_eq!(kinds(&found)[0], CauseKind::Addresses);
    assert!(first(&found).text.starts_with("all pages of the area of 400 KiB were there"));
    let found = only(&log("failed to allocate page array size 800"));
    assert!(first(&found).text.starts_with("the list of the pages"), "{:#?}", found.causes);
}

/// kswapd does not reclaim for itself, and a task that is to be ended gets no page above the mark.
#[test]
fn who_asks_may_be_why() {
    let log = kill(ORDER_0, &[normal(5000)]).replace("active_file:40kB", "active_file:500000kB");
    let request = "order:0, mode:0x90c40(GFP_NOFS|__GFP_COMP|__GFP_NOMEMALLOC), nodemask=(null)";
    let own = only(
        &failure(&log, request).replace(" a:", " kswapd0:").replace("Comm: a", "Comm: kswapd0"),
    );
    assert_eq!(kinds(&own), [CauseKind::CannotWait]);
    assert!(first(&own).text.contains("the asker is kswapd itself"), "{:#?}", own.causes);
    let passing = kill(ORDER_0, &[normal(9000)]);
    let found = only(&failure(&passing, "order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null)"));
    assert!(told(&found, CauseKind::Late).contains("its task was to be ended"));
    let found =
        only(&failure(&passing, "order:0, mode:0x1cc0(GFP_KERNEL|__GFP_NORETRY), nodemask=(null)"));
    assert!(told(&found, CauseKind::Late).contains("some came back"));
}

/// A bit that no kernel before 4.4 has proves the table of the others.
#[test]
fn a_bit_of_newer_kernels_proves_their_flags() {
    let log = "\
[7.0] SLUB: Unable to allocate memory on node -1 (gfp=0x2088020)
[7.0]   cache: names, object size: 128, buffer size: 128, default order: 0, min order: 0
";
    let found = only(log);
    assert_eq!(found.report.mode.gfp.to_string(), "GFP_ATOMIC|__GFP_ZERO");
}

/// Digits may be lost where a line was cut.
#[test]
fn a_number_at_the_edge_is_none() {
    let end = "[50.0] Out of memory: Killed process 22 (a) total-vm:9000kB, anon-rss:8000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:103480";
    let found = only(&(kill(ORDER_0, &[normal(1000)]) + end + "\n"));
    let victim = found.report.victim.unwrap();
    assert_eq!((victim.anon, victim.pgtables), (Some(8000), None));
}

/// The first kernels printed no first line of a kill: what memory had, and who was ended.
#[test]
fn a_kill_without_a_head_has_the_memory_before_it() {
    let log = |gap: &str| {
        format!(
            "\
Mem-info:
Active:90000 inactive:20000 dirty:0 writeback:0 unstable:0 free:500 slab:3000 mapped:105000 pagetables:800
Node 0 DMA free:1000kB min:20kB low:40kB high:60kB active:0kB inactive:0kB present:16384kB pages_scanned:0 all_unreclaimable? no
lowmem_reserve[]: 0 500 500
Node 0 Normal free:1000kB min:2040kB low:4080kB high:6120kB active:360000kB inactive:80000kB present:500000kB pages_scanned:44023 all_unreclaimable? yes
lowmem_reserve[]: 0 0 0
Node 0 DMA: 250*4kB = 1000kB
Node 0 Normal: 250*4kB = 1000kB
Swap cache: add 274, delete 274, find 3/16, race 0+0
Free swap:            0kB
129000 pages of RAM
4000 reserved pages
{gap}Out of Memory: Killed process 70 (eater).
"
        )
    };
    let found = only(&log(""));
    assert_eq!(found.report.zones.len(), 2);
    assert_eq!(found.report.victim.as_ref().unwrap().pid, 70);
    assert_eq!(kinds(&found)[0], CauseKind::SwapFull, "{:#?}", found.causes);
    // Far away it is another's.
    let found = only(&log(&"something else\n".repeat(20)));
    assert!(found.report.zones.is_empty());
}

/// Swap cache takes memory and swap both.
#[test]
fn a_group_of_swap_cache() {
    let log = "\
[5.0] a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[5.0] memory: usage 20480kB, limit 20480kB, failcnt 90
[5.0] swap: usage 11000kB, limit 9007199254740988kB, failcnt 0
[5.0] Memory cgroup stats for /box:
[5.0] anon 10000000
[5.0] file 0
[5.0] swapcached 9900000
[5.0] inactive_anon 18000000
[5.0] active_anon 1900000
";
    let found = only(log);
    assert_eq!(found.verdict.rule, Rule::Memcg);
    assert!(told(&found, CauseKind::Anonymous).contains("9.4 MiB of it in the swap cache"));
    let little = only(&log.replace("swapcached 9900000", "swapcached 99000"));
    assert!(!told(&little, CauseKind::Anonymous).contains("swap cache"));
}

/// The stack tells of a group whose lines are missing: the kernel ended itself before them.
#[test]
fn a_stack_of_a_groups_limit() {
    let log = |call: &str, free: u64| {
        let stack = format!(
            "[50.0] Call Trace:\n[50.0]  dump_header+0x8e/0x214\n[50.0]  {call}+0x34f/0x580\n[50.0] Mem-Info:"
        );
        only(&kill(ORDER_0, &[normal(free)]).replace("[50.0] Mem-Info:", &stack))
    };
    assert_eq!(log("mem_cgroup_oom_synchronize", 4_000_000).verdict.rule, Rule::Memcg);
    // Without it a machine that is half empty is not told to be full.
    let found = log("out_of_memory", 4_000_000);
    assert_eq!((found.verdict.rule, kinds(&found)[0]), (Rule::Passes, CauseKind::Late));
    assert!(first(&found).text.contains("no zone is short"), "{:#?}", found.causes);
    assert_eq!(kinds(&log("out_of_memory", 5000))[0], CauseKind::NoSwap);
}

/// What only urgent requests may take is nearly nothing, also where it is enough when it is read.
#[test]
fn an_urgent_request_that_passes_at_the_brink() {
    let request = "order:0, mode:0x820(GFP_ATOMIC), nodemask=(null)";
    let log = |free| failure(&kill(ORDER_0, &[normal(free)]), request);
    let found = only(&log(2800));
    assert_eq!(found.verdict.rule, Rule::Passes);
    assert_eq!(kinds(&found)[0], CauseKind::Late);
    let text = &first(&found).text;
    assert!(
        text.contains("nearly empty, with 2.7 MiB free below its min mark of 5.4 MiB"),
        "{text}"
    );
    let above = only(&log(6000));
    assert!(!first(&above).text.contains("nearly empty"));
    let cached = log(90_000).replace("active_file:40kB", "active_file:900000kB");
    assert_eq!(kinds(&only(&cached)), [CauseKind::Late, CauseKind::CannotWait]);
}

/// What the first line alone tells: a single page is refused by marks.
#[test]
fn a_report_without_zones_tells_what_its_first_line_does() {
    let log = |request: &str| {
        only(&format!(
            "[1.0] w: page allocation failure: {request}, nodemask=(null)\n[1.0] CPU: 1 PID: 5 Comm: w Not tainted 6.1.9 #1\n"
        ))
    };
    let told = |request| {
        let found = log(request);
        assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Unknown, Answer::Open));
        assert_eq!(kinds(&found), [CauseKind::NoFigures]);
        first(&found).text.clone()
    };
    let urgent = told("order:0, mode:0x820(GFP_ATOMIC)");
    assert!(urgent.contains("not above 3/8 of the min mark"), "{urgent}");
    assert!(urgent.contains("could not wait"), "{urgent}");
    let large = told("order:4, mode:0xcc0(GFP_KERNEL)");
    assert!(large.contains("order 4 (64 KiB)") && !large.contains("wait"), "{large}");
    assert!(told("order:2, mode:0xcc0(GFP_KERNEL)").contains("lay together"));
    let slub = only(
        "[1.0] SLUB: Unable to allocate memory on node -1, gfp=0x820(GFP_ATOMIC)\n[1.0]   cache: pipes, object size: 96, buffer size: 96, default order: 1, min order: 0\n[1.0]   node 0: slabs: 10, objs: 420, free: 0\n",
    );
    assert_eq!(kinds(&slub), [CauseKind::NoFigures]);
    let area = only(
        "[1.0] w: vmalloc error: size 0, failed to allocate pages, mode:0x10dc2(GFP_KERNEL|__GFP_HIGHMEM|__GFP_NORETRY|__GFP_ZERO), nodemask=(null)\n",
    );
    assert_eq!(kinds(&area), [CauseKind::NoFigures]);
    // Early in the boot there are pages, and no zone.
    let boot = "[0.0] w: page allocation failure: order:0, mode:0x0(), nodemask=(null)\n[0.0] Mem-Info:\n[0.0] active_anon:0 inactive_anon:0 isolated_anon:0\n[0.0]  free:250000 free_pcp:0 free_cma:0\n[0.0] 262144 pages RAM\n";
    let found = only(boot);
    let text = &first(&found).text;
    assert!(text.contains("no zone is shown, though 976.5 MiB are free"), "{text}");
}

/// Nothing else lists caches that cannot be reclaimed: a kill whose head was left out.
#[test]
fn a_list_of_caches_is_that_of_a_kill() {
    let found = only(
        "[5.1] Node 0 Normal free:5400kB min:5600kB low:7000kB high:8400kB active_anon:40kB present:4200000kB managed:4000000kB free_cma:0kB\n...\n[5.2] Unreclaimable slab info:\n[5.2] Name                      Used          Total\n[5.3] leaky          3700000KB    3700000KB\n",
    );
    assert!(first(&found).text.contains("leaky with 3.5 GiB"), "{:#?}", found.causes);
}

/// Most of a machine gone, and a few pages of CMA: those only tip the kill.
#[test]
fn cma_that_tips_a_kill_is_told_behind_what_is_gone() {
    let log = kill(
        ORDER_0.replace("0x100cca(GFP_HIGHUSER_MOVABLE)", "0xcc0(GFP_KERNEL)").as_str(),
        &[normal(8000)],
    )
    .replace("inactive_anon:7600000kB", "inactive_anon:40000kB")
    .replace(
        "free_pcp:0kB local_pcp:0kB free_cma:0kB",
        "free_pcp:0kB local_pcp:0kB free_cma:4000kB",
    )
    .replace("inactive_anon:1900000", "inactive_anon:10000");
    let found = only(&log);
    let told = kinds(&found);
    assert_eq!((told[0], told[told.len() - 1]), (CauseKind::Unexplained, CauseKind::Cma));
}

/// How much of what was not reclaimed is dirty.
#[test]
fn files_that_did_not_leave_are_dirty_or_not() {
    let log = |state: &str| {
        let log = kill(ORDER_0, &[normal(5000)])
            .replace("inactive_anon:7600000kB", "inactive_anon:40000kB")
            .replace("inactive_file:40kB", "inactive_file:7000000kB")
            .replace("dirty:0kB writeback:0kB", state);
        told(&only(&log), CauseKind::Files).to_owned()
    };
    assert!(log("dirty:90000kB writeback:10000kB").contains("no more than 97.6 MiB are dirty"));
    assert!(log("dirty:6000000kB writeback:10000kB").contains("leave when they are"));
}

/// vmalloc that wants large pages takes small ones.
#[test]
fn an_area_of_large_pages_falls_back() {
    let log = |free: u64| {
        let log = failure(
            &kill(ORDER_0, &[normal(free)]),
            "order:9, mode:0xcc2(GFP_KERNEL|__GFP_HIGHMEM), nodemask=(null)",
        );
        only(&log.replace(
            "page allocation failure: order:9,",
            "vmalloc error: size 0, page order 9, failed to allocate pages,",
        ))
    };
    let found = log(600_000);
    assert_eq!((found.verdict.rule, kinds(&found)[0]), (Rule::NoBlock, CauseKind::Fragmentation));
    assert!(first(&found).text.contains("takes single pages then"), "{:#?}", found.causes);
}

/// A kill that was pasted up to its counters still tells what fills memory, in pages.
#[test]
fn counters_without_rows_tell_what_fills_memory() {
    let log = "\
[1.0] w invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[1.0] CPU: 0 PID: 9 Comm: w Not tainted 5.10.9 #1
[1.0] Mem-Info:
[1.0] active_anon:200 inactive_anon:8000 isolated_anon:0
[1.0]  active_file:3 inactive_file:3 isolated_file:0
[1.0]  unevictable:0 dirty:0 writeback:0
[1.0]  slab_reclaimable:12000 slab_unreclaimable:270000
[1.0]  mapped:50000 shmem:7000 pagetables:400 bounce:0
[1.0]  free:9000 free_pcp:400 free_cma:0
...
";
    let found = only(log);
    assert_eq!(kinds(&found), [CauseKind::Slab]);
    let text = &first(&found).text;
    assert!(text.starts_with("270000 of the 299606 pages"), "{text}");
    assert!(text.contains("1 GiB where a page has 4 KiB"), "{text}");
    let full = only(&log.replace("inactive_anon:8000", "inactive_anon:800000"));
    assert_eq!(kinds(&full), [CauseKind::Anonymous]);
}

/// A size below zero, as a wrong computation makes one.
#[test]
fn an_area_whose_size_is_below_zero() {
    let log = |size: &str| {
        only(&format!(
            "[1.0] w: vmalloc error: size {size}, exceeds total pages, mode:0xcc0(GFP_KERNEL), nodemask=(null)\n"
        ))
    };
    let found = log("18446744073709486080");
    assert_eq!(found.verdict.rule, Rule::AreaTooLarge);
    assert!(first(&found).text.contains("below zero (-65536"), "{:#?}", found.causes);
    let text = first(&log("2199023255552")).text.clone();
    assert!(text.contains("the area of 2 TiB is larger than all memory"), "{text}");
}

/// kswapd may take all there is for what it asks itself, and an interrupt over it may not.
#[test]
fn what_kswapd_asks_itself_ignores_marks() {
    let log = |mode: &str, blocks: &str| {
        let log = failure(&kill(ORDER_0, &[normal(1200)]), &format!("order:0, mode:{mode}"))
            .replace("] a: page", "] kswapd0: page")
            .replace("Comm: a", "Comm: kswapd0")
            .replace("300*4kB (UM)", blocks);
        only(&if blocks == "0*4kB" { log.replace("= 1200kB", "= 0kB") } else { log })
    };
    let none = log("0xcc0(GFP_KERNEL)", "0*4kB");
    assert_eq!((none.verdict.rule, kinds(&none)[0]), (Rule::NoBlock, CauseKind::EmptyLists));
    assert_eq!(log("0xcc0(GFP_KERNEL)", "300*4kB (UM)").verdict.rule, Rule::Passes);
    assert_eq!(log("0x820(GFP_ATOMIC)", "300*4kB (UM)").verdict.rule, Rule::Watermark);
}

/// Rows of blocks whose zones were left out tell of fragmentation.
#[test]
fn rows_of_blocks_alone_tell_of_fragmentation() {
    let found = only(
        "w invoked oom-killer: gfp_mask=0x240c2c0(GFP_KERNEL|__GFP_NOWARN|__GFP_COMP|__GFP_ZERO), nodemask=0, order=3, oom_score_adj=0\n...\nMem-Info:\nNormal: 12000*4kB (UMEH) 7000*8kB (UMEH) 2000*16kB (UMEH) 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 0*1024kB 0*2048kB 0*4096kB = 136000kB\n",
    );
    assert_eq!(
        kinds(&found),
        [CauseKind::Fragmentation],
        "{:#?} {:#?}",
        found.verdict,
        found.report.zones
    );
    assert!(
        first(&found).text.contains("132.8 MiB (34000 pages) free in Normal"),
        "{:#?}",
        found.causes
    );
}

/// A release that a mail broke off is none.
#[test]
fn a_release_that_was_broken_off_is_not_told() {
    let log = failure(&kill(ORDER_0, &[normal(1200)]), "order:0, mode:0x820(GFP_ATOMIC)")
        .replace("Not tainted 6.1.30 #5", "Not tainted 6.1.30-\nboard-v7l #5");
    assert_ne!(only(&log).report.kernel.as_deref(), Some("7l"));
}

/// A test of the kernel forces failures; of another task it forced none.
#[test]
fn a_failure_that_fault_injection_forced() {
    let log = |caller: &str| {
        only(&format!(
            "[5.1][  T70] FAULT_INJECTION: forcing a failure.\n[5.1][  T70] name failslab, interval 1, probability 0, space 0, times 0\n[5.1][  T70] CPU: 0 PID: 70 Comm: w Not tainted 6.13.1 #3\n[5.1][  T70] Call Trace:\n[5.2][{caller}] w: vmalloc error: size 462848, vm_struct allocation failed, mode:0xdc0(GFP_KERNEL|__GFP_ZERO), nodemask=(null)\n"
        ))
    };
    let found = log("  T70");
    assert_eq!((found.verdict.rule, kinds(&found)), (Rule::Unknown, vec![CauseKind::Forced]));
    let other = log("  T71");
    assert_eq!((other.verdict.rule, other.verdict.answer), (Rule::Addresses, Answer::Open));
}
