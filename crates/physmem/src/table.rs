use alloc::{boxed::Box, collections::TryReserveError, vec::Vec};
use core::ops::Range;

use addr::{PageSize, PhysAddr};

use crate::frame::{FrameId, Pfdat, State};

/// log2 of the base frames per chunk. A chunk has 512 base frames, which with frames of 4K is a
/// page of 2M, the most frequent size of a large allocation.
pub(crate) const CHUNK_SHIFT: u32 = 9;
const CHUNK_FRAMES: usize = 1 << CHUNK_SHIFT;

/// The largest number of NUMA nodes: a descriptor stores the node's number in eight bits.
const NODES_MAX: usize = 256;

/// The page-frame descriptors of a range of physical memory: the array of *pfdats* of G98 section
/// 6.1, allocated chunk by chunk where memory is used.
///
/// ```text
///   frame number  | chunk (23 bits) | place in it (9 bits) |
///                        |                    |
///   firsts  [ pfdat | pfdat | pfdat ]         |      the first of each chunk
///   others  [ all free | * | all movable ]    v
///                        +--> [   -   | pfdat | ... | pfdat | ... ]   512 of 32 bytes
/// ```
///
/// The number of a frame and the address of its descriptor are computed from each other, as in
/// IRIX.
///
/// When a whole chunk changes its owner, only two values are written: its first descriptor, and one
/// state that represents all other descriptors. The other descriptors are written when one of them
/// must first be changed on its own. A page of 2M therefore costs its owner only two writes as long
/// as it is not split. The first descriptors of all chunks are in one array: inside the chunks they
/// would be 16 KiB apart, so that they would map to few sets of a processor's caches, and each
/// would be on a different page.
pub struct FrameTable {
    base: PageSize,
    frames: Range<u32>,
    /// The last frame of each NUMA node, ascending.
    nodes: Vec<u32>,
    firsts: Vec<Pfdat>,
    others: Vec<Others>,
    /// Whether the last request found no memory for its data.
    is_short: bool,
    /// The number of base frames in each state.
    counts: [u64; State::ALL.len()],
}

/// The descriptors of a chunk except the first.
enum Others {
    /// All these descriptors are equal: they have this state and no other contents. The memory for
    /// storing them separately is reserved when a frame of the chunk is first in use, and written
    /// only when the descriptors become different.
    Alike(State, Option<Vec<Pfdat>>),
    /// Each descriptor is stored separately.
    Written(Box<Chunk>),
}

/// The descriptors of a chunk, by position; the first element is not used.
type Chunk = [Pfdat; CHUNK_FRAMES];

impl FrameTable {
    /// Descriptors of `frames`, all free, on one node.
    pub(crate) fn new(base: PageSize, frames: Range<u32>) -> Result<FrameTable, TryReserveError> {
        let mut counts = [0; State::ALL.len()];
        // The lists only reserve memory here. They are filled when a frame of the chunk is first
        // used.
        let chunks = (frames.end as usize).div_ceil(CHUNK_FRAMES);
        let (mut firsts, mut others, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        firsts.try_reserve_exact(chunks)?;
        others.try_reserve_exact(chunks)?;
        nodes.try_reserve_exact(NODES_MAX)?;
        nodes.push(frames.end);
        counts[State::Free as usize] = u64::from(frames.end - frames.start);
        Ok(FrameTable { base, nodes, frames, firsts, others, is_short: false, counts })
    }

    /// Reserves the memory for all descriptors of `2^order` frames from `first`, so that neither
    /// allocating nor freeing the frames needs memory. Returns whether there was enough memory.
    #[inline]
    pub(crate) fn reserve(&mut self, first: FrameId, order: u32) -> bool {
        let (number, _) = split(first.0);
        match self.others.get(number) {
            Some(Others::Written(_) | Others::Alike(_, Some(_))) if order <= CHUNK_SHIFT => true,
            _ => self.reserve_chunks(number, order),
        }
    }

    #[cold]
    #[inline(never)]
    fn reserve_chunks(&mut self, first: usize, order: u32) -> bool {
        let end = first + (1 << order.saturating_sub(CHUNK_SHIFT));
        if end > self.firsts.len() {
            self.make(end - 1);
        }
        for others in &mut self.others[first..end] {
            if let Others::Alike(_, kept @ None) = others {
                let mut chunk = Vec::new();
                if chunk.try_reserve_exact(CHUNK_FRAMES).is_err() {
                    self.is_short = true;
                    return false;
                }
                *kept = Some(chunk);
            }
        }
        true
    }

    /// Reserves the memory for the descriptors of all frames. Returns whether there was enough
    /// memory.
    pub(crate) fn reserve_all(&mut self) -> bool {
        let (first, last) =
            (self.frames.start >> CHUNK_SHIFT, self.frames.end.div_ceil(CHUNK_FRAMES as u32));
        (first..last).all(|number| self.reserve(FrameId(number << CHUNK_SHIFT), 0))
    }

    /// Records that the current request found no memory for data of an allocator.
    pub(crate) fn set_short(&mut self) {
        self.is_short = true;
    }

    /// Whether the current request, or else the last one, found no memory for its data.
    pub(crate) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Records that a new request begins, for which no memory has been missing yet.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.is_short = false;
    }

