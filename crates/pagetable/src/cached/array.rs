//! The array of entries: lookup, insertion and eviction of a page.

use addr::{Kind, Memory, Page, PhysAddr, VirtAddr, VirtRange};

use super::shape::{ENTRY_BYTES, Layout, pte_at, ptes_of};
use super::{Cached, Changed, Hit, Key};
use crate::pte::{Pte, Width};
use crate::{Leads, Mapping, PageTable, Reference, Space, Translation, Usage};

/// The level of references to the cache, which is below the levels of any table.
const LEVEL: u8 = 0;
const INVALID: u64 = 0;

impl<T: PageTable> Cached<T> {
    /// Looks for `key` in its one or two buckets.
    #[inline]
    pub(super) fn probe(
        &self,
        key: Key,
        memory: &impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Option<Hit> {
        let Key { base, addr, id, .. } = key;
        let width = self.width();
        for bucket in self.layout.buckets(base, addr, id) {
            for place in self.layout.places(bucket) {
                let tag = memory.read_u64(place);
                each(reference(place, if self.shape.pairs { 8 } else { 16 }, false));
                if !self.layout.matches(tag, addr, id) {
                    continue;
                }
                let size = self.size(tag);
                let at = pte_at(place, width, size, self.layout.unit, addr);
                let pte = width.read(at, memory);
                if self.shape.pairs {
                    each(reference(at, width.bytes(), false));
                }
                return pte.is_mapped().then(|| Hit { pte, page: addr.page(size) });
            }
        }
        None
    }

    /// Inserts the page that a walk of the table behind the cache has found.
    pub(super) fn fill(
        &self,
        key: Key,
        found: Translation,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) {
        let Key { space, addr, id, .. } = key;
        let width = self.width();
        let size = found.page.size();
        let code = self.behind.page_sizes().iter().position(|&other| other == size);
        let end = found.frame.get().saturating_add(size.bytes());
        let Some(code) = code.filter(|_| end <= width.physical_end()) else { return };
        let (place, kept) = self.place(key, code as u64, memory);
        if !kept {
            memory.write_u64(ptes_of(place), 0);
            self.fill_other(place, space, found, memory);
        }
        let usage = Usage { referenced: true, dirty: kind == Kind::Store, marked: false };
        let pte = width.pte(found.frame, found.rights, found.global).with_usage(usage);
        width.write(pte_at(place, width, size, self.layout.unit, addr), pte, memory);
        memory.write_u64(place, self.layout.tag(addr, code as u64, id));
        each(reference(ptes_of(place), 8, true));
        each(reference(place, 8, true));
    }

    /// Inserts the other page of a pair as well, if the table behind the cache maps it: both share
    /// one entry.
    fn fill_other(
        &self,
        place: PhysAddr,
        space: Space,
        found: Translation,
        memory: &mut impl Memory,
    ) {
        let (size, unit, width) = (found.page.size(), self.layout.unit, self.width());
        if self.shape.keeps_usage || size >= unit {
            return;
        }
        let other = VirtAddr::new(found.page.start().get() ^ size.bytes());
        let mapping = self.behind.query(space, other, memory);
        if let Some(Mapping { translation, .. }) = mapping
            && translation.page == other.page(size)
            && translation.frame.get() < width.physical_end()
        {
            let pte = width.pte(translation.frame, translation.rights, translation.global);
            width.write(pte_at(place, width, size, unit, other), pte, memory);
        }
    }

    /// The place for a new page: an entry that already has its tag (the other page of this entry
    /// then stays), otherwise a free entry, otherwise a victim.
    fn place(&self, key: Key, code: u64, memory: &impl Memory) -> (PhysAddr, bool) {
        let Key { base, addr, id, .. } = key;
        let (mut free, mut first) = (None, base);
        for (n, bucket) in self.layout.buckets(base, addr, id).enumerate() {
            if n == 0 {
                first = bucket;
            }
            for place in self.layout.places(bucket) {
                let tag = memory.read_u64(place);
                if self.layout.matches(tag, addr, id) {
                    return (place, self.layout.code(tag) == code);
                }
                if tag == INVALID {
                    free = free.or(Some(place));
                }
            }
        }
        (free.unwrap_or_else(|| self.layout.victim(first, addr)), false)
    }

    /// The cache's entries of `space`, if the space exists.
    pub(super) fn entries(&self, space: Space) -> Option<Entries> {
        let (base, id) = self.base.zip(self.tags.of(space))?;
        Some(Entries { layout: self.layout, width: self.width(), base, id })
    }

    /// Evicts the entries of the pages in `changed`.
    pub(super) fn forget(&self, space: Space, changed: &Changed, memory: &mut impl Memory) {
        if let Some(entries) = self.entries(space) {
            entries.forget(changed, memory);
        }
    }
}

/// The entries of one space.
pub(super) struct Entries {
    layout: Layout,
    width: Width,
    base: PhysAddr,
    /// The tag that stands for the space.
    id: u64,
}

impl Entries {
    /// Evicts the entries of the pages in `changed`, or all of the space's entries if there are so
    /// many pages that a sweep of the array costs less.
    pub(super) fn forget(&self, changed: &Changed, memory: &mut impl Memory) {
        let shift = self.layout.unit.shift();
        let units = |range: VirtRange| {
            ((range.last().get() >> shift) - (range.start().get() >> shift)).saturating_add(1)
        };
        if changed.ranges().map(units).fold(0, u64::saturating_add) > self.layout.entries {
            forget_all(&self.layout, self.base, &|other| other == self.id, memory);
            return;
        }
        for range in changed.ranges() {
            for addr in range.pages(self.layout.unit).map(Page::start) {
                self.forget_at(addr, range, memory);
            }
        }
    }

    /// Evicts those pages of the entries for `addr` that lie in `range`.
    fn forget_at(&self, addr: VirtAddr, range: VirtRange, memory: &mut impl Memory) {
        for bucket in self.layout.buckets(self.base, addr, self.id) {
            for place in self.layout.places(bucket) {
                let tag = memory.read_u64(place);
                if self.layout.matches(tag, addr, self.id) {
                    self.forget_entry(place, tag, range, memory);
                }
            }
        }
    }

    /// Evicts those pages of one entry that lie in `range`.
    fn forget_entry(&self, place: PhysAddr, tag: u64, range: VirtRange, memory: &mut impl Memory) {
        if let Some(size) = self.layout.page_of_pair(tag) {
            let unit = self.layout.unit;
            let pair = VirtRange::of_page(VirtAddr::new(tag).page(unit));
            for page in pair.intersection(range).into_iter().flat_map(|part| part.pages(size)) {
                let at = pte_at(place, self.width, size, unit, page.start());
                self.width.write(at, Pte::EMPTY, memory);
            }
            if memory.read_u64(ptes_of(place)) != 0 {
                return;
            }
        }
        memory.write_u64(place, INVALID);
    }
}

/// Evicts, from the cache at `base`, all entries of the spaces for whose tags `gone` returns true.
pub(super) fn forget_all(
    layout: &Layout,
    base: PhysAddr,
    gone: &dyn Fn(u64) -> bool,
    memory: &mut impl Memory,
) {
    for n in 0..layout.entries {
        let place = base.wrapping_add(n * ENTRY_BYTES);
        if layout.id(memory.read_u64(place)).is_some_and(gone) {
            memory.write_u64(place, INVALID);
        }
    }
}

#[inline]
const fn reference(addr: PhysAddr, bytes: u8, write: bool) -> Reference {
    Reference { addr, bytes, write, level: LEVEL, leads: Leads::Nowhere }
}
