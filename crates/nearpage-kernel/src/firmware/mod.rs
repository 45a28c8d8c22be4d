//! What the firmware tells of the machine: ACPI's tables, or a devicetree.
//!
//! Both are read into a [`Machine`]. What does not fit together is left out and noted ([`Note`]), or is an error after which
//! the machine has one node: a boot goes on in either case.

pub mod acpi;
pub(crate) mod bytes;
pub mod devicetree;
mod machine;
mod physical;
#[cfg(test)]
mod tests;

pub use machine::{AREAS_MAX, CPUS_MAX, Cpu, FirmwareError, Machine, NODES_MAX, NOTES_MAX, Note};
pub use physical::Physical;
