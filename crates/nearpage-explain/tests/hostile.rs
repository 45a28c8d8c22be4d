//! Texts that no kernel printed, and reports that something went through: never a panic, never more memory than bounded.

use std::io::{self, BufRead, BufReader, Read};

use nearpage_explain::{Explanation, Figure, ReadError, Reader, Rule};
use proptest::prelude::*;

const REPORT: &str = "\
[1.0] java invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=2, oom_score_adj=0
[1.0] CPU: 1 PID: 7 Comm: java Not tainted 6.1.0 #1
[1.0] Mem-Info:
[1.0] active_anon:1 slab_reclaimable:2 slab_unreclaimable:3
[1.0] Node 0 active_anon:4kB inactive_anon:8kB unevictable:0kB all_unreclaimable? yes
[1.0] Node 0 DMA free:15872kB boost:0kB min:340kB low:424kB high:508kB present:15992kB managed:15908kB free_pcp:0kB free_cma:0kB
[1.0] lowmem_reserve[]: 0 0 7941 7941 7941
[1.0] Node 0 Normal free:4096kB boost:0kB min:11264kB low:14080kB high:16896kB present:1048576kB managed:1019292kB free_pcp:9kB
[1.0] lowmem_reserve[]: 0 0 0 0 0
[1.0] Node 0 DMA: 0*4kB 0*8kB 0*16kB 0*32kB 0*64kB 0*128kB 0*256kB 1*512kB (U) 1*1024kB (U) 1*2048kB (M) 3*4096kB (M) = 15872kB
[1.0] Node 0 Normal: 1024*4kB (UMEH) 0*8kB 0*16kB 0*32kB = 4096kB
[1.0] Node 0 hugepages_total=0 hugepages_free=0 hugepages_surp=0 hugepages_size=2048kB
[1.0] Free swap  = 0kB
[1.0] Total swap = 0kB
[1.0] 266142 pages RAM
[1.0] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[1.0] [      7]     0     7   123456    65432   569344        0             0 java
[1.0] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,task=java,pid=7,uid=0
[1.0] Out of memory: Killed process 7 (java) total-vm:493824kB, anon-rss:261728kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:556kB oom_score_adj:0
";

fn explain(log: &[u8]) -> Result<Vec<Explanation>, ReadError> {
    Reader::new(log).map(|report| Ok(Explanation::of(report?))).collect()
}

/// A report as lines of one of two that print at once.
fn lines(name: &str, caller: Option<&str>) -> Vec<String> {
    let tag = caller.map(|caller| format!("[{caller}]")).unwrap_or_default();
    REPORT
        .lines()
        .map(|line| line.replace("java", name).replacen("[1.0]", &format!("[1.0]{tag}"), 1))
        .collect()
}

#[test]
fn the_sample_is_explained() {
    let explained = explain(REPORT.as_bytes()).unwrap();
    let [one] = &explained[..] else { panic!("{explained:#?}") };
    assert_eq!(one.verdict.rule, Rule::Watermark);
    assert_eq!((one.verdict.node, one.verdict.zone.as_deref()), (Some(0), Some("Normal")));
    assert_eq!(one.report.victim.as_ref().unwrap().anon, Some(261_728));
    assert_eq!((one.report.first_line, one.report.last_line), (1, 19));
    assert_eq!(one.report.tasks[0].rss_pages, 65_432);
    // DMA has 3968 pages free; 85 + 7941 + 3 + 1 are needed.
    assert_eq!(
        one.verdict.zones.iter().find(|zone| zone.zone == "DMA").unwrap().at_min.rule,
        Rule::LowmemReserve
    );
}

/// The victim of one is not taken for that of another which is not so far: that one would end there.
#[test]
fn victims_belong_to_the_report_of_their_caller() {
    let (first, second) = (lines("first", Some("T1")), lines("second", Some("T2")));
    let log = [&first[..6], &second[..], &first[6..]].concat().join("\n");
    let explained = explain(log.as_bytes()).unwrap();
    assert_eq!(explained.len(), 2);
    for one in explained {
        assert_eq!(one.verdict.rule, Rule::Watermark, "{}", one.report.process);
        assert_eq!(one.report.victim.unwrap().name, one.report.process);
    }
}

