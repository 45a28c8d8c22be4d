//! `nearpage topo`: a machine's nodes, zones, watermarks and fallback orders.

mod placement;
mod recorded;
mod text;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use nearpage::{Model, Settings};
use nearpage_bundle::predict::ModelChoice;
use nearpage_linux::{Binding, StorageInUse};
use nearpage_machine::text::{Unknown, dot, hwloc, numactl, zoneinfo};
use nearpage_machine::tunable::Override;
use nearpage_machine::{
    InputProblem, Lists, MachineDescription, MachineDocument, MachineInput, Place, Plan, Replaced,
    WithSet, read_machine, shown,
};

use super::{CommandError, environment, input};
use crate::confined::Rights;
use crate::terminal;

pub use placement::VerifyError;

/// Show a machine's nodes, zones, watermarks and fallback orders.
///
/// Without --topology, --numa, --sysroot or --bundle: this machine, with the nodes that NEARPAGE_NUMA asks for.
/// Nothing is allocated: the output is the machine as an allocator with the rules of --model has it before the
/// first allocation.
///
/// With --bundle: what Linux prints about a recorded machine, derived from its sizes and settings.
///
/// If only sizes are known, memory gets the addresses of a PC: the nodes lie one after the other from address 0
/// up, around a hole from 3 to 4 GiB, without the first page. All of it is managed.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct TopoArgs {
    /// Read the machine from a file: `numactl --hardware` text, the XML of lstopo, the short form, a tar (.gz,
    /// .bz2, .xz, .zst) of /sys and /proc, or a folder with such a copy; - is standard input. Or take one that comes with
    /// nearpage by its name: memoryless-8n2m
    #[arg(long, value_name = "PATH|NAME|-", conflicts_with_all = ["numa", "numa_distance", "sysroot"])]
    topology: Option<PathBuf>,

    /// Add a node with this much memory and these CPUs: 2G,cpus=0-1. The first is node 0
    #[arg(long, value_name = "SIZE[,cpus=LIST]", conflicts_with = "sysroot")]
    numa: Vec<String>,

    /// Set a distance, in both directions unless the other is given too: 0,1=21. The default is 20
    #[arg(long, value_name = "NODE,NODE=DISTANCE", requires = "numa")]
    numa_distance: Vec<String>,

    /// Read the machine from a copy of /sys and /proc: a folder, or a tar (.gz, .bz2, .xz, .zst) of one; - is a tar on
    /// standard input
    #[arg(long, value_name = "PATH|-")]
    sysroot: Option<PathBuf>,

    /// Read the machine from an image of its kernel's memory: /proc/kcore, or an ELF dump of QEMU, libvirt or kdump
    #[arg(long, value_name = "FILE", conflicts_with_all = ["topology", "numa", "numa_distance", "sysroot", "bundle"])]
    vmcore: Option<PathBuf>,

    /// Read a recorded machine: a folder with meta.json or a tar of one, an oracle JSON (.zst), or a root with
    /// proc/ and sys/; / is this machine, - is standard input
    #[arg(long, value_name = "PATH|-", conflicts_with_all = ["topology", "numa", "numa_distance", "sysroot"])]
    bundle: Option<PathBuf>,

    /// Which capture of the recording; the default is restored where there is one, else boot, or before
    #[arg(long, value_name = "NAME", requires = "bundle", conflicts_with_all = ["topology", "numa", "sysroot"])]
    capture: Option<String>,

    /// Replace a setting of the machine: vm.watermark_scale_factor=200; --set help lists the settings
    #[arg(long, value_name = "vm.KEY=VALUE", conflicts_with = "verify_placement")]
    set: Vec<String>,

    /// The rules; the default is nearpage, and with --bundle auto, by the recorded kernel's version
    #[arg(long, value_parser = input::models())]
    model: Option<ModelChoice>,

    /// Zonelists as after a rebuild at run time, when Linux knows which nodes have CPUs
    #[arg(long)]
    rebuilt: bool,

    /// Take this much memory on each node of this machine, touch it, and ask the kernel where it is; 16M if no
    /// size is given. Exit status 1 if some is elsewhere than asked, 2 if there is not so much available
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "16M",
          value_parser = super::bench::parse_bytes,
          conflicts_with_all = ["topology", "numa", "sysroot", "vmcore", "bundle", "model", "rebuilt", "format"])]
    verify_placement: Option<u64>,

    /// What to print; the default is text, and with --bundle zoneinfo
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,

    #[command(flatten)]
    limit: input::Limit,
}

