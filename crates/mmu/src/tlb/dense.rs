//! Lookups where misses are dense: a miss costs little more than a hit.
//!
//! ```text
//!   near   shortcut of a large set, or fingerprints -> slot? -- hit: counted in the slot
//!                                                        | miss
//!   far    shortcut of a large set, or fingerprints -> slot? -- hit: the slot is copied into near, in the
//!                                                        | miss       victim's place
//!                                                        v
//!                                                     the caller walks
//! ```
//!
//! A TLB that has entries of one page size for one page each is looked up without asking for all that could
//! be otherwise. What it takes for granted is asked once for many accesses, when a [`DenseTlb`] borrows the TLB.
//! All else it leaves as [`Tlb::lookup_apart`] and [`Tlb::fill`] would.

use addr::{Asid, Kind, PageSize, PhysAddr, VirtAddr};

use super::{
    Ahead, Array, Tlb, TlbPolicy,
    entry::{Evicted, Miss, Slot, TlbEntry},
    fill::retire,
};
use crate::{AnyReplacement, SetArray};

/// A TLB borrowed for lookups of which many miss, in one space.
#[derive(Debug)]
pub struct DenseTlb<'a> {
    tlb: &'a mut Tlb,
    /// The array that has entries.
    array: usize,
    size: PageSize,
}

/// A slot that holds what was looked up.
#[derive(Clone, Copy, Debug)]
pub struct DenseHit {
    slot: usize,
    /// Whether a shortcut would find it sooner.
    wants_shortcut: bool,
}

impl Tlb {
    /// Borrows the TLB for lookups in `asid`, where it has entries of one size for one page each, it was asked for
    /// that space last, and its policy has been told of all hits.
    #[inline(always)]
    pub fn dense(&mut self, asid: Asid) -> Option<DenseTlb<'_>> {
        let only = self.only?;
        let is_same = matches!(self.policy.get_mut(), TlbPolicy::Same(_));
        if asid != self.space || self.ahead != Ahead::No || !is_same {
            return None;
        }
        // Nothing is known any more of lookups before.
        (self.is_apart, self.was_used, self.absent) = (true, true, None);
        let size = PageSize::from_shift(only.shift)?;
        Some(DenseTlb { tlb: self, array: only.array.into(), size })
    }
}

