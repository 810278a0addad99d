//! The daemon that collapses base pages: its settings, its state, and its results.

use crate::work::Why;

/// The daemon's settings, under the kernel's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Khugepaged {
    /// The number of base pages that a pass scans.
    pub pages_to_scan: u64,
    /// A block is collapsed only if at most this number of its base pages is unmapped.
    pub max_ptes_none: u64,
    /// A block is collapsed only if at most this number of its base pages is in swap.
    pub max_ptes_swap: u64,
    /// A block is collapsed only if at most this number of its base pages is shared with other
    /// spaces.
    pub max_ptes_shared: u64,
    /// Whether the daemon compacts memory if no large frame is free.
    pub defrag: bool,
}

impl Khugepaged {
    /// The kernel's defaults if a large page is `2^order` base pages.
    pub const fn of(order: u32) -> Khugepaged {
        let pages = 1 << order;
        Khugepaged {
            pages_to_scan: 8 * pages,
            max_ptes_none: pages - 1,
            max_ptes_swap: pages / 8,
            max_ptes_shared: pages / 2,
            defrag: true,
        }
    }

    /// The limits for blocks that are `2^more` times as large.
    pub(crate) const fn of_blocks(self, more: u32) -> Khugepaged {
        const fn scaled(limit: u64, more: u32) -> u64 {
            (limit << more) + ((1 << more) - 1)
        }
        Khugepaged {
            max_ptes_none: scaled(self.max_ptes_none, more),
            max_ptes_swap: scaled(self.max_ptes_swap, more),
            max_ptes_shared: scaled(self.max_ptes_shared, more),
            ..self
        }
    }
}

impl Default for Khugepaged {
    fn default() -> Khugepaged {
        Khugepaged::of(9)
    }
}

/// Whether the kernel of a recording refused to collapse pages (`EINVAL`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The kernel did not refuse.
    No,
    /// The kernel refused, and supports the call.
    Known,
    /// The kernel refused, and may not support the call, which Linux has had since 6.1.
    Unknown,
}

macro_rules! results {
    ($($(#[$doc:meta])* $result:ident $name:literal)*) => {
        /// The result of scanning a block: those values of the kernel's `enum scan_result` that can
        /// occur here.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum ScanResult { $($(#[$doc])* $result),* }

        impl ScanResult {
            /// All results, in their order.
            pub const ALL: [ScanResult; [$($name),*].len()] = [$(ScanResult::$result),*];

            /// The name in results, which is the kernel's.
            pub const fn name(self) -> &'static str {
                match self { $(ScanResult::$result => $name),* }
            }
        }
    };
}

results! {
    /// The block became a large page.
    Succeed "succeed"
    /// None of the block's pages is mapped.
    PmdNone "pmd_none"
    /// The block is a large page already.
    PmdMapped "pmd_mapped"
    /// Too many of the block's pages are unmapped.
    ExceedNonePte "exceed_none_pte"
    /// Too many of the block's pages are in swap.
    ExceedSwapPte "exceed_swap_pte"
    /// Too many of the block's pages are shared.
    ExceedSharedPte "exceed_shared_pte"
    /// A page is wired by another space.
    PageCount "page_count"
    /// None of the block's pages was used recently, or the number of recently used pages is too
    /// small compared with the number of its pages in swap.
    LackReferencedPage "lack_referenced_page"
    /// No frame of the size is free.
    AllocHugePageFail "alloc_huge_page_fail"
}

impl ScanResult {
    /// The corresponding reason for a page size; `None` if no decision was made.
    pub(crate) const fn why(self) -> Option<Why> {
        match self {
            ScanResult::Succeed => Some(Why::Obtained),
            ScanResult::PmdNone | ScanResult::PmdMapped => None,
            ScanResult::ExceedNonePte => Some(Why::ExceedNonePte),
            ScanResult::ExceedSwapPte => Some(Why::ExceedSwapPte),
            ScanResult::ExceedSharedPte => Some(Why::ExceedSharedPte),
            ScanResult::PageCount => Some(Why::Wired),
            ScanResult::LackReferencedPage => Some(Why::LackReferencedPage),
            ScanResult::AllocHugePageFail => Some(Why::NoFrame),
        }
    }
}

impl ScanResult {
    /// Whether smaller blocks are not tried after this result, because the block is a large page,
    /// has nothing mapped, or no block of memory is free.
    pub(crate) const fn ends_block(self) -> bool {
        match self {
            ScanResult::Succeed | ScanResult::PmdMapped => true,
            ScanResult::PmdNone
            | ScanResult::ExceedNonePte
            | ScanResult::ExceedSwapPte
            | ScanResult::ExceedSharedPte
            | ScanResult::PageCount
            | ScanResult::LackReferencedPage
            | ScanResult::AllocHugePageFail => false,
        }
    }
}

impl ScanResult {
    /// Whether a call continues after a block with this result (`madvise_collapse`).
    pub(crate) const fn goes_on(self) -> bool {
        match self {
            ScanResult::Succeed
            | ScanResult::PmdMapped
            | ScanResult::PageCount
            | ScanResult::ExceedSharedPte
            | ScanResult::LackReferencedPage => true,
            ScanResult::PmdNone
            | ScanResult::ExceedNonePte
            | ScanResult::ExceedSwapPte
            | ScanResult::AllocHugePageFail => false,
        }
    }
}

/// The state of the daemon.
#[derive(Default)]
pub(crate) struct Progress {
    /// The next block to scan: its space and its first page.
    pub(crate) next: (u32, u64),
    pub(crate) scanned: Scanned,
}

/// Counts of what the daemon has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scanned {
    /// The number of passes.
    pub passes: u64,
    /// Blocks scanned, by result, in the order of [`ScanResult::ALL`].
    pub results: [u64; ScanResult::ALL.len()],
}

/// The result of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collapsed {
    /// Large pages made.
    pub made: u64,
    /// Whether the pass ended because no frame was free. In that case the daemon waits longer
    /// before the next pass.
    pub starved: bool,
}
