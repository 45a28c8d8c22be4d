//! What a message is, apart from where it stands: one kind of piece for each kind of line that reports have.

use std::str::FromStr;

use crate::anchor;
use crate::fields::{PROCESS_MOST, nodes, value};
use crate::head::{self, Header};
use crate::report::{LISTS, Limit, NodeRow, SlabCache, Task, ZoneRow};
use crate::rows::{self, BlocksRow};

/// Characters of a cache's name that are kept: a group's cache has the group's name.
const CACHE_MOST: usize = 256;

/// Why the OOM killer was called.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Constraint {
    pub(crate) name: Option<String>,
    pub(crate) nodemask: Option<Vec<u32>>,
    pub(crate) mems_allowed: Option<Vec<u32>>,
    pub(crate) cpuset: Option<String>,
    pub(crate) memcg: Option<String>,
    pub(crate) task_memcg: Option<String>,
    /// The task that the kernel ends, or whose child it ends.
    pub(crate) task: Option<(u32, String)>,
}

/// Which of a group's limits a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Limited {
    Memory,
    MemoryAndSwap,
    Swap,
    Kmem,
}

/// Counters of the whole machine, in pages: a line has some of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) free: Option<u64>,
    pub(crate) slab_reclaimable: Option<u64>,
    pub(crate) slab_unreclaimable: Option<u64>,
    pub(crate) slab: Option<u64>,
    pub(crate) shmem: Option<u64>,
    pub(crate) page_tables: Option<u64>,
    pub(crate) secondary_tables: Option<u64>,
    pub(crate) free_cma: Option<u64>,
    pub(crate) mapped: Option<u64>,
    /// By [`LISTS`].
    pub(crate) lists: [Option<u64>; LISTS.len()],
}

/// A line of a report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    /// `Workqueue: events moom_callback`: sysrq f asks a worker for a kill.
    SysrqWork,
    Header(Box<Header>),
    /// `1121 total pagecache pages`, behind which all kernels with swap tell of it.
    PageCache,
    /// Cpuset and its nodes; they stand in the header of newer kernels.
    Cpuset(String, Option<Vec<u32>>),
    /// CPU, process id, release, name.
    Cpu(Option<u32>, Option<u32>, Option<String>, Option<String>),
    MemInfo,
    /// Pages of the whole machine.
    Counters(Counters),
    Node(NodeRow),
    /// With the counters of its node, if it has some.
    Zone(Box<(ZoneRow, NodeRow)>),
    Reserve(Vec<u64>),
    Numbers(Vec<u64>),
    Blocks(BlocksRow),
    MoreBlocks(String),
    /// Free and all pages of a pool, and the size of one in KiB.
    Huge(u64, u64, u64),
    /// Below zero while swap is switched off.
    SwapFree(i64),
    SwapTotal(u64),
    Ram(u64),
    /// Pages of zones of high memory, or of movable memory.
    HighMem(u64),
    Reserved(u64),
    Total,
    MemcgLimit(Limited, Limit),
    /// The task's group, if it is told, and the group at its limit.
    MemcgPath(Option<String>, String),
    /// Counters of the group follow, or stand in the line: names and KiB.
    MemcgStats(Option<String>, Vec<(String, u64)>),
    /// All of the group are ended.
    GroupKill,
    /// Caches of slab that cannot be reclaimed follow.
    SlabHead,
    SlabRow(SlabCache),
    TaskHead(Vec<String>),
    TaskRow(Vec<String>),
    Constraint(Box<Constraint>),
    /// The process that was ended, and whether a group's limit ended it, if the line says so.
    Killed(Option<bool>, Box<crate::report::Victim>),
    /// Who, or whose child, will be: whether for the limit of a group.
    Chosen(bool, Option<(u32, String)>),
    /// Whose memory was taken back: who was ended, here or before.
    Reaped(u32, String),
    /// The kernel ended itself, by a setting or for want of somebody to end: its words.
    Panic(String),
    /// A call of the OOM killer's report: whether for the limit of a group.
    Call(bool),
    SlubCache(String, Option<(u8, u8)>),
    SlubNode(u32, u64),
    Other,
}

impl Piece {
    /// Whether it is printed while nobody else is ended: of two reports it is the newer one's.
    pub(crate) fn is_of_kill(&self) -> bool {
        matches!(self, Piece::Call(_)) || self.proves_a_kill(false)
    }

