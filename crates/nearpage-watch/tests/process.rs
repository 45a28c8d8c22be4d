//! A process that serves its figures, read as if it were a machine.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nearpage::NodeId;
use nearpage_linux::{HostMachine, Memory};
use nearpage_machine::{FileTree, FolderTree, MachineDescription, read_machine};
use nearpage_watch::{CopyError, ProcessCopy, ProcessError, ProcessTree, Sampler};

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    Place { path: folder.path().join("socket"), _folder: folder }
}

/// Two nodes of different sizes, which share the CPUs.
fn memory() -> Arc<Memory> {
    let text = "--numa 1G,cpus=0-1 --numa 1G,cpus=2-3 --numa-distance 0,1=21";
    let described = MachineDescription::from_reader(
        "two nodes",
        text.as_bytes(),
        &nearpage_machine::Budget::DEFAULT,
    )
    .unwrap();
    let machine = HostMachine::emulated(&described.machine);
    let builder = Memory::builder().machine(machine).bytes_per_node(32 << 20);
    Arc::new(builder.bytes_on(NodeId(1), 16 << 20).build().unwrap())
}

#[test]
fn a_process_is_sampled_like_a_machine() {
    let (memory, place) = (memory(), place());
    let _server = memory.serve_stats(&place.path).unwrap();
    let tree = ProcessTree::connect(&place.path).unwrap();
    assert_eq!(tree.pid(), Some(std::process::id()));
    assert_eq!(tree.names("sys/devices/system/node").unwrap().len(), 7);
    assert_eq!(tree.names("").unwrap(), ["nearpage", "proc", "sys"]);
    assert_eq!(tree.read("etc/passwd").unwrap(), None);
    let machine = read_machine(&tree).unwrap();
    let bytes: Vec<_> = machine.nodes.iter().map(|node| node.memory_bytes.unwrap()).collect();
    assert_eq!(bytes, [32 << 20, 16 << 20]);
    assert_eq!(machine.distances, [10, 21, 21, 10]);

    let blocks: Vec<_> = (0..1000).map(|_| memory.alloc_pages(1).unwrap()).collect();
    let sample = Sampler::new(Box::new(tree)).sample();
    assert_eq!(sample.unreadable, [""; 0]);
    let free: u64 = sample.zones.iter().map(|zone| zone.free.unwrap()).sum();
    let in_pagesets: u64 = sample.zones.iter().filter_map(|zone| zone.pageset_pages).sum();
    assert_eq!(free + in_pagesets + blocks.len() as u64, (48 << 20) / 4096);
    assert_eq!(sample.nodes[1].total, Some(16 << 10));
    assert_eq!(sample.nodes[1].distances, [21, 10]);
    assert!(sample.event("pgalloc_normal").unwrap() >= 1000);
    assert!(sample.kernel.unwrap().starts_with("nearpage-"));
}

#[test]
fn a_process_is_found_by_its_id() {
    let (memory, place) = (memory(), place());
    let own = std::process::id();
    assert!(matches!(ProcessTree::of_process(u32::MAX), Err(ProcessError::Process { .. })));
    {
        let _server = memory.serve_stats(&place.path).unwrap();
        let tree = ProcessTree::open(&own.to_string()).unwrap();
        // Other tests of this process serve, too.
        assert!(tree.files().unwrap().contains(&"proc/zoneinfo".into()));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let error = ProcessTree::of_process(child.id()).unwrap_err();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(error, ProcessError::NotServed { .. }), "{error}");
    }
    let error = ProcessTree::connect(&place.path).unwrap_err().to_string();
    assert!(
        error.ends_with("there is no such socket: the process has ended, or never served"),
        "{error}"
    );
}

/// A note is what its process says: it may name the socket of another program, which must hear nothing of it.
#[test]
fn another_process_at_a_noted_socket_is_asked_nothing() {
    let place = place();
    let listener = UnixListener::bind(&place.path).unwrap();
    let heard = thread::spawn(move || {
        let mut text = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut text).unwrap();
        text
    });
    let note = rustix::fs::memfd_create("nearpage-stats", rustix::fs::MemfdFlags::empty()).unwrap();
    rustix::io::write(&note, place.path.as_os_str().as_encoded_bytes()).unwrap();
    // It inherits the note, and pretends to serve where this process does.
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    drop(note);
    let error = ProcessTree::of_process(child.id()).unwrap_err();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(error, ProcessError::Forked { .. }), "{error}");
    assert_eq!(heard.join().unwrap(), b"");
}

#[test]
fn a_connection_that_was_dropped_is_made_anew() {
    let (memory, place) = (memory(), place());
    let _server = memory.serve_stats(&place.path).unwrap();
    let tree = ProcessTree::connect(&place.path).unwrap();
    // So many others that the idle reader loses its place.
    let crowd: Vec<_> = (0..40).map(|_| ProcessTree::connect(&place.path).unwrap()).collect();
    assert!(tree.read("proc/buddyinfo").unwrap().is_some());
    drop(crowd);
    drop(memory);
    assert!(tree.read("proc/buddyinfo").is_err());
}

/// What listens at the path answers with `answer` to anything.
fn impostor(answer: &'static [u8]) -> (Place, thread::JoinHandle<()>) {
    let place = place();
    let listener = UnixListener::bind(&place.path).unwrap();
    let thread = thread::spawn(move || {
        let (mut stream, _): (UnixStream, _) = listener.accept().unwrap();
        let mut request = [0; 64];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(answer);
    });
    (place, thread)
}

