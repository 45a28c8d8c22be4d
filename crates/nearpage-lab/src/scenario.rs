//! Scenario files. `nearpage lab --help` describes the keys.

mod figures;
mod lifetimes;
mod locks;
mod reference;

use std::ops::Range;

use nearpage::alloc::Config;
use nearpage::model::Model;
use nearpage::units::{MAX_ORDER, NodeId, Order};
use nearpage::watermark::Settings;
use nearpage_machine::catalog;
use nearpage_machine::size;
use nearpage_machine::table::{self, DistanceTable, NodesTable};
use nearpage_sim::Machine;
use nearpage_sim::sim;
use nearpage_sim::workload::messages::{Block, FreedBy};
use serde::Deserialize;
use toml::Spanned;

use super::error::LabError;
use figures::{at_least_one, lock_percent, time_ns, time_ns_or_0};
use lifetimes::LifetimesTable;
pub use lifetimes::LifetimesWorkload;
use locks::LocksTable;
pub use locks::LocksWorkload;
pub use reference::Reference;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub title: String,
    /// The machine, and the name of its table of costs.
    pub machine: MachineOf,
    /// Rules and settings of the allocator.
    pub config: Config,
    /// Choices of patches of the 2023 series that are compared: all up to each.
    pub patches: Vec<u8>,
    /// What runs.
    pub workload: Workload,
    /// What a published table says.
    pub reference: Option<Reference>,
}

/// The machine of a scenario.
#[derive(Clone, Debug)]
pub struct MachineOf {
    /// The machine.
    pub machine: Machine,
    /// The table of costs: a name or a file.
    pub costs: String,
}

/// What runs.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Threads of one process that write to new memory.
    MemoryHog(HogWorkload),
    /// Pairs of CPUs that send each other messages, one kind after the other; then processes, if there are any.
    Messages(Vec<MessagesWorkload>, Option<LifetimesWorkload>),
    /// All CPUs send each other messages of objects.
    SlabMessages(SlabWorkload),
    /// Processes that lock a page at each fault.
    PageLocks(LocksWorkload),
    /// A huge page that fails, and so many single ones.
    HugeThenSingle(u64),
}

/// Messages of objects, on several machines.
#[derive(Clone, Debug)]
pub struct SlabWorkload {
    /// Sizes of a message's objects, bytes.
    pub objects: Vec<u64>,
    /// Messages that each CPU sends.
    pub messages: u64,
    /// Messages that it sends before it receives.
    pub burst: u64,
    /// Messages that the published seconds are for.
    pub published_messages: f64,
    /// Time of a message (ns), unless it is calibrated.
    pub message_ns: f64,
    /// Further machines, by name.
    pub others: Vec<(String, MachineOf)>,
}

/// Messages of one kind.
#[derive(Clone, Debug)]
pub struct MessagesWorkload {
    /// What the rows of the table are called.
    pub name: String,
    /// Pairs of CPUs.
    pub pairs: usize,
    /// Messages of each pair.
    pub messages: u64,
    /// Messages until the two sides change roles.
    pub turn: u64,
    /// Messages under way at most.
    pub window: usize,
    /// What a message is made of.
    pub blocks: Vec<Block>,
    /// Time of each side for a message (ns), unless it is calibrated.
    pub copy_ns: f64,
    /// Calibrates that time: the share of time that CPUs wait for locks without any patch.
    pub zone_lock_percent: Option<f64>,
}

/// Memory hog: each amount of memory with each number of threads.
#[derive(Clone, Debug)]
pub struct HogWorkload {
    /// Memory of the machine and of the workload is divided by this.
    pub scale: u64,
    /// Amounts, bytes.
    pub memory: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Writes to a page, the first included.
    pub stores_per_page: u64,
    /// The cells that calibrate, if any: memory in bytes and threads.
    pub calibrate: Option<HogCalibration>,
    /// The node whose memory comes only after the threads have run once.
    pub hot_add: Option<NodeId>,
}

