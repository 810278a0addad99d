//! Where recently used pages are: all that a hit needs, in one line of the host's cache.
//!
//! ```text
//!   va --hash of its page--> | base | base to frame | hits | slot |   va in the page? a hit
//!                                                             |
//!   slots   | 3 | - | 17 | ..      first shortcut <-----------+      its entry goes: so do they
//!                  17 -> 4 -> 9     and the others of that slot
//! ```
//!
//! This is no hardware: it saves the usual hit the selection of a set, the comparison of tags
//! and the way to the entry, however associative the TLB is. A shortcut is always true: it goes
//! with its entry, and hands over the hits that it has counted.
//!
//! Shortcuts are for pages of one size, the *granule*. An entry for a larger page, or for a
//! pair, has one for each granule of it that is used.

use core::cell::Cell;

use addr::{Kind, PageSize, VirtAddr};

use super::entry::add;

/// How many there are: enough for first-level TLBs to have few collisions. A power of two.
const SHORTCUTS: usize = 1024;
/// No shortcut has this number.
const NONE: u16 = u16::MAX;

/// The shortcuts of a TLB.
#[derive(Clone, Debug)]
pub(super) struct Shortcuts {
    granule: PageSize,
    table: Box<Table>,
    /// By slot: the first of its shortcuts.
    first: Box<[u16]>,
}

/// Shortcuts by the hash of their page.
pub(super) type Table = [Shortcut; SHORTCUTS];

/// A way to the entry of one page.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Shortcut {
    /// Where the page begins. In an empty one it is a page that is looked for elsewhere.
    base: u64,
    /// What makes a virtual address of the page a physical one.
    to_phys: u64,
    /// With room for all that two bits can say.
    hits: [Cell<u64>; 4],
    slot: u32,
    label: u32,
    /// Its neighbours among those of its slot.
    before: u16,
    after: u16,
}

/// What a shortcut leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) slot: usize,
    pub(super) label: u32,
    pub(super) to_phys: u64,
}

impl Shortcut {
    fn hits(&self) -> [u64; Kind::COUNT] {
        std::array::from_fn(|kind| self.hits[kind].get())
    }

    fn take_hits(&self) -> [u64; Kind::COUNT] {
        std::array::from_fn(|kind| self.hits[kind].take())
    }
}

impl Shortcuts {
    /// None yet, for pages of `granule`, in a TLB of `slots` slots.
    pub(super) fn new(granule: PageSize, slots: usize) -> Shortcuts {
        let empty = |index| Shortcut {
            base: elsewhere(index, granule),
            to_phys: 0,
            hits: Default::default(),
            slot: 0,
            label: 0,
            before: NONE,
            after: NONE,
        };
        let table: Vec<Shortcut> = (0..SHORTCUTS).map(empty).collect();
        let Ok(table) = table.try_into() else { unreachable!("it was made that long") };
        Shortcuts { granule, table, first: vec![NONE; slots].into_boxed_slice() }
    }

    /// The size of the pages that they are for.
    #[inline]
    pub(super) fn granule(&self) -> PageSize {
        self.granule
    }

    /// All of them, for many lookups.
    #[inline]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Counts a hit of `kind` at `va` where a shortcut leads to it; gives the slot.
    #[inline(always)]
    pub(super) fn hit(&self, va: VirtAddr, kind: Kind) -> Option<usize> {
        lookup(&self.table, self.granule, va, 1, kind as usize).map(|target| target.slot)
    }

    /// Makes `target` what the granule of `va` is found by, and gives what the shortcut that
    /// had the place has counted, with its slot.
    pub(super) fn link(
        &mut self,
        va: VirtAddr,
        target: Target,
    ) -> Option<(usize, [u64; Kind::COUNT])> {
        let index = index(va, self.granule);
        let displaced = self.unlink(index);
        let after = std::mem::replace(&mut self.first[target.slot], index as u16);
        if let Some(next) = self.table.get_mut(usize::from(after)) {
            next.before = index as u16;
        }
        self.table[index] = Shortcut {
            base: va.align_down(self.granule).get(),
            to_phys: target.to_phys,
            hits: Default::default(),
            slot: target.slot as u32,
            label: target.label,
            before: NONE,
            after,
        };
        displaced
    }

