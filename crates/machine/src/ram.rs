//! The memory of a machine with the page table in it: hardware walks it, the operating system
//! edits it, and nothing is decided here.
//!
//! ```text
//!   walker -- walk, place --> Ram: page table in its memory, <-- map, unmap -- System
//!                             |    free frames                   allocate
//!                             | in a virtual machine: guest-physical addresses
//!                             v
//!                           Host: a Ram and a System of its own
//! ```

use std::{collections::BTreeMap, ops::Range};

use addr::{Frames, Kind, OutOfFrames, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Fault, Flush, Footprint, Mapping, Mounted, Node, Reference, Space, SparseMemory, Translation,
    TreeShape, Usage,
};
use physmem::{Allocator, Buddy, Physmem, Scattered, State};

use crate::{
    Description, description,
    hardware::behind::Way,
    os::host::{Host, splinter},
    table::{self, Format, Walked},
};

/// An allocator that is chosen when a machine is built.
type BoxedAllocator = Box<dyn Allocator + Send>;

/// The frames of a machine, free and in use.
pub(crate) type FrameStore = Physmem<BoxedAllocator>;

/// What memory, or the page table in it, could not do.
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

/// All frames of `memory`, free, the smallest of `base`, in the order of its placement.
pub(crate) fn frames(memory: &description::Memory, base: PageSize) -> Result<FrameStore, String> {
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

/// Physical memory, the page table in it with all of its spaces, and what is below.
pub(crate) struct Ram {
    table: Box<dyn Mounted>,
    frames: Supply,
    /// Not so in a machine of TLBs alone, where the frame of a page is the page itself.
    has_frames: bool,
    is_linear: bool,
    /// By the trace's number.
    spaces: BTreeMap<u32, Space>,
    /// What backs this memory, if it is a virtual machine's.
    host: Option<Box<Host>>,
    /// Refills with a smaller page than the guest's, as the host's is smaller.
    splintered: u64,
    mapped: BTreeMap<PageSize, u64>,
    peak_bytes: u64,
}

impl Ram {
    /// Empty memory; an error comes with the key that is wrong.
    pub(crate) fn new(description: &Description) -> Result<Ram, (String, String)> {
        let table = table::new(description, SparseMemory::new(description.memory.size.0))?;
        let base = description.os.base().min(PageSize::SIZE_4K);
        let frames = frames(&description.memory, base);
        Ok(Ram {
            table,
            frames: Supply {
                store: frames.map_err(|error| ("memory.size".to_owned(), error))?,
                until_refusal: None,
                has_refused: false,
            },
            has_frames: description.page_table.is_some(),
            is_linear: description.page_table.as_ref().is_some_and(is_linear),
            spaces: BTreeMap::new(),
            host: host(description)?.map(Box::new),
            splintered: 0,
            mapped: BTreeMap::new(),
            peak_bytes: 0,
        })
    }

    /// The space that the trace calls `number`; a new and empty one if it was not asked for before.
    pub(crate) fn space(&mut self, number: u32) -> Result<Space, Failure> {
        if let Some(space) = self.spaces.get(&number) {
            return Ok(*space);
        }
        let space = self.table.create(&mut self.frames)?;
        self.spaces.insert(number, space);
        Ok(space)
    }

    /// The space that runs when a trace begins; an error comes with the key that is wrong.
    pub(crate) fn first_space(&mut self) -> Result<Space, (String, String)> {
        self.space(0).map_err(|_| {
            let what = "not even the root of a page table fits".to_owned();
            ("memory.size".to_owned(), what)
        })
    }

    /// The trace's number of `space`.
    pub(crate) fn number_of(&self, space: Space) -> Option<u32> {
        self.spaces.iter().find(|(_, known)| **known == space).map(|(number, _)| *number)
    }

    /// How many address spaces there are.
    pub(crate) fn spaces(&self) -> usize {
        self.spaces.len()
    }

    /// Has the `number`th allocation of a frame from here on fail, for a page or for a table.
    pub(crate) fn refuse(&mut self, number: u64) {
        self.frames.until_refusal = Some(number);
    }

    /// Whether that allocation has come and failed.
    pub(crate) fn has_refused(&self) -> bool {
        self.frames.has_refused
    }

    /// Begins to count anew; what is mapped stays.
    pub(crate) fn forget_counts(&mut self) {
        self.splintered = 0;
        if let Some(host) = &mut self.host {
            host.forget_counts();
        }
    }
}

/// What hardware does.
impl Ram {
    /// Walks for `addr` in `space`.
    pub(crate) fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        self.table.walk(space, addr, kind, references)
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

    /// Where walks in `space` start if nothing is remembered.
    pub(crate) fn root(&self, space: Space) -> Node {
        self.table.root(space)
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
        let below = self.host.as_ref().map(|host| host.way());
        let (host, host_references) = below.unwrap_or((&[], &[]));
        Way { references, host, host_references }
    }

    /// What a TLB should hold for `addr` in `space`, without a walk.
    pub(crate) fn query(&self, space: Space, addr: VirtAddr) -> Option<Translation> {
        let guest = self.mapping(space, addr)?.translation;
        let Some(host) = &self.host else { return Some(guest) };
        Some(splinter(addr, guest, host.query(guest.apply(addr))?))
    }

    /// Whether the page table is an array in virtual memory.
    pub(crate) fn is_linear(&self) -> bool {
        self.is_linear
    }

    /// What the page table's format looks like, if its walks descend from a root.
    pub(crate) fn tree_shape(&self) -> Option<TreeShape> {
        self.table.tree_shape()
    }

    /// What backs this memory, if it is a virtual machine's.
    pub(crate) fn host(&self) -> Option<&Host> {
        self.host.as_deref()
    }

    /// Refills with a smaller page than the guest's, as the host's was smaller.
    pub(crate) fn splintered(&self) -> u64 {
        self.splintered
    }
}

/// What the operating system does.
impl Ram {
    /// The page sizes that the page table can hold, ascending.
    pub(crate) fn page_sizes(&self) -> &[PageSize] {
        self.table.page_sizes()
    }

    /// What the page table says of `addr` in `space`, without a walk.
    pub(crate) fn mapping(&self, space: Space, addr: VirtAddr) -> Option<Mapping> {
        self.table.query(space, addr)
    }

    /// A frame for `page`.
    pub(crate) fn allocate(&mut self, page: Page) -> Result<PhysAddr, Failure> {
        if !self.has_frames {
            return Ok(PhysAddr::new(page.start().get()));
        }
        let frame = self.frames.allocate_page(page.size());
        frame.map_err(|_| Failure::OutOfFrames)
    }

    /// Takes a frame back that no hardware leads to any more.
    pub(crate) fn free(&mut self, frame: PhysAddr, size: PageSize) {
        if self.has_frames {
            self.frames.free(frame, size);
        }
    }

    /// Enters one page.
    pub(crate) fn map(&mut self, space: Space, page: Translation) -> Result<Flush, Failure> {
        let flush = self.table.map(space, page, 1, &mut self.frames)?;
        *self.mapped.entry(page.page.size()).or_insert(0) += 1;
        self.peak_bytes = self.peak_bytes.max(self.frames.store.used_bytes());
        Ok(flush)
    }

    /// Removes the pages in `range`; their frames stay in use. `each` gets them.
    pub(crate) fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Failure> {
        let mapped = &mut self.mapped;
        let flush = self.table.unmap(space, range, &mut |mapping| {
            *mapped.entry(mapping.translation.page.size()).or_insert(0) -= 1;
            each(mapping);
        })?;
        Ok(flush)
    }

    /// Gives the pages in `range` these rights.
    pub(crate) fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
    ) -> Result<Flush, Failure> {
        Ok(self.table.protect(space, range, rights, &mut |_| {})?)
    }

    /// Maps the frame of `page` by pages of the size `to`.
    pub(crate) fn resize(
        &mut self,
        space: Space,
        page: Page,
        to: PageSize,
    ) -> Result<Flush, Failure> {
        let range = VirtRange::of_page(page);
        let resized = self.table.resize(space, range, to, &mut self.frames)?;
        *self.mapped.entry(page.size()).or_insert(0) -= 1;
        *self.mapped.entry(to).or_insert(0) += resized.mapped.len() as u64;
        if resized.lost.is_empty() { Ok(resized.flush) } else { Err(Failure::OutOfFrames) }
    }

    /// Sets bits of the page that holds `addr`.
    pub(crate) fn set_usage(
        &mut self,
        space: Space,
        addr: VirtAddr,
        bits: Usage,
    ) -> Result<(), Failure> {
        Ok(self.table.set_usage(space, addr, bits)?)
    }

    /// Frees the tables' frames that ride in `flush`, once no hardware leads to them any more.
    pub(crate) fn done(&mut self, flush: Flush) {
        flush.done(&mut self.frames);
    }

    /// Mapped pages by size.
    pub(crate) fn mapped(&self) -> &BTreeMap<PageSize, u64> {
        &self.mapped
    }

    /// Bytes of all frames, and of frames in use.
    pub(crate) fn frame_bytes(&self) -> (u64, u64) {
        let frames = &self.frames.store;
        if self.has_frames { (frames.bytes(), frames.used_bytes()) } else { (0, 0) }
    }

    /// Bytes of frames in use when most were.
    pub(crate) fn peak_bytes(&self) -> u64 {
        // Tables may have grown since a page was mapped last.
        if self.has_frames { self.peak_bytes.max(self.frames.store.used_bytes()) } else { 0 }
    }

    /// What the page tables take.
    pub(crate) fn footprint(&self) -> Footprint {
        self.table.footprint()
    }
}

