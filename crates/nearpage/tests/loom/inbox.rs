//! The inbox of a CPU that owns pageblocks: nothing that others send is lost, nothing comes twice, and its pages are counted.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use nearpage::internals::{Cell64, Inbox};

use crate::cells::{Honest64, Overwriting64, Relaxed64};
use crate::{assert_found, explore};

/// Preemptions in a run of one sender and the owner, and in one of two and the owner.
const OF_TWO: usize = 6;
const OF_THREE: usize = 3;
/// What ends a chain.
const NO_FRAME: u32 = u32::MAX;
/// What a page held that is sent.
const WRITTEN: u32 = 7;

/// The first frame of a run: the next run, how many pages this one has, and what the page holds.
struct Frame {
    next: UnsafeCell<u32>,
    pages: u32,
    content: UnsafeCell<u32>,
}

struct Owner<W> {
    inbox: W,
    frames: [Frame; 4],
}

// SAFETY: frames are reached by who sends or has received them, which is what the models are about; loom tells.
unsafe impl<W: Sync> Sync for Owner<W> {}

/// What was received.
#[derive(Default)]
struct Received {
    runs: Vec<u32>,
    pages: u32,
}

impl<W: Cell64 + From<u64>> Owner<W> {
    fn new() -> Arc<Self> {
        let frame =
            |pages| Frame { next: UnsafeCell::new(NO_FRAME), pages, content: UnsafeCell::new(0) };
        let frames = [1, 2, 4, 8].map(frame);
        Arc::new(Self { inbox: Inbox::<W>::EMPTY.into(), frames })
    }

    fn inbox(&self) -> Inbox<'_, W> {
        Inbox::new(&self.inbox)
    }

    fn link(&self, run: u32, next: u32) {
        self.frames[run as usize].next.with_mut(|link| {
            // SAFETY: the run is the caller's; loom tells if it is not.
            unsafe { *link = next }
        });
    }

    fn next(&self, run: u32) -> u32 {
        self.frames[run as usize].next.with(|next| {
            // SAFETY: as in `link`.
            unsafe { *next }
        })
    }

    /// Sends a chain of adjoining runs.
    fn send(&self, runs: std::ops::Range<u32>) {
        let mut pages = 0;
        for run in runs.clone() {
            let frame = &self.frames[run as usize];
            // SAFETY: as in `link`.
            frame.content.with_mut(|content| unsafe { *content = WRITTEN });
            if run + 1 < runs.end {
                self.link(run, run + 1);
            }
            pages += frame.pages;
        }
        self.inbox().send(runs.start, pages, |next| self.link(runs.end - 1, next));
    }

    fn receive(&self, received: &mut Received) {
        let before = received.pages;
        let (mut run, pages) = self.inbox().take();
        while run != NO_FRAME {
            let frame = &self.frames[run as usize];
            // SAFETY: as in `link`.
            let content = frame.content.with(|content| unsafe { *content });
            assert_eq!(content, WRITTEN, "what a page held is not there yet");
            received.runs.push(run);
            received.pages += frame.pages;
            run = self.next(run);
        }
        assert_eq!(received.pages - before, pages, "pages are counted");
    }
}

/// Senders with a chain each, and an owner who receives meanwhile and in the end.
fn send_and_receive<W: Cell64 + From<u64> + Send + Sync + 'static>(
    chains: &'static [std::ops::Range<u32>],
) {
    let owner = Owner::<W>::new();
    let send = |chain: &std::ops::Range<u32>| {
        let (owner, chain) = (owner.clone(), chain.clone());
        thread::spawn(move || owner.send(chain))
    };
    let senders: Vec<_> = chains.iter().map(send).collect();
    let mut received = Received::default();
    owner.receive(&mut received);
    owner.receive(&mut received);
    senders.into_iter().for_each(|sender| sender.join().expect("it does not panic"));
    owner.receive(&mut received);
    received.runs.sort_unstable();
    let sent: Vec<u32> = chains.iter().cloned().flatten().collect();
    assert_eq!(received.runs, sent, "a run lost or doubled");
    let pages: u32 = sent.iter().map(|&run| 1 << run).sum();
    assert_eq!((received.pages, owner.inbox().pages()), (pages, 0), "pages are counted");
}

#[test]
fn a_chain_comes_once_and_whole() {
    explore("inbox: a sender", OF_TWO, || send_and_receive::<Honest64>(&[0..3]));
}

#[test]
fn what_two_send_comes_once() {
    explore("inbox: two senders", OF_THREE, || send_and_receive::<Honest64>(&[0..2, 2..4]));
}

#[test]
fn a_relaxed_inbox_is_found() {
    let model = || send_and_receive::<Relaxed64>(&[0..2]);
    assert_found("inbox::a_relaxed_inbox_is_found", "", model);
}

#[test]
fn a_sender_that_overwrites_is_found() {
    let model = || send_and_receive::<Overwriting64>(&[0..2, 2..4]);
    assert_found("inbox::a_sender_that_overwrites_is_found", "a run lost or doubled", model);
}