impl DenseTlb<'_> {
    /// The size of its pages.
    #[inline(always)]
    pub fn page_size(&self) -> PageSize {
        self.size
    }

    #[inline(always)]
    fn sets(&self) -> &SetArray {
        &self.tlb.arrays[self.array].sets
    }

    /// The set of the page at `va`, and the number by which the page selects it.
    #[inline(always)]
    fn set_of(&self, va: VirtAddr) -> (usize, u64) {
        let number = va.get() >> self.size.shift();
        (self.sets().set_of(number), number)
    }

    #[inline(always)]
    fn policy(&mut self) -> &mut AnyReplacement {
        match self.tlb.policy.get_mut() {
            TlbPolicy::Same(policy) => policy,
            TlbPolicy::PerArray { policies, .. } => &mut policies[self.array],
        }
    }

    /// Looks `va` up for an access of `kind`, and counts nothing yet.
    #[inline(always)]
    pub fn find(&self, va: VirtAddr, kind: Kind) -> Result<DenseHit, Miss> {
        let Tlb { slots, shortcuts, space, has_small_sets, arrays, .. } = &*self.tlb;
        if !has_small_sets && let Some(slot) = shortcuts.slot_of(va, kind) {
            return Ok(DenseHit { slot, wants_shortcut: false });
        }
        let (set, number) = self.set_of(va);
        let Array { sets, first } = &arrays[self.array];
        let slots = slots.get(*first..).unwrap_or(&[]);
        let found = sets.find(set, number, |slot| {
            slots.get(slot).is_some_and(|slot| slot.covers(va) && slot.serves(*space))
        });
        match found {
            Some(slot) if slots[slot].rights(va, false).allows(kind) => {
                Ok(DenseHit { slot: first + slot, wants_shortcut: !has_small_sets })
            }
            Some(_) => Err(Miss::Denied),
            None => Err(Miss::Absent),
        }
    }

    /// Counts a hit of `kind` at `va`; gives where that lies, and the entry's label.
    #[inline(always)]
    pub fn hit(&mut self, found: DenseHit, va: VirtAddr, kind: Kind) -> (PhysAddr, u32) {
        let DenseHit { slot, wants_shortcut } = found;
        self.policy().touched(slot);
        let held = &mut self.tlb.slots[slot];
        held.hits[kind as usize] += 1;
        let hit = (held.phys(va, false), held.label());
        if wants_shortcut {
            self.tlb.link(va, kind, slot);
        }
        hit
    }

    /// Counts a lookup of `kind` that found nothing.
    #[inline(always)]
    pub fn missed(&mut self, kind: Kind) {
        self.tlb.misses[kind as usize] += 1;
    }

    /// The last lookup was of `va` and found nothing, and nothing comes in here before the TLB is asked again.
    pub fn leave_absent(&mut self, va: VirtAddr) {
        self.tlb.absent = Some((va, self.tlb.space));
    }

    /// Whether an entry for `va`, which is not here, takes the place of one entry when it comes from `behind`.
    #[inline(always)]
    pub fn is_replaced(&self, va: VirtAddr, behind: &DenseTlb<'_>, there: DenseHit) -> bool {
        // A global one may be here for another space.
        self.sets().is_full(self.set_of(va).0)
            && !(self.tlb.is_mixed && behind.tlb.slots[there.slot].is_global())
    }

    /// Takes over the entry for `va` from the TLB `behind`, where it is held, if it replaces one
    /// ([`DenseTlb::is_replaced`]). Hands out what had to go if it was hit.
    #[inline(always)]
    pub fn refill(
        &mut self,
        va: VirtAddr,
        behind: &DenseTlb<'_>,
        there: DenseHit,
        evicted: &mut impl FnMut(Evicted),
    ) {
        let entry = behind.tlb.slots[there.slot].anew(self.tlb.space);
        self.replace(va, entry, evicted);
    }

    /// Whether `entry`, which is of this space and not here, takes the place of one entry.
    #[inline(always)]
    pub fn is_replaced_by(&self, entry: &TlbEntry) -> bool {
        entry.page.size() == self.size
            && self.sets().is_full(self.set_of(entry.page.start()).0)
            && !(self.tlb.is_mixed && entry.global)
    }

    /// Makes `entry` part of the TLB, if it replaces one ([`DenseTlb::is_replaced_by`]). Hands out what had to go
    /// if it was hit.
    #[inline(always)]
    pub fn fill(&mut self, entry: &TlbEntry, label: u32, evicted: &mut impl FnMut(Evicted)) {
        self.replace(entry.page.start(), Slot::new(entry, label, false), evicted);
    }

    /// Puts `entry`, which is for the page at `va`, in the place of another one of its set.
    #[inline(always)]
    fn replace(&mut self, va: VirtAddr, entry: Slot, evicted: &mut impl FnMut(Evicted)) {
        let (set, number) = self.set_of(va);
        let Array { sets, first } = &self.tlb.arrays[self.array];
        let (first, slots) = (*first, sets.slots(set));
        let victim = self.tlb.replaced(first + slots.start..first + slots.end);
        let Tlb { slots, shortcuts, retired, arrays, .. } = &mut *self.tlb;
        let slot = &mut slots[victim];
        let are_kept = shortcuts.are_kept();
        if are_kept {
            shortcuts.crowd(slot.page(false), slot.bytes(), false);
            if shortcuts.lead_to(victim) {
                slot.add_hits(shortcuts.forget(victim).hits);
            }
        }
        if slot.hits != [0; Kind::COUNT] {
            retire(retired, slot, false, evicted);
        }
        *slot = entry;
        arrays[self.array].sets.exchange(set, victim - first, number);
        if are_kept {
            shortcuts.crowd(slot.page(false), slot.bytes(), true);
        }
        retired.evictions += 1;
        retired.fills += 1;
    }
}
