use alloc::{collections::TryReserveError, vec::Vec};
use core::{fmt, ops::Range};

use addr::{Frames, OutOfFrames, PageSize, PhysAddr};

use crate::{
    allocator::Allocator,
    buddy::Buddy,
    frame::{FrameId, Pfdat, State},
    nodes::Nodes,
    request::Request,
    table::{CHUNK_SHIFT, FrameTable},
};

/// A range of physical memory: the descriptors of its frames, and the allocator of its free frames.
///
/// ```text
///   allocate(request) -> allocator chooses -> descriptors: free -> request.state
///   free(frame, size) -> descriptors: free -> allocator enters
/// ```
///
/// Every request goes through this type, so that descriptors and free lists always agree on which
/// frames are free. A frame has one owner; freeing it twice is an error.
pub struct Physmem<A = Buddy> {
    table: FrameTable,
    allocator: A,
    /// The free blocks that have been filled with zeros, as the numbers of their first frames. The
    /// next field has log2 of their number of frames.
    zeroed: Vec<u32>,
    zeroed_order: u32,
    /// Whether the block that was allocated last had been filled with zeros.
    was_zeroed: bool,
}

/// Why a range of memory cannot be managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeometryError {
    /// The range does not begin and end on base-frame boundaries.
    Misaligned {
        /// The base frame's size.
        base: PageSize,
    },
    /// The range extends past the end of the physical address space.
    Wraps,
    /// The range has more frames than 32 bits can number.
    TooLarge {
        /// The base frame's size.
        base: PageSize,
    },
    /// The heap has no memory left for the descriptors.
    NoMemory,
}

/// Why frames cannot be freed. A call that fails changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeError {
    /// The frames are not all frames of this memory, or are not aligned to their size.
    Foreign {
        /// The first of the frames.
        frame: PhysAddr,
    },
    /// A frame is free: it was already freed, or was never allocated.
    NotOut {
        /// The frame that is free.
        frame: PhysAddr,
    },
    /// A frame is wired.
    Wired {
        /// The frame that is wired.
        frame: PhysAddr,
    },
}

impl Physmem<Buddy> {
    /// `bytes` bytes of memory from `start`, all free, with base frames of size `base`, under the
    /// buddy system.
    pub fn buddy(
        start: PhysAddr,
        bytes: u64,
        base: PageSize,
    ) -> Result<Physmem<Buddy>, GeometryError> {
        Physmem::new(start, bytes, base, Buddy::new)
    }
}

impl<A: Allocator> Physmem<A> {
    /// `bytes` bytes of memory from `start`, all free, with base frames of size `base`. `allocator`
    /// creates the allocator from the numbers of the frames.
    pub fn new(
        start: PhysAddr,
        bytes: u64,
        base: PageSize,
        allocator: impl FnOnce(Range<u32>) -> A,
    ) -> Result<Physmem<A>, GeometryError> {
        let frames = numbers(start, bytes, base)?;
        let table = FrameTable::new(base, frames.clone())?;
        let mut physmem = Physmem::of(table, allocator(frames.clone()));
        physmem.cover(frames)?;
        Ok(physmem)
    }

    /// Memory of `bytes` bytes from `start`, divided among `nodes` NUMA nodes (at least one) of equal size.
    /// If the division has a remainder, the last node is larger by that much. Each node has an
    /// allocator of its own.
    pub fn with_nodes(
        start: PhysAddr,
        bytes: u64,
        base: PageSize,
        nodes: u8,
        allocator: impl FnMut(Range<u32>) -> A,
    ) -> Result<Physmem<Nodes<A>>, GeometryError> {
        Physmem::on_nodes(start, bytes, base, nodes, |ranges| {
            Nodes::new(ranges.iter().cloned().zip(ranges.iter().cloned().map(allocator)).collect())
        })
    }

    /// Memory of `bytes` bytes from `start`, divided among `nodes` NUMA nodes as [`Physmem::with_nodes`]
    /// does, with one allocator for all nodes. `allocator` creates it from the frame numbers of
    /// each node.
    pub fn on_nodes(
        start: PhysAddr,
        bytes: u64,
        base: PageSize,
        nodes: u8,
        allocator: impl FnOnce(&[Range<u32>]) -> A,
    ) -> Result<Physmem<A>, GeometryError> {
        let frames = numbers(start, bytes, base)?;
        let count = u32::from(nodes.max(1));
        let each = (frames.end - frames.start) / count;
        let range = |node: u32| {
            let first = frames.start + node * each;
            first..if node + 1 == count { frames.end } else { first + each }
        };
        let ranges: Vec<Range<u32>> = (0..count).map(range).collect();
        let ends: Vec<u32> = ranges.iter().map(|range| range.end).collect();
        let mut table = FrameTable::new(base, frames)?;
        table.set_nodes(&ends);
        let mut physmem = Physmem::of(table, allocator(&ranges));
        ranges.into_iter().try_for_each(|range| physmem.cover(range))?;
        Ok(physmem)
    }

