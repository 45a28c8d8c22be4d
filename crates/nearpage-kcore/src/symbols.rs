//! The kernel's own table of symbols, by which addresses of its variables are found: kallsyms, as VMCOREINFO says where it is.
//!
//! ```text
//! num_syms   u32
//! names      for each: its length in tokens (one byte, two from 128 on), the tokens; the first character is its type
//! tokens     table: texts, each with a zero behind it; index: 256 u16, where a token's text begins
//! offsets    for each: i32
//! ```
//!
//! How an offset becomes an address differs: from a base; from the base for negative ones only; from the offset's own place.
//! VMCOREINFO has addresses of some symbols, so the way that gives those is the one.

use std::collections::HashMap;

use crate::error::KcoreError;
use crate::memory::Memory;
use crate::vmcoreinfo::Vmcoreinfo;

/// A kernel has some two hundred thousand.
const SYMBOLS_MAX: u64 = 1 << 22;
/// Bytes of a symbol's name, unpacked.
const NAME_BYTES_MAX: usize = 1024;
const TOKEN_TABLE_BYTES_MAX: usize = 64 << 10;
/// Read at once.
const PART_BYTES: usize = 64 << 10;
/// Symbols of VMCOREINFO by which the way is found: each is where it says.
const KNOWN: [&str; 6] =
    ["init_uts_ns", "node_online_map", "swapper_pg_dir", "_stext", "prb", "clear_seq"];

/// Symbols that were asked for.
#[derive(Debug)]
pub(crate) struct Symbols(HashMap<String, u64>);

/// How an offset becomes an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// All from a base.
    From(u64),
    /// Those that are not negative are addresses themselves: per-CPU variables.
    AbsoluteFrom(u64),
    /// From the place of the offset.
    FromPlace(u64),
}

impl Way {
    fn address(self, index: u64, offset: i32) -> u64 {
        match self {
            Way::From(base) => base.wrapping_add(u64::from(offset as u32)),
            Way::AbsoluteFrom(_) if offset >= 0 => offset as u64,
            Way::AbsoluteFrom(base) => base.wrapping_sub(1).wrapping_sub(i64::from(offset) as u64),
            Way::FromPlace(table) => {
                table.wrapping_add(4 * index).wrapping_add(i64::from(offset) as u64)
            }
        }
    }
}

impl Symbols {
    /// Finds those of the names that the kernel has.
    pub fn find(memory: &Memory, info: &Vmcoreinfo, names: &[&str]) -> Result<Symbols, KcoreError> {
        let lacks = |what: String| KcoreError::Lacks {
            path: memory.image.path.clone(),
            what,
            expected: "a kernel since 6.0 with CONFIG_KALLSYMS, which tells where its symbols are",
        };
        let place = |name: &str| {
            info.symbol(name).ok_or_else(|| lacks(format!("VMCOREINFO has no SYMBOL({name})")))
        };
        let count = memory.number("kallsyms_num_syms", place("kallsyms_num_syms")?, 4)?;
        if count == 0 || count > SYMBOLS_MAX {
            return Err(lacks(format!("{count} symbols")));
        }
        let tokens =
            Tokens::read(memory, place("kallsyms_token_table")?, place("kallsyms_token_index")?)?;
        let mut names_at = Stream::new(memory, place("kallsyms_names")?);
        let mut found: HashMap<&str, u64> = HashMap::new();
        let mut name = Vec::new();
        for index in 0..count {
            let mut length = usize::from(names_at.byte()?);
            if length & 0x80 != 0 {
                length = (length & 0x7f) | usize::from(names_at.byte()?) << 7;
            }
            name.clear();
            for _ in 0..length {
                name.extend_from_slice(tokens.text(names_at.byte()?));
                if name.len() > NAME_BYTES_MAX {
                    return Err(lacks(format!("symbol {index} has a name without an end")));
                }
            }
            let text = std::str::from_utf8(name.get(1..).unwrap_or_default()).unwrap_or_default();
            for wanted in names.iter().chain(&KNOWN) {
                if *wanted == text {
                    found.entry(wanted).or_insert(index);
                }
            }
        }
        let table = place("kallsyms_offsets")?;
        let offset = |index: u64| {
            memory
                .number("kallsyms_offsets", table.wrapping_add(4 * index), 4)
                .map(|word| word as u32 as i32)
        };
        let known = |name: &&str| Some((*found.get(*name)?, info.symbol(name)?));
        let known: Vec<(u64, u64)> = KNOWN.iter().filter_map(known).collect();
        let mut ways = vec![Way::FromPlace(table)];
        if let Some(base) = info.symbol("kallsyms_relative_base") {
            let base = memory.number("kallsyms_relative_base", base, 8)?;
            ways.extend([Way::From(base), Way::AbsoluteFrom(base)]);
        }
        // A base that is not told follows from one symbol; the others confirm it.
        if let Some(&(index, address)) = known.first() {
            let offset = offset(index)?;
            ways.push(Way::From(address.wrapping_sub(u64::from(offset as u32))));
        }
        let mut way = None;
        for candidate in ways {
            let mut confirmed = 0;
            for &(index, address) in &known {
                confirmed += usize::from(candidate.address(index, offset(index)?) == address);
            }
            if confirmed == known.len() && confirmed >= 3 {
                way = way.or(Some(candidate));
            }
        }
        let way = way.ok_or_else(|| {
            lacks("its table of symbols does not have those of VMCOREINFO where they are".into())
        })?;
        let mut symbols = HashMap::new();
        for (name, index) in found {
            symbols.insert(name.to_owned(), way.address(index, offset(index)?));
        }
        Ok(Symbols(symbols))
    }

    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }
}

