//! What fills memory, and what is free beside it: each kind as a small input, of old and new kernels.

use std::fmt::Write as _;

use nearpage_explain::{Answer, CauseKind, Change, Effect, Reader, Rule};

use super::{first, kinds, only};

/// A zone of kernels before 2.6.28, in KiB: free, min, on the lists, present.
fn old_zone(name: &str, figures: [u64; 4], reserve: &str) -> String {
    let [free, min, lists, present] = figures;
    let (low, high) = (min * 5 / 4, min * 3 / 2);
    format!(
        "{name} free:{free}kB min:{min}kB low:{low}kB high:{high}kB active:{lists}kB inactive:0kB present:{present}kB pages_scanned:0 all_unreclaimable? yes\nlowmem_reserve[]: {reserve}\n"
    )
}

/// A kill of such a kernel, whose first line names nobody.
fn old_kill(mask: &str, zones: &[String], counters: &str, end: &str) -> String {
    let mut log = format!("oom-killer: gfp_mask={mask}, order=0\nMem-info:\n{counters}\n");
    for zone in zones {
        log += zone;
    }
    for zone in zones {
        let (name, rest) = zone.split_once(" free:").unwrap();
        let free: u64 = rest.split("kB").next().unwrap().parse().unwrap();
        writeln!(log, "{name}: {}*4kB = {free}kB", free / 4).unwrap();
    }
    log + end
}

/// What is mapped, and could have been swapped out, is why; the kernel does not tell which of it is anonymous.
#[test]
fn an_old_kill_with_free_swap_names_what_is_in_use() {
    let zones = [
        old_zone("DMA", [2000, 80, 9000, 16_384], "0 500 500"),
        old_zone("Normal", [2600, 2900, 430_000, 500_000], "0 0 0"),
    ];
    let counters = "Active:109750 inactive:0 dirty:0 writeback:0 unstable:0 free:1150 slab:4000 mapped:105000 pagetables:500";
    let log = old_kill("0xd0", &zones, counters, "Free swap  = 880000kB\nTotal swap = 900000kB\n");
    let found = only(&log);
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Watermark, Answer::Refused));
    assert_eq!(kinds(&found)[0], CauseKind::Anonymous);
    let text = &first(&found).text;
    assert!(
        text.contains("428.7 MiB are on the lists") && text.contains("410.1 MiB mapped"),
        "{text}"
    );
    assert!(text.contains("859.3 MiB of 878.9 MiB of swap are free"), "{text}");
    let full = only(&log.replace("880000kB", "0kB"));
    assert_eq!(kinds(&full)[0], CauseKind::SwapFull);
}

/// Below high memory the kernel's own is what counts; next to nothing free above is no reason.
#[test]
fn what_no_counter_explains_below_high_memory_comes_first() {
    let log = |free: u64, high_pages: u64| {
        let zones = [
            old_zone("DMA", [3500, 68, 0, 16_384], "0 880 5880"),
            old_zone("Normal", [3200, 3756, 2000, 901_120], "0 0 40000"),
            old_zone("HighMem", [free, 512, 3_000_000, 5_120_000], "0 0 0"),
        ];
        let counters = "Active:750500 inactive:0 dirty:0 writeback:0 unstable:0 free:2000 slab:9000 mapped:400000 pagetables:900";
        let end =
            format!("1500000 pages of RAM\n{high_pages} pages of HIGHMEM\n20000 reserved pages\n");
        old_kill("0xd0", &zones, counters, &end)
    };
    let found = only(&log(900, 1_280_000));
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Watermark, Answer::Refused));
    assert_eq!(kinds(&found), [CauseKind::Unexplained]);
    let text = &first(&found).text;
    assert!(text.starts_with("of 896 MiB in the zones for this request 8"), "{text}");
    assert!(!text.contains("describe"), "{text}");
    let advice = |change| found.remedies.iter().find(|remedy| remedy.change == change).unwrap();
    assert_eq!(advice(Change::OtherZones).effect, Effect::HelpsALittle);
    // Much is free above; and what high memory needs below to be described.
    let found = only(&log(2_000_000, 8_000_000));
    assert_eq!(kinds(&found), [CauseKind::Unexplained, CauseKind::Elsewhere]);
    assert!(first(&found).text.contains("244.1 MiB or more of it describe"), "{:#?}", found.causes);
}

