//! A small page cache over a real file: the API as the author of a pool would use it.
//!
//! ```text
//! cargo run --release -p nearpage-linux --example buffer_pool [FILE [LIMIT]]
//! ```
//!
//! Without FILE a file of 2 GB is made in the temporary folder, and kept for the next run. Four threads read
//! all of it, each the page that nobody has asked for yet, through a pool that has more memory and may use 256 MB, or
//! LIMIT (a size such as 64M), of it (`set_limits`). A miss takes pages in bulk, locks them and reads ahead into them (`pread`), with no other lock held;
//! a thread that finds its page locked waits until it has been read. Above the soft limit a background thread asks the
//! pool's shrinker to evict; at the hard limit whoever needs a page does, and if all are in use it waits. What is printed at the end is how much was
//! read, how fast, how often threads waited for each other, the most that was in use, and how large the process was.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use nearpage::{AllocError, Gfp, LimitOf, Limits, NodeId, Order, PageCount, Pfn, Request};
use nearpage_linux::{Environment, Memory, Reclaim, ReclaimOptions, ReclaimThread, Shrinker};
use nearpage_machine::size;

const PAGE: usize = 4096;
const FILE_BYTES: u64 = 2_000_000_000;
/// What the pool may use of its memory, which is twice as much.
const LIMIT_BYTES: u64 = 256_000_000;
/// Each thread has a group of pages that it reads, and none of another's is evicted for it.
const LIMIT_BYTES_MIN: u64 = THREADS * (READ_AHEAD * PAGE) as u64;
/// What a node has at least, however many there are.
const NODE_BYTES_MIN: u64 = (READ_AHEAD * PAGE) as u64;
/// How long a thread waits for a page while all are in use, and how often it looks.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(1);
const READ_AHEAD: usize = 32;
const SHARDS: usize = 16;
const THREADS: u64 = 4;

/// Pages of the file that are in memory, by their number; oldest first in `order`.
#[derive(Default)]
struct Shard {
    pages: HashMap<u64, Resident>,
    order: VecDeque<u64>,
}

/// A page in memory. It is locked until it has been read.
struct Resident {
    pfn: Pfn,
    /// Threads that look at it, or are about to.
    users: u32,
}

struct Pool {
    file: File,
    path: PathBuf,
    bytes_in_file: u64,
    memory: Arc<Memory>,
    shards: [Mutex<Shard>; SHARDS],
    misses: AtomicU64,
    evicted: AtomicU64,
    /// Why a page could not be read: what is in memory is not what is in the file.
    failure: OnceLock<String>,
}

/// A page that nobody evicts while this is there; it may still be read by somebody else.
struct PageInUse<'a> {
    pool: &'a Pool,
    number: u64,
    pfn: Pfn,
}

impl Drop for PageInUse<'_> {
    fn drop(&mut self) {
        let mut shard = self.pool.shard(self.number).lock().expect("no thread panics");
        shard.pages.get_mut(&self.number).expect("nobody evicts a page in use").users -= 1;
    }
}

impl Pool {
    /// Calls `look` with a page of the file.
    fn with_page<R>(&self, number: u64, look: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let page = self.use_page(number)?;
        // Whoever found the page missing reads it; the others wait here.
        self.memory.wait_on_page(page.pfn).map_err(io::Error::other)?;
        if let Some(failure) = self.failure.get() {
            return Err(io::Error::other(failure.clone()));
        }
        let address = self.memory.address(page.pfn);
        // SAFETY: the page has been read, nobody writes it again, and nobody evicts it while it is in use.
        Ok(look(unsafe { std::slice::from_raw_parts(address.as_ptr(), PAGE) }))
    }

