//! `nearpage snapshot`: the page allocator of a kernel at a moment, as a bundle.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use nearpage_kcore::{KcoreError, State};
use nearpage_machine::shown;
use serde::Serialize;

use super::{CommandError, print, print_json, vmcore};
use crate::confined::Rights;
use crate::outputs::{Kind, Output};
use crate::terminal;

/// Write what the page allocator of a kernel holds as a bundle: of this machine's kernel, or of a dump.
///
/// The kernel's memory is read: /proc/kcore (root, and no lockdown), or an ELF dump of x86-64. `topo`, `doctor` and `top`
/// read the bundle by --sysroot.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct SnapshotArgs {
    /// An ELF dump: of QEMU's dump-guest-memory, virsh dump --memory-only, or kdump (makedumpfile -E)
    #[arg(long, value_name = "FILE")]
    vmcore: Option<PathBuf>,

    /// The bundle, which is made: a name that ends in .tar [default: nearpage-snapshot.tar]
    #[arg(short, long, value_name = "PATH", default_value = "nearpage-snapshot.tar")]
    output: PathBuf,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
In the bundle: proc/ and sys/ as the kernel would print them (zoneinfo, buddyinfo, pagetypeinfo, settings, nodes), dmesg,
and kernel.json with what no file of /proc has: each list of each pageset and each free list, with its frames in order,
types of pageblocks, counters with what each CPU holds back.

The kernel describes itself (VMCOREINFO, kallsyms, BTF), so no debug symbols are needed. A running kernel goes on
meanwhile: what does not fit together after three tries is told.

JSON (--json):
  schema                 1
  snapshot, kernel       the bundle; the release
  cpus, nodes, zones     how many are online; zones with memory
  pagesets               count, pages (in their lists)
  free_pages             in the free lists
  told[]                 what could not be read or does not fit together, one sentence each

Exit status: 0 done, 1 the bundle could not be written, 2 wrong usage, or memory that cannot be read.

Examples:
  sudo nearpage snapshot
  nearpage snapshot --vmcore vmcore -o crash.tar
  nearpage topo --sysroot crash.tar";

impl SnapshotArgs {
    /// What it needs for an image that somebody sent.
    pub(super) fn rights(&self) -> Option<Rights> {
        let image = self.vmcore.as_ref()?;
        Some(Rights::default().reading([image]).writing(Kind::New, [&self.output]))
    }
}

/// What was written.
#[derive(Serialize)]
struct Written<'s> {
    schema: u32,
    snapshot: String,
    kernel: &'s str,
    cpus: usize,
    nodes: usize,
    zones: usize,
    pagesets: Pagesets,
    free_pages: u64,
    told: &'s [String],
}

#[derive(Serialize)]
struct Pagesets {
    count: usize,
    pages: u64,
}

pub(super) fn run(arguments: &SnapshotArgs) -> Result<(), CommandError> {
    let output = &arguments.output;
    if output.extension().is_none_or(|extension| extension != "tar") {
        let name = shown(output);
        let problem =
            format!("{name}: expected a name that ends in .tar, which is what is written");
        return Err(CommandError::Usage(problem));
    }
    let source = arguments.vmcore.as_deref().unwrap_or(Path::new("/proc/kcore"));
    let (kernel, state) = vmcore::read(source)?;
    let log = match kernel.log() {
        Ok(log) => Some(log),
        Err(error) => {
            terminal::note(format_args!("no dmesg: {error}"));
            None
        }
    };
    write(output, &state, log.as_deref()).map_err(|error| {
        let kind = error.kind();
        CommandError::Output(io::Error::new(kind, format!("{}: {error}", shown(output))))
    })?;
    let written = Written::of(output, &state);
    match arguments.json {
        true => print_json(&written),
        false => print(&written.text()),
    }
}

fn write(path: &Path, state: &State, log: Option<&str>) -> io::Result<()> {
    // It has what only root may read.
    let (_, file) = Output::begun(Kind::New, path)?;
    let file = file.ok_or(io::ErrorKind::InvalidData)?;
    let folder = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut builder = tar::Builder::new(io::BufWriter::new(file));
    let mut add = |name: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, format!("{folder}/{name}"), content)
    };
    for (name, text) in state.files() {
        add(&name, text.as_bytes())?;
    }
    if let Some(log) = log {
        add("dmesg", log.as_bytes())?;
    }
    add("kernel.json", &serde_json::to_vec(state)?)?;
    builder.into_inner()?.flush()
}

impl<'s> Written<'s> {
    fn of(path: &Path, state: &'s State) -> Written<'s> {
        let zones = || {
            state.nodes.iter().flat_map(|node| &node.zones).filter(|zone| zone.managed_pages > 0)
        };
        let pagesets = || zones().flat_map(|zone| &zone.pagesets);
        Written {
            schema: 1,
            snapshot: shown(path).to_string(),
            kernel: &state.release,
            cpus: state.cpus.len(),
            nodes: state.nodes.len(),
            zones: zones().count(),
            pagesets: Pagesets {
                count: pagesets().count(),
                pages: pagesets().map(|pageset| pageset.pages()).sum(),
            },
            free_pages: zones().map(|zone| zone.free_pages()).sum(),
            told: &state.told,
        }
    }

    fn text(&self) -> String {
        let Written { snapshot, kernel, cpus, nodes, zones, pagesets, free_pages, told, .. } = self;
        format!(
            "{snapshot}: kernel {kernel}, {nodes} nodes, {cpus} CPUs, {zones} zones with {free_pages} pages in free lists; \
             {} pagesets with {} pages; {} told\nnext: nearpage topo --sysroot {snapshot}\n",
            pagesets.count,
            pagesets.pages,
            if told.is_empty() { "nothing".into() } else { told.len().to_string() }
        )
    }
}

/// Why memory cannot be read is an input that cannot.
impl From<KcoreError> for CommandError {
    fn from(error: KcoreError) -> CommandError {
        CommandError::Usage(error.to_string())
    }
}
