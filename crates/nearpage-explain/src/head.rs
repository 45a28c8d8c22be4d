//! The first line of a report: by its words, readable or not.

use crate::fields::{PROCESS_MOST, nodes, value};
use crate::report::Kind;

/// The first line of a report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) process: String,
    pub(crate) order: Option<u8>,
    /// Whether the order is -1.
    pub(crate) is_sysrq: bool,
    /// As printed: the kernel's version, which says what its bits mean, comes later.
    pub(crate) mode: String,
    pub(crate) nodemask: Option<Vec<u32>>,
    /// Whether the nodes may be those of the cpuset: Linux 4.9 and 4.10 print them where there is no policy.
    pub(crate) is_of_cpuset: bool,
    pub(crate) stalled_ms: Option<u64>,
    /// Of vmalloc: what failed.
    pub(crate) failed: Option<String>,
    /// Of vmalloc: bytes of the area, as Linux 5.13 and later print it.
    pub(crate) area: Option<u64>,
    /// Of SLUB: the node asked for.
    pub(crate) node: Option<u32>,
    /// Without an MMU: bytes that a mapping wants in a row, and the process.
    pub(crate) length: Option<u64>,
    pub(crate) pid: Option<u32>,
    /// Whether nothing follows.
    pub(crate) is_alone: bool,
}

/// How first lines of reports are told from others.
const HEADS: [(&str, Kind); 10] = [
    (": page allocation failure", Kind::Failure),
    // Of memory that is added: room for the pages' own descriptions.
    (": vmemmap alloc failure", Kind::Failure),
    (" invoked oom-killer:", Kind::Oom),
    (": page allocation stalls for ", Kind::Stall),
    ("SLUB: Unable to allocate memory on ", Kind::Slub),
    (": vmalloc error: size ", Kind::Vmalloc),
    // Before Linux 5.13.
    (": vmalloc: allocation failure", Kind::Vmalloc),
    // Addresses ran out: who asked is not told, nor how.
    ("vmap allocation for size ", Kind::Vmalloc),
    ("vmalloc_node_range for size ", Kind::Vmalloc),
    // Without an MMU a mapping is pages in a row.
    ("nommu: Allocation of length ", Kind::Failure),
];

/// First lines without a process: kernels before 2.6.19, and those of which a print of the process came before.
const NAMELESS: [(&str, Kind); 2] =
    [("oom-killer: gfp_mask=", Kind::Oom), ("page allocation failure: order:", Kind::Failure)];

/// Whether a message is a first line without a process.
pub(crate) fn is_nameless(message: &str) -> bool {
    NAMELESS.iter().any(|(form, _)| message.starts_with(form))
}

/// Whether a text has the words of a first line, whatever else it is.
pub(crate) fn has_form(text: &str) -> bool {
    HEADS.iter().any(|(form, _)| text.contains(form))
}

/// Whether a message is the first line of a report by its words, readable or not.
pub(crate) fn is_like(message: &str) -> bool {
    const HAS: [&str; 7] =
        ["order", "mode:", "gfp_mask", "gfp=", "failed", " bytes", " from process "];
    has_form(message) && HAS.iter().any(|part| message.contains(part)) && !is_title(message)
}

/// Whether a message is what was left of a first line where it was cut before its flags, or within the words that tell it.
pub(crate) fn is_cut(message: &str) -> bool {
    const LEFT_LEAST: usize = 10;
    const REST_MOST: usize = 60;
    let is_left = |form: &str| {
        let ends =
            |length: usize| form.is_char_boundary(length) && message.ends_with(&form[..length]);
        let is_short = |at: usize| message.len() - at - form.len() <= REST_MOST;
        message.find(form).is_some_and(is_short) || (LEFT_LEAST..form.len()).any(ends)
    };
    HEADS.iter().any(|(form, _)| is_left(form)) && !is_title(message)
}

/// What a message tells of others than the page allocator that refuse memory, or end processes for want of it.
pub(crate) fn of_others(message: &str) -> Option<&'static str> {
    let has = |words: [&str; 2]| words.iter().all(|words| message.contains(words));
    match () {
        () if has(["cma", "alloc failed, req-size: "]) => Some(
            "a driver's block of CMA, which no zone refuses: ret: -16 are pages there that were not moved away in time (pinned, or being written), -12 no range that is long enough",
        ),
        () if has(["lowmemorykiller: Kill", "'"]) => Some(
            "Android's low memory killer, which ends by levels of its own (minfree, pressure): no request was refused",
        ),
        () if has(["systemd-oomd[", " Killed "]) || has(["earlyoom[", "sending SIG"]) => Some(
            "a program that ends others by limits of its own before the kernel has to: no request was refused",
        ),
        () => None,
    }
}

