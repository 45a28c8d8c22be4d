//! Lists of numbers as differences to the list before.
//!
//! ```text
//! content = count of texts, texts (length, bytes), count of numbers, tokens
//! token   = 2 * zigzag(difference)    a number that changed
//!         | 2 * (run - 1) + 1         a run of numbers that did not
//! ```
//!
//! All numbers are written as LEB128: seven bits a byte, the lowest first. Tokens have up to 65 bits. A number for which
//! the list before has none is a difference to 0. Texts are those that the slot has not had before.

/// Writes a number.
pub(super) fn put(bytes: &mut Vec<u8>, mut number: u128) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number from the front; `None` if there is none, or one of more than 70 bits.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u128> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u128::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

fn unzigzag(token: u64) -> i64 {
    (token >> 1) as i64 ^ -((token & 1) as i64)
}

/// Writes `now` as differences to `before`.
pub(super) fn encode(bytes: &mut Vec<u8>, before: &[u64], now: &[u64]) {
    put(bytes, now.len() as u128);
    let mut run = 0_u128;
    for (at, number) in now.iter().enumerate() {
        let difference = number.wrapping_sub(before.get(at).copied().unwrap_or(0));
        if difference == 0 {
            run += 1;
            continue;
        }
        end_run(bytes, &mut run);
        put(bytes, u128::from(zigzag(difference as i64)) << 1);
    }
    end_run(bytes, &mut run);
}

fn end_run(bytes: &mut Vec<u8>, run: &mut u128) {
    if *run > 0 {
        put(bytes, (*run - 1) << 1 | 1);
        *run = 0;
    }
}

/// The first number of a list, by that of the list before: 0 if there is none.
pub(super) fn decode_first(bytes: &mut &[u8], before: u64) -> Option<u64> {
    if take(bytes)? == 0 {
        return Some(0);
    }
    match take(bytes)? {
        token if token & 1 == 1 => Some(before),
        token => Some(before.wrapping_add(unzigzag(u64::try_from(token >> 1).ok()?) as u64)),
    }
}

/// Makes `numbers`, the list before, the one that was written. `None` if it was written by nobody. `growth` is what lists may still
/// grow: a few bytes say that they are long, and short, and long again.
pub(super) fn decode(bytes: &mut &[u8], numbers: &mut Vec<u64>, growth: &mut usize) -> Option<()> {
    let count = usize::try_from(take(bytes)?).ok().filter(|count| *count <= NUMBERS_MOST)?;
    *growth = growth.checked_sub(count.saturating_sub(numbers.len()))?;
    numbers.resize(count, 0);
    let mut at = 0;
    while at < count {
        let token = take(bytes)?;
        if token & 1 == 1 {
            at = at.checked_add(usize::try_from((token >> 1) + 1).ok()?)?;
        } else {
            let difference = unzigzag(u64::try_from(token >> 1).ok()?);
            numbers[at] = numbers[at].wrapping_add(difference as u64);
            at += 1;
        }
    }
    (at == count).then_some(())
}

/// Numbers of a sample that are read: those of 1024 nodes are half of them, with their distances.
const NUMBERS_MOST: usize = 1 << 21;
/// What the lists of a slot may grow together.
pub(super) const GROWTH_MOST: usize = 1 << 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_list_after_any_list() {
        let lists: [&[u64]; 6] =
            [&[], &[0, 0, 0], &[u64::MAX, 0, 1 << 63, 5], &[5; 300], &[0, 7], &[u64::MAX; 9]];
        for before in lists {
            for now in lists {
                let mut bytes = Vec::new();
                encode(&mut bytes, before, now);
                let mut numbers = before.to_vec();
                let mut rest = &bytes[..];
                let mut first = rest;
                assert_eq!(
                    decode_first(&mut first, before.first().copied().unwrap_or(0)),
                    Some(now.first().copied().unwrap_or(0))
                );
                decode(&mut rest, &mut numbers, &mut { GROWTH_MOST }).unwrap();
                assert!(rest.is_empty() && numbers == now, "{before:?} {now:?}: {numbers:?}");
                for end in 0..bytes.len() {
                    let read =
                        decode(&mut &bytes[..end], &mut before.to_vec(), &mut { GROWTH_MOST });
                    assert_eq!(read, None);
                }
            }
        }
    }

    #[test]
    fn what_does_not_change_costs_two_bytes() {
        let mut bytes = Vec::new();
        encode(&mut bytes, &[9; 60], &[9; 60]);
        assert_eq!(bytes, [60, 119]);
    }
}
