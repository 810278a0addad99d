//! One base page: what most operations of a kernel are about.
//!
//! ```text
//!   root [ . ] -> [ . ] -> [ . ] -> [entry]      down once, with the places kept
//!     at[4]        at[3]     at[2]    at[1]
//!                              ^-- then up, as far as populations change
//! ```
//!
//! Where the way does not lead to the entry (a table is missing, a superpage is there) the
//! algorithms over ranges take over: they know all the cases.

use addr::{Memory, PhysAddr, VirtAddr, VirtRange};

use super::Radix;
use crate::{Entry, Flush, Format, Mapping, Space, Translation};

const LEVELS_MAX: usize = 8;

/// The way to the entry of a base page.
struct Way {
    /// Where the entries are, by level - 1.
    at: [PhysAddr; LEVELS_MAX],
    /// The table that the last of them is in.
    table: PhysAddr,
    /// The last of them.
    entry: u64,
}

impl<F: Format> Radix<F> {
    /// Descends to the entry for `addr` in a table of level 1, if there is one.
    ///
    /// Each step is written for its level, so that what the level means is a constant there.
    #[inline(always)]
    fn down(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Way> {
        let mut way = Way { at: [PhysAddr::new(0); LEVELS_MAX], table: space.root(), entry: 0 };
        let found = self.step::<8>(addr, memory, &mut way)
            && self.step::<7>(addr, memory, &mut way)
            && self.step::<6>(addr, memory, &mut way)
            && self.step::<5>(addr, memory, &mut way)
            && self.step::<4>(addr, memory, &mut way)
            && self.step::<3>(addr, memory, &mut way)
            && self.step::<2>(addr, memory, &mut way);
        way.at[0] = self.entry_at(1, way.table, addr);
        way.entry = if found { self.format.read(1, way.at[0], memory) } else { 0 };
        found.then_some(way)
    }

    /// The step through the table of a level, if there is such a level.
    #[inline(always)]
    fn step<const LEVEL: u8>(&self, addr: VirtAddr, memory: &impl Memory, way: &mut Way) -> bool {
        if LEVEL > F::LEVELS_MAX || LEVEL > self.format.levels() {
            return true;
        }
        let at = self.entry_at(LEVEL, way.table, addr);
        let entry = self.format.read(LEVEL, at, memory);
        way.at[LEVEL as usize - 1] = at;
        match self.format.decode(entry, LEVEL) {
            Entry::Table(next) => {
                way.table = next;
                true
            }
            _ => false,
        }
    }

    /// Maps a base page that fits, where its table is and nothing is mapped; whether that was the
    /// case.
    #[inline]
    pub(super) fn map_single(
        &mut self,
        space: Space,
        page: Translation,
        memory: &mut impl Memory,
    ) -> bool {
        let (addr, base) = (page.page.start(), self.format.page_size(1));
        let fits = page.page.size() == base
            && page.frame.is_aligned(base)
            && self.format.holds(addr)
            && self.format.holds_frame(page.frame, base.bytes())
            && self.format.check_rights(page.rights).is_ok();
        if !fits {
            return false;
        }
        let Some(way) = self.down(space, addr, memory) else { return false };
        if self.format.decode(way.entry, 1) != Entry::Empty {
            return false;
        }
        let entry = self.format.page(1, page.frame, page.rights, page.global);
        self.format.write(1, way.at[0], entry, memory);
        if self.format.levels() > 1 {
            let above = self.format.read(2, way.at[1], memory);
            self.update(2, way.at[1], above, memory, |entry| {
                self.format.with_population(entry, self.format.population(entry) + 1)
            });
        }
        if page.global {
            self.spaces.set_global(space);
        }
        true
    }

    /// [`Radix::edit`] where the range is one base page whose table is there; whether it is.
    #[inline(always)]
    pub(super) fn edit_single(
        &mut self,
        space: Space,
        range: VirtRange,
        memory: &mut impl Memory,
        change: &impl Fn(&F, u64) -> Option<u64>,
        report: &mut impl FnMut(&mut Flush, Mapping),
        flush: &mut Flush,
    ) -> bool {
        let (addr, base) = (range.start(), self.format.page_size(1));
        if range.bytes() != base.bytes() || !addr.is_aligned(base) || !self.format.holds(addr) {
            return false;
        }
        if self.spaces.check(space).is_err() {
            return false;
        }
        let Some(mut way) = self.down(space, addr, memory) else { return false };
        if self.format.decode(way.entry, 1) != Entry::Page {
            return true;
        }
        while let Some(new) = change(&self.format, way.entry) {
            match self.format.exchange(1, way.at[0], way.entry, new, memory) {
                Ok(()) => {
                    report(flush, self.mapping(way.entry, 1, addr));
                    if new == 0 && self.format.levels() > 1 {
                        let above = self.format.read(2, way.at[1], memory);
                        if self.shrink(2, way.at[1], above, 1, memory) {
                            self.unlink(way, memory, flush);
                        }
                    }
                    break;
                }
                // A walker has set a bit since the entry was read.
                Err(found) => way.entry = found,
            }
        }
        true
    }

    /// Lets the table on `way` go whose last entry went, and those above it that become empty.
    #[cold]
    #[inline(never)]
    fn unlink(&mut self, way: Way, memory: &mut impl Memory, flush: &mut Flush) {
        let mut empty = way.table;
        for level in 1..self.format.levels() {
            self.spaces.remove(flush.space(), self.table_footprint(level));
            flush.add_table(empty, self.frame_size(level));
            // The entry that led to it, at the next level, is gone; is that its table's last?
            let (Some(&at), Some(&above)) =
                (way.at.get(usize::from(level)), way.at.get(usize::from(level) + 1))
            else {
                return;
            };
            if level + 1 == self.format.levels() {
                return;
            }
            empty = PhysAddr::new(at.get() & !(self.format.table_size(level + 1).mask()));
            let entry = self.format.read(level + 2, above, memory);
            if !self.shrink(level + 2, above, entry, 1, memory) {
                return;
            }
        }
    }
}
