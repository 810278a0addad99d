use alloc::collections::BTreeMap;

use addr::PageSize;

use crate::{
    region::{Backing, Region},
    sorted::SortedMap,
};

/// How a fault was handled, in the order of increasing effort.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum How {
    /// The page was in memory and already belonged to the space or object: only the translation was
    /// missing.
    Minor,
    /// The translation existed but did not allow a store, and now allows it. Either the space was
    /// the last of several users of the page, or it was the first store to a clean page of a shared
    /// file.
    Write,
    /// The page was in memory because the file had been read before.
    Cache,
    /// The shared page of zeros was mapped.
    ZeroPage,
    /// A frame was filled with zeros.
    Zero,
    /// A page that other spaces still use was copied.
    Copy,
    /// The page was read from its file.
    Disk,
    /// The page was read from swap.
    Swap,
}

impl How {
    /// All ways of handling, in their order.
    pub const ALL: [How; 8] = [
        How::Minor,
        How::Write,
        How::Cache,
        How::ZeroPage,
        How::Zero,
        How::Copy,
        How::Disk,
        How::Swap,
    ];

    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            How::Minor => "minor",
            How::Write => "write",
            How::Cache => "cache",
            How::ZeroPage => "zero-page",
            How::Zero => "zero",
            How::Copy => "copy",
            How::Disk => "disk",
            How::Swap => "swap",
        }
    }
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $reason:ident $name:literal)*) => {
        /// Why a loaded page has its size. Every page that is loaded at a fault has one of these
        /// reasons.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Why { $($(#[$doc])* $reason),* }

        impl Why {
            /// All reasons, in their order.
            pub const ALL: [Why; [$($name),*].len()] = [$(Why::$reason),*];

            /// The name in results.
            pub const fn name(self) -> &'static str {
                match self { $(Why::$reason => $name),* }
            }
        }
    };
}

reasons! {
    /// The page has the requested size.
    Obtained "obtained"
    /// The policy requests base pages at this address.
    PolicyAsksBase "policy-asks-base"
    /// The object has no aligned page of the size that corresponds to this address.
    Unaligned "unaligned"
    /// The region does not contain the whole page.
    RegionTooSmall "region-too-small"
    /// Parts of the page have different rights.
    MixedRights "mixed-rights"
    /// A page of another size is mapped at the address already.
    OtherSizePresent "other-size-present"
    /// The other page of the TLB's pair has another size (G98 section 3).
    PairRule "pair-rule"
    /// Parts of the page are in the page cache already, in frames that do not form a large page.
    InPageCache "in-page-cache"
    /// Parts of the page are in memory already as the space's own, in frames that do not form a large
    /// page.
    BasePages "base-pages-present"
    /// No part of the page is in memory, but a page table is in its place: base pages were mapped
    /// there, and their block was not unmapped or discarded as a whole.
    TableKept "table-kept"
    /// Other spaces use parts of the page.
    Shared "shared"
    /// No frame of the size is free.
    NoFrame "no-frame"
    /// No frame became free in the time that the process was willing to wait.
    WaitTimedOut "wait-timed-out"
    /// Parts of the page are in swap: only the needed part is read.
    InSwap "in-swap"
    /// Memory is scarce: a page of the size would leave fewer frames free than the high mark.
    Scarce "scarce"
    /// The allowed amount of memory is already in pages of the size.
    Watermark "watermark"
    /// A part of the page is wired in its present frame.
    Wired "wired"
    /// Too many of the block's base pages are unmapped (khugepaged's `max_ptes_none`).
    ExceedNonePte "exceed-none-pte"
    /// Too many of the block's base pages are in swap (`max_ptes_swap`).
    ExceedSwapPte "exceed-swap-pte"
    /// Too many of the block's base pages are shared (`max_ptes_shared`).
    ExceedSharedPte "exceed-shared-pte"
    /// None of the block's base pages was used recently.
    LackReferencedPage "lack-referenced-page"
    /// The pool of reserved large pages has no page that is not promised (on Linux the process
    /// would get `SIGBUS`).
    PoolEmpty "pool-empty"
}