    /// Whether there was a kill, also where the first line of its report is missing. A call may be one of a report that is there,
    /// over which something else prints.
    pub(crate) fn proves_a_kill(&self, has_report: bool) -> bool {
        match self {
            Piece::Constraint(_) | Piece::GroupKill | Piece::Killed(..) | Piece::Chosen(..) => true,
            Piece::MemcgLimit(..) | Piece::MemcgPath(..) | Piece::Panic(_) => true,
            Piece::MemcgStats(group, _) => group.is_some(),
            // Of the limit of a group only what follows tells.
            Piece::Call(is_of_group) => !is_of_group && !has_report,
            // Nothing else lists caches.
            Piece::SlabHead => !has_report,
            _ => false,
        }
    }
}

/// The numbers in a text.
pub(crate) fn numbers(text: &str) -> impl Iterator<Item = u64> {
    let words = text.split(|character: char| !character.is_ascii_digit());
    words.filter_map(|word| word.parse().ok())
}

/// Which piece a message is.
pub(crate) fn classify(message: &str) -> Piece {
    head::parse(message)
        .map(|header| Piece::Header(Box::new(header)))
        .or_else(|| of_memory(message))
        .or_else(|| of_process(message))
        .or_else(|| of_tasks(message))
        .or_else(|| of_slub(message))
        .unwrap_or(Piece::Other)
}

fn of_memory(message: &str) -> Option<Piece> {
    if message == "Mem-Info:" || message == "Mem-info:" {
        return Some(Piece::MemInfo);
    }
    if let Some(row) = rows::zone(message) {
        let node = rows::node_of_zone(message, &row);
        return Some(Piece::Zone(Box::new((row, node))));
    }
    if let Some(row) = rows::blocks(message) {
        return Some(Piece::Blocks(row));
    }
    if let Some(reserve) = rows::reserve(message) {
        return Some(Piece::Reserve(reserve));
    }
    if let Some(row) = rows::node(message) {
        return Some(Piece::Node(row));
    }
    if message.contains("hugepages_total=") {
        let number =
            |key| value(message, key).and_then(|text| text.trim_end_matches("kB").parse().ok());
        return Some(Piece::Huge(
            number("hugepages_free=")?,
            number("hugepages_total=")?,
            number("hugepages_size=")?,
        ));
    }
    // Words of figures alone: `free:1123229 free_pcp:488 free_cma:0`.
    if anchor::is_of_counters(message) {
        let number = |key: &str| {
            let mut words = message.split_whitespace();
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix(':')?.parse().ok())
        };
        let counters = Counters {
            free: number("free"),
            slab_reclaimable: number("slab_reclaimable"),
            slab_unreclaimable: number("slab_unreclaimable"),
            slab: number("slab"),
            shmem: number("shmem"),
            page_tables: number("pagetables"),
            secondary_tables: number("sec_pagetables"),
            free_cma: number("free_cma"),
            mapped: number("mapped"),
            lists: LISTS.map(|names| names.into_iter().find_map(number)),
        };
        if counters != Counters::default() {
            return Some(Piece::Counters(counters));
        }
    }
    totals(message)
}

fn kib<T: FromStr>(text: &str) -> Option<T> {
    text.trim().strip_suffix("kB")?.parse().ok()
}

fn totals(message: &str) -> Option<Piece> {
    if let Some(rest) = message.strip_prefix("Free swap") {
        return Some(Piece::SwapFree(kib(rest.trim_start().strip_prefix(['=', ':'])?)?));
    }
    if let Some(rest) = message.strip_prefix("Total swap = ") {
        return Some(Piece::SwapTotal(kib(rest)?));
    }
    // Older kernels have other words.
    let ends = |words: [&str; 2]| words.iter().find_map(|words| message.strip_suffix(*words));
    if let Some(pages) = ends([" pages RAM", " pages of RAM"]) {
        return Some(Piece::Ram(pages.parse().ok()?));
    }
    let high = ends([" pages HighMem/MovableOnly", " pages HighMem"]);
    if let Some(pages) = high.or_else(|| message.strip_suffix(" pages of HIGHMEM")) {
        return Some(Piece::HighMem(pages.parse().ok()?));
    }
    if let Some(pages) = message.strip_suffix(" total pagecache pages") {
        return pages.parse::<u64>().is_ok().then_some(Piece::PageCache);
    }
    if let Some(pages) = ends([" pages reserved", " reserved pages"]) {
        return Some(Piece::Reserved(pages.parse().ok()?));
    }
    if message.starts_with("Swap cache stats: ") {
        return Some(Piece::Total);
    }
    const ENDS: [&str; 3] = [" pages in swap cache", " pages cma reserved", " pages hwpoisoned"];
    let number = ENDS.iter().find_map(|end| message.strip_suffix(end))?;
    number.parse::<u64>().is_ok().then_some(Piece::Total)
}

