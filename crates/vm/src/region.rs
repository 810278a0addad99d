//! The regions of a space: the data that belongs at each address, and the allowed accesses.
//!
//! ```text
//!   pages   10      14          22        30
//!           |  rw   |    r--    |   hole  |  rw
//!           | anon  | file 3, page 0..8   | shared object 7, page 0..
//!
//!   cut at 18:      |  r--  |  r--  |        the right part begins with page 4 of its file
//! ```
//!
//! Regions do not overlap. An operation on a range first cuts the regions at both ends of the
//! range, so that it handles only whole regions.

use alloc::{collections::TryReserveError, vec::Vec};
use core::ops::Range;

use addr::{Attributes, Rights};
use smallvec::SmallVec;

use crate::{
    module::Module,
    object::ObjectId,
    sorted::{NoMemory, SortedMap},
};

/// The object, for reservations, to which a region's own pages belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Own {
    pub(crate) number: u32,
    /// The distance in pages by which the region has moved since it was mapped. A page's number in
    /// the object is its page number minus this distance.
    pub(crate) moved: u64,
}

/// A region: adjacent pages with the same properties.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// The page numbers of the region.
    pub pages: Range<u64>,
    /// The allowed accesses.
    pub rights: Rights,
    /// The rights that were requested. They can be fewer than `rights`, because the page table may
    /// be unable to distinguish some rights. Regions with different requests are never joined.
    pub asked: Rights,
    /// The source of the region's pages.
    pub backing: Backing,
    /// Whether the region's pages are locked in memory.
    pub wired: Wired,
    /// A number that the host gives to the region. Regions with different labels are never joined.
    pub label: u32,
    /// The placement requests for the region's pages.
    pub module: Module,
    /// The object to which the region's own pages belong, for reservations.
    pub(crate) own: Own,
    /// Whether the region has ever had pages of its own, or a large page of zeros (Linux: an
    /// `anon_vma`).
    pub(crate) has_own: bool,
}

/// Whether pages of a region are locked in memory, and when they are brought in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wired {
    /// The pages are not locked.
    #[default]
    No,
    /// All pages are brought in and locked (Linux: `VM_LOCKED`).
    Now,
    /// Pages that a fault brings in are locked (Linux: `VM_LOCKED` and `VM_LOCKONFAULT`).
    OnFault,
}

impl Wired {
    /// Whether a page that is in memory is locked there.
    pub(crate) fn stays(self) -> bool {
        self != Wired::No
    }
}

/// The source of the pages of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Zeros. A store to a page gives the space its own page.
    Anonymous,
    /// An object. A store to a page gives the space its own copy of the page.
    Private {
        /// The object.
        object: ObjectId,
        /// The page of the object with which the region begins.
        first: u64,
    },
    /// An object. Stores change the object itself.
    Shared {
        /// The object.
        object: ObjectId,
        /// The page of the object with which the region begins.
        first: u64,
    },
    /// Frames that the caller of [`Kernel::map`](crate::Kernel::map) gave.
    Frames {
        /// The frame with which the region begins: its address divided by the size of a base page.
        first: u64,
        /// How the memory is accessed.
        attributes: Attributes,
    },
}

impl Backing {
    /// The backing of the part of the region after its first `pages` pages.
    pub(crate) fn after(self, pages: u64) -> Backing {
        match self {
            Backing::Anonymous => Backing::Anonymous,
            Backing::Private { object, first } => Backing::Private { object, first: first + pages },
            Backing::Shared { object, first } => Backing::Shared { object, first: first + pages },
            Backing::Frames { first, attributes } => {
                Backing::Frames { first: first + pages, attributes }
            }
        }
    }

    /// The object, if there is one.
    pub(crate) fn object(self) -> Option<ObjectId> {
        match self {
            Backing::Anonymous | Backing::Frames { .. } => None,
            Backing::Private { object, .. } | Backing::Shared { object, .. } => Some(object),
        }
    }

    /// Whether the region maps frames that were given to it.
    pub(crate) fn is_given(self) -> bool {
        matches!(self, Backing::Frames { .. })
    }
}

