//! The server, and readers that mean no good.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nearpage::{Gfp, Order, Request};
use nearpage_slab::SlabConfig;

use super::*;

fn memory() -> Arc<Memory> {
    Arc::new(Memory::builder().bytes_per_node(16 << 20).build().unwrap())
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// The head of the answer to a line, and the content.
fn ask(stream: &UnixStream, line: &str) -> (String, String) {
    let mut reader = BufReader::new(stream);
    reader.get_mut().write_all(line.as_bytes()).unwrap();
    let mut head = String::new();
    reader.read_line(&mut head).unwrap();
    let bytes =
        head.strip_prefix("nearpage 1 ok ").map_or(0, |bytes| bytes.trim().parse().unwrap());
    let mut content = vec![0; bytes];
    reader.read_exact(&mut content).unwrap();
    (head, String::from_utf8(content).unwrap())
}

#[test]
fn every_file_is_answered_over_one_connection() {
    let folder = tempfile::tempdir().unwrap();
    let memory = memory();
    let server = memory.serve_stats(folder.path().join("socket")).unwrap();
    let mode = std::fs::metadata(server.path()).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    let stream = connect(server.path());
    let (_, names) = ask(&stream, "nearpage 1 files\n");
    assert!(names.lines().count() > 25 && !names.contains("slabinfo"), "{names}");
    for name in names.lines() {
        let (head, content) = ask(&stream, &format!("nearpage 1 {name}\n"));
        assert!(head.contains(" ok "), "{name}: {head}");
        // Nothing came from elsewhere: only then the text has no line.
        assert!(content.ends_with('\n') || name == "nearpage/fallbacks", "{name}: {content:?}");
    }
    assert_eq!(ask(&stream, "nearpage 1 proc/buddyinfo\n").1, memory.buddyinfo());
    assert_eq!(ask(&stream, "nearpage 1 proc/zoneinfo\n").1, memory.zoneinfo());
    assert_eq!(ask(&stream, "nearpage 1 proc/none\n").0, "nearpage 1 no file\n");
    let none = ask(&stream, "nearpage 1 sys/devices/system/node/node99999/meminfo\n").0;
    assert_eq!(none, "nearpage 1 no file\n");
    assert_eq!(ask(&stream, "nearpage 1 proc/slabinfo\n").0, "nearpage 1 no file\n");
    let slab = memory.slab(SlabConfig::default()).unwrap();
    assert_eq!(ask(&stream, "nearpage 1 proc/slabinfo\n").1, slab.slabinfo());
    let (_, document) = ask(&stream, "nearpage 1 nearpage/memory.json\n");
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["pid"], std::process::id());
    assert_eq!(document["nodes"][0]["managed_pages"], 4096);
}

#[test]
fn requests_that_are_none_are_refused_and_closed() {
    let folder = tempfile::tempdir().unwrap();
    let memory = memory();
    let server = memory.serve_stats(folder.path().join("socket")).unwrap();
    let long = "x".repeat(5000);
    for (line, told) in [
        ("nearpage 7 files\n", "version 7 was asked for; version 1 is answered"),
        ("GET / HTTP/1.1\r\n\r\n", "that is no request; `nearpage 1 files` and"),
        ("\n", "that is no request"),
        (&long, "a request has at most 256 bytes"),
    ] {
        let mut stream = connect(server.path());
        // A server that has refused may close before all is written.
        let _ = stream.write_all(line.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(answer.starts_with("nearpage 1 refused ") && answer.contains(told), "{answer:?}");
    }
    // A half-closed connection is answered: `echo ... | nc -U`.
    let mut stream = connect(server.path());
    stream.write_all(b"nearpage 1 proc/buddyinfo\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with(&memory.buddyinfo()), "{answer}");
}

/// They hold a place for some seconds, and no more; whoever asks meanwhile is answered, and allocations go on.
#[test]
fn readers_that_hang_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let memory = memory();
    let server = memory.serve_stats(folder.path().join("socket")).unwrap();
    let files = ["nearpage 1 proc/zoneinfo\n"; 400].concat();
    // Half of them do not read what they asked for, the others stop in a request.
    let hung: Vec<UnixStream> = (0..14)
        .map(|at| {
            let mut stream = connect(server.path());
            stream.set_nonblocking(true).unwrap();
            let _ = stream.write(if at % 2 == 0 { files.as_bytes() } else { b"nearp" });
            stream
        })
        .collect();
    let begin = Instant::now();
    assert_eq!(ask(&connect(server.path()), "nearpage 1 proc/none\n").0, "nearpage 1 no file\n");
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    let request = Request::new(Order(0), Gfp::KERNEL);
    for _ in 0..10_000 {
        drop(memory.alloc(request).unwrap());
    }
    thread::sleep(Duration::from_secs(6));
    for mut stream in hung {
        stream.set_nonblocking(false).unwrap();
        let mut taken = Vec::new();
        let _ = stream.read_to_end(&mut taken);
        assert!(taken.len() < 400 * memory.zoneinfo().len(), "it was dropped before it had all");
    }
}

#[test]
fn a_crowd_of_idle_readers_keeps_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let memory = memory();
    let server = memory.serve_stats(folder.path().join("socket")).unwrap();
    let mut idle = Vec::new();
    for _ in 0..100 {
        let stream = connect(server.path());
        assert!(ask(&stream, "nearpage 1 proc/buddyinfo\n").0.contains(" ok "));
        idle.push(stream);
    }
    // The last of them still has its place.
    assert!(ask(&idle[99], "nearpage 1 proc/buddyinfo\n").0.contains(" ok "));
}

