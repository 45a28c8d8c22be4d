//! What a page costs on this machine, beside glibc: `cargo run --release -p nearpage-bench --example pairs`.

use nearpage_bench::{Bench, BenchError, Options, Run};
use nearpage_machine::work::Unwatched;

fn main() -> Result<(), BenchError> {
    let options =
        Options::default().benches(&[Bench::Pairs]).bytes_per_node(64 << 20).quick(true).rounds(1);
    let run = Run::new(&options)?;
    let (machine, absent) = run.machine()?;
    print!("{machine}");
    for reason in absent {
        println!("absent   {reason}");
    }
    for row in run.measure(Bench::Pairs, &Unwatched)?.rows {
        let (allocator, threads) = (row.key.allocator, row.key.threads);
        println!("{allocator:<20} {threads} threads {:>9.2} ns", row.summary.median);
    }
    Ok(())
}
