//! Lookups that hit, many in a row: the loop in which a simulation spends its time.
//!
//! ```text
//!   per access:  hint -> slot covers va? -> hits[kind] += 1, stamp[slot] = now
//! ```
//!
//! A [`Tlb`] behind a `&mut` is loaded anew from memory on every access, since any store might
//! have changed it. A [`Stride`] borrows its parts once for many accesses, and takes the time
//! from its caller, who has it in a register, instead of a clock in memory. It finds only what a
//! hint leads to; for all else, end the stride and call [`Tlb::lookup`].

use addr::{Asid, Kind, PageSize, PhysAddr, VirtAddr};

use super::{HINTS, Slot, Tlb, TlbPolicy};
use crate::{AnyReplacement, Replacement, hints::HintsView};

/// A TLB borrowed for lookups in one space, whose policy learns of hits by `T`.
#[derive(Debug)]
pub struct Stride<'a, T> {
    hints: HintsView<'a, HINTS>,
    granule: PageSize,
    slots: &'a mut [Slot],
    touch: T,
    paired: bool,
}

/// What a hit does to the policy, chosen once for many hits.
pub trait Touch<'a>: Sized {
    /// For a TLB without slots.
    fn none() -> Self;

    /// The way of `policy`, if it is this one.
    #[doc(hidden)]
    fn of(policy: Borrowed<'a>) -> Option<Self>;

    /// The entry in `slot` was hit at `time`.
    fn touch(&mut self, slot: usize, time: u64);
}

/// The policy of a TLB, borrowed.
#[derive(Debug)]
pub struct Borrowed<'a>(&'a mut TlbPolicy);

/// LRU: the time of its last hit, a slot.
#[derive(Debug)]
pub struct Stamps<'a>(&'a mut [u64]);

impl<'a> Touch<'a> for Stamps<'a> {
    fn none() -> Stamps<'a> {
        Stamps(&mut [])
    }

    fn of(policy: Borrowed<'a>) -> Option<Stamps<'a>> {
        match policy.0 {
            TlbPolicy::Same(AnyReplacement::Lru(lru)) => Some(Stamps(lru.stamps())),
            _ => None,
        }
    }

    #[inline(always)]
    fn touch(&mut self, slot: usize, time: u64) {
        if let Some(stamp) = self.0.get_mut(slot) {
            *stamp = time;
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
    Policy(Borrowed<'a>),
}

impl<'a> Touch<'a> for AnyTouch<'a> {
    fn none() -> AnyTouch<'a> {
        AnyTouch::Nothing
    }

    fn of(policy: Borrowed<'a>) -> Option<AnyTouch<'a>> {
        Some(match policy.0 {
            TlbPolicy::Same(AnyReplacement::Lru(lru)) => AnyTouch::Stamps(Stamps(lru.stamps())),
            TlbPolicy::Same(AnyReplacement::Fifo(_) | AnyReplacement::Random(_)) => {
                AnyTouch::Nothing
            }
            _ => AnyTouch::Policy(policy),
        })
    }

    #[inline(always)]
    fn touch(&mut self, slot: usize, time: u64) {
        match self {
            AnyTouch::Stamps(stamps) => stamps.touch(slot, time),
            AnyTouch::Nothing => {}
            AnyTouch::Policy(policy) => policy.0.touched(slot),
        }
    }
}

impl Tlb {
    /// Borrows the TLB for lookups in `asid`, which find nothing as long as the hints are
    /// another space's, or where the policy is none that `T` is for. The times given to
    /// [`Stride::lookup`] start above [`Tlb::now`].
    #[inline]
    pub fn stride<'a, T: Touch<'a>>(&'a mut self, asid: Asid) -> Stride<'a, T> {
        match T::of(Borrowed(&mut self.policy)) {
            Some(touch) if asid == self.space => Stride {
                hints: self.hints.view(),
                granule: self.granule,
                slots: &mut self.slots,
                touch,
                paired: self.paired,
            },
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
        Stride {
            hints: HintsView::nothing(),
            granule: PageSize::SIZE_4K,
            slots: &mut [],
            touch: T::none(),
            paired: false,
        }
    }

    /// Looks `va` up for an access of `kind` at `time`, and counts it if a hint leads to it.
    /// Gives the physical address and the entry's label.
    #[inline(always)]
    pub fn lookup(&mut self, va: VirtAddr, kind: Kind, time: u64) -> Option<(PhysAddr, u32)> {
        let index = self.hints.get(va.get() >> self.granule.shift());
        let slot = self.slots.get_mut(index)?;
        if !slot.covers(va) {
            return None;
        }
        slot.hits[kind as usize] += 1;
        self.touch.touch(index, time);
        Some((slot.phys(va, self.paired), slot.label()))
    }
}
