//! Locked pages: [`LockablePages`], a block whose pages threads share, one at a time.
//!
//! Below it is the level of frames ([`Memory::lock_page`](crate::Memory::lock_page) and its companions), for pools that
//! keep frame numbers: the lock is a bit of the frame's metadata, so it needs no memory of its own, and a thread that
//! waits sleeps on a word of its own stack.

mod by_frame;
mod handle;
mod lockable;

pub use handle::PageHandle;
pub use lockable::{LockError, LockablePages, LockedPage};
