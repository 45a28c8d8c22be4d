//! Pagesets of an image, a line each.

use nearpage_kcore::{KcoreError, Kernel};

fn main() -> Result<(), KcoreError> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "/proc/kcore".into());
    let state = Kernel::open(path.as_ref())?.state()?;
    for node in &state.nodes {
        for zone in node.zones.iter().filter(|zone| zone.managed_pages > 0) {
            for pageset in &zone.pagesets {
                let lists: Vec<usize> = pageset.lists.iter().map(Vec::len).collect();
                println!(
                    "node {} {} cpu {} count {} high {} lists {lists:?}",
                    node.id, zone.name, pageset.cpu, pageset.count, pageset.high
                );
            }
        }
    }
    state.told.iter().for_each(|sentence| println!("{sentence}"));
    Ok(())
}
