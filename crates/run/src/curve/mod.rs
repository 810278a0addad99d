//! The LRU curve of a trace: misses of fully associative LRU TLBs of every size, in one pass.
//!
//! ```text
//!   access --> its 4K page --same as the last?--> a hit in every TLB of every page size
//!                  | no
//!                  v
//!              LRU stack of 4K pages --> depth: a hit for all sizes above it
//!                  |
//!                  v
//!              its 16K page --same as the last?--> a hit for 16K and all larger ones
//!                  | no                                          ... up to 1G
//! ```
//!
//! A curve needs no description of a machine: it is for one TLB with one page size, and without a
//! second level. Equal addresses in different spaces are different pages, as with address-space
//! identifiers. Pages that the operating system unmaps are not flushed.

mod chain;
mod sampled;

use addr::{Kind, PageSize};
use description::Error;
use trace::{Batch, Source};

use crate::run::Progress;
use chain::Chain;
pub use sampled::{Gaps, PAGES_MAX, PAGES_MIN, Sampled, SampledCurve, Windows};

/// The accesses that are looked up in the TLB of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookups {
    /// Loads and stores.
    Data,
    /// Fetches.
    Fetch,
    /// Every access.
    All,
}

impl Lookups {
    /// All kinds of lookups.
    pub const ALL: [Lookups; 3] = [Lookups::Data, Lookups::Fetch, Lookups::All];

    /// The name in options and results.
    pub const fn name(self) -> &'static str {
        match self {
            Lookups::Data => "data",
            Lookups::Fetch => "fetch",
            Lookups::All => "all",
        }
    }

    /// Whether accesses of `kind` are looked up.
    pub const fn include(self, kind: Kind) -> bool {
        match self {
            Lookups::Data => !matches!(kind, Kind::Fetch),
            Lookups::Fetch => matches!(kind, Kind::Fetch),
            Lookups::All => true,
        }
    }
}

/// The options of curves: which lookups are counted.
#[derive(Clone, Debug)]
pub struct CurveOptions {
    /// The kinds of lookups. There is a curve for each kind of lookup with each page size.
    pub lookups: Vec<Lookups>,
    /// The page sizes, in any order, 4 KiB or larger.
    pub page_sizes: Vec<PageSize>,
    /// The number of entries of the largest TLB.
    pub entries_max: u32,
}

/// The smallest page size of a curve.
pub const PAGE_SIZE_MIN: PageSize = PageSize::SIZE_4K;

/// The largest number of entries of a curve.
pub const ENTRIES_MAX: u32 = 1 << 22;

/// The numbers of lookups by the number of entries of the smallest fully associative LRU TLB in
/// which the lookups hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Curve {
    /// The accesses that are looked up.
    pub lookups: Lookups,
    /// The size of all pages.
    pub page_size: PageSize,
    /// The number of lookups. An access that touches two pages is two lookups.
    pub total: u64,
    /// The number of first lookups of a page, which miss in a TLB of any size.
    pub cold: u64,
    /// At index i, the number of lookups that hit in a TLB of i + 1 entries and in no smaller TLB.
    pub hits: Vec<u64>,
}

impl Curve {
    /// The misses of TLBs of 1, 2, 3, ... entries.
    pub fn misses(&self) -> impl Iterator<Item = u64> {
        self.hits.iter().scan(self.total, |misses, hits| {
            *misses -= hits;
            Some(*misses)
        })
    }
}

/// Counts the lookups of the whole trace `source`. Returns the curves in the order of the options,
/// with all page sizes of the first kind of lookup first.
pub fn curve(
    source: &mut dyn Source,
    options: &CurveOptions,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<Vec<Curve>, Error> {
    check(options)?;
    let mut chains: Vec<Chain> =
        options.lookups.iter().map(|&lookups| Chain::new(lookups, options)).collect();
    let mut batch = Batch::default();
    let mut accesses = 0;
    while source.next(&mut batch)? {
        for chain in &mut chains {
            chain.batch(&batch)?;
        }
        accesses += batch.len() as u64;
        if !progress(Progress { accesses, total: source.total() }) {
            return Err(Error::Interrupted);
        }
    }
    Ok(chains.into_iter().flat_map(|chain| chain.finish(&options.page_sizes)).collect())
}

fn check(options: &CurveOptions) -> Result<(), Error> {
    if let Some(small) = options.page_sizes.iter().find(|&&size| size < PAGE_SIZE_MIN) {
        return Err(Error::Curve(format!(
            "a page of {small} is too small for a curve: write {PAGE_SIZE_MIN} or more"
        )));
    }
    if options.entries_max == 0 || options.entries_max > ENTRIES_MAX {
        let entries = options.entries_max;
        return Err(Error::Curve(format!(
            "a curve of TLBs with up to {entries} entries is not possible: write 1 to \
             {ENTRIES_MAX}"
        )));
    }
    Ok(())
}
