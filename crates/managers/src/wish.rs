//! The request of a place rule: a page size and, if there are several nodes of memory, NUMA
//! settings.

use addr::PageSize;
use description::{NodeFallback, Placement, Rather};

/// The request of a place rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub size: PageSize,
    /// How long a fault waits for a page of that size, in microseconds; `None`: it does not wait.
    pub wait_us: Option<u64>,
    /// The node of memory from which frames are allocated, and what happens if this node has no
    /// free frame; `None`: as in the machine file.
    pub placement: Option<Placement>,
    pub fallback: Option<NodeFallback>,
    pub rather: Option<Rather>,
    /// The number of references after which a page migrates to another node; `Some(None)`: it never
    /// migrates; `None`: as in the machine file.
    pub migrate_after: Option<Option<u32>>,
}

impl Wish {
    /// A request for pages of `size`, without waiting or NUMA settings.
    pub(crate) const fn of(size: PageSize) -> Wish {
        Wish {
            size,
            wait_us: None,
            placement: None,
            fallback: None,
            rather: None,
            migrate_after: None,
        }
    }

    /// Whether the request has NUMA settings.
    pub(crate) fn has_nodes(&self) -> bool {
        let Wish { size: _, wait_us: _, placement, fallback, rather, migrate_after } = self;
        placement.is_some() || fallback.is_some() || rather.is_some() || migrate_after.is_some()
    }
}
