use alloc::{boxed::Box, vec::Vec};
use core::ops::Range;

use addr::{PageSize, PhysAddr};

use crate::frame::{FrameId, Pfdat, State};

const CHUNK_SHIFT: u32 = 10;
const CHUNK_FRAMES: usize = 1 << CHUNK_SHIFT;

/// The page-frame descriptors of one range of physical memory: the array of *pfdats* of G98
/// section 6.1, made chunk by chunk where memory is used.
///
/// ```text
///   frame number  | chunk (22 bits) | place in it (10 bits) |
///                        |                    |
///   chunks  [ - | * | - | - | * | ... ]       |      - : never touched, all free
///                 |                           v
///                 +--> [ pfdat | pfdat | ... | pfdat | ... ]   1024 of 32 bytes
/// ```
///
/// A frame number and its descriptor are found from each other by arithmetic, as in IRIX.
pub struct FrameTable {
    base: PageSize,
    frames: Range<u32>,
    /// The last frame of each NUMA node, ascending.
    nodes: Vec<u32>,
    chunks: Vec<Option<Box<[Pfdat; CHUNK_FRAMES]>>>,
    /// Base frames by state.
    counts: [u64; State::ALL.len()],
}

impl FrameTable {
    /// Descriptors of `frames`, all free, on one node.
    pub(crate) fn new(base: PageSize, frames: Range<u32>) -> FrameTable {
        let mut counts = [0; State::ALL.len()];
        counts[State::Free as usize] = u64::from(frames.end - frames.start);
        FrameTable { base, nodes: alloc::vec![frames.end], frames, chunks: Vec::new(), counts }
    }

    /// Divides the frames among nodes that end before `ends`, ascending.
    pub(crate) fn set_nodes(&mut self, ends: &[u32]) {
        debug_assert!(self.chunks.is_empty(), "nodes are set before any frame is used");
        self.nodes = ends.to_vec();
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

    /// How many NUMA nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Base frames in `state`.
    #[inline]
    pub const fn count(&self, state: State) -> u64 {
        self.counts[state as usize]
    }

    /// The frame that begins at `addr` or holds it, if it is one of these.
    #[inline]
    pub fn frame_at(&self, addr: PhysAddr) -> Option<FrameId> {
        let number = addr.get() >> self.base.shift();
        let inside = number >= u64::from(self.frames.start) && number < u64::from(self.frames.end);
        inside.then_some(FrameId(number as u32))
    }

    /// The first byte of a frame.
    #[inline]
    pub const fn address(&self, frame: FrameId) -> PhysAddr {
        PhysAddr::new((frame.0 as u64) << self.base.shift())
    }

    /// How many base frames a page of `size` takes, as a power of two.
    #[inline]
    pub const fn order(&self, size: PageSize) -> u32 {
        size.shift().saturating_sub(self.base.shift())
    }

    /// The descriptor of `frame` as it is.
    #[inline]
    pub fn get(&self, frame: FrameId) -> Pfdat {
        match self.chunks.get(frame.0 as usize >> CHUNK_SHIFT) {
            Some(Some(chunk)) => chunk[frame.0 as usize % CHUNK_FRAMES],
            _ => Pfdat::free(self.node_of(frame)),
        }
    }

    /// The descriptor of `frame`.
    #[inline]
    pub fn get_mut(&mut self, frame: FrameId) -> &mut Pfdat {
        let number = frame.0 as usize >> CHUNK_SHIFT;
        if !matches!(self.chunks.get(number), Some(Some(_))) {
            self.make(number);
        }
        match &mut self.chunks[number] {
            Some(chunk) => &mut chunk[frame.0 as usize % CHUNK_FRAMES],
            None => unreachable!("the chunk has been made"),
        }
    }

    /// Gives frames that are in use the state `state`: a page that the kernel takes over, or
    /// the target of a migration.
    ///
    /// # Panics
    /// If one of them is free or is to become free; that is the allocator's.
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

    /// Takes `count` frames, free or reserved, for a new owner.
    pub(crate) fn hand_out(&mut self, first: FrameId, count: u32, state: State) {
        self.change_owner(first, count, state);
    }

    /// Takes `count` frames back from their owner.
    pub(crate) fn take_back(&mut self, first: FrameId, count: u32) {
        self.change_owner(first, count, State::Free);
    }

    fn change_owner(&mut self, first: FrameId, count: u32, state: State) {
        let mut number = first.0;
        let end = first.0 + count;
        while number < end {
            let part = self.part_mut(number, end);
            let taken = part.len() as u32;
            // A block has one state nearly always: its frames are counted together.
            let mut before = [0; State::ALL.len()];
            for alike in part.chunk_by(|a, b| a.state() == b.state()) {
                before[alike[0].state() as usize] += alike.len() as u64;
            }
            part.iter_mut().for_each(|pfdat| pfdat.hand_over(state));
            for (count, gone) in self.counts.iter_mut().zip(before) {
                *count -= gone;
            }
            number += taken;
        }
        self.counts[state as usize] += u64::from(count);
    }

    /// The descriptors of frames from `first` on, up to `end` or the end of their chunk; none where
    /// the chunk was never touched.
    pub(crate) fn part(&self, first: u32, end: u32) -> Option<&[Pfdat]> {
        let chunk = self.chunks.get(first as usize >> CHUNK_SHIFT)?.as_ref()?;
        let place = first as usize % CHUNK_FRAMES;
        Some(&chunk[place..CHUNK_FRAMES.min(place + (end - first) as usize)])
    }

    fn part_mut(&mut self, first: u32, end: u32) -> &mut [Pfdat] {
        self.get_mut(FrameId(first));
        let place = first as usize % CHUNK_FRAMES;
        match &mut self.chunks[first as usize >> CHUNK_SHIFT] {
            Some(chunk) => &mut chunk[place..CHUNK_FRAMES.min(place + (end - first) as usize)],
            None => unreachable!("the chunk has been made"),
        }
    }

    fn node_of(&self, frame: FrameId) -> u8 {
        self.nodes.partition_point(|&end| end <= frame.0) as u8
    }

    #[cold]
    fn make(&mut self, number: usize) {
        if number >= self.chunks.len() {
            self.chunks.resize_with(number + 1, || None);
        }
        let first = (number << CHUNK_SHIFT) as u32;
        let mut chunk = Box::new([Pfdat::free(self.node_of(FrameId(first))); CHUNK_FRAMES]);
        for (place, pfdat) in chunk.iter_mut().enumerate() {
            *pfdat = Pfdat::free(self.node_of(FrameId(first.saturating_add(place as u32))));
        }
        self.chunks[number] = Some(chunk);
    }
}
