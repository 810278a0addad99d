//! Settings of contiguity-aware placement.

/// Settings of contiguity-aware placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placing {
    /// The largest number of offsets of a region.
    pub offsets_max: usize,
    /// log2 of the number of base frames per block. Runs of free memory consist of whole blocks.
    pub order: u32,
}

impl Default for Placing {
    fn default() -> Placing {
        Placing { offsets_max: 64, order: 10 }
    }
}
