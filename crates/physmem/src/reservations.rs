//! Reservations: a reservation is a block of frames for a large page, which is filled base page by
//! base page (Navarro et al. 2002; FreeBSD's `vm_reserv`; B10 section 6.1.1).
//!
//! ```text
//!   object      | 510 | 511 | 512 | 513 | 514 | ...        pages that have been touched: 513, 514
//!                             |     |     |
//!   reservation  [ - | 513 | 514 | - | - | ... | - ]       one block of 512 frames, each page at
//!                  ^                                       its own place in it
//!                  reserved: nobody's yet, not free either
//!
//!   partly filled, by the last change:   oldest <--> ... <--> newest     broken from the left
//! ```
//!
//! When a touched page of an object could become part of a large page, a whole block of frames is
//! reserved; the frame of each further page in the block is determined by the page's index. A block
//! in which all frames are taken can be mapped as one large page without copying. If memory runs
//! out, the reservation that has not changed for the longest time is broken: its untaken frames
//! become free.

use alloc::{
    boxed::Box,
    collections::{TryReserveError, VecDeque},
    vec::Vec,
};

use crate::{
    allocator::Allocator,
    capabilities::{Broken, ReservationCounts, Reserver, Unplaced},
    frame::{FrameId, NO_FRAME, State},
    request::{Neighbor, ObjectPage, Request},
    table::FrameTable,
};

/// Another allocator with reservations, for requests that name a page of an object.
pub struct Reservations<A> {
    inner: A,
    /// The reservations of each size, the largest first.
    levels: Vec<Level>,
    /// The broken reservations that [`Reserver::next_broken`] has not returned yet, each with its
    /// first frame and log2 of its number of frames. The list has capacity for all reservations, so
    /// that breaking a reservation needs no memory.
    broken: VecDeque<(FrameId, u32)>,
    /// The number of reservations that are not broken.
    live: usize,
}

/// The reservations of one size.
struct Level {
    order: u32,
    /// The number of the first block.
    first_block: u32,
    /// The reservation of each block, from the first block on.
    blocks: Vec<Option<One<Reservation>>>,
    /// The least recently changed partly filled reservation; the next field has the most recently
    /// changed one.
    oldest: u32,
    newest: u32,
    counts: ReservationCounts,
}

/// A value on the heap. It is an array of one element, because an array can be created without a
/// panic if no memory is left; `Box::new` panics.
type One<T> = Box<[T; 1]>;

/// A reservation: a block that is held for pages of one object.
struct Reservation {
    object: u32,
    /// The page of the object for which the block's first frame is reserved.
    index: u64,
    taken: u32,
    /// One bit per frame, set if the frame is taken.
    map: Box<[u64]>,
    /// The previous and next block in the list, by the time of the last change.
    links: [u32; 2],
}

impl<A: Allocator> Reservations<A> {
    /// Adds reservations to `inner`, an allocator over `frames`. The reservations have `2^order`
    /// frames, for each of `orders`. For each page the largest size is tried first.
    pub fn new(inner: A, frames: core::ops::Range<u32>, orders: &[u32]) -> Reservations<A> {
        let mut orders: Vec<u32> = orders.iter().copied().filter(|order| *order > 0).collect();
        orders.sort_unstable_by(|a, b| b.cmp(a));
        orders.dedup();
        let level = |order: u32| Level {
            order,
            first_block: frames.start >> order,
            blocks: Vec::new(),
            oldest: NO_FRAME,
            newest: NO_FRAME,
            counts: ReservationCounts::default(),
        };
        let levels = orders.into_iter().map(level).collect();
        Reservations { inner, levels, broken: VecDeque::new(), live: 0 }
    }

    /// Breaks the least recently changed reservation of the largest size that has partly filled
    /// reservations. Returns whether there was one.
    fn relieve(&mut self, table: &mut FrameTable) -> bool {
        let level = self.levels.iter().position(|level| level.oldest != NO_FRAME);
        let oldest = level.map(|level| (level, self.levels[level].oldest));
        oldest.map(|(level, block)| self.break_up(table, level, block, Broken::Frame)).is_some()
    }

    /// The reservation that contains `frame`, as the indices of its level and block.
    fn around(&self, frame: FrameId) -> Option<(usize, u32)> {
        self.levels.iter().enumerate().find_map(|(place, level)| {
            let block = frame.0 >> level.order;
            level.get(block).map(|_| (place, block))
        })
    }

