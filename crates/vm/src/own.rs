//! The table of a space's own pages: the anon at each page number.
//!
//! ```text
//!   page number | area (upper bits) | chunk (6 bits) | place (9 bits) |
//!                      |                  |                |
//!   areas  { 24: *, 65535: * }            |                |
//!                 +--> there   0110...    |                |       a bit for each of its 2^15 pages
//!                      chunks  [ - | - | * | - | ... ]     |       64 of 8 bytes
//!                                        +--> [ ? | anon 9 | anon 12 | ? | ... ]  512 of 4 bytes
//! ```
//!
//! The pages of a program are clustered. A search in an ordered map of single pages would mainly
//! cost cache misses. This table is an ordered map of *areas* of 2^15 pages each. A program has few
//! areas, and within an area a page is found by arithmetic. One bit per page shows whether the page
//! is present, and the bits of an area are adjacent. A fault on a page that is not present
//! therefore needs few cache lines, on few pages of the kernel.

use alloc::{boxed::Box, collections::TryReserveError, vec::Vec};
use core::ops::Range;

use crate::{anon::AnonId, sorted::SortedMap};

const CHUNK_SHIFT: u32 = 9;
const CHUNK_PAGES: usize = 1 << CHUNK_SHIFT;
const CHUNK_WORDS: usize = CHUNK_PAGES / 64;
const AREA_SHIFT: u32 = CHUNK_SHIFT + 6;
const AREA_PAGES: usize = 1 << AREA_SHIFT;
const AREA_CHUNKS: usize = 1 << (AREA_SHIFT - CHUNK_SHIFT);

/// The space's own (private anonymous) pages, by page number.
#[derive(Debug, Default)]
pub(crate) struct OwnPages(SortedMap<u64, One<Area>>);

/// A value in memory of its own, which is allocated by [`one`].
type One<T> = Box<[T; 1]>;

/// An aligned block of 2^15 pages (128 MiB of 4 KiB). It is freed when it has no page.
#[derive(Debug)]
struct Area {
    /// One bit for each page, set if the page is present.
    there: [u64; AREA_PAGES / 64],
    /// The anons of the pages that are present. A chunk is freed when it has no page.
    chunks: [Option<Box<[AnonId; CHUNK_PAGES]>>; AREA_CHUNKS],
}

impl OwnPages {
    #[inline]
    pub(crate) fn get(&self, page: u64) -> Option<AnonId> {
        self.area(page)?.get(page)
    }

    #[inline]
    fn area(&self, page: u64) -> Option<&Area> {
        self.0.get(&(page >> AREA_SHIFT)).map(|area| &area[0])
    }

    /// The address of a page's element, if its chunk exists; used to prefetch it.
    #[inline]
    pub(crate) fn place_of(&self, page: u64) -> Option<&AnonId> {
        let chunk = self.area(page)?.chunks[chunk_of(page)].as_ref()?;
        Some(&chunk[place(page)])
    }

    /// Allocates the memory for the anon at `page`, so that [`OwnPages::insert`] cannot fail.
    #[inline]
    pub(crate) fn prepare(&mut self, page: u64) -> Result<(), TryReserveError> {
        match self.0.get_mut(&(page >> AREA_SHIFT)) {
            Some(area) => area[0].prepare(page),
            None => self.prepare_area(page),
        }
    }

    #[cold]
    fn prepare_area(&mut self, page: u64) -> Result<(), TryReserveError> {
        let mut area = one(Area::default())?;
        area[0].prepare(page)?;
        self.0.insert(page >> AREA_SHIFT, area).map(drop)
    }

    /// Sets the anon at `page`, whatever it was before. [`OwnPages::prepare`] was called for the page.
    #[inline]
    pub(crate) fn insert(&mut self, page: u64, anon: AnonId) {
        let area = self.0.get_mut(&(page >> AREA_SHIFT));
        debug_assert!(area.is_some(), "the page was prepared");
        if let Some(area) = area {
            area[0].put(page, anon);
        }
    }

    /// A copy of all pages.
    pub(crate) fn try_clone(&self) -> Result<OwnPages, TryReserveError> {
        let mut copy = OwnPages::default();
        for (number, area) in self.0.iter() {
            copy.0.insert(number, one(area[0].try_clone()?)?)?;
        }
        Ok(copy)
    }

