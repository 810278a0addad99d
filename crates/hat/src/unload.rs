//! Operations that remove translations: all translations in a range of one space, or all
//! translations of some frames.

use core::cell::Cell;

use addr::{PageSize, PhysAddr, VirtRange};
use pagetable::{Error, Intent, Mapping, Mounted, SubtreeEdit};
use smallvec::SmallVec;

use crate::{
    frame::Mapped,
    hat::{Change, Hat},
    load::hull,
    locking::{Below, Held, Part, Scheme, Site},
    platform::{Platform, Step},
    room::{self, NoMemory},
    space::{AddressSpace, HatSpace, Mmu, MmuEntry, in_place},
};

/// The number of elements that a list stores without heap memory.
pub(crate) const FEW: usize = 4;

/// The number of pages that one search collects if no heap memory is left.
const AT_ONCE: usize = 16;

/// Up to this number of pages in a table that all spaces share, the pages of one space are not
/// counted: all pages of the table are the upper bound.
const COUNTED: usize = 4096;

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Removes every mapping in `range` from one space (K94 operation 3). `each` gets each page in
    /// its state before the operation.
    ///
    /// A range that ends inside a larger page is refused: split that page first by [`Hat::resize`].
    pub fn unload(
        &self,
        space: HatSpace,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
        platform: &mut impl Platform,
    ) -> Result<(), Error> {
        self.scheme.enter(Site::Unload, |held| {
            platform.work(Step::Operation, 1);
            let each = &mut |mapping: &Mapping, _: &mut _| each(*mapping);
            self.unload_range(held, space, range, each, platform).map(|_| ())
        })
    }

    /// Removes every mapping in `range` and returns the number of pages removed.
    pub(crate) fn unload_range<P: Platform>(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        range: VirtRange,
        each: &mut dyn FnMut(&Mapping, &mut P),
        platform: &mut P,
    ) -> Result<u64, Error> {
        held.space(space.0, AddressSpace::whole, |known, held| {
            let (mut change, mut pages) = (Change::default(), 0);
            for (place, entry) in known.iter().flat_map(|known| known.all()) {
                let of = (space, entry);
                let unmapped = self.part(held, of, range, Intent::Remove, |part, _| {
                    part.settle(space);
                    if !change.has_room_for(self.pages_max(part, of, range)) {
                        return Err(Error::NoMemory);
                    }
                    let before = change.removed.len();
                    let flush = part.edit(entry.inner, range, SubtreeEdit::Unmap, &mut |mapping| {
                        change.removed(space, place, &mapping);
                        each(&mapping, platform);
                    });
                    let removed = &change.removed[before..];
                    self.count_out(part, removed);
                    pages += removed.len() as u64;
                    platform.work(Step::TableWrite, removed.len() as u64);
                    change.flush(space, flush?);
                    Ok(())
                });
                match unmapped {
                    Ok(()) => {}
                    Err(Error::NoMemory) => {
                        self.finish(held, &mut change, platform);
                        pages +=
                            self.unload_singly(held, (space, place, entry), range, each, platform)?;
                    }
                    Err(error) => {
                        self.finish(held, &mut change, platform);
                        return Err(error);
                    }
                }
            }
            self.finish(held, &mut change, platform);
            Ok(pages)
        })
    }

    /// An upper bound of the number of pages that this space has in `range`.
    fn pages_max(
        &self,
        part: &Part<'_, Mmu<T>>,
        (_, entry): (HatSpace, MmuEntry),
        range: VirtRange,
    ) -> usize {
        let shift = self.sizes[0].shift();
        let base = ((range.last().get() >> shift) - (range.start().get() >> shift)) as usize;
        if base == 0 {
            return 1;
        }
        let most = base.saturating_add(1).min(part.pages());
        if most <= COUNTED || self.is_own(entry) {
            return most;
        }
        // In a table that all spaces share, nearly all pages may belong to other spaces, so the
        // pages of this space are counted.
        let mut pages = 0;
        if let Some(table) = part.table() {
            table.visit(entry.inner, range, &mut |_| pages += 1);
        }
        pages
    }

    /// Removes the mappings in `range` one by one, each with its own shootdown. It is called if no
    /// memory is left for a list of the mappings. Returns their number.
    #[cold]
    fn unload_singly<P: Platform>(
        &self,
        held: &mut S::Held<'_>,
        (space, place, entry): (HatSpace, u8, MmuEntry),
        range: VirtRange,
        each: &mut dyn FnMut(&Mapping, &mut P),
        platform: &mut P,
    ) -> Result<u64, Error> {
        let (of, mut all) = ((space, entry), 0);
        loop {
            let mut pages = [None; AT_ONCE];
            let found = self.part(held, of, range, Intent::Remove, |part, _| {
                part.settle(space);
                let (Some(table), mut found) = (part.table(), 0) else { return Ok(0) };
                let mut splits = None;
                table.visit(entry.inner, range, &mut |mapping| {
                    let page = mapping.translation.page;
                    if !range.covers(VirtRange::of_page(page)) {
                        splits = Some(Error::Splits { page });
                    }
                    if let Some(place) = pages.get_mut(found) {
                        *place = Some(page);
                        found += 1;
                    }
                });
                splits.map_or(Ok(found), Err)
            })?;
            for page in pages.into_iter().flatten() {
                let (mut change, range) = (Change::default(), VirtRange::of_page(page));
                self.part(held, of, range, Intent::Remove, |part, _| {
                    part.settle(space);
                    let flush = part.edit(entry.inner, range, SubtreeEdit::Unmap, &mut |mapping| {
                        change.removed(space, place, &mapping);
                        each(&mapping, platform);
                    });
                    self.count_out(part, &change.removed);
                    platform.work(Step::TableWrite, change.removed.len() as u64);
                    change.flush(space, flush?);
                    Ok::<(), Error>(())
                })?;
                all += change.removed.len() as u64;
                self.finish(held, &mut change, platform);
            }
            if found == 0 {
                return Ok(all);
            }
        }
    }

    /// Removes every mapping of these frames from all spaces (K94 operation 2), with one shootdown.
    /// `each` gets each page in its state before the operation.
    ///
    /// When this returns, no processor can reach the frames, even through pages that another
    /// operation is unloading. A page that is larger than the frames is unmapped as a whole.
    ///
    /// If no memory is left for lists of frames and pages, the operation needs several shootdowns.
    pub fn unload_frames(
        &self,
        frames: &[(PhysAddr, PageSize)],
        each: &mut dyn FnMut(HatSpace, Mapping),
        platform: &mut impl Platform,
    ) {
        self.scheme.enter(Site::UnloadFrames, |held| {
            platform.work(Step::Operation, 1);
            self.unload_parts(held, frames, each, platform);
        });
    }

    /// Unloads the frames together. If no memory is left for the lists, unloads each half
    /// separately, down to single base frames, whose lists need no memory.
    fn unload_parts(
        &self,
        held: &mut S::Held<'_>,
        frames: &[(PhysAddr, PageSize)],
        each: &mut dyn FnMut(HatSpace, Mapping),
        platform: &mut impl Platform,
    ) {
        if self.unload_listed(held, frames, each, platform).is_ok() {
            return;
        }
        match frames {
            [] => {}
            &[(frame, size)] => {
                let base = self.sizes[0];
                for place in 0..size.count_of(base) {
                    let part = PhysAddr::new(frame.get() + place * base.bytes());
                    let unloaded = self.unload_listed(held, &[(part, base)], each, platform);
                    unloaded.expect("the lists of one base frame need no memory");
                }
            }
            _ => {
                let (one, other) = frames.split_at(frames.len() / 2);
                self.unload_parts(held, one, each, platform);
                self.unload_parts(held, other, each, platform);
            }
        }
    }

    /// Unloads the frames with one set of lists. Fails before any mapping changes if no memory is
    /// left for the lists.
    fn unload_listed(
        &self,
        held: &mut S::Held<'_>,
        frames: &[(PhysAddr, PageSize)],
        each: &mut dyn FnMut(HatSpace, Mapping),
        platform: &mut impl Platform,
    ) -> Result<(), NoMemory> {
        let asked = Asked::of(frames.iter().copied())?;
        let mut marked = Lists::new();
        let mut found = Found::new();
        loop {
            // Another operation may load the first page of a size during this loop. The lists of
            // that size must then be marked too.
            let more = self.more_lists(frames, &marked).and_then(|more| {
                marked.try_reserve(more.len()).map(|()| more).map_err(|_| NoMemory)
            });
            let Ok(mut more) = more else {
                self.unmark(held, &marked);
                return Err(NoMemory);
            };
            if more.is_empty() {
                break;
            }
            self.find_in(held, &mut more, true, &mut found);
            marked.extend(more);
        }
        found.settle();
        while !found.pages.is_empty() {
            let mut change = Change::default();
            self.clear(held, &found.pages, &asked, &mut change, each, platform);
            let has_removed = change.has_removed();
            self.finish(held, &mut change, platform);
            let mut left = Found::new();
            self.find_in(held, &mut marked, false, &mut left);
            left.settle();
            if !has_removed && left.pages == found.pages {
                self.wait_for_change(held, &marked, &found);
            }
            found = left;
        }
        self.unmark(held, &marked);
        Ok(())
    }

    /// Records in the marked frames that this operation no longer unloads them.
    fn unmark(&self, held: &mut S::Held<'_>, marked: &[List]) {
        let number = |place: usize| marked[place].number;
        held.frames(marked.len(), number, |place, frame| {
            if let Some(frame) = frame.filter(|_| marked[place].is_marked) {
                frame.end_unloading();
            }
            true
        });
    }

    /// Removes `pages` from their page tables, if they still map one of the frames. The descriptor
    /// of an MMU is locked once for a run of consecutive pages in it. If no memory is left for the
    /// list of removed pages, removes only some pages, at least one.
    pub(crate) fn clear(
        &self,
        held: &mut S::Held<'_>,
        pages: &[Mapped],
        frames: &Asked,
        change: &mut Change,
        each: &mut dyn FnMut(HatSpace, Mapping),
        platform: &mut impl Platform,
    ) {
        for pages in pages.chunk_by(|one, next| (one.space, one.mmu) == (next.space, next.mmu)) {
            let Mapped { space, mmu: place, .. } = pages[0];
            let goes_on = held.space(space, in_place(place), |entry, held| {
                let space = HatSpace(space);
                let Some(entry) = entry else { return true };
                let range = hull(pages.iter().map(|page| page.page));
                self.part(held, (space, entry), range, Intent::Remove, |part, _| {
                    part.settle(space);
                    for page in pages {
                        let Some(table) = part.table() else { return true };
                        let there = table.query(entry.inner, page.page.start());
                        let is_same = there.is_some_and(|mapping| {
                            mapping.translation.page == page.page && frames.has_part_of(&mapping)
                        });
                        if !is_same {
                            continue;
                        }
                        if !change.has_room() {
                            return false;
                        }
                        let range = VirtRange::of_page(page.page);
                        let unmap = SubtreeEdit::Unmap;
                        let before = change.removed.len();
                        let flush = part.edit(entry.inner, range, unmap, &mut |mapping| {
                            change.removed(space, place, &mapping);
                            each(space, mapping);
                        });
                        self.count_out(part, &change.removed[before..]);
                        // This cannot fail, because the range is a whole mapped page.
                        if let Ok(flush) = flush {
                            change.flush(space, flush);
                        }
                        platform.work(Step::TableWrite, 1);
                    }
                    true
                })
            });
            if !goes_on {
                return;
            }
        }
    }

    /// Sleeps until a page is removed from one of these lists or another page is inserted. It is
    /// called when all remaining pages of the requested frames (`known`) are being unloaded by
    /// other operations.
    fn wait_for_change(&self, held: &mut S::Held<'_>, lists: &[List], known: &Found) {
        for list in lists {
            let counted = |mapped: &Mapped| list.counts(mapped.page.size());
            // A removal changes the number of pages, and a load inserts its page at the head of the
            // list.
            let here = held.frame(list.number, |frame| {
                let pages = frame.pages().filter(counted);
                let is_new = pages.clone().any(|page| !known.is_known(&page));
                Some((is_new, pages.clone().count(), pages.clone().next()))
            });
            match here {
                Some((true, ..)) => return,
                None | Some((_, 0, _)) => continue,
                Some((_, count, first)) => {
                    held.frame(list.number, |frame| {
                        let now = frame.pages().filter(counted);
                        let is_same = now.clone().count() == count && now.clone().next() == first;
                        (!is_same).then_some(())
                    });
                    return;
                }
            }
        }
    }

    /// The lists that may contain pages which map these frames, without the lists in `known`.
    fn more_lists(
        &self,
        frames: &[(PhysAddr, PageSize)],
        known: &[List],
    ) -> Result<Lists, NoMemory> {
        let mut lists = Lists::new();
        let mut all = 0;
        for &(frame, size) in frames {
            let of = self.lists_of(frame, size);
            if known.is_empty() {
                lists.try_reserve(of.clone().count()).map_err(|_| NoMemory)?;
            }
            for (number, of) in of {
                let list = List { number, of, size, is_marked: false };
                // Usually the lists are those in `known`, in the same order, so the list at the
                // same index is compared first.
                let is_next = known.get(all).is_some_and(|known| known.is(&list));
                all += 1;
                if !is_next && !known.iter().any(|known| known.is(&list)) {
                    room::push(&mut lists, list)?;
                }
            }
        }
        Ok(lists)
    }

    /// Calls `each` once for each page that maps the frame, in ascending order.
    pub(crate) fn each_at(
        &self,
        held: &mut S::Held<'_>,
        (frame, size): (PhysAddr, PageSize),
        mut each: impl FnMut(&mut S::Held<'_>, Mapped),
    ) {
        let lists = self.lists_of(frame, size);
        let count = lists.clone().count();
        let number = |place: usize| lists.clone().nth(place).map_or(0, |(number, _)| number);
        let mut after = None;
        loop {
            let mut found = Found::new();
            held.frames(count, number, |place, frame| {
                let of = lists.clone().nth(place).and_then(|(_, of)| of);
                let list = List { number: 0, of, size, is_marked: false };
                let pages = frame.iter().flat_map(|frame| frame.pages());
                let pages = pages.filter(|page| list.counts(page.page.size()));
                pages
                    .filter(|page| after.is_none_or(|after| *page > after))
                    .for_each(|page| found.add(page));
                true
            });
            found.settle();
            for &page in &found.pages {
                each(held, page);
            }
            after = found.pages.last().copied();
            if !found.is_short {
                return;
            }
        }
    }

    /// Adds the pages in these lists to `found`. If `marks` is true, also marks the frames of the
    /// lists as being unloaded.
    fn find_in(&self, held: &mut S::Held<'_>, lists: &mut [List], marks: bool, found: &mut Found) {
        let lists = Cell::from_mut(lists).as_slice_of_cells();
        let number = |place: usize| lists[place].get().number;
        held.frames(lists.len(), number, |place, frame| {
            // A frame has no descriptor if no memory was left for one. It then has no page.
            let Some(frame) = frame else { return true };
            let list = lists[place].get();
            if marks {
                frame.begin_unloading();
                lists[place].set(List { is_marked: true, ..list });
            }
            let pages = frame.pages().filter(|page| list.counts(page.page.size()));
            pages.for_each(|page| found.add(page));
            true
        });
    }
}

