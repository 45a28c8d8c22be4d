//! A transport does not change a verdict: all reports of the tests through everything that logs go through, and through pairs of
//! it. Where something is lost on the way, the answer is weaker, and never another one.

use std::fs;
use std::path::Path;

use nearpage_explain::{Explanation, Reader, Rule};

/// What is done to a log.
type Transport = (&'static str, fn(&str) -> String);

/// Each line on its own.
fn each(log: &str, change: impl Fn(&str) -> String) -> String {
    log.lines().map(|line| change(line) + "\n").collect()
}

/// A terminal that is so many columns wide.
fn wrapped(log: &str, width: usize) -> String {
    each(log, |line| {
        let characters: Vec<char> = line.chars().collect();
        let parts: Vec<String> =
            characters.chunks(width).map(|part| part.iter().collect()).collect();
        parts.join("\n")
    })
}

/// A mail that breaks lines between words.
fn filled(log: &str, width: usize) -> String {
    each(log, |line| {
        let mut lines = vec![String::new()];
        for word in line.split(' ') {
            let last = lines.last_mut().unwrap();
            if !last.is_empty() && last.len() + 1 + word.len() > width && !word.is_empty() {
                lines.push(word.into());
            } else {
                if !last.is_empty() || word.is_empty() {
                    last.push(' ');
                }
                last.push_str(word);
            }
        }
        lines.join("\n")
    })
}

fn cut(log: &str, width: usize) -> String {
    each(log, |line| line.chars().take(width).collect())
}

fn json(line: &str) -> String {
    line.replace('\\', "\\\\").replace('"', "\\\"").replace('\t', "\\t")
}

fn quoted_printable(log: &str) -> String {
    each(log, |line| {
        let coded = line.replace('=', "=3D");
        let mut lines = vec![String::new()];
        let mut characters = coded.chars().peekable();
        while let Some(character) = characters.next() {
            // A code is not broken.
            let code: String = match character {
                '=' => [character].into_iter().chain(characters.by_ref().take(2)).collect(),
                other => other.to_string(),
            };
            let last = lines.last_mut().unwrap();
            if last.len() + code.len() > 75 {
                last.push('=');
                lines.push(code);
            } else {
                last.push_str(&code);
            }
        }
        lines.join("\n")
    })
}

/// Nothing is lost.
const WHOLE: [Transport; 31] = [
    ("as it is", |log| log.into()),
    ("containerd", |log| {
        each(log, |line| format!("2026-03-07T01:02:03.123456789Z stdout F {line}"))
    }),
    ("docker", |log| {
        each(log, |line| {
            format!(
                "{{\"log\":\"{}\\n\",\"stream\":\"stderr\",\"time\":\"2026-03-07T01:02:03Z\"}}",
                json(line)
            )
        })
    }),
    ("journal as JSON", |log| {
        each(log, |line| {
            format!(
                "{{\"__CURSOR\":\"s=1;i=2\",\"PRIORITY\":\"4\",\"MESSAGE\":\"{}\"}}",
                json(line)
            )
        })
    }),
    ("RFC 5424", |log| {
        each(log, |line| format!("<4>1 2026-03-07T01:02:03.123Z box kernel - - - {line}"))
    }),
    ("syslog", |log| each(log, |line| format!("Mar  7 01:02:03 box kernel: {line}"))),
    ("syslog with a facility", |log| {
        each(log, |line| format!("Mar  7 01:02:03 box kern.warn kernel: {line}"))
    }),
    ("Talos", |log| {
        each(log, |line| {
            format!("10.0.0.7: kern: warning: [2026-03-07T01:02:03.123456789Z]: {line}")
        })
    }),
    ("logcat", |log| {
        each(log, |line| format!("03-07 01:02:03.123   234   234 W kernel  : {line}"))
    }),
    ("a date in German", |log| each(log, |line| format!("[Sa M\u{e4}r  7 01:02:03 2026] {line}"))),
    ("a reply", |log| each(log, |line| format!("> {line}"))),
    ("a reply to a reply", |log| each(log, |line| format!(">> {line}"))),
    ("ends of lines of DOS", |log| log.replace('\n', "\r\n")),
    ("blanks at the ends", |log| each(log, |line| format!("  {line}   "))),
    ("colours", |log| each(log, |line| format!("\x1b[32m{line}\x1b[0m"))),
    ("blanks that do not break", |log| log.replace(' ', "\u{a0}")),
    ("HTML", |log| {
        let named = log.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        each(&named, |line| format!("<span class=\"k\">{line}</span><br>"))
    }),
    ("a string of JSON", |log| {
        format!("{{\"text\": 1, \"message\": \"{}\"}}\n", json(log).replace('\n', "\\n"))
    }),
    ("ends of lines in octal", |log| log.replace('\n', "#012")),
    ("ends of lines in hexadecimal", |log| log.replace('\n', "\\x0a")),
    ("quoted-printable", quoted_printable),
    ("markdown", |log| log.replace('*', "\\*").replace('_', "\\_").replace('[', "\\[")),
    ("a table", |log| each(log, |line| format!("| {line} |"))),
    ("each line twice", |log| each(log, |line| format!("{line}\n{line}"))),
    ("lines of others between", |log| {
        each(log, |line| format!("{line}\nMar  7 01:02:03 box sshd[77]: Accepted key for a"))
    }),
    ("added by a patch", |log| each(log, |line| format!("+{line}"))),
    ("logfmt", |log| {
        each(log, |line| format!("ts=2026-03-07T01:02:03Z level=warn msg=\"{}\"", json(line)))
    }),
    ("a row with commas", |log| {
        each(log, |line| format!("7,2026-03-07 01:02:03,\"{}\"", line.replace('"', "\"\"")))
    }),
    ("indented", |log| each(log, |line| format!("    {line}"))),
    ("numbers in front", |log| {
        let numbered = |(at, line)| format!("{:>6}\t{line}\n", at + 1);
        log.lines().enumerate().map(numbered).collect()
    }),
    ("ends of lines as codes of mail", |log| {
        each(&quoted_printable(log), |line| match line.strip_suffix('=') {
            Some(_) => line.into(),
            None => format!("{line}=0A="),
        })
    }),
];

/// Ends of lines are lost, or what is behind a column.
const BROKEN: [Transport; 8] = [
    ("a terminal of 80 columns", |log| wrapped(log, 80)),
    ("a terminal of 132 columns", |log| wrapped(log, 132)),
    ("a mail of 76 columns", |log| filled(log, 76)),
    ("a reply of 72 columns", |log| each(&filled(log, 72), |line| format!("> {line}"))),
    ("one line", |log| log.replace('\n', " ") + "\n"),
    ("cut at 80 columns", |log| cut(log, 80)),
    ("cut at 132 columns", |log| cut(log, 132)),
    ("cut at 220 columns", |log| cut(log, 220)),
];

fn explained(log: &str) -> (Vec<Explanation>, usize) {
    let mut reader = Reader::new(log.as_bytes());
    let explained = reader.by_ref().map(|report| Explanation::of(report.unwrap())).collect();
    (explained, reader.unread().len())
}

/// The lines that reports have, of all logs of the tests: stacks and modules are most of a log, and tell nothing here.
fn logs() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports");
    let mut logs = Vec::new();
    for kernel in ["6.1", "6.12", "public"] {
        for entry in fs::read_dir(folder.join(kernel)).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            const PARTS: [&str; 9] =
                ["order", "CPU: ", "Mem-Info", "kB", "reserve", "pages", "oom", "active", "SLUB"];
            let has_part = |line: &&str| PARTS.iter().any(|part| line.contains(part));
            let text: String = text.split_inclusive('\n').filter(has_part).collect();
            logs.push((format!("{kernel}/{}", path.file_stem().unwrap().display()), text));
        }
    }
    logs.sort();
    logs
}

