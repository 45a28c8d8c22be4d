//! A machine in the formats of kernels and tools. Each text is written as it is made and never held as a whole: some are
//! larger than a gigabyte.
//!
//! [`Plan::fallback_lines`](crate::Plan::fallback_lines) has the lines of the kernel's log.
//!
//! ```
//! use nearpage_machine::{short_form, text};
//!
//! let machine = short_form::parse_text("box", "--numa 2G,cpus=0-1 --numa 512M")?;
//! let written = text::numactl(&machine).to_string();
//! assert!(written.starts_with("available: 2 nodes (0-1)\nnode 0 cpus: 0 1\nnode 0 size: 2048 MB\n"));
//! # Ok::<(), nearpage_machine::DescriptionError>(())
//! ```

mod dot;
mod hwloc;
mod numactl;
mod zoneinfo;

pub use dot::dot;
pub use hwloc::hwloc;
pub use numactl::numactl;
pub use zoneinfo::{Unknown, zoneinfo};
