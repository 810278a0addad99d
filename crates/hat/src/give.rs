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

use core::cmp::Reverse;

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Intent, Mapping, Mounted, Translation, Usage};
use smallvec::SmallVec;

use crate::{
    frame::{Frame, Mapped},
    hat::{Change, Hat, LoadError, noted},
    load::{Mappings, Passed, Passing, hull},
    locking::{Below, Held, Scheme, Site},
    platform::{Platform, Step},
    room::{self, NoMemory},
    space::{HatSpace, MmuEntry, in_place},
    unload::{Asked, FEW},
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
        self.hand_on(from, range, to, at, rights, Passing::Map, None, platform)
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
        let mut used = Mappings::new();
        let room = Some(&mut used);
        self.hand_on(from, range, to, at, Rights::ALL, Passing::Grant, room, platform)?;
        let each = &mut |gone: Mapping| {
            if gone.usage != Usage::default() {
                // This cannot fail: `grant` has reserved room for all granted pages.
                let _ = room::push(&mut used, gone);
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
    /// When this function returns, no processor uses any of the revoked pages.
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
            let mut next = Some(range);
            while let Some(range) = next {
                let (mut own, mut rest) = self.pages_in(held, space, range)?;
                let frames = loop {
                    match Asked::of(frames_of(&own)) {
                        Ok(frames) => break frames,
                        Err(NoMemory) => rest = rest_of(range, &mut own),
                    }
                };
                next = rest;
                let mut last = None;
                loop {
                    let found = self.below(held, space, &own, platform);
                    if found.pages.is_empty() {
                        break;
                    }
                    if last.as_ref() == Some(&found.pages) {
                        // The pages found are those of the previous round: other operations are
                        // unmapping all of them, and each is removed from its list when its
                        // operation finishes.
                        self.wait_below(held, space, &own);
                    }
                    let mut change = Change::default();
                    self.clear(held, &found.pages, &frames, &mut change, each, platform);
                    self.finish(held, &mut change, platform);
                    last = Some(found.pages);
                }
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
            let own = self.all_pages_in(held, space, range)?;
            let frames = Asked::of(frames_of(&own))?;
            let Descendants { pages: mut found, is_short } =
                self.below(held, space, &own, platform);
            if is_short || (with_own && found.try_reserve(own.len()).is_err()) {
                return Err(LoadError::NoMemory);
            }
            if with_own {
                found.extend(own.iter().map(|page| noted(space, 0, page).page));
            }
            let mut change = Change::default();
            for pages in found.chunk_by(|one, next| (one.space, one.mmu) == (next.space, next.mmu))
            {
                if !change.has_room() {
                    self.finish(held, &mut change, platform);
                }
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

    #[expect(clippy::too_many_arguments, reason = "these values describe the passed pages")]
    fn hand_on(
        &self,
        from: HatSpace,
        range: VirtRange,
        to: HatSpace,
        at: VirtAddr,
        rights: Rights,
        passing: Passing,
        room: Option<&mut Mappings>,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.scheme.enter(Site::Load, |held| {
            platform.work(Step::Operation, 1);
            let given = self.all_pages_in(held, from, range)?;
            let moved = |page: &Mapping| (*page, moved(page.translation, range, at, rights));
            let mut pages = SmallVec::<[(Mapping, Translation); 1]>::new();
            let room = room.map_or(Ok(()), |room| room.try_reserve(given.len()));
            room.and(pages.try_reserve(given.len())).map_err(|_| LoadError::NoMemory)?;
            pages.extend(given.iter().map(moved));
            self.load_passed(held, Passed { from, to, passing, pages: &pages }, platform)
        })
    }

    /// Returns the pages in `range`. If no memory is left for a list of all pages, returns the
    /// first pages and the range of the remaining ones.
    fn pages_in(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        range: VirtRange,
    ) -> Result<(Mappings, Option<VirtRange>), LoadError> {
        let (mut pages, mut rest) = (Mappings::new(), None);
        let each = &mut |mapping: Mapping| {
            if rest.is_none() && room::push(&mut pages, mapping).is_err() {
                rest = rest_from(range, mapping);
            }
        };
        let visit = |table: &T, entry: MmuEntry| table.visit(entry.inner, range, each);
        self.at_processor(held, space, range, visit).ok_or(LoadError::NoSpace(space))?;
        Ok((pages, rest))
    }

    fn all_pages_in(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        range: VirtRange,
    ) -> Result<Mappings, LoadError> {
        let (pages, rest) = self.pages_in(held, space, range)?;
        if rest.is_some() { Err(LoadError::NoMemory) } else { Ok(pages) }
    }

    /// The descendants of these pages of `space`; descendants in one MMU are adjacent in the
    /// result.
    fn below(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        own: &[Mapping],
        platform: &mut impl Platform,
    ) -> Descendants {
        let (mut found, mut is_short) = (SmallVec::<[(usize, Mapped); FEW]>::new(), false);
        let number = |place: usize| self.number(own[place].translation.frame);
        held.frames(own.len(), number, |place, frame| {
            let before = found.len();
            platform.touch(number(place), false);
            let parent = noted(space, 0, &own[place]);
            for page in frame.iter().flat_map(|frame| frame.below(parent)) {
                let next = (found.len(), page);
                is_short = is_short || room::push(&mut found, next).is_err();
            }
            platform.work(Step::Mapping, 1 + (found.len() - before) as u64);
            !is_short
        });
        // Pages of one MMU are adjacent, so that the MMU's descriptor is locked once. In each MMU,
        // the pages that were found last come first.
        found.sort_unstable_by_key(|(at, page)| Reverse((page.space, page.mmu, *at)));
        let mut pages = SmallVec::new();
        if pages.try_reserve(found.len()).is_err() {
            is_short = true;
            found.truncate(FEW);
        }
        pages.extend(found.into_iter().map(|(_, page)| page));
        Descendants { pages, is_short }
    }

    /// Sleeps until the mapping tree has changed below the first of these pages that has
    /// descendants.
    fn wait_below(&self, held: &mut S::Held<'_>, space: HatSpace, own: &[Mapping]) {
        for page in own {
            let parent = noted(space, 0, page);
            let number = self.number(page.translation.frame);
            // A removal changes the number of descendants, and a new child is inserted as the first
            // descendant.
            let state =
                |frame: &mut Frame| (frame.below(parent).count(), frame.below(parent).next());
            let known = held.frame(number, |frame| Some(state(frame)));
            if let Some(known @ (1.., _)) = known {
                held.frame(number, |frame| (state(frame) != known).then_some(()));
                return;
            }
        }
    }
}

/// The result of [`Hat::below`]: pages that were mapped from other pages.
struct Descendants {
    pages: SmallVec<[Mapped; FEW]>,
    /// Whether `pages` is incomplete because no memory was left for a longer list.
    is_short: bool,
}

/// The part of `range` that starts with this page.
fn rest_from(range: VirtRange, page: Mapping) -> Option<VirtRange> {
    let start = page.translation.page.start().max(range.start());
    let bytes = (range.last().get() - start.get()).saturating_add(1);
    VirtRange::new(start, bytes).ok()
}

/// Shortens `pages` to [`FEW`] pages, for which other lists need no heap memory. Returns the part
/// of `range` with the pages that were dropped.
#[cold]
fn rest_of(range: VirtRange, pages: &mut Mappings) -> Option<VirtRange> {
    let next = *pages.get(FEW)?;
    pages.truncate(FEW);
    rest_from(range, next)
}

/// The frame and size of each of these pages.
fn frames_of(pages: &[Mapping]) -> impl ExactSizeIterator<Item = (PhysAddr, PageSize)> {
    let frame = |page: &Mapping| (page.translation.frame, page.translation.page.size());
    pages.iter().map(frame)
}

/// The translation of a passed page in the space that gets it: it has the frame of `given`, and the
/// same offset from `at` that `given` has from the start of `range`.
fn moved(given: Translation, range: VirtRange, at: VirtAddr, rights: Rights) -> Translation {
    let offset = given.page.start().get().wrapping_sub(range.start().get());
    let page = at.wrapping_add(offset).page(given.page.size());
    let rights = Rights::from_bits(given.rights.bits() & rights.bits());
    Translation { page, rights, ..given }
}
