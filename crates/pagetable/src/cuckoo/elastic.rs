//! One elastic cuckoo table: the pages of one size in one space.
//!
//! ```text
//!   way 0, now    [moved . . |P . . . . ]        next  [ . . . . . . . . . . . . . . . . ]
//!   way 1, now    [moved . . |P . . . . ]        next  [ . . . . . . . . . . . . . . . . ]
//!                             the place i of a way is i or i + (places now) in the next one
//! ```
//!
//! A table that fills up gets ways of twice the size. Each insertion moves one place of every
//! way over: what a way holds below `P` is in the next one. Since the next one's index has one
//! bit more and else the same, the two places that a moved line could go to are still empty.

use alloc::vec::Vec;

use addr::{Frames, Memory, OutOfFrames, PageSize, PhysAddr, VirtAddr, VirtRange};

use super::line::{LINE_BYTES, Line, PAGES, tag_part};
use super::ways::{Ways, frame_size};
use crate::Flush;
use crate::pte::{Pte, Width};

const PAGES_SHIFT: u32 = PAGES.trailing_zeros();

const KICKS_MAX: usize = 64;
/// A table is too full when more than this many of ten places are taken (0.6 in the paper).
const FULL_TENTHS: u64 = 6;

/// The table of one page size.
#[derive(Debug)]
pub(crate) struct Elastic {
    size: PageSize,
    now: Ways,
    /// The ways that take over, and how many places of each way have been moved.
    next: Option<(Ways, u64)>,
    lines: u64,
}

impl Elastic {
    pub(super) fn new(
        size: PageSize,
        ways: usize,
        places: u64,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Elastic, OutOfFrames> {
        let now = Ways::new(ways, places, memory, frames)?;
        Ok(Elastic { size, now, next: None, lines: 0 })
    }

    pub(super) const fn size(&self) -> PageSize {
        self.size
    }

    pub(super) fn root(&self) -> PhysAddr {
        self.now.bases[0]
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.lines == 0
    }

    pub(super) fn bytes(&self) -> u64 {
        self.now.bytes() + self.next.as_ref().map_or(0, |(next, _)| next.bytes())
    }

    /// Gives up all frames.
    pub(super) fn put_all(self, flush: &mut Flush) {
        let next = self.next.map(|(next, _)| next);
        for ways in core::iter::once(self.now).chain(next) {
            for base in ways.bases {
                flush.add_table(base, frame_size(ways.places));
            }
        }
    }

    fn cluster(&self, addr: VirtAddr) -> u64 {
        addr.get() >> (self.size.shift() + PAGES_SHIFT)
    }

    /// The places, one in each way, where the line for `addr` can be.
    #[inline]
    pub(super) fn places(&self, addr: VirtAddr) -> impl Iterator<Item = PhysAddr> + '_ {
        let cluster = self.cluster(addr);
        (0..self.now.bases.len()).map(move |way| self.place(way, cluster))
    }

    #[inline]
    fn place(&self, way: usize, cluster: u64) -> PhysAddr {
        let hash = hash(way, cluster);
        let index = hash & (self.now.places - 1);
        match &self.next {
            Some((next, moved)) if index < *moved => next.at(way, hash & (next.places - 1)),
            _ => self.now.at(way, index),
        }
    }

    /// Where the entry of the page at `addr` lies in the line at `place`, if the line is that of
    /// its cluster; a line without pages is nobody's.
    #[inline]
    pub(super) fn entry_in(
        &self,
        place: PhysAddr,
        addr: VirtAddr,
        memory: &impl Memory,
    ) -> Option<PhysAddr> {
        let line = Line::read(place, memory);
        let same = line.cluster() == self.cluster(addr) && line.is_used();
        let index = addr.get() >> self.size.shift() & (PAGES - 1);
        same.then(|| place.wrapping_add(index * 8))
    }

    /// Where the entry of the page at `addr` lies, if its line is there.
    pub(super) fn entry(&self, addr: VirtAddr, memory: &impl Memory) -> Option<PhysAddr> {
        self.places(addr).find_map(|place| self.entry_in(place, addr, memory))
    }