impl TopoArgs {
    /// What it needs for another machine than this one.
    pub(super) fn rights(&self) -> Option<Rights> {
        let inputs: Vec<&PathBuf> = [&self.topology, &self.sysroot, &self.vmcore, &self.bundle]
            .into_iter()
            .flatten()
            .collect();
        let is_of_this_machine = inputs.is_empty() || self.verify_placement.is_some();
        (!is_of_this_machine).then(|| Rights::default().reading(inputs))
    }
}

const AFTER_HELP: &str = "\
Examples:
  nearpage topo
  nearpage topo --numa 2G,cpus=0-1 --numa 0,cpus=2 --numa-distance 0,1=21
  nearpage topo --topology memoryless-8n2m
  ssh box numactl --hardware | nearpage topo --topology - --model linux-6.12 --format fallback
  nearpage topo --bundle oracle/corpus/n2-8g-4c-6.12.json.zst --set vm.min_free_kbytes=65536
  nearpage topo --bundle / --format json
  nearpage topo --verify-placement 1G

The short form in a file has the same options, on one line or several; # starts a comment.

JSON (--format json), counted in pages unless a name says otherwise:
  schema                 1
  source, addresses      where the machine and its addresses come from; addresses is recorded or assumed
  model, lists           the rules; boot or rebuilt
  storage, binding       which pageset storage this process can use and how it can bind memory, and why
  page_bytes
  address_map            where zones lie: x86, divided (elsewhere) or flat (all is Normal)
  settings               min_free_kbytes, watermark_scale_factor, lowmem_reserve_ratio,
                         percpu_pagelist_high_fraction, transparent_hugepage
  nodes[]                id, cpus, memory_bytes, free_bytes (null if unknown), effective_node (whose
                         memory is local to its CPUs; null if there is none), fallback (ids of nodes with
                         memory, nearest first, as in --format text; --format fallback has the line that
                         the kernel logs, in which linux-6.1 puts a memoryless node itself first: its
                         requests go to the same nodes all the same),
                         zonelist and zonelist_this_node (node, zone), zones[]
  nodes[].zones[]        the populated ones: name, start_pfn, spanned, present, managed,
                         watermarks {min, low, high, promo}, protection (one a kind of zone),
                         pageset {batch, high_min, high_max}, stat_threshold
  distances[][]          rows and columns in the order of nodes
  warnings[]             what had to be assumed
  set[]                  key, before, after: settings that --set replaced; no_effect: why no figure is another one

JSON with --verify-placement, counted in the kernel's pages:
  schema                 1
  binding                how memory is bound, and why
  note                   why there is nothing to verify, on emulated nodes; else null
  nodes[]                asked, pages (of the sample, placed on any node), misplaced (0 of emulated nodes),
                         untouched, unknown, touched (the sample is of these), pages_on[] {node, pages}

JSON with --bundle, counted in pages:
  schema                 1
  kernel, model, capture the recorded kernel's release, whose rules, and which capture's settings hold
  min_free_kbytes        as boot leaves it or --set writes it; the other fields use what is recorded
  zones[]                all that zoneinfo prints: node, zone, min, low, high, promo (null on linux-6.1),
                         boost, protection[], batch, high_min, high_max, stat_threshold (the last four
                         null for an unpopulated zone; on linux-6.1 high_min and high_max are high)
  fallback               node: node ids as the kernel logs them
  zonelists              node: fallback and nofallback, zones as NODE:ZONE
  numa_mem_id            cpu: the node that numa_mem_id() answers there
  set[]                  key, before, after: settings that --set replaced

--format zoneinfo with --bundle has 0 for what does not follow from sizes and settings: free pages, events,
count, and since 6.7 high; linux-6.12 gets the lines high_min and high_max of 6.18.";