fn decided(explanation: &Explanation) -> (Rule, Option<u32>, Option<&str>) {
    let verdict = &explanation.verdict;
    (verdict.rule, verdict.node, verdict.zone.as_deref())
}

/// What is wrong with the answers of a log that went through something, if something is.
fn differs(log: &str, sent: &str, is_whole: bool) -> Option<String> {
    let ((before, _), (after, unread)) = (explained(log), explained(sent));
    if before.len() != after.len() {
        // Of a log that has no words of a first line left nothing can be told.
        const WORDS: [&str; 4] = ["page alloc", "oom-kill", "SLUB: Unable", "vmalloc er"];
        let is_left = || WORDS.iter().any(|words| sent.contains(words));
        let is_told = !is_whole && (after.len() + unread >= before.len() || !is_left());
        return (!is_told).then(|| format!("{} reports, then {}", before.len(), after.len()));
    }
    before.iter().zip(&after).find_map(|(before, after)| {
        // Of zones that refuse alike the whole report names the largest, which a cut one may not know.
        let is_said = |explanation: &Explanation| {
            let (rule, node, zone) = decided(after);
            let mut zones = explanation.verdict.zones.iter();
            rule == explanation.verdict.rule
                && zones.any(|of| {
                    let rules = [Some(of.at_min.rule), of.at_high.as_ref().map(|high| high.rule)];
                    Some(of.node) == node && Some(&*of.zone) == zone && rules.contains(&Some(rule))
                })
        };
        let is_weaker = !is_whole && (after.verdict.rule == Rule::Unknown || is_said(before));
        let is_equal = decided(before) == decided(after)
            && (!is_whole || before.report.zones == after.report.zones);
        (!is_equal && !is_weaker)
            .then(|| format!("{:?}, then {:?}", decided(before), decided(after)))
    })
}

#[test]
fn no_transport_changes_a_verdict() {
    let (mut wrong, mut sent) = (Vec::new(), 0);
    for (name, log) in logs() {
        for (transports, is_whole) in [(&WHOLE[..], true), (&BROKEN[..], false)] {
            for (how, transport) in transports {
                sent += 1;
                let found = differs(&log, &transport(&log), is_whole);
                wrong.extend(found.map(|found| format!("{name}, {how}: {found}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {sent}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(sent >= 3000, "{sent}");
}

/// One after the other: of some logs all pairs, more by `NEARPAGE_LOGS`.
#[test]
fn no_pair_of_transports_changes_a_verdict() {
    let most: usize =
        std::env::var("NEARPAGE_LOGS").ok().and_then(|most| most.parse().ok()).unwrap_or(3);
    let all = logs();
    let step = (all.len() / most).max(1);
    let (mut wrong, mut sent) = (Vec::new(), 0);
    let both = || {
        let whole = WHOLE.iter().map(|transport| (transport, true));
        whole.chain(BROKEN.iter().map(|transport| (transport, false)))
    };
    for (name, log) in all.iter().step_by(step) {
        for ((first, of_first), first_is_whole) in both() {
            for ((second, of_second), second_is_whole) in both() {
                sent += 1;
                let is_whole = first_is_whole && second_is_whole;
                let found = differs(log, &of_second(&of_first(log)), is_whole);
                wrong.extend(found.map(|found| format!("{name}, {first}, {second}: {found}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {sent}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The canary: a transport that changes a figure is found.
#[test]
fn a_changed_figure_is_found() {
    let (_, log) = logs().into_iter().find(|(name, _)| name == "6.1/frag-order4-kernel").unwrap();
    assert!(differs(&log, &log.replace("order:4", "order:0"), false).is_some());
}
