//! What can be chosen, and its text form: `policy=interleave,nodes=0-1,huge=transparent,hardened=1`.

use std::fmt;

use crate::misuse::Misuse;

/// Most nodes that a policy can name.
const NODES_MAX: usize = 64;

/// Which nodes memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Policy {
    /// The node of the calling thread's CPU first.
    #[default]
    Local,
    /// The named nodes first.
    Preferred,
    /// Only the named nodes.
    Bind,
    /// The named nodes in turn, a span at a time.
    Interleave,
}

/// Options of the malloc.
///
/// ```
/// use nearpage_malloc::{Options, Policy};
///
/// let options = Options::parse("policy=interleave,nodes=0-1,hardened=1").0;
/// assert_eq!((options.policy, options.nodes, options.hardened), (Policy::Interleave, 0b11, true));
///
/// let (_, wrong) = Options::parse("polcy=bind");
/// assert!(wrong.unwrap().to_string().contains("policy=local|preferred|bind|interleave"));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Which nodes memory comes from.
    pub policy: Policy,
    /// The nodes of the policy, a bit each; 0: all.
    pub nodes: u64,
    /// Whether transparent huge pages are asked for; `None` leaves them as the system has them.
    pub huge: Option<bool>,
    /// Whether wrong frees are looked for.
    pub hardened: bool,
    /// As many emulated nodes, which share the CPUs; 0: the kernel's.
    pub fake: u16,
    /// Most bytes of all nodes together; 0: as much as there is.
    pub limit: u64,
    /// What may be resident to what is in use, in thousandths: above it, free memory goes back to the kernel at once.
    pub rss: u32,
    /// Whether a thread of the malloc's own gives memory back of programs that are large and make no call.
    pub background: bool,
    /// Called five times a second at most, when something is allocated, by the thread that allocates. What it allocates comes
    /// from the boot range.
    pub on_sample: Option<fn()>,
    /// Called at each misuse. It must not allocate.
    pub on_misuse: Option<fn(&Misuse)>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// A word of an options' text that means nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionError<'a> {
    /// The word.
    pub word: &'a str,
}

/// What [`Options::parse`] accepts.
const ACCEPTED: &str = "policy=local|preferred|bind|interleave, nodes=LIST (as 0-3,8 with + in place of a comma: 0-3+8), \
    huge=transparent|never|system, hardened=0|1, fake=NODES, limit=BYTES[K|M|G], rss=RATIO (as 1.25), background=0|1, \
    report=FILE";

impl fmt::Display for OptionError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} means nothing; accepted are {ACCEPTED}", self.word)
    }
}

impl std::error::Error for OptionError<'_> {}

impl Options {
    /// The defaults.
    pub const fn new() -> Self {
        Self {
            policy: Policy::Local,
            nodes: 0,
            huge: None,
            hardened: false,
            fake: 0,
            limit: 0,
            rss: 1250,
            background: true,
            on_sample: None,
            on_misuse: None,
        }
    }

    /// Reads a text. A word that means nothing is left out, and the first of them is told. It allocates nothing.
    pub fn parse(text: &str) -> (Self, Option<OptionError<'_>>) {
        let mut options = Self::new();
        let mut wrong = None;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if options.read(word).is_none() {
                wrong = wrong.or(Some(OptionError { word }));
            }
        }
        (options, wrong)
    }

    fn read(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once('=')?;
        match (name, value) {
            ("policy", "local") => self.policy = Policy::Local,
            ("policy", "preferred") => self.policy = Policy::Preferred,
            ("policy", "bind") => self.policy = Policy::Bind,
            ("policy", "interleave") => self.policy = Policy::Interleave,
            ("nodes", list) => self.nodes = nodes(list)?,
            ("huge", "transparent") => self.huge = Some(true),
            ("huge", "never") => self.huge = Some(false),
            ("huge", "system") => self.huge = None,
            ("hardened", "0") => self.hardened = false,
            ("hardened", "1") => self.hardened = true,
            ("fake", count) => self.fake = count.parse().ok().filter(|count| *count <= 64)?,
            ("background", "0") => self.background = false,
            ("background", "1") => self.background = true,
            ("rss", ratio) => self.rss = thousandths(ratio)?,
            ("limit", bytes) => self.limit = size(bytes)?,
            // The preloaded library's own.
            ("report", file) if !file.is_empty() => {}
            _ => return None,
        }
        Some(())
    }
}

/// A list as `0-3+8`; also what is left of `0-3,8` after the split at commas.
fn nodes(list: &str) -> Option<u64> {
    let mut set = 0_u64;
    for part in list.split('+') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= NODES_MAX {
            return None;
        }
        (first..=last).for_each(|node| set |= 1 << node);
    }
    Some(set)
}

/// A ratio from 1 to 1000, with three digits behind the point at most.
fn thousandths(text: &str) -> Option<u32> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if rest.len() > 3 || whole.is_empty() || !is_number(whole) || !is_number(rest) {
        return None;
    }
    let rest = rest.bytes().chain(*b"000").take(3);
    let rest = rest.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    let all = whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(rest)?;
    (1000..=1_000_000).contains(&all).then_some(all)
}

fn size(text: &str) -> Option<u64> {
    let shift = match text.as_bytes().last()? {
        b'K' | b'k' => 10,
        b'M' | b'm' => 20,
        b'G' | b'g' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        let read = |text| Options::parse(text).0;
        assert_eq!(read("nodes=0-2+5").nodes, 0b100111);
        assert_eq!(read("huge=transparent").huge, Some(true));
        assert_eq!(read("limit=3M,fake=4").limit, 3 << 20);
        assert_eq!(read("limit=3M,fake=4").fake, 4);
        assert_eq!([read("rss=1.5").rss, read("rss=2").rss, read("").rss], [1500, 2000, 1250]);
        assert!(Options::parse("").1.is_none());
        assert!(Options::parse("report=/tmp/x,hardened=1").1.is_none());
    }

    #[test]
    fn what_means_nothing_is_told_and_left_out() {
        for text in [
            "x",
            "policy",
            "policy=near",
            "nodes=",
            "nodes=3-1",
            "nodes=64",
            "nodes=a",
            "huge=2",
            "hardened=yes",
            "fake=65",
            "fake=-1",
            "limit=",
            "limit=G",
            "limit=99999999999G",
            "rss=0.9",
            "rss=1.2345",
            "rss=-1",
            "rss=.",
            "report=",
            "=",
        ] {
            let (options, wrong) = Options::parse(text);
            assert_eq!(wrong.map(|error| error.word), Some(text), "{text}");
            assert_eq!((options.nodes, options.fake, options.limit), (0, 0, 0));
        }
        let (options, wrong) = Options::parse("hardened=1,nonsense,policy=bind");
        assert!(options.hardened && options.policy == Policy::Bind);
        assert_eq!(wrong.unwrap().word, "nonsense");
    }
}
