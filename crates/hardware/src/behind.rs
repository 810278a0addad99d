//! What lies behind the TLBs of a run, as the run sees it.
//!
//! ```text
//!   trace --> TLBs, OS, page table          the front: the same whatever is behind
//!                  |  on, data, walk, refilled, forget
//!                  v
//!                Behind: MMU cache, data caches, counts of walks
//! ```
//!
//! Nothing that happens behind changes what the front does next, as long as the OS flushes what
//! it must: a front can feed one [`Behind`] at once, or write down what it says for many of them.
//! All that it says is plain data.

use addr::{Asid, Kind, PhysAddr, VirtRange};
use mmu::Spot;
use pagetable::{Node, Reference};
use ram::walk::{Walk, Way};

/// A miss that has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Refill {
    /// The label of the region that was accessed.
    pub region: u32,
    /// Whether a page was touched for the first time.
    pub cold: bool,
    /// Whether it was no fetch that missed.
    pub data: bool,
    /// Whether it began as an exception which is no refill: the TLB had an entry, for the invalid
    /// half of a pair or one that forbids the access, and a handler in software was trapped to.
    pub instead: bool,
    /// Whether a store to a clean page trapped or took an assist.
    pub dirtied: bool,
    /// Whether a handler in software sets the size of the page.
    pub sized: bool,
}

impl Refill {
    /// All but the region, as bits.
    pub const fn bits(self) -> u32 {
        self.cold as u32
            | (self.instead as u32) << 1
            | (self.dirtied as u32) << 2
            | (self.sized as u32) << 3
            | (self.data as u32) << 4
    }
}

/// What the OS wants forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forget {
    /// All that leads to an address of the range in one space.
    Range(VirtRange, Asid),
    /// The pages of the range in one space, whose tables stay.
    Pages(VirtRange, Asid),
    /// All of one space.
    Space(Asid),
    /// Everything.
    All,
}

/// What lies behind the TLBs.
pub trait Behind {
    /// Whether it has caches that the program's own accesses go to.
    fn has_caches(&self) -> bool;

    /// Whether something there predicts where walks end, and wants to know it.
    fn speculates(&self) -> bool;

    /// Whether it does so by runs of pages and by instructions.
    fn wants_runs(&self) -> bool;

    /// What follows until the next call is done by `processor`; before the first, by 0.
    fn on(&mut self, processor: usize);

    /// Whether it pays to say some time before where an access goes ([`Behind::soon`]).
    fn is_far(&self) -> bool;

    /// There will probably be an access to `phys`.
    fn soon(&self, phys: PhysAddr);

    /// An access of the program to memory.
    fn data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind);

    /// The access to memory that the last refill was for, where something speculates.
    fn first_data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind);

    /// A walk. It takes as many of the references of the whole way as it needs. The error is a
    /// node that is not on this way, where a forgotten flush leads it: the way from there is to
    /// be given to [`Behind::walk_from_stale`].
    fn walk(&mut self, walk: &Walk, way: Way<'_>) -> Result<(), Node>;

    /// References to what is looked at before a walk, or in place of one.
    fn beside(&mut self, references: &[Reference]);

    /// The way of a walk from a node which the page table no longer knows.
    fn walk_from_stale(&mut self, walk: &Walk, way: Way<'_>);

    /// Where the last walk has ended, before the TLB is refilled; where something speculates. `by` is the
    /// instruction that it was for, if anybody wants to know it and the trace tells.
    fn found(&mut self, by: Option<u64>, spot: Spot);

    /// The last walk has faulted; `there` is the page that forbids the access, if there is one. Where
    /// something speculates.
    fn faulted(&mut self, by: Option<u64>, there: Option<Spot>);

    /// A device has the frame from here on, or `lent` is false, has it no more; where something
    /// speculates.
    fn device(&mut self, frame: PhysAddr, lent: bool);

    /// The processor that runs goes on in another space.
    fn switched(&mut self);

    /// The TLB is refilled: the walks since the last refill were for this one.
    fn refilled(&mut self, refill: Refill);

    /// The OS shoots down what `processor` remembers.
    fn forget(&mut self, processor: usize, forget: Forget);

    /// The warm-up is over: counts begin anew, and what is remembered stays.
    fn forget_counts(&mut self);
}
