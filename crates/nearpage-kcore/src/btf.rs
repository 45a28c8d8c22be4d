//! BTF, the description of a kernel's types that it has in itself: structures with their members, arrays, enumerations.
//!
//! ```text
//! header   u16 magic, u8 version, u8 flags, u32 header's length, u32 types' offset, length, u32 texts' offset, length
//! types    each: u32 name, u32 kind << 24 | has bits << 31 | count, u32 size or type; then what its kind has
//! texts    each with a zero behind it
//! ```
//!
//! By the kernel's documentation, `Documentation/bpf/btf.rst`.

use std::collections::{HashMap, HashSet};

/// Types of a kernel: some hundred thousand.
const TYPES_MAX: usize = 1 << 20;
/// Names of names of a type, and structures in structures.
const DEPTH_MAX: u32 = 32;
/// Bytes of a name that are looked at: no structure of a kernel has a longer one.
const NAME_MAX: usize = 128;
const MAGIC: u64 = 0xeb9f;

/// All types.
#[derive(Debug)]
pub(crate) struct Btf {
    bytes: Vec<u8>,
    /// Where each type's description begins; type 0 is void.
    places: Vec<usize>,
    texts: usize,
    texts_end: usize,
    /// Structures, enumerations and names of types, by their own name.
    named: HashMap<(Sort, String), u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Sort {
    Structure,
    Enumeration,
    Typedef,
}

/// A member of a structure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    /// In bytes, from the begin of the structure.
    pub offset: u64,
    pub type_id: u32,
}

/// Where a number lies, and how wide it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    pub offset: u64,
    pub bytes: usize,
    pub is_signed: bool,
}

impl Btf {
    /// Reads it; an error says what is damaged.
    pub fn parse(bytes: Vec<u8>) -> Result<Btf, String> {
        let header = |at: usize| word(&bytes, at).ok_or("BTF that is cut off in its header");
        if header(0)? & 0xffff != MAGIC {
            return Err(format!(
                "BTF that begins with {:#06x}, not with 0xeb9f",
                header(0)? & 0xffff
            ));
        }
        let begin = header(4)? as usize;
        let range = |offset: u64, length: u64| {
            let from = begin.saturating_add(offset as usize);
            let end = from.saturating_add(length as usize);
            if end > bytes.len() {
                return Err(format!("BTF of {} bytes that tells of {end}", bytes.len()));
            }
            Ok((from, end))
        };
        let (types, types_end) = range(header(8)?, header(12)?)?;
        let (texts, texts_end) = range(header(16)?, header(20)?)?;
        let mut btf = Btf { bytes, places: vec![0], texts, texts_end, named: HashMap::new() };
        let mut at = types;
        while at + 12 <= types_end {
            if btf.places.len() > TYPES_MAX {
                return Err(format!("BTF with more than {TYPES_MAX} types"));
            }
            let id = btf.places.len() as u32;
            btf.places.push(at);
            let sort = match btf.kind(id) {
                4 | 5 => Some(Sort::Structure),
                6 | 19 => Some(Sort::Enumeration),
                8 => Some(Sort::Typedef),
                _ => None,
            };
            if let Some(sort) = sort {
                let name = btf.name(id).to_owned();
                btf.named.entry((sort, name)).or_insert(id);
            }
            let count = btf.count(id);
            at += 12
                + match btf.kind(id) {
                    1 | 14 | 17 => 4,
                    3 => 12,
                    4 | 5 | 15 | 19 => 12 * count,
                    6 | 13 => 8 * count,
                    kind if kind > 19 => return Err(format!("BTF with a type of kind {kind}")),
                    _ => 0,
                };
        }
        Ok(btf)
    }

    fn word(&self, at: usize) -> u64 {
        word(&self.bytes, at).unwrap_or(0)
    }

    fn place(&self, id: u32) -> usize {
        // Void, and ids that there are not, have nothing.
        self.places.get(id as usize).copied().unwrap_or(0)
    }

    fn kind(&self, id: u32) -> u64 {
        match self.place(id) {
            0 => 0,
            at => self.word(at + 4) >> 24 & 0x1f,
        }
    }

    fn has_bits(&self, id: u32) -> bool {
        self.word(self.place(id) + 4) >> 31 != 0
    }

    fn count(&self, id: u32) -> usize {
        (self.word(self.place(id) + 4) & 0xffff) as usize
    }

    fn size_or_type(&self, id: u32) -> u64 {
        self.word(self.place(id) + 8)
    }

    fn name(&self, id: u32) -> &str {
        self.text(self.word(self.place(id)))
    }

    fn text(&self, offset: u64) -> &str {
        let from = self.texts.saturating_add(offset as usize).min(self.texts_end);
        let rest = &self.bytes[from..self.texts_end.min(from + NAME_MAX)];
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        std::str::from_utf8(&rest[..end]).unwrap_or_default()
    }

    /// The type behind names and qualifiers.
    fn resolved(&self, mut id: u32) -> u32 {
        for _ in 0..DEPTH_MAX {
            match self.kind(id) {
                8..=11 | 18 => id = self.size_or_type(id) as u32,
                _ => return id,
            }
        }
        0
    }

    /// A structure by its name, or by a name of a type that is one.
    pub fn structure(&self, name: &str) -> Option<u32> {
        let of = |sort| self.named.get(&(sort, name.to_owned())).copied();
        of(Sort::Structure).or_else(|| of(Sort::Typedef).map(|id| self.resolved(id)))
    }