/// Whether a message is the subject of a mail, or a title: it quotes a first line. Or a program's text that prints one.
fn is_title(message: &str) -> bool {
    const TITLES: [&str; 6] =
        ["Subject:", "Summary:", "Re: ", "Fwd: ", "Thread-Topic:", "#regzbot "];
    let prints = |rest: &str| rest.starts_with(['#', 'd', 'h', 'l', 'p', 's', 'u', 'x']);
    TITLES.iter().any(|title| message.starts_with(title)) || message.split('%').skip(1).any(prints)
}

pub(crate) fn parse(message: &str) -> Option<Header> {
    if is_title(message) {
        return None;
    }
    if let Some(header) = of_2_4(message).or_else(|| of_nommu(message)) {
        return Some(header);
    }
    let named = HEADS.iter().find_map(|&(form, kind)| {
        let at = message.find(form)?;
        Some((at, form, kind, &message[at + form.len()..]))
    });
    let nameless = |&(form, kind): &(&'static str, Kind)| {
        message.starts_with(form).then_some((0, form, kind, message))
    };
    let (at, form, kind, rest) = named.or_else(|| NAMELESS.iter().find_map(nameless))?;
    let is_vmap = form.ends_with("for size ");
    let key = match kind {
        Kind::Oom => "gfp_mask=",
        Kind::Slub => "gfp=",
        _ => "mode:",
    };
    // What has no flags is a sentence about a report, not one; what has the signs of a format is a program's text.
    let is_number = |text: &str| text.starts_with(|character: char| character.is_ascii_digit());
    let is_flags = |text: &str| ["(", "GFP_", "__GFP_"].iter().any(|begin| text.starts_with(begin));
    let mode = match value(rest, key) {
        Some(mode) if is_number(mode) || is_flags(mode) => match mode.contains('(') {
            true => mode.to_owned(),
            // `(gfp=0x20)`
            false => mode.trim_end_matches(')').to_owned(),
        },
        // The reason is told before the flags are.
        None if is_vmap && is_number(rest) && rest.contains(" failed") => String::new(),
        None if kind == Kind::Vmalloc && rest.contains(", exceeds tot") => String::new(),
        _ => return None,
    };
    let order = value(rest, "order:").or_else(|| value(rest, "order="));
    let order = order.or_else(|| value(rest, "page order "));
    let stalled = rest.split_once("ms,").filter(|_| kind == Kind::Stall);
    let nodemask = nodes(rest, "nodemask=");
    Some(Header {
        kind,
        process: process(message[..at].trim_end_matches([':', ' '])),
        // Areas are made of single pages where they do not say so.
        order: match order {
            Some(order) => order.parse().ok().filter(|&order| order < 64),
            None => (kind == Kind::Vmalloc).then_some(0),
        },
        mode,
        is_of_cpuset: match &nodemask {
            Some(_) => kind == Kind::Oom && !rest.contains(",  order="),
            None => false,
        },
        nodemask,
        is_sysrq: kind == Kind::Oom && order == Some("-1"),
        stalled_ms: stalled.and_then(|(ms, _)| ms.parse().ok()),
        failed: match kind {
            Kind::Vmalloc if is_vmap => Some(message[at..].chars().take(120).collect()),
            Kind::Vmalloc => failed(rest),
            _ => None,
        },
        area: match kind {
            Kind::Vmalloc => rest.split(',').next().and_then(|size| size.trim().parse().ok()),
            _ => None,
        },
        node: value(rest, "on node ")
            .or_else(|| value(message, "on node "))
            .and_then(|node| node.parse().ok()),
        ..Header::default()
    })
}

/// `__alloc_pages: 0-order allocation failed (gfp=0x20/0)`: all that Linux 2.4 says.
fn of_2_4(message: &str) -> Option<Header> {
    let (order, rest) =
        message.strip_prefix("__alloc_pages: ")?.split_once("-order allocation failed")?;
    let mode = value(rest, "gfp=")?.split('/').next()?;
    Some(Header {
        kind: Kind::Failure,
        order: order.parse().ok(),
        mode: mode.into(),
        is_alone: true,
        ..Header::default()
    })
}

/// `nommu: Allocation of length 491520 from process 1 (sh) failed`; before Linux 3.0 without the first word.
fn of_nommu(message: &str) -> Option<Header> {
    let (_, rest) = message.split_once("Allocation of length ")?;
    let (length, rest) = rest.split_once(" from process ")?;
    let (pid, rest) = rest.split_once('(')?;
    Some(Header {
        kind: Kind::Failure,
        process: rest.rsplit_once(") failed")?.0.chars().take(PROCESS_MOST).collect(),
        length: Some(length.parse().ok()?),
        pid: Some(pid.trim().parse().ok()?),
        ..Header::default()
    })
}

