//! What is wrong with a scenario's text, and where.

use std::ops::Range;

/// What is wrong, at a place of the text.
pub(super) struct Wrong {
    pub(super) span: Range<usize>,
    pub(super) message: String,
}

pub(super) type Checked<T> = Result<T, Wrong>;

pub(super) fn wrong<T>(span: Range<usize>, message: impl Into<String>) -> Checked<T> {
    Err(Wrong { span, message: message.into() })
}

/// The line that a byte of a text is in; the first is 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}
