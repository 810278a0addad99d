//! Each access is to a random 8-byte word of a region; all words have equal probability.

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