/// The name of a process, without what stands before it: a prefix that nobody knows, another program's words.
fn process(text: &str) -> String {
    const ENDS: [&str; 7] = ["]", ">", "\"", "|", "\t", "  ", ": "];
    let last = |name, end| str::rsplit(name, end).next().unwrap_or(name);
    let name = ENDS.iter().copied().fold(text, last).trim_start();
    let name = if name.is_empty() { text } else { name };
    name.chars().take(PROCESS_MOST).collect()
}

/// What vmalloc lacked, of kernels up to 4.9: they tell it in a line before the first one of a page allocation failure.
pub(crate) fn area(message: &str) -> Option<String> {
    let rest = message.strip_prefix("vmalloc: allocation failure")?;
    let words = rest.strip_prefix([':', ','])?.trim();
    words.ends_with(" bytes").then(|| words.chars().take(120).collect())
}

/// What stands between the size of an area and the flags; before Linux 5.13 the size itself.
fn failed(rest: &str) -> Option<String> {
    let words = rest.split_once("mode:").map_or(rest, |(words, _)| words);
    let words = words.trim_end().trim_end_matches(',');
    let words = match words.strip_prefix(':') {
        Some(size) => size,
        None => words.split_once(',')?.1,
    };
    Some(words.trim().chars().take(120).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::piece::{Piece, classify};

    fn head(message: &str) -> Header {
        match classify(message) {
            Piece::Header(header) => *header,
            other => panic!("{message}: {other:?}"),
        }
    }

    #[test]
    fn headers_of_all_times() {
        let old = head("imap: page allocation failure. order:4, mode:0xc0d0");
        assert_eq!(
            (old.kind, old.process.as_str(), old.order, old.mode.as_str()),
            (Kind::Failure, "imap", Some(4), "0xc0d0")
        );
        let new = head(
            "kworker/0:1: page allocation failure: order:5, mode:0xcc0(GFP_KERNEL), nodemask=0-1,3,cpuset=/,mems_allowed=0-3",
        );
        assert_eq!(
            (new.order, new.nodemask.unwrap(), new.mode.as_str()),
            (Some(5), vec![0, 1, 3], "0xcc0(GFP_KERNEL)")
        );
        let oom = head(
            "java invoked oom-killer: gfp_mask=0x15000c0(GFP_KERNEL_ACCOUNT), nodemask=(null), order=0, oom_score_adj=0",
        );
        assert_eq!((oom.kind, oom.order, oom.nodemask), (Kind::Oom, Some(0), None));
        assert_eq!(
            head("x invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=-1, oom_score_adj=0")
                .order,
            None
        );
        let stall = head(
            "dd: page allocation stalls for 10204ms, order:0, mode:0x14200ca(GFP_HIGHUSER_MOVABLE), nodemask=(null)",
        );
        assert_eq!((stall.kind, stall.stalled_ms), (Kind::Stall, Some(10204)));
        let slub = head("SLUB: Unable to allocate memory on node 2, gfp=0x820(GFP_ATOMIC)");
        assert_eq!((slub.kind, slub.node), (Kind::Slub, Some(2)));
        assert_eq!(head("SLUB: Unable to allocate memory on CPU 3 (of node 1) on node -1, gfp=0x820(GFP_ATOMIC)").node, None);
        let vmalloc = head(
            "insmod: vmalloc error: size 4096, page order 0, failed to allocate pages, mode:0xcc2(GFP_KERNEL|__GFP_HIGHMEM), nodemask=(null)",
        );
        assert_eq!((vmalloc.kind, vmalloc.process.as_str()), (Kind::Vmalloc, "insmod"));
        assert_eq!(vmalloc.failed.as_deref(), Some("page order 0, failed to allocate pages"));
        let large = head(
            "a: vmalloc error: size 0, page order 9, failed to allocate pages, mode:0xdc2(GFP_KERNEL|__GFP_HIGHMEM|__GFP_ZERO)",
        );
        assert_eq!(large.order, Some(9));
        let subject = "Subject: a: page allocation failure: order:0, mode:0x820(GFP_ATOMIC),";
        assert_eq!(classify(subject), Piece::Other);
        let added = head("kworker: vmemmap alloc failure: order:9, mode:0x4cc0(GFP_KERNEL)");
        assert_eq!((added.kind, added.order), (Kind::Failure, Some(9)));
        assert_eq!(classify("we saw a page allocation failure"), Piece::Other);
    }
}
