//! Operations on one base page: the most frequent operations of a kernel.
//!
//! ```text
//!   root [ . ] -> ... -> [ level 2 ] -> [ level 1 ]
//!                            |             ^-- the page's entry is written
//!                            ^-- the population of its table changes, and nothing else
//! ```
//!
//! The level-2 table of the last operation is remembered, since the next page is usually near: on
//! x86-64, a level-2 table covers 1 GiB. A `forgetful` table descends from the root each time. A
//! level-1 table that becomes empty is removed, if the level-2 table does not become empty as well.
//! All other cases (a table is missing, a superpage is mapped at the address, the request is wrong)
//! are left to the algorithms over ranges, which handle every case.

use addr::{Memory, Page, PhysAddr, Rights, VirtAddr, VirtRange};

use super::{
    Radix,
    change::{Change, Protect},
};
use crate::{Entry, Error, Flush, Format, Mapping, Space, Translation};

/// The level-2 table that the last operation on a single page used, and its space, which exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    space: Space,
    /// The addresses that the table maps: an address without the bits that index this table and
    /// lower tables.
    region: u64,
    table: PhysAddr,
    /// The address of the level-3 entry that leads to the table, if the table is not the root.
    above: Option<PhysAddr>,
}

/// A level-1 table, with the address and the value of the entry that leads to it.
#[derive(Clone, Copy)]
struct Leaf {
    above: PhysAddr,
    entry: u64,
    table: PhysAddr,
}

/// The translation that hardware may still hold after a change of a single page: the old
/// translation of that page, or none.
///
/// This type is smaller than a token, so that the caller's loop keeps it in registers.
pub(super) struct Stale(Option<(Page, bool)>);

impl Stale {
    const NOTHING: Stale = Stale(None);

    #[inline(always)]
    pub(super) fn flush(self, space: Space) -> Flush {
        match self.0 {
            Some((page, global)) => Flush::of_page(space, page, global),
            None => Flush::nothing(space),
        }
    }
}

impl Recent {
    /// A value that no address matches.
    pub(super) const NONE: Recent = Recent {
        space: Space::new(0, PhysAddr::new(0)),
        region: u64::MAX,
        table: PhysAddr::new(0),
        above: None,
    };
}

impl<F: Format> Radix<F> {
    /// The level-1 table for `addr`, if it exists. With `RECOUNT`, the caller is going to change
    /// its population.
    #[inline(always)]
    fn leaf<const RECOUNT: bool>(
        &mut self,
        space: Space,
        addr: VirtAddr,
        memory: &impl Memory,
    ) -> Option<Leaf> {
        if self.format.levels() < 2 {
            return None;
        }
        let region = addr.get() >> self.region_shift();
        let is_recent = self.recent.region == region && self.recent.space == space;
        if !is_recent && !self.descend_to_recent(space, addr, region, memory) {
            return None;
        }
        let above = self.entry_at(2, self.recent.table, addr);
        let entry = if RECOUNT {
            self.format.read_counted(2, above, memory)
        } else {
            self.format.read(2, above, memory)
        };
        let table = self.format.next_table(entry, 2)?;
        Some(Leaf { above, entry, table })
    }

    /// log2 of the bytes of a region: the memory that a level-2 table covers or, if that table is
    /// the root, half of it, since addresses are sign-extended.
    #[inline(always)]
    fn region_shift(&self) -> u32 {
        if self.format.levels() > 2 {
            return self.format.entry_shift(3);
        }
        let entry_shift = self.format.entry_bytes(2).trailing_zeros();
        self.format.entry_shift(2) + self.format.table_size(2).shift() - entry_shift - 1
    }

