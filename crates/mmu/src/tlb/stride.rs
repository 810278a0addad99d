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

/// A TLB borrowed for lookups in one space.
#[derive(Debug)]
pub struct Stride<'a> {
    hints: HintsView<'a, HINTS>,
    granule: PageSize,
    slots: &'a mut [Slot],
    touch: Touch<'a>,
    paired: bool,
}

/// What a hit does to the policy.
#[derive(Debug)]
enum Touch<'a> {
    /// LRU: the time of the hit, a slot.
    Stamp(&'a mut [u64]),
    /// FIFO and random: nothing.
    Nothing,
    /// Anything else.
    Policy(&'a mut TlbPolicy),
}

impl Tlb {
    /// Borrows the TLB for lookups in `asid`, which find nothing as long as the hints are
    /// another space's. The times given to [`Stride::lookup`] start above [`Tlb::now`].
    #[inline]
    pub fn stride(&mut self, asid: Asid) -> Stride<'_> {
        if asid != self.space {
            return Stride::nothing();
        }
        let touch = match &mut self.policy {
            TlbPolicy::Same(AnyReplacement::Lru(lru)) => Touch::Stamp(lru.stamps()),
            TlbPolicy::Same(AnyReplacement::Fifo(_) | AnyReplacement::Random(_)) => Touch::Nothing,
            policy => Touch::Policy(policy),
        };
        Stride {
            hints: self.hints.view(),
            granule: self.granule,
            slots: &mut self.slots,
            touch,
            paired: self.paired,
        }
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

impl Stride<'_> {
    /// A stride of nothing: no lookup finds anything.
    pub const fn nothing() -> Stride<'static> {
        Stride {
            hints: HintsView::nothing(),
            granule: PageSize::SIZE_4K,
            slots: &mut [],
            touch: Touch::Nothing,
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
        match &mut self.touch {
            Touch::Stamp(stamps) => {
                if let Some(stamp) = stamps.get_mut(index) {
                    *stamp = time;
                }
            }
            Touch::Nothing => {}
            Touch::Policy(policy) => policy.touched(index),
        }
        Some((slot.phys(va, self.paired), slot.label()))
    }
}
