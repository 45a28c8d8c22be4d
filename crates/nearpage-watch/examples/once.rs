//! What this machine says of itself, and what is wrong.

use nearpage_machine::FolderTree;
use nearpage_watch::{Sampler, marks};

fn main() {
    let mut sampler = Sampler::new(Box::new(FolderTree::new("/")));
    let sample = sampler.sample();
    for node in &sample.nodes {
        println!("node {}: {} KiB free", node.node, node.free.unwrap_or(0));
    }
    for mark in marks(None, &sample) {
        println!("{} {}", mark.word, mark.reason);
    }
}
