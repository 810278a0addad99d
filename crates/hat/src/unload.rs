//! Operations that remove translations: all translations in a range of one space, or all
//! translations of some frames.

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr, VirtRange};
use pagetable::{Error, Intent, Mapping, Mounted, SubtreeEdit};

use crate::{
    frame::Mapped,
    hat::{Change, Hat},
    load::hull,
    locking::{Below, Held, Scheme, Site},
    platform::{Platform, Step},
    space::{AddressSpace, HatSpace, in_place},
};

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
                if unmapped.is_err() {
                    self.finish(held, &mut change, platform);
                    return unmapped.map(|()| pages);
                }
            }
            self.finish(held, &mut change, platform);
            Ok(pages)
        })
    }

    /// Removes every mapping of these frames from all spaces (K94 operation 2), with one shootdown.
    /// `each` gets each page in its state before the operation.
    ///
    /// When this returns, no processor can reach the frames, even through pages that another
    /// operation is unloading. A page that is larger than the frames is unmapped as a whole.
    pub fn unload_frames(
        &self,
        frames: &[(PhysAddr, PageSize)],
        each: &mut dyn FnMut(HatSpace, Mapping),
        platform: &mut impl Platform,
    ) {
        self.scheme.enter(Site::UnloadFrames, |held| {
            platform.work(Step::Operation, 1);
            let mut marked: Vec<List> = Vec::new();
            let mut found = Vec::new();
            loop {
                // If pages of another size have been loaded for the first time since the last pass,
                // there are more lists.
                let lists = self.lists(frames);
                if lists == marked {
                    break;
                }
                let more: Vec<List> =
                    lists.into_iter().filter(|list| !marked.contains(list)).collect();
                if more.is_empty() {
                    break;
                }
                found.extend(self.mapped_in(held, &more, &mut |frame| frame.begin_unloading()));
                marked.extend(more);
            }
            found.sort_unstable();
            found.dedup();
            let frames = Asked::of(frames);
            while !found.is_empty() {
                let mut change = Change::default();
                self.clear(held, &found, &frames, &mut change, each, platform);
                let has_removed = change.has_removed();
                self.finish(held, &mut change, platform);
                let left = self.mapped_in(held, &marked, &mut |_| ());
                if !has_removed && left == found {
                    self.wait_for_change(held, &marked, &found);
                }
                found = left;
            }
            self.mapped_in(held, &marked, &mut |frame| frame.end_unloading());
        });
    }

    /// Removes `pages` from their page tables, if they still map one of the frames. The descriptor of an
    /// MMU is locked once for a run of consecutive pages in it.
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
            held.space(space, in_place(place), |entry, held| {
                let space = HatSpace(space);
                let Some(entry) = entry else { return };
                let range = hull(pages.iter().map(|page| page.page));
                self.part(held, (space, entry), range, Intent::Remove, |part, _| {
                    part.settle(space);
                    for page in pages {
                        let Some(table) = part.table() else { return };
                        let there = table.query(entry.inner, page.page.start());
                        let is_same = there.is_some_and(|mapping| {
                            mapping.translation.page == page.page && frames.has_part_of(&mapping)
                        });
                        if !is_same {
                            continue;
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
                });
            });
        }
    }

    /// Sleeps until a page is removed from one of these lists or another page is inserted. It is
    /// called when all remaining pages of the requested frames (`known`) are being unloaded by
    /// other operations.
    fn wait_for_change(&self, held: &mut S::Held<'_>, lists: &[List], known: &[Mapped]) {
        for list in lists {
            let counted = |mapped: &Mapped| list.counts(mapped.page.size());
            let here = held.frame(list.number, |frame| {
                Some(frame.pages().filter(counted).collect::<Vec<_>>())
            });
            if here.is_empty() {
                continue;
            }
            if here.iter().any(|page| known.binary_search(page).is_err()) {
                return;
            }
            held.frame(list.number, |frame| {
                let now = frame.pages().filter(counted);
                (!now.eq(here.iter().copied())).then_some(())
            });
            return;
        }
    }

    /// The lists that may have pages which map these frames.
    fn lists(&self, frames: &[(PhysAddr, PageSize)]) -> Vec<List> {
        let of = |&(frame, size): &(PhysAddr, PageSize)| {
            let lists = self.lists_of(frame, size);
            lists.map(move |(number, of)| List { number, of, size })
        };
        frames.iter().flat_map(of).collect()
    }

    /// The pages that map these frames, in order, without duplicates.
    pub(crate) fn mapped_at(
        &self,
        held: &mut S::Held<'_>,
        frames: &[(PhysAddr, PageSize)],
    ) -> Vec<Mapped> {
        self.mapped_in(held, &self.lists(frames), &mut |_| ())
    }

    /// The pages in these lists, in order, without duplicates. `touch` is called each time a
    /// descriptor is read.
    fn mapped_in(
        &self,
        held: &mut S::Held<'_>,
        lists: &[List],
        touch: &mut dyn FnMut(&mut crate::frame::Frame),
    ) -> Vec<Mapped> {
        let mut found = Vec::new();
        let number = |place: usize| lists[place].number;
        held.frames(lists.len(), number, |place, frame| {
            touch(frame);
            found.extend(frame.pages().filter(|page| lists[place].counts(page.page.size())));
            true
        });
        // A large page is found once for each of its frames that was requested.
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The list of a base frame, with the condition under which a page in it maps the requested frames.
#[derive(Clone, Copy, PartialEq, Eq)]
struct List {
    number: u64,
    /// If set, only pages of this size, which is larger than the requested frames, are relevant.
    of: Option<PageSize>,
    size: PageSize,
}

impl List {
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
pub(crate) struct Asked(Vec<Covered>);

/// A frame, and the end of the memory covered by this frame and all frames that are sorted before
/// it.
struct Covered {
    start: u64,
    last: u64,
}

impl Asked {
    pub(crate) fn of(frames: &[(PhysAddr, PageSize)]) -> Asked {
        let covered = |(frame, size): &(PhysAddr, PageSize)| {
            let start = frame.get();
            Covered { start, last: start + size.mask() }
        };
        let mut frames: Vec<Covered> = frames.iter().map(covered).collect();
        frames.sort_unstable_by_key(|frame| frame.start);
        let mut last = 0;
        for frame in &mut frames {
            last = last.max(frame.last);
            frame.last = last;
        }
        Asked(frames)
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
            assert_eq!(Asked::of(&frames).has_part_of(&mapping), has, "{own:?} {size} {frames:?}");
        }
    }
}
