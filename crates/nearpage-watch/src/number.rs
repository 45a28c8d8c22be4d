//! Numbers in texts of the kernel.

/// The first number of a text.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let begin = text.iter().position(u8::is_ascii_digit)?;
    if !text[..begin].iter().all(|byte| matches!(byte, b' ' | b':' | b'\t' | b'(' | b',')) {
        return None;
    }
    let mut value = 0_u64;
    for digit in text[begin..].iter().take_while(|byte| byte.is_ascii_digit()) {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_none() {
        assert_eq!(number(b":  (12)"), Some(12));
        assert_eq!(number(b" 99999999999999999999"), None);
        assert_eq!(number(b" x 9"), None);
        assert_eq!(number(b""), None);
    }
}
