//! The text of `gfp_flags=`: names of many kernels.

use std::collections::HashMap;

use nearpage::Gfp;

/// Texts that are kept: traces have some dozens.
const KEPT_MOST: usize = 4096;

/// Flags by their texts, as they were met.
#[derive(Default)]
pub(super) struct GfpTexts {
    known: HashMap<Vec<u8>, Flags>,
}

/// What a text says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Flags {
    pub(super) gfp: Gfp,
    /// Its names that no kernel is known to have.
    pub(super) unknown: Vec<String>,
}

impl GfpTexts {
    /// The flags of a text such as `GFP_KERNEL|__GFP_ZERO`.
    pub(super) fn flags(&mut self, text: &[u8]) -> &Flags {
        if !self.known.contains_key(text) {
            if self.known.len() >= KEPT_MOST {
                self.known.clear();
            }
            self.known.insert(text.to_vec(), parse(text));
        }
        &self.known[text]
    }
}

fn parse(text: &[u8]) -> Flags {
    let mut flags = Flags::default();
    for name in text.split(|&byte| byte == b'|').filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name);
        match by_name(&name) {
            Some(gfp) => flags.gfp = flags.gfp.union(gfp),
            None => flags.unknown.push(name.into_owned()),
        }
    }
    flags
}

fn by_name(name: &str) -> Option<Gfp> {
    if let Some(digits) = name.strip_prefix("0x") {
        return u32::from_str_radix(digits, 16).ok().map(Gfp);
    }
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, gfp)| *gfp)
}

/// Names that mean nothing to the choice of a page.
const NOTHING: Gfp = Gfp(0);

/// Names that traces of 3.x to 6.18 have. `include/trace/events/mmflags.h`.
const NAMES: [(&str, Gfp); 54] = [
    ("GFP_TRANSHUGE", Gfp::TRANSHUGE),
    ("GFP_TRANSHUGE_LIGHT", Gfp::TRANSHUGE_LIGHT),
    ("GFP_HIGHUSER_MOVABLE", Gfp::HIGHUSER_MOVABLE),
    ("GFP_HIGHUSER", Gfp::HIGHUSER),
    ("GFP_USER", Gfp::USER),
    ("GFP_KERNEL_ACCOUNT", Gfp::KERNEL.union(Gfp::ACCOUNT)),
    ("GFP_KERNEL", Gfp::KERNEL),
    ("GFP_TEMPORARY", Gfp::KERNEL.union(Gfp::RECLAIMABLE)),
    ("GFP_NOFS", Gfp::NOFS),
    ("GFP_NOIO", Gfp::NOIO),
    ("GFP_ATOMIC", Gfp::ATOMIC),
    ("GFP_NOWAIT", Gfp::NOWAIT),
    ("GFP_DMA", Gfp::DMA),
    ("GFP_DMA32", Gfp::DMA32),
    ("GFP_THISNODE", Gfp::THISNODE.union(Gfp::NOWARN).union(Gfp::NORETRY)),
    ("__GFP_DMA", Gfp::DMA),
    ("__GFP_HIGHMEM", Gfp::HIGHMEM),
    ("__GFP_DMA32", Gfp::DMA32),
    ("__GFP_MOVABLE", Gfp::MOVABLE),
    ("__GFP_RECLAIMABLE", Gfp::RECLAIMABLE),
    ("__GFP_HIGH", Gfp::HIGH),
    ("__GFP_IO", Gfp::IO),
    ("__GFP_FS", Gfp::FS),
    ("__GFP_ZERO", Gfp::ZERO),
    ("__GFP_RECLAIM", Gfp::RECLAIM),
    ("__GFP_WAIT", Gfp::DIRECT_RECLAIM),
    ("__GFP_DIRECT_RECLAIM", Gfp::DIRECT_RECLAIM),
    ("__GFP_KSWAPD_RECLAIM", Gfp::KSWAPD_RECLAIM),
    ("__GFP_WRITE", Gfp::WRITE),
    ("__GFP_NOWARN", Gfp::NOWARN),
    ("__GFP_RETRY_MAYFAIL", Gfp::RETRY_MAYFAIL),
    ("__GFP_REPEAT", Gfp::RETRY_MAYFAIL),
    ("__GFP_NOFAIL", Gfp::NOFAIL),
    ("__GFP_NORETRY", Gfp::NORETRY),
    ("__GFP_MEMALLOC", Gfp::MEMALLOC),
    ("__GFP_COMP", Gfp::COMP),
    ("__GFP_NOMEMALLOC", Gfp::NOMEMALLOC),
    ("__GFP_HARDWALL", Gfp::HARDWALL),
    ("__GFP_THISNODE", Gfp::THISNODE),
    ("__GFP_ACCOUNT", Gfp::ACCOUNT),
    ("__GFP_ATOMIC", NOTHING),
    ("__GFP_COLD", NOTHING),
    ("__GFP_NOTRACK", NOTHING),
    ("__GFP_NO_KSWAPD", NOTHING),
    ("__GFP_OTHER_NODE", NOTHING),
    ("__GFP_NOACCOUNT", NOTHING),
    ("__GFP_NOLOCKDEP", NOTHING),
    ("__GFP_NO_OBJ_EXT", NOTHING),
    ("__GFP_ZEROTAGS", NOTHING),
    ("__GFP_SKIP_ZERO", NOTHING),
    ("__GFP_SKIP_KASAN", NOTHING),
    ("__GFP_SKIP_KASAN_POISON", NOTHING),
    ("__GFP_SKIP_KASAN_UNPOISON", NOTHING),
    ("none", NOTHING),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_several_kernels_are_known() {
        let gfp = |text: &str| parse(text.as_bytes()).gfp;
        assert_eq!(gfp("GFP_KERNEL|__GFP_ZERO"), Gfp::KERNEL.union(Gfp::ZERO));
        assert_eq!(gfp("GFP_KERNEL_ACCOUNT"), Gfp::KERNEL.union(Gfp::ACCOUNT));
        assert_eq!(gfp("__GFP_HIGH|__GFP_ATOMIC|__GFP_KSWAPD_RECLAIM"), Gfp::ATOMIC);
        assert_eq!(gfp("0x2dc2"), Gfp(0x2dc2));
        assert_eq!(gfp("none"), Gfp(0));
        assert_eq!(gfp(""), Gfp(0));
    }

    #[test]
    fn unknown_names_are_told() {
        let flags = parse(b"GFP_KERNEL|__GFP_FRESH");
        assert_eq!((flags.gfp, &*flags.unknown), (Gfp::KERNEL, &["__GFP_FRESH".to_owned()][..]));
    }
}
