//! The *held* pages of a TLB, for which an access is guaranteed to hit; and the choice of the page
//! to replace in a full set.
//!
//! ```text
//!   places    | a | b | c | - | d | e | f | g |      two sets of four
//!
//!   LRU       queue           | e | g | d | f |      the second set, sorted by last uses
//!                                   ^ e was replaced; g is next, unless it was used since
//!   FIFO      hand                      ^            f is the oldest, then g, d, e
//!   random    a pseudo-random sequence: each number is the next place to replace
//! ```
//!
//! The caller knows when a page was last used: translated code records the times of uses elsewhere.
//! With LRU replacement, the pages of a set are sorted by these times into a queue. A page that was
//! used after the sorting was used more recently than every page that was not. The queue is
//! therefore valid while it contains a page that was not used after the sorting; otherwise the set
//! is sorted again.
//!
//! For FIFO and random replacement, the places are the entries of the TLB ([`Contents`]). A page is
//! held as long as it is in the TLB.

#![no_std]

extern crate alloc;

use alloc::boxed::Box;
use core::ops::Range;
use core::sync::atomic::Ordering;

use ring::{Contents, Place, Replaces};

/// The number of bits of an address whose accesses can be counted.
pub const ADDRESS_BITS: u32 = 47;
/// The largest number of pages of a TLB.
pub const PAGES_MAX: usize = ring::SURE_PAGES_MAX;
/// Place numbers are less than this number. In [`Queues`], a word contains a time and a place
/// number.
const PLACES: u64 = PAGES_MAX as u64;
/// Marks the place of an entry that is not for this process. No page begins at the address 1.
const OTHER: u64 = 1;

/// The pseudo-random sequence that chooses the entry to replace. It must be the sequence of the
/// machine's TLBs.
pub trait Sequence {
    /// The sequence that begins with `seed`.
    fn new(seed: u64) -> Self;
    /// The place to replace in a full set that has these `places`.
    fn next(&mut self, places: Range<usize>) -> usize;
}

/// The held pages of one TLB.
pub struct List<S> {
    /// The page at each place. The places are in the order of the sets.
    pages: [u64; PAGES_MAX],
    /// For each set: a bit for each empty place, and the number of places that are not empty.
    empty: [u128; PAGES_MAX],
    taken: [usize; PAGES_MAX],
    sets: usize,
    ways: usize,
    order: Order<S>,
}

const _: () = assert!(PAGES_MAX <= u128::BITS as usize);

/// The data by which the page to replace is chosen.
enum Order<S> {
    Lru(Box<Queues>),
    /// For each set: the place of the oldest page.
    Fifo([u8; PAGES_MAX]),
    Random(S),
}

impl<S: Sequence> List<S> {
    /// A list that belongs to no TLB.
    pub const NONE: List<S> = List {
        pages: [0; PAGES_MAX],
        empty: [0; PAGES_MAX],
        taken: [0; PAGES_MAX],
        sets: 1,
        ways: 0,
        order: Order::Fifo([0; PAGES_MAX]),
    };

    /// The state for a TLB that holds `pages` pages in `sets` sets. No page is held.
    pub fn new(pages: usize, sets: usize, replaces: Replaces) -> List<S> {
        let order = match replaces {
            Replaces::Lru => Order::Lru(Box::new(Queues::NEW)),
            Replaces::Fifo => Order::Fifo([0; PAGES_MAX]),
            Replaces::Random => Order::Random(S::new(0)),
        };
        let mut list = List { sets, ways: pages / sets, order, ..List::<S>::NONE };
        list.clear();
        list
    }

    /// The number of sets.
    pub fn sets(&self) -> usize {
        self.sets
    }

    /// The number of pages that a set can hold.
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// The set to which the page with this page `number` belongs.
    pub fn set_of(&self, number: u64) -> usize {
        if self.sets == 1 { 0 } else { (number % self.sets as u64) as usize }
    }

    /// The number of places of a set that are not empty.
    pub fn count(&self, set: usize) -> usize {
        self.taken[set]
    }

    /// All pages that are held.
    pub fn pages(&self) -> impl Iterator<Item = u64> {
        let taken = |set: usize| {
            let empty = self.empty[set];
            let pages = (0..).zip(&self.pages[self.places(set)]);
            pages.filter(move |(way, _)| empty >> way & 1 == 0).map(|(_, &page)| page)
        };
        (0..self.sets).flat_map(taken).filter(|&page| page != OTHER)
    }

