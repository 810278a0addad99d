//! Allocation of nodes that are smaller than a frame: a frame is divided into nodes of one size.
//!
//! ```text
//!   frame  | node | node | free | node | free | ...  unused end |
//!             1      1      0      1      0                           bitmap
//! ```
//!
//! Allocation takes the lowest free node of the lowest frame that has one. Pools are therefore
//! deterministic, and upper frames become empty first. A frame is freed when its last node is
//! freed.

use alloc::vec::Vec;

use addr::{Frames, PageSize, PhysAddr};

use crate::{Error, Flush, Footprint};

const FRAME: PageSize = PageSize::SIZE_4K;
const NODE_BYTES_MIN: u64 = 16;
const WORDS: usize = (FRAME.bytes() / NODE_BYTES_MIN / 64) as usize;

/// The nodes of one size for one owner.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    node_bytes: u64,
    /// The pool's frames, by ascending address, with a bitmap of the allocated nodes of each frame.
    frames: Vec<(PhysAddr, Bitmap)>,
    /// The frames that have a free node, by descending address. The capacity suffices for all
    /// frames of the pool, so that freeing a node needs no memory.
    partial: Vec<PhysAddr>,
    nodes: u64,
}

/// One bit for each node of a frame, set if the node is allocated.
type Bitmap = [u64; WORDS];

impl Pool {
    /// An empty pool of nodes of `node_bytes` bytes: 16 to 4096 and a multiple of 8.
    pub(crate) fn new(node_bytes: u64) -> Pool {
        assert!(
            (NODE_BYTES_MIN..=FRAME.bytes()).contains(&node_bytes) && node_bytes.is_multiple_of(8)
        );
        Pool { node_bytes, frames: Vec::new(), partial: Vec::new(), nodes: 0 }
    }

    pub(crate) const fn node_bytes(&self) -> u64 {
        self.node_bytes
    }

    /// The memory that the pool's nodes and frames take.
    pub(crate) fn footprint(&self) -> Footprint {
        Footprint {
            table_bytes: self.nodes * self.node_bytes,
            frame_bytes: self.frames.len() as u64 * FRAME.bytes(),
        }
    }

    /// The number of free nodes in the pool's frames.
    pub(crate) fn free(&self) -> u64 {
        (self.frames.len() * self.per_frame()) as u64 - self.nodes
    }

    /// The number of frames in the pool.
    pub(crate) fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Allocates a node with arbitrary contents, if that needs no new frame.
    pub(crate) fn take_free(&mut self) -> Option<PhysAddr> {
        self.partial.last().copied().map(|frame| self.take_in(frame))
    }

    /// Allocates a node with arbitrary contents.
    pub(crate) fn take(&mut self, frames: &mut impl Frames) -> Result<PhysAddr, Error> {
        let frame = match self.partial.last() {
            Some(&frame) => frame,
            None => self.add_frame(frames)?,
        };
        Ok(self.take_in(frame))
    }

    /// Adds a new frame to the pool. It is called when no frame of the pool has a free node.
    fn add_frame(&mut self, frames: &mut impl Frames) -> Result<PhysAddr, Error> {
        self.frames.try_reserve(1)?;
        self.partial.try_reserve(self.frames.len() + 1)?;
        let frame = frames.allocate(FRAME)?;
        let place = self.frames.partition_point(|(other, _)| *other < frame);
        self.frames.insert(place, (frame, [0; WORDS]));
        self.partial.push(frame);
        Ok(frame)
    }

    /// The index of `frame` in `frames`. The frame must belong to the pool.
    fn place_of(&self, frame: PhysAddr) -> usize {
        let place = self.frames.binary_search_by_key(&frame, |(frame, _)| *frame);
        place.expect("a node lies in a frame of its pool")
    }

    /// Allocates a node in `frame`, which must be the lowest frame with a free node.
    fn take_in(&mut self, frame: PhysAddr) -> PhysAddr {
        let (per_frame, place) = (self.per_frame(), self.place_of(frame));
        let bitmap = &mut self.frames[place].1;
        let index = lowest_free(bitmap);
        bitmap[index / 64] |= 1 << (index % 64);
        if lowest_free(bitmap) >= per_frame {
            self.partial.pop();
        }
        self.nodes += 1;
        frame.wrapping_add(index as u64 * self.node_bytes)
    }

    /// Frees a node. If it was the last node in its frame, the frame is added to `flush`.
    pub(crate) fn put(&mut self, node: PhysAddr, flush: &mut Flush) {
        let frame = node.align_down(FRAME);
        let index = (node.offset_in(FRAME) / self.node_bytes) as usize;
        let place = self.place_of(frame);
        let bitmap = &mut self.frames[place].1;
        bitmap[index / 64] &= !(1 << (index % 64));
        self.nodes -= 1;
        let is_empty = *bitmap == [0; WORDS];
        let partial = self.partial.binary_search_by(|other| frame.cmp(other));
        if is_empty {
            self.frames.remove(place);
            if let Ok(place) = partial {
                self.partial.remove(place);
            }
            flush.add_table(frame, FRAME);
        } else {
            flush.unlink();
            if let Err(place) = partial {
                self.partial.insert(place, frame);
            }
        }
    }

    /// Frees all nodes; their frames are in `flush`.
    pub(crate) fn put_all(self, flush: &mut Flush) {
        for (frame, _) in self.frames {
            flush.add_table(frame, FRAME);
        }
    }

    const fn per_frame(&self) -> usize {
        (FRAME.bytes() / self.node_bytes) as usize
    }
}

fn lowest_free(bitmap: &Bitmap) -> usize {
    let word = bitmap.iter().position(|&word| word != u64::MAX).unwrap_or(WORDS);
    match bitmap.get(word) {
        Some(bits) => word * 64 + bits.trailing_ones() as usize,
        None => WORDS * 64,
    }
}
