//! What a trace tells after a list was read, applied to it.
//!
//! | event | a list of a pageset | free lists |
//! |---|---|---|
//! | alloc | the block leaves it | |
//! | free | the block comes first | a block that pagesets do not keep joins them |
//! | zone_locked | a block of a refill comes last | the block leaves them; what is left of a larger one stays |
//! | pcpu_drain | the block leaves it | the block joins them, together with its buddies |
//!
//! An event of before the time at which a list was read is in it already. Free lists are not read in a moment: what cannot be
//! applied to them was.

use nearpage::rules::pagesets::{list_index, list_order};
use nearpage::{CpuId, Migratetype, Order, Pfn};
use nearpage_trace::{Event, TraceEvent};
use serde::Serialize;

use super::{KernelState, Moment};
use crate::zones::ZoneMap;

/// What lay between the times at which lists were read and the moment that they are brought to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Gap {
    /// Microseconds from the begin of reading to its end.
    pub microseconds: u64,
    /// Events of blocks meanwhile.
    pub events: u64,
    /// Pages that moved into lists and out of them after they had been read.
    pub pages: u64,
    /// Blocks that were not where they should be: what was read is not of one moment there.
    pub misfits: u64,
    /// Allocations since the capture `before`, by the position of the zone: no part of the window, but the kernel counts them.
    #[serde(skip)]
    pub(crate) allocs: Vec<i64>,
}

/// The marker at which the counters of `before` are read.
const CAPTURED: &[u8] = b"nearpage: before begin";

/// A state that is brought to the end of its reading.
#[derive(Clone, Debug)]
pub(crate) struct Roll<'z> {
    moment: Moment,
    map: &'z ZoneMap,
    state: KernelState,
    begun_ns: Option<u64>,
    /// Whether the capture `before` has begun.
    is_captured: bool,
}

