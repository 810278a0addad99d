//! The host of a virtual machine: it backs guest-physical memory page by page (B10 §4.7).
//!
//! ```text
//!                 guest's table, in guest-physical memory
//!   gVA --> gL4 --> gL3 --> gL2 --> gL1 --> gPA of the page
//!            |       |       |       |       |
//!           hL4     hL4     hL4     hL4     hL4      each guest-physical address is walked for
//!           ...     ...     ...     ...     ...      in the host's table: 4 x 5 + 4 = 24
//!           hL1     hL1     hL1     hL1     hL1      references, 35 with five levels
//!            |       |       |       |       |
//!           hPA     hPA     hPA     hPA     hPA
//! ```
//!
//! A page of the host is backed when it is first needed, and stays backed. If a walk finds no page,
//! the page is backed and the walk is repeated; together they count as one walk.

use addr::{Asid, Kind, PageSize, PhysAddr, VirtAddr, VirtRange};
use pagetable::{Fault, Flush, Node, Reference, Space, Translation};
use ram::{
    Failure, Ram,
    walk::{HostTable, HostWalk, Walk, Way, as_virtual, splinter},
};
use results::count::labels::Layout;

use super::{Answer, Ask, Platform, System, Who};

/// The host: its own memory, and a system that manages it.
pub struct Host {
    ram: Ram,
    system: Box<dyn System>,
    /// The layout, which has no information about the guest's memory.
    layout: Layout,
    who: Who,
    root: Node,
    page_size: PageSize,
    keeps_room: bool,
    first_touches: u64,
    /// The host's walks for the references of the last guest walk; the next field has the
    /// references of these walks.
    walks: Vec<HostWalk>,
    references: Vec<Reference>,
}

impl Host {
    /// A host with the memory `ram` and the page table of `space`, managed by `system`. It has not
    /// backed any page yet.
    pub fn new(
        (ram, space): (Ram, Space),
        system: Box<dyn System>,
        page_size: PageSize,
        keeps_room: bool,
    ) -> Host {
        let root = ram.root(space);
        Host {
            ram,
            system,
            layout: Layout::default(),
            who: Who { number: 0, space },
            root,
            page_size,
            keeps_room,
            first_touches: 0,
            walks: Vec::new(),
            references: Vec::new(),
        }
    }

    /// The page size of all mappings.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// The properties of the host's page table.
    pub fn table(&self) -> HostTable {
        HostTable { tree: self.ram.tree_shape(), sizes: self.ram.page_sizes().to_vec() }
    }

    /// Counts of the host's reservations by size, the largest first, and the bytes that are
    /// reserved and not in use; `None` if the host keeps no reservations.
    pub fn reservations(&self) -> Option<(Vec<(PageSize, physmem::ReservationCounts)>, u64)> {
        let counts = self.ram.reservations();
        (!counts.is_empty()).then(|| (counts, self.ram.reserved_bytes()))
    }

    /// Bytes of memory that former guests still use.
    pub fn former_bytes(&self) -> u64 {
        self.ram.aged_bytes()
    }

    /// Bytes of the host's frames in use, and bytes of the frames among them that hold page tables.
    pub fn used_bytes(&self) -> (u64, u64) {
        (self.ram.frame_bytes().1, self.ram.footprint().frame_bytes)
    }

    /// The number of pages that the host has backed.
    pub fn first_touches(&self) -> u64 {
        self.first_touches
    }

    /// Resets the counts to zero; backed pages stay.
    pub fn forget_counts(&mut self) {
        let Host {
            ram: _,
            system: _,
            layout: _,
            who: _,
            root: _,
            page_size: _,
            keeps_room: _,
            first_touches,
            walks: _,
            references: _,
        } = self;
        *first_touches = 0;
    }

    /// The host's walks for the last guest walk, and the references of these walks.
    pub fn way(&self) -> (&[HostWalk], &[Reference]) {
        (&self.walks, &self.references)
    }

