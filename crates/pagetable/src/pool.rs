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

use alloc::collections::{BTreeMap, BTreeSet};

use addr::{Frames, OutOfFrames, PageSize, PhysAddr};

use crate::{Flush, Footprint};

const FRAME: PageSize = PageSize::SIZE_4K;
const NODE_BYTES_MIN: u64 = 16;
const WORDS: usize = (FRAME.bytes() / NODE_BYTES_MIN / 64) as usize;

/// The nodes of one size for one owner.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    node_bytes: u64,
    frames: BTreeMap<PhysAddr, Bitmap>,
    /// The frames that have a free node.
    partial: BTreeSet<PhysAddr>,
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
        Pool { node_bytes, frames: BTreeMap::new(), partial: BTreeSet::new(), nodes: 0 }
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

    /// Allocates a node with arbitrary contents, if that needs no new frame.
    pub(crate) fn take_free(&mut self) -> Option<PhysAddr> {
        self.partial.first().copied().map(|frame| self.take_in(frame))
    }

    /// Allocates a node with arbitrary contents.
    pub(crate) fn take(&mut self, frames: &mut impl Frames) -> Result<PhysAddr, OutOfFrames> {
        let frame = match self.partial.first() {
            Some(&frame) => frame,
            None => {
                let frame = frames.allocate(FRAME)?;
                self.frames.insert(frame, [0; WORDS]);
                self.partial.insert(frame);
                frame
            }
        };
        Ok(self.take_in(frame))
    }

    fn take_in(&mut self, frame: PhysAddr) -> PhysAddr {
        let per_frame = self.per_frame();
        let bitmap = self.frames.get_mut(&frame).expect("a partial frame is one of the pool's");
        let index = lowest_free(bitmap);
        bitmap[index / 64] |= 1 << (index % 64);
        if lowest_free(bitmap) >= per_frame {
            self.partial.remove(&frame);
        }
        self.nodes += 1;
        frame.wrapping_add(index as u64 * self.node_bytes)
    }

    /// Frees a node. If it was the last node in its frame, the frame is added to `flush`.
    pub(crate) fn put(&mut self, node: PhysAddr, flush: &mut Flush) {
        let frame = node.align_down(FRAME);
        let index = (node.offset_in(FRAME) / self.node_bytes) as usize;
        let bitmap = self.frames.get_mut(&frame).expect("a node lies in a frame of its pool");
        bitmap[index / 64] &= !(1 << (index % 64));
        self.nodes -= 1;
        if *bitmap == [0; WORDS] {
            self.frames.remove(&frame);
            self.partial.remove(&frame);
            flush.add_table(frame, FRAME);
        } else {
            flush.unlink();
            self.partial.insert(frame);
        }
    }

    /// Frees all nodes; their frames are in `flush`.
    pub(crate) fn put_all(self, flush: &mut Flush) {
        for frame in self.frames.into_keys() {
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
