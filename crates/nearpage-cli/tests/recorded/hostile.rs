//! Readers of strangers' inputs against damage and malice, with what each case takes: memory and time are failures, too.
//!
//! `NEARPAGE_FUZZ_SECONDS`, `NEARPAGE_INPUTS` and `NEARPAGE_FUZZ_SEED` are those of `fuzz.rs`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use nearpage_bundle::Recording;
use nearpage_machine::{Budget, FolderTree, MachineDescription, read_machine};
use nearpage_watch::{Sampler, TapeWriter};

use super::fuzz::{are_counted, damage, fuzz, fuzz_some};
use super::{doors, recording};

/// A case may hold so many bytes at once, or so many times its input.
const HELD_BYTES: usize = 64 << 20;
const HELD_RATIO: usize = 64;
/// What a case may take of a CPU; tests are not optimised.
const CPU_TIME: Duration = Duration::from_secs(4);

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts by thread.
struct Counting;

impl Counting {
    fn note(added: usize, removed: usize) {
        // A thread that ends has no counters any more.
        let _ = HELD.try_with(|held| {
            held.set(held.get().wrapping_add(added).saturating_sub(removed));
            let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
        });
    }
}

// SAFETY: all is done by the system's allocator; only numbers are noted beside.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::note(layout.size(), 0);
        // SAFETY: what the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Counting::note(layout.size(), 0);
        // SAFETY: what the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Counting::note(0, layout.size());
        // SAFETY: what the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Counting::note(bytes, layout.size());
        // SAFETY: what the caller promises.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place for the answer is there.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs a case on an input of so many bytes, and fails if it takes more than it may.
fn watched(what: &str, bytes: usize, case: impl FnOnce()) {
    let (held, began) = (HELD.get(), cpu_time());
    MOST.set(held);
    case();
    let (most, took) = (MOST.get().saturating_sub(held), cpu_time() - began);
    let allowed = HELD_BYTES.max(bytes.saturating_mul(HELD_RATIO));
    assert!(most <= allowed, "{what}: {bytes} bytes of input hold {most} bytes");
    assert!(took <= CPU_TIME, "{what}: {bytes} bytes of input take {took:?}");
}

#[test]
#[should_panic(expected = "hold")]
fn a_case_that_holds_too_much_fails() {
    watched("canary", 1, || drop(std::hint::black_box(vec![0_u8; HELD_BYTES + 1])));
}

#[test]
#[should_panic(expected = "take")]
fn a_case_that_takes_too_long_fails() {
    watched("canary", 1, || {
        while cpu_time() < CPU_TIME * 2 {
            std::hint::black_box(0);
        }
    });
}

const LOGS: [&str; 2] = [
    include_str!("../../../nearpage-explain/tests/reports/6.1/frag-order4-kernel.log"),
    include_str!("../../../nearpage-explain/tests/reports/public/4.15-i386-oom.log"),
];
const BINARY: [&[u8]; 2] = [
    include_bytes!("../../../nearpage-trace/tests/binary/trace-v6.dat"),
    include_bytes!("../../../nearpage-trace/tests/binary/trace-v7.dat"),
];
const SCENARIO: &str = include_str!("../../../nearpage-lab/scenarios/thp-then-order0.toml");
const COSTS: &str = include_str!("../../../nearpage-lab/costs/amd-1s64.toml");
const MACHINES: [&str; 3] = [
    "--numa 1G,cpus=0-1 --numa 1G,cpus=2-3 --numa-distance 0,1=21",
    "nodes = 2\n[[node]]\nmemory = \"1G\"\ncpus = \"0-3\"\n",
    "<?xml version=\"1.0\"?>\n<!DOCTYPE topology [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;\">]>\n<topology version=\"2.0\">\
     <object type=\"Machine\" os_index=\"0\"><object type=\"NUMANode\" os_index=\"0\" local_memory=\"1073741824\"/>\
     <info name=\"&b;\" value=\"x\"/></object></topology>\n",
];

fn tape() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tape");
    let mut writer = TapeWriter::open(&path, None, Some(1 << 20), "a box").unwrap();
    let mut sampler = Sampler::new(Box::new(FolderTree::new("/")));
    for _ in 0..3 {
        writer.append(&sampler.sample()).unwrap();
    }
    fs::read(path).unwrap()
}

/// Small files of each door.
fn corpus() -> BTreeMap<&'static str, Vec<Vec<u8>>> {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let mut perf = b"PERFILE2".to_vec();
    for number in [104_u64, 80, 104, 160, 264, 8, 0, 0, 2, 0, 0, 0, 0, 0] {
        perf.extend(number.to_le_bytes());
    }
    perf.resize(272, 0);
    let mut core = b"\x7fELF\x02\x01\x01".to_vec();
    core.resize(64, 0);
    core[16] = 4;
    core[18] = 62;
    core[32] = 64;
    core[54] = 56;
    core[56] = 2;
    core.resize(64 + 2 * 56, 1);
    core.extend(b"OSRELEASE=6.12.0\nPAGESIZE=4096\nKERNELOFFSET=0\n");
    let binary = BINARY.iter().map(|trace| trace.to_vec());
    BTreeMap::from([
        ("answer", texts(&["nearpage 1 ok 84\n", "nearpage 1 refused x\n", "nearpage 1 files\n"])),
        ("bundle", vec![fs::read(recording("n1-2g-1c-6.12")).unwrap()]),
        ("core", vec![core]),
        ("costs", texts(&[COSTS])),
        ("log", texts(&LOGS)),
        ("machine", texts(&MACHINES)),
        ("scenario", texts(&[SCENARIO])),
        ("tape", vec![tape()]),
        ("trace", binary.chain([perf, super::fuzz::TRACE.into()]).collect()),
    ])
}

