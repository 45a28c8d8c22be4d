//! Names for blocks: frames of a zone of which nobody has a block. The lowest comes first, so that names depend on nothing but what was
//! asked before.

use std::collections::BTreeSet;

use nearpage::Order;

/// The frames of a zone that name no block, as aligned blocks that are as large as can be.
#[derive(Debug)]
pub(super) struct Frames {
    free: [BTreeSet<u64>; Order::COUNT],
}

impl Frames {
    /// Of a range whose begin is aligned to the largest order.
    pub(super) fn new(first: u64, pages: u64) -> Frames {
        let mut frames = Frames { free: Default::default() };
        let (mut at, end) = (first, first + pages);
        while at < end {
            let room = (end - at).ilog2().min(at.trailing_zeros()).min(u32::from(Order::MAX.0));
            frames.free[room as usize].insert(at);
            at += 1 << room;
        }
        frames
    }

    /// A name for a block.
    pub(super) fn take(&mut self, order: Order) -> Option<u64> {
        let wanted = usize::from(order.0);
        let from = (wanted..Order::COUNT).find(|&order| !self.free[order].is_empty())?;
        let frame = self.free[from].pop_first()?;
        for half in wanted..from {
            self.free[half].insert(frame + (1 << half));
        }
        Some(frame)
    }

    /// The name is free again.
    pub(super) fn give(&mut self, mut frame: u64, order: Order) {
        let mut order = usize::from(order.0);
        while order + 1 < Order::COUNT && self.free[order].remove(&(frame ^ (1 << order))) {
            frame &= !(1 << order);
            order += 1;
        }
        self.free[order].insert(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_frame_names_two_blocks_and_all_come_back() {
        let seed = 0x5eed;
        let mut draws = fastrand::Rng::with_seed(seed);
        let mut frames = Frames::new(1 << 10, 5000);
        let mut taken: Vec<(u64, Order)> = Vec::new();
        let mut owner = vec![false; 5000];
        for _ in 0..20_000 {
            if draws.u8(..) < 140 {
                let order = Order(draws.u8(0..6));
                let Some(frame) = frames.take(order) else { continue };
                assert_eq!(frame % order.pages().0, 0, "seed {seed}");
                for page in frame..frame + order.pages().0 {
                    let of = &mut owner[(page - 1024) as usize];
                    assert!(!std::mem::replace(of, true), "seed {seed}");
                }
                taken.push((frame, order));
            } else if !taken.is_empty() {
                let (frame, order) = taken.swap_remove(draws.usize(..taken.len()));
                (frame..frame + order.pages().0)
                    .for_each(|page| owner[(page - 1024) as usize] = false);
                frames.give(frame, order);
            }
        }
        taken.drain(..).for_each(|(frame, order)| frames.give(frame, order));
        assert_eq!(frames.free, Frames::new(1 << 10, 5000).free);
    }

    #[test]
    fn the_lowest_name_comes_first() {
        let mut frames = Frames::new(1024, 2048);
        assert_eq!([frames.take(Order(0)), frames.take(Order(3))], [Some(1024), Some(1032)]);
        assert_eq!(Frames::new(1024, 3).take(Order(2)), None);
    }
}
