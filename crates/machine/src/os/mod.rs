//! The operating system of a machine: first touch, and the events of the trace.
//!
//! ```text
//!   fault(addr) ----> a frame from physical memory, a page in the table
//!   event(munmap) --> pages out of the table --> Shootdown --> TLBs --> frames are free again
//! ```
//!
//! It is the smallest that is right: every page has one size, is mapped when it is first
//! touched with the rights of its region, and goes when its region goes. What `hat`, `vm` and
//! `physmem` decide in a real one (reservations, policies, replacement, sharing) is not here.

mod events;
pub(crate) mod host;

use std::{collections::BTreeMap, ops::Range};

use addr::{Frames, Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Fault, Footprint, Mounted, Node, Reference, Space, SparseMemory, Translation, TreeShape, Usage,
};
use physmem::{Allocator, Buddy, Physmem, Scattered, State};
use trace::{Region, RegionId, Regions};

use crate::{
    Description, description,
    hardware::behind::Way,
    os::host::{Host, splinter},
    table,
};
pub(crate) use events::Shootdown;

/// An allocator that is chosen when a machine is built.
type BoxedAllocator = Box<dyn Allocator + Send>;

/// The physical memory of a machine.
pub(crate) type Ram = Physmem<BoxedAllocator>;

/// A region that has no label yet.
const UNLABELED: u32 = u32::MAX;

/// What the operating system could not do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No frame is left.
    OutOfFrames,
    /// No frame of the host is left.
    OutOfHostFrames,
    /// The page table cannot do it; the text says what.
    Table(String),
}

impl From<pagetable::Error> for Failure {
    fn from(error: pagetable::Error) -> Failure {
        match error {
            pagetable::Error::OutOfFrames(_) => Failure::OutOfFrames,
            other => Failure::Table(other.to_string()),
        }
    }
}

/// What the operating system did about a fault.
pub(crate) enum Answer {
    /// The page was not there and is now.
    FirstTouch(Shootdown),
    /// The page was there and allows the access now.
    Granted(Shootdown),
}

/// One address space of the trace.
struct AddressSpace {
    space: Space,
    regions: Regions,
    /// The label of each region, by its number.
    labels: Vec<u32>,
    program_break: u64,
}

/// The operating system of one run.
pub(crate) struct Os {
    page_size: PageSize,
    frames: Ram,
    uses_frames: bool,
    is_linear: bool,
    populated: bool,
    table: Box<dyn Mounted>,
    /// What is below, if this is the system of a virtual machine.
    host: Option<Host>,
    /// Refills with a smaller page than the guest's, as the host's is smaller.
    pub(crate) splintered: u64,
    spaces: BTreeMap<u32, AddressSpace>,
    current: u32,
    here: Space,
    /// Whose region a label is: the space's number and the region's.
    labels: Vec<(u32, RegionId)>,
    mapped: BTreeMap<PageSize, u64>,
    peak_bytes: u64,
    pub(crate) first_touches: u64,
    pub(crate) protection_faults: u64,
}

/// All frames of `memory`, free, the smallest of `base`, in the order of its placement.
pub(crate) fn frames(memory: &description::Memory, base: PageSize) -> Result<Ram, String> {
    let ram =
        Physmem::new(PhysAddr::new(0), memory.size.0, base, |frames| match memory.placement {
            Some(seed) => Box::new(Scattered::new(Buddy::new(frames), seed)),
            None => boxed_buddy(frames),
        });
    ram.map_err(|error| error.to_string())
}

fn boxed_buddy(frames: Range<u32>) -> BoxedAllocator {
    Box::new(Buddy::new(frames))
}

impl Os {
    /// Begins to count faults anew; what is mapped stays.
    pub(crate) fn forget_counts(&mut self) {
        (self.first_touches, self.protection_faults, self.splintered) = (0, 0, 0);
        if let Some(host) = &mut self.host {
            host.first_touches = 0;
        }
    }

    /// An operating system with one empty space; an error comes with the key that is wrong.
    pub(crate) fn new(description: &Description) -> Result<Os, (String, String)> {
        let table = table::new(description, SparseMemory::new(description.memory.size.0))?;
        let page_size = description.os.page_size.0;
        let sizes = table.page_sizes();
        if !sizes.contains(&page_size) {
            let names: Vec<String> = sizes.iter().map(PageSize::to_string).collect();
            let what =
                format!("the page table holds pages of {}, not {page_size}", names.join(", "));
            return Err(("os.page_size".to_owned(), what));
        }
        let base = page_size.min(PageSize::SIZE_4K);
        let frames = frames(&description.memory, base);
        let frames = frames.map_err(|error| ("memory.size".to_owned(), error))?;
        let host = host(description)?;
        let mut os = Os {
            page_size,
            frames,
            uses_frames: description.page_table.is_some(),
            populated: description.os.populated,
            is_linear: description.page_table.as_ref().is_some_and(|t| t.format == "linear"),
            table,
            host,
            splintered: 0,
            spaces: BTreeMap::new(),
            current: 0,
            here: Space::new(0, PhysAddr::new(0)),
            labels: Vec::new(),
            mapped: BTreeMap::new(),
            peak_bytes: 0,
            first_touches: 0,
            protection_faults: 0,
        };
        os.switch(0).map_err(|_| {
            let what = "not even the root of a page table fits".to_owned();
            ("memory.size".to_owned(), what)
        })?;
        Ok(os)
    }

