//! Memory and CPUs that come and go while the machine runs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::port::Port;

/// How long plugged memory may take to show: an emulated machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks of memory that were plugged in.
#[derive(Default)]
pub struct Plugged(Vec<PathBuf>);

/// The blocks of memory that there are.
fn blocks() -> io::Result<BTreeSet<PathBuf>> {
    let is_block = |path: &PathBuf| path.join("phys_index").exists();
    let all = fs::read_dir("/sys/devices/system/memory")?.flatten().map(|entry| entry.path());
    Ok(all.filter(is_block).collect())
}

/// The state of a block, or nothing once it is gone.
fn state(block: &Path) -> String {
    fs::read_to_string(block.join("state")).unwrap_or_default().trim().to_owned()
}

impl Plugged {
    /// Asks for memory, waits for it, and brings online what the kernel leaves offline. Sends how many blocks came and how many the
    /// kernel left offline.
    pub fn come(&mut self, port: &mut Port) -> io::Result<()> {
        let before = blocks()?;
        port.send("wants-memory", &[])?;
        port.drain()?;
        let end = Instant::now() + PATIENCE;
        let mut new = Vec::new();
        let mut seen = 0;
        // Blocks come one after the other: all are there once no more came for a while.
        while Instant::now() < end && (new.is_empty() || new.len() != seen) {
            seen = new.len();
            std::thread::sleep(Duration::from_secs(1));
            new = blocks()?.difference(&before).cloned().collect();
        }
        let offline: Vec<&PathBuf> = new.iter().filter(|block| state(block) == "offline").collect();
        for block in &offline {
            fs::write(block.join("state"), "online_movable")?;
        }
        let told = format!("{} blocks came, {} of them offline\n", new.len(), offline.len());
        self.0 = new;
        port.send("came", told.as_bytes())
    }

    /// Takes the memory offline again. Sends how many blocks went.
    pub fn go(&mut self, port: &mut Port) -> io::Result<()> {
        let mut went = 0;
        for block in &self.0 {
            // Pages in use may have to be moved first.
            let done = (0..5).any(|_| fs::write(block.join("state"), "offline").is_ok());
            went += usize::from(done && state(block) == "offline");
        }
        let told = format!("{went} of {} blocks went\n", self.0.len());
        port.send("went", told.as_bytes())
    }
}

/// Switches a CPU: `0` off, `1` on.
pub fn switch_cpu(cpu: &str, to: &str) -> io::Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
    fs::write(&path, to)?;
    let now = fs::read_to_string(&path)?;
    if now.trim() == to { Ok(()) } else { Err(io::Error::other("the CPU did not switch")) }
}
