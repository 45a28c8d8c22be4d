//! Sizes with units: `512M`, `2G`, `0`.

/// What a size looks like, for messages.
pub const EXPECTED: &str = "a size such as 0, 512M, 2G or 1T";

/// Reads a size as bytes. The units K, M, G and T are powers of 1024; `GB` and `GiB` mean `G`; only 0 needs no unit.
/// `None` if the text is no size, or if its bytes exceed 64 bits.
pub fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" if number == 0 => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Writes bytes in the largest unit that gives at least 1. A number that is not whole has one digit after the point:
/// `4.6 GiB`.
pub fn format(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = UNITS.into_iter().find(|(shift, _)| bytes >> shift > 0) else {
        return format!("{bytes} B");
    };
    let whole = bytes >> shift;
    // Rounded down: a machine never shows memory that it does not have.
    let tenths = ((bytes - (whole << shift)) as u128 * 10) >> shift;
    if tenths == 0 { format!("{whole} {unit}") } else { format!("{whole}.{tenths} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse("2G"), Some(2 << 30));
        assert_eq!(parse("512MiB"), Some(512 << 20));
        assert_eq!(parse("4kb"), Some(4096));
        assert_eq!(parse("1T"), Some(1 << 40));
        assert_eq!(parse("0"), Some(0));
        for wrong in ["", "G", "2", "2X", "-1G", "1.5G", "16777216T", "99999999999999999999G"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn formatted() {
        assert_eq!(format(0), "0 B");
        assert_eq!(format(2 << 30), "2 GiB");
        assert_eq!(format((1 << 40) - 1), "1023.9 GiB");
        assert_eq!(format(4698 << 20), "4.5 GiB");
        assert_eq!(format(u64::MAX), "16777215.9 TiB");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,12}") {
            let _ = parse(&text);
        }
    }
}
