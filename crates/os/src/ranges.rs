//! The range table, which an operating system supplies to a range TLB (Karakostas and others 2015).
//! Each range is a run of adjacent pages in adjacent frames with equal rights.
//!
//! ```text
//!   a walk has found    | page | frame | rights |
//!                            |
//!                            v    continues the range before it, or the one behind it?
//!   ranges of a space   | a ..... b) + 7f000000 rw- |   | c .. d) + ... |
//!                            ^
//!   a shootdown cuts out the pages that it names
//! ```
//!
//! The table contains the pages that walks have found, and pages of the page table that are
//! adjacent to them.

use std::collections::BTreeMap;

use addr::{PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::Translation;
use rustc_hash::FxHashMap;

/// The data of a range, except its first address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rest {
    /// The address after the last byte of the range.
    end: u64,
    /// The difference between physical and virtual addresses in the range.
    to_phys: u64,
    rights: Rights,
}

/// The ranges of all spaces.
#[derive(Clone, Debug, Default)]
pub struct RangeTable {
    /// For each space, by its number in the trace: the ranges by first address.
    spaces: FxHashMap<u32, BTreeMap<u64, Rest>>,
}

impl RangeTable {
    /// Adds a page that a walk has found.
    pub fn note(&mut self, space: u32, page: Translation) {
        let (start, bytes) = (page.page.start().get(), page.page.size().bytes());
        let to_phys = page.frame.get().wrapping_sub(start);
        let own = Rest { end: start.wrapping_add(bytes), to_phys, rights: page.rights };
        let ranges = self.spaces.entry(space).or_default();
        let alike = |other: &Rest| (other.to_phys, other.rights) == (to_phys, page.rights);
        if let Some((_, known)) = ranges.range(..=start).next_back()
            && known.end >= own.end
            && alike(known)
        {
            return;
        }
        cut(ranges, start, own.end);
        let (mut first, mut end) = (start, own.end);
        if let Some((&before, known)) = ranges.range(..start).next_back()
            && known.end == start
            && alike(known)
        {
            first = before;
        }
        if let Some(behind) = ranges.get(&end).copied().filter(alike) {
            ranges.remove(&end);
            end = behind.end;
        }
        ranges.insert(first, Rest { end, ..own });
    }

    /// Removes the pages of `range`, which have changed.
    pub fn forget(&mut self, space: u32, range: VirtRange) {
        if let Some(ranges) = self.spaces.get_mut(&space) {
            let end = range.last().get().saturating_add(1);
            cut(ranges, range.start().get(), end);
        }
    }

    /// Removes all ranges of a space.
    pub fn forget_space(&mut self, space: u32) {
        self.spaces.remove(&space);
    }

    /// The range that contains `va`: its addresses, the physical address of its first byte, and its
    /// rights.
    pub fn around(&self, space: u32, va: VirtAddr) -> Option<(VirtRange, PhysAddr, Rights)> {
        let (&start, rest) = self.spaces.get(&space)?.range(..=va.get()).next_back()?;
        let range = VirtRange::new(VirtAddr::new(start), rest.end - start).ok()?;
        (va.get() < rest.end)
            .then(|| (range, PhysAddr::new(start.wrapping_add(rest.to_phys)), rest.rights))
    }

    /// The number of ranges, and their total bytes.
    pub fn size(&self) -> (u64, u64) {
        let all = || self.spaces.values().flatten();
        (all().count() as u64, all().map(|(start, rest)| rest.end - start).sum())
    }
}

/// Removes the addresses from `start` to `end` from `ranges`.
fn cut(ranges: &mut BTreeMap<u64, Rest>, start: u64, end: u64) {
    if let Some((_, before)) = ranges.range_mut(..start).next_back()
        && before.end > start
    {
        let rest = *before;
        before.end = start;
        if rest.end > end {
            ranges.insert(end, rest);
            return;
        }
    }
    while let Some((&first, &rest)) = ranges.range(start..end).next() {
        ranges.remove(&first);
        if rest.end > end {
            ranges.insert(end, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use addr::PageSize;

    use super::*;

    /// Compares random pages and cuts with a map that contains every page.
    #[test]
    fn ranges_are_the_longest_runs_of_alike_pages() {
        for seed in 1..=40u64 {
            let mut state = seed;
            let mut below = |bound: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % bound
            };
            let (mut table, mut pages) = (RangeTable::default(), BTreeMap::new());
            for step in 0..400 {
                let number = below(60);
                let page = VirtAddr::new(number << 12).page(PageSize::SIZE_4K);
                if below(10) == 0 {
                    let bytes = (1 + below(8)) << 12;
                    table.forget(0, VirtRange::new(page.start(), bytes).unwrap());
                    pages.retain(|at, _| !(number..number + (bytes >> 12)).contains(at));
                } else {
                    let frame = PhysAddr::new((number + 100 * below(2)) << 12);
                    let rights = [Rights::ALL, Rights::READ][usize::from(below(8) == 0)];
                    table.note(0, Translation::new(page, frame, rights));
                    pages.insert(number, (frame, rights));
                }
                for at in 0..60 {
                    let known = |at: u64| pages.get(&at).copied();
                    let follows = |from: u64, to: u64| {
                        let (Some(a), Some(b)) = (known(from), known(to)) else { return false };
                        a.1 == b.1 && a.0.get() + (4096 * (to - from)) == b.0.get()
                    };
                    let found = table.around(0, VirtAddr::new(at << 12 | 5));
                    let Some((frame, rights)) = known(at) else {
                        assert_eq!(found, None, "seed {seed}, step {step}, page {at}");
                        continue;
                    };
                    let (mut first, mut last) = (at, at);
                    while first > 0 && follows(first - 1, first) {
                        first -= 1;
                    }
                    while follows(last, last + 1) {
                        last += 1;
                    }
                    let range =
                        VirtRange::new(VirtAddr::new(first << 12), (last - first + 1) << 12);
                    let start = PhysAddr::new(frame.get() - ((at - first) << 12));
                    let expected = Some((range.unwrap(), start, rights));
                    assert_eq!(found, expected, "seed {seed}, step {step}, page {at}");
                }
            }
        }
    }
}