/// Linux 2.6.15 to 2.6.18 have a zone of 32 bits also where no machine has it: the reserve of the first zone is that for Normal.
#[test]
fn four_zones_with_high_memory() {
    let zones = |has_row: bool| {
        let empty = old_zone("DMA32", [0, 0, 0, 0], "0 0 880 4000");
        let mut zones = vec![
            old_zone("DMA", [3544, 68, 0, 16_384], "0 0 880 4000"),
            old_zone("Normal", [3640, 3756, 700, 901_120], "0 0 0 24960"),
            old_zone("HighMem", [1_900_000, 512, 900_000, 3_194_880], "0 0 0 0"),
        ];
        if has_row {
            zones.insert(1, empty);
        }
        zones
    };
    for has_row in [false, true] {
        let counters = "Active:225175 inactive:0 dirty:0 writeback:0 unstable:0 free:476796 slab:222000 mapped:3000 pagetables:500";
        let found = only(&old_kill("0xd0", &zones(has_row), counters, ""));
        assert_eq!(found.verdict.rule, Rule::Watermark, "{has_row}: {:#?}", found.verdict);
        assert_eq!(found.verdict.zone.as_deref(), Some("Normal"));
        let dma = found.verdict.zones.iter().find(|zone| zone.zone == "DMA").unwrap();
        assert_eq!((dma.at_min.rule, dma.reserve.known()), (Rule::LowmemReserve, Some(880)));
        assert_eq!(kinds(&found), [CauseKind::Slab, CauseKind::Elsewhere]);
    }
}

/// A zone of Linux 4.15 to 5.4, in KiB: free, min, anonymous, of files, managed.
fn zone(name: &str, figures: [u64; 5], reserve: &str, rest: &str) -> String {
    let [free, min, anon, file, managed] = figures;
    let (low, high) = (min * 5 / 4, min * 3 / 2);
    format!(
        "Node 0 {name} free:{free}kB min:{min}kB low:{low}kB high:{high}kB active_anon:{anon}kB inactive_anon:0kB active_file:{file}kB inactive_file:0kB unevictable:0kB writepending:0kB present:{managed}kB managed:{managed}kB mlocked:0kB kernel_stack:100kB pagetables:100kB bounce:0kB free_pcp:0kB local_pcp:0kB {rest}\nlowmem_reserve[]: {reserve}\n"
    )
}

/// A report of a kernel with one node.
fn report(head: &str, release: &str, zones: &[String], node: [u64; 4], end: &str) -> String {
    let [anon, file, shmem, dirty] = node;
    let free = |zone: &String| -> u64 {
        zone.split_once(" free:").unwrap().1.split("kB").next().unwrap().parse().unwrap()
    };
    let pages = zones.iter().map(free).sum::<u64>() / 4;
    let mut log = format!(
        "{head}\nCPU: 1 PID: 77 Comm: w Not tainted {release} #1\nMem-Info:\nactive_anon:1 inactive_anon:0 isolated_anon:0\n slab_reclaimable:2000 slab_unreclaimable:5000\n mapped:300 shmem:{} pagetables:900 bounce:0\n free:{pages} free_pcp:0 free_cma:0\nNode 0 active_anon:{anon}kB inactive_anon:0kB active_file:{file}kB inactive_file:0kB unevictable:0kB isolated(anon):0kB isolated(file):0kB mapped:1200kB dirty:{dirty}kB writeback:0kB shmem:{shmem}kB all_unreclaimable? no\n",
        shmem / 4
    );
    for zone in zones {
        log += zone;
    }
    for zone in zones {
        let (name, _) = zone.split_once(" free:").unwrap();
        writeln!(log, "{name}: {}*4kB (U) = {}kB", free(zone) / 4, free(zone)).unwrap();
    }
    log + end
}

const SWAP: &str = "Free swap  = 900000kB\nTotal swap = 1000000kB\n";

