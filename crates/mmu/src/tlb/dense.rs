//! Lookups for intervals with many misses: with these lookups, a miss takes little more time to
//! simulate than a hit.
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
//! If all entries of a TLB are for single pages of one size, lookups need not check for other cases. The
//! conditions are checked once for many accesses, when a [`DenseTlb`] borrows the TLB. At the end,
//! the state of the TLB is the state that [`Tlb::lookup_apart`] and [`Tlb::fill`] would have
//! produced.

use addr::{Asid, Kind, PageSize, PhysAddr, VirtAddr};

use super::{
    Ahead, Array, Tlb, TlbCounts, TlbPolicy,
    entry::{Evicted, Miss, Slot, TlbEntry},
    fill::retire,
    link,
    shortcuts::Shortcuts,
};
use crate::SetArray;

/// A TLB that is borrowed for many lookups in one space. Many of these lookups miss. The parts of the TLB
/// are borrowed separately, so that they need not be located for each lookup.
#[derive(Debug)]
pub struct DenseTlb<'a> {
    sets: &'a mut SetArray,
    slots: &'a mut [Slot],
    /// The number of the first slot of `sets` among all slots of the TLB.
    first: usize,
    size: PageSize,
    space: Asid,
    policy: &'a mut TlbPolicy,
    shortcuts: &'a mut Shortcuts,
    has_small_sets: bool,
    is_mixed: bool,
    misses: &'a mut [u64; Kind::COUNT],
    retired: &'a mut TlbCounts,
    absent: &'a mut Option<(VirtAddr, Asid)>,
}

/// The slot in which a lookup found the requested translation.
#[derive(Clone, Copy, Debug)]
pub struct DenseHit {
    slot: usize,
    /// Whether a shortcut should be made, so that the next lookup is faster.
    wants_shortcut: bool,
}

impl Tlb {
    /// Borrows the TLB for lookups in `asid`. `None` unless all entries are for single pages of one size, the
    /// TLB was last looked up for that space, and its policy has been notified of all hits.
    #[inline(always)]
    pub fn dense(&mut self, asid: Asid) -> Option<DenseTlb<'_>> {
        let only = self.only?;
        let policy = self.policy.get_mut();
        let is_told = self.ahead == Ahead::No && self.going.is_empty();
        if asid != self.space || !is_told || !matches!(policy, TlbPolicy::Same(_)) {
            return None;
        }
        let Array { sets, first } = self.arrays.get_mut(usize::from(only.array))?;
        // The results of earlier lookups are dropped.
        (self.is_apart, self.was_used, self.absent) = (true, true, None);
        Some(DenseTlb {
            sets,
            slots: &mut self.slots,
            first: *first,
            size: PageSize::from_shift(only.shift)?,
            space: self.space,
            policy,
            shortcuts: &mut self.shortcuts,
            has_small_sets: self.has_small_sets,
            is_mixed: self.is_mixed,
            misses: &mut self.misses,
            retired: &mut self.retired,
            absent: &mut self.absent,
        })
    }
}

