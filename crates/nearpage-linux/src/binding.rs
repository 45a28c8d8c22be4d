//! Binding address ranges to nodes: `mbind(2)`.

use std::fmt;
use std::io;
use std::ptr::NonNull;

use nearpage::NodeId;

use crate::bind::BindMode;
use crate::calls::SystemCall;
use crate::environment::{Environment, Nodes};
use crate::ffi::{self, NodePolicy};

/// How a memory is bound to its nodes, and what the kernel refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The mode that was asked for.
    pub requested: BindMode,
    /// The mode in force.
    pub effective: BindMode,
    /// The errno of the first refusal.
    pub refused: Option<i32>,
}

impl Binding {
    /// A binding that the kernel has not refused yet.
    pub(crate) fn new(requested: BindMode) -> Self {
        Self { requested, effective: requested, refused: None }
    }

    /// The binding that a memory of this process would have, as far as one can tell without making it.
    pub fn of_this_process(environment: &Environment) -> Self {
        let requested = match environment.nodes {
            Nodes::Kernel => environment.bind.unwrap_or_default(),
            Nodes::Shares(_) | Nodes::File(_) => BindMode::None,
        };
        let mut binding = Self::new(requested);
        if requested != BindMode::None
            && let Err(error) = SystemCall::Mbind.probe()
        {
            binding.refused = error.raw_os_error();
            binding.effective = BindMode::None;
        }
        binding
    }

    /// Binds `bytes` from `start` on to `node`. If the kernel refuses and the mode is advisory, this notes the refusal.
    ///
    /// # Errors
    /// The refusal, if the mode is strict.
    pub(crate) fn bind(
        &mut self,
        start: NonNull<u8>,
        bytes: usize,
        node: NodeId,
    ) -> io::Result<()> {
        let policy = match self.effective {
            BindMode::Strict => NodePolicy::Bind,
            BindMode::Advisory => NodePolicy::Preferred,
            BindMode::None => return Ok(()),
        };
        let Err(error) = ffi::mbind(start, bytes, policy, node) else { return Ok(()) };
        self.refused = error.raw_os_error();
        if self.effective == BindMode::Strict {
            return Err(error);
        }
        self.effective = BindMode::None;
        Ok(())
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.effective)?;
        if let Some(errno) = self.refused {
            let error = io::Error::from_raw_os_error(errno);
            write!(f, " (asked for {}, mbind was refused: {error})", self.requested)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;

    /// No machine has node 1000: an advisory binding degrades and remembers, a strict one fails.
    #[test]
    fn a_refused_binding_degrades_and_stays_visible() {
        let region = Region::reserve(1 << 20, 4096).unwrap();
        let mut advisory = Binding::new(BindMode::Advisory);
        advisory.bind(region.start(), 1 << 20, NodeId(1000)).unwrap();
        assert_eq!(advisory.effective, BindMode::None);
        assert!(advisory.to_string().starts_with("none (asked for advisory, mbind was refused: "));
        let mut strict = Binding::new(BindMode::Strict);
        assert!(strict.bind(region.start(), 1 << 20, NodeId(1000)).is_err());
        let mut none = Binding::new(BindMode::None);
        none.bind(region.start(), 1 << 20, NodeId(1000)).unwrap();
        assert_eq!(none.refused, None);
    }
}