    /// If all pages that the limit allows are in use, this waits until others are done with theirs.
    fn use_page(&self, number: u64) -> io::Result<PageInUse<'_>> {
        let mut waited = Duration::ZERO;
        loop {
            match self.try_use_page(number) {
                Err(AllocError::LimitReached { .. } | AllocError::OutOfMemory { .. })
                    if waited < PATIENCE =>
                {
                    std::thread::sleep(LOOK_AGAIN);
                    waited += LOOK_AGAIN;
                }
                Err(error) => {
                    let why = format!("no page after {waited:?}: {error}");
                    return Err(io::Error::other(why));
                }
                Ok((page, fresh)) => {
                    self.read_ahead(&fresh)?;
                    return Ok(page);
                }
            }
        }
    }

    /// A page, and those that were added with it, for this thread to read.
    fn try_use_page(&self, number: u64) -> Result<(PageInUse<'_>, Vec<(u64, Pfn)>), AllocError> {
        let mut shard = self.shard(number).lock().expect("no thread panics");
        if let Some(page) = shard.pages.get_mut(&number) {
            page.users += 1;
            return Ok((PageInUse { pool: self, number, pfn: page.pfn }, Vec::new()));
        }
        let fresh = self.add_group(&mut shard, number)?;
        shard.pages.get_mut(&number).expect("it was just added").users += 1;
        Ok((PageInUse { pool: self, number, pfn: fresh[0].1 }, fresh))
    }

    /// Pages that are read together are in one shard.
    fn shard(&self, number: u64) -> &Mutex<Shard> {
        &self.shards[(number / READ_AHEAD as u64) as usize % SHARDS]
    }

    /// Adds the rest of the page's group, as far as there is memory, and at least the page; all of them locked.
    fn add_group(&self, shard: &mut Shard, number: u64) -> Result<Vec<(u64, Pfn)>, AllocError> {
        let end = (number / READ_AHEAD as u64 + 1) * READ_AHEAD as u64;
        let wanted: Vec<u64> = (number..end.min(self.pages_in_file()))
            .filter(|number| !shard.pages.contains_key(number))
            .collect();
        let mut pages = [Pfn(0); READ_AHEAD];
        let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
        let got = self.memory.alloc_frames_bulk(request, &mut pages[..wanted.len()])?;
        self.misses.fetch_add(got as u64, Ordering::Relaxed);
        let fresh: Vec<(u64, Pfn)> = wanted.into_iter().zip(pages).take(got).collect();
        for &(number, pfn) in &fresh {
            self.memory.lock_page(pfn).expect("it was just allocated");
            shard.pages.insert(number, Resident { pfn, users: 0 });
            shard.order.push_back(number);
        }
        Ok(fresh)
    }

    /// Reads pages that this thread has locked, and unlocks each as soon as it is there. Others wait for them, so
    /// they are unlocked even if they cannot be read.
    fn read_ahead(&self, fresh: &[(u64, Pfn)]) -> io::Result<()> {
        let mut result = Ok(());
        for &(number, pfn) in fresh {
            let start = self.memory.address(pfn).as_ptr();
            // SAFETY: the page is the pool's, and locked by this thread: nobody else looks at it.
            let page = unsafe { std::slice::from_raw_parts_mut(start, PAGE) };
            if let Err(error) = self.read(number, page) {
                let why = self.failure.get_or_init(|| error.to_string());
                result = Err(io::Error::new(error.kind(), why.clone()));
            }
            // SAFETY: this thread has locked it.
            unsafe { self.memory.unlock_page(pfn) }.expect("it is locked");
        }
        result
    }

    /// Fills a page from the file; what lies behind the end of the file is zeroes.
    fn read(&self, number: u64, page: &mut [u8]) -> io::Result<()> {
        let start = number * PAGE as u64;
        let length = (self.bytes_in_file - start).min(PAGE as u64) as usize;
        let (inside, behind) = page.split_at_mut(length);
        behind.fill(0);
        self.file.read_exact_at(inside, start).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let (path, bytes) = (self.path.display(), self.bytes_in_file);
                let why = format!(
                    "{path}: ends before byte {}, and said it is {bytes} bytes long",
                    start + length as u64
                );
                io::Error::new(error.kind(), why)
            }
            _ => about(&self.path, error),
        })
    }

    fn pages_in_file(&self) -> u64 {
        self.bytes_in_file.div_ceil(PAGE as u64)
    }
}

