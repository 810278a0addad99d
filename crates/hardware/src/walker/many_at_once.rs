//! Counts misses with a known outcome, many at once.

use mmu::WalkCache;
use pagetable::Reference;
use ram::walk::{Walk, Way};

use super::{Dimension, Walker};
use crate::behind::Refill;

/// A complete miss.
#[derive(Debug)]
pub struct Miss {
    /// The processor that missed.
    pub processor: usize,
    pub walks: Vec<WalkMade>,
    /// The references of all its walks.
    pub references: Vec<Reference>,
    pub refill: Refill,
}

/// A walk, and the number of references on its complete path.
#[derive(Clone, Copy, Debug)]
pub struct WalkMade {
    pub walk: Walk,
    pub references: usize,
}

/// A bit mask of the steps of all walks of a miss. The longest walks are those of a guarded table
/// with nodes of two entries: 52 steps. A miss has at most two walks of this length: one that finds
/// that the access is denied, and one after the right has been granted.
pub type Steps = u128;

impl Walker {
    /// Counts `times` misses that equal `miss`. The steps of a miss are the entries that lead to
    /// tables, in all its walks, from the root down. `spared` has the steps that the MMU cache held
    /// or let the walks skip.
    ///
    /// The walker must have neither data caches nor a host; misses with equal steps then have equal
    /// counts.
    pub fn replay(&mut self, miss: &Miss, spared: Steps, times: u64) {
        self.dimension.times = times;
        let (mut references, mut spared) = (miss.references.as_slice(), spared);
        for made in &miss.walks {
            let own;
            (own, references) = references.split_at(made.references);
            spared = self.dimension.learn(&made.walk, own, spared);
            let walked =
                self.walk(&made.walk, Way { references: own, host: &[], host_references: &[] });
            debug_assert!(walked.is_ok(), "the MMU cache holds only nodes of this path");
        }
        self.refilled(miss.refill);
    }
}

impl Dimension {
    /// Makes the MMU cache hold exactly those of the steps of `walk` that are in `spared`. Returns
    /// the remaining bits, for the following steps.
    fn learn(&mut self, walk: &Walk, references: &[Reference], mut spared: Steps) -> Steps {
        let searches = self.cache.searches();
        self.cache.flush_all();
        self.cache.start(walk.va, walk.asid, walk.root);
        for reference in references.iter().filter(|reference| reference.next().is_some()) {
            if spared & 1 == 1 {
                self.cache.read(walk.va, walk.asid, reference);
            }
            spared >>= 1;
        }
        self.cache.finish(walk.va, walk.asid, true);
        // No walk made these searches, so their time is not counted.
        self.searches_timed += self.cache.searches() - searches;
        spared
    }
}
