//! The address space of a program that is placed: what was advised in it, and its break.
//!
//! ```text
//!   the program's break   what it was told: `said`
//!   the kernel's          the end of that block of 2M: `real`; the rest of the block is there and never touched
//! ```
//!
//! A block of the heap can only be large if all of it is mapped when it is touched first, and the C library moves the
//! break by 132 KiB at a time. Memory between the two breaks is zero, as new memory of `brk` must be, because nobody
//! could have written to it. If the program moves its break back, the kernel's goes back by whole blocks, and what the
//! program gave back of the last block is made zero when it asks for it again: unmapping a part of a large page would
//! make base pages of it.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;

use super::memory;
use super::{Rule, What};

const PAGE: u64 = 4096;

/// What a rule came to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Got {
    /// Mappings that it was for, each heap and each stack being one.
    pub mappings: u64,
    /// Bytes that were in memory, each mapping's when it was unmapped or its process ended.
    pub resident: u64,
    /// Bytes of these that entries of 2M mapped.
    pub large: u64,
    /// Calls that failed, and the system's number of the last error.
    pub failed: u64,
    /// See `failed`.
    pub error: i32,
    /// Whether a range was found by its length, at other addresses.
    pub by_length: bool,
}

/// Of what kind a mapping is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Mmap,
    ThreadStack,
    Heap,
    Stack,
    Bss,
    /// A file's, writable.
    Data,
    /// A file's, not writable.
    Text,
}

/// A mapping that rules may be for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) kind: Kind,
    /// The name of its file, without the folder.
    pub(super) file: &'a str,
}

/// A part of a mapping, with the rule that is for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) rule: usize,
    /// Whether it was found by its length.
    pub(super) by_length: bool,
}

/// The parts of `mapped` that rules are for, the most general first.
pub(super) fn parts(rules: &[Rule], mapped: &Mapped<'_>, by_address: &[bool]) -> Vec<Part> {
    let Mapped { start, end, kind, file } = *mapped;
    let mut parts = Vec::new();
    let general = rules.iter().position(|rule| match &rule.what {
        What::Data => matches!(kind, Kind::Mmap | Kind::Heap | Kind::Bss | Kind::Data),
        What::Mmap => kind == Kind::Mmap,
        What::Heap => kind == Kind::Heap,
        What::Stack => kind == Kind::Stack,
        What::Bss => kind == Kind::Bss,
        What::Text => kind == Kind::Text,
        What::Lib(name) => name == file && matches!(kind, Kind::Text | Kind::Data),
        What::Range(..) => false,
    });
    if let Some(rule) = general {
        parts.push(Part { start, end, rule, by_length: false });
    }
    for (rule, one) in rules.iter().enumerate() {
        let What::Range(from, to) = one.what else { continue };
        if start.max(from) < end.min(to) {
            let (start, end) = (start.max(from), end.min(to));
            parts.push(Part { start, end, rule, by_length: false });
        } else if end - start == to - from && !by_address[rule] && kind != Kind::Heap {
            parts.push(Part { start, end, rule, by_length: true });
        }
    }
    parts
}

/// The two breaks of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Break {
    pub(super) start: u64,
    pub(super) said: u64,
    pub(super) real: u64,
    /// Up to where something may have been written that the program has given back.
    pub(super) dirty: u64,
}

/// What a call of `brk` comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    /// Where the kernel's break moves; `None`: it stays.
    pub(super) real: Option<u64>,
    /// What the program is told.
    pub(super) said: u64,
    /// What is to be made zero before that.
    pub(super) zero: Option<(u64, u64)>,
}

impl Break {
    pub(super) fn at(start: u64, now: u64) -> Break {
        Break { start, said: now, real: now, dirty: 0 }
    }

