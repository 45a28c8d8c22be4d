//! The buddy against the naive model, block for block after every operation, and what the model
//! cannot say.

extern crate std;

use std::{env, format, println, string::String, vec, vec::Vec};

use super::state::frame_count;
use super::*;
use core::ops::Range;

use crate::frame::{FrameState, Migratetype, NO_FRAME, SectionMap, Word, ZoneFrames};
use crate::testing::naive_buddy::NaiveBuddy;
use crate::testing::random::Random;
use crate::testing::sections::Sections;
use crate::units::{
    MAX_ORDER, ORDERS, Order, PAGEBLOCK_ORDER, PageCount, Pfn, SECTION_FRAMES, ZoneIndex,
};

const ZONE: ZoneIndex = ZoneIndex(3);
const LINUX_6_12: FallbackRules =
    FallbackRules { model: FallbackModel::Linux6_12, held: HeldMovable::ByWord };
const LINUX_6_1: FallbackRules =
    FallbackRules { model: FallbackModel::Linux6_1, held: HeldMovable::ByWord };

/// A mistake for the canary: the model makes it, the buddy does not.
#[derive(Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// Freed blocks always go to the tail.
    AlwaysTail,
    /// Rules of the other kernel.
    OtherRules,
    /// To take several blocks at a time costs one operation less.
    CheapSteps,
}

/// A block in use: its first frame, its order.
type Held = (u32, Order);

/// A buddy and its model, in step.
struct Pair<'m> {
    frames: ZoneFrames<'m>,
    buddy: Buddy,
    naive: NaiveBuddy,
    held: Vec<Held>,
    /// Parts of the zone that are not online yet.
    offline: Vec<Range<u32>>,
    online: Vec<Range<u32>>,
    random: Random,
    planted: Planted,
}

