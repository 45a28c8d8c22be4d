//! The figures of the pages below the malloc over a unix socket, if `NEARPAGE_STATS` names one.
//!
//! The server is a thread, so it begins after the loader has started the program's libraries, and not at the first
//! allocation. A child of a fork has none; a program that it executes begins anew.

use std::sync::{Mutex, PoisonError};

use nearpage_malloc::StatsServer;

use crate::environment::variable;
use crate::message::tell;
use crate::start;

static SERVER: Mutex<Option<StatsServer>> = Mutex::new(None);

extern "C" fn begin() {
    let Some(path) = variable("NEARPAGE_STATS").filter(|path| !path.is_empty()) else { return };
    start::ensure();
    let path = path.replace("%p", &std::process::id().to_string());
    match nearpage_malloc::serve_stats(path) {
        Ok(server) => *SERVER.lock().unwrap_or_else(PoisonError::into_inner) = Some(server),
        Err(error) => tell(format_args!("NEARPAGE_STATS: {error}")),
    }
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
