//! What is lent to the host: each page once, until somebody has had it again.

use nearpage::testing::machine::TestMachine;
use nearpage::testing::plain::PlainPlatform;
use nearpage::{Config, Gfp, Lending, Order, PageAllocator, Pfn, PfnRange, Request, ZoneIndex};

/// Lends all that there is; ranges and touched pages.
fn lend(allocator: &PageAllocator<'_, PlainPlatform>, lending: Lending) -> Vec<(u64, u64, u64)> {
    let span = allocator.zones()[0].span();
    let mut from = span.start;
    std::iter::from_fn(|| {
        let rest = PfnRange { start: from, end: span.end };
        let lent = allocator.lend_free_pages(ZoneIndex(0), rest, lending)?;
        let (range, start) = (lent.range(), span.start.0);
        from = range.end;
        Some((range.start.0 - start, range.end.0 - start, lent.touched().0))
    })
    .collect()
}

fn touched(lent: &[(u64, u64, u64)]) -> u64 {
    lent.iter().map(|(.., touched)| touched).sum()
}

fn take(allocator: &PageAllocator<'_, PlainPlatform>, order: u8) -> Pfn {
    allocator.alloc(Request::new(Order(order), Gfp::HIGHUSER_MOVABLE)).unwrap()
}

fn give(allocator: &PageAllocator<'_, PlainPlatform>, blocks: &[Pfn], order: u8) {
    blocks.iter().for_each(|&block| allocator.free(block, Order(order)).unwrap());
    allocator.drain_all().unwrap();
}

fn run(test: impl FnOnce(&PageAllocator<'_, PlainPlatform>)) {
    TestMachine::new().node(0, 65_536, &[0]).config(Config::default()).run(test);
}

#[test]
fn pages_are_lent_once_until_somebody_has_them_again() {
    run(|allocator| {
        assert_eq!(lend(allocator, Lending::default()), [], "nobody had any");
        // A page stays, so that the pageblock is not whole.
        let pages: Vec<Pfn> = (0..40).map(|_| take(allocator, 0)).collect();
        give(allocator, &pages[8..24], 0);
        assert_eq!(touched(&lend(allocator, Lending::default())), 16);
        assert_eq!(lend(allocator, Lending::default()), []);
        let again = take(allocator, 0);
        give(allocator, &[again], 0);
        let one = again.0 - allocator.zones()[0].span().start.0;
        assert_eq!(lend(allocator, Lending::default()), [(one, one + 1, 1)]);
        allocator.check().unwrap();
    });
}

/// Only the word of its head says that somebody had a block, until it lies in a map; then the words of all its pages do.
#[test]
fn all_pages_of_a_block_are_lent() {
    for order in 1..=8 {
        run(|allocator| {
            let (kept, block) = (take(allocator, 0), take(allocator, order));
            give(allocator, &[block], order);
            // Whoever has its head next is not the one who had the rest.
            let lent = touched(&lend(allocator, Lending::default()));
            assert_eq!(lent, 1 << order, "of order {order}");
            give(allocator, &[kept], 0);
            assert_eq!(lend(allocator, Lending::default()).len(), 1);
        });
    }
}

#[test]
fn a_pageblock_that_was_one_block_is_touched_when_its_pages_are_taken() {
    run(|allocator| {
        let block = take(allocator, 9);
        give(allocator, &[block], 9);
        // One after the other is opened: this one's turn comes.
        let is_there = |page: &Pfn| (block.0..block.0 + 512).contains(&page.0);
        let pages = std::iter::from_fn(|| Some(take(allocator, 0)));
        let _held: Vec<Pfn> = pages.take_while(|page| !is_there(page)).collect();
        give(allocator, &[], 0);
        let start = allocator.zones()[0].span().start.0;
        let mut lent = lend(allocator, Lending::default());
        lent.retain(|(first, ..)| is_there(&Pfn(first + start)));
        assert_eq!(touched(&lent), 511);
    });
}

#[test]
fn what_is_young_is_lent_by_the_next_turn() {
    run(|allocator| {
        let turn = |turn| Lending { turn: Some(turn), ..Lending::default() };
        let pages: Vec<Pfn> = (0..64).map(|_| take(allocator, 0)).collect();
        give(allocator, &pages[..16], 0);
        assert_eq!(lend(allocator, turn(1)), []);
        assert_eq!(lend(allocator, turn(1)), [], "the same turn again");
        give(allocator, &pages[16..32], 0);
        let lent = lend(allocator, turn(2));
        assert_eq!(touched(&lent), 16);
        assert_eq!(touched(&lend(allocator, turn(3))), 16);
        let block = take(allocator, 10);
        give(allocator, &[block], 10);
        assert_eq!(lend(allocator, turn(4)), []);
        assert_eq!(touched(&lend(allocator, turn(5))), 1024);
    });
}

#[test]
fn pieces_are_aligned_and_whole() {
    run(|allocator| {
        let pages: Vec<Pfn> = (0..64).map(|_| take(allocator, 0)).collect();
        let is_kept = |page: &Pfn| page.0 % 16 == 5 && page.0 % 64 < 32;
        let given: Vec<Pfn> = pages.iter().copied().filter(|page| !is_kept(page)).collect();
        give(allocator, &given, 0);
        let unit = |order| Lending { unit: Order(order), ..Lending::default() };
        for (start, end, _) in lend(allocator, unit(4)) {
            let held =
                |page: &Pfn| (start..end).contains(&(page.0 - allocator.zones()[0].span().start.0));
            assert!(start % 16 == 0 && end % 16 == 0);
            assert!(!pages.iter().filter(|page| is_kept(page)).any(held));
        }
        assert_eq!(lend(allocator, unit(9)), [], "no pageblock is whole");
        let rest = touched(&lend(allocator, unit(0)));
        assert!(rest >= 15, "beside those that are kept");
    });
}