/// A server that refuses closes before it is asked, or after.
#[test]
fn who_is_refused_at_once_is_told_why() {
    let place = place();
    let listener = UnixListener::bind(&place.path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"nearpage 1 refused you are user 7\n");
        }
    });
    for _ in 0..500 {
        let error = ProcessTree::connect(&place.path).unwrap_err();
        assert!(matches!(error, ProcessError::Refused { .. }), "{error}");
    }
}

#[test]
fn other_programs_and_other_versions_are_told() {
    for (answer, told) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], "what listens there is no memory of nearpage"),
        (b"nearpage 2 ok 5\nhello", "it answers version 2 of the socket's language"),
        (b"nearpage 1 refused you are nobody\n", "refused: you are nobody"),
        (b"nearpage 1 ok 99999999999999\n", "it announces 99999999999999 bytes"),
        (&[b'x'; 4096], "what listens there is no memory of nearpage"),
        (&[0xff; 100], "closed without an answer"),
    ] {
        let (place, thread) = impostor(answer);
        let error = ProcessTree::connect(&place.path).unwrap_err().to_string();
        thread.join().unwrap();
        assert!(error.contains(told), "{error}");
    }
    let place = place();
    std::fs::write(&place.path, "").unwrap();
    let error = ProcessTree::connect(&place.path).unwrap_err().to_string();
    assert!(error.contains("nobody serves there any more, or it is no socket"), "{error}");
}

/// Who sends a byte now and then, or nothing, is given up after five seconds, and not waited for again at once.
#[test]
fn a_process_that_does_not_answer_is_waited_for_once() {
    let place = place();
    let listener = UnixListener::bind(&place.path).unwrap();
    let thread = thread::spawn(move || {
        let (mut stream, _): (UnixStream, _) = listener.accept().unwrap();
        let mut request = [0; 64];
        let _ = stream.read(&mut request);
        stream.write_all(b"nearpage 1 ok 2\na\n").unwrap();
        let _ = stream.read(&mut request);
        // The second answer trickles until the reader leaves.
        while stream.write_all(b"n").is_ok() {
            thread::sleep(Duration::from_millis(200));
        }
    });
    let tree = ProcessTree::connect(&place.path).unwrap();
    let begin = Instant::now();
    for file in ["proc/zoneinfo", "proc/buddyinfo", "proc/vmstat"] {
        let error = tree.read(file).unwrap_err().to_string();
        assert!(error.contains("no answer within 5 s"), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
    thread.join().unwrap();
}

#[test]
fn more_than_was_asked_for_is_no_answer() {
    let (place, thread) = impostor(b"nearpage 1 ok 2\na\nnearpage 1 ok 2\nb\n");
    let error = ProcessTree::connect(&place.path).unwrap_err().to_string();
    thread.join().unwrap();
    assert!(error.contains("no memory of nearpage"), "{error}");
}

#[test]
fn a_copy_is_a_tree_that_others_read() {
    let (memory, place) = (memory(), place());
    let _server = memory.serve_stats(&place.path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("new/root");
    let copy = ProcessCopy::new(ProcessTree::connect(&place.path).unwrap(), &root).unwrap();
    let files = copy.write().unwrap();
    let machine = read_machine(&FolderTree::new(&root)).unwrap();
    assert_eq!(machine.nodes.len(), 2);
    let sample = Sampler::new(Box::new(FolderTree::new(&root))).sample();
    assert_eq!(sample.zones.len(), 2);
    // Written anew over itself, and over nothing else.
    let block = memory.alloc_pages(1024).unwrap();
    assert_eq!(copy.write().unwrap(), files);
    let text = std::fs::read_to_string(root.join("proc/buddyinfo")).unwrap();
    assert_eq!(text, memory.buddyinfo());
    drop(block);
    ProcessCopy::new(ProcessTree::connect(&place.path).unwrap(), &root).unwrap().write().unwrap();
    let others = folder.path().join("others");
    std::fs::create_dir(&others).unwrap();
    std::fs::write(others.join("precious"), "").unwrap();
    let error = ProcessCopy::new(ProcessTree::connect(&place.path).unwrap(), &others).unwrap_err();
    assert!(matches!(error, CopyError::NotEmpty { .. }), "{error}");
}

/// Whoever may write there names the files, too.
#[test]
fn root_copies_to_no_place_of_others() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    let (memory, place) = (memory(), place());
    let _server = memory.serve_stats(&place.path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let why = |name: &str| {
        let process = ProcessTree::connect(&place.path).unwrap();
        ProcessCopy::new(process, path(name)).err().map(|error| error.to_string())
    };
    std::fs::create_dir(path("empty")).unwrap();
    symlink(path("empty"), path("link")).unwrap();
    assert_eq!(why("link"), None);
    if lchown(path("link"), Some(12_345), None).is_err() {
        eprintln!("SKIPPED: root_copies_to_no_place_of_others: only root gives files away");
        return;
    }
    assert!(why("link").unwrap().contains("link on the way is of another user (uid 12345)"));
    assert_eq!(why("empty"), None);
    std::fs::set_permissions(path("empty"), std::fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(why("empty").unwrap().contains("others than root may write the folder"));
}

/// A process of another user could serve anything: no file is written outside the folder.
#[test]
fn names_that_lead_elsewhere_are_refused() {
    let place = place();
    let listener = UnixListener::bind(&place.path).unwrap();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for _ in 0..2 {
            let mut request = [0; 64];
            let _ = stream.read(&mut request);
            stream.write_all(b"nearpage 1 ok 12\n../outside/x").unwrap();
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let tree = ProcessTree::connect(&place.path).unwrap();
    let copy = ProcessCopy::new(tree, folder.path().join("root")).unwrap();
    let error = copy.write().unwrap_err();
    thread.join().unwrap();
    assert!(matches!(error, CopyError::Name { .. }), "{error}");
    assert!(!folder.path().join("outside").exists());
}