impl<'z> Roll<'z> {
    /// A state as it was read; `map` has the frames of its zones.
    pub(crate) fn new(moment: Moment, state: KernelState, map: &'z ZoneMap) -> Roll<'z> {
        let mut state = state;
        state.gap.allocs = vec![0; state.zones.len()];
        Roll { moment, map, state, begun_ns: None, is_captured: false }
    }

    /// Takes the next event of the trace up. Gives the state at the marker that ends the reading.
    pub(crate) fn note(&mut self, event: &TraceEvent<'_>) -> Option<KernelState> {
        if let Event::Marker(text) = event.event {
            if text.trim_ascii() == self.moment.begin() {
                self.begun_ns = Some(event.time_ns);
            } else if text.trim_ascii() == self.moment.end()
                && let Some(begun_ns) = self.begun_ns
            {
                let mut state = std::mem::take(&mut self.state);
                state.settle();
                state.gap.microseconds = event.time_ns.saturating_sub(begun_ns) / 1000;
                return Some(state);
            }
        }
        self.is_captured |=
            matches!(event.event, Event::Marker(text) if text.starts_with(CAPTURED));
        if self.is_captured
            && let Event::Alloc { pfn: Some(pfn), .. } = event.event
            && let Some(zone) = self.map.zone_of(pfn)
            && let Some(allocs) = self.state.gap.allocs.get_mut(zone)
        {
            *allocs += 1;
        }
        if self.begun_ns.is_some() {
            self.apply(event);
        }
        None
    }

    fn apply(&mut self, event: &TraceEvent<'_>) {
        let (cpu, now_ns) = (event.cpu, event.time_ns);
        let (pfn, order) = match event.event {
            Event::Alloc { pfn: Some(pfn), order, .. } | Event::Free { pfn, order } => (pfn, order),
            Event::ZoneLocked { pfn, order, .. } | Event::PcpuDrain { pfn, order } => (pfn, order),
            _ => return,
        };
        let Some(zone) = self.map.zone_of(pfn).filter(|&zone| zone < self.state.zones.len()) else {
            return;
        };
        self.state.gap.events += 1;
        match event.event {
            Event::Alloc { .. } => {
                // Blocks that do not come from pagesets are in none.
                self.uncache(zone, pfn, order, now_ns, IfMissing::Fine);
            }
            Event::Free { .. } => {
                let of = self.state.zones[zone].type_of(pfn.0);
                match list_index(order, of) {
                    Some(list) => self.cache(zone, cpu, list, pfn, now_ns, End::First),
                    None => self.give(zone, pfn, order, now_ns),
                }
            }
            Event::ZoneLocked { migratetype, percpu_refill, .. } => {
                self.take(zone, pfn, order, now_ns);
                let of = Migratetype::ALL[usize::from(migratetype.min(2))];
                if let Some(list) = list_index(order, of).filter(|_| percpu_refill) {
                    self.cache(zone, cpu, list, pfn, now_ns, End::Last);
                }
            }
            Event::PcpuDrain { .. } => {
                self.uncache(zone, pfn, order, now_ns, IfMissing::Misfit);
                self.give(zone, pfn, order, now_ns);
            }
            _ => {}
        }
    }

    /// Whether a pageset was read before a time.
    fn is_before(&self, zone: usize, cpu: CpuId, now_ns: u64) -> bool {
        let pageset = self.state.zones[zone].pageset(cpu);
        pageset.is_some_and(|pageset| pageset.read_ns[1] < now_ns)
    }

    fn cache(&mut self, zone: usize, cpu: CpuId, list: usize, pfn: Pfn, now_ns: u64, end: End) {
        if !self.is_before(zone, cpu, now_ns) {
            return;
        }
        let (key, cached) = ((zone, cpu.0, list), &mut self.state.cached);
        let is_put = match end {
            End::First => cached.push_front(key, pfn.0),
            End::Last => cached.push_back(key, pfn.0),
        };
        self.state.gap.misfits += u64::from(!is_put);
        self.state.gap.pages += list_order(list).pages().0;
    }

    /// A block leaves the list that it is in: a drain may be of another CPU's.
    fn uncache(&mut self, zone: usize, pfn: Pfn, order: Order, now_ns: u64, missing: IfMissing) {
        match self.state.cached.key_of(pfn.0) {
            Some((_, cpu, list))
                if list_order(list) == order && self.is_before(zone, CpuId(cpu), now_ns) =>
            {
                self.state.cached.remove(pfn.0);
                self.state.gap.pages += order.pages().0;
            }
            // All that are read later may have lost it by then.
            _ if missing == IfMissing::Misfit
                && self.state.zones[zone]
                    .pagesets
                    .iter()
                    .all(|pageset| pageset.read_ns[1] < now_ns) =>
            {
                self.state.gap.misfits += 1;
            }
            _ => {}
        }
    }

    /// A block leaves the free lists.
    fn take(&mut self, zone: usize, pfn: Pfn, order: Order, now_ns: u64) {
        let read_ns = self.state.zones[zone].free_read_ns;
        if now_ns < read_ns[0] {
            return;
        }
        let holder = (order.0..=Order::MAX.0).find_map(|of| {
            let head = pfn.0 >> of << of;
            let key = self.state.free.key_of(head)?;
            (key.2 == of).then_some((head, key))
        });
        let Some((head, (_, migratetype, from))) = holder else {
            self.state.gap.misfits += u64::from(now_ns > read_ns[1]);
            return;
        };
        self.state.free.remove(head);
        self.state.gap.pages += order.pages().0;
        let mut whole = head;
        for half in (order.0..from).rev() {
            let own = pfn.0 >> half << half;
            let other = if own == whole { whole + (1 << half) } else { whole };
            self.state.free.push_front((zone, migratetype, half), other);
            whole = own;
        }
    }

    /// A block joins the free lists.
    fn give(&mut self, zone: usize, pfn: Pfn, order: Order, now_ns: u64) {
        let read_ns = self.state.zones[zone].free_read_ns;
        let is_free = (order.0..=Order::MAX.0)
            .any(|of| self.state.free.key_of(pfn.0 >> of << of).is_some_and(|key| key.2 == of));
        if now_ns < read_ns[0] || is_free {
            self.state.gap.misfits += u64::from(is_free && now_ns > read_ns[1]);
            return;
        }
        self.state.gap.pages += order.pages().0;
        let is_buddy = |state: &KernelState, pfn: u64, order: u8| {
            let key = state.free.key_of(pfn ^ (1 << order));
            key.is_some_and(|(of, _, size)| (of, size) == (zone, order))
        };
        let (mut head, mut order) = (pfn.0, order.0);
        while order < Order::MAX.0 && is_buddy(&self.state, head, order) {
            self.state.free.remove(head ^ (1 << order));
            head &= !(1 << order);
            order += 1;
        }
        let migratetype = self.state.zones[zone].type_of(head).index() as u8;
        let key = (zone, migratetype, order);
        // One that will soon be part of a larger one is taken last.
        let above = head & !(1 << order);
        if order + 1 < Order::MAX.0 && is_buddy(&self.state, above, order + 1) {
            self.state.free.push_back(key, head);
        } else {
            self.state.free.push_front(key, head);
        }
    }
}

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    First,
    Last,
}

