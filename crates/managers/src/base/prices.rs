//! The cost of the memory manager's work.
//!
//! ```text
//!   work so far - work when it was asked last = the part that is new, at the price of each kind
//! ```

use std::collections::BTreeMap;

use description::{Description, WorkCosts};
use os::Spent;
use vm::Work;

/// Prices, and the work that has been charged.
pub(super) struct Prices {
    pub(super) costs: Option<WorkCosts>,
    /// The cycles of a request to a disk, and the cycles of each page in the request.
    io: (u64, u64),
    /// The number of requests so far; a transfer of adjacent pages is one request.
    pub(super) requests: u64,
    /// The work that has been charged already.
    charged: Work,
    charged_requests: u64,
    /// Cycles of waiting for disks so far.
    pub(super) io_cycles: u64,
}

impl Prices {
    pub(super) fn new(description: &Description) -> Prices {
        Prices {
            costs: description.os.costs.as_ref().and_then(|costs| costs.work.clone()),
            io: io_cycles(description),
            charged: Work::default(),
            requests: 0,
            charged_requests: 0,
            io_cycles: 0,
        }
    }

    /// The cost of the work since the last call; `work` is all work since the beginning.
    pub(super) fn spent(&mut self, work: &Work) -> Spent {
        let transfers = |work: &Work| work.reads + work.writes;
        let (request, page) = self.io;
        let io_cycles = (self.requests - self.charged_requests) * request
            + (transfers(work) - transfers(&self.charged)) * page;
        self.charged_requests = self.requests;
        self.io_cycles += io_cycles;
        let Some(costs) = &self.costs else {
            // Only transfers have a price.
            (self.charged.reads, self.charged.writes) = (work.reads, work.writes);
            return Spent { work_cycles: 0, io_cycles };
        };
        let cycles = |work: &Work| -> u64 { costs.each(work).map(|(_, cycles)| cycles).sum() };
        let work_cycles = cycles(work) - cycles(&self.charged);
        self.charged = *work;
        Spent { work_cycles, io_cycles }
    }

    /// The cycles of `work` by kind; empty if there are no prices.
    pub(super) fn by_kind(&self, work: &Work) -> BTreeMap<String, u64> {
        let each = self.costs.iter().flat_map(|costs| costs.each(work));
        each.map(|(kind, cycles)| (kind.to_owned(), cycles)).collect()
    }

    /// Resets the counts to zero.
    pub(super) fn forget_counts(&mut self) {
        let Prices { costs: _, io: _, requests, charged, charged_requests, io_cycles } = self;
        *charged = Work::default();
        (*io_cycles, *requests, *charged_requests) = (0, 0, 0);
    }

    /// Sets the cost of disk requests to the cost in `description`.
    pub(super) fn set_io(&mut self, description: &Description) {
        self.io = io_cycles(description);
    }
}

/// The cycles of a request to a disk, and the cycles of each page in the request, as in
/// `description`.
fn io_cycles(description: &Description) -> (u64, u64) {
    let swap = description.swap.as_ref();
    swap.map_or((0, 0), |swap| (swap.io_cycles.into(), swap.page_cycles.into()))
}
