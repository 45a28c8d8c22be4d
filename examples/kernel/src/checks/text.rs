//! The kernel's own texts of its zones, for `cargo xtask kernel` to compare with what `nearpage topo` predicts.

use core::fmt::Write as _;

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
        writeln!(serial, "END buddyinfo")
    });
}