/// What it tells if a block is in no list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IfMissing {
    Fine,
    Misfit,
}

#[cfg(test)]
mod tests {
    use nearpage::{NodeId, PfnRange, ZoneKind};
    use nearpage_kcore::{FreeArea, NodeState, PagesetState, State, ZoneState};

    use super::*;

    /// Four pageblocks. CPU 0 was read at 20 ns, CPU 1 at 40 ns, the free lists from 5 to 10 ns.
    fn state() -> State {
        let area = |order: usize| {
            let mut lists = vec![Vec::new(); 4];
            match order {
                0 => lists[1] = vec![0x11, 0x20],
                2 => lists[1] = vec![0x40],
                _ => {}
            }
            FreeArea { free_blocks: lists[1].len() as u64, lists }
        };
        let pageset = |cpu: u32, frames: [u64; 2], end| {
            let mut lists = vec![Vec::new(); 14];
            lists[1] = frames.to_vec();
            PagesetState {
                cpu,
                count: 2,
                lists,
                read_ns: Some([end - 1, end]),
                ..Default::default()
            }
        };
        let zone = ZoneState {
            name: "DMA32".into(),
            spanned_pages: 2048,
            managed_pages: 2048,
            counters: vec![("NR_FREE_PAGES".into(), 9)],
            free: (0..11).map(area).collect(),
            free_read_ns: Some([5, 10]),
            pageblocks: vec![Some(1); 4],
            pagesets: vec![pageset(0, [0x60, 0x61], 20), pageset(1, [0x70, 0x71], 40)],
            ..ZoneState::default()
        };
        State {
            release: String::new(),
            cpus: vec![0, 1],
            nodes: vec![NodeState {
                id: 0,
                cpus: vec![0, 1],
                distances: Vec::new(),
                zones: vec![zone],
            }],
            migratetypes: ["Unmovable", "Movable", "Reclaimable", "HighAtomic"]
                .map(Into::into)
                .into(),
            settings: Vec::new(),
            told: Vec::new(),
            cut: None,
        }
    }

    const ZONES: [(NodeId, ZoneKind); 1] = [(NodeId(0), ZoneKind::Dma32)];

    fn map() -> ZoneMap {
        ZoneMap::new(&[PfnRange::new(0, 2048)])
    }

