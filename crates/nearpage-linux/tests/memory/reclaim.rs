//! Pressure: shrinkers, growth, stalls, prefault and huge pages, on real memory.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use nearpage::platform::Shortage;
use nearpage::{
    CpuId, Gfp, LimitOf, Limits, Model, NodeId, Order, PageCount, Pfn, Request, Settings,
};
use nearpage_linux::{
    HostMachine, HostNode, HugePages, Memory, MemoryBuilder, MemoryError, PrefaultError, Pressure,
    Reclaim, ReclaimOptions, Shrinker,
};
use nearpage_machine::work::Unwatched;

use super::affinity::stay_on_this_cpu;
use super::alone::alone;

const NODE: NodeId = NodeId(2);

fn builder() -> MemoryBuilder {
    let cpus = (0..256).map(CpuId).collect();
    let node = HostNode { id: NODE, cpus, has_memory: true };
    let machine = HostMachine { nodes: vec![node], distances: vec![10], emulated: true };
    Memory::builder().machine(machine).bytes_per_node(64 << 20)
}

/// A cache of single pages.
struct Cache {
    memory: Mutex<Weak<Memory>>,
    pages: Mutex<Vec<Pfn>>,
    asked: AtomicU64,
}

impl Cache {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            memory: Mutex::default(),
            pages: Mutex::default(),
            asked: AtomicU64::new(0),
        })
    }

    fn fill(&self, memory: &Memory) -> bool {
        let page = memory.alloc_frames(Request::new(Order(0), Gfp::KERNEL));
        page.map(|page| self.pages.lock().unwrap().push(page)).is_ok()
    }
}

impl Shrinker for Cache {
    fn shrink(&self, _node: NodeId, pages: PageCount) -> PageCount {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let Some(memory) = self.memory.lock().unwrap().upgrade() else { return PageCount(0) };
        // Nobody has this and allocates. A cache that gave nothing since it is busy would not be asked again.
        let mut cached = self.pages.lock().unwrap();
        let rest = cached.len().saturating_sub(pages.0 as usize);
        let given = cached.split_off(rest);
        // SAFETY: the cache has these pages, and nobody else knows of them.
        unsafe { memory.free_frames_bulk(&given) }.unwrap();
        PageCount(given.len() as u64)
    }
}