    /// The frame for a page from a reservation; a new reservation is made if there is none.
    fn place(
        &mut self,
        table: &mut FrameTable,
        wanted: &Request,
        place: &ObjectPage,
    ) -> Option<FrameId> {
        if let Some(found) = self.existing(place) {
            let (level, block) = found;
            let level = &mut self.levels[level];
            return level.populate(block, place).inspect_err(|why| level.refuse(*why)).ok();
        }
        for number in 0..self.levels.len() {
            match self.reserve(table, number, wanted, place) {
                Ok(frame) => return Some(frame),
                Err(why) => self.levels[number].refuse(why),
            }
        }
        None
    }

    /// The existing reservation, of a neighbouring page, that includes a frame for this page.
    fn existing(&self, place: &ObjectPage) -> Option<(usize, u32)> {
        [place.before, place.after].into_iter().flatten().find_map(|neighbor| {
            let (level, block) = self.around(neighbor.frame)?;
            let held = self.levels[level].get(block)?;
            let pages = self.levels[level].pages(held);
            (held.object == place.object && pages.contains(&place.index)).then_some((level, block))
        })
    }

    /// Makes a new reservation and takes the page's frame in it.
    fn reserve(
        &mut self,
        table: &mut FrameTable,
        number: usize,
        wanted: &Request,
        place: &ObjectPage,
    ) -> Result<FrameId, Unplaced> {
        let order = self.levels[number].order;
        let index = self.room(place, order)?;
        let whole = Request { order, place: None, ..*wanted };
        let blocks = table.frames().end.div_ceil(1 << order);
        let held = Reservation::new(order, place.object, index);
        let room = self.broken.try_reserve(self.live + 1);
        let held = room.and_then(|()| self.levels[number].prepare(blocks)).and(held);
        let Ok(held) = held else {
            table.set_short();
            return Err(Unplaced::NoBlock);
        };
        let first = self.inner.allocate(table, &whole).ok_or(Unplaced::NoBlock)?;
        table.hand_out(first, 1 << order, State::Reserved);
        self.live += 1;
        let level = &mut self.levels[number];
        level.enter(first.0 >> order, held);
        level.populate(first.0 >> order, place)
    }

    /// The page of the object with which a new reservation around `place` begins, if there is room for
    /// it.
    fn room(&self, place: &ObjectPage, order: u32) -> Result<u64, Unplaced> {
        let pages = 1u64 << order;
        let first = place.index & !(pages - 1);
        if first < place.first {
            return Err(Unplaced::Start);
        }
        let Some(end) = first.checked_add(pages) else { return Err(Unplaced::End) };
        if !place.grows && end > place.end {
            return Err(Unplaced::End);
        }
        let before = place.before.map_or(0, |neighbor| self.extent(place, neighbor).end);
        let after = place.after.map_or(u64::MAX, |neighbor| self.extent(place, neighbor).start);
        if before > first || after < end {
            return Err(Unplaced::Neighbor);
        }
        Ok(first)
    }

    /// The pages of the object that a new reservation must not overlap because of a neighbour: all
    /// pages of the neighbour's reservation or, if it has none, only the neighbour.
    fn extent(&self, place: &ObjectPage, neighbor: Neighbor) -> core::ops::Range<u64> {
        let own = self.around(neighbor.frame).and_then(|(level, block)| {
            let held = self.levels[level].get(block)?;
            let pages = self.levels[level].pages(held);
            (held.object == place.object).then_some(pages)
        });
        own.unwrap_or(neighbor.index..neighbor.index.saturating_add(1))
    }

    /// Breaks a reservation: frees its untaken frames and removes it.
    fn break_up(&mut self, table: &mut FrameTable, number: usize, block: u32, why: Broken) {
        let level = &mut self.levels[number];
        let first = block << level.order;
        let Some(held) = level.remove(block) else { return };
        let held = &held[0];
        level.counts.broken[why as usize] += 1;
        level.counts.broken_frames += u64::from((1 << level.order) - held.taken);
        self.broken.push_back((FrameId(first), level.order));
        self.live -= 1;
        let mut at = 0u32;
        while at < 1 << level.order {
            let order = (0..level.order)
                .rev()
                .find(|&order| at.trailing_zeros() >= order && held.is_empty(at, order));
            match order {
                Some(order) => {
                    table.take_back(FrameId(first + at), 1 << order);
                    self.inner.free(table, FrameId(first + at), order);
                    at += 1 << order;
                }
                None => at += 1,
            }
        }
    }

    /// Breaks a reservation that has a free block of `order`: of the reservations of the smallest
    /// suitable size, the least recently changed one. Returns whether there was one.
    fn break_for(&mut self, table: &mut FrameTable, order: u32) -> bool {
        if order == 0 {
            return self.relieve(table);
        }
        for number in (0..self.levels.len()).rev() {
            let level = &self.levels[number];
            let mut block = level.oldest;
            while let Some(held) = level.get(block) {
                let starts = || (0..1u32 << level.order).step_by(1 << order);
                if order < level.order && starts().any(|at| held.is_empty(at, order)) {
                    self.break_up(table, number, block, Broken::Block);
                    return true;
                }
                block = held.links[1];
            }
        }
        false
    }
}

