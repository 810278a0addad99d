use addr::PhysAddr;

use super::layout::{Form, Layout, PROBES_MAX};
use crate::pool::Pool;
use crate::{Flush, Footprint};

/// An array of buckets with the entries of its overflow chains.
#[derive(Debug)]
pub(crate) struct Store {
    pub(super) base: PhysAddr,
    /// The entries of overflow chains, by form.
    pools: [Pool; Form::ALL.len()],
    /// The number of entries in use, for each way of hashing.
    entries: [u64; PROBES_MAX],
}

impl Store {
    /// A store without entries, whose array is at `base`.
    pub(super) fn new(base: PhysAddr, layout: &Layout) -> Store {
        let pools = Form::ALL.map(|form| Pool::new(layout.bytes(form)));
        Store { base, pools, entries: [0; PROBES_MAX] }
    }

    /// The pool of entries of this form outside the array.
    pub(super) fn pool(&mut self, form: Form) -> &mut Pool {
        &mut self.pools[form as usize]
    }

    pub(super) fn count_in(&mut self, probe: usize) {
        self.entries[probe] += 1;
    }

    pub(super) fn count_out(&mut self, probe: usize) {
        self.entries[probe] -= 1;
    }

    /// For each way of hashing, whether there are entries. If the table is empty, the first element
    /// is true.
    #[inline]
    pub(super) fn probes(&self) -> [bool; PROBES_MAX] {
        let mut used = self.entries.map(|entries| entries > 0);
        used[0] |= used == [false; PROBES_MAX];
        used
    }

    /// The memory that the entries of overflow chains take.
    pub(super) fn footprint(&self) -> Footprint {
        self.pools.iter().fold(Footprint::default(), |mut sum, pool| {
            sum += pool.footprint();
            sum
        })
    }

    /// The number of frames that hold entries of overflow chains.
    pub(super) fn frames(&self) -> usize {
        self.pools.iter().map(Pool::frames).sum()
    }

    /// Frees all entries of overflow chains, and adds their frames to `flush`.
    pub(super) fn put_all(self, flush: &mut Flush) {
        self.pools.into_iter().for_each(|pool| pool.put_all(flush));
    }
}
