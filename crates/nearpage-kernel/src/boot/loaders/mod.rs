//! Memory maps of loaders, as the crates that kernels read them with have them. Each is a feature, and adds what may be used
//! without asking anybody; what a loader still has in use stays out.

#[cfg(feature = "limine")]
pub mod limine;
#[cfg(feature = "multiboot2")]
pub mod multiboot2;
#[cfg(test)]
mod tests;
#[cfg(feature = "uefi")]
pub mod uefi;
