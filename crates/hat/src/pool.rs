//! Memory for page tables: a share of all memory that the layer keeps (K94 sections 4.3, 6.2).
//!
//! ```text
//!   a table is wanted --> free in the pool? --> below the share? from the platform --> none: steal
//!   a table went -------> free in the pool (a pool without a share gives it back at once)
//! ```
//!
//! The tables are a cache of all translations. A small pool means more minor faults, a large one
//! memory that applications could have used.

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr};

/// Frames of tables, in use or free.
#[derive(Debug, Default)]
pub struct Pool {
    share_bytes: Option<u64>,
    used_bytes: u64,
    peak_bytes: u64,
    free: Vec<(PhysAddr, PageSize)>,
    stolen: u64,
}

impl Pool {
    /// A pool without a share of its own: tables come from the platform's frames, and go there.
    pub fn unlimited() -> Pool {
        Pool::default()
    }

    /// A pool that takes at most `bytes` from the platform, and keeps them.
    pub fn of(bytes: u64) -> Pool {
        Pool { share_bytes: Some(bytes), ..Pool::default() }
    }

    /// Whether tables may have to be stolen.
    pub(crate) const fn is_limited(&self) -> bool {
        self.share_bytes.is_some()
    }

    /// Bytes of tables in use, now and when most were; and how often a space lost its tables.
    pub(crate) const fn counts(&self) -> PoolCounts {
        PoolCounts { used_bytes: self.used_bytes, peak_bytes: self.peak_bytes, steals: self.stolen }
    }

    pub(crate) fn note_steal(&mut self) {
        self.stolen += 1;
    }

    /// Where a table's frame of that size comes from.
    pub(crate) fn take(&mut self, size: PageSize) -> Taken {
        let limit = self.share_bytes.unwrap_or(u64::MAX);
        let taken = match self.free.iter().rposition(|&(_, of)| of == size) {
            Some(place) => Taken::Free(self.free.swap_remove(place).0),
            None => {
                let free: u64 = self.free.iter().map(|(_, size)| size.bytes()).sum();
                if self.used_bytes + free + size.bytes() > limit {
                    return Taken::None;
                }
                Taken::New
            }
        };
        self.used_bytes += size.bytes();
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
        taken
    }

    /// The platform had no frame of that size.
    pub(crate) fn untake(&mut self, size: PageSize) {
        self.used_bytes -= size.bytes();
    }

    /// A table's frame is not needed any more. Says whether the pool keeps it.
    pub(crate) fn put(&mut self, frame: PhysAddr, size: PageSize) -> bool {
        self.used_bytes -= size.bytes();
        if self.is_limited() {
            self.free.push((frame, size));
        }
        self.is_limited()
    }
}

/// What a pool has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolCounts {
    /// Bytes of tables in use.
    pub used_bytes: u64,
    /// The most that they were.
    pub peak_bytes: u64,
    /// How often a space lost its tables to another.
    pub steals: u64,
}

/// Where a table's frame comes from.
pub(crate) enum Taken {
    /// This one was free in the pool.
    Free(PhysAddr),
    /// From the platform.
    New,
    /// The pool has its share.
    None,
}
