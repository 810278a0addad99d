//! The address space of a program that is placed: the advised ranges, and its break.
//!
//! ```text
//!   the program's break   the break that its last `brk` returned: `said`
//!   the kernel's          the end of that block of 2M: `real`; the rest of the block is there and never touched
//! ```
//!
//! A block of the heap can only be large if all of it is mapped when it is first touched, and the C library
//! moves the break by 132 KiB at a time. Memory between the two breaks is zero, as new memory of `brk` must
//! be, because the program cannot have written to it. If the program moves its break back, the kernel's break
//! goes back by whole blocks, and the part of the last block that the program freed is zeroed when the
//! program requests it again: unmapping a part of a large page would split it into base pages.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;

use super::memory;
use super::{Rule, What};

const PAGE: u64 = 4096;

/// The outcome of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Got {
    /// The number of mappings to which the rule applied. Each heap and each stack counts as one
    /// mapping.
    pub mappings: u64,
    /// The number of bytes that were resident when their mapping was unmapped or their process
    /// ended.
    pub resident: u64,
    /// The number of bytes that were mapped by entries of 2 MiB.
    pub large: u64,
    /// The number of the resident bytes that were in base pages although they could have been in
    /// large pages. The bytes of a mapping outside of its whole blocks of 2 MiB count only if they
    /// are as many as a large page has.
    pub missing: u64,
    /// The number of calls that failed, and the system's error number of the last one.
    pub failed: u64,
    /// The system's error number of the last call that failed.
    pub error: i32,
    /// Whether the rule's range was found not at its own addresses, but at those of a mapping of the same length.
    pub by_length: bool,
}

/// The kind of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Mmap,
    ThreadStack,
    Heap,
    Stack,
    Bss,
    /// A writable mapping of a file.
    Data,
    /// A mapping of a file that is not writable.
    Text,
}

/// A mapping to which rules may apply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) kind: Kind,
    /// The name of the mapping's file, without the folder.
    pub(super) file: &'a str,
}

/// A part of a mapping, with the rule that applies to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) rule: usize,
    /// Whether the mapping was identified by its length, because its address differs from the
    /// recorded one.
    pub(super) by_length: bool,
}

/// The parts of `mapped` to which rules apply, the most general first.
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
    /// The end of memory that the program has freed and may have written to.
    pub(super) dirty: u64,
}

/// The effect of a call of `brk`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Move {
    /// The kernel's new break. `None` if it does not change.
    pub(super) real: Option<u64>,
    /// The result for the program.
    pub(super) said: u64,
    /// The range that must be filled with zeros before the call returns.
    pub(super) zero: Option<(u64, u64)>,
}

impl Break {
    pub(super) fn at(start: u64, now: u64) -> Break {
        Break { start, said: now, real: now, dirty: 0 }
    }

    /// The effect of a program's request for the break `wanted`. The kernel's break moves in steps
    /// of `granule`.
    pub(super) fn asked(&self, wanted: u64, granule: u64) -> Move {
        if wanted < self.start || wanted == self.said {
            return Move { real: None, said: self.said, zero: None };
        }
        let whole = wanted.checked_next_multiple_of(granule).unwrap_or(wanted);
        // As in the kernel, the page that contains the break keeps its content: only whole pages
        // are zeroed.
        let page_end = |at: u64| at.saturating_add(PAGE - 1) & !(PAGE - 1);
        let again = (page_end(self.said), page_end(wanted).min(self.dirty).min(self.real));
        let moves = if wanted < self.said { whole < self.real } else { wanted > self.real };
        Move {
            real: moves.then_some(whole),
            said: wanted,
            zero: (again.0 < again.1).then_some(again),
        }
    }

    /// The program's and the kernel's break after a call of `brk`: `said` is its result for the program, and `real`
    /// the kernel's break.
    pub(super) fn moved(&self, said: u64, real: u64) -> Break {
        Break { said, real, dirty: self.dirty.max(self.said).min(real), ..*self }
    }
}

/// The advised ranges of an address space.
#[derive(Default, Debug)]
pub(super) struct Space {
    live: BTreeMap<u64, Live>,
    pub(super) heap: Option<Break>,
    /// The address of a `syscall` instruction in the vDSO.
    pub(super) site: Option<u64>,
    /// The process's pagemap, to find which pages are resident.
    pub(super) pagemap: Option<File>,
    /// Whether the address space was made by a `fork`, so that it shares much of its memory with the
    /// parent.
    pub(super) is_copy: bool,
    /// Blocks that could not be made large.
    pub(super) refused: HashSet<u64>,
    /// Resident bytes at the last search for blocks.
    pub(super) seen: u64,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    end: u64,
    rule: usize,
    /// Whether the memory of the mapping is counted. The memory of a copy by `fork` is not counted.
    counts: bool,
}

impl Space {
    /// A copy for a child of a fork, which shares its parent's memory.
    pub(super) fn forked(&self) -> Space {
        let copied = |(&start, &live): (&u64, &Live)| (start, Live { counts: false, ..live });
        let live = self.live.iter().map(copied).collect();
        Space { live, heap: self.heap, site: self.site, is_copy: true, ..Space::default() }
    }

    /// Adds a range that is advised.
    pub(super) fn add(&mut self, start: u64, end: u64, rule: usize) {
        self.take(start, end);
        self.live.insert(start, Live { end, rule, counts: true });
    }

    /// Extends the heap to `end`.
    pub(super) fn extend(&mut self, start: u64, end: u64) {
        if let Some((_, live)) = self.live.range_mut(..=start).next_back()
            && live.end >= start
        {
            live.end = live.end.max(end);
        }
    }

    /// The rule for the advised range at `address`.
    pub(super) fn rule_at(&self, address: u64) -> Option<usize> {
        let (_, live) = self.live.range(..=address).next_back()?;
        (address < live.end).then_some(live.rule)
    }

    /// Removes a range: returns start, end and rule of each removed part whose memory counts.
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

    /// Counts the resident memory of a range and removes the range.
    pub(super) fn count(&mut self, start: u64, end: u64, got: &mut [Got]) {
        for (from, to, rule) in self.take(start, end) {
            let found = self.pagemap.as_ref().and_then(|file| memory::scan(file, from, to));
            let found = found.unwrap_or_default();
            got[rule].resident += found.bytes;
            got[rule].large += found.large;
            got[rule].missing += found.missing;
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
        // The program frees memory inside a block and requests it again.
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
