//! Loads: what makes a kernel allocate and free pages in known ways.
//!
//! | step | what happens |
//! |---|---|
//! | `hog CPUS MIB ROUNDS [HUGE]` | on each CPU at once: memory is touched and given back, in each round; on the last of them `HUGE` MiB in huge pages before |
//! | `cross FROM TO MIB KIB` | one CPU touches memory in pieces, another gives it back |
//! | `spawn CPUS COUNT KIB` | each CPU starts processes one after the other, which touch so much |
//! | `threads CPUS COUNT` | each CPU starts threads, all at once, and waits for them |
//! | `files CPUS COUNT BYTES` | each CPU writes files in memory, reads them and removes them |
//! | `stream FROM TO MIB BYTES` | one CPU sends through a socket in pieces, another receives |
//! | `sleep MS` | nothing |
//!
//! CPUs are a list such as `0,2-3`.

mod memory;
mod traffic;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};

type Done = Result<(), Box<dyn std::error::Error>>;

/// Runs the steps of a file, each in a process of its own.
///
/// # Errors
///
/// The file cannot be read, or a step fails.
pub fn run_file(path: &str) -> Done {
    let steps = fs::read_to_string(path)?;
    for step in steps.lines().filter(|line| !line.is_empty()) {
        println!("{step}");
        let status = Command::new("/proc/self/exe").arg("step").args(step.split(' ')).status()?;
        if !status.success() {
            return Err(format!("{step}: {status}").into());
        }
    }
    Ok(())
}

/// Runs a step.
///
/// # Errors
///
/// There is no such step, or the machine has no such CPU, or no memory.
pub fn run_step(words: &[&str]) -> Done {
    let number = |word: &str| word.parse::<usize>().map_err(|error| format!("{word}: {error}"));
    match *words {
        ["hog", cpus, mib, rounds] => memory::hog(&list(cpus)?, number(mib)?, number(rounds)?, 0),
        ["hog", cpus, mib, rounds, huge] => {
            memory::hog(&list(cpus)?, number(mib)?, number(rounds)?, number(huge)?)
        }
        ["cross", from, to, mib, kib] => {
            memory::cross(number(from)?, number(to)?, number(mib)?, number(kib)?)
        }
        ["spawn", cpus, count, kib] => memory::spawn(&list(cpus)?, number(count)?, kib),
        ["touch", kib] => memory::touch(number(kib)?),
        ["threads", cpus, count] => traffic::threads(&list(cpus)?, number(count)?),
        ["files", cpus, count, bytes] => {
            traffic::files(&list(cpus)?, number(count)?, number(bytes)?)
        }
        ["stream", from, to, mib, bytes] => {
            traffic::stream(number(from)?, number(to)?, number(mib)?, number(bytes)?)
        }
        ["sleep", ms] => {
            thread::sleep(Duration::from_millis(number(ms)? as u64));
            Ok(())
        }
        _ => Err(format!("{}: no such step", words.join(" ")).into()),
    }
}

/// `0,2-3` is 0, 2 and 3.
fn list(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |word: &str| word.parse::<usize>().map_err(|_| format!("{text}: no CPUs"));
        cpus.extend(number(first)?..=number(last)?);
    }
    Ok(cpus)
}

/// Binds this thread to a CPU.
fn pin(cpu: usize) -> Done {
    if cpu >= CpuSet::MAX_CPU {
        return Err(format!("CPU {cpu}: expected one below {}", CpuSet::MAX_CPU).into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| format!("CPU {cpu}: {error}"))?;
    Ok(())
}

/// Runs the same on each of some CPUs at once.
fn on_each(cpus: &[usize], work: impl Fn(usize) -> Done + Sync) -> Done {
    let pinned = |cpu| pin(cpu).and_then(|()| work(cpu)).map_err(|error| error.to_string());
    let pinned = &pinned;
    thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|&cpu| scope.spawn(move || pinned(cpu))).collect();
        threads.into_iter().try_for_each(|thread| Ok(thread.join().expect("no step panics")?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(list("0,2-4").unwrap(), [0, 2, 3, 4]);
        assert!(list("0-x").is_err() && list("").is_err());
    }

    #[test]
    fn steps_run_or_are_refused() {
        for step in [
            "hog 0 1 2",
            "hog 0 1 1 4",
            "cross 0 0 1 64",
            "threads 0 3",
            "stream 0 0 1 4096",
            "sleep 1",
        ] {
            run_step(&step.split(' ').collect::<Vec<_>>()).unwrap();
        }
        let refused = run_step(&["hog", "0"]).unwrap_err().to_string();
        assert_eq!(refused, "hog 0: no such step");
        let refused = run_step(&["hog", "100000", "1", "1"]);
        assert!(refused.is_err());
    }
}
