//! What a process finds out by trying: denied system calls, restartable sequences, limits.

use std::io;

use nearpage_linux::{RseqUnavailable, StorageInUse, SystemCall};
use nearpage_machine::size;

use crate::facts::{Facts, Process};
use crate::finding::Finding;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let Some(process) = &facts.process else { return Vec::new() };
    let mut findings: Vec<Finding> =
        process.calls.iter().map(|&(call, errno)| of_call(facts, call, errno)).collect();
    findings.extend([storage(process), address_limit(process)]);
    findings
}

fn of_call(facts: &Facts, call: SystemCall, errno: Option<i32>) -> Finding {
    let Some(errno) = errno else { return Finding::good(call.name(), "granted", granted(call)) };
    let found = format!("refused ({})", io::Error::from_raw_os_error(errno));
    let (meaning, advice) = refused(call);
    // On one node no page can be on a wrong one.
    let matters = call == SystemCall::Membarrier || facts.has_many_nodes();
    let finding = if matters { Finding::problem } else { Finding::note };
    finding(call.name(), found, meaning).advise(advice)
}

fn granted(call: SystemCall) -> &'static str {
    match call {
        SystemCall::Mbind => "memory can be bound to its node",
        SystemCall::Membarrier => "caches of other CPUs can be drained",
        SystemCall::MovePages => {
            "where pages are can be verified (`nearpage topo --verify-placement`)"
        }
    }
}

fn refused(call: SystemCall) -> (&'static str, &'static str) {
    match call {
        SystemCall::Mbind => (
            "memory cannot be bound: a page lies where the first thread to touch it runs",
            "run the container with CAP_SYS_NICE or a seccomp profile that grants mbind; else let a thread \
             of each node touch that node's memory (`Memory::prefault`)",
        ),
        SystemCall::Membarrier => (
            "no CPU can be stopped from outside, so pagesets need a lock: a pair of allocation and free \
             takes several times as long",
            "grant membarrier in the seccomp profile",
        ),
        SystemCall::MovePages => (
            "nobody can tell where pages are",
            "grant move_pages in the seccomp profile, as CAP_SYS_NICE does in most containers",
        ),
    }
}

fn storage(process: &Process) -> Finding {
    let check = "rseq";
    match process.storage {
        StorageInUse::Rseq => Finding::good(
            check,
            "in use",
            "allocation and free from a CPU's own cache need no atomic instruction",
        ),
        StorageInUse::LockedByChoice => Finding::note(
            check,
            "off by NEARPAGE_RSEQ",
            "pagesets need a lock: a pair of allocation and free takes several times as long",
        )
        .advise("unset NEARPAGE_RSEQ"),
        // The refused call is a problem of its own already.
        StorageInUse::LockedBecause(why @ RseqUnavailable::NoMembarrier(_))
            if process
                .calls
                .iter()
                .any(|call| matches!(call, (SystemCall::Membarrier, Some(_)))) =>
        {
            Finding::note(check, why, "pagesets need a lock: see membarrier")
        }
        StorageInUse::LockedBecause(why) => Finding::problem(
            check,
            why,
            "pagesets need a lock: a pair of allocation and free takes several times as long",
        )
        .advise("use glibc 2.35 or later and a sandbox that grants rseq and membarrier"),
    }
}

fn address_limit(process: &Process) -> Finding {
    let check = "RLIMIT_AS";
    match process.address_limit {
        None => Finding::good(
            check,
            "unlimited",
            "addresses can be reserved for memory that comes later",
        ),
        Some(bytes) => Finding::note(
            check,
            size::format(bytes),
            "addresses that are only reserved count: a large reserve may be refused",
        )
        .advise("`ulimit -v unlimited`, and limit memory by a cgroup; or reserve less"),
    }
}

#[cfg(test)]
mod tests {
    use nearpage_machine::MemoryTree;

    use super::*;
    use crate::finding::Level;

    fn facts(nodes: u32, process: Process) -> Facts {
        let mut tree = MemoryTree::new("box");
        for node in 0..nodes {
            let folder = format!("sys/devices/system/node/node{node}");
            tree.insert(format!("{folder}/cpulist"), node.to_string());
        }
        Facts { process: Some(process), ..Facts::read(&tree) }
    }

    fn levels(nodes: u32, process: &Process) -> Vec<Level> {
        findings(&facts(nodes, process.clone())).iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn all_granted_is_good() {
        let calls = SystemCall::ALL.map(|call| (call, None)).into();
        let process = Process { calls, storage: StorageInUse::Rseq, address_limit: None };
        assert_eq!(levels(2, &process), [Level::Good; 5]);
    }

    #[test]
    fn refusals_are_problems_where_they_matter() {
        let process = Process {
            calls: SystemCall::ALL.map(|call| (call, Some(libc::EPERM))).into(),
            storage: StorageInUse::LockedBecause(RseqUnavailable::NotRegistered),
            address_limit: Some(1 << 30),
        };
        use Level::{Note, Problem};
        assert_eq!(levels(2, &process), [Problem, Problem, Problem, Problem, Note]);
        assert_eq!(levels(1, &process), [Note, Problem, Note, Problem, Note]);
        let all = findings(&facts(1, process.clone()));
        assert_eq!(all[4].found, "1 GiB");
        assert_eq!(all[0].found, "refused (Operation not permitted (os error 1))");
        assert!(all.iter().all(|finding| finding.advice.is_some()));
        // The storage is no second problem if the call is refused, and it is one if the call is granted.
        let storage = StorageInUse::LockedBecause(RseqUnavailable::NoMembarrier(libc::EPERM));
        let process = Process { storage, ..process };
        assert_eq!(levels(1, &process), [Note, Problem, Note, Note, Note]);
        let calls = SystemCall::ALL.map(|call| (call, None)).into();
        let process = Process { calls, ..process };
        assert_eq!(levels(1, &process)[3], Problem);
    }
}
