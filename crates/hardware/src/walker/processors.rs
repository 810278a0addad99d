//! The walkers of all processors.
//!
//! ```text
//!   processor 0: MMU cache, l1i, l1d, l2 --\
//!                                           >-- l3 ---- memory
//!   processor 1: MMU cache, l1i, l1d, l2 --/
//! ```
//!
//! Each processor has a walker with its caches, except `l3`, which all processors share: `l3` is
//! moved to the running processor. Coherence is not modelled: a line that one processor has written
//! stays in the nearer caches of the other processors.

use addr::{Kind, PageSize, PhysAddr};
use description::{Description, Refusal};
use mmu::{Hierarchy, Spot};
use pagetable::{Node, Reference, TreeShape};
use ram::walk::{HostTable, Walk, Way};

use super::{RegionWalks, Speculator, Walker};
use crate::{
    behind::{Behind, Forget, Refill},
    in_turn::InTurn,
};

/// A walker for each processor.
pub type Walkers = InTurn<Walker>;

impl Walkers {
    /// The walkers in `description`. The error has the key that is wrong.
    pub fn build(
        description: &Description,
        sizes: &[PageSize],
        tree: Option<TreeShape>,
        host: Option<HostTable>,
    ) -> Result<Walkers, Refusal> {
        let walker =
            |processor| Walker::new(description, processor, sizes, tree.clone(), host.clone());
        let mut others = Vec::new();
        for processor in 1..description.core.count as usize {
            let mut other = walker(processor)?;
            other.port.caches.iter_mut().for_each(|caches| *caches.l3() = None);
            others.push(other);
        }
        Ok(InTurn::new(walker(0)?, others.into_iter()))
    }

    /// Counts the accesses that changed nothing in a cache in the counts of the caches. Must be
    /// called before counts are read.
    pub fn settle(&mut self) {
        self.for_each(Walker::settle);
    }

    /// Adds the predictors of `others`, the walkers of a design that differs only in its
    /// predictors.
    pub fn take_speculators(&mut self, mut others: Walkers) {
        for processor in 0..self.count() {
            let taken = std::mem::take(&mut others.of(processor).speculators);
            self.of(processor).speculators.extend(taken);
        }
    }

    /// Moves predictor number `number` to the front, so that its counts are reported.
    pub fn put_first(&mut self, number: usize) {
        self.for_each(|walker| {
            if number < walker.speculators.len() {
                walker.speculators.swap(0, number);
            }
        });
    }

    /// The counts of a region's walks.
    pub fn region(&self, label: u32) -> super::RegionWalks {
        let of_each = self.each().map(|walker| walker.region(label));
        of_each.fold(RegionWalks::default(), |sum, walks| RegionWalks {
            references: sum.references + walks.references,
            cycles: sum.cycles + walks.cycles,
        })
    }
}

impl Behind for Walkers {
    fn has_caches(&self) -> bool {
        self.here.port.caches.is_some()
    }

    fn speculates(&self) -> bool {
        self.here.speculates()
    }

    fn wants_runs(&self) -> bool {
        self.here.speculators.iter().any(Speculator::wants_runs)
    }

    fn on(&mut self, processor: usize) {
        self.turn_to(processor, |from, to| {
            // The accesses that were only counted belong to the `l3` that is moved to the other
            // processor.
            from.settle();
            if let (Some(from), Some(to)) = (&mut from.port.caches, &mut to.port.caches) {
                std::mem::swap(from.l3(), to.l3());
            }
        });
    }

    fn is_far(&self) -> bool {
        self.here.port.caches.as_ref().is_some_and(Hierarchy::is_far)
    }

    #[inline]
    fn soon(&self, phys: PhysAddr) {
        if let Some(caches) = &self.here.port.caches {
            caches.soon(phys);
        }
    }

    #[inline(always)]
    fn data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) {
        self.here.data(phys, bytes, kind);
    }

    fn first_data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) {
        self.here.first_data(phys, bytes, kind);
    }

    fn walk(&mut self, walk: &Walk, way: Way<'_>) -> Result<(), Node> {
        self.here.walk(walk, way)
    }

    fn beside(&mut self, references: &[Reference]) {
        self.here.beside(references);
    }

    fn walk_from_stale(&mut self, walk: &Walk, way: Way<'_>) {
        self.here.walk_from_stale(walk, way);
    }

    fn found(&mut self, by: Option<u64>, spot: Spot) {
        self.here.speculate(by, Some(spot), false);
    }

    fn faulted(&mut self, by: Option<u64>, there: Option<Spot>) {
        self.here.speculate(by, there, true);
    }

    fn device(&mut self, frame: PhysAddr, lent: bool) {
        self.for_each(|walker| walker.device(frame, lent));
    }

    fn switched(&mut self) {
        self.here.switched();
    }

    fn refilled(&mut self, refill: Refill) {
        self.here.refilled(refill);
    }

    fn forget(&mut self, processor: usize, forget: Forget) {
        self.of(processor).forget(forget);
    }

    fn forget_counts(&mut self) {
        self.for_each(Walker::forget_counts);
    }
}
