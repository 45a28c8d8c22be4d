//! Kernels that the tests of nearpage-kcore draw.

#[path = "../../../nearpage-kcore/tests/synthetic/core.rs"]
#[expect(dead_code, reason = "only tests of damaged images ask where something lies")]
pub mod kernel;
#[path = "../../../nearpage-kcore/tests/synthetic/rng.rs"]
pub mod rng;
#[path = "../../../nearpage-kcore/tests/synthetic/types.rs"]
pub mod types;