/// The texts of tokens.
struct Tokens {
    table: Vec<u8>,
    index: Vec<u16>,
}

impl Tokens {
    fn read(memory: &Memory, table_at: u64, index_at: u64) -> Result<Tokens, KcoreError> {
        let mut words = [0; 512];
        memory.read("kallsyms_token_index", index_at, &mut words)?;
        let index: Vec<u16> =
            words.chunks(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect();
        // The index lies behind the table.
        let bytes = (index_at.saturating_sub(table_at) as usize).clamp(1, TOKEN_TABLE_BYTES_MAX);
        let mut table = vec![0; bytes];
        memory.read("kallsyms_token_table", table_at, &mut table)?;
        Ok(Tokens { table, index })
    }

    fn text(&self, token: u8) -> &[u8] {
        let from = usize::from(self.index[usize::from(token)]).min(self.table.len());
        let rest = &self.table[from..];
        &rest[..rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len())]
    }
}

/// Bytes one after the other.
struct Stream<'m> {
    memory: &'m Memory,
    at: u64,
    part: Vec<u8>,
    taken: usize,
}

impl<'m> Stream<'m> {
    fn new(memory: &'m Memory, at: u64) -> Stream<'m> {
        Stream { memory, at, part: Vec::new(), taken: 0 }
    }

    fn byte(&mut self) -> Result<u8, KcoreError> {
        if self.taken == self.part.len() {
            // Up to the end of a part of memory, so that nothing beyond the table need be there.
            let bytes = PART_BYTES - (self.at as usize % PART_BYTES);
            self.part.resize(bytes, 0);
            if self.memory.read("kallsyms_names", self.at, &mut self.part).is_err() {
                let page = 4096 - (self.at as usize % 4096);
                self.part.resize(page, 0);
                self.memory.read("kallsyms_names", self.at, &mut self.part)?;
            }
            self.at = self.at.wrapping_add(self.part.len() as u64);
            self.taken = 0;
        }
        self.taken += 1;
        Ok(self.part[self.taken - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::Way;

    #[test]
    fn offsets_become_addresses() {
        let base = 0x8100_0000_u64;
        assert_eq!(Way::From(base).address(5, -1), 0x1_8100_0000 - 1);
        assert_eq!(Way::AbsoluteFrom(base).address(5, 0x1234), 0x1234);
        assert_eq!(Way::AbsoluteFrom(base).address(5, -1 - 0x20), base + 0x20);
        assert_eq!(Way::FromPlace(base).address(5, -16), base + 4);
    }
}
