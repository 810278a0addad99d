//! Where recently used pages are: all that a hit reads, in one line of the host's cache.
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
//! with its entry, and hands over what it knows of its use.
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
#[derive(Clone, Debug)]
pub(super) struct Table {
    shortcuts: [Shortcut; SHORTCUTS],
    /// The time of the last hit of each in a stride: apart, since whoever looks for the oldest
    /// needs many of them and nothing else.
    used: [Cell<u64>; SHORTCUTS],
}

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

const _: () = assert!(size_of::<Shortcut>() == 64);

/// What a shortcut leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) slot: usize,
    pub(super) label: u32,
    pub(super) to_phys: u64,
}

/// What is known of the use of a slot that shortcuts led to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) slot: usize,
    pub(super) hits: [u64; Kind::COUNT],
    /// The time of the last hit in a stride, or 0.
    pub(super) last: u64,
}

impl Use {
    fn none(slot: usize) -> Use {
        Use { slot, hits: [0; Kind::COUNT], last: 0 }
    }

    /// Takes over what `shortcut` has counted.
    fn add(&mut self, shortcut: &Shortcut, last: &Cell<u64>) {
        add(&mut self.hits, shortcut.take_hits());
        self.last = self.last.max(last.get());
    }
}

impl Shortcut {
    fn hits(&self) -> [u64; Kind::COUNT] {
        std::array::from_fn(|kind| self.hits[kind].get())
    }

    fn take_hits(&self) -> [u64; Kind::COUNT] {
        std::array::from_fn(|kind| self.hits[kind].take())
    }

    /// Counts a hit of the kind with the number `kind`.
    #[inline(always)]
    fn count(&self, kind: usize) {
        let hits = &self.hits[kind & 3];
        hits.set(hits.get() + 1);
    }
}

impl Table {
    /// Counts a hit of the kind with the number `kind` at `time` in a stride, found by the shortcut
    /// with the number `index`, and gives what that leads to.
    #[inline(always)]
    pub(super) fn hit_at(&self, index: usize, kind: usize, time: u64) -> Target {
        self.used[index].set(time);
        let shortcut = &self.shortcuts[index];
        shortcut.count(kind);
        let &Shortcut { slot, label, to_phys, .. } = shortcut;
        Target { slot: slot as usize, label, to_phys }
    }

    /// The number of the shortcut that leads to the `bytes` at `va`. The bits `page_bits` of an
    /// address tell its granule, in which all of the bytes must be.
    #[inline(always)]
    pub(super) fn find(&self, va: VirtAddr, bytes: u32, page_bits: u64) -> Option<usize> {
        let index = index(va, page_bits);
        let first = va.get().wrapping_sub(self.shortcuts[index].base);
        let last = first.wrapping_add(u64::from(bytes).wrapping_sub(1));
        ((first | last) & page_bits == 0).then_some(index)
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
        let shortcuts = std::array::from_fn(empty);
        let table = Box::new(Table { shortcuts, used: [const { Cell::new(0) }; _] });
        Shortcuts { granule, table, first: vec![NONE; slots].into_boxed_slice() }
    }

    /// The size of the pages that they are for.
    #[inline]
    pub(super) fn granule(&self) -> PageSize {
        self.granule
    }

    /// The bits of an address that tell its granule.
    #[inline]
    fn page_bits(&self) -> u64 {
        !self.granule.mask()
    }

    /// All of them, for many lookups.
    #[inline]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Counts a hit of `kind` at `va` where a shortcut leads to it; gives the slot.
    #[inline(always)]
    pub(super) fn hit(&self, va: VirtAddr, kind: Kind) -> Option<usize> {
        let index = self.table.find(va, 1, self.page_bits())?;
        let shortcut = &self.table.shortcuts[index];
        shortcut.count(kind as usize);
        Some(shortcut.slot as usize)
    }

