//! Kinds that reports from elsewhere had, each as a small input: what stands around figures, and what is missing among them.

use nearpage_explain::{Answer, CauseKind, Change, Effect, Explanation, Mark, Rule};

use super::all::explained;
use super::{kinds, only};

fn effect(explanation: &Explanation, change: Change) -> Effect {
    let found = explanation.remedies.iter().find(|remedy| remedy.change == change);
    found.unwrap_or_else(|| panic!("{:#?}", explanation.remedies)).effect
}

/// The lines about who was ended.
fn killed(explanation: &Explanation) -> Vec<String> {
    let paragraphs = explanation.paragraphs();
    let about = paragraphs.into_iter().find(|paragraph| paragraph.label == "killed");
    about.map_or(Vec::new(), |paragraph| paragraph.lines)
}

/// A kill of Linux 4.14 for the limit of a group.
fn of_group(usage: u64, limit: u64, both: (u64, u64)) -> String {
    let (used, most) = both;
    format!(
        "\
[ 70.0] work invoked oom-killer: gfp_mask=0x14000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=0
[ 70.0] CPU: 1 PID: 70 Comm: work Not tainted 4.14.70 #7
[ 70.0] Task in /jobs killed as a result of limit of /jobs
[ 70.0] memory: usage {usage}kB, limit {limit}kB, failcnt 70
[ 70.0] memory+swap: usage {used}kB, limit {most}kB, failcnt 0
[ 70.0] kmem: usage 0kB, limit 9007199254740988kB, failcnt 0
"
    )
}

const NO_LIMIT: u64 = 9_007_199_254_740_988;

#[test]
fn a_group_with_much_room_got_memory_back() {
    let found = only(&of_group(20_000, 100_000, (20_000, NO_LIMIT)));
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Memcg, Answer::Open));
    assert_eq!(effect(&found, Change::MemcgLimit), Effect::Unknown);
    assert!(found.causes[0].text.contains("78.1 MiB are left"), "{:#?}", found.causes);
    // A little was freed by others since.
    let found = only(&of_group(99_000, 100_000, (99_000, NO_LIMIT)));
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Memcg, Answer::Refused));
    // Memory has room, and memory and swap together have not.
    let found = only(&of_group(20_000, 100_000, (200_000, 200_000)));
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Memcg, Answer::Refused));
    assert_eq!(kinds(&found), [CauseKind::MemcgSwapLimit]);
}

#[test]
fn two_limits_that_are_reached_are_both_told() {
    let found = only(&of_group(100_000, 100_000, (199_960, 200_000)));
    assert_eq!(kinds(&found), [CauseKind::MemcgLimit, CauseKind::MemcgSwapLimit]);
    let advice = &found.remedies[0];
    assert_eq!((advice.change, advice.effect), (Change::MemcgLimit, Effect::Helps));
    assert!(advice.text.contains("one alone gives nothing"), "{advice:?}");
    let found = only(&of_group(100_000, 100_000, (150_000, 200_000)));
    assert_eq!(kinds(&found), [CauseKind::MemcgLimit]);
}

#[test]
fn who_was_ended_may_stand_in_other_lines() {
    let log = of_group(100_000, 100_000, (100_000, NO_LIMIT));
    assert_eq!(killed(&only(&log)), ["nobody, as far as the log goes"]);
    let table = "\
[ 70.0] [ pid ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[ 70.0] [   71]     0    71    90000    20000   700000        0             0 big
";
    let chosen =
        "[ 70.0] Memory cgroup out of memory: Kill process 71 (big) score 700 or sacrifice child\n";
    let ended = "[ 70.0] Killed process 72 (small) total-vm:400kB, anon-rss:300kB, file-rss:0kB, shmem-rss:0kB\n";
    let reaped = "[ 70.1] oom_reaper: reaped process 72 (small), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB\n";
    let first = |lines: &[&str]| killed(&only(&(log.clone() + table + &lines.concat()))).remove(0);
    let by_line = first(&[chosen, ended, reaped]);
    assert!(by_line.starts_with("small (process 72): 300 KiB anonymous"), "{by_line}");
    assert!(first(&[chosen]).starts_with("big (process 71) was chosen"));
    assert!(first(&[chosen, reaped]).starts_with("small (process 72), as the reaper"));
    // The reaper's may be that of a kill before.
    assert_eq!(first(&[&reaped.replace("72 (small)", "7 (other)"), chosen, ended]), by_line);
}