/// The way from reclaim to the pool, which comes later.
struct Evict(Mutex<Weak<Pool>>);

impl Shrinker for Evict {
    fn shrink(&self, _node: NodeId, pages: PageCount) -> PageCount {
        let Some(pool) = self.0.lock().expect("no thread panics").upgrade() else {
            return PageCount(0);
        };
        let mut victims = Vec::new();
        let share = (pages.0 as usize).div_ceil(SHARDS).max(READ_AHEAD);
        for shard in &pool.shards {
            // The thread that asks for memory holds one of the shards.
            let Ok(mut shard) = shard.try_lock() else { continue };
            for _ in 0..share.min(shard.order.len()) {
                let Some(number) = shard.order.pop_front() else { break };
                let page = &shard.pages[&number];
                let is_busy = page.users > 0 || pool.memory.is_page_locked(page.pfn) == Ok(true);
                if is_busy {
                    shard.order.push_back(number);
                } else {
                    victims.extend(shard.pages.remove(&number).map(|page| page.pfn));
                }
            }
        }
        // SAFETY: the pages are in no shard any more.
        unsafe { pool.memory.free_frames_bulk(&victims) }.expect("they were the pool's");
        pool.evicted.fetch_add(victims.len() as u64, Ordering::Relaxed);
        PageCount(victims.len() as u64)
    }
}

/// A pool over a file, in so much memory, and what keeps it so.
fn open(path: &Path, limit_bytes: u64) -> io::Result<(Arc<Pool>, Reclaim, ReclaimThread)> {
    let (file, bytes_in_file) = open_file(path).map_err(|error| about(path, error))?;
    let reclaim = Reclaim::new();
    // The nodes that the memory will have: emulated ones, if the environment asks for some.
    let environment = Environment::from_env().map_err(io::Error::other)?;
    let machine = environment.machine().map_err(io::Error::other)?;
    let nodes = machine.nodes.iter().filter(|node| node.has_memory).count().max(1);
    let memory = Memory::builder()
        .environment(environment)
        .bytes_per_node((limit_bytes.saturating_mul(2) / nodes as u64).max(NODE_BYTES_MIN))
        .pressure(reclaim.clone())
        .build()
        .map_err(io::Error::other)?;
    let limits = Limits {
        hard_bytes: Some(limit_bytes),
        // Above this it evicts in the background.
        soft_bytes: Some(limit_bytes / 16 * 15),
        ..Limits::default()
    };
    memory.set_limits(LimitOf::Allocator, limits).map_err(io::Error::other)?;
    let memory = Arc::new(memory);
    let evict = Arc::new(Evict(Mutex::default()));
    reclaim.add_shrinker(evict.clone());
    let thread = reclaim.start(&memory, ReclaimOptions::default())?;
    let pool = Arc::new(Pool {
        file,
        path: path.into(),
        bytes_in_file,
        memory,
        shards: Default::default(),
        misses: AtomicU64::new(0),
        evicted: AtomicU64::new(0),
        failure: OnceLock::new(),
    });
    *evict.0.lock().expect("no thread panics") = Arc::downgrade(&pool);
    Ok((pool, reclaim, thread))
}

/// A file and its length. Only of a regular file that is not empty the length says what can be read: it is 0 of devices,
/// and of files that are made up while they are read.
fn open_file(path: &Path) -> io::Result<(File, u64)> {
    let metadata = std::fs::metadata(path)?;
    match metadata.len() {
        _ if !metadata.is_file() => Err(io::Error::other("not a regular file")),
        0 => Err(io::Error::other("says it is 0 bytes long, so there is nothing to read")),
        bytes => Ok((File::open(path)?, bytes)),
    }
}

/// The error, with the file that it is about.
fn about(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn main() -> ExitCode {
    let (path, limit_bytes) = match arguments(std::env::args_os().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("buffer_pool: {why}; usage: buffer_pool [FILE [LIMIT]]");
            return ExitCode::from(2);
        }
    };
    match path.map_or_else(made_file, Ok).and_then(|path| run(&path, limit_bytes)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("buffer_pool: {error}");
            ExitCode::FAILURE
        }
    }
}

