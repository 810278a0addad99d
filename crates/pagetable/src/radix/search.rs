use addr::{Kind, Memory, PhysAddr, Rights, VirtAddr, VirtRange};

use super::{Part, Radix, seldom};
use crate::{Entry, Fault, Format, Leads, Mapping, Node, Reference, Space, Translation, Usage};

/// The entry of a page.
pub(super) struct Found {
    pub(super) level: u8,
    pub(super) table: PhysAddr,
    pub(super) at: PhysAddr,
    pub(super) entry: u64,
}

/// The state of a walk.
struct Walk {
    start: Node,
    table: PhysAddr,
    /// The rights that the entries on the path allow, as encoded by [`Format::pass`].
    passed: u64,
    addr: VirtAddr,
    kind: Kind,
}

impl<F: Format> Radix<F> {
    /// Walks like hardware, from a table whose addresses include `addr`.
    #[inline]
    pub(super) fn descend(
        &self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        if self.format.walk_sets_usage() {
            self.through::<true>(start, addr, kind, memory, each)
        } else {
            self.through::<false>(start, addr, kind, memory, each)
        }
    }

    /// Walks through all levels, with or without setting usage bits (`USAGE`).
    ///
    /// The step of each level is compiled separately, so that the level is a constant in its code.
    #[inline(always)]
    fn through<const USAGE: bool>(
        &self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        let mut walk = Walk { start, table: start.table, passed: u64::MAX, addr, kind };
        macro_rules! through {
            ($($level:literal)*) => {$(
                if let Some(end) = self.pass::<$level, USAGE>(&mut walk, memory, each) {
                    return end;
                }
            )*};
        }
        through!(8 7 6 5 4 3 2 1);
        Err(Fault::NotMapped { level: 1 })
    }

