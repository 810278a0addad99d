//! Translations go: a range of one space, or all of some frames.

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr, VirtRange};
use pagetable::{Error, Mapping, Mounted};

use crate::{
    frame::Mapped,
    hat::{Change, Hat, HatSpace},
    locking::{Below, Held, Scheme, Site},
    platform::{Platform, Step},
};

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Removes every mapping in `range` from one space (K94 operation 3). `each` gets the pages
    /// as they were.
    ///
    /// A range that ends inside a larger page is refused: [`Hat::resize`] it first.
    pub fn unload(
        &self,
        space: HatSpace,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
        platform: &mut impl Platform,
    ) -> Result<(), Error> {
        self.scheme.enter(Site::Unload, |held| {
            let each = &mut |mapping: &Mapping, _: &mut _| each(*mapping);
            self.unload_range(held, space, range, each, platform).map(|_| ())
        })
    }

    /// How many pages it removed.
    pub(crate) fn unload_range<P: Platform>(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        range: VirtRange,
        each: &mut dyn FnMut(&Mapping, &mut P),
        platform: &mut P,
    ) -> Result<u64, Error> {
        held.space(space.0, |known, held| {
            let (mut change, mut pages) = (Change::default(), 0);
            for (place, entry) in known.iter().flat_map(|known| known.all()) {
                let unmapped = held.mmu(entry.table, |mmu, _| {
                    mmu.settle(space);
                    let Some(table) = &mut mmu.table else { return Ok(()) };
                    let before = pages;
                    let flush = table.unmap(entry.inner, range, &mut |mapping| {
                        change.removed(space, place, &mapping);
                        pages += 1;
                        each(&mapping, platform);
                    })?;
                    change.flush(space, flush);
                    platform.work(Step::TableWrite, pages - before);
                    Ok(())
                });
                if unmapped.is_err() {
                    self.finish(held, change, platform);
                    return unmapped.map(|()| pages);
                }
            }
            self.finish(held, change, platform);
            Ok(pages)
        })
    }

    /// Removes every mapping of these frames from all spaces (K94 operation 2), with one
    /// shootdown for all. `each` gets the pages as they were.
    ///
    /// When this returns, no processor can reach the frames, whoever has unloaded them. A page that
    /// is larger than the frames it is asked for goes whole.
    pub fn unload_frames(
        &self,
        frames: &[(PhysAddr, PageSize)],
        each: &mut dyn FnMut(HatSpace, Mapping),
        platform: &mut impl Platform,
    ) {
        self.scheme.enter(Site::UnloadFrames, |held| {
            let mut found = self.mapped_at(held, frames, &mut |frame| frame.begin_unloading());
            while !found.is_empty() {
                let mut change = Change::default();
                for &page in &found {
                    self.clear(held, page, frames, &mut change, each, platform);
                }
                let has_removed = change.has_removed();
                self.finish(held, change, platform);
                let left = self.mapped_at(held, frames, &mut |_| ());
                if !has_removed && left == found {
                    self.wait_for_change(held, frames, &found);
                }
                found = left;
            }
            self.mapped_at(held, frames, &mut |frame| frame.end_unloading());
        });
    }

    /// Takes a page out of its page table, if it maps one of the frames there.
    pub(crate) fn clear(
        &self,
        held: &mut S::Held<'_>,
        page: Mapped,
        frames: &[(PhysAddr, PageSize)],
        change: &mut Change,
        each: &mut dyn FnMut(HatSpace, Mapping),
        platform: &mut impl Platform,
    ) {
        let space = HatSpace(page.space);
        held.space(page.space, |known, held| {
            let entry = known.and_then(|known| known.at(page.mmu));
            let Some(entry) = entry else { return };
            held.mmu(entry.table, |mmu, _| {
                mmu.settle(space);
                let Some(table) = &mut mmu.table else { return };
                let there = table.query(entry.inner, page.page.start());
                let is_same = there.is_some_and(|mapping| {
                    mapping.translation.page == page.page && maps(&mapping, frames)
                });
                if !is_same {
                    return;
                }
                let range = VirtRange::of_page(page.page);
                let flush = table.unmap(entry.inner, range, &mut |mapping| {
                    change.removed(space, page.mmu, &mapping);
                    each(space, mapping);
                });
                // A whole page that is mapped can be unmapped.
                if let Ok(flush) = flush {
                    change.flush(space, flush);
                }
                platform.work(Step::TableWrite, 1);
            });
        });
    }

    /// Others are unloading the pages `known` of these frames: sleeps until one of them is struck
    /// out, or another is entered.
    fn wait_for_change(
        &self,
        held: &mut S::Held<'_>,
        frames: &[(PhysAddr, PageSize)],
        known: &[Mapped],
    ) {
        for &(frame, size) in frames {
            for (number, of) in self.lists_of(frame, size) {
                let counted = |mapped: &Mapped| of.is_none_or(|of| mapped.page.size() == of);
                let here = held
                    .frame(number, |frame| Some(frame.pages().filter(counted).collect::<Vec<_>>()));
                if here.is_empty() {
                    continue;
                }
                if here.iter().any(|page| known.binary_search(page).is_err()) {
                    return;
                }
                held.frame(number, |frame| {
                    let now = frame.pages().filter(counted);
                    (!now.eq(here.iter().copied())).then_some(())
                });
                return;
            }
        }
    }

    /// The pages that map these frames, in order, each once. `touch` gets each descriptor that was
    /// looked at, once for each time.
    pub(crate) fn mapped_at(
        &self,
        held: &mut S::Held<'_>,
        frames: &[(PhysAddr, PageSize)],
        touch: &mut dyn FnMut(&mut crate::frame::Frame),
    ) -> Vec<Mapped> {
        let mut found = Vec::new();
        for &(frame, size) in frames {
            for (number, of) in self.lists_of(frame, size) {
                held.frame(number, |frame| {
                    touch(frame);
                    // A page that is larger than the frames asked for is found in its own list.
                    let counted = |mapped: &Mapped| match of {
                        Some(of) => mapped.page.size() == of,
                        None => mapped.page.size() <= size,
                    };
                    found.extend(frame.pages().filter(counted));
                    Some(())
                });
            }
        }
        // A large page is found once for each of its frames that was asked for.
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Whether a page maps a part of these frames.
fn maps(mapping: &Mapping, frames: &[(PhysAddr, PageSize)]) -> bool {
    let start = mapping.translation.frame.get();
    let last = start + mapping.translation.page.size().mask();
    frames.iter().any(|(frame, size)| start <= frame.get() + size.mask() && frame.get() <= last)
}