    /// Forgets the shortcut of the granule of `va`, if there is one; gives what it has counted,
    /// with its slot.
    pub(super) fn forget_granule(&mut self, va: VirtAddr) -> Option<(usize, [u64; Kind::COUNT])> {
        let index = index(va, self.granule);
        let is_its = self.table[index].base == va.align_down(self.granule).get();
        is_its.then(|| self.unlink(index)).flatten()
    }

    /// Forgets the shortcuts of `slot`; gives what they have counted.
    #[inline]
    pub(super) fn forget(&mut self, slot: usize) -> [u64; Kind::COUNT] {
        let mut hits = [0; Kind::COUNT];
        let mut next = std::mem::replace(&mut self.first[slot], NONE);
        while let Some(shortcut) = self.table.get_mut(usize::from(next)) {
            add(&mut hits, shortcut.take_hits());
            shortcut.base = elsewhere(usize::from(next), self.granule);
            next = shortcut.after;
        }
        hits
    }

    /// What the shortcuts of `slot` have counted; they begin anew.
    pub(super) fn take_hits(&mut self, slot: usize) -> [u64; Kind::COUNT] {
        let mut hits = [0; Kind::COUNT];
        let mut next = self.first[slot];
        while let Some(shortcut) = self.table.get_mut(usize::from(next)) {
            add(&mut hits, shortcut.take_hits());
            next = shortcut.after;
        }
        hits
    }

    /// What all of them have counted.
    pub(super) fn hits(&self) -> [u64; Kind::COUNT] {
        let mut hits = [0; Kind::COUNT];
        self.table.iter().for_each(|shortcut| add(&mut hits, shortcut.hits()));
        hits
    }

    /// Empties one; gives what it has counted, with its slot, if it led to one.
    fn unlink(&mut self, index: usize) -> Option<(usize, [u64; Kind::COUNT])> {
        let elsewhere = elsewhere(index, self.granule);
        let shortcut = &mut self.table[index];
        if shortcut.base == elsewhere {
            return None;
        }
        shortcut.base = elsewhere;
        let hits = shortcut.take_hits();
        let (slot, before, after) = (shortcut.slot as usize, shortcut.before, shortcut.after);
        match self.table.get_mut(usize::from(before)) {
            Some(before) => before.after = after,
            None => self.first[slot] = after,
        }
        if let Some(after) = self.table.get_mut(usize::from(after)) {
            after.before = before;
        }
        Some((slot, hits))
    }
}

/// What leads to the `bytes` at `va`, all in one granule, with a hit of the kind that has the
/// number `kind` counted.
#[inline(always)]
pub(super) fn lookup(
    table: &Table,
    granule: PageSize,
    va: VirtAddr,
    bytes: u32,
    kind: usize,
) -> Option<Target> {
    let shortcut = &table[index(va, granule)];
    let first = va.get().wrapping_sub(shortcut.base);
    let last = first.wrapping_add(u64::from(bytes).wrapping_sub(1));
    if first | last >= granule.bytes() {
        return None;
    }
    let hits = &shortcut.hits[kind & 3];
    hits.set(hits.get() + 1);
    let &Shortcut { slot, label, to_phys, .. } = shortcut;
    Some(Target { slot: slot as usize, label, to_phys })
}

/// The number of the shortcut for the granule of `va`.
#[inline(always)]
fn index(va: VirtAddr, granule: PageSize) -> usize {
    const SHIFT: u32 = u64::BITS - SHORTCUTS.trailing_zeros();
    // The upper bits of the product depend on all bits of the page's number, so that pages a
    // power of two apart do not share a shortcut.
    let page = va.get() >> granule.shift();
    (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> SHIFT) as usize
}

/// Where a page begins whose shortcut does not have this number: the first page, whose
/// shortcut is the first, or the one after it.
#[inline]
fn elsewhere(index: usize, granule: PageSize) -> u64 {
    if index == 0 { granule.bytes() } else { 0 }
}