impl DenseTlb<'_> {
    /// The size of the TLB's pages.
    #[inline(always)]
    pub fn page_size(&self) -> PageSize {
        self.size
    }

    /// The set of the page at `va`, and the page's number, which selects the set.
    #[inline(always)]
    fn set_of(&self, va: VirtAddr) -> (usize, u64) {
        let number = va.get() >> self.size.shift();
        (self.sets.set_of(number), number)
    }

    /// Looks up `va` for an access of `kind` without counting.
    #[inline(always)]
    pub fn find(&self, va: VirtAddr, kind: Kind) -> Result<DenseHit, Miss> {
        if !self.has_small_sets
            && let Some(slot) = self.shortcuts.slot_of(va, kind)
        {
            return Ok(DenseHit { slot, wants_shortcut: false });
        }
        let (set, number) = self.set_of(va);
        let slots = self.slots.get(self.first..).unwrap_or(&[]);
        let found = self.sets.find(set, number, |slot| {
            slots.get(slot).is_some_and(|slot| slot.covers(va) && slot.serves(self.space))
        });
        match found {
            Some(slot) if slots[slot].rights(va, false).allows(kind) => {
                Ok(DenseHit { slot: self.first + slot, wants_shortcut: !self.has_small_sets })
            }
            Some(_) => Err(Miss::Denied),
            None => Err(Miss::Absent),
        }
    }

    /// Counts a hit of `kind` at `va`. Returns the physical address, and the entry's label.
    #[inline(always)]
    pub fn hit(&mut self, found: DenseHit, va: VirtAddr, kind: Kind) -> (PhysAddr, u32) {
        let DenseHit { slot, wants_shortcut } = found;
        self.policy.touched(slot);
        let held = &mut self.slots[slot];
        held.hits[kind as usize] += 1;
        let (phys, label) = (held.phys(va, false), held.label());
        if wants_shortcut && self.shortcuts.are_kept() && self.size >= self.shortcuts.granules().0 {
            link(self.shortcuts, (self.slots, self.policy), (va, kind), (slot, phys));
        }
        (phys, label)
    }

    /// Counts a lookup of `kind` that missed.
    #[inline(always)]
    pub fn missed(&mut self, kind: Kind) {
        self.misses[kind as usize] += 1;
    }

    /// Records that the last lookup was of `va` and missed, and that no entry will be inserted before the
    /// next lookup in the TLB.
    pub fn leave_absent(&mut self, va: VirtAddr) {
        *self.absent = Some((va, self.space));
    }

    /// `va` misses in this TLB and hits the entry `there` in the TLB `behind`. Returns whether
    /// inserting this entry here would replace exactly one entry.
    #[inline(always)]
    pub fn is_replaced(&self, va: VirtAddr, behind: &DenseTlb<'_>, there: DenseHit) -> bool {
        self.is_full_for(va, behind.slots[there.slot].is_global())
    }

    /// Copies the entry for `va` from the TLB `behind`, if [`DenseTlb::is_replaced`] is true.
    /// Reports the replaced entry if it was hit.
    #[inline(always)]
    pub fn refill(
        &mut self,
        va: VirtAddr,
        behind: &DenseTlb<'_>,
        there: DenseHit,
        evicted: &mut impl FnMut(Evicted),
    ) {
        let entry = behind.slots[there.slot].anew(self.space);
        self.replace(va, entry, evicted);
    }

    /// Whether inserting `entry` would replace exactly one entry. `entry` must be for this space,
    /// and its page must miss in this TLB.
    #[inline(always)]
    pub fn is_replaced_by(&self, entry: &TlbEntry) -> bool {
        entry.page.size() == self.size && self.is_full_for(entry.page.start(), entry.global)
    }

    /// Inserts `entry`, if [`DenseTlb::is_replaced_by`] is true. Reports the replaced entry if it was hit.
    #[inline(always)]
    pub fn fill(&mut self, entry: &TlbEntry, label: u32, evicted: &mut impl FnMut(Evicted)) {
        self.replace(entry.page.start(), Slot::new(entry, label, false), evicted);
    }

    /// Whether inserting an entry for `va`, which missed, would replace exactly one entry.
    #[inline(always)]
    fn is_full_for(&self, va: VirtAddr, is_global: bool) -> bool {
        // The TLB may already hold a global entry for the page that was inserted for another space.
        self.sets.is_full(self.set_of(va).0) && !(self.is_mixed && is_global)
    }

    /// Replaces an entry of the set by `entry`, which is for the page at `va`.
    #[inline(always)]
    fn replace(&mut self, va: VirtAddr, entry: Slot, evicted: &mut impl FnMut(Evicted)) {
        let (set, number) = self.set_of(va);
        let (first, ways) = (self.first, self.sets.slots(set));
        let victim = self.policy.replaced(first + ways.start..first + ways.end);
        let slot = &mut self.slots[victim];
        let are_kept = self.shortcuts.are_kept();
        if are_kept {
            self.shortcuts.crowd(slot.page(false), slot.bytes(), false);
            if self.shortcuts.lead_to(victim) {
                slot.add_hits(self.shortcuts.forget(victim).hits);
            }
        }
        if slot.hits != [0; Kind::COUNT] {
            retire(self.retired, slot, false, evicted);
        }
        *slot = entry;
        self.sets.exchange(set, victim - first, number);
        if are_kept {
            self.shortcuts.crowd(slot.page(false), slot.bytes(), true);
        }
        self.retired.evictions += 1;
        self.retired.fills += 1;
    }
}