/// What a report lacks is not taken for 0.
#[test]
fn counters_that_are_missing_are_not_known() {
    let explained = |log: &str| explain(log.as_bytes()).unwrap().remove(0);
    let whole = explained(REPORT);
    let held = whole.verdict.no_progress.unwrap();
    assert_eq!(
        (held.anon, held.file, held.swap_free),
        (Figure::exact(12), Figure::between(0, u64::MAX), Some(0))
    );
    assert_eq!((held.slab_reclaimable, held.unevictable), (Figure::exact(8), Figure::exact(0)));
    assert_eq!(held.unexplained, None, "files may hold it");
    assert!(whole.unknown.iter().any(|text| text.starts_with("the report lacks counters")));
    let with_files =
        REPORT.replace("inactive_anon:8kB", "inactive_anon:8kB active_file:16kB inactive_file:0kB");
    let held = explained(&with_files).verdict.no_progress.unwrap();
    assert_eq!(held.file, Figure::exact(16));
    let used = 12 + 16 + 8 + 12 + 15_872 + 4096;
    assert_eq!(held.unexplained, Some(15_908 + 1_019_292 - used));
    let bare =
        explained(&REPORT.replace(", file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:556kB", ""));
    let victim = bare.report.victim.unwrap();
    assert_eq!((victim.anon, victim.file, victim.pgtables), (Some(261_728), None, None));
}

/// Figures that no kernel prints are not taken for 0 either: the line is named, and what depends on them is not known.
#[test]
fn figures_out_of_range_are_named_and_not_known() {
    const LARGE: &str = "99999999999999999999";
    let explained = |from: &str, to: &str| {
        let log = REPORT.replacen(from, to, 1);
        assert_ne!(log, REPORT);
        explain(log.as_bytes()).unwrap().remove(0)
    };
    let names = |explanation: &Explanation, line: u64, word: &str| {
        let said = format!("line {line}: {word} is no figure");
        assert!(explanation.unknown.iter().any(|text| text.starts_with(&said)), "{said}");
    };
    let rule = |explanation: &Explanation, zone: &str| {
        explanation.verdict.zones.iter().find(|judged| judged.zone == zone).unwrap().at_min.rule
    };
    // Without the figure there may be enough pages in too small blocks, or too few. What is managed changes nothing.
    for (from, to, line, expected) in [
        ("free:4096kB", format!("free:{LARGE}kB"), 8, Rule::Unknown),
        ("min:11264kB", "min:-1kB".into(), 8, Rule::Unknown),
        ("managed:1019292kB", format!("managed:{LARGE}kB"), 8, Rule::Watermark),
    ] {
        let found = explained(from, &to);
        names(&found, line, &to);
        assert_eq!((rule(&found, "Normal"), rule(&found, "DMA")), (expected, Rule::LowmemReserve));
    }
    let found = explained("0 0 7941 7941 7941", &format!("0 0 {LARGE}"));
    names(&found, 7, LARGE);
    assert_eq!(rule(&found, "DMA"), Rule::Unknown);
    let found = explained("1024*4kB", &format!("{LARGE}*4kB"));
    names(&found, 11, &format!("{LARGE}*4kB"));
    assert!(found.report.zones.iter().any(|zone| zone.blocks.is_empty()));
    let found = explained("inactive_anon:8kB", "inactive_anon:-8kB");
    names(&found, 5, "inactive_anon:-8kB");
    let found = explained("slab_reclaimable:2", &format!("slab_reclaimable:{LARGE}"));
    names(&found, 4, &format!("slab_reclaimable:{LARGE}"));
    assert_eq!(found.verdict.no_progress.unwrap().slab_reclaimable, Figure::UNKNOWN);
    let found = explained("266142 pages RAM", &format!("{LARGE} pages RAM"));
    names(&found, 15, LARGE);
    let found = explained("anon-rss:261728kB", &format!("anon-rss:{LARGE}kB"));
    names(&found, 19, &format!("anon-rss:{LARGE}kB,"));
    assert_eq!(found.report.victim.unwrap().anon, None);
}

