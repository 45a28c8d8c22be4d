//! The seam: what the core needs from the place that it runs in.
//!
//! A host implements [`Platform`]. The trait has three types, two methods that a host must write, and callbacks that it may
//! write:
//!
//! | item | what it is | what a host may choose |
//! |---|---|---|
//! | [`Platform::Lock`] | a mutual exclusion lock around a value | a spin lock, a mutex; [`SingleLock`] for one thread |
//! | [`Platform::Storage`] | how a CPU's pagesets are kept, and how they are exclusive | [`SerialStorage`] over an [`Exclusion`], or a [`Storage`] of its own |
//! | [`Platform::Rules`] | the rules; others are not compiled | [`Places`](crate::rules::Places), [`Linux`](crate::rules::Linux), [`ByModel`](crate::rules::ByModel) |
//! | [`Platform::Waiters`] | who waits for locks of pages | `()`, or `WaitState` of `nearpage-pagelock` |
//! | [`Platform::storage`] | the storage | |
//! | [`Platform::now_ns`] | monotonic time | a clock; a counter in tests |
//! | callbacks | calls for help, reports of misuse | nothing, or what the host can do |
//!
//! [`SingleThreaded`] is a complete platform for one thread.
//!
//! # What the core promises to a host
//!
//! * It holds no zone's lock while it calls back, except for [`touch`](Platform::touch) and
//!   [`touch_page`](Platform::touch_page), which must not call the allocator.
//! * It never waits for a CPU's pagesets while it holds a zone's lock, and never holds two zone locks.
//! * It never waits for pagesets that are held: it goes to the zone instead. Only a drain from outside waits, for at most
//!   200 ms.
//!
//! # What a host promises to the core
//!
//! * The lock lets one thread at a time at the value. Where an interrupt handler may allocate, the lock keeps interrupts off.
//! * A [`Storage`] is atomic with respect to its CPU: a thread that is interrupted or moved leaves each list whole. A storage that
//!   gives one entry to two callers hands one page out twice.
//! * No callback calls back into the allocator that it was called from, except to free pages or to drain.
//!
//! # One thread
//!
//! ```
#![doc = include_str!("../examples/one_thread.rs")]
//! ```
//!
//! # A toy kernel
//!
//! Spin locks that keep interrupts off, several CPUs, and a node without memory. The example runs on a host: threads play CPUs,
//! and a counter stands for the interrupt flag.
//!
//! ```
#![doc = include_str!("../examples/toy_kernel.rs")]
//! ```
//!
//! # Does it conform?
//!
//! With the feature `testing`, `testing::storage::check_storage` compares a storage with naive lists in random operations, and
//! `testing::storage::check_exclusion` looks whether a stopped CPU is left alone. Both run on the storage of the toy
//! kernel in `tests/platform.rs`.

pub use crate::alloc::RuleSet;
pub use crate::frame::ZoneFrames;
pub use crate::host::{Access, CompactEffort, Compacted, Lock, NodeReclaimed, Platform, Shortage};
pub use crate::pcp::serial::{
    CpuLock, CurrentCpu, Exclusion, LinkedList, Locked, SerialStorage, Single, TryLock,
};
pub use crate::pcp::storage::{CountedList, EachList, ListCounts, Pop, Push, Storage};
pub use crate::single::{ChosenCpu, SingleLock, SingleStorage, SingleThreaded};
pub use crate::waiters::Waiters;
