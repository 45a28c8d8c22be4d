//! `nearpage export`: metrics of a machine, served or written to a file.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use nearpage_machine::shown;
use nearpage_watch::{
    Cardinality, Format, Limits, Pagesets, Sample, Sampler, ServeError, Server, exposition,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::{CommandError, print, watched};
use crate::confined::Rights;
use crate::outputs::{Kind, Output};
use crate::terminal;

/// Serve metrics of this machine for Prometheus: nodes, zones, free blocks, what would be refused, and marks.
///
/// It listens on loopback unless told otherwise, and needs no root.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct ExportArgs {
    /// Where to listen; GET /metrics is answered. Whoever may connect may read
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9400", value_parser = address)]
    listen: SocketAddr,

    /// Write the metrics to this file instead, once, for the textfile collector of node_exporter; - is standard output
    #[arg(long, value_name = "FILE|-", conflicts_with = "listen")]
    textfile: Option<PathBuf>,

    /// Also the pageset of each CPU in each zone: three series each
    #[arg(long)]
    per_cpu: bool,

    /// Read a copy of /sys and /proc, or a recording, instead of this machine
    #[arg(long, value_name = "PATH")]
    sysroot: Option<PathBuf>,

    /// Which capture of a recording
    #[arg(long, value_name = "NAME", requires = "sysroot")]
    capture: Option<String>,

    /// Read the allocator of a process that serves its figures, by its id or the path of its socket
    #[arg(short, long, value_name = "PID|SOCKET", conflicts_with = "sysroot")]
    process: Option<String>,

    #[command(flatten)]
    limit: super::input::Limit,
}

impl ExportArgs {
    /// What it needs to write the metrics of another machine; whoever serves them needs a network.
    pub(super) fn rights(&self) -> Option<Rights> {
        let (path, file) = (self.sysroot.as_ref()?, self.textfile.as_ref()?);
        Some(Rights::default().reading([path]).writing(Kind::PageForAll, [file]))
    }
}

const AFTER_HELP: &str = "\
Exit status: 0 it was ended by Ctrl-C or SIGTERM, or the file is written, 1 nobody can be served or the file cannot be
written, 2 wrong usage or unreadable input.

Names are those of node_exporter where it has them (node_memory_numa_*, node_zoneinfo_*, node_buddyinfo_blocks,
node_vmstat_*), others begin with nearpage_. Series grow with nodes, zones and orders, not with CPUs, unless
--per-cpu asks for it. The text is OpenMetrics 1.0; that of --textfile is the older format of Prometheus.

One thread serves at most 128 connections. Who does not send a request within 5 s or sends more than 8 KiB is dropped,
and so is who does not read the answer within 15 s. A sample is at most 0.2 s old.";

/// Metrics could not be served or written.
#[derive(Debug, thiserror::Error)]
pub enum ExportFailure {
    /// Nobody can be served.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Signals cannot be caught, or the address is not known.
    #[error("cannot serve: {0}")]
    System(#[source] io::Error),
    /// The file's name cannot be that of a textfile.
    #[error("cannot write {path}: the textfile collector reads names that end in .prom only")]
    Name {
        /// The path, as messages show it.
        path: String,
    },
}

impl ExportFailure {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            ExportFailure::Name { .. } => 2,
            ExportFailure::Serve(_) | ExportFailure::System(_) => 1,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// The input cannot be read, nobody can be served, or the file cannot be written.
pub fn run(arguments: &ExportArgs) -> Result<(), CommandError> {
    let tree = match &arguments.process {
        Some(process) => watched::process(process)?,
        None => {
            let (path, capture) = (arguments.sysroot.as_deref(), arguments.capture.as_deref());
            watched::tree(path, capture, &arguments.limit.budget())?
        }
    };
    let (pagesets, cardinality) = match arguments.per_cpu {
        true => (Pagesets::EachCpu, Cardinality::EachCpu),
        false => (Pagesets::Sums, Cardinality::Bounded),
    };
    let mut sampler = Sampler::new(tree).with_pagesets(pagesets);
    if let Some(path) = &arguments.textfile {
        let mut text = String::new();
        exposition(&mut text, None, &sampler.sample(), Format::Text, cardinality);
        return write(path, &text);
    }
    let stops = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, stops.clone()).map_err(ExportFailure::System)?;
    }
    let mut server =
        Server::bind(arguments.listen, Limits::default()).map_err(ExportFailure::from)?;
    let address = server.address().map_err(ExportFailure::System)?;
    if !address.ip().to_canonical().is_loopback() {
        terminal::note(format_args!(
            "warning: whoever reaches {address} reads this machine's figures, without a password"
        ));
    }
    terminal::note(format_args!("metrics at http://{address}/metrics; Ctrl-C ends"));
    let mut before: Option<Sample> = None;
    let served = server.serve(&stops, |text| {
        let now = sampler.sample();
        exposition(text, before.as_ref(), &now, Format::OpenMetrics, cardinality);
        before = Some(now);
    });
    Ok(served.map_err(ExportFailure::from)?)
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let accepted =
        "expected the address and port of this machine, such as 127.0.0.1:9400 or [::1]:9400";
    text.parse().map_err(|_| accepted.into())
}

fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    if super::input::is_standard(path) {
        return print(text);
    }
    let is_device = fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
    if !is_device && path.extension().is_none_or(|extension| extension != "prom") {
        return Err(ExportFailure::Name { path: shown(path).to_string() }.into());
    }
    // Replaced in one step: the collector never reads half a file.
    Ok(Output::page(Kind::PageForAll, path, &[])?.write(text)?)
}