/// vmalloc refuses what is larger than memory before it asks a zone.
#[test]
fn an_area_larger_than_memory_asks_no_zone() {
    let header = "insmod: vmalloc error: size 99999744, exceeds total pages, mode:0xcc2(GFP_KERNEL|__GFP_HIGHMEM), nodemask=(null)";
    let log = REPORT.replace(
        "java invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=2, oom_score_adj=0",
        header,
    );
    let found = explain(log.as_bytes()).unwrap().remove(0);
    assert_eq!((found.verdict.rule, found.verdict.zone), (Rule::AreaTooLarge, None));
    assert!(found.unknown.iter().all(|text| !text.contains("that all of it refused")));
}

#[test]
fn mixed_reports_are_taken_apart() {
    for callers in [[Some("T1"), Some("C1")], [None, None]] {
        let [one, other] = [lines("one", callers[0]), lines("other", callers[1])];
        // Line by line, as two CPUs print, the second a line behind.
        let mixed: Vec<String> =
            one.iter().zip(&other).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
        let explained = explain(mixed.join("\n").as_bytes()).unwrap();
        assert_eq!(explained.len(), 2, "{callers:?}");
        for explanation in &explained {
            assert_eq!(explanation.report.zones.len(), 2, "{callers:?}");
            assert_eq!(explanation.verdict.rule, Rule::Watermark, "{callers:?}");
            assert!(
                explanation
                    .report
                    .zones
                    .iter()
                    .all(|zone| zone.reserve.len() == 5 && !zone.blocks.is_empty()),
                "{callers:?}"
            );
        }
    }
}

/// Nothing tells whose a line is where two print at once without callers, and a report that is alone is sure of its own.
#[test]
fn mixed_reports_without_callers_say_so() {
    let says = |log: &[String]| {
        let explained = explain(log.join("\n").as_bytes()).unwrap();
        assert_eq!(explained.len(), 2);
        explained.iter().all(|of| of.unknown.iter().any(|text| text.contains("another report")))
    };
    let mixed = |callers: [Option<&str>; 2]| {
        let [one, other] = [lines("one", callers[0]), lines("other", callers[1])];
        one.into_iter().zip(other).flat_map(|(a, b)| [a, b]).collect::<Vec<String>>()
    };
    assert!(says(&mixed([None, None])));
    assert!(!says(&mixed([Some("T1"), Some("C1")])));
    assert!(!says(&[lines("one", None), lines("other", None)].concat()));
}

/// DMA would give the block if nothing were kept from the request, which is what the missing line tells.
#[test]
fn a_reserve_that_is_missing_is_not_taken_for_none() {
    let log = REPORT.replace("[1.0] lowmem_reserve[]: 0 0 7941 7941 7941\n", "");
    let explained = explain(log.as_bytes()).unwrap();
    let verdict = &explained[0].verdict;
    let [normal, dma] = &verdict.zones[..] else { panic!("{verdict:#?}") };
    assert_eq!(
        (normal.at_min.rule, dma.at_min.rule, dma.gives_order),
        (Rule::Watermark, Rule::Unknown, None)
    );
    assert_eq!(verdict.rule, Rule::Watermark);
    // Against the highest zone that the request may use there is no reserve.
    let log = REPORT
        .replace("lowmem_reserve[]: 0 0 0 0 0\n", "no\n")
        .replace("free:4096kB", "free:409600kB");
    let explained =
        explain(log.replace("1024*4kB", "102400*4kB").replace("= 4096kB", "= 409600kB").as_bytes())
            .unwrap();
    assert_eq!(explained[0].verdict.zones[0].at_min.rule, Rule::NoBlock);
}

