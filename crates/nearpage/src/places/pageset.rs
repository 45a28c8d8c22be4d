//! A pageset under nearpage's own rules: lists that are short, and a quota.

use super::size::{COLD_MAX, QuotaSize};
use crate::frame::Word;
use crate::host::Platform;
use crate::pcp::pageset::{Pageset, Totals};
use crate::pcp::{COLD, CountedList, Storage, list_index, list_order};
use crate::rule_set::HasMaps;
use crate::sync::Ordering;
use crate::units::Order;

impl<P: Platform<Rules: HasMaps>> Pageset<'_, P> {
    /// The list that takes a block whose word was `held`, under nearpage's own rules: the one that blocks of its order and type
    /// come from, but for single pages that it did not give in its last refills.
    #[inline]
    pub(crate) fn list_of_freed(&self, held: Word, order: Order) -> Option<usize> {
        // What came out of the reserve goes back there.
        let of = Some(held.migratetype()).filter(|of| of.is_mergeable())?;
        let list = list_index(order, of)?;
        let word = self.held_word(list);
        let is_hot = order > Order(0) || held == word || held == word.with_last_tag();
        Some(if is_hot { list } else { COLD })
    }

    /// From now on, blocks from list `index` are told apart from those that it gave before.
    pub(crate) fn begin_tag(&self, index: usize) {
        let word = self.held_word(index).with_next_tag();
        self.held_words()[index].store(word.bits(), Ordering::Relaxed);
    }

    /// The most blocks that a list holds.
    pub(crate) fn limit_of(&self, index: usize, size: QuotaSize) -> u32 {
        if index == COLD { COLD_MAX } else { size.list_limit(list_order(index)) }
    }

    /// Gives the lists the limits that follow from how much may be kept; nothing while they are closed.
    pub(crate) fn set_limits(&self, size: QuotaSize) {
        if P::Storage::EXACT || self.zone().is_over_limit() {
            return;
        }
        for (index, list) in self.lists().enumerate() {
            list.set_limit(self.limit_of(index, size));
        }
        // A limit may have come meanwhile.
        if self.zone().is_over_limit() {
            self.close();
        }
    }

    pub(crate) fn add_quota_to(&self, totals: &mut Totals) {
        let (quota, events) = (self.quota(), self.events());
        totals.count = self.count();
        let past_lists = quota.pages_put.get().wrapping_sub(quota.pages_listed.get());
        totals.freed_pages = totals.freed_pages.wrapping_add(past_lists);
        totals.allocs = totals.allocs.wrapping_add(events.given_blocks.get());
        totals.alloc_pages = totals.alloc_pages.wrapping_add(events.given_pages.get());
    }
}