impl Pair<'_> {
    fn new(map: SectionMap<'_>, seed: u64, planted: Planted) -> Pair<'_> {
        let mut random = Random(seed);
        // Near the end of the first section, and not aligned to anything.
        let start = SECTION_FRAMES as u64 - random.below(6000);
        let frames = ZoneFrames::new(map, Pfn(start), ZONE);
        let rules = FallbackRules {
            model: random.one_of(&[FallbackModel::Linux6_12, FallbackModel::Linux6_1]),
            held: random.one_of(&[HeldMovable::ByWord, HeldMovable::Never]),
        };
        let other = match rules.model {
            FallbackModel::Linux6_12 => LINUX_6_1,
            FallbackModel::Linux6_1 => LINUX_6_12,
        };
        let modelled = if planted == Planted::OtherRules { other } else { rules };
        let mut pair = Pair {
            frames,
            buddy: Buddy::new(rules),
            naive: NaiveBuddy::new(modelled, start),
            held: vec![],
            offline: shape(&mut random, start as u32),
            online: vec![],
            random,
            planted,
        };
        pair.surround_with_another_zone(map);
        pair.online();
        pair
    }

    /// Free blocks of another zone stand before this one and in its holes: none may merge.
    fn surround_with_another_zone(&mut self, map: SectionMap<'_>) {
        let lowest = self.offline.last().expect("a zone has memory").start;
        for number in lowest - 2048..lowest + 8192 {
            let pfn = self.frames.pfn(number).0;
            let is_ours = |range: &Range<u32>| range.contains(&number);
            let Some(frame) = map.get(Pfn(pfn)).filter(|_| !self.offline.iter().any(is_ours))
            else {
                continue;
            };
            let most = pfn.trailing_zeros().min(MAX_ORDER.0 as u32) as u64;
            let order = Order(self.random.below(most + 1) as u8);
            frame.set_word(Word::free(order, Migratetype::Movable, ZoneIndex(ZONE.0 + 1)));
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..35 => self.alloc(),
            35..42 => self.take(),
            42..80 => self.free(),
            80..87 => self.free_batch(),
            87..93 => self.free_run(),
            93..96 => self.retype(),
            96 => self.online(),
            _ => self.free_most(),
        }
    }

    fn request(&mut self) -> BlockRequest {
        let most = self.random.below(ORDERS as u64) + 1;
        let types = [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable];
        let migratetype = if self.random.one_in(40) {
            Migratetype::HighAtomic
        } else {
            self.random.one_of(&types)
        };
        let avoided = self.random.one_in(5);
        BlockRequest {
            order: Order(self.random.below(most) as u8),
            migratetype,
            fragmentation: if avoided { Fragmentation::Avoided } else { Fragmentation::Allowed },
        }
    }

    fn alloc(&mut self) {
        let request = self.request();
        let got = self.buddy.alloc(self.frames, request);
        let expected = self.naive.take(request, 1);
        assert_eq!(got.map(|number| self.frames.pfn(number).0), expected.first().copied());
        self.hold(&expected, request);
    }

    fn take(&mut self) {
        let request = self.request();
        let blocks = self.random.below(300) as u32;
        let max_runs = self.random.below(12) as u32;
        let mut got = vec![];
        let mut runs = 0;
        let taken = self.buddy.take(
            self.frames,
            request,
            &mut Search::Own,
            blocks,
            max_runs,
            |first, count| {
                let pages = frame_count(request.order);
                got.extend((0..count).map(|at| self.frames.pfn(first + at * pages).0));
                runs += 1;
            },
        );
        assert!(runs <= max_runs && taken <= blocks && got.len() == taken as usize);
        let asked = if runs == max_runs { taken } else { blocks };
        let expected = self.naive.take(request, asked);
        assert_eq!(got, expected);
        if self.planted == Planted::CheapSteps && expected.len() > 1 {
            self.naive.operations -= 1;
        }
        self.hold(&expected, request);
    }

    fn hold(&mut self, taken: &[u64], request: BlockRequest) {
        for &pfn in taken {
            let number = self.frames.number(Pfn(pfn));
            let frame = self.frames.frame(number);
            assert_ne!(frame.word().state(), FrameState::Free, "a taken block is still listed");
            frame.set_word(Word::allocated(request.order, request.migratetype, ZONE));
            self.naive.in_use.insert(pfn, (request.order.0, request.migratetype));
            self.held.push((number, request.order));
        }
    }

    /// Lets a held block go: the word says that it is nobody's.
    fn let_go(&mut self, at: usize) -> Held {
        let (number, order) = self.held.swap_remove(at);
        self.frames.frame(number).set_word(Word::cached(order, ZONE));
        self.naive.in_use.remove(&self.frames.pfn(number).0);
        (number, order)
    }

    fn free(&mut self) {
        if !self.held.is_empty() {
            let at = self.random.below(self.held.len() as u64) as usize;
            let (number, order) = self.let_go(at);
            let placement = if self.random.one_in(10) { Insertion::Tail } else { Insertion::Usual };
            self.buddy.free(self.frames, number, order, placement);
            self.model_free(number, order, placement);
        }
    }

    fn model_free(&mut self, number: u32, order: Order, placement: Insertion) {
        let wrong = self.planted == Planted::AlwaysTail;
        let placement = if wrong { Insertion::Tail } else { placement };
        self.naive.free(self.frames.pfn(number).0, order.0, placement);
    }

    /// Frees blocks of one order, in an order that has runs upward, downward, and none.
    fn free_batch(&mut self) {
        let Some(&(_, order)) = self.held.last() else { return };
        if order > PAGEBLOCK_ORDER {
            return;
        }
        let mut numbers = vec![];
        for at in (0..self.held.len()).rev() {
            if self.held[at].1 == order && numbers.len() < 100 && !self.random.one_in(10) {
                numbers.push(self.let_go(at).0);
            }
        }
        match self.random.below(4) {
            0 => {}
            1 => numbers.sort_unstable(),
            2 => numbers.sort_unstable_by_key(|&number| u32::MAX - number),
            _ => {
                numbers.sort_unstable();
                let middle = self.random.below(numbers.len() as u64 + 1) as usize;
                numbers[middle..].reverse();
            }
        }
        self.buddy.free_batch(self.frames, &numbers, order);
        for number in numbers {
            self.model_free(number, order, Insertion::Usual);
        }
    }

    /// Frees the longest run of held pages upward from one of them.
    /// As blocks of one order, or page by page.
    fn free_run(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let (first, order) = self.random.one_of(&self.held);
        let of_one_order = order <= PAGEBLOCK_ORDER && self.random.one_in(2);
        let fits = |held: &Held, end| held.0 == end && (!of_one_order || held.1 == order);
        let mut end = first;
        while let Some(at) = self.held.iter().position(|held| fits(held, end)) {
            end += frame_count(self.let_go(at).1);
        }
        let of = if of_one_order { order } else { Order(0) };
        self.buddy.free_run(self.frames, first, of, (end - first) >> of.0);
        for block in (first..end).step_by(frame_count(of) as usize) {
            self.model_free(block, of, Insertion::Usual);
        }
    }

    fn free_most(&mut self) {
        while self.held.len() > 8 {
            self.free();
        }
    }

    fn retype(&mut self) {
        let range = self.random.below(self.online.len() as u64) as usize;
        let Range { start, end } = self.online[range];
        let number = start + self.random.below((end - start) as u64) as u32;
        let to = self.random.one_of(&Migratetype::ALL);
        let moved = self.buddy.retype_pageblock(self.frames, number, to);
        let expected = self.naive.retype(self.frames.pfn(number).0, to);
        assert_eq!(moved.map(|pages| pages.0), expected);
    }

    /// Brings the next part online; the zone may span more than what is online.
    fn online(&mut self) {
        if let Some(range) = self.offline.pop() {
            let end = range.end + self.random.below(600) as u32;
            self.buddy.set_end(end);
            self.naive.span.end = self.naive.span.end.max(self.frames.pfn(end).0);
            self.buddy.online(self.frames, range.clone());
            self.naive.online(self.frames.pfn(range.start).0..self.frames.pfn(range.end).0);
            self.online.push(range);
            // Of memory that comes whole blocks are listed at once.
            self.buddy.take_operations();
            self.naive.operations = 0;
        }
    }

    fn compare(&mut self) -> Result<(), String> {
        for (order, types) in self.naive.lists.iter().enumerate() {
            for migratetype in Migratetype::ALL {
                let order = Order(order as u8);
                let expected = &types[migratetype.index()];
                let numbers = self.buddy.list(self.frames, order, migratetype);
                let found = numbers.map(|number| self.frames.pfn(number).0);
                let blocks = self.buddy.blocks(order, migratetype) as usize;
                if !found.eq(expected.iter().copied()) || blocks != expected.len() {
                    let name = migratetype.name();
                    return Err(format!("list {order} {name}: should be {expected:?}"));
                }
            }
        }
        let free_pages = self.buddy.free_pages().0;
        let claims_tried = self.buddy.drain_claims_tried();
        let expected = (self.naive.free_pages(), core::mem::take(&mut self.naive.claims_tried));
        if (free_pages, claims_tried) != expected {
            return Err(format!(
                "{free_pages} free, {claims_tried} claims, should be {expected:?}"
            ));
        }
        let operations = self.buddy.take_operations();
        let expected = core::mem::take(&mut self.naive.operations);
        if operations != expected {
            return Err(format!("{operations} operations, should be {expected}"));
        }
        for (&pageblock, &expected) in &self.naive.pageblocks {
            let pfn = Pfn(pageblock * 512).max(self.frames.pfn(self.frames.first()));
            let found = self.frames.pageblock(self.frames.number(pfn));
            if found != expected {
                return Err(format!("pageblock {pageblock}: {found:?}, should be {expected:?}"));
            }
        }
        self.buddy.check(self.frames).map_err(|error| format!("{error}"))
    }
}

