//! One small report of each kind that older kernels, other machines and people who paste have.

mod all;

use nearpage_explain::{Answer, CauseKind, Change, Effect, Figure, Kind, Mark, Reader, Rule};

use all::explained;

/// `dmesg -T` in other languages says the same.
#[test]
fn dates_of_any_language_are_no_part_of_a_name() {
    let log = "\
[DATE] db invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[DATE] memory: usage 2048000kB, limit 2048000kB, failcnt 17
";
    let english = explained(&log.replace("DATE", "Sat Mar  7 01:02:03 2026")).remove(0);
    assert_eq!((english.verdict.rule, english.report.process.as_str()), (Rule::Memcg, "db"));
    for date in
        ["Sa M\u{e4}r  7 01:02:03 2026", "7 mars 2026 01:02:03", "sam. mars  7 01:02:03 2026"]
    {
        let other = explained(&log.replace("DATE", date)).remove(0);
        assert_eq!(
            (&other.verdict, &other.report.process),
            (&english.verdict, &english.report.process)
        );
    }
}

#[test]
fn flags_are_read_from_words_where_digits_are_hidden() {
    let log =
        "[1.0] a invoked oom-killer: gfp_mask=0x14****(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), order=0\n";
    assert_eq!(explained(log)[0].verdict.highest_zone, "Movable");
}

/// Normal is the lowest zone: what it keeps is kept from requests for Movable.
#[test]
fn a_zone_keeps_nothing_from_requests_of_its_own_kind() {
    let log = "\
[1.0] a invoked oom-killer: gfp_mask=0x40cc0(GFP_KERNEL|__GFP_COMP), order=1, oom_score_adj=0
[1.0] Mem-Info:
[1.0] Node 0 Normal free:8000kB min:4000kB low:5000kB high:6000kB present:2000000kB managed:1900000kB
[1.0] lowmem_reserve[]: 0 9000 9000
[1.0] Node 0 Movable free:80000kB min:400kB low:500kB high:600kB present:200000kB managed:200000kB
[1.0] lowmem_reserve[]: 0 0 0
[1.0] Node 0 Normal: 2000*4kB (UME) 0*8kB 0*16kB = 8000kB
[1.0] Node 0 Movable: 20000*4kB (M) 0*8kB 0*16kB = 80000kB
";
    let explanation = explained(log).remove(0);
    let normal = explanation.verdict.zones.iter().find(|zone| zone.zone == "Normal").unwrap();
    // 1000 of the mark, the block's other page, and one.
    assert_eq!(
        (normal.at_min.rule, normal.at_min.free, normal.at_min.needed),
        (Rule::NoBlock, Figure::exact(2000), Figure::exact(1002))
    );
}

/// Before Linux 5.13 a vmalloc failure tells the size alone.
#[test]
fn vmalloc_failures_of_older_kernels() {
    let log = |bytes: u64| {
        format!(
            "[1.0] a: vmalloc: allocation failure: {bytes} bytes, mode:0xcc0(GFP_KERNEL), nodemask=(null)\n\
             [1.0] CPU: 1 PID: 8 Comm: a Not tainted 4.19.0 #1\n\
             [1.0] Mem-Info:\n\
             [1.0] Node 0 Normal free:400kB min:4000kB low:5000kB high:6000kB present:400000kB managed:400000kB\n\
             [1.0] lowmem_reserve[]: 0 0 0 0 0\n\
             [1.0] 100000 pages RAM\n"
        )
    };
    let found = |bytes| {
        let explanation = explained(&log(bytes)).remove(0);
        assert_eq!(
            (explanation.report.kind, explanation.report.process.as_str()),
            (Kind::Vmalloc, "a")
        );
        explanation.verdict.rule
    };
    // The size alone is told where no page was refused.
    assert_eq!(found(100_000 * 4096), Rule::Addresses);
    assert_eq!(found(100_000 * 4096 + 1), Rule::AreaTooLarge);
}

/// Up to Linux 4.9 a line before the first one tells the size.
#[test]
fn a_vmalloc_failure_whose_size_has_a_line_of_its_own() {
    let found = |words: &str| {
        let log = format!(
            "[1.0] vmalloc: allocation failure{words}\n\
             [1.0] a: page allocation failure: order:0, mode:0x24000c2\n\
             [1.0] CPU: 1 PID: 8 Comm: a Not tainted 4.4.0 #1\n\
             [1.0] Mem-Info:\n\
             [1.0] Node 0 Normal free:400000kB min:4000kB low:5000kB high:6000kB present:400000kB managed:400000kB\n\
             [1.0] lowmem_reserve[]: 0 0 0 0\n\
             [1.0] Node 0 Normal: 100000*4kB (UM) 0*8kB = 400000kB\n\
             [1.0] 100000 pages RAM\n"
        );
        let explanation = explained(&log).remove(0);
        assert_eq!(explanation.report.kind, Kind::Vmalloc);
        explanation.verdict.rule
    };
    assert_eq!(found(": 17178296320 bytes"), Rule::AreaTooLarge);
    assert_eq!(found(": 4096000 bytes"), Rule::Addresses);
    assert_eq!(found(", allocated 4096 of 8192 bytes"), Rule::Passes);
}

