//! GFP flags: zone, urgency and behaviour of a request, with the names and bits of traces.
//!
//! The core acts on zone and migratetype (DMA, DMA32, HIGHMEM, MOVABLE, RECLAIMABLE), THISNODE, and urgency:
//! HIGH, DIRECT_RECLAIM, KSWAPD_RECLAIM, NORETRY, RETRY_MAYFAIL, NOFAIL, MEMALLOC, NOMEMALLOC. The others are names,
//! so that the flags of a trace can be kept as they are: nothing here touches a page (ZERO is for the host).
//!
//! Source: `include/linux/gfp_types.h` and `gfp.h`, 6.12 (bit values as `gfp_flags=` and `mode:0x…` print them).

use crate::frame::Migratetype;
use crate::units::ZoneKind;

/// A set of GFP flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Gfp(pub u32);

#[allow(missing_docs, reason = "the names are the documentation: include/linux/gfp_types.h")]
impl Gfp {
    pub const DMA: Gfp = Gfp(0x01);
    pub const HIGHMEM: Gfp = Gfp(0x02);
    pub const DMA32: Gfp = Gfp(0x04);
    pub const MOVABLE: Gfp = Gfp(0x08);
    pub const RECLAIMABLE: Gfp = Gfp(0x10);
    pub const HIGH: Gfp = Gfp(0x20);
    pub const IO: Gfp = Gfp(0x40);
    pub const FS: Gfp = Gfp(0x80);
    pub const ZERO: Gfp = Gfp(0x100);
    pub const DIRECT_RECLAIM: Gfp = Gfp(0x400);
    pub const KSWAPD_RECLAIM: Gfp = Gfp(0x800);
    pub const WRITE: Gfp = Gfp(0x1000);
    pub const NOWARN: Gfp = Gfp(0x2000);
    pub const RETRY_MAYFAIL: Gfp = Gfp(0x4000);
    pub const NOFAIL: Gfp = Gfp(0x8000);
    pub const NORETRY: Gfp = Gfp(0x10000);
    pub const MEMALLOC: Gfp = Gfp(0x20000);
    pub const COMP: Gfp = Gfp(0x40000);
    pub const NOMEMALLOC: Gfp = Gfp(0x80000);
    pub const HARDWALL: Gfp = Gfp(0x100000);
    pub const THISNODE: Gfp = Gfp(0x200000);
    pub const ACCOUNT: Gfp = Gfp(0x400000);

    pub const RECLAIM: Gfp = Gfp(0xc00);
    pub const ATOMIC: Gfp = Gfp::HIGH.union(Gfp::KSWAPD_RECLAIM);
    pub const KERNEL: Gfp = Gfp::RECLAIM.union(Gfp::IO).union(Gfp::FS);
    pub const NOWAIT: Gfp = Gfp::KSWAPD_RECLAIM.union(Gfp::NOWARN);
    pub const NOIO: Gfp = Gfp::RECLAIM;
    pub const NOFS: Gfp = Gfp::RECLAIM.union(Gfp::IO);
    pub const USER: Gfp = Gfp::KERNEL.union(Gfp::HARDWALL);
    pub const HIGHUSER: Gfp = Gfp::USER.union(Gfp::HIGHMEM);
    pub const HIGHUSER_MOVABLE: Gfp = Gfp::HIGHUSER.union(Gfp::MOVABLE);
    pub const TRANSHUGE_LIGHT: Gfp =
        Gfp(Gfp::HIGHUSER_MOVABLE.union(Gfp::COMP).union(Gfp::NOMEMALLOC).union(Gfp::NOWARN).0
            & !Gfp::RECLAIM.0);
    pub const TRANSHUGE: Gfp = Gfp::TRANSHUGE_LIGHT.union(Gfp::DIRECT_RECLAIM);

    /// All flags that have a name.
    pub const KNOWN: Gfp = Gfp(0x7f_fdff);

    /// No flag.
    pub const NONE: Gfp = Gfp(0);

    /// The flags of both sets.
    #[inline]
    pub const fn union(self, other: Gfp) -> Gfp {
        Gfp(self.0 | other.0)
    }

    /// The flags that are in this set and not in `other`.
    #[inline]
    pub const fn difference(self, other: Gfp) -> Gfp {
        Gfp(self.0 & !other.0)
    }

    /// The flags that are in both sets.
    #[inline]
    pub const fn intersection(self, other: Gfp) -> Gfp {
        Gfp(self.0 & other.0)
    }

    /// Whether all flags of `other` are set. True for an empty `other`.
    #[inline]
    pub const fn contains(self, other: Gfp) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    #[inline]
    pub const fn intersects(self, other: Gfp) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no flag is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the request may not fail; who may not must be able to wait.
    #[inline]
    pub const fn may_not_fail(self) -> bool {
        self.contains(Gfp::NOFAIL.union(Gfp::DIRECT_RECLAIM))
    }

    /// The highest zone kind that the request may use, or `None` for a combination that Linux forbids:
    /// two of DMA, HIGHMEM and DMA32. `include/linux/gfp.h: gfp_zone`, x86-64.
    #[inline]
    pub const fn zone_kind(self) -> Option<ZoneKind> {
        match self.0 & 0xf {
            0x0 | 0x2 | 0x8 => Some(ZoneKind::Normal),
            0x1 | 0x9 => Some(ZoneKind::Dma),
            0x4 | 0xc => Some(ZoneKind::Dma32),
            0xa => Some(ZoneKind::Movable),
            _ => None,
        }
    }