/// However a log was printed, its report is the same.
#[test]
fn forms_of_dmesg_and_of_mail_are_read() {
    let plain = &explain(REPORT.as_bytes()).unwrap()[0];
    let forms = [
        "kern  :warn  : [1.0]",
        "[1.0 <    0.000001>]",
        "[Nov25 12:56]",
        "[  +0.000001]",
        "> > [1.0]",
        "\x1b[32m[1.0]\x1b[0m\x1b[33m",
    ];
    for form in forms {
        let explained = explain(REPORT.replace("[1.0]", form).as_bytes()).unwrap();
        let [one] = &explained[..] else { panic!("{form}: {explained:#?}") };
        assert_eq!((&one.verdict, &one.remedies), (&plain.verdict, &plain.remedies), "{form}");
        assert_eq!(one.report.process, "java", "{form}");
    }
}

#[test]
fn a_log_that_breaks_off_is_explained_as_far_as_it_goes() {
    for end in 0..REPORT.len() {
        let explained = explain(&REPORT.as_bytes()[..end]).unwrap();
        assert!(explained.len() <= 1);
    }
}

/// `journalctl -o json`, `json-sse`, `json-seq` and `json-pretty`.
#[test]
fn entries_in_json_are_read() {
    let plain = explain(REPORT.as_bytes()).unwrap();
    let entry = |line: &str, begin: &str, end: &str| {
        let line = line.replace('"', "\\\"");
        format!(
            "{begin}{{\"_TRANSPORT\":\"kernel\",\"__CURSOR\":\"s=1\",\"MESSAGE\":\"{line}\"}}{end}"
        )
    };
    let pretty = |line: &str| {
        format!("{{\n\t\"_TRANSPORT\" : \"kernel\",\n\t\"MESSAGE\" : \"{line}\"\n}}\n")
    };
    let all = |of: &dyn Fn(&str) -> String| REPORT.lines().map(of).collect::<String>();
    for log in [
        all(&|line| entry(line, "", "\n")),
        all(&|line| entry(line, "data: ", "\n\n")),
        all(&|line| entry(line, "\x1e", "\n")),
        all(&pretty),
    ] {
        let found = explain(log.as_bytes()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].verdict, plain[0].verdict);
    }
    // A log may begin with a brace, and a program may print such a line too.
    assert!(explain(b"{\n\t\"name\": 1\n}\n").unwrap().is_empty());
}

#[test]
fn what_is_no_text_is_refused_with_its_line() {
    let error = explain(b"one\ntwo\nx\0\x01\x02\xfe\xff\x03\n").unwrap_err();
    assert!(matches!(error, ReadError::Binary { line: 3, column: 2 }), "{error}");
    assert!(error.to_string().starts_with("line 3: "), "{error}");
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("gone"))
        }
    }
    let error = Reader::new(BufReader::new(Broken)).next().unwrap().unwrap_err();
    assert!(matches!(error, ReadError::Read { line: 1, .. }), "{error}");
}

/// The report as `journalctl -o export` writes it: fields that are no plain text, here every third message and one of
/// its own in each entry, have their size in front.
fn exported() -> Vec<u8> {
    let mut log = Vec::new();
    for (at, line) in REPORT.lines().enumerate() {
        let message = line.strip_prefix("[1.0] ").unwrap();
        log.extend(format!("__CURSOR=s=1;i={at:x}\n_TRANSPORT=kernel\nCOREDUMP\n").bytes());
        // Sizes with and without a newline among their bytes, and a field that looks like a report.
        let field = format!("{}\nx: page allocation failure: order:1, mode:0xcc0", "y".repeat(at));
        log.extend((field.len() as u64).to_le_bytes());
        log.extend(field.bytes());
        if at % 3 == 0 {
            log.extend(b"\nMESSAGE\n");
            log.extend((message.len() as u64).to_le_bytes());
            log.extend(message.bytes());
        } else {
            log.extend(format!("\nMESSAGE={message}").bytes());
        }
        log.extend(b"\n_HOSTNAME=box\n\n");
    }
    log
}