#[test]
fn a_stall_names_what_reclaim_has_to_write() {
    let head = "w: page allocation stalls for 12000ms, order:0, mode:0x14200ca(GFP_HIGHUSER_MOVABLE), nodemask=(null)";
    let stall = |anon, file, dirty| {
        let zones =
            [zone("Normal", [40_000, 50_000, anon, file, 8_000_000], "0 0", "free_cma:0kB")];
        only(&report(head, "4.13.5", &zones, [anon, file, 0, dirty], SWAP))
    };
    let found = stall(7_500_000, 90_000, 0);
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Watermark, Answer::Refused));
    assert_eq!(kinds(&found), [CauseKind::Anonymous]);
    assert!(first(&found).text.contains("written there first"), "{:#?}", found.causes);
    let found = stall(90_000, 7_500_000, 3_000_000);
    assert_eq!(kinds(&found), [CauseKind::Files]);
    assert!(first(&found).text.contains("2.8 GiB of it dirty"), "{:#?}", found.causes);
    assert!(first(&found).text.contains("12000 ms"));
}

/// A request that cannot wait gets nothing where little can leave soon.
#[test]
fn an_urgent_request_beside_anonymous_memory() {
    let head = "w: page allocation failure: order:0, mode:0x480020(GFP_ATOMIC), nodemask=(null)";
    let failure = |anon, file| {
        let zones = [zone("Normal", [8000, 50_000, anon, file, 8_000_000], "0 0", "free_cma:0kB")];
        only(&report(
            head,
            "4.19.5",
            &zones,
            [anon, file, 0, 0],
            "Free swap  = 0kB\nTotal swap = 0kB\n",
        ))
    };
    let found = failure(7_500_000, 90_000);
    assert_eq!(kinds(&found), [CauseKind::CannotWait]);
    assert!(
        first(&found).text.contains("7.1 GiB are anonymous (there is no swap"),
        "{:#?}",
        found.causes
    );
    let found = failure(90_000, 7_500_000);
    assert!(first(&found).text.contains("kswapd had not freed enough"), "{:#?}", found.causes);
}

/// The last try before a kill leaves pages of CMA out, whatever the request.
#[test]
fn cma_is_left_out_of_the_last_try_of_a_movable_request() {
    let head =
        "w invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0";
    let zones =
        [zone("DMA32", [600_000, 90_000, 1_200_000, 0, 1_990_000], "0 0", "free_cma:520000kB")];
    let found = only(&report(head, "5.4.70", &zones, [1_200_000, 0, 0, 0], "Total swap = 0kB\n"));
    assert_eq!(found.verdict.answer, Answer::Refused);
    assert_eq!(kinds(&found)[0], CauseKind::Cma);
    assert!(first(&found).text.contains("also for a movable request"), "{:#?}", found.causes);
}

/// Where the row of a zone is cut out, its free blocks tell.
#[test]
fn free_blocks_of_cma_alone() {
    let log = |types: &str| {
        format!(
            "[1.0] net: page allocation failure: order:0, mode:0x20\n[1.0] CPU: 0 PID: 0 Comm: net Not tainted 3.10.7 #1\n[1.0] Node 0 DMA: 40*64kB ({types}) 20*128kB (C) 0*256kB = 5120kB\n"
        )
    };
    let found = only(&log("C"));
    assert_eq!(kinds(&found), [CauseKind::Cma]);
    assert!(first(&found).text.contains("5 MiB"), "{:#?}", found.causes);
    assert_eq!(kinds(&only(&log("UC"))), []);
}

/// The rest of the area is the page behind it.
#[test]
fn vmalloc_that_had_all_pages_failed_to_map_them() {
    let log = |got: u64| {
        let head = format!(
            "vmalloc: allocation failure, allocated {got} of 401408 bytes\nw: page allocation failure: order:0, mode:0xd2"
        );
        let zones =
            [zone("Normal", [80_000, 5000, 90_000, 900_000, 1_100_000], "0 0", "free_cma:0kB")];
        report(&head, "3.14.7", &zones, [90_000, 900_000, 0, 0], "")
    };
    let found = only(&log(397_312));
    assert_eq!(kinds(&found), [CauseKind::Addresses]);
    assert!(first(&found).text.contains("to map them failed"), "{:#?}", found.causes);
    assert_eq!(kinds(&only(&log(200_704))), [CauseKind::Late]);
}

