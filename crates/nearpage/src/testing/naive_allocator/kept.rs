//! What a CPU keeps of a zone behind its lists, where it owns pageblocks with maps.

use std_alloc::collections::BTreeMap;
use std_alloc::vec;
use std_alloc::vec::Vec;

use super::maps::{PAGEBLOCK, Pages, run};
use super::owners::first_of;
use super::stage::Stage;
use super::{Mistake, NaiveAllocator, NaivePageset};
use crate::frame::Migratetype;
use crate::pcp::HOMEBOUND;
use crate::testing::kept::{KeptState, Run};
use crate::units::{CpuId, Order, Pfn};

/// Pageblocks of a class that are searched for a block of a request.
const SEARCHED: usize = 8;
/// Tags of refills; a page that came otherwise has 0.
const TAGS: u8 = 7;

/// A CPU, and a zone by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    pub cpu: CpuId,
    pub zone: usize,
}

/// Where an owned pageblock is listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Listed {
    of: Migratetype,
    class: u8,
    time: u64,
}

/// Beside the lists.
#[derive(Debug)]
pub(super) struct Kept {
    /// Pageblocks that the CPU owns, of which some pages are free.
    listed: BTreeMap<Pfn, Listed>,
    time: u64,
    /// Pages on their way home.
    pub(super) stage: Stage,
    /// Those for which the stage has no room, last one last.
    pub(super) waiting: Vec<Run>,
    /// Those that other CPUs sent, last one last.
    pub(super) inbox: Vec<Run>,
    /// Pages that may be kept.
    pub(super) size: u64,
    /// When the zone was visited last, in units of 2^20 ns.
    pub(super) visited: u32,
    /// The fewest pages since the last turn, in units of 16.
    pub(super) least: u64,
    /// The tags of the last refills of the lists of single pages, by type.
    tags: [u8; 3],
}

impl Kept {
    pub(super) fn new(stage: Stage) -> Self {
        let (listed, waiting, inbox) = (BTreeMap::new(), vec![], vec![]);
        let (time, size, visited, least, tags) = (0, 0, 0, 0, [0; 3]);
        Self { listed, time, stage, waiting, inbox, size, visited, least, tags }
    }

    /// The pageblocks that the CPU owns: the type of the list that each is on, and its first frame; as they are listed.
    fn pageblocks(&self) -> Vec<(Migratetype, Pfn)> {
        let mut listed: Vec<_> =
            self.listed.iter().map(|(&first, &listed)| (first, listed)).collect();
        listed.sort_by_key(|(_, it)| (it.of.index(), it.class, !it.time));
        listed.into_iter().map(|(first, it)| (it.of, first)).collect()
    }

    /// The pageblocks of a type and class, the one that was listed last first.
    fn of_class(&self, of: Migratetype, class: u8) -> Vec<Pfn> {
        let is_it = |it: &Listed| (it.of, it.class) == (of, class);
        let mut found: Vec<(u64, Pfn)> = self
            .listed
            .iter()
            .filter(|(_, it)| is_it(it))
            .map(|(&pfn, it)| (!it.time, pfn))
            .collect();
        found.sort();
        found.into_iter().map(|(_, pfn)| pfn).collect()
    }

    /// Pages on their way, but for those on the list of homebound ones.
    pub(super) fn on_their_way(&self) -> u64 {
        let pages = |runs: &[Run]| runs.iter().map(|(_, pages)| pages).sum::<u64>();
        self.stage.pages() + pages(&self.waiting) + pages(&self.inbox)
    }

    /// The next refill of a list of single pages begins.
    pub(super) fn begin_tag(&mut self, of: Migratetype) {
        let tag = &mut self.tags[of.index()];
        *tag = *tag % TAGS + 1;
    }

    /// The tag of pages that a list gives now.
    pub(super) fn tag(&self, of: Migratetype) -> u8 {
        self.tags[of.index()]
    }

    /// Whether pages with a tag came with one of the last two refills, as far as tags tell.
    pub(super) fn is_recent(&self, of: Migratetype, tag: u8) -> bool {
        let now = self.tag(of);
        tag == now || tag == (now + TAGS - 2) % TAGS + 1
    }