/// What `topo` prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// Tables for people
    Text,
    /// /proc/zoneinfo as the model's kernel prints it when all memory is free; nearpage as Linux 6.18
    Zoneinfo,
    /// The lines that the kernel logs: Fallback order for Node 0: 0 1
    Fallback,
    /// As numactl --hardware
    Numactl,
    /// One JSON object; --help says what is in it
    Json,
    /// A graph for Graphviz
    Dot,
    /// The XML of hwloc, which lstopo --input draws
    Hwloc,
}

/// What --rebuilt changed nothing of.
const AS_AT_BOOT: &str = "--rebuilt: all fallback orders are those of boot";

/// Whether two plans of a machine have the same fallback orders.
fn has_same_lists(one: &Plan, other: &Plan) -> bool {
    let orders =
        |plan: &Plan| plan.nodes.iter().map(|node| node.fallback.clone()).collect::<Vec<_>>();
    orders(one) == orders(other)
}

impl Format {
    /// Whether fallback orders are in it.
    fn has_lists(self) -> bool {
        matches!(self, Format::Text | Format::Json | Format::Fallback)
    }

    /// Whether watermarks and sizes of pagesets are in it.
    fn has_sizes(self) -> bool {
        matches!(self, Format::Text | Format::Json | Format::Zoneinfo)
    }
}

/// A machine and its plan, which every format prints.
struct Report {
    description: MachineDescription,
    /// Whether it is the machine on which this process runs.
    is_here: bool,
    plan: Plan,
    /// Settings that were replaced.
    set: Vec<Replaced>,
    /// Which pageset storage this process can use, and why.
    storage: StorageInUse,
    /// How it can bind memory, and why.
    binding: String,
    /// Whether a rebuild would leave the zonelists as they are.
    is_as_at_boot: bool,
}

/// Runs the command.
///
/// # Errors
///
/// The input is wrong, or the output cannot be written.
pub fn run(arguments: &TopoArgs) -> Result<(), CommandError> {
    if arguments.set.iter().any(|given| given == "help") {
        return super::print(&input::list_of_keys(Override::KEYS.into_iter()));
    }
    let format = if arguments.json { Some(Format::Json) } else { arguments.format };
    if let Some(path) = &arguments.bundle {
        return recorded::run(path, arguments, format.unwrap_or(Format::Zoneinfo));
    }
    if let Some(bytes) = arguments.verify_placement {
        return placement::run(bytes, arguments.json);
    }
    let report = Report::new(arguments)?;
    let format = format.unwrap_or(Format::Text);
    arguments.tell_idle(format, &report.set);
    if arguments.rebuilt && format.has_lists() && report.is_as_at_boot {
        terminal::note(AS_AT_BOOT);
    }
    if !matches!(format, Format::Text | Format::Json) {
        // The other formats have no place for warnings.
        for warning in &report.description.warnings {
            terminal::note(format_args!("{}: {warning}", shown(&report.description.source)));
        }
    }
    let (machine, plan) = (&report.description.machine, &report.plan);
    match format {
        Format::Text => super::print(&report.text().format()),
        Format::Zoneinfo => super::print(&zoneinfo(plan, Unknown::AllFree)),
        Format::Fallback => super::print(&plan.fallback_lines()),
        Format::Numactl => super::print(&numactl(machine)),
        Format::Json => {
            super::print_json(&WithSet { document: report.document(), set: &report.set })
        }
        Format::Dot => super::print(&dot(machine)),
        Format::Hwloc => super::print(&hwloc(machine)),
    }
}

impl TopoArgs {
    /// What --set replaces.
    fn overrides(&self) -> Result<Vec<Override>, CommandError> {
        let read = self.set.iter().map(|given| Override::parse(given)).collect::<Result<_, _>>();
        read.map_err(|error| CommandError::Usage(format!("--set {error}")))
    }

