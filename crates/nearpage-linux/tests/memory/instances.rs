//! Memory whose zones are divided into instances: threads fill and free over all of them, and nothing is lost.

use std::thread;

use nearpage::{Config, Gfp, Model, Order, Pfn, Request, ZoneInstances};
use nearpage_linux::Memory;

const REQUEST: Request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
const THREADS: usize = 4;
/// All threads together hold most of the memory.
const PAGES: usize = 3500;

#[test]
fn threads_fill_all_instances_and_give_all_back() {
    let rules = |model: &mut Model| model.zone_instances = ZoneInstances::Count(4);
    let model = Config::new().model.with(rules);
    for use_rseq in [true, false] {
        let builder = Memory::builder().bytes_per_node(64 << 20).model(model);
        let memory = builder.use_rseq(use_rseq).build().unwrap();
        let zones = memory.buddyinfo().lines().filter(|line| line.starts_with("Node 0")).count();
        assert_eq!(zones, 4, "{}", memory.buddyinfo());
        let fill =
            || -> Vec<Pfn> { (0..PAGES).map(|_| memory.alloc_frames(REQUEST).unwrap()).collect() };
        for _ in 0..20 {
            let filled: Vec<Vec<Pfn>> = thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(fill)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            // Each thread frees what another one has.
            thread::scope(|scope| {
                for pages in &filled {
                    let memory = &memory;
                    scope.spawn(move || {
                        for &page in pages {
                            // SAFETY: it was allocated above with this order, is freed once, and nobody uses it.
                            unsafe { memory.free_frames(page, REQUEST.order) }.unwrap();
                        }
                    });
                }
            });
        }
        let checked = memory.check().unwrap();
        assert_eq!(checked.allocated.0, 0);
    }
}
