//! Reports as people paste them: replies among the lines, numbers in front, lines that were cut, joined or lost; and kinds of
//! kernels that few have.

#[path = "../all/mod.rs"]
mod all;
mod elsewhere;
mod filled;

use nearpage_explain::{Answer, Cause, CauseKind, Change, Effect, Explanation, Mark, Reader, Rule};

use all::explained;

fn only(log: &str) -> Explanation {
    let mut all = explained(log);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

fn kinds(explanation: &Explanation) -> Vec<CauseKind> {
    explanation.causes.iter().map(|cause| cause.kind).collect()
}

fn first(explanation: &Explanation) -> &Cause {
    explanation.causes.first().expect("a cause")
}

/// An urgent request of Linux 5.4, refused by a boost that this kernel does not print: without it 13228 pages are enough.
const URGENT: &str = "\
[ 12.000001] worker/3:1: page allocation failure: order:0, mode:0xa20(GFP_ATOMIC), nodemask=(null),cpuset=/,mems_allowed=0
[ 12.000002] CPU: 3 PID: 22 Comm: worker/3:1 Not tainted 5.4.30 #5
[ 12.000003] Call Trace:
[ 12.000004] Mem-Info:
[ 12.000005] active_anon:1000 inactive_anon:2000 isolated_anon:0
[ 12.000006] Node 0 Normal free:28400kB min:77492kB low:90720kB high:103948kB active_anon:4000kB inactive_anon:8000kB active_file:2000kB inactive_file:1200000kB unevictable:0kB writepending:0kB present:13107200kB managed:12793540kB mlocked:0kB kernel_stack:700kB pagetables:400kB bounce:0kB free_pcp:0kB local_pcp:0kB free_cma:0kB
[ 12.000007] lowmem_reserve[]: 0 0 0 0 0
[ 12.000008] Node 0 Normal: 3500*4kB (UMH) 1800*8kB (UM) 0*16kB 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 0*1024kB 0*2048kB 0*4096kB = 28400kB
[ 12.000009] Total swap = 4000000kB
";

/// At spaces, as a mail is.
fn filled(log: &str, columns: usize) -> String {
    let mut text = String::new();
    for line in log.lines() {
        let mut width = 0;
        for word in line.split(' ') {
            if width > 0 && width + word.len() > columns {
                text.push('\n');
                width = 0;
            }
            text += if width > 0 { " " } else { "" };
            text += word;
            width += word.len() + 1;
        }
        text.push('\n');
    }
    text
}

fn quoted(log: &str, mark: &str) -> String {
    log.lines().map(|line| format!("{mark}{line}\n")).collect()
}

/// The size of it is told first, also where it is less than a third of the mark.
#[test]
fn a_boost_that_decides_is_told_first() {
    let found = only(URGENT);
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Watermark, Answer::Refused));
    assert_eq!(kinds(&found), [CauseKind::Boost, CauseKind::CannotWait]);
    // Far below the mark a boost of that size changes nothing.
    let below = only(&URGENT.replace("free:28400kB", "free:9400kB"));
    assert!(!kinds(&below).contains(&CauseKind::Boost));
}

/// At every width a mail may have: the release stands in a line that is broken, too.
#[test]
fn a_broken_line_about_the_cpu_keeps_the_release() {
    for columns in 55..80 {
        let found = only(&quoted(&filled(URGENT, columns), "> "));
        assert_eq!(found.report.kernel.as_deref(), Some("5.4.30"), "{columns}");
        assert_eq!(kinds(&found), [CauseKind::Boost, CauseKind::CannotWait], "{columns}");
    }
}

#[test]
fn an_answer_may_stand_between_the_first_line_and_the_rows() {
    let at = URGENT.find("[ 12.000004]").unwrap();
    let (head, rows) = URGENT.split_at(at);
    for depth in ["> ", "> > ", ">> ", "> > > "] {
        for answer in ["\nThis looks like the one of last week.\n\n", "> \n> It does not.\n> \n"] {
            let (head, rows) = (quoted(&filled(head, 70), depth), quoted(&filled(rows, 70), depth));
            let found = only(&format!("{head}{answer}{rows}"));
            assert_eq!(found.verdict.rule, Rule::Watermark, "{depth}{answer}");
        }
    }
}

/// Some programs of mail write the end of each line as a code.
#[test]
fn ends_of_lines_as_codes_of_mail() {
    for end in ["=0A=\n", "=0D=0A=\n"] {
        let mut sent = String::from("Somebody wrote:=0A=\n");
        for line in URGENT.lines() {
            let mut rest = format!("> {}", line.replace('=', "=3D"));
            while rest.len() > 73 {
                let at = (60..73).find(|at| !rest[*at - 2..*at].contains('=')).unwrap();
                sent += &format!("{}=\n", &rest[..at]);
                rest = rest.split_off(at);
            }
            sent += &(rest + end);
        }
        let found = only(&sent);
        assert_eq!(found.report.zones, only(URGENT).report.zones);
        assert_eq!(kinds(&found), [CauseKind::Boost, CauseKind::CannotWait]);
    }
}

#[test]
fn numbers_in_front_of_each_line() {
    let log = "\
a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
CPU: 1 PID: 7 Comm: a Not tainted 6.6.0 #1
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[      7]     0     7    90000    80000   700000        0             0 a
[     12]     0    12     9000     8000    70000        0             0 b c
Out of memory: Killed process 7 (a) total-vm:360000kB, anon-rss:320000kB, file-rss:0kB, shmem-rss:0kB
";
    let numbered = |form: fn(usize, &str) -> String| {
        log.lines().enumerate().map(|(at, line)| form(at + 98, line) + "\n").collect::<String>()
    };
    let whole = only(log);
    assert_eq!(whole.report.tasks_listed, 2);
    let forms: [fn(usize, &str) -> String; 4] = [
        |at, line| format!("{at}:{line}"),
        |at, line| format!("{at:>6}\t{line}"),
        |at, line| format!("{at:>7} {line}"),
        |at, line| format!("{at}) {line}"),
    ];
    for form in forms {
        let found = only(&numbered(form));
        assert_eq!(found.report.tasks, whole.report.tasks, "{}", numbered(form));
        assert_eq!(found.report.victim, whole.report.victim);
    }
}

/// A page that shows a log as one line: each clock begins a message.
#[test]
fn line_feeds_that_were_lost() {
    let log = "\
[193038.106468] Task in /docker/1f killed as a result of limit of /docker/1f
[193038.106478] memory: usage 524288kB, limit 524288kB, failcnt 77
[193038.106480] memory+swap: usage 0kB, limit 9007199254740988kB, failcnt 0
[193038.106574] Memory cgroup out of memory: Killed process 27281 (java) total-vm:900000kB, anon-rss:500000kB, file-rss:0kB, shmem-rss:0kB
";
    for between in ["", " "] {
        let found = only(&log.replace('\n', between));
        let memcg = found.report.memcg.as_ref().unwrap();
        assert_eq!(
            (memcg.path.as_deref(), memcg.limit, memcg.usage),
            (Some("/docker/1f"), Some(524_288), Some(524_288))
        );
        assert_eq!(found.report.victim.as_ref().unwrap().name, "java");
    }
}