    /// Pages are brought to another CPU: they are the first that it will look at.
    pub(super) fn send(&mut self, runs: Vec<Run>) {
        self.inbox.extend(runs);
    }
}

/// The class of an owned pageblock by its free pages: few, many, all.
fn class_of(free: u64) -> Option<u8> {
    match free {
        0 => None,
        1..128 => Some(0),
        PAGEBLOCK => Some(2),
        _ => Some(1),
    }
}

impl NaivePageset {
    /// What stands behind the lists.
    pub(super) fn behind(&mut self) -> &mut Kept {
        self.kept.as_mut().expect("CPUs own pageblocks")
    }

    /// The same, to look.
    pub(super) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }
}

impl NaiveAllocator {
    /// What a CPU keeps of a zone, if CPUs own pageblocks with maps.
    pub fn kept_state(&self, cpu: CpuId, zone: usize) -> Option<KeptState> {
        let pageset = &self.pagesets(cpu)[zone];
        let kept = pageset.kept()?;
        let free = |first| {
            let runs = self.zones[zone].maps.runs(first).into_iter();
            runs.map(|(at, end)| (Pfn(at), end - at)).collect()
        };
        let pageblocks = kept.pageblocks().into_iter();
        let sent = kept.waiting.iter().rev().chain(kept.inbox.iter().rev());
        Some(KeptState {
            lists: pageset.lists.iter().map(|list| list.iter().copied().collect()).collect(),
            pageblocks: pageblocks.map(|(of, first)| (of, first, free(first))).collect(),
            on_their_way: kept.stage.runs().chain(sent.copied()).collect(),
            size: kept.size,
            visited: kept.visited,
        })
    }

    /// The CPU that owns the pageblock of a frame of a zone, where CPUs own pageblocks with maps.
    pub fn owner_of(&self, zone: usize, pfn: Pfn) -> Option<CpuId> {
        self.zones[zone].owners.of(pfn).filter(|_| self.has_maps())
    }

    pub(super) fn pageset(&mut self, at: At) -> &mut NaivePageset {
        &mut self.cpus.get_mut(&at.cpu).expect("a known CPU").pagesets[at.zone]
    }

    pub(super) fn behind(&mut self, at: At) -> &mut Kept {
        self.pageset(at).behind()
    }

    /// Free pages in the pageblocks that a CPU owns.
    pub(super) fn free_owned(&self, at: At) -> u64 {
        let listed = self.pagesets(at.cpu)[at.zone].kept.iter().flat_map(|kept| kept.listed.keys());
        listed.map(|&first| self.zones[at.zone].maps.free_in(first)).sum()
    }

    /// Pages that a CPU keeps of a zone.
    pub(super) fn pages_kept(&self, at: At) -> u64 {
        let pageset = &self.pagesets(at.cpu)[at.zone];
        let on_their_way = pageset.kept.as_ref().map_or(0, Kept::on_their_way);
        pageset.count.0 + on_their_way + self.free_owned(at)
    }

    /// Of those, the ones behind the lists and on their way there.
    pub(super) fn pages_behind(&self, at: At) -> u64 {
        let pageset = &self.pagesets(at.cpu)[at.zone];
        let on_their_way = pageset.kept.as_ref().map_or(0, Kept::on_their_way);
        self.free_owned(at) + on_their_way + pageset.lists[HOMEBOUND].len() as u64
    }

    /// Lists an owned pageblock by what is free in it now; it keeps its place in its class. One of which nothing is free is
    /// nobody's.
    fn relist_owned(&mut self, at: At, first: Pfn) {
        let class = class_of(self.zones[at.zone].maps.free_in(first));
        let of = self.pageblocks.of(first);
        let of = if of.is_mergeable() { of } else { Migratetype::Movable };
        let kept = self.behind(at);
        let before = kept.listed.get(&first).map(|it| it.class);
        if before == class {
            return;
        }
        kept.listed.remove(&first);
        match class {
            Some(class) => {
                kept.time += 1;
                let time = kept.time;
                kept.listed.insert(first, Listed { of, class, time });
            }
            None if self.mistake == Mistake::OwnerOfEmptied => {}
            None => self.zones[at.zone].owners.disown(first),
        }
    }

