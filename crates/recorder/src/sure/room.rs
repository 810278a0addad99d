//! Whether all pages that a block uses can be held at the same time.

use ring::HitsOf;

use super::block::{Run, last_byte, of};
use super::{PAGE_BYTES, State};
use crate::words::PAGE_SHIFT;

/// Whether all pages that a block uses can be held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// The pages can be held. If a set is full, they replace held pages that the block does not
    /// use.
    Left,
    /// A set that is not full would become full while the block's pages are added. It is then
    /// unknown which pages the TLB evicts. It is known if first all held pages are reported, so
    /// that no page is held.
    Anew,
    /// The block uses as many pages of a set as the set has entries.
    Never,
    /// The contents of the TLBs are unknown.
    Unknown,
}

/// A page that a block uses; the index of its list, and its set; and whether the page is not in
/// this list yet.
pub(super) type Use = (u64, (usize, usize), bool);

impl State {
    /// Whether all pages that a block uses can be held.
    pub(super) fn room(&mut self, run: Run) -> Room {
        if let Some(known) = &self.known {
            // For each page in turn, the policy says which page it replaces.
            return if known.is_known() { Room::Left } else { Room::Unknown };
        }
        if self.has_room(run) { Room::Left } else { self.room_by_set(run) }
    }

    /// Whether it can be seen without examining each set that the pages of a block can be held. For
    /// each TLB, one of two conditions must hold. (1) The block uses no new page. (2) The block
    /// uses fewer pages than a set has entries; and it uses only one new page, or the TLB has a
    /// single set, which is full already or has room for all new pages.
    fn has_room(&self, run: Run) -> bool {
        let mut new = [0; 2];
        let mut note = |first: u64, last: u64, of: HitsOf| {
            let pages = if first >> PAGE_SHIFT == last >> PAGE_SHIFT { 1 } else { 2 };
            if pages == 2 || !self.words.holds(first, of) {
                new[self.index(of)] += pages;
            }
        };
        note(run.block.pc, run.block.last(), HitsOf::Fetch);
        for (address, tag) in run.accesses().take(run.made) {
            note(address, last_byte(address, tag), of(tag));
        }
        let most = self.most_pages(run.made);
        self.lists.iter().zip(new).zip(most).all(|((list, new), most)| {
            let (count, ways) = (list.count(0), list.ways());
            let is_one_set = list.sets() == 1 && (count == ways || count + new <= ways);
            new == 0 || most < ways && (new == 1 || is_one_set)
        })
    }

    /// Whether the pages of a block can be held, in the general case that several of them may be in
    /// one set.
    fn room_by_set(&mut self, run: Run) -> Room {
        // The pages that the block uses, each once, with its list and set, and whether it is new.
        let mut used = std::mem::take(&mut self.used);
        used.clear();
        let mut note = |first: u64, last: u64, index: usize| {
            for address in [first, last] {
                let page = address & !(PAGE_BYTES - 1);
                if !used.iter().any(|&(other, (of, _), _)| (other, of) == (page, index)) {
                    let place = (index, self.set_of(page, index));
                    used.push((page, place, !self.has(page, index)));
                }
            }
        };
        note(run.block.pc, run.block.last(), self.index(HitsOf::Fetch));
        for (address, tag) in run.accesses().take(run.made) {
            note(address, last_byte(address, tag), self.index(HitsOf::Load));
        }
        let mut room = Room::Left;
        for &(_, place, _) in used.iter().filter(|&&(.., is_new)| is_new) {
            let here = || used.iter().filter(|&&(_, other, _)| other == place);
            let (count, ways) = (self.lists[place.0].count(place.1), self.lists[place.0].ways());
            if here().count() >= ways {
                room = Room::Never;
                break;
            }
            if count < ways && count + here().filter(|&&(.., is_new)| is_new).count() > ways {
                room = Room::Anew;
            }
        }
        self.used = used;
        room
    }

    /// The maximum number of pages in each list that a block with this number of accesses can use.
    pub(super) fn most_pages(&self, accesses: usize) -> [usize; 2] {
        if self.together { [2 + 2 * accesses, 0] } else { [2, 2 * accesses] }
    }
}
