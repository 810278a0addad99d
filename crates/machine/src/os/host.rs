//! The host of a virtual machine: it backs guest-physical memory, page by page (B10 §4.7).
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
//! A page of the host is backed when it is first needed, and stays. A walk that found nothing
//! and had it backed counts once, as it is then repeated.

use addr::{Asid, Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Fault, Mounted, Node, Reference, Space, SparseMemory, Translation, TreeShape};
use physmem::{Physmem, State};

use crate::{
    Description, description,
    hardware::behind::{HostWalk, Walk},
    os::{Failure, Ram, boxed_buddy},
    table,
};

/// The host.
pub(crate) struct Host {
    table: Box<dyn Mounted>,
    frames: Ram,
    space: Space,
    root: Node,
    page_size: PageSize,
    pub(crate) first_touches: u64,
    /// The walks for the way of the last guest walk, and their references.
    walks: Vec<HostWalk>,
    references: Vec<Reference>,
}

impl Host {
    /// A host that backs nothing yet; an error comes with the key that is wrong.
    pub(crate) fn new(
        description: &Description,
        nested: &description::Nested,
    ) -> Result<Host, (String, String)> {
        let key = |key: &str| format!("nested.{key}");
        let memory = SparseMemory::new(nested.memory.0);
        // The host's own hardware walks its table.
        let mut below =
            Description { page_table: Some(nested.page_table()), ..description.clone() };
        (below.memory.size, below.walker) = (nested.memory, description::Walker::default());
        let mut table = table::new(&below, memory)
            .map_err(|(wrong, what)| (key(wrong.trim_start_matches("page_table.")), what))?;
        let page_size = nested.page_size.0;
        let sizes = table.page_sizes();
        if !sizes.contains(&page_size) {
            let names: Vec<String> = sizes.iter().map(PageSize::to_string).collect();
            let what = format!("the host's table holds pages of {}", names.join(", "));
            return Err((key("page_size"), what));
        }
        let base = page_size.min(PageSize::SIZE_4K);
        let mut frames = Physmem::new(PhysAddr::new(0), nested.memory.0, base, boxed_buddy)
            .map_err(|error| (key("memory"), error.to_string()))?;
        let space =
            table.create(&mut frames).map_err(|error| (key("memory"), error.to_string()))?;
        let root = table.root(space);
        Ok(Host {
            table,
            frames,
            space,
            root,
            page_size,
            first_touches: 0,
            walks: Vec::new(),
            references: Vec::new(),
        })
    }

    /// The page size of every mapping.
    pub(crate) fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// What its page table looks like, if walks descend from a root.
    pub(crate) fn tree_shape(&self) -> Option<TreeShape> {
        self.table.tree_shape()
    }

    /// Frames for backing and for tables, in bytes.
    pub(crate) fn used_bytes(&self) -> (u64, u64) {
        (self.frames.used_bytes(), self.table.footprint().frame_bytes)
    }

    /// The walks of the last way, and their references.
    pub(crate) fn way(&self) -> (&[HostWalk], &[Reference]) {
        (&self.walks, &self.references)
    }

    /// Finds the place of each of a guest's `references` and, where the guest has a page, of the
    /// `end`. Gives the host's page there.
    pub(crate) fn walk_way(
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
    pub(crate) fn query(&self, gpa: PhysAddr) -> Option<Translation> {
        self.table.query(self.space, as_virtual(gpa)).map(|mapping| mapping.translation)
    }

    fn walk(&mut self, gpa: PhysAddr, kind: Kind) -> Result<Translation, Failure> {
        let before = self.references.len();
        let va = as_virtual(gpa);
        let mut moved = None;
        let page = loop {
            self.references.truncate(before);
            match self.table.walk(self.space, va, kind, &mut self.references) {
                Ok(page) => break page,
                Err(Fault::NotMapped { .. }) => moved = self.back(va)?,
                Err(fault) => {
                    let what = format!("the host cannot back the guest-physical {gpa}: {fault}");
                    return Err(Failure::Table(what));
                }
            }
        };
        let walk = Walk { va, asid: Asid(0), root: self.root, found: true, nested_misses: 0 };
        let references = (self.references.len() - before) as u16;
        self.walks.push(HostWalk { walk, page, references, known: false, moved });
        Ok(page)
    }

    /// Gives the page at `va` a frame; where tables moved as it was mapped.
    fn back(&mut self, va: VirtAddr) -> Result<Option<VirtRange>, Failure> {
        let frame = self.frames.allocate_page(self.page_size, State::Movable);
        let frame = frame.map_err(|_| Failure::OutOfHostFrames)?;
        let page = va.page(self.page_size);
        let page = Translation { page, frame, rights: Rights::ALL, global: false };
        let mapped = self.table.map(self.space, page, 1, &mut self.frames);
        let flush = mapped.map_err(|error| match error {
            pagetable::Error::OutOfFrames(_) => Failure::OutOfHostFrames,
            other => Failure::Table(format!("the host: {other}")),
        })?;
        self.first_touches += 1;
        // Its frames may go at once: the walk that comes next carries what is to be forgotten.
        let moved = flush.tables();
        flush.done(&mut self.frames);
        Ok(moved)
    }
}

/// What the host translates is an address of the guest's memory.
fn as_virtual(gpa: PhysAddr) -> VirtAddr {
    VirtAddr::new(gpa.get())
}

/// What a TLB holds of a guest's page that lies in a page of the host: the smaller of the two,
/// with the host's frame.
pub(crate) fn splinter(addr: VirtAddr, guest: Translation, host: Translation) -> Translation {
    if host.page.size() >= guest.page.size() {
        Translation { frame: host.apply(as_virtual(guest.frame)), ..guest }
    } else {
        Translation { page: addr.page(host.page.size()), frame: host.frame, ..guest }
    }
}
