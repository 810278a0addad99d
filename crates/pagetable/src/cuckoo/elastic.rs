//! One elastic cuckoo table: the pages of one size in one space.
//!
//! ```text
//!   way 0, now    [moved . . |P . . . . ]        next  [ . . . . . . . . . . . . . . . . ]
//!   way 1, now    [moved . . |P . . . . ]        next  [ . . . . . . . . . . . . . . . . ]
//!                             the place i of a way is i or i + (places now) in the next one
//! ```
//!
//! A table that fills up gets additional ways of twice the size, to which its lines are moved. Each
//! insertion moves one line of every way: lines below `P` have already been moved to the larger
//! way. The index into the larger way is the old index with one more bit, so the two places to
//! which a line can move are still empty.

use core::iter;

use addr::{Frames, Memory, OutOfFrames, PageSize, PhysAddr, VirtAddr, VirtRange};

use super::line::{LINE_BYTES, Line, PAGES, tag_part};
use super::ways::Ways;
use crate::few::Few;
use crate::pages::Run;
use crate::pte::{Pte, Width};
use crate::{Error, Flush, Translation};

/// The lines that must be added for the pages of a run.
type Lines = Few<Line, 1>;

const PAGES_SHIFT: u32 = PAGES.trailing_zeros();

const KICKS_MAX: usize = 64;
/// A table grows when at least this number of every ten places is in use (0.6 in the paper).
const FULL_TENTHS: u64 = 6;