/// Where a report ends before it says how much memory there is, what its zones have is known.
#[test]
fn an_area_is_larger_than_all_zones_or_nothing_is_known() {
    let found = |bytes: u64, zone: &str| {
        let log = format!(
            "[1.0] a: vmalloc: allocation failure: {bytes} bytes, mode:0xcc0(GFP_KERNEL), nodemask=(null)\n{zone}"
        );
        let verdict = explained(&log).remove(0).verdict;
        (verdict.rule, verdict.answer)
    };
    let zone = "[1.0] Node 0 Normal free:80000kB min:400kB low:500kB high:600kB present:400000kB managed:400000kB\n";
    assert_eq!(found(17_178_296_320, zone), (Rule::AreaTooLarge, Answer::Refused));
    // It is smaller: the size alone is told where no page was refused.
    assert_eq!(found(4_096_000, zone), (Rule::Addresses, Answer::Refused));
    assert_eq!(found(17_178_296_320, ""), (Rule::Unknown, Answer::Open));
}

/// A crash may come between the size of an area and the flags: there is a report that cannot be read.
#[test]
fn a_first_line_that_a_crash_cut_is_told() {
    let log = "[1.0] a: vmalloc: allocation failure: 34359738352 bytes[1.1] BUG: unable to handle kernel paging request\n";
    let mut reader = Reader::new(log.as_bytes());
    assert!(reader.next().is_none());
    assert_eq!(reader.unread().len(), 1);
}

/// A SLUB failure names no process: the next report's is not its own.
#[test]
fn a_slub_failure_takes_no_lines_of_the_next_report() {
    let log = "\
[1.0] SLUB: Unable to allocate memory on node -1, gfp=0xa20(GFP_ATOMIC)
[1.0]   cache: kmalloc-64, object size: 64, buffer size: 64, default order: 0, min order: 0
[9.0] a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[9.0] CPU: 3 PID: 77 Comm: a Not tainted 6.1.0 #1
";
    let explained = explained(log);
    let [slub, oom] = &explained[..] else { panic!("{explained:#?}") };
    let (slub, oom) = match slub.report.kind {
        Kind::Slub => (&slub.report, &oom.report),
        _ => (&oom.report, &slub.report),
    };
    assert_eq!((slub.pid, slub.cpu, slub.is_mixed), (None, None, false));
    assert_eq!((oom.pid, oom.cpu, oom.kernel.as_deref()), (Some(77), Some(3), Some("6.1.0")));
}

/// Kernels before 5.5 do not print what is reserved for urgent requests: an `H` proves a pageblock of it.
#[test]
fn free_blocks_prove_a_reserve_that_old_kernels_do_not_print() {
    let log = |types: &str| {
        format!(
            "\
[1.0] a invoked oom-killer: gfp_mask=0x6200ca(GFP_HIGHUSER_MOVABLE), nodemask=(null), order=0, oom_score_adj=0
[1.0] CPU: 1 PID: 7 Comm: a Not tainted 4.19.0 #1
[1.0] Mem-Info:
[1.0] Node 0 DMA32 free:2000kB min:1600kB low:2000kB high:2400kB present:300000kB managed:250000kB free_pcp:0kB free_cma:0kB
[1.0] lowmem_reserve[]: 0 0 0 0 0
[1.0] Node 0 DMA32: 0*4kB 250*8kB ({types}) 0*16kB = 2000kB
"
        )
    };
    let proven = explained(&log("H")).remove(0);
    assert_eq!(
        (proven.verdict.rule, proven.verdict.answer),
        (Rule::HighatomicReserve, Answer::Refused)
    );
    // Without one there may be a reserve all of which is in use; the last try asks for 601 pages of the 500.
    let open = explained(&log("U")).remove(0);
    let zone = &open.verdict.zones[0];
    assert_eq!(
        (zone.at_min.answer, &zone.at_min.depends_on[..]),
        (Answer::Open, &["reserved_highatomic"][..])
    );
    assert_eq!((open.verdict.rule, open.verdict.mark), (Rule::Watermark, Mark::High));
}

