//! Placement requests for a range of addresses, independent of the policy that uses them.

use addr::PageSize;

/// The requests for a range of addresses: a policy module of IRIX (G98 section 6.5), which
/// `pm_create` makes and `pm_attach` attaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Module {
    /// The requested page size; `None` for the base page.
    pub page_size: Option<PageSize>,
    /// Whether pages of the requested size come from the pool of reserved pages of this size.
    pub pool: bool,
    /// The way to proceed if no page of the requested size is free.
    pub fallback: Fallback,
    /// The node from which frames should be allocated.
    pub placement: Placement,
    /// Whether locality is more important than page size: large pages of other nodes are not
    /// borrowed.
    pub stays: bool,
    /// Whether the cache colour of a base page is more important than its node.
    pub color_first: bool,
    /// A page migrates to another node when that node's references to the page exceed those of the
    /// page's own node by this number. `None` if pages do not migrate. The host counts the
    /// references, as hardware does.
    pub migrate_after: Option<u32>,
}

/// The NUMA node from which frames should be allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// The node of the processor that first touches the page.
    #[default]
    Local,
    /// The node with this number.
    Node(u8),
    /// The nodes in turn, one per block of the requested size.
    InTurn,
}

/// How a process proceeds if no page of the requested size is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fallback {
    /// The process takes a smaller page.
    #[default]
    Smaller,
    /// The process waits until the coalescing daemon has moved this many base pages for it, and then takes a
    /// smaller page. A host converts the time that a user specifies to this number.
    Wait(u64),
}
