//! Tasks that allocate and free frames and heap objects, interrupted by timer callbacks that do the same.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(feature = "nearpage")]
use ostd::mm::HasPaddr as _;
use ostd::mm::{Frame, FrameAllocOptions};
use ostd::prelude::*;
use ostd::sync::LocalIrqDisabled;
use ostd::sync::SpinLock;
use ostd::task::{Task, TaskOptions};

const TASKS: u64 = 8;
const OPERATIONS: u64 = 20_000;

static WORKS: AtomicBool = AtomicBool::new(true);
static DONE: AtomicU64 = AtomicU64::new(0);
static IN_CALLBACKS: AtomicU64 = AtomicU64::new(0);
static OPERATED: AtomicU64 = AtomicU64::new(0);
static HELD: SpinLock<VecDeque<Frame<()>>, LocalIrqDisabled> = SpinLock::new(VecDeque::new());

fn callback() {
    if !WORKS.load(Ordering::Relaxed) {
        return;
    }
    let mut options = FrameAllocOptions::new();
    if let Ok(frame) = options.zeroed(false).alloc_frame() {
        IN_CALLBACKS.fetch_add(1, Ordering::Relaxed);
        let mut held = HELD.lock();
        held.push_back(frame);
        let oldest = if held.len() > 32 { held.pop_front() } else { None };
        drop(held);
        drop(oldest);
    }
}

fn work(task: u64) {
    let mut state = task + 1;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let mut options = FrameAllocOptions::new();
    options.zeroed(false);
    let mut frames = Vec::new();
    let mut segments = Vec::new();
    let mut objects: Vec<Vec<u8>> = Vec::new();
    for at in 0..OPERATIONS {
        match below(8) {
            0..=2 if frames.len() < 200 => {
                let frame = options.alloc_frame().expect("there is memory");
                #[cfg(feature = "nearpage")]
                crate::frames::note_place(frame.paddr());
                frames.push(frame);
            }
            3 if segments.len() < 16 => {
                let frames = 1 + below(20) as usize;
                segments.push(options.alloc_segment(frames).expect("there is memory"));
            }
            4 if objects.len() < 100 => {
                let bytes = 1 + below(3000) as usize;
                objects.push(alloc::vec![at as u8; bytes]);
            }
            5 if !segments.is_empty() => {
                // In parts: every other frame outlives the others.
                let segment = segments.swap_remove(below(segments.len() as u64) as usize);
                frames.extend(segment.into_iter().step_by(2));
            }
            6 if !objects.is_empty() => {
                let object = objects.swap_remove(below(objects.len() as u64) as usize);
                assert!(object.iter().all(|&byte| byte == object[0]), "somebody else wrote there");
            }
            _ if !frames.is_empty() => {
                drop(frames.swap_remove(below(frames.len() as u64) as usize))
            }
            _ => {}
        }
        OPERATED.fetch_add(1, Ordering::Relaxed);
        if at % 64 == 0 && task < TASKS {
            Task::yield_now();
        }
    }
    drop((frames, segments, objects));
    DONE.fetch_add(1, Ordering::Release);
}

/// What the other CPUs do: OSTD's default scheduler keeps all tasks on the first, so they work where they begin.
fn other_cpu() {
    ostd::timer::register_callback_on_cpu(callback);
    work(TASKS + u64::from(u32::from(ostd::cpu::CpuId::current_racy())));
    loop {
        core::hint::spin_loop();
    }
}

/// Runs it from a task.
pub fn run() {
    ostd::timer::register_callback_on_cpu(callback);
    ostd::boot::smp::register_ap_entry(other_cpu);
    let tasks: Vec<Arc<Task>> = (0..TASKS)
        .map(|task| TaskOptions::new(move || work(task)).spawn().expect("a task"))
        .collect();
    let workers = TASKS + ostd::cpu::num_cpus() as u64 - 1;
    while DONE.load(Ordering::Acquire) < workers {
        Task::yield_now();
    }
    drop(tasks);
    WORKS.store(false, Ordering::Relaxed);
    HELD.lock().clear();
    println!(
        "workload: {} operations in {} tasks and on {} other CPUs, {} allocations in timer callbacks",
        OPERATED.load(Ordering::Relaxed),
        TASKS,
        workers - TASKS,
        IN_CALLBACKS.load(Ordering::Relaxed)
    );
}
