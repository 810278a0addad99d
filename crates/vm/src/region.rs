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
//! range, so that it deals only with whole regions.

use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::Range;

use addr::Rights;

use crate::{module::Module, object::ObjectId};

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
    /// The rights that were requested, which can be fewer than `rights`: the page table may be
    /// unable to distinguish some rights. Regions with different requests are never joined.
    pub asked: Rights,
    /// Where the region's pages come from.
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

/// Where the pages of a region come from.
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
}

impl Backing {
    /// The backing of the part of the region after its first `pages` pages.
    pub(crate) fn after(self, pages: u64) -> Backing {
        match self {
            Backing::Anonymous => Backing::Anonymous,
            Backing::Private { object, first } => Backing::Private { object, first: first + pages },
            Backing::Shared { object, first } => Backing::Shared { object, first: first + pages },
        }
    }

    /// The object, if there is one.
    pub(crate) fn object(self) -> Option<ObjectId> {
        match self {
            Backing::Anonymous => None,
            Backing::Private { object, .. } | Backing::Shared { object, .. } => Some(object),
        }
    }
}

/// All regions of a space, by first page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions(BTreeMap<u64, Region>);

impl Regions {
    /// The region that contains `page`.
    pub(crate) fn at(&self, page: u64) -> Option<&Region> {
        let (_, region) = self.0.range(..=page).next_back()?;
        region.pages.contains(&page).then_some(region)
    }

    /// The region that contains `page`, or the first one after it.
    pub(crate) fn from(&self, page: u64) -> Option<&Region> {
        self.at(page).or_else(|| self.0.range(page..).next().map(|(_, region)| region))
    }

    /// The part of `near` around `page` in which regions are adjacent and their own pages belong to
    /// one object, as with parts of a mapping that have different rights.
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
        self.0.values_mut().for_each(|region| region.own = other(region.own));
    }

    /// All regions, by address.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Region> {
        self.0.values()
    }

    /// The regions that overlap `pages`, the last first.
    pub(crate) fn within(&self, pages: &Range<u64>) -> impl Iterator<Item = &Region> {
        let start = pages.start;
        let before = self.0.range(..pages.end).rev().map(|(_, region)| region);
        before.take_while(move |region| region.pages.end > start)
    }

    /// The range from the first page of the first region to the last page of the last.
    pub(crate) fn hull(&self) -> Option<Range<u64>> {
        let (first, _) = self.0.first_key_value()?;
        let (_, last) = self.0.last_key_value()?;
        Some(*first..last.pages.end)
    }

    /// Records that the region that contains `page` has pages of its own.
    pub(crate) fn set_own(&mut self, page: u64) {
        if let Some((_, region)) = self.0.range_mut(..=page).next_back() {
            region.has_own = true;
        }
    }

    /// The parts of `pages` that are in regions for which `holds` is true; adjacent parts are
    /// joined.
    pub(crate) fn parts(
        &self,
        pages: &Range<u64>,
        holds: impl Fn(&Region) -> bool,
    ) -> Vec<Range<u64>> {
        let mut parts: Vec<Range<u64>> = Vec::new();
        let inside: Vec<&Region> = self.within(pages).filter(|region| holds(region)).collect();
        for region in inside.into_iter().rev() {
            let (start, end) =
                (pages.start.max(region.pages.start), pages.end.min(region.pages.end));
            match parts.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => parts.push(start..end),
            }
        }
        parts
    }

    /// The part of `pages` around `page` that no region contains; `None` if a region contains
    /// `page`.
    pub(crate) fn hole_around(&self, page: u64, pages: Range<u64>) -> Option<Range<u64>> {
        let before = self.0.range(..=page).next_back().map_or(0, |(_, region)| region.pages.end);
        let after = self.0.range(page..).next().map_or(u64::MAX, |(&start, _)| start);
        (before <= page).then(|| pages.start.max(before)..pages.end.min(after))
    }

    /// Inserts a region at addresses without a region, and joins it with equal neighbours.
    pub(crate) fn insert(&mut self, region: Region) {
        debug_assert!(
            self.0
                .range(..region.pages.end)
                .next_back()
                .is_none_or(|(_, before)| { before.pages.end <= region.pages.start })
        );
        if !region.pages.is_empty() {
            let pages = region.pages.clone();
            self.0.insert(region.pages.start, region);
            self.join(pages.start);
            self.join(pages.end);
        }
    }

    /// Inserts a region at addresses without a region, without joining it to its neighbours, as a
    /// fork does.
    pub(crate) fn insert_apart(&mut self, region: Region) {
        self.0.insert(region.pages.start, region);
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
        let inside: Vec<&Region> = self.within(pages).collect();
        for region in inside.into_iter().rev() {
            if !holes && region.pages.start > end || !holds(region) {
                return pages.start..if holes { region.pages.start.max(pages.start) } else { end };
            }
            end = region.pages.end.min(pages.end);
        }
        pages.start..if holes { pages.end } else { end }
    }

    /// Removes and returns the regions in `pages`.
    pub(crate) fn take(&mut self, pages: Range<u64>) -> Vec<Region> {
        self.cut_ends(&pages);
        let starts: Vec<u64> = self.0.range(pages).map(|(&start, _)| start).collect();
        starts.iter().filter_map(|start| self.0.remove(start)).collect()
    }

    /// Calls `change` for the regions in `pages`.
    pub(crate) fn change(&mut self, pages: Range<u64>, mut change: impl FnMut(&mut Region)) {
        self.cut_ends(&pages);
        let inside = self.0.range_mut(pages.clone());
        let mut ends = Vec::from([pages.start]);
        inside.for_each(|(_, region)| {
            change(region);
            ends.push(region.pages.end);
        });
        ends.into_iter().for_each(|page| self.join(page));
    }

    /// Joins two regions that meet at `page` if they have the same properties, so that a large page
    /// can span memory that was mapped in pieces, for example a heap.
    fn join(&mut self, page: u64) {
        let Some(right) = self.0.get(&page) else { return };
        let Some((_, left)) = self.0.range(..page).next_back() else { return };
        let count = left.pages.end - left.pages.start;
        let goes_on = Region {
            pages: left.pages.end..right.pages.end,
            backing: left.backing.after(count),
            // From here on, new pages are placed by the left region's rule; pages placed before
            // keep their places.
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

    fn cut_ends(&mut self, pages: &Range<u64>) {
        self.cut(pages.start);
        self.cut(pages.end);
    }

    /// Splits a region so that one begins at `page`.
    fn cut(&mut self, page: u64) {
        let Some((&start, region)) = self.0.range_mut(..page).next_back() else { return };
        if region.pages.end <= page {
            return;
        }
        let mut right = region.clone();
        region.pages.end = page;
        right.pages.start = page;
        right.backing = right.backing.after(page - start);
        self.0.insert(page, right);
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

    /// Regions of any length with any holes between them, compared with a list that says for each
    /// page whether a region contains it.
    #[test]
    fn the_hole_around_a_page_is_that_of_a_list_of_pages() {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        for _ in 0..200 {
            let (mut regions, mut has) = (Regions::default(), [false; PAGES as usize]);
            let mut page = below(8);
            while page < PAGES {
                let end = (page + 1 + below(9)).min(PAGES);
                regions.insert(region(page..end));
                (page..end).for_each(|page| has[page as usize] = true);
                // Regions may lie side by side.
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