/// A few ranges with holes between, in frame numbers, lowest last. They reach over two sections, or
/// over a missing one.
fn shape(random: &mut Random, start: u32) -> Vec<Range<u32>> {
    let mut ranges = vec![];
    let mut at = start + random.below(2) as u32 * random.below(700) as u32;
    for _ in 0..=random.below(5) {
        let end = at + 1 + random.below(2600) as u32;
        ranges.push(at..end);
        at = end + random.below(2) as u32 * random.below(1500) as u32;
    }
    if random.one_in(3) {
        let section_start = (MISSING_SECTION + 1) * SECTION_FRAMES;
        let first = section_start as u32 + random.below(1000) as u32;
        ranges.push(first..first + 1 + random.below(3000) as u32);
    }
    ranges.reverse();
    ranges
}

const MISSING_SECTION: usize = 2;

/// Runs one random zone and returns the first difference from the model.
fn run(seed: u64, steps: u32, planted: Planted) -> Result<(), String> {
    let sections = Sections::new(MISSING_SECTION + 2, |at| at == MISSING_SECTION);
    let table = sections.table();
    let mut pair = Pair::new(table.map(), seed, planted);
    for step in 0..steps {
        pair.step();
        pair.compare().map_err(|error| format!("step {step}: {error}"))?;
    }
    Ok(())
}

/// Prints how to run the failing seed again.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("replay: NEARPAGE_SEED={} cargo test -p nearpage buddy::tests::model", self.0);
        }
    }
}

/// Random zones of all shapes under both rules. `NEARPAGE_SEED` runs one seed alone.
#[test]
fn model_and_buddy_agree_after_every_operation() {
    let one = env::var("NEARPAGE_SEED").ok().map(|seed| seed.parse().expect("a seed is a number"));
    for seed in one.map_or(0..400, |seed: u64| seed..seed + 1) {
        let replay = Replay(seed);
        run(seed, 2500, Planted::Nothing).unwrap();
        drop(replay);
    }
}

