//! Hits and misses of a run by TLB, kind of access, page size and region.
//!
//! Counting a hit must cost next to nothing. So each hit is counted in the TLB entry that was hit;
//! the entry also has the label of its region. When the entry is evicted or flushed, or the run
//! ends, its hits are added up:
//!
//! ```text
//!   hit  -> entry.hits[kind] += 1                          every access
//!   fill -> an entry is evicted: its hits are added to its TLB, page size and region
//!   miss -> counted at once, as misses are rare
//! ```
//!
//! A superpage that spans several regions has no single owner: its entry has the label
//! [`SHARED`], and each of its hits is attributed to a region by its address.

use std::collections::BTreeMap;

use addr::{Kind, PageSize};
use mmu::Evicted;

use crate::{HitsAndMisses, SizeCounts};

/// The label of an entry whose page spans several regions.
pub const SHARED: u32 = u32::MAX;

/// The label of an entry for a page of the page table itself.
pub const TABLES: u32 = u32::MAX - 1;

/// Counts of one TLB.
#[derive(Clone, Debug, Default)]
pub struct TlbCensus {
    pub hits: [u64; Kind::COUNT],
    pub misses: [u64; Kind::COUNT],
    pub cold_misses: u64,
    /// Misses that found an entry which forbids the access.
    pub denied: u64,
    /// Misses that found a paired entry without a frame for the page.
    pub invalid: u64,
    pub evictions: u64,
    pub flushed: u64,
    /// Entries removed because they forbade an access.
    pub dropped: u64,
    /// Lookups of pages of the page table, by loads.
    pub table_lookups: u64,
    /// Lookups of pages of the page table that found a paired entry without a frame for the page.
    pub table_invalid: u64,
    /// Hits on entries with the label [`TABLES`].
    pub table_hits: u64,
    sizes: Vec<(PageSize, SizeCounts)>,
}

impl TlbCensus {
    #[inline]
    fn size(&mut self, size: PageSize) -> &mut SizeCounts {
        let index = match self.sizes.iter().position(|(known, _)| *known == size) {
            Some(index) => index,
            None => {
                self.sizes.push((size, SizeCounts::default()));
                self.sizes.len() - 1
            }
        };
        &mut self.sizes[index].1
    }

    /// Counts a miss after which an entry of the page size `size` was filled.
    #[inline]
    pub fn missed(&mut self, kind: Kind, size: PageSize, cold: bool) {
        self.misses[kind as usize] += 1;
        self.cold_misses += u64::from(cold);
        self.size(size).misses += 1;
    }

    pub fn of_kind(&self, kind: Kind) -> HitsAndMisses {
        let (hits, misses) = (self.hits[kind as usize], self.misses[kind as usize]);
        HitsAndMisses { lookups: hits + misses, hits, misses }
    }

    pub fn by_page_size(&self) -> BTreeMap<String, SizeCounts> {
        self.sizes.iter().map(|(size, counts)| (size.to_string(), *counts)).collect()
    }
}

/// Counts of one region.
#[derive(Clone, Debug, Default)]
pub struct RegionCensus {
    pub hits: [u64; Kind::COUNT],
    pub l1_misses: [u64; Kind::COUNT],
    pub misses: u64,
    pub cold_misses: u64,
    pub pages: u64,
    /// Cycles of lookups for pages of a linear page table itself.
    pub table_cycles: u64,
}

/// The counts of a run by region, summed over all processors.
#[derive(Clone, Debug, Default)]
pub struct Census {
    regions: Vec<RegionCensus>,
}

impl Census {
    /// Adds the hits of a TLB entry to its region and to `census`, the counts of its TLB.
    #[inline]
    pub fn collect(&mut self, census: &mut TlbCensus, first_level: bool, evicted: &Evicted) {
        let hits: u64 = evicted.hits.iter().sum();
        if evicted.label == TABLES {
            census.table_hits += hits;
            return;
        }
        census.size(evicted.page.size()).hits += hits;
        if hits > 0 {
            self.collect_hits(census, first_level, evicted);
        }
    }

    /// Adds the hits of an entry by kind and region. If misses are frequent, most evicted entries
    /// have no hits.
    #[inline(never)]
    fn collect_hits(&mut self, census: &mut TlbCensus, first_level: bool, evicted: &Evicted) {
        for (sum, hits) in census.hits.iter_mut().zip(evicted.hits) {
            *sum += hits;
        }
        if first_level && evicted.label != SHARED {
            let region = self.region(evicted.label);
            for (sum, hits) in region.hits.iter_mut().zip(evicted.hits) {
                *sum += hits;
            }
        }
    }

    /// Sets all counts to zero, except the pages of regions, which are still mapped.
    pub fn forget_counts(&mut self) {
        for region in &mut self.regions {
            *region = RegionCensus { pages: region.pages, ..RegionCensus::default() };
        }
    }

    /// Cycles of lookups for pages of the page table itself.
    pub fn table_cycles(&self) -> u64 {
        self.regions.iter().map(|region| region.table_cycles).sum()
    }

    /// The counts of the region with the label `label`.
    #[inline]
    pub fn region(&mut self, label: u32) -> &mut RegionCensus {
        let index = label as usize;
        if self.regions.len() <= index {
            self.regions.resize(index + 1, RegionCensus::default());
        }
        &mut self.regions[index]
    }
}
