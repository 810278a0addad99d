//! The hardware behind the TLBs: the interface through which a run reports accesses and walks to
//! this hardware.
//!
//! ```text
//!   trace --> TLBs, OS, page table          the front: the same whatever is behind
//!                  |  on, data, walk, refilled, forget
//!                  v
//!                Behind: MMU cache, data caches, counts of walks
//! ```
//!
//! The part of a run in front of this interface (the TLBs and the OS) is called the front. As long
//! as the OS flushes all changed translations, events behind the TLBs do not change what the front
//! does next. A front can therefore drive one [`Behind`] directly, or record its reports once and
//! replay them to many of these. All reports are plain data.

use addr::{Asid, Kind, PhysAddr, VirtRange};
use mmu::Spot;
use pagetable::{Node, Reference};
use ram::walk::{Walk, Way};

/// A completed TLB miss.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Refill {
    /// The label of the region that was accessed.
    pub region: u32,
    /// Whether the page was touched for the first time.
    pub cold: bool,
    /// Whether the access that missed was a load or a store, and not a fetch.
    pub data: bool,
    /// Whether the miss began as an exception other than a refill: the TLB had an entry that
    /// forbids the access, or one for the invalid half of a pair, and a software handler was
    /// entered.
    pub instead: bool,
    /// Whether a store to a clean page trapped or took an assist.
    pub dirtied: bool,
    /// Whether the software handler of this refill also writes the register with the page size of the new entry.
    pub sized: bool,
}

impl Refill {
    /// All fields except the region, packed as one bit each.
    pub const fn bits(self) -> u32 {
        self.cold as u32
            | (self.instead as u32) << 1
            | (self.dirtied as u32) << 2
            | (self.sized as u32) << 3
            | (self.data as u32) << 4
    }
}

/// The entries that the OS requests to be flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forget {
    /// All entries that lead to an address of the range in one space.
    Range(VirtRange, Asid),
    /// The pages of the range in one space; entries for tables on the path to these pages stay.
    Pages(VirtRange, Asid),
    /// All entries of one space.
    Space(Asid),
    /// Everything.
    All,
}

/// The hardware behind the TLBs.
pub trait Behind {
    /// Whether the hardware has caches that serve the program's own accesses.
    fn has_caches(&self) -> bool;

    /// Whether the hardware predicts where walks end, and so needs their results.
    fn speculates(&self) -> bool;

    /// Whether a predictor of walks needs to know runs of contiguous pages and the instructions
    /// that make accesses.
    fn wants_runs(&self) -> bool;

    /// Makes all later calls apply to `processor`; before the first call they apply to processor 0.
    fn on(&mut self, processor: usize);

    /// Whether it is worthwhile to call [`Behind::soon`] some time before an access.
    fn is_far(&self) -> bool;

    /// Announces a probable access to `phys`.
    fn soon(&self, phys: PhysAddr);

    /// Reports a memory access of the program.
    fn data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind);

    /// Reports the access for which the last refill was made; called if the machine has a predictor
    /// of walks.
    fn first_data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind);

    /// Reports a walk. The walker makes as many of the references in `way`, the complete path, as
    /// it needs. The error is a node that is not on this path. The walker reached it through a
    /// stale entry, because a flush is missing. The path from that node must then be passed to
    /// [`Behind::walk_from_stale`].
    fn walk(&mut self, walk: &Walk, way: Way<'_>) -> Result<(), Node>;

    /// Reports references that are made before a walk or in place of a walk.
    fn beside(&mut self, references: &[Reference]);

    /// Reports the path of a walk from a node that the page table no longer has.
    fn walk_from_stale(&mut self, walk: &Walk, way: Way<'_>);

    /// Reports the entry at which the last walk ended, before the TLB is refilled. Called if the
    /// machine has a predictor of walks. `by` is the instruction that caused the walk, if a
    /// predictor needs it and the trace has it.
    fn found(&mut self, by: Option<u64>, spot: Spot);

    /// Reports that the last walk faulted; `there` is the page that forbids the access, if there is
    /// one. `by` is as for [`Behind::found`]. Called if the machine has a predictor of walks.
    fn faulted(&mut self, by: Option<u64>, there: Option<Spot>);

    /// Reports that a device owns the frame from now on or, if `lent` is false, that the device no
    /// longer owns it. Called if the machine has a predictor of walks.
    fn device(&mut self, frame: PhysAddr, lent: bool);

    /// Reports that the current processor switched to another space.
    fn switched(&mut self);

    /// Reports that the TLB is refilled: all walks since the last refill were made for this refill.
    fn refilled(&mut self, refill: Refill);

    /// Flushes entries of `processor`, at the request of the OS.
    fn forget(&mut self, processor: usize, forget: Forget);

    /// Resets the counts to zero at the end of the warm-up; the contents of caches stay.
    fn forget_counts(&mut self);
}
