//! System calls that nearpage would use and that sandboxes may deny: asked here without any effect.

use std::fmt;
use std::io;

/// A system call that nearpage can do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// `mbind(2)`: puts memory on a node.
    Mbind,
    /// `membarrier(2)`: stops a CPU's restartable sequences, so that its pageset can be drained.
    Membarrier,
    /// `move_pages(2)`: tells where pages are.
    MovePages,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 3] = [Call::Mbind, Call::Membarrier, Call::MovePages];

    /// The call's name.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Mbind => "mbind",
            Call::Membarrier => "membarrier",
            Call::MovePages => "move_pages",
        }
    }

    /// Asks the kernel to do nothing by this call.
    ///
    /// # Errors
    /// The refusal: `EPERM` or `ENOSYS` of a sandbox, `ENOSYS` of a kernel without NUMA.
    pub fn probe(self) -> io::Result<()> {
        const MEMBARRIER_CMD_QUERY: libc::c_long = 0;
        const NONE: libc::c_long = 0;
        let answer = match self {
            // SAFETY: binds the 0 bytes from address 0 on to the default policy: nothing.
            Call::Mbind => unsafe {
                libc::syscall(libc::SYS_mbind, NONE, NONE, libc::MPOL_DEFAULT, NONE, NONE, NONE)
            },
            // SAFETY: tells which commands there are.
            Call::Membarrier => unsafe {
                libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_QUERY, NONE, NONE)
            },
            // SAFETY: asks about 0 pages of this process.
            Call::MovePages => unsafe {
                libc::syscall(libc::SYS_move_pages, NONE, NONE, NONE, NONE, NONE, NONE)
            },
        };
        if answer >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