#[test]
fn fields_of_an_export_that_are_no_text_are_passed_over() {
    let log = exported();
    let explained = explain(&log).unwrap();
    let [one] = &explained[..] else { panic!("{} reports", explained.len()) };
    let plain = &explain(REPORT.as_bytes()).unwrap()[0];
    assert_eq!(one.verdict, plain.verdict);
    assert_eq!(one.report.victim, plain.report.victim);
    // Lines are those that an editor counts.
    let header = log.windows(7).position(|window| window == b"java in").unwrap();
    let newlines = log[..header].iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(one.report.first_line, newlines as u64 + 1);
    for end in 0..log.len() {
        explain(&log[..end]).unwrap();
    }
}

#[test]
fn nul_bytes_that_a_crash_left_are_left_out() {
    for nuls in [1, 200, 100_000] {
        let mut log = b"usb 1-1: new device\n".repeat(300);
        log.extend(std::iter::repeat_n(0, nuls));
        log.extend(REPORT.replace("[1.0]", "Jun 13 04:36:30 box kernel: [1.0]").bytes());
        let explained = explain(&log).unwrap();
        assert_eq!(explained.len(), 1, "{nuls}");
        assert_eq!(explained[0].verdict.rule, Rule::Watermark, "{nuls}");
    }
}

#[test]
fn nul_bytes_of_a_console_hide_no_report() {
    let plain = explain(REPORT.as_bytes()).unwrap();
    for at in [0, 5, 300, 700] {
        let mut log = REPORT.as_bytes().to_vec();
        log.splice(at..at, [0; 3]);
        assert_eq!(explain(&log).unwrap(), plain, "NULs at {at}");
    }
    let mut log = b"[ 1.0] boot \0\0 x\n".to_vec();
    log.extend(REPORT.bytes());
    assert_eq!(explain(&log).unwrap()[0].verdict, plain[0].verdict);
}

#[test]
fn what_ends_a_log_ends_no_report_unsaid() {
    let head: String = REPORT.split_inclusive('\n').take(10).collect();
    let mut log = head.into_bytes();
    log.extend(b"\0\x01\x02\xfe\xff\x03\n");
    let mut reader = Reader::new(&log[..]);
    assert_eq!(reader.next().unwrap().unwrap().zones.len(), 2);
    assert!(matches!(reader.next(), Some(Err(ReadError::Binary { line: 11, column: 1 }))));
    assert!(reader.next().is_none());
}

#[test]
fn orders_without_blocks_do_not_make_a_kernel_old() {
    let log: String = REPORT
        .lines()
        .map(|line| match line.split_once("Normal: ") {
            Some(_) => "[1.0] Node 0 Normal: 0*4kB 0*8kB 0*16kB 0*32kB = 0kB\n".into(),
            None => format!("{line}\n"),
        })
        .collect();
    let has = |log: &str| {
        let explained = explain(log.as_bytes()).unwrap();
        explained[0].unknown.iter().any(|text| text.contains("before 3.8"))
    };
    assert!(!has(&log));
    assert!(has(&log.replace("Normal: 0*4kB", "Normal: 7*4kB").replace("= 0kB", "= 28kB")));
}

#[test]
fn what_a_report_lacks_is_not_told_as_zero() {
    let explained = explain(REPORT.lines().next().unwrap().as_bytes()).unwrap();
    assert_eq!(explained[0].verdict.no_progress, None);
}

