//! Finds the slot of a set that was stamped longest ago: the common part of LRU (which stamps at
//! each use) and FIFO (which stamps at insertion).
//!
//! ```text
//!   stamps of a set   7  3  9  5  1  8        queue, when it was made:  4@1 1@3 3@5 0@7 5@8 2@9
//!   since then slot 1 was stamped 10          oldest: 4, then 3: 1@3 is no longer true
//! ```
//!
//! A small set is searched for its smallest stamp. In a large set, such a search would take too
//! long for each miss. The slots of a large set are therefore sorted once into a queue, from which
//! victims are taken in order, skipping slots that have been stamped since. All slots in the queue
//! are older than any slot stamped later, so the order is exact until the queue is empty. If every
//! stamp is reported immediately, a ring ([`Rings`]) maintains the order of the set all the time.

use core::{hint::select_unpredictable, ops::Range};

use super::rings::Rings;

/// Sets with at most this many ways are searched. Larger sets are sorted, since finding the last
/// use of each slot (`used`) may take a search.
const SEARCHED_WAYS_MAX: usize = 8;

/// One stamp per slot, and the queues of large sets.
#[derive(Clone, Debug)]
pub(super) struct Ages {
    clock: u64,
    stamps: Box<[u64]>,
    queues: Vec<Queue>,
    rings: Rings,
    /// The number of victims taken from sets whose order is unknown because a stamp was reported
    /// late.
    unknown: usize,
}

/// The ways of the set that begins at slot `start`. They were sorted, with the oldest first, when
/// the queue was made.
#[derive(Clone, Debug)]
struct Queue {
    start: usize,
    /// The stamps, relative to `base`, each with its way in the lowest bits.
    ways: Vec<u64>,
    base: u64,
    /// The number of elements that have been taken from the queue.
    taken: usize,
}

impl Ages {
    /// Stamps for sets whose numbers of ways are given in the order of their slots. All slots have
    /// the same age.
    pub(super) fn new(ways_of_sets: impl Iterator<Item = usize> + Clone) -> Ages {
        let slots = ways_of_sets.clone().sum();
        Ages {
            clock: 0,
            stamps: vec![0; slots].into_boxed_slice(),
            queues: Vec::new(),
            rings: Rings::new(ways_of_sets, SEARCHED_WAYS_MAX),
            unknown: 0,
        }
    }

    /// Makes `slot` the youngest of all slots.
    #[inline]
    pub(super) fn stamp(&mut self, slot: usize) {
        self.clock += 1;
        self.stamps[slot] = self.clock;
        self.rings.touch(slot);
    }

    /// Sets the stamp of `slot` to `time`, if its stamp is older.
    pub(super) fn stamp_at(&mut self, slot: usize, time: u64) {
        if self.stamps[slot] < time {
            self.stamps[slot] = time;
            self.rings.forget(slot);
            self.unknown = 0;
        }
    }

    /// The clock, which is at least the last stamp.
    pub(super) fn now(&self) -> u64 {
        self.clock
    }

    /// Sets the clock, which must not go back before the last stamp.
    pub(super) fn set_now(&mut self, now: u64) {
        debug_assert!(self.clock <= now, "time runs forward");
        self.clock = now;
    }

    /// The slot of `set` that was stamped longest ago.
    #[inline]
    pub(super) fn oldest(&mut self, set: Range<usize>) -> usize {
        if set.len() <= SEARCHED_WAYS_MAX {
            let start = set.start;
            let stamps = &self.stamps[set];
            let oldest = (1..stamps.len()).fold(0, |oldest, way| {
                // A processor cannot predict this comparison, so it is compiled without a branch.
                select_unpredictable(stamps[way] < stamps[oldest], way, oldest)
            });
            return start + oldest;
        }
        self.rings.oldest(set.start).unwrap_or_else(|| self.oldest_unknown(set))
    }

    /// The slot of `set` that was stamped longest ago, for a large set whose order is unknown.
    /// After as many of these searches as a quarter of the set's ways, the slots are sorted and
    /// their order is kept in a ring.
    #[cold]
    #[inline(never)]
    fn oldest_unknown(&mut self, set: Range<usize>) -> usize {
        self.unknown += 1;
        if self.unknown <= set.len() / 4 {
            return self.oldest_queued(set, |_| 0);
        }
        let oldest = set.start;
        let slots = self.in_order(set);
        self.rings.order(slots.iter().copied());
        slots.first().copied().unwrap_or(oldest)
    }

    /// These slots in the order of their stamps, the oldest first.
    pub(super) fn in_order(&self, slots: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut slots: Vec<usize> = slots.collect();
        slots.sort_unstable_by_key(|&slot| (self.stamps[slot], slot));
        slots
    }

    /// The least recently used slot of `set`. The last use of a slot is the later of its stamp and the
    /// time that `used` returns.
    pub(super) fn oldest_used(&mut self, set: Range<usize>, used: impl Fn(usize) -> u64) -> usize {
        if set.len() <= SEARCHED_WAYS_MAX {
            let stamp = |slot: &usize| self.stamps[*slot].max(used(*slot));
            let first = set.start;
            set.min_by_key(stamp).unwrap_or(first)
        } else {
            self.oldest_queued(set, used)
        }
    }

    fn oldest_queued(&mut self, set: Range<usize>, used: impl Fn(usize) -> u64) -> usize {
        let Ages { stamps, queues, .. } = self;
        let stamps = &stamps[set.clone()];
        let place = match queues.binary_search_by_key(&set.start, |queue| queue.start) {
            Ok(place) => place,
            Err(place) => {
                let queue = Queue { start: set.start, ways: Vec::new(), base: 0, taken: 0 };
                queues.insert(place, queue);
                place
            }
        };
        let Queue { ways, base, taken, .. } = &mut queues[place];
        let way_bits = stamps.len().next_power_of_two().trailing_zeros();
        let stamp = |way: usize| stamps[way].max(used(set.start + way));
        loop {
            // The way stays in the queue. If the caller stamps it, it is skipped in the next
            // search.
            while let Some(&queued) = ways.get(*taken) {
                let way = (queued & ((1 << way_bits) - 1)) as usize;
                if stamp(way) - *base == queued >> way_bits {
                    return set.start + way;
                }
                *taken += 1;
            }
            ways.clear();
            ways.extend((0..stamps.len()).map(stamp));
            // The stamps are stored relative to the oldest of the set, so that a stamp and its way
            // fit into a word.
            *base = ways.iter().copied().min().unwrap_or(0);
            for (way, stamp) in (0u64..).zip(ways.iter_mut()) {
                *stamp = (*stamp - *base) << way_bits | way;
            }
            ways.sort_unstable();
            *taken = 0;
        }
    }
}
