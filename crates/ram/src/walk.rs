//! A walk of a page table as plain data: the address and space, the references and, in a virtual
//! machine, the walks of the host's table.

use addr::{Asid, PageSize, PhysAddr, VirtAddr, VirtRange};
use pagetable::{Node, Reference, Translation, TreeShape};

/// The address, space and kind of access of a walk, and the node at which it starts without an MMU
/// cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    pub va: VirtAddr,
    pub asid: Asid,
    pub root: Node,
    /// Whether the path from the start of the walk ends at a page.
    pub found: bool,
    /// The size of the page at the end; without a page, any size.
    pub size: PageSize,
    /// TLB misses on the page table itself, on the path to `root`.
    pub nested_misses: u8,
}

/// The complete path of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// The references, from the root down.
    pub references: &'a [Reference],
    /// In a virtual machine the references have guest-physical addresses. For each reference, and
    /// for the page at the end of the path if there is one, this has the walk of the host that
    /// translates the address.
    pub host: &'a [HostWalk],
    /// The references of the walks in `host`, one walk after the other.
    pub host_references: &'a [Reference],
}

/// A walk of the host's page table for one guest-physical address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostWalk {
    /// The walk; its address is guest-physical.
    pub walk: Walk,
    /// The host's page that the walk finds.
    pub page: Translation,
    /// The number of the host references that belong to this walk.
    pub references: u16,
    /// Whether the previous reference was to this address, so that the translation is already
    /// known.
    pub known: bool,
    /// Whether the host's page is in a reservation of the largest size.
    pub reserved: bool,
    /// The host addresses whose page tables moved immediately before this walk, because mapping the
    /// page of this walk moved them.
    pub moved: Option<VirtRange>,
}

/// The properties of a host's page table.
#[derive(Clone, Debug)]
pub struct HostTable {
    /// The properties of the page table's tree, if walks descend from a root.
    pub tree: Option<TreeShape>,
    /// The page sizes that the page table supports, ascending.
    pub sizes: Vec<PageSize>,
}

/// A guest-physical address as a virtual address of the host, which the host translates.
pub fn as_virtual(gpa: PhysAddr) -> VirtAddr {
    VirtAddr::new(gpa.get())
}

/// The TLB entry for a guest's page in a page of the host: the smaller of the two pages, with the
/// host's frame.
pub fn splinter(addr: VirtAddr, guest: Translation, host: Translation) -> Translation {
    if host.page.size() >= guest.page.size() {
        Translation { frame: host.apply(as_virtual(guest.frame)), ..guest }
    } else {
        Translation { page: addr.page(host.page.size()), frame: host.frame, ..guest }
    }
}