/// A log that is made as it is read: noise, with a report now and then.
struct Endless {
    chunk: Vec<u8>,
    at: usize,
    left: u64,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.chunk[self.at..self.at + length]);
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Endless {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let end = self.chunk.len().min(self.at + usize::try_from(self.left).unwrap_or(usize::MAX));
        Ok(&self.chunk[self.at..end])
    }

    fn consume(&mut self, length: usize) {
        self.left -= length as u64;
        self.at = (self.at + length) % self.chunk.len();
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// 1 GB by `NEARPAGE_LOG_MB=1000`; CI reads less of the same. `NEARPAGE_LOG_SECONDS` bounds its time, in a release build.
#[test]
fn memory_does_not_grow_with_the_log() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let mb = number("NEARPAGE_LOG_MB").unwrap_or(24);
    let began = std::time::Instant::now();
    let mut chunk = Vec::new();
    for at in 0..1000 {
        chunk.extend(
            format!("Jun 13 04:36:30 box kernel: [{at}.5] usb 1-1: new device number {at}\n")
                .bytes(),
        );
    }
    // A header whose report never comes, a line without an end, and a whole report.
    chunk.extend(b"x: page allocation failure: order:0, mode:0xcc0(GFP_KERNEL)\n");
    chunk.extend(std::iter::repeat_n(b'z', 3 << 20));
    chunk.extend(b"\n");
    chunk.extend(REPORT.bytes());
    let source = Endless { chunk, at: 0, left: mb * 1_000_000 };
    let before = resident_kib();
    let (mut reports, mut most) = (0_u64, before);
    for report in Reader::new(source) {
        reports += u64::from(Explanation::of(report.unwrap()).report.line_is_known());
        most = most.max(resident_kib());
    }
    assert!(reports >= mb / 4, "{reports} reports in {mb} MB");
    let grown = most.saturating_sub(before);
    assert!(grown < 50_000, "{grown} KiB for {mb} MB");
    let took = began.elapsed();
    println!("{mb} MB in {took:?}, {reports} reports");
    if let Some(seconds) = number("NEARPAGE_LOG_SECONDS") {
        assert!(took.as_secs_f64() <= seconds as f64, "{took:?} for {mb} MB");
    }
}

trait LineIsKnown {
    fn line_is_known(&self) -> bool;
}

impl LineIsKnown for nearpage_explain::Report {
    fn line_is_known(&self) -> bool {
        self.first_line > 0 && self.last_line >= self.first_line
    }
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = explain(&bytes);
    }

    /// Words of reports in any order, with numbers of any size.
    #[test]
    fn words_of_reports_never_panic(picks in prop::collection::vec((0_usize..200, any::<u64>(), any::<bool>()), 0..300)) {
        let words: Vec<&str> = REPORT.split_inclusive([' ', '\n', ',', '=', ':']).collect();
        let mut text = String::new();
        for (at, number, replaces) in picks {
            if replaces { text += &format!("{number}kB ") } else { text += words[at % words.len()] }
        }
        explain(text.as_bytes()).unwrap();
    }

    /// Whole reports with some bytes changed, lines left out, doubled or swapped.
    #[test]
    fn damaged_reports_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..5), 0..40)) {
        let mut lines: Vec<Vec<u8>> = REPORT.lines().map(|line| line.as_bytes().to_vec()).collect();
        for (index, byte, kind) in edits {
            if lines.is_empty() { break }
            let at = index.index(lines.len());
            match kind {
                0 => { lines.remove(at); }
                1 => { let line = lines[at].clone(); lines.insert(at, line); }
                2 => { let last = lines.len() - 1; lines.swap(at, last); }
                3 => { let length = lines[at].len(); if length > 0 { lines[at][index.index(length)] = byte.max(1); } }
                _ => lines[at].extend(b" 18446744073709551615"),
            }
        }
        explain(&lines.join(&b'\n')).unwrap();
    }
}

/// A thousand zones of one report: sizes that were summed up anew for each took their cube, minutes for these.
#[test]
fn a_report_of_very_many_zones_is_judged_soon() {
    let mut log =
        String::from("[1.0] a: page allocation failure: order:4, mode:0xcc0(GFP_KERNEL)\n");
    for node in 0..1000 {
        log += &format!(
            "[1.0] Node {node} DMA32 free:15872kB min:340kB low:424kB high:508kB active_anon:8kB present:15992kB managed:15908kB free_cma:4kB\n[1.0] lowmem_reserve[]: 0 0 0 0\n"
        );
    }
    let begin = std::time::Instant::now();
    assert_eq!(explain(log.as_bytes()).unwrap()[0].report.zones.len(), 1000);
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
}