    /// What a call for `wanted` comes to, where the kernel's break moves by `granule`.
    pub(super) fn asked(&self, wanted: u64, granule: u64) -> Move {
        if wanted < self.start || wanted == self.said {
            return Move { real: None, said: self.said, zero: None };
        }
        let whole = wanted.checked_next_multiple_of(granule).unwrap_or(wanted);
        // The kernel leaves the page in which the break lies as it is, and gives the last page whole.
        let page_end = |at: u64| at.saturating_add(PAGE - 1) & !(PAGE - 1);
        let again = (page_end(self.said), page_end(wanted).min(self.dirty).min(self.real));
        let moves = if wanted < self.said { whole < self.real } else { wanted > self.real };
        Move {
            real: moves.then_some(whole),
            said: wanted,
            zero: (again.0 < again.1).then_some(again),
        }
    }

    /// The breaks after a call.
    pub(super) fn moved(&self, said: u64, real: u64) -> Break {
        Break { said, real, dirty: self.dirty.max(self.said).min(real), ..*self }
    }
}

/// What is advised in an address space.
#[derive(Default, Debug)]
pub(super) struct Space {
    live: BTreeMap<u64, Live>,
    pub(super) heap: Option<Break>,
    /// A `syscall` instruction of the vDSO.
    pub(super) site: Option<u64>,
    /// Which pages are there, for who looks.
    pub(super) pagemap: Option<File>,
    /// Whether a `fork` has made it, so that much of its memory is another process's.
    pub(super) is_copy: bool,
    /// Blocks that could not be made large.
    pub(super) refused: HashSet<u64>,
    /// Bytes in memory when blocks were looked for last.
    pub(super) seen: u64,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    end: u64,
    rule: usize,
    /// Whether its memory is counted: not that of a copy by `fork`.
    counts: bool,
}

impl Space {
    /// A copy for a child, whose memory is its parent's.
    pub(super) fn forked(&self) -> Space {
        let copied = |(&start, &live): (&u64, &Live)| (start, Live { counts: false, ..live });
        let live = self.live.iter().map(copied).collect();
        Space { live, heap: self.heap, site: self.site, is_copy: true, ..Space::default() }
    }

    /// Notes what is advised now.
    pub(super) fn add(&mut self, start: u64, end: u64, rule: usize) {
        self.take(start, end);
        self.live.insert(start, Live { end, rule, counts: true });
    }

    /// The mapping's heap goes on up to `end`.
    pub(super) fn extend(&mut self, start: u64, end: u64) {
        if let Some((_, live)) = self.live.range_mut(..=start).next_back()
            && live.end >= start
        {
            live.end = live.end.max(end);
        }
    }

    /// The rule of what is advised at `address`.
    pub(super) fn rule_at(&self, address: u64) -> Option<usize> {
        let (_, live) = self.live.range(..=address).next_back()?;
        (address < live.end).then_some(live.rule)
    }

    /// Takes out what lies in a range: start, end and rule of each part whose memory counts.
    pub(super) fn take(&mut self, start: u64, end: u64) -> Vec<(u64, u64, usize)> {
        let first = self.live.range(..=start).next_back().map_or(start, |(&first, _)| first);
        let all: Vec<(u64, Live)> =
            self.live.range(first..end).map(|(&at, &live)| (at, live)).collect();
        let mut taken = Vec::new();
        for (at, live) in all.into_iter().filter(|(_, live)| live.end > start) {
            self.live.remove(&at);
            if at < start {
                self.live.insert(at, Live { end: start, ..live });
            }
            if live.end > end {
                self.live.insert(end, live);
            }
            if live.counts {
                taken.push((at.max(start), live.end.min(end), live.rule));
            }
        }
        taken
    }