    /// The migratetype of the pages asked for, or `None` if both MOVABLE and RECLAIMABLE are set.
    #[inline]
    pub const fn migratetype(self) -> Option<Migratetype> {
        match (self.0 >> 3) & 3 {
            0 => Some(Migratetype::Unmovable),
            1 => Some(Migratetype::Movable),
            2 => Some(Migratetype::Reclaimable),
            _ => None,
        }
    }
}

impl core::ops::BitOr for Gfp {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl core::ops::BitOrAssign for Gfp {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

impl core::ops::BitAnd for Gfp {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        self.intersection(other)
    }
}

impl core::ops::Sub for Gfp {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        self.difference(other)
    }
}

const NAMES: [(&str, Gfp); 22] = [
    ("__GFP_DMA", Gfp::DMA),
    ("__GFP_HIGHMEM", Gfp::HIGHMEM),
    ("__GFP_DMA32", Gfp::DMA32),
    ("__GFP_MOVABLE", Gfp::MOVABLE),
    ("__GFP_RECLAIMABLE", Gfp::RECLAIMABLE),
    ("__GFP_HIGH", Gfp::HIGH),
    ("__GFP_IO", Gfp::IO),
    ("__GFP_FS", Gfp::FS),
    ("__GFP_ZERO", Gfp::ZERO),
    ("__GFP_DIRECT_RECLAIM", Gfp::DIRECT_RECLAIM),
    ("__GFP_KSWAPD_RECLAIM", Gfp::KSWAPD_RECLAIM),
    ("__GFP_WRITE", Gfp::WRITE),
    ("__GFP_NOWARN", Gfp::NOWARN),
    ("__GFP_RETRY_MAYFAIL", Gfp::RETRY_MAYFAIL),
    ("__GFP_NOFAIL", Gfp::NOFAIL),
    ("__GFP_NORETRY", Gfp::NORETRY),
    ("__GFP_MEMALLOC", Gfp::MEMALLOC),
    ("__GFP_COMP", Gfp::COMP),
    ("__GFP_NOMEMALLOC", Gfp::NOMEMALLOC),
    ("__GFP_HARDWALL", Gfp::HARDWALL),
    ("__GFP_THISNODE", Gfp::THISNODE),
    ("__GFP_ACCOUNT", Gfp::ACCOUNT),
];

/// Compound names, largest first, as traces print them.
const COMPOUNDS: [(&str, Gfp); 10] = [
    ("GFP_TRANSHUGE", Gfp::TRANSHUGE),
    ("GFP_TRANSHUGE_LIGHT", Gfp::TRANSHUGE_LIGHT),
    ("GFP_HIGHUSER_MOVABLE", Gfp::HIGHUSER_MOVABLE),
    ("GFP_HIGHUSER", Gfp::HIGHUSER),
    ("GFP_USER", Gfp::USER),
    ("GFP_KERNEL", Gfp::KERNEL),
    ("GFP_NOFS", Gfp::NOFS),
    ("GFP_ATOMIC", Gfp::ATOMIC),
    ("GFP_NOIO", Gfp::NOIO),
    ("GFP_NOWAIT", Gfp::NOWAIT),
];

impl core::fmt::Display for Gfp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut rest = *self;
        let mut separator = "";
        for (name, flags) in COMPOUNDS.iter().chain(&NAMES) {
            if flags.0 != 0 && rest.contains(*flags) {
                write!(f, "{separator}{name}")?;
                rest = rest.difference(*flags);
                separator = "|";
            }
        }
        if rest.0 != 0 || self.0 == 0 {
            write!(f, "{separator}{:#x}", rest.0)?;
        }
        Ok(())
    }
}

impl core::fmt::Debug for Gfp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_types_follow_the_low_bits() {
        assert_eq!(Gfp::KERNEL.zone_kind(), Some(ZoneKind::Normal));
        assert_eq!(Gfp::HIGHUSER_MOVABLE.zone_kind(), Some(ZoneKind::Movable));
        assert_eq!(Gfp::KERNEL.union(Gfp::DMA32).zone_kind(), Some(ZoneKind::Dma32));
        assert_eq!(Gfp::DMA.union(Gfp::MOVABLE).zone_kind(), Some(ZoneKind::Dma));
        assert_eq!(Gfp::DMA.union(Gfp::DMA32).zone_kind(), None);
        assert_eq!(Gfp::KERNEL.migratetype(), Some(Migratetype::Unmovable));
        assert_eq!(Gfp::HIGHUSER_MOVABLE.migratetype(), Some(Migratetype::Movable));
        assert_eq!(Gfp::RECLAIMABLE.migratetype(), Some(Migratetype::Reclaimable));
        assert_eq!(Gfp::MOVABLE.union(Gfp::RECLAIMABLE).migratetype(), None);
    }

    #[test]
    fn known_flags_are_those_with_a_name() {
        let named = NAMES.iter().fold(Gfp(0), |all, (_, flag)| all.union(*flag));
        assert_eq!(named.0, Gfp::KNOWN.0);
    }

    #[test]
    fn flags_print_as_in_traces() {
        use std_alloc::string::ToString;
        assert_eq!(Gfp::HIGHUSER_MOVABLE.to_string(), "GFP_HIGHUSER_MOVABLE");
        assert_eq!(Gfp::ATOMIC.union(Gfp::NOWARN).to_string(), "GFP_ATOMIC|__GFP_NOWARN");
        assert_eq!(Gfp::KERNEL.union(Gfp::THISNODE).to_string(), "GFP_KERNEL|__GFP_THISNODE");
        assert_eq!(Gfp(0x200).to_string(), "0x200");
        assert_eq!(Gfp(0).to_string(), "0x0");
    }
}
