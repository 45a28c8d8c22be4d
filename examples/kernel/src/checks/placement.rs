//! Each CPU's pages come from the nearest memory.

use core::sync::atomic::{AtomicU64, Ordering};

use nearpage::{Gfp, Order, Request};
use nearpage_kernel::Pages;

use crate::mine::Mine;
use crate::start::pages;
use crate::{arch, cpus, log};

static NEAR: AtomicU64 = AtomicU64::new(0);
static FAR: AtomicU64 = AtomicU64::new(0);

pub fn run(_pages: &Pages<'_, Mine>) {
    cpus::on_all(|cpu| {
        let (pages, order) = (pages(), Order(0));
        assert_eq!(cpu, arch::cpu_number());
        let Some(node) = pages.topology().node_of_cpu(cpu) else { panic!("CPU {cpu} has a node") };
        let nearest = pages.memory_node(node);
        for _ in 0..100 {
            let page = pages.alloc(Request::new(order, Gfp::KERNEL)).expect("there is memory");
            let is_near = pages.topology().node_of_pfn(page) == nearest;
            (if is_near { &NEAR } else { &FAR }).fetch_add(1, Ordering::Relaxed);
            pages.free(page, order).expect("it was just allocated");
        }
    });
    let (near, far) = (NEAR.load(Ordering::Relaxed), FAR.load(Ordering::Relaxed));
    assert_eq!(far, 0, "pages of a farther node while there is memory near");
    log!("placement: {near} pages from the nearest memory, {far} from farther");
}
