//! The kernel's own texts of its zones, for `cargo xtask kernel` to compare with what `nearpage topo` predicts.

use core::fmt::{self, Write};

use nearpage::NodeIndex;
use nearpage_kernel::Pages;

use crate::console;
use crate::mine::Mine;

pub fn texts(pages: &Pages<'_, Mine>) {
    console::with(|serial| {
        writeln!(serial, "BEGIN zoneinfo")?;
        pages.write_zoneinfo(serial)?;
        writeln!(serial, "END zoneinfo")?;
        writeln!(serial, "BEGIN buddyinfo")?;
        pages.write_buddyinfo(serial)?;
        writeln!(serial, "END buddyinfo")?;
        writeln!(serial, "BEGIN distances")?;
        write_distances(pages, serial)?;
        writeln!(serial, "END distances")
    });
}

/// From each node to all, as the firmware told them.
fn write_distances(pages: &Pages<'_, Mine>, out: &mut impl Write) -> fmt::Result {
    let topology = pages.topology();
    let indexes = || (0..topology.len()).map(|at| NodeIndex(at as _));
    for from in indexes() {
        write!(out, "node {}:", topology.node(from).id)?;
        indexes().try_for_each(|to| write!(out, " {}", topology.distance(from, to)))?;
        writeln!(out)?;
    }
    Ok(())
}