    /// Makes `target` what the granule of `va` is found by, and gives what is known of the use
    /// of the one that had the shortcut.
    pub(super) fn link(&mut self, va: VirtAddr, target: Target) -> Option<Use> {
        let index = index(va, self.page_bits());
        let displaced = self.unlink(index);
        let after = std::mem::replace(&mut self.first[target.slot], index as u16);
        let Table { shortcuts, used } = &mut *self.table;
        if let Some(next) = shortcuts.get_mut(usize::from(after)) {
            next.before = index as u16;
        }
        used[index].set(0);
        shortcuts[index] = Shortcut {
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

    /// Forgets the shortcut of the granule of `va`, if there is one; gives what it knows.
    pub(super) fn forget_granule(&mut self, va: VirtAddr) -> Option<Use> {
        let index = index(va, self.page_bits());
        let is_its = self.table.shortcuts[index].base == va.align_down(self.granule).get();
        is_its.then(|| self.unlink(index)).flatten()
    }

    /// Forgets the shortcuts of `slot`; gives what they know.
    #[inline]
    pub(super) fn forget(&mut self, slot: usize) -> Use {
        let mut known = Use::none(slot);
        let mut next = usize::from(std::mem::replace(&mut self.first[slot], NONE));
        let Table { shortcuts, used } = &mut *self.table;
        while let (Some(shortcut), Some(used)) = (shortcuts.get_mut(next), used.get(next)) {
            known.add(shortcut, used);
            shortcut.base = elsewhere(next, self.granule);
            next = usize::from(shortcut.after);
        }
        known
    }

    /// What the shortcuts of `slot` know; they begin to count anew.
    pub(super) fn take(&mut self, slot: usize) -> Use {
        let mut known = Use::none(slot);
        self.of(slot).for_each(|(shortcut, used)| known.add(shortcut, used));
        known
    }

    /// The time of the last hit in a stride that a shortcut of `slot` led to, or 0.
    #[inline]
    pub(super) fn last_used(&self, slot: usize) -> u64 {
        self.of(slot).map(|(_, used)| used.get()).max().unwrap_or(0)
    }

    /// The shortcuts of `slot`, with the times of their last hits.
    #[inline]
    fn of(&self, slot: usize) -> impl Iterator<Item = (&Shortcut, &Cell<u64>)> {
        let mut next = usize::from(self.first[slot]);
        std::iter::from_fn(move || {
            let both = (self.table.shortcuts.get(next)?, &self.table.used[next]);
            next = usize::from(both.0.after);
            Some(both)
        })
    }

    /// What all of them have counted.
    pub(super) fn hits(&self) -> [u64; Kind::COUNT] {
        let mut hits = [0; Kind::COUNT];
        self.table.shortcuts.iter().for_each(|shortcut| add(&mut hits, shortcut.hits()));
        hits
    }

    /// Empties one; gives what it knows, if it led to a slot.
    fn unlink(&mut self, index: usize) -> Option<Use> {
        let elsewhere = elsewhere(index, self.granule);
        let Table { shortcuts, used } = &mut *self.table;
        let shortcut = &mut shortcuts[index];
        if shortcut.base == elsewhere {
            return None;
        }
        shortcut.base = elsewhere;
        let mut known = Use::none(shortcut.slot as usize);
        known.add(shortcut, &used[index]);
        let (before, after) = (shortcut.before, shortcut.after);
        match shortcuts.get_mut(usize::from(before)) {
            Some(before) => before.after = after,
            None => self.first[known.slot] = after,
        }
        if let Some(after) = shortcuts.get_mut(usize::from(after)) {
            after.before = before;
        }
        Some(known)
    }
}

/// The number of the shortcut for the granule of `va`.
#[inline(always)]
fn index(va: VirtAddr, page_bits: u64) -> usize {
    const SHIFT: u32 = u64::BITS - SHORTCUTS.trailing_zeros();
    // The upper bits of the product depend on all bits of the page's address, so that pages a
    // power of two apart do not share a shortcut.
    ((va.get() & page_bits).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> SHIFT) as usize
}

/// Where a page begins whose shortcut does not have this number: the first page, whose
/// shortcut is the first, or the one after it.
#[inline]
fn elsewhere(index: usize, granule: PageSize) -> u64 {
    if index == 0 { granule.bytes() } else { 0 }
}