/// The cells of a memory hog's table that calibrate the model.
#[derive(Clone, Copy, Debug)]
pub struct HogCalibration {
    /// Sets the factor between the model's seconds and the table's.
    pub scale: (u64, usize),
    /// Sets [`nearpage_sim::Costs::load_slowdown`].
    pub load_slowdown: (u64, usize),
}

// ---- The file as it is written.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: Spanned<u32>,
    name: String,
    title: String,
    machine: Spanned<MachineTable>,
    #[serde(default)]
    allocator: AllocatorTable,
    #[serde(default)]
    variants: VariantsTable,
    workload: Spanned<WorkloadTable>,
    calibrate: Option<Spanned<CalibrateTable>>,
    reference: Option<Spanned<Reference>>,
}

/// A machine of the catalogue, or one of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineTable {
    costs: String,
    catalog: Option<Spanned<String>>,
    page_size: Option<Spanned<String>>,
    nodes: Option<Spanned<Vec<NodesTable>>>,
    distance: Option<Spanned<DistanceTable>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AllocatorTable {
    model: Option<Spanned<String>>,
    #[serde(default)]
    zone_reclaim: bool,
}

/// One of them; `messages` and `process-lifetimes` may stand together.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct WorkloadTable {
    memory_hog: Option<HogTable>,
    messages: Option<Vec<MessagesTable>>,
    process_lifetimes: Option<LifetimesTable>,
    slab_messages: Option<SlabTable>,
    page_lock_storm: Option<LocksTable>,
    huge_then_single: Option<HugeTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HugeTable {
    pages: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlabTable {
    objects: Spanned<Vec<u64>>,
    messages: Spanned<u64>,
    burst: Spanned<u64>,
    published_messages: Spanned<f64>,
    message_ns: Option<Spanned<f64>>,
    #[serde(default)]
    others: Vec<Spanned<NamedMachineTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedMachineTable {
    name: String,
    costs: String,
    catalog: Option<Spanned<String>>,
    page_size: Option<Spanned<String>>,
    nodes: Option<Spanned<Vec<NodesTable>>>,
    distance: Option<Spanned<DistanceTable>>,
}

impl SlabTable {
    fn check(self) -> Checked<SlabWorkload> {
        let objects = self.objects.get_ref();
        if !(1..=4).contains(&objects.len())
            || objects.iter().any(|size| !(8..=4096).contains(size))
        {
            let message = "objects: accepted: 1 to 4 sizes from 8 to 4096 bytes";
            return wrong(self.objects.span(), message);
        }
        let published = *self.published_messages.get_ref();
        if !(1.0..=1e15).contains(&published) {
            let message = format!("published_messages is {published}; accepted: 1 to 1e15");
            return wrong(self.published_messages.span(), message);
        }
        Ok(SlabWorkload {
            messages: at_least_one("messages", &self.messages)?,
            burst: at_least_one("burst", &self.burst)?,
            objects: self.objects.into_inner(),
            published_messages: published,
            message_ns: time_ns_or_0("message_ns", self.message_ns.as_ref())?,
            others: self.others.into_iter().map(named_machine).collect::<Checked<_>>()?,
        })
    }
}

fn named_machine(table: Spanned<NamedMachineTable>) -> Checked<(String, MachineOf)> {
    let span = table.span();
    table.into_inner().check(span)
}

impl NamedMachineTable {
    fn check(self, span: Range<usize>) -> Checked<(String, MachineOf)> {
        let Self { name, costs, catalog, page_size, nodes, distance } = self;
        let span = nodes.as_ref().map_or(span, Spanned::span);
        let table = MachineTable { costs, catalog, page_size, nodes, distance };
        let machine = table.check(span.clone())?;
        can_be(&machine.machine, span)?;
        Ok((name, machine))
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantsTable {
    patches: Option<Spanned<Vec<Spanned<u8>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessagesTable {
    name: String,
    pairs: Spanned<usize>,
    messages: Spanned<u64>,
    turn: Spanned<u64>,
    window: Spanned<usize>,
    copy_ns: Option<Spanned<f64>>,
    calibrate: Option<LockShareTable>,
    blocks: Spanned<Vec<BlockTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockShareTable {
    zone_lock_percent: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BlockTable {
    order: Spanned<u8>,
    every: Spanned<u64>,
    freed_by: FreedByTable,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FreedByTable {
    Receiver,
    Sender,
}

impl MessagesTable {
    fn check(&self, machine: &Machine) -> Checked<MessagesWorkload> {
        let pairs = *self.pairs.get_ref();
        let most: usize = machine.nodes.iter().map(|node| node.cpus.len() / 2).sum();
        if !(1..=most).contains(&pairs) {
            let message =
                format!("pairs is {pairs}; accepted: 1 to {most}, two CPUs of one node each");
            return wrong(self.pairs.span(), message);
        }
        if self.blocks.get_ref().is_empty() {
            return wrong(self.blocks.span(), "blocks is empty; accepted: one or more");
        }
        if *self.window.get_ref() == 0 {
            return wrong(self.window.span(), "window is 0; accepted: 1 or more");
        }
        let block = |table: &BlockTable| {
            let order = Order(*table.order.get_ref());
            if order > MAX_ORDER {
                let message = format!("order is {order}; accepted: 0 to {MAX_ORDER}");
                return wrong(table.order.span(), message);
            }
            let freed_by = match table.freed_by {
                FreedByTable::Receiver => FreedBy::Receiver,
                FreedByTable::Sender => FreedBy::Sender,
            };
            Ok(Block { order, every: at_least_one("every", &table.every)?, freed_by })
        };
        Ok(MessagesWorkload {
            name: self.name.clone(),
            pairs,
            messages: at_least_one("messages", &self.messages)?,
            turn: at_least_one("turn", &self.turn)?,
            window: *self.window.get_ref(),
            blocks: self.blocks.get_ref().iter().map(block).collect::<Checked<_>>()?,
            copy_ns: time_ns_or_0("copy_ns", self.copy_ns.as_ref())?,
            zone_lock_percent: self
                .calibrate
                .as_ref()
                .map(|table| lock_percent(&table.zone_lock_percent))
                .transpose()?,
        })
    }
}

impl VariantsTable {
    /// The patches that messages and lifetimes are compared under; others have none.
    fn check(&self, workload: &Workload, span: Range<usize>) -> Checked<Vec<u8>> {
        let are_compared = matches!(workload, Workload::Messages(..));
        let patches = match &self.patches {
            Some(patches) if !are_compared => {
                let message = "variants.patches belongs to messages and process-lifetimes";
                return wrong(patches.span(), message);
            }
            None if !are_compared => return Ok(Vec::new()),
            Some(patches) if !patches.get_ref().is_empty() => patches.get_ref(),
            Some(_) | None => {
                let message = "variants.patches: one or more are needed; accepted: 0 to 10";
                return wrong(self.patches.as_ref().map_or(span, Spanned::span), message);
            }
        };
        let patch = |patch: &Spanned<u8>| match *patch.get_ref() {
            n if n <= 10 => Ok(n),
            n => wrong(patch.span(), format!("variants.patches has {n}; accepted: 0 to 10")),
        };
        patches.iter().map(patch).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HogTable {
    scale: Spanned<u64>,
    memory: Spanned<Vec<Spanned<String>>>,
    threads: Spanned<Vec<Spanned<usize>>>,
    stores_per_page: Spanned<u64>,
    hot_add: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CalibrateTable {
    scale: CellTable,
    load_slowdown: CellTable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CellTable {
    memory: Spanned<String>,
    threads: Spanned<usize>,
}

/// Writes to a page: more than a page has bytes say nothing.
const MOST_STORES: u64 = 65_536;

/// What is wrong, at a place of the text.
struct Wrong {
    span: Range<usize>,
    message: String,
}

type Checked<T> = Result<T, Wrong>;

fn wrong<T>(span: Range<usize>, message: impl Into<String>) -> Checked<T> {
    Err(Wrong { span, message: message.into() })
}

impl Scenario {
    /// Reads a scenario; `file` is for messages.
    ///
    /// # Errors
    /// [`LabError::File`] with line, key and what is accepted.
    pub fn parse(file: &str, text: &str) -> Result<Self, LabError> {
        let refuse = |message| LabError::File { file: file.into(), message };
        let parsed: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            refuse(format!("line {line}: {}", error.message()))
        })?;
        parsed.check().map_err(|Wrong { span, message }| {
            refuse(format!("line {}: {message}", line_of(text, span.start)))
        })
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

impl File {
    fn check(self) -> Checked<Scenario> {
        if *self.schema.get_ref() != 1 {
            let message = format!("schema is {}; accepted: 1", self.schema.get_ref());
            return wrong(self.schema.span(), message);
        }
        let span = self.machine.span();
        let nodes = self.machine.get_ref().nodes.as_ref().map_or(span, Spanned::span);
        let MachineOf { machine, costs } = self.machine.into_inner().check(nodes.clone())?;
        let config = self.allocator.check()?;
        let span = self.workload.span();
        let workload = check_workload(self.workload, &machine)?;
        let patches = self.variants.check(&workload, span)?;
        let reference = check_reference(self.reference, &workload)?;
        let workload = check_calibration(self.calibrate, workload, reference.as_ref(), &machine)?;
        can_be(&simulated(&machine, &workload), nodes)?;
        let (name, title) = (self.name, self.title);
        let machine = MachineOf { machine, costs };
        Ok(Scenario { name, title, machine, config, patches, workload, reference })
    }
}

fn check_reference(
    table: Option<Spanned<Reference>>,
    workload: &Workload,
) -> Checked<Option<Reference>> {
    let Some(table) = table else { return Ok(None) };
    let columns = match workload {
        Workload::MemoryHog(_) => reference::HOG,
        Workload::Messages(..) => reference::MESSAGES,
        Workload::SlabMessages(work) if work.others.len() == 2 => reference::SLAB,
        Workload::PageLocks(_) => reference::LOCKS,
        Workload::SlabMessages(_) => {
            let message = "reference: one of slab-messages is about three machines; accepted with two `others`";
            return wrong(table.span(), message);
        }
        Workload::HugeThenSingle(_) => {
            return wrong(table.span(), "reference: huge-then-single has none");
        }
    };
    columns.check(table).map(Some)
}

/// Cells of a memory hog's reference.
fn check_calibration(
    table: Option<Spanned<CalibrateTable>>,
    workload: Workload,
    reference: Option<&Reference>,
    machine: &Machine,
) -> Checked<Workload> {
    let Some(table) = table else { return Ok(workload) };
    let (Workload::MemoryHog(mut work), Some(reference)) = (workload, reference) else {
        return wrong(table.span(), "calibrate belongs to memory-hog with a reference");
    };
    let cell = |cell: &CellTable| {
        let cpus = machine.cpus().count();
        let (bytes, threads) =
            (bytes_of("memory", &cell.memory)?, threads_of(&cell.threads, cpus)?);
        let is_it = |row: &Vec<f64>| row[0] == (bytes >> 30) as f64 && row[1] == threads as f64;
        if reference.column("sys_before").is_none() || !reference.rows.iter().any(is_it) {
            let message = "calibrate: the reference has no sys_before for that";
            return wrong(cell.memory.span(), message);
        }
        Ok((bytes, threads))
    };
    let CalibrateTable { scale, load_slowdown } = table.get_ref();
    let cells = HogCalibration { scale: cell(scale)?, load_slowdown: cell(load_slowdown)? };
    work.calibrate = Some(cells);
    Ok(Workload::MemoryHog(work))
}

/// The machine with the memory that is simulated.
fn simulated(machine: &Machine, workload: &Workload) -> Machine {
    let mut machine = machine.clone();
    if let Workload::MemoryHog(work) = workload {
        machine.nodes.iter_mut().for_each(|node| node.bytes /= work.scale);
    }
    machine
}

fn can_be(machine: &Machine, nodes: Range<usize>) -> Checked<()> {
    sim::check(machine).or_else(|error| wrong(nodes, format!("machine: {error}")))
}

impl MachineTable {
    /// The machine; `span` is the place of what no key is to blame for.
    fn check(self, span: Range<usize>) -> Checked<MachineOf> {
        let described = self.described(span.clone())?;
        let machine = Machine::from(&described);
        if machine.cpus().next().is_none() {
            let message = "machine.nodes: no node has a CPU (`cpus_each`); at least one must";
            return wrong(span, message);
        }
        match machine.topology().with(|_| ()) {
            Ok(()) => Ok(MachineOf { machine, costs: self.costs }),
            Err(error) => wrong(span, format!("machine: {error}")),
        }
    }

    fn described(&self, span: Range<usize>) -> Checked<nearpage_machine::Machine> {
        let Self { catalog, page_size, nodes, distance, .. } = self;
        match (catalog, page_size, nodes, distance) {
            (Some(name), None, None, None) => {
                catalog::machine(name.get_ref()).map_or_else(|| unknown(name), Ok)
            }
            (None, page_size, Some(nodes), Some(distance)) => {
                let (page_size, nodes) = (page_size.clone(), nodes.clone());
                let table = table::MachineTable { page_size, nodes, distance: distance.clone() };
                table.machine().or_else(|error| wrong(error.span.clone(), error.to_string()))
            }
            _ => {
                let message = "machine: accepted: `catalog`, or `nodes` and `distance` with optional `page_size`";
                wrong(span, message)
            }
        }
    }
}

fn unknown<T>(name: &Spanned<String>) -> Checked<T> {
    let known: Vec<&str> = catalog::names().collect();
    let (span, name) = (name.span(), name.get_ref());
    wrong(span, format!("catalog has no machine {name:?}; accepted: {}", known.join(", ")))
}

impl AllocatorTable {
    fn check(self) -> Checked<Config> {
        let model = match &self.model {
            None => Model::NEARPAGE,
            Some(name) => model(name)?,
        };
        let default = Config::default();
        let node_reclaim_mode = self.zone_reclaim.into();
        let settings = Settings { node_reclaim_mode, ..default.settings };
        Ok(Config { model, settings, ..default })
    }
}

fn model(name: &Spanned<String>) -> Checked<Model> {
    Model::by_name(name.get_ref()).map_or_else(
        || {
            let known = Model::ALL.map(|model| model.name).join(", ");
            wrong(
                name.span(),
                format!("model {:?} is not known; accepted: {known}", name.get_ref()),
            )
        },
        Ok,
    )
}

fn check_workload(table: Spanned<WorkloadTable>, machine: &Machine) -> Checked<Workload> {
    let (span, cpus) = (table.span(), machine.cpus().count());
    let table = table.into_inner();
    if table.kinds() != 1 {
        return wrong(
            span,
            "workload: accepted: one of memory-hog, messages, process-lifetimes, slab-messages, page-lock-storm, \
             huge-then-single; messages and process-lifetimes may stand together",
        );
    }
    if let Some(table) = table.memory_hog {
        return Ok(Workload::MemoryHog(table.check(machine)?));
    }
    if let Some(table) = table.slab_messages {
        return Ok(Workload::SlabMessages(table.check()?));
    }
    if let Some(table) = table.page_lock_storm {
        return Ok(Workload::PageLocks(table.check(cpus)?));
    }
    if let Some(HugeTable { pages }) = table.huge_then_single {
        return match *pages.get_ref() {
            0 => wrong(pages.span(), "pages is 0; accepted: 1 or more"),
            _ if machine.nodes.iter().take_while(|node| node.bytes > 0).count() < 2 => {
                wrong(pages.span(), "huge-then-single: the first two nodes must have memory")
            }
            _ if machine.nodes[0].cpus.is_empty() => {
                wrong(pages.span(), "huge-then-single: the first node must have a CPU")
            }
            count => Ok(Workload::HugeThenSingle(count)),
        };
    }
    let messages = table.messages.iter().flatten().map(|table| table.check(machine));
    let lifetimes = table.process_lifetimes.map(LifetimesTable::check).transpose()?;
    Ok(Workload::Messages(messages.collect::<Checked<_>>()?, lifetimes))
}

impl WorkloadTable {
    /// How many kinds of work there are.
    fn kinds(&self) -> usize {
        let kinds = [
            self.memory_hog.is_some(),
            self.messages.is_some() || self.process_lifetimes.is_some(),
            self.slab_messages.is_some(),
            self.page_lock_storm.is_some(),
            self.huge_then_single.is_some(),
        ];
        kinds.into_iter().filter(|is_there| *is_there).count()
    }
}

impl HogTable {
    fn check(self, machine: &Machine) -> Checked<HogWorkload> {
        let scale = at_least_one("scale", &self.scale)?;
        let stores_per_page = *self.stores_per_page.get_ref();
        if !(1..=MOST_STORES).contains(&stores_per_page) {
            let message =
                format!("stores_per_page is {stores_per_page}; accepted: 1 to {MOST_STORES}");
            return wrong(self.stores_per_page.span(), message);
        }
        for (key, span, is_empty) in [
            ("memory", self.memory.span(), self.memory.get_ref().is_empty()),
            ("threads", self.threads.span(), self.threads.get_ref().is_empty()),
        ] {
            if is_empty {
                return wrong(span, format!("{key} is empty; accepted: one or more"));
            }
        }
        let cpus = machine.cpus().count();
        let least = scale.saturating_mul(machine.page_bytes());
        let memory = self.memory.get_ref().iter().map(|text| {
            let bytes = bytes_of("memory", text)?;
            if bytes >= least {
                return Ok(bytes);
            }
            let (text, least) = (text.get_ref(), size::format(least));
            let message = format!(
                "memory is {text:?}; accepted: at least {least}, a page after division by scale"
            );
            wrong(self.memory.span(), message)
        });
        let threads = self.threads.get_ref().iter().map(|threads| threads_of(threads, cpus));
        let comes_later = |id: &Spanned<u32>| {
            let node = NodeId(*id.get_ref());
            let with_memory = machine.nodes.iter().filter(|node| node.bytes > 0);
            match with_memory.map(|node| node.id).collect::<Vec<_>>() {
                ids if ids.contains(&node) && ids.len() > 1 => Ok(node),
                ids => wrong(
                    id.span(),
                    format!(
                        "hot_add is {node:?}; accepted: one of two or more nodes with memory: {ids:?}"
                    ),
                ),
            }
        };
        Ok(HogWorkload {
            scale,
            memory: memory.collect::<Checked<_>>()?,
            threads: threads.collect::<Checked<_>>()?,
            stores_per_page,
            calibrate: None,
            hot_add: self.hot_add.as_ref().map(comes_later).transpose()?,
        })
    }
}

fn threads_of(threads: &Spanned<usize>, cpus: usize) -> Checked<usize> {
    match *threads.get_ref() {
        0 => wrong(
            threads.span(),
            format!("threads is 0; accepted: 1 to {cpus}, the CPUs of the machine"),
        ),
        n if n > cpus => {
            wrong(threads.span(), format!("threads is {n}; the machine has {cpus} CPUs"))
        }
        n => Ok(n),
    }
}

fn bytes_of(key: &str, text: &Spanned<String>) -> Checked<u64> {
    match size::parse(text.get_ref()) {
        Some(bytes) => Ok(bytes),
        None => wrong(
            text.span(),
            format!("{key} is {:?}; accepted: {}", text.get_ref(), size::EXPECTED),
        ),
    }
}
