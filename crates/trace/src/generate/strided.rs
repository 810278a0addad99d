//! Accesses at a constant distance from each other. After the end of the region, the accesses
//! continue at its beginning.

use super::{Chance, Fill, Metas, Region, Rng, Xoshiro256PlusPlus};
use crate::Batch;

pub(super) struct Strided {
    pub(super) region: Region,
    pub(super) stride_bytes: u64,
    /// The offset of the next access.
    pub(super) offset: u64,
    pub(super) stores: Chance,
    pub(super) metas: Metas,
    pub(super) random: Xoshiro256PlusPlus,
}

impl Fill for Strided {
    fn fill(&mut self, count: usize, batch: &mut Batch) {
        let Batch { addr, meta, .. } = batch;
        for _ in 0..count {
            addr.push(self.region.start + self.offset);
            meta.push(self.metas.of(self.stores.falls(self.random.next_u64())));
            self.offset += self.stride_bytes;
            if self.offset >= self.region.bytes {
                self.offset -= self.region.bytes;
            }
        }
    }
}
