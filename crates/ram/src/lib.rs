//! The memory of a machine with its page table: hardware walks the page table and the operating
//! system edits it. This crate only stores data; the operating system makes all decisions.
//!
//! ```text
//!   walker -- walk, place --> Ram: page table in its memory, <-- map, unmap -- System
//!                             |    free frames                   allocate
//! ```
//!
//! In a virtual machine, the addresses of these frames are guest-physical. The host (`os/host.rs`)
//! has a memory of its own, whose frames back these addresses.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "parts of one program: a field whose name says all has no comment")]

pub mod frames;
pub mod hashed;
pub mod reservations;
mod room;
pub mod table;
pub mod topology;
pub mod walk;

use std::{collections::BTreeMap, slice};

use addr::{Frames, Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use description::{
    self, Description, Refusal,
    managers::{keeps_tables_apart, reservations},
    units,
};
use hat::{Hat, HatSpace, LoadError, locking::Site};
use pagetable::{
    Fault, Flush, Footprint, Mapping, Node, Reference, Space, SparseMemory, Translation, TreeShape,
    Usage,
};
use physmem::{
    Allocator, BlockCounts, Blocks, FrameId, Physmem, Refusing, ReservationCounts, Reserver,
    Segment, State,
};
use prefetch_index::prefetch_index;
use vm::Physical;

use self::{
    frames::{HOST, Lists, age, frames, lists, reserved, wished},
    room::Guest,
    table::{Format, Walked},
    topology::Topology,
};

/// An allocator that is chosen when a machine is built; one of its allocations can be made to fail.
pub type AnyAllocator = Refusing<Box<dyn Allocator + Send>>;

/// The frames of a machine, free and in use.
pub type FrameStore = Physmem<AnyAllocator>;

/// Why memory, or the page table in it, could not perform an operation.
#[derive(Debug)]
pub enum Failure {
    /// No frame is left.
    OutOfFrames,
    /// No frame of the host is left.
    OutOfHostFrames,
    /// Pages would have to be evicted, but no page can be evicted; the text gives the reason.
    OutOfMemory(String),
    /// The page table cannot perform the operation; the text has its error.
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

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Failure {
        match error {
            LoadError::NoTableMemory => Failure::OutOfFrames,
            other => Failure::Table(other.to_string()),
        }
    }
}

/// How mapped pages are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counted {
    /// [`Ram`] itself counts pages when they are mapped and unmapped.
    Here,
    /// The HAT layer counts pages.
    InHat,
}

/// Physical memory, and the page table in it with all its spaces.
///
/// A system with mapping lists edits the table through the HAT layer ([`Ram::parts`]); a system
/// without mapping lists edits the table through this type.
pub struct Ram {
    hat: Hat,
    frames: Physical<AnyAllocator>,
    /// Whether pages have frames. False for a machine that consists only of TLBs, in which the
    /// address of a page is used as the address of its frame.
    has_frames: bool,
    is_linear: bool,
    /// [`Format::wider`] of the page table.
    wider: &'static [(u32, &'static str)],
    /// The spaces by the number that the trace uses.
    spaces: BTreeMap<u32, (HatSpace, Space)>,
    mapped: BTreeMap<PageSize, u64>,
    /// How mapped pages are counted, with the counts.
    pages: Counted,
    /// Bytes of frames that were in use before the run.
    aged_bytes: u64,
    /// In a host that keeps reservations: the guest whose memory this host backs.
    guest: Option<Guest>,
    /// Bytes of physical addresses that have no frame, because devices use these addresses.
    absent_bytes: u64,
    /// The number of frames that devices own.
    device_frames: u64,
    /// Bytes of the frames that pages are mapped to, if several pages can share a frame and the
    /// system reports this number.
    held_bytes: Option<u64>,
    peak_bytes: u64,
    /// Whether root entries may be copied into other roots, for small spaces.
    lends: bool,
}

impl Ram {
    /// Creates empty memory. The error has the key that is wrong.
    pub fn new(description: &Description) -> Result<Ram, Refusal> {
        let sizes = reservations(&description.os).map(|asked| asked.sizes);
        Ram::with(description, "os.reservations", sizes)
    }