/// All regions of a space, by first page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions(SortedMap<u64, Region>);

/// A list of removed regions. A list of one region needs no heap memory.
pub(crate) type Taken = SmallVec<[Region; 1]>;

impl Regions {
    /// The region that contains `page`.
    pub(crate) fn at(&self, page: u64) -> Option<&Region> {
        let (_, region) = self.0.up_to(&page)?;
        region.pages.contains(&page).then_some(region)
    }

    /// The region that contains `page`, or the first one after it.
    pub(crate) fn from(&self, page: u64) -> Option<&Region> {
        self.at(page).or_else(|| self.0.range(page..).next().map(|(_, region)| region))
    }

    /// The part of `near` around `page` in which regions are adjacent and their own pages belong to
    /// one object. Such regions are, for example, parts of one mapping that have different rights.
    pub(crate) fn of_one_object(&self, page: u64, near: Range<u64>) -> Range<u64> {
        let Some(region) = self.at(page) else { return page..page };
        let mut all = region.pages.clone();
        while all.start > near.start
            && let Some(before) = self.at(all.start - 1).filter(|other| other.own == region.own)
        {
            all.start = before.pages.start;
        }
        while all.end < near.end
            && let Some(after) = self.at(all.end).filter(|other| other.own == region.own)
        {
            all.end = after.pages.end;
        }
        all
    }

    /// Replaces the object that has a region's own pages, for all regions. Regions that shared an
    /// object share the new one.
    pub(crate) fn renew_owns(&mut self, mut other: impl FnMut(Own) -> Own) {
        self.0.iter_mut().for_each(|(_, region)| region.own = other(region.own));
    }