/// An urgent request of Linux 5.18 on a machine with one zone.
fn urgent(free: u64, blocks: &str, boost: u64, written: u64) -> String {
    format!(
        "\
[ 18.0] net: page allocation failure: order:0, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)
[ 18.0] CPU: 0 PID: 18 Comm: net Not tainted 5.18.0 #1
[ 18.0] Mem-Info:
[ 18.0] active_anon:2000 inactive_anon:7000 isolated_anon:0
[ 18.0]  active_file:700 inactive_file:400 isolated_file:0
[ 18.0]  slab_reclaimable:400 slab_unreclaimable:3000
[ 18.0]  free:{} free_pcp:0 free_cma:0
[ 18.0] Node 0 active_anon:8000kB inactive_anon:28000kB active_file:2800kB inactive_file:1600kB unevictable:0kB writeback:{written}kB shmem:0kB all_unreclaimable? no
[ 18.0] Normal free:{free}kB boost:{boost}kB min:5000kB low:5240kB high:5480kB reserved_highatomic:0KB active_anon:8000kB inactive_anon:28000kB active_file:2800kB inactive_file:1600kB unevictable:0kB present:65536kB managed:57000kB mlocked:0kB free_pcp:0kB free_cma:0kB
[ 18.0] lowmem_reserve[]: 0 0
[ 18.0] Normal: {blocks} = {free}kB
[ 18.0] 16384 pages RAM
",
        free / 4
    )
}

#[test]
fn a_boost_is_no_cause_where_nothing_is_free() {
    let empty = only(&urgent(0, "0*4kB 0*8kB", 4000, 11_000));
    assert_eq!(empty.verdict.rule, Rule::Watermark);
    assert_eq!(kinds(&empty)[0], CauseKind::EmptyLists);
    assert!(!kinds(&empty).contains(&CauseKind::Boost), "{:#?}", empty.causes);
    assert!(empty.causes[0].text.contains("10.7 MiB are being written"), "{:#?}", empty.causes);
    let boosted = only(&urgent(3000, "750*4kB (U) 0*8kB", 4000, 0));
    assert_eq!(kinds(&boosted)[0], CauseKind::Boost);
}

/// The SLUB failure has its lines before the page allocation failure has all of its own.
#[test]
fn reports_are_told_in_the_order_in_which_they_begin() {
    let log = urgent(0, "0*4kB 0*8kB", 0, 0).replace("[ 18.0] 16384 pages RAM\n", "");
    let slub = "\
[ 18.0] SLUB: Unable to allocate memory on node -1, gfp=0x40cc0(GFP_KERNEL|__GFP_COMP)
[ 18.0]   cache: kmalloc-192, object size: 192, buffer size: 192, default order: 0, min order: 0
[ 18.0]   node 0: slabs: 0, objs: 0, free: 0
";
    let all = explained(&(log + slub));
    let lines: Vec<u64> = all.iter().map(|found| found.report.first_line).collect();
    assert_eq!(lines, [1, 12]);
}

