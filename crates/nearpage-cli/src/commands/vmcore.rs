//! Images of a kernel's memory, as inputs: the machine that they show, and its log.

use std::path::Path;

use nearpage_kcore::{KcoreError, Kernel, State};
use nearpage_machine::{MemoryTree, shown};

use crate::terminal;

/// Reads an image. What does not fit together in it is told.
pub(super) fn read(path: &Path) -> Result<(Kernel, State), KcoreError> {
    let kernel = Kernel::open(path)?;
    let state = kernel.state()?;
    let name = shown(path);
    state.told.iter().for_each(|sentence| terminal::note(format_args!("{name}: {sentence}")));
    Ok((kernel, state))
}

/// The files of `/proc` and `/sys` that the kernel of an image would show.
pub(super) fn tree(path: &Path) -> Result<MemoryTree, KcoreError> {
    let (_, state) = read(path)?;
    let mut tree = MemoryTree::new(shown(path).to_string());
    state.files().into_iter().for_each(|(path, text)| tree.insert(path, text));
    Ok(tree)
}
