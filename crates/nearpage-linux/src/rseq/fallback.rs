//! Architectures without sequences: [`super::Area::of_glibc`] refuses, so nothing here is ever called.

use nearpage::platform::Push;

use super::MOVED;
use crate::ring::RingList;

/// The CPU that this thread runs on: none that has lists.
pub fn current_cpu(_area: isize) -> u32 {
    u32::MAX
}

/// As on other architectures.
pub fn pop(_area: isize, _list: &RingList<'_>) -> u32 {
    MOVED
}

/// As on other architectures.
pub fn push(_area: isize, _list: &RingList<'_>, _number: u32) -> u32 {
    Push::MOVED.0
}

/// As on other architectures.
pub fn settle(_area: isize, _list: &RingList<'_>) {}

/// As on other architectures.
pub fn pop_batch(_area: isize, _list: &RingList<'_>, _out: &mut [u32]) -> u32 {
    MOVED
}

/// As on other architectures.
pub fn push_batch(_area: isize, _list: &RingList<'_>, _numbers: &[u32]) -> u32 {
    MOVED
}

/// As on other architectures.
pub fn append_run(
    _area: isize,
    _list: &RingList<'_>,
    _first: u32,
    _step: u32,
    _blocks: u32,
) -> u32 {
    MOVED
}

/// As on other architectures.
pub fn pop_cold(_area: isize, _list: &RingList<'_>, _out: &mut [u32]) -> u32 {
    MOVED
}