    /// Counts what is there of a range and takes it out.
    pub(super) fn count(&mut self, start: u64, end: u64, got: &mut [Got]) {
        for (from, to, rule) in self.take(start, end) {
            let found = self.pagemap.as_ref().and_then(|file| memory::scan(file, from, to));
            let (resident, large) = found.unwrap_or((0, 0));
            got[rule].resident += resident;
            got[rule].large += large;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_moves_by_blocks_and_gives_zeros_again() {
        let block = 2 << 20;
        let heap = Break { start: 0x1000, said: 0x22_0000, real: 0x40_0000, dirty: 0 };
        let to = |real, said| Move { real, said, zero: None };
        for same in [0, 0x22_0000] {
            assert_eq!(heap.asked(same, block), to(None, 0x22_0000));
        }
        for inside in [0x30_0000, 0x40_0000, 0x21_0000] {
            assert_eq!(heap.asked(inside, block), to(None, inside));
        }
        assert_eq!(heap.asked(0x40_0001, block), to(Some(0x60_0000), 0x40_0001));
        assert_eq!(heap.asked(0x40_0001, 1), to(Some(0x40_0001), 0x40_0001));
        assert_eq!(heap.asked(0x1f_0000, block), to(Some(0x20_0000), 0x1f_0000));
        assert_eq!(heap.asked(u64::MAX, block), to(Some(u64::MAX), u64::MAX));
        // Given back within its block, and asked for again.
        let back = heap.moved(0x21_0000, 0x40_0000);
        assert_eq!(back.asked(0x21_8000, block).zero, Some((0x21_0000, 0x21_8000)));
        assert_eq!(back.asked(0x50_0000, block).zero, Some((0x21_0000, 0x22_0000)));
        let inside = heap.moved(0x21_0064, 0x40_0000);
        assert_eq!(inside.asked(0x21_0fff, block).zero, None);
        assert_eq!(inside.asked(0x21_8000, block).zero, Some((0x21_1000, 0x21_8000)));
        let less = back.moved(0x1000, 0x20_0000);
        assert_eq!(less.dirty, 0x20_0000);
        assert_eq!(less.asked(0x30_0000, block).zero, Some((0x1000, 0x20_0000)));
    }

    #[test]
    fn what_is_taken_out_leaves_its_ends() {
        let mut space = Space::default();
        space.add(0x10, 0x50, 0);
        space.add(0x60, 0x90, 1);
        assert_eq!(space.take(0x20, 0x70), [(0x20, 0x50, 0), (0x60, 0x70, 1)]);
        assert_eq!(space.rule_at(0x1f), Some(0));
        assert_eq!(space.rule_at(0x20), None);
        assert_eq!(space.rule_at(0x70), Some(1));
        let mut child = space.forked();
        assert_eq!(child.take(0, 0x100), []);
        assert_eq!(space.take(0, 0x100), [(0x10, 0x20, 0), (0x70, 0x90, 1)]);
    }

    #[test]
    fn ranges_are_found_by_address_and_then_by_length() {
        let rule = |what| Rule { what, wish: crate::place::Wish::Large };
        let rules = [rule(What::Range(0x1000, 0x3000)), rule(What::Heap), rule(What::Data)];
        let mapped = |start, end, kind| Mapped { start, end, kind, file: "" };
        let found = |mapped: &Mapped<'_>, by_address: bool| -> Vec<(u64, u64, usize, bool)> {
            let parts = parts(&rules, mapped, &[by_address, false, false]);
            parts.iter().map(|one| (one.start, one.end, one.rule, one.by_length)).collect()
        };
        assert_eq!(
            found(&mapped(0x2000, 0x5000, Kind::Mmap), false),
            [(0x2000, 0x5000, 2, false), (0x2000, 0x3000, 0, false)]
        );
        assert_eq!(
            found(&mapped(0x8000, 0xa000, Kind::Mmap), false),
            [(0x8000, 0xa000, 2, false), (0x8000, 0xa000, 0, true)]
        );
        assert_eq!(found(&mapped(0x8000, 0xa000, Kind::Mmap), true), [(0x8000, 0xa000, 2, false)]);
        assert_eq!(found(&mapped(0x8000, 0xa000, Kind::Heap), false), [(0x8000, 0xa000, 1, false)]);
        assert_eq!(found(&mapped(0x8000, 0x9000, Kind::ThreadStack), false), []);
    }
}