/// Of digits that were cut nothing is known: which kernels print words behind them their zones tell.
#[test]
fn a_number_of_flags_that_was_cut_tells_no_flag() {
    let log = "\
[Fri Apr 17 19:56:16 2026] kswapd0: page allocation failure: order:0, mode:0xc0d
[Fri Apr 17 19:56:16 2026] CPU: 3 UID: 0 PID: 244 Comm: kswapd0 Tainted: G
[Fri Apr 17 19:56:16 2026] Mem-Info:
[Fri Apr 17 19:56:16 2026] Node 0 DMA free:11264kB boost:0kB min:8kB low:20kB hi
[Fri Apr 17 19:56:16 2026] lowmem_reserve[]: 0 1631 95659 95659 95659
[Fri Apr 17 19:56:16 2026] Node 0 Normal free:20084kB boost:0kB min:66452kB low:
[Fri Apr 17 19:56:16 2026] lowmem_reserve[]: 0 0 0 0 0
";
    // What is no number tells as little.
    for log in [log.to_owned(), log.replace("0xc0d", "0xc0d=")] {
        let verdict = only(&log).verdict;
        assert_eq!((verdict.answer, &verdict.depends_on[..]), (Answer::Open, &["gfp_mask"][..]));
    }
    let found = only(log);
    let verdict = &found.verdict;
    assert!(verdict.zones.iter().all(|zone| zone.at_min.answer == Answer::Open));
    assert_eq!((found.report.mode.bits, found.causes.len()), (None, 0));
}

/// Whatever the order is: not a page is given.
#[test]
fn a_first_line_that_lost_its_order_is_proven_where_no_page_is_given() {
    let log = |free: u64| {
        format!(
            "\
kernel: a invoked oom-killer: gfp_mask=0x16040d0(GFP_TEMPORARY|__GFP_COMP|__GFP_NOTRACK), nodemask=
kernel: CPU: 1 PID: 23 Comm: a Not tainted 4.10.0-pae #1
kernel: Mem-Info:
kernel:  free:1010600 free_pcp:0 free_cma:0
kernel: Normal free:{free}kB min:38828kB low:48532kB high:58236kB active_anon:0kB inactive_anon:0kB acti
kernel: lowmem_reserve[]: 0 55201 55201
kernel: HighMem free:4000000kB min:512kB low:88240kB high:175968kB active_anon:400000kB inacti
kernel: lowmem_reserve[]: 0 0 0
kernel: HighMem: 0*4kB 0*8kB 250000*16kB (UM) = 4000000kB
kernel: 1994197 pages RAM
"
        )
    };
    let found = only(&log(42_400));
    assert_eq!(found.verdict.rule, Rule::Unknown);
    let found = only(&log(38_600));
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Watermark, Answer::Refused));
    // It is shown, and the flags do not allow it; how much of it is for CMA is cut, and its free blocks tell none.
    assert!(first(&found).text.contains("in zones that its flags do not allow"), "{found:?}");
}

/// Holes between banks are counted among the machine's pages, and as reserved: no zone is missing.
#[test]
fn reserved_pages_are_no_zones_that_are_missing() {
    let log = |reserved: u64| {
        format!(
            "\
[1.0] a invoked oom-killer: gfp_mask=0x200da, order=0, oom_score_adj=0
[1.0] CPU: 0 PID: 11 Comm: a Not tainted 3.10.14 #1
[1.0] Mem-Info:
[1.0] Normal free:18200kB min:20084kB low:22604kB high:25124kB present:262144kB managed:241940kB free_cma:0kB
[1.0] lowmem_reserve[]: 0 0
[1.0] Normal: 50*4kB (R) 0*8kB 0*16kB 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 0*1024kB 0*2048kB 0*4096kB = 200kB
[1.0] 131072 pages RAM
[1.0] {reserved} pages reserved
"
        )
    };
    let found = only(&log(70_587));
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Watermark, Answer::Refused));
    let hidden = only(&log(5_000));
    assert_eq!(
        (hidden.verdict.rule, &hidden.verdict.depends_on[..]),
        (Rule::Unknown, &["zones"][..])
    );
}

/// A mapping without an MMU is a block: the order follows from its length and the size of a page.
#[test]
fn a_mapping_without_an_mmu() {
    let log = |page: u64, length: u64| {
        let blocks: Vec<String> = (0..11)
            .map(|order| {
                format!(
                    "{}*{}kB{}",
                    u64::from(order < 6),
                    page << order,
                    if order < 6 { " (U)" } else { "" }
                )
            })
            .collect();
        let free = page * 63;
        format!(
            "\
[1.2] nommu: Allocation of length {length} from process 9 (sh (a)) failed
[1.2]  free:63 free_pcp:0 free_cma:0
[1.2] DMA free:{free}kB boost:0kB min:64kB low:128kB high:192kB reserved_highatomic:0KB active_anon:0kB inactive_anon:0kB active_file:0kB inactive_file:0kB present:8192kB managed:6240kB free_pcp:0kB free_cma:0kB
[1.2] lowmem_reserve[]: 0 0 0
[1.2] DMA: {} = {free}kB
[1.2] binfmt_flat: Unable to allocate RAM for process text/data, errno -12
",
            blocks.join(" ")
        )
    };
    for (page, length, order) in [(4, 491_520, 7), (8, 491_520, 6), (4, 262_145, 7), (16, 1, 0)] {
        let found = only(&log(page, length));
        assert_eq!((found.report.order, found.report.pid), (Some(order), Some(9)), "{length}");
        assert_eq!(found.report.process, "sh (a)");
        let expected = if order > 5 { Rule::NoBlock } else { Rule::Passes };
        let is_short = page * 63 < (page << order) + 64;
        assert!(found.verdict.rule == expected || is_short, "{:?}", found.verdict.rule);
    }
    // Several: none takes rows of another.
    let two = [log(4, 262_144), log(4, 270_000)].concat();
    let orders: Vec<_> =
        explained(&two).iter().map(|of| (of.report.order, of.report.zones.len())).collect();
    assert_eq!(orders, [(Some(6), 1), (Some(7), 1)]);
    // In two lines, as a mail has it.
    let wrapped = log(4, 491_520).replace(" (sh (a))", "\n(sh (a))");
    assert_eq!(only(&wrapped).report.order, Some(7));
}

#[test]
fn areas_that_no_flags_follow() {
    for log in [
        "\tvmap allocation for size 4198400 failed:\n\tuse vmalloc=<size> to increase size\n",
        "vmap allocation for size 4198400 failed: use vmalloc=<size> to increase size.\n",
    ] {
        assert_eq!(only(log).verdict.rule, Rule::Addresses, "{log}");
    }
    for log in [
        "[3.0] kunit: vmalloc: allocation failure: 18446744073709551615 bytes, mode:0xcc0(GFP_KERNEL), nodemask=(null)\n",
        "[3.0] set: vmalloc error: size 1073741848, exceeds total pages\n",
    ] {
        assert_eq!(only(log).verdict.rule, Rule::AreaTooLarge, "{log}");
    }
}

/// Most of it is not given to the allocator, or nothing is yet.
#[test]
fn memory_that_is_not_managed() {
    let log = |managed: u64, slab: u64| {
        format!(
            "\
[1.0] a invoked oom-killer: gfp_mask=0x16040c0(GFP_KERNEL|__GFP_COMP), order=0, oom_score_adj=0
[1.0] CPU: 0 PID: 2 Comm: a Not tainted 4.14.68 #1
[1.0] Mem-Info:
[1.0] active_anon:0 inactive_anon:0 isolated_anon:0
[1.0]  slab_reclaimable:0 slab_unreclaimable:{slab}
[1.0]  free:0 free_pcp:0 free_cma:0
[1.0] Node 0 active_anon:0kB inactive_anon:0kB active_file:0kB inactive_file:0kB unevictable:0kB all_unreclaimable? no
[1.0] Node 0 DMA free:0kB min:0kB low:0kB high:0kB present:5242880kB managed:{managed}kB free_pcp:0kB free_cma:0kB
[1.0] lowmem_reserve[]: 0 0 0 0
[1.0] Node 0 DMA: 0*4kB 0*8kB 0*16kB = 0kB
[1.0] Free swap  = 0kB
[1.0] Total swap = 0kB
[1.0] 1310720 pages RAM
"
        )
    };
    let found = only(&log(110_016, 24_000));
    assert_eq!(kinds(&found)[0], CauseKind::Unmanaged);
    assert!(!kinds(&only(&log(5_000_000, 24_000))).contains(&CauseKind::Unmanaged));
    let early = only(&log(5_000_000, 0));
    assert!(first(&early).text.contains("too early in the boot"), "{early:?}");
    // A zone cannot free more pages than it has.
    let none = only(&log(0, 0));
    let free = none.remedies.iter().find(|remedy| remedy.change == Change::FreePages).unwrap();
    assert_eq!(free.effect, Effect::NoEffect);
}