impl Level {
    /// The pages of the object that a reservation of this level is for.
    fn pages(&self, held: &Reservation) -> core::ops::Range<u64> {
        held.index..held.index.saturating_add(1 << self.order)
    }

    fn get(&self, block: u32) -> Option<&Reservation> {
        let place = block.checked_sub(self.first_block)?;
        self.blocks.get(place as usize)?.as_ref().map(|held| &held[0])
    }

    fn get_mut(&mut self, block: u32) -> Option<&mut Reservation> {
        let place = block.checked_sub(self.first_block)?;
        self.blocks.get_mut(place as usize)?.as_mut().map(|held| &mut held[0])
    }

    fn refuse(&mut self, why: Unplaced) {
        self.counts.unplaced[why as usize] += 1;
    }

    /// Reserves memory so that each of the first `blocks` blocks can have a reservation.
    fn prepare(&mut self, blocks: u32) -> Result<(), TryReserveError> {
        let all = (blocks - self.first_block) as usize;
        self.blocks.try_reserve_exact(all.saturating_sub(self.blocks.len()))
    }

    fn enter(&mut self, block: u32, held: One<Reservation>) {
        let place = (block - self.first_block) as usize;
        if self.blocks.len() <= place {
            self.blocks.resize_with(place + 1, || None);
        }
        self.blocks[place] = Some(held);
        self.counts.made += 1;
        self.append(block);
    }

    /// Takes the frame of a page that belongs to the reservation of `block`.
    fn populate(&mut self, block: u32, place: &ObjectPage) -> Result<FrameId, Unplaced> {
        let (order, frames) = (self.order, 1 << self.order);
        let held = self.get_mut(block).ok_or(Unplaced::NoBlock)?;
        let at = (place.index - held.index) as u32;
        if !held.set(at, true) {
            return Err(Unplaced::Taken);
        }
        let is_full = held.taken == frames;
        self.counts.placed += 1;
        self.counts.filled += u64::from(is_full);
        self.unlink(block);
        if !is_full {
            self.append(block);
        }
        Ok(FrameId((block << order) + at))
    }

    fn remove(&mut self, block: u32) -> Option<One<Reservation>> {
        let is_listed = self.get(block)?.taken < 1 << self.order;
        if is_listed {
            self.unlink(block);
        }
        self.blocks[(block - self.first_block) as usize].take()
    }

    fn append(&mut self, block: u32) {
        let newest = self.newest;
        if let Some(held) = self.get_mut(block) {
            held.links = [newest, NO_FRAME];
        }
        match self.get_mut(newest) {
            Some(before) => before.links[1] = block,
            None => self.oldest = block,
        }
        self.newest = block;
    }

    /// Removes a block from the list of partly filled reservations, if the block is in this list.
    fn unlink(&mut self, block: u32) {
        let Some(held) = self.get_mut(block) else { return };
        let [before, after] = core::mem::replace(&mut held.links, [NO_FRAME; 2]);
        if before == NO_FRAME && self.oldest != block {
            return;
        }
        match self.get_mut(before) {
            Some(before) => before.links[1] = after,
            None => self.oldest = after,
        }
        match self.get_mut(after) {
            Some(after) => after.links[0] = before,
            None => self.newest = before,
        }
    }
}

impl Reservation {
    /// Creates a reservation of `2^order` frames, none of which is taken. Fails if no memory is
    /// left.
    fn new(order: u32, object: u32, index: u64) -> Result<One<Reservation>, TryReserveError> {
        let mut map = Vec::new();
        let words = (1usize << order).div_ceil(64);
        map.try_reserve_exact(words)?;
        map.resize(words, 0);
        let map = map.into_boxed_slice();
        let mut made = Vec::new();
        made.try_reserve_exact(1)?;
        made.push(Reservation { object, index, taken: 0, map, links: [NO_FRAME; 2] });
        let made: Result<One<Reservation>, _> = made.into_boxed_slice().try_into();
        Ok(made.unwrap_or_else(|_| unreachable!("one was made")))
    }

    fn bit(&self, at: u32) -> bool {
        self.map[at as usize / 64] >> (at % 64) & 1 == 1
    }

