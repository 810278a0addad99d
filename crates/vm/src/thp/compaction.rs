//! Compaction: its knobs, and what it remembers and has done.

use alloc::collections::BTreeSet;

/// Knobs of compaction, under the kernel's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacting {
    /// How much a daemon compacts before anybody asks, from 0 to 100.
    pub compaction_proactiveness: u32,
    /// The index of fragmentation, of 1000, above which a failed request is put down to that and not
    /// to too little memory.
    pub extfrag_threshold: u32,
    /// By how much of the high mark, in 1 / 10000, a claim of a part of a page block raises it for the
    /// next time that memory is scarce.
    pub watermark_boost_factor: u64,
}

impl Compacting {
    /// As the kernel boots.
    pub const DEFAULT: Compacting = Compacting {
        compaction_proactiveness: 20,
        extfrag_threshold: 500,
        watermark_boost_factor: 15_000,
    };
}

macro_rules! results {
    ($($(#[$doc:meta])* $result:ident $name:literal)*) => {
        /// What a run came to: of the kernel's `enum compact_result` those that can be here.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum CompactResult { $($(#[$doc])* $result),* }

        impl CompactResult {
            /// All of them, in their order.
            pub const ALL: [CompactResult; [$($name),*].len()] = [$(CompactResult::$result),*];

            /// Its name in results: the kernel's.
            pub const fn name(self) -> &'static str {
                match self { $(CompactResult::$result => $name),* }
            }
        }
    };
}

results! {
    /// Too little is free to begin, or memory is not fragmented.
    Skipped "skipped"
    /// Runs before it have found nothing.
    Deferred "deferred"
    /// All of memory is compacted, and there is no block of the size.
    Complete "complete"
    /// Memory from somewhere in the middle to its end is compacted, and there is no block of the size.
    PartialSkipped "partial_skipped"
    /// There is a block of the size.
    Success "success"
}

/// What compaction remembers, and has done.
#[derive(Default)]
pub(crate) struct Compaction {
    /// Page blocks that are skipped, by number.
    pub(crate) skipped: BTreeSet<u32>,
    /// Where the next run begins, as numbers of page blocks: from below, and from above.
    pub(crate) from: Option<(u32, u32)>,
    pub(crate) considered: u32,
    pub(crate) defer_shift: u32,
    pub(crate) order_failed: u32,
    /// An order that a daemon was woken for.
    pub(crate) wanted: Option<u32>,
    /// Proactive runs that are put off.
    pub(crate) proactive_deferred: u32,
    pub(crate) compacted: Compacted,
}

/// What compaction has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compacted {
    /// Runs at faults and by daemons, by what they came to, in the order of [`CompactResult::ALL`].
    pub results: [u64; CompactResult::ALL.len()],
    /// Of these, runs by `kcompactd` when it was woken ...
    pub woken: u64,
    /// ... and of its own accord.
    pub proactive: u64,
    /// Page blocks that were looked at for pages to move.
    pub blocks: u64,
    /// Base pages moved.
    pub moved: u64,
}
