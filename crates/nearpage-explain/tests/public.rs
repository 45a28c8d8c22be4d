//! Figures of reports that people made public, of kernels and machines that no guest here has. Zones are theirs; a header
//! is typed anew where the public text begins later, with the request that such reports have.

mod first;

use std::fs;
use std::path::Path;

use nearpage_explain::{Explanation, Figure, Reader};

use first::explained;

fn rule<'a>(explanation: &'a Explanation, zone: &str) -> &'a str {
    explanation.verdict.zones.iter().find(|judged| judged.zone == zone).unwrap().at_min.rule.name()
}

/// Linux 4.9 on C-SKY: 58 blocks of 4 MiB are free, all of them for CMA, and a driver asks for one. The question "why, if
/// there are 58?" was public.
#[test]
fn blocks_for_cma_are_not_for_everybody() {
    let explanation = explained(
        "[ 2161.6] xxxx: page allocation failure: order:10, mode:0x2084020(GFP_ATOMIC|__GFP_COMP)\n\
         [ 2161.6] CPU: 0 PID: 179 Comm: xxxx Not tainted 4.9.56 #53\n\
         [ 2161.7] Normal free:248344kB min:2444kB low:3052kB high:3660kB present:1048572kB managed:734584kB free_pcp:796kB free_cma:240936kB\n\
         [ 2161.7] lowmem_reserve[]: 0 0\n\
         [ 2161.7] Normal: 36*4kB (UEC) 28*8kB (UC) 10*16kB (C) 3*32kB (C) 1*64kB (C) 0*128kB 0*256kB 1*512kB (C) 0*1024kB 0*2048kB 58*4096kB (C) = 238768kB\n",
    );
    // A quoted report may lack Mem-Info.
    assert_eq!(explanation.verdict.rule.name(), "no_block");
    let with = explained(
        "[ 2161.6] xxxx: page allocation failure: order:10, mode:0x2084020(GFP_ATOMIC|__GFP_COMP)\n\
         [ 2161.6] CPU: 0 PID: 179 Comm: xxxx Not tainted 4.9.56 #53\n\
         [ 2161.6] Mem-Info:\n\
         [ 2161.7] Normal free:248344kB min:2444kB low:3052kB high:3660kB present:1048572kB managed:734584kB free_pcp:796kB free_cma:240936kB\n\
         [ 2161.7] lowmem_reserve[]: 0 0\n\
         [ 2161.7] Normal: 36*4kB (UEC) 28*8kB (UC) 10*16kB (C) 3*32kB (C) 1*64kB (C) 0*128kB 0*256kB 1*512kB (C) 0*1024kB 0*2048kB 58*4096kB (C) = 238768kB\n",
    );
    assert_eq!(with.verdict.rule.name(), "no_block");
    let other = with.remedies.iter().find(|remedy| remedy.change.name() == "other_types").unwrap();
    assert_eq!(other.amount, Some(58));
}

/// Linux 5.x with 64 GB: Normal is ten pages below its mark, and DMA32 eleven pages short of its reserve.
#[test]
fn a_reserve_refuses_to_the_page() {
    let log = "\
[ 2764.6] sui-node invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
[ 2764.6] Mem-Info:
[ 2764.6] Node 0 DMA32 free:249524kB min:2384kB low:4696kB high:7008kB reserved_highatomic:0KB present:2490048kB managed:2423956kB free_pcp:0kB free_cma:0kB
[ 2764.6] lowmem_reserve[]: 0 0 61795 61795 61795
[ 2764.6] Node 0 Normal free:65140kB min:65180kB low:128456kB high:191732kB reserved_highatomic:0KB present:64487424kB managed:63287848kB free_pcp:0kB free_cma:0kB
[ 2764.6] lowmem_reserve[]: 0 0 0 0 0
";
    let explanation = explained(log);
    assert_eq!(
        (rule(&explanation, "Normal"), rule(&explanation, "DMA32")),
        ("watermark", "lowmem_reserve")
    );
    assert_eq!(explanation.verdict.zone.as_deref(), Some("Normal"));
    let dma32 = explanation.verdict.zones.iter().find(|zone| zone.zone == "DMA32").unwrap();
    assert_eq!(
        (dma32.at_min.free.most(), dma32.at_min.needed),
        (62_381, Figure::exact(596 + 61_795 + 1))
    );
    // Eleven pages more, and it gives.
    let explanation = explained(&log.replace("free:249524kB", "free:249568kB"));
    assert_eq!(rule(&explanation, "DMA32"), "passes");
}