/// `java cpuset=/ mems_allowed=0-1`, also at the end of a header.
pub(crate) fn cpuset(message: &str) -> Option<Piece> {
    let at = message.find("mems_allowed=").filter(|_| !message.starts_with("oom-kill:"))?;
    let from = message[..at].rfind("cpuset=")? + "cpuset=".len();
    let name = message[from..at].trim_end_matches([',', ' ']);
    Some(Piece::Cpuset(name.chars().take(4096).collect(), nodes(message, "mems_allowed=")))
}

fn of_process(message: &str) -> Option<Piece> {
    if let Some(cpuset) = cpuset(message) {
        return Some(cpuset);
    }
    let is_new = message.starts_with("CPU: ") && message.contains(" Comm: ");
    if is_new || message.starts_with("Pid: ") && message.contains(", comm: ") {
        let number = |key| value(message, key).and_then(|text| text.parse().ok());
        let release = message.split(" #").next().filter(|head| head.len() < message.len());
        let release = release.and_then(|head| head.rsplit(' ').next());
        // A flag of the taint may stick to it.
        let is_odd = |character: char| !character.is_ascii_digit();
        let release = release.map(|release| release.trim_start_matches(is_odd));
        // What a mail broke off is none.
        let release = release.filter(|release| release.contains('.'));
        let pid = if is_new { number("PID: ") } else { number("Pid: ") };
        let (_, name) = message.split_once(if is_new { " Comm: " } else { ", comm: " })?;
        const ENDS: [&str; 3] = [" Kdump: loaded", " Not tainted", " Tainted: "];
        let end = ENDS.iter().find_map(|end| name.find(end));
        let name = end.map(|end| name[..end].chars().take(PROCESS_MOST).collect());
        return Some(Piece::Cpu(number("CPU: "), pid, release.map(String::from), name));
    }
    if let Some(piece) = of_memcg(message) {
        return Some(piece);
    }
    if let Some(rest) = message.strip_prefix("oom-kill:") {
        let text = |key| value(rest, key).map(|text| text.chars().take(4096).collect());
        return Some(Piece::Constraint(Box::new(Constraint {
            name: text("constraint="),
            nodemask: nodes(rest, "nodemask="),
            mems_allowed: nodes(rest, "mems_allowed="),
            cpuset: text("cpuset="),
            memcg: text("oom_memcg="),
            task_memcg: text("task_memcg="),
            task: rest.rsplit_once(",task=").and_then(|(_, task)| {
                let (name, rest) = task.rsplit_once(",pid=")?;
                let pid = rest.split(',').next()?.parse().ok()?;
                Some((pid, name.chars().take(PROCESS_MOST).collect()))
            }),
        })));
    }
    of_kill(message)
}

