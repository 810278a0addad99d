//! What some allocators can be asked beside frames: what became of page blocks, of reservations, and where a
//! region should lie.

use alloc::vec::Vec;

use crate::{
    frame::{FrameId, State},
    table::FrameTable,
};

/// What frames of a page block are for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BlockType {
    /// They stay where they are.
    Unmovable,
    /// They can be moved.
    Movable,
    /// They stay, and are given back where that is asked for.
    Reclaimable,
}

impl BlockType {
    /// All of them, in the order of their numbers.
    pub const ALL: [BlockType; 3] =
        [BlockType::Unmovable, BlockType::Movable, BlockType::Reclaimable];

    /// The type of frames that are to be in `state`.
    pub const fn of(state: State) -> BlockType {
        match state {
            State::Movable | State::InTransit => BlockType::Movable,
            State::Reclaimable => BlockType::Reclaimable,
            State::Free | State::Reserved | State::Kernel | State::Table | State::Offline => {
                BlockType::Unmovable
            }
        }
    }

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            BlockType::Unmovable => "unmovable",
            BlockType::Movable => "movable",
            BlockType::Reclaimable => "reclaimable",
        }
    }

    /// Whose frames are taken where a type has none left, in this order (`fallbacks`).
    pub(crate) const fn fallbacks(self) -> [BlockType; 2] {
        match self {
            BlockType::Unmovable => [BlockType::Reclaimable, BlockType::Movable],
            BlockType::Movable => [BlockType::Reclaimable, BlockType::Unmovable],
            BlockType::Reclaimable => [BlockType::Unmovable, BlockType::Movable],
        }
    }
}

/// What has become of page blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockCounts {
    /// Page blocks by type, in the order of [`BlockType::ALL`].
    pub blocks: [u64; BlockType::ALL.len()],
    /// Page blocks that went over to another type.
    pub claimed: u64,
    /// Frames that were taken out of page blocks of another type, which stayed what they were.
    pub stolen: u64,
}

/// What can be asked of an allocator that has page blocks.
pub trait Blocks {
    /// log2 of the frames of a page block.
    fn block_order(&self) -> u32;

    /// The type of the page block of a frame.
    fn block_type(&self, frame: FrameId) -> BlockType;

    /// Whether a request of `2^order` movable frames would be served without a steal: where
    /// compaction ends (`compact_finished`).
    fn is_suitable(&self, order: u32) -> bool;

    /// Claims of parts of page blocks, also those that failed, since it was asked last: each boosts the
    /// watermark.
    fn take_boosts(&mut self) -> u64;

    /// What has become of page blocks.
    fn counts(&self) -> BlockCounts;
}

/// Why a page was not placed in a reservation of one size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Unplaced {
    /// The reservation would begin before the object.
    Start,
    /// It would reach beyond the end of an object that does not grow.
    End,
    /// Its pages overlap those of another reservation of the object, or a page of the object that has a
    /// frame elsewhere.
    Neighbor,
    /// The page's own frame is taken, by what was this page of the object before.
    Taken,
    /// There is no free block of its size.
    NoBlock,
}

impl Unplaced {
    /// Each of them, in the order of their numbers.
    pub const ALL: [Unplaced; 5] =
        [Unplaced::Start, Unplaced::End, Unplaced::Neighbor, Unplaced::Taken, Unplaced::NoBlock];

    /// Its name in results.
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
    /// Somebody wanted a base frame and none was free.
    Frame,
    /// Somebody wanted more than one frame in a row, and this reservation had them.
    Block,
    /// Somebody wanted just these frames.
    Wanted,
}

impl Broken {
    /// Each of them, in the order of their numbers.
    pub const ALL: [Broken; 3] = [Broken::Frame, Broken::Block, Broken::Wanted];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Broken::Frame => "frame",
            Broken::Block => "block",
            Broken::Wanted => "wanted",
        }
    }
}

/// What can be asked of an allocator that has reservations.
pub trait Reserver {
    /// The sizes of its reservations as log2 of their frames, the largest first.
    fn orders(&self) -> Vec<u32>;

    /// What has become of the reservations of each size, the largest first, with log2 of its frames.
    fn counts(&self) -> Vec<(u32, ReservationCounts)>;

    /// Begins to count anew; reservations stay.
    fn forget_counts(&mut self);

    /// The largest page around `frame` all of whose frames are taken, as a power of two of
    /// frames: what can be mapped as one page, as far as frames go.
    fn full_order(&self, frame: FrameId) -> Option<u32>;

    /// The first frame and log2 of the frames of the reservation that `frame` lies in, and which page of
    /// which object its first frame is for.
    fn reservation(&self, frame: FrameId) -> Option<(FrameId, u32, u32, u64)>;

    /// The reservations that were broken since the last call: first frame and log2 of their frames.
    fn take_broken(&mut self) -> Vec<(FrameId, u32)>;
}

/// What has become of the reservations of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReservationCounts {
    /// How many were made.
    pub made: u64,
    /// How often one became full.
    pub filled: u64,
    /// How many were given back whole, since their last page was freed.
    pub emptied: u64,
    /// How many were broken, by reason ([`Broken`] as a number).
    pub broken: [u64; Broken::ALL.len()],
    /// Frames that these breaks made free.
    pub broken_frames: u64,
    /// Pages that were placed in one.
    pub placed: u64,
    /// Pages that were not, by reason ([`Unplaced`] as a number).
    pub unplaced: [u64; Unplaced::ALL.len()],
}

/// What can be asked of an allocator that places regions.
pub trait Places {
    /// Where `frames` frames could begin (next fit over runs of the largest free blocks). The largest
    /// run of those that were seen, if none is long enough; nothing if there is none.
    fn place(&mut self, table: &FrameTable, frames: u64) -> Option<FrameId>;
}
