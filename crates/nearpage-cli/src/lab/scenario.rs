//! Scenario files. `nearpage lab --help` describes the keys.

mod lifetimes;
mod locks;

use std::ops::Range;

use nearpage::alloc::Config;
use nearpage::model::Model;
use nearpage::units::{CpuId, MAX_ORDER, NodeId, Order};
use nearpage::watermark::Settings;
use nearpage_linux::description::size;
use nearpage_linux::idlist;
use nearpage_sim::Machine;
use nearpage_sim::machine::NodeSpec;
use nearpage_sim::workload::messages::{Block, FreedBy};
use serde::Deserialize;
use toml::Spanned;

use super::error::LabError;
use lifetimes::LifetimesTable;
pub use lifetimes::LifetimesWorkload;
use locks::LocksTable;
pub use locks::LocksWorkload;

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

/// A published table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Names of columns.
    pub columns: Vec<String>,
    /// Rows of figures.
    pub rows: Vec<Vec<f64>>,
}

impl Reference {
    /// A column by its name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

// ---- The file as it is written.

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: Spanned<u32>,
    name: String,
    title: String,
    machine: MachineTable,
    #[serde(default)]
    allocator: AllocatorTable,
    #[serde(default)]
    variants: VariantsTable,
    workload: Spanned<WorkloadTable>,
    calibrate: Option<CalibrateTable>,
    reference: Option<Spanned<Reference>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineTable {
    page_size: Option<Spanned<String>>,
    costs: String,
    nodes: Spanned<Vec<NodesTable>>,
    distance: Spanned<DistanceTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodesTable {
    ids: Spanned<String>,
    #[serde(default)]
    cpus_each: u32,
    memory: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DistanceTable {
    local: Option<Spanned<u8>>,
    #[serde(default)]
    groups: Vec<GroupTable>,
    other: Option<u8>,
    matrix: Option<Vec<Vec<u8>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupTable {
    nodes: Spanned<u32>,
    distance: u8,
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
    published_messages: f64,
    #[serde(default)]
    message_ns: f64,
    #[serde(default)]
    others: Vec<NamedMachineTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedMachineTable {
    name: String,
    page_size: Option<Spanned<String>>,
    costs: String,
    nodes: Spanned<Vec<NodesTable>>,
    distance: Spanned<DistanceTable>,
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
        for (key, value) in [("messages", &self.messages), ("burst", &self.burst)] {
            if *value.get_ref() == 0 {
                return wrong(value.span(), format!("{key} is 0; accepted: 1 or more"));
            }
        }
        Ok(SlabWorkload {
            objects: self.objects.into_inner(),
            messages: self.messages.into_inner(),
            burst: self.burst.into_inner(),
            published_messages: self.published_messages,
            message_ns: self.message_ns,
            others: self
                .others
                .into_iter()
                .map(NamedMachineTable::check)
                .collect::<Checked<_>>()?,
        })
    }
}

impl NamedMachineTable {
    fn check(self) -> Checked<(String, MachineOf)> {
        let Self { name, page_size, costs, nodes, distance } = self;
        let machine = MachineTable { page_size, costs: costs.clone(), nodes, distance };
        Ok((name, MachineOf { machine: machine.check()?, costs }))
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantsTable {
    patches: Option<Vec<Spanned<u8>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessagesTable {
    name: String,
    pairs: Spanned<usize>,
    messages: Spanned<u64>,
    turn: Spanned<u64>,
    window: Spanned<usize>,
    #[serde(default)]
    copy_ns: f64,
    calibrate: Option<LockShareTable>,
    blocks: Vec<BlockTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockShareTable {
    zone_lock_percent: f64,
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
    fn check(&self, cpus: usize) -> Checked<MessagesWorkload> {
        let pairs = *self.pairs.get_ref();
        if pairs == 0 || 2 * pairs > cpus {
            let message =
                format!("pairs is {pairs}; accepted: 1 to {}, half of the CPUs", cpus / 2);
            return wrong(self.pairs.span(), message);
        }
        let at_least_one = |key: &str, value: &Spanned<u64>| match *value.get_ref() {
            0 => wrong(value.span(), format!("{key} is 0; accepted: 1 or more")),
            n => Ok(n),
        };
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
            blocks: self.blocks.iter().map(block).collect::<Checked<_>>()?,
            copy_ns: self.copy_ns,
            zone_lock_percent: self.calibrate.as_ref().map(|table| table.zone_lock_percent),
        })
    }
}

impl VariantsTable {
    fn check(&self) -> Checked<Vec<u8>> {
        let Some(patches) = &self.patches else { return Ok(Vec::new()) };
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
    scale: u64,
    memory: Vec<Spanned<String>>,
    threads: Vec<Spanned<usize>>,
    stores_per_page: u64,
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
        let costs = self.machine.costs.clone();
        let machine = self.machine.check()?;
        let config = self.allocator.check()?;
        let patches = self.variants.check()?;
        let workload = check_workload(self.workload, self.calibrate.as_ref(), &machine)?;
        let reference = self.reference.map(check_reference).transpose()?;
        let (name, title) = (self.name, self.title);
        let machine = MachineOf { machine, costs };
        Ok(Scenario { name, title, machine, config, patches, workload, reference })
    }
}

fn check_reference(table: Spanned<Reference>) -> Checked<Reference> {
    let span = table.span();
    let table = table.into_inner();
    match table.rows.iter().position(|row| row.len() != table.columns.len()) {
        Some(at) => {
            let (got, want) = (table.rows[at].len(), table.columns.len());
            wrong(span, format!("reference.rows: row {} has {got} figures, not {want}", at + 1))
        }
        None => Ok(table),
    }
}

impl MachineTable {
    fn check(self) -> Checked<Machine> {
        let page_shift = match &self.page_size {
            None => 12,
            Some(text) => page_shift(text)?,
        };
        let mut nodes: Vec<NodeSpec> = Vec::new();
        let mut next_cpu = 0;
        for table in self.nodes.get_ref() {
            let bytes = bytes_of("memory", &table.memory)?;
            let ids = idlist::parse(table.ids.get_ref()).or_else(|error| {
                wrong(table.ids.span(), format!("ids: {error}; accepted: a list such as 0-3,8"))
            })?;
            for id in ids {
                let cpus = (next_cpu..next_cpu + table.cpus_each).map(CpuId).collect();
                next_cpu += table.cpus_each;
                nodes.push(NodeSpec { id: NodeId(id), bytes, cpus });
            }
        }
        nodes.sort_by_key(|node| node.id);
        let distances = self.distance.get_ref().check(self.distance.span(), nodes.len())?;
        let machine = Machine { nodes, distances, page_shift };
        if machine.cpus().next().is_none() {
            return wrong(
                self.nodes.span(),
                "machine.nodes: no node has a CPU (`cpus_each`); at least one must",
            );
        }
        match machine.topology().with(|_| ()) {
            Ok(()) => Ok(machine),
            Err(error) => wrong(self.nodes.span(), format!("machine: {error}")),
        }
    }
}

impl DistanceTable {
    fn check(&self, span: Range<usize>, nodes: usize) -> Checked<Vec<u8>> {
        if let Some(matrix) = &self.matrix {
            if matrix.len() != nodes || matrix.iter().any(|row| row.len() != nodes) {
                let message =
                    format!("machine.distance.matrix must be {nodes} rows of {nodes} distances");
                return wrong(span, message);
            }
            return Ok(matrix.concat());
        }
        let Some(other) = self.other else {
            let message = "machine.distance: distances are missing; accepted: `matrix`, or `other` with optional `groups`";
            return wrong(span, message);
        };
        let local = self.local.as_ref().map_or(10, |local| *local.get_ref());
        let mut distances = Vec::with_capacity(nodes * nodes);
        for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
            let shares = |group: &&GroupTable| {
                let size = (*group.nodes.get_ref()).max(1) as usize;
                from / size == to / size
            };
            let group = self.groups.iter().find(shares).map_or(other, |group| group.distance);
            distances.push(if from == to { local } else { group });
        }
        Ok(distances)
    }
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

fn check_workload(
    table: Spanned<WorkloadTable>,
    calibrate: Option<&CalibrateTable>,
    machine: &Machine,
) -> Checked<Workload> {
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
        return Ok(Workload::MemoryHog(table.check(span, calibrate, machine)?));
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
            count => Ok(Workload::HugeThenSingle(count)),
        };
    }
    let messages = table.messages.iter().flatten().map(|table| table.check(cpus));
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
    fn check(
        self,
        span: Range<usize>,
        calibrate: Option<&CalibrateTable>,
        machine: &Machine,
    ) -> Checked<HogWorkload> {
        if self.scale == 0 || self.stores_per_page == 0 {
            return wrong(span, "workload: scale and stores_per_page must be 1 or more");
        }
        let cpus = machine.cpus().count();
        let memory = self.memory.iter().map(|text| bytes_of("memory", text));
        let threads = self.threads.iter().map(|threads| threads_of(threads, cpus));
        let cell = |cell: &CellTable| {
            Ok((bytes_of("memory", &cell.memory)?, threads_of(&cell.threads, cpus)?))
        };
        let calibrate = calibrate.map(|table| {
            let (scale, load_slowdown) = (cell(&table.scale)?, cell(&table.load_slowdown)?);
            Ok(HogCalibration { scale, load_slowdown })
        });
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
            scale: self.scale,
            memory: memory.collect::<Checked<_>>()?,
            threads: threads.collect::<Checked<_>>()?,
            stores_per_page: self.stores_per_page,
            calibrate: calibrate.transpose()?,
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

fn page_shift(text: &Spanned<String>) -> Checked<u32> {
    let bytes = bytes_of("page_size", text)?;
    if bytes.is_power_of_two() && (1 << 12..=1 << 16).contains(&bytes) {
        return Ok(bytes.trailing_zeros());
    }
    wrong(
        text.span(),
        format!("page_size is {:?}; accepted: 4K, 8K, 16K, 32K or 64K", text.get_ref()),
    )
}