/// The comparison above is worth something: it finds planted mistakes, with nearly every seed.
#[test]
fn canary_planted_mistakes_are_found() {
    for planted in [Planted::AlwaysTail, Planted::OtherRules, Planted::CheapSteps] {
        let missed = |&seed: &u64| {
            // A mistake shows as a difference, or as an assertion on the way.
            std::panic::catch_unwind(|| run(seed, 2500, planted)).is_ok_and(|end| end.is_ok())
        };
        assert_eq!((0..20).filter(missed).count(), 0, "a planted mistake went unnoticed");
    }
}

/// A zone of whole blocks of the highest order, and one in use.
fn zone_of_blocks(map: SectionMap<'_>, blocks: u32) -> (Buddy, ZoneFrames<'_>) {
    let frames = ZoneFrames::new(map, Pfn(0), ZONE);
    let mut buddy = Buddy::new(LINUX_6_12);
    buddy.online(frames, 0..blocks << MAX_ORDER.0);
    (buddy, frames)
}

fn request(order: u8, migratetype: Migratetype) -> BlockRequest {
    BlockRequest { order: Order(order), migratetype, fragmentation: Fragmentation::Allowed }
}

#[test]
fn memory_is_online_in_no_time_and_untouched() {
    // 64 GiB, of which only the first section exists: touching another would panic.
    let sections = Sections::new(512, |at| at > 0);
    let table = sections.table();
    let (mut buddy, frames) = zone_of_blocks(table.map(), 16 * 1024);
    assert_eq!(buddy.free_pages(), PageCount(16 << 20));
    assert_eq!(buddy.blocks(MAX_ORDER, Migratetype::Movable), 16 * 1024);
    assert_eq!(buddy.largest_available_order(), Some(MAX_ORDER));
    let heads = buddy.list(frames, MAX_ORDER, Migratetype::Movable);
    assert!(heads.eq((0..16 * 1024).map(|block| block << MAX_ORDER.0)));

    let mut runs = vec![];
    let movable = request(0, Migratetype::Movable);
    let taken = buddy.take(frames, movable, &mut Search::Own, 3000, 8, |first, blocks| {
        runs.push((first, blocks))
    });
    assert_eq!((taken, runs), (3000, vec![(0, 1024), (1024, 1024), (2048, 952)]));
    let touched = |number: &u32| frames.frame(*number).word() != Word::BLANK;
    let heads_of_the_rest = [3000, 3008];
    assert!((0..SECTION_FRAMES as u32).filter(touched).eq(heads_of_the_rest));
    assert_eq!(buddy.free_pages(), PageCount((16 << 20) - 3000));
}

#[test]
fn taking_stops_after_the_runs_that_were_allowed() {
    let sections = Sections::new(1, |_| false);
    let table = sections.table();
    let (mut buddy, frames) = zone_of_blocks(table.map(), 4);
    let mut runs = vec![];
    let order_3 = request(3, Migratetype::Movable);
    assert_eq!(
        buddy.take(frames, order_3, &mut Search::Own, 1000, 2, |first, n| runs.push((first, n))),
        256
    );
    assert_eq!(runs, [(0, 128), (1024, 128)]);
    assert_eq!(
        buddy.take(frames, order_3, &mut Search::Own, 1000, 9, |_, _| {}),
        256,
        "all that is left"
    );
    assert_eq!(buddy.take(frames, order_3, &mut Search::Own, 1, 1, |_, _| {}), 0);
    assert_eq!((buddy.free_pages(), buddy.largest_available_order()), (PageCount(0), None));
}

#[test]
#[should_panic(expected = "freed twice")]
fn a_free_block_is_not_freed_again() {
    let sections = Sections::new(1, |_| false);
    let table = sections.table();
    let (mut buddy, frames) = zone_of_blocks(table.map(), 1);
    let number = buddy.alloc(frames, request(0, Migratetype::Movable)).expect("there is memory");
    buddy.free(frames, number + 1, Order(0), Insertion::Usual);
}

/// The free blocks of one type, `order[first,...]` as the recordings write them.
fn text(buddy: &Buddy, frames: ZoneFrames<'_>, migratetype: Migratetype) -> String {
    let mut lists = vec![];
    for order in (0..MAX_ORDER.0).map(Order) {
        let numbers = buddy.list(frames, order, migratetype).map(|number| format!("{number}"));
        let numbers: Vec<String> = numbers.collect();
        if !numbers.is_empty() {
            lists.push(format!("{order}[{}]", numbers.join(",")));
        }
    }
    lists.join(" ")
}

