//! What process 1 is told to do.
//!
//! | order | what is done |
//! |---|---|
//! | `port DEVICE` | opens the serial port; the first order |
//! | `capture NAME` | sends a capture |
//! | `set KEY VALUE` | writes a setting, such as `vm.min_free_kbytes` |
//! | `keep KEY`, `restore KEY` | remembers a setting; writes what was remembered |
//! | `rewrite KEY` | writes what a setting is |
//! | `machine` | sends what does not change, and the log |
//! | `send NAME FILE` | sends a file of the machine |
//! | `load FILE` | runs a load |
//! | `record NAME FILE` | records a load as a bundle of this name, and sends it |
//! | `run NAME PROGRAM WORDS…` | runs a program, whose variables may stand before it (`KEY=VALUE`), and sends how it ended and what it printed |
//! | `begin NAME PROGRAM WORDS…`, `finish NAME` | the same, beside all that comes between: again and again, and the last is sent |
//! | `cgroups CONTROLLER…` | gives cgroups below the root these controllers |
//! | `plug`, `unplug` | asks for memory and brings it online; takes it offline |
//! | `cpu NUMBER 0`, `cpu NUMBER 1` | switches a CPU off, on |

use std::collections::HashMap;
use std::fs;
use std::io;
use std::process::Command;

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};

use crate::capture::{send_capture, send_machine};
use crate::hotplug::{Plugged, switch_cpu};
use crate::port::Port;
use crate::programs::{self, Running};

/// This program.
const ITSELF: &str = "/init";
/// The one that records.
const RECORDER: &str = "/nearpage";
/// Memory in which files are written: the bundle, and those of the recorder.
const SCRATCH: &str = "/tmp";

type Done = Result<(), Box<dyn std::error::Error>>;

/// Carries out `/orders`, and switches the machine off.
///
/// # Errors
///
/// The machine cannot be switched off. What else goes wrong is printed, and the end is not sent.
pub fn carry_out() -> Done {
    if let Err(problem) = carry_out_all() {
        eprintln!("guest: {problem}");
    }
    rustix::fs::sync();
    reboot(RebootCommand::PowerOff)?;
    Ok(())
}

/// What orders leave for later ones.
#[derive(Default)]
struct Kept {
    settings: HashMap<String, String>,
    running: Running,
    plugged: Plugged,
}

fn carry_out_all() -> Done {
    for (kind, folder) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", SCRATCH),
        ("cgroup2", "/sys/fs/cgroup"),
    ] {
        fs::create_dir_all(folder)?;
        mount(kind, folder, kind, MountFlags::empty(), None)?;
    }
    let orders = fs::read_to_string("/orders")?;
    let mut lines = orders.lines();
    let device = lines.next().and_then(|line| line.strip_prefix("port "));
    let mut port = Port::open(device.ok_or("the first order opens the port")?)?;
    let mut kept = Kept::default();
    for line in lines {
        carry_out_one(line, &mut port, &mut kept).map_err(|error| format!("{line}: {error}"))?;
    }
    port.send("end", &[])?;
    Ok(port.drain()?)
}

fn carry_out_one(line: &str, port: &mut Port, kept: &mut Kept) -> Done {
    let (order, rest) = line.split_once(' ').unwrap_or((line, ""));
    match (order, rest.split_once(' ')) {
        ("capture", _) => send_capture(port, rest)?,
        ("set", Some((key, value))) => fs::write(path_of(key), value)?,
        ("keep", _) => _ = kept.settings.insert(rest.into(), fs::read_to_string(path_of(rest))?),
        ("restore", _) => fs::write(path_of(rest), kept.settings.get(rest).ok_or("was not kept")?)?,
        ("rewrite", _) => fs::write(path_of(rest), fs::read_to_string(path_of(rest))?)?,
        ("machine", _) => {
            send_machine(port)?;
            port.send("dmesg/raw", &log()?)?;
        }
        ("send", Some((name, file))) => port.send(name, &fs::read(file)?)?,
        ("load", _) => succeed(Command::new(ITSELF).args(["load", rest]))?,
        ("record", Some((name, file))) => {
            let bundle = format!("{SCRATCH}/{name}.tar.zst");
            let load = ["--", ITSELF, "load", file];
            succeed(
                Command::new(RECORDER).args(["--quiet", "record", "--output", &bundle]).args(load),
            )?;
            port.send("bundle", &fs::read(bundle)?)?;
        }
        ("run", Some((name, words))) => programs::run(port, name, words)?,
        ("begin", Some((name, words))) => kept.running.begin(name, words)?,
        ("finish", None) => kept.running.finish(port, rest)?,
        ("cgroups", _) => {
            let controllers: Vec<String> = rest.split(' ').map(|name| format!("+{name}")).collect();
            fs::write("/sys/fs/cgroup/cgroup.subtree_control", controllers.join(" "))?;
        }
        ("plug", None) => kept.plugged.come(port)?,
        ("unplug", None) => kept.plugged.go(port)?,
        ("cpu", Some((cpu, to))) => switch_cpu(cpu, to)?,
        _ => return Err("is no order".into()),
    }
    Ok(())
}

fn path_of(key: &str) -> String {
    format!("/proc/sys/{}", key.replace('.', "/"))
}

fn succeed(command: &mut Command) -> Done {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

/// The kernel's log, as `dmesg` prints it: one record a read, `PRIORITY,NUMBER,MICROSECONDS,FLAGS;TEXT`.
fn log() -> io::Result<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;

    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = fs::OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg")?;
    let (mut text, mut record) = (Vec::new(), [0; 8192]);
    loop {
        match file.read(&mut record) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(text),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => return Err(error),
            Ok(length) => text.extend(line_of(&String::from_utf8_lossy(&record[..length])).bytes()),
        }
    }
}

fn line_of(record: &str) -> String {
    let first = record.lines().next().unwrap_or_default();
    let Some((head, message)) = first.split_once(';') else { return String::new() };
    let time: u64 = head.split(',').nth(2).and_then(|time| time.parse().ok()).unwrap_or(0);
    format!("[{:5}.{:06}] {message}\n", time / 1_000_000, time % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_log_become_lines() {
        let record = "6,339,5140900,-;Freeing initrd memory: 1200K\n SUBSYSTEM=x\n";
        assert_eq!(line_of(record), "[    5.140900] Freeing initrd memory: 1200K\n");
        assert_eq!(line_of("damage"), "");
    }

    #[test]
    fn settings_have_a_path() {
        assert_eq!(path_of("vm.min_free_kbytes"), "/proc/sys/vm/min_free_kbytes");
    }
}