fn with_cache(builder: MemoryBuilder) -> (Reclaim, Arc<Memory>, Arc<Cache>) {
    let (reclaim, cache) = (Reclaim::new(), Cache::new());
    let memory = Arc::new(builder.pressure(reclaim.clone()).build().unwrap());
    *cache.memory.lock().unwrap() = Arc::downgrade(&memory);
    reclaim.add_shrinker(cache.clone());
    (reclaim, memory, cache)
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

const QUIET: ReclaimOptions = ReclaimOptions { interval: Duration::from_secs(60), trims: false };

#[test]
fn without_a_thread_requests_reclaim_themselves() {
    let (reclaim, memory, cache) = with_cache(builder());
    // Twice as much as there is: the cache gives way.
    for _ in 0..32_768 {
        assert!(cache.fill(&memory));
    }
    let counts = reclaim.counts();
    assert!(counts.stalls > 0 && counts.stalled > Duration::ZERO, "{counts:?}");
    assert!(counts.direct_pages > 16_000, "{counts:?}");
    assert_eq!((counts.background_pages, counts.grown_pages), (0, 0));
    assert!(counts.wakeups > 0);
}

/// Who frees memory asks nobody for it, or a shrinker that allocates would ask itself to the end of its stack.
#[test]
fn a_shrinker_that_allocates_is_refused_or_served() {
    struct Greedy {
        memory: OnceLock<Weak<Memory>>,
        served: AtomicU64,
        refused: AtomicU64,
    }
    impl Shrinker for Greedy {
        fn shrink(&self, _node: NodeId, _pages: PageCount) -> PageCount {
            let memory = self.memory.get().and_then(Weak::upgrade).unwrap();
            let count = match memory.alloc_pages(1) {
                Ok(_) => &self.served,
                Err(_) => &self.refused,
            };
            count.fetch_add(1, Ordering::Relaxed);
            PageCount(0)
        }
    }
    // The lists of another CPU may have a page at hand for the shrinker, where this one's have none.
    stay_on_this_cpu();
    for starts in [false, true] {
        let (reclaim, greedy) = (
            Reclaim::new(),
            Arc::new(Greedy {
                memory: OnceLock::new(),
                served: AtomicU64::new(0),
                refused: AtomicU64::new(0),
            }),
        );
        let memory = Arc::new(builder().pressure(reclaim.clone()).build().unwrap());
        greedy.memory.set(Arc::downgrade(&memory)).unwrap();
        reclaim.add_shrinker(greedy.clone());
        let thread = starts.then(|| reclaim.start(&memory, QUIET).unwrap());
        let mut held = Vec::new();
        while let Ok(block) = memory.alloc_pages(1) {
            held.push(block);
        }
        assert!(reclaim.counts().stalls > 0);
        assert!(greedy.refused.load(Ordering::Relaxed) > 0);
        // Without want it is served as anybody is.
        drop(held);
        assert!(memory.alloc_pages(1).is_ok());
        if starts {
            wait_until("the thread's own try", || reclaim.counts().wakeups > 0);
        }
        drop(thread);
    }
}

#[test]
fn the_thread_keeps_the_node_above_its_marks() {
    let (reclaim, memory, cache) = with_cache(builder());
    let thread = reclaim.start(&memory, QUIET).unwrap();
    while memory.free_pages(NODE) >= memory.watermarks(NODE).low {
        assert!(cache.fill(&memory));
    }
    cache.fill(&memory);
    wait_until("reclaim up to high", || {
        cache.fill(&memory);
        reclaim.counts().background_pages > 0
    });
    wait_until("enough free pages", || {
        memory.free_pages(NODE) >= memory.watermarks(NODE).low || {
            // The last request's refill may have taken what the thread brought: the next one wakes it.
            cache.fill(&memory);
            false
        }
    });
    drop(thread);
    let asked = cache.asked.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(cache.asked.load(Ordering::Relaxed), asked, "the thread is gone");
}

/// Settings change at run time; with tiering the target of the thread is `promo`.
#[test]
fn the_thread_works_up_to_promo_with_tiering() {
    let (reclaim, memory, cache) = with_cache(builder());
    let tiering = memory.settings().with(|changed| {
        changed.memory_tiering = true;
        changed.watermark_scale_factor = 500;
    });
    memory.set_settings(tiering).unwrap();
    assert_eq!(memory.settings(), tiering);
    assert!(memory.set_settings(tiering.with(|changed| changed.node_reclaim_mode = 8)).is_err());
    assert_eq!(memory.settings(), tiering);
    let marks = memory.watermarks(NODE);
    assert!(marks.promo.0 > marks.high.0 + 500, "{marks:?}");
    while memory.free_pages(NODE) > marks.low {
        assert!(cache.fill(&memory));
    }
    let _thread = reclaim.start(&memory, QUIET).unwrap();
    cache.fill(&memory);
    wait_until("reclaim up to promo", || {
        memory.drain_all().unwrap();
        // The thread ends with a page more, which the last request may have taken since.
        memory.free_pages(NODE) >= marks.promo
            || reclaim.counts().background_pages == 0 && {
                cache.fill(&memory);
                false
            }
    });
}

/// Exactly at `low` requests go elsewhere, so the thread works from there on, until they need not.
#[test]
fn the_thread_works_where_the_watermark_refuses() {
    let (reclaim, memory, cache) = with_cache(builder());
    let _thread = reclaim.start(&memory, QUIET).unwrap();
    let low = memory.watermarks(NODE).low;
    let mut held = Vec::new();
    let request = Request::new(Order(0), Gfp::ATOMIC.union(Gfp::NORETRY));
    while cache.pages.lock().unwrap().len() < 2000 {
        assert!(cache.fill(&memory));
    }
    // What CPUs cache is not free: taken and given back until exactly `low` is left.
    loop {
        memory.drain_all().unwrap();
        let free = memory.free_pages(NODE);
        if free == low {
            break;
        }
        assert!(free > low, "{free} pages are free, low is {low}");
        let left = free.0 - low.0;
        // The largest block that there is of what is left.
        let orders = (0..=(63 - left.leading_zeros()).min(9) as u8).rev().map(Order);
        let block = { orders }.find_map(|order| {
            Some((memory.alloc_frames(Request { order, ..request }).ok()?, order))
        });
        held.push(block.unwrap());
    }
    assert_eq!(cache.asked.load(Ordering::Relaxed), 0);
    // No page is taken above the mark, and the thread is woken.
    let _ = memory.alloc_frames(request);
    wait_until("reclaim", || cache.asked.load(Ordering::Relaxed) > 0);
    drop(reclaim);
}

/// Before a request goes to another node, shrinkers are asked for pages of its own.
#[test]
fn node_reclaim_keeps_requests_on_their_node() {
    let cpus = (0..256).map(CpuId).collect();
    let far = NodeId(5);
    let nodes = vec![
        HostNode { id: NODE, cpus, has_memory: true },
        HostNode { id: far, cpus: Vec::new(), has_memory: true },
    ];
    for (node_reclaim_mode, stays) in [(0, false), (1, true)] {
        let distances = vec![10, 20, 20, 10];
        let machine = HostMachine { nodes: nodes.clone(), distances, emulated: true };
        let settings =
            Settings::default().with(|changed| changed.node_reclaim_mode = node_reclaim_mode);
        let builder = Memory::builder().machine(machine).bytes_per_node(32 << 20);
        let (reclaim, memory, cache) = with_cache(builder.settings(settings));
        let wanted = (32 << 20) / 4096 + 1000;
        (0..wanted).for_each(|_| assert!(cache.fill(&memory)));
        let near = |page: &&Pfn| memory.node_of(**page) == Some(NODE);
        let pages = cache.pages.lock().unwrap();
        assert_eq!(pages.iter().filter(near).count() == pages.len(), stays);
        assert_eq!(reclaim.counts().node_pages > 0, stays, "{:?}", reclaim.counts());
        assert_eq!(memory.vmstat().contains("zone_reclaim_success 0"), !stays);
    }
}

#[test]
fn an_interval_that_never_ends_working_is_refused() {
    let (reclaim, memory, _) = with_cache(builder());
    for interval in [Duration::ZERO, Duration::from_micros(999)] {
        let error = reclaim.start(&memory, ReclaimOptions { interval, trims: false }).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().ends_with("1ms or more is accepted"), "{error}");
    }
}

