//! What the memory manager's work takes.
//!
//! ```text
//!   work so far - work when it was asked last = the part that is new, at the price of each kind
//! ```

use std::collections::BTreeMap;

use vm::Work;

use crate::{Description, description::WorkCosts, os::Spent};

/// Prices, and what has been charged.
pub(super) struct Prices {
    pub(super) costs: Option<WorkCosts>,
    /// Cycles of a page from or to a disk, from here on.
    pub(super) io: u64,
    /// What is charged already.
    charged: Work,
    /// Cycles of waiting for disks, so far.
    pub(super) io_cycles: u64,
}

impl Prices {
    pub(super) fn new(description: &Description) -> Prices {
        Prices {
            costs: description.os.costs.as_ref().and_then(|costs| costs.work.clone()),
            io: io_cycles(description),
            charged: Work::default(),
            io_cycles: 0,
        }
    }

    /// What has been done since it was asked last, with `work` in all.
    pub(super) fn spent(&mut self, work: &Work) -> Spent {
        let transfers = |work: &Work| work.reads + work.writes;
        let io_cycles = (transfers(work) - transfers(&self.charged)) * self.io;
        self.io_cycles += io_cycles;
        let Some(costs) = &self.costs else {
            // Nothing but transfers has a price.
            (self.charged.reads, self.charged.writes) = (work.reads, work.writes);
            return Spent { work_cycles: 0, io_cycles };
        };
        let cycles = |work: &Work| -> u64 { costs.each(work).map(|(_, cycles)| cycles).sum() };
        let work_cycles = cycles(work) - cycles(&self.charged);
        self.charged = *work;
        Spent { work_cycles, io_cycles }
    }

    /// Cycles of `work` by kind; nothing where there are no prices.
    pub(super) fn by_kind(&self, work: &Work) -> BTreeMap<String, u64> {
        let each = self.costs.iter().flat_map(|costs| costs.each(work));
        each.map(|(kind, cycles)| (kind.to_owned(), cycles)).collect()
    }

    /// Counts begin anew.
    pub(super) fn forget_counts(&mut self) {
        self.charged = Work::default();
        self.io_cycles = 0;
    }
}

/// What a page from or to a disk takes.
pub(super) fn io_cycles(description: &Description) -> u64 {
    description.swap.as_ref().map_or(0, |swap| swap.io_cycles.into())
}
