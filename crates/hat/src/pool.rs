//! Memory for page tables: a part of all memory, which the layer keeps for itself (K94 sections
//! 4.3, 6.2).
//!
//! ```text
//!   a table is wanted --> free in the pool? --> below the share? from the platform --> none: steal
//!   a table went -------> free in the pool (a pool without a share gives it back at once)
//! ```
//!
//! Page tables are a cache of all translations. A small pool causes more minor faults; a large pool
//! takes memory that applications could have used.

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr};

/// Frames for tables, in use or free.
#[derive(Debug, Default)]
pub struct Pool {
    share_bytes: Option<u64>,
    used_bytes: u64,
    peak_bytes: u64,
    /// The free frames. The list of a pool with a share has capacity for all of its frames, so
    /// returning a frame needs no memory.
    free: Vec<(PhysAddr, PageSize)>,
    /// The number of frames in use.
    used: usize,
    stolen: u64,
}

impl Pool {
    /// A pool without a fixed share: the platform provides each frame, and gets it back as soon as
    /// the table is freed.
    pub fn unlimited() -> Pool {
        Pool::default()
    }

    /// A pool that takes at most `bytes` bytes of frames from the platform, and keeps these frames.
    pub fn of(bytes: u64) -> Pool {
        Pool { share_bytes: Some(bytes), ..Pool::default() }
    }

    /// Whether the pool is limited, so that tables may have to be stolen.
    pub(crate) const fn is_limited(&self) -> bool {
        self.share_bytes.is_some()
    }

    /// Current and peak bytes of tables in use, and the number of steals.
    pub(crate) const fn counts(&self) -> PoolCounts {
        PoolCounts { used_bytes: self.used_bytes, peak_bytes: self.peak_bytes, steals: self.stolen }
    }

    pub(crate) fn note_steal(&mut self) {
        self.stolen += 1;
    }

    /// The source of the frame, of this size, for the next table.
    pub(crate) fn take(&mut self, size: PageSize) -> Taken {
        let limit = self.share_bytes.unwrap_or(u64::MAX);
        let taken = match self.free.iter().rposition(|&(_, of)| of == size) {
            Some(place) => Taken::Free(self.free.swap_remove(place).0),
            None => {
                let free: u64 = self.free.iter().map(|(_, size)| size.bytes()).sum();
                if self.used_bytes + free + size.bytes() > limit {
                    return Taken::None;
                }
                if self.is_limited() && self.free.try_reserve(self.used + 1).is_err() {
                    return Taken::None;
                }
                Taken::New
            }
        };
        self.used += 1;
        self.used_bytes += size.bytes();
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
        taken
    }

    /// Undoes [`Pool::take`], because the platform had no frame of this size.
    pub(crate) fn untake(&mut self, size: PageSize) {
        self.used -= 1;
        self.used_bytes -= size.bytes();
    }

    /// Takes the frame of a table that is no longer needed. Returns whether the pool keeps it.
    pub(crate) fn put(&mut self, frame: PhysAddr, size: PageSize) -> bool {
        self.used -= 1;
        self.used_bytes -= size.bytes();
        if self.is_limited() {
            self.free.push((frame, size));
        }
        self.is_limited()
    }
}

/// Counts of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolCounts {
    /// Bytes of tables in use.
    pub used_bytes: u64,
    /// The largest value of `used_bytes` so far.
    pub peak_bytes: u64,
    /// How many times a space lost its tables to another.
    pub steals: u64,
}

/// The source of a table's frame.
pub(crate) enum Taken {
    /// This free frame of the pool.
    Free(PhysAddr),
    /// From the platform.
    New,
    /// There is no frame: the pool has used up its share.
    None,
}