/// SPARC64 has pages of 8 KiB: every number in KiB is half as many pages.
#[test]
fn pages_are_as_large_as_the_smallest_blocks() {
    let explanation = explained(
        "[44165.8] stress-ng invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=1000\n\
         [44165.8] Mem-Info:\n\
         [44165.8] Normal free:99400kB boost:16384kB min:106496kB low:129024kB high:151552kB reserved_highatomic:0KB present:16764544kB managed:16504704kB free_pcp:240kB local_pcp:0kB free_cma:0kB\n\
         [44165.8] lowmem_reserve[]: 0 0\n\
         [44165.8] Normal: 274*8kB (UME) 203*16kB (UME) 188*32kB (UME) 135*64kB (UME) 118*128kB (UME) 77*256kB (UM) 32*512kB (UM) 19*1024kB (UM) 4*2048kB (UM) 1*4096kB (M) 0*8192kB 0*16384kB 0*32768kB = 103040kB\n\
         [44165.8] Free swap  = 709656kB\n\
         [44165.8] 2095568 pages RAM\n",
    );
    let zone = &explanation.verdict.zones[0];
    assert_eq!(explanation.report.page_kib(), 8);
    assert_eq!(
        (zone.at_min.free, zone.at_min.mark),
        (Figure::exact(12_425), Figure::exact(13_312))
    );
    assert_eq!(explanation.verdict.rule.name(), "watermark");
    let more =
        explanation.remedies.iter().find(|remedy| remedy.change.name() == "free_pages").unwrap();
    assert_eq!(more.amount, Some((13_313 - 12_425) * 8));
}

/// Linux 4.9 broke rows into a line for each piece.
#[test]
fn broken_rows_are_put_together() {
    let log = "\
[73821.3] kworker: page allocation failure: order:0, mode:0x2084020(GFP_ATOMIC|__GFP_COMP)
[73821.3] Mem-Info:
[73821.3] Node 0
[73821.3] Normal free:24148kB min:65640kB low:129584kB high:193528kB present:65011712kB managed:63949432kB free_pcp:5984kB
[73821.3] lowmem_reserve[]:
[73821.3]  0
[73821.3]  0
[73821.3]  0
[73821.3] Node 0
[73821.3] Normal:
[73821.3] 5404*4kB
[73821.3] (UM)
[73821.3] 32*8kB
[73821.3] (UM)
[73821.3] 2*16kB
[73821.3] = 21904kB
";
    let explanation = explained(log);
    let zone = &explanation.report.zones[0];
    assert_eq!((zone.reserve.len(), zone.blocks.len(), zone.blocks[1].count), (3, 3, 32));
    assert_eq!(zone.blocks[0].types.as_deref(), Some("UM"));
    assert_eq!(explanation.verdict.rule.name(), "watermark");
}