/// A row that is cut before CMA: blocks that are only `C` prove some.
#[test]
fn a_cut_row_is_open_for_min_and_proven_for_the_last_try() {
    let log = "\
[1.0] a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[1.0] CPU: 1 PID: 7 Comm: a Not tainted 6.6.0 #1
[1.0] Mem-Info:
[1.0] Normal free:9000kB boost:0kB min:7000kB low:8500kB high:10000kB reserved_highatomic:0KB present:500000kB mana
[1.0] lowmem_reserve[]: 0 0
[1.0] Normal: 100*4kB (UEC) 200*8kB (UC) 50*16kB (C) 20*32kB (C) 1*64kB (C
";
    let found = explained(log).remove(0);
    let zone = &found.verdict.zones[0];
    assert_eq!(
        (zone.at_min.answer, &zone.at_min.depends_on[..]),
        (Answer::Open, &["free_cma"][..])
    );
    // 50 blocks of four pages, 20 of eight, and one page and two in the orders that have CMA among others.
    assert_eq!(zone.cma.least(), 50 * 4 + 20 * 8 + 1 + 2);
    assert_eq!(
        (found.verdict.rule, found.verdict.answer, found.verdict.mark),
        (Rule::Watermark, Answer::Refused, Mark::High)
    );
    assert!(found.causes.iter().any(|cause| cause.kind == CauseKind::Cma));
}

/// What is free and needed is known: what is missing can only take from the one or add to the other.
#[test]
fn a_row_that_breaks_off_behind_its_marks_is_proven() {
    let log = "\
[1.0] a: page allocation failure: order:0, mode:0x20
[1.0] CPU: 0 PID: 7 Comm: a Not tainted 3.10.49 #1
[1.0] Mem-Info:
[1.0] Normal free:100kB min:1000kB low:1250kB high:1500kB active_anon:1#
[1.0] lowmem_reserve[]: 0 0
";
    let found = explained(log).remove(0);
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Watermark, Answer::Refused));
}

/// What `grep -i oom` leaves.
#[test]
fn ends_of_reports_alone_are_reports() {
    let log = "\
Mar  7 01:02:03 box kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=pod,mems_allowed=0,oom_memcg=/pods/one,task_memcg=/pods/one/app,task=app,pid=77,uid=0
Mar  7 01:02:03 box kernel: Memory cgroup out of memory: Killed process 77 (app) total-vm:9000kB, anon-rss:8000kB, file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:64kB oom_score_adj:0
";
    let explained_all = explained(log);
    let [found] = &explained_all[..] else { panic!("{explained_all:#?}") };
    let memcg = found.report.memcg.as_ref().unwrap();
    assert_eq!((found.verdict.rule, found.report.lacks_head), (Rule::Memcg, true));
    assert_eq!((memcg.path.as_deref(), memcg.limit), (Some("/pods/one"), None));
    let kinds: Vec<CauseKind> = found.causes.iter().map(|cause| cause.kind).collect();
    assert_eq!(kinds, [CauseKind::MemcgLimit, CauseKind::MemcgParent]);
    let victim = found.report.victim.as_ref().unwrap();
    assert_eq!((victim.name.as_str(), victim.anon), ("app", Some(8000)));
    let alone = "[1.0] Out of memory: Killed process 8 (b) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB\n";
    assert_eq!(explained(alone)[0].report.victim.as_ref().unwrap().pid, 8);
}

/// Memory and swap together are at their limit, memory is not.
#[test]
fn a_limit_of_memory_and_swap_is_told_from_one_of_memory() {
    let log = "\
[1.0] a invoked oom-killer: gfp_mask=0x24000c0(GFP_KERNEL), order=0, oom_score_adj=0
[1.0] Task in /a killed as a result of limit of /a
[1.0] memory: usage 99000kB, limit 100000kB, failcnt 3
[1.0] memory+swap: usage 200000kB, limit 200000kB, failcnt 7
[1.0] kmem: usage 12kB, limit 9007199254740988kB, failcnt 0
";
    let found = explained(log).remove(0);
    assert_eq!(found.causes[0].kind, CauseKind::MemcgSwapLimit);
    let effect = |change| {
        found.remedies.iter().find(|remedy| remedy.change == change).map(|remedy| remedy.effect)
    };
    assert_eq!(effect(Change::MemcgSwapLimit), Some(Effect::Helps));
    assert_eq!(effect(Change::MemcgLimit), Some(Effect::NoEffect));
    assert_eq!(effect(Change::MinFreeKbytes), Some(Effect::NoEffect));
}

/// Linux 4.9 and 4.10 print the cpuset's nodes where there is no policy, 4.11 prints a policy's.
#[test]
fn nodes_of_the_first_line_are_a_policys_or_a_cpusets() {
    let policy = |release: &str, nodes: &str| {
        let log = format!(
            "[1.0] a invoked oom-killer: gfp_mask=0x24200ca(GFP_HIGHUSER_MOVABLE), nodemask={nodes}, order=0, oom_score_adj=0\n\
             [1.0] a cpuset=b mems_allowed=1-2\n\
             [1.0] CPU: 1 PID: 7 Comm: a Not tainted {release} #1\n"
        );
        explained(&log).remove(0).report.nodemask
    };
    assert_eq!(policy("4.9.1", "1-2"), None);
    assert_eq!(policy("4.9.1", "1"), Some(vec![1]));
    assert_eq!(policy("4.11.0", "1-2"), Some(vec![1, 2]));
}

