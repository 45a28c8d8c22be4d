//! Memory that is plugged in while the kernel runs comes online, is used, and goes again.

use alloc::vec::Vec;

use nearpage::{Gfp, NodeId, Order, Pfn, PfnRange, Request};
use nearpage_kernel::Pages;

use crate::mine::Mine;
use crate::options::Options;
use crate::{arch, log};

pub fn run(pages: &Pages<'_, Mine>, options: Options) {
    if !options.plugs {
        return;
    }
    log!("READY to have memory plugged in");
    let (bytes, node) = loop {
        match arch::plugged_memory() {
            Some(found) => break found,
            None => arch::pause(),
        }
    };
    let range = PfnRange { start: Pfn(bytes.start >> 12), end: Pfn(bytes.end >> 12) };
    let node = NodeId(node);
    let came = pages.online(range).unwrap_or_else(|error| panic!("plugged memory: {error}"));
    assert_eq!(came, range.pages(), "all of it comes");
    let request = Request::new(Order(9), Gfp::HIGHUSER_MOVABLE | Gfp::THISNODE).on(node);
    let mut held = Vec::new();
    while let Ok(block) = pages.alloc(request) {
        held.push(block);
    }
    let inside = held.iter().filter(|&&block| range.contains(block)).count();
    assert!(inside > 0, "the node's blocks come from the plugged memory too");
    for block in held {
        pages.free(block, Order(9)).expect("it was just allocated");
    }
    let went = pages.offline(range).unwrap_or_else(|error| panic!("plugged memory: {error}"));
    assert_eq!(went, came);
    log!("plugged: {came} pages of node {node} came, {inside} blocks of 2 MiB were used, all went");
}
