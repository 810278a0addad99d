//! Large pages as Linux makes them by itself (transparent huge pages): the knobs, and the state of the daemons.
//!
//! What is done by them is in [`crate::linux`].

mod compaction;
mod folios;
mod ingens;
mod kept;
mod khugepaged;
mod placing;
mod promoter;
mod ranger;
mod zeros;

use addr::PageSize;

use crate::region::{Backing, Region};

pub(crate) use self::{
    compaction::Compaction,
    folios::{Fate, Folio, Folios, disown},
    kept::Kept,
    khugepaged::Progress,
    promoter::{BINS, Promoting},
    zeros::Zeros,
};
pub use self::{
    compaction::{CompactResult, Compacted, Compacting},
    ingens::Ingens,
    khugepaged::{Collapsed, Khugepaged, Refused, ScanResult, Scanned},
    placing::Placing,
    promoter::{Promoted, Promoter},
    ranger::{Ranged, Ranger},
};

/// Which orders faults and daemons may give anonymous memory, as masks: bit n stands for blocks of
/// 2^n base pages. Page sizes are the orders of large translations; other orders are frames side by
/// side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thp {
    /// Everywhere but where advice forbids it.
    pub always: u32,
    /// Where advice asks for it.
    pub madvise: u32,
    /// Whether faults give such blocks. Else only daemons make them.
    pub faults: bool,
    /// How hard a fault tries where no block is free.
    pub defrag: Defrag,
    /// Whether a load of untouched memory maps a large page of zeros where a large page may be.
    pub use_zero_page: bool,
    /// Base pages around a fault on a file's page that are loaded with it if memory has them: a power
    /// of two; 1: none.
    pub fault_around: u64,
    /// Compaction.
    pub compacting: Compacting,
    /// The daemon.
    pub khugepaged: Khugepaged,
    /// How the daemon chooses blocks.
    pub promoter: Promoter,
    /// Where regions are placed in memory; `None`: each frame where the allocator likes.
    pub placing: Option<Placing>,
    /// A daemon that moves pages side by side; `None`: none does.
    pub ranger: Option<Ranger>,
}

impl Thp {
    /// Knobs as the kernel boots with, for these orders.
    pub const fn new(always: u32, madvise: u32, khugepaged: Khugepaged) -> Thp {
        Thp {
            always,
            madvise,
            faults: true,
            defrag: Defrag::Madvise,
            use_zero_page: true,
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
        if region.backing != Backing::Anonymous {
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

/// What madvise has said of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    None,
    Huge,
    NoHuge,
}

/// A module that asks for base pages is advice against large ones.
pub(crate) fn advice(region: &Region, base: PageSize) -> Advice {
    match region.module.page_size {
        None => Advice::None,
        Some(size) if size > base => Advice::Huge,
        Some(_) => Advice::NoHuge,
    }
}

/// How hard a fault tries for a block of frames (the knob `defrag`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Defrag {
    /// It has pages leave and compacts memory, everywhere.
    Always,
    /// It wakes the daemons and goes on with base pages.
    Defer,
    /// As `Always` where advice asks for large pages, elsewhere as `Defer`.
    DeferMadvise,
    /// As `Always` where advice asks for large pages, elsewhere not at all.
    #[default]
    Madvise,
    /// Not at all.
    Never,
}

/// What a fault does where no block is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effort {
    /// Nothing.
    None,
    /// It wakes the daemons.
    Wake,
    /// It compacts by itself; where advice asks for large pages more than once.
    Direct { again: bool },
}

impl Defrag {
    /// (`vma_thp_gfp_mask`.)
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
