//! Linux's transparent huge pages: the settings, and the state of the daemons.
//!
//! The operations are in [`crate::linux`].

mod compaction;
mod folios;
mod ingens;
mod kept;
mod khugepaged;
mod placing;
mod pools;
mod promoter;
mod ranger;
mod shmem;
mod stats;
mod zeros;

use addr::PageSize;

use crate::region::{Backing, Region};

pub(crate) use self::{
    compaction::Compaction,
    folios::{Fate, Folio, Folios, disown},
    kept::Kept,
    khugepaged::Progress,
    pools::{Pool, Pools, Promise},
    promoter::{BINS, Promoting},
    zeros::Zeros,
};
pub use self::{
    compaction::{CompactResult, Compacted, Compacting},
    ingens::Ingens,
    khugepaged::{Collapsed, Khugepaged, Refused, ScanResult, Scanned},
    placing::Placing,
    pools::PoolCounts,
    promoter::{Promoted, Promoter},
    ranger::{Ranged, Ranger},
    shmem::{Shmem, ShmemHuge},
    stats::SizeStats,
};

/// The orders of blocks that faults and daemons may use for anonymous memory, as masks: bit n
/// stands for blocks of 2^n base pages. Orders that are page sizes are loaded by one large
/// translation; other orders are adjacent frames loaded as base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thp {
    /// Orders allowed everywhere except where advice forbids large pages.
    pub always: u32,
    /// Orders allowed where advice requests large pages.
    pub madvise: u32,
    /// Whether faults use these blocks; otherwise only daemons do.
    pub faults: bool,
    /// How much a fault does if no block is free.
    pub defrag: Defrag,
    /// Whether a load of untouched memory maps a large page of zeros, where a large page is
    /// allowed.
    pub use_zero_page: bool,
    /// Where faults use large blocks for shared memory.
    pub shmem: Shmem,
    /// Whether discarding a whole block of base pages frees their page table (`CONFIG_PT_RECLAIM`, Linux 6.14).
    pub frees_tables: bool,
    /// Whether `khugepaged` also makes blocks of the orders below the large page's, where these are allowed
    /// (Linux 7.2).
    pub collapses_smaller: bool,
    /// The assumed share of a large page's base pages that contain zeros, in thousandths. It is
    /// used if large pages with too many such pages are split when memory is scarce
    /// (`shrink_underused`, Linux 6.12). With 0, no large page is split for this reason.
    pub zero_permille: u64,
    /// The number of base pages of a file, around and including a faulting page, that a fault loads
    /// if they are in memory. A power of two; 1 means only the page itself.
    pub fault_around: u64,
    /// Settings of compaction.
    pub compacting: Compacting,
    /// Settings of `khugepaged`.
    pub khugepaged: Khugepaged,
    /// How the daemon chooses blocks.
    pub promoter: Promoter,
    /// How regions are placed in memory; `None` if each page gets any frame.
    pub placing: Option<Placing>,
    /// The daemon that moves pages to adjacent frames; `None` if there is none.
    pub ranger: Option<Ranger>,
}

impl Thp {
    /// The kernel's default settings, for these orders.
    pub const fn new(always: u32, madvise: u32, khugepaged: Khugepaged) -> Thp {
        Thp {
            always,
            madvise,
            faults: true,
            defrag: Defrag::Madvise,
            use_zero_page: true,
            frees_tables: true,
            collapses_smaller: false,
            zero_permille: 0,
            shmem: Shmem {
                all: ShmemHuge::Never,
                inherit: 0,
                always: 0,
                within_size: 0,
                madvise: 0,
            },
            fault_around: 16,
            compacting: Compacting::DEFAULT,
            khugepaged,
            promoter: Promoter::Khugepaged,
            placing: None,
            ranger: None,
        }
    }

    /// The orders that are allowed in `region`.
    pub(crate) fn orders(&self, region: &Region, base: PageSize) -> u32 {
        if region.backing != Backing::Anonymous || region.module.pool {
            return 0;
        }
        match advice(region, base) {
            Advice::None => self.always,
            Advice::Huge => self.always | self.madvise,
            Advice::NoHuge => 0,
        }
    }
}

impl Default for Thp {
    fn default() -> Thp {
        Thp::new(0, 0, Khugepaged::of(9))
    }
}

/// The advice that `madvise` has given for a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    None,
    Huge,
    NoHuge,
}

/// The advice for a region. A module that requests base pages is advice against large ones.
pub(crate) fn advice(region: &Region, base: PageSize) -> Advice {
    match region.module.page_size {
        None => Advice::None,
        Some(size) if size > base => Advice::Huge,
        Some(_) => Advice::NoHuge,
    }
}

/// How much a fault does to get a block of frames (the setting `defrag`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Defrag {
    /// The fault evicts pages and compacts memory, everywhere.
    Always,
    /// The fault wakes the daemons and uses base pages.
    Defer,
    /// Like `Always` where advice requests large pages, otherwise like `Defer`.
    DeferMadvise,
    /// Like `Always` where advice requests large pages, otherwise like `Never`.
    #[default]
    Madvise,
    /// The fault does nothing to get a block.
    Never,
}

/// The effort of a fault to get a block if no block is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// The fault does nothing to get a block.
    None,
    /// The fault wakes the daemons.
    Wake,
    /// The fault compacts memory itself. If advice requests large pages (`again`), it tries several
    /// times.
    Direct { again: bool },
}

impl Defrag {
    /// The effort of a fault in a region with this advice (`vma_thp_gfp_mask`).
    pub(crate) const fn effort(self, advice: Advice) -> Effort {
        let advised = matches!(advice, Advice::Huge);
        match self {
            Defrag::Always => Effort::Direct { again: advised },
            Defrag::DeferMadvise | Defrag::Madvise if advised => Effort::Direct { again: true },
            Defrag::Defer | Defrag::DeferMadvise => Effort::Wake,
            Defrag::Madvise | Defrag::Never => Effort::None,
        }
    }
}