/// The thread and the other shrinkers go on without it.
#[test]
fn a_shrinker_that_panics_is_not_asked_again() {
    struct Clumsy(AtomicU64);
    impl Shrinker for Clumsy {
        fn shrink(&self, _node: NodeId, _pages: PageCount) -> PageCount {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("a shrinker's own mistake");
        }
    }
    let (reclaim, cache) = (Reclaim::new(), Cache::new());
    let clumsy = Arc::new(Clumsy(AtomicU64::new(0)));
    reclaim.add_shrinker(clumsy.clone());
    reclaim.add_shrinker(cache.clone());
    let memory = Arc::new(builder().pressure(reclaim.clone()).build().unwrap());
    *cache.memory.lock().unwrap() = Arc::downgrade(&memory);
    let thread = reclaim.start(&memory, QUIET).unwrap();
    // Only the thread asks: a soft limit makes nobody wait.
    let soft = Limits { soft_bytes: Some(2048 << 12), ..Limits::default() };
    memory.set_limits(LimitOf::Allocator, soft).unwrap();
    for round in 1..=2 {
        let before = reclaim.counts().background_pages;
        (0..4096).for_each(|_| assert!(cache.fill(&memory)));
        wait_until("reclaim", || {
            cache.fill(&memory);
            reclaim.counts().background_pages > before
        });
        assert_eq!((reclaim.counts().panics, clumsy.0.load(Ordering::Relaxed)), (1, 1), "{round}");
    }
    drop(thread);
}

/// Pages in use, at most and at the end, while a cache takes `wanted` pages under soft limits.
fn fill_above_soft_limits(of: LimitOf, soft_pages: u64, wanted: u64) -> (Reclaim, u64) {
    let (reclaim, memory, cache) = with_cache(builder());
    let _thread = reclaim.start(&memory, QUIET).unwrap();
    let soft = Limits { soft_bytes: Some(soft_pages << 12), ..Limits::default() };
    memory.set_limits(of, soft).unwrap();
    (0..wanted).for_each(|_| assert!(cache.fill(&memory)));
    wait_until("reclaim down to the soft limit", || {
        memory.in_use(of).unwrap().0 <= soft_pages || {
            cache.fill(&memory);
            false
        }
    });
    assert!(memory.free_pages(NODE) > memory.watermarks(NODE).high, "it was not short of memory");
    let in_use = memory.in_use(of).unwrap().0;
    (reclaim, in_use)
}

