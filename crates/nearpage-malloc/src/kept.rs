//! Mappings that were freed a moment ago, for the next that are asked for: a vector that grows from nothing again and again
//! would have the kernel clear as many pages each time.
//!
//! A piece is cut off for a request that is smaller. A mapping that grows takes the piece behind it in place. What nobody
//! wanted for a while goes back to the kernel, by whoever looks (`background`, or the next free).

use crate::lock::Lock;

/// Pieces that are kept.
const PIECES: usize = 16;
/// Bytes that are kept in all, and the most of one piece.
const BYTES_MAX: usize = 32 << 20;
const PIECE_MAX: usize = 32 << 20;
/// Looks that a piece stays for.
const LOOKS: u32 = 2;

#[derive(Clone, Copy)]
struct Piece {
    start: usize,
    bytes: usize,
    /// Looks since it came.
    age: u32,
}

const NONE: Piece = Piece { start: 0, bytes: 0, age: 0 };

pub(crate) struct Kept {
    pieces: [Piece; PIECES],
    bytes: usize,
}

pub(crate) static KEPT: Lock<Kept> = Lock::new(Kept::new());

impl Kept {
    const fn new() -> Self {
        Self { pieces: [NONE; PIECES], bytes: 0 }
    }

    /// Takes a freed mapping in; `false` if it should go to the kernel.
    pub fn keep(&mut self, start: usize, bytes: usize) -> bool {
        if bytes > PIECE_MAX || self.bytes + bytes > BYTES_MAX {
            return false;
        }
        let Some(free) = self.pieces.iter_mut().find(|piece| piece.bytes == 0) else {
            return false;
        };
        *free = Piece { start, bytes, age: 0 };
        self.bytes += bytes;
        true
    }

    /// Gives the start of so many bytes: a piece as long, or the start of the longest, which leaves most to grow into.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        let fitting = self.pieces.iter_mut().filter(|piece| piece.bytes >= bytes);
        let piece = fitting.max_by_key(|piece| (piece.bytes == bytes, piece.bytes))?;
        Some(cut(piece, &mut self.bytes, bytes))
    }

    /// Gives the bytes that begin at an address, for a mapping that ends there.
    pub fn take_at(&mut self, start: usize, bytes: usize) -> bool {
        let at = |piece: &&mut Piece| piece.start == start && piece.bytes >= bytes;
        let Some(piece) = self.pieces.iter_mut().find(at) else { return false };
        cut(piece, &mut self.bytes, bytes);
        true
    }

    /// Gives what is old, or `all`, to `unmap`; returns whether something is left.
    pub fn look(&mut self, all: bool, mut unmap: impl FnMut(usize, usize)) -> bool {
        for piece in self.pieces.iter_mut().filter(|piece| piece.bytes > 0) {
            piece.age += 1;
            if all || piece.age > LOOKS {
                unmap(piece.start, piece.bytes);
                self.bytes -= piece.bytes;
                *piece = NONE;
            }
        }
        self.bytes > 0
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn cut(piece: &mut Piece, all: &mut usize, bytes: usize) -> usize {
    let start = piece.start;
    piece.start += bytes;
    piece.bytes -= bytes;
    *all -= bytes;
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_mapping_takes_what_was_cut_behind_it() {
        let mut kept = Kept::new();
        assert!(kept.keep(0x100_0000, 16 << 20) && !kept.keep(0x900_0000, PIECE_MAX + 1));
        assert_eq!(kept.take(4 << 20), Some(0x100_0000));
        assert!(kept.take_at(0x140_0000, 4 << 20) && !kept.take_at(0x140_0000, 1));
        assert_eq!((kept.bytes(), kept.take(16 << 20)), (8 << 20, None));
        let mut gone = Vec::new();
        for look in 0..=LOOKS {
            assert_eq!(kept.look(false, |start, bytes| gone.push((start, bytes))), look < LOOKS);
        }
        assert_eq!((gone, kept.bytes()), (vec![(0x180_0000, 8 << 20)], 0));
    }

    #[test]
    fn no_more_than_a_bound_is_kept() {
        let mut kept = Kept::new();
        let taken = (1..100).filter(|at| kept.keep(at << 30, 8 << 20)).count();
        assert_eq!((taken, kept.bytes()), (4, BYTES_MAX));
        let mut gone = 0;
        assert!(!kept.look(true, |_, bytes| gone += bytes));
        assert_eq!(gone, BYTES_MAX);
    }
}
