//! Lookups that hit, many in a row: the loop in which a simulation spends its time.
//!
//! ```text
//!   per access:  shortcut covers va? -> hits[kind] += 1, stamp[slot] = now
//! ```
//!
//! A [`Tlb`] behind a `&mut` is loaded anew from memory on every access, since any store might
//! have changed it. A [`Stride`] borrows its parts once for many accesses, and takes the time
//! and the page size from its caller, who has them in registers. It finds only what a shortcut
//! leads to; for all else, end the stride and call [`Tlb::lookup`].

use core::cell::{Cell, RefCell};

use addr::{Asid, PageSize, PhysAddr, VirtAddr};

use super::{
    Tlb, TlbPolicy,
    shortcuts::{self, Table, Target},
};
use crate::{AnyReplacement, Replacement};

/// A TLB borrowed for lookups in one space, whose policy learns of hits by `T`.
#[derive(Debug)]
pub struct Stride<'a, T> {
    /// Without one no lookup finds anything.
    table: Option<&'a Table>,
    touch: T,
}

/// What a hit does to the policy, chosen once for many hits.
pub trait Touch<'a>: Sized {
    /// For a TLB without slots.
    fn none() -> Self;

    /// The way of `policy`, if it is this one.
    #[doc(hidden)]
    fn of(policy: Borrowed<'a>) -> Option<Self>;

    /// The entry in `slot` was hit at `time`.
    fn touch(&self, slot: usize, time: u64);
}

/// The policy of a TLB, borrowed.
#[derive(Debug)]
pub struct Borrowed<'a>(&'a mut TlbPolicy);

/// LRU: the time of its last hit, a slot.
#[derive(Debug)]
pub struct Stamps<'a>(&'a [Cell<u64>]);

impl<'a> Stamps<'a> {
    fn new(stamps: &'a mut [u64]) -> Stamps<'a> {
        Stamps(Cell::from_mut(stamps).as_slice_of_cells())
    }
}

impl<'a> Touch<'a> for Stamps<'a> {
    fn none() -> Stamps<'a> {
        Stamps(&[])
    }

    fn of(policy: Borrowed<'a>) -> Option<Stamps<'a>> {
        match policy.0 {
            TlbPolicy::Same(AnyReplacement::Lru(lru)) => Some(Stamps::new(lru.stamps())),
            _ => None,
        }
    }

    #[inline(always)]
    fn touch(&self, slot: usize, time: u64) {
        if let Some(stamp) = self.0.get(slot) {
            stamp.set(time);
        }
    }
}

/// Any policy, told apart at each hit.
#[derive(Debug)]
pub enum AnyTouch<'a> {
    /// LRU.
    Stamps(Stamps<'a>),
    /// FIFO and random, which do not look at hits.
    Nothing,
    /// Another.
    Policy(RefCell<Borrowed<'a>>),
}

impl<'a> Touch<'a> for AnyTouch<'a> {
    fn none() -> AnyTouch<'a> {
        AnyTouch::Nothing
    }

    fn of(policy: Borrowed<'a>) -> Option<AnyTouch<'a>> {
        Some(match policy.0 {
            TlbPolicy::Same(AnyReplacement::Lru(lru)) => {
                AnyTouch::Stamps(Stamps::new(lru.stamps()))
            }
            TlbPolicy::Same(AnyReplacement::Fifo(_) | AnyReplacement::Random(_)) => {
                AnyTouch::Nothing
            }
            _ => AnyTouch::Policy(RefCell::new(policy)),
        })
    }

    #[inline(always)]
    fn touch(&self, slot: usize, time: u64) {
        match self {
            AnyTouch::Stamps(stamps) => stamps.touch(slot, time),
            AnyTouch::Nothing => {}
            AnyTouch::Policy(policy) => policy.borrow_mut().0.touched(slot),
        }
    }
}

impl Tlb {
    /// Borrows the TLB for lookups in `asid`, which find nothing as long as the shortcuts are
    /// another space's or not for pages of `granule`, or where the policy is none that `T` is
    /// for. The times given to [`Stride::lookup`] start above [`Tlb::now`].
    #[inline]
    pub fn stride<'a, T: Touch<'a>>(&'a mut self, asid: Asid, granule: PageSize) -> Stride<'a, T> {
        match T::of(Borrowed(&mut self.policy)) {
            Some(touch) if asid == self.space && granule == self.shortcuts.granule() => {
                Stride { table: Some(self.shortcuts.table()), touch }
            }
            _ => Stride::nothing(),
        }
    }

    /// Whether hits need no more than [`Stamps`].
    pub fn is_lru(&self) -> bool {
        matches!(self.policy, TlbPolicy::Same(AnyReplacement::Lru(_)))
    }

    /// The time of the last touch.
    pub fn now(&self) -> u64 {
        match &self.policy {
            TlbPolicy::Same(AnyReplacement::Lru(lru)) => lru.now(),
            _ => 0,
        }
    }

    /// Ends a stride: all times given in it are at most `now`.
    pub fn set_now(&mut self, now: u64) {
        if let TlbPolicy::Same(AnyReplacement::Lru(lru)) = &mut self.policy {
            lru.set_now(now);
        }
    }
}

impl<'a, T: Touch<'a>> Stride<'a, T> {
    /// A stride of nothing: no lookup finds anything.
    pub fn nothing() -> Self {
        Stride { table: None, touch: T::none() }
    }

    /// Looks the `bytes` at `va` up for an access of the kind with the number `kind` at `time`,
    /// and counts it if a shortcut leads to all of them. Gives the physical address and the
    /// entry's label. `granule` is the one that the stride was made with.
    #[inline(always)]
    pub fn lookup(
        &self,
        va: VirtAddr,
        bytes: u32,
        kind: usize,
        time: u64,
        granule: PageSize,
    ) -> Option<(PhysAddr, u32)> {
        let table = self.table?;
        let Target { slot, label, to_phys } = shortcuts::lookup(table, granule, va, bytes, kind)?;
        self.touch.touch(slot, time);
        Some((PhysAddr::new(va.get().wrapping_add(to_phys)), label))
    }
}
