//! Loads of threads, files and sockets.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::thread;

use super::{Done, on_each, pin};

/// Where files are made: in memory.
const FOLDER: &str = "/tmp";

/// Each CPU starts threads, whose stacks the kernel allocates in bulk.
pub fn threads(cpus: &[usize], count: usize) -> Done {
    on_each(cpus, |_| {
        let barrier = Barrier::new(count);
        thread::scope(|scope| {
            (0..count).for_each(|_| _ = scope.spawn(|| barrier.wait()));
        });
        Ok(())
    })
}

/// Each CPU writes, reads and removes files.
pub fn files(cpus: &[usize], count: usize, bytes: usize) -> Done {
    on_each(cpus, |cpu| {
        let content = vec![b'x'; bytes];
        let path = |index: usize| format!("{FOLDER}/file.{cpu}.{index}");
        for index in 0..count {
            fs::write(path(index), &content)?;
        }
        for index in 0..count {
            fs::read(path(index))?;
        }
        for index in 0..count {
            fs::remove_file(path(index))?;
        }
        Ok(())
    })
}

/// One CPU sends through a socket, another receives.
pub fn stream(from: usize, to: usize, mib: usize, bytes: usize) -> Done {
    let (mut near, mut far) = UnixStream::pair()?;
    thread::scope(|scope| {
        let receiving = scope.spawn(move || -> Result<(), String> {
            pin(to).map_err(|error| error.to_string())?;
            let mut buffer = vec![0; bytes];
            while far.read(&mut buffer).map_err(|error| error.to_string())? > 0 {}
            Ok(())
        });
        pin(from)?;
        let piece = vec![b'x'; bytes];
        for _ in 0..(mib << 20) / bytes.max(1) {
            near.write_all(&piece)?;
        }
        drop(near);
        Ok(receiving.join().expect("nothing panics")?)
    })
}
