//! Shortcuts to recently used pages. A shortcut has all data that a hit reads, in half a cache line
//! of the host.
//!
//! ```text
//!   va --hash of its page--> | base | base to frame | hits | slot |   va in the page? a hit
//!                                                             |
//!   slots   | 3 | - | 17 | ..      first shortcut <-----------+      its entry goes: so do they
//!                  17 -> 4 -> 9     and the others of that slot
//! ```
//!
//! Shortcuts do not model hardware. Shortcuts avoid, for the usual hit, the selection of a set, the
//! comparison of tags and rights, and the access to the entry, however associative the TLB is. A
//! shortcut is always correct: it is removed with its entry, and then reports the hits that it has
//! recorded.
//!
//! Each kind of access has its own shortcuts, which exist only for entries that allow this kind. A
//! hit by a shortcut therefore needs no check of rights. There are shortcuts for pages of two
//! sizes, the *granules*, in separate tables. An entry for a page of another size, or for a pair,
//! has one shortcut for each granule in it that is used. A shortcut for the large granule must be
//! correct for the whole granule. Therefore no shortcut for the large granule is made while there
//! is an entry for a smaller page in it; `crowded` counts these entries.

use std::cell::Cell;

use addr::{Kind, Page, PageSize, VirtAddr};

/// The number of shortcuts per table: enough that first-level TLBs have few collisions. A power of
/// two.
const SHORTCUTS: usize = 1024;
/// The number of granules; the smaller one is first.
const GRANULES: usize = 2;
/// The number that stands for no shortcut.
const NONE: u16 = u16::MAX;

/// The shortcuts of a TLB.
#[derive(Clone, Debug)]
pub(super) struct Shortcuts {
    small: PageSize,
    large: Option<PageSize>,
    /// The tables by granule and then by kind. A table is created with its first shortcut.
    tables: [Option<Box<ShortcutTable>>; GRANULES * Kind::COUNT],
    /// For each slot, the first of its shortcuts.
    first: Box<[u16]>,
    /// For each hash of a page of the large granule: the number of entries for smaller pages in it.
    crowded: Box<[u32]>,
}

/// A table of shortcuts, indexed by the hash of their page.
///
/// All tables are aligned to a page of the host. Otherwise the counter of one table can have the
/// same offset in a page as the `base` of another. Processors that compare only the page offsets of
/// an earlier store and a load then make the load wait, and alternating loads and stores of one
/// page take a third longer.
#[derive(Clone, Debug)]
#[repr(C, align(4096))]
pub(super) struct ShortcutTable {
    shortcuts: [Shortcut; SHORTCUTS],
    /// The time of each shortcut's last hit in a span. These times are in a separate array, since
    /// the search for the oldest entry reads many times and no other data.
    used: [Cell<u64>; SHORTCUTS],
    /// The neighbours of each shortcut in the list of its slot's shortcuts.
    chains: [Chain; SHORTCUTS],
}

/// A shortcut to the entry of one page.
#[derive(Clone, Debug)]
#[repr(align(32))]
struct Shortcut {
    /// The address of the page. In an empty shortcut it is a page whose shortcut would have another
    /// index.
    base: u64,
    /// The number to add to a virtual address of the page to get the physical address.
    to_phys: u64,
    hits: Cell<u64>,
    slot: u32,
    label: u32,
}

const _: () = assert!(size_of::<Shortcut>() == 32);

/// The neighbours in a list of shortcuts. The number of a shortcut is its index in its table plus
/// the table's number times [`SHORTCUTS`].
#[derive(Clone, Copy, Debug)]
struct Chain {
    before: u16,
    after: u16,
}

const _: () = assert!(GRANULES * Kind::COUNT * SHORTCUTS < NONE as usize);

/// The slot and translation to which a shortcut leads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) slot: usize,
    pub(super) label: u32,
    pub(super) to_phys: u64,
}

/// The hits of a slot that shortcuts have recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) slot: usize,
    pub(super) hits: [u64; Kind::COUNT],
    /// The time of the last hit in a span, or 0.
    pub(super) last: u64,
}

impl Use {
    fn none(slot: usize) -> Use {
        Use { slot, hits: [0; Kind::COUNT], last: 0 }
    }