/// Linux 5.4 printed bytes as KiB.
#[test]
fn page_tables_in_bytes() {
    let log = |bytes: u64| {
        format!(
            "\
[1.0] a invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
[1.0] CPU: 2 PID: 500 Comm: a Not tainted 5.4.0 #1
[1.0] Tasks state (memory values in pages):
[1.0] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[1.0] [    500]   399   500  1253107  1243089 10305536        0             0 a
[1.0] Out of memory: Killed process 500 (a) total-vm:5012428kB, anon-rss:4959416kB, file-rss:12940kB, shmem-rss:0kB, UID:399 pgtables:{bytes}kB oom_score_adj:0
"
        )
    };
    for printed in [10_305_536, 10_064] {
        assert_eq!(only(&log(printed)).report.victim.unwrap().pgtables, Some(10_064));
    }
}

#[test]
fn a_kernel_that_ended_itself_ends_nobody_later() {
    let log = "\
[ 63.451494] Out of memory and no killable processes...
[ 63.456633] Kernel panic - not syncing: System is deadlocked on memory

test steps: run it with the other patch

[  209.052842] Out of memory: Killed process 519 (test) total-vm:10244kB, anon-rss:904kB, file-rss:4kB, shmem-rss:0kB
";
    let all = explained(log);
    let told: Vec<_> = all
        .iter()
        .map(|of| {
            (of.report.time.as_deref(), of.report.panic.is_some(), of.report.victim.is_some())
        })
        .collect();
    assert_eq!(told, [(Some("63.451494"), true, false), (Some("209.052842"), false, true)]);
}

/// Before Linux 2.6.19 no process was named, and each task of a memory had a line.
#[test]
fn kills_of_the_first_kernels() {
    let log = |mask: &str, order: &str| {
        format!(
            "\
oom-killer: gfp_mask={mask}{order}
Mem-info:
DMA free:3520kB min:1408kB low:1760kB high:4112kB active:224kB inactive:104184kB present:125192kB
protections[]: 0 0 0
HighMem free:0kB min:256kB low:320kB high:384kB active:0kB inactive:0kB present:0kB
protections[]: 0 0 0
DMA: 880*4kB 0*8kB 0*16kB = 3520kB
HighMem: empty
Free swap:            0kB
32000 pages of RAM
600 reserved pages
Out of Memory: Killed process 15 (browser).
Out of Memory: Killed process 16 (browser).
Out of Memory: Killed process 17 (browser).
"
        )
    };
    let found = only(&log("0x1d2", ""));
    assert_eq!((found.report.also_ended, found.verdict.rule), (2, Rule::Unknown));
    assert_eq!((found.report.ram_pages, found.report.reserved_pages), (Some(32_000), Some(600)));
    // The bit is not yet `__GFP_THISNODE`.
    let found = only(&log("0x400d2", ", order=0"));
    let verdict = &found.verdict;
    assert_eq!(
        (verdict.rule, verdict.answer, verdict.mark),
        (Rule::Watermark, Answer::Refused, Mark::High)
    );
}

/// What the kernel says of a policy is said first, whatever is lost of what is free elsewhere.
#[test]
fn a_policy_that_the_kernel_names_is_a_cause() {
    let log = "\
[1.0] a invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0, oom_score_adj=0
[1.0] CPU: 1 PID: 77 Comm: a Not tainted 6.8.0 #1
[1.0] Mem-Info:
[1.0]  free:803000 free_pcp:0 free_cma:0
[1.0] Node 1 Normal free:12000kB boost:0kB min:12000kB low:15000kB high:18000kB reserved_highatomic:0KB present:1048576kB managed:1030000kB free_pcp:0kB free_cma:0kB
[1.0] lowmem_reserve[]: 0 0 0 0 0
[1.0] Node 1 Normal: 3000*4kB (U) 0*8kB 0*16kB = 12000kB
[1.0] 1048576 pages RAM
[1.0] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[1.0] [     50]     0    50     1000       50    10000        0             0 sh
[1.0] oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=1,cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/,task=a,pid=77,uid=0
[1.0] Out of memory: Killed process 77 (a) total-vm:1100000kB, anon-rss:1000000kB, file-rss:0kB, shmem-rss:0kB
";
    let without = |part: &str| {
        log.split_inclusive('\n').filter(|line| !line.contains(part)).collect::<String>()
    };
    let passing = log.replace("free:12000kB boost", "free:32000kB boost");
    for log in [log.into(), without(" free:803000"), without("Node 1"), passing] {
        let found = only(&log);
        assert_eq!(first(&found).kind, CauseKind::Elsewhere, "{log}");
        assert!(first(&found).text.contains("policy"), "{:?}\n{log}", found.causes);
        // A task with 200 KiB explains nothing on a machine of 4 GiB.
        assert!(!kinds(&found).contains(&CauseKind::Task), "{found:?}");
    }
}

/// A zone whose own row was lost: its blocks are the report's, and tell what they can.
#[test]
fn blocks_without_the_row_of_their_zone() {
    let log = "\
a invoked oom-killer: gfp_mask=0x240c2c0
(GFP_KERNEL|__GFP_NOWARN|__GFP_COMP|__GFP_ZERO), nodemask=0, order=3,
oom_score_adj=-900
a cpuset=/ mems_allowed=0
Normal: 12488*4kB (UMEH) 6984*8kB (UMEH) 0*16kB 0*32kB 0*64kB 0*128kB = 105824kB
HighMem: 206*4kB (H) 131*8kB (H) 42*16kB (H) 2*32kB (H) 0*64kB 0*128kB = 2608kB
";
    let mut reader = Reader::new(log.as_bytes());
    let found = Explanation::of(reader.next().unwrap().unwrap());
    assert!(reader.next().is_none() && reader.unread().is_empty());
    assert_eq!(found.verdict.highest_zone, "Normal");
    assert_eq!(found.verdict.answer, Answer::Refused, "no block is large enough");
    assert!(found.unknown.iter().any(|text| text.contains("lines were lost")));
}

/// A little CMA decides nothing: what is open is told.
#[test]
fn what_is_open_is_told_before_what_is_little() {
    let log = |cma: u64| {
        format!(
            "\
[27.8] a: page allocation failure: order:0, mode:0x2000000
[27.8] CPU: 6 PID: 31 Comm: a Not tainted 4.4.169 #1
[27.8] Mem-Info:
[27.8] Node 0 DMA free:9368kB min:4920kB low:9000kB high:11000kB present:2000000kB managed:1900000kB free_pcp:0kB free_cma:{cma}kB
[27.8] lowmem_reserve[]: 0 0 0
[27.8] Node 0 DMA: 2342*4kB (UMCH) 0*8kB 0*16kB = 9368kB
"
        )
    };
    let found = only(&log(392));
    assert_eq!((found.verdict.answer, kinds(&found)), (Answer::Open, vec![CauseKind::Highatomic]));
    let found = only(&log(2_400));
    assert_eq!(kinds(&found), [CauseKind::Cma, CauseKind::Highatomic]);
}