#[test]
fn an_area_of_most_of_memory_is_too_large() {
    let log = |bytes: u64| {
        let head = format!(
            "w: vmalloc error: size {bytes}, page order 0, failed to allocate pages, mode:0xcc2(GFP_KERNEL|__GFP_HIGHMEM), nodemask=(null),cpuset=/,mems_allowed=0"
        );
        let zones =
            [zone("Normal", [40_000, 50_000, 3_000_000, 1000, 4_000_000], "0 0", "free_cma:0kB")];
        let end = "Free swap  = 0kB\nTotal swap = 0kB\n1000000 pages RAM\n10000 pages reserved\n";
        report(&head, "5.15.3", &zones, [3_000_000, 1000, 0, 0], end)
    };
    assert_eq!(kinds(&only(&log(4 << 30)))[0], CauseKind::TooLarge);
    assert_eq!(kinds(&only(&log(4 << 20)))[0], CauseKind::NoSwap);
}

/// Kernels from 6.1 on print no zones above those that a request may use.
#[test]
fn high_memory_that_is_not_printed_is_not_lost() {
    let log = |high: u64| {
        let head = "w invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0";
        let zones = [zone("Normal", [15_000, 16_000, 500, 500, 780_000], "0 9000", "free_cma:0kB")];
        let end =
            format!("520000 pages RAM\n{high} pages HighMem/MovableOnly\n9000 pages reserved\n");
        report(head, "6.1.30", &zones, [500, 500, 0, 0], &end)
            .replace("free:3750 free_pcp", "free:250000 free_pcp")
    };
    let found = only(&log(325_000));
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Watermark, Answer::Refused));
    assert_eq!(found.verdict.confined_by.as_ref().unwrap().by.name(), "kind");
    assert!(kinds(&found).contains(&CauseKind::Elsewhere));
    assert!(found.unknown.iter().all(|text| !text.contains("zones of the machine are missing")));
    // More than high memory is missing.
    assert_eq!(only(&log(100_000)).verdict.answer, Answer::Open);
}

/// What needs no boost is told so: fewer pages are needed than the mark says.
#[test]
fn an_urgent_page_needs_no_boost() {
    let head = "w: page allocation failure: order:0, mode:0x820(GFP_ATOMIC), nodemask=(null),cpuset=/,mems_allowed=0";
    let zones = [zone("Normal", [9000, 38_000, 90_000, 900_000, 3_000_000], "0 0", "free_cma:0kB")
        .replace(" min:", " boost:16000kB min:")];
    let found = only(&report(head, "6.6.9", &zones, [90_000, 900_000, 0, 0], ""));
    let zone = &found.verdict.zones[0].at_min;
    assert_eq!((zone.rule, zone.answer), (Rule::Passes, Answer::Passes));
    assert!(zone.needed.most() <= zone.free.least(), "{zone:?}");
}

/// A small zone that gives by a few pages explains nothing: what the large one says comes first.
#[test]
fn a_small_zone_that_gives_is_told_last() {
    let head =
        "w invoked oom-killer: gfp_mask=0x6200ca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0";
    let zones = [
        zone("DMA", [15_900, 60, 0, 0, 15_908], "0 900 900 900", "free_cma:0kB"),
        zone("DMA32", [4000, 4100, 900_000, 200, 1_000_000], "0 0 0 0", "free_cma:0kB"),
    ];
    let found = only(&report(
        head,
        "4.19.9",
        &zones,
        [900_000, 200, 0, 0],
        "Free swap  = 0kB\nTotal swap = 0kB\n",
    ));
    assert_eq!((found.verdict.rule, found.verdict.zone.as_deref()), (Rule::Passes, Some("DMA")));
    assert_eq!(kinds(&found), [CauseKind::NoSwap, CauseKind::Late]);
    assert!(found.causes[1].text.contains("DMA of node 0, which is small"), "{:#?}", found.causes);
}