    /// Adds the hits recorded by shortcut `index` of table `number`.
    fn add(&mut self, number: usize, table: &ShortcutTable, index: usize) {
        self.hits[number % Kind::COUNT] += table.shortcuts[index].hits.take();
        self.last = self.last.max(table.used[index].get());
    }
}

impl ShortcutTable {
    /// An empty table for pages of `granule`.
    // Never inlined: otherwise each call of the surrounding function would probe a stack frame of
    // 48 KiB.
    #[cold]
    #[inline(never)]
    fn new(granule: PageSize) -> Box<ShortcutTable> {
        let empty = |index| Shortcut {
            base: elsewhere(index, granule),
            to_phys: 0,
            hits: Cell::new(0),
            slot: 0,
            label: 0,
        };
        Box::new(ShortcutTable {
            shortcuts: std::array::from_fn(empty),
            used: [const { Cell::new(0) }; _],
            chains: [Chain { before: NONE, after: NONE }; _],
        })
    }

    /// Records a hit at `time` in a span, found by shortcut `index`.
    #[inline(always)]
    pub(super) fn use_at(&self, index: usize, time: u64) {
        self.used[index].set(time);
    }

    /// Counts a hit in a span, found by shortcut `index`, and returns where the shortcut leads.
    #[inline(always)]
    pub(super) fn hit_at(&self, index: usize) -> Target {
        let shortcut = &self.shortcuts[index];
        shortcut.hits.set(shortcut.hits.get() + 1);
        let &Shortcut { slot, label, to_phys, .. } = shortcut;
        Target { slot: slot as usize, label, to_phys }
    }

    /// The index of the shortcut that leads to the `bytes` bytes at `va`. `page_bits` masks the
    /// address bits that identify a granule, which must contain all of the bytes.
    #[inline(always)]
    pub(super) fn find(&self, va: VirtAddr, bytes: u32, page_bits: u64) -> Option<usize> {
        let index = index(va, page_bits);
        let first = va.get().wrapping_sub(self.shortcuts[index].base);
        let last = first.wrapping_add(u64::from(bytes).wrapping_sub(1));
        ((first | last) & page_bits == 0).then_some(index)
    }
}

impl Shortcuts {
    /// Creates an empty table of shortcuts for pages of `small` and, if given, `large`, in a TLB of
    /// `slots` slots.
    pub(super) fn new(small: PageSize, large: Option<PageSize>, slots: usize) -> Shortcuts {
        let large = large.filter(|large| *large > small);
        Shortcuts {
            small,
            large,
            tables: Default::default(),
            first: vec![NONE; slots].into_boxed_slice(),
            crowded: vec![0; if large.is_some() { SHORTCUTS } else { 0 }].into_boxed_slice(),
        }
    }

    /// The shortcuts of a TLB whose sets are always searched: it never has any.
    pub(super) fn never(granule: PageSize) -> Shortcuts {
        Shortcuts::new(granule, None, 0)
    }

    /// Whether shortcuts can exist.
    #[inline]
    pub(super) fn are_kept(&self) -> bool {
        !self.first.is_empty()
    }

    /// The page sizes for which there are shortcuts.
    #[inline]
    pub(super) fn granules(&self) -> (PageSize, Option<PageSize>) {
        (self.small, self.large)
    }

    /// Whether one shortcut can cover all of `page`, provided that there is no entry for a smaller
    /// page in it.
    #[inline]
    pub(super) fn are_for(&self, page: Page) -> bool {
        let size = page.size();
        size == self.small || Some(size) == self.large && self.is_free(page.start(), size)
    }

    /// The size of granule number `granule`.
    #[inline]
    fn granule(&self, granule: usize) -> Option<PageSize> {
        if granule == 0 { Some(self.small) } else { self.large }
    }

    /// The table of granule number `granule` for accesses of the kind numbered `kind`.
    #[inline]
    pub(super) fn table(&self, granule: usize, kind: usize) -> Option<&ShortcutTable> {
        if kind < Kind::COUNT { self.tables[granule * Kind::COUNT + kind].as_deref() } else { None }
    }

    /// The shortcut for accesses of `kind` at `va`.
    #[inline(always)]
    fn leading_to(&self, va: VirtAddr, kind: Kind) -> Option<&Shortcut> {
        let of = |granule: usize, size: PageSize| {
            let table = self.table(granule, kind as usize)?;
            Some(&table.shortcuts[table.find(va, 1, !size.mask())?])
        };
        of(0, self.small).or_else(|| of(1, self.large?))
    }