/// Slab cannot lie in high memory: it is a large part of what it can lie in.
#[test]
fn memory_of_the_kernel_is_a_part_of_low_memory() {
    let log = "\
[7.3] a invoked oom-killer: gfp_mask=0x40cc0(GFP_KERNEL|__GFP_COMP), order=1, oom_score_adj=0
[7.3] CPU: 0 PID: 2 Comm: a Not tainted 6.0.0 #5
[7.3] Mem-Info:
[7.3] active_anon:0 inactive_anon:0 isolated_anon:0
[7.3]  slab_reclaimable:219 slab_unreclaimable:6009
[7.3]  free:67525 free_pcp:0 free_cma:0
[7.3] Normal free:744kB boost:0kB min:1060kB low:1276kB high:1492kB reserved_highatomic:0KB active_anon:0kB inactive_anon:0kB active_file:0kB inactive_file:0kB present:60000kB managed:47116kB free_pcp:0kB free_cma:0kB
[7.3] lowmem_reserve[]: 0 256 256
[7.3] HighMem free:261356kB boost:0kB min:256kB low:1460kB high:2664kB reserved_highatomic:0KB active_anon:0kB inactive_anon:0kB active_file:0kB inactive_file:0kB present:462144kB managed:462144kB free_pcp:0kB free_cma:0kB
[7.3] lowmem_reserve[]: 0 0 0
[7.3] 262144 pages RAM
[7.3] 131536 pages HighMem/MovableOnly
[7.3] 134829 pages reserved
";
    assert!(kinds(&only(log)).contains(&CauseKind::Slab));
}

/// Behind a kill a first line without a process begins the next report.
#[test]
fn a_nameless_kill_behind_another() {
    let one = |mask: &str, name: &str| {
        format!(
            "\
oom-killer: gfp_mask={mask}
Free pages:        9196kB (1856kB HighMem)
Active:12382 inactive:280459 dirty:214 writeback:0 unstable:0 free:2299 slab:220221 mapped:12256 pagetables:122
Normal free:3752kB min:3756kB low:4692kB high:5632kB active:0kB inactive:368kB present:901120kB pages_scanned:6943 all_unreclaimable? yes
lowmem_reserve[]: 0 0 9212
HighMem free:1856kB min:512kB low:640kB high:768kB active:49528kB inactive:1120732kB present:1179136kB pages_scanned:0 all_unreclaimable? no
lowmem_reserve[]: 0 0 0
Normal: 0*4kB 11*8kB 1*16kB 2*32kB 0*64kB 0*128kB 0*256kB 1*512kB 1*1024kB 1*2048kB 0*4096kB = 3752kB
HighMem: 204*4kB 36*8kB 9*16kB 3*32kB 0*64kB 0*128kB 0*256kB 1*512kB 0*1024kB 0*2048kB 0*4096kB = 1856kB
Out of Memory: Killed process 11 ({name}).
"
        )
    };
    let all = explained(&[one("0xd0", "one"), one("0xd0", "two")].concat());
    let names: Vec<_> =
        all.iter().map(|of| of.report.victim.as_ref().unwrap().name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    for found in &all {
        assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Watermark, Answer::Refused));
        // 860 of 880 MiB below the high memory.
        // The 1.8 MiB that are free there are next to nothing.
        assert_eq!(kinds(found), [CauseKind::Slab]);
    }
}

/// All pages are reserved for others: there are enough, and none for this request.
#[test]
fn pages_that_are_all_reserved_for_urgent_requests() {
    let log = |types: &str, pcp: u64| {
        format!(
            "\
[9.0] a: page allocation failure: order:0, mode:0x480020(GFP_ATOMIC), nodemask=(null)
[9.0] CPU: 6 PID: 31 Comm: a Not tainted 4.14.113 #1
[9.0] Mem-Info:
[9.0] Normal free:10908kB min:6192kB low:44388kB high:47060kB present:3076096kB managed:2673676kB free_pcp:{pcp}kB free_cma:712kB
[9.0] lowmem_reserve[]: 0 0
[9.0] Normal: 2549*4kB ({types}) 0*8kB 0*16kB = 10196kB
"
        )
    };
    let none = only(&log("H", 0));
    assert_eq!(
        (none.verdict.rule, none.verdict.answer),
        (Rule::HighatomicReserve, Answer::Refused)
    );
    let pageset = only(&log("H", 40));
    assert_eq!(pageset.verdict.depends_on, ["free_pcp"]);
    for found in [none, pageset] {
        assert!(first(&found).text.contains("all free blocks"), "{:?}", found.causes);
    }
    assert_eq!(only(&log("UH", 0)).verdict.rule, Rule::Passes);
}

/// The marks would be lower: what decides then is not the reserve.
#[test]
fn a_boost_is_told_before_a_reserve_that_it_makes_decide() {
    let log = "\
[8.0] a: page allocation failure: order:5, mode:0x40dc0(GFP_KERNEL|__GFP_ZERO|__GFP_COMP), nodemask=(null),cpuset=/,mems_allowed=0
[8.0] CPU: 3 PID: 55 Comm: a Not tainted 6.5.0 #1
[8.0] Mem-Info:
[8.0] Node 0 Normal free:149776kB boost:90112kB min:147740kB low:162144kB high:176548kB reserved_highatomic:2048KB present:14098432kB managed:13769880kB free_pcp:0kB free_cma:0kB
[8.0] lowmem_reserve[]: 0 0 0 0 0
[8.0] Node 0 Normal: 31136*4kB (UMEH) 0*8kB 0*16kB 0*32kB 0*64kB 197*128kB (UMH) 0*256kB = 149760kB
";
    let found = only(log);
    assert_eq!(found.verdict.rule, Rule::HighatomicReserve);
    assert_eq!(kinds(&found)[..2], [CauseKind::Boost, CauseKind::Highatomic]);
}

/// All memory lies above the addresses that the flags want: the report has no zone.
#[test]
fn a_report_without_zones_is_whole_where_no_zone_is_low_enough() {
    let log = |flags: &str| {
        format!(
            "\
[10.9] a: page allocation failure: order:2, mode:{flags}, nodemask=(null),cpuset=/,mems_allowed=0
[10.9] CPU: 5 UID: 0 PID: 503 Comm: a Not tainted 7.2.0-rc1 #1
[10.9] Mem-Info:
[10.9] active_anon:5773 inactive_anon:0 isolated_anon:0
[10.9]  free:4028911 free_pcp:0 free_cma:0
[10.9] 30300 total pagecache pages
[10.9] 4186368 pages RAM
"
        )
    };
    let found = only(&log("0xcc4(GFP_KERNEL|GFP_DMA32)"));
    assert_eq!(found.verdict.rule, Rule::NoZone);
    assert!(first(&found).text.contains("15.3 GiB"), "{:?}", found.causes);
    // Others would have been shown some.
    assert_eq!(only(&log("0xcc0(GFP_KERNEL)")).verdict.rule, Rule::Unknown);
}