/// Nothing printed says which blocks were free; that a page would be given, and a block was not, says it.
#[test]
fn fragmentation_where_the_rows_of_blocks_are_missing() {
    let rows = |order: u8| {
        format!(
            "\
[ 34.0] net: page allocation failure: order:{order}, mode:0x4020
[ 34.0] Pid: 34, comm: net Not tainted 3.4.24 #1
[ 34.0] Mem-Info:
[ 34.0] active_anon:1000 inactive_anon:1000 isolated_anon:0
[ 34.0]  free:30000 slab_reclaimable:1000 slab_unreclaimable:1000
[ 34.0] Node 0 Normal free:120000kB min:20000kB low:25000kB high:30000kB active_anon:4000kB inactive_anon:4000kB active_file:400000kB inactive_file:900000kB unevictable:0kB present:2000000kB all_unreclaimable? no
[ 34.0] lowmem_reserve[]: 0 0 0 0
"
        )
    };
    let found = only(&rows(5));
    assert_eq!(found.verdict.answer, Answer::Open);
    assert_eq!(kinds(&found), [CauseKind::Fragmentation]);
    assert!(found.causes[0].text.starts_with("fragmentation, by exclusion: 117.1 MiB"));
    assert!(!kinds(&only(&rows(0))).contains(&CauseKind::Fragmentation));
    // A row that was cut shows less than the block.
    let cut = only(&(rows(5) + "[ 34.0] Node 0 Normal: 20000*4kB 5000*8\n"));
    assert_eq!(kinds(&cut), [CauseKind::Fragmentation]);
    // Too few pages are no question of blocks.
    let few = only(&rows(5).replace("free:120000kB", "free:1200kB"));
    assert_eq!(few.verdict.rule, Rule::Watermark);
    assert!(!kinds(&few).contains(&CauseKind::Fragmentation));
}

/// Who cannot wait is refused for want of time, however much else is held by whom nobody counts.
#[test]
fn what_could_be_reclaimed_is_told_first_of_an_urgent_request() {
    let log = "\
[ 32.0] net: page allocation failure. order:0, mode:0x20
[ 32.0] Pid: 32, comm: net Not tainted 2.6.32 #1
[ 32.0] Mem-Info:
[ 32.0] active_anon:1000 inactive_anon:1000 isolated_anon:0
[ 32.0]  active_file:20000 inactive_file:20000 isolated_file:0
[ 32.0]  free:300 slab_reclaimable:1000 slab_unreclaimable:1000
[ 32.0] Node 0 DMA32 free:1200kB min:3700kB low:4600kB high:5500kB active_anon:4000kB inactive_anon:4000kB active_file:80000kB inactive_file:80000kB unevictable:0kB present:900000kB all_unreclaimable? no
[ 32.0] lowmem_reserve[]: 0 0 0 0
[ 32.0] Node 0 DMA32: 300*4kB 0*8kB = 1200kB
[ 32.0] 230000 pages RAM
[ 32.0] 5000 pages reserved
";
    let found = only(log);
    assert_eq!(kinds(&found), [CauseKind::CannotWait, CauseKind::Unexplained]);
}

/// Linux 2.6.24 tells how much is on the lists, and not how much of it is anonymous.
#[test]
fn lists_of_the_first_kernels_explain_memory() {
    let kill = |lists: u64| {
        format!(
            "\
[ 24.0] a invoked oom-killer: gfp_mask=0xd0, order=0, oomkilladj=0
[ 24.0] Pid: 24, comm: a Not tainted 2.6.24-21 #1
[ 24.0] Mem-info:
[ 24.0] Active:{} inactive:25 dirty:0 writeback:0 unstable:0
[ 24.0]  free:700 slab:20000 mapped:80 pagetables:600 bounce:0
[ 24.0] Normal free:2800kB min:3700kB low:4600kB high:5500kB active:{lists}kB inactive:100kB present:880000kB pages_scanned:0 all_unreclaimable? yes
[ 24.0] lowmem_reserve[]: 0 0 0
[ 24.0] Normal: 700*4kB 0*8kB = 2800kB
[ 24.0] Free swap  = 0kB
[ 24.0] Total swap = 700000kB
[ 24.0] 222000 pages of RAM
[ 24.0] 2000 reserved pages
",
            lists / 4
        )
    };
    // Without swap the lists are as large as they are.
    let none =
        kill(500_000).replace("swap = 700000kB", "swap = 0kB").replace("slab:20000", "slab:60000");
    assert_eq!(kinds(&only(&none))[..2], [CauseKind::NoSwap, CauseKind::Slab]);
    let held = only(&kill(100_000));
    assert!(kinds(&held).contains(&CauseKind::Unexplained), "{:#?}", held.causes);
    let full = only(&kill(790_000));
    assert_eq!(kinds(&full)[0], CauseKind::SwapFull);
    assert!(full.causes[0].text.starts_with("771.5 MiB are on the lists"), "{:#?}", full.causes);
    assert!(!kinds(&full).contains(&CauseKind::Unexplained), "{:#?}", full.causes);
}