/// What is refused where: of each file the rule and zone that decide, and the rules of zones, highest first. `a-b` in a name
/// are kernel and machine. A file has the figures of a public report, typed anew; names of programs and hosts are left out, and counters that decide
/// nothing; no pages of CMA are free on x86.
const FILES: [(&str, &str, &str, &[&str]); 19] = [
    // Many pairs of pages, and of each larger order one block or none: too little for a kernel that counts by order.
    ("3.0-x86_64-order4", "no_block", "DMA32", &["no_block", "no_block", "lowmem_reserve"]),
    // DMA32 is 19 pages short of its reserve, Normal 28 of its mark.
    ("3.13-x86_64-oom", "watermark", "Normal", &["watermark", "lowmem_reserve", "lowmem_reserve"]),
    // 566 MiB are free in HighMem, which a file system may not use; DMA is two pages short of its reserve.
    ("4.9-i386-oom-nofs", "watermark", "Normal", &["passes", "watermark", "lowmem_reserve"]),
    // Four nodes of 480 GiB, each with hundreds of MiB free when the report was printed.
    ("4.9-x86_64-atomic-late", "passes", "Normal", &["passes", "passes", "passes"]),
    // DMA32 is two pages short of what must be free, DMA five.
    ("4.12-x86_64-oom", "watermark", "DMA32", &["watermark", "lowmem_reserve"]),
    // The victim's memory was coming back.
    ("4.12-x86_64-after-kill", "passes", "DMA32", &["passes", "passes"]),
    ("4.15-i386-oom", "watermark", "HighMem", &["watermark", "lowmem_reserve", "lowmem_reserve"]),
    // DMA32 is 33 pages above its mark and the 663 that it keeps; blocks for urgent requests prove that 512 more are reserved.
    (
        "5.3-x86_64-nowait",
        "watermark",
        "Normal",
        &["watermark", "lowmem_reserve", "lowmem_reserve"],
    ),
    // A defect of that kernel killed although nothing was short: no rule of the page allocator explains it.
    ("5.7-i386-oom-user", "passes", "Normal", &["passes", "passes", "passes"]),
    // A fault that found no memory asks anew without any flags: what was refused is not in the report.
    ("5.7-i386-oom-fault", "no_request", "", &["passes", "passes", "lowmem_reserve"]),
    ("5.19-i386-order5", "watermark", "Normal", &["unknown", "watermark", "lowmem_reserve"]),
    // Enough above the mark, but for what is CMA's.
    ("6.8-armv7-oom-cma", "watermark", "Normal", &["watermark"]),
    // kswapd ran meanwhile: 249 pages are missing in DMA, 124 in DMA32, and Normal has 471 more than it needs.
    ("6.18-aarch64-order4", "passes", "Normal", &["passes", "lowmem_reserve", "lowmem_reserve"]),
    // A boost has doubled the mark of Normal; DMA32 was 23 pages above what it must keep when they were counted, and below `high`,
    // which the last try asks for.
    ("6.18-x86_64-oom-boost", "watermark", "Normal", &["watermark", "passes", "lowmem_reserve"]),
    // Room for descriptions of memory that is added: 274 MiB are free, none of it in a block of 2 MiB.
    ("6.18-x86_64-vmemmap", "no_block", "DMA32", &["no_block", "lowmem_reserve"]),
    ("6.19-x86_64-order5", "no_block", "DMA32", &["no_block", "lowmem_reserve"]),
    // The rows of blocks were counted after those of zones, and have 135 pages more; one is of order 5.
    ("7.0-x86_64-order5-dma32", "passes", "DMA32", &["passes", "no_block"]),
    // Whoever refills a cache of objects may not use the reserves, although it is kswapd.
    (
        "7.0-x86_64-nomemalloc",
        "watermark",
        "Normal",
        &["watermark", "lowmem_reserve", "lowmem_reserve"],
    ),
    // 48 GiB are free: the addresses were what failed.
    ("7.1-x86_64-vmalloc", "passes", "Normal", &["passes", "passes", "lowmem_reserve"]),
];

#[test]
fn figures_of_public_reports_are_judged_as_their_kernels_did() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports/public");
    for (name, rule, zone, zones) in FILES {
        let log = fs::read_to_string(folder.join(format!("{name}.log"))).unwrap();
        let explanation = explained(&log);
        let Explanation { report, verdict, unknown, .. } = &explanation;
        let (kernel, _) = name.split_once('-').unwrap();
        assert!(report.kernel.as_deref().unwrap().starts_with(kernel), "{name}");
        let decides = verdict.zone.as_deref().unwrap_or_default();
        assert_eq!((verdict.rule.name(), decides), (rule, zone), "{name}");
        let found: Vec<_> = verdict.zones.iter().map(|zone| zone.at_min.rule.name()).collect();
        assert_eq!(found, zones, "{name}");
        if rule == "passes" {
            assert!(!unknown.is_empty(), "{name}: it is said that the numbers do not tell");
        }
    }
    let log = fs::read_to_string(folder.join("7.1-x86_64-vmalloc.log")).unwrap();
    let explanation = explained(&log);
    assert_eq!(explanation.report.failed.as_deref(), Some("failed to map pages"));
    assert!(explanation.unknown.iter().any(|text| text.starts_with("vmalloc wanted other")));
    assert_eq!(fs::read_dir(folder).unwrap().count(), FILES.len(), "each file is tested");
}

/// Each of them is cut everywhere, and mangled: it is read or refused, and never panics.
#[test]
fn damaged_public_reports_never_panic() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports/public");
    // Each byte of each report: on all CPUs.
    std::thread::scope(|scope| {
        for entry in fs::read_dir(folder).unwrap() {
            scope.spawn(|| {
                let log = fs::read(entry.unwrap().path()).unwrap();
                for at in 0..log.len() {
                    let mut mangled = log.clone();
                    mangled[at] ^= 0x55;
                    for text in [&log[..at], &log[at..], &mangled] {
                        Reader::new(text).flatten().map(Explanation::of).for_each(drop);
                    }
                }
            });
        }
    });
}
