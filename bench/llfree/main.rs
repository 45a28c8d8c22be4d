//! Loads of `nearpage bench` on LLFree at its defaults, and on nearpage beside it: `fragmentation`, `order9`, `random`,
//! `replace`, `tails` and `mixed`.
//!
//! ```sh
//! cargo run --release --manifest-path bench/llfree/Cargo.toml
//! cargo run --release --manifest-path bench/llfree/Cargo.toml -- --quick
//! ```
//!
//! The loads, their seeds, rounds and clocks are those of `crates/nearpage-bench`, whose code runs here. Both allocators take
//! turns in each round, on fresh memories.

use std::error::Error;

use llfree::{Alloc, Classing, FrameId, Init, LLFree, MetaData, Request};
use nearpage::{Model, Pfn};
use nearpage_bench::internals::{
    Clock, Contender, Cpus, Effort, LARGE, ORDER9_SIZES, Rules, Seats, Setting, Source, Step,
    Ticks, Until, fragmentation, mixed_step, order9_step, random_steps, replace_steps, run_rounds,
    seat, tails_steps,
};
use nearpage_bench::{Fragmentation, Row, Shape, StepError};
use nearpage_linux::Memory;
use nearpage_machine::work::Unwatched;

const HUGE: usize = 9;
/// Memory of loads that say nothing else, and of those that hold many pages.
const BYTES: u64 = 2 << 30;
const LARGE_BYTES: u64 = 10 << 30;
const QUICK_ORDER9_SIZES: [u64; 1] = [256 << 20];

fn main() -> Result<(), Box<dyn Error>> {
    let is_quick = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--quick") => true,
        Some(other) => return Err(format!("{other:?}: expected --quick, or nothing").into()),
    };
    let nearpage = Rules { name: "nearpage", model: Model::NEARPAGE, begin: &|| Memory::builder() };
    let cpus = Cpus::allowed()?;
    let setting = Setting {
        cpus: &cpus,
        clock: Clock::calibrate(),
        effort: if is_quick { Effort::QUICK } else { Effort::FULL },
        bytes: BYTES,
    };
    let all = Both { setting, nearpage: &nearpage };
    println!("LLFree of commit 441c8d1 beside nearpage, CPUs {}", cpus.list());
    println!("nanoseconds but in fragmentation; - is unknown, or not divided into samples");
    all.fragmentation(if is_quick { &[Shape::QUICK] } else { &Shape::ALL })?;
    let order9_sizes = if is_quick { &QUICK_ORDER9_SIZES[..] } else { &ORDER9_SIZES };
    all.order9(order9_sizes)?;
    all.random()?;
    all.replace()?;
    if cpus.count() < 2 {
        println!("\ntails, mixed: skipped, they take two CPUs and this process may use one");
        return Ok(());
    }
    all.tails()?;
    all.mixed()
}

/// Both allocators, and what they do.
struct Both<'a> {
    setting: Setting<'a>,
    nearpage: &'a Rules<'a>,
}