    /// The descriptors of all frames.
    pub const fn table(&self) -> &FrameTable {
        &self.table
    }

    /// Mutable access to the descriptor of a frame, for the frame's owner.
    pub fn pfdat_mut(&mut self, frame: FrameId) -> &mut Pfdat {
        self.table.get_mut(frame)
    }

    /// Reserves memory for the descriptors of all frames. Without this call, memory for 512
    /// descriptors is reserved when one of their frames is first allocated, and the request fails
    /// if no memory is left. A kernel whose heap gets its pages from this memory calls the function
    /// when it starts, because it must not allocate from the heap while it holds the lock of this
    /// memory.
    ///
    /// # Errors
    /// Fails if no memory is left. The descriptors that have been reserved stay reserved, and a
    /// later call reserves the others.
    pub fn reserve_descriptors(&mut self) -> Result<(), GeometryError> {
        if self.table.reserve_all() { Ok(()) } else { Err(GeometryError::NoMemory) }
    }

    /// Whether the last request found no heap memory for descriptors or for other data of the
    /// allocator. If that request failed, there may still be free frames.
    pub const fn is_short_of_memory(&self) -> bool {
        self.table.is_short()
    }

    /// The allocator.
    pub const fn allocator(&self) -> &A {
        &self.allocator
    }

    /// The allocator, together with the descriptors that its operations need.
    pub fn allocator_mut(&mut self) -> (&mut A, &mut FrameTable) {
        (&mut self.allocator, &mut self.table)
    }

    /// The size of the base frame, the smallest that can be allocated.
    pub const fn base(&self) -> PageSize {
        self.table.base()
    }

    /// Bytes of all frames.
    pub fn bytes(&self) -> u64 {
        self.table.frames().len() as u64 * self.base().bytes()
    }

    /// Free memory in bytes, in blocks of any size.
    pub fn free_bytes(&self) -> u64 {
        self.table.count(State::Free) * self.base().bytes()
    }

    /// Reserved memory in bytes: memory kept for objects that are expected to use it, and freed if
    /// memory runs out.
    pub fn reserved_bytes(&self) -> u64 {
        self.table.count(State::Reserved) * self.base().bytes()
    }