    /// Counts a hit of `kind` at `va` if a shortcut leads to it, and returns the slot.
    #[inline(always)]
    pub(super) fn hit(&self, va: VirtAddr, kind: Kind) -> Option<usize> {
        let shortcut = self.leading_to(va, kind)?;
        shortcut.hits.set(shortcut.hits.get() + 1);
        Some(shortcut.slot as usize)
    }

    /// The slot that a shortcut leads to for accesses of `kind` at `va`.
    #[inline(always)]
    pub(super) fn slot_of(&self, va: VirtAddr, kind: Kind) -> Option<usize> {
        self.leading_to(va, kind).map(|shortcut| shortcut.slot as usize)
    }

    /// Makes a shortcut for the granule at `va`, for accesses of `kind`, to `target`; `of` is the
    /// size of the page there. Returns the hits that the replaced shortcut had recorded.
    pub(super) fn link(
        &mut self,
        va: VirtAddr,
        kind: Kind,
        of: PageSize,
        target: Target,
    ) -> Option<Use> {
        let is_large = self.large.is_some_and(|large| of >= large && self.is_free(va, large));
        let granule = usize::from(is_large);
        let size = self.granule(granule)?;
        let number = granule * Kind::COUNT + kind as usize;
        if self.tables[number].is_none() {
            // Both tables are created together, because a span reads both.
            self.tables[kind as usize] = Some(ShortcutTable::new(self.small));
            self.tables[Kind::COUNT + kind as usize] = self.large.map(ShortcutTable::new);
        }
        let index = index(va, !size.mask());
        let displaced = self.unlink(number, index);
        let whole = (number * SHORTCUTS + index) as u16;
        let after = std::mem::replace(&mut self.first[target.slot], whole);
        if let Some(next) = self.chain(after) {
            next.before = whole;
        }
        let table = self.tables[number].as_deref_mut()?;
        table.used[index].set(0);
        table.chains[index] = Chain { before: NONE, after };
        table.shortcuts[index] = Shortcut {
            base: va.align_down(size).get(),
            to_phys: target.to_phys,
            hits: Cell::new(0),
            slot: target.slot as u32,
            label: target.label,
        };
        displaced
    }

    /// Records that an entry for `page`, and perhaps for other pages in the same `bytes` bytes, was inserted
    /// or, if `is_there` is false, removed.
    #[inline]
    pub(super) fn crowd(&mut self, page: Page, bytes: u64, is_there: bool) {
        if let Some(large) = self.large
            && page.size() < large
        {
            for at in 0..(bytes >> large.shift()).max(1) {
                let va = page.start().wrapping_add(at << large.shift());
                let count = &mut self.crowded[index(va, !large.mask())];
                *count = if is_there { *count + 1 } else { *count - 1 };
            }
        }
    }

    /// Whether there is no entry for a smaller page in the page of the `large` granule at `va`.
    fn is_free(&self, va: VirtAddr, large: PageSize) -> bool {
        self.crowded[index(va, !large.mask())] == 0
    }

    /// Removes the shortcuts into `page`, for which there is a new entry, and reports their
    /// recorded hits to `note`. Returns true if the page has so many granules that all shortcuts
    /// must be removed.
    #[must_use]
    pub(super) fn forget_page(&mut self, page: Page, note: &mut impl FnMut(Use)) -> bool {
        const PAGES_MAX: u64 = 16;
        for granule in 0..GRANULES {
            let Some(size) = self.granule(granule) else { break };
            let pages = page.size().count_of(size).max(1);
            if pages > PAGES_MAX {
                return true;
            }
            for va in (0..pages).map(|number| page.start().wrapping_add(number << size.shift())) {
                let (base, index) = (va.align_down(size).get(), index(va, !size.mask()));
                for number in granule * Kind::COUNT..(granule + 1) * Kind::COUNT {
                    let Some(table) = &self.tables[number] else { continue };
                    if table.shortcuts[index].base == base
                        && let Some(gone) = self.unlink(number, index)
                    {
                        note(gone);
                    }
                }
            }
        }
        false
    }

