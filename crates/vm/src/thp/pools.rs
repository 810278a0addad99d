//! Pools of reserved large pages: their blocks, and the promises of blocks to mappings.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use physmem::FrameId;

use crate::object::ObjectId;

/// Identifies the block for which a promise was made: by the first page of the block in a space, or
/// in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Promise {
    Private { space: u32, page: u64 },
    Shared { object: ObjectId, index: u64 },
}

/// The pools, by log2 of the number of base pages of their blocks.
#[derive(Default)]
pub(crate) struct Pools(pub(crate) BTreeMap<u32, Pool>);

/// A pool of large pages.
#[derive(Default)]
pub(crate) struct Pool {
    /// The first frames of its free blocks; the block that was freed last is used next.
    pub(crate) free: Vec<FrameId>,
    /// Promises to mappings whose block has not been brought in.
    pub(crate) promised: BTreeSet<Promise>,
    pub(crate) counts: PoolCounts,
}

/// The counts of a pool. If the kernel has a counter for a field, the field has the kernel's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolCounts {
    /// Pages requested for the pool at the beginning of the run.
    pub asked: u64,
    /// Pages of the pool, in use or free.
    pub nr_hugepages: u64,
    /// Free pages.
    pub free_hugepages: u64,
    /// Free pages that are promised to mappings.
    pub resv_hugepages: u64,
    /// Pages that came from free memory when the pool was empty. They return to free memory when
    /// they are freed.
    pub surplus_hugepages: u64,
    /// The largest number of pages that may come from free memory in this way.
    pub nr_overcommit_hugepages: u64,
    /// Mappings to which the pool promised all their pages.
    pub mapped: u64,
    /// Mappings that were refused, because the pool could not promise enough pages (`ENOMEM`).
    pub refused: u64,
    /// Pages that faults took.
    pub taken: u64,
    /// Faults that found no page (`SIGBUS`).
    pub bus_errors: u64,
}

impl Pool {
    /// The number of free blocks that are not promised to any mapping.
    pub(crate) fn spare(&self) -> usize {
        self.free.len().saturating_sub(self.promised.len())
    }

    /// Takes a block for `promise`. If there is such a promise, it is thereby fulfilled. Otherwise
    /// the block must not be promised to another request.
    pub(crate) fn take(&mut self, promise: Promise) -> Option<FrameId> {
        let is_promised = self.promised.remove(&promise);
        if !is_promised && self.spare() == 0 {
            return None;
        }
        self.counts.taken += 1;
        self.free.pop()
    }

    /// Takes back a block that is no longer mapped. Returns whether its frames are removed from the
    /// pool.
    pub(crate) fn give_back(&mut self, first: FrameId) -> bool {
        let leaves = self.counts.surplus_hugepages > 0;
        if leaves {
            self.counts.surplus_hugepages -= 1;
            self.counts.nr_hugepages -= 1;
        } else {
            self.free.push(first);
        }
        leaves
    }

    /// Withdraws `count` promises. Returns the blocks that are removed from the pool as a result
    /// (`return_unused_surplus_pages`).
    pub(crate) fn unpromised(&mut self, count: u64) -> Vec<FrameId> {
        let leaving = count.min(self.counts.surplus_hugepages).min(self.free.len() as u64);
        self.counts.surplus_hugepages -= leaving;
        self.counts.nr_hugepages -= leaving;
        let kept = self.free.len() - leaving as usize;
        self.free.split_off(kept)
    }

    /// The counts now.
    pub(crate) fn counts(&self) -> PoolCounts {
        PoolCounts {
            free_hugepages: self.free.len() as u64,
            resv_hugepages: self.promised.len() as u64,
            ..self.counts
        }
    }
}