    /// A pageblock has become the CPU's.
    pub(super) fn adopt(&mut self, at: At, first: Pfn) {
        if self.zones[at.zone].maps.free_in(first) > 0 {
            self.relist_owned(at, first);
        }
    }

    /// A whole pageblock has become the CPU's.
    pub(super) fn adopt_all(&mut self, at: At, first: Pfn) {
        if self.zones[at.zone].maps.free_in(first) == 0 {
            self.zones[at.zone].maps.add(first, &run(first, PAGEBLOCK));
        }
        self.adopt(at, first);
    }

    /// Makes a pageblock the CPU's that has all of it in its hands, if it may have one; returns whether.
    pub(super) fn adopt_whole(&mut self, at: At, first: Pfn) -> bool {
        let zone = &mut self.zones[at.zone];
        let may_own = zone.owners.of(first).is_none()
            && self.pageblocks.of(first).is_mergeable()
            && !self.pageblocks.is_shared(first);
        if may_own {
            zone.owners.owners.insert(first, at.cpu);
            self.adopt_all(at, first);
        }
        may_own
    }

    /// Pages of an owned pageblock are free there.
    pub(super) fn put(&mut self, at: At, pages: &Pages) {
        let Some(first) = pages.first().map(|&pfn| first_of(pfn)) else { return };
        self.zones[at.zone].maps.add(first, pages);
        self.relist_owned(at, first);
    }

    /// The emptiest pageblocks, those that are whole first, leave the CPU's lists until it has no more than `most` free pages
    /// in them. They are given to the zone last one first.
    pub(super) fn take_above(
        &mut self,
        at: At,
        most: u64,
        mut may_take: impl FnMut() -> bool,
    ) -> Vec<Pfn> {
        let mut passing = vec![];
        while self.free_owned(at) > most {
            let kept = self.behind(at);
            let places = (0..3)
                .rev()
                .flat_map(|class| Migratetype::ALL[..3].iter().map(move |of| (class, of)));
            let emptiest =
                { places }.find_map(|(class, &of)| kept.of_class(of, class).first().copied());
            let Some(first) = emptiest.filter(|_| may_take()) else { break };
            kept.listed.remove(&first);
            passing.push(first);
        }
        passing
    }

    /// A whole pageblock of another type becomes one of this type.
    fn whole_of_another_type(&mut self, at: At, of: Migratetype) -> Option<Pfn> {
        let others = Migratetype::ALL[..3].iter().filter(|&&other| other != of);
        let kept = self.behind(at);
        let first = { others }.find_map(|&other| kept.of_class(other, 2).first().copied())?;
        kept.listed.remove(&first);
        self.pageblocks.set(first, of);
        self.relist_owned(at, first);
        Some(first)
    }

    /// Takes single pages of the fullest pageblocks of a type.
    pub(super) fn take_owned_pages(&mut self, at: At, of: Migratetype, most: u64) -> Vec<Pfn> {
        let mut taken: Vec<Pfn> = vec![];
        while (taken.len() as u64) < most {
            let kept = self.behind(at);
            let fullest = (0..3).find_map(|class| kept.of_class(of, class).first().copied());
            let Some(first) = fullest.or_else(|| self.whole_of_another_type(at, of)) else { break };
            while (taken.len() as u64) < most {
                let run = self.zones[at.zone].maps.take_run(first, most - taken.len() as u64);
                if run.is_empty() {
                    break;
                }
                taken.extend(run);
            }
            self.relist_owned(at, first);
        }
        taken
    }

    /// Takes a block of a type, of the fullest pageblock that has one.
    pub(super) fn take_owned_block(
        &mut self,
        at: At,
        of: Migratetype,
        order: Order,
    ) -> Option<Pfn> {
        if order > Order(9) {
            return None;
        }
        let searched = (0..3).flat_map(|class| {
            let kept = self.pagesets(at.cpu)[at.zone].kept.iter();
            kept.flat_map(move |kept| kept.of_class(of, class)).take(SEARCHED)
        });
        let maps = &self.zones[at.zone].maps;
        let found = { searched }.find(|&first| maps.has_block(first, order));
        let first = found.or_else(|| self.whole_of_another_type(at, of))?;
        let block = self.zones[at.zone].maps.take_block(first, order);
        self.relist_owned(at, first);
        block
    }
}
