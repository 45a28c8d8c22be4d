//! Loads of memory that processes touch.

use std::hint::black_box;
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::thread;

use rustix::thread::disable_transparent_huge_pages;

use super::{Done, on_each, pin};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

/// Fresh memory, of which every page is touched. That of 128 KiB and more comes from the kernel, and goes back to it.
fn touched(bytes: usize) -> Vec<u8> {
    let mut memory = vec![0_u8; bytes];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *black_box(byte) = 1);
    memory
}

/// On each CPU, memory in small pages, after some in huge ones on the last CPU.
pub fn hog(cpus: &[usize], mib: usize, rounds: usize, huge_mib: usize) -> Done {
    // The switch is the process's own. Memory that exists keeps its huge pages.
    let last = *cpus.last().ok_or("no CPUs")?;
    let huge = pin(last).map(|()| touched(huge_mib * MIB))?;
    disable_transparent_huge_pages(true)?;
    on_each(cpus, |_| {
        (0..rounds).for_each(|_| drop(touched(mib * MIB)));
        Ok(())
    })?;
    drop(huge);
    Ok(())
}

/// One CPU touches, another gives back.
pub fn cross(from: usize, to: usize, mib: usize, kib: usize) -> Done {
    disable_transparent_huge_pages(true)?;
    let (sender, receiver) = sync_channel::<Vec<u8>>(4);
    thread::scope(|scope| {
        let freeing = scope.spawn(move || {
            let pinned = pin(to).map_err(|error| error.to_string());
            receiver.into_iter().for_each(drop);
            pinned
        });
        pin(from)?;
        for _ in 0..mib * 1024 / kib.max(1) {
            sender.send(touched(kib * 1024))?;
        }
        drop(sender);
        Ok(freeing.join().expect("nothing panics")?)
    })
}

/// Each CPU starts processes that touch so much memory.
pub fn spawn(cpus: &[usize], count: usize, kib: &str) -> Done {
    on_each(cpus, |_| {
        for _ in 0..count {
            let status = Command::new("/proc/self/exe").args(["step", "touch", kib]).status()?;
            if !status.success() {
                return Err(format!("a process: {status}").into());
            }
        }
        Ok(())
    })
}

/// What such a process does.
pub fn touch(kib: usize) -> Done {
    disable_transparent_huge_pages(true)?;
    drop(touched(kib * 1024));
    Ok(())
}
