//! The binary buddy system (Knowlton 1965).
//!
//! ```text
//!   order 2   |               free                |
//!   allocate one base frame:
//!   order 1   |                 |      free       |     the rest of each split stays free,
//!   order 0   |  out   |  free  |                       one buddy per order
//!   free it: its buddy is free, so both become one of order 1, whose buddy is free, ...
//! ```
//!
//! A block of order k is 2^k base frames and aligned to its size; its buddy is the other half
//! of the block of order k+1 that both lie in. Of the blocks that are large enough, the
//! smallest is taken, and among equals the one at the lowest address: the same requests give
//! the same frames, and memory in use stays together at the bottom.
//!
//! Free blocks are kept in one ordered set per order, so every operation takes time
//! logarithmic in the number of free blocks, and memory in proportion to the blocks that are
//! free or were out.
//!
//! Which frame a page gets decides which lines of a physically indexed cache it shares. So that
//! an experiment can tell its result from the luck of one layout, [`Buddy::scattered`] gives
//! base frames in a seeded order: sixteen of them are set aside, as above, and each request takes
//! one of these at random.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use addr::{Frames, OutOfFrames, PageSize, PhysAddr};

use crate::ledger::Ledger;

/// An allocator of frames over one range of physical memory.
pub struct Buddy {
    base: PageSize,
    start: PhysAddr,
    bytes: u64,
    free_bytes: u64,
    /// Per order, the first base-frame numbers of the free blocks.
    free: Vec<BTreeSet<u64>>,
    ledger: Ledger,
    scatter: Option<Scatter>,
}

/// Base frames that are free and set aside, of which a request takes one at random.
struct Scatter {
    /// The state of a generator of Marsaglia's xorshift64 family, never 0.
    state: u64,
    aside: Vec<u64>,
}

/// Frames set aside. Neighbours in the order of requests then differ in the bits by which a
/// cache of up to sixteen pages a way is indexed.
const ASIDE: usize = 16;

/// Why a range of memory cannot be managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GeometryError {
    /// It does not begin and end on base-frame boundaries.
    Misaligned {
        /// The base frame's size.
        base: PageSize,
    },
    /// It runs past the end of the physical address space.
    Wraps,
}

/// Why a frame cannot be taken back. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeError {
    /// No block that starts there is out: it was freed before, or never given out.
    NotOut {
        /// The frame.
        frame: PhysAddr,
    },
    /// The block is out, at another size.
    OtherSize {
        /// The frame.
        frame: PhysAddr,
        /// The size it is out at.
        size: PageSize,
    },
}

impl Buddy {
    /// An allocator over `bytes` bytes from `start`, all free, whose smallest frame is `base`.
    pub fn new(start: PhysAddr, bytes: u64, base: PageSize) -> Result<Buddy, GeometryError> {
        let end = start.checked_add(bytes).ok_or(GeometryError::Wraps)?;
        if !start.is_aligned(base) || !end.is_aligned(base) {
            return Err(GeometryError::Misaligned { base });
        }
        let orders =
            PageSize::from_shift(62).map_or(0, |largest| largest.shift() - base.shift()) + 1;
        let mut buddy = Buddy {
            base,
            start,
            bytes,
            free_bytes: bytes,
            free: (0..orders).map(|_| BTreeSet::new()).collect(),
            ledger: Ledger::default(),
            scatter: None,
        };
        buddy.cover(start.get() >> base.shift(), end.get() >> base.shift());
        Ok(buddy)
    }

