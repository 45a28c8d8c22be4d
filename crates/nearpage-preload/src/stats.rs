//! The figures of the pages below the malloc over a unix socket, if `NEARPAGE_STATS` names one: those of the first program that
//! has the variable, or of each if the name has `%p` in it.
//!
//! The server is a thread, so it begins after the loader has started the program's libraries, and not at the first
//! allocation. A child of a fork has none; a program that it executes begins anew.

use std::sync::{Mutex, PoisonError};

use nearpage_malloc::{StatsError, StatsServer};

use crate::environment::variable;
use crate::message::tell;
use crate::start;

/// Ancestors that are looked at.
const ANCESTORS: usize = 64;

static SERVER: Mutex<Option<StatsServer>> = Mutex::new(None);

extern "C" fn begin() {
    let Some(path) = variable("NEARPAGE_STATS").filter(|path| !path.is_empty()) else { return };
    start::ensure();
    let path = path.replace("%p", &std::process::id().to_string());
    match nearpage_malloc::serve_stats(path) {
        Ok(server) => *SERVER.lock().unwrap_or_else(PoisonError::into_inner) = Some(server),
        // A program that one of its own started has the variable from there, and was not meant.
        Err(StatsError::Taken { by: Some(pid), .. }) if is_ancestor(pid) => {}
        Err(error) => tell(format_args!("NEARPAGE_STATS: {error}")),
    }
}

/// Whether this process descends from another, as far as the system tells.
fn is_ancestor(pid: u32) -> bool {
    let parent_of = |pid: &u32| parent(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    let ancestors = std::iter::successors(Some(std::process::id()), parent_of);
    ancestors.take(ANCESTORS).any(|ancestor| ancestor == pid)
}

/// The parent in the text of `/proc/PID/stat`. The name in front of it may have blanks and brackets in it.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok().filter(|&pid| pid > 0)
}

/// Removes the socket. In the child of a fork this leaves the parent's alone.
extern "C" fn end() {
    // Somebody may end the process from within a thread that has the lock: then the socket stays, and the next replaces it.
    if let Ok(mut server) = SERVER.try_lock() {
        drop(server.take());
    }
}

#[used]
#[cfg_attr(feature = "symbols", unsafe(link_section = ".init_array"))]
static BEGIN: extern "C" fn() = begin;

#[used]
#[cfg_attr(feature = "symbols", unsafe(link_section = ".fini_array"))]
static END: extern "C" fn() = end;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_stand_behind_names() {
        assert_eq!(parent("12 (sh) S 7 12 12 0"), Some(7));
        assert_eq!(parent("12 (a) b) c) S 7 12 12 0"), Some(7));
        assert_eq!(parent("1 (init) S 0 1 1 0"), None);
        assert_eq!(parent("nothing"), None);
        assert!(is_ancestor(std::process::id()) && !is_ancestor(u32::MAX));
    }
}
