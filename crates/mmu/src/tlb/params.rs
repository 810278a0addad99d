use addr::PageSize;

use super::BlockParams;
use crate::{GeometryError, Policy, SetArray};

/// The parameters of a TLB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlbParams {
    /// The arrays. If there are several, for example one per page size, they are looked up in
    /// parallel.
    pub arrays: Vec<ArrayParams>,
    /// Whether an entry maps two adjacent pages of one size under one tag.
    pub paired: bool,
    /// Whether, and how, an entry can map several pages of the smallest size.
    pub blocks: Option<BlockParams>,
}

/// The parameters of one array of a TLB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayParams {
    /// The page sizes that the array holds. No two arrays of a TLB may hold the same size.
    pub page_sizes: Vec<PageSize>,
    /// The number of entries; an entry for a pair counts as one.
    pub entries: u32,
    /// The number of ways per set. If equal to `entries`, the array is fully associative; if 1,
    /// direct mapped.
    pub ways: u32,
    /// The policy that chooses the entry to replace in a full set.
    pub replacement: Policy,
    /// The seed of [`Policy::Random`]. If all arrays of a TLB have the same policy, they draw from
    /// one sequence with the first array's seed.
    pub seed: u64,
}

impl TlbParams {
    /// The smallest page size that the TLB holds.
    pub(super) fn smallest_page_size(&self) -> Result<PageSize, GeometryError> {
        let sizes = self.arrays.iter().flat_map(|array| &array.page_sizes);
        sizes.min().copied().ok_or(GeometryError::NoPageSizes)
    }

    /// The sets of every array, in order, or why the TLB cannot be built.
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