/// Old kernels do not print what is managed.
#[test]
fn reserved_pages_of_old_kernels() {
    let log = "\
a: page allocation failure. order:0, mode:0x20
Pid: 27, comm: a Not tainted 2.6.30.1 #3
Mem-Info:
Active_anon:117688 active_file:169003 inactive_anon:22048
 inactive_file:1425813 unevictable:0 dirty:337125 writeback:4493 unstable:0
 free:567 slab:297474 mapped:1475 pagetables:1685 bounce:0
Normal free:2268kB min:6112kB low:7640kB high:9168kB active_anon:290120kB inactive_anon:49696kB active_file:357556kB inactive_file:3121792kB unevictable:0kB present:8263716kB pages_scanned:0 all_unreclaimable? no
lowmem_reserve[]: 0 0
Normal: 567*4kB 0*8kB 0*16kB = 2268kB
2162672 pages RAM
116410 pages reserved
";
    let found = only(log);
    assert_eq!((found.verdict.rule, found.verdict.answer), (Rule::Watermark, Answer::Refused));
    assert_eq!(found.report.slab_pages, Some(297_474));
    // Without that line: 2 in 100 are what describes the pages, 5 are zones.
    let of = |pages: &str| {
        let line = "116410 pages reserved\n";
        only(&log.replace(line, "").replace("2162672 pages", pages)).verdict.rule
    };
    assert_eq!(of("2108000 pages"), Rule::Watermark);
    assert_eq!(of("2170000 pages"), Rule::Unknown);
}

/// Reclaim did not take what it could have.
#[test]
fn slab_that_can_be_reclaimed_and_was_not() {
    let log = "\
[7.4] a invoked oom-killer: gfp_mask=0x2840d0, order=0, oom_score_adj=0
[7.4] CPU: 0 PID: 33 Comm: a Not tainted 3.18.0 #1
[7.4] Mem-Info:
[7.4]  free:1089 slab_reclaimable:46647 slab_unreclaimable:8914
[7.4] Normal free:1956kB min:2012kB low:2512kB high:3016kB active_anon:13748kB inactive_anon:752kB active_file:0kB inactive_file:0kB present:311288kB managed:269200kB free_cma:0kB
[7.4] lowmem_reserve[]: 0 0
[7.4] Normal: 489*4kB (R) 0*8kB = 1956kB
";
    assert!(kinds(&only(log)).contains(&CauseKind::ReclaimableSlab));
}

/// OpenVZ names the container and prints no zones.
#[test]
fn a_container_of_openvz_is_a_group() {
    let log = "Nov 24 12:17:04 box kernel: [758955.653313] Out of memory in UB 1234: OOM killed process 21738 (cgi) score 0 vm:281988kB, rss:17004kB, swap:0kB\n";
    let found = only(log);
    assert_eq!((found.verdict.rule, found.report.victim.unwrap().pid), (Rule::Memcg, 21_738));
}

/// A reserve of 2 MiB tips a kill; the 2.7 GiB that nobody counts are why memory was so low.
#[test]
fn a_small_reserve_that_tips_a_kill_stands_behind_what_fills_memory() {
    let log = "\
[50.0] a invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
[50.0] CPU: 1 PID: 22 Comm: a Not tainted 6.6.30 #5
[50.0] Mem-Info:
[50.0] active_anon:1000 inactive_anon:2000 isolated_anon:0
[50.0]  active_file:10 inactive_file:10 isolated_file:0
[50.0]  unevictable:0 dirty:0 writeback:0
[50.0]  slab_reclaimable:3000 slab_unreclaimable:30000
[50.0]  mapped:0 shmem:0 pagetables:100
[50.0]  free:6600 free_pcp:0 free_cma:0
[50.0] Node 0 active_anon:4000kB inactive_anon:8000kB active_file:40kB inactive_file:40kB unevictable:0kB isolated(anon):0kB isolated(file):0kB mapped:0kB dirty:0kB writeback:0kB shmem:0kB shmem_thp:0kB anon_thp:0kB kernel_stack:3000kB pagetables:400kB all_unreclaimable? yes
[50.0] Node 0 Normal free:26400kB boost:0kB min:20000kB low:22000kB high:25000kB reserved_highatomic:2048KB free_highatomic:2048KB active_anon:4000kB inactive_anon:8000kB active_file:40kB inactive_file:40kB unevictable:0kB writepending:0kB present:3000000kB managed:2950000kB mlocked:0kB bounce:0kB free_pcp:0kB local_pcp:0kB free_cma:0kB
[50.0] lowmem_reserve[]: 0 0 0
[50.0] Node 0 Normal: 100*4kB (UMEH) 0*8kB 0*16kB 0*32kB 0*64kB 0*128kB 0*256kB 0*512kB 1*1024kB (H) 0*2048kB 6*4096kB (ME) = 26000kB
[50.0] Free swap  = 0kB
[50.0] Total swap = 0kB
[50.0] 750000 pages RAM
";
    let found = only(log);
    assert_eq!(found.verdict.rule, Rule::HighatomicReserve, "{found:#?}");
    let kinds = kinds(&found);
    let at = |kind| kinds.iter().position(|of| *of == kind).unwrap_or_else(|| panic!("{kinds:?}"));
    assert_eq!(at(CauseKind::Unexplained), 0, "{kinds:?}");
    assert!(at(CauseKind::Highatomic) > 0, "{kinds:?}");
}

/// A kill of Linux 6.1 on a machine with these zones, without swap.
fn kill(head: &str, zones: &[Zone]) -> String {
    let free: u64 = zones.iter().map(|zone| zone.free / 4).sum();
    let pages: u64 = zones.iter().map(|zone| zone.size / 4).sum();
    let rows: String = zones.iter().map(Zone::row).collect();
    let blocks: String = zones.iter().map(Zone::blocks).collect();
    format!(
        "\
[50.0] a invoked oom-killer: {head}, oom_score_adj=0
[50.0] CPU: 1 PID: 22 Comm: a Not tainted 6.1.30 #5
[50.0] Mem-Info:
[50.0] active_anon:1000 inactive_anon:1900000 isolated_anon:0
[50.0]  active_file:10 inactive_file:10 isolated_file:0
[50.0]  slab_reclaimable:3000 slab_unreclaimable:30000
[50.0]  mapped:0 shmem:0 pagetables:1000
[50.0]  free:{free} free_pcp:0 free_cma:0
[50.0] Node 0 active_anon:4000kB inactive_anon:7600000kB active_file:40kB inactive_file:40kB unevictable:0kB mapped:0kB dirty:0kB writeback:0kB shmem:0kB kernel_stack:3000kB pagetables:4000kB all_unreclaimable? yes
{rows}{blocks}[50.0] Free swap  = 0kB
[50.0] Total swap = 0kB
[50.0] {pages} pages RAM
"
    )
}

/// A zone whose free blocks are single pages.
struct Zone {
    name: &'static str,
    free: u64,
    marks: [u64; 3],
    size: u64,
    reserve: &'static str,
}

impl Zone {
    fn row(&self) -> String {
        let Zone { name, free, marks: [min, low, high], size, reserve } = self;
        format!(
            "\
[50.0] Node 0 {name} free:{free}kB boost:0kB min:{min}kB low:{low}kB high:{high}kB reserved_highatomic:0KB free_highatomic:0KB active_anon:4000kB inactive_anon:8000kB active_file:40kB inactive_file:40kB unevictable:0kB writepending:0kB present:{size}kB managed:{size}kB mlocked:0kB bounce:0kB free_pcp:0kB local_pcp:0kB free_cma:0kB
[50.0] lowmem_reserve[]: {reserve}
"
        )
    }

    fn blocks(&self) -> String {
        let Zone { name, free, .. } = self;
        let (pages, none) = (free / 4, (1..11).map(|order| format!(" 0*{}kB", 4 << order)));
        let none: String = none.collect();
        format!("[50.0] Node 0 {name}: {pages}*4kB (UM){none} = {free}kB\n")
    }
}

/// The only zone that matters: what is free, of nearly 8 GiB.
fn normal(free: u64) -> Zone {
    Zone { name: "Normal", free, marks: [5600, 7000, 8400], size: 7_900_000, reserve: "0 0 0 0" }
}

