//! nearpage itself: `nearpage`, `nearpage-locked`, `nearpage-hardened`, the bound `rseq-limit`, and the facts that are not a time per page.

use std::time::Instant;

use nearpage::{Gfp, Order, Pfn, Request};
use nearpage_linux::internals::BareLists;
use nearpage_linux::{Memory, MemoryBuilder, StorageInUse};

use crate::bare::BareStacks;
use crate::contestant::{Contestant, enlist};
use crate::fact::Fact;
use crate::footprint;
use crate::peers::Entry;
use crate::region::{LARGE_PAGES, POOL_PAGES};
use crate::source::{HUGE_PAGE, PAGE, PAGE_BYTES, PageSource};
use crate::task::Work;

/// nearpage's variants and the bare restartable sequence, on a node of 2 GiB each.
pub fn all() -> Vec<Entry> {
    vec![
        Entry { name: "nearpage", build: || build(builder()?) },
        Entry { name: "nearpage-locked", build: || build(builder()?.use_rseq(false)) },
        Entry { name: "nearpage-hardened", build: || build(builder()?.hardened(true)) },
        Entry { name: "rseq-limit", build: build_limit },
        Entry { name: "bare-stacks", build: || Ok(enlist(BareStacks::new())) },
    ]
}

/// Those that fill [`LARGE_PAGES`] at most.
pub fn large() -> Vec<Entry> {
    vec![Entry { name: "nearpage", build: || build_of(builder()?, LARGE_PAGES) }]
}

/// A memory as the environment asks for it.
pub fn builder() -> Result<MemoryBuilder, String> {
    MemoryBuilder::from_env().map_err(|error| error.to_string())
}

struct Nearpage(Memory);

fn build(builder: MemoryBuilder) -> Result<Box<dyn Contestant>, String> {
    build_of(builder, POOL_PAGES)
}

fn build_of(builder: MemoryBuilder, pages: usize) -> Result<Box<dyn Contestant>, String> {
    let bytes = (pages * PAGE_BYTES) as u64;
    let memory = builder.bytes_per_node(bytes).build().map_err(|error| error.to_string())?;
    Ok(enlist(Nearpage(memory)))
}

// Constants, so that flags and zone are known where the call is compiled, as in a user's program.
const ONE_PAGE: Request = Request::new(PAGE, Gfp::HIGHUSER_MOVABLE);
const ONE_HUGE_PAGE: Request = Request::new(HUGE_PAGE, Gfp::HIGHUSER_MOVABLE);

impl PageSource for Nearpage {
    type Block = Pfn;
    const BLANK: Pfn = Pfn(0);

    #[inline(always)]
    fn alloc(&self, order: Order) -> Option<Pfn> {
        match order {
            PAGE => self.0.alloc_frames(ONE_PAGE).ok(),
            HUGE_PAGE => self.0.alloc_frames(ONE_HUGE_PAGE).ok(),
            order => self.0.alloc_frames(Request::new(order, Gfp::HIGHUSER_MOVABLE)).ok(),
        }
    }

    #[inline(always)]
    unsafe fn free(&self, block: Pfn, order: Order) {
        // SAFETY: the caller has the block, as `PageSource::free` asks.
        let freed = unsafe {
            match order {
                PAGE => self.0.free_frames(block, PAGE),
                HUGE_PAGE => self.0.free_frames(block, HUGE_PAGE),
                order => self.0.free_frames(block, order),
            }
        };
        debug_assert_eq!(freed, Ok(()));
    }

    fn alloc_bulk(&self, blocks: &mut [Pfn]) -> usize {
        let mut done = 0;
        while done < blocks.len() {
            match self.0.alloc_frames_bulk(ONE_PAGE, &mut blocks[done..]) {
                Ok(got) => done += got,
                Err(_) => break,
            }
        }
        done
    }

    unsafe fn free_bulk(&self, blocks: &[Pfn]) {
        // SAFETY: the caller has the pages, as `PageSource::free_bulk` asks.
        let freed = unsafe { self.0.free_frames_bulk(blocks) };
        debug_assert_eq!(freed, Ok(()));
    }

    fn address(&self, block: Pfn) -> usize {
        self.0.address(block).as_ptr().addr()
    }
}

/// Two numbers a CPU: a pop and a push, and nothing around them.
struct Limit(BareLists);

fn build_limit() -> Result<Box<dyn Contestant>, String> {
    const CPUS: u32 = 1024;
    let lists = BareLists::new(CPUS, 16).map_err(|error| error.to_string())?;
    Ok(enlist(Limit(lists)))
}

impl PageSource for Limit {
    type Block = u32;
    const BLANK: u32 = 0;

    #[inline(always)]
    fn alloc(&self, _order: Order) -> Option<u32> {
        self.0.pop()
    }

    #[inline(always)]
    unsafe fn free(&self, block: u32, _order: Order) {
        self.0.push(block);
    }

    fn address(&self, _block: u32) -> usize {
        0
    }

    fn runs(&self, work: Work) -> bool {
        matches!(work, Work::Pair { .. })
    }
}

/// [`Fact::ONLINE_64G_MS`] and [`Fact::ONLINE_64G_RESIDENT_MIB`].
pub fn facts() -> Vec<Fact> {
    let Ok(before) = footprint::resident_bytes() else { return Vec::new() };
    let start = Instant::now();
    let Ok(builder) = builder() else { return Vec::new() };
    let Ok(memory) = builder.bytes_per_node(64 << 30).build() else { return Vec::new() };
    let took = start.elapsed();
    let Ok(after) = footprint::resident_bytes() else { return Vec::new() };
    let grown = after.saturating_sub(before);
    drop(memory);
    vec![
        Fact { name: Fact::ONLINE_64G_MS, value: took.as_secs_f64() * 1e3 },
        Fact { name: Fact::ONLINE_64G_RESIDENT_MIB, value: grown as f64 / (1 << 20) as f64 },
    ]
}

/// The pageset storage in use: `rseq` or `locked`. What is not as it was asked for is told on standard error.
pub fn storage() -> Option<&'static str> {
    let memory = builder().ok()?.bytes_per_node(1 << 20).build().ok()?;
    memory.warnings().iter().for_each(|warning| eprintln!("nearpage: {warning}"));
    Some(match memory.storage() {
        StorageInUse::Rseq => "rseq",
        StorageInUse::LockedBecause(_) | StorageInUse::LockedByChoice => "locked",
    })
}
