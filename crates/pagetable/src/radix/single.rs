//! One base page: what most operations of a kernel are about.
//!
//! ```text
//!   root [ . ] -> ... -> [ above ] -> [ entry ]
//!                            |            ^-- is written
//!                            ^-- its population changes, and nothing else
//! ```
//!
//! The table of level 1 that was used last is remembered, for the next page is most often a
//! neighbour; `forgetful` tables descend each time. Where there is more to do than to write an entry (a table is missing or becomes
//! empty, a superpage is there, the request is wrong) the algorithms over ranges take over: they
//! know all the cases.

use addr::{Memory, PhysAddr, VirtAddr, VirtRange};

use super::{Radix, change::Change};
use crate::{Entry, Flush, Format, Mapping, Space, Translation};

/// A table of level 1 of a space that exists, and the entry that leads to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    space: Space,
    /// The addresses that the table is for, without the bits that choose in it.
    region: u64,
    table: PhysAddr,
    above: PhysAddr,
}

impl Leaf {
    /// No address is in it.
    pub(super) const NONE: Leaf = Leaf {
        space: Space::new(0, PhysAddr::new(0)),
        region: u64::MAX,
        table: PhysAddr::new(0),
        above: PhysAddr::new(0),
    };
}

impl<F: Format> Radix<F> {
    /// The table of level 1 for `addr`, if it is there.
    #[inline(always)]
    fn leaf(&mut self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Leaf> {
        if self.format.levels() < 2 {
            return None;
        }
        let region = addr.get() >> self.format.entry_shift(2);
        let is_recent = self.recent.region == region && self.recent.space == space;
        (is_recent || self.find_leaf(space, addr, region, memory)).then_some(self.recent)
    }

    /// Descends to the table of level 1 for `addr` and remembers it; whether it is there. A call,
    /// so that pages beside the one before keep their registers.
    #[inline(never)]
    fn find_leaf(
        &mut self,
        space: Space,
        addr: VirtAddr,
        region: u64,
        memory: &impl Memory,
    ) -> bool {
        if !self.format.holds(addr) || self.spaces.check(space).is_err() {
            return false;
        }
        let mut leaf = Leaf { space, region, table: space.root(), above: space.root() };
        let found = self.step::<8>(addr, memory, &mut leaf)
            && self.step::<7>(addr, memory, &mut leaf)
            && self.step::<6>(addr, memory, &mut leaf)
            && self.step::<5>(addr, memory, &mut leaf)
            && self.step::<4>(addr, memory, &mut leaf)
            && self.step::<3>(addr, memory, &mut leaf)
            && self.step::<2>(addr, memory, &mut leaf);
        if found {
            // No address is in the region of a table that is not to be found again.
            let region = if self.remembers { region } else { Leaf::NONE.region };
            self.recent = Leaf { region, ..leaf };
        }
        found
    }

    /// The step through the table of a level, if there is such a level; whether it leads to a
    /// table.
    ///
    /// Each step is written for its level, so that what the level means is a constant there.
    #[inline(always)]
    fn step<const LEVEL: u8>(&self, addr: VirtAddr, memory: &impl Memory, leaf: &mut Leaf) -> bool {
        if LEVEL > F::LEVELS_MAX || LEVEL > self.format.levels() {
            return true;
        }
        leaf.above = self.entry_at(LEVEL, leaf.table, addr);
        let entry = self.format.read(LEVEL, leaf.above, memory);
        let Some(table) = self.format.next_table(entry, LEVEL) else { return false };
        leaf.table = table;
        true
    }

    /// Maps a base page that fits, where its table is and nothing is mapped; whether that was the
    /// case.
    #[inline(always)]
    pub(super) fn map_single(
        &mut self,
        space: Space,
        page: Translation,
        memory: &mut impl Memory,
    ) -> bool {
        let (addr, base) = (page.page.start(), self.format.page_size(1));
        let fits = page.page.size() == base
            && page.frame.is_aligned(base)
            && self.format.holds_frame(page.frame, base.bytes())
            && self.format.check_rights(page.rights).is_ok();
        if !fits || page.global {
            return false;
        }
        let Some(leaf) = self.leaf(space, addr, memory) else { return false };
        let at = self.entry_at(1, leaf.table, addr);
        if self.format.decode(self.format.read(1, at, memory), 1) != Entry::Empty {
            return false;
        }
        let entry = self.format.page(1, page.frame, page.rights, page.global);
        self.format.write(1, at, entry, memory);
        self.recount(leaf, 1, memory);
        true
    }

    /// [`Radix::edit`] where the range is one base page whose table is there and stays; `None`
    /// where that is not so.
    #[inline(always)]
    pub(super) fn edit_single<C: Change<F>>(
        &mut self,
        space: Space,
        range: VirtRange,
        change: C,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Mapping),
    ) -> Option<Flush> {
        let addr = range.start();
        if range != VirtRange::of_page(addr.page(self.format.page_size(1))) {
            return None;
        }
        let leaf = self.leaf(space, addr, memory)?;
        let at = self.entry_at(1, leaf.table, addr);
        let entry = self.format.read(1, at, memory);
        if self.format.decode(entry, 1) != Entry::Page {
            return Some(Flush::nothing(space));
        }
        if C::REMOVES && self.format.population(self.format.read(2, leaf.above, memory)) == 1 {
            return None;
        }
        let Some(entry) = self.edit_page(1, at, entry, change, memory) else {
            return Some(Flush::nothing(space));
        };
        if C::REMOVES {
            self.recount(leaf, -1, memory);
        }
        let before = self.mapping(entry, 1, addr);
        each(before);
        let Translation { page, global, .. } = before.translation;
        let must_flush = change.must_flush(&before.translation);
        Some(Flush::of_page(space, page, global, must_flush))
    }

    /// Adds to the population of a table that keeps at least one entry.
    #[inline(always)]
    fn recount(&self, leaf: Leaf, by: i64, memory: &mut impl Memory) {
        let above = self.format.read(2, leaf.above, memory);
        self.update(2, leaf.above, above, memory, |above| self.format.recount(above, by));
    }
}