const ORDER_0: &str = "gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0";
/// A failure of the same machine for the same request.
fn failure(kill: &str, request: &str) -> String {
    let (_, rest) = kill.split_once('\n').unwrap();
    format!("[50.0] a: page allocation failure: {request}\n{rest}")
}

/// Of two zones that are about as large the one with nothing left decides, and not the few pages that the other keeps; and what
/// those few admit is one request.
#[test]
fn a_small_reserve_decides_nothing_beside_a_mark() {
    let low = || Zone {
        name: "DMA32",
        free: 21_400,
        marks: [5800, 7250, 8700],
        size: 4_000_000,
        reserve: "0 0 3934 3934",
    };
    let found = only(&kill(ORDER_0, &[low(), Zone { size: 4_000_000, ..normal(5400) }]));
    let decided = (found.verdict.rule, found.verdict.zone.as_deref());
    assert_eq!(decided, (Rule::Watermark, Some("Normal")), "{:#?}", found.verdict);
    let found = only(&kill(ORDER_0, &[low(), Zone { size: 1_000_000, ..normal(5400) }]));
    let ratio = found.remedies.iter().find(|it| it.change == Change::LowmemReserveRatio).unwrap();
    assert_eq!(ratio.effect, Effect::HelpsALittle, "{ratio:?}");
}

/// A zone of an eighth of memory that passes against `min` is not passed over: the last try refused.
#[test]
fn a_zone_that_passes_against_min_is_told() {
    let low = Zone {
        name: "DMA32",
        free: 9072,
        marks: [7076, 8845, 10_614],
        size: 3_600_000,
        reserve: "0 0 505 505",
    };
    let small = Zone { marks: [1016, 1270, 1524], size: 480_000, ..normal(1380) };
    let found = only(&kill(ORDER_0, &[low, small]));
    let decided = (found.verdict.mark, found.verdict.zone.as_deref());
    assert_eq!(decided, (Mark::High, Some("Normal")), "{:#?}", found.verdict);
}

/// Some kernels, and some who paste, tell of the kill before what memory had; with the first line, and without.
#[test]
fn a_kill_may_stand_in_front_of_what_memory_had() {
    let killed = "[50.0] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,task=a,pid=22,uid=0\n\
                  [50.0] Out of memory: Killed process 22 (a) total-vm:8000000kB, anon-rss:7000000kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:3000kB oom_score_adj:0\n";
    let log = kill(ORDER_0, &[normal(5400)]);
    let log = log.replace("[50.0] Mem-Info:", &format!("{killed}[50.0] Mem-Info:"));
    let found = only(&log);
    assert_eq!(found.verdict.rule, Rule::Watermark, "{found:#?}");
    assert_eq!(found.report.victim.as_ref().and_then(|victim| victim.anon), Some(7_000_000));
    let (_, headless) = log.split_once("#5\n").unwrap();
    let found = only(headless);
    assert_eq!((found.verdict.answer, first(&found).kind), (Answer::Open, CauseKind::NoSwap));
    // With other lines between, whose memory it is nobody knows.
    let others = "[50.0] eth0: link is up\n[50.0] eth0: link is down\n".repeat(3);
    let apart = headless.replace("[50.0] Mem-Info:", &format!("{others}[50.0] Mem-Info:"));
    assert!(only(&apart).report.zones.is_empty());
}

/// Who answers a mail writes within a first line that was broken.
#[test]
fn an_answer_within_a_first_line() {
    let head = "a: page allocation failure: order:1,\nmode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset=/,mems_allowed=0\n";
    let log = kill(ORDER_0, &[normal(5400)]).replace("[50.0] ", "");
    let (_, rest) = log.split_once('\n').unwrap();
    let log = quoted(&format!("{head}{rest}"), "> ");
    let answer = "order:1,\n\nThat is two pages,\nwhich are asked for often.\n\n";
    let answered = log.replace("order:1,\n", answer);
    let (plain, found) = (only(&log), only(&answered));
    assert_eq!((plain.report.order, &plain.verdict), (Some(1), &found.verdict));
    let mut reader = Reader::new(answered.as_bytes());
    assert_eq!(reader.by_ref().count(), 1);
    assert!(reader.unread().is_empty(), "{:?}", reader.unread());
}

#[test]
fn what_is_more_than_all_memory_is_told() {
    let zones = [Zone { size: 2_000_000, ..normal(1_576_000) }];
    let found = only(&kill("gfp_mask=0xcc0(GFP_KERNEL), order=20", &zones));
    assert_eq!(first(&found).kind, CauseKind::TooLarge, "{found:#?}");
}

/// Counters of CPUs hold back what was taken: with empty lists nothing passes for sure.
#[test]
fn empty_lists_pass_nothing() {
    let log = kill(ORDER_0, &[normal(8000)])
        .replace("2000*4kB (UM)", "0*4kB")
        .replace("= 8000kB", "= 0kB")
        .replace("free_pcp:0kB", "free_pcp:12kB");
    let found = only(&failure(&log, "order:0, mode:0xa20(GFP_ATOMIC)"));
    assert_eq!(found.verdict.answer, Answer::Open, "{found:#?}");
    assert_eq!(found.verdict.depends_on, ["free_pcp"]);
    assert_eq!(first(&found).kind, CauseKind::EmptyLists);
}

/// Memory of files could have left: the reserve that is all that is free comes first.
#[test]
fn what_could_have_left_stands_behind_a_reserve() {
    let log = kill(ORDER_0, &[normal(5800)])
        .replace("1450*4kB (UM)", "1450*4kB (H)")
        .replace("free_highatomic:0KB", "free_highatomic:5800KB")
        .replace("reserved_highatomic:0KB", "reserved_highatomic:6144KB")
        .replace(
            "inactive_anon:7600000kB active_file:40kB",
            "inactive_anon:76000kB active_file:7500000kB",
        );
    let found = only(&log);
    assert_eq!(first(&found).kind, CauseKind::Highatomic, "{:#?}", found.causes);
    assert!(kinds(&found).contains(&CauseKind::Files));
}

#[test]
fn page_tables_of_one_process_are_its_own() {
    let log = kill(ORDER_0, &[normal(5400)]).replace("pagetables:1000\n", "pagetables:1000000\n");
    let text = |end: &str| {
        let found = only(&format!("{log}{end}"));
        let tables = found.causes.iter().find(|cause| cause.kind == CauseKind::PageTables);
        tables.expect("they fill memory").text.clone()
    };
    assert!(text("").contains("many processes"));
    let killed = "[50.0] Out of memory: Killed process 9 (b) total-vm:9000000000kB, anon-rss:700kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:3900000kB oom_score_adj:0\n";
    assert!(text(killed).contains("3.7 GiB of them of b (process 9)"), "{}", text(killed));
}

/// What is slab cannot be moved: it is why blocks are small.
#[test]
fn slab_stands_between_free_blocks() {
    let log = kill(ORDER_0, &[normal(300_000)]).replace(
        "slab_reclaimable:3000 slab_unreclaimable:30000",
        "slab_reclaimable:900000 slab_unreclaimable:800000",
    );
    let found = only(&failure(&log, "order:6, mode:0xcc0(GFP_KERNEL)"));
    assert_eq!(found.verdict.rule, Rule::NoBlock);
    assert_eq!(kinds(&found), [CauseKind::Fragmentation, CauseKind::Slab]);
}

