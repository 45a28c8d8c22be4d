//! What the core's lists hold at the end of a replay beside what the kernel's held, list by list.

use std::collections::HashSet;
use std::ops::ControlFlow;

use nearpage::rules::pagesets::{LISTS, list_order};
use nearpage::{Migratetype, Order};
use serde::Serialize;

use crate::kernel_state::{Gap, KernelState};
use crate::machine::{Core, type_of_list};
use crate::start::StartZone;

/// Rows that are told of each kind of lists, those that differ most first.
const ROWS_MOST: usize = 100;

/// The kernel's own state at the end of a recording, and the core's at the same moment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct StateEnd {
    /// What was applied to the kernel's.
    pub gap: Gap,
    /// Lists of pagesets.
    pub pagesets: ListsCompared,
    /// Free lists.
    pub free_lists: ListsCompared,
    /// Figures of pagesets that differ.
    pub tuning: Vec<FigureRow>,
    /// How many figures of pagesets were compared.
    pub tuning_compared: u64,
}

/// Lists of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ListsCompared {
    /// Lists that hold something on either side.
    pub lists: u64,
    /// Of those, ones with the same blocks in the same order.
    pub same: u64,
    /// Pages in the kernel's.
    pub recorded_pages: u64,
    /// Pages in the core's.
    pub predicted_pages: u64,
    /// Pages by which each list is longer or shorter, summed up.
    pub differing_pages: u64,
    /// Pages by which each of the kernel's is longer or shorter than it was at the start, summed up.
    pub moved_pages: u64,
    /// Pages of the kernel's that are in the same list of the core's.
    pub pages_in_place: u64,
    /// Lists that differ, at most 100, those that differ most first.
    pub rows: Vec<ListRow>,
}

/// A list that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct ListRow {
    /// `cpu C node N zone Z order O Type`, of free lists without a CPU.
    #[serde(rename = "where")]
    pub place: String,
    /// Blocks in the kernel's.
    pub recorded: u64,
    /// Blocks in the core's.
    pub predicted: u64,
    /// Blocks in both.
    pub in_both: u64,
    #[serde(skip)]
    pages: u64,
}

/// A figure of a pageset that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct FigureRow {
    /// `cpu C node N zone Z`.
    #[serde(rename = "where")]
    pub place: String,
    /// `high`, `alloc_factor` and so on, by the kernel's name.
    pub figure: &'static str,
    /// The kernel's.
    pub recorded: i64,
    /// The core's.
    pub predicted: i64,
}

impl ListsCompared {
    fn add(
        &mut self,
        place: impl FnOnce() -> String,
        order: Order,
        [before, kernel]: [&[u64]; 2],
        core: &[u64],
    ) {
        let pages = |blocks: usize| (blocks as u64) << order.0;
        self.moved_pages += pages(kernel.len().abs_diff(before.len()));
        if kernel.is_empty() && core.is_empty() {
            return;
        }
        self.lists += 1;
        self.recorded_pages += pages(kernel.len());
        self.predicted_pages += pages(core.len());
        let differing = pages(kernel.len().abs_diff(core.len()));
        self.differing_pages += differing;
        if kernel == core {
            self.same += 1;
            self.pages_in_place += pages(kernel.len());
            return;
        }
        let own: HashSet<u64> = core.iter().copied().collect();
        let in_both = kernel.iter().filter(|pfn| own.contains(pfn)).count();
        self.pages_in_place += pages(in_both);
        self.rows.push(ListRow {
            place: place(),
            recorded: kernel.len() as u64,
            predicted: core.len() as u64,
            in_both: in_both as u64,
            pages: differing.max(pages(kernel.len() - in_both)),
        });
    }

    fn finish(&mut self) {
        self.rows.sort_by_key(|row| std::cmp::Reverse(row.pages));
        self.rows.truncate(ROWS_MOST);
    }
}

impl StateEnd {
    /// Compares a core with the kernel, whose state was `before` at the start.
    pub(crate) fn of(
        core: &Core<'_>,
        zones: &[StartZone],
        before: &KernelState,
        kernel: &KernelState,
    ) -> StateEnd {
        let mut end = StateEnd {
            gap: kernel.gap.clone(),
            pagesets: ListsCompared::default(),
            free_lists: ListsCompared::default(),
            tuning: Vec::new(),
            tuning_compared: 0,
        };
        for (index, (zone, known)) in zones.iter().zip(&kernel.zones).enumerate() {
            for order in (0..=Order::MAX.0).map(Order) {
                for of in Migratetype::ALL {
                    let mut own = Vec::new();
                    core.zones()[index].for_each_free_block(order, of, |pfn| {
                        own.push(pfn.0);
                        ControlFlow::Continue(())
                    });
                    let place = || format!("{} order {} {}", zone.name(), order.0, of.name());
                    let free = |state: &KernelState| state.free(index, of, order);
                    end.free_lists.add(place, order, [&free(before), &free(kernel)], &own);
                }
            }
            for pageset in &known.pagesets {
                let Some(own) = core.pagesets(pageset.cpu).map(|pagesets| &pagesets[index]) else {
                    continue;
                };
                let place = format!("cpu {} {}", pageset.cpu, zone.name());
                for list in 0..LISTS {
                    let mut blocks = Vec::new();
                    own.for_each_block(list, |pfn| blocks.push(pfn.0));
                    let (order, of) = (list_order(list), type_of_list(list));
                    let place = || format!("{place} order {} {}", order.0, of.name());
                    let cached = |state: &KernelState| state.cached(index, pageset.cpu, list);
                    end.pagesets.add(place, order, [&cached(before), &cached(kernel)], &blocks);
                }
                let (tuning, fields) = (own.tuning(), &pageset.fields);
                let tunes = core.model().pcp.tunes_high;
                let if_tunes = |value: Option<i64>| value.filter(|_| tunes);
                for (figure, recorded, predicted) in [
                    ("high", Some(fields.high), tuning.high.0),
                    ("alloc_factor", if_tunes(fields.alloc_factor), tuning.alloc_factor.into()),
                    ("free_count", if_tunes(fields.free_count), tuning.free_count.0),
                    ("free_factor", fields.free_factor, tuning.free_factor.into()),
                    ("expire", fields.expire, tuning.expire.into()),
                ] {
                    let Some(recorded) = recorded else { continue };
                    end.tuning_compared += 1;
                    if recorded != predicted as i64 {
                        let (place, predicted) = (place.clone(), predicted as i64);
                        end.tuning.push(FigureRow { place, figure, recorded, predicted });
                    }
                }
            }
        }
        end.pagesets.finish();
        end.free_lists.finish();
        end.tuning.truncate(ROWS_MOST);
        end
    }
}
