//! The number of tag and data bits per entry (B10 table 4.1).
//!
//! ```text
//!   p: bits of a physical address    page-table cache   tag p - log2(entry), data p - log2(table)
//!   n: bits of an index              translation cache  tag n, 2n, ..        data p - log2(table)
//!                                    path cache         tag of all indices,  data 1 table per level
//! ```
//!
//! As in the thesis, some bits are not included: ASIDs, valid bits, and the field that gives the
//! number of compared bits of a unified tag.

use super::{Design, WalkCacheParams};

/// One array, with the number of bits of each entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayBits {
    /// The level whose entries the array holds; 0 for all levels.
    pub level: u8,
    /// The number of entries.
    pub entries: u32,
    /// The number of tag bits, which are compared.
    pub tag_bits: u32,
    /// The number of data bits.
    pub data_bits: u32,
}

impl WalkCacheParams {
    /// The bits of each array, if physical addresses have `physical_bits` bits. `None` for a tree
    /// whose prefixes can have any length.
    pub fn bits(&self, physical_bits: u32) -> Option<Vec<ArrayBits>> {
        let tree = &self.tree;
        let spans = tree.spans.as_deref()?;
        let base = physical_bits - u32::from(tree.table_shift);
        let prefix_bits = |level: u8| {
            let span = spans.get(usize::from(level).checked_sub(2)?)?;
            Some(u32::from(tree.address_bits - span))
        };
        let longest = spans.first().map_or(0, |span| u32::from(tree.address_bits - span));
        let of_array = |array: &super::WalkArray| {
            let (tag_bits, data_bits) = match self.design {
                Design::Uptc | Design::Sptc => (physical_bits - u32::from(tree.entry_shift), base),
                Design::Utc => (longest, base),
                Design::Stc => (prefix_bits(array.level)?, base),
                Design::Tpc => (longest, base * spans.len() as u32),
            };
            Some(ArrayBits { level: array.level, entries: array.entries, tag_bits, data_bits })
        };
        self.arrays.iter().map(of_array).collect()
    }

    /// The largest number of searches of a translation cache per walk: one per level, or one if
    /// prefixes can have any length.
    pub(super) fn searches_max(&self) -> u8 {
        if self.tree.spans.is_some() { self.tree.levels - 1 } else { 1 }
    }
}