/// FILE, if one is given, and LIMIT; or what is wrong with them.
fn arguments(mut given: impl Iterator<Item = OsString>) -> Result<(Option<PathBuf>, u64), String> {
    let (path, limit) = (given.next().map(PathBuf::from), given.next());
    if let Some(extra) = given.next() {
        return Err(format!("found {extra:?} after the limit, expected nothing"));
    }
    let Some(limit) = limit else { return Ok((path, LIMIT_BYTES)) };
    let bytes = limit.to_str().and_then(size::parse);
    let bytes =
        bytes.ok_or_else(|| format!("found {limit:?}, expected a size such as 512K, 64M or 2G"))?;
    if bytes < LIMIT_BYTES_MIN {
        return Err(format!(
            "found a limit of {limit:?}, expected {} or more: each of {THREADS} threads reads {READ_AHEAD} pages of {PAGE} bytes at once",
            size::format(LIMIT_BYTES_MIN)
        ));
    }
    Ok((path, bytes))
}

fn run(path: &Path, limit_bytes: u64) -> io::Result<()> {
    let (pool, reclaim, _thread) = open(path, limit_bytes)?;
    let mut out = io::stdout();
    writeln!(
        out,
        "{}: {:.1} MB through {:.1} MB of {:.1} MB",
        path.display(),
        megabytes(pool.bytes_in_file),
        megabytes(limit_bytes),
        megabytes(memory_bytes(&pool.memory))
    )?;
    let before = resident_bytes()?;
    let (start, largest) = (Instant::now(), Largest::default());
    let sum = read_all(&pool, &largest)?;
    let seconds = start.elapsed().as_secs_f64();

    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counts = reclaim.counts();
    writeln!(out, "checksum   {sum:016x}")?;
    writeln!(
        out,
        "time       {seconds:.2} s, {:.0} MB/s",
        megabytes(pool.bytes_in_file) / seconds
    )?;
    writeln!(out, "pages      {} read, {} evicted", count(&pool.misses), count(&pool.evicted))?;
    writeln!(
        out,
        "reclaim    {} pages in the background, {} in {} stalls of {:.1} us",
        counts.background_pages,
        counts.direct_pages,
        counts.stalls,
        counts.stalled.as_secs_f64() * 1e6 / counts.stalls.max(1) as f64
    )?;
    writeln!(
        out,
        "largest    {:.1} MB in use of the pool, {:.1} MB of the process resident",
        megabytes(count(&largest.in_use)),
        megabytes(count(&largest.resident))
    )?;
    writeln!(
        out,
        "footprint  {:.1} MB before, {:.1} MB after",
        megabytes(before),
        megabytes(resident_bytes()?)
    )?;
    let vmstat = pool.memory.vmstat();
    vmstat.lines().filter(is_told).try_for_each(|line| writeln!(out, "{line}"))
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// What a memory has on all nodes.
fn memory_bytes(memory: &Memory) -> u64 {
    let ranges = memory.topology().nodes().iter().flat_map(|node| node.memory);
    ranges.map(|range| range.pages().0 * PAGE as u64).sum()
}

/// Lines of vmstat that say where pages came from, what is left, and how often a thread slept for another one.
fn is_told(line: &&str) -> bool {
    ["nr_free_pages ", "nr_pcp_pages ", "numa_hit ", "numa_miss ", "limit_", "page_lock_waits "]
        .iter()
        .any(|name| line.starts_with(name))
}

/// Reads the whole file: each thread the next page, until there is none.
fn read_all(pool: &Pool, largest: &Largest) -> io::Result<u64> {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| read_share(pool, &next, largest))).collect();
        workers.into_iter().try_fold(0_u64, |sum, worker| {
            Ok(sum.wrapping_add(worker.join().expect("no thread panics")?))
        })
    })
}