/// A cpuset of a node that has only Movable, and a request that may not use it.
#[test]
fn a_cpuset_without_a_zone_for_the_request() {
    let log = "\
[1.0] a invoked oom-killer: gfp_mask=0x100cc2(GFP_HIGHUSER), order=0, oom_score_adj=0
[1.0] CPU: 1 PID: 7 Comm: a Not tainted 5.10.0 #1
[1.0] Mem-Info:
[1.0] active_anon:1 inactive_anon:1 isolated_anon:0
[1.0]  free:9000000 free_pcp:0 free_cma:0
[1.0] Node 1 Movable free:4000000kB min:4000kB low:5000kB high:6000kB reserved_highatomic:0KB present:5000000kB managed:5000000kB free_cma:0kB
[1.0] lowmem_reserve[]: 0 0 0 0 0
[1.0] oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=(null),cpuset=b,mems_allowed=1,global_oom,task_memcg=/,task=a,pid=7,uid=0
";
    let found = explained(log).remove(0);
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::NoZone, Answer::Refused));
    assert_eq!(found.causes[0].kind, CauseKind::NoZone);
    assert!(found.causes[0].text.contains("8000000 pages"), "{}", found.causes[0].text);
    assert_eq!(found.remedies[0].change, Change::OtherNodes);
}

/// Nothing is left to reclaim: higher marks would only take more from programs.
#[test]
fn marks_are_no_cure_for_a_kill() {
    let log = "\
[1.0] a invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0
[1.0] CPU: 1 PID: 7 Comm: a Not tainted 6.6.0 #1
[1.0] Mem-Info:
[1.0] active_anon:1 inactive_anon:240000 isolated_anon:0
[1.0]  slab_reclaimable:10 slab_unreclaimable:60000
[1.0] Node 0 active_anon:4kB inactive_anon:700000kB active_file:0kB inactive_file:40kB unevictable:0kB dirty:0kB writeback:0kB shmem:0kB all_unreclaimable? yes
[1.0] Node 0 Normal free:8000kB boost:0kB min:9000kB low:9500kB high:10000kB reserved_highatomic:0KB present:1000000kB managed:1000000kB free_pcp:0kB free_cma:0kB
[1.0] lowmem_reserve[]: 0 0 0 0 0
[1.0] Free swap  = 0kB
[1.0] Total swap = 500000kB
[1.0] 250000 pages RAM
[1.0] Unreclaimable slab info:
[1.0] Name                      Used          Total
[1.0] leaky-64                190000KB     200000KB
[1.0] dentry                    1000KB       2000KB
";
    let found = explained(log).remove(0);
    let kinds: Vec<CauseKind> = found.causes.iter().map(|cause| cause.kind).collect();
    assert_eq!(kinds, [CauseKind::SwapFull, CauseKind::Slab]);
    assert!(found.causes[1].text.contains("leaky-64"), "{}", found.causes[1].text);
    for change in [Change::MinFreeKbytes, Change::WatermarkScaleFactor] {
        let remedy = found.remedies.iter().find(|remedy| remedy.change == change).unwrap();
        assert_eq!(remedy.effect, Effect::Harmful);
    }
    let last = found.remedies.last().unwrap();
    assert_eq!(last.effect, Effect::Harmful, "harmful advice comes last");
}

/// Addresses, not pages.
#[test]
fn areas_without_addresses() {
    let log =
        "[1.0] vmap allocation for size 4198400 failed: use vmalloc=<size> to increase size\n";
    let found = explained(log).remove(0);
    assert_eq!((found.verdict.rule, found.causes[0].kind), (Rule::Addresses, CauseKind::Addresses));
}

/// A cache of a group: its limit refused the object.
#[test]
fn a_cache_of_a_group_is_its_limit() {
    let log = "\
[1.0] SLUB: Unable to allocate memory on node -1, gfp=0x14000c0(GFP_KERNEL)
[1.0]   cache: kmalloc-192(55:app.service), object size: 192, buffer size: 192, default order: 0, min order: 0
[1.0]   node 0: slabs: 3, objs: 63, free: 0
";
    let found = explained(log).remove(0);
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Memcg, Answer::Open));
    assert!(found.causes[0].text.contains("app.service"));
}

/// A report without flags is seen, and told.
#[test]
fn reports_that_cannot_be_read_are_told() {
    let log = "x\n[1.0] a: page allocation failure: order:4, m\n";
    let mut reader = Reader::new(log.as_bytes());
    assert!(reader.by_ref().next().is_none());
    assert_eq!(reader.unread().iter().map(|unread| unread.line).collect::<Vec<_>>(), [2]);
}

