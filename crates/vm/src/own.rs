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
//! The pages of a program are clustered. A search in an ordered map of single pages would cost mainly cache
//! misses. There are 2^15 times fewer areas than pages, so a program has few areas, and within an
//! area a page is found by arithmetic. One bit says whether a page is present, and the bits for 128
//! MiB are adjacent: a fault on a page that is not present needs few cache lines, on few pages of
//! the kernel.

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use core::ops::Range;

use crate::anon::AnonId;

const CHUNK_SHIFT: u32 = 9;
const CHUNK_PAGES: usize = 1 << CHUNK_SHIFT;
const CHUNK_WORDS: usize = CHUNK_PAGES / 64;
const AREA_SHIFT: u32 = CHUNK_SHIFT + 6;
const AREA_PAGES: usize = 1 << AREA_SHIFT;
const AREA_CHUNKS: usize = 1 << (AREA_SHIFT - CHUNK_SHIFT);

/// The space's own (private anonymous) pages, by page number.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnPages(BTreeMap<u64, Box<Area>>);

/// An aligned block of 2^15 pages (128 MiB of 4 KiB). It is freed when it has no page.
#[derive(Clone, Debug)]
struct Area {
    /// One bit for each page, set if the page is present.
    there: [u64; AREA_PAGES / 64],
    /// The anons of the pages that are present. A chunk is freed when it has no page.
    chunks: [Option<Box<[AnonId; CHUNK_PAGES]>>; AREA_CHUNKS],
}

impl OwnPages {
    #[inline]
    pub(crate) fn get(&self, page: u64) -> Option<AnonId> {
        self.0.get(&(page >> AREA_SHIFT))?.get(page)
    }

    /// The address of a page's element, if its chunk exists; used to prefetch it.
    #[inline]
    pub(crate) fn place_of(&self, page: u64) -> Option<&AnonId> {
        let chunk = self.0.get(&(page >> AREA_SHIFT))?.chunks[chunk_of(page)].as_ref()?;
        Some(&chunk[place(page)])
    }

    /// Sets the anon at `page`, whatever it was before.
    #[inline]
    pub(crate) fn insert(&mut self, page: u64, anon: AnonId) {
        self.0.entry(page >> AREA_SHIFT).or_default().put(page, anon);
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
        areas.flat_map(move |(&number, area)| {
            let pages = pages_of(number, AREA_SHIFT, &pages);
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
    /// counted without looking at each page.
    pub(crate) fn count(&self, pages: Range<u64>) -> u64 {
        let areas = self.0.range(parts(&pages, AREA_SHIFT));
        areas
            .flat_map(|(&number, area)| {
                let pages = pages_of(number, AREA_SHIFT, &pages);
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

    /// Removes and returns the pages in `pages`.
    pub(crate) fn take(&mut self, pages: Range<u64>) -> OwnPages {
        let mut taken = BTreeMap::new();
        let areas = self.0.range(parts(&pages, AREA_SHIFT));
        let areas: Vec<u64> = areas.map(|(&number, _)| number).collect();
        for number in areas {
            let Some(area) = self.0.get_mut(&number) else { continue };
            let gone = area.take(pages_of(number, AREA_SHIFT, &pages));
            if area.is_empty() {
                self.0.remove(&number);
            }
            if !gone.is_empty() {
                taken.insert(number, gone);
            }
        }
        OwnPages(taken)
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
    fn put(&mut self, page: u64, anon: AnonId) {
        self.there[word_of(page)] |= bit(page);
        let new = || Box::new([AnonId(0); CHUNK_PAGES]);
        self.chunks[chunk_of(page)].get_or_insert_with(new)[place(page)] = anon;
    }

    /// Removes and returns the pages in `pages`, which are within the area.
    fn take(&mut self, pages: Range<u64>) -> Box<Area> {
        let mut gone = Box::<Area>::default();
        for number in parts(&pages, CHUNK_SHIFT) {
            let at = number as usize % AREA_CHUNKS;
            let inside = pages_of(number, CHUNK_SHIFT, &pages);
            if inside.end - inside.start == CHUNK_PAGES as u64 {
                gone.chunks[at] = self.chunks[at].take();
                for word in words_of(at) {
                    gone.there[word] = core::mem::take(&mut self.there[word]);
                }
                continue;
            }
            for page in inside {
                if let Some(anon) = self.get(page) {
                    self.there[word_of(page)] &= !bit(page);
                    gone.put(page, anon);
                }
            }
            if self.count(at) == 0 {
                self.chunks[at] = None;
            }
        }
        gone
    }

    /// The number of pages of a chunk that are present.
    fn count(&self, chunk: usize) -> u64 {
        self.there[words_of(chunk)].iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn is_empty(&self) -> bool {
        self.there.iter().all(|word| *word == 0)
    }
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
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        for step in 0..3000u32 {
            let page = (1 << AREA_SHIFT) - 700 + below(1400) + (below(2) << (AREA_SHIFT + 3));
            let pages = page..page + below(1300);
            match below(40) {
                0 => {
                    let taken: Vec<_> = own.take(pages.clone()).each().collect();
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
                _ => {
                    own.insert(page, AnonId(step));
                    map.insert(page, AnonId(step));
                }
            }
            assert_eq!(own.get(page), map.get(&page).copied());
        }
        assert!(own.each().eq(map.iter().map(|(&page, &anon)| (page, anon))));
        drop(own.take(0..u64::MAX));
        assert!(own.0.is_empty());
    }
}