/// Where swap has room, or nothing tells how much, anonymous memory is no reason beside a reserve that decides.
#[test]
fn a_reserve_that_decides_stands_before_what_could_leave() {
    let log = "\
[ 41.0] a invoked oom-killer: gfp_mask=0x14201ca(GFP_HIGHUSER_MOVABLE|__GFP_COLD), nodemask=0, order=0, oom_score_adj=0
[ 41.0] a cpuset=/ mems_allowed=0
[ 41.0] CPU: 1 PID: 41 Comm: a Not tainted 4.10.0 #1
[ 41.0] Mem-Info:
[ 41.0] active_anon:37000 inactive_anon:37000 isolated_anon:0
[ 41.0]  active_file:400 inactive_file:600 isolated_file:0
[ 41.0]  slab_reclaimable:3000 slab_unreclaimable:4000
[ 41.0]  free:1250 free_pcp:100 free_cma:0
[ 41.0] Node 0 active_anon:148000kB inactive_anon:148000kB active_file:1600kB inactive_file:2400kB unevictable:0kB writeback:0kB shmem:0kB all_unreclaimable? no
[ 41.0] Node 0 DMA32 free:5000kB min:2264kB low:2828kB high:3392kB active_anon:148000kB inactive_anon:148000kB active_file:1600kB inactive_file:2400kB unevictable:0kB writepending:0kB present:376688kB managed:353968kB mlocked:0kB free_pcp:400kB local_pcp:88kB free_cma:0kB
[ 41.0] lowmem_reserve[]: 0 0 0 0 0
[ 41.0] Node 0 DMA32: 1250*4kB (UMEH) 0*8kB 0*16kB 0*32kB = 5000kB
";
    for swap in ["", "[ 41.0] Free swap  = 900000kB\n[ 41.0] Total swap = 1000000kB\n"] {
        let found = only(&format!("{log}{swap}"));
        assert_eq!((found.verdict.rule, found.verdict.mark), (Rule::HighatomicReserve, Mark::High));
        assert_eq!(kinds(&found)[..2], [CauseKind::Highatomic, CauseKind::Anonymous]);
    }
    let full =
        only(&(log.to_owned() + "[ 41.0] Free swap  = 0kB\n[ 41.0] Total swap = 1000000kB\n"));
    assert_eq!(kinds(&full)[..2], [CauseKind::SwapFull, CauseKind::Highatomic]);
}