    /// Sets the bit of a frame to `taken`. Returns whether the bit changed.
    fn set(&mut self, at: u32, taken: bool) -> bool {
        let changes = self.bit(at) != taken;
        if changes {
            self.map[at as usize / 64] ^= 1 << (at % 64);
            self.taken = if taken { self.taken + 1 } else { self.taken - 1 };
        }
        changes
    }

    fn is_full(&self, at: u32, order: u32) -> bool {
        self.all(at, order, u64::MAX)
    }

    fn is_empty(&self, at: u32, order: u32) -> bool {
        self.all(at, order, 0)
    }

    /// Whether the bits of the `2^order` frames from `at`, which is aligned, are equal to those of
    /// `word`.
    fn all(&self, at: u32, order: u32, word: u64) -> bool {
        if order >= 6 {
            let words = at as usize / 64..(at as usize + (1 << order)) / 64;
            return self.map[words].iter().all(|&held| held == word);
        }
        let mask = (1u64 << (1 << order)) - 1;
        self.map[at as usize / 64] >> (at % 64) & mask == word & mask
    }
}

impl<A: Allocator> Reserver for Reservations<A> {
    fn orders(&self) -> Vec<u32> {
        self.levels.iter().map(|level| level.order).collect()
    }

    fn counts(&self) -> Vec<(u32, ReservationCounts)> {
        self.levels.iter().map(|level| (level.order, level.counts)).collect()
    }

    fn forget_counts(&mut self) {
        self.levels.iter_mut().for_each(|level| level.counts = ReservationCounts::default());
    }

    fn full_order(&self, frame: FrameId) -> Option<u32> {
        let (level, block) = self.around(frame)?;
        let reservation = self.levels[level].get(block)?;
        let place = frame.0 - (block << self.levels[level].order);
        let orders = self.levels[level..].iter().map(|level| level.order);
        orders.into_iter().find(|&order| reservation.is_full(place >> order << order, order))
    }

    fn reservation(&self, frame: FrameId) -> Option<(FrameId, u32, u32, u64)> {
        let (level, block) = self.around(frame)?;
        let order = self.levels[level].order;
        let held = self.levels[level].get(block)?;
        Some((FrameId(block << order), order, held.object, held.index))
    }

    fn next_broken(&mut self) -> Option<(FrameId, u32)> {
        self.broken.pop_front()
    }

    fn largest_order(&self) -> Option<u32> {
        self.levels.first().map(|level| level.order)
    }
}

impl<A: Allocator> Allocator for Reservations<A> {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        // The colour of a frame in a reservation is ignored.
        if let (0, Some(place), true) = (request.order, &request.place, request.takes_any_color())
            && let Some(frame) = self.place(table, request, place)
        {
            return Some(frame);
        }
        loop {
            if let Some(first) = self.inner.allocate(table, request) {
                return Some(first);
            }
            // If memory for descriptors is missing, breaking a reservation does not help.
            if table.is_short() || !self.break_for(table, request.order) {
                return None;
            }
        }
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        let Some((number, block)) = self.around(first) else {
            return self.inner.free(table, first, order);
        };
        let level = &mut self.levels[number];
        if order > level.order {
            let half = 1 << (order - 1);
            self.free(table, first, order - 1);
            return self.free(table, FrameId(first.0 + half), order - 1);
        }
        let whole = block << level.order;
        table.hand_out(first, 1 << order, State::Reserved);
        let Some(held) = level.get_mut(block) else { return };
        for frame in first.0..first.0 + (1 << order) {
            held.set(frame - whole, false);
        }
        let is_empty = held.taken == 0;
        level.unlink(block);
        level.append(block);
        if is_empty {
            let order = level.order;
            level.remove(block);
            self.live -= 1;
            level.counts.emptied += 1;
            table.take_back(FrameId(whole), 1 << order);
            self.inner.free(table, FrameId(whole), order);
        }
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        let around = self.around(first).filter(|&(level, block)| {
            let level = &self.levels[level];
            let at = first.0 - (block << level.order);
            order < level.order && level.get(block).is_some_and(|held| held.is_empty(at, order))
        });
        if let Some((level, block)) = around {
            self.break_up(table, level, block, Broken::Wanted);
        }
        self.inner.take(table, first, order)
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.inner.free_blocks(order)
    }

    fn largest_free(&self) -> Option<u32> {
        self.inner.largest_free()
    }

    fn inner(&self) -> Option<&dyn Allocator> {
        Some(&self.inner)
    }

    fn inner_mut(&mut self) -> Option<&mut dyn Allocator> {
        Some(&mut self.inner)
    }

    fn reserver(&self) -> Option<&dyn Reserver> {
        Some(self)
    }

    fn reserver_mut(&mut self) -> Option<&mut dyn Reserver> {
        Some(self)
    }
}
