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
/// with nodes of two entries, with 52 steps each. A miss has at most two of these walks: a walk
/// which finds that the access is denied, and another walk after the right was granted.
pub type Steps = u128;

impl Walker {
    /// Counts `times` misses like this one. The steps of a miss are the entries that lead to
    /// tables, in the order in which its walks read them from the root down. The MMU cache held the
    /// steps in `spared`, or let the walks skip them.
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
        // These searches only prepare the cache and are not part of a walk, so they cost no time.
        self.searches_timed += self.cache.searches() - searches;
        spared
    }
}