    /// Divides the frames among nodes. `ends`, ascending, has the number after the last frame of
    /// each node.
    pub(crate) fn set_nodes(&mut self, ends: &[u32]) {
        debug_assert!(self.firsts.is_empty(), "nodes are set before any frame is used");
        // This needs no memory: the constructor has reserved memory for the largest number of
        // nodes.
        self.nodes.clear();
        self.nodes.extend_from_slice(ends);
    }

    /// The size of a base frame.
    #[inline]
    pub const fn base(&self) -> PageSize {
        self.base
    }

    /// The numbers of all frames.
    pub fn frames(&self) -> Range<u32> {
        self.frames.clone()
    }

    /// The number of NUMA nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The number of base frames in `state`.
    #[inline]
    pub const fn count(&self, state: State) -> u64 {
        self.counts[state as usize]
    }

    /// The frame that contains `addr`, if it is one of these frames.
    #[inline]
    pub fn frame_at(&self, addr: PhysAddr) -> Option<FrameId> {
        let number = addr.get() >> self.base.shift();
        let inside = number >= u64::from(self.frames.start) && number < u64::from(self.frames.end);
        inside.then_some(FrameId(number as u32))
    }

    /// The address of the first byte of a frame.
    #[inline]
    pub const fn address(&self, frame: FrameId) -> PhysAddr {
        PhysAddr::new((frame.0 as u64) << self.base.shift())
    }

    /// log2 of the number of base frames of a page of `size`.
    #[inline]
    pub const fn order(&self, size: PageSize) -> u32 {
        size.shift().saturating_sub(self.base.shift())
    }

    /// The descriptor of `frame`, by value.
    #[inline]
    pub fn get(&self, frame: FrameId) -> Pfdat {
        let (number, place) = split(frame.0);
        let state = match self.others.get(number) {
            Some(_) if place == 0 => return self.firsts[number],
            Some(Others::Written(chunk)) => return chunk[place],
            Some(Others::Alike(state, _)) => *state,
            None => State::Free,
        };
        Pfdat::free(self.node_of(frame)).handed_over(state)
    }

    /// The order of the free block that begins with `frame`, if one does.
    #[inline]
    pub(crate) fn free_order(&self, frame: FrameId) -> Option<u32> {
        let (number, place) = split(frame.0);
        if place == 0 {
            return self.firsts.get(number)?.free_order();
        }
        match self.others.get(number)? {
            Others::Written(chunk) => chunk[place].free_order(),
            Others::Alike(..) => None,
        }
    }

    /// Mutable access to the descriptor of `frame`.
    #[inline]
    pub fn get_mut(&mut self, frame: FrameId) -> &mut Pfdat {
        let (number, place) = split(frame.0);
        if number >= self.firsts.len() {
            self.make(number);
        }
        match place {
            0 => &mut self.firsts[number],
            _ => &mut self.written(number)[place],
        }
    }

    /// Sets the state of frames in use, for example of a page that the kernel takes over or of the
    /// target of a migration.
    ///
    /// # Panics
    /// Panics if one of the frames is free, or if `state` is free: only the allocator frees frames
    /// and allocates them.
    pub fn set_state(&mut self, first: FrameId, count: u32, state: State) {
        assert!(state != State::Free, "frames are freed by their allocator");
        for number in first.0..first.0 + count {
            let pfdat = self.get_mut(FrameId(number));
            let before = pfdat.state();
            assert!(before != State::Free, "frame {number} is free");
            pfdat.set_state(state);
            self.counts[before as usize] -= 1;
            self.counts[state as usize] += 1;
        }
    }

