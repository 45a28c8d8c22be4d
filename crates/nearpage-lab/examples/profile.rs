//! p
use nearpage_lab::{Options, catalog};
fn main() {
    let name = std::env::args().nth(1).unwrap();
    let s = catalog::scenario(&name).unwrap();
    let threads = std::num::NonZeroUsize::new(1).unwrap();
    let options = Options { seed: 1, threads, costs: None, samples: false, progress: &|_, _| () };
    let r = nearpage_lab::run(&s, &options).unwrap();
    println!("{:?} {:?}", r.rows, r.holds);
    for (k, v) in r.counts {
        println!("{k} {v}");
    }
}
