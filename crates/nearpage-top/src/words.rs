//! Figures and times as words, in ASCII: a terminal may have no UTF-8, and what comes from files must not command it.

/// Control characters and all that is not ASCII become `?`.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|one| if one.is_ascii() && !one.is_ascii_control() { one } else { '?' })
        .collect()
}

pub(crate) fn mib(kib: Option<u64>) -> String {
    kib.map_or("-".into(), |kib| (kib >> 10).to_string())
}

pub(crate) fn number(value: Option<u64>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

/// A count in at most four columns.
pub(crate) fn short(count: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1000, "k")];
    if count < 10_000 {
        return count.to_string();
    }
    let unit = UNITS.iter().find(|(unit, _)| count >= *unit);
    unit.map_or_else(String::new, |(unit, name)| format!("{}{name}", (count / unit).min(999)))
}

/// Events a second, in at most seven columns.
pub(crate) fn per_second(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value < 10.0 => format!("{value:.1}"),
        Some(value) if value < 100_000.0 => format!("{value:.0}"),
        Some(value) => format!("{:.0}k", (value / 1000.0).min(99_999.0)),
    }
}

/// A time that passed: `40 s`, `12 min`, `3 h`, `2 d`.
pub(crate) fn time(ms: u64) -> String {
    match ms / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// The time of day, in UTC.
pub(crate) fn clock(time_ms: u64) -> String {
    let second = time_ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// The date, in UTC. Years begin in March here, so that the day that some have is their last.
pub(crate) fn date(time_ms: u64) -> String {
    let days = time_ms / 86_400_000 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts() {
        for (ms, day) in [
            (0, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (1_709_251_199_000, "2024-02-29"),
            (1_767_225_600_000, "2026-01-01"),
        ] {
            assert_eq!(date(ms), day);
        }
        assert_eq!(
            (clock(1_709_251_199_000).as_str(), time(119_999).as_str()),
            ("23:59:59", "119 s")
        );
        assert_eq!((time(7_199_000), time(200_000_000)), ("119 min".into(), "2 d".into()));
        for count in [0, 9999, 10_000, 999_999, 12_345_678, u64::MAX] {
            assert!(short(count).len() <= 4, "{}", short(count));
        }
        assert_eq!((short(10_500), short(7_000_000)), ("10k".into(), "7M".into()));
        assert_eq!(printable("a\u{1b}[2Jü"), "a?[2J?");
    }
}