    /// Memory in use or reserved, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.bytes() - self.free_bytes()
    }

    /// The number of free blocks of exactly `size`; parts of larger free blocks are not counted.
    pub fn free_frames(&self, size: PageSize) -> u64 {
        match size.shift().checked_sub(self.base().shift()) {
            Some(order) => self.allocator.free_blocks(order),
            None => 0,
        }
    }

    /// The size of the largest free block.
    pub fn largest_free(&self) -> Option<PageSize> {
        self.size(self.allocator.largest_free()?)
    }

    /// Allocates frames; their contents are arbitrary.
    pub fn allocate(&mut self, request: &Request) -> Result<FrameId, OutOfFrames> {
        self.table.begin();
        let found = self.allocator.allocate(&mut self.table, request);
        let first = found.ok_or_else(|| self.out_of_frames(request.order))?;
        self.hand_out(first, request.order, request.state);
        Ok(first)
    }

    /// Allocates one page of `size` and returns its physical address.
    pub fn allocate_page(&mut self, size: PageSize, state: State) -> Result<PhysAddr, OutOfFrames> {
        let first = self.allocate(&Request::new(self.table.order(size), state))?;
        Ok(self.table.address(first))
    }

    /// Allocates exactly the `2^order` frames from `first`, if all are free. Returns whether they
    /// were allocated.
    pub fn take(&mut self, first: FrameId, order: u32, state: State) -> bool {
        self.table.begin();
        let taken =
            self.is_block(first, order) && self.allocator.take(&mut self.table, first, order);
        if taken {
            self.hand_out(first, order, state);
        }
        taken
    }

    /// Frees frames. They need not have been allocated together: a page that was split is freed in
    /// parts.
    pub fn try_free(&mut self, first: FrameId, order: u32) -> Result<(), FreeError> {
        let frame = self.table.address(first);
        if !self.is_block(first, order) {
            return Err(FreeError::Foreign { frame });
        }
        let (count, mut migratable) = (1u32 << order, 0);
        let base = self.base();
        let mut check = |first: u32, state: State, wired: u16, same: u32| {
            let frame = PhysAddr::new(u64::from(first) << base.shift());
            migratable += if state.is_migratable() { i64::from(same) } else { 0 };
            match state {
                State::Free | State::Reserved => Err(FreeError::NotOut { frame }),
                _ if wired > 0 => Err(FreeError::Wired { frame }),
                _ => Ok(()),
            }
        };
        if count == 1 {
            let check = |pfdat: &Pfdat| check(first.0, pfdat.state(), pfdat.wired, 1);
            self.table.take_back_one(first, check)?;
        } else {
            if let Some((pfdat, others)) = self.table.alike(first, count) {
                check(first.0, pfdat.state(), pfdat.wired, 1)?;
                check(first.0 + 1, others, 0, count - 1)?;
            } else {
                self.table.runs(first.0, first.0 + count, |first, pfdat, same| {
                    check(first.0, pfdat.state(), pfdat.wired, same)
                })?;
            }
            self.table.take_back(first, count);
        }
        if migratable > 0 {
            self.allocator.migratable_changed(first, -migratable);
        }
        self.allocator.free(&mut self.table, first, order);
        Ok(())
    }

    /// Changes the state of frames in use.
    ///
    /// # Panics
    /// Panics if one of the frames is free.
    pub fn set_state(&mut self, first: FrameId, order: u32, state: State) {
        let before = self.migratable(first, order);
        self.table.set_state(first, 1 << order, state);
        self.tell_migratable(first, order, before);
    }

    /// Wires a frame: adds a reason not to move or reclaim it, such as a lock in memory or a
    /// transfer under way.
    pub fn wire(&mut self, frame: FrameId) {
        let before = self.migratable(frame, 0);
        self.table.get_mut(frame).wired += 1;
        self.tell_migratable(frame, 0, before);
    }

    /// Unwires a frame: removes a reason not to move or reclaim it.
    ///
    /// # Panics
    /// Panics if the frame is not wired.
    pub fn unwire(&mut self, frame: FrameId) {
        let before = self.migratable(frame, 0);
        let pfdat = self.table.get_mut(frame);
        assert!(pfdat.wired > 0, "frame {} is not wired", frame.0);
        pfdat.wired -= 1;
        self.tell_migratable(frame, 0, before);
    }

    fn migratable(&self, first: FrameId, order: u32) -> i64 {
        let frames = first.0..first.0 + (1 << order);
        frames.map(|number| i64::from(self.table.get(FrameId(number)).is_migratable())).sum()
    }

    fn tell_migratable(&mut self, first: FrameId, order: u32, before: i64) {
        let change = self.migratable(first, order) - before;
        if change != 0 {
            self.allocator.migratable_changed(first, change);
        }
    }

    fn hand_out(&mut self, first: FrameId, order: u32, state: State) {
        self.table.hand_out(first, 1 << order, state);
        self.was_zeroed = !self.zeroed.is_empty() && self.uses_zeroed(first, order);
        if state.is_migratable() {
            self.allocator.migratable_changed(first, 1 << order);
        }
    }

    /// Records that the free block of `2^order` frames from `first` has been filled with zeros. All
    /// such blocks must have the same order.
    ///
    /// # Panics
    /// Panics if the block is in use.
    ///
    /// # Errors
    /// Fails if no memory is left for the record. The block then does not count as filled with
    /// zeros.
    pub fn set_zeroed(&mut self, first: FrameId, order: u32) -> Result<(), TryReserveError> {
        let frames = first.0..first.0 + (1 << order);
        let mut states = frames.map(|number| self.table.get(FrameId(number)).state());
        assert!(states.all(|state| state == State::Free), "frame {} is in use", first.0);
        if let Err(place) = self.zeroed.binary_search(&first.0) {
            self.zeroed.try_reserve(1)?;
            self.zeroed.insert(place, first.0);
        }
        self.zeroed_order = order;
        Ok(())
    }

    /// Whether the free block that begins with `first` has been filled with zeros.
    pub fn is_zeroed(&self, first: FrameId) -> bool {
        self.zeroed.binary_search(&first.0).is_ok()
    }

    /// Whether the frames that were allocated last consist of whole blocks that had been filled
    /// with zeros. When a part of such a block is allocated, the whole block no longer counts as
    /// zeroed.
    pub const fn was_zeroed(&self) -> bool {
        self.was_zeroed
    }

    #[cold]
    fn uses_zeroed(&mut self, first: FrameId, order: u32) -> bool {
        let start = first.0 >> self.zeroed_order << self.zeroed_order;
        let end = u64::from(first.0) + (1 << order);
        let from = self.zeroed.partition_point(|block| *block < start);
        let to = self.zeroed.partition_point(|block| u64::from(*block) < end);
        self.zeroed.drain(from..to);
        ((to - from) as u64) << self.zeroed_order == 1 << order
    }

    const fn of(table: FrameTable, allocator: A) -> Physmem<A> {
        Physmem { table, allocator, zeroed: Vec::new(), zeroed_order: 0, was_zeroed: false }
    }

    /// Frees a range of frames, in the largest aligned blocks that fit.
    fn cover(&mut self, frames: Range<u32>) -> Result<(), GeometryError> {
        let mut first = frames.start;
        while first < frames.end {
            let order = (frames.end - first).ilog2().min(first.trailing_zeros()).min(31);
            // The descriptor of the first frame of a chunk is stored outside the chunk, so it needs
            // no reservation.
            if !first.is_multiple_of(1 << CHUNK_SHIFT) && !self.table.reserve(FrameId(first), 0) {
                return Err(GeometryError::NoMemory);
            }
            self.allocator.free(&mut self.table, FrameId(first), order);
            first += 1 << order;
        }
        Ok(())
    }

    fn is_block(&self, first: FrameId, order: u32) -> bool {
        let frames = self.table.frames();
        let end = u64::from(first.0) + (1u64 << order.min(32));
        first.0.trailing_zeros() >= order && first.0 >= frames.start && end <= frames.end.into()
    }

    fn size(&self, order: u32) -> Option<PageSize> {
        PageSize::from_shift((self.base().shift() + order) as u8)
    }

    fn out_of_frames(&self, order: u32) -> OutOfFrames {
        OutOfFrames { size: self.size(order).unwrap_or(self.base()), free_bytes: self.free_bytes() }
    }
}

