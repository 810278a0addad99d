//! Which anon a space has at each of its pages.
//!
//! ```text
//!   page number | chunk (upper bits) | place (9 bits) |
//!                      |                   |
//!   chunks  { 3: *, 2048: * }              v
//!                       +--> pages 2   [ - | anon 9 | anon 12 | - | ... ]   512 of 4 bytes
//! ```
//!
//! Pages of a program lie together. Of a search in an ordered map of single pages most is misses of
//! the processor's caches; there are 512 times fewer chunks, and their places are found by
//! arithmetic.

use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use core::ops::Range;

use crate::anon::AnonId;

const CHUNK_SHIFT: u32 = 9;
const CHUNK_PAGES: usize = 1 << CHUNK_SHIFT;

/// No anon has this number: there are fewer than frames and places of swap together.
const NONE: AnonId = AnonId(u32::MAX);

/// The pages that a space has stored to where they are its own, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnPages(BTreeMap<u64, Chunk>);

#[derive(Clone, Debug)]
struct Chunk {
    /// Places that are not [`NONE`]; a chunk without any is dropped.
    used: u32,
    anons: Box<[AnonId; CHUNK_PAGES]>,
}

impl OwnPages {
    pub(crate) fn get(&self, page: u64) -> Option<AnonId> {
        let chunk = self.0.get(&(page >> CHUNK_SHIFT))?;
        Some(chunk.anons[place(page)]).filter(|&anon| anon != NONE)
    }

    /// The page is `anon` from here on, whatever it was.
    pub(crate) fn insert(&mut self, page: u64, anon: AnonId) {
        self.0.entry(page >> CHUNK_SHIFT).or_default().put(page, anon);
    }

    /// All pages, by number.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u64, AnonId)> {
        self.0.iter().flat_map(|(&number, chunk)| {
            let pages = chunk.anons.iter().zip(number << CHUNK_SHIFT..);
            pages.filter(|(anon, _)| **anon != NONE).map(|(&anon, page)| (page, anon))
        })
    }

    /// What lies in `pages`, by number, from either end.
    pub(crate) fn within(
        &self,
        pages: Range<u64>,
    ) -> impl DoubleEndedIterator<Item = (u64, AnonId)> {
        let numbers = pages.start >> CHUNK_SHIFT..pages.end.div_ceil(CHUNK_PAGES as u64);
        let numbers = if pages.is_empty() { 0..0 } else { numbers };
        self.0.range(numbers).flat_map(move |(&number, chunk)| {
            let first = number << CHUNK_SHIFT;
            let inside = pages.start.max(first)..pages.end.min(first + CHUNK_PAGES as u64);
            inside.map(|page| (page, chunk.anons[place(page)])).filter(|(_, anon)| *anon != NONE)
        })
    }

    /// Takes out what lies in `pages`.
    pub(crate) fn take(&mut self, pages: Range<u64>) -> OwnPages {
        let Some(last) = pages.end.checked_sub(1).filter(|last| pages.start <= *last) else {
            return OwnPages::default();
        };
        let numbers = pages.start >> CHUNK_SHIFT..=last >> CHUNK_SHIFT;
        let numbers: Vec<u64> = self.0.range(numbers).map(|(&number, _)| number).collect();
        let mut taken = BTreeMap::new();
        for number in numbers {
            let Some(mut chunk) = self.0.remove(&number) else { continue };
            let first = number << CHUNK_SHIFT;
            let mut left = Chunk::default();
            for page in (first..pages.start).chain(pages.end..first + CHUNK_PAGES as u64) {
                left.put(page, chunk.put(page, NONE));
            }
            if left.used > 0 {
                self.0.insert(number, left);
            }
            if chunk.used > 0 {
                taken.insert(number, chunk);
            }
        }
        OwnPages(taken)
    }
}

impl Default for Chunk {
    fn default() -> Chunk {
        Chunk { used: 0, anons: Box::new([NONE; CHUNK_PAGES]) }
    }
}

impl Chunk {
    /// Exchanges what is at a page of the chunk.
    fn put(&mut self, page: u64, anon: AnonId) -> AnonId {
        let before = core::mem::replace(&mut self.anons[place(page)], anon);
        self.used = self.used + u32::from(anon != NONE) - u32::from(before != NONE);
        before
    }
}

fn place(page: u64) -> usize {
    page as usize % CHUNK_PAGES
}
