//! The daemon that collapses pages: its knobs, where it is, and what it has found.

use crate::work::Why;

/// The daemon's knobs, under the kernel's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Khugepaged {
    /// Base pages that a pass looks at.
    pub pages_to_scan: u64,
    /// The most base pages of a block that are not there ...
    pub max_ptes_none: u64,
    /// ... that are in swap ...
    pub max_ptes_swap: u64,
    /// ... and that other spaces have too.
    pub max_ptes_shared: u64,
    /// Whether it compacts memory where no frame is free.
    pub defrag: bool,
}

impl Khugepaged {
    /// What the kernel has where a large page is `2^order` base pages.
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

/// Whether the kernel of a recording has refused to collapse pages (`EINVAL`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It has not.
    No,
    /// It has, and knows the call.
    Known,
    /// It has, and may not know the call: Linux has it since 6.1.
    Unknown,
}

macro_rules! results {
    ($($(#[$doc:meta])* $result:ident $name:literal)*) => {
        /// What the daemon found of a block: of the kernel's `enum scan_result` those that can be here.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum ScanResult { $($(#[$doc])* $result),* }

        impl ScanResult {
            /// All of them, in their order.
            pub const ALL: [ScanResult; [$($name),*].len()] = [$(ScanResult::$result),*];

            /// Its name in results: the kernel's.
            pub const fn name(self) -> &'static str {
                match self { $(ScanResult::$result => $name),* }
            }
        }
    };
}

results! {
    /// It is a large page now.
    Succeed "succeed"
    /// Nothing of it is there.
    PmdNone "pmd_none"
    /// It is a large page already.
    PmdMapped "pmd_mapped"
    /// Too many of its pages are not there.
    ExceedNonePte "exceed_none_pte"
    /// Too many are in swap.
    ExceedSwapPte "exceed_swap_pte"
    /// Too many are shared.
    ExceedSharedPte "exceed_shared_pte"
    /// A page is wired by another space.
    PageCount "page_count"
    /// None was used, or too few beside those in swap.
    LackReferencedPage "lack_referenced_page"
    /// No frame of the size is free.
    AllocHugePageFail "alloc_huge_page_fail"
}

impl ScanResult {
    /// The reason that it is for the size of pages; nothing where no decision was made.
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
    /// Whether a call goes on after a block of which it has found this (`madvise_collapse`).
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

/// Where the daemon is, and what it has done.
#[derive(Default)]
pub(crate) struct Progress {
    /// The next block: its space, and its first page.
    pub(crate) next: (u32, u64),
    pub(crate) scanned: Scanned,
}

/// What the daemon has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scanned {
    /// Times that it has run.
    pub passes: u64,
    /// Blocks that it has looked at, by what it found, in the order of [`ScanResult::ALL`].
    pub results: [u64; ScanResult::ALL.len()],
}

/// What a pass came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collapsed {
    /// Large pages made.
    pub made: u64,
    /// Whether it ended because no frame was free: the next one is to come later.
    pub starved: bool,
}