    /// Adds `page` to a `set` at its first empty place. The set must not be full.
    pub fn add(&mut self, set: usize, page: u64) {
        let way = self.empty[set].trailing_zeros() as usize;
        self.pages[set * self.ways + way] = page;
        self.empty[set] &= self.empty[set] - 1;
        self.taken[set] += 1;
    }

    /// Replaces a page of a full `set` by `page`. Returns the replaced page; `None` if the replaced
    /// entry was not for this process. `last_use` returns the time of a page's last use.
    pub fn exchange(
        &mut self,
        set: usize,
        page: u64,
        last_use: impl Fn(u64) -> u64,
    ) -> Option<u64> {
        let places = self.places(set);
        let place = match &mut self.order {
            Order::Lru(queues) => queues.oldest(&self.pages, set, places, last_use),
            Order::Fifo(hands) => {
                let way = usize::from(hands[set]);
                hands[set] = if way + 1 == self.ways { 0 } else { way as u8 + 1 };
                places.start + way
            }
            Order::Random(sequence) => sequence.next(places),
        };
        Some(core::mem::replace(&mut self.pages[place], page)).filter(|&page| page != OTHER)
    }

    /// Replaces the contents by those of TLB number `index` that the host reports.
    pub fn take_over(&mut self, contents: &Contents, index: usize) {
        self.clear();
        for place in 0..self.sets * self.ways {
            let word = contents.places[index][place].load(Ordering::Relaxed);
            self.pages[place] = match Place::from_bits(word) {
                Place::Empty => continue,
                Place::Page(page) if page >> ADDRESS_BITS == 0 => page,
                // Pages beyond the counted addresses are treated as pages of other processes.
                Place::Other | Place::Page(_) => OTHER,
            };
            self.empty[place / self.ways] &= !(1 << (place % self.ways));
            self.taken[place / self.ways] += 1;
        }
        if let Order::Random(sequence) = &mut self.order {
            *sequence = S::new(contents.sequences[index].load(Ordering::Relaxed));
        }
    }

    /// Removes all pages.
    pub fn clear(&mut self) {
        let all = u128::MAX >> (u128::BITS as usize - self.ways);
        self.empty[..self.sets].fill(all);
        self.taken[..self.sets].fill(0);
        match &mut self.order {
            Order::Lru(queues) => queues.taken[..self.sets].fill(PAGES_MAX),
            Order::Fifo(hands) => hands[..self.sets].fill(0),
            Order::Random(_) => {}
        }
    }

    /// Marks the queue of each set as invalid, so that the set is sorted again before its next page
    /// is replaced. It is called after all times of uses have been renumbered in the same order.
    pub fn forget_order(&mut self) {
        if let Order::Lru(queues) = &mut self.order {
            queues.taken[..self.sets].fill(PAGES_MAX);
        }
    }

    /// The places of a set.
    fn places(&self, set: usize) -> Range<usize> {
        set * self.ways..(set + 1) * self.ways
    }
}

/// For each set, a queue of its pages in the order of their last uses.
struct Queues {
    /// For each page, the time of its last use when its set was sorted; the lowest bits have the
    /// page's place.
    queue: [u64; PAGES_MAX],
    /// For each set: the number of elements taken from its queue.
    taken: [usize; PAGES_MAX],
}

impl Queues {
    /// Empty queues.
    const NEW: Queues = Queues { queue: [0; PAGES_MAX], taken: [PAGES_MAX; PAGES_MAX] };

    /// The place of the least recently used page of a full `set`, which has these `places`.
    fn oldest(
        &mut self,
        pages: &[u64; PAGES_MAX],
        set: usize,
        places: Range<usize>,
        last_use: impl Fn(u64) -> u64,
    ) -> usize {
        loop {
            let taken = self.taken[set];
            let left = self.queue[places.clone()].get(taken..).unwrap_or_default();
            let is_right =
                |&queued: &u64| last_use(pages[(queued % PLACES) as usize]) == queued / PLACES;
            if let Some(at) = left.iter().position(is_right) {
                let place = (left[at] % PLACES) as usize;
                self.taken[set] += at + 1;
                return place;
            }
            for place in places.clone() {
                self.queue[place] = last_use(pages[place]) * PLACES + place as u64;
            }
            self.queue[places.clone()].sort_unstable();
            self.taken[set] = 0;
        }
    }
}

#[cfg(test)]
mod tests;
