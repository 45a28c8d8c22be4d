//! The barn of a node: full sheaves, under a lock of its own. Facts 9.9.

use crate::tunables::{BARN_SHEAVES, SHEAF_MAX};

/// Full sheaves of a node, the oldest first. Empty ones need no place: a sheaf is an array in the metadata here, and
/// what it holds is copied.
#[derive(Debug)]
pub struct Barn {
    entries: [[u32; SHEAF_MAX]; BARN_SHEAVES],
    /// Entries of each sheaf: a new budget makes new sheaves smaller.
    lens: [u32; BARN_SHEAVES],
    full: usize,
    /// Sheaves at most; 0 is no barn.
    pub limit: u32,
    /// A sheaf was taken since the last round of reaping.
    pub touched: bool,
}

impl Barn {
    /// An empty barn without room.
    pub const fn new() -> Self {
        Self {
            entries: [[0; SHEAF_MAX]; BARN_SHEAVES],
            lens: [0; BARN_SHEAVES],
            full: 0,
            limit: 0,
            touched: false,
        }
    }

    /// Whether it takes another sheaf.
    pub const fn has_room(&self) -> bool {
        self.full < self.limit as usize
    }

    /// Puts a sheaf in, for which there is room.
    pub fn put(&mut self, sheaf: &[u32]) {
        self.entries[self.full][..sheaf.len()].copy_from_slice(sheaf);
        self.lens[self.full] = sheaf.len() as u32;
        self.full += 1;
    }

    /// Takes the sheaf that came last; nothing if there is none.
    pub fn take<'o>(&mut self, out: &'o mut [u32; SHEAF_MAX]) -> &'o [u32] {
        let Some(last) = self.full.checked_sub(1) else { return &[] };
        self.full = last;
        *out = self.entries[last];
        &out[..self.lens[last] as usize]
    }

    /// Takes the sheaf that came first; nothing if there is none.
    pub fn take_oldest<'o>(&mut self, out: &'o mut [u32; SHEAF_MAX]) -> &'o [u32] {
        self.entries[..self.full].rotate_left(usize::from(self.full > 0));
        self.lens[..self.full].rotate_left(usize::from(self.full > 0));
        self.take(out)
    }

    /// What the sheaves hold.
    pub fn sheaves(&self) -> impl Iterator<Item = &[u32]> {
        let full = self.entries.iter().zip(&self.lens).take(self.full);
        full.map(|(sheaf, &len)| &sheaf[..len as usize])
    }

    /// Full sheaves.
    pub const fn len(&self) -> usize {
        self.full
    }

    /// Objects in it.
    pub fn objects(&self) -> u64 {
        self.sheaves().map(|sheaf| sheaf.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sheaves_are_taken_from_both_ends() {
        let (mut barn, mut out) = (Barn::new(), [0; SHEAF_MAX]);
        assert!(!barn.has_room());
        barn.limit = 3;
        barn.put(&[1, 2]);
        barn.put(&[3]);
        barn.put(&[4, 5, 6]);
        assert!(!barn.has_room());
        assert_eq!((barn.len(), barn.objects()), (3, 6));
        assert_eq!(barn.take_oldest(&mut out), [1, 2]);
        assert_eq!(barn.take(&mut out), [4, 5, 6]);
        assert_eq!(barn.take_oldest(&mut out), [3]);
        assert!(barn.take(&mut out).is_empty() && barn.take_oldest(&mut out).is_empty());
    }
}