/// Threads allocate while others read all there is; both come to an end, and all counters agree.
#[test]
fn reading_and_allocating_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let memory = memory();
    let server = memory.serve_stats(folder.path().join("socket")).unwrap();
    let (stops, pages) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stops.load(Ordering::Relaxed) {
                    let blocks: Vec<_> =
                        (0..200).filter_map(|_| memory.alloc_pages(1).ok()).collect();
                    pages.fetch_add(blocks.len() as u64, Ordering::Relaxed);
                }
            });
        }
        let stream = connect(server.path());
        for _ in 0..100 {
            for file in ["zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat"] {
                assert!(ask(&stream, &format!("nearpage 1 proc/{file}\n")).0.contains(" ok "));
            }
        }
        stops.store(true, Ordering::Relaxed);
    });
    assert!(pages.load(Ordering::Relaxed) > 1000);
    memory.drain_all().unwrap();
    assert_eq!(memory.check().unwrap().allocated.0, 0);
}

#[test]
fn names_that_are_taken_and_names_that_were_left() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, path) = (memory(), folder.path().join("socket"));
    let server = memory.serve_stats(&path).unwrap();
    let this = Some(std::process::id());
    assert!(matches!(memory.serve_stats(&path), Err(StatsError::Taken { by, .. }) if by == this));
    drop(server);
    assert!(!path.exists(), "its socket goes with it");
    // A process that was killed leaves its socket.
    drop(UnixListener::bind(&path).unwrap());
    let server = memory.serve_stats(&path).unwrap();
    assert!(ask(&connect(&path), "nearpage 1 files\n").0.contains(" ok "));
    // What was put in its place is not removed.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "mine").unwrap();
    drop(server);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    assert!(
        matches!(memory.serve_stats(&path), Err(StatsError::Taken { by: None, .. })),
        "no socket"
    );
    let long = folder.path().join("x".repeat(120));
    let error = memory.serve_stats(&long).unwrap_err().to_string();
    assert!(error.ends_with("at most 107 bytes"), "{error}");
    let error = memory.serve_stats("/nonexistent/socket").unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/socket: "), "{error}");
}

#[test]
fn the_server_ends_with_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    let memory = memory();
    let server = memory.serve_stats(folder.path().join("socket")).unwrap();
    let mut stream = connect(server.path());
    assert!(ask(&stream, "nearpage 1 files\n").0.contains(" ok "));
    drop(memory);
    stream.write_all(b"nearpage 1 files\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty());
    drop(server);
    assert!(!folder.path().join("socket").exists());
}

/// The kernel keeps others out by the mode; should somebody change that, they are told.
#[test]
fn readers_of_another_user_are_told() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: a reader of another user (run the tests as root)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let memory = memory();
    let server = memory.serve_stats(folder.path().join("socket")).unwrap();
    let path = server.path().to_owned();
    let as_nobody = |path: &Path| {
        let path = path.to_owned();
        let reader = thread::spawn(move || {
            // SAFETY: the system call, unlike the function of the C library, changes this thread alone, which ends here.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
            assert_eq!(changed, 0);
            let mut stream = UnixStream::connect(path)?;
            let _ = stream.write_all(b"nearpage 1 files\n");
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            Ok::<_, io::Error>(answer)
        });
        reader.join().unwrap()
    };
    assert_eq!(as_nobody(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(
        as_nobody(&path).unwrap(),
        "nearpage 1 refused you are user 65534; readers of user 0 and root are answered\n"
    );
}
