//! Lists of frames: `struct list_head` in page descriptors, which may change while they are walked.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::time::Instant;

use crate::error::KcoreError;
use crate::kernel::Kernel;
use crate::state::Limits;

/// How often a list that changed meanwhile is walked.
const TRIES: u32 = 3;

/// Blocks between two looks at the clock.
const LOOK_EVERY: u64 = 256;

/// How page descriptors lie.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// That of frame 0.
    first: u64,
    bytes: u64,
    /// Where a descriptor has its place in a list.
    link: u64,
    budget: Budget,
    /// Frames of the list that is walked: kept, since a running kernel's own lists change where it touches new memory.
    seen: RefCell<HashSet<u64>>,
}

/// What may still be read.
#[derive(Debug)]
struct Budget {
    limits: Limits,
    begun: Instant,
    blocks: Cell<u64>,
    /// Why nothing more may.
    ended: RefCell<Option<String>>,
}

impl Budget {
    /// Takes a block; false if there is none left, or no time.
    fn take(&self) -> bool {
        if self.ended.borrow().is_some() {
            return false;
        }
        let taken = self.blocks.get();
        self.blocks.set(taken + 1);
        let Limits { blocks, time } = self.limits;
        if taken >= blocks {
            *self.ended.borrow_mut() = Some(format!("after {blocks} blocks"));
        } else if taken.is_multiple_of(LOOK_EVERY) && self.begun.elapsed() > time {
            *self.ended.borrow_mut() =
                Some(format!("after {} s and {taken} blocks", time.as_secs_f64()));
        }
        self.ended.borrow().is_none()
    }
}

/// Frames that may be in a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    pub start: u64,
    pub end: u64,
}

/// A list of blocks of a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'a> {
    /// What it is, for an error.
    pub what: &'a str,
    /// Where its head is.
    pub head: u64,
    /// The frames that may be in it.
    pub frames: Frames,
    /// How many blocks there may be.
    pub most: u64,
}

/// What was found of a list.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub frames: Vec<u64>,
    /// Why there may be more.
    pub cut: Option<String>,
}

impl Descriptors {
    pub fn of(kernel: &Kernel, limits: Limits) -> Result<Descriptors, KcoreError> {
        let page = kernel.structure("page")?;
        let first = kernel.info.symbol("vmemmap").ok_or_else(|| {
            kernel.lacks(
                "VMCOREINFO has no SYMBOL(vmemmap): descriptors of pages lie elsewhere".into(),
            )
        })?;
        let bytes = kernel.btf.size(page).filter(|bytes| *bytes >= 16);
        let link = kernel.btf.member(page, "lru").map(|member| member.offset);
        let lacks = || kernel.lacks("its BTF has no struct page with a member lru".into());
        let (blocks, ended) = (Cell::new(0), RefCell::default());
        let budget = Budget { limits, begun: Instant::now(), blocks, ended };
        let (bytes, link) = (bytes.ok_or_else(lacks)?, link.ok_or_else(lacks)?);
        Ok(Descriptors { first, bytes, link, budget, seen: RefCell::default() })
    }

    /// Why reading ended before all was read, if it did.
    pub fn ended(&self) -> Option<String> {
        self.budget.ended.borrow().clone()
    }

    /// The frame that is linked at a place.
    fn frame(&self, link: u64, frames: Frames) -> Option<u64> {
        let inside = link.wrapping_sub(self.link).wrapping_sub(self.first);
        let frame = inside / self.bytes;
        let is_one =
            inside.is_multiple_of(self.bytes) && (frames.start..frames.end).contains(&frame);
        is_one.then_some(frame)
    }

    /// Walks a list.
    pub fn walk(&self, kernel: &Kernel, list: List<'_>) -> Walked {
        let mut frames = Vec::new();
        let cut = self.walk_into(kernel, list, &mut frames);
        Walked { frames, cut }
    }

    /// Walks a list, and adds its frames to some. Says why there may be more.
    pub fn walk_into(
        &self,
        kernel: &Kernel,
        list: List<'_>,
        into: &mut Vec<u64>,
    ) -> Option<String> {
        let begin = into.len();
        for _ in 1..TRIES {
            let cut = self.walk_once(kernel, list, into);
            if cut.is_none() || self.ended().is_some() {
                return cut;
            }
            into.truncate(begin);
        }
        self.walk_once(kernel, list, into)
    }

    fn walk_once(&self, kernel: &Kernel, list: List<'_>, into: &mut Vec<u64>) -> Option<String> {
        let List { what, head, frames, most } = list;
        let begin = into.len();
        let mut seen = self.seen.borrow_mut();
        seen.clear();
        let (mut before, mut at) = (head, head);
        loop {
            let mut links = [0; 16];
            if let Err(error) = kernel.memory.read(what, at, &mut links) {
                return Some(error.to_string());
            }
            let both = u128::from_le_bytes(links);
            let (next, back) = (both as u64, (both >> 64) as u64);
            if at != head && back != before {
                // It is not known to be in the list.
                let last = into.pop().unwrap_or(0);
                return Some(format!("frame {last:#x} does not lead back"));
            }
            if next == head {
                return None;
            }
            let Some(frame) = self.frame(next, frames) else {
                return Some(format!("{next:#x} is no descriptor of the zone"));
            };
            if !seen.insert(frame) {
                return Some(format!("frame {frame:#x} comes twice"));
            }
            if (into.len() - begin) as u64 >= most {
                return Some(format!("more than {most} blocks"));
            }
            if !self.budget.take() {
                return Some("reading ended".into());
            }
            into.push(frame);
            (before, at) = (at, next);
        }
    }

    /// Walks a list without a way back (`struct llist_head`).
    pub fn walk_single(&self, kernel: &Kernel, list: List<'_>) -> Walked {
        let List { what, head, frames, most } = list;
        let mut walked = Walked::default();
        let mut seen = HashSet::new();
        let mut at = head;
        loop {
            let next = match kernel.memory.number(what, at, 8) {
                Ok(0) => return walked,
                Ok(next) => next,
                Err(error) => {
                    walked.cut = Some(error.to_string());
                    return walked;
                }
            };
            let frame = self.frame(next, frames).filter(|frame| seen.insert(*frame));
            let has_room = (walked.frames.len() as u64) < most && self.budget.take();
            let (Some(frame), true) = (frame, has_room) else {
                walked.cut = Some(format!("{next:#x} is no new descriptor of the zone"));
                return walked;
            };
            walked.frames.push(frame);
            at = next;
        }
    }
}
