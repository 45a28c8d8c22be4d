//! The densest input of each kind takes no more memory than the table of limits (*What is trusted*, in the book) says: 64 MiB, or so
//! many times its length.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use tempfile::TempDir;

use super::limits::{Outcome, as_ever, run, zstd_bomb};
use super::tidy::root;

/// What any input may take.
const FREE_KIB: u64 = 64 << 10;
/// And a window.
const WINDOW_KIB: u64 = 64 << 10;
/// What any of them may take of a CPU. Tests are not optimised, and some unpack to thousands of times their length.
const CPU_TIME_MAX: Duration = Duration::from_secs(60);
/// About the length of each input.
const BYTES: usize = 4 << 20;

/// A text that is repeated, with a number in it.
fn repeated(each: impl Fn(usize) -> String) -> Vec<u8> {
    let mut text = String::with_capacity(BYTES + 64);
    for at in 0.. {
        if text.len() >= BYTES {
            break;
        }
        text += &each(at);
    }
    text.into_bytes()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(content).unwrap();
    packed.finish().unwrap()
}

fn zlib(content: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(content).unwrap();
    packed.finish().unwrap()
}

/// A tar of files, each with a name by its number and a content.
fn tar(files: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, &*content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn words(of: &[u64]) -> Vec<u8> {
    of.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A `trace.dat` of version 6 up to its formats of events.
fn dat_6() -> Vec<u8> {
    let mut file = b"\x17\x08Dtracing6\0\x00\x08".to_vec();
    file.extend(4096_u32.to_le_bytes());
    for name in [&b"header_page\0"[..], b"header_event\0"] {
        file.extend(name);
        file.extend(0_u64.to_le_bytes());
    }
    file
}

/// One that has names of tasks and functions alone.
fn dat_of_names() -> Vec<u8> {
    let mut file = dat_6();
    // No formats of ftrace, no groups of events.
    file.extend([0; 8]);
    let symbols = repeated(|at| format!("{:x} T a\n", at + 1));
    file.extend((symbols.len() as u32 / 2).to_le_bytes());
    file.extend(&symbols[..symbols.len() / 2]);
    file.extend(0_u32.to_le_bytes());
    let tasks = repeated(|at| format!("{at} a\n"));
    file.extend((tasks.len() as u64 / 2).to_le_bytes());
    file.extend(&tasks[..tasks.len() / 2]);
    file.extend(0_u32.to_le_bytes());
    file.extend(b"flyrecord\0");
    file
}

/// One of as many CPUs as there may be, with a page each.
fn dat_of_cpus() -> Vec<u8> {
    const CPUS: u64 = 1 << 14;
    let mut file = dat_6();
    file.extend([0; 8 + 4 + 4 + 8]);
    file.extend((CPUS as u32).to_le_bytes());
    file.extend(b"flyrecord\0");
    let begin = file.len() as u64 + 16 * CPUS;
    (0..CPUS).for_each(|cpu| file.extend(words(&[begin + cpu * 256, 256])));
    file.resize((begin + CPUS * 256) as usize, 0);
    file
}

/// A `trace.dat` of version 7 with a zlib chunk for each CPU: a record, which waits for its turn, and zeroes.
fn dat_7(chunk_bytes: u32) -> Vec<u8> {
    let mut file = b"\x17\x08Dtracing7\0\x00\x08".to_vec();
    file.extend(4096_u32.to_le_bytes());
    file.extend(b"zlib\0\0");
    let options_at = file.len() + 8;
    file.extend((options_at as u64).to_le_bytes());
    let mut chunk = vec![0; chunk_bytes as usize];
    // Bytes of the page's records, and the head of the first.
    (chunk[8], chunk[16]) = (8, 1);
    let packed = zlib(&chunk);
    let cpus = (BYTES / (packed.len() + 64)).min((512 << 20) / chunk.len());
    // The options: one buffer, then the end.
    let mut buffer = Vec::new();
    let section_at = options_at + 16 + 6 + (8 + 1 + 5 + 8 + 20 * cpus) + 6;
    buffer.extend((section_at as u64).to_le_bytes());
    buffer.extend(b"\0mono\0");
    buffer.truncate(14);
    buffer.extend(4096_u32.to_le_bytes());
    buffer.extend((cpus as u32).to_le_bytes());
    let chunk = 4 + 8 + packed.len();
    let first = section_at + 16;
    for cpu in 0..cpus {
        buffer.extend((cpu as u32).to_le_bytes());
        buffer.extend(words(&[(first + cpu * chunk) as u64, chunk as u64]));
    }
    let mut section = |id: u16, flags: u16, bytes: u64| {
        file.extend(id.to_le_bytes());
        file.extend(flags.to_le_bytes());
        file.extend(0_u32.to_le_bytes());
        file.extend(bytes.to_le_bytes());
    };
    section(0, 0, (6 + buffer.len() + 6) as u64);
    file.extend(3_u16.to_le_bytes());
    file.extend((buffer.len() as u32).to_le_bytes());
    file.extend(buffer);
    file.extend([0; 6]);
    file.extend([1, 0, 1, 0, 0, 0, 0, 0]);
    file.extend(((cpus * chunk) as u64).to_le_bytes());
    for _ in 0..cpus {
        file.extend(1_u32.to_le_bytes());
        file.extend((packed.len() as u32).to_le_bytes());
        file.extend(chunk_bytes.to_le_bytes());
        file.extend(&packed);
    }
    // What follows is of nobody.
    file.resize(BYTES, 0);
    file
}

/// A `perf.data` of records of lost events alone, which wait for the end of their round, and of names of tasks.
fn perf_of(record: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let mut formats = b"\x17\x08Dtracing0.6\0\x00\x08".to_vec();
    formats.extend(4096_u32.to_le_bytes());
    for name in [&b"header_page\0"[..], b"header_event\0"] {
        formats.extend(name);
        formats.extend(0_u64.to_le_bytes());
    }
    formats.extend([0; 8]);
    let mut records = Vec::new();
    for at in 0.. {
        if records.len() >= BYTES {
            break;
        }
        records.extend(record(at));
    }
    let (attrs, data) = (104, 104 + 80);
    let table = data + records.len() as u64;
    let mut file = b"PERFILE2".to_vec();
    let head = [104, 80, attrs, 80, data, records.len() as u64, 0, 0, 1 << 1, 0, 0, 0];
    file.extend(words(&head));
    let mut attr = [0; 80];
    // IDENTIFIER | TIME.
    attr[24..32].copy_from_slice(&(1_u64 << 16 | 1 << 2).to_le_bytes());
    file.extend(attr);
    file.extend(records);
    file.extend(words(&[table + 16, formats.len() as u64]));
    file.extend(formats);
    file
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn field(number: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// Packets of Perfetto, one of each content, until there are enough.
fn packets(each: impl Fn(u64) -> Vec<u8>, bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for at in 0.. {
        if out.len() >= bytes {
            break;
        }
        out.extend(field(1, &each(at)));
    }
    out
}

/// An event: a time, and an allocation without fields.
fn event() -> Vec<u8> {
    field(2, &[&[1 << 3, 1][..], &varint(307 << 3 | 2), &[0]].concat())
}

/// A tape of one long slot and one empty one; frames come one after the other.
fn tape(frames: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let slot_bytes = BYTES as u32;
    let mut file = b"\x89nearpage tape\r\n".to_vec();
    [1, slot_bytes, 2].iter().for_each(|number: &u32| file.extend(number.to_le_bytes()));
    file.resize(508, 0);
    let crc = crc32fast::hash(&file);
    file.extend(crc.to_le_bytes());
    let begin = file.len();
    file.extend(1_u64.to_le_bytes());
    file.extend(crc32fast::hash(&1_u64.to_le_bytes()).to_le_bytes());
    for number in 0.. {
        let content = frames(number);
        let at = file.len() - begin;
        if at + 8 + content.len() > BYTES {
            break;
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&1_u64.to_le_bytes());
        crc.update(&(at as u64).to_le_bytes());
        crc.update(&content);
        file.extend((content.len() as u32).to_le_bytes());
        file.extend(crc.finalize().to_le_bytes());
        file.extend(content);
    }
    file
}

/// A frame that has no texts, and a run of so many zeroes.
fn zeroes(count: u64) -> Vec<u8> {
    [vec![0], varint(count), varint((count - 1) << 1 | 1)].concat()
}

/// JSON of a recording with something in the midst.
fn recording(begin: &str, each: impl Fn(usize) -> String, end: &str) -> Vec<u8> {
    let mut text = format!("{{{begin}").into_bytes();
    text.extend(repeated(each));
    // The comma behind the last one.
    text.pop();
    text.extend(end.as_bytes());
    text.push(b'}');
    text
}

/// An ELF dump whose program headers are all there is.
fn core_of_headers() -> Vec<u8> {
    let count = BYTES / 56;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(64, 0);
    file[16] = 4;
    file[18] = 62;
    file[32] = 64;
    file[54] = 56;
    // PN_XNUM: the number stands in the first section header.
    file[56..58].copy_from_slice(&0xffff_u16.to_le_bytes());
    let sections = 64 + count * 56;
    file[40..48].copy_from_slice(&(sections as u64).to_le_bytes());
    file[58] = 64;
    file[60] = 1;
    for at in 0..count as u64 {
        file.extend(1_u32.to_le_bytes());
        file.extend(4_u32.to_le_bytes());
        file.extend(words(&[64, at << 13, at << 13, 4096, 4096, 0]));
    }
    file.resize(sections + 64, 0);
    let info = sections + 44;
    file[info..info + 4].copy_from_slice(&(count as u32).to_le_bytes());
    file
}

/// Of a kind in the table: its name there, and each command line with the input that is its last argument.
struct Case {
    kind: &'static str,
    name: &'static str,
    content: Vec<u8>,
    command: &'static [&'static str],
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |kind, name, content: Vec<u8>, command| {
        all.push(Case { kind, name, content, command });
    };
    let node = |at: usize| format!("a/sys/devices/system/node/{at}");
    let files = tar((0..250_000).map(|at| (node(at), Vec::new())));
    let blanks = tar((0..15).map(|at| (node(at), vec![b' '; BYTES])));
    add("packed", "files.tar.gz", gzip(&files), &["doctor", "--sysroot"]);
    add("packed", "blanks.tar.gz", gzip(&blanks), &["topo", "--sysroot"]);
    let layers = gzip(&gzip(&vec![b'\n'; 1 << 30]));
    add("packed", "layers.gz", layers, &["verify"]);
    add("window", "window.tar.zst", zstd_bomb(26, 1000), &["topo", "--sysroot"]);
    let member = |path: &str, content: Vec<u8>| (format!("b/{path}"), content);
    let shipped = root().join("bundles/q612-n2-mixed.tar.zst");
    add(
        "packed",
        "cut.tar.zst",
        {
            let mut cut = fs::read(shipped).unwrap();
            cut.truncate(cut.len() - 100);
            cut
        },
        &["replay"],
    );
    let nested = tar([
        member("meta.json", b"{}".to_vec()),
        member("trace.txt.gz", gzip(&vec![b'\n'; 1 << 29])),
    ]
    .into_iter());
    add("packed", "nested.tar.gz", gzip(&nested), &["replay"]);
    let lines = (0..3_000_000).map(|at| format!("/{}:\n", at % 999)).collect::<String>();
    let files = [("meta.json", "{}"), ("before/zoneinfo", ""), ("before/sysfs", &lines)];
    let lists = tar(files.map(|(path, text)| member(path, text.into())).into_iter());
    add("packed", "lists.tar.gz", gzip(&lists), &["verify"]);
    let settings = (0..3_000_000).map(|at| format!("\"{at}\":0,")).collect::<String>();
    let keys = format!("{{\"captures\":{{\"boot\":{{\"sysctl_vm\":{{{settings}\"a\":0}}}}}}}}");
    add("packed", "keys.json.gz", gzip(keys.as_bytes()), &["verify"]);
    // Records of one round wait for its end.
    let many = perf_of(|_| [3, 0, 0, 0, 0, 0, 8, 0].repeat(16));
    add("packed", "round.data.gz", gzip(&many), &["trace", "summary"]);

    let alloc = |at: usize| {
        format!(" a-{at} [0] . 1.0: mm_page_alloc: pfn={at} order=0 migratetype=0 gfp_flags=0\n")
    };
    let text = (0..300_000).map(alloc).collect::<String>();
    add("packed trace", "allocs.txt.gz", gzip(text.as_bytes()), &["trace", "summary"]);
    add("trace", "allocs.txt", repeated(alloc), &["trace", "summary"]);
    add("trace", "tasks.txt", repeated(alloc), &["trace", "summary", "--by", "task"]);
    add("trace", "loads.txt", repeated(alloc), &["replay", "--trace"]);
    add(
        "trace",
        "lone.txt",
        repeated(alloc),
        &["whatif", "--machine", "--numa 4G,cpus=0-3", "--change", "pcp.batch_scale_max=0"],
    );
    let caches = |at: usize| {
        format!(
            " a-1 [0] . 1.0: kmem_cache_alloc: call_site=f+0x1/0x2 ptr={at:#x} name=c{at} bytes_req=1 bytes_alloc=8 gfp_flags=0\n"
        )
    };
    add("trace", "caches.txt", repeated(caches), &["trace", "summary"]);
    add(
        "trace",
        "events.txt",
        repeated(|at| format!("a-1 [{}] . 1.0: e{at}:\n", at % 9)),
        &["replay", "--trace"],
    );

    add("trace.dat", "names.dat", dat_of_names(), &["trace", "summary"]);
    add("trace.dat", "cpus.dat", dat_of_cpus(), &["trace", "summary"]);
    add("trace.dat", "long.dat", dat_7(64 << 20), &["trace", "summary"]);
    add("trace.dat", "short.dat", dat_7(1 << 20), &["trace", "summary"]);
    add("trace.dat", "packed.dat.gz", gzip(&dat_7(4 << 20)), &["trace", "summary"]);

    let lost =
        |_| [&2_u32.to_le_bytes()[..], &[0, 0, 24, 0], &[0; 8], &1_u64.to_le_bytes()].concat();
    add("perf.data", "lost.data", perf_of(lost), &["trace", "summary"]);
    let comm = |at: u32| {
        [
            &3_u32.to_le_bytes()[..],
            &[0, 0, 24, 0],
            &at.to_le_bytes(),
            &at.to_le_bytes(),
            b"a\0\0\0\0\0\0\0",
        ]
        .concat()
    };
    add("perf.data", "comm.data", perf_of(comm), &["trace", "summary"]);

    let cpu = |at: u64| [&[1 << 3][..], &varint(at % 10_000)].concat();
    let bundle = |at: u64| field(1, &[cpu(at), event()].concat());
    add("perfetto", "bundles.pftrace", packets(bundle, BYTES), &["trace", "summary"]);
    let empty = |_| field(1, &[]);
    add("perfetto", "empty.pftrace", packets(empty, BYTES), &["trace", "summary"]);
    let one = packets(|_| field(1, &event().repeat(BYTES / 8)), 1);
    add("perfetto", "one.pftrace", one, &["trace", "summary"]);
    let thread =
        |at: u64| field(2, &field(2, &[&[1 << 3][..], &varint(at), &field(2, b"a")].concat()));
    let tasks = [packets(|_| field(1, &event()), 1), packets(thread, BYTES)].concat();
    add("perfetto", "tasks.pftrace", tasks, &["trace", "summary"]);
    let together = |each: &dyn Fn(u64) -> Vec<u8>| {
        let packed = field(50, &zlib(&packets(each, 15 << 20)));
        packets(|_| packed.clone(), BYTES / 8)
    };
    add("perfetto", "packed-bundles.pftrace", together(&bundle), &["trace", "summary"]);
    add("perfetto", "packed-empty.pftrace", together(&empty), &["trace", "summary"]);
    let long = |at: u64| field(1, &[cpu(at), event().repeat(1 << 19)].concat());
    add("perfetto", "packed-long.pftrace", together(&long), &["trace", "summary"]);

    let play: &[&str] = &["top", "--json", "-n", "1", "--play"];
    add("tape", "frames.tape", tape(|_| zeroes(40)), play);
    add("tape", "last.tape", tape(|_| zeroes(40)), &["top", "--once", "--play"]);
    add(
        "tape",
        "numbers.tape",
        tape(|at| zeroes(if at % 2 == 0 { 1 << 21 } else { 1 })),
        &["top", "--once", "--play"],
    );
    // One long text, which each of two million numbers names: `unreadable` is behind four lists without elements.
    let text = [varint(1), varint(1 << 20), vec![b'x'; 1 << 20]].concat();
    let named = move |at: usize| match at {
        0 => {
            let count = (1 << 21) - 16;
            let numbers = [varint(count + 16), varint(6 << 1 | 1), varint(0)].concat();
            let length = varint((u64::from(count as u32) << 1) << 1);
            [&text[..], &numbers, &length, &varint((count + 8) << 1 | 1)].concat()
        }
        _ => zeroes(40),
    };
    add("tape", "texts.tape", tape(named), play);
    let texts =
        |_| [varint(60_000), [1, b'x'].repeat(60_000), varint(40), varint(39 << 1 | 1)].concat();
    add("tape", "many-texts.tape", tape(texts), &["top", "--once", "--play"]);

    let json = |name, content, command| Case { kind: "recording", name, content, command };
    let verify: &[&str] = &["verify"];
    let caps = "\"captures\":{\"boot\":{}}";
    let zone = |_: usize| "{\"node\":0,\"zone\":\"DMA\"},".to_owned();
    let recordings = [
        json(
            "captures.json",
            recording("\"captures\":{", |at| format!("\"{at}\":{{}},"), "}"),
            verify,
        ),
        json(
            "zones.json",
            recording("\"captures\":{\"boot\":{\"parsed\":{\"zones\":[", zone, "]}}}"),
            verify,
        ),
        json(
            "pagesets.json",
            recording(
                "\"captures\":{\"boot\":{\"parsed\":{\"zones\":[{\"node\":0,\"zone\":\"DMA\",\"pcp\":[",
                |_| "{\"cpu\":0},".into(),
                "]}]}}}",
            ),
            verify,
        ),
        json(
            "numbers.json",
            recording(&format!("{caps},\"sys\":{{\"a\":["), |_| "0,".into(), "]}"),
            verify,
        ),
        json(
            "objects.json",
            recording(&format!("{caps},\"sys\":{{\"a\":["), |_| "{},".into(), "]}"),
            verify,
        ),
        json(
            "sys.json",
            recording(&format!("{caps},\"sys\":{{"), |at| format!("\"{at}\":\"\","), "}"),
            verify,
        ),
        json(
            "keys.json",
            recording(
                &format!("{caps},\"sys\":{{\"{}\":{{", "k".repeat(100_000)),
                |at| format!("\"{at}\":\"\","),
                "}}",
            ),
            verify,
        ),
        json(
            "module.json",
            recording(&format!("{caps},\"module\":{{"), |at| format!("\"{at}\":\"\","), "}"),
            verify,
        ),
        json(
            "sysctl.json",
            recording(
                "\"captures\":{\"boot\":{\"sysctl_vm\":{",
                |at| format!("\"{at}\":0,"),
                "}}}",
            ),
            verify,
        ),
        json(
            "phases.json",
            recording(
                &format!("{caps},\"spec\":{{\"phases\":{{"),
                |at| format!("\"{at}\":{{}},"),
                "}}",
            ),
            verify,
        ),
        json(
            "calls.json",
            recording(&format!("{caps},\"spec\":{{\"module\":["), |_| "{},".into(), "]}"),
            verify,
        ),
        json(
            "orders.json",
            recording(
                &format!("{caps},\"dmesg\":{{\"fallback\":{{\"0\":["),
                |_| "0,".into(),
                "]}}",
            ),
            verify,
        ),
        json(
            "shared.json",
            recording(
                &format!(
                    "\"captures\":{{{}}},\"sys\":{{\"node\":{{",
                    (0..1000)
                        .map(|at| format!("\"{at}\":{{}},"))
                        .collect::<String>()
                        .trim_end_matches(',')
                ),
                |at| format!("\"{at}\":\"\","),
                "}}",
            ),
            verify,
        ),
    ];
    let log = recording(
        &format!("{caps},\"dmesg\":{{\"raw\":\""),
        |at| format!("Fallback order for Node {at}: 0\\n,"),
        "\"}",
    );
    all.extend(recordings);
    let mut add = |kind, name, content: Vec<u8>, command| {
        all.push(Case { kind, name, content, command });
    };
    add("recording", "log.json", log, verify);

    let toml = |each: &dyn Fn(usize) -> String| {
        let mut text = repeated(each);
        text.truncate((1 << 20) - 1);
        let end = text.iter().rposition(|byte| *byte == b'\n').unwrap();
        text.truncate(end + 1);
        text
    };
    let keys = toml(&|at| format!("a{at}=0\n"));
    let tables = toml(&|_| "[[workload.messages]]\n".into());
    let lists = [b"name=[".to_vec(), b"[],".repeat(300_000), b"]\n".to_vec()].concat();
    let deep = [b"name=".to_vec(), b"[".repeat(500_000)].concat();
    for (name, content) in
        [("keys.toml", keys), ("tables.toml", tables), ("lists.toml", lists), ("deep.toml", deep)]
    {
        add("scenario", name, content.clone(), &["lab"][..]);
        add("costs", name, content, &["lab", "thp-then-order0", "--costs"]);
    }

    let topo: &[&str] = &["topo", "--topology"];
    let xml = |each: &dyn Fn(usize) -> String| {
        [b"<topology version=\"2.0\">".to_vec(), repeated(each), b"</topology>".to_vec()].concat()
    };
    add("hwloc", "elements.xml", xml(&|_| "<a/>".into()), topo);
    add(
        "hwloc",
        "objects.xml",
        xml(&|at| format!("<object type=\"NUMANode\" os_index=\"{at}\"/>")),
        topo,
    );
    add(
        "hwloc",
        "attributes.xml",
        xml(&|_| "<a b='' c='' d='' e='' f='' g='' h='' i=''/>".into()),
        topo,
    );
    add("hwloc", "texts.xml", xml(&|_| "a<a/>&amp;".into()), topo);
    add("hwloc", "deep.xml", b"<a>".repeat(BYTES / 3), topo);

    add("numactl", "lines.txt", [b"node 0 cpus: 0\n".to_vec(), vec![b'\n'; BYTES]].concat(), topo);
    add("numactl", "same.txt", repeated(|_| "node 0 cpus: 0\n".into()), topo);
    add(
        "numactl",
        "lists.txt",
        [
            b"node 0 cpus:".to_vec(),
            repeated(|at| format!(" {}", at % 1000)),
            b"\nnode 0 size: 1 MB\n".to_vec(),
        ]
        .concat(),
        topo,
    );
    add(
        "numactl",
        "again.txt",
        repeated(|_| "available: 1 nodes (0)\nnode 0 cpus: 0\nnode 0 size: 9 MB\n".into()),
        topo,
    );
    let broken = [b"node 0 cpus: 0".to_vec(), repeated(|at| format!("\n{at}"))].concat();
    add("numactl", "broken.txt", broken, topo);
    add("numactl", "short.txt", repeated(|_| "--numa 1M ".into()), topo);
    add("numactl", "shorter.txt", repeated(|_| "--numa 1M,cpus=0\n".into()), topo);

    let report = fs::read_to_string(
        root().join("crates/nearpage-explain/tests/reports/6.1/frag-order4-kernel.log"),
    )
    .unwrap();
    add("log", "reports.log", repeated(|_| report.clone()), &["explain"]);
    add(
        "log",
        "heads.log",
        repeated(|at| {
            format!("a{at}: page allocation failure: order:{}, mode:0x1\nMem-Info:\n", at % 11)
        }),
        &["explain"],
    );
    add("log", "lines.log", vec![b'\n'; BYTES], &["explain"]);
    add("log", "line.log", vec![b'x'; BYTES], &["explain"]);
    add("log", "log.gz", gzip(&repeated(|_| report.clone())), &["explain"]);
    add("vmcore", "headers.core", core_of_headers(), &["topo", "--vmcore"]);
    all
}

/// How many times its length an input of a kind may take: the table of the book.
fn multiples() -> Vec<(String, u64)> {
    let page = fs::read_to_string(root().join("docs/src/trust/what-is-trusted.md")).unwrap();
    let row = page.lines().find_map(|line| line.strip_prefix("Multiples: "));
    let row = row.expect("the page has the multiples").trim_end_matches('.');
    let multiple = |text: &str| {
        let (kind, times) = text.rsplit_once(' ').unwrap();
        (kind.to_owned(), times.parse().unwrap())
    };
    row.split(", ").map(multiple).collect()
}

/// The folder that the inputs are written to, by a process of its own: what a process has in memory before it starts another counts
/// as the other's.
const FOLDER: &str = "NEARPAGE_DENSE_FOLDER";
/// Between the words of a line of the list of inputs.
const TAB: &str = "\t";

#[test]
fn dense_inputs_are_written() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let mut list = String::new();
    for Case { kind, name, content, command } in cases() {
        fs::write(format!("{folder}/{name}"), content).unwrap();
        let _ = writeln!(list, "{kind}{TAB}{name}{TAB}{}", command.join(TAB));
    }
    fs::write(format!("{folder}/list"), list).unwrap();
}

/// A line of the list: the kind, and the command line, whose last word is the input.
struct Listed {
    kind: String,
    words: Vec<String>,
}

impl Listed {
    fn words(&self) -> Vec<&str> {
        self.words.iter().map(String::as_str).collect()
    }

    fn bytes(&self) -> u64 {
        fs::metadata(self.words.last().unwrap()).unwrap().len()
    }
}

/// The inputs, and the folder that holds them.
struct Written {
    listed: Vec<Listed>,
    _folder: TempDir,
}

/// Tests that run at the same time share them.
fn written() -> Arc<Written> {
    static WRITTEN: Mutex<Weak<Written>> = Mutex::new(Weak::new());
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    written.upgrade().unwrap_or_else(|| {
        let folder = tempfile::tempdir().unwrap();
        let now = Arc::new(Written { listed: write(folder.path()), _folder: folder });
        *written = Arc::downgrade(&now);
        now
    })
}

fn write(folder: &Path) -> Vec<Listed> {
    let mut writer = Command::new(std::env::current_exe().unwrap());
    writer.args(["dense_inputs_are_written", "--test-threads", "1"]).env(FOLDER, folder);
    assert!(writer.output().unwrap().status.success());
    let list = fs::read_to_string(folder.join("list")).unwrap();
    let listed = |line: &str| {
        let mut words = line.split(TAB).map(String::from);
        let (kind, name) = (words.next().unwrap(), words.next().unwrap());
        let path = folder.join(name).to_str().unwrap().to_owned();
        Listed { kind, words: words.chain([path]).collect() }
    };
    list.lines().map(listed).collect()
}

#[test]
fn no_dense_input_takes_more_than_it_may() {
    let (inputs, multiples) = (written(), multiples());
    let (mut failures, mut count) = (String::new(), 0);
    for listed in &inputs.listed {
        let (kind, bytes) = (&listed.kind, listed.bytes());
        let outcome = run(&listed.words());
        let most = multiples.iter().find(|(known, _)| known == kind).map_or(0, |(_, times)| *times);
        let window = if kind == "window" { WINDOW_KIB } else { 0 };
        let allowed = FREE_KIB.max((most * bytes) >> 10) + window;
        let Outcome { code, resident_kib, cpu_time, .. } = outcome;
        let (times, words) = (resident_kib * 1024 / bytes, &listed.words);
        eprintln!(
            "{kind} {words:?}: {bytes} bytes, {resident_kib} KiB, {times} times, {cpu_time:?}"
        );
        if resident_kib > allowed || !matches!(code, Some(0..=2)) || cpu_time > CPU_TIME_MAX {
            let said = outcome.said.chars().take(200).collect::<String>();
            let _ = writeln!(
                failures,
                "{kind} {words:?}: {bytes} bytes take {resident_kib} KiB of {allowed}, {cpu_time:?}, {code:?}: {said}"
            );
        }
        count += 1;
    }
    assert!(failures.is_empty(), "of {count}:\n{failures}");
    assert!(count > 65, "{count}");
}

/// What the CPU does for a process, in ticks of 10 ms.
fn ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit(") ").next()?.split(' ').skip(11);
    Some(words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?)
}

/// Interrupts a command after a while of its CPU's time; how it ended, and what it took after that. `None` if it ended before.
fn interrupted(words: &[&str]) -> Option<(ExitStatus, u64)> {
    const BEFORE: u64 = 15;
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearpage"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    as_ever(&mut command);
    let mut child = command.spawn().unwrap();
    // A child that nobody waited for has its ticks, also when it has ended.
    while ticks(child.id()).expect("it is there") < BEFORE {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: sends a signal to a child that nobody has waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let mut last = BEFORE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some((status, last - BEFORE));
        }
        last = ticks(child.id()).map_or(last, |now| now.max(last));
        if last > BEFORE + 6000 {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whoever is in the midst of an input ends within a second of its CPU's time, as a process ends at Ctrl-C.
#[test]
fn ctrl_c_ends_in_the_midst_of_each_kind() {
    let inputs = written();
    let (mut failures, mut kinds) = (String::new(), BTreeSet::new());
    for listed in &inputs.listed {
        let Some((status, ticks)) = interrupted(&listed.words()) else { continue };
        let is_usual = status.code() == Some(130) || status.signal() == Some(libc::SIGINT);
        // It may have been at its end.
        let is_done = matches!(status.code(), Some(0..=2)) && ticks <= 50;
        if ticks > 100 || !(is_usual || is_done) {
            let _ = writeln!(failures, "{:?}: {status}, {ticks} ticks later", listed.words);
        }
        kinds.extend(is_usual.then_some(&*listed.kind));
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(kinds.len() >= 10, "{kinds:?}");
}
