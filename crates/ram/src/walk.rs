//! A walk of a page table as plain data: who walks, along which references, and in a virtual machine
//! along which walks of the host's table.

use addr::{Asid, PageSize, PhysAddr, VirtAddr, VirtRange};
use pagetable::{Node, Reference, Translation, TreeShape};

/// Who walks, for what, and where the walk starts if nothing is remembered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    pub va: VirtAddr,
    pub asid: Asid,
    pub root: Node,
    /// Whether the way from there ends at a page.
    pub found: bool,
    /// The size of that page; where there is none, of any.
    pub size: PageSize,
    /// Misses of the TLB on the page table itself, on the way to `root`.
    pub nested_misses: u8,
}

/// The whole way of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// Its references, from the root down.
    pub references: &'a [Reference],
    /// In a virtual machine their addresses are the guest's: for each of them, and for the page
    /// at the end if there is one, the walk that finds its place.
    pub host: &'a [HostWalk],
    /// The references of those walks, one walk after the other.
    pub host_references: &'a [Reference],
}

/// A walk of the host's page table for one guest-physical address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostWalk {
    /// Where it starts; its address is guest-physical.
    pub walk: Walk,
    /// The host's page there.
    pub page: Translation,
    /// How many of the host references are its own.
    pub references: u16,
    /// Whether the reference before had the same address, so that its place is known.
    pub known: bool,
    /// Whether the host's page has its place in a reservation of the largest size.
    pub reserved: bool,
    /// Where the host's tables moved right before this walk, since its page was then mapped.
    pub moved: Option<VirtRange>,
}

/// What a host's page table looks like.
#[derive(Clone, Debug)]
pub struct HostTable {
    /// If walks descend from a root.
    pub tree: Option<TreeShape>,
    /// The page sizes that it can hold, ascending.
    pub sizes: Vec<PageSize>,
}

/// What the host translates is an address of the guest's memory.
pub fn as_virtual(gpa: PhysAddr) -> VirtAddr {
    VirtAddr::new(gpa.get())
}

/// What a TLB holds of a guest's page that lies in a page of the host: the smaller of the two,
/// with the host's frame.
pub fn splinter(addr: VirtAddr, guest: Translation, host: Translation) -> Translation {
    if host.page.size() >= guest.page.size() {
        Translation { frame: host.apply(as_virtual(guest.frame)), ..guest }
    } else {
        Translation { page: addr.page(host.page.size()), frame: host.frame, ..guest }
    }
}
