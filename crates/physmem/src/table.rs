use alloc::{boxed::Box, vec::Vec};
use core::ops::Range;

use addr::{PageSize, PhysAddr};

use crate::frame::{FrameId, Pfdat, State};

/// A chunk is a page of 2M where base frames have 4K: what is given out whole most.
const CHUNK_SHIFT: u32 = 9;
const CHUNK_FRAMES: usize = 1 << CHUNK_SHIFT;

/// The page-frame descriptors of one range of physical memory: the array of *pfdats* of G98
/// section 6.1, made chunk by chunk where memory is used.
///
/// ```text
///   frame number  | chunk (23 bits) | place in it (9 bits) |
///                        |                    |
///   chunks  [ - | * | - | - | * | ... ]       |      - : never touched, all free
///   alike   [ - | - | - | - | movable ]       v
///                 +--> [ pfdat | pfdat | ... | pfdat | ... ]   512 of 32 bytes
/// ```
///
/// A frame number and its descriptor are found from each other by arithmetic, as in IRIX.
///
/// Where a chunk changes its owner as a whole, its first descriptor and one state for the others are
/// written. They are written themselves when one of them is first asked for to be changed, so that
/// a page of 2M costs its owner two writes for as long as it is one.
pub struct FrameTable {
    base: PageSize,
    frames: Range<u32>,
    /// The last frame of each NUMA node, ascending.
    nodes: Vec<u32>,
    chunks: Vec<Option<Box<[Pfdat; CHUNK_FRAMES]>>>,
    /// Of each chunk the state of all frames but the first, where their descriptors hold nothing
    /// else and are not written yet.
    alike: Vec<Option<State>>,
    /// Base frames by state.
    counts: [u64; State::ALL.len()],
}

impl FrameTable {
    /// Descriptors of `frames`, all free, on one node.
    pub(crate) fn new(base: PageSize, frames: Range<u32>) -> FrameTable {
        let mut counts = [0; State::ALL.len()];
        counts[State::Free as usize] = u64::from(frames.end - frames.start);
        FrameTable {
            base,
            nodes: alloc::vec![frames.end],
            frames,
            chunks: Vec::new(),
            alike: Vec::new(),
            counts,
        }
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
        let (number, place) = split(frame.0);
        let Some(Some(chunk)) = self.chunks.get(number) else {
            return Pfdat::free(self.node_of(frame));
        };
        match self.alike[number] {
            Some(state) if place > 0 => chunk[place].handed_over(state),
            _ => chunk[place],
        }
    }

    /// The descriptor of `frame`.
    #[inline]
    pub fn get_mut(&mut self, frame: FrameId) -> &mut Pfdat {
        let (number, place) = split(frame.0);
        if !matches!(self.chunks.get(number), Some(Some(_))) {
            self.make(number);
        }
        if place > 0 && self.alike[number].is_some() {
            self.write(number);
        }
        &mut self.chunk_mut(number)[place]
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
        let (mut next, end) = (first.0, first.0 + count);
        while next < end {
            let (number, place) = split(next);
            let taken = (CHUNK_FRAMES - place).min((end - next) as usize);
            if taken == CHUNK_FRAMES {
                self.change_chunk(number, state);
            } else {
                self.get_mut(FrameId(next + taken as u32 - 1));
                let part = place..place + taken;
                self.count_gone(number, part.clone());
                let part = &mut self.chunk_mut(number)[part];
                part.iter_mut().for_each(|pfdat| *pfdat = pfdat.handed_over(state));
            }
            next += taken as u32;
        }
        self.counts[state as usize] += u64::from(count);
    }

    fn change_chunk(&mut self, number: usize, state: State) {
        let first = self.get_mut(FrameId((number << CHUNK_SHIFT) as u32));
        let before = core::mem::replace(first, first.handed_over(state)).state();
        self.counts[before as usize] -= 1;
        match self.alike[number].replace(state) {
            Some(others) => self.counts[others as usize] -= CHUNK_FRAMES as u64 - 1,
            None => self.count_gone(number, 1..CHUNK_FRAMES),
        }
    }

    /// Counts the frames out of the states that their written descriptors say. A block has one state
    /// nearly always: its frames are counted together.
    fn count_gone(&mut self, number: usize, part: Range<usize>) {
        let chunk = self.chunks[number].as_ref().map_or(&[][..], |chunk| &chunk[part]);
        for same in chunk.chunk_by(|a, b| a.state() == b.state()) {
            self.counts[same[0].state() as usize] -= same.len() as u64;
        }
    }

    /// The descriptors of the frames from `first` up to `end`, each with how many adjacent ones are the
    /// same, until `each` gives an error: for that many from the frame whose number it gets.
    pub(crate) fn runs<E>(
        &self,
        first: u32,
        end: u32,
        mut each: impl FnMut(FrameId, Pfdat, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut next = first;
        while next < end {
            let (number, place) = split(next);
            let is_written = matches!(self.chunks.get(number), Some(Some(_)));
            let same = match is_written {
                true if place == 0 || self.alike[number].is_none() => 1,
                _ => ((CHUNK_FRAMES - place) as u32).min(end - next),
            };
            each(FrameId(next), self.get(FrameId(next)), same)?;
            next += same;
        }
        Ok(())
    }

    fn chunk_mut(&mut self, number: usize) -> &mut [Pfdat; CHUNK_FRAMES] {
        match &mut self.chunks[number] {
            Some(chunk) => chunk,
            None => unreachable!("the chunk has been made"),
        }
    }

    /// Writes the descriptors of a chunk that are alike.
    fn write(&mut self, number: usize) {
        if let Some(state) = self.alike[number].take() {
            let others = &mut self.chunk_mut(number)[1..];
            others.iter_mut().for_each(|pfdat| *pfdat = pfdat.handed_over(state));
        }
    }

    fn node_of(&self, frame: FrameId) -> u8 {
        self.nodes.partition_point(|&end| end <= frame.0) as u8
    }

    #[cold]
    fn make(&mut self, number: usize) {
        if number >= self.chunks.len() {
            self.chunks.resize_with(number + 1, || None);
            self.alike.resize(number + 1, None);
        }
        let first = (number << CHUNK_SHIFT) as u32;
        let mut chunk = Box::new([Pfdat::free(self.node_of(FrameId(first))); CHUNK_FRAMES]);
        for (place, pfdat) in chunk.iter_mut().enumerate() {
            *pfdat = Pfdat::free(self.node_of(FrameId(first.saturating_add(place as u32))));
        }
        self.chunks[number] = Some(chunk);
    }
}

/// The chunk that a frame's descriptor is in, and its place there.
const fn split(frame: u32) -> (usize, usize) {
    (frame as usize >> CHUNK_SHIFT, frame as usize % CHUNK_FRAMES)
}
