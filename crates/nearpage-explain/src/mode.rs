//! GFP flags as reports print them: numbers whose bits changed, and words from Linux 4.6 on.
//!
//! Sources: facts 1; the numbers of kernels before 4.6 from their published headers' values, as public reports show
//! them (`mode:0xd0` is GFP_KERNEL before 4.4, `0x24000c0` from 4.4 on).

use nearpage::Gfp;

use crate::report::Mode;

/// Bits before Linux 4.4. `__GFP_WAIT` was both kinds of reclaim, and 0x400000 switched off the waking of kswapd.
const BITS_3: [(u64, Gfp); 18] = [
    (0x01, Gfp::DMA),
    (0x02, Gfp::HIGHMEM),
    (0x04, Gfp::DMA32),
    (0x08, Gfp::MOVABLE),
    (0x10, Gfp::DIRECT_RECLAIM),
    (0x20, Gfp::HIGH),
    (0x40, Gfp::IO),
    (0x80, Gfp::FS),
    (0x200, Gfp::NOWARN),
    (0x400, Gfp::RETRY_MAYFAIL),
    (0x800, Gfp::NOFAIL),
    (0x1000, Gfp::NORETRY),
    (0x2000, Gfp::MEMALLOC),
    (0x4000, Gfp::COMP),
    (0x8000, Gfp::ZERO),
    (0x10000, Gfp::NOMEMALLOC),
    (0x20000, Gfp::HARDWALL),
    (0x40000, Gfp::THISNODE),
];
const RECLAIMABLE_3: u64 = 0x80000;
const NO_KSWAPD_3: u64 = 0x40_0000;

/// What changed with Linux 4.4; the others are as before.
const RECLAIMABLE_4: u64 = 0x10;
const DIRECT_RECLAIM_4: u64 = 0x40_0000;
const KSWAPD_RECLAIM_4: u64 = 0x200_0000;
/// Of kernels that print no words, 4.4 and 4.5.
const ATOMIC_4: u64 = 0x8_0000;

/// The same of kernels from 5.1 to 6.2.
const ATOMIC_5: u64 = 0x200;

/// Words that stand for several flags, or for one under an older name.
const OLDER: [(&str, Gfp); 12] = [
    ("__GFP_RECLAIM", Gfp::RECLAIM),
    ("__GFP_REPEAT", Gfp::RETRY_MAYFAIL),
    ("__GFP_WAIT", Gfp::DIRECT_RECLAIM),
    // Linux 4.4 to 6.2. It gave the right that follows from not being able to wait since.
    ("__GFP_ATOMIC", Gfp::NONE),
    ("GFP_KERNEL_ACCOUNT", Gfp(Gfp::KERNEL.0 | Gfp::ACCOUNT.0)),
    ("GFP_TEMPORARY", Gfp(Gfp::KERNEL.0 | Gfp::RECLAIMABLE.0)),
    ("GFP_DMA", Gfp::DMA),
    ("GFP_DMA32", Gfp::DMA32),
    ("GFP_TRANSHUGE_LIGHT", Gfp::TRANSHUGE_LIGHT),
    ("GFP_TRANSHUGE", Gfp::TRANSHUGE),
    ("GFP_HIGHUSER_MOVABLE", Gfp::HIGHUSER_MOVABLE),
    ("GFP_HIGHUSER", Gfp::HIGHUSER),
];
const COMPOUNDS: [(&str, Gfp); 6] = [
    ("GFP_USER", Gfp::USER),
    ("GFP_KERNEL", Gfp::KERNEL),
    ("GFP_NOFS", Gfp::NOFS),
    ("GFP_ATOMIC", Gfp::ATOMIC),
    ("GFP_NOIO", Gfp::NOIO),
    ("GFP_NOWAIT", Gfp::KSWAPD_RECLAIM),
];

/// Reads `0x2084120(GFP_ATOMIC|__GFP_COLD|__GFP_COMP)`, with or without its words. The kernel's version decides where
/// there are none; without one they are taken to be those before 4.4, which is what prints none.
pub(crate) fn parse(text: &str, version: Option<(u32, u32)>) -> Option<Mode> {
    let (number, words) = match text.split_once('(') {
        Some((number, words)) => (number, Some(words.split(')').next().unwrap_or(words))),
        None => (text, None),
    };
    let number = number.trim();
    let bits = u64::from_str_radix(number.strip_prefix("0x").unwrap_or(number), 16);
    // Words say it all, also where somebody hid digits of the number.
    let bits = if words.is_some() { bits.ok() } else { Some(bits.ok()?) };
    let is_cut = match words {
        Some(_) => !text.contains(')'),
        None => version >= Some((4, 10)),
    };
    let mut mode = Mode { bits, words: words.map(String::from), is_cut, ..Mode::default() };
    match words {
        Some(words) => words.split('|').for_each(|word| add_word(&mut mode, word.trim())),
        // A number that was cut within its digits tells no bit.
        None if is_cut => mode.bits = None,
        None => mode.gfp = of_bits(bits.unwrap_or(0), version),
    }
    // Of the words of several flags one that is none was cut on its way, such as by a terminal.
    mode.is_cut |= mode.others.iter().any(|word| word.starts_with("GFP_"));
    let of_number = mode.is_cut.then(|| of_whole_number(&mode)).flatten();
    if let Some(gfp) = of_number {
        (mode.gfp, mode.is_cut) = (gfp, false);
        mode.others.clear();
    }
    // Who may not wait is atomic before and after.
    let has_flag = (Some((4, 4))..Some((6, 4))).contains(&version);
    let is_atomic = match words {
        _ if of_number.is_some() => bits.is_some_and(|bits| bits & ATOMIC_5 != 0),
        Some(words) => words.split('|').any(|word| word.trim().ends_with("GFP_ATOMIC")),
        None => bits.is_some_and(|bits| bits & ATOMIC_4 != 0),
    };
    let is_urgent = mode.gfp.contains(Gfp::HIGH) && !mode.gfp.contains(Gfp::DIRECT_RECLAIM);
    mode.lacks_atomic = has_flag && is_urgent && !is_atomic && !is_cut;
    Some(mode)
}