impl Both<'_> {
    fn fragmentation(&self, shapes: &[Shape]) -> Result<(), Box<dyn Error>> {
        println!("\nfragmentation: ranges of 512 pages that are whole");
        println!(
            "{:<10}{:>8}{:>7}{:>6}{:>6}{:>9}{:>8}{:>8}{:>9}{:>7}{:>9}",
            "allocator",
            "threads",
            "MiB",
            "seed",
            "used",
            "singles",
            "fifths",
            "ranges",
            "perfect",
            "whole",
            "order 9"
        );
        let cpus = self.setting.cpus;
        for &shape in shapes {
            for until in Until::ALL {
                let counts = fragmentation(cpus, self.nearpage, shape, until)?;
                let others = fragmentation(cpus, &Frames, shape, until)?;
                for count in counts.iter().chain(&others) {
                    let Fragmentation { shape, .. } = count;
                    println!(
                        "{:<10}{:>8}{:>7}{:>6}{:>5}%{:>9}{:>8}{:>8}{:>9}{:>7}{:>9}",
                        count.model,
                        shape.threads,
                        shape.bytes >> 20,
                        shape.seed,
                        count.used_percent,
                        count.singles_rounds,
                        count.fifths_rounds,
                        count.ranges,
                        count.perfect,
                        count.whole,
                        count.order9_requests.map_or("-".into(), |requests| requests.to_string()),
                    );
                }
            }
        }
        Ok(())
    }

    fn order9(&self, sizes: &[u64]) -> Result<(), Box<dyn Error>> {
        let cpus = self.setting.cpus;
        let steps = sizes.iter().flat_map(|&bytes| {
            [order9_step(cpus, self.nearpage, bytes), order9_step(cpus, &Frames, bytes)]
        });
        self.rounds("order9", steps.collect())
    }

    fn random(&self) -> Result<(), Box<dyn Error>> {
        let pages = self.setting.effort.fill_pages;
        let large = Setting { bytes: LARGE_BYTES, ..self.setting };
        let mut steps = Vec::new();
        for (setting, pages) in [(self.setting, pages), (large, pages * LARGE)] {
            steps.extend(random_steps(setting, self.nearpage, pages));
            steps.extend(random_steps(setting, &Frames, pages));
        }
        self.rounds("random", steps)
    }

    fn replace(&self) -> Result<(), Box<dyn Error>> {
        let mut steps = replace_steps(self.setting, self.nearpage);
        steps.extend(replace_steps(self.setting, &Frames));
        self.rounds("replace", steps)
    }

    fn tails(&self) -> Result<(), Box<dyn Error>> {
        let mut steps = tails_steps(self.setting, self.nearpage);
        steps.extend(tails_steps(self.setting, &Frames));
        self.rounds("tails", steps)
    }

    fn mixed(&self) -> Result<(), Box<dyn Error>> {
        let ticks = Ticks::calibrate();
        let steps = vec![
            mixed_step(self.setting, ticks, self.nearpage),
            mixed_step(self.setting, ticks, &Frames),
        ];
        self.rounds(&format!("mixed, each call timed by {}", ticks.name()), steps)
    }

    fn rounds(&self, title: &str, steps: Vec<Step<'_>>) -> Result<(), Box<dyn Error>> {
        let rounds = self.setting.effort.rounds;
        let mut rows = run_rounds(&steps, rounds, &|_| None, &Unwatched)
            .map_err(|ended| format!("{title}: {ended:?}"))?;
        println!("\n{title}");
        println!(
            "{:<22}{:>8}{:>5}  {:<9}{:>10}{:>10}{:>10}{:>9}{:>9}{:>9}{:>11}{:>14}",
            "work",
            "pages",
            "CPUs",
            "allocator",
            "median",
            "min",
            "max",
            "p50",
            "p99",
            "p99.9",
            "zone locks",
            "shared writes"
        );
        rows.sort_by_key(|row| (row.key.work, row.key.n, row.key.threads));
        rows.iter().for_each(print_row);
        Ok(())
    }
}

fn print_row(row: &Row) {
    let figure = |ns: Option<f64>| ns.map_or("-".into(), |ns| format!("{ns:.1}"));
    let per_1000 = |count: Option<f64>| count.map_or("-".into(), |count| format!("{count:.3}"));
    println!(
        "{:<22}{:>8}{:>5}  {:<9}{:>10}{:>10}{:>10}{:>9}{:>9}{:>9}{:>11}{:>14}",
        row.key.work.to_string(),
        row.key.n,
        row.key.threads,
        row.key.allocator,
        figure(Some(row.summary.median)),
        figure(Some(row.summary.min)),
        figure(Some(row.summary.max)),
        figure(row.tails.map(|tails| tails.p50)),
        figure(row.p99),
        figure(row.tails.map(|tails| tails.p999)),
        per_1000(row.moves.map(|moves| moves.zone_locks_per_1000_pages())),
        per_1000(row.moves.and_then(|moves| moves.shared_writes_per_1000_pages())),
    );
}

/// LLFree, which makes allocators with a local reservation for each thread.
struct Frames;

impl Contender for Frames {
    type Pages = Pages;

    fn name(&self) -> &'static str {
        "llfree"
    }

    fn pages(&self, seats: Seats<'_>, bytes: u64) -> Result<Pages, StepError> {
        let frames = (bytes / nearpage_linux::FRAME_BYTES) as usize;
        let (classing, _) = Classing::simple(seats.threads());
        let meta = MetaData::alloc(&LLFree::metadata_size(&classing, frames));
        let llfree = LLFree::new(frames, Init::FreeAll, &classing, meta);
        Ok(Pages(llfree.expect("enough metadata")))
    }
}

struct Pages(LLFree<'static>);

/// As `Classing::simple` makes it.
fn request<const ORDER: u8>() -> Request {
    let order = usize::from(ORDER);
    Request::new(order, llfree::Class((order >= HUGE) as u8), Some(seat().0 as usize))
}

impl Source for Pages {
    type Block = Pfn;
    const BLANK: Pfn = Pfn(0);

    #[inline(always)]
    fn alloc<const ORDER: u8>(&self) -> Option<Pfn> {
        self.0.get(None, request::<ORDER>()).ok().map(|(frame, _)| Pfn(frame.0 as u64))
    }

    #[inline(always)]
    unsafe fn free<const ORDER: u8>(&self, block: Pfn) {
        let frame = FrameId(block.0 as usize);
        self.0.put(frame, request::<ORDER>()).expect("the frame is ours");
    }
}
