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
    Ahead, Tlb, TlbPolicy,
    shortcuts::{ShortcutTable, Shortcuts, Target},
};

/// A TLB borrowed for a span of lookups in one space. `LEARNS` is at least what its policy learns of hits
/// ([`NOTHING`], [`TIME`] or [`EACH`]).
#[derive(Clone, Copy, Debug)]
pub struct SpanTlb<'a, const LEARNS: u8> {
    shortcuts: &'a Shortcuts,
    /// The policy, if it learns more than times.
    policy: Option<&'a RefCell<TlbPolicy>>,
}

/// Hits change nothing: FIFO and random.
pub const NOTHING: u8 = 0;
/// Of hits their times are kept, until somebody asks: LRU.
pub const TIME: u8 = 1;
/// The policy is told of each hit at once.
pub const EACH: u8 = 2;

/// The TLBs of a span by the number of the kind of access that they serve, in which each lookup chooses.
///
/// Of the two granules of a TLB the *near* one is looked for first. Which of them that is for a kind
/// changes how fast lookups are, and nothing else: code often lies in small pages while data lies in
/// large ones. `TWO` says that there is a second one at all.
#[derive(Clone, Copy, Debug)]
pub struct SpanTlbs<'a, const LEARNS: u8, const TWO: bool> {
    /// Four each, so that `kind & 3` needs no bounds check; and apart from the policies, so that no
    /// more than the table is loaded where only the time counts.
    near: [Option<&'a ShortcutTable>; 4],
    far: [Option<&'a ShortcutTable>; 4],
    policies: [Option<&'a RefCell<TlbPolicy>>; 4],
    /// The bits of an address that tell its page of the near and of the far granule.
    near_bits: [u64; 4],
    far_bits: [u64; 4],
    /// Those of the small granule, which is near for all kinds where there is no other.
    small_bits: u64,
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

impl<'a, const LEARNS: u8, const TWO: bool> SpanTlbs<'a, LEARNS, TWO> {
    /// What `serving` gives for the number of each kind; of TLBs with the granules `small` and
    /// perhaps `large`, of which the large one is near for the kinds of `large_first`.
    #[inline]
    pub fn new(
        serving: impl Fn(usize) -> Option<SpanTlb<'a, LEARNS>>,
        (small, large): (PageSize, Option<PageSize>),
        large_first: [bool; 4],
    ) -> Self {
        let spans: [_; 4] = core::array::from_fn(serving);
        let has_two = TWO && large.is_some();
        let bits = [!small.mask(), !large.unwrap_or(small).mask()];
        let near = large_first.map(|large_first| usize::from(large_first && has_two));
        let tables = |granule: [usize; 4]| {
            core::array::from_fn(|kind| spans[kind]?.shortcuts.table(granule[kind], kind))
        };
        SpanTlbs {
            near: tables(near),
            far: tables(near.map(|granule| 1 - granule)),
            policies: spans.map(|span| span?.policy),
            near_bits: near.map(|granule| bits[granule]),
            far_bits: near.map(|granule| bits[1 - granule]),
            small_bits: bits[0],
        }
    }

    /// Looks the `bytes` at `va` up for an access of the kind with the number `kind` at `time`,
    /// and counts it if a shortcut leads to all of them.
    #[inline(always)]
    pub fn lookup(&self, va: VirtAddr, bytes: u32, kind: usize, time: u64) -> Option<Found> {
        let near = self.near[kind & 3]?;
        let near_bits = if TWO { self.near_bits[kind & 3] } else { self.small_bits };
        let (index, table, is_far) = match near.find(va, bytes, near_bits) {
            Some(index) => (index, near, false),
            None if !TWO => return None,
            None => {
                let far = self.far[kind & 3]?;
                (far.find(va, bytes, self.far_bits[kind & 3])?, far, true)
            }
        };
        if LEARNS != NOTHING {
            table.use_at(index, time);
        }
        let Target { slot, label, to_phys } = table.hit_at(index);
        if LEARNS == EACH
            && let Some(policy) = self.policies[kind & 3]
        {
            policy.borrow_mut().touched(slot);
        }
        Some(Found { phys: PhysAddr::new(va.get().wrapping_add(to_phys)), label, is_far })
    }
}

impl Tlb {
    /// Borrows the TLB for lookups in `asid`, if its shortcuts are for that space and for pages
    /// of the `granules`, and its policy learns no more than `LEARNS`. The times given to
    /// [`SpanTlbs::lookup`] start above [`Tlb::now`].
    #[inline]
    pub fn span<const LEARNS: u8>(
        &mut self,
        asid: Asid,
        granules: (PageSize, Option<PageSize>),
    ) -> Option<SpanTlb<'_, LEARNS>> {
        let learns = self.learns();
        let has_shortcuts = self.shortcuts.are_kept() && granules == self.shortcuts.granules();
        if asid != self.space || !has_shortcuts || learns > LEARNS {
            return None;
        }
        self.ahead = Ahead::Now;
        let policy = (learns == EACH).then_some(&self.policy);
        Some(SpanTlb { shortcuts: &self.shortcuts, policy })
    }

    /// What its policy learns of hits: [`NOTHING`], [`TIME`] or [`EACH`].
    #[inline]
    pub fn learns(&self) -> u8 {
        self.learns
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