    /// Tells of options that a format has nothing of.
    fn tell_idle(&self, format: Format, set: &[Replaced]) {
        let (has_lists, has_sizes) = (format.has_lists(), format.has_sizes());
        let given = [
            ("--set", !self.set.is_empty() && !has_sizes),
            ("--rebuilt", self.rebuilt && !has_lists),
            ("--model", self.model.is_some() && !has_lists && !has_sizes),
        ];
        // What text and JSON say beside the values.
        for why in set.iter().filter_map(|set| set.no_effect.as_ref()) {
            if !matches!(format, Format::Text | Format::Json) && has_sizes {
                terminal::note(why);
            }
        }
        for (option, _) in given.iter().filter(|(_, is_idle)| *is_idle) {
            let format = format.to_possible_value();
            let name = format.as_ref().map_or("", |of| of.get_name());
            terminal::note(format_args!("{option} has no effect on --format {name}"));
        }
    }

    /// The machine that the options name; `None` for this machine.
    fn described(&self) -> Result<Option<MachineDescription>, CommandError> {
        if let Some(path) = &self.vmcore {
            let machine = read_machine(&super::vmcore::tree(path)?);
            let machine = machine.map_err(nearpage_machine::InputError::from)?;
            return Ok(Some(MachineDescription::new(
                path.to_string_lossy().into_owned(),
                machine,
            )?));
        }
        let budget = self.limit.budget();
        Ok(Some(match (&self.topology, &self.sysroot) {
            (Some(path), _) => input::read_machine(path, &budget)?,
            (None, Some(path)) if input::is_standard(path) => {
                let machine = read_machine(&input::standard_input_tree(&budget)?);
                let machine = machine.map_err(nearpage_machine::InputError::from)?;
                MachineDescription::new(input::STANDARD_INPUT.into(), machine)?
            }
            (None, Some(path)) => {
                MachineDescription::read(&MachineInput::Sysroot(path.clone()), &budget)?
            }
            (None, None) if self.numa.is_empty() => return Ok(None),
            (None, None) => {
                let (nodes, distances) = (self.numa.clone(), self.numa_distance.clone());
                let input = MachineInput::ShortForm { nodes, distances };
                MachineDescription {
                    source: "command line".into(),
                    ..MachineDescription::read(&input, &budget)?
                }
            }
        }))
    }
}

impl Report {
    fn new(arguments: &TopoArgs) -> Result<Report, CommandError> {
        let environment = environment::read()?;
        let storage = StorageInUse::of_this_process(&environment);
        let other = arguments.described()?;
        let is_here = other.is_none();
        let description = match other {
            Some(description) => description,
            None => {
                environment::tell(environment.warnings());
                environment.described()?
            }
        };
        let lists = if arguments.rebuilt { Lists::Rebuilt } else { Lists::Boot };
        let choice = arguments.model.unwrap_or(ModelChoice::Of(Model::NEARPAGE));
        if choice == ModelChoice::Auto {
            let problem = "--model auto goes with --bundle, which tells the kernel".into();
            return Err(CommandError::Usage(problem));
        }
        let model = choice.for_kernel("").model;
        let overrides = arguments.overrides()?;
        let plan = |overrides: &[Override], lists| {
            let change =
                |settings: &mut Settings| overrides.iter().for_each(|set| set.apply(settings));
            Plan::with(&description, model, lists, change).map_err(|error| {
                let place = Place::Input(shown(&description.source).to_string());
                InputProblem::Setting(error).at(&place)
            })
        };
        let before = plan(&[], Lists::Boot)?;
        let plan = plan(&overrides, lists)?;
        let set = Replaced::all(&overrides, &before, &plan);
        let is_as_at_boot = has_same_lists(&before, &plan);
        let binding = Binding::of_this_process(&environment).to_string();
        Ok(Report { description, is_here, plan, set, storage, binding, is_as_at_boot })
    }

    fn document(&self) -> MachineDocument<'_> {
        let document = MachineDocument::new(&self.description, &self.plan);
        document.in_process(self.storage, &self.binding)
    }

    fn text(&self) -> text::Text<'_> {
        text::Text {
            source: shown(&self.description.source).to_string(),
            addresses: text::addresses(&self.description),
            process: self.is_here.then(|| (self.storage.to_string(), self.binding.as_str())),
            machine: &self.description.machine,
            plan: &self.plan,
            set: &self.set,
            warnings: &self.description.warnings,
        }
    }
}