/// Free pages of CMA in high memory are free for others: the request's flags keep it from there.
#[test]
fn what_is_free_for_cma_in_high_memory_is_elsewhere() {
    let low = Zone { size: 400_000, reserve: "0 0 579 579", ..normal(5400) };
    let high =
        Zone { name: "HighMem", marks: [512, 34_024, 48_808], size: 1_500_000, ..normal(553_472) };
    let log = kill("gfp_mask=0xcc0(GFP_KERNEL), order=0", &[low, high])
        .replace("138368*4kB (UM)", "138368*4kB (C)");
    let at = log.rfind("free_cma:0kB").unwrap();
    let log = format!("{}free_cma:553588kB{}", &log[..at], &log[at + "free_cma:0kB".len()..]);
    let found = only(&log.replace("inactive_anon:7600000kB", "inactive_anon:20000kB"));
    let told = |cause: &Cause| (cause.kind, cause.kib) == (CauseKind::Elsewhere, Some(553_472));
    assert!(found.causes.iter().any(told), "{:#?}", found.causes);
    // What little anonymous memory the zone has needs no swap.
    assert!(found.remedies.iter().all(|remedy| remedy.change != Change::Swap));
}

/// Linux 3.7 to 4.1 tell pages of CMA on a line of their own: that bounds what a row lost.
#[test]
fn a_row_without_its_end_has_at_most_the_machines_pages_of_cma() {
    let log = "\
[1.0] a: page allocation failure: order:1, mode:0x20
[1.0] CPU: 0 PID: 61 Comm: a Not tainted 3.12.10 #1
[1.0] Mem-Info:
[1.0] active_anon:4889 inactive_anon:13 isolated_anon:0
[1.0]  free:3286 slab_reclaimable:1090 slab_unreclaimable:915
[1.0]  free_cma:1982
[1.0] Normal free:13144kB min:2004kB low:2504kB high:3004kB active_anon:19556kB inactive_anon:52kB active_file:32328kB inactive_file:172784kB unevi
[1.0] lowmem_reserve[]: 0 0 0
[1.0] Normal: 2584*4kB (UMC) 217*8kB (C) 67*16kB (C) 0*32kB = 13144kB
";
    let found = only(log);
    assert_eq!(
        (found.verdict.rule, found.verdict.answer),
        (Rule::NoBlock, Answer::Refused),
        "{found:#?}"
    );
}

/// Who reads a log writes sizes into its rows, and breaks them.
#[test]
fn notes_within_a_row_are_none_of_its_figures() {
    let log = kill(ORDER_0, &[normal(5400)]);
    let noted = log
        .replace(
            "free_highatomic:0KB active_anon:4000kB",
            "free_highatomic:0KB\nactive_anon:4000kB(3.9M)",
        )
        .replace("inactive_anon:7600000kB", "inactive_anon:7600000kB(7.2G)");
    assert_ne!(noted, log);
    let (plain, found) = (only(&log), only(&noted));
    assert_eq!((found.verdict, found.causes), (plain.verdict, plain.causes));
}

/// A mapping's report without an MMU follows that of its pages, and names no kernel.
#[test]
fn a_mapping_is_of_the_kernel_of_its_pages() {
    let memory = "\
[38.0] Normal free:6060kB min:352kB low:440kB high:528kB active_anon:0kB inactive_anon:0kB active_file:0kB inactive_file:0kB unevictable:492kB present:8192kB managed:7928kB mlocked:0kB free_cma:0kB
[38.0] lowmem_reserve[]: 0 0
[38.0] Normal: 23*4kB (U) 22*8kB (U) 24*16kB (U) 23*32kB (U) 23*64kB (U) 23*128kB (U) 1*256kB (U) 0*512kB 0*1024kB 0*2048kB 0*4096kB = 6060kB
";
    let log = format!(
        "\
[38.0] a: page allocation failure: order:6, mode:0xd0
[38.0] CPU: 0 PID: 67 Comm: a Not tainted 3.19.0 #1
[38.0] Mem-Info:
{memory}[38.0] 2048 pages of RAM
[38.0] nommu: Allocation of length 221184 from process 67 (a) failed
{memory}"
    );
    let found = explained(&log);
    assert_eq!(found.len(), 2);
    // One block of the order is free, of which a kernel before 4.4 keeps a part of the mark.
    assert!(found.iter().all(|one| one.verdict.rule == Rule::NoBlock), "{found:#?}");
}

/// What fills a group: buffers of its sockets; and what groups below hold, whose kernels count each alone.
#[test]
fn what_fills_a_group_is_told() {
    let head = "[9.0] a invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n";
    let sockets = format!(
        "{head}[9.0] memory: usage 208204kB, limit 204800kB, failcnt 62\n\
         [9.0] Memory cgroup stats for /pod:\n[9.0] anon 28139520\n[9.0] file 0\n[9.0] sock 183623680\n"
    );
    assert_eq!(kinds(&only(&sockets)), [CauseKind::MemcgLimit, CauseKind::MemcgSockets]);
    let below = format!(
        "{head}[9.0] Task in /pod/b killed as a result of limit of /pod\n\
         [9.0] memory: usage 233472kB, limit 233472kB, failcnt 3028\n\
         [9.0] Memory cgroup stats for /pod: cache:0KB rss:0KB mapped_file:0KB\n\
         [9.0] Memory cgroup stats for /pod/a: cache:0KB rss:44KB mapped_file:0KB\n\
         [9.0] Memory cgroup stats for /pod/b: cache:0KB rss:233428KB mapped_file:0KB\n"
    );
    let found = only(&below);
    assert_eq!(found.report.memcg.as_ref().and_then(|memcg| memcg.anon), Some(233_472));
    assert!(kinds(&found).contains(&CauseKind::Anonymous));
}

/// From 4.4 to 6.3 who is urgent has a flag for not being able to wait, and SLUB took it off up to 4.6.
#[test]
fn an_urgent_request_without_its_flag_gets_half() {
    let log = kill(ORDER_0, &[Zone { marks: [2868, 3585, 4302], ..normal(1160) }])
        .replace("6.1.30", "4.6.0")
        .replace(" boost:0kB", "")
        .replace(" reserved_highatomic:0KB free_highatomic:0KB", "")
        .replace("inactive_file:40kB", "inactive_file:4000000kB");
    let found = |mode: &str| only(&failure(&log, &format!("order:0, mode:{mode}")));
    let urgent = found("0x2200020(GFP_NOWAIT|__GFP_HIGH|__GFP_NOTRACK)");
    assert_eq!(urgent.verdict.rule, Rule::Watermark, "{urgent:#?}");
    assert_eq!(first(&urgent).kind, CauseKind::CannotWait);
    assert_eq!(found("0x2280020(GFP_ATOMIC|__GFP_NOTRACK)").verdict.rule, Rule::Passes);
}

/// Nodes outside a cpuset have no zones in a report of it, and none is lost.
#[test]
fn nodes_outside_a_cpuset_lack_no_zones() {
    let log = kill(
        "gfp_mask=0x24280ca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), nodemask=0, order=0",
        &[normal(800_000)],
    );
    let log = log
        .replace("6.1.30", "4.9.0")
        .replace("[50.0] CPU:", "[50.0] a cpuset=one mems_allowed=0\n[50.0] CPU:");
    let node = log.lines().find(|line| line.contains("Node 0 active_anon")).unwrap();
    let other = node.replace("Node 0", "Node 1");
    let log = log
        .replace(node, &format!("{node}\n{other}"))
        .replace("1975000 pages RAM", "3950000 pages RAM");
    assert!(log.contains("3950000"), "{log}");
    let found = only(&log);
    assert_eq!(
        (found.verdict.rule, found.verdict.answer),
        (Rule::Passes, Answer::Passes),
        "{found:#?}"
    );
}

