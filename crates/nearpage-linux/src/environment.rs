//! placeholder until merged
use crate::machine::{HostMachine, HostNode};
use crate::memory::MemoryError;
use crate::numa::BindMode;
pub struct Environment {
    pub use_rseq: Option<bool>,
    pub bind: Option<BindMode>,
}
impl Environment {
    pub fn read() -> Result<Self, MemoryError> {
        Ok(Self { use_rseq: std::env::var("NEARPAGE_RSEQ").ok().map(|v| v != "off"), bind: None })
    }
    pub fn machine(&self) -> Result<HostMachine, MemoryError> {
        let m = crate::sysfs::read_this_machine().map_err(|e| MemoryError::Machine(Box::new(e)))?;
        Ok(HostMachine {
            nodes: m
                .nodes
                .iter()
                .map(|n| HostNode { id: n.id, cpus: n.cpus.clone(), has_memory: true })
                .collect(),
            distances: m.distances,
            emulated: false,
        })
    }
}