    /// All pages, ascending.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u64, AnonId)> {
        self.within(0..u64::MAX)
    }

    /// The pages that are present in `pages`, ascending; can be iterated from either end.
    pub(crate) fn within(
        &self,
        pages: Range<u64>,
    ) -> impl DoubleEndedIterator<Item = (u64, AnonId)> {
        let areas = self.0.range(parts(&pages, AREA_SHIFT));
        areas.flat_map(move |(number, area)| {
            let (area, pages) = (&area[0], pages_of(number, AREA_SHIFT, &pages));
            parts(&pages, CHUNK_SHIFT).flat_map(move |number| {
                let chunk = area.chunks[number as usize % AREA_CHUNKS].as_ref();
                let pages = pages_of(number, CHUNK_SHIFT, &pages);
                chunk.into_iter().flat_map(move |_| {
                    pages.clone().filter_map(|page| Some((page, area.get(page)?)))
                })
            })
        })
    }

    /// The number of pages that are present in `pages`. Chunks that are completely in `pages` are
    /// counted without examining each page.
    pub(crate) fn count(&self, pages: Range<u64>) -> u64 {
        let areas = self.0.range(parts(&pages, AREA_SHIFT));
        areas
            .flat_map(|(number, area)| {
                let (area, pages) = (&area[0], pages_of(number, AREA_SHIFT, &pages));
                parts(&pages, CHUNK_SHIFT).map(move |number| {
                    let pages = pages_of(number, CHUNK_SHIFT, &pages);
                    if pages.end - pages.start == CHUNK_PAGES as u64 {
                        return area.count(number as usize % AREA_CHUNKS);
                    }
                    pages.filter(|page| area.has(*page)).count() as u64
                })
            })
            .sum()
    }

    /// Removes the pages in `pages`. Calls `each` for each of them, ascending. Allocates nothing.
    pub(crate) fn drain(&mut self, pages: Range<u64>, mut each: impl FnMut(u64, AnonId)) {
        let areas = parts(&pages, AREA_SHIFT);
        let mut next = areas.start;
        while let Some(number) = self.0.next_key(next).filter(|number| *number < areas.end) {
            next = number + 1;
            let Some(area) = self.0.get_mut(&number) else { continue };
            let inside = pages_of(number, AREA_SHIFT, &pages);
            area[0].drain(inside.clone(), &mut each);
            area[0].trim(inside);
            if area[0].is_empty() {
                self.0.remove(&number);
            }
        }
    }

    /// Moves the pages in `pages`, which are `all`, to other page numbers. [`OwnPages::prepare`] was called
    /// for the new numbers. Allocates nothing.
    pub(crate) fn renumber(
        &mut self,
        pages: Range<u64>,
        all: &[(u64, AnonId)],
        number: impl Fn(u64) -> u64,
    ) {
        for (page, _) in all {
            if let Some(area) = self.0.get_mut(&(page >> AREA_SHIFT)) {
                area[0].there[word_of(*page)] &= !bit(*page);
            }
        }
        all.iter().for_each(|&(page, anon)| self.insert(number(page), anon));
        let areas = parts(&pages, AREA_SHIFT);
        let mut next = areas.start;
        while let Some(number) = self.0.next_key(next).filter(|number| *number < areas.end) {
            next = number + 1;
            let Some(area) = self.0.get_mut(&number) else { continue };
            area[0].trim(pages_of(number, AREA_SHIFT, &pages));
            if area[0].is_empty() {
                self.0.remove(&number);
            }
        }
    }
}

/// A value in memory of its own.
fn one<T>(value: T) -> Result<One<T>, TryReserveError> {
    let mut made = Vec::new();
    made.try_reserve_exact(1)?;
    made.push(value);
    Ok(exactly(made))
}

/// The elements of `made`, whose length is `N`.
fn exactly<T, const N: usize>(made: Vec<T>) -> Box<[T; N]> {
    match made.into_boxed_slice().try_into() {
        Ok(array) => array,
        Err(_) => unreachable!("the caller has made as many elements"),
    }
}

impl Default for Area {
    fn default() -> Area {
        Area { there: [0; AREA_PAGES / 64], chunks: [const { None }; AREA_CHUNKS] }
    }
}

impl Area {
    #[inline]
    fn has(&self, page: u64) -> bool {
        self.there[word_of(page)] & bit(page) != 0
    }

    #[inline]
    fn get(&self, page: u64) -> Option<AnonId> {
        if !self.has(page) {
            return None;
        }
        self.chunks[chunk_of(page)].as_ref().map(|chunk| chunk[place(page)])
    }

    #[inline]
    fn prepare(&mut self, page: u64) -> Result<(), TryReserveError> {
        if self.chunks[chunk_of(page)].is_none() {
            self.chunks[chunk_of(page)] = Some(chunk()?);
        }
        Ok(())
    }

    #[inline]
    fn put(&mut self, page: u64, anon: AnonId) {
        let chunk = &mut self.chunks[chunk_of(page)];
        debug_assert!(chunk.is_some(), "the page was prepared");
        if let Some(chunk) = chunk {
            chunk[place(page)] = anon;
            self.there[word_of(page)] |= bit(page);
        }
    }

    fn try_clone(&self) -> Result<Area, TryReserveError> {
        let mut copy = Area { there: self.there, ..Area::default() };
        for (to, from) in copy.chunks.iter_mut().zip(&self.chunks) {
            if let Some(from) = from {
                let mut made = chunk()?;
                made.copy_from_slice(&from[..]);
                *to = Some(made);
            }
        }
        Ok(copy)
    }

