//! nearpage on Linux user space: real memory, real CPUs.