    /// Descends to the level-2 table for `addr` and keeps it as the recent one. Returns whether
    /// this table exists. The function is not inlined, so that operations on pages near the last
    /// one keep their registers.
    #[inline(never)]
    fn descend_to_recent(
        &mut self,
        space: Space,
        addr: VirtAddr,
        region: u64,
        memory: &impl Memory,
    ) -> bool {
        let first = VirtAddr::new(region << self.region_shift());
        let Ok(range) = VirtRange::new(first, 1 << self.region_shift()) else { return false };
        let is_held = self.format.spans().iter().any(|span| span.covers(range));
        if !is_held || self.spaces.check(space).is_err() {
            return false;
        }
        let mut table = space.root();
        let mut above = None;
        let found = self.step::<8>(addr, memory, &mut table)
            && self.step::<7>(addr, memory, &mut table)
            && self.step::<6>(addr, memory, &mut table)
            && self.step::<5>(addr, memory, &mut table)
            && self.step::<4>(addr, memory, &mut table)
            && {
                above = (self.format.levels() > 2).then(|| self.entry_at(3, table, addr));
                self.step::<3>(addr, memory, &mut table)
            };
        if found {
            // If tables are not remembered, the region is one that no address matches.
            let region = if self.remembers { region } else { Recent::NONE.region };
            self.recent = Recent { space, region, table, above };
        }
        found
    }

    /// The step of a descent through the table of one level, if the tree has that level. Returns
    /// whether there is a table below.
    ///
    /// The step of each level is compiled separately, so that the level is a constant there.
    #[inline(always)]
    fn step<const LEVEL: u8>(
        &self,
        addr: VirtAddr,
        memory: &impl Memory,
        table: &mut PhysAddr,
    ) -> bool {
        if LEVEL > F::LEVELS_MAX || LEVEL > self.format.levels() {
            return true;
        }
        let entry = self.format.read(LEVEL, self.entry_at(LEVEL, *table, addr), memory);
        let Some(next) = self.format.next_table(entry, LEVEL) else { return false };
        *table = next;
        true
    }

    /// The updated entry that leads to the table of `leaf` when the page entry at `at` is removed;
    /// `None` if the table is then empty.
    #[inline(always)]
    fn without(&self, leaf: Leaf, at: PhysAddr, memory: &impl Memory) -> Option<u64> {
        self.less_one(1, leaf.table, at, leaf.entry, memory)
    }

    /// Maps a base page that the format supports, if its level-1 table exists and nothing is mapped
    /// at its address. Returns whether the page was mapped.
    #[inline(always)]
    pub(super) fn map_single(
        &mut self,
        space: Space,
        page: Translation,
        note: u32,
        memory: &mut impl Memory,
    ) -> bool {
        let (addr, base) = (page.page.start(), self.format.page_size(1));
        let fits = page.page.size() == base
            && page.frame.is_aligned(base)
            && self.format.holds_frame(page.frame, base.bytes())
            && self.format.check_rights(page.rights).is_ok()
            && self.format.check_attributes(page.attributes).is_ok();
        if !fits || page.global {
            return false;
        }
        let Some(leaf) = self.leaf::<true>(space, addr, memory) else { return false };
        let at = self.entry_at(1, leaf.table, addr);
        if self.format.decode(self.format.read(1, at, memory), 1) != Entry::Empty {
            return false;
        }
        let entry = self.format.page(1, &page, page.frame);
        let Some(above) = self.recounted(leaf.entry, 1) else { return false };
        self.write_note(1, at, note, memory);
        self.format.write(1, at, entry, memory);
        self.write_population(2, leaf.above, above, memory);
        true
    }

