//! A figure as far as a report tells it: exact, or what is possible where a row breaks off or the kernel prints none.

use std::fmt;
use std::iter::Sum;

use serde::{Serialize, Serializer};

/// From the least to the most that a figure may be. In JSON an exact one is a number, one of which nothing is known is null,
/// and others are `{"least": 528, "most": null}`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Figure {
    least: u64,
    most: u64,
}

/// Which of the possible figures to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Those that are best for a request.
    Best,
    /// Those that are worst.
    Worst,
}

impl Figure {
    /// Nothing is known.
    pub const UNKNOWN: Figure = Figure { least: 0, most: u64::MAX };

    /// A figure that the report has.
    pub const fn exact(value: u64) -> Figure {
        Figure { least: value, most: value }
    }

    /// A figure between two bounds.
    pub const fn between(least: u64, most: u64) -> Figure {
        Figure { least, most: if most < least { least } else { most } }
    }

    /// The least that it may be.
    pub const fn least(self) -> u64 {
        self.least
    }

    /// The most that it may be; `u64::MAX` is no bound.
    pub const fn most(self) -> u64 {
        self.most
    }

    /// The figure, if it is exact.
    pub const fn known(self) -> Option<u64> {
        if self.least == self.most { Some(self.least) } else { None }
    }

    /// Whether it is exact.
    pub const fn is_exact(self) -> bool {
        self.least == self.most
    }

    /// The figure of something of which much is good for a request.
    pub(crate) const fn if_good(self, side: Side) -> u64 {
        match side {
            Side::Best => self.most,
            Side::Worst => self.least,
        }
    }

    /// The figure of something of which much is bad for a request.
    pub(crate) const fn if_bad(self, side: Side) -> u64 {
        match side {
            Side::Best => self.least,
            Side::Worst => self.most,
        }
    }

    /// The figure on a side, of something of which much is good for a request or bad.
    pub(crate) const fn bound(self, side: Side, is_good: bool) -> u64 {
        if is_good { self.if_good(side) } else { self.if_bad(side) }
    }

    /// Each bound changed by something that keeps their order. No bound stays none.
    pub(crate) fn map(self, change: impl Fn(u64) -> u64) -> Figure {
        let most = if self.most == u64::MAX { u64::MAX } else { change(self.most) };
        Figure::between(change(self.least), most)
    }

    /// The sum of two figures.
    pub(crate) fn plus(self, other: Figure) -> Figure {
        Figure {
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }

    /// What is left without another; not below 0.
    pub(crate) fn minus(self, other: Figure) -> Figure {
        Figure::between(
            self.least.saturating_sub(other.most),
            if self.most == u64::MAX { u64::MAX } else { self.most.saturating_sub(other.least) },
        )
    }

    /// Both are true of it: bounds that contradict leave the first.
    pub(crate) fn and(self, other: Figure) -> Figure {
        let (least, most) = (self.least.max(other.least), self.most.min(other.most));
        if least <= most { Figure { least, most } } else { self }
    }
}

impl Default for Figure {
    fn default() -> Figure {
        Figure::UNKNOWN
    }
}

impl Sum for Figure {
    fn sum<I: Iterator<Item = Figure>>(figures: I) -> Figure {
        figures.fold(Figure::exact(0), Figure::plus)
    }
}

impl From<Option<u64>> for Figure {
    fn from(figure: Option<u64>) -> Figure {
        figure.map_or(Figure::UNKNOWN, Figure::exact)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (least, most) if least == most => write!(formatter, "{least}"),
            (0, u64::MAX) => formatter.write_str("unknown"),
            (least, u64::MAX) => write!(formatter, "at least {least}"),
            (0, most) => write!(formatter, "at most {most}"),
            (least, most) => write!(formatter, "{least} to {most}"),
        }
    }
}

impl fmt::Debug for Figure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Bounds {
            least: u64,
            most: Option<u64>,
        }
        let most = (self.most < u64::MAX).then_some(self.most);
        match self.known() {
            Some(value) => serializer.serialize_u64(value),
            None if *self == Figure::UNKNOWN => serializer.serialize_none(),
            None => Bounds { least: self.least, most }.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_keep_their_bounds() {
        let some = Figure::between(3, 5);
        assert_eq!(some.plus(Figure::exact(2)), Figure::between(5, 7));
        assert_eq!(some.minus(Figure::exact(4)), Figure::between(0, 1));
        assert_eq!(Figure::UNKNOWN.minus(some), Figure::UNKNOWN);
        assert_eq!(Figure::exact(9).minus(Figure::UNKNOWN), Figure::between(0, 9));
        assert_eq!(Figure::UNKNOWN.and(some), some);
        assert_eq!(some.and(Figure::exact(9)), some, "they contradict");
        assert_eq!((some.if_good(Side::Best), some.if_bad(Side::Best)), (5, 3));
        assert_eq!(Figure::between(2, 1).known(), Some(2));
    }

    #[test]
    fn they_are_told_as_far_as_they_are_known() {
        let told = [
            (Figure::exact(0), "0"),
            (Figure::UNKNOWN, "unknown"),
            (Figure::between(7, u64::MAX), "at least 7"),
            (Figure::between(0, 7), "at most 7"),
            (Figure::between(2, 7), "2 to 7"),
        ];
        for (figure, text) in told {
            assert_eq!(figure.to_string(), text);
        }
    }
}
