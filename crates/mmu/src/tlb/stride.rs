//! Lookups that hit, many in a row: the loop in which a simulation spends its time.
//!
//! ```text
//!   per access:  shortcut covers va? -> hits[kind] += 1, used = now
//! ```
//!
//! A [`Tlb`] behind a `&mut` is loaded anew from memory on every access, since any store might
//! have changed it. A [`Stride`] borrows its parts once for many accesses, and takes the time
//! and what tells pages apart from its caller, who has them in registers. It finds only what a
//! shortcut leads to; for all else, end the stride and call [`Tlb::lookup`].

use core::cell::RefCell;

use addr::{Asid, PageSize, PhysAddr, VirtAddr};

use super::{
    Tlb, TlbPolicy,
    shortcuts::{Table, Target},
};
use crate::{AnyReplacement, Replacement};

/// A TLB borrowed for lookups in one space. `TIME_ONLY` says that its policy learns no more of
/// hits than their time, as LRU does; FIFO and random do not even look at that.
#[derive(Clone, Copy, Debug)]
pub struct Stride<'a, const TIME_ONLY: bool> {
    table: &'a Table,
    /// The policy, if it is another.
    policy: Option<&'a RefCell<TlbPolicy>>,
}

/// Strides by the number of the kind of access that they serve, in which each lookup chooses.
#[derive(Clone, Copy, Debug)]
pub struct Strides<'a, const TIME_ONLY: bool> {
    /// With room for all that two bits can say, and apart from the policies, so that no more than
    /// the table is loaded where only the time counts.
    tables: [Option<&'a Table>; 4],
    policies: [Option<&'a RefCell<TlbPolicy>>; 4],
}

impl<'a, const TIME_ONLY: bool> Strides<'a, TIME_ONLY> {
    /// What `serving` gives for the number of each kind.
    #[inline]
    pub fn new(serving: impl Fn(usize) -> Option<Stride<'a, TIME_ONLY>>) -> Self {
        let strides: [_; 4] = core::array::from_fn(serving);
        Strides {
            tables: strides.map(|stride| Some(stride?.table)),
            policies: strides.map(|stride| stride?.policy),
        }
    }

    /// The one that serves the kind with the number `kind`.
    #[inline(always)]
    pub fn of(&self, kind: usize) -> Option<Stride<'a, TIME_ONLY>> {
        let table = self.tables[kind & 3]?;
        let policy = if TIME_ONLY { None } else { self.policies[kind & 3] };
        Some(Stride { table, policy })
    }
}

impl Tlb {
    /// Borrows the TLB for lookups in `asid`, if its shortcuts are for that space and for pages
    /// of `granule`, and its policy is one that `TIME_ONLY` allows. The times given to
    /// [`Stride::lookup`] start above [`Tlb::now`].
    #[inline]
    pub fn stride<const TIME_ONLY: bool>(
        &mut self,
        asid: Asid,
        granule: PageSize,
    ) -> Option<Stride<'_, TIME_ONLY>> {
        let needs_more = !self.needs_time_only();
        if asid != self.space || granule != self.shortcuts.granule() || TIME_ONLY && needs_more {
            return None;
        }
        self.strode = true;
        let policy = needs_more.then_some(&self.policy);
        Some(Stride { table: self.shortcuts.table(), policy })
    }

    /// Whether its policy learns no more of hits than their time.
    pub fn needs_time_only(&self) -> bool {
        self.policy.borrow().needs_time_only()
    }

    /// The time of the last touch.
    pub fn now(&self) -> u64 {
        match &*self.policy.borrow() {
            TlbPolicy::Same(AnyReplacement::Lru(lru)) => lru.now(),
            _ => 0,
        }
    }

    /// Ends a stride: all times given in it are at most `now`.
    pub fn set_now(&mut self, now: u64) {
        if let TlbPolicy::Same(AnyReplacement::Lru(lru)) = self.policy.get_mut() {
            lru.set_now(now);
        }
    }
}

impl<const TIME_ONLY: bool> Stride<'_, TIME_ONLY> {
    /// Looks the `bytes` at `va` up for an access of the kind with the number `kind` at `time`,
    /// and counts it if a shortcut leads to all of them. Gives the physical address and the
    /// entry's label. `page_bits` are the bits of an address that tell its page, which has the
    /// size that the stride was made for.
    #[inline(always)]
    pub fn lookup(
        &self,
        va: VirtAddr,
        bytes: u32,
        kind: usize,
        time: u64,
        page_bits: u64,
    ) -> Option<(PhysAddr, u32)> {
        let index = self.table.find(va, bytes, page_bits)?;
        let Target { slot, label, to_phys } = self.table.hit_at(index, kind, time);
        if !TIME_ONLY && let Some(policy) = self.policy {
            policy.borrow_mut().touched(slot);
        }
        Some((PhysAddr::new(va.get().wrapping_add(to_phys)), label))
    }
}