/// Pages that map the requested frames. If no memory is left for a list of all of them, the list
/// has only the lowest pages in the order of [`Mapped`].
pub(crate) struct Found {
    pub(crate) pages: SmallVec<[Mapped; FEW]>,
    /// Whether `pages` is incomplete because no memory was left.
    is_short: bool,
}

impl Found {
    fn new() -> Found {
        Found { pages: SmallVec::new(), is_short: false }
    }

    fn add(&mut self, page: Mapped) {
        if !self.is_short && room::push(&mut self.pages, page).is_ok() {
            return;
        }
        if !self.is_short {
            self.is_short = true;
            self.settle();
        }
        let place = self.pages.binary_search(&page);
        if let Some(place) = place.err().filter(|place| *place < self.pages.capacity()) {
            // The highest page makes room; the next search finds it again.
            self.pages.truncate(self.pages.capacity() - 1);
            self.pages.insert(place, page);
        }
    }

    /// Sorts the pages and removes duplicates: a large page is found once for each of its requested
    /// frames.
    fn settle(&mut self) {
        self.pages.sort_unstable();
        self.pages.dedup();
    }

    /// Whether the page is in `pages`, or may be one of the pages for which no memory was left.
    fn is_known(&self, page: &Mapped) -> bool {
        let is_beyond = |last: &Mapped| self.is_short && page > last;
        self.pages.last().is_some_and(is_beyond) || self.pages.binary_search(page).is_ok()
    }
}