    /// Walks the host's table for the guest-physical address of each of `references`, which are the
    /// references of a guest's walk. `end` is the guest-physical address to which the guest's walk
    /// translated the access, with the kind of access; `None` if that walk faulted. Returns the
    /// host's page that backs `end`.
    pub fn walk_way(
        &mut self,
        references: &[Reference],
        end: Option<(PhysAddr, Kind)>,
    ) -> Result<Option<Translation>, Failure> {
        self.walks.clear();
        self.references.clear();
        for (index, reference) in references.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| references[before].addr);
            if before == Some(reference.addr) {
                let known = self.walks[index - 1];
                self.walks.push(HostWalk { references: 0, known: true, moved: None, ..known });
            } else {
                self.walk(reference.addr, Kind::Load)?;
            }
        }
        end.map(|(gpa, kind)| self.walk(gpa, kind)).transpose()
    }

    /// The page that backs `gpa`, read without a walk.
    pub fn query(&self, gpa: PhysAddr) -> Option<Translation> {
        self.ram.mapping(self.who.space, as_virtual(gpa)).map(|found| found.translation)
    }

    fn walk(&mut self, gpa: PhysAddr, kind: Kind) -> Result<Translation, Failure> {
        let before = self.references.len();
        let va = as_virtual(gpa);
        let mut moved = None;
        let page = loop {
            self.references.truncate(before);
            match self.ram.walk(self.who.space, va, kind, &mut self.references) {
                Ok(page) => break page,
                Err(fault @ Fault::NotMapped { .. }) => moved = self.back(va, kind, fault)?,
                Err(fault) => {
                    let what =
                        format!("the host cannot translate the guest-physical {gpa}: {fault}");
                    return Err(Failure::Table(what));
                }
            }
        };
        let walk = Walk {
            va,
            asid: Asid::HOST,
            root: self.root,
            found: true,
            size: page.page.size(),
            nested_misses: 0,
        };
        let references = (self.references.len() - before) as u16;
        let reserved = self.keeps_room && self.ram.is_reserved(page.apply(va));
        self.walks.push(HostWalk { walk, page, references, known: false, moved, reserved });
        Ok(page)
    }

    /// Backs the page at `va`. Returns the addresses whose tables moved.
    fn back(
        &mut self,
        addr: VirtAddr,
        kind: Kind,
        fault: Fault,
    ) -> Result<Option<VirtRange>, Failure> {
        let Host { ram, system, layout, who, .. } = self;
        let mut below = Below { ram, layout, moved: None };
        let answer = system.fault(&Ask { who: *who, addr, kind, fault }, &mut below);
        let moved = below.moved;
        let answer = answer.map_err(|failure| match failure {
            Failure::OutOfFrames => Failure::OutOfHostFrames,
            Failure::OutOfHostFrames => failure,
            Failure::OutOfMemory(what) => {
                Failure::OutOfMemory(format!("in the host of the virtual machine: {what}"))
            }
            Failure::Table(what) => {
                Failure::Table(format!("in the host of the virtual machine: {what}"))
            }
        })?;
        self.first_touches += u64::from(answer == Answer::FirstTouch);
        Ok(moved)
    }
}

/// The memory of a machine and, for a virtual machine, the host below it.
///
/// A manager sees only the guest's memory; hardware needs both to translate an address.
pub struct Stack {
    /// The memory that the manager sees; its addresses are guest-physical if there is a host.
    pub guest: Ram,
    host: Option<Box<Host>>,
    /// The number of TLB refills for which the host's page was smaller than the guest's page, so
    /// that the TLB got the smaller page.
    splintered: u64,
}

impl Stack {
    /// `guest` above `host`, if there is one.
    pub fn new(guest: Ram, host: Option<Host>) -> Stack {
        Stack { guest, host: host.map(Box::new), splintered: 0 }
    }

    /// The host that backs this memory, if the machine is virtual.
    pub fn host(&self) -> Option<&Host> {
        self.host.as_deref()
    }

    /// The number of TLB refills for which the host's page was smaller than the guest's page, so
    /// that the TLB got the smaller page.
    pub fn splintered(&self) -> u64 {
        self.splintered
    }

    /// Resets the counts to zero; mappings stay.
    pub fn forget_counts(&mut self) {
        // The counts of the guest's memory are reset by the operating system.
        let Stack { guest: _, host, splintered } = self;
        *splintered = 0;
        if let Some(host) = host {
            host.forget_counts();
        }
    }

    /// The translation of `addr` that the TLB gets after a guest's walk that made `references` and
    /// `found` a page. In a virtual machine, the host first translates the addresses of all
    /// references.
    pub fn place(
        &mut self,
        addr: VirtAddr,
        kind: Kind,
        references: &[Reference],
        found: Result<Translation, Fault>,
    ) -> Result<Result<Translation, Fault>, Failure> {
        let Some(host) = &mut self.host else { return Ok(found) };
        let end = found.ok().map(|guest| (guest.apply(addr), kind));
        let below = host.walk_way(references, end)?;
        Ok(found.map(|guest| {
            let Some(below) = below else { return guest };
            self.splintered += u64::from(below.page.size() < guest.page.size());
            splinter(addr, guest, below)
        }))
    }

    /// The complete path of the walk with `references` for which [`Stack::place`] was called last.
    pub fn way<'a>(&'a self, references: &'a [Reference]) -> Way<'a> {
        let below = self.host.as_ref().map(|host| host.way());
        let (host, host_references) = below.unwrap_or((&[], &[]));
        Way { references, host, host_references }
    }

    /// The correct TLB translation of `addr` in `space`, read without a walk.
    pub fn query(&self, space: Space, addr: VirtAddr) -> Option<Translation> {
        let guest = self.guest.mapping(space, addr)?.translation;
        let Some(host) = &self.host else { return Some(guest) };
        Some(splinter(addr, guest, host.query(guest.apply(addr))?))
    }
}

/// The platform of the host's system. The host never unmaps a page, so only page tables that moved
/// must be flushed. The next walk reports these tables to hardware, and their frames can be freed
/// immediately.
struct Below<'a> {
    ram: &'a mut Ram,
    layout: &'a Layout,
    moved: Option<VirtRange>,
}

impl Platform for Below<'_> {
    fn processor(&self) -> usize {
        0
    }

    fn ram(&mut self) -> &mut Ram {
        self.ram
    }

    fn layout(&self) -> &Layout {
        self.layout
    }

    fn shoot(&mut self, flush: Flush) {
        self.moved = self.moved.into_iter().chain(flush.tables()).reduce(VirtRange::hull);
        self.ram.done(flush);
    }

    /// The host's system never uses the number of the access.
    fn access(&self) -> u64 {
        0
    }
}
