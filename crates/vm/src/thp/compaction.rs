//! Compaction: its settings, its state, and counts.

use alloc::collections::BTreeSet;

/// Settings of compaction, under the kernel's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacting {
    /// How actively a daemon compacts without a request, from 0 to 100.
    pub compaction_proactiveness: u32,
    /// The fragmentation index, in thousandths, above which a failed request is attributed to
    /// fragmentation and not to lack of memory.
    pub extfrag_threshold: u32,
    /// How much a claim of a part of a page block raises the target of free memory the next time
    /// memory is scarce, in ten-thousandths of the high mark.
    pub watermark_boost_factor: u64,
}

impl Compacting {
    /// The kernel's default settings.
    pub const DEFAULT: Compacting = Compacting {
        compaction_proactiveness: 20,
        extfrag_threshold: 500,
        watermark_boost_factor: 15_000,
    };
}

macro_rules! results {
    ($($(#[$doc:meta])* $result:ident $name:literal)*) => {
        /// The result of a run: those values of the kernel's `enum compact_result` that can occur
        /// here.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum CompactResult { $($(#[$doc])* $result),* }

        impl CompactResult {
            /// All results, in their order.
            pub const ALL: [CompactResult; [$($name),*].len()] = [$(CompactResult::$result),*];

            /// The name in results, which is the kernel's.
            pub const fn name(self) -> &'static str {
                match self { $(CompactResult::$result => $name),* }
            }
        }
    };
}

results! {
    /// Too little memory is free to begin, or memory is not fragmented.
    Skipped "skipped"
    /// The run is deferred, since earlier runs failed.
    Deferred "deferred"
    /// All of memory has been compacted, and there is no block of the size.
    Complete "complete"
    /// Memory from some point to its end has been compacted, and there is no block of the size.
    PartialSkipped "partial_skipped"
    /// There is a block of the size.
    Success "success"
}

/// The state of compaction.
#[derive(Default)]
pub(crate) struct Compaction {
    /// The numbers of the page blocks that are skipped.
    pub(crate) skipped: BTreeSet<u32>,
    /// The page blocks at which the two scanners of the next run begin: upwards and downwards.
    pub(crate) from: Option<(u32, u32)>,
    pub(crate) considered: u32,
    pub(crate) defer_shift: u32,
    pub(crate) order_failed: u32,
    /// The order of the block for which a daemon was woken.
    pub(crate) wanted: Option<u32>,
    /// The number of proactive runs to be deferred.
    pub(crate) proactive_deferred: u32,
    pub(crate) compacted: Compacted,
}

/// Counts of what compaction has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compacted {
    /// Runs at faults and by daemons, by result, in the order of [`CompactResult::ALL`].
    pub results: [u64; CompactResult::ALL.len()],
    /// Runs by `kcompactd` when it was woken; they are also counted in `results`.
    pub woken: u64,
    /// Proactive runs by `kcompactd`; they are also counted in `results`.
    pub proactive: u64,
    /// Page blocks scanned for pages to move.
    pub blocks: u64,
    /// Base pages moved.
    pub moved: u64,
}