/// Where frames come from, and where an allocation can be made to fail.
struct Supply {
    store: FrameStore,
    /// How many more allocations it takes to the one that fails.
    until_refusal: Option<u64>,
    has_refused: bool,
}

impl Supply {
    fn allocate_page(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        self.refuse_if_due(size)?;
        self.store.allocate_page(size, State::Movable)
    }

    fn refuse_if_due(&mut self, size: PageSize) -> Result<(), OutOfFrames> {
        let Some(left) = &mut self.until_refusal else { return Ok(()) };
        *left -= 1;
        if *left > 0 {
            return Ok(());
        }
        (self.until_refusal, self.has_refused) = (None, true);
        Err(OutOfFrames { size, free_bytes: self.store.free_bytes() })
    }
}

impl Frames for Supply {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        self.refuse_if_due(size)?;
        self.store.allocate_page(size, State::Table)
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        self.store.free(frame, size);
    }
}

/// The host that `description` has, if any.
fn host(description: &Description) -> Result<Option<Host>, (String, String)> {
    let Some(nested) = &description.nested else { return Ok(None) };
    let what = match &description.page_table {
        None => "a machine of TLBs alone has no memory that a host could back",
        Some(table) if is_linear(table) => {
            "a linear page table is found through the TLB, which a host is not part of yet: \
             choose another page_table.format"
        }
        Some(_) => return Host::new(description, nested).map(Some),
    };
    Err(("nested".to_owned(), what.to_owned()))
}

/// Whether walks of a table ask the TLB for the table itself.
fn is_linear(table: &description::PageTable) -> bool {
    Format::named(&table.format).is_some_and(|format| format.walked == Walked::ThroughTlb)
}