/// Lists of frames. Without heap memory there is room for the lists of one base frame, one per page
/// size.
type Lists = SmallVec<[List; 16]>;

/// The list of a base frame, with the condition under which a page in it maps the requested frames.
#[derive(Clone, Copy)]
struct List {
    number: u64,
    /// If set, only pages of this size, which is larger than the requested frames, are relevant.
    of: Option<PageSize>,
    size: PageSize,
    /// Whether the frame has been marked as being unloaded through this list.
    is_marked: bool,
}

impl List {
    fn is(&self, other: &List) -> bool {
        (self.number, self.of, self.size) == (other.number, other.of, other.size)
    }

    /// Whether a page in the list is relevant. A page larger than the requested frames is found
    /// only through the list for its own size.
    fn counts(&self, page: PageSize) -> bool {
        match self.of {
            Some(of) => page == of,
            None => page <= self.size,
        }
    }
}

/// The requested frames, sorted, so that a binary search finds whether a page maps a part of any of
/// them.
pub(crate) struct Asked(SmallVec<[Covered; FEW]>);

/// A frame, and the end of the memory covered by this frame and all frames that are sorted before
/// it.
struct Covered {
    start: u64,
    last: u64,
}

impl Asked {
    pub(crate) fn of(
        frames: impl ExactSizeIterator<Item = (PhysAddr, PageSize)>,
    ) -> Result<Asked, NoMemory> {
        let covered = |(frame, size): (PhysAddr, PageSize)| {
            let start = frame.get();
            Covered { start, last: start + size.mask() }
        };
        let mut asked = SmallVec::<[Covered; FEW]>::new();
        asked.try_reserve(frames.len()).map_err(|_| NoMemory)?;
        asked.extend(frames.map(covered));
        let mut frames = asked;
        frames.sort_unstable_by_key(|frame| frame.start);
        let mut last = 0;
        for frame in &mut frames {
            last = last.max(frame.last);
            frame.last = last;
        }
        Ok(Asked(frames))
    }