fn of_kill(message: &str) -> Option<Piece> {
    if message.starts_with("Workqueue: ") && message.ends_with("moom_callback") {
        return Some(Piece::SysrqWork);
    }
    if message.starts_with("Kernel panic - not syncing: Out of memory")
        || message.starts_with("Out of memory and no killable processes")
        || message.starts_with("Kernel panic - not syncing: System is deadlocked on memory")
    {
        return Some(Piece::Panic(message.chars().take(120).collect()));
    }
    // What a stack had left proves nothing.
    let call = |name: &str| {
        message.split_once(name).is_some_and(|(head, rest)| {
            let is_call = rest.starts_with("+0x") || rest.starts_with('.') && rest.contains("+0x");
            is_call && !head.contains('?') && !head.ends_with('_')
        })
    };
    if call("mem_cgroup_out_of_memory") || call("mem_cgroup_oom_synchronize") {
        return Some(Piece::Call(true));
    }
    if call("dump_header") {
        return Some(Piece::Call(false));
    }
    let of_group = match message {
        _ if message.starts_with("Memory cgroup out of memory") => Some(true),
        // A container of OpenVZ.
        _ if message.starts_with("Out of memory in UB ") => Some(true),
        _ if message.starts_with("Out of memory") => Some(false),
        _ => None,
    };
    if let Some(of_group) = of_group.filter(|_| message.ends_with("or sacrifice child")) {
        let (_, who) = message.split_once("ill process ")?;
        return Some(Piece::Chosen(of_group, killed(who).map(|of| (of.pid, of.name))));
    }
    if let Some(who) = message.strip_prefix("oom_reaper: reaped process ") {
        return killed(who).map(|of| Piece::Reaped(of.pid, of.name));
    }
    let at = ["Killed process ", "killed process "]
        .iter()
        .find_map(|form| message.find(form).map(|at| at + form.len()))?;
    killed(&message[at..]).map(|victim| Piece::Killed(of_group, Box::new(victim)))
}

fn of_memcg(message: &str) -> Option<Piece> {
    const LIMITS: [(&str, Limited); 4] = [
        ("memory: usage ", Limited::Memory),
        ("memory+swap: usage ", Limited::MemoryAndSwap),
        ("swap: usage ", Limited::Swap),
        ("kmem: usage ", Limited::Kmem),
    ];
    let limit = |(form, of): &(&str, Limited)| {
        let (usage, rest) = message.strip_prefix(form)?.split_once("kB, limit ")?;
        let limit = rest.split("kB").next()?.parse().ok()?;
        Some(Piece::MemcgLimit(*of, Limit { usage: usage.parse().ok()?, limit }))
    };
    if let Some(piece) = LIMITS.iter().find_map(limit) {
        return Some(piece);
    }
    let path = |text: &str| text.trim().chars().take(4096).collect::<String>();
    if let Some((task, group)) = message.split_once(" killed as a result of limit of ") {
        let task = task.strip_prefix("Task in ").map(path);
        return Some(Piece::MemcgPath(task, path(group)));
    }
    if message.starts_with("Tasks in ") && message.ends_with("due to memory.oom.group set") {
        return Some(Piece::GroupKill);
    }
    if let Some(rest) = message.strip_prefix("Memory cgroup stats for ") {
        let (group, counters) = rest.rsplit_once(':').unwrap_or((rest, ""));
        // `cache:0KB rss:31168KB` of the group alone, before 4.20.
        let (group, counters) = match rest.split_once(": ") {
            Some((group, counters)) => (group, counters),
            None => (group, counters),
        };
        let counters = counters.split_whitespace().filter_map(|word| {
            let (name, kib) = word.split_once(':')?;
            Some((name.to_owned(), kib.strip_suffix("KB")?.parse().ok()?))
        });
        return Some(Piece::MemcgStats(Some(path(group)), counters.take(32).collect()));
    }
    // `anon 104857600` under the heading, in bytes.
    const COUNTERS: [&str; 19] = [
        "active_anon",
        "anon",
        "cache",
        "dirty",
        "file",
        "file_dirty",
        "file_writeback",
        "inactive_anon",
        "kernel",
        "kernel_stack",
        "pagetables",
        "percpu",
        "rss",
        "shmem",
        "slab",
        "sock",
        "swapcached",
        "vmalloc",
        "writeback",
    ];
    let (name, bytes) = message.split_once(' ').filter(|(name, _)| COUNTERS.contains(name))?;
    let bytes: u64 = bytes.parse().ok()?;
    Some(Piece::MemcgStats(None, vec![(name.into(), bytes / 1024)]))
}

/// `123 (name), UID 0, total-vm:4kB, anon-rss:4kB, file-rss:0kB, shmem-rss:0kB`
fn killed(text: &str) -> Option<crate::report::Victim> {
    let (pid, rest) = text.split_once(" (")?;
    // Names may have parentheses.
    let end = rest.find(") total-vm").or_else(|| rest.find("),")).or_else(|| rest.find(')'))?;
    // A number that ends a line which was cut may have more digits.
    let kib = |key| value(rest, key)?.strip_suffix("kB")?.parse().ok();
    Some(crate::report::Victim {
        pid: pid.parse().ok()?,
        name: rest[..end].chars().take(64).collect(),
        anon: kib("anon-rss:"),
        file: kib("file-rss:"),
        shmem: kib("shmem-rss:"),
        pgtables: kib("pgtables:"),
    })
}

