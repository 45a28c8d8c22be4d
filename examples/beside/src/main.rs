//! The work in a Linux process with a stub of the seam: nanoseconds on one thread and on two, each pinned to a CPU, and how
//! often an operation switches interrupts off.

mod process;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use beside::{
    Bitmap, Blocks, Buddy, FRAME_WORK, Frames, HEAP_WORK, HELD, LinkedList, OurHeap, Ours, Refused,
    TalcHeap, run_frames, run_heap,
};
use process::{FRAMES, HEAP, Stub, boot, memory, run_as, switches};

/// Rounds of each work.
const ROUNDS: usize = 31;
/// Threads that work at once, at most.
const THREADS: u32 = 2;

/// Of one thread's rounds: nanoseconds of an operation, and times that it switched interrupts off.
type Figures = Result<(f64, f64), Refused>;

fn main() {
    let pages = boot();
    let nearest = Ours(pages);
    let buddy = Buddy::<Stub>::new(FRAMES);
    let bitmap = Bitmap::<Stub>::new(Box::leak(Box::new(bitmap_of_zeroes())), FRAMES);
    println!(
        "A Linux process with a stub of the seam; ns of an operation, and how often it switches interrupts off."
    );
    println!(
        "{ROUNDS} rounds: the median of one thread, the mean of the slower of two. A lock, and a pageset, is one atomic exchange a switch.\n"
    );
    println!("| work | threads | {} | {} | {} |", name(&nearest), name(&buddy), name(&bitmap));
    println!("|---|---|---|---|---|");
    for work in FRAME_WORK {
        for threads in 1..=THREADS {
            let rows = [
                frames_on(&nearest, work, threads),
                frames_on(&buddy, work, threads),
                frames_on(&bitmap, work, threads),
            ];
            show(&work.to_string(), threads, &rows);
        }
    }
    let across = [across(&nearest), across(&buddy), across(&bitmap)];
    show("a frame, freed on the other CPU", 2, &across);
    let (ours, list) = (OurHeap(&HEAP), LinkedList::<Stub>::new(memory(process::HEAP_BYTES)));
    let talc = TalcHeap::<Stub>::new(memory(process::HEAP_BYTES));
    println!(
        "\n| work | threads | {} | {} | {} |",
        heap_name(&ours),
        heap_name(&list),
        heap_name(&talc)
    );
    println!("|---|---|---|---|---|");
    for work in HEAP_WORK {
        for threads in 1..=THREADS {
            let rows = [
                heap_on(&ours, work, threads),
                heap_on(&list, work, threads),
                heap_on(&talc, work, threads),
            ];
            show(&work.to_string(), threads, &rows);
        }
    }
    if let Err(error) = pages.check() {
        eprintln!("beside: nearpage lost a page: {error}");
        std::process::exit(1);
    }
}

const fn name<F: Frames>(_: &F) -> &'static str {
    F::NAME
}

const fn heap_name<B: Blocks>(_: &B) -> &'static str {
    B::NAME
}

fn bitmap_of_zeroes() -> bitmap_allocator::BitAlloc1M {
    <bitmap_allocator::BitAlloc1M as bitmap_allocator::BitAlloc>::DEFAULT
}

fn show(work: &str, threads: u32, rows: &[Figures]) {
    print!("| {work} | {threads} |");
    for row in rows {
        match row {
            Ok((ns, switches)) => print!(" {ns:.1} ({switches:.2}) |"),
            Err(Refused) => print!(" refused |"),
        }
    }
    println!();
}

fn now_ns() -> u64 {
    use std::sync::OnceLock;
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    BEGUN.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

fn frames_on<F: Frames + Sync>(frames: &F, work: beside::Work, threads: u32) -> Figures {
    on_threads(threads, || {
        let mut held = vec![0; HELD];
        move || run_frames(frames, work, &mut held, now_ns)
    })
}

fn heap_on<B: Blocks + Sync>(heap: &B, work: beside::Work, threads: u32) -> Figures {
    on_threads(threads, || move || run_heap(heap, work, now_ns))
}

/// The rounds of each thread; the figures are those of the slower. A thread that has its rounds works on until all have theirs.
fn on_threads<R>(threads: u32, new: impl Fn() -> R + Sync) -> Figures
where
    R: FnMut() -> Result<(u64, u64), Refused>,
{
    let (begun, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let rounds = |cpu| -> Figures {
        run_as(cpu);
        let mut round = new();
        // Once to fill what is empty.
        let first = round();
        begun.fetch_add(1, Ordering::Relaxed);
        while begun.load(Ordering::Relaxed) < threads {
            std::hint::spin_loop();
        }
        let (before, mut operations) = (switches(), 0);
        let mut all = Vec::new();
        for _ in 0..ROUNDS {
            // Who was refused works on, since another counts on that.
            if let Ok((done, ns)) = round() {
                operations += done;
                all.push(ns as f64 / done as f64);
            }
        }
        let switched = switches() - before;
        done.fetch_add(1, Ordering::Relaxed);
        while done.load(Ordering::Relaxed) < threads {
            let _ = round();
        }
        first?;
        if all.len() < ROUNDS {
            return Err(Refused);
        }
        all.sort_by(f64::total_cmp);
        // A thread that has a lock for itself, round after round, and then waits for as many, has a good median.
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let ns = if threads == 1 { all[ROUNDS / 2] } else { mean };
        Ok((ns, switched as f64 / operations as f64))
    };
    std::thread::scope(|scope| {
        let rounds = &rounds;
        let running: Vec<_> = (0..threads).map(|cpu| scope.spawn(move || rounds(cpu))).collect();
        let figures = running.into_iter().map(|thread| thread.join().map_err(|_| Refused)?);
        figures.reduce(|a, b| if a?.0 > b?.0 { a } else { b }).unwrap_or(Err(Refused))
    })
}

/// One thread allocates, and another frees: a frame is handed over through a ring.
fn across<F: Frames + Sync>(frames: &F) -> Figures {
    const RING: usize = 1024;
    const HANDED: u64 = 200_000;
    let ring: Vec<AtomicU64> = (0..RING).map(|_| AtomicU64::new(0)).collect();
    let slot = |at: u64| &ring[at as usize % RING];
    std::thread::scope(|scope| {
        let frees = scope.spawn(|| {
            run_as(1);
            let before = switches();
            for at in 0..HANDED {
                let frame = loop {
                    // Acquire pairs with the Release of who allocated.
                    match slot(at).swap(0, Ordering::Acquire) {
                        0 => std::hint::spin_loop(),
                        frame => break frame - 1,
                    }
                };
                frames.free(frame, 0)?;
            }
            Ok(switches() - before)
        });
        let allocates = scope.spawn(|| {
            run_as(0);
            let (before, begin) = (switches(), now_ns());
            for at in 0..HANDED {
                let frame = frames.alloc(0)?;
                while slot(at).load(Ordering::Relaxed) != 0 {
                    std::hint::spin_loop();
                }
                slot(at).store(frame + 1, Ordering::Release);
            }
            Ok((now_ns() - begin, switches() - before))
        });
        let (ns, switched) = allocates.join().map_err(|_| Refused)??;
        let switched = switched + frees.join().map_err(|_| Refused)??;
        Ok((ns as f64 / HANDED as f64, switched as f64 / HANDED as f64))
    })
}
