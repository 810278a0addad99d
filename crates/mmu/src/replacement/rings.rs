//! The slots of each large set in the order of their stamps, as long as the order is known.
//!
//! ```text
//!          +--> head <--> 4 <--> 1 <--> 3 <--> .. <--> 9 <--+      4 is the oldest
//!          +------------------------------------------------+      stamping 1 moves it behind 9
//! ```
//!
//! A ring is correct as long as each stamp is reported immediately. A stamp that is reported later
//! ([`Rings::forget`]) may belong anywhere in the order: in that case the order is unknown until
//! the set is sorted.

/// The value that stands for neither a slot nor a head.
const NONE: u32 = u32::MAX;

/// One ring per large set. The elements are the slots, each at the index of its number, followed by
/// the heads.
#[derive(Clone, Debug)]
pub(super) struct Rings {
    links: Box<[Link]>,
    /// For each slot: the head of its ring, or [`NONE`] if the set is small.
    heads: Box<[u32]>,
}

/// The neighbours in a ring. A head without neighbours belongs to a set whose order is unknown.
#[derive(Clone, Copy, Debug)]
struct Link {
    older: u32,
    younger: u32,
}

impl Rings {
    /// Rings for sets whose numbers of ways are given in the order of their slots; sets with more
    /// than `small` ways are large.
    pub(super) fn new(ways_of_sets: impl Iterator<Item = usize> + Clone, small: usize) -> Rings {
        let slots: usize = ways_of_sets.clone().sum();
        let (mut heads, mut next) = (Vec::with_capacity(slots), slots as u32);
        for ways in ways_of_sets {
            let head = if ways > small { next } else { NONE };
            next += u32::from(ways > small);
            heads.extend(core::iter::repeat_n(head, ways));
        }
        let unknown = Link { older: NONE, younger: NONE };
        let links = if next as usize == slots { 0 } else { next as usize };
        Rings { links: vec![unknown; links].into(), heads: heads.into() }
    }

    /// Makes `slot` the youngest slot of its set.
    #[inline]
    pub(super) fn touch(&mut self, slot: usize) {
        let Some(&Link { older, younger }) = self.links.get(slot) else { return };
        let head = self.heads[slot];
        // If the order of a set is unknown, its slots have no neighbours.
        if older != NONE && younger != head {
            self.link(older, younger);
            let last = self.links[head as usize].older;
            self.link(last, slot as u32);
            self.link(slot as u32, head);
        }
    }

    /// Records that `slot` was used at some earlier time, so that the order of its set becomes
    /// unknown.
    #[inline]
    pub(super) fn forget(&mut self, slot: usize) {
        let head = self.heads[slot] as usize;
        if self.links.get(head).is_some_and(|head| head.older != NONE) {
            let mut next = head;
            loop {
                let unknown = Link { older: NONE, younger: NONE };
                let old = core::mem::replace(&mut self.links[next], unknown);
                next = old.younger as usize;
                if next == head {
                    break;
                }
            }
        }
    }

    /// The oldest slot of the set that begins at `start`, if the order is known.
    #[inline]
    pub(super) fn oldest(&self, start: usize) -> Option<usize> {
        let head = self.links.get(self.heads[start] as usize)?;
        (head.younger != NONE).then_some(head.younger as usize)
    }

    /// Sets the order of a large set: its slots, the oldest first.
    pub(super) fn order(&mut self, slots: impl Iterator<Item = usize>) {
        let mut last = NONE;
        let mut head = NONE;
        for slot in slots {
            if last == NONE {
                (head, last) = (self.heads[slot], self.heads[slot]);
            }
            self.link(last, slot as u32);
            last = slot as u32;
        }
        self.link(last, head);
    }

    #[inline]
    fn link(&mut self, older: u32, younger: u32) {
        self.links[older as usize].younger = younger;
        self.links[younger as usize].older = older;
    }
}
