//! Spaces hand pages on: map, grant and unmap of L4, over the lists of frames as trees (E99 section
//! 3.2; Liedtke 1995).
//!
//! ```text
//!   map      pager --> client --> server      each may hand on what it has, with no more rights
//!   grant    the page leaves the giver, and is the taker's in its place
//!   revoke   what was handed on goes, however far; the giver's own page too, if it says so
//! ```

use alloc::vec::Vec;

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Mapping, Mounted, Translation};

use crate::{
    frame::Mapped,
    hat::{Change, Hat, HatSpace, LoadError, mapped},
    load::{Behalf, Wanted},
    locking::{Below, Scheme, Site},
    platform::Platform,
    space::MmuPlace,
};

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Maps the pages that `from` has in `range` to `to` as well, from `at` on, with those of `rights`
    /// that `from` has.
    ///
    /// Pages that are gone when their turn comes are left out. Where it ends early, `to` has the
    /// pages before.
    pub fn map_from(
        &self,
        from: HatSpace,
        range: VirtRange,
        to: HatSpace,
        at: VirtAddr,
        rights: Rights,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.hand_on(from, range, to, at, rights, Behalf::Of, platform)
    }

    /// The same, and `from` has the pages no more: `to` is in its place, also where they were mapped
    /// on.
    pub fn grant(
        &self,
        from: HatSpace,
        range: VirtRange,
        to: HatSpace,
        at: VirtAddr,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.hand_on(from, range, to, at, Rights::ALL, Behalf::InPlaceOf, platform)?;
        let unloaded = self.unload(from, range, &mut |_| (), platform);
        unloaded.map_err(LoadError::Table)
    }

    /// Takes back what was mapped from the pages that `space` has in `range`, by it or by those that
    /// it was mapped to, and the pages themselves `with_own`. `each` gets the pages as they were.
    ///
    /// When this returns, no processor uses any of them.
    pub fn revoke(
        &self,
        space: HatSpace,
        range: VirtRange,
        with_own: bool,
        each: &mut dyn FnMut(HatSpace, Mapping),
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.scheme.enter(Site::UnloadFrames, |held| {
            let own = self.pages_in(held, space, range)?;
            let frames: Vec<(PhysAddr, PageSize)> =
                own.iter().map(|page| (page.frame, page.page.size())).collect();
            let mut last = None;
            loop {
                let found = self.below(held, space, &own);
                if found.is_empty() {
                    break;
                }
                if last.as_ref() == Some(&found) {
                    // Others are taking them back: one of them is struck out next.
                    self.wait_below(held, space, &own);
                }
                let mut change = Change::default();
                for &page in &found {
                    self.clear(held, page, &frames, &mut change, each, platform);
                }
                self.finish(held, change, platform);
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

    #[expect(clippy::too_many_arguments, reason = "all that a page is handed on with")]
    fn hand_on(
        &self,
        from: HatSpace,
        range: VirtRange,
        to: HatSpace,
        at: VirtAddr,
        rights: Rights,
        behalf: fn(Mapped) -> Behalf,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.scheme.enter(Site::Load, |held| {
            for given in self.pages_in(held, from, range)? {
                let first = moved(given, range, at, rights);
                let behalf = behalf(mapped(from, 0, given.page));
                let place = MmuPlace::PROCESSOR;
                let wanted = Wanted { behalf, space: to, place, first, count: 1 };
                self.load_for(held, wanted, platform)?;
            }
            Ok(())
        })
    }

    fn pages_in(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        range: VirtRange,
    ) -> Result<Vec<Translation>, LoadError> {
        let mut pages = Vec::new();
        let each = &mut |mapping: Mapping| pages.push(mapping.translation);
        self.at_processor(held, space, |table, entry| table.visit(entry.inner, range, each))
            .ok_or(LoadError::NoSpace(space))?;
        Ok(pages)
    }

    /// What was mapped from these pages of `space`, those that it was mapped to last first.
    fn below(&self, held: &mut S::Held<'_>, space: HatSpace, own: &[Translation]) -> Vec<Mapped> {
        let mut found = Vec::new();
        for page in own {
            let parent = mapped(space, 0, page.page);
            held.frame(self.number(page.frame), |frame| {
                found.extend(frame.below(parent));
                Some(())
            });
        }
        found.reverse();
        found
    }

    /// Sleeps until what was mapped from the first of these pages that has any has changed.
    fn wait_below(&self, held: &mut S::Held<'_>, space: HatSpace, own: &[Translation]) {
        for page in own {
            let parent = mapped(space, 0, page.page);
            let number = self.number(page.frame);
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

/// A page that is handed on: the same frame, as far from `at` as it is from the start of `range`.
fn moved(given: Translation, range: VirtRange, at: VirtAddr, rights: Rights) -> Translation {
    let offset = given.page.start().get().wrapping_sub(range.start().get());
    let page = at.wrapping_add(offset).page(given.page.size());
    let rights = Rights::from_bits(given.rights.bits() & rights.bits());
    Translation { page, rights, ..given }
}