    /// Whether a shortcut leads to `slot`.
    #[inline]
    pub(super) fn lead_to(&self, slot: usize) -> bool {
        self.first[slot] != NONE
    }

    /// Removes the shortcuts of `slot` and returns their recorded hits.
    #[inline]
    pub(super) fn forget(&mut self, slot: usize) -> Use {
        let (small, large) = (self.small, self.large);
        let mut known = Use::none(slot);
        let Some(first) = self.first.get_mut(slot) else { return known };
        let mut next = usize::from(std::mem::replace(first, NONE));
        while let Some(Some(table)) = self.tables.get_mut(next / SHORTCUTS) {
            let (number, index) = (next / SHORTCUTS, next % SHORTCUTS);
            known.add(number, table, index);
            let granule = if number < Kind::COUNT { Some(small) } else { large };
            table.shortcuts[index].base = elsewhere(index, granule.unwrap_or(small));
            next = usize::from(table.chains[index].after);
        }
        known
    }

    /// Returns the hits recorded by the shortcuts of `slot`, and resets them.
    pub(super) fn take(&mut self, slot: usize) -> Use {
        let mut known = Use::none(slot);
        self.of(slot).for_each(|(number, table, index)| known.add(number, table, index));
        known
    }

    /// The time of the last hit in a span by a shortcut of `slot`, or 0.
    #[inline]
    pub(super) fn last_used(&self, slot: usize) -> u64 {
        self.of(slot).map(|(_, table, index)| table.used[index].get()).max().unwrap_or(0)
    }

    /// The shortcuts of `slot`: for each, the number of its table, the table, and its index there.
    #[inline]
    fn of(&self, slot: usize) -> impl Iterator<Item = (usize, &ShortcutTable, usize)> {
        let mut next = usize::from(self.first.get(slot).copied().unwrap_or(NONE));
        std::iter::from_fn(move || {
            let (number, index) = (next / SHORTCUTS, next % SHORTCUTS);
            let table = self.tables.get(number)?.as_deref()?;
            next = usize::from(table.chains[index].after);
            Some((number, table, index))
        })
    }

    /// The hits recorded by all shortcuts.
    pub(super) fn hits(&self) -> [u64; Kind::COUNT] {
        let mut hits = [0; Kind::COUNT];
        for (number, table) in self.tables.iter().enumerate() {
            let shortcuts = table.iter().flat_map(|table| &table.shortcuts);
            hits[number % Kind::COUNT] += shortcuts.map(|one| one.hits.get()).sum::<u64>();
        }
        hits
    }

    fn chain(&mut self, whole: u16) -> Option<&mut Chain> {
        let table = self.tables.get_mut(usize::from(whole) / SHORTCUTS)?.as_deref_mut()?;
        Some(&mut table.chains[usize::from(whole) % SHORTCUTS])
    }

    /// Removes one shortcut; returns its recorded hits, if it led to a slot.
    fn unlink(&mut self, number: usize, index: usize) -> Option<Use> {
        let elsewhere = elsewhere(index, self.granule(number / Kind::COUNT)?);
        let table = self.tables[number].as_deref_mut()?;
        let shortcut = &mut table.shortcuts[index];
        if shortcut.base == elsewhere {
            return None;
        }
        shortcut.base = elsewhere;
        let mut known = Use::none(shortcut.slot as usize);
        known.add(number, table, index);
        let Chain { before, after } = table.chains[index];
        match self.chain(before) {
            Some(before) => before.after = after,
            None => self.first[known.slot] = after,
        }
        if let Some(after) = self.chain(after) {
            after.before = before;
        }
        Some(known)
    }
}

/// The index of the shortcut for the granule at `va`.
#[inline(always)]
fn index(va: VirtAddr, page_bits: u64) -> usize {
    const SHIFT: u32 = u64::BITS - SHORTCUTS.trailing_zeros();
    // The upper bits of the product depend on all bits of the page's address, so that pages a
    // power of two apart do not share a shortcut.
    ((va.get() & page_bits).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> SHIFT) as usize
}

/// The address of a page whose shortcut does not have this index: the page at address 0, whose
/// shortcut has index 0, or the page after it.
#[inline]
fn elsewhere(index: usize, granule: PageSize) -> u64 {
    if index == 0 { granule.bytes() } else { 0 }
}
