use alloc::collections::VecDeque;
use core::ops::RangeInclusive;

use physmem::{FrameId, FrameTable, Identity};

use super::{Pages, Replacement, list::List};
use crate::sorted::SortedMap;

/// The flag, in a descriptor's owner bits, of a frame in the main queue.
const MAIN: u8 = 1;

/// 2Q: pages that were used only once are evicted first (Johnson and Shasha 1994).
///
/// ```text
///   new page ------> [ A1in ] -- oldest, while longer than a quarter of memory --> victim
///                                    its identity --> ( A1out )  half as many as memory has pages
///   page in A1out -> [ Am   ] -- oldest, not referenced, otherwise ---------------> victim
/// ```
///
/// A page that is needed again soon after its eviction is assumed to be used often. Only such a
/// page enters the main queue. The sizes of A1in and A1out are those that the paper proposes for
/// the full version. The main queue is a clock, since the policy is not informed of hits.
#[derive(Debug)]
pub(super) struct TwoQueues {
    first: List,
    main: List,
    first_max: u64,
    /// A1out: the identities of evicted pages, the oldest first, with the sequence number of each
    /// eviction.
    left: VecDeque<(u64, (u32, u64))>,
    left_at: SortedMap<(u32, u64), u64>,
    left_max: usize,
    departures: u64,
}

impl TwoQueues {
    /// A policy for a memory of `pages` pages.
    pub(super) fn new(pages: u64) -> TwoQueues {
        TwoQueues {
            first: List::default(),
            main: List::default(),
            first_max: pages / 4,
            left: VecDeque::new(),
            left_at: SortedMap::new(),
            left_max: usize::try_from(pages / 2).unwrap_or(usize::MAX),
            departures: 0,
        }
    }

    fn remember(&mut self, identity: Identity) {
        let who = (identity.object, identity.index);
        // If there is no memory to record an evicted page, it will be treated as a new page when it
        // returns.
        if self.left.try_reserve(1).is_err()
            || self.left_at.insert(who, self.departures + 1).is_err()
        {
            return;
        }
        self.departures += 1;
        self.left.push_back((self.departures, who));
        while self.left.len() > self.left_max {
            let Some((departure, who)) = self.left.pop_front() else { return };
            // If the page returned and was evicted again, it has a later entry.
            if self.left_at.get(&who) == Some(&departure) {
                self.left_at.remove(&who);
            }
        }
    }
}

impl Replacement for TwoQueues {
    fn enter(&mut self, table: &mut FrameTable, frame: FrameId) {
        let Identity { object, index } = table.get(frame).identity;
        if self.left_at.remove(&(object, index)).is_some() {
            table.get_mut(frame).flags |= MAIN;
            self.main.push(table, frame);
        } else {
            table.get_mut(frame).flags &= !MAIN;
            self.first.push(table, frame);
        }
    }

    fn leave(&mut self, table: &mut FrameTable, frame: FrameId) {
        if table.get(frame).flags & MAIN != 0 {
            self.main.remove(table, frame);
        } else {
            self.first.remove(table, frame);
        }
    }

    fn victim(&mut self, pages: &mut dyn Pages) -> Option<FrameId> {
        if self.first.len() > self.first_max || self.main.len() == 0 {
            let frame = self.first.pop_of(pages)?;
            pages.with_table(&mut |table| self.remember(table.get(frame).identity));
            return Some(frame);
        }
        // After a complete round, no referenced bit is set.
        for _ in 0..=self.main.len() {
            let frame = self.main.pop_of(pages)?;
            if !pages.referenced(frame) {
                return Some(frame);
            }
            pages.with_table(&mut |table| self.main.push(table, frame));
        }
        self.main.pop_of(pages)
    }

    fn forget(&mut self, object: u32, indices: RangeInclusive<u64>) {
        let (first, last) = indices.into_inner();
        while let Some(who) = self.left_at.next_key((object, first))
            && who <= (object, last)
        {
            self.left_at.remove(&who);
        }
    }

    fn pages(&self) -> u64 {
        self.first.len() + self.main.len()
    }
}
