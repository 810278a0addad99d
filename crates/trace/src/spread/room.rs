//! Which addresses of a space are taken after its mappings were put apart, and where a new one goes.
//!
//! ```text
//!   |aaaa....|bbbbbbbb|b.......|........|        blocks; a and b are mapped
//!    ^ full: no block before it is free  ^ next: the lowest hole that is long enough
//! ```
//!
//! Linux gives addresses downwards from below the stack, QEMU's user mode upwards. Where addresses go
//! down all of this is kept for the complements of addresses, so that one search serves both.

use std::collections::BTreeMap;

/// First and last address of a range.
pub(super) type Span = (u64, u64);

/// No mapping is placed below it: Linux keeps these addresses from programs (`mmap_min_addr`).
const LOWEST: u64 = 1 << 16;

/// What is taken. Ranges that are given are of whole pages.
#[derive(Clone, Debug)]
pub(super) struct Room {
    block: u64,
    /// All ones where addresses go down.
    flip: u64,
    /// The last address, as it is kept.
    end: u64,
    /// Where the first mapping went: nothing is placed before it.
    origin: u64,
    /// No block between `origin` and here is free.
    full: u64,
    /// First and last of what is taken.
    taken: BTreeMap<u64, u64>,
}

impl Room {
    /// Nothing is taken. New mappings go to whole blocks of `block` bytes from `first` on, which the
    /// system chose for the first, in a space that ends before `top`.
    pub(super) fn new(block: u64, first: Span, top: u64) -> Room {
        let goes_down = first.0 >= top / 2;
        let (flip, end) = if goes_down { (u64::MAX, !LOWEST) } else { (0, top - 1) };
        let mut room = Room { block, flip, end, origin: 0, full: 0, taken: BTreeMap::new() };
        room.origin = room.ceil(room.kept(first).0);
        room.full = room.origin;
        room
    }

    /// Takes `span`, no part of which is taken.
    pub(super) fn take(&mut self, span: Span) {
        debug_assert!(self.is_free(span));
        let (first, last) = self.kept(span);
        self.taken.insert(first, last);
    }

    /// Gives back all of what was taken as `span`, but for `left` of it.
    pub(super) fn release(&mut self, span: Span, left: &[Span]) {
        let (first, _) = self.kept(span);
        self.taken.remove(&first);
        self.full = self.full.min(first & !(self.block - 1)).max(self.origin);
        left.iter().for_each(|&span| self.take(span));
    }

    /// Whether nothing in `span` is taken.
    pub(super) fn is_free(&self, span: Span) -> bool {
        let (first, last) = self.kept(span);
        self.taken.range(..=last).next_back().is_none_or(|(_, &end)| end < first)
    }

    /// The parts of `span` that are not taken.
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

    /// Where `bytes` begin that lie `phase` bytes after a block's start, in blocks in which nothing
    /// else is, if there is room.
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

    /// As ranges are kept, or back.
    fn kept(&self, (first, last): Span) -> Span {
        match self.flip {
            0 => (first, last),
            flip => (last ^ flip, first ^ flip),
        }
    }

    fn round_up(&self, bytes: u64) -> Option<u64> {
        bytes.checked_next_multiple_of(self.block)
    }

    /// The start of the block that begins at or after `at`; the last one's for what lies behind it.
    fn ceil(&self, at: u64) -> u64 {
        self.round_up(at).unwrap_or(!(self.block - 1))
    }
}
