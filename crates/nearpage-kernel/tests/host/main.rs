//! The host on a host: threads play CPUs, and interrupts come where a kernel's would.

mod book;
mod boot;
mod heap;
mod machine;
mod platform;
mod sections;