/// The table of the pages of one size.
#[derive(Debug)]
pub(crate) struct Elastic {
    size: PageSize,
    now: Ways,
    /// While the table grows: the larger ways, to which lines move, and the number of places of
    /// each old way that have been moved.
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
        self.now.bases()[0]
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.lines == 0
    }

    pub(super) fn bytes(&self) -> u64 {
        self.now.bytes() + self.next.as_ref().map_or(0, |(next, _)| next.bytes())
    }

    /// The number of frames that the table occupies.
    pub(super) fn frames(&self) -> usize {
        let each = self.now.bases().len();
        if self.next.is_some() { 2 * each } else { each }
    }

    /// Hands all frames over to `flush`, which frees them after the flush.
    pub(super) fn put_all(self, flush: &mut Flush) {
        self.now.put_all(flush);
        if let Some((next, _)) = self.next {
            next.put_all(flush);
        }
    }

    /// Frees the frames of a table that was never walked.
    pub(super) fn free(self, frames: &mut impl Frames) {
        self.now.free(frames);
        if let Some((next, _)) = self.next {
            next.free(frames);
        }
    }

    fn cluster(&self, addr: VirtAddr) -> u64 {
        addr.get() >> (self.size.shift() + PAGES_SHIFT)
    }

    /// The places, one in each way, where the line for `addr` can be.
    #[inline]
    pub(super) fn places(&self, addr: VirtAddr) -> impl Iterator<Item = PhysAddr> + '_ {
        self.places_of(self.cluster(addr))
    }

    #[inline]
    fn places_of(&self, cluster: u64) -> impl Iterator<Item = PhysAddr> + '_ {
        (0..self.now.bases().len()).map(move |way| self.place(way, cluster))
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

    /// The address of the entry for the page at `addr`, in the line at `place`, if that line is in
    /// use and belongs to the page's cluster.
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

    /// The address of the entry for the page at `addr`, if its line exists.
    pub(super) fn entry(&self, addr: VirtAddr, memory: &impl Memory) -> Option<PhysAddr> {
        self.places(addr).find_map(|place| self.entry_in(place, addr, memory))
    }

    /// Calls `each` for the entry of every mapped page in `range`.
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
        for at in self.lines_at() {
            let found = Line::read(at, memory);
            if found.is_used() {
                line(VirtAddr::new(found.cluster() << cluster_size.shift()), at);
            }
        }
    }

    /// Inserts all pages of `run`, or none if a frame is missing. None of them may be mapped.
    pub(super) fn insert(
        &mut self,
        run: &Run,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<(), Error> {
        if let Some(page) = run.single()
            && let Some(at) = self.entry(page.page.start(), memory)
        {
            memory.write_u64(at, self.word(page));
            return Ok(());
        }
        // Lines are inserted complete, since a line without pages would never be removed.
        let mut missing = Lines::new(Line::of(0));
        for page in run.pages() {
            let cluster = self.cluster(page.page.start());
            if missing.last_mut().is_none_or(|line| line.cluster() != cluster)
                && self.entry(page.page.start(), memory).is_none()
            {
                missing.push(Line::of(cluster))?;
            }
            if let Some(line) = missing.last_mut().filter(|line| line.cluster() == cluster) {
                line.0[self.index(page.page.start())] = self.word(page);
            }
        }
        match (missing.len(), missing.get(0)) {
            (0, _) | (_, None) => {}
            (1, Some(line)) => self.add_line(line, memory, frames, flush)?,
            _ => self.add_lines(&missing, memory, frames, flush)?,
        }
        self.lines += missing.len() as u64;
        for page in run.pages() {
            let (addr, word) = (page.page.start(), self.word(page));
            let cluster = self.cluster(addr);
            if !missing.has(|line| line.cluster().cmp(&cluster))
                && let Some(at) = self.entry(addr, memory)
            {
                memory.write_u64(at, word);
            }
        }
        Ok(())
    }

    /// The index, in its line, of the page at `addr`.
    fn index(&self, addr: VirtAddr) -> usize {
        (addr.get() >> self.size.shift() & (PAGES - 1)) as usize
    }

    /// The entry of `page` together with this entry's part of the line's tag.
    fn word(&self, page: Translation) -> u64 {
        let Translation { page, frame, rights, global, .. } = page;
        let part = tag_part(self.cluster(page.start()), self.index(page.start()) as u64);
        Width::Wide.pte(frame, rights, global).bits() | part
    }

    /// Frees the line in which the entry at `at` lies, if the line has no page any more.
    pub(super) fn release(&mut self, at: PhysAddr, memory: &mut impl Memory) {
        let place = PhysAddr::new(at.get() & !(LINE_BYTES - 1));
        if !Line::read(place, memory).is_used() {
            memory.zero(place, LINE_BYTES);
            self.lines -= 1;
        }
    }

    /// Inserts one line. If the table is too full, it starts to grow; during growth, each insertion
    /// moves one line of every way.
    fn add_line(
        &mut self,
        line: Line,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<(), Error> {
        let ends = self.next.as_ref().is_some_and(|(_, moved)| moved + 1 == self.now.places);
        if ends {
            flush.try_reserve(self.now.bases().len())?;
        }
        let starts = self.next.is_none() && 10 * self.lines >= FULL_TENTHS * self.now.lines_max();
        if starts {
            let ways = self.now.bases().len();
            self.next = Some((Ways::new(ways, 2 * self.now.places, memory, frames)?, 0));
        }
        self.move_over(memory);
        if !self.settle(line, memory)
            && let Err(error) = self.rebuild(iter::once(line), memory, frames, flush)
        {
            // The larger ways can be freed, because the old table still has the entries that were
            // copied to them.
            if starts && let Some((next, _)) = self.next.take() {
                next.free(frames);
            }
            return Err(error);
        }
        self.finish_growing(flush);
        Ok(())
    }

    /// Inserts lines into the table as it is, or, if these lines would make the table grow, into a
    /// larger table.
    fn add_lines(
        &mut self,
        lines: &Lines,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<(), Error> {
        let before_last = self.lines + lines.len() as u64 - 1;
        if self.next.is_none() && 10 * before_last < FULL_TENTHS * self.now.lines_max() {
            let Some(crowded) = lines.iter().position(|line| !self.settle(line, memory)) else {
                return Ok(());
            };
            for line in lines.iter().take(crowded) {
                let place = self.places_of(line.cluster());
                let mut place = place.filter(|&place| line.is_at(place, memory));
                memory.zero(place.next().expect("the line has just settled"), LINE_BYTES);
            }
        }
        self.rebuild(lines.iter(), memory, frames, flush)
    }

    /// Moves all lines and `more` into a new table that is large enough. The frames of the old
    /// table are in `flush`; an error leaves the old table as it was.
    fn rebuild(
        &mut self,
        more: impl Iterator<Item = Line> + Clone,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<(), Error> {
        let ways = self.now.bases().len();
        flush.try_reserve(self.frames())?;
        let lines = self.lines + more.clone().count() as u64;
        let mut places = self.next.as_ref().map_or(2 * self.now.places, |(next, _)| next.places);
        while 10 * lines > FULL_TENTHS * places * ways as u64 {
            places *= 2;
        }
        loop {
            let new = Elastic::new(self.size, ways, places, memory, frames)?;
            let settles = |line: Line, memory: &mut _| !line.is_used() || new.settle(line, memory);
            let fits = self.lines_at().all(|at| settles(Line::read(at, memory), memory))
                && more.clone().all(|line| settles(line, memory));
            if fits {
                let old = core::mem::replace(self, Elastic { lines: self.lines, ..new });
                old.put_all(flush);
                return Ok(());
            }
            new.free(frames);
            places *= 2;
        }
    }

    /// The addresses of all places, used or not, that can hold a line.
    fn lines_at(&self) -> impl Iterator<Item = PhysAddr> + '_ {
        let moved = self.next.as_ref().map_or(0, |(_, moved)| *moved);
        self.now.lines(moved).chain(self.next.iter().flat_map(|(next, _)| next.lines(0)))
    }

    /// Moves the line in the next place of each way to the larger way.
    fn move_over(&mut self, memory: &mut impl Memory) {
        let Some((next, moved)) = &mut self.next else { return };
        for way in 0..self.now.bases().len() {
            let line = Line::read(self.now.at(way, *moved), memory);
            if line.is_used() {
                let index = hash(way, line.cluster()) & (next.places - 1);
                line.write(next.at(way, index), memory);
            }
        }
        *moved += 1;
    }

    /// When the last place has been moved, removes the old ways; their frames are in `flush`.
    fn finish_growing(&mut self, flush: &mut Flush) {
        if let Some((next, _)) = self.next.take_if(|(_, moved)| *moved == self.now.places) {
            core::mem::replace(&mut self.now, next).put_all(flush);
        }
    }

    /// Puts `line` into one of its places; other lines may have to move to another of their places.
    /// Returns whether it succeeded; if not, nothing has changed.
    fn settle(&self, line: Line, memory: &mut impl Memory) -> bool {
        let ways = self.now.bases().len();
        let mut homeless = line;
        let mut kicked = [PhysAddr::new(0); KICKS_MAX];
        let mut last_way = ways;
        let rooms = kicked.iter_mut().map(Some).chain([None]);
        for (kick, moved) in rooms.enumerate() {
            let cluster = homeless.cluster();
            let places = (0..ways).map(|way| self.place(way, cluster));
            for place in places {
                if !Line::read(place, memory).is_used() {
                    homeless.write(place, memory);
                    return true;
                }
            }
            let Some(moved) = moved else { break };
            let drawn = (hash(ways, cluster) >> (kick % 32)) as usize % ways;
            let way = if drawn == last_way { (drawn + 1) % ways } else { drawn };
            let place = self.place(way, cluster);
            let evicted = Line::read(place, memory);
            homeless.write(place, memory);
            (homeless, last_way) = (evicted, way);
            *moved = place;
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