/// The flags of a number whose words were cut behind it. Kernels from 5.1 on have the bits of the core; those before contradict
/// the words that are there.
fn of_whole_number(mode: &Mode) -> Option<Gfp> {
    mode.words.as_ref()?;
    let bits = u32::try_from(mode.bits?).ok()?;
    let gfp = Gfp(bits & !(ATOMIC_5 as u32));
    let is_told = mode.gfp != Gfp::NONE && gfp.contains(mode.gfp);
    (is_told && Gfp::KNOWN.contains(gfp)).then_some(gfp)
}

fn add_word(mode: &mut Mode, word: &str) {
    let single = (0..u32::BITS).map(|bit| Gfp(1 << bit)).filter(|flag| Gfp::KNOWN.contains(*flag));
    let mut known = OLDER
        .iter()
        .chain(&COMPOUNDS)
        .map(|&(name, flags)| (name.to_owned(), flags))
        .chain(single.map(|flag| (flag.to_string(), flag)));
    match known.find(|(name, _)| name == word) {
        Some((_, flags)) => mode.gfp |= flags,
        // Two of which the mark between them was lost.
        None if word.rfind("__GFP_").is_some_and(|at| at > 0) => {
            let at = word.rfind("__GFP_").unwrap_or(0);
            add_word(mode, &word[..at]);
            add_word(mode, &word[at..]);
        }
        None if !word.is_empty() && mode.others.len() < 32 => mode.others.push(word.into()),
        None => {}
    }
}

/// The flags of a number without words. Kernels from 4.6 on print words.
pub(crate) fn of_bits(bits: u64, version: Option<(u32, u32)>) -> Gfp {
    let mut gfp = Gfp::NONE;
    for (bit, flag) in BITS_3 {
        if bits & bit != 0 {
            gfp |= flag;
        }
    }
    if version < Some((4, 4)) {
        if bits & RECLAIMABLE_3 != 0 {
            gfp |= Gfp::RECLAIMABLE;
        }
        return if bits & NO_KSWAPD_3 == 0 { gfp | Gfp::KSWAPD_RECLAIM } else { gfp };
    }
    gfp = gfp - Gfp::DIRECT_RECLAIM;
    for (bit, flag) in [
        (RECLAIMABLE_4, Gfp::RECLAIMABLE),
        (DIRECT_RECLAIM_4, Gfp::DIRECT_RECLAIM),
        (KSWAPD_RECLAIM_4, Gfp::KSWAPD_RECLAIM),
    ] {
        if bits & bit != 0 {
            gfp |= flag;
        }
    }
    gfp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_words_of_all_times() {
        let gfp = |text, version| parse(text, version).unwrap().gfp;
        assert_eq!(gfp("0xd0", Some((3, 10))), Gfp::KERNEL);
        assert_eq!(gfp("0x20", None), Gfp::ATOMIC);
        assert_eq!(gfp("0x201da", Some((3, 10))), Gfp::HIGHUSER_MOVABLE);
        assert_eq!(gfp("0x24000c0", Some((4, 4))), Gfp::KERNEL);
        assert_eq!(gfp("0xcc0(GFP_KERNEL)", Some((6, 1))), Gfp::KERNEL);
        let mode = parse("0x2084120(GFP_ATOMIC|__GFP_COLD|__GFP_COMP)", Some((4, 9))).unwrap();
        assert_eq!(mode.gfp, Gfp::ATOMIC | Gfp::COMP);
        assert_eq!(mode.others, ["__GFP_COLD"]);
        assert_eq!(
            gfp("0x40dc0(GFP_KERNEL|__GFP_ZERO|__GFP_COMP)", None),
            Gfp::KERNEL | Gfp::ZERO | Gfp::COMP
        );
        // Words that were cut: the number is whole.
        let cut = |text| parse(text, Some((6, 1))).map(|mode| (mode.gfp, mode.is_cut)).unwrap();
        assert_eq!(cut("0x40dc4(GFP_KERN"), (Gfp::NONE, true));
        let all = Gfp::KERNEL | Gfp::ZERO | Gfp::COMP | Gfp::DMA32;
        assert_eq!(cut("0x40dc4(GFP_KERNEL|GFP_DM"), (all, false));
        assert_eq!(cut("0xa20(GFP_ATOMIC"), (Gfp::ATOMIC, false));
        // Older bits contradict the words.
        assert_eq!(cut("0x6040c0(GFP_KERNEL|__GFP_CO"), (Gfp::KERNEL, true));
        let hidden = parse("0x62****(GFP_HIGHUSER_MOVABLE|__GFP_ZERO)", None).unwrap();
        assert_eq!((hidden.bits, hidden.gfp), (None, Gfp::HIGHUSER_MOVABLE | Gfp::ZERO));
        assert!(parse("zz", None).is_none() && parse("", None).is_none());
    }
}