#[test]
fn the_thread_reclaims_down_to_soft_limits() {
    for of in [LimitOf::Node(NODE), LimitOf::Allocator] {
        let (reclaim, in_use) = fill_above_soft_limits(of, 4096, 6000);
        let counts = reclaim.counts();
        assert!(counts.background_pages >= 1000 && counts.stalls == 0, "{of}: {counts:?}");
        assert!(in_use > 1000, "{of}: {in_use} pages: it takes no more than it must");
    }
}

#[test]
fn a_reserve_is_used_before_anybody_is_asked() {
    let (reclaim, memory, cache) = with_cache(builder().reserve_per_node(256 << 20));
    let _thread = reclaim.start(&memory, QUIET).unwrap();
    let before = memory.managed_pages(NODE);
    while reclaim.counts().wakeups == 0 {
        assert!(cache.fill(&memory));
    }
    // Slowly: from where the thread is woken to where requests ask themselves are 64 pages only.
    wait_until("growth", || {
        assert!(cache.fill(&memory));
        reclaim.counts().grown_pages > 0
    });
    assert_eq!(cache.asked.load(Ordering::Relaxed), 0);
    assert!(memory.managed_pages(NODE) > before);
    assert!(memory.reserve_left(NODE) < 192 << 20);
}

#[test]
fn the_timer_trims() {
    let (reclaim, memory, _) = with_cache(builder());
    let mut blocks: Vec<_> = (0..12).map(|_| memory.alloc_pages(1024).unwrap()).collect();
    blocks.iter_mut().for_each(|block| block.fill(7));
    drop(blocks);
    let resident = || memory.verify_placement(1 << 20).unwrap().nodes[0].1.placed();
    let before = resident();
    let options = ReclaimOptions { interval: Duration::from_millis(5), trims: true };
    let _thread = reclaim.start(&memory, options).unwrap();
    wait_until("a trim", || reclaim.counts().trimmed_pages > 0 && resident() < before / 2);
}