    /// All regions, by address.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Region> {
        self.0.iter().map(|(_, region)| region)
    }

    /// The regions that overlap `pages`, the last first.
    pub(crate) fn within(&self, pages: &Range<u64>) -> impl Iterator<Item = &Region> {
        let start = pages.start;
        let before = self.0.range(..pages.end).rev().map(|(_, region)| region);
        before.take_while(move |region| region.pages.end > start)
    }

    /// The first region that contains one of these pages.
    pub(crate) fn first_in(&self, pages: &Range<u64>) -> Option<&Region> {
        if pages.is_empty() {
            return None;
        }
        match self.0.up_to(&pages.start) {
            Some((_, region)) if region.pages.end > pages.start => Some(region),
            _ => self.0.range(pages.clone()).next().map(|(_, region)| region),
        }
    }

    /// The range from the first page of the first region to the last page of the last.
    pub(crate) fn hull(&self) -> Option<Range<u64>> {
        let (first, _) = self.0.iter().next()?;
        let (_, last) = self.0.iter().next_back()?;
        Some(first..last.pages.end)
    }

    /// Records that the region that contains `page` has pages of its own.
    pub(crate) fn set_own(&mut self, page: u64) {
        if let Some((_, region)) = self.0.up_to_mut(&page) {
            region.has_own = true;
        }
    }

    /// The parts of `pages` that are in regions for which `holds` is true; adjacent parts are
    /// joined.
    pub(crate) fn parts(
        &self,
        pages: &Range<u64>,
        holds: impl Fn(&Region) -> bool,
    ) -> Result<Vec<Range<u64>>, TryReserveError> {
        // The parts are collected from the last to the first, in the order of the regions.
        let mut parts: Vec<Range<u64>> = Vec::new();
        for region in self.within(pages).filter(|region| holds(region)) {
            let (start, end) =
                (pages.start.max(region.pages.start), pages.end.min(region.pages.end));
            match parts.last_mut() {
                Some(behind) if behind.start == end => behind.start = start,
                _ => {
                    parts.try_reserve(1)?;
                    parts.push(start..end);
                }
            }
        }
        parts.reverse();
        Ok(parts)
    }

    /// The part of `pages` around `page` that no region contains; `None` if a region contains
    /// `page`.
    pub(crate) fn hole_around(&self, page: u64, pages: Range<u64>) -> Option<Range<u64>> {
        let before = self.0.up_to(&page).map_or(0, |(_, region)| region.pages.end);
        let after = self.0.next_key(page).unwrap_or(u64::MAX);
        (before <= page).then(|| pages.start.max(before)..pages.end.min(after))
    }

    /// Allocates the memory that an operation on `pages` may need to cut regions at both ends and to
    /// insert one more, so that the operation cannot fail for lack of memory.
    pub(crate) fn reserve(&mut self, pages: &Range<u64>) -> Result<(), TryReserveError> {
        self.0.reserve([&pages.start, &pages.end], 3)
    }

    /// Allocates the memory that a move of all regions in `pages` to page `to` may need.
    pub(crate) fn reserve_for(
        &mut self,
        pages: &Range<u64>,
        to: u64,
    ) -> Result<(), TryReserveError> {
        let count = self.within(pages).count() + 4;
        let end = to.saturating_add(pages.end - pages.start);
        self.0.reserve([&to, &end], count)
    }

    /// A copy of all regions for the child of a fork.
    pub(crate) fn forked(&self) -> Result<Regions, TryReserveError> {
        let mut copy = Regions::default();
        for region in self.all() {
            copy.insert_apart(Region { wired: Wired::No, ..region.clone() })?;
        }
        Ok(copy)
    }

    /// Frees what is left of [`Regions::reserve`].
    pub(crate) fn unreserve(&mut self) {
        self.0.unreserve();
    }

    /// Inserts a region at addresses without a region, and joins it with equal neighbours. After an
    /// error nothing has changed.
    pub(crate) fn insert(&mut self, region: Region) -> Result<(), TryReserveError> {
        debug_assert!(
            self.0
                .range(..region.pages.end)
                .next_back()
                .is_none_or(|(_, before)| { before.pages.end <= region.pages.start })
        );
        if !region.pages.is_empty() {
            let pages = region.pages.clone();
            self.0.insert(region.pages.start, region)?;
            self.join(pages.start);
            self.join(pages.end);
        }
        Ok(())
    }

    /// Extends the region that begins with page `start` down to page `to`; no region has a page in
    /// between. After an error nothing has changed.
    pub(crate) fn grow_down(&mut self, start: u64, to: u64) -> Result<(), TryReserveError> {
        let Some(mut region) = self.0.get(&start).cloned() else { return Ok(()) };
        region.pages.start = to;
        self.0.insert(to, region)?;
        self.0.remove(&start);
        Ok(())
    }

    /// Inserts a region at addresses without a region, without joining it to its neighbours, as a
    /// fork does.
    fn insert_apart(&mut self, region: Region) -> Result<(), TryReserveError> {
        self.0.insert(region.pages.start, region).map(drop)
    }

    /// The beginning of `pages` up to the first region for which `holds` is false or, unless `holes` is
    /// true, up to the first hole.
    pub(crate) fn until(
        &self,
        pages: &Range<u64>,
        holes: bool,
        holds: impl Fn(&Region) -> bool,
    ) -> Range<u64> {
        let mut end = pages.start;
        let mut next = self.first_in(pages);
        while let Some(region) = next {
            if !holes && region.pages.start > end || !holds(region) {
                return pages.start..if holes { region.pages.start.max(pages.start) } else { end };
            }
            end = region.pages.end.min(pages.end);
            next = self.first_in(&(end..pages.end));
        }
        pages.start..if holes { pages.end } else { end }
    }

    /// Removes and returns the regions in `pages`. After an error nothing has changed.
    pub(crate) fn take(&mut self, pages: Range<u64>) -> Result<Taken, NoMemory> {
        let mut taken = Taken::new();
        taken.try_reserve(self.within(&pages).count()).map_err(|_| NoMemory)?;
        self.cut_ends(&pages)?;
        while let Some(start) = self.0.next_key(pages.start).filter(|start| *start < pages.end) {
            taken.extend(self.0.remove(&start));
        }
        Ok(taken)
    }

    /// Calls `change` for the regions in `pages`. After an error nothing has changed.
    pub(crate) fn change(
        &mut self,
        pages: Range<u64>,
        mut change: impl FnMut(&mut Region),
    ) -> Result<(), TryReserveError> {
        self.cut_ends(&pages)?;
        let mut next = pages.start;
        while let Some(start) = self.0.next_key(next).filter(|start| *start < pages.end)
            && let Some(region) = self.0.get_mut(&start)
        {
            change(region);
            next = region.pages.end;
            self.join(start);
        }
        self.join(next);
        Ok(())
    }

    /// Joins two regions that meet at `page` if they have the same properties, so that a large page
    /// can span memory that was mapped in pieces, for example a heap.
    fn join(&mut self, page: u64) {
        let Some(right) = self.0.get(&page) else { return };
        let Some((_, left)) = page.checked_sub(1).and_then(|page| self.0.up_to(&page)) else {
            return;
        };
        let count = left.pages.end - left.pages.start;
        let goes_on = Region {
            pages: left.pages.end..right.pages.end,
            backing: left.backing.after(count),
            // From here on, new pages are placed in the object of the right region; pages that were
            // placed before keep their places.
            own: right.own,
            has_own: right.has_own,
            ..left.clone()
        };
        if goes_on != *right {
            return;
        }
        let (start, end, has_own) = (left.pages.start, right.pages.end, right.has_own);
        self.0.remove(&page);
        if let Some(left) = self.0.get_mut(&start) {
            left.pages.end = end;
            left.has_own |= has_own;
        }
    }

    /// Splits the regions that extend beyond an end of `pages` at that end. If there is no such
    /// region, the function needs no memory. If it fails, nothing has changed.
    pub(crate) fn cut_ends(&mut self, pages: &Range<u64>) -> Result<(), TryReserveError> {
        let is_across = |page: u64| {
            let before = page.checked_sub(1).and_then(|before| self.0.up_to(&before));
            before.is_some_and(|(_, region)| region.pages.end > page)
        };
        if !is_across(pages.start) && !is_across(pages.end) {
            return Ok(());
        }
        self.0.reserve([&pages.start, &pages.end], 2)?;
        self.cut(pages.start)?;
        self.cut(pages.end)?;
        Ok(())
    }

    /// Splits a region so that one begins at `page`.
    fn cut(&mut self, page: u64) -> Result<(), TryReserveError> {
        let Some((start, region)) = page.checked_sub(1).and_then(|page| self.0.up_to(&page)) else {
            return Ok(());
        };
        if region.pages.end <= page {
            return Ok(());
        }
        let mut right = region.clone();
        right.pages.start = page;
        right.backing = right.backing.after(page - start);
        self.0.insert(page, right)?;
        if let Some(left) = self.0.get_mut(&start) {
            left.pages.end = page;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: u64 = 64;

    /// A region of `pages` whose label differs from those of its neighbours.
    fn region(pages: Range<u64>) -> Region {
        let label = pages.start as u32;
        Region {
            pages,
            rights: Rights::ALL,
            asked: Rights::ALL,
            backing: Backing::Anonymous,
            wired: Wired::No,
            label,
            module: Module::default(),
            own: Own { number: 0, moved: 0 },
            has_own: false,
        }
    }

    /// Compares regions of random lengths, with random holes between them, with a list that records
    /// for each page whether a region contains it.
    #[test]
    fn the_hole_around_a_page_is_that_of_a_list_of_pages() {
        let mut below = crate::random::below();
        for _ in 0..200 {
            let (mut regions, mut has) = (Regions::default(), [false; PAGES as usize]);
            let mut page = below(8);
            while page < PAGES {
                let end = (page + 1 + below(9)).min(PAGES);
                regions.insert(region(page..end)).unwrap();
                (page..end).for_each(|page| has[page as usize] = true);
                // Regions may be adjacent.
                page = end + below(3) * below(9);
            }
            for page in 0..PAGES {
                let (start, end) = (below(page + 1), page + 1 + below(PAGES - page));
                let is_free = |page: &u64| !has[*page as usize];
                let before = (start..=page).rev().take_while(is_free).last();
                let after = (page..end).take_while(is_free).last();
                let expected = before.zip(after).map(|(first, last)| first..last + 1);
                let found = regions.hole_around(page, start..end);
                assert_eq!(found, expected, "{page} in {start}..{end}: {has:?}");
            }
        }
    }
}
