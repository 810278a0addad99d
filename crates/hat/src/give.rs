//! Mapping pages from one space to another: map, grant and unmap of L4. The pages that map a
//! frame form a tree: the parent of a page is the page from which it was mapped (E99 section 3.2;
//! Liedtke 1995).
//!
//! ```text
//!   map      pager --> client --> server      each may hand on what it has, with no more rights
//!   grant    the page leaves the giver, and is the taker's in its place
//!   restrict what was handed on loses rights, and gets them back by a map of the same page
//!   revoke   what was handed on goes, however far; the giver's own page too, if it says so
//! ```

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Intent, Mapping, Mounted, Translation, Usage};

use crate::{
    frame::Mapped,
    hat::{Change, Hat, LoadError, noted},
    load::{Passed, Passing, hull},
    locking::{Below, Held, Scheme, Site},
    platform::{Platform, Step},
    space::{HatSpace, MmuEntry, in_place},
    unload::Asked,
};

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Maps the pages that space `from` has in `range` into space `to` as well, starting at `at`.
    /// The new pages have those of `rights` that `from` has.
    ///
    /// Pages that are unloaded in the meantime are skipped. A page that `to` already has from this
    /// page of `from` gets the rights that it lacks. If the operation fails, `to` keeps the pages
    /// that were mapped before the failure.
    pub fn map_from(
        &self,
        from: HatSpace,
        range: VirtRange,
        to: HatSpace,
        at: VirtAddr,
        rights: Rights,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.hand_on(from, range, to, at, rights, Passing::Map, platform)
    }

    /// Maps the pages to `to` as [`Hat::map_from`] does, and unmaps them from `from`. `to` takes the place of
    /// `from` in the mapping tree: descendants of a page of `from` become descendants of the new
    /// page of `to`. The usage bits that a page had in `from` are transferred to `to`.
    pub fn grant(
        &self,
        from: HatSpace,
        range: VirtRange,
        to: HatSpace,
        at: VirtAddr,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.hand_on(from, range, to, at, Rights::ALL, Passing::Grant, platform)?;
        let mut used: Vec<Mapping> = Vec::new();
        let each = &mut |gone: Mapping| {
            if gone.usage != Usage::default() {
                used.push(gone);
            }
        };
        self.unload(from, range, each, platform).map_err(LoadError::Table)?;
        for Mapping { translation, usage, .. } in used {
            let addr = moved(translation, range, at, Rights::ALL).page.start();
            let there = self.query(to, addr).map(|there| there.translation.frame);
            if there == Some(translation.frame) {
                self.set_usage(to, addr, usage).map_err(LoadError::Table)?;
            }
        }
        Ok(())
    }

    /// Unmaps all pages that were mapped, directly or through other spaces, from the pages that
    /// `space` has in `range`. If `with_own` is true, the pages of `space` in `range` are unmapped
    /// too. `each` is called with each page, in its state before the operation.
    ///
    /// When this returns, no processor uses any of these pages.
    pub fn revoke(
        &self,
        space: HatSpace,
        range: VirtRange,
        with_own: bool,
        each: &mut dyn FnMut(HatSpace, Mapping),
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.scheme.enter(Site::UnloadFrames, |held| {
            platform.work(Step::Operation, 1);
            let own = self.pages_in(held, space, range)?;
            let frames = Asked::of(&frames_of(&own));
            let mut last = None;
            loop {
                let found = self.below(held, space, &own, platform);
                if found.is_empty() {
                    break;
                }
                if last.as_ref() == Some(&found) {
                    // Other operations are removing these pages; this one waits until one of the
                    // pages is removed from its list.
                    self.wait_below(held, space, &own);
                }
                let mut change = Change::default();
                self.clear(held, &found, &frames, &mut change, each, platform);
                self.finish(held, &mut change, platform);
                last = Some(found);
            }
            if with_own {
                let each = &mut |mapping: &Mapping, _: &mut _| each(space, *mapping);
                let unloaded = self.unload_range(held, space, range, each, platform);
                unloaded.map_err(LoadError::Table)?;
            }
            Ok(())
        })
    }

    /// Restricts to `rights` all pages that were mapped from the pages that `space` has in `range`.
    /// If `with_own` is true, the pages of `space` in `range` are restricted too. This is L4's
    /// unmap of a flexpage (a range of pages) that leaves the pages readable.
    ///
    /// When this returns, no processor uses a right that was withdrawn.
    pub fn restrict(
        &self,
        space: HatSpace,
        range: VirtRange,
        rights: Rights,
        with_own: bool,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.scheme.enter(Site::Protect, |held| {
            platform.work(Step::Operation, 1);
            let own = self.pages_in(held, space, range)?;
            let frames = Asked::of(&frames_of(&own));
            let mut found = self.below(held, space, &own, platform);
            if with_own {
                found.extend(own.iter().map(|page| noted(space, 0, page).page));
            }
            let mut change = Change::default();
            for pages in found.chunk_by(|one, next| (one.space, one.mmu) == (next.space, next.mmu))
            {
                self.restrict_in(held, pages, (&frames, rights), &mut change, platform)?;
            }
            self.finish(held, &mut change, platform);
            Ok(())
        })
    }

    /// Restricts those of `pages` that map frames in `frames` to `rights`; all pages are in one MMU. The
    /// flushes are added to `change`.
    fn restrict_in(
        &self,
        held: &mut S::Held<'_>,
        pages: &[Mapped],
        (frames, rights): (&Asked, Rights),
        change: &mut Change,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        let space = HatSpace(pages[0].space);
        held.space(space.0, in_place(pages[0].mmu), |entry, held| {
            let Some(entry) = entry else { return Ok(()) };
            let range = hull(pages.iter().map(|page| page.page));
            self.part(held, (space, entry), range, Intent::Change, |part, _| {
                part.settle(space);
                for page in pages {
                    let mut is_there = false;
                    let restricted = &mut |mapping: &Mapping| {
                        is_there = frames.has_part_of(mapping);
                        let has = mapping.translation.rights.bits();
                        is_there.then_some(Rights::from_bits(has & rights.bits()))
                    };
                    let flush = part.protect_page(entry.inner, page.page, restricted);
                    change.flush(space, flush.map_err(LoadError::Table)?);
                    platform.work(Step::TableWrite, u64::from(is_there));
                }
                Ok(())
            })
        })
    }

    #[expect(clippy::too_many_arguments, reason = "all that a page is handed on with")]
    fn hand_on(
        &self,
        from: HatSpace,
        range: VirtRange,
        to: HatSpace,
        at: VirtAddr,
        rights: Rights,
        passing: Passing,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.scheme.enter(Site::Load, |held| {
            platform.work(Step::Operation, 1);
            let given = self.pages_in(held, from, range)?;
            let moved = |page: &Mapping| (*page, moved(page.translation, range, at, rights));
            let pages: Vec<_> = given.iter().map(moved).collect();
            self.load_passed(held, Passed { from, to, passing, pages: &pages }, platform)
        })
    }

    fn pages_in(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        range: VirtRange,
    ) -> Result<Vec<Mapping>, LoadError> {
        let mut pages = Vec::new();
        let each = &mut |mapping| pages.push(mapping);
        let visit = |table: &T, entry: MmuEntry| table.visit(entry.inner, range, each);
        self.at_processor(held, space, range, visit).ok_or(LoadError::NoSpace(space))?;
        Ok(pages)
    }

    /// The descendants of these pages of `space`; descendants in one MMU are adjacent in the
    /// result.
    fn below(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        own: &[Mapping],
        platform: &mut impl Platform,
    ) -> Vec<Mapped> {
        let mut found = Vec::new();
        let number = |place: usize| self.number(own[place].translation.frame);
        held.frames(own.len(), number, |place, frame| {
            let before = found.len();
            platform.touch(number(place), false);
            found.extend(frame.below(noted(space, 0, &own[place])));
            platform.work(Step::Mapping, 1 + (found.len() - before) as u64);
            true
        });
        // Pages of one MMU become adjacent, so that the descriptor of the MMU is locked once.
        found.sort_by_key(|page: &Mapped| (page.space, page.mmu));
        found.reverse();
        found
    }

    /// Sleeps until the mapping tree has changed below the first of these pages that has
    /// descendants.
    fn wait_below(&self, held: &mut S::Held<'_>, space: HatSpace, own: &[Mapping]) {
        for page in own {
            let parent = noted(space, 0, page);
            let number = self.number(page.translation.frame);
            let known: Vec<Mapped> =
                held.frame(number, |frame| Some(frame.below(parent).collect()));
            if !known.is_empty() {
                return held.frame(number, |frame| {
                    (!frame.below(parent).eq(known.iter().copied())).then_some(())
                });
            }
        }
    }
}

/// The frame and size of each of these pages.
fn frames_of(pages: &[Mapping]) -> Vec<(PhysAddr, PageSize)> {
    let frame = |page: &Mapping| (page.translation.frame, page.translation.page.size());
    pages.iter().map(frame).collect()
}

/// The translation of a passed page in the space that gets it: it has the frame of `given`, and the
/// same offset from `at` that `given` has from the start of `range`.
fn moved(given: Translation, range: VirtRange, at: VirtAddr, rights: Rights) -> Translation {
    let offset = given.page.start().get().wrapping_sub(range.start().get());
    let page = at.wrapping_add(offset).page(given.page.size());
    let rights = Rights::from_bits(given.rights.bits() & rights.bits());
    Translation { page, rights, ..given }
}