/// A mail breaks the first line of a report behind `invoked`, what stands before it is a program's line, and the numbers go on in
/// lines without a prefix.
#[test]
fn a_first_line_that_a_mail_broke() {
    let log = "\
> writing the journal (4096 blocks): [   12.345678] mkfs invoked
> oom-killer: gfp_mask=0x101cc0(GFP_USER|__GFP_WRITE), order=0,
> oom_score_adj=0
> [   12.345679] CPU: 0 PID: 42 Comm: mkfs Not tainted
> 5.7.0 #1
> [   12.345680] Mem-Info:
> [   12.345681] active_anon:10 inactive_anon:10 isolated_anon:0
> [   12.345681]  free:2000 free_pcp:0 free_cma:0
> [   12.345682] Normal free:8000kB min:7600kB low:8400kB high:9200kB
> reserved_highatomic:0KB active_anon:0kB present:900000kB
> managed:880000kB free_pcp:0kB local_pcp:0kB
> free_cma:0kB
> [   12.345683] lowmem_reserve[]: 0 0 0
> [   12.345684] Normal: 2000*4kB (UM) 0*8kB
> = 8000kB
> [   12.345685] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,task=b,pid=7,uid=0
> [   12.345686] Out of memory: Killed process 7 (b)
> total-vm:900kB, anon-rss:800kB, file-rss:4kB, shmem-rss:0kB, UID:0
> pgtables:16kB oom_score_adj:0
";
    let found = explained(log).remove(0);
    let report = &found.report;
    assert_eq!((report.process.as_str(), report.pid, report.order), ("mkfs", Some(42), Some(0)));
    assert_eq!(report.victim.as_ref().unwrap().anon, Some(800));
    assert_eq!((report.free_pages, report.zones[0].managed.known()), (Some(2000), Some(880_000)));
    let verdict = &found.verdict;
    // 2000 free pass min (1900) and not high (2300).
    assert_eq!((verdict.rule, verdict.mark.name()), (Rule::Watermark, "high"));
}

/// `/dev/kmsg` in a mail: ends of lines within a record are `\x0a`, and the mail breaks records.
#[test]
fn records_of_kmsg_that_a_mail_broke() {
    let log = "\
4,101,9001,-,caller=T88;dump invoked oom-killer:
gfp_mask=0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO), order=3,
oom_score_adj=200
4,102,9002,-,caller=T88;CPU: 7 PID: 88 Comm: dump
Tainted: G        W       5.10.1-arm #1
4,103,9003,-,caller=T88;Mem-Info:
4,104,9004,-,caller=T88;active_anon:1
inactive_anon:5 isolated_anon:3\\x0a mapped:2
shmem:3 bounce:0\\x0a free:5262
free_pcp:52 free_cma:138
4,105,9005,c,caller=T88;Normal free:10640kB min:4080kB
low:8170kB high:9190kB reserved_highatomic:0KB
present:672420kB
managed:652020kB free_pcp:204kB free_cma:552kB
4,106,9006,-,caller=T88;lowmem_reserve[]: 0 0 0
4,107,9007,c,caller=T88;Normal: 1060*4kB (UM) 800*8kB
(UE) 0*16kB 0*32kB 0*64kB = 10640kB
4,108,9008,-,caller=T88;Free swap  = 1029kB
";
    let found = explained(log).remove(0);
    let report = &found.report;
    assert_eq!((report.process.as_str(), report.pid, report.cpu), ("dump", Some(88), Some(7)));
    assert_eq!((report.free_pages, report.order), (Some(5262), Some(3)));
    assert_eq!(report.zones[0].reserve, [0, 0, 0]);
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::NoBlock, Answer::Refused));
}

/// What a mail quotes has as many marks as mails: rows of one report are none of the other's.
#[test]
fn a_report_takes_no_rows_of_another_quote() {
    let log = "\
>>>> swapd: page allocation failure: order:0, mode:0x820(GFP_ATOMIC), nodemask=(null),cpuset=/,mems_allowed=0
>>>> CPU: 1 PID: 40 Comm: swapd Not tainted 6.8.9 #1
>>> The same on 6.9.0:
>>> swapd: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset=/,mems_allowed=0
>>> CPU: 0 PID: 41 Comm: swapd Not tainted 6.9.0 #1
>>> Mem-Info:
>>> Node 0 Normal free:56kB min:3400kB low:4200kB high:5000kB present:786432kB managed:746644kB free_cma:0kB
>>> lowmem_reserve[]: 0 0
>>> Node 0 Normal: 14*4kB (U) 0*8kB = 56kB
";
    let found = explained(log);
    let rules: Vec<_> = found.iter().map(|found| found.verdict.rule).collect();
    assert_eq!(rules, [Rule::Unknown, Rule::Watermark]);
    assert!(found.iter().all(|found| !found.report.is_mixed));
}

