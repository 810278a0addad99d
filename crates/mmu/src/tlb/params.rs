use addr::PageSize;

use super::BlockParams;
use crate::{GeometryError, Policy, SetArray};

/// The shape of a TLB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlbParams {
    /// Its arrays. Several are looked up together, as where each page size has its own.
    pub arrays: Vec<ArrayParams>,
    /// Whether an entry maps two adjacent pages of one size under one tag.
    pub paired: bool,
    /// Whether an entry can map several pages of the smallest size, and how.
    pub blocks: Option<BlockParams>,
}

/// The shape of one array of a TLB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayParams {
    /// The page sizes that it holds. No other array of the TLB may hold one of them.
    pub page_sizes: Vec<PageSize>,
    /// Entries; a pair counts as one.
    pub entries: u32,
    /// Ways of a set. As many as `entries`: fully associative; 1: direct mapped.
    pub ways: u32,
    /// Which entry of a full set goes.
    pub replacement: Policy,
    /// Start of the sequence of [`Policy::Random`]. Where all arrays of a TLB have one policy,
    /// they draw from one sequence, started by the first array's seed.
    pub seed: u64,
}

impl TlbParams {
    /// The smallest page size that the TLB holds.
    pub(super) fn smallest_page_size(&self) -> Result<PageSize, GeometryError> {
        let sizes = self.arrays.iter().flat_map(|array| &array.page_sizes);
        sizes.min().copied().ok_or(GeometryError::NoPageSizes)
    }

    /// The sets of every array, in order, or why there can be no such TLB.
    pub(super) fn check(&self) -> Result<Vec<SetArray>, GeometryError> {
        if self.arrays.is_empty() {
            return Err(GeometryError::NoArrays);
        }
        if let Some(blocks) = self.blocks {
            if self.paired {
                return Err(GeometryError::PairsAndBlocks);
            }
            if !blocks.pages.is_power_of_two()
                || !(2..=BlockParams::PAGES_MAX).contains(&blocks.pages)
            {
                return Err(GeometryError::BlockPages { pages: blocks.pages });
            }
        }
        let mut seen = 0u64;
        let mut entries = 0;
        for array in &self.arrays {
            if array.page_sizes.is_empty() {
                return Err(GeometryError::NoPageSizes);
            }
            for size in &array.page_sizes {
                if seen >> size.shift() & 1 != 0 {
                    return Err(GeometryError::PageSizeTwice(*size));
                }
                seen |= 1 << size.shift();
            }
            entries += u64::from(array.entries);
        }
        if entries > SetArray::ENTRIES_MAX {
            return Err(GeometryError::TooLarge { entries });
        }
        self.arrays.iter().map(|array| SetArray::new(array.entries.into(), array.ways)).collect()
    }
}
