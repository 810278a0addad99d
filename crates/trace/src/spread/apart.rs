//! The occupied addresses of a space after mappings were spaced apart, and the address for a new
//! mapping.
//!
//! ```text
//!   |aaaa....|bbbbbbbb|b.......|........|        blocks; a and b are mapped
//!    ^ full: no block before it is free  ^ next: the lowest hole that is long enough
//! ```
//!
//! Linux assigns addresses downwards from below the stack; QEMU's user mode assigns them upwards.
//! For the downward direction, all functions here work on the complements of addresses, so that one
//! search serves both directions.

use std::collections::BTreeMap;

use super::room::{LOWEST, Span};

/// The occupied addresses. All ranges consist of whole pages.
#[derive(Clone, Debug)]
pub(super) struct Apart {
    block: u64,
    /// All ones if addresses go down, otherwise 0.
    flip: u64,
    /// The last address, in the internal form.
    end: u64,
    /// The address of the first mapping; no mapping is placed before it.
    origin: u64,
    /// No block between `origin` and this address is free.
    full: u64,
    /// The first and last address of each occupied range.
    taken: BTreeMap<u64, u64>,
}

impl Apart {
    /// An empty space that ends before `top`. New mappings are placed in whole blocks of `block`
    /// bytes, starting at `first`, the address that the system chose for the first mapping.
    pub(super) fn new(block: u64, first: Span, top: u64) -> Apart {
        let goes_down = first.0 >= top / 2;
        let (flip, end) = if goes_down { (u64::MAX, !LOWEST) } else { (0, top - 1) };
        let mut room = Apart { block, flip, end, origin: 0, full: 0, taken: BTreeMap::new() };
        room.origin = room.ceil(room.kept(first).0);
        room.full = room.origin;
        room
    }

    /// Marks `span` as occupied; no part of it may be occupied already.
    pub(super) fn take(&mut self, span: Span) {
        debug_assert!(self.is_free(span));
        let (first, last) = self.kept(span);
        self.taken.insert(first, last);
    }

    /// Frees the addresses that were occupied as `span`, except the parts `left`.
    pub(super) fn release(&mut self, span: Span, left: &[Span]) {
        let (first, _) = self.kept(span);
        self.taken.remove(&first);
        self.full = self.full.min(first & !(self.block - 1)).max(self.origin);
        left.iter().for_each(|&span| self.take(span));
    }

    /// Whether all of `span` is free.
    pub(super) fn is_free(&self, span: Span) -> bool {
        let (first, last) = self.kept(span);
        self.taken.range(..=last).next_back().is_none_or(|(_, &end)| end < first)
    }

    /// The free parts of `span`.
    pub(super) fn free_in(&self, span: Span) -> Vec<Span> {
        let (mut first, last) = self.kept(span);
        let mut free = Vec::new();
        let before = self.taken.range(..first).next_back();
        for (&start, &end) in before.into_iter().chain(self.taken.range(first..=last)) {
            if end < first {
                continue;
            }
            if start > first {
                free.push(self.kept((first, start - 1)));
            }
            match end.checked_add(1) {
                Some(next) => first = next,
                None => return free,
            }
        }
        if first <= last {
            free.push(self.kept((first, last)));
        }
        free
    }

    /// An address for a mapping of `bytes` bytes that begins `phase` bytes after the start of a
    /// block, in blocks in which nothing else is mapped; `None` if there is no room.
    pub(super) fn find(&mut self, bytes: u64, phase: u64) -> Option<u64> {
        let need = self.round_up(phase.checked_add(bytes)?)?;
        let (mut at, mut passed_a_hole) = (self.full, false);
        if let Some((_, &last)) = self.taken.range(..at).next_back() {
            at = at.max(self.ceil(last.checked_add(1)?));
        }
        for (&first, &last) in self.taken.range(self.full..) {
            let hole = (first & !(self.block - 1)).saturating_sub(at);
            if hole >= need {
                break;
            }
            passed_a_hole |= hole > 0;
            at = at.max(self.ceil(last.checked_add(1)?));
        }
        let last = at.checked_add(need - 1).filter(|&last| last <= self.end)?;
        if !passed_a_hole {
            self.full = at + need;
        }
        Some(self.kept((at, last)).0 + phase)
    }

    /// Converts a range to or from the internal form.
    fn kept(&self, (first, last): Span) -> Span {
        match self.flip {
            0 => (first, last),
            flip => (last ^ flip, first ^ flip),
        }
    }

    fn round_up(&self, bytes: u64) -> Option<u64> {
        bytes.checked_next_multiple_of(self.block)
    }

    /// The start of the first block at or after `at`; if `at` is in the last block, the start of
    /// the last block.
    fn ceil(&self, at: u64) -> u64 {
        self.round_up(at).unwrap_or(!(self.block - 1))
    }
}