    /// Allocates `count` frames, which are free or reserved, to a new owner.
    pub(crate) fn hand_out(&mut self, first: FrameId, count: u32, state: State) {
        self.change_owner(first, count, state);
    }

    /// Marks `count` frames of an owner as free.
    pub(crate) fn take_back(&mut self, first: FrameId, count: u32) {
        self.change_owner(first, count, State::Free);
    }

    #[inline]
    fn change_owner(&mut self, first: FrameId, count: u32, state: State) {
        self.counts[state as usize] += u64::from(count);
        if count == 1 {
            return self.change_one(first, state);
        }
        if count == CHUNK_FRAMES as u32 && self.change_alike(first, state) {
            return;
        }
        self.change_parts(first, count, state);
    }

    /// Changes the state of a whole chunk. Returns whether `first` begins a chunk whose descriptors
    /// (except the first) are equal; otherwise nothing is changed.
    #[inline]
    fn change_alike(&mut self, first: FrameId, state: State) -> bool {
        let (number, _) = split(first.0);
        let (Some(pfdat), Some(Others::Alike(of, _))) =
            (self.firsts.get_mut(number), self.others.get_mut(number))
        else {
            return false;
        };
        let before = (pfdat.state(), core::mem::replace(of, state));
        *pfdat = pfdat.handed_over(state);
        if before.0 == before.1 {
            self.uncount(before.0, CHUNK_FRAMES as u64);
        } else {
            self.uncount(before.0, 1);
            self.uncount(before.1, CHUNK_FRAMES as u64 - 1);
        }
        true
    }

    /// The first descriptor of a whole chunk, and the state of its other frames, if their
    /// descriptors are equal.
    #[inline]
    pub(crate) fn alike(&self, first: FrameId, count: u32) -> Option<(&Pfdat, State)> {
        let (number, _) = split(first.0);
        match self.others.get(number) {
            Some(Others::Alike(state, _)) if count == CHUNK_FRAMES as u32 => {
                Some((&self.firsts[number], *state))
            }
            _ => None,
        }
    }

    /// Changes the owner of `count` frames from `first`, one part of a chunk after the other.
    fn change_parts(&mut self, first: FrameId, count: u32, state: State) {
        let (mut next, end) = (first.0, first.0 + count);
        while next < end {
            let (number, place) = split(next);
            if place == 0 {
                self.change_one(FrameId(next), state);
            }
            if place == 0 && end - next >= CHUNK_FRAMES as u32 {
                self.change_others(number, state);
                next += CHUNK_FRAMES as u32;
            } else {
                let part_end = (place + (end - next) as usize).min(CHUNK_FRAMES);
                self.make(number);
                self.change_written(number, place.max(1)..part_end, state);
                next += (part_end - place) as u32;
            }
        }
    }

    #[inline]
    fn change_one(&mut self, frame: FrameId, state: State) {
        let pfdat = self.get_mut(frame);
        let before = pfdat.state();
        *pfdat = pfdat.handed_over(state);
        self.uncount(before, 1);
    }

    /// Subtracts `frames` from the number of frames in the state `before`.
    ///
    /// Nearly all frames were free or movable, so the host's processor predicts the branches. If
    /// the index of the count were read from the descriptor, all later instructions would wait for
    /// the descriptor's cache line.
    #[inline]
    fn uncount(&mut self, before: State, frames: u64) {
        match before {
            State::Free => self.counts[State::Free as usize] -= frames,
            State::Movable => self.counts[State::Movable as usize] -= frames,
            other => self.uncount_other(other, frames),
        }
    }

    #[cold]
    #[inline(never)]
    fn uncount_other(&mut self, before: State, frames: u64) {
        self.counts[before as usize] -= frames;
    }

    /// Marks one frame of an owner as free, if `check` accepts its descriptor.
    #[inline]
    pub(crate) fn take_back_one<E>(
        &mut self,
        frame: FrameId,
        check: impl FnOnce(&Pfdat) -> Result<(), E>,
    ) -> Result<(), E> {
        let pfdat = self.get_mut(frame);
        check(pfdat)?;
        let before = pfdat.state();
        *pfdat = pfdat.handed_over(State::Free);
        self.counts[State::Free as usize] += 1;
        self.uncount(before, 1);
        Ok(())
    }