/// Allocation of frames for page tables, and for callers that do not state a use.
impl<A: Allocator> Frames for Physmem<A> {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        self.allocate_page(size, State::Table)
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        let order = self.table.order(size);
        let freed = match self.table.frame_at(frame) {
            Some(first) => self.try_free(first, order),
            None => Err(FreeError::Foreign { frame }),
        };
        if let Err(error) = freed {
            panic!("a frame was freed that is not its owner's to free: {error}");
        }
    }
}

fn numbers(start: PhysAddr, bytes: u64, base: PageSize) -> Result<Range<u32>, GeometryError> {
    let end = start.checked_add(bytes).ok_or(GeometryError::Wraps)?;
    if !start.is_aligned(base) || !end.is_aligned(base) {
        return Err(GeometryError::Misaligned { base });
    }
    let number = |addr: PhysAddr| u32::try_from(addr.get() >> base.shift());
    match (number(start), number(end)) {
        (Ok(first), Ok(end)) => Ok(first..end),
        _ => Err(GeometryError::TooLarge { base }),
    }
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryError::Misaligned { base } => {
                write!(f, "physical memory must begin and end on multiples of {base}")
            }
            GeometryError::NoMemory => f.write_str("no memory is left for descriptors of frames"),
            GeometryError::Wraps => {
                f.write_str("physical memory runs past the end of the address space")
            }
            GeometryError::TooLarge { base } => {
                write!(f, "physical memory has more than 4294967295 frames of {base}")
            }
        }
    }
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreeError::Foreign { frame } => {
                write!(f, "the frames at {frame} are not of this memory, or not aligned")
            }
            FreeError::NotOut { frame } => write!(f, "no frame at {frame} is in use"),
            FreeError::Wired { frame } => write!(f, "the frame at {frame} is wired"),
        }
    }
}

impl From<TryReserveError> for GeometryError {
    fn from(_: TryReserveError) -> GeometryError {
        GeometryError::NoMemory
    }
}

impl core::error::Error for GeometryError {}
impl core::error::Error for FreeError {}
