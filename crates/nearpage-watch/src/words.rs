//! The words of marks: when they are said, and what to do. The book has a section for each.

/// What a word of a [`Mark`](crate::Mark) means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// The word.
    pub word: &'static str,
    /// When it is said.
    pub when: &'static str,
    /// What to do.
    pub advice: &'static str,
}

/// All words, those of zones first.
///
/// ```
/// use nearpage_watch::WORDS;
///
/// let stalled = WORDS.iter().find(|word| word.word == "stalled").unwrap();
/// assert!(stalled.advice.contains("vm.watermark_scale_factor"));
/// ```
pub const WORDS: [Word; 9] = [
    Word {
        word: "refusing",
        when: "a zone is at or below min: ordinary requests get nothing there",
        advice: "find who holds its memory (pane of processes); nearpage explain reads what the kernel logged",
    },
    Word {
        word: "reclaiming",
        when: "a zone is below low: kswapd makes room",
        advice: "nothing, if it ends; a higher vm.watermark_scale_factor starts it earlier",
    },
    Word {
        word: "kept-away",
        when: "a zone is below low, others have memory, and zone_reclaim_mode makes requests reclaim first",
        advice: "sysctl vm.zone_reclaim_mode=0",
    },
    Word {
        word: "fragmented",
        when: "a zone has free pages, and no block of order 3 passes",
        advice: "compaction (echo 1 > /proc/sys/vm/compact_memory), or users that need no blocks",
    },
    Word {
        word: "boosted",
        when: "marks of a zone are raised, since pageblocks were mixed",
        advice: "nothing, if it ends; sysctl vm.watermark_boost_factor=0 turns it off",
    },
    Word {
        word: "stalled",
        when: "requests reclaimed memory themselves, and waited for it",
        advice: "more room for kswapd: a higher vm.watermark_scale_factor or vm.min_free_kbytes",
    },
    Word {
        word: "compacting",
        when: "requests waited for compaction, and most of it failed",
        advice: "fewer requests for huge pages: transparent_hugepage/defrag",
    },
    Word {
        word: "spilled",
        when: "more than a tenth of the allocations that wanted a node came from another",
        advice: "bind the process that fills the node (pane of processes), or move it",
    },
    Word {
        word: "killed",
        when: "the OOM killer ended a process",
        advice: "dmesg and nearpage explain tell why there was no progress",
    },
];