/// What a shrinker owns goes with it, even another memory.
#[test]
fn a_shrinker_may_own_a_memory() {
    struct Owner(#[expect(dead_code, reason = "to be dropped")] Memory);
    impl Shrinker for Owner {
        fn shrink(&self, _node: NodeId, _pages: PageCount) -> PageCount {
            PageCount(0)
        }
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let reclaim = Reclaim::new();
        reclaim.add_shrinker(Arc::new(Owner(builder().build().unwrap())));
        drop(reclaim);
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(Duration::from_secs(20)).expect("the memory goes");
}

/// The memory's last owner may be the thread itself; and a child does not wait for a thread that it lacks.
#[test]
fn threads_and_memories_end_in_any_order() {
    alone("reclaim::threads_and_memories_end_in_any_order", || {
        for _ in 0..50 {
            let (reclaim, memory, _) = with_cache(builder());
            let options = ReclaimOptions { interval: Duration::from_millis(1), trims: true };
            let thread = reclaim.start(&memory, options).unwrap();
            drop(memory);
            drop(thread);
        }
        let (reclaim, memory, cache) = with_cache(builder());
        let thread = reclaim.start(&memory, QUIET).unwrap();
        // SAFETY: the child allocates with glibc's malloc, which is made for this.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: has no preconditions.
            unsafe { libc::alarm(30) };
            let filled = (0..32_768).all(|_| cache.fill(&memory));
            // The child's own thread gets the stack of the one that is missing, and with it its address.
            let own = reclaim.start(&memory, QUIET).unwrap();
            drop(thread);
            drop(own);
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(!filled as i32) };
        }
        let mut status = 0;
        // SAFETY: writes the status of our own child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    });
}

#[test]
fn prefault_gives_all_that_is_online_its_pages() {
    let memory = builder().reserve_per_node(128 << 20).build().unwrap();
    let mut kept = memory.alloc_pages(1).unwrap();
    kept[1] = 5;
    let most = AtomicU64::new(0);
    let observer = |done: u64, all: u64| {
        assert_eq!(all, 64 << 20);
        most.fetch_max(done, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    let bytes = memory.prefault(NonZeroUsize::new(2).unwrap(), &observer);
    assert_eq!(bytes.unwrap(), 64 << 20);
    assert_eq!(most.load(Ordering::Relaxed), 64 << 20);
    let placement = &memory.verify_placement(1 << 20).unwrap().nodes[0].1;
    assert_eq!((placement.placed(), placement.untouched), ((64 << 20) / 4096, 0));
    assert_eq!(kept[1], 5);
    // There are no more threads than pieces of work.
    let crowd = NonZeroUsize::new(10_000_000).unwrap();
    assert_eq!(memory.prefault(crowd, &Unwatched).unwrap(), 64 << 20);
}

#[test]
fn prefault_ends_when_its_observer_wants_it() {
    let memory = builder().bytes_per_node(256 << 20).build().unwrap();
    let calls = AtomicU64::new(0);
    let impatient = |_done: u64, _all: u64| {
        calls.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Break(())
    };
    let stopped = memory.prefault(NonZeroUsize::new(2).unwrap(), &impatient);
    assert!(matches!(stopped, Err(PrefaultError::Stopped(_))), "{stopped:?}");
    assert!(calls.load(Ordering::Relaxed) <= 2, "each thread asked once");
    let resident = memory.verify_placement(1 << 20).unwrap().nodes[0].1.placed();
    assert!(resident < (256 << 20) / 4096, "{resident}");
}

#[test]
fn prefault_passes_over_what_goes_offline() {
    let memory = builder().bytes_per_node(256 << 20).build().unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                memory.take_offline(NODE, 128 << 20).unwrap();
                memory.bring_online(NODE, 128 << 20).unwrap();
            }
        });
        let two = NonZeroUsize::new(2).unwrap();
        let done = (0..20).try_for_each(|_| memory.prefault(two, &Unwatched).map(|_| ()));
        is_over.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    // What went offline left no page behind.
    memory.take_offline(NODE, 128 << 20).unwrap();
    let resident = memory.verify_placement(1 << 20).unwrap().nodes[0].1.placed();
    assert!(resident <= (128 << 20) / 4096);
    memory.bring_online(NODE, 128 << 20).unwrap();
    let resident = memory.verify_placement(1 << 20).unwrap().nodes[0].1.placed();
    assert!(resident <= (128 << 20) / 4096, "{resident}");
}

/// Bytes in transparent huge pages of this process's mapping that `address` lies in.
fn huge_bytes(address: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_ours = false;
    for line in text.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        if let Some((Ok(start), Ok(end))) = range
            .map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)))
        {
            is_ours = (start..end).contains(&address);
        } else if let Some(size) = line.strip_prefix("AnonHugePages:").filter(|_| is_ours) {
            return size.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
        }
    }
    panic!("no mapping has the address {address:#x}");
}

#[test]
fn transparent_huge_pages_where_they_are_asked_for() {
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if enabled.is_ok_and(|enabled| enabled.contains("[never]")) {
        return;
    }
    for (huge_pages, expected) in [(HugePages::Advised, true), (HugePages::Never, false)] {
        let memory = builder().huge_pages(HugePages::Never).huge_pages_on(NODE, huge_pages);
        let memory = memory.build().unwrap();
        memory.prefault(NonZeroUsize::MIN, &Unwatched).unwrap();
        let block = memory.alloc_pages(1).unwrap();
        assert_eq!(huge_bytes(block.as_ptr().as_ptr().addr()) > 0, expected, "{huge_pages:?}");
    }
}

#[test]
fn explicit_huge_pages_or_an_error() {
    match builder().huge_pages(HugePages::Explicit).build() {
        Ok(memory) => memory.alloc_pages(1).unwrap()[0] = 1,
        Err(error @ MemoryError::NoMemory { .. }) => {
            assert!(error.to_string().contains("vm.nr_hugepages"), "{error}");
        }
        Err(error) => panic!("{error}"),
    }
    let error = builder().bytes_per_node((64 << 20) + 4096).huge_pages(HugePages::Explicit);
    assert!(matches!(error.build(), Err(MemoryError::NotHugePages { .. })));
}