/// Recorded on 6.1.192 and 6.12.95: twice 64 pages of a movable block are free, then reclaimable,
/// unmovable and movable pages are asked for in turn. The last finds nothing of its own.
#[test]
fn recorded_kernels_fall_back_differently() {
    use Migratetype::{Movable, Reclaimable, Unmovable};
    let rest_of_1 = "1[514] 2[516] 3[520] 4[528] 5[544]";
    let rest_of_0 = "1[2] 2[4] 3[8] 4[16] 5[32]";
    let of_514 = "0[515] 2[516] 3[520] 4[528] 5[544]";
    for (model, movable, reclaimable) in
        [(FallbackModel::Linux6_1, of_514, ""), (FallbackModel::Linux6_12, "", of_514)]
    {
        let sections = Sections::new(1, |_| false);
        let table = sections.table();
        let frames = table.frames(Pfn(0), ZONE);
        let mut buddy = Buddy::new(FallbackRules { model, held: HeldMovable::Never });
        buddy.online(frames, 0..1024);
        let whole = buddy.alloc(frames, request(10, Movable));
        assert_eq!(whole, Some(0));
        for page in (0..64).chain(512..576) {
            buddy.free(frames, page, Order(0), Insertion::Usual);
        }
        assert_eq!(text(&buddy, frames, Movable), "6[512,0]");
        let asked = [Reclaimable, Unmovable, Reclaimable, Unmovable];
        let got = asked.map(|migratetype| buddy.alloc(frames, request(0, migratetype)));
        assert_eq!(got, [512, 0, 513, 1].map(Some));
        let lists = [Unmovable, Movable, Reclaimable].map(|of| text(&buddy, frames, of));
        assert_eq!(lists, [rest_of_0, "", rest_of_1]);
        assert_eq!(buddy.alloc(frames, request(0, Movable)), Some(514));
        let lists = [Unmovable, Movable, Reclaimable].map(|of| text(&buddy, frames, of));
        assert_eq!(lists, [rest_of_0, movable, reclaimable], "{model:?}");
        assert_eq!([frames.pageblock(0), frames.pageblock(512)], [Unmovable, Reclaimable]);
        assert_eq!(buddy.fallbacks(), 3, "{model:?}");
        buddy.check(frames).unwrap();
    }
}

/// Each thing that the walker looks at, broken in turn.
#[test]
fn the_walker_finds_what_is_broken() {
    let broken = |breakage: fn(&mut Buddy, ZoneFrames<'_>)| {
        let sections = Sections::new(1, |_| false);
        let table = sections.table();
        let (mut buddy, frames) = zone_of_blocks(table.map(), 2);
        let first = buddy.alloc(frames, request(10, Migratetype::Movable));
        assert_eq!(first, Some(0));
        for page in [0, 2, 4, 512] {
            buddy.free(frames, page, Order(0), Insertion::Usual);
        }
        assert_eq!(buddy.check(frames), Ok(()));
        breakage(&mut buddy, frames);
        buddy.check(frames).expect_err("it is broken")
    };
    let order = Order(0);
    let movable = Migratetype::Movable;
    let free = |order| Word::free(order, Migratetype::Movable, ZONE);
    assert_eq!(
        broken(|_, frames| frames.frame(2).set_prev(0)),
        BuddyError::Link { number: 2, expected: 4, found: 0 }
    );
    assert_eq!(
        broken(|_, frames| frames.frame(2).set_word(Word::BLANK)),
        BuddyError::Word { number: 2, found: Word::BLANK }
    );
    assert_eq!(
        broken(|_, frames| frames.frame(1024).set_word(Word::free(
            MAX_ORDER,
            Migratetype::Movable,
            ZONE
        ))),
        BuddyError::Word { number: 1024, found: free(MAX_ORDER) }
    );
    assert_eq!(
        broken(|_, frames| frames.frame(2).set_next(NO_FRAME)),
        BuddyError::Count { order, migratetype: movable, expected: 4, found: 3 }
    );
    assert_eq!(
        broken(|_, frames| frames.frame(5).set_word(Word::free(
            Order(0),
            Migratetype::Movable,
            ZONE
        ))),
        BuddyError::Unmerged { number: 4, order }
    );
    assert_eq!(
        broken(|_, frames| frames.set_pageblock(512, Migratetype::Unmovable)),
        BuddyError::Pageblock { number: 512, listed: movable, pageblock: Migratetype::Unmovable }
    );
    assert_eq!(
        broken(|buddy, _| buddy.free_pages += 1),
        BuddyError::FreePages { expected: PageCount(1029), found: PageCount(1028) }
    );
}
