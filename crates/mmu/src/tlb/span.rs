//! Spans: many lookups in a row that hit. A simulation spends most of its time in spans.
//!
//! ```text
//!   per access:  shortcut of this kind covers va? -> hits += 1, used = now
//!                   | no: the same for the other granule
//! ```
//!
//! The fields of a [`Tlb`] behind a `&mut` are reloaded from memory on every access, since any
//! store might have changed them. A [`SpanTlb`] borrows the parts of a TLB once for many accesses.
//! The caller passes the time and the masks that identify pages, which it keeps in registers. A
//! span finds only pages to which a shortcut leads; for all other pages, end the span and call
//! [`Tlb::lookup`].

use core::cell::RefCell;

use addr::{Asid, PageSize, PhysAddr, VirtAddr};

use super::{
    Ahead, Tlb, TlbPolicy,
    shortcuts::{ShortcutTable, Shortcuts, Target},
};

/// A TLB borrowed for a span of lookups in one space. `LEARNS` must cover what the TLB's policy
/// learns from hits ([`NOTHING`], [`TIME`] or [`EACH`]).
#[derive(Clone, Copy, Debug)]
pub struct SpanTlb<'a, const LEARNS: u8> {
    shortcuts: &'a Shortcuts,
    /// The policy, if it learns more than times.
    policy: Option<&'a RefCell<TlbPolicy>>,
}

/// The policy learns nothing from hits (FIFO and random replacement).
pub const NOTHING: u8 = 0;
/// The policy learns only the times of hits, which are stored until a victim is needed (LRU).
pub const TIME: u8 = 1;
/// Each hit is reported to the policy immediately.
pub const EACH: u8 = 2;

/// The TLBs of a span, by the number of the kind of access that they serve; each lookup selects one
/// of them.
///
/// Of the two granules of a TLB, the *near* one is looked up first. Which granule is near for a kind
/// affects only the speed of lookups: code is often in small pages while data is in large ones.
/// `TWO` says whether there is a second granule.
#[derive(Clone, Copy, Debug)]
pub struct SpanTlbs<'a, const LEARNS: u8, const TWO: bool> {
    /// The near table for each kind. There are four elements, so that `kind & 3` needs no bounds
    /// check. Tables are separate from the policies, so that only a table is loaded if the policy
    /// learns only times.
    near: [Option<&'a ShortcutTable>; 4],
    far: [Option<&'a ShortcutTable>; 4],
    policies: [Option<&'a RefCell<TlbPolicy>>; 4],
    /// Masks of the address bits that identify a page of the near and of the far granule.
    near_bits: [u64; 4],
    far_bits: [u64; 4],
    /// The mask for the small granule, which is near for all kinds if there is no other granule.
    small_bits: u64,
}

/// The result of a lookup in a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The physical address.
    pub phys: PhysAddr,
    /// The label that was given when the entry was inserted.
    pub label: u32,
    /// Whether the shortcut was found in the table of the far granule.
    pub is_far: bool,
}

impl<'a, const LEARNS: u8, const TWO: bool> SpanTlbs<'a, LEARNS, TWO> {
    /// Collects the TLBs: `serving` returns the TLB for each kind of access, given as a number.
    /// `small` and `large` are the granules of the shortcuts. The shortcuts of the large granule
    /// are searched first (are near) for the kinds in `large_first`.
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

    /// Looks up the `bytes` bytes at `va` for an access of the kind numbered `kind` at `time`, and
    /// counts the access if a shortcut leads to all of them.
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
    /// Borrows the TLB for lookups in `asid`, if its shortcuts are for that space and for the
    /// `granules`, and its policy learns no more than `LEARNS`. The times passed to
    /// [`SpanTlbs::lookup`] must be above [`Tlb::now`].
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

    /// The information that the TLB's policy uses of hits: [`NOTHING`], [`TIME`] or [`EACH`].
    #[inline]
    pub fn learns(&self) -> u8 {
        self.learns
    }

    /// The time of the last hit or insertion.
    pub fn now(&self) -> u64 {
        self.policy.borrow().now()
    }

    /// Ends a span in which all given times were at most `now`.
    pub fn set_now(&mut self, now: u64) {
        self.policy.get_mut().set_now(now);
    }
}