/// What this CPU's pageset holds is not free in the zone: no watermark keeps it from the one who asks here.
#[test]
fn pages_at_hand_are_handed_out_below_the_watermarks() {
    /// So many stay in the pageset of a zone that is below its watermarks.
    const AT_HAND: usize = 2;
    let models = [Model::LINUX_6_18, Model::NEARPAGE];
    for (model, use_rseq) in models.into_iter().flat_map(|model| [(model, true), (model, false)]) {
        let memory = builder().model(model).use_rseq(use_rseq).build().unwrap();
        stay_on_this_cpu();
        let request = Request::new(Order(0), Gfp::KERNEL.union(Gfp::NORETRY));
        let mut held = Vec::new();
        while let Ok(page) = memory.alloc_frames(request) {
            held.push(page);
        }
        let lock_holds = || {
            let vmstat = memory.vmstat().to_string();
            let line = vmstat.lines().find_map(|line| line.strip_prefix("zone_lock_acquisitions "));
            line.and_then(|count| count.parse::<u64>().ok()).expect("vmstat counts them")
        };
        let before = lock_holds();
        for is_bulk in [false, true, false] {
            let given = held.split_off(held.len() - AT_HAND);
            for page in given {
                // SAFETY: the loops here allocated these pages, and nobody else knows of them.
                unsafe { memory.free_frames(page, Order(0)) }.unwrap();
            }
            let mut pages = [Pfn(0); AT_HAND];
            // A bulk request gets at least one of them: what is on its way home is behind the list that it looks at.
            let got = match is_bulk {
                true => memory.alloc_frames_bulk(request, &mut pages).expect("some are at hand"),
                false => 0,
            };
            pages[got..].fill_with(|| memory.alloc_frames(request).expect("it is at hand"));
            held.extend(pages);
        }
        // Where CPUs own pageblocks, what is behind a list is looked for at a visit.
        if model == Model::LINUX_6_18 {
            assert_eq!(lock_holds(), before, "nobody went to the zone");
        }
        assert!(memory.alloc_frames(request).is_err(), "a watermark keeps the rest");
        // SAFETY: as above.
        unsafe { memory.free_frames_bulk(&held) }.unwrap();
        memory.check().unwrap();
    }
}

/// Wakes nobody: it panics, or drains all pagesets.
#[derive(Clone, Default)]
struct Rude {
    memory: Arc<OnceLock<Weak<Memory>>>,
    panics: bool,
    woken: Arc<AtomicU64>,
}

impl Pressure for Rude {
    fn background(&self, _shortage: &Shortage) {
        self.woken.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "a callback that panics");
        let memory = self.memory.get().and_then(Weak::upgrade).unwrap();
        memory.drain_all().expect("nobody is at the pagesets of this CPU");
    }
}

/// Pages that a request has taken when it wakes reclaim reach the caller, whatever the callback does.
#[test]
fn a_callback_that_is_to_wake_may_panic_or_drain() {
    for (use_rseq, panics) in [(true, true), (true, false), (false, true), (false, false)] {
        let rude = Rude { panics, ..Rude::default() };
        let memory = builder().use_rseq(use_rseq).pressure(rude.clone()).build().unwrap();
        let memory = Arc::new(memory);
        rude.memory.set(Arc::downgrade(&memory)).unwrap();
        let limits = Limits { soft_bytes: Some(1 << 20), ..Limits::default() };
        memory.set_limits(LimitOf::Allocator, limits).unwrap();
        stay_on_this_cpu();
        let request = Request::new(Order(0), Gfp::KERNEL);
        let mut held = Vec::new();
        for pages in [1, 7, 300, 2000, 0] {
            for _ in 0..3 {
                let mut some = vec![Pfn(0); pages.max(1)];
                let got = match pages {
                    0 => memory.alloc_frames(request).map(|page| some[0] = page).map(|()| 1),
                    _ => memory.alloc_frames_bulk(request, &mut some),
                };
                held.extend(&some[..got.unwrap()]);
            }
        }
        let woken = rude.woken.load(Ordering::Relaxed);
        assert!(woken > 3);
        assert_eq!(memory.pressure_panics(), if panics { woken } else { 0 });
        assert_eq!(memory.check().unwrap().allocated.0, held.len() as u64);
        // SAFETY: the loops here allocated these pages, and nobody else knows of them.
        unsafe { memory.free_frames_bulk(&held) }.unwrap();
        assert_eq!(memory.check().unwrap().allocated, PageCount(0));
    }
}
