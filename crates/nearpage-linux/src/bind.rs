//! How memory may be bound to its node.

use std::fmt;

/// How memory is bound to its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BindMode {
    /// `MPOL_BIND`: memory comes from the node or not at all. A kernel that refuses to bind is an error.
    Strict,
    /// `MPOL_PREFERRED`: another node may help out. Where binding is refused (containers often do),
    /// the first thread to touch a page decides.
    #[default]
    Advisory,
    /// No binding: the first thread to touch a page decides. The only mode for emulated nodes.
    None,
}

impl BindMode {
    /// The modes, by the names that the environment uses.
    pub const NAMES: [(&'static str, BindMode); 3] =
        [("strict", Self::Strict), ("advisory", Self::Advisory), ("none", Self::None)];
}

impl fmt::Display for BindMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Strict => "strict",
            Self::Advisory => "advisory",
            Self::None => "none",
        })
    }
}