/// The most bytes that were seen while reading.
#[derive(Default)]
struct Largest {
    /// Of the pool: with it, or cached by CPUs.
    in_use: AtomicU64,
    /// Of the process.
    resident: AtomicU64,
}

impl Largest {
    fn look(&self, pool: &Pool) -> io::Result<()> {
        let in_use = pool.memory.in_use(LimitOf::Allocator).map_err(io::Error::other)?;
        self.in_use.fetch_max(in_use.0 * PAGE as u64, Ordering::Relaxed);
        self.resident.fetch_max(resident_bytes()?, Ordering::Relaxed);
        Ok(())
    }
}

fn read_share(pool: &Pool, next: &AtomicU64, largest: &Largest) -> io::Result<u64> {
    let mut sum = 0_u64;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= pool.pages_in_file() {
            return Ok(sum);
        }
        sum = sum.wrapping_add(pool.with_page(number, |page| {
            page.chunks_exact(8).fold(0_u64, |sum, word| {
                sum.wrapping_add(u64::from_le_bytes(word.try_into().expect("eight bytes")))
            })
        })?);
        if number.is_multiple_of(1024) {
            largest.look(pool)?;
        }
    }
}

fn resident_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    Ok(pages.unwrap_or(0) * PAGE as u64)
}

/// A file of 2 GB whose every word is different.
fn made_file() -> io::Result<PathBuf> {
    let path = std::env::temp_dir().join("nearpage-buffer-pool");
    if std::fs::metadata(&path).is_ok_and(|file| file.len() == FILE_BYTES) {
        return Ok(path);
    }
    write_file(&path, FILE_BYTES).map_err(|error| about(&path, error))?;
    Ok(path)
}

