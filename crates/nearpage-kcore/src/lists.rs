//! Lists of frames: `struct list_head` in page descriptors, which may change while they are walked.

use std::collections::HashSet;

use crate::error::KcoreError;
use crate::kernel::Kernel;

/// How often a list that changed meanwhile is walked.
const TRIES: u32 = 3;

/// How page descriptors lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    /// That of frame 0.
    first: u64,
    bytes: u64,
    /// Where a descriptor has its place in a list.
    link: u64,
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
    pub fn of(kernel: &Kernel) -> Result<Descriptors, KcoreError> {
        let page = kernel.structure("page")?;
        let first = kernel.info.symbol("vmemmap").ok_or_else(|| {
            kernel.lacks(
                "VMCOREINFO has no SYMBOL(vmemmap): descriptors of pages lie elsewhere".into(),
            )
        })?;
        let bytes = kernel.btf.size(page).filter(|bytes| *bytes >= 16);
        let link = kernel.btf.member(page, "lru").map(|member| member.offset);
        let lacks = || kernel.lacks("its BTF has no struct page with a member lru".into());
        Ok(Descriptors { first, bytes: bytes.ok_or_else(lacks)?, link: link.ok_or_else(lacks)? })
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
        let mut walked = self.walk_once(kernel, list);
        for _ in 1..TRIES {
            if walked.cut.is_none() {
                break;
            }
            walked = self.walk_once(kernel, list);
        }
        walked
    }

    fn walk_once(&self, kernel: &Kernel, list: List<'_>) -> Walked {
        let List { what, head, frames, most } = list;
        let mut walked = Walked::default();
        let mut seen = HashSet::new();
        let (mut before, mut at) = (head, head);
        loop {
            let mut links = [0; 16];
            if let Err(error) = kernel.memory.read(what, at, &mut links) {
                walked.cut = Some(error.to_string());
                return walked;
            }
            let both = u128::from_le_bytes(links);
            let (next, back) = (both as u64, (both >> 64) as u64);
            if at != head && back != before {
                walked.cut = Some(format!(
                    "frame {:#x} does not lead back",
                    walked.frames.last().unwrap_or(&0)
                ));
                // It is not known to be in the list.
                walked.frames.pop();
                return walked;
            }
            if next == head {
                return walked;
            }
            let Some(frame) = self.frame(next, frames) else {
                walked.cut = Some(format!("{next:#x} is no descriptor of the zone"));
                return walked;
            };
            if !seen.insert(frame) {
                walked.cut = Some(format!("frame {frame:#x} comes twice"));
                return walked;
            }
            if walked.frames.len() as u64 >= most {
                walked.cut = Some(format!("more than {most} blocks"));
                return walked;
            }
            walked.frames.push(frame);
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
            let (Some(frame), true) = (frame, (walked.frames.len() as u64) < most) else {
                walked.cut = Some(format!("{next:#x} is no new descriptor of the zone"));
                return walked;
            };
            walked.frames.push(frame);
            at = next;
        }
    }
}
