//! Small models of the core's protocols on packed words, in all interleavings (within a bound of preemptions) and all
//! orders of memory that the language allows: `cargo xtask loom`.
//!
//! What runs here is the core's own code, on other cells: it is generic over [`nearpage::internals::Cell32`] and
//! [`Cell64`](nearpage::internals::Cell64), and over its platform, whose locks are loom's where the whole core runs. Two
//! things are written down once more: the rings of restartable sequences, which are assembly, and the zones around the
//! versions of a zonelist. A model has a file of its own, two or three threads, one operation each if that is enough, and a
//! canary: a mutation of a cell or a step that the model must find.
#![cfg(loom)]

mod bitmap;
mod cell32;
mod cells;
mod drain;
mod explore;
mod host;
mod map;
mod model_lock;
mod pages;
mod places;
mod zonelist;