#[test]
fn no_damaged_input_takes_more_than_it_may() {
    let corpus = corpus();
    fuzz_some(doors::ALL.len() as u64, |random| {
        for (name, door) in doors::ALL {
            let inputs = &corpus[name];
            let input = damage(&inputs[random.usize(..inputs.len())], random);
            watched(name, input.len(), || door(&input));
        }
    });
}

/// Each door has a program for the fuzzer, which nothing here compiles.
#[test]
fn each_door_has_a_fuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
    for (name, _) in doors::ALL {
        let target = fs::read_to_string(folder.join(format!("targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("doors::{name}(content)")), "{target}");
        assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"targets/{name}.rs\"")));
    }
    assert_eq!(manifest.matches("[[bin]]").count(), doors::ALL.len());
}

/// Names that archives and folders are attacked with.
fn name(random: &mut fastrand::Rng) -> String {
    const NAMES: [&str; 14] = [
        "proc/zoneinfo",
        "proc/meminfo",
        "a/../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        "",
        "sys/devices/system/node/online",
        "sys/devices/system/node/node0/cpulist",
        "meta.json",
        "trace.txt",
        "before/zoneinfo",
        "proc",
        "a/\u{1b}[31m\n",
    ];
    match random.u8(..20) {
        0 => "x/".repeat(random.usize(..2000)),
        1 => "n".repeat(random.usize(..100_000)),
        _ => NAMES[random.usize(..NAMES.len())].into(),
    }
}

/// Sizes, true and false.
fn size(random: &mut fastrand::Rng) -> u64 {
    match random.u8(..6) {
        0 => 0,
        1 => u64::MAX >> random.u8(..40),
        2 => 8 << 30,
        _ => random.u64(..2000),
    }
}

fn archive(random: &mut fastrand::Rng) -> Vec<u8> {
    const KINDS: &[u8] = b"0000001234567LKSVMDxXgG\0";
    let mut out = Vec::new();
    for _ in 0..random.usize(..12) {
        let mut header = tar::Header::new_gnu();
        let (path, bytes) = (name(random), size(random));
        header.as_mut_bytes()[..100].fill(0);
        let short = &path.as_bytes()[..path.len().min(100)];
        header.as_mut_bytes()[..short.len()].copy_from_slice(short);
        header.set_entry_type(tar::EntryType::new(KINDS[random.usize(..KINDS.len())]));
        header.set_size(bytes);
        let _ = header.set_link_name("/etc/passwd");
        if random.u8(..10) > 0 {
            header.set_cksum();
        }
        out.extend(header.as_bytes());
        let content = match random.u8(..4) {
            0 => path.clone().into_bytes(),
            1 => format!("{} path={path}\n", path.len()).into_bytes(),
            2 => b"MemTotal: 400000 kB\n0-3\n10 20\n".to_vec(),
            _ => vec![random.u8(..); bytes.min(5000) as usize],
        };
        out.extend(&content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    match random.u8(..4) {
        0 => damage(&out, random),
        1 => {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(&out).unwrap();
            damage(&packed.finish().unwrap(), random)
        }
        _ => out,
    }
}

#[test]
fn no_hostile_archive_takes_more_than_it_may() {
    fuzz_some(10, |random| {
        for _ in 0..10 {
            let archive = archive(random);
            watched("archive as a recording", archive.len(), || {
                drop(Recording::read_bytes("hostile", &archive, &Budget::DEFAULT));
            });
            watched("archive as a machine", archive.len(), || {
                drop(MachineDescription::from_reader("hostile", &*archive, &Budget::DEFAULT));
            });
        }
    });
}

/// Puts what is hostile where a reader looks.
fn plant(root: &Path, random: &mut fastrand::Rng) -> Option<()> {
    const PLACES: [&str; 7] = [
        "proc/zoneinfo",
        "proc/meminfo",
        "proc/sys/kernel/osrelease",
        "sys/devices/system/node/online",
        "sys/devices/system/node/node0/cpulist",
        "sys/devices/system/node/node0",
        "sys",
    ];
    let path = root.join(PLACES[random.usize(..PLACES.len())]);
    fs::create_dir_all(path.parent()?).ok()?;
    match random.u8(..9) {
        0 => symlink("/etc/passwd", path).ok(),
        1 => symlink("../../../../../../../../../dev/zero", path).ok(),
        2 => symlink(&path, &path).ok(),
        3 => symlink("..", path).ok(),
        4 => UnixListener::bind(path).ok().map(drop),
        5 => fs::create_dir(path).ok(),
        6 => {
            let path = std::ffi::CString::new(path.to_str()?).ok()?;
            // SAFETY: a path that ends.
            (unsafe { libc::mkfifo(path.as_ptr(), 0o600) } == 0).then_some(())
        }
        // Another plant may be there already: to open a FIFO would wait.
        7 => fs::File::create_new(path)
            .ok()?
            .write_all(b"0-4294967295,18446744073709551615-0\n")
            .ok(),
        _ => fs::File::create_new(path).ok()?.write_all(&vec![random.u8(..); 50_000]).ok(),
    }
}

#[test]
fn no_hostile_folder_takes_more_than_it_may() {
    fuzz(|random| {
        // A folder takes longer to make and to read than other inputs.
        if !are_counted() && random.u8(..10) > 0 {
            return;
        }
        // A plant behind another, which leads a step up, stays in the outer folder.
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("folder");
        for _ in 0..random.usize(1..8) {
            let _ = plant(&folder, random);
        }
        watched("folder", 1 << 20, || {
            drop(read_machine(&FolderTree::new(&folder)));
            drop(Sampler::new(Box::new(FolderTree::new(&folder))).sample());
            drop(Recording::read(&folder, &Budget::DEFAULT));
        });
    });
}