    /// The memory of the host `nested`, with the page table and operating system of `description`, for a
    /// guest with `guest_bytes`.
    pub fn of_host(
        description: &Description,
        nested: &description::Nested,
        guest_bytes: u64,
    ) -> Result<Ram, Refusal> {
        let asked = nested.reservations.clone().map(|asked| asked.sizes);
        let keeps_room = asked.is_some();
        let mut ram = Ram::with(description, HOST, asked)?;
        let base = description.os.frame();
        if let Some(former) = &nested.former {
            let left = room::have_had(ram.frames.get_mut(), former);
            let left = left.map_err(|what| Refusal::new("nested.former", what))?;
            ram.aged_bytes += left * base.bytes();
        }
        ram.guest = keeps_room.then(|| Guest::new(guest_bytes, base));
        Ok(ram)
    }

    fn with(
        description: &Description,
        key: &str,
        sizes: Option<Vec<units::PageSize>>,
    ) -> Result<Ram, Refusal> {
        let hat = table::new(description, SparseMemory::new(description.memory.size.0))?;
        let base = description.os.frame();
        let apart = keeps_tables_apart(&description.os);
        // An error of the lists does not depend on the range, so errors are checked once.
        lists(description, base, hat.page_sizes(), None)?;
        let lists = |frames| {
            let made = lists(description, base, hat.page_sizes(), Some(frames));
            made.unwrap_or(Lists::Buddy)
        };
        let reserved = reserved(description, base, key, sizes)?;
        let topology = Topology::of(description)?;
        let kept = hashed::kept(description)?;
        let wished = wished(description, kept.as_ref(), topology.as_ref())?;
        let memory = &description.memory;
        let frames = frames(memory, base, &lists, &reserved, wished, apart, topology.as_ref());
        let mut frames = frames.map_err(|error| Refusal::new("memory.size", error))?;
        let arrays = kept.map_or(Ok(0), |kept| kept.take(&mut frames));
        let arrays = arrays.map_err(|what| Refusal::new("os.utopia", what))?;
        let holes = description.nested.as_ref().map_or(&[][..], |nested| nested.holes.as_slice());
        let absent = room::leave_out(&mut frames, holes)
            .map_err(|what| Refusal::new("nested.holes", what))?;
        let aged_frames = match &description.memory.aged {
            Some(aged) if description.page_table.is_some() => {
                age(&mut frames, aged).map_err(|error| Refusal::new("memory.aged", error))?
            }
            Some(_) => {
                let what = "a machine without a page table has no frames that could be in use: \
                            leave \
                            memory.aged out";
                return Err(Refusal::new("memory.aged", what.to_owned()));
            }
            None => 0,
        };
        Ok(Ram {
            guest: None,
            absent_bytes: absent * base.bytes(),
            hat,
            aged_bytes: (aged_frames + arrays) * base.bytes(),
            device_frames: 0,
            frames: Physical::new(frames),
            has_frames: description.page_table.is_some(),
            is_linear: description.page_table.as_ref().is_some_and(is_linear),
            wider: description.page_table.as_ref().map_or(&[], wider),
            spaces: BTreeMap::new(),
            mapped: BTreeMap::new(),
            pages: Counted::Here,
            held_bytes: apart.then_some(0),
            peak_bytes: 0,
            lends: description.os.small.is_some(),
        })
    }

    /// The space that has the number `number` in the trace. An empty space is created at the first
    /// request for a number.
    pub fn space(&mut self, number: u32) -> Result<Space, Failure> {
        if let Some((_, space)) = self.spaces.get(&number) {
            return Ok(*space);
        }
        let created = self.hat.create(&mut Creating(self.frames.get_mut()))?;
        self.call(number, created)
    }

    /// A space without a number in the trace, of which only the root is used.
    pub fn fresh(&mut self) -> Result<(HatSpace, Space), Failure> {
        let made = self.hat.create(&mut Creating(self.frames.get_mut()))?;
        let space = self.hat.space(made).ok_or(LoadError::NoSpace(made))?;
        Ok((made, space))
    }

