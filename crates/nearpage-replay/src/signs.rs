//! Whether the next blocks of a list look like those of a refill.
//!
//! A refill takes the smallest free blocks first, each from its lower end, and how many there are of each order is known.
//! So what a refill brings has a profile: 4 single pages, 2 pairs, a piece of 4, then pieces of 8, if these are what is
//! free. What a list held before has another one: pages that tasks freed. Both are compared over the next blocks.

use nearpage::Order;

use crate::first_seen::Sequence;

/// Blocks that are looked at.
const WINDOW: usize = 128;
/// Sizes of pieces, as powers of two.
const SIZES: usize = 11;
/// The second of an odd pair: [`Sequence::is_odd`].
const ODD: usize = SIZES;
/// How often pieces of each class are found in lists that tasks freed to. Per cent.
const USUAL: [f64; SIZES + 1] = [55.0, 15.0, 7.0, 4.0, 3.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 7.0];
/// So many blocks before and behind a place may have its class: others took or freed a few.
const NEAR: usize = 8;
/// How often they do.
const BESIDE: f64 = 0.4;
/// What of the blocks of a refill does not fit: others may have freed or taken some.
const MISFIT: f64 = 0.03;
/// How much likelier (the logarithm) a refill begins where another one ended within a free block.
const CUT: f64 = 4.0;
/// Blocks in a row of which such an end tells.
const CUT_RUN: usize = 16;
/// Odd pairs in refills: one half was freed after the other was taken.
const ODD_IN_REFILL: f64 = 0.003;
/// How many blocks the usual frequencies weigh as much as.
const USUAL_WEIGHT: f64 = 4.0;

/// The pieces that the blocks of a sequence came in.
#[derive(Clone, Debug, Default)]
pub struct Signs {
    pieces: Vec<Piece>,
    order: Order,
    /// Pieces before the place that was last asked for, of each class.
    seen: [f64; SIZES + 1],
    passed: usize,
}

/// How likely each class is at each place of a refill.
type Profile = [[f64; SIZES + 1]; WINDOW];

/// Blocks that came one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    /// The place of the first of them.
    place: usize,
    /// Their number, as a power of two; or [`ODD`], for one that is the second of a pair.
    class: usize,
    /// Whether the blocks before it end within a free block that they were taken from: there a refill ended.
    is_after_cut: bool,
    /// Whether it goes on where the blocks before it end.
    goes_on: bool,
}

impl Signs {
    /// The signs of a list of blocks of `order`.
    pub fn new(sequence: &Sequence, order: Order) -> Signs {
        let pieces = pieces(sequence, order);
        Signs { pieces, order, seen: [0.0; SIZES + 1], passed: 0 }
    }

    /// How much likelier it is that a refill begins at `place` than that the list goes on: the logarithm of the ratio;
    /// `None` if it rather begins a little later. `free` are the blocks of each order that are free for the list. Places
    /// are asked for in ascending order.
    pub fn refill_at(&mut self, place: usize, free: &[u64; Order::COUNT]) -> Option<f64> {
        while let Some(piece) = self.pieces.get(self.passed).filter(|piece| piece.place < place) {
            self.seen[piece.class] += 1.0;
            self.passed += 1;
        }
        let fresh = self.of_refill(free);
        let value =
            self.value(self.passed, place, place + WINDOW, &fresh).filter(|value| *value > 0.0)?;
        let later = (self.passed + 1..self.pieces.len())
            .map(|at| (at, self.pieces[at].place))
            .take_while(|(_, from)| *from < place + WINDOW);
        let is_best = later
            .filter_map(|(at, from)| self.value(at, from, place + WINDOW, &fresh))
            .all(|later| later <= value);
        is_best.then_some(value)
    }

    /// Whether a block goes on where the one before it ends.
    pub fn goes_on(&self, place: usize) -> bool {
        self.piece(place).is_some_and(|piece| piece.goes_on || piece.place < place)
    }

    /// Whether a refill ended before a block, within the free block that it took from.
    pub fn is_after_cut(&self, place: usize) -> bool {
        self.piece(place).is_some_and(|piece| piece.is_after_cut && piece.place == place)
    }

    /// The piece that a block came in.
    fn piece(&self, place: usize) -> Option<Piece> {
        let after = self.pieces.partition_point(|piece| piece.place <= place);
        after.checked_sub(1).map(|at| self.pieces[at])
    }

