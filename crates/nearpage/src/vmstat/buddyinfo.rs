//! `/proc/buddyinfo`: free blocks by order.

use core::array;
use core::fmt::{self, Write};

use crate::alloc::PageAllocator;
use crate::host::Platform;
use crate::units::{NodeId, ORDERS, ZoneKind};

impl<P: Platform> PageAllocator<'_, P> {
    /// Writes the text of `/proc/buddyinfo`: a line for each zone that has memory online, with the number
    /// of free blocks of each order and any migratetype, isolated ones included.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_buddyinfo(&self, out: &mut (impl Write + ?Sized)) -> fmt::Result {
        for zone in self.zones().iter().filter(|zone| zone.managed().0 > 0) {
            let area = zone.free_area();
            let blocks = array::from_fn(|order| area.iter().map(|of| u64::from(of[order])).sum());
            write_line(self.topology().node(zone.node()).id, zone.kind(), &blocks, out)?;
        }
        Ok(())
    }
}

/// `mm/vmstat.c: frag_show_print`, 6.12: a space ends the line.
fn write_line(
    node: NodeId,
    kind: ZoneKind,
    blocks: &[u64; ORDERS],
    out: &mut (impl Write + ?Sized),
) -> fmt::Result {
    write!(out, "Node {node}, zone {:>8} ", kind.name())?;
    blocks.iter().try_for_each(|blocks| write!(out, "{blocks:>6} "))?;
    out.write_char('\n')
}

#[cfg(test)]
mod tests {
    use std_alloc::string::String;
    use std_alloc::vec::Vec;

    use super::*;
    use crate::alloc::Request;
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;

    #[test]
    fn a_line_is_as_recorded() {
        // 6.12.95, two nodes of 2 and 6 GiB.
        let recorded = "Node 1, zone   Normal      1      2      1      2      1      2      1      0      \
                        3      2   1244 \n";
        let mut text = String::new();
        let blocks = [1, 2, 1, 2, 1, 2, 1, 0, 3, 2, 1244];
        write_line(NodeId(1), ZoneKind::Normal, &blocks, &mut text).unwrap();
        assert_eq!(text, recorded);
    }

    #[test]
    fn only_zones_with_memory_have_a_line() {
        let machine = TestMachine::new().node(0, 0, &[0]).node(8, 5120, &[]).movable(2048);
        machine.model(Model::LINUX_6_18).run(|allocator| {
            // One block of 1024 pages is cut, and 32 pages of it are taken.
            allocator.alloc(Request::new(crate::units::Order(5), Gfp::KERNEL)).unwrap();
            let mut text = String::new();
            allocator.write_buddyinfo(&mut text).unwrap();
            let expected = [
                "Node 8, zone   Normal      0      0      0      0      0      1      1      1      1      1      2 ",
                "Node 8, zone  Movable      0      0      0      0      0      0      0      0      0      0      2 ",
            ];
            assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        });
    }
}
