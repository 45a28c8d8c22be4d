//! One small report of each kind that older kernels, other machines and people who paste have.

use nearpage_explain::{Explanation, Figure, Kind, Reader, Rule};

fn explained(log: &str) -> Vec<Explanation> {
    Reader::new(log.as_bytes()).map(|report| Explanation::of(report.unwrap())).collect()
}

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