fn of_tasks(message: &str) -> Option<Piece> {
    let (inside, rest) = message.strip_prefix('[')?.split_once(']')?;
    let inside = inside.trim();
    let words =
        || [inside].into_iter().chain(rest.split_whitespace()).take(24).map(String::from).collect();
    if inside == "pid" {
        return Some(Piece::TaskHead(words()));
    }
    inside.parse::<u32>().is_ok().then(|| Piece::TaskRow(words()))
}

fn of_slub(message: &str) -> Option<Piece> {
    if message == "Unreclaimable slab info:" {
        return Some(Piece::SlabHead);
    }
    // `kmalloc-8k              1024KB       2048KB`
    let mut words = message.split_whitespace();
    if let (Some(name), Some(used), Some(total), None) =
        (words.next(), words.next(), words.next(), words.next())
        && let Some(total) = total.strip_suffix("KB").and_then(|kib| kib.parse().ok())
        && used.ends_with("KB")
    {
        return Some(Piece::SlabRow(SlabCache { name: name.chars().take(64).collect(), total }));
    }
    if let Some(rest) = message.strip_prefix("cache: ") {
        let order = |key| value(rest, key)?.parse().ok();
        let orders = order("default order: ").zip(order("min order: "));
        let name = rest.split(',').next()?;
        return Some(Piece::SlubCache(name.chars().take(CACHE_MOST).collect(), orders));
    }
    let (node, rest) = message.strip_prefix("node ")?.split_once(": slabs: ")?;
    Some(Piece::SlubNode(node.parse().ok()?, value(rest, "free: ")?.parse().ok()?))
}

/// A row of the table of tasks under its heading.
pub(crate) fn task(head: &[String], row: &[String]) -> Option<Task> {
    let at = head.iter().position(|name| name == "rss")?;
    // Names may have blanks: all words from the column of names on.
    let name = head.iter().position(|name| name == "name")?;
    let column = |column: &str| {
        let at = head.iter().position(|name| name == column)?;
        row.get(at)?.parse().ok()
    };
    Some(Task {
        pid: row.first()?.parse().ok()?,
        rss_pages: row.get(at)?.parse().ok()?,
        name: row.get(name..)?.join(" ").chars().take(64).collect(),
        pgtables: column("pgtables_bytes"),
        swap_pages: column("swapents").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_and_victims() {
        let release = |text: &str| match classify(text) {
            Piece::Cpu(_, pid, release, _) => (pid, release.unwrap()),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            release("CPU: 2 PID: 26 Comm: a b Tainted: G O 3.18.18+40-ph #1"),
            (Some(26), "3.18.18+40-ph".into())
        );
        assert_eq!(
            release("CPU: 0 UID: 0 PID: 29 Comm: x Not tainted 6.12.1 #1 Debian"),
            (Some(29), "6.12.1".into())
        );
        assert_eq!(
            release("Pid: 31170, comm: splat Tainted: P 3.8.0-1-mainline #1"),
            (Some(31170), "3.8.0-1-mainline".into())
        );
        let killed = classify(
            "Out of memory: Killed process 7 (my (app)) total-vm:9kB, anon-rss:8kB, file-rss:4kB, shmem-rss:1kB, UID:0 pgtables:72kB oom_score_adj:0",
        );
        let Piece::Killed(Some(false), victim) = killed else { panic!("{killed:?}") };
        assert_eq!(
            (
                victim.pid,
                victim.name.as_str(),
                victim.anon,
                victim.file,
                victim.shmem,
                victim.pgtables
            ),
            (7, "my (app)", Some(8), Some(4), Some(1), Some(72))
        );
        assert_eq!(
            classify("java cpuset=vcpu0 mems_allowed=0-1"),
            Piece::Cpuset("vcpu0".into(), Some(vec![0, 1]))
        );
        assert_eq!(
            classify("memory: usage 102400kB, limit 102401kB, failcnt 12"),
            Piece::MemcgLimit(Limited::Memory, Limit { usage: 102400, limit: 102401 })
        );
    }
}
