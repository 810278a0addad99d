//! What is wished for a range of addresses, whoever decides by it.

use addr::PageSize;

/// What is wished for a range of addresses: a policy module of IRIX (G98 section 6.5), as
/// `pm_create` makes it and `pm_attach` attaches it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Module {
    /// The page size; absent: the base page.
    pub page_size: Option<PageSize>,
    /// What to do where no page of that size is free.
    pub fallback: Fallback,
    /// The node that frames should come from.
    pub placement: Placement,
    /// Whether locality matters more than the size: other nodes' large pages are not borrowed.
    pub stays: bool,
    /// Whether the cache colour of a base page matters more than its node.
    pub color_first: bool,
    /// How many more references than its own node's another node may make to a page before that
    /// migrates there; absent: any number. The host counts them, as hardware does.
    pub migrate_after: Option<u32>,
}

/// The NUMA node that frames should come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// That of the processor which touches the page first.
    #[default]
    Local,
    /// This one.
    Node(u8),
    /// Each block of the wished size from the next.
    InTurn,
}

/// What a process does where no page of the wished size is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fallback {
    /// It takes a smaller one.
    #[default]
    Smaller,
    /// It waits until the coalescing daemon has moved so many base pages for it, and then takes a
    /// smaller one. A host makes this number of the time that a user gives.
    Wait(u64),
}