    /// Removes the pages in `pages`, which are within the area.
    fn drain(&mut self, pages: Range<u64>, each: &mut impl FnMut(u64, AnonId)) {
        for number in parts(&pages, CHUNK_SHIFT) {
            let at = number as usize % AREA_CHUNKS;
            let Some(chunk) = &self.chunks[at] else { continue };
            for page in pages_of(number, CHUNK_SHIFT, &pages) {
                let word = &mut self.there[word_of(page)];
                if *word & bit(page) != 0 {
                    *word &= !bit(page);
                    each(page, chunk[place(page)]);
                }
            }
        }
    }

    /// Frees the chunks that overlap `pages` and have no page.
    fn trim(&mut self, pages: Range<u64>) {
        for number in parts(&pages, CHUNK_SHIFT) {
            let at = number as usize % AREA_CHUNKS;
            if self.count(at) == 0 {
                self.chunks[at] = None;
            }
        }
    }

    /// The number of pages of a chunk that are present.
    fn count(&self, chunk: usize) -> u64 {
        self.there[words_of(chunk)].iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn is_empty(&self) -> bool {
        self.there.iter().all(|word| *word == 0)
    }
}

/// Room for the anons of a chunk, before any is present.
#[cold]
fn chunk() -> Result<Box<[AnonId; CHUNK_PAGES]>, TryReserveError> {
    let mut made = Vec::new();
    made.try_reserve_exact(CHUNK_PAGES)?;
    made.resize(CHUNK_PAGES, AnonId(0));
    Ok(exactly(made))
}

/// The numbers of the aligned parts of `2^shift` pages that overlap `pages`.
fn parts(pages: &Range<u64>, shift: u32) -> Range<u64> {
    match pages.end.checked_sub(1) {
        Some(last) if pages.start <= last => pages.start >> shift..(last >> shift) + 1,
        _ => 0..0,
    }
}

/// The intersection of `pages` with the part `number` of `2^shift` pages.
fn pages_of(number: u64, shift: u32, pages: &Range<u64>) -> Range<u64> {
    let first = number << shift;
    pages.start.max(first)..pages.end.min(first + (1 << shift))
}

fn chunk_of(page: u64) -> usize {
    (page >> CHUNK_SHIFT) as usize % AREA_CHUNKS
}

/// The indices of the words with the bits of a chunk's pages.
fn words_of(chunk: usize) -> Range<usize> {
    chunk * CHUNK_WORDS..(chunk + 1) * CHUNK_WORDS
}

fn word_of(page: u64) -> usize {
    page as usize % AREA_PAGES / 64
}

fn place(page: u64) -> usize {
    page as usize % CHUNK_PAGES
}

/// The mask of the page's bit in its word.
fn bit(page: u64) -> u64 {
    1 << (page % 64)
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    /// Pages in three areas, read and removed in ranges that begin and end anywhere, compared with
    /// an ordered map.
    #[test]
    fn is_an_ordered_map() {
        let (mut own, mut map) = (OwnPages::default(), BTreeMap::new());
        let mut below = crate::random::below();
        for step in 0..3000u32 {
            let page = (1 << AREA_SHIFT) - 700 + below(1400) + (below(2) << (AREA_SHIFT + 3));
            let pages = page..page + below(1300);
            match below(40) {
                0 => {
                    let mut taken = Vec::new();
                    own.drain(pages.clone(), |page, anon| taken.push((page, anon)));
                    let expected: Vec<_> =
                        map.range(pages.clone()).map(|(&k, &v)| (k, v)).collect();
                    assert_eq!(taken, expected);
                    map.retain(|page, _| !pages.contains(page));
                }
                2 => {
                    let count = map.range(pages.clone()).count() as u64;
                    assert_eq!(own.count(pages), count);
                }
                1 => {
                    let seen: Vec<_> = own.within(pages.clone()).rev().collect();
                    let all = map.range(pages).rev().map(|(&k, &v)| (k, v));
                    assert_eq!(seen, all.collect::<Vec<_>>());
                }
                3 => own = own.try_clone().unwrap(),
                4 => {
                    // The pages are renumbered to pages in the same area or in another area.
                    let by = [CHUNK_PAGES as u64, 1 << (AREA_SHIFT + 1)][below(2) as usize] + 7;
                    let pages = page..page + below(CHUNK_PAGES as u64);
                    let to = pages.start + by..pages.end + by;
                    own.drain(to.clone(), |_, _| ());
                    map.retain(|page, _| !to.contains(page));
                    let all: Vec<_> = own.within(pages.clone()).collect();
                    all.iter().for_each(|(page, _)| own.prepare(page + by).unwrap());
                    own.renumber(pages, &all, |page| page + by);
                    all.iter().for_each(|(page, _)| _ = map.remove(page));
                    map.extend(all.iter().map(|(page, anon)| (page + by, *anon)));
                }
                _ => {
                    own.prepare(page).unwrap();
                    own.insert(page, AnonId(step));
                    map.insert(page, AnonId(step));
                }
            }
            assert_eq!(own.get(page), map.get(&page).copied());
        }
        assert!(own.each().eq(map.iter().map(|(&page, &anon)| (page, anon))));
        own.drain(0..u64::MAX, |_, _| ());
        assert!(own.0.is_empty());
    }
}