    /// Reads the entry in the table of one level, unless the walk starts at a lower level. Returns
    /// the result of the walk if it ends here.
    #[inline(always)]
    fn pass<const LEVEL: u8, const USAGE: bool>(
        &self,
        walk: &mut Walk,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Option<Result<Translation, Fault>> {
        if LEVEL > F::LEVELS_MAX || LEVEL > walk.start.level {
            return None;
        }
        let Walk { start, table, addr, .. } = *walk;
        let at = self.entry_at(LEVEL, table, addr);
        let entry = self.format.read(LEVEL, at, memory);
        let bytes = self.format.entry_bytes(LEVEL);
        let read = Reference { addr: at, bytes, write: false, level: LEVEL, leads: Leads::Nowhere };
        let next = if LEVEL > 1 { self.format.next_table(entry, LEVEL) } else { None };
        let Some(next) = next else {
            if LEVEL > 1 {
                // Most walks end at a base page.
                seldom();
            }
            each(read);
            return Some(self.arrive::<LEVEL, USAGE>(walk, at, entry, memory, each));
        };
        walk.passed = self.format.pass(walk.passed, entry);
        walk.table = next;
        let shift = self.format.entry_shift(LEVEL) as u8;
        let rights = both(start.rights, self.format.passed_rights(walk.passed));
        let node = Node { table: next, level: LEVEL - 1, shift, rights };
        each(Reference { leads: Leads::To(node), ..read });
        let table_bits = if USAGE { self.format.table_usage_bit() } else { 0 };
        if table_bits & !entry != 0 {
            self.mark(LEVEL, at, entry, table_bits, memory, each);
        }
        None
    }

    /// The end of a walk, at an entry that does not lead to a table.
    #[inline(always)]
    fn arrive<const LEVEL: u8, const USAGE: bool>(
        &self,
        walk: &Walk,
        at: PhysAddr,
        entry: u64,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        if !self.format.present(entry) {
            return Err(not_mapped(LEVEL));
        }
        let Walk { start, addr, kind, .. } = *walk;
        let above = both(start.rights, self.format.passed_rights(walk.passed));
        let mut translation = self.format.translation(entry, LEVEL, addr);
        translation.rights = both(translation.rights, above);
        if !self.format.permits(entry, translation.rights, kind) {
            return Err(Fault::Denied { translation });
        }
        let usage = Usage { referenced: true, dirty: kind == Kind::Store, marked: false };
        let used = if USAGE { self.format.used(entry, usage) } else { entry };
        if used != entry && !self.use_page(LEVEL, at, (entry, used), memory, each) {
            return self.descend_again(walk, memory, each);
        }
        Ok(translation)
    }

    /// Sets bits of a page's entry that was just read, as one more reference. Returns whether the entry had
    /// not changed since the read. This is rare: it happens once per entry until the OS clears the
    /// bits.
    #[cold]
    #[inline(never)]
    fn use_page(
        &self,
        level: u8,
        at: PhysAddr,
        (entry, used): (u64, u64),
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> bool {
        let is_used = self.format.exchange(level, at, entry, used, memory).is_ok();
        if is_used {
            let bytes = self.format.entry_bytes(level);
            each(Reference { addr: at, bytes, write: true, level, leads: Leads::Nowhere });
        }
        is_used
    }

    /// Repeats a walk whose last entry changed between the read and the update of its bits.
    /// Hardware reads and updates an entry in one step, so it would have seen the change. By now
    /// the page may be unmapped, split, or marked as used.
    #[cold]
    #[inline(never)]
    fn descend_again(
        &self,
        walk: &Walk,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        self.descend(walk.start, walk.addr, walk.kind, memory, each)
    }

    /// Sets `bits` of an entry that leads to a table and was just read, as one more reference.
    #[cold]
    #[inline(never)]
    fn mark(
        &self,
        level: u8,
        at: PhysAddr,
        entry: u64,
        bits: u64,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) {
        self.set_bits(level, at, entry, bits, memory);
        let bytes = self.format.entry_bytes(level);
        each(Reference { addr: at, bytes, write: true, level, leads: Leads::Nowhere });
    }

    /// Sets `bits` of the entry at `at`, which was read as `entry`, unless the entry has been
    /// removed since.
    fn set_bits(
        &self,
        level: u8,
        at: PhysAddr,
        mut entry: u64,
        bits: u64,
        memory: &mut impl Memory,
    ) {
        while self.format.decode(entry, level) != Entry::Empty {
            match self.format.exchange(level, at, entry, entry | bits, memory) {
                Ok(()) => return,
                Err(found) => entry = found,
            }
        }
    }

    /// Sets usage bits of the page whose entry at `at` was read as `entry`, unless the page has been
    /// unmapped since.
    pub(super) fn set_usage_of(
        &self,
        level: u8,
        at: PhysAddr,
        mut entry: u64,
        usage: Usage,
        memory: &mut impl Memory,
    ) {
        while self.format.decode(entry, level) == Entry::Page {
            let used = self.format.used(entry, usage);
            if used == entry {
                return;
            }
            match self.format.exchange(level, at, entry, used, memory) {
                Ok(()) => return,
                Err(found) => entry = found,
            }
        }
    }

    /// The entry of the page that holds `addr`, whether or not hardware sees it as present.
    pub(super) fn find(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Found> {
        if !self.format.holds(addr) {
            return None;
        }
        let mut table = space.root();
        let mut level = self.format.levels();
        loop {
            let at = self.entry_at(level, table, addr);
            let entry = self.format.read(level, at, memory);
            match self.format.decode(entry, level) {
                Entry::Empty => return None,
                Entry::Page => return Some(Found { level, table, at, entry }),
                Entry::Table(next) => table = next,
            }
            level -= 1;
        }
    }

    /// Calls `each` for every page below `table` that overlaps `part`.
    pub(super) fn visit_table(
        &self,
        level: u8,
        table: PhysAddr,
        part: Part,
        memory: &impl Memory,
        each: &mut impl FnMut(Mapping),
    ) {
        self.visit_while(level, table, part, memory, &mut |mapping| {
            each(mapping);
            true
        });
    }

    /// Calls `each` for every page below `table` that overlaps `part`, until `each` returns false.
    /// Returns true if `each` never returned false.
    pub(super) fn visit_while(
        &self,
        level: u8,
        table: PhysAddr,
        part: Part,
        memory: &impl Memory,
        each: &mut impl FnMut(Mapping) -> bool,
    ) -> bool {
        let mut start = part.start;
        loop {
            let mut slot = self.part(level, start, part.last);
            let at = self.entry_at(level, table, start);
            let entry = self.format.read(level, at, memory);
            let go_on = match self.format.decode(entry, level) {
                Entry::Empty => true,
                Entry::Page => {
                    let mapping = self.whole_mapping(entry, level, table, start, memory);
                    if F::REPLICATES {
                        let page = VirtRange::of_page(mapping.translation.page);
                        slot.last = page.last().min(part.last);
                    }
                    each(self.noted(mapping, level, at, memory))
                }
                Entry::Table(next) => self.visit_while(level - 1, next, slot, memory, each),
            };
            if !go_on {
                return false;
            }
            if slot.last == part.last {
                return true;
            }
            start = slot.last.wrapping_add(1);
        }
    }
}

/// A fault of a walk. It is a function that is not inlined, so that a walk that finds a page does
/// not compute the fault.
#[cold]
#[inline(never)]
fn not_mapped(level: u8) -> Fault {
    Fault::NotMapped { level }
}

/// The rights that both `a` and `b` contain.
#[inline]
fn both(a: Rights, b: Rights) -> Rights {
    Rights::from_bits(a.bits() & b.bits())
}