    fn rolled(events: &[(u32, u64, Event<'static>)]) -> KernelState {
        let map = map();
        let state = KernelState::of(&state(), &ZONES, &map).unwrap();
        let mut roll = Roll::new(Moment::Before, state, &map);
        let mut note = |cpu: u32, time_ns: u64, event: Event<'static>| {
            let cpu = CpuId(cpu);
            roll.note(&TraceEvent {
                offset: 0,
                comm: b"",
                pid: 1,
                cpu,
                time_ns,
                event,
                fields: b"",
            })
        };
        note(0, 0, Event::Marker(CAPTURED));
        assert_eq!(note(0, 1, Event::Marker(Moment::Before.begin())).map(|_| ()), None);
        for &(cpu, time_ns, event) in events {
            assert!(note(cpu, time_ns, event).is_none());
        }
        note(0, 99, Event::Marker(Moment::Before.end())).expect("the end of reading")
    }

    const MOVABLE: usize = 1;

    fn cached(state: &KernelState, cpu: u32) -> Vec<u64> {
        state.cached(0, CpuId(cpu), MOVABLE)
    }

    fn free(state: &KernelState, order: u8) -> Vec<u64> {
        state.free(0, Migratetype::Movable, Order(order))
    }

    #[test]
    fn what_was_read_stays_without_events() {
        let state = rolled(&[]);
        assert_eq!((cached(&state, 0), cached(&state, 1)), (vec![0x60, 0x61], vec![0x70, 0x71]));
        assert_eq!((free(&state, 0), free(&state, 2)), (vec![0x11, 0x20], vec![0x40]));
        assert_eq!((state.gap.events, state.gap.pages, state.gap.misfits), (0, 0, 0));
        assert_eq!(state.zones[0].lead, 9 - 6);
        assert_eq!(state.zones[0].memory, [PfnRange::new(0, 2048)]);
    }

    #[test]
    fn events_count_for_lists_that_were_read_before_them() {
        let (single, migratetype) = (Order(0), 1);
        let gfp = nearpage::Gfp(0);
        let alloc =
            |pfn| Event::Alloc { pfn: Some(Pfn(pfn)), page: 0, order: single, migratetype, gfp };
        let freed = |pfn| Event::Free { pfn: Pfn(pfn), order: single };
        // CPU 0 was read at 20 ns, CPU 1 was not yet at 30.
        let state = rolled(&[(0, 30, alloc(0x60)), (1, 30, alloc(0x70)), (0, 50, freed(0x99))]);
        assert_eq!((cached(&state, 0), cached(&state, 1)), (vec![0x99, 0x61], vec![0x70, 0x71]));
        assert_eq!((state.gap.events, state.gap.pages), (3, 2));
        assert_eq!(state.gap.allocs, [2]);
        // A free of what is in a list already is no second one.
        let state = rolled(&[(0, 50, freed(0x61))]);
        assert_eq!((cached(&state, 0), state.gap.misfits), (vec![0x60, 0x61], 1));
    }

    #[test]
    fn refills_split_and_drains_join() {
        let refill = |pfn, order| Event::ZoneLocked {
            pfn: Pfn(pfn),
            order: Order(order),
            migratetype: 1,
            percpu_refill: true,
        };
        let drain = |pfn| Event::PcpuDrain { pfn: Pfn(pfn), order: Order(0) };
        // The second page of four: its buddy and the other half stay free.
        let state = rolled(&[(0, 50, refill(0x41, 0))]);
        assert_eq!(cached(&state, 0), [0x60, 0x61, 0x41]);
        assert_eq!(
            (free(&state, 0), free(&state, 1), free(&state, 2)),
            (vec![0x40, 0x11, 0x20], vec![0x42], vec![])
        );
        // Two buddies come back one after the other, the first to the end of its list: soon it will be a pair.
        let state = rolled(&[(0, 50, drain(0x60))]);
        assert_eq!((cached(&state, 0), free(&state, 0)), (vec![0x61], vec![0x60, 0x11, 0x20]));
        let state = rolled(&[(0, 50, drain(0x60)), (0, 51, drain(0x61))]);
        assert_eq!((free(&state, 0), free(&state, 1)), (vec![0x11, 0x20], vec![0x60]));
        // Another CPU drains it.
        let state = rolled(&[(1, 60, drain(0x60))]);
        assert_eq!(cached(&state, 0), [0x61]);
        // What is nowhere is told.
        assert_eq!(rolled(&[(0, 50, drain(0x90))]).gap.misfits, 1);
        assert_eq!(rolled(&[(0, 50, refill(0x300, 0))]).gap.misfits, 1);
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let why = |change: &dyn Fn(&mut State)| {
            let mut state = state();
            change(&mut state);
            KernelState::of(&state, &ZONES, &map()).unwrap_err()
        };
        assert!(why(&|state| state.cut = Some("after 1 blocks".into())).contains("after 1 blocks"));
        assert!(why(&|state| state.nodes.clear()).contains("lacks node 0 zone DMA32"));
        let zone =
            |state: &mut State, change: fn(&mut ZoneState)| change(&mut state.nodes[0].zones[0]);
        assert!(why(&|state| zone(state, |zone| zone.free_read_ns = None)).contains("no times"));
        let lists = why(&|state| zone(state, |zone| zone.pagesets[0].lists.truncate(3)));
        assert!(lists.contains("3 lists"), "{lists}");
        let types = why(&|state| state.migratetypes[1] = "Odd".into());
        assert!(types.contains("a type that no rules have"), "{types}");
    }

    #[test]
    fn blocks_that_overlap_are_left_out() {
        let map = map();
        let mut read = state();
        let zone = &mut read.nodes[0].zones[0];
        // In a free block, twice, beyond the zone, not aligned.
        zone.pagesets[0].lists[1] = vec![0x42, 0x60, 0x60, 4096];
        zone.free[3].lists[1] = vec![0x41];
        let state = KernelState::of(&read, &ZONES, &map).unwrap();
        let mut roll = Roll::new(Moment::Before, state, &map);
        let mut note = |text| {
            let (cpu, event) = (CpuId(0), Event::Marker(text));
            roll.note(&TraceEvent {
                offset: 0,
                comm: b"",
                pid: 1,
                cpu,
                time_ns: 1,
                event,
                fields: b"",
            })
        };
        note(Moment::Before.begin());
        let state = note(Moment::Before.end()).unwrap();
        assert_eq!((cached(&state, 0), free(&state, 2)), (vec![0x60], vec![0x40]));
        assert_eq!((free(&state, 3), state.gap.misfits), (vec![], 4));
    }
}