    /// The size of the smallest page that a TLB is given.
    pub(crate) fn page_size(&self) -> PageSize {
        self.host.as_ref().map_or(self.page_size, |host| host.page_size().min(self.page_size))
    }

    /// The host, if this is the system of a virtual machine.
    pub(crate) fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }

    /// What a TLB is given for `addr` after a walk that made `references` and `found` a page: in
    /// a virtual machine, once the host has found the place of all of them.
    pub(crate) fn place(
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

    /// The whole way of the walk that was placed last and made `references`.
    pub(crate) fn way<'a>(&'a self, references: &'a [Reference]) -> Way<'a> {
        let (host, host_references) = self.host.as_ref().map_or((&[][..], &[][..]), Host::way);
        Way { references, host, host_references }
    }

    /// Walks for `addr` in the current space.
    pub(crate) fn walk(
        &mut self,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        self.table.walk(self.here, addr, kind, references)
    }

    /// Maps the page that holds `addr` if all are to be mapped before they are touched; what
    /// follows if it did.
    pub(crate) fn populate(
        &mut self,
        addr: VirtAddr,
        kind: Kind,
    ) -> Result<Option<Shootdown>, Failure> {
        if !self.populated || self.known(addr).is_some() {
            return Ok(None);
        }
        // An address that no table can hold is told by the walk.
        match self.fault(addr, kind, Fault::NotMapped { level: 1 })? {
            Answer::FirstTouch(shootdown) | Answer::Granted(shootdown) => Ok(Some(shootdown)),
        }
    }

    /// Whether the page table is an array in virtual memory.
    pub(crate) fn is_linear(&self) -> bool {
        self.is_linear
    }

    /// Where walks in the current space start if nothing is remembered.
    pub(crate) fn root(&self) -> Node {
        self.table.root(self.here)
    }

    /// What the page table's format looks like, if its walks descend from a root.
    pub(crate) fn tree_shape(&self) -> Option<TreeShape> {
        self.table.tree_shape()
    }

    /// The walk that starts at `start`, wherever that is by now.
    pub(crate) fn walk_from(
        &mut self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        self.table.walk_from(start, addr, kind, references)
    }

    /// What a TLB should hold for `addr`, without a walk.
    pub(crate) fn query(&self, addr: VirtAddr) -> Option<Translation> {
        let guest = self.known(addr)?;
        let Some(host) = &self.host else { return Some(guest) };
        Some(splinter(addr, guest, host.query(guest.apply(addr))?))
    }

    /// What the page table says of `addr`, without a walk.
    fn known(&self, addr: VirtAddr) -> Option<Translation> {
        self.table.query(self.here, addr).map(|mapping| mapping.translation)
    }

    /// Whether the page that holds `addr` allows stores and has not been stored to.
    pub(crate) fn is_clean(&self, addr: VirtAddr) -> bool {
        self.table.query(self.here, addr).is_some_and(|mapping| {
            mapping.translation.rights.allows(Kind::Store) && !mapping.usage.dirty
        })
    }

    /// Notes a store to the page that holds `addr`, where no hardware does it.
    pub(crate) fn set_dirty(&mut self, addr: VirtAddr) -> Result<(), Failure> {
        let dirty = Usage { dirty: true, ..Usage::default() };
        Ok(self.table.set_usage(self.here, addr, dirty)?)
    }

    /// Answers a fault: after it, a walk for the same access succeeds. Where there is nothing to
    /// answer, since the page is there and allows the access, the fault would only come again:
    /// that is a failure.
    ///
    /// An access in a trace has happened, so one that the rights forbid is granted: the event
    /// that allowed it is not in the trace.
    pub(crate) fn fault(
        &mut self,
        addr: VirtAddr,
        kind: Kind,
        fault: Fault,
    ) -> Result<Answer, Failure> {
        let needed = match kind {
            Kind::Fetch => Rights::EXECUTE,
            Kind::Load => Rights::READ,
            Kind::Store => Rights::WRITE,
        };
        if fault == Fault::Unfit {
            return Err(Failure::Table(format!(
                "the address {addr} is none that this machine's page table can hold"
            )));
        }
        // A page without any rights is absent to hardware and known to the table.
        if let Some(known) = self.known(addr) {
            if known.rights.allows(kind) {
                return Err(Failure::Table(format!(
                    "the walk of {addr} faults ({fault}), but the page table has the page and \
                     allows the access: hardware remembers what a shootdown should have flushed"
                )));
            }
            self.protection_faults += 1;
            let range = VirtRange::of_page(known.page);
            let rights = expressible(known.rights | needed);
            let flush = self.table.protect(self.here, range, rights, &mut |_| {})?;
            return Ok(Answer::Granted(Shootdown { flush, frames: Vec::new() }));
        }
        let page = addr.page(self.page_size);
        let frame = if self.uses_frames {
            let frame = self.frames.allocate_page(self.page_size, State::Movable);
            frame.map_err(|_| Failure::OutOfFrames)?
        } else {
            PhysAddr::new(page.start().get())
        };
        let rights = self.address_space().regions.rights_at(addr.get());
        let rights = expressible(rights.unwrap_or(Rights::ALL) | needed);
        let translation = Translation { page, frame, rights, global: false };
        let mapped = self.table.map(self.here, translation, 1, &mut self.frames);
        let flush = mapped.inspect_err(|_| {
            if self.uses_frames {
                self.frames.free(frame, self.page_size);
            }
        })?;
        self.first_touches += 1;
        *self.mapped.entry(self.page_size).or_insert(0) += 1;
        self.peak_bytes = self.peak_bytes.max(self.frames.used_bytes());
        Ok(Answer::FirstTouch(Shootdown { flush, frames: Vec::new() }))
    }

    /// The label of the region that `addr` lies in: unique over all spaces, from 0.
    pub(crate) fn label_of(&mut self, addr: VirtAddr) -> u32 {
        let current = self.current;
        let here = self.address_space_mut();
        let region = here.regions.region_of(addr.get());
        let index = region.0 as usize;
        if let Some(&label) = here.labels.get(index).filter(|&&label| label != UNLABELED) {
            return label;
        }
        let label = self.labels.len() as u32;
        self.labels.push((current, region));
        let labels = &mut self.address_space_mut().labels;
        if labels.len() <= index {
            labels.resize(index + 1, UNLABELED);
        }
        labels[index] = label;
        label
    }

    /// Whether at most one region has bytes in `range`.
    pub(crate) fn is_single(&self, range: VirtRange) -> bool {
        // Regions begin and end on boundaries of the base page.
        range.bytes() <= PageSize::SIZE_4K.bytes()
            || self.address_space().regions.is_single(range.start().get(), range.last().get())
    }

    /// The labeled regions by label: each with the number of its space.
    pub(crate) fn labeled(&self) -> impl Iterator<Item = (u32, &Region)> {
        self.labels.iter().map(|(space, region)| (*space, self.spaces[space].regions.get(*region)))
    }

    /// The number of `space` in the trace.
    pub(crate) fn number_of(&self, space: Space) -> Option<u32> {
        if self.here == space {
            return Some(self.current);
        }
        self.spaces.iter().find(|(_, known)| known.space == space).map(|(number, _)| *number)
    }

    /// How many address spaces the trace named.
    pub(crate) fn spaces(&self) -> usize {
        self.spaces.len()
    }

    /// Bytes of all frames, and of frames in use.
    pub(crate) fn frame_bytes(&self) -> (u64, u64) {
        if self.uses_frames { (self.frames.bytes(), self.frames.used_bytes()) } else { (0, 0) }
    }

    /// Bytes of frames in use when most were.
    pub(crate) fn peak_bytes(&self) -> u64 {
        // A page that moves may take a table, and so more frames than at the last fault.
        if self.uses_frames { self.peak_bytes.max(self.frames.used_bytes()) } else { 0 }
    }

    /// What the page tables take.
    pub(crate) fn footprint(&self) -> Footprint {
        self.table.footprint()
    }

    /// Mapped pages by size.
    pub(crate) fn mapped(&self) -> &BTreeMap<PageSize, u64> {
        &self.mapped
    }

    fn address_space(&self) -> &AddressSpace {
        &self.spaces[&self.current]
    }

    fn address_space_mut(&mut self) -> &mut AddressSpace {
        // `switch` has made the entry of the current space.
        self.spaces.get_mut(&self.current).expect("the current space exists")
    }

    fn switch(&mut self, number: u32) -> Result<(), Failure> {
        if !self.spaces.contains_key(&number) {
            let space = self.table.create(&mut self.frames)?;
            let regions = Regions::new();
            let new = AddressSpace { space, regions, labels: Vec::new(), program_break: 0 };
            self.spaces.insert(number, new);
        }
        self.current = number;
        self.here = self.address_space().space;
        Ok(())
    }
}

/// The host that `description` has, if any.
fn host(description: &Description) -> Result<Option<Host>, (String, String)> {
    let Some(nested) = &description.nested else { return Ok(None) };
    let what = match &description.page_table {
        None => "a machine of TLBs alone has no memory that a host could back",
        Some(table) if table.format == "linear" => {
            "a linear page table is found through the TLB, which a host is not part of yet: \
             choose another page_table.format"
        }
        Some(_) => return Host::new(description, nested).map(Some),
    };
    Err(("nested".to_owned(), what.to_owned()))
}

/// The least that hardware can express and that allows `rights`: whoever may write or execute a
/// page may read it.
fn expressible(rights: Rights) -> Rights {
    if Kind::ALL.into_iter().any(|kind| rights.allows(kind)) {
        rights | Rights::READ | Rights::USER
    } else {
        Rights::NONE
    }
}