    /// The implementation of [`Radix::edit`] for a range of one base page whose table exists and
    /// remains; `None` in all other cases.
    #[inline(always)]
    pub(super) fn edit_single<C: Change<F>>(
        &mut self,
        space: Space,
        range: VirtRange,
        change: C,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Option<Stale> {
        let (addr, base) = (range.start(), self.format.page_size(1));
        if range != VirtRange::of_page(addr.page(base)) {
            return None;
        }
        let leaf = if C::REMOVES {
            self.leaf::<true>(space, addr, memory)
        } else {
            self.leaf::<false>(space, addr, memory)
        }?;
        let at = self.entry_at(1, leaf.table, addr);
        if C::REMOVES && !F::REPLICATES {
            // If the page is the last one of its table, the table must be removed too, which is
            // done elsewhere.
            let above = self.without(leaf, at, memory)?;
            // An entry of level 1 either maps a page or is empty. The exchange itself shows which:
            // a separate read before it would only delay it.
            let entry = self.format.swap(1, at, 0, memory);
            if self.format.decode(entry, 1) != Entry::Page {
                return Some(Stale::NOTHING);
            }
            self.write_population(2, leaf.above, above, memory);
            let before = self.noted(self.mapping(entry, 1, addr), 1, at, memory);
            each(before);
            return Some(Stale(Some((before.translation.page, before.translation.global))));
        }
        let entry = self.format.read(1, at, memory);
        if self.format.decode(entry, 1) != Entry::Page {
            return Some(Stale::NOTHING);
        }
        if F::REPLICATES && self.is_copy(entry, addr) {
            return None;
        }
        if C::REMOVES {
            // If the page is the last one of its table, the table must be removed too, which is
            // done elsewhere.
            let above = self.without(leaf, at, memory)?;
            self.write_population(2, leaf.above, above, memory);
        }
        let Some(usage) = change.apply(&self.format, 1, at, entry, memory) else {
            return Some(Stale::NOTHING);
        };
        let before = self.mapping_used(entry, 1, addr, usage);
        // Notes need not be read here: pages are unmapped here only in formats that replicate
        // pages, and these formats have no notes.
        each(before);
        let Translation { page, global, .. } = before.translation;
        if !change.must_flush(&self.format, 1, entry) {
            return Some(Stale::NOTHING);
        }
        Some(Stale(Some((page, global))))
    }

    /// The implementation of [`crate::PageTable::protect_page`] for a base page whose table exists;
    /// `None` in all other cases.
    pub(super) fn protect_single(
        &mut self,
        space: Space,
        page: Page,
        rights: &mut impl FnMut(&Mapping) -> Option<Rights>,
        memory: &mut impl Memory,
    ) -> Option<Result<Stale, Error>> {
        if F::REPLICATES || page.size() != self.format.page_size(1) {
            return None;
        }
        let leaf = self.leaf::<false>(space, page.start(), memory)?;
        let at = self.entry_at(1, leaf.table, page.start());
        let entry = self.format.read(1, at, memory);
        if self.format.decode(entry, 1) != Entry::Page {
            return Some(Ok(Stale::NOTHING));
        }
        let before = self.mapping(entry, 1, page.start());
        let Some(rights) = rights(&before) else { return Some(Ok(Stale::NOTHING)) };
        if let Err(unfit) = self.format.check_rights(rights) {
            return Some(Err(unfit.into()));
        }
        let change = Protect(rights);
        let has_changed = change.apply(&self.format, 1, at, entry, memory).is_some();
        Some(Ok(if has_changed && change.must_flush(&self.format, 1, entry) {
            Stale(Some((page, before.translation.global)))
        } else {
            Stale::NOTHING
        }))
    }

    /// Unmaps a base page that is the last one in its level-1 table and removes that table, if the
    /// level-2 table has another entry. Returns what to flush and the removed table; `None` in all
    /// other cases.
    pub(super) fn unmap_last(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Option<(Stale, PhysAddr)> {
        let (addr, base) = (range.start(), self.format.page_size(1));
        if range != VirtRange::of_page(addr.page(base)) {
            return None;
        }
        let leaf = self.leaf::<true>(space, addr, memory)?;
        let at = self.entry_at(1, leaf.table, addr);
        let entry = self.format.read(1, at, memory);
        let is_page = self.format.decode(entry, 1) == Entry::Page;
        if !is_page || self.without(leaf, at, memory).is_some() {
            return None;
        }
        if let Some(at) = self.recent.above {
            let above = self.format.read(3, at, memory);
            let above = self.less_one(2, self.recent.table, leaf.above, above, memory)?;
            self.write_population(3, at, above, memory);
        }
        let usage = self.format.swap(1, at, 0, memory);
        self.format.swap(2, leaf.above, 0, memory);
        let before = self.noted(self.mapping_used(entry, 1, addr, usage), 1, at, memory);
        each(before);
        self.gives_back_alone(space, self.table_footprint(1));
        let stale = Stale(Some((before.translation.page, before.translation.global)));
        Some((stale, leaf.table))
    }
}