#[test]
fn shared_memory_that_is_most_of_the_anonymous_comes_first() {
    let head =
        "w invoked oom-killer: gfp_mask=0x6200ca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0";
    let kill = |shmem| {
        let zones =
            [zone("Normal", [40_000, 50_000, 7_500_000, 200, 8_000_000], "0 0", "free_cma:0kB")];
        let end = "Free swap  = 0kB\nTotal swap = 0kB\n";
        kinds(&only(&report(head, "4.19.9", &zones, [7_500_000, 200, shmem, 0], end)))
    };
    assert_eq!(kill(6_000_000), [CauseKind::Shmem, CauseKind::NoSwap]);
    assert_eq!(kill(2_000_000), [CauseKind::NoSwap, CauseKind::Shmem]);
}

/// A kernel without swap prints none of its rows.
#[test]
fn no_rows_of_swap_are_no_swap() {
    let head = "w invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0";
    let kill = |end: &str| {
        let zones = [zone("Normal", [900, 1000, 55_000, 200, 64_000], "0 0", "free_cma:0kB")];
        first(&only(&report(head, "3.12.9", &zones, [55_000, 200, 0, 0], end))).text.clone()
    };
    assert!(kill("980 total pagecache pages\n16384 pages of RAM\n").contains("built without"));
    assert!(kill("980 total pagecache pages\n").contains("not told"));
}

/// A writer quotes a report's first line before the report: the rows belong to the report, not to that line.
#[test]
fn first_lines_that_are_told_before_the_report() {
    let head = "w: page allocation failure: order:1, mode:0x204020";
    let zones = [zone("DMA32", [8000, 5000, 90_000, 900_000, 2_000_000], "0 0", "free_cma:0kB")];
    let rows = report(&format!("[9.0] {head}"), "4.2.3", &zones, [90_000, 900_000, 0, 0], "");
    let rows = rows.replace('\n', "\n[9.0] ");
    let log = format!(
        "I get errors, mostly:\n\n{head}\n\nbut also\n\nv: page allocation failure: order:1, mode:0x204020\n\n{rows}\n"
    );
    let mut reader = Reader::new(log.as_bytes());
    let reports: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(reports.len(), 1, "{reports:#?}");
    assert_eq!((reports[0].first_line, reports[0].zones.len(), reports[0].is_mixed), (9, 1, false));
    let told: Vec<u64> = reader.unread().iter().map(|unread| unread.line).collect();
    assert_eq!(told, [3, 7]);
}

/// Others than the page allocator refuse memory, or end processes: said, and no report.
#[test]
fn what_others_refused_is_told() {
    let why = |log: &str| {
        let mut reader = Reader::new(log.as_bytes());
        assert_eq!(reader.by_ref().count(), 0);
        reader.unread().iter().map(|unread| unread.why.clone()).collect::<Vec<_>>().join("; ")
    };
    assert!(
        why("[1.0] cma: cma_alloc: alloc failed, req-size: 64 pages, ret: -16\n").contains("CMA")
    );
    assert!(why("<6>[1.0] lowmemorykiller: Killing 'a.b' (12), adj 900,\n").contains("Android"));
    assert!(
        why("Jan 1 00:00:01 h systemd-oomd[7]: Killed /user.slice due to memory pressure\n")
            .contains("a program")
    );
    assert!(
        why("Jan 1 00:00:01 h earlyoom[7]: sending SIGTERM to process 12 \"a\": badness 9\n")
            .contains("a program")
    );
    assert!(why("Jan 1 00:00:01 h systemd-oomd[7]: Started.\n").is_empty());
}

