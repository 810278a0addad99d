//! Operations on the part of an MMU descriptor that an operation holds. An operation that holds the
//! whole descriptor uses the interface [`pagetable::PageTable`]. An operation that holds only a part
//! uses the interface [`pagetable::Subtrees`], because other operations may hold sibling parts.

use core::sync::atomic::Ordering;

use addr::{Frames, Page, Rights, VirtRange};
use pagetable::{Error, Flush, Intent, Mapping, Mounted, Space, SubtreeEdit, Translation};

use crate::{
    hat::Hat,
    locking::{Held, Part, Scheme, SubtreePlace},
    room::NoMemory,
    space::{HatSpace, Mmu, MmuEntry},
};

impl<T: Mounted + ?Sized> Part<'_, Mmu<T>> {
    fn mmu(&self) -> &Mmu<T> {
        match self {
            Part::Whole(mmu) => mmu,
            Part::Shared(mmu, _) => mmu,
        }
    }

    /// The table, for reading the entries that lie in this part.
    pub(crate) fn table(&self) -> Option<&T> {
        self.mmu().table.as_deref()
    }

    /// Whether the table stores the names of nodes as notes.
    pub(crate) fn has_notes(&self) -> bool {
        self.mmu().has_notes
    }

    /// See [`Mmu::settle`]. Does nothing for a part: if entries of a descriptor are lent,
    /// operations hold the whole descriptor.
    pub(crate) fn settle(&mut self, space: HatSpace) {
        match self {
            Part::Whole(mmu) => mmu.settle(space),
            Part::Shared(..) => {}
        }
    }

    /// Maps pages, with the names of their nodes as notes, or without notes.
    pub(crate) fn map(
        &mut self,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        frames: &mut dyn Frames,
    ) -> Result<Flush, Error> {
        let none = Error::NoSpace(space);
        match self {
            Part::Whole(mmu) => {
                mmu.table.as_mut().ok_or(none)?.map_noted(space, pages, notes, frames)
            }
            Part::Shared(mmu, level) => {
                let subtrees = mmu.table.as_ref().and_then(|table| table.subtrees());
                subtrees.ok_or(none)?.map_below(*level, space, pages, notes, frames)
            }
        }
    }

    /// Stores the names of nodes as notes of pages that are mapped.
    pub(crate) fn note<'a>(
        &mut self,
        space: Space,
        names: impl Iterator<Item = (&'a Mapping, u32)>,
    ) {
        let Part::Whole(Mmu { table: Some(table), .. }) = self else { return };
        for (mapping, name) in names {
            // This cannot fail, because the page is mapped. If its note were missing, the page's
            // node would be searched.
            let _ = table.set_note(space, mapping.translation.page.start(), name);
        }
    }

    /// Changes the pages in `range`; does nothing if there is no table.
    pub(crate) fn edit(
        &mut self,
        space: Space,
        range: VirtRange,
        edit: SubtreeEdit,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        match self {
            Part::Whole(mmu) => {
                let Some(table) = &mut mmu.table else { return Ok(Flush::nothing(space)) };
                match edit {
                    SubtreeEdit::Unmap => table.unmap(space, range, each),
                    SubtreeEdit::Protect(rights) => table.protect(space, range, rights, each),
                    SubtreeEdit::ClearUsage(bits) => table.clear_usage(space, range, bits, each),
                }
            }
            Part::Shared(mmu, level) => {
                let subtrees = mmu.table.as_ref().and_then(|table| table.subtrees());
                let Some(subtrees) = subtrees else { return Ok(Flush::nothing(space)) };
                subtrees.edit_below(*level, (space, range), edit, each)
            }
        }
    }

    /// See [`pagetable::PageTable::protect_page`].
    pub(crate) fn protect_page(
        &mut self,
        space: Space,
        page: Page,
        rights: &mut dyn FnMut(&Mapping) -> Option<Rights>,
    ) -> Result<Flush, Error> {
        if let Part::Whole(Mmu { table: Some(table), .. }) = self {
            return table.protect_page(space, page, rights);
        }
        let there = self.table().and_then(|table| table.query(space, page.start()));
        let there = there.filter(|mapping| mapping.translation.page == page);
        let Some(rights) = there.and_then(|mapping| rights(&mapping)) else {
            return Ok(Flush::nothing(space));
        };
        self.edit(space, VirtRange::of_page(page), SubtreeEdit::Protect(rights), &mut |_| ())
    }

    /// Adds the rights of `wanted` to the page at its address, if the page maps the frame of
    /// `wanted`.
    pub(crate) fn widen(&mut self, space: Space, wanted: Translation) -> Result<Flush, Error> {
        self.protect_page(space, wanted.page, &mut |Mapping { translation, .. }| {
            let rights = translation.rights.bits() | wanted.rights.bits();
            (translation.frame == wanted.frame).then_some(Rights::from_bits(rights))
        })
    }

    /// Adds `pages`, which may be negative, to the count of pages of the size with this index.
    #[inline]
    pub(crate) fn count(&mut self, size: usize, pages: isize) {
        match self {
            Part::Whole(mmu) => mmu.count(size, pages),
            Part::Shared(mmu, _) => mmu.count_beside(size, pages),
        }
    }

    /// Reserves memory to record that the space has loaded a page.
    pub(crate) fn prepare_loaded(&mut self) -> Result<(), NoMemory> {
        match self {
            Part::Whole(mmu) => mmu.loaded.prepare(),
            // A part is locked only for a space that has loaded a page before, so the record
            // exists.
            Part::Shared(..) => Ok(()),
        }
    }

    /// The number of pages that are mapped in the whole table.
    pub(crate) fn pages(&self) -> usize {
        self.mmu().population().fold(0, usize::saturating_add)
    }

    /// Records the time at which `space` was last loaded. The first time for a space requires the
    /// whole descriptor.
    pub(crate) fn note_loaded(&mut self, space: HatSpace, now: usize) {
        match self {
            Part::Whole(mmu) => mmu.loaded.set(space.0, now),
            Part::Shared(mmu, _) => {
                if let Some(loaded) = mmu.loaded.get(space.0) {
                    loaded.store(now, Ordering::Relaxed);
                }
            }
        }
    }
}

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Runs `f` on the part of an MMU that an operation on `range` needs; the scheme decides how
    /// large this part is.
    pub(crate) fn part<R>(
        &self,
        held: &mut S::Held<'_>,
        (space, entry): (HatSpace, MmuEntry),
        range: VirtRange,
        intent: Intent,
        f: impl FnOnce(&mut Part<'_, Mmu<T>>, &mut <S::Held<'_> as Held>::Below) -> R,
    ) -> R {
        let lowest = |mmu: &Mmu<T>| {
            let adds = matches!(intent, Intent::Add { .. });
            let is_first = adds && self.is_limited() && mmu.loaded.get(space.0).is_none();
            if is_first || !mmu.loans.is_empty() {
                return None;
            }
            let subtrees = mmu.table.as_ref()?.subtrees()?;
            let (start, last) = (range.start(), range.last());
            let is_one = |level: &u8| {
                let shift = subtrees.entry_shift(level + 1);
                start.get() >> shift == last.get() >> shift
            };
            let level = (1..subtrees.levels()).find(is_one)?;
            Some(SubtreePlace::new(subtrees.levels(), level, |level| subtrees.index(level, start)))
        };
        let covering = |mmu: &Mmu<T>| {
            let subtrees = mmu.table.as_ref().and_then(|table| table.subtrees());
            subtrees.map_or(u8::MAX, |subtrees| subtrees.covering(entry.inner, range, intent))
        };
        held.part(entry.table, lowest, covering, |mut part, below| f(&mut part, below))
    }
}
