//! Accesses to items of 64 bytes, of which few are popular: the item of rank k is accessed with a
//! probability proportional to k^-exponent. Popular items are scattered over the region, as in a
//! hash table.

use rand_distr::{Distribution, Zipf};

use super::permutation::Permutation;
use super::{Chance, Fill, Metas, Region, Rng, Xoshiro256PlusPlus};
use crate::Batch;

/// The size of an item in bytes: a cache line.
pub(super) const ITEM_BYTES: u64 = 64;

pub(super) struct Zipfian {
    pub(super) region: Region,
    pub(super) ranks: Zipf<f64>,
    pub(super) order: Permutation,
    pub(super) stores: Chance,
    pub(super) metas: Metas,
    pub(super) random: Xoshiro256PlusPlus,
}

impl Fill for Zipfian {
    fn fill(&mut self, count: usize, batch: &mut Batch) {
        let Batch { addr, meta, .. } = batch;
        for _ in 0..count {
            let rank = self.ranks.sample(&mut self.random) as u64;
            let item = self.order.apply(rank.clamp(1, self.order.len()) - 1);
            addr.push(self.region.start + item * ITEM_BYTES);
            meta.push(self.metas.of(self.stores.falls(self.random.next_u64())));
        }
    }
}