/// The log goes on with another process, whose first line is lost: what comes then is not the first one's.
#[test]
fn another_process_ends_a_report() {
    let log = |cpu: &str| {
        format!(
            "\
[1.0] a: page allocation failure: order:0, mode:0x820(GFP_ATOMIC), nodemask=(null)
[1.0] CPU: 0 PID: 7 Comm: a Not tainted 6.1.0 #1
{cpu}[9.0] Mem-Info:
[9.0] Node 0 Normal free:56kB min:3400kB low:4200kB high:5000kB present:786432kB managed:746644kB free_cma:0kB
"
        )
    };
    let rows = |cpu: &str| explained(&log(cpu))[0].report.zones.len();
    assert_eq!(rows("[1.0] CPU: 0 PID: 7 Comm: a Not tainted 6.1.0 #1\n"), 1);
    assert_eq!(rows("[9.0] CPU: 0 PID: 8 Comm: b Not tainted 6.1.0 #1\n"), 0);
    assert_eq!(rows("[9.0] CPU: 0 PID: 7 Comm: a Not tainted 6.6.0 #1\n"), 0);
    // A worker prints over the report before its own line.
    let report = explained(
        "\
[1.0] eater: page allocation failure: order:0, mode:0xdc0(GFP_KERNEL|__GFP_ZERO), nodemask=(null)
[1.0] CPU: 2 PID: 51 Comm: kworker/2:1 Tainted: G      D W5.4.1 #1
[1.0] CPU: 1 PID: 80 Comm: eater Kdump: loaded Tainted: G      D W5.4.1 #1
",
    )
    .remove(0)
    .report;
    assert_eq!((report.pid, report.kernel.as_deref()), (Some(80), Some("5.4.1")));
}