    /// Gives each entry of a page in `range` that is mapped.
    pub(super) fn gather(
        &self,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(VirtAddr, PhysAddr, Pte),
    ) {
        let cluster_size = PageSize::from_shift((self.size.shift() + PAGES_SHIFT) as u8);
        let cluster_size = cluster_size.unwrap_or(self.size);
        let clusters = self.cluster(range.last()) - self.cluster(range.start());
        let mut line = |start: VirtAddr, at: PhysAddr| {
            let Some(part) = VirtRange::of_page(start.page(cluster_size)).intersection(range)
            else {
                return;
            };
            for page in part.pages(self.size) {
                let index = page.number() & (PAGES - 1);
                let at = at.wrapping_add(index * 8);
                let pte = Width::Wide.read(at, memory);
                if pte.is_mapped() {
                    each(page.start(), at, pte);
                }
            }
        };
        if clusters < self.bytes() / LINE_BYTES {
            for page in range.pages(cluster_size) {
                if let Some(at) = self.entry(page.start(), memory) {
                    line(page.start(), at);
                }
            }
            return;
        }
        let moved = self.next.as_ref().map_or(0, |(_, moved)| *moved);
        let next = self.next.iter().flat_map(|(next, _)| next.lines(0));
        for at in self.now.lines(moved).chain(next) {
            let found = Line::read(at, memory);
            if found.is_used() {
                line(VirtAddr::new(found.cluster() << cluster_size.shift()), at);
            }
        }
    }

    /// Enters `pte` for the page at `addr`, for which there is none.
    pub(super) fn insert(
        &mut self,
        addr: VirtAddr,
        pte: Pte,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), OutOfFrames> {
        let cluster = self.cluster(addr);
        let index = addr.get() >> self.size.shift() & (PAGES - 1);
        let pte = pte.bits() | tag_part(cluster, index);
        if let Some(at) = self.entry(addr, memory) {
            memory.write_u64(at, pte);
            return Ok(());
        }
        let mut line = Line::of(cluster);
        line.0[index as usize] = pte;
        let places = self.now.places * self.now.bases.len() as u64;
        if self.next.is_none() && 10 * self.lines >= FULL_TENTHS * places {
            self.start_growing(memory, frames)?;
        }
        self.move_over(memory, frames);
        while !self.settle(line, memory) {
            match self.next {
                None => self.start_growing(memory, frames)?,
                Some(_) => self.move_over(memory, frames),
            }
        }
        self.lines += 1;
        Ok(())
    }

    /// Gives up the line of the page whose entry lies at `at`, if it has no page any more.
    pub(super) fn release(&mut self, at: PhysAddr, memory: &mut impl Memory) {
        let place = PhysAddr::new(at.get() & !(LINE_BYTES - 1));
        if !Line::read(place, memory).is_used() {
            memory.zero(place, LINE_BYTES);
            self.lines -= 1;
        }
    }

    fn start_growing(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), OutOfFrames> {
        let ways = self.now.bases.len();
        self.next = Some((Ways::new(ways, 2 * self.now.places, memory, frames)?, 0));
        Ok(())
    }

    /// Moves the next place of each way over, and lets the old ways go after the last.
    fn move_over(&mut self, memory: &mut impl Memory, frames: &mut impl Frames) {
        let Some((next, moved)) = &mut self.next else { return };
        for way in 0..self.now.bases.len() {
            let line = Line::read(self.now.at(way, *moved), memory);
            if line.is_used() {
                let index = hash(way, line.cluster()) & (next.places - 1);
                line.write(next.at(way, index), memory);
            }
        }
        *moved += 1;
        if *moved == self.now.places
            && let Some((next, _)) = self.next.take()
        {
            let old = core::mem::replace(&mut self.now, next);
            for base in old.bases {
                frames.free(base, frame_size(old.places));
            }
        }
    }

    /// Puts `line` into one of its places, kicking others to one of theirs; whether it worked.
    /// If not, all is as it was.
    fn settle(&self, line: Line, memory: &mut impl Memory) -> bool {
        let ways = self.now.bases.len();
        let mut homeless = line;
        let mut kicked: Vec<PhysAddr> = Vec::new();
        let mut last_way = ways;
        for kick in 0..=KICKS_MAX {
            let cluster = homeless.cluster();
            let places = (0..ways).map(|way| self.place(way, cluster));
            for place in places {
                if !Line::read(place, memory).is_used() {
                    homeless.write(place, memory);
                    return true;
                }
            }
            if kick == KICKS_MAX {
                break;
            }
            let drawn = (hash(ways, cluster) >> (kick % 32)) as usize % ways;
            let way = if drawn == last_way { (drawn + 1) % ways } else { drawn };
            let place = self.place(way, cluster);
            let evicted = Line::read(place, memory);
            homeless.write(place, memory);
            (homeless, last_way) = (evicted, way);
            kicked.push(place);
        }
        for &place in kicked.iter().rev() {
            let back = Line::read(place, memory);
            homeless.write(place, memory);
            homeless = back;
        }
        false
    }
}

/// A hash of `cluster` for each way; its lower bits are the index.
#[inline]
const fn hash(way: usize, cluster: u64) -> u64 {
    let seed = (way as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (cluster ^ seed).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 32
}
