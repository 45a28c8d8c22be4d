//! Probes for pages allocated in bulk, which have no event of their own.
//!
//! `nearpage_bulk` (flags, node, pages wanted) and `nearpage_bulk_done` (pages got; the first 16 of them by their
//! `struct page`). The names of the function and its parameters are those of 6.1 to 6.18: until 6.15 the array is
//! the sixth parameter, after a list that nobody used; since 6.16 it is the fifth.

use std::path::{Path, PathBuf};

use super::leftovers::{Leftovers, PROBE_EVENTS, probe_group};
use super::tracefs::append;

const FUNCTIONS: [&str; 2] = ["alloc_pages_bulk_noprof", "__alloc_pages_bulk"];
const PAGES_TOLD: u64 = 16;

/// Probes of this process; removed when dropped. Whatever uses them must have let them go before.
#[derive(Debug)]
pub(super) struct Probes {
    list: PathBuf,
    /// The group of their events.
    group: String,
    events: Vec<&'static str>,
    leftovers: Leftovers,
}

impl Probes {
    /// Sets them, if the kernel allows probes and has the function.
    pub(super) fn set(tracefs: &Path, release: &str) -> Option<Probes> {
        let list = tracefs.join("kprobe_events");
        let (group, leftovers) =
            (probe_group(std::process::id()), Leftovers::of_this_process(tracefs));
        let mut probes = Probes { list, group, events: Vec::new(), leftovers };
        let function = FUNCTIONS.into_iter().find(|function| probes.set_entry(function))?;
        probes.set_return(function, array_parameter(release)).then_some(probes)
    }

    /// The events, as `events/` has them.
    pub(super) fn events(&self) -> impl Iterator<Item = String> + '_ {
        self.events.iter().map(|event| format!("{}/{event}", self.group))
    }

    fn set_entry(&mut self, function: &str) -> bool {
        let fields = "gfp=$arg1:x32 nid=$arg2:s32 nr=$arg4:s32";
        self.add("p", PROBE_EVENTS[0], &format!("{function} {fields}"))
    }

    /// Arguments at the return of a function are new; without them, the number of pages is all there is.
    fn set_return(&mut self, function: &str, array: u32) -> bool {
        let got = format!("{function} n=$retval:s32");
        let page = |at: u64| format!(" p{at}=+{}($arg{array}):x64", 8 * at);
        let pages: String = (0..PAGES_TOLD).map(page).collect();
        self.add("r", PROBE_EVENTS[1], &format!("{got}{pages}"))
            || self.add("r", PROBE_EVENTS[1], &got)
    }

    fn add(&mut self, kind: &str, event: &'static str, what: &str) -> bool {
        let is_set = append(&self.list, &format!("{kind}:{}/{event} {what}\n", self.group)).is_ok();
        if is_set {
            self.events.push(event);
        }
        is_set
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        if !self.events.is_empty() {
            self.leftovers.remove_probes();
        }
    }
}

fn array_parameter(release: &str) -> u32 {
    if is_since(release, (6, 16)) { 5 } else { 6 }
}

/// Whether a kernel's release, such as `6.12.95+deb12-amd64`, is this version or a later one.
pub(super) fn is_since(release: &str, version: (u32, u32)) -> bool {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    (next(), next()) >= version
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_numbers() {
        assert!(is_since("6.12.95+deb12-amd64", (6, 12)) && is_since("7.0-rc1", (6, 12)));
        assert!(!is_since("6.1.0-56-amd64", (6, 12)) && !is_since("5.19.17", (6, 2)));
        assert_eq!((array_parameter("6.15.3"), array_parameter("6.16.0")), (6, 5));
    }

    #[test]
    fn a_kernel_without_probes_has_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Probes::set(folder.path(), "6.18.1").is_none());
    }

    #[test]
    fn probes_are_set_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("kprobe_events");
        std::fs::write(&list, "").unwrap();
        let probes = Probes::set(folder.path(), "6.12.1").unwrap();
        let group = probes.group.clone();
        assert_eq!(probes.events().next().unwrap(), format!("{group}/nearpage_bulk"));
        drop(probes);
        let text = std::fs::read_to_string(&list).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0]
                .starts_with(&format!("p:{group}/nearpage_bulk alloc_pages_bulk_noprof gfp=$arg1"))
        );
        assert!(
            lines[1].contains(" n=$retval:s32 p0=+0($arg6):x64 ")
                && lines[1].ends_with("p15=+120($arg6):x64")
        );
        assert_eq!(lines[2], format!("-:{group}/nearpage_bulk_done"));
        assert_eq!(lines[3..], [format!("-:{group}/nearpage_bulk")]);
    }
}
