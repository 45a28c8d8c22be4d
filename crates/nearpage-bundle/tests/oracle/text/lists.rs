//! Free lists and positions of blocks: `0[0:1,0:5] 3[0:8,..20]`.

use std::collections::BTreeMap;

use crate::fields::Line;

/// Where a block begins: in which block of the highest order, numbered as they are met, and where in that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    /// The block of the highest order.
    pub block: u64,
    /// Pages into it.
    pub offset: u64,
}

impl Position {
    /// From `block:offset`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (block, offset) =
            text.split_once(':').ok_or_else(|| format!("no position: {text:?}"))?;
        Ok(Self { block: Line(text).parse(block)?, offset: Line(text).parse(offset)? })
    }
}

/// Free lists of one migratetype by order, without the highest; empty ones are left out.
pub type Lists = BTreeMap<u8, List>;

/// A free list, head first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct List {
    /// The first blocks of it.
    pub first: Vec<Position>,
    /// All blocks of it.
    pub blocks: usize,
}

/// Reads lists; other words of the text are passed over.
pub fn read(text: &str) -> Result<Lists, String> {
    let mut lists = Lists::new();
    for word in text.split_whitespace() {
        let Some((order, blocks)) = word.strip_suffix(']').and_then(|word| word.split_once('['))
        else {
            continue;
        };
        let order = Line(text).parse(order)? as u8;
        let mut list = List::default();
        for block in blocks.split(',') {
            match block.strip_prefix("..") {
                Some(all) => list.blocks = Line(text).parse(all)? as usize,
                None => list.first.push(Position::parse(block)?),
            }
        }
        list.blocks = list.blocks.max(list.first.len());
        lists.insert(order, list);
    }
    Ok(lists)
}