    /// Empties the copies of root entries that lead to tables which `flush` removes. Call it before
    /// the flush.
    pub fn recall(&self, flush: &Flush) {
        if flush.tables().is_some() {
            let hat = self.spaces.values().find(|(_, known)| *known == flush.space());
            hat.iter().for_each(|(hat, _)| self.hat.recall(*hat));
        }
    }

    /// Transfers usage bits to a space's own entries from copies of them in other roots, for
    /// entries that map pages. Must be called before a page of `space` is read or changed.
    fn settle(&self, space: Space) {
        if self.lends {
            let hat = self.spaces.values().find(|(_, known)| *known == space);
            hat.iter().for_each(|(hat, _)| self.hat.settle(*hat));
        }
    }

    /// Assigns the number `number` of the trace to a space that the system has created.
    pub fn call(&mut self, number: u32, made: HatSpace) -> Result<Space, Failure> {
        let space = self.hat.space(made).ok_or(LoadError::NoSpace(made))?;
        self.spaces.insert(number, (made, space));
        Ok(space)
    }

    /// The HAT layer's space for the space that the trace calls `number`, if it exists.
    pub fn hat_space(&self, number: u32) -> Option<HatSpace> {
        self.spaces.get(&number).map(|(space, _)| *space)
    }

    /// All spaces: the number in the trace, and the HAT layer's space.
    pub fn hat_spaces(&self) -> impl Iterator<Item = (u32, HatSpace)> {
        self.spaces.iter().map(|(number, (space, _))| (*number, *space))
    }

    /// The number of the base frame that contains `at`.
    pub fn frame_at(&self, at: PhysAddr) -> FrameId {
        FrameId((at.get() >> self.look(|frames| frames.base()).shift()) as u32)
    }

    /// Whether a place of the set `set` of a restrictive segment is in use.
    pub fn is_taken(&self, segment: Segment, set: u32) -> bool {
        let is_free = |frame: u32, frames: &FrameStore| {
            frames.table().get(FrameId(frame)).state() == State::Free
        };
        self.look(|frames| {
            let mut places = segment.places(set);
            places.any(|at| (at.0..at.0 + (1 << segment.order)).any(|one| !is_free(one, frames)))
        })
    }

    /// Counts of page blocks, if there are any.
    pub fn page_blocks(&self) -> Option<BlockCounts> {
        self.look(|frames| frames.allocator().blocks().map(Blocks::counts))
    }

    /// The page table with its mapping lists, and the frames.
    pub fn parts(&self) -> (&Hat, &Physical<AnyAllocator>) {
        (&self.hat, &self.frames)
    }

    /// The page table with its mapping lists, and the frames. The caller has exclusive access, so no lock is
    /// taken.
    pub fn parts_mut(&mut self) -> (&Hat, &mut FrameStore) {
        (&self.hat, self.frames.get_mut())
    }

    /// Runs `f` on the frames.
    fn look<R>(&self, f: impl FnOnce(&FrameStore) -> R) -> R {
        self.frames.with(Site::Look, |frames| f(frames))
    }

    /// Updates the counts after the system has made changes through the HAT layer. `held_bytes` are
    /// the bytes of the frames that pages are mapped to.
    pub fn note(&mut self, held_bytes: u64) {
        self.pages = Counted::InHat;
        self.held_bytes = Some(held_bytes);
        self.peak_bytes = self.peak_bytes.max(self.used_bytes());
    }

    /// The space that runs when a trace begins. The error has the key that is wrong.
    pub fn first_space(&mut self) -> Result<Space, Refusal> {
        self.space(0).map_err(|_| {
            let what = "memory has no room for the root of a page table".to_owned();
            Refusal::new("memory.size", what)
        })
    }

    /// The number of `space` in the trace.
    pub fn number_of(&self, space: Space) -> Option<u32> {
        self.spaces.iter().find(|(_, (_, known))| *known == space).map(|(number, _)| *number)
    }

