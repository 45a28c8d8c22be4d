//! The key of a huge page that fails.

use nearpage_sim::Machine;
use serde::Deserialize;
use toml::Spanned;

use super::figures::at_least_one;
use super::wrong::{Checked, wrong};

/// A huge page that fails, and single ones after it.
#[derive(Clone, Debug)]
pub struct HugeWorkload {
    /// Single pages.
    pub pages: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HugeTable {
    pages: Spanned<u64>,
}

impl HugeTable {
    pub(super) fn check(&self, machine: &Machine) -> Checked<HugeWorkload> {
        match at_least_one("pages", &self.pages)? {
            _ if machine.nodes.iter().take_while(|node| node.bytes > 0).count() < 2 => {
                let message = "huge-then-single: the first two nodes must have memory";
                wrong(self.pages.span(), message)
            }
            _ if machine.nodes[0].cpus.is_empty() => {
                wrong(self.pages.span(), "huge-then-single: the first node must have a CPU")
            }
            pages => Ok(HugeWorkload { pages }),
        }
    }
}
