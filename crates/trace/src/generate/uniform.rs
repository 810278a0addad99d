//! All 8-byte words of a region have the same probability, independently for each access.

use super::{ACCESS_BYTES, Chance, Fill, Metas, Region, Rng, Xoshiro256PlusPlus, below};
use crate::Batch;

pub(super) struct Uniform {
    pub(super) region: Region,
    pub(super) stores: Chance,
    pub(super) metas: Metas,
    pub(super) random: Xoshiro256PlusPlus,
}

impl Fill for Uniform {
    fn fill(&mut self, count: usize, batch: &mut Batch) {
        let Batch { addr, meta, .. } = batch;
        let words = self.region.bytes / ACCESS_BYTES;
        let bits = (0..count).map(|_| self.random.next_u64());
        for bits in bits {
            addr.push(self.region.start + below(words, bits) * ACCESS_BYTES);
            meta.push(self.metas.of(self.stores.falls(bits)));
        }
    }
}