    /// The same allocator with base frames in an order that `seed` decides; larger frames are
    /// given lowest first as before.
    pub fn scattered(mut self, seed: u64) -> Buddy {
        let state = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed >> 32) | 1;
        self.scatter = Some(Scatter { state, aside: Vec::with_capacity(ASIDE) });
        self
    }

    /// The smallest frame that it gives out.
    pub const fn base(&self) -> PageSize {
        self.base
    }

    /// Bytes that it manages.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are free, in pieces of any size.
    pub const fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Bytes that are out.
    pub const fn used_bytes(&self) -> u64 {
        self.bytes - self.free_bytes
    }

    /// How many frames of exactly `size` are free, those inside larger ones and those set aside
    /// not counted.
    pub fn free_frames(&self, size: PageSize) -> u64 {
        let order = size.shift().checked_sub(self.base.shift());
        order.and_then(|order| self.free.get(order as usize)).map_or(0, |set| set.len() as u64)
    }

    /// The size of the largest free frame.
    pub fn largest_free(&self) -> Option<PageSize> {
        let order = self.free.iter().rposition(|set| !set.is_empty())?;
        Some(self.size(order as u32))
    }

    /// Takes back a frame that was given out for `size`.
    pub fn try_free(&mut self, frame: PhysAddr, size: PageSize) -> Result<(), FreeError> {
        let order = self.order(size);
        let not_out = FreeError::NotOut { frame };
        if !frame.is_aligned(self.base) || frame < self.start {
            return Err(not_out);
        }
        let index = self.ledger_index(frame);
        match self.ledger.get(index).ok_or(not_out)? {
            found if found != order => {
                return Err(FreeError::OtherSize { frame, size: self.size(found) });
            }
            _ => self.ledger.set(index, None),
        }
        self.free_bytes += self.size(order).bytes();
        self.merge(frame.get() >> self.base.shift(), order);
        Ok(())
    }

    /// Takes the smallest block of at least `order` out of the free ones, and enters what is left
    /// of it.
    fn take(&mut self, order: u32) -> Option<u64> {
        let (from, block) = (order as usize..self.free.len())
            .find_map(|from| Some((from, self.free[from].pop_first()?)))?;
        for order in order as usize..from {
            self.free[order].insert(block + (1 << order));
        }
        Some(block)
    }

    /// The same where base frames are scattered.
    fn take_scattered(&mut self, order: u32) -> Option<u64> {
        let mut scatter = self.scatter.take()?;
        let block = if order == 0 {
            let wanted = ASIDE - scatter.aside.len();
            scatter.aside.extend((0..wanted).map_while(|_| self.take(0)));
            scatter.pick()
        } else {
            self.take(order).or_else(|| {
                // What is set aside may be all that keeps a larger block apart.
                scatter.aside.drain(..).for_each(|block| self.merge(block, 0));
                self.take(order)
            })
        };
        self.scatter = Some(scatter);
        block
    }

    /// Enters the base frames from `first` up to `end` as free, in the largest blocks that fit.
    fn cover(&mut self, mut first: u64, end: u64) {
        while first < end {
            let fits = (end - first).ilog2();
            let order = fits.min(first.trailing_zeros()).min(self.free.len() as u32 - 1);
            self.free[order as usize].insert(first);
            first += 1 << order;
        }
    }

    /// Enters a block as free, joined with its buddy as long as that is free too.
    fn merge(&mut self, mut block: u64, mut order: u32) {
        while (order as usize) + 1 < self.free.len()
            && self.free[order as usize].remove(&(block ^ 1 << order))
        {
            block &= !(1 << order);
            order += 1;
        }
        self.free[order as usize].insert(block);
    }

    fn order(&self, size: PageSize) -> u32 {
        size.shift().saturating_sub(self.base.shift())
    }

    fn size(&self, order: u32) -> PageSize {
        let shift = self.base.shift() + order;
        PageSize::from_shift(shift as u8).unwrap_or(self.base)
    }

    /// Base frames from the start of the range: what the ledger is indexed by.
    fn ledger_index(&self, frame: PhysAddr) -> u64 {
        (frame.get() - self.start.get()) >> self.base.shift()
    }
}

impl Scatter {
    /// One of the frames set aside, any of them as likely as another.
    fn pick(&mut self) -> Option<u64> {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let places = self.aside.len() as u64;
        let place = (self.state >> 32).checked_rem(places)?;
        Some(self.aside.swap_remove(place as usize))
    }
}

impl Frames for Buddy {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        let order = self.order(size);
        let block = match self.scatter {
            None => self.take(order),
            Some(_) => self.take_scattered(order),
        };
        let block = block.ok_or(OutOfFrames { size, free_bytes: self.free_bytes })?;
        let frame = PhysAddr::new(block << self.base.shift());
        self.free_bytes -= self.size(order).bytes();
        self.ledger.set(self.ledger_index(frame), Some(order));
        Ok(frame)
    }

    fn free(&mut self, frame: PhysAddr, size: PageSize) {
        if let Err(error) = self.try_free(frame, size) {
            panic!("a frame was freed that is not its owner's to free: {error}");
        }
    }
}

impl fmt::Display for GeometryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeometryError::Misaligned { base } => {
                write!(f, "physical memory must begin and end on multiples of {base}")
            }
            GeometryError::Wraps => {
                f.write_str("physical memory runs past the end of the address space")
            }
        }
    }
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreeError::NotOut { frame } => write!(f, "no frame at {frame} is in use"),
            FreeError::OtherSize { frame, size } => {
                write!(f, "the frame at {frame} is in use at the size {size}")
            }
        }
    }
}

impl core::error::Error for GeometryError {}
impl core::error::Error for FreeError {}
