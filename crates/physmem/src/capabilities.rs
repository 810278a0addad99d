//! Features that some allocators have besides allocation: statistics of page blocks and of
//! reservations, and placement of regions.

use alloc::vec::Vec;

use crate::{
    frame::{FrameId, State},
    table::FrameTable,
};

/// The kind of frames for which a page block is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlockType {
    /// Frames that cannot be moved or reclaimed.
    Unmovable,
    /// Frames that can be moved.
    Movable,
    /// Frames that cannot be moved, but are freed on request.
    Reclaimable,
}

impl BlockType {
    /// All types, in the order of their numbers.
    pub const ALL: [BlockType; 3] =
        [BlockType::Unmovable, BlockType::Movable, BlockType::Reclaimable];

    /// The type of page block for frames in `state`.
    pub const fn of(state: State) -> BlockType {
        match state {
            State::Movable | State::InTransit => BlockType::Movable,
            State::Reclaimable => BlockType::Reclaimable,
            State::Free | State::Reserved | State::Kernel | State::Table | State::Offline => {
                BlockType::Unmovable
            }
        }
    }

    /// The name of this type in results.
    pub const fn name(self) -> &'static str {
        match self {
            BlockType::Unmovable => "unmovable",
            BlockType::Movable => "movable",
            BlockType::Reclaimable => "reclaimable",
        }
    }

    /// The types from which frames are taken when none of this type is left, in this order
    /// (`fallbacks`).
    pub(crate) const fn fallbacks(self) -> [BlockType; 2] {
        match self {
            BlockType::Unmovable => [BlockType::Reclaimable, BlockType::Movable],
            BlockType::Movable => [BlockType::Reclaimable, BlockType::Unmovable],
            BlockType::Reclaimable => [BlockType::Unmovable, BlockType::Movable],
        }
    }
}

/// Counts of changes to page blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockCounts {
    /// Page blocks by type, in the order of [`BlockType::ALL`].
    pub blocks: [u64; BlockType::ALL.len()],
    /// Page blocks whose type was changed to serve a request.
    pub claimed: u64,
    /// Frames that were taken from page blocks of another type, which kept their type.
    pub stolen: u64,
}

/// The operations of an allocator that has page blocks.
pub trait Blocks {
    /// log2 of the frames of a page block.
    fn block_order(&self) -> u32;

    /// The type of the page block of a frame.
    fn block_type(&self, frame: FrameId) -> BlockType;

    /// Whether a request for `2^order` movable frames could be served without a steal, so that
    /// compaction can stop (`compact_finished`).
    fn is_suitable(&self, order: u32) -> bool;

    /// The number of attempts, successful or not, to claim a part of a page block since the last call.
    /// Each of them boosts the watermark.
    fn take_boosts(&mut self) -> u64;

    /// Counts of changes to page blocks.
    fn counts(&self) -> BlockCounts;
}

/// Why a page was not placed in a reservation of one size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Unplaced {
    /// The reservation would begin before the object does.
    Start,
    /// The reservation would extend beyond the end of an object that does not grow.
    End,
    /// The reservation would overlap another reservation of the object, or a page of the object that
    /// has a frame elsewhere.
    Neighbor,
    /// The page's frame in the reservation is in use: the object had another page with this index
    /// before.
    Taken,
    /// There is no free block of the reservation's size.
    NoBlock,
}

impl Unplaced {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Unplaced; 5] =
        [Unplaced::Start, Unplaced::End, Unplaced::Neighbor, Unplaced::Taken, Unplaced::NoBlock];

    /// The name of this reason in results.
    pub const fn name(self) -> &'static str {
        match self {
            Unplaced::Start => "start",
            Unplaced::End => "end",
            Unplaced::Neighbor => "neighbor",
            Unplaced::Taken => "taken",
            Unplaced::NoBlock => "no-block",
        }
    }
}

/// Why a reservation was broken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Broken {
    /// A base frame was requested and none was free.
    Frame,
    /// Several contiguous frames were requested, and this reservation had enough of them unused.
    Block,
    /// Exactly these frames were requested.
    Wanted,
}

impl Broken {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Broken; 3] = [Broken::Frame, Broken::Block, Broken::Wanted];

    /// The name of this reason in results.
    pub const fn name(self) -> &'static str {
        match self {
            Broken::Frame => "frame",
            Broken::Block => "block",
            Broken::Wanted => "wanted",
        }
    }
}

/// The operations of an allocator that has reservations.
pub trait Reserver {
    /// The sizes of the allocator's reservations as log2 of their frames, the largest first.
    fn orders(&self) -> Vec<u32>;

    /// For each size of reservation, the largest first: log2 of its frames, and its counts.
    fn counts(&self) -> Vec<(u32, ReservationCounts)>;

    /// Resets the counts to zero; reservations stay.
    fn forget_counts(&mut self);

    /// log2 of the frames of the largest aligned block around `frame` in which all frames are
    /// taken: as far as its frames are concerned, such a block can be mapped as one page.
    fn full_order(&self, frame: FrameId) -> Option<u32>;

    /// The reservation that contains `frame`: its first frame, log2 of its frames, the object to
    /// which it belongs, and the page of the object for which its first frame is reserved.
    fn reservation(&self, frame: FrameId) -> Option<(FrameId, u32, u32, u64)>;

    /// Returns the next broken reservation that has not been returned yet: its first frame and log2
    /// of its number of frames.
    fn next_broken(&mut self) -> Option<(FrameId, u32)>;

    /// The largest size of the allocator's reservations, as log2 of the number of frames.
    fn largest_order(&self) -> Option<u32>;
}

/// Counts of changes to the reservations of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReservationCounts {
    /// Reservations made.
    pub made: u64,
    /// Times that a reservation became full.
    pub filled: u64,
    /// Reservations that were freed as a whole, since their last page had been freed.
    pub emptied: u64,
    /// Reservations broken, by reason (indexed by [`Broken`] as a number).
    pub broken: [u64; Broken::ALL.len()],
    /// Frames that became free when reservations were broken.
    pub broken_frames: u64,
    /// Pages that were placed in a reservation.
    pub placed: u64,
    /// Pages that were not placed in a reservation, by reason (indexed by [`Unplaced`] as a
    /// number).
    pub unplaced: [u64; Unplaced::ALL.len()],
}

/// The operations of an allocator that places regions.
pub trait Places {
    /// The frame at which a region of `frames` frames could begin, by next fit over runs of free
    /// blocks of the largest order. If no run is long enough, the result is the beginning of the
    /// longest run; `None` if there is no run.
    fn place(&mut self, table: &FrameTable, frames: u64) -> Option<FrameId>;
}