fn write_file(path: &Path, bytes: u64) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 20, File::create(path)?);
    for number in 0..bytes / 8 {
        out.write_all(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(words: std::ops::Range<u64>) -> u64 {
        let word = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        words.fold(0, |sum, number| sum.wrapping_add(word(number)))
    }

    #[test]
    fn a_file_goes_through_a_pool_that_is_smaller() {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = (folder.path().join("file"), 32 << 20);
        write_file(&path, bytes).unwrap();
        let (pool, _reclaim, _thread) = open(&path, 8 << 20).unwrap();
        assert_eq!(read_all(&pool, &Largest::default()).unwrap(), sum(0..bytes / 8));
        assert!(pool.evicted.load(Ordering::Relaxed) > 0, "not all of it fits");
        assert_eq!(pool.memory.misuses(), 0);
    }

    #[test]
    fn a_limit_of_little_more_than_what_is_read_at_once_is_enough() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = 16 << 20;
        write_file(file.path(), bytes).unwrap();
        for limit_bytes in [LIMIT_BYTES_MIN, 1_000_000] {
            let (pool, _reclaim, _thread) = open(file.path(), limit_bytes).unwrap();
            assert_eq!(read_all(&pool, &Largest::default()).unwrap(), sum(0..bytes / 8));
            assert_eq!(pool.memory.misuses(), 0);
        }
    }

    #[test]
    fn who_finds_all_pages_in_use_waits_for_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pages = 2 * LIMIT_BYTES_MIN / PAGE as u64;
        write_file(file.path(), pages * PAGE as u64).unwrap();
        let (pool, reclaim, _thread) = open(file.path(), LIMIT_BYTES_MIN).unwrap();
        let in_use: Vec<_> = (0..pages / 2).map(|number| pool.use_page(number).unwrap()).collect();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| pool.with_page(pages - 1, |page| page.to_vec()));
            while reclaim.counts().stalls < 2 && !reader.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(!reader.is_finished(), "no page was given back");
            drop(in_use);
            assert!(reader.join().unwrap().is_ok());
        });
    }

    #[test]
    fn wrong_arguments_are_told_with_what_is_accepted() {
        let parsed = |given: &[&str]| arguments(given.iter().map(OsString::from));
        assert_eq!(parsed(&[]), Ok((None, LIMIT_BYTES)));
        assert_eq!(parsed(&["file", "64M"]), Ok((Some("file".into()), 64 << 20)));
        let few = "found a limit of \"8K\", expected 512 KiB or more: each of 4 threads reads 32 pages of 4096 bytes at once";
        assert_eq!(parsed(&["file", "8K"]), Err(few.into()));
        let wrong = "found \"many\", expected a size such as 512K, 64M or 2G";
        assert_eq!(parsed(&["file", "many"]), Err(wrong.into()));
        let extra = "found \"x\" after the limit, expected nothing";
        assert_eq!(parsed(&["file", "64M", "x"]), Err(extra.into()));
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error_and_leaves_no_page_in_use() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_file(file.path(), 8 * PAGE as u64).unwrap();
        let (pool, _reclaim, _thread) = open(file.path(), 8 << 20).unwrap();
        file.as_file().set_len(4 * PAGE as u64 + 100).unwrap();
        for number in [0, 4, 0] {
            let error = pool.with_page(number, |_| ()).unwrap_err().to_string();
            let expected = "ends before byte 20480, and said it is 32768 bytes long";
            assert_eq!(error, format!("{}: {expected}", file.path().display()));
        }
        let shard = pool.shard(0).lock().unwrap();
        assert!(shard.pages.values().all(|page| page.users == 0));
    }

    #[test]
    fn the_last_page_may_be_a_part_of_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [7; PAGE + 1]).unwrap();
        let (pool, _reclaim, _thread) = open(file.path(), 8 << 20).unwrap();
        let last = pool.with_page(1, <[u8]>::to_vec).unwrap();
        assert_eq!((last[0], &last[1..]), (7, &[0; PAGE - 1][..]));
    }

    #[test]
    fn files_without_a_length_are_refused() {
        let refusal = |path| open(Path::new(path), 8 << 20).err().unwrap().to_string();
        assert_eq!(refusal("/dev/zero"), "/dev/zero: not a regular file");
        assert_eq!(refusal("/"), "/: not a regular file");
        let expected = "/proc/self/status: says it is 0 bytes long, so there is nothing to read";
        assert_eq!(refusal("/proc/self/status"), expected);
        assert!(refusal("/no/such").starts_with("/no/such: No such file"));
    }

    /// The body of a process with emulated nodes, too.
    #[test]
    fn a_pool_has_twice_its_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_file(file.path(), PAGE as u64).unwrap();
        let (pool, _reclaim, _thread) = open(file.path(), 16 << 20).unwrap();
        assert_eq!(memory_bytes(&pool.memory), 32 << 20);
    }

    #[test]
    fn emulated_nodes_share_what_a_pool_has() {
        run_with_nodes("fake=4", "a_pool_has_twice_its_limit");
    }

    #[test]
    fn each_of_many_nodes_has_some_memory() {
        run_with_nodes("fake=300", "a_limit_of_little_more_than_what_is_read_at_once_is_enough");
    }

    fn run_with_nodes(nodes: &str, test: &str) {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("tests::{test}")])
            .env("NEARPAGE_NUMA", nodes)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && told.contains("1 passed"), "{told}");
    }

    #[test]
    fn who_finds_a_page_that_is_being_read_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_file(&path, (READ_AHEAD * PAGE) as u64).unwrap();
        let (pool, _reclaim, _thread) = open(&path, 8 << 20).unwrap();
        // As the thread that finds it missing does.
        let fresh = pool.add_group(&mut pool.shard(0).lock().unwrap(), 0).unwrap();
        let first_word = |page: &[u8]| u64::from_le_bytes(page[..8].try_into().unwrap());
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| pool.with_page(1, first_word));
            let waits = || {
                let node = pool.memory.node_of(fresh[1].1).unwrap();
                pool.memory.wait_counts(node).unwrap().waits
            };
            while waits() == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(!reader.is_finished(), "the page has not been read");
            pool.read_ahead(&fresh).unwrap();
            let number = (PAGE / 8) as u64;
            assert_eq!(reader.join().unwrap().unwrap(), sum(number..number + 1));
        });
    }
}