    /// The likeliest place from `from` to `to` for a refill to begin, and how likely it is, as
    /// [`refill_at`](Self::refill_at).
    pub fn best_between(
        &self,
        from: usize,
        to: usize,
        free: &[u64; Order::COUNT],
    ) -> Option<(usize, f64)> {
        let fresh = self.of_refill(free);
        let first = self.pieces.partition_point(|piece| piece.place < from);
        let places =
            self.pieces[first..].iter().map(|piece| piece.place).take_while(|at| *at <= to);
        places
            .enumerate()
            .filter_map(|(at, place)| {
                Some((place, self.value(first + at, place, place + WINDOW, &fresh)?))
            })
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The same for the blocks up to `end` alone.
    fn value(&self, first: usize, place: usize, end: usize, fresh: &Profile) -> Option<f64> {
        if self.pieces.get(first)?.place != place {
            return None;
        }
        let usual = |class: usize| USUAL[class] / 100.0;
        // The list goes on as it did, or in a way of its own: as what an earlier refill left.
        let mut counts = [self.seen, [0.0; SIZES + 1]];
        let mut alls = [self.passed as f64, 0.0];
        let mut refilled = match self.pieces[first] {
            Piece { is_after_cut: true, .. } => CUT,
            Piece { goes_on: true, .. } => -CUT,
            _ => 0.0,
        };
        let mut old = [0.5_f64.ln(); 2];
        for piece in &self.pieces[first..] {
            if piece.place >= end {
                break;
            }
            let Some(fresh) = fresh.get(piece.place - place) else { break };
            refilled += fresh[piece.class].ln();
            for (way, old) in old.iter_mut().enumerate() {
                let known = counts[way][piece.class] + USUAL_WEIGHT * usual(piece.class);
                *old += (known / (alls[way] + USUAL_WEIGHT)).ln();
                counts[way][piece.class] += 1.0;
                alls[way] += 1.0;
            }
        }
        let most = old[0].max(old[1]);
        let old = most + old.iter().map(|old| (old - most).exp()).sum::<f64>().ln();
        Some(refilled - old)
    }

    /// How likely each class is at each of the next blocks of a refill.
    fn of_refill(&self, free: &[u64; Order::COUNT]) -> Profile {
        // What is not free for the list comes from other types, the largest block first.
        let mut classes = [Order::COUNT - 1 - self.order.0 as usize; WINDOW + NEAR];
        let mut filled = 0;
        for (size, &blocks) in free[self.order.0 as usize..].iter().enumerate() {
            let taken = (blocks << size).min((classes.len() - filled) as u64) as usize;
            classes[filled..filled + taken].fill(size);
            filled += taken;
        }
        let all: f64 = USUAL[..SIZES].iter().sum();
        std::array::from_fn(|at| {
            let near = &classes[at.saturating_sub(NEAR)..=at + NEAR - 1];
            let mut share = [0.0; SIZES + 1];
            for &class in near {
                share[class] += BESIDE / near.len() as f64;
            }
            share[classes[at]] += 1.0 - BESIDE - MISFIT;
            for (class, share) in share[..SIZES].iter_mut().enumerate() {
                *share = (*share + MISFIT * USUAL[class] / all) * (1.0 - ODD_IN_REFILL);
            }
            share[ODD] = ODD_IN_REFILL;
            share
        })
    }
}

/// Cuts a sequence into pieces: aligned, their blocks in ascending order.
fn pieces(sequence: &Sequence, order: Order) -> Vec<Piece> {
    let (mut pieces, mut place) = (Vec::new(), 0);
    // Where the run of blocks began that goes on here, and the block that would go on with it.
    let (mut run_from, mut goes_on_at) = (0, None);
    while let Some((&first, rest)) = sequence.frames[place..].split_first() {
        let number = first >> order.0;
        let goes_on = |(at, frame): &(usize, &u64)| {
            **frame >> order.0 == number + 1 + *at as u64 && !sequence.is_odd[place + 1 + at]
        };
        let run = 1 + rest.iter().enumerate().take_while(goes_on).count();
        let size = run.ilog2().min(number.trailing_zeros()).min(SIZES as u32 - 1);
        let class = if sequence.is_odd[place] { ODD } else { size as usize };
        let mut is_after_cut = false;
        let goes_on = goes_on_at == Some(number);
        if !goes_on {
            let length = place - run_from;
            let ends_at = goes_on_at.unwrap_or(0_u64).trailing_zeros();
            is_after_cut = length >= CUT_RUN && ends_at < length.ilog2() - 1;
            run_from = place;
        }
        pieces.push(Piece { place, class, is_after_cut, goes_on });
        let length = if class == ODD { 1 } else { 1 << size };
        place += length;
        goes_on_at = Some(number + length as u64);
    }
    pieces
}