/// Many small tasks of one name fill memory together.
#[test]
fn tasks_of_one_name_are_summed_up() {
    let head = "w invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0";
    let zones = [zone("DMA32", [4000, 4100, 900_000, 200, 1_000_000], "0 0", "free_cma:0kB")];
    let mut end = "Free swap  = 0kB\nTotal swap = 0kB\nTasks state (memory values in pages):\n[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name\n".to_owned();
    end += "[      9]     0     9    90000    30000  200000        0             0 base\n";
    for pid in 10..30 {
        writeln!(
            end,
            "[     {pid}]     0    {pid}    20000     9000  100000        0             0 child"
        )
        .unwrap();
    }
    let found = only(&report(head, "6.12.9", &zones, [900_000, 200, 0, 0], &end));
    assert_eq!(kinds(&found), [CauseKind::NoSwap, CauseKind::Task]);
    let text = &found.causes[1].text;
    assert!(text.contains("21 tasks is base (process 9)"), "{text}");
    assert!(text.contains("20 of the name child have 703.1 MiB together"), "{text}");
}

/// A zone that would give again is no reason where memory is full.
#[test]
fn what_fills_memory_comes_before_numbers_that_came_late() {
    let head =
        "w invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0";
    let zones =
        [zone("Normal", [90_000, 16_000, 3_700_000, 200, 4_000_000], "0 0", "free_cma:0kB")];
    let found = only(&report(
        head,
        "5.15.9",
        &zones,
        [3_700_000, 200, 0, 0],
        "Free swap  = 0kB\nTotal swap = 900kB\n",
    ));
    assert_eq!(found.verdict.rule, Rule::Passes);
    assert_eq!(kinds(&found), [CauseKind::SwapFull, CauseKind::Late]);
}

/// Before Linux 4.4 a request that cannot wait has a quarter of the mark.
#[test]
fn who_cannot_wait_went_below_the_mark_before_4_4() {
    let log = |mode: &str, free| {
        let head = format!("w: page allocation failure: order:0, mode:{mode}");
        let zones =
            [zone("Normal", [free, 8000, 90_000, 900_000, 1_100_000], "0 0", "free_cma:0kB")];
        only(&report(&head, "3.10.9", &zones, [90_000, 900_000, 0, 0], "")).verdict
    };
    for (mode, needed) in [("0x0", 1501), ("0x10", 2001), ("0x20", 751)] {
        let verdict = log(mode, 2400);
        assert_eq!(verdict.rule, Rule::Watermark, "{mode}");
        assert_eq!(verdict.zones[0].at_min.needed.known(), Some(needed), "{mode}");
    }
    assert_eq!(log("0x0", 6400).answer, Answer::Passes);
    assert_eq!(log("0x10", 6400).answer, Answer::Refused);
}

/// Rows that break off lose their counters; those of the machine stand on short lines.
#[test]
fn counters_of_the_machine_stand_in_for_rows_that_were_cut() {
    let log = "\
[1.0] w invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
[1.0] CPU: 1 PID: 77 Comm: w Not tainted 5.10.9 #1
[1.0] Mem-Info:
[1.0] active_anon:100000 inactive_anon:800000 isolated_anon:0
[1.0]  active_file:50 inactive_file:60 isolated_file:0
[1.0]  unevictable:0 dirty:0 writeback:0
[1.0]  slab_reclaimable:2000 slab_unreclaimable:5000
[1.0]  mapped:300 shmem:100 pagetables:900 bounce:0
[1.0]  free:10000 free_pcp:0 free_cma:0
[1.0] Node 0 active_anon:400000kB inactive_anon:32000
[1.0] Node 0 DMA32 free:40000kB min:50000kB low:60000kB high:70000kB reserved_highatomic:0KB active_an
[1.0] lowmem_reserve[]: 0 0 0 0
[1.0] Node 0 DMA32: 10000*4kB (U) = 40000kB
[1.0] Free swap  = 0kB
[1.0] Total swap = 0kB
[1.0] 1000000 pages RAM
[1.0] 10000 pages reserved
";
    let found = only(log);
    assert_eq!(kinds(&found), [CauseKind::NoSwap]);
    assert!(first(&found).text.starts_with("3.4 GiB anonymous"), "{:#?}", found.causes);
    let counters = "active_anon:100000 inactive_anon:800000";
    let empty = log.replace(counters, "active_anon:1000 inactive_anon:1000");
    let full = only(&empty.replace("active_anon:400000kB", "active_anon:4000kB"));
    assert_eq!(kinds(&full), [CauseKind::Unexplained]);
}