    /// The number of address spaces.
    pub fn spaces(&self) -> usize {
        self.spaces.len()
    }

    /// Records that a processor of `node` runs from now on.
    pub fn runs_on(&mut self, node: usize) {
        self.frames.get_mut().allocator_mut().0.on_node(node as u8);
    }

    /// The bytes of `node` that are in use or reserved; `bytes` is the size of the node.
    pub fn used_on(&self, node: u8, bytes: u64) -> Option<u64> {
        self.look(|frames| {
            let free = frames.allocator().free_on(node)?;
            Some(bytes - free * frames.base().bytes())
        })
    }

    /// Makes the `number`th frame allocation from now on fail, for a page or for a table.
    pub fn refuse(&mut self, number: u64) {
        self.frames.get_mut().allocator_mut().0.refuse(number);
    }

    /// Whether the requested failure has happened.
    pub fn has_refused(&self) -> bool {
        self.look(|frames| frames.allocator().has_refused())
    }
}

/// Operations of hardware.
impl Ram {
    /// Walks the page table for `addr` in `space`.
    pub fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        self.hat.table_mut().walk(space, addr, kind, references)
    }

    /// Prefetches, on the computer that runs the simulation, the entry that a walk will read last,
    /// if possible. Returns the address of the entry.
    #[inline]
    pub fn soon(&mut self, space: Space, addr: VirtAddr) -> Option<PhysAddr> {
        let (at, entry) = self.hat.table_mut().last_entry(space, addr)?;
        fetch(entry);
        Some(at)
    }

    /// Walks the page table from the node `start`, even if this node is stale.
    pub fn walk_from(
        &mut self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        self.hat.table_mut().walk_from(start, addr, kind, references)
    }

    /// The node at which walks in `space` start without an MMU cache.
    pub fn root(&self, space: Space) -> Node {
        self.hat.table().root(space)
    }

    /// Whether the page table is an array in virtual memory.
    pub fn is_linear(&self) -> bool {
        self.is_linear
    }

    /// The tree properties of the page table, if its walks descend from a root.
    pub fn tree_shape(&self) -> Option<TreeShape> {
        self.hat.table().tree_shape()
    }
}

/// Operations of the operating system.
impl Ram {
    /// The page sizes that the page table supports, ascending.
    pub fn page_sizes(&self) -> &[PageSize] {
        self.hat.page_sizes()
    }

