//! System calls that a sandbox may deny, and whether it does: each is tried without any effect.

use std::fmt;
use std::io;

use crate::ffi;

/// A system call that a memory uses if it is granted, and does without otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemCall {
    /// `mbind(2)`: puts memory on a node.
    Mbind,
    /// `membarrier(2)`: stops a CPU's restartable sequences, so that its pageset can be drained.
    Membarrier,
    /// `move_pages(2)`: tells where pages are.
    MovePages,
}

impl SystemCall {
    /// All of them.
    pub const ALL: [SystemCall; 3] =
        [SystemCall::Mbind, SystemCall::Membarrier, SystemCall::MovePages];

    /// The call's name.
    pub const fn name(self) -> &'static str {
        match self {
            SystemCall::Mbind => "mbind",
            SystemCall::Membarrier => "membarrier",
            SystemCall::MovePages => "move_pages",
        }
    }

    /// Tries the call without any effect.
    ///
    /// # Errors
    /// The refusal: `EPERM` or `ENOSYS` of a sandbox, `ENOSYS` of a kernel without NUMA.
    pub fn probe(self) -> io::Result<()> {
        match self {
            SystemCall::Mbind => ffi::mbind_nothing(),
            SystemCall::Membarrier => ffi::query_membarrier(),
            SystemCall::MovePages => ffi::nodes_of_pages(&[], &mut []),
        }
    }
}

impl fmt::Display for SystemCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
