use alloc::collections::BTreeMap;

use addr::PageSize;

use crate::region::{Backing, Region};

/// How a fault was answered. In the order of what it took, least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum How {
    /// The page was in memory and its owner had it: only the translation was missing.
    Minor,
    /// The translation was there and did not allow a store, which it does now: the last of
    /// several owners of a page, or the first store to a clean page of a shared file.
    Write,
    /// The page was in memory because a file's page had been read before.
    Cache,
    /// The page of zeros that all share.
    ZeroPage,
    /// A frame of zeros.
    Zero,
    /// A copy of a page that others go on using.
    Copy,
    /// The page was read from its file.
    Disk,
    /// The page was read from swap.
    Swap,
}

impl How {
    /// All of them, in their order.
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

    /// Its name in results.
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
        /// Why a page that was loaded has the size that it has. One of them for each page that is
        /// loaded at a fault.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Why { $($(#[$doc])* $reason),* }

        impl Why {
            /// All of them, in their order.
            pub const ALL: [Why; [$($name),*].len()] = [$(Why::$reason),*];

            /// Its name in results.
            pub const fn name(self) -> &'static str {
                match self { $(Why::$reason => $name),* }
            }
        }
    };
}

reasons! {
    /// The size that was wanted was got.
    Obtained "obtained"
    /// The policy wants base pages here.
    PolicyAsksBase "policy-asks-base"
    /// No page of the size lies aligned at this address in its object.
    Unaligned "unaligned"
    /// The region ends before the page does.
    RegionTooSmall "region-too-small"
    /// Parts of the page have different rights.
    MixedRights "mixed-rights"
    /// A page of another size is in its place already.
    OtherSizePresent "other-size-present"
    /// The other page of the TLB's pair has another size (G98 section 3).
    PairRule "pair-rule"
    /// Parts of the page are in the page cache already, in frames that make no large page.
    InPageCache "in-page-cache"
    /// Parts of the page are in memory already as the space's own, in frames that make no large page.
    BasePages "base-pages-present"
    /// Nothing of the page is there, but a page table is in its place: base pages were there, and their block
    /// was not unmapped or discarded as a whole.
    TableKept "table-kept"
    /// Other spaces use parts of the page.
    Shared "shared"
    /// No frame of the size is free.
    NoFrame "no-frame"
    /// None became free in the time that the process would wait.
    WaitTimedOut "wait-timed-out"
    /// Parts of the page are in swap: only the one that is needed comes back.
    InSwap "in-swap"
    /// Memory is scarce: a page of the size would leave fewer frames free than the high mark.
    Scarce "scarce"
    /// As much memory as there may be is in pages of the size.
    Watermark "watermark"
    /// A part of the page is wired where it is.
    Wired "wired"
    /// Too many of its base pages are not there (khugepaged's `max_ptes_none`) ...
    ExceedNonePte "exceed-none-pte"
    /// ... are in swap (`max_ptes_swap`) ...
    ExceedSwapPte "exceed-swap-pte"
    /// ... or are shared (`max_ptes_shared`).
    ExceedSharedPte "exceed-shared-pte"
    /// None of its base pages was used lately.
    LackReferencedPage "lack-referenced-page"
}

impl Why {
    /// Why a block of `region` is no large page where parts of it are in memory, in other frames than a
    /// large page would have.
    pub(crate) const fn missing(region: &Region) -> Why {
        match region.backing {
            Backing::Anonymous => Why::BasePages,
            Backing::Private { .. } | Backing::Shared { .. } => Why::InPageCache,
        }
    }
}

/// Pages that were loaded at faults, by what was decided about their size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Decision {
    /// The size that was wished.
    pub wanted: PageSize,
    /// The size that they have.
    pub got: PageSize,
    /// Why it is not the one that was wished, or that it is.
    pub why: Why,
}

macro_rules! work {
    ($($(#[$doc:meta])* $field:ident)*) => {
        /// What the kernel has done, in units that a price can be put on.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Work { $($(#[$doc])* pub $field: u64),* }

        impl Work {
            /// Each count with its name in results.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }

            /// Adds each count of another.
            pub(crate) fn add(&mut self, more: &Work) {
                $(self.$field += more.$field;)*
            }
        }
    };
}

work! {
    /// Faults that were taken.
    traps
    /// Calls of processes: mappings made, changed or removed, processes begun and ended.
    calls
    /// Searches for the region of an address.
    region_lookups
    /// Searches for a page of an object.
    object_lookups
    /// Base frames taken for pages and page tables ...
    frames_taken
    /// ... and given back.
    frames_given
    /// Page-frame descriptors looked at or changed by the replacement of pages.
    descriptors
    /// Entries of page tables read ...
    table_reads
    /// ... and written.
    table_writes
    /// Nodes of mapping lists entered, removed or looked at.
    mappings
    /// Shootdowns, whatever they named.
    shootdowns
    /// Base frames filled with zeros.
    zeroed
    /// Base frames copied.
    copied
    /// Free base frames that a daemon has filled with zeros ahead ...
    zeroed_ahead
    /// ... and such frames that a fault got, and had not to fill.
    prezeroed
    /// Pages of files that were loaded around one that a fault needed.
    around
    /// Searches for a place in memory for a region.
    places
    /// Pages that got a frame which their address allows ...
    hashed
    /// ... of these, in a back yard ...
    hashed_back
    /// ... and pages for which no such frame was free.
    unhashed
    /// Base pages moved to other frames.
    migrations
    /// Large pages made smaller ...
    downgrades
    /// ... and pages made larger.
    upgrades
    /// Free frames joined into a larger free page by the coalescing daemon.
    joins
    /// Chunks of memory that the coalescing daemon has looked at.
    chunks_scanned
    /// Faults that waited for a large page.
    waits
    /// Large pages that left memory as a whole.
    large_out
    /// Pages read from swap or a file ...
    reads
    /// ... and written to them.
    writes
}

/// What was counted.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) work: Work,
    pub(crate) faults: [u64; How::ALL.len()],
    decisions: BTreeMap<Decision, u64>,
    /// What was decided last, and how often in a row: not in the map yet.
    last: Option<(Decision, u64)>,
    /// What upgrades came to.
    pub(crate) upgrades: BTreeMap<Decision, u64>,
}

impl Counts {
    /// So many pages more were loaded so.
    #[inline]
    pub(crate) fn decided(&mut self, decided: Option<(Decision, u64)>) {
        let Some((decision, pages)) = decided else { return };
        match &mut self.last {
            Some((last, all)) if *last == decision => *all += pages,
            last => {
                if let Some((before, pages)) = last.replace((decision, pages)) {
                    *self.decisions.entry(before).or_insert(0) += pages;
                }
            }
        }
    }

    /// Pages by what was decided.
    pub(crate) fn decisions(&self) -> BTreeMap<Decision, u64> {
        let mut all = self.decisions.clone();
        if let Some((decision, pages)) = self.last {
            *all.entry(decision).or_insert(0) += pages;
        }
        all
    }
}
