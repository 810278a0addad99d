//! Arrays for which different accesses count as uses: each array has a list of its own, in the
//! order of use.
//!
//! ```text
//!   node 7:  held by   members 5, 2, 0        its slot in each:  5: slot 9   2: slot 1   0: slot 0
//!
//!   member 2:    head                          a ring, so that the oldest is next to the head:
//!            slot 3 -> slot 1 -> slot 0 -\     to give its slot to a new node is to move the
//!              ^-------------------------/     head there
//! ```
//!
//! One word has a bit for each member that a use concerns, and another word has a bit for each
//! member that holds a node. A single load therefore gives the answer for all members. Empty slots
//! count as older than all other slots.

use super::{WalkCacheFamily, entry_of};

const MEMBERS: usize = WalkCacheFamily::MEMBERS_MAX;

/// The value for no node.
const EMPTY: u32 = u32::MAX;

/// The nodes that the arrays hold, in a separate order of use for each array.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    /// The members that have entries.
    members: u64,
    /// For each member: the position of its first slot; the next field has its most recently used
    /// slot.
    starts: [u16; MEMBERS],
    heads: [u8; MEMBERS],
    slots: Box<[Slot]>,
    /// For each node, the members that hold it.
    places: Vec<Places>,
}

/// A slot of an array, as an element of the array's ring.
#[derive(Clone, Copy, Debug)]
struct Slot {
    node: u32,
    /// The slot that was used next after this one. The following field has the slot that was used
    /// last before this one.
    newer: u8,
    older: u8,
}

/// The members that hold a node, and the slot in each.
#[derive(Clone, Copy, Debug)]
struct Places {
    held: u64,
    slot: [u8; MEMBERS],
}

impl Places {
    const NOWHERE: Places = Places { held: 0, slot: [0; MEMBERS] };
}

impl Lists {
    /// Empty arrays with these numbers of `entries`.
    pub(super) fn new(entries: &[u32]) -> Lists {
        let (mut members, mut starts) = (0, [0; MEMBERS]);
        let mut slots = Vec::new();
        for (member, &entries) in entries.iter().enumerate() {
            members |= u64::from(entries > 0) << member;
            starts[member] = slots.len() as u16;
            slots.extend((0..entries).map(|slot| Slot {
                node: EMPTY,
                newer: (slot.checked_sub(1).unwrap_or(entries - 1)) as u8,
                older: if slot + 1 == entries { 0 } else { slot as u8 + 1 },
            }));
        }
        let (heads, slots) = ([0; MEMBERS], slots.into_boxed_slice());
        Lists { members, starts, heads, slots, places: Vec::new() }
    }

    /// The arrays that hold `node`.
    #[inline]
    pub(super) fn holding(&self, node: u32) -> u64 {
        self.places.get(node as usize).map_or(0, |places| places.held)
    }

    /// Records a use of `node` in those arrays of `among` that hold it. Returns these arrays.
    #[inline]
    pub(super) fn touch(&mut self, node: u32, among: u64) -> u64 {
        let Some(places) = self.places.get(node as usize) else { return 0 };
        let hit = places.held & among;
        for member in bits(hit) {
            let (slot, head) = (places.slot[member], self.heads[member]);
            if slot != head {
                let ring = &mut self.slots[usize::from(self.starts[member])..];
                move_behind(ring, slot, head);
                self.heads[member] = slot;
            }
        }
        hit
    }

    /// Inserts `node` into those arrays of `among` that have entries; none of them holds the node
    /// yet.
    #[inline]
    pub(super) fn insert(&mut self, node: u32, among: u64) {
        let into = among & self.members;
        if into == 0 {
            return;
        }
        let mut places = *entry_of(&mut self.places, node, Places::NOWHERE);
        for member in bits(into) {
            let ring = &mut self.slots[usize::from(self.starts[member])..];
            let oldest = ring[usize::from(self.heads[member])].newer;
            let slot = &mut ring[usize::from(oldest)];
            let old = std::mem::replace(&mut slot.node, node);
            if let Some(old) = self.places.get_mut(old as usize) {
                old.held &= !(1 << member);
            }
            places.slot[member] = oldest;
            self.heads[member] = oldest;
        }
        places.held |= into;
        self.places[node as usize] = places;
    }

    /// Removes `node` from all arrays.
    pub(super) fn remove(&mut self, node: u32) {
        let Some(places) = self.places.get_mut(node as usize) else { return };
        for member in bits(std::mem::take(&mut places.held)) {
            let (slot, head) = (places.slot[member], self.heads[member]);
            let ring = &mut self.slots[usize::from(self.starts[member])..];
            ring[usize::from(slot)].node = EMPTY;
            if slot == head {
                self.heads[member] = ring[usize::from(head)].older;
            } else {
                move_behind(ring, slot, head);
            }
        }
    }
}

/// Moves `slot`, which is not the head, in the ring to the place just before the head.
#[inline]
fn move_behind(ring: &mut [Slot], slot: u8, head: u8) {
    let [slot_at, head_at] = [slot, head].map(usize::from);
    let Slot { newer, older, .. } = ring[slot_at];
    ring[usize::from(newer)].older = older;
    ring[usize::from(older)].newer = newer;
    let oldest = ring[head_at].newer;
    ring[usize::from(oldest)].older = slot;
    ring[slot_at].newer = oldest;
    ring[slot_at].older = head;
    ring[head_at].newer = slot;
}

/// The positions of the bits set in `word`.
#[inline]
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.checked_ilog2().map(|_| word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        bit
    })
}