/// An oops of another CPU is printed over a report, and breaks its rows.
#[test]
fn an_oops_of_another_cpu_ends_no_report() {
    let log = |oops: &str| {
        format!(
            "\
[  159.100000] a: vmalloc: allocation failure: 8589934592 bytes, mode:0x14080c0(GFP_KERNEL|__GFP_ZERO), nodemask=(null)
[  159.110000] a cpuset=/ mems_allowed=0
[  159.120000] CPU: 1 PID: 15 Comm: a Not tainted 4.15.0 #1
[  159.130000] Call Trace:
[  159.140000] general protection fault: 0000 [#1] SMP
[  159.150000]  warn_alloc+0x19a/0x2b0
{oops}[  159.400000] Mem-Info:
[  159.410000] RDX: 0000000000000100 RSI: 0000000000000000 RDI: ffff8801b0c29cde
[  159.420000] active_anon:6000 inactive_anon:64 isolated_anon:0
[  159.420000]  free:700000 free_pcp:400 free_cma:0
[  159.430000]  ? find_held_lock+0x35/0x1d0
[  159.440000] Node 0 
[  159.450000]  ? lock_acquire+0x1d5/0x580
[  159.460000] DMA32 free:2800000kB min:30316kB low:37892kB high:45468kB active_anon:0kB inactive_anon:0kB active_file:0kB inactive_file:0kB unevictable:0kB writepending:0kB present:3129292kB managed:2939956kB mlocked:0kB free_pcp:708kB local_pcp:664kB free_cma:0kB
[  159.470000]  ? lock_release+0xa40/0xa40
[  159.480000] lowmem_reserve[]:
[  159.490000]  ? mark_held_locks+0xaf/0x100
[  159.500000]  0
[  159.510000]  net_rx_action+0x792/0x1910
[  159.520000]  0
[  159.530000] 782323 pages RAM
"
        )
    };
    for pid in [15, 16] {
        let oops = format!(
            "[  159.160000] CPU: 0 PID: {pid}77 Comm: b Not tainted 4.15.0 #1\n[  159.170000] Hardware name: box\n"
        );
        let found = only(&log(&oops));
        assert_eq!(
            (found.verdict.rule, found.verdict.answer),
            (Rule::AreaTooLarge, Answer::Refused)
        );
        assert_eq!(found.report.zones.len(), 1);
    }
    // Much later it is another story: what follows is not of the one that began here.
    let later = log("[  165.160000] CPU: 0 PID: 77 Comm: b Not tainted 4.15.0 #1\n");
    assert!(explained(&later).iter().all(|found| found.report.zones.is_empty()));
}

/// Linux 2.6.38 to 3.2 took two pages more off than the block has others.
#[test]
fn two_pages_that_some_kernels_took_off() {
    let log = |kernel: &str| {
        format!(
            "\
[ 38.0] net: page allocation failure: order:0, mode:0xd0
[ 38.0] Pid: 38, comm: net Not tainted {kernel} #1
[ 38.0] Mem-Info:
[ 38.0]  free:1002 slab_reclaimable:1000 slab_unreclaimable:1000
[ 38.0] Node 0 Normal free:4008kB min:4000kB low:5000kB high:6000kB active_anon:4000kB inactive_anon:4000kB active_file:4000kB inactive_file:4000kB unevictable:0kB present:800000kB all_unreclaimable? no
[ 38.0] lowmem_reserve[]: 0 0 0 0
[ 38.0] Node 0 Normal: 1002*4kB 0*8kB = 4008kB
"
        )
    };
    for (kernel, rule) in [
        ("2.6.37.1", Rule::Passes),
        ("2.6.38", Rule::Watermark),
        ("2.6.39-rc2", Rule::Watermark),
        ("3.0.8", Rule::Watermark),
        ("3.2.4-generic", Rule::Watermark),
        ("3.3.0", Rule::Passes),
    ] {
        let found = only(&log(kernel));
        assert_eq!(found.verdict.rule, rule, "{kernel}");
        let zone = &found.verdict.zones[0].at_min;
        assert_eq!(zone.free.known(), Some(1002));
        let needed = if rule == Rule::Watermark { 1003 } else { 1001 };
        assert_eq!(zone.needed.known(), Some(needed), "{kernel}");
    }
}

/// What is free of a type is a part of the reserve, of which these kernels do not print how much there is.
#[test]
fn blocks_of_the_reserve_prove_its_size() {
    let log = |types: &str| {
        format!(
            "\
[ 48.0] a invoked oom-killer: gfp_mask=0x24280ca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), order=0, oom_score_adj=0
[ 48.0] CPU: 1 PID: 48 Comm: a Not tainted 4.8.0 #1
[ 48.0] Mem-Info:
[ 48.0]  free:5000 free_pcp:100 free_cma:0
[ 48.0] Node 0 active_anon:900000kB inactive_anon:900000kB active_file:0kB inactive_file:0kB unevictable:0kB shmem:0kB all_unreclaimable? yes
[ 48.0] DMA32 free:20000kB min:5600kB low:7600kB high:9600kB active_anon:900000kB inactive_anon:900000kB active_file:0kB inactive_file:0kB unevictable:0kB present:2080000kB managed:2030000kB mlocked:0kB free_pcp:400kB free_cma:0kB
[ 48.0] lowmem_reserve[]: 0 0 0 0
[ 48.0] DMA32: 1000*4kB ({types}) 2000*8kB ({types}) = 20000kB
[ 48.0] Free swap  = 8kB
[ 48.0] Total swap = 250000kB
"
        )
    };
    let found = only(&log("H"));
    assert_eq!(found.verdict.rule, Rule::HighatomicReserve);
    assert_eq!(found.verdict.answer, Answer::Refused);
    assert!(kinds(&found).contains(&CauseKind::Highatomic));
    assert_eq!(only(&log("UMH")).verdict.answer, Answer::Open);
}

#[test]
fn a_request_that_gives_up_early_says_so() {
    let log = |flags: &str| {
        urgent(4800, "0*4kB 600*8kB (U)", 0, 0)
            .replace("0x40cc0(GFP_KERNEL|__GFP_COMP)", flags)
            .replace("inactive_file:1600kB", "inactive_file:21600kB")
    };
    let found = only(&log("0x41cc0(GFP_KERNEL|__GFP_NORETRY|__GFP_COMP)"));
    assert_eq!(kinds(&found), [CauseKind::CannotWait]);
    assert!(found.causes[0].text.contains("__GFP_NORETRY"));
    assert_eq!(kinds(&only(&log("0x40cc0(GFP_KERNEL|__GFP_COMP)"))), [CauseKind::Files]);
    // A terminal cut the words: they tell less than all.
    let cut = only(&log("0x40cc0(GFP_KERN)"));
    assert_eq!((cut.verdict.answer, cut.verdict.depends_on), (Answer::Open, vec!["gfp_mask"]));
}

#[test]
fn what_a_group_of_the_first_version_has_in_swap_is_told() {
    let found = only(&of_group(100_000, 100_000, (400_000, NO_LIMIT)));
    assert!(found.remedies[0].text.contains("390.6 MiB: the group"), "{:#?}", found.remedies);
}

/// A mail breaks the line of counters before this word.
#[test]
fn slab_may_begin_a_line() {
    let log = "\
net: page allocation failure. order:0, mode:0x20
Mem-info:
Active:1650 inactive:2036 dirty:0 writeback:0 unstable:0 free:192
slab:60106 mapped:764 pagetables:29
DMA free:768kB min:2048kB low:2560kB high:3072kB active:6600kB
inactive:8144kB present:262144kB pages_scanned:0 all_unreclaimable? no
lowmem_reserve[]: 0 0 0 0
DMA: 0*4kB 0*8kB 0*16kB 0*32kB 0*64kB 0*128kB 1*256kB 1*512kB = 768kB
65536 pages of RAM
1180 reserved pages
";
    let found = only(log);
    assert_eq!(found.report.slab_pages, Some(60_106));
    assert_eq!(kinds(&found)[0], CauseKind::Slab);
}

/// Memory of files could be reclaimed, and no block is large enough: more pages alone would not do.
#[test]
fn a_kill_for_a_block_names_fragmentation_beside_a_mark() {
    let log = |blocks: &str| {
        format!(
            "\
[ 47.0] a invoked oom-killer: gfp_mask=0x27000c0(GFP_KERNEL_ACCOUNT|__GFP_NOTRACK), order=2, oom_score_adj=0
[ 47.0] CPU: 1 PID: 47 Comm: a Not tainted 4.7.0 #1
[ 47.0] Mem-Info:
[ 47.0]  free:1500 free_pcp:0 free_cma:0
[ 47.0] Node 0 Normal free:6000kB min:6400kB low:8000kB high:9600kB active_anon:60000kB inactive_anon:60000kB active_file:3000000kB inactive_file:600000kB unevictable:0kB present:4500000kB managed:4400000kB mlocked:0kB free_pcp:0kB free_cma:0kB all_unreclaimable? no
[ 47.0] lowmem_reserve[]: 0 0 0 0
[ 47.0] Node 0 Normal: {blocks} = 6000kB
"
        )
    };
    let found = only(&log("500*4kB (UM) 498*8kB (UM) 1*16kB (H)"));
    assert_eq!(found.verdict.rule, Rule::Watermark);
    assert_eq!(kinds(&found)[..2], [CauseKind::Fragmentation, CauseKind::Files]);
    let found = only(&log("500*4kB (UM) 498*8kB (UM) 1*16kB (U)"));
    assert_eq!(kinds(&found)[0], CauseKind::Files);
}
