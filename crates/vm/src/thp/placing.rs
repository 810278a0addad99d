//! Where regions are placed in memory.

/// Where regions are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placing {
    /// The most offsets that a region has.
    pub offsets_max: usize,
    /// log2 of the base frames of the blocks that runs consist of.
    pub order: u32,
}

impl Default for Placing {
    fn default() -> Placing {
        Placing { offsets_max: 64, order: 10 }
    }
}