    /// Changes the owner of all frames of the chunk `number` except the first.
    #[inline]
    fn change_others(&mut self, number: usize, state: State) {
        match &mut self.others[number] {
            Others::Alike(of, _) => {
                let before = core::mem::replace(of, state);
                self.uncount(before, CHUNK_FRAMES as u64 - 1);
            }
            Others::Written(_) => {
                self.change_written(number, 1..CHUNK_FRAMES, state);
                let others = &mut self.others[number];
                *others = match core::mem::replace(others, Others::Alike(state, None)) {
                    Others::Written(chunk) => {
                        Others::Alike(state, Some((chunk as Box<[Pfdat]>).into_vec()))
                    }
                    alike @ Others::Alike(..) => alike,
                };
            }
        }
    }

    /// Changes the owner of the frames `part` of the chunk `number`, writing one descriptor after
    /// the other.
    fn change_written(&mut self, number: usize, part: Range<usize>, state: State) {
        let part = &mut self.written(number)[part];
        // The frames of a block nearly always have one state, so they are counted together.
        let mut gone = [0; State::ALL.len()];
        for same in part.chunk_by(|a, b| a.state() == b.state()) {
            gone[same[0].state() as usize] += same.len() as u64;
        }
        part.iter_mut().for_each(|pfdat| *pfdat = pfdat.handed_over(state));
        self.counts.iter_mut().zip(gone).for_each(|(count, gone)| *count -= gone);
    }

    /// Calls `each` for the descriptors of the frames from `first` up to, but not including, `end`,
    /// once for each run of equal adjacent descriptors. `each` gets the number of the run's first
    /// frame, the descriptor, and the length of the run. Stops if `each` returns an error.
    pub(crate) fn runs<E>(
        &self,
        first: u32,
        end: u32,
        mut each: impl FnMut(FrameId, &Pfdat, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = first;
        while next < end {
            let (number, place) = split(next);
            let same = match self.others.get(number) {
                Some(_) if place == 0 => 1,
                Some(Others::Written(_)) => 1,
                Some(Others::Alike(..)) | None => ((CHUNK_FRAMES - place) as u32).min(end - next),
            };
            each(FrameId(next), &self.get(FrameId(next)), same)?;
            next += same;
        }
        Ok(())
    }

    /// The descriptors of a chunk except the first; if they are not stored separately yet, they are
    /// now.
    #[inline]
    fn written(&mut self, number: usize) -> &mut Chunk {
        if let Others::Alike(..) = self.others[number] {
            self.write(number);
        }
        match &mut self.others[number] {
            Others::Written(chunk) => chunk,
            Others::Alike(..) => unreachable!("they have been written"),
        }
    }

    #[cold]
    fn write(&mut self, number: usize) {
        let Others::Alike(state, kept) = &mut self.others[number] else { return };
        let (state, kept) = (*state, kept.take());
        let first = number << CHUNK_SHIFT;
        let node = |place: usize| self.node_of(FrameId((first + place) as u32));
        // A frame of the chunk has been in use, so the memory was reserved then and nothing is
        // allocated here.
        let mut chunk = kept.unwrap_or_default();
        chunk.clear();
        chunk.extend((0..CHUNK_FRAMES).map(|place| Pfdat::free(node(place)).handed_over(state)));
        let chunk: Box<[Pfdat]> = chunk.into_boxed_slice();
        let chunk: Result<Box<Chunk>, _> = chunk.try_into();
        let chunk = chunk.unwrap_or_else(|_| unreachable!("they are as many as a chunk has"));
        self.others[number] = Others::Written(chunk);
    }

    fn node_of(&self, frame: FrameId) -> u8 {
        self.nodes.partition_point(|&end| end <= frame.0) as u8
    }

    #[cold]
    fn make(&mut self, number: usize) {
        for number in self.firsts.len()..=number {
            let first = FrameId((number << CHUNK_SHIFT) as u32);
            self.firsts.push(Pfdat::free(self.node_of(first)));
            self.others.push(Others::Alike(State::Free, None));
        }
    }
}

/// The number of the chunk that has a frame's descriptor, and the descriptor's position in it.
const fn split(frame: u32) -> (usize, usize) {
    (frame as usize >> CHUNK_SHIFT, frame as usize % CHUNK_FRAMES)
}
