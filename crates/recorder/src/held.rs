//! Which pages of a TLB are held: of each set those that were used last.
//!
//! ```text
//!   places    | a | b | c | - | d | e | f | g |      two sets of four
//!   queue                     | e | g | d | f |      of the second, when it was last sorted by their uses
//!                                   ^ taken: e has gone; g is the next, if it was not used since
//! ```
//!
//! When a page was used last is known to whoever asks: translated code writes that down elsewhere. Pages that were
//! used since a set was sorted are younger than those that were not. So the queue is right as long as it has
//! any of these, and a set is sorted anew when it has none.

use core::ops::Range;

/// Pages of a TLB, at most.
pub(crate) const PAGES_MAX: usize = 128;
/// Numbers for their places, beside a time in one word.
const PLACES: u64 = PAGES_MAX as u64;

/// The pages of one TLB that are held.
pub(crate) struct List {
    /// By place: those of each set behind those of the one before.
    pages: [u64; PAGES_MAX],
    /// The times of their last uses when a set was sorted, each with its place in the lowest bits.
    queue: [u64; PAGES_MAX],
    held: [Held; PAGES_MAX],
    sets: usize,
    ways: usize,
}

/// How many pages of a set are held, and how many of those in its queue were looked at.
#[derive(Clone, Copy)]
struct Held {
    count: usize,
    taken: usize,
}

impl Held {
    /// None, and nothing is in its queue.
    const NONE: Held = Held { count: 0, taken: PAGES_MAX };
}

impl List {
    /// For no TLB.
    pub(crate) const NONE: List = List {
        pages: [0; PAGES_MAX],
        queue: [0; PAGES_MAX],
        held: [Held::NONE; PAGES_MAX],
        sets: 1,
        ways: 0,
    };

    /// Is for a TLB of so many `pages` in `sets`.
    pub(crate) fn be_for(&mut self, pages: usize, sets: usize) {
        (self.sets, self.ways) = (sets, pages / sets);
    }

    pub(crate) fn sets(&self) -> usize {
        self.sets
    }

    /// As many pages as a set keeps.
    pub(crate) fn ways(&self) -> usize {
        self.ways
    }

    /// The set of the page with that `number`.
    pub(crate) fn set_of(&self, number: u64) -> usize {
        if self.sets == 1 { 0 } else { (number % self.sets as u64) as usize }
    }

    /// How many are held of a set.
    pub(crate) fn count(&self, set: usize) -> usize {
        self.held[set].count
    }

    /// All that are held.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u64> {
        let held = |set| &self.pages[self.places(set)][..self.count(set)];
        (0..self.sets).flat_map(held).copied()
    }

    /// Holds `page` of a `set` that is not full.
    pub(crate) fn add(&mut self, set: usize, page: u64) {
        self.pages[set * self.ways + self.held[set].count] = page;
        self.held[set].count += 1;
    }

    /// Holds `page` in place of the one that was used longest ago of a full `set`, and gives that.
    pub(crate) fn exchange(&mut self, set: usize, page: u64, last_use: impl Fn(u64) -> u64) -> u64 {
        let place = self.oldest(set, last_use);
        core::mem::replace(&mut self.pages[place], page)
    }

    /// Holds none.
    pub(crate) fn clear(&mut self) {
        self.held[..self.sets].fill(Held::NONE);
    }

    /// The place of the page that was used longest ago of a full `set`.
    fn oldest(&mut self, set: usize, last_use: impl Fn(u64) -> u64) -> usize {
        let places = self.places(set);
        loop {
            let taken = self.held[set].taken;
            let left = self.queue[places.clone()].get(taken..).unwrap_or_default();
            let is_right =
                |&queued: &u64| last_use(self.pages[(queued % PLACES) as usize]) == queued / PLACES;
            if let Some(at) = left.iter().position(is_right) {
                let place = (left[at] % PLACES) as usize;
                self.held[set].taken += at + 1;
                return place;
            }
            for place in places.clone() {
                self.queue[place] = last_use(self.pages[place]) * PLACES + place as u64;
            }
            self.queue[places.clone()].sort_unstable();
            self.held[set].taken = 0;
        }
    }

    /// Where the pages of a set are.
    fn places(&self, set: usize) -> Range<usize> {
        set * self.ways..(set + 1) * self.ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sets of all shapes against lists in the order of their uses.
    #[test]
    fn the_page_that_was_used_longest_ago_makes_room() {
        let mut state = 1u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % limit
        };
        for (pages, sets) in [(16, 1), (17, 1), (128, 1), (16, 4), (24, 3), (96, 24), (128, 16)] {
            let mut list = List::NONE;
            list.be_for(pages, sets);
            let mut model = vec![Vec::new(); sets];
            let mut used = vec![0; 3 * pages];
            let mut gone = 0;
            for time in 1..5000 {
                let page = below(used.len() as u64);
                let (set, model) = (list.set_of(page), &mut model[page as usize % sets]);
                let is_held = model.contains(&page);
                model.retain(|&other| other != page);
                model.push(page);
                if !is_held && list.count(set) < list.ways() {
                    list.add(set, page);
                } else if !is_held {
                    let went = list.exchange(set, page, |page| used[page as usize]);
                    assert_eq!(went, model.remove(0), "{pages} pages in {sets} sets, at {time}");
                    gone += 1;
                }
                used[page as usize] = time;
            }
            assert!(gone > 1000, "{gone} pages went");
            let mut held: Vec<u64> = list.pages().collect();
            let mut expected = model.concat();
            held.sort_unstable();
            expected.sort_unstable();
            assert_eq!(held, expected);
            list.clear();
            assert_eq!(list.pages().count(), 0);
        }
    }
}
