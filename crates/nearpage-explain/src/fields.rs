//! Fields of a message by their names.

use nearpage_machine::idlist;

/// Characters of a name that are kept: kernels print 15, and prefixes that nobody knows may stand before them.
pub(crate) const PROCESS_MOST: usize = 64;

/// The value of `key` up to a comma or the end: `order:4`, `order=4`.
pub(crate) fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let at = text.find(key)?;
    let rest = &text[at + key.len()..];
    // Words in parentheses have no commas.
    Some(rest.split([',', ' ']).next().unwrap_or(rest).trim())
}

/// `0-1`, or `(null)` for none. The kernel separates ranges with commas, and fields too.
pub(crate) fn nodes(text: &str, key: &str) -> Option<Vec<u32>> {
    let at = text.find(key)?;
    let rest = &text[at + key.len()..];
    let end = rest.find(|character: char| {
        !character.is_ascii_digit() && character != '-' && character != ','
    });
    let list = rest[..end.unwrap_or(rest.len())].trim_end_matches(',');
    let ids = idlist::parse(list).ok()?;
    (!ids.is_empty() && ids.len() <= 1024).then_some(ids)
}
