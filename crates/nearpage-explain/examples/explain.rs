//! The report of a request for 16 pages in a row.

use nearpage_explain::{Explanation, Reader, Rule};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let log = "\
imap: page allocation failure: order:4, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset=/,mems_allowed=0
Mem-Info:
Node 0 Normal free:40960kB min:11264kB low:14080kB high:16896kB present:1048576kB managed:1019292kB free_pcp:0kB
lowmem_reserve[]: 0 0 0 0 0
Node 0 Normal: 5120*4kB (UM) 2560*8kB (UM) 0*16kB 0*32kB 0*64kB 0*128kB = 40960kB
262144 pages RAM
";
    for report in Reader::new(log.as_bytes()) {
        let explanation = Explanation::of(report?);
        assert_eq!(explanation.verdict.rule, Rule::NoBlock);
        for remedy in explanation.remedies {
            println!("{:?}: {}", remedy.effect, remedy.text);
        }
    }
    Ok(())
}
