//! Lists of pageblocks, linked through what is kept of each: one for all rules, whatever their lists are for.
//!
//! A pageblock stands for itself by the number of one of its frames, which is always the same one: the zone's lists of loose
//! pages take the last frame, since a zone may begin within a pageblock; all others take the first. Who has a list has the
//! number of the pageblock that was linked last, its *head*, or [`NO_FRAME`].

use super::section::ZoneFrames;
use super::{ListEnd, NO_FRAME};

impl<'m> ZoneFrames<'m> {
    /// Links a pageblock, which is on no list, before the `head` of one: it is the head now.
    pub(crate) fn link_pageblock(&self, number: u32, head: u32) {
        let entry = self.pageblock_entry(number);
        entry.set_link(ListEnd::Head, head);
        entry.set_link(ListEnd::Tail, NO_FRAME);
        if head != NO_FRAME {
            self.pageblock_entry(head).set_link(ListEnd::Tail, number);
        }
    }

    /// Takes a pageblock out of the list that it is on. If it was the head, returns the new one, or [`NO_FRAME`].
    pub(crate) fn unlink_pageblock(&self, number: u32) -> Option<u32> {
        let entry = self.pageblock_entry(number);
        let (next, prev) = (entry.link(ListEnd::Head), entry.link(ListEnd::Tail));
        if next != NO_FRAME {
            self.pageblock_entry(next).set_link(ListEnd::Tail, prev);
        }
        if prev == NO_FRAME {
            return Some(next);
        }
        self.pageblock_entry(prev).set_link(ListEnd::Head, next);
        None
    }

    /// The pageblocks of the list whose head is `head`. Whoever is told one may take it out before asking for the next.
    pub(crate) fn pageblocks_from(&self, head: u32) -> impl Iterator<Item = u32> + use<'m> {
        let frames = *self;
        let told = |number: u32| (number != NO_FRAME).then_some(number);
        let next = move |number: &u32| told(frames.pageblock_entry(*number).link(ListEnd::Head));
        core::iter::successors(told(head), next)
    }

    /// The pageblock before one on its list, or [`NO_FRAME`].
    pub(crate) fn pageblock_before(&self, number: u32) -> u32 {
        self.pageblock_entry(number).link(ListEnd::Tail)
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use super::*;
    use crate::testing::random::Random;
    use crate::testing::sections::Sections;
    use crate::units::{Pfn, ZoneIndex};

    #[test]
    fn a_list_is_what_was_linked_and_not_taken_out() {
        let sections = Sections::new(2, |_| false);
        let table = sections.table();
        let frames = table.frames(Pfn(0), ZoneIndex(0));
        let mut random = Random(5);
        let (mut head, mut naive) = (NO_FRAME, Vec::<u32>::new());
        for _ in 0..5000 {
            let number = random.below(128) as u32 * 512;
            match naive.iter().position(|&listed| listed == number) {
                Some(at) => {
                    naive.remove(at);
                    let now = frames.unlink_pageblock(number);
                    assert_eq!(now.is_some(), at == 0);
                    head = now.unwrap_or(head);
                }
                None => {
                    frames.link_pageblock(number, head);
                    naive.insert(0, number);
                    head = number;
                }
            }
            assert!(frames.pageblocks_from(head).eq(naive.iter().copied()));
            let before = naive.iter().map(|&listed| frames.pageblock_before(listed));
            assert!(
                before.eq([NO_FRAME].into_iter().chain(naive.iter().copied()).take(naive.len()))
            );
        }
    }
}
