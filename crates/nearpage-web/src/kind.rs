//! What bytes are, by what they begin with and what lies in them.

use std::io::{self, Read};
use std::ops::ControlFlow;

use nearpage_machine::{Budget, Packing, Unpacking, each_tar_file};
use serde::{Deserialize, Serialize};

/// What a content is, and so which library answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A description of a machine: `numactl -H`, hwloc's XML, the short form, a copy of /sys and /proc.
    Machine,
    /// A kernel's log, or a sosreport.
    Log,
    /// A bundle.
    Recording,
    /// A trace without captures.
    Trace,
}

/// A text is recognised by so much of it.
const HEAD_BYTES: u64 = 256 << 10;
/// A tar archive by its first block.
const BLOCK_BYTES: usize = 512;

/// What a kernel's log has, and no description of a machine: a pasted mail may have both.
const LOG_MARKS: [&str; 4] =
    ["Mem-Info:", "page allocation failure", "invoked oom-killer", "Call Trace:"];
/// Events of the page allocator, as each tool prints them.
const TRACE_MARKS: [&str; 4] = ["# tracer:", "mm_page_alloc", "mm_page_free", "mm_page_pcpu_drain"];
/// What binary traces begin with: trace.dat, perf.data in either order, and packets of Perfetto.
const BINARY_TRACES: [&[u8]; 4] = [b"\x17\x08Dtracing", b"PERFILE2", b"2ELIFREP", b"\x0a"];

impl Kind {
    /// Recognises a content. What nobody knows is a log: its reader says what it looked for.
    pub fn of(content: &[u8]) -> Kind {
        let mut head = Vec::new();
        match Packing::of(content) {
            None => head.extend_from_slice(&content[..content.len().min(HEAD_BYTES as usize)]),
            Some(packing) => {
                // What is damaged later on is told by its reader.
                let read = unpacked(packing, content)
                    .and_then(|mut stream| stream.by_ref().take(HEAD_BYTES).read_to_end(&mut head));
                let begins = head.get(..BLOCK_BYTES).and_then(Packing::of);
                if begins == Some(Packing::Tar) || packing == Packing::Tar {
                    return of_archive(packing, content);
                }
                if read.is_err() && head.is_empty() {
                    return Kind::Recording;
                }
            }
        }
        of_text(&head)
    }
}

/// What a content unpacks to.
pub(crate) fn unpacked(packing: Packing, content: &[u8]) -> io::Result<Box<dyn Read + '_>> {
    let unpacking = Unpacking::new(&Budget::DEFAULT);
    unpacking.stream(packing, content)
}

fn of_text(head: &[u8]) -> Kind {
    if BINARY_TRACES.iter().take(3).any(|magic| head.starts_with(magic))
        || (head.starts_with(BINARY_TRACES[3])
            && head.iter().take(BLOCK_BYTES).any(|&byte| byte == 0))
    {
        return Kind::Trace;
    }
    let text = String::from_utf8_lossy(head);
    let has = |marks: &[&str]| marks.iter().any(|mark| text.contains(mark));
    let is_machine = || {
        let begin = text.trim_start();
        let meaningful =
            text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
        (begin.starts_with('<') && text.contains("<topology"))
            || meaningful.is_some_and(|line| line.starts_with("--numa"))
            || text.lines().any(is_of_numactl)
    };
    if has(&LOG_MARKS) {
        Kind::Log
    } else if has(&TRACE_MARKS) {
        Kind::Trace
    } else if is_machine() {
        Kind::Machine
    } else {
        Kind::Log
    }
}

/// Whether numactl writes such a line, and nobody else; quoted in a mail or not.
fn is_of_numactl(line: &str) -> bool {
    let line = line.trim_start_matches(['>', ' ', '\t', '|']);
    let of_node = line.strip_prefix("node ").is_some_and(|rest| {
        rest.starts_with("distances:")
            || (rest.starts_with(|c: char| c.is_ascii_digit())
                && ["cpus:", "size:", "free:"].iter().any(|what| rest.contains(what)))
    });
    of_node || line.starts_with("available: ")
}

/// A bundle has `meta.json` or a trace, a sosreport the answers of commands.
fn of_archive(packing: Packing, content: &[u8]) -> Kind {
    let mut kind = Kind::Machine;
    let looked = unpacked(packing, content).and_then(|stream| {
        each_tar_file(stream, |path, _| {
            let name = path.rsplit('/').next().unwrap_or(path);
            if name == "meta.json" || name.starts_with("trace.") {
                kind = Kind::Recording;
                return Ok(ControlFlow::Break(()));
            }
            if path.split('/').any(|part| part == "sos_commands") {
                kind = Kind::Log;
                return Ok(ControlFlow::Break(()));
            }
            // Captures of a bundle have a log, too, and may come first.
            if name.starts_with("dmesg") || path.ends_with("var/log/messages") {
                kind = Kind::Log;
            }
            Ok::<_, io::Error>(ControlFlow::Continue(()))
        })
    });
    // A damaged archive is most likely what somebody recorded.
    if looked.is_err() && kind == Kind::Machine { Kind::Recording } else { kind }
}
