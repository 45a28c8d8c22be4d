//! The rules that differ between kernels.

/// The rules by which types lend each other memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FallbackRules {
    /// Whose rules.
    pub model: FallbackModel,
    /// Which pages in use count as movable when a pageblock is judged.
    pub held: HeldMovable,
}

/// The kernel whose rules these are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FallbackModel {
    /// All free blocks of a pageblock change lists, whatever its type is afterwards.
    Linux6_1,
    /// Claim, then steal; lists follow pageblocks.
    Linux6_12,
}

/// Which pages in use count as movable. Linux looks whether they are on the LRU or a driver can move
/// them, which a library cannot know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldMovable {
    /// Blocks that were asked for as movable, by the word of their head.
    ByWord,
    /// None: the pages of the recorded experiments were held by a module and stood on no LRU.
    Never,
}

impl FallbackRules {
    pub(super) const fn lists_follow_pageblocks(self) -> bool {
        matches!(self.model, FallbackModel::Linux6_12)
    }
}