    /// The settings that give the machine a page table for longer addresses: [`Format::wider`].
    pub fn wider(&self) -> &'static [(u32, &'static str)] {
        self.wider
    }

    /// The 8 bytes at `at`, which lie in a page table.
    pub fn word(&self, at: PhysAddr) -> Option<u64> {
        self.hat.table().word(at).copied()
    }

    /// The mapping of `addr` in `space`, read without a walk.
    pub fn mapping(&self, space: Space, addr: VirtAddr) -> Option<Mapping> {
        self.hat.table().query(space, addr)
    }

    /// Whether the page that holds `addr` allows stores and has not been stored to.
    pub fn is_clean(&self, space: Space, addr: VirtAddr) -> bool {
        self.mapping(space, addr).is_some_and(|mapping| {
            mapping.translation.rights.allows(Kind::Store) && !mapping.usage.dirty
        })
    }

    /// Allocates a frame for `page`.
    pub fn allocate(&mut self, page: Page) -> Result<PhysAddr, Failure> {
        if !self.has_frames {
            return Ok(PhysAddr::new(page.start().get()));
        }
        let frames = self.frames.get_mut();
        let frame = match &mut self.guest {
            Some(guest) => {
                guest.place(page.number(), frames).map(|frame| frames.table().address(frame))
            }
            None => {
                frames.allocate_page(page.size(), State::Movable).map_err(|_| Failure::OutOfFrames)
            }
        };
        self.hold(i64::from(frame.is_ok()) * page.size().bytes() as i64);
        frame
    }

    /// Allocates exactly this frame for a page, if it is free. Returns whether the frame was
    /// allocated.
    pub fn take(&mut self, frame: PhysAddr, size: PageSize) -> bool {
        let frames = self.frames.get_mut();
        let (first, order) = (frames.table().frame_at(frame), frames.table().order(size));
        let taken = first.is_some_and(|first| frames.take(first, order, State::Movable));
        self.hold(i64::from(taken) * size.bytes() as i64);
        taken
    }

    /// Adds `bytes`, which may be negative, to the bytes of the frames that pages are mapped to, if
    /// the machine counts frames.
    fn hold(&mut self, bytes: i64) {
        self.held_bytes = self.held_bytes.map(|held| held.saturating_add_signed(bytes));
    }

    /// Frees a frame to which no translation leads any more.
    pub fn free(&mut self, frame: PhysAddr, size: PageSize) {
        if self.has_frames {
            self.frames.get_mut().free(frame, size);
            self.hold(-(size.bytes() as i64));
        }
    }

    /// Maps one page.
    pub fn map(&mut self, space: Space, page: Translation) -> Result<Flush, Failure> {
        let flush = self.hat.table_mut().map(space, page, 1, self.frames.get_mut())?;
        *self.mapped.entry(page.page.size()).or_insert(0) += 1;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes());
        Ok(flush)
    }

    /// Unmaps the pages in `range`; their frames stay in use. `each` gets the unmapped pages.
    pub fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Failure> {
        self.settle(space);
        let mapped = &mut self.mapped;
        let flush = self.hat.table_mut().unmap(space, range, &mut |mapping| {
            *mapped.entry(mapping.translation.page.size()).or_insert(0) -= 1;
            each(mapping);
        })?;
        Ok(flush)
    }

    /// Sets the rights of the pages in `range`.
    pub fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
    ) -> Result<Flush, Failure> {
        self.settle(space);
        Ok(self.hat.table_mut().protect(space, range, rights, &mut |_| {})?)
    }

    /// Maps the frame of `page` by pages of the size `to`.
    pub fn resize(&mut self, space: Space, page: Page, to: PageSize) -> Result<Flush, Failure> {
        self.settle(space);
        let range = VirtRange::of_page(page);
        let mut due = Flush::nothing(space);
        // No processor runs before it has flushed the entries that the returned token names.
        let forget = &mut |flush: &Flush| due = flush.without_frames();
        let frames = self.frames.get_mut();
        let mapped = self.hat.table_mut().resize(space, range, to, frames, forget)?;
        *self.mapped.entry(page.size()).or_insert(0) -= 1;
        *self.mapped.entry(to).or_insert(0) += mapped.len() as u64;
        Ok(due)
    }

    /// Sets usage bits of the page that holds `addr`.
    pub fn set_usage(&mut self, space: Space, addr: VirtAddr, bits: Usage) -> Result<(), Failure> {
        Ok(self.hat.table_mut().set_usage(space, addr, bits)?)
    }

    /// Frees the frames of tables in `flush`. Call it when no TLB and no MMU cache refers to these
    /// tables any more.
    pub fn done(&mut self, flush: Flush) {
        flush.done(self.frames.get_mut());
    }

    /// Bytes of frames that were in use before the run began.
    pub fn aged_bytes(&self) -> u64 {
        self.aged_bytes
    }

    /// Sets the number of frames that devices own.
    pub fn set_device_frames(&mut self, frames: u64) {
        self.device_frames = frames;
    }

    /// Bytes of frames that devices have.
    pub fn device_bytes(&self) -> u64 {
        self.device_frames * self.look(|frames| frames.base().bytes())
    }

    /// Bytes of the frames that pages are mapped to.
    pub fn mapped_bytes(&self) -> u64 {
        let of_pages = || self.mapped.iter().map(|(size, pages)| size.bytes() * pages).sum();
        if self.has_frames { self.held_bytes.unwrap_or_else(of_pages) } else { 0 }
    }

    /// The number of mapped pages by size.
    pub fn mapped(&self) -> BTreeMap<PageSize, u64> {
        match self.pages {
            Counted::Here => self.mapped.clone(),
            Counted::InHat => {
                let mut mapped: BTreeMap<_, _> = self.hat.mapped().collect();
                let base = self.hat.page_sizes()[0];
                mapped.retain(|size, pages| *size == base || *pages > 0);
                mapped
            }
        }
    }

    /// Bytes of all frames, and of frames in use.
    pub fn frame_bytes(&self) -> (u64, u64) {
        let bytes = || self.look(|frames| frames.bytes()) - self.absent_bytes;
        if self.has_frames { (bytes(), self.used_bytes()) } else { (0, 0) }
    }

    /// The number of free blocks of each size that has free blocks.
    pub fn free_blocks(&self) -> impl Iterator<Item = (PageSize, u64)> {
        let base = self.look(|frames| frames.base()).shift();
        let sizes = (base..base + u32::BITS).filter(|_| self.has_frames);
        let sizes = sizes.filter_map(|shift| PageSize::from_shift(shift as u8));
        let free = |size| (size, self.look(|frames| frames.free_frames(size)));
        sizes.map(free).filter(|(_, blocks)| *blocks > 0)
    }

    /// Bytes of frames that are neither free nor only reserved.
    fn used_bytes(&self) -> u64 {
        self.look(|frames| frames.used_bytes() - frames.reserved_bytes()) - self.absent_bytes
    }

    /// Bytes of frames that are reserved and not in use.
    pub fn reserved_bytes(&self) -> u64 {
        self.look(|frames| frames.reserved_bytes())
    }

    /// Counts of reservations by size, the largest first; empty if there are none.
    pub fn reservations(&self) -> Vec<(PageSize, ReservationCounts)> {
        let counts =
            self.look(|frames| frames.allocator().reserver().map_or(Vec::new(), Reserver::counts));
        let base = self.look(|frames| frames.base()).shift();
        let sized = counts.into_iter().filter_map(|(order, counts)| {
            Some((PageSize::from_shift((base + order) as u8)?, counts))
        });
        sized.collect()
    }

    /// Whether `frame` is in a reservation of the largest size.
    pub fn is_reserved(&self, frame: PhysAddr) -> bool {
        self.reservation_around(frame).is_some()
    }

    /// The reservation of the largest size that contains `frame`: its first frame, and its bytes.
    pub fn reservation_around(&self, frame: PhysAddr) -> Option<(PhysAddr, u64)> {
        self.look(|memory| {
            let reserver = memory.allocator().reserver()?;
            let (frames, largest) = (memory.table(), reserver.orders().first().copied()?);
            let (first, order, ..) = reserver.reservation(frames.frame_at(frame)?)?;
            let bytes = frames.base().bytes() << order;
            (order == largest).then(|| (frames.address(first), bytes))
        })
    }

    /// The largest number of bytes of frames in use so far.
    pub fn peak_bytes(&self) -> u64 {
        // Page tables may have grown after the last page was mapped.
        if self.has_frames { self.peak_bytes.max(self.used_bytes()) } else { 0 }
    }

    /// The memory that the page tables take.
    pub fn footprint(&self) -> Footprint {
        self.hat.table().footprint()
    }
}

/// Prefetches the cache line of `place`, if the computer that runs the simulation supports it.
#[inline]
pub fn fetch<T>(place: &T) {
    prefetch_index(slice::from_ref(place), 0);
}

/// The platform for creating a space: nothing has to be flushed, because hardware has no
/// translation of the new space.
struct Creating<'a>(&'a mut FrameStore);

impl hat::Platform for Creating<'_> {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn frames(&mut self) -> &mut dyn Frames {
        self.0
    }
}

/// Whether the page table is linear: walks use virtual addresses of page-table entries, which the
/// TLB translates.
pub fn is_linear(table: &description::PageTable) -> bool {
    Format::named(&table.format).is_some_and(|format| format.walked == Walked::ThroughTlb)
}

/// The settings that give the machine a page table for longer addresses.
fn wider(table: &description::PageTable) -> &'static [(u32, &'static str)] {
    Format::named(&table.format).map_or(&[], |format| format.wider)
}
