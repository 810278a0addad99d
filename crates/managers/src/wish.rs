//! What a place rule wishes for pages: a size, and where there are several nodes, a node.

use addr::PageSize;
use description::{NodeFallback, Placement, Rather};

/// What is wished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub size: PageSize,
    /// How long a fault waits for a page of that size, in microseconds; none: not at all.
    pub wait_us: Option<u64>,
    /// From which node of memory frames come, and what gives way; none: as the machine file says.
    pub placement: Option<Placement>,
    pub fallback: Option<NodeFallback>,
    pub rather: Option<Rather>,
    /// After how many references a page moves to another node, if ever.
    pub migrate_after: Option<Option<u32>>,
}

impl Wish {
    /// Pages of `size`, and nothing said of waiting or of nodes.
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

    /// Whether it says something of nodes.
    pub(crate) fn has_nodes(&self) -> bool {
        let Wish { size: _, wait_us: _, placement, fallback, rather, migrate_after } = self;
        placement.is_some() || fallback.is_some() || rather.is_some() || migrate_after.is_some()
    }
}