/// Subjects of mails and what programs print reports by are no reports.
#[test]
fn texts_about_reports_are_none() {
    let log = "\
Message-ID: <a@example.org>
Subject: Re: swapd: page allocation failure: order:0, mode:0x820(GFP_ATOMIC),
 nodemask=(null),cpuset=/,mems_allowed=0 (board B)
-\tpr_warn(\"%s invoked oom-killer: gfp_mask=%#x(%pGg), order=%d, oom_score_adj=%hd\\n\",
+\tpr_warn(\"SLUB: Unable to allocate memory on node %d, gfp=%#x(%pGg)\\n\",
+\tpr_warn(\"vmap allocation for size %lu failed: use vmalloc=<size> to increase size\\n\");
";
    let mut reader = Reader::new(log.as_bytes());
    assert!(reader.next().is_none());
    assert_eq!(reader.unread(), []);
}

/// Lines without the first one tell which group was at its limit.
#[test]
fn lines_about_a_group_alone_are_a_report() {
    let of_group = |log: &str| {
        let found = explained(log);
        let [found] = &found[..] else { panic!("{found:#?}") };
        assert_eq!((found.verdict.rule, found.report.lacks_head), (Rule::Memcg, true), "{log}");
        let memcg = found.report.memcg.as_ref().unwrap();
        (memcg.path.clone(), memcg.limit, found.report.victim.as_ref().map(|victim| victim.pid))
    };
    let told = Some("/red".to_owned());
    let log = "\
Mar  5 02:12:02 box kernel: Task in /red/a killed as a result of limit of /red
Mar  5 02:12:02 box kernel: memory: usage 65536kB, limit 65536kB, failcnt 18
Mar  5 02:12:02 box kernel: memory+swap: usage 65536kB, limit 65536kB, failcnt 0
Mar  5 02:12:02 box kernel: Memory cgroup stats for /red: cache:24KB rss:900KB unevictable:0KB
Mar  5 02:12:02 box kernel: Memory cgroup stats for /red/a: cache:24KB rss:64000KB unevictable:0KB
Mar  5 02:12:02 box kernel: Memory cgroup out of memory: Kill process 8 (x) score 899 or sacrifice child
Mar  5 02:12:02 box kernel: Killed process 8 (x) total-vm:9000kB, anon-rss:8000kB, file-rss:4kB, shmem-rss:0kB
";
    assert_eq!(of_group(log), (told.clone(), Some(65_536), Some(8)));
    let log = "\
[88.1] memory: usage 20480kB, limit 20480kB, failcnt 54
[88.3] Memory cgroup stats for /red:
[88.4] anon 20000000
[88.5] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/red,task_memcg=/red,task=x,pid=8,uid=0
[88.6] Memory cgroup out of memory: Killed process 8 (x) total-vm:30000kB, anon-rss:19000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:60kB oom_score_adj:0
";
    assert_eq!(of_group(log), (told, Some(20_480), Some(8)));
    let log = "[1.0] Memory cgroup out of memory: Killed process 8 (x) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:16kB oom_score_adj:0\n";
    assert_eq!(of_group(log), (None, None, Some(8)));
    let log =
        "[1.0] Memory cgroup out of memory: Kill process 8 (x) score 1899 or sacrifice child\n";
    assert_eq!(of_group(log), (None, None, None));
    // Those of the whole machine are no group's, and a group's are not theirs.
    let log = "\
[1.0] Out of memory: Kill process 9 (y) score 60 or sacrifice child
[1.0] Killed process 9 (y) total-vm:9kB, anon-rss:8kB, file-rss:0kB
[2.0] Task in /red killed as a result of limit of /red
[2.0] memory: usage 1024kB, limit 1024kB, failcnt 7
[9.0] Mem-Info:
[9.0] Normal free:8000kB min:9000kB low:9500kB high:9900kB present:100000kB managed:100000kB
[9.0] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,task=z,pid=7,uid=0
[9.0] Out of memory: Killed process 7 (z) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB
";
    let rules: Vec<_> = explained(log).iter().map(|found| found.verdict.rule).collect();
    assert_eq!(rules, [Rule::Unknown, Rule::Memcg, Rule::Unknown]);
}

/// `memory.oom.group`: all of a group are ended, each with a line, of which a mail broke some.
#[test]
fn others_of_a_group_belong_to_the_kill_before() {
    let log = "\
[   82.1] cc invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[   82.2] memory: usage 65536kB, limit 65536kB, failcnt 9
[   82.3] Memory cgroup out of memory: Killed process 11 (cc) total-vm:9000kB, anon-rss:8000kB, file-rss:10kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0
[   82.4] Tasks in /job are going to be killed
due to memory.oom.group set
[   82.5] Memory cgroup out of memory: Killed process 11 (cc) total-vm:9000kB, anon-rss:8000kB, file-rss:10kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0
[   82.5] oom_reaper: reaped process 11 (cc), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB
[   82.5] Memory cgroup out of memory: Killed process 12 (make) total-vm:900kB,
anon-rss:800kB, file-rss:10kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0
[   82.6] Memory cgroup out of memory: Killed process 13 (sh) total-vm:900kB, anon-rss:800kB, file-rss:10kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0
[   99.6] Out of memory: Killed process 20 (sh) total-vm:900kB, anon-rss:800kB, file-rss:10kB, shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0
";
    let found = explained(log);
    let ended: Vec<_> = found.iter().map(|found| found.report.also_ended).collect();
    assert_eq!(ended, [2, 0]);
    assert_eq!(found[1].report.victim.as_ref().unwrap().pid, 20);
}

/// The stack of an OOM report says whether the limit of a group called.
#[test]
fn a_stack_proves_a_group() {
    let head =
        "[78.1] a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n";
    let stack = |sign: &str| {
        format!(
            "[78.4]  dump_header+0x4f/0x1eb\n[78.5]  out_of_memory+0x1cf/0x500\n[78.6]  {sign}mem_cgroup_out_of_memory+0xbd/0xe0\n"
        )
    };
    for log in [format!("{head}{}", stack("")), stack("")] {
        let found = explained(&log);
        let rules: Vec<_> = found.iter().map(|found| found.verdict.rule).collect();
        assert_eq!(rules, [Rule::Memcg], "{log}");
    }
    // What was left on a stack proves nothing.
    assert_eq!(explained(&stack("? "))[0].verdict.rule, Rule::Unknown);
}

/// A machine that panics by `vm.panic_on_oom` names nobody who was ended.
#[test]
fn a_panic_ends_a_report() {
    let log = "\
[8.1] [39971]   950 39971  1983637   542742    3389  1015908             0 server
[8.2] Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled
[8.3] CPU: 0 PID: 35943 Comm: server Not tainted 3.10.0 #1
";
    let report = explained(log).remove(0).report;
    assert!(report.panic.is_some_and(|words| words.contains("panic_on_oom")));
    assert_eq!((report.pid, report.kernel.as_deref()), (Some(35_943), Some("3.10.0")));
}

/// The line about addresses comes before that of the area: one failure.
#[test]
fn a_vmap_and_a_vmalloc_line_are_one_failure() {
    for (area, reason) in [
        ("vmalloc: allocation failure: 200704 bytes, ", "4.14.0"),
        ("vmalloc error: size 200704, vm_struct allocation failed, ", "5.14.0"),
    ] {
        let log = format!(
            "[14.1] vmap allocation for size 204800 failed: use vmalloc=<size> to increase size\n\
             [14.2] a: {area}mode:0x14000c0(GFP_KERNEL), nodemask=(null)\n\
             [14.3] CPU: 0 PID: 11 Comm: a Not tainted {reason} #0\n"
        );
        let found = explained(&log);
        let [found] = &found[..] else { panic!("{found:#?}") };
        assert_eq!((found.verdict.rule, found.report.pid), (Rule::Addresses, Some(11)));
    }
    // Two areas are two failures.
    let line = "[1.0] vmap allocation for size 8192 failed: use vmalloc=<size> to increase size\n";
    let other = line.replace("8192", "12288");
    assert_eq!(explained(&format!("{line}{other}")).len(), 2);
}

/// A container's cache has its name of 64 digits; the lines about a cache are those of the failure right before.
#[test]
fn a_cache_of_a_container_is_its_limit() {
    let name = "0123456789abcdef".repeat(4);
    let log = format!(
        "\
[872.1] SLUB: Unable to allocate memory on node -1 (gfp=0x20)
[872.9] SLUB: Unable to allocate memory on node -1 (gfp=0x20)
[872.9]   cache: kmalloc-256(1412:{name}), object size: 256, buffer size: 256, default order: 1, min order: 0
[872.9]   node 0: slabs: 299, objs: 9568, free: 0
"
    );
    let found = explained(&log);
    let rules: Vec<_> = found.iter().map(|found| found.verdict.rule).collect();
    assert_eq!(rules, [Rule::Unknown, Rule::Memcg]);
    assert_eq!(found[0].report.mode.bits, Some(0x20));
    assert!(found[1].causes[0].text.contains(&name));
}

/// Rows of zones alone are no report, and are told.
#[test]
fn zones_alone_are_told() {
    let log = "\
[400.1] Node 0 DMA free:40000kB min:60000kB low:75000kB high:90000kB present:200000kB managed:190000kB free_cma:30000kB
[400.2] lowmem_reserve[]: 0 0 0 0
[400.2] Node 0 Normal free:8000kB min:600kB low:750kB high:900kB present:200000kB managed:190000kB free_cma:0kB
[400.3] Node 0 DMA: 10000*4kB (UMC) 0*8kB = 40000kB
";
    let mut reader = Reader::new(log.as_bytes());
    assert!(reader.next().is_none());
    let [told] = reader.unread() else { panic!("{:?}", reader.unread()) };
    let words = "DMA of node 0 had 39 MiB free, 29.2 MiB of them for CMA, below min; Normal of node 0 had 7.8 MiB free";
    assert!(told.line == 1 && told.why.ends_with(words), "{told:?}");
}

/// Linux 2.4 has one line.
/// Before 2.6.19 an OOM report does not say who asked, and a failure may stand without its process.
#[test]
fn first_lines_without_a_process() {
    let zones = "\
Mem-info:
DMA free:16kB min:28kB low:32kB high:40kB active:0kB inactive:0kB present:16384kB pages_scanned:0 all_unreclaimable? yes
lowmem_reserve[]: 0 0 0
Normal free:2000kB min:2800kB low:3500kB high:4200kB active:0kB inactive:0kB present:491520kB pages_scanned:0 all_unreclaimable? yes
lowmem_reserve[]: 0 0 0
";
    for (head, kind) in [
        ("oom-killer: gfp_mask=0x201d2, order=0", Kind::Oom),
        ("page allocation failure: order:0, mode:0xd0", Kind::Failure),
    ] {
        let found = explained(&format!("{head}\n{zones}"));
        let told = (found.len(), found[0].report.kind, found[0].report.zones.len());
        assert_eq!(told, (1, kind, 2), "{head}");
        assert_eq!((found[0].verdict.rule, &*found[0].report.process), (Rule::Watermark, ""));
    }
    assert!(explained("what oom-killer: gfp_mask=0x201d2 means\n").is_empty());
}

#[test]
fn failures_of_linux_2_4() {
    let log = "Aug 27 17:20:03 box kernel: __alloc_pages: 1-order allocation failed (gfp=0x20/0)\n";
    let found = explained(&log.repeat(2).replacen("1-order", "0-order", 1));
    let orders: Vec<_> = found.iter().map(|found| found.report.order).collect();
    assert_eq!((orders, found[0].report.mode.bits), (vec![Some(0), Some(1)], Some(0x20)));
}

/// A kill is that of the newest report: one before it may have lost its own.
#[test]
fn a_kill_is_the_newest_reports() {
    let log = "\
[1.0] a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[1.0] CPU: 0 PID: 7 Comm: a Not tainted 6.1.0 #1
[9.0] b invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[9.0] CPU: 0 PID: 8 Comm: b Not tainted 6.1.0 #1
[9.0] memory: usage 1024kB, limit 1024kB, failcnt 7
[9.0] Memory cgroup out of memory: Killed process 8 (b) total-vm:9kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:16kB oom_score_adj:0
we saw it in mem_cgroup_out_of_memory. CPU usage was 5% then
";
    let mut found = explained(log);
    found.sort_by_key(|found| found.report.first_line);
    let rules: Vec<_> = found.iter().map(|found| found.verdict.rule).collect();
    assert_eq!(rules, [Rule::Unknown, Rule::Memcg]);
}