impl Why {
    /// Why a block of `region` cannot be a large page if parts of it are in memory in frames that do
    /// not form a large page.
    pub(crate) const fn missing(region: &Region) -> Why {
        match region.backing {
            Backing::Anonymous => Why::BasePages,
            Backing::Private { .. } | Backing::Shared { .. } | Backing::Frames { .. } => {
                Why::InPageCache
            }
        }
    }
}

/// The decision about the size of a page loaded at a fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Decision {
    /// The requested size.
    pub wanted: PageSize,
    /// The size of the loaded page.
    pub got: PageSize,
    /// The reason why the page does not have the requested size, or [`Why::Obtained`].
    pub why: Why,
}

macro_rules! work {
    ($($(#[$doc:meta])* $field:ident)*) => {
        /// Counts of the manager's work, in units that can have a price.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Work { $($(#[$doc])* pub $field: u64),* }

        impl Work {
            /// Each count with its name in results.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }

            /// Adds the counts of `more`.
            pub(crate) fn add(&mut self, more: &Work) {
                $(self.$field += more.$field;)*
            }
        }
    };
}

work! {
    /// Page faults.
    traps
    /// System calls: mappings created, changed or removed, processes created and ended.
    calls
    /// Searches for the region of an address.
    region_lookups
    /// Searches for a page of an object.
    object_lookups
    /// Base frames allocated for pages and page tables.
    frames_taken
    /// Base frames of pages and page tables freed.
    frames_given
    /// Page-frame descriptors read or changed by page replacement.
    descriptors
    /// Page-table entries read.
    table_reads
    /// Page-table entries written.
    table_writes
    /// Nodes of mapping lists inserted, removed or read.
    mappings
    /// Shootdowns, whatever the number of flushed entries.
    shootdowns
    /// Base frames filled with zeros.
    zeroed
    /// Base frames copied.
    copied
    /// Free base frames that a daemon has filled with zeros in advance.
    zeroed_ahead
    /// Base frames filled in advance that were used at faults, which therefore did not fill them.
    prezeroed
    /// Pages of files that were loaded in addition to the one that a fault needed.
    around
    /// Searches for a place in memory for a region.
    places
    /// Pages that got a frame allowed by their address.
    hashed
    /// Pages that got a frame in a back yard; they are also counted in `hashed`.
    hashed_back
    /// Pages for which no frame allowed by their address was free.
    unhashed
    /// Base pages moved to another frame.
    migrations
    /// Large pages split.
    downgrades
    /// Large pages made of smaller pages.
    upgrades
    /// The number of times that the coalescing daemon joined free frames into a larger free page.
    joins
    /// Chunks of memory examined by the coalescing daemon.
    chunks_scanned
    /// Faults that waited for a large page.
    waits
    /// Large pages evicted as a whole.
    large_out
    /// Pages read from swap or a file.
    reads
    /// Pages written to swap or a file.
    writes
}

/// Counts of faults and of decisions about page sizes.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) work: Work,
    pub(crate) faults: [u64; How::ALL.len()],
    decisions: SortedMap<Decision, u64>,
    /// The latest decision, and the number of pages loaded under it in a row. These pages are not
    /// in the map yet.
    last: Option<(Decision, u64)>,
    /// The outcomes of upgrades.
    pub(crate) upgrades: BTreeMap<Decision, u64>,
}

impl Counts {
    /// Adds a decision and the number of pages loaded under it.
    #[inline]
    pub(crate) fn decided(&mut self, decided: Option<(Decision, u64)>) {
        let Some((decision, pages)) = decided else { return };
        match &mut self.last {
            Some((last, all)) if *last == decision => *all += pages,
            last => {
                if let Some((before, pages)) = last.replace((decision, pages)) {
                    let all = self.decisions.get(&before).copied().unwrap_or(0);
                    // If there is no memory for the entry, only this count is lost.
                    let _ = self.decisions.insert(before, all + pages);
                }
            }
        }
    }

    /// The number of pages for each decision.
    pub(crate) fn decisions(&self) -> BTreeMap<Decision, u64> {
        let known = self.decisions.iter();
        let mut all: BTreeMap<_, _> = known.map(|(decision, pages)| (decision, *pages)).collect();
        if let Some((decision, pages)) = self.last {
            *all.entry(decision).or_insert(0) += pages;
        }
        all
    }
}