    pub(crate) fn has_part_of(&self, mapping: &Mapping) -> bool {
        let start = mapping.translation.frame.get();
        let last = start + mapping.translation.page.size().mask();
        let before = self.0.partition_point(|frame| frame.start <= last);
        before.checked_sub(1).is_some_and(|at| start <= self.0[at].last)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use addr::{Page, Rights, VirtAddr};
    use pagetable::{Translation, Usage};

    use super::*;

    /// Tests overlapping frames of any sizes. The expected result comes from comparing the page
    /// with each frame.
    #[test]
    fn a_page_maps_a_part_of_a_frame_that_overlaps_its_own() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        let sizes = [12, 16, 21].map(|shift| PageSize::from_shift(shift).unwrap());
        for _ in 0..2000 {
            let mut frame = || {
                let size = sizes[below(3) as usize];
                (PhysAddr::new(below(0x80_0000) & !size.mask()), size)
            };
            let frames: Vec<_> = (0..4).map(|_| frame()).collect();
            let (own, size) = frame();
            let page = Page::containing(VirtAddr::new(0), size);
            let translation = Translation::new(page, own, Rights::ALL);
            let mapping = Mapping { translation, usage: Usage::default(), note: 0 };
            let bytes = |(at, size): (PhysAddr, PageSize)| at.get()..at.get() + size.bytes();
            let has = frames.iter().any(|&frame| {
                let (one, other) = (bytes(frame), bytes((own, size)));
                one.start < other.end && other.start < one.end
            });
            assert_eq!(
                Asked::of(frames.iter().copied()).unwrap().has_part_of(&mapping),
                has,
                "{own:?} {size} {frames:?}"
            );
        }
    }
}