/// A bug's summary is a title, as a mail's subject is.
#[test]
fn the_summary_of_a_bug_is_none_of_its_reports() {
    let log = "           Summary: X: page allocation failure: order:8,\n                    mode:0x190dc2(GFP_HIGHUSER|__GFP_NORETRY|__GFP_ZERO|__\n\n";
    let zones = kill(ORDER_0, &[normal(5400)]);
    let report = failure(&zones, "order:8, mode:0x190dc2(GFP_HIGHUSER|__GFP_NORETRY|__GFP_ZERO)");
    assert_eq!(only(&format!("{log}{report}")).verdict, only(&report).verdict);
}

/// Lines of a group that stand twice are of one report.
#[test]
fn lines_of_a_group_that_stand_twice_are_told_once() {
    let limits = "[9.0] Task in /a killed as a result of limit of /a\n\
                  [9.0] memory: usage 204800kB, limit 204800kB, failcnt 4563\n\
                  [9.0] memory+swap: usage 0kB, limit 9007199254740988kB, failcnt 0\n\
                  [9.0] kmem: usage 7524kB, limit 9007199254740988kB, failcnt 0\n";
    let head = "[9.0] a invoked oom-killer: gfp_mask=0x24000c0, order=0, oom_score_adj=0\n";
    let end = "[9.0] Memory cgroup stats for /a: cache:108KB rss:197168KB\n\
               [9.0] Memory cgroup out of memory: Kill process 22 (a) score 904 or sacrifice child\n\
               [9.0] Killed process 22 (a) total-vm:390360kB, anon-rss:183712kB, file-rss:1016kB\n";
    let twice = only(&format!("{head}{limits}{limits}{end}"));
    let once = only(&format!("{head}{limits}{end}"));
    assert_eq!(
        (&twice.report.memcg, &twice.report.victim),
        (&once.report.memcg, &once.report.victim)
    );
    assert_eq!(twice.causes, once.causes);
}

/// Where a pager cut rows the machine's own lines tell what they had; what a balloon took is not there for others.
#[test]
fn rows_that_a_pager_cut_are_judged_by_what_the_machine_tells() {
    let zones = [
        Zone {
            name: "DMA32",
            free: 64_676,
            marks: [16_264, 20_330, 24_396],
            size: 3_000_000,
            reserve: "0 0 12114 12114",
        },
        Zone { marks: [51_248, 64_060, 76_872], size: 12_400_000, ..normal(46_452) },
    ];
    let log = kill("gfp_mask=0x6200ca(GFP_HIGHUSER_MOVABLE), order=0", &zones)
        .replace("6.1.30", "4.18.0")
        .replace("inactive_anon:7600000kB", "inactive_anon:2900000kB")
        .replace(" pages RAM", " pages RAM\n[50.0] 1000 pages reserved");
    // As kernels before 5.5 have them, and cut.
    let cut: String = log
        .lines()
        .map(|line| match (line.find(" boost:"), line.find(" min:")) {
            (Some(boost), Some(min)) => {
                let line = format!("{}{}", &line[..boost], &line[min..]);
                let urgent = line.find(" reserved_highatomic").unwrap();
                format!("{} active_anon:4000kB inactiv>\n", &line[..urgent])
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let found = only(&cut);
    assert_eq!(
        (found.verdict.rule, found.verdict.zone.as_deref()),
        (Rule::Watermark, Some("Normal")),
        "{found:#?}"
    );
    assert_eq!(
        kinds(&found)[..2],
        [CauseKind::Unexplained, CauseKind::NoSwap],
        "{:#?}",
        found.causes
    );
}

/// A cache of its own fills the zone below 16 MiB: higher marks free nothing there.
#[test]
fn slab_fills_a_zone_for_which_others_do_not_stand_in() {
    let dma = Zone { name: "DMA", free: 64, marks: [64, 80, 96], size: 15_900, reserve: "0 0 0 0" };
    let log = kill(ORDER_0, &[dma, normal(5_000_000)]).replace("6.1.30", "4.8.0");
    let at = log.find(" mlocked:").unwrap();
    let log = format!("{} slab_reclaimable:0kB slab_unreclaimable:15836kB{}", &log[..at], &log[at..])
        .replacen("active_anon:4000kB inactive_anon:8000kB active_file:40kB inactive_file:40kB unevictable:0kB writepending", "active_anon:0kB inactive_anon:0kB active_file:0kB inactive_file:0kB unevictable:0kB writepending", 1);
    let found = only(&failure(&log, "order:0, mode:0x2604001(GFP_NOIO|__GFP_DMA|__GFP_COMP)"));
    assert_eq!(kinds(&found)[..2], [CauseKind::Elsewhere, CauseKind::Slab], "{:#?}", found.causes);
    let marks = found.remedies.iter().find(|it| it.change == Change::MinFreeKbytes).unwrap();
    assert_eq!(marks.effect, Effect::Harmful, "{marks:?}");
}

/// Up to 4.x a kill that sysrq f asks for has an order of 0, and is a worker's.
#[test]
fn a_worker_of_sysrq_was_refused_nothing() {
    let log = kill("gfp_mask=0xcc0(GFP_KERNEL), order=0", &[normal(6000)])
        .replace("[50.0] Mem-Info:", "[50.0] Workqueue: events moom_callback\n[50.0] Mem-Info:");
    let found = only(&log);
    assert_eq!(found.verdict.rule, Rule::NoRequest, "{found:#?}");
    assert_eq!(kinds(&found), [CauseKind::NoRequest, CauseKind::NoSwap]);
}

/// A count of a group went below zero: a higher limit is no cure.
#[test]
fn a_usage_below_zero_is_told() {
    let log = "\
[9.0] a invoked oom-killer: gfp_mask=0x14000c0(GFP_KERNEL), order=0, oom_score_adj=0
[9.0] Task in /web killed as a result of limit of /web
[9.0] memory: usage 18446744073709537436kB, limit 16777216kB, failcnt 4563
[9.0] Memory cgroup stats for /web: cache:16KB rss:0KB
";
    let found = only(log);
    assert_eq!(kinds(&found), [CauseKind::WrongCount]);
    assert!(first(&found).text.contains("13.8 MiB below zero"), "{}", first(&found).text);
    let limit = found.remedies.iter().find(|it| it.change == Change::MemcgLimit).unwrap();
    assert_eq!(limit.effect, Effect::NoEffect);
}

/// A policy of a node whose memory went: the report has no zone, and memory is free elsewhere.
#[test]
fn a_policys_node_without_memory_is_told() {
    let (head, end) = (
        "gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0",
        "[50.0] oom-kill:constraint=CONSTRAINT_MEMORY_POLICY,nodemask=2,cpuset=/,mems_allowed=0-2,global_oom,task=a,pid=22,uid=0\n",
    );
    let log = kill(head, &[normal(6_400_000)]);
    let shown = |line: &&str| !line.contains("Node 0") && !line.contains("lowmem_reserve");
    let lines: Vec<&str> = log.lines().filter(shown).collect();
    let found = only(&format!("{}\n{end}", lines.join("\n")));
    assert_eq!((first(&found).kind, found.verdict.answer), (CauseKind::Elsewhere, Answer::Open));
    let text = &first(&found).text;
    assert!(
        text.contains("to node 2: no zone of it is shown") && text.contains("6.1 GiB"),
        "{text}"
    );
}

/// Where all zones are shown, counters of two instants are no memory elsewhere.
#[test]
fn counters_of_another_instant_are_no_memory_elsewhere() {
    let log = kill(ORDER_0, &[normal(5400)]).replace("free:1350 ", "free:7350 ");
    assert_eq!(first(&only(&log)).kind, CauseKind::NoSwap);
}
