//! Lookups that hit, many in a row: the loop in which a simulation spends its time.
//!
//! ```text
//!   per access:  shortcut of this kind covers va? -> hits += 1, used = now
//!                   | no: the same for the other granule
//! ```
//!
//! A [`Tlb`] behind a `&mut` is loaded anew from memory on every access, since any store might
//! have changed it. A [`SpanTlb`] borrows its parts once for many accesses, and takes the time
//! and what tells pages apart from its caller, who has them in registers. It finds only what a
//! shortcut leads to; for all else, end the span and call [`Tlb::lookup`].

use core::cell::RefCell;

use addr::{Asid, PageSize, PhysAddr, VirtAddr};

use super::{
    Tlb, TlbPolicy,
    shortcuts::{Shortcuts, Table, Target},
};

/// A TLB borrowed for a span of lookups in one space. `TIME_ONLY` says that its policy learns no more of
/// hits than their time, as LRU does; FIFO and random do not even look at that.
#[derive(Clone, Copy, Debug)]
pub struct SpanTlb<'a, const TIME_ONLY: bool> {
    shortcuts: &'a Shortcuts,
    /// The policy, if it is another.
    policy: Option<&'a RefCell<TlbPolicy>>,
}

/// The TLBs of a span by the number of the kind of access that they serve, in which each lookup chooses.
///
/// Of the two granules of a TLB the *near* one is looked for first. Which of them that is changes
/// how fast lookups are, and nothing else. `TWO` says that there is a second one at all.
#[derive(Clone, Copy, Debug)]
pub struct SpanTlbs<'a, const TIME_ONLY: bool, const TWO: bool> {
    /// Four each, so that `kind & 3` needs no bounds check; and apart from the policies, so that no
    /// more than the table is loaded where only the time counts.
    near: [Option<&'a Table>; 4],
    far: [Option<&'a Table>; 4],
    policies: [Option<&'a RefCell<TlbPolicy>>; 4],
    near_bits: u64,
    far_bits: u64,
}

/// What a lookup in a span finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where the address lies in physical memory.
    pub phys: PhysAddr,
    /// What the filler wrote on the entry.
    pub label: u32,
    /// Whether it was found by the far granule.
    pub is_far: bool,
}

impl<'a, const TIME_ONLY: bool, const TWO: bool> SpanTlbs<'a, TIME_ONLY, TWO> {
    /// What `serving` gives for the number of each kind; of TLBs with the granules `small` and
    /// perhaps `large`, of which the large one is near if `large_first`.
    #[inline]
    pub fn new(
        serving: impl Fn(usize) -> Option<SpanTlb<'a, TIME_ONLY>>,
        (small, large): (PageSize, Option<PageSize>),
        large_first: bool,
    ) -> Self {
        let spans: [_; 4] = core::array::from_fn(serving);
        let tables = |granule: usize| {
            core::array::from_fn(|kind| spans[kind]?.shortcuts.table(granule, kind))
        };
        let large_first = large_first && large.is_some();
        let (small_bits, large_bits) = (!small.mask(), !large.unwrap_or(small).mask());
        let policies = spans.map(|span| span?.policy);
        if large_first {
            let (near_bits, far_bits) = (large_bits, small_bits);
            SpanTlbs { near: tables(1), far: tables(0), policies, near_bits, far_bits }
        } else {
            let (near_bits, far_bits) = (small_bits, large_bits);
            SpanTlbs { near: tables(0), far: tables(1), policies, near_bits, far_bits }
        }
    }

    /// Looks the `bytes` at `va` up for an access of the kind with the number `kind` at `time`,
    /// and counts it if a shortcut leads to all of them.
    #[inline(always)]
    pub fn lookup(&self, va: VirtAddr, bytes: u32, kind: usize, time: u64) -> Option<Found> {
        let near = self.near[kind & 3]?;
        let (index, table, is_far) = match near.find(va, bytes, self.near_bits) {
            Some(index) => (index, near, false),
            None if !TWO => return None,
            None => {
                let far = self.far[kind & 3]?;
                (far.find(va, bytes, self.far_bits)?, far, true)
            }
        };
        let Target { slot, label, to_phys } = table.hit_at(index, time);
        if !TIME_ONLY && let Some(policy) = self.policies[kind & 3] {
            policy.borrow_mut().touched(slot);
        }
        Some(Found { phys: PhysAddr::new(va.get().wrapping_add(to_phys)), label, is_far })
    }
}

impl Tlb {
    /// Borrows the TLB for lookups in `asid`, if its shortcuts are for that space and for pages
    /// of the `granules`, and its policy is one that `TIME_ONLY` allows. The times given to
    /// [`SpanTlbs::lookup`] start above [`Tlb::now`].
    #[inline]
    pub fn span<const TIME_ONLY: bool>(
        &mut self,
        asid: Asid,
        granules: (PageSize, Option<PageSize>),
    ) -> Option<SpanTlb<'_, TIME_ONLY>> {
        let needs_more = !self.needs_time_only();
        if asid != self.space || granules != self.shortcuts.granules() || TIME_ONLY && needs_more {
            return None;
        }
        self.strode = true;
        let policy = needs_more.then_some(&self.policy);
        Some(SpanTlb { shortcuts: &self.shortcuts, policy })
    }

    /// Whether its policy learns no more of hits than their time.
    pub fn needs_time_only(&self) -> bool {
        self.policy.borrow().needs_time_only()
    }

    /// The time of the last touch.
    pub fn now(&self) -> u64 {
        self.policy.borrow().now()
    }

    /// Ends a span: all times given in it are at most `now`.
    pub fn set_now(&mut self, now: u64) {
        self.policy.get_mut().set_now(now);
    }
}