    /// A member of a structure, also of those without a name in it.
    pub fn member(&self, structure: u32, name: &str) -> Option<Member> {
        self.member_within(structure, name, DEPTH_MAX, &mut HashSet::new())
    }

    /// `seen` are the structures that were looked into: what one lacks it lacks wherever it stands.
    fn member_within(
        &self,
        structure: u32,
        name: &str,
        depth: u32,
        seen: &mut HashSet<u32>,
    ) -> Option<Member> {
        let id = self.resolved(structure);
        if !matches!(self.kind(id), 4 | 5) || !seen.insert(id) {
            return None;
        }
        let bits = if self.has_bits(id) { 0xff_ffff } else { u64::from(u32::MAX) };
        for index in 0..self.count(id) {
            let at = self.place(id) + 12 + 12 * index;
            let (own, type_id) = (self.text(self.word(at)), self.word(at + 4) as u32);
            let offset = (self.word(at + 8) & bits) / 8;
            if own == name {
                return Some(Member { offset, type_id });
            }
            if own.is_empty()
                && let Some(depth) = depth.checked_sub(1)
                && let Some(inner) = self.member_within(type_id, name, depth, seen)
            {
                return Some(Member { offset: offset + inner.offset, ..inner });
            }
        }
        None
    }

    /// The bytes of a type.
    pub fn size(&self, id: u32) -> Option<u64> {
        self.size_within(id, DEPTH_MAX)
    }

    fn size_within(&self, id: u32, depth: u32) -> Option<u64> {
        let id = self.resolved(id);
        match self.kind(id) {
            1 | 4 | 5 | 6 | 19 => Some(self.size_or_type(id)),
            2 => Some(8),
            3 => {
                let (element, count) = self.array(id)?;
                self.size_within(element, depth.checked_sub(1)?)?.checked_mul(count)
            }
            _ => None,
        }
    }

    /// The elements of an array, and how many.
    pub fn array(&self, id: u32) -> Option<(u32, u64)> {
        let id = self.resolved(id);
        if self.kind(id) != 3 {
            return None;
        }
        let at = self.place(id) + 12;
        Some((self.word(at) as u32, self.word(at + 8)))
    }

    /// A member that is a number or a pointer, or a structure around one number (`atomic_long_t`).
    pub fn number(&self, structure: u32, name: &str) -> Option<Number> {
        let Member { offset, type_id } = self.member(structure, name)?;
        let number = self.number_of(type_id, DEPTH_MAX)?;
        Some(Number { offset: offset + number.offset, ..number })
    }

    /// How a type that is a number lies.
    pub fn number_of(&self, id: u32, depth: u32) -> Option<Number> {
        let id = self.resolved(id);
        let bytes = usize::try_from(self.size(id)?).ok().filter(|bytes| (1..=8).contains(bytes));
        match self.kind(id) {
            // Encoding: bit 0 says signed.
            1 => {
                let is_signed = self.word(self.place(id) + 12) >> 24 & 1 != 0;
                Some(Number { offset: 0, bytes: bytes?, is_signed })
            }
            2 | 6 | 19 => Some(Number { offset: 0, bytes: bytes?, is_signed: false }),
            4 if self.count(id) == 1 => {
                let at = self.place(id) + 12;
                self.number_of(self.word(at + 4) as u32, depth.checked_sub(1)?)
            }
            _ => None,
        }
    }

    /// The value of a name in an enumeration.
    pub fn value(&self, enumeration: &str, name: &str) -> Option<u64> {
        self.values(enumeration).find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Names and values of an enumeration.
    pub fn values(&self, enumeration: &str) -> impl Iterator<Item = (&str, u64)> {
        let id = self.named.get(&(Sort::Enumeration, enumeration.to_owned())).copied();
        let id = id.filter(|&id| self.kind(id) == 6).unwrap_or(0);
        let count = if id == 0 { 0 } else { self.count(id) };
        (0..count).map(move |index| {
            let at = self.place(id) + 12 + 8 * index;
            (self.text(self.word(at)), self.word(at + 4))
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u64::from(u32::from_le_bytes(word.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn btf(types: &[u32], texts: &[u8]) -> Btf {
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (length, begin) = (types.len() as u32, texts.len() as u32);
        let header = [0x0001_eb9f, 24, 0, length, length, begin];
        let header = header.iter().flat_map(|word| word.to_le_bytes());
        Btf::parse(header.chain(types).chain(texts.iter().copied()).collect()).unwrap()
    }

    /// A structure that is its own member without a name, twice: each look into it was two more.
    #[test]
    fn structures_within_themselves_are_looked_into_once() {
        let members = [0, 1, 0, 0, 1, 0];
        let types = [&[1, 4 << 24 | 2, 8][..], &members].concat();
        let btf = btf(&types, b"\0zone\0");
        let zone = btf.structure("zone").unwrap();
        assert_eq!(btf.member(zone, "nothing"), None);
    }

    /// A text that has no end is the name of nothing, however many types begin within it.
    #[test]
    fn names_are_looked_at_to_their_longest() {
        let types: Vec<u32> = (0..1000).flat_map(|at| [1 + at, 4 << 24, 8]).collect();
        let texts = [&[0][..], &[b'a'; 1 << 20]].concat();
        let btf = btf(&types, &texts);
        assert!(btf.named.keys().all(|(_, name)| name.len() <= NAME_MAX));
    }
}
