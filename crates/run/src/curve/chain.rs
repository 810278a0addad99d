//! The LRU stacks of all page sizes. An access to the most recently used page of one stack is not
//! passed on to the stack for the next larger page size.

use addr::PageSize;
use description::Error;
use mmu::StackDistance;
use rustc_hash::FxHashMap;
use trace::{Batch, Event, Meta};

use super::{Curve, CurveOptions, Lookups, PAGE_SIZE_MIN};

/// The number of upper bits of a `u64` that page numbers do not use. These bits hold the number
/// of the address space.
const SPACE_BITS: u32 = PAGE_SIZE_MIN.shift();

/// One LRU stack for each page size, smallest first.
pub(super) struct Chain {
    lookups: Lookups,
    levels: Vec<Level>,
    /// The number of accesses that touch one page, whatever the page size. Each such access is one
    /// lookup for every page size.
    single: u64,
    /// The tag of each space, by the trace's number of the space. Tags are given in the order in
    /// which spaces first run.
    spaces: FxHashMap<u32, u64>,
    space: u64,
}

/// The LRU stack of one page size.
struct Level {
    shift: u32,
    stack: StackDistance,
    last: u64,
    /// Hits by depth in the stack, without hits on the page looked up last.
    hits: Box<[u64]>,
    misses: u64,
    /// Lookups of accesses that touch several of the smallest pages.
    of_crossings: u64,
    seen: Seen,
}

impl Chain {
    pub(super) fn new(lookups: Lookups, options: &CurveOptions) -> Chain {
        let mut sizes = options.page_sizes.clone();
        sizes.sort_unstable();
        sizes.dedup();
        let level = |size: PageSize| Level {
            shift: size.shift(),
            stack: StackDistance::new(options.entries_max as usize),
            // No page has this number, because no space gets the highest tag.
            last: u64::MAX,
            hits: vec![0; options.entries_max as usize].into_boxed_slice(),
            misses: 0,
            of_crossings: 0,
            seen: Seen::default(),
        };
        let levels = sizes.into_iter().map(level).collect();
        let spaces = FxHashMap::from_iter([(0, 0)]);
        Chain { lookups, levels, single: 0, spaces, space: 0 }
    }

    /// Looks up the accesses of one batch.
    pub(super) fn batch(&mut self, batch: &Batch) -> Result<(), Error> {
        let mut from = 0;
        for placed in &batch.events {
            if !matches!(placed.event, Event::Run { .. } | Event::WarmupEnd) {
                continue;
            }
            let to = placed.at as usize;
            self.span(&batch.addr[from..to], &batch.meta[from..to]);
            from = to;
            if let Event::Run { space, .. } = placed.event {
                self.switch(space)?;
            } else {
                self.forget_counts();
            }
        }
        self.span(&batch.addr[from..], &batch.meta[from..]);
        Ok(())
    }

    /// The curves of `page_sizes`.
    pub(super) fn finish(self, page_sizes: &[PageSize]) -> Vec<Curve> {
        let curve = |&page_size: &PageSize| {
            let level = self.levels.iter().find(|level| level.shift == page_size.shift())?;
            let total = self.single + level.of_crossings;
            let mut hits = level.hits.to_vec();
            // All remaining lookups were of the page that was looked up last.
            hits[0] = total - level.misses - hits.iter().sum::<u64>();
            Some(Curve { lookups: self.lookups, page_size, total, cold: level.seen.pages, hits })
        };
        page_sizes.iter().filter_map(curve).collect()
    }

    /// Ends the warm-up: resets the counts to zero; the stacks stay.
    fn forget_counts(&mut self) {
        self.single = 0;
        for level in &mut self.levels {
            let Level { shift: _, stack: _, last: _, hits, misses, of_crossings, seen } = level;
            hits.fill(0);
            (*misses, *of_crossings, seen.pages) = (0, 0, 0);
        }
    }

    fn switch(&mut self, space: u32) -> Result<(), Error> {
        let next = self.spaces.len() as u64;
        self.space = *self.spaces.entry(space).or_insert(next);
        if self.space >= (1 << SPACE_BITS) - 1 {
            let most = (1 << SPACE_BITS) - 1;
            return Err(Error::Curve(format!(
                "the trace has more than {most} address spaces, more than a curve can tell apart: \
                 use a shorter part of the trace"
            )));
        }
        Ok(())
    }

    fn span(&mut self, addrs: &[u64], metas: &[Meta]) {
        let Some(first) = self.levels.first() else { return };
        let (shift, tag) = (first.shift, self.space << (u64::BITS - SPACE_BITS));
        let mut last = first.last;
        for (&addr, &meta) in addrs.iter().zip(metas) {
            if !self.lookups.include(meta.kind()) {
                continue;
            }
            let end = addr.saturating_add(u64::from(meta.size().saturating_sub(1)));
            if (addr ^ end) >> shift != 0 {
                self.crossing(addr, end, tag);
                last = (end >> shift) | tag;
                continue;
            }
            self.single += 1;
            let page = (addr >> shift) | tag;
            if page != last {
                last = page;
                self.moved(addr, tag);
            }
        }
    }

    /// Looks up an access that touches only one page of the smallest size, and not the page used
    /// last.
    #[inline(never)]
    fn moved(&mut self, addr: u64, tag: u64) {
        for level in &mut self.levels {
            let page = (addr >> level.shift) | tag;
            if page == level.last {
                return;
            }
            level.touch(page);
        }
    }

    /// Looks up an access that touches several of the smallest pages, and maybe several larger
    /// ones.
    #[cold]
    fn crossing(&mut self, addr: u64, end: u64, tag: u64) {
        for level in &mut self.levels {
            for number in addr >> level.shift..=end >> level.shift {
                level.of_crossings += 1;
                if (number | tag) != level.last {
                    level.touch(number | tag);
                }
            }
        }
    }
}

impl Level {
    /// Looks up a page other than the one used last.
    #[inline]
    fn touch(&mut self, page: u64) {
        self.last = page;
        match self.stack.touch(page) {
            Some(depth) => self.hits[depth] += 1,
            None => {
                self.misses += 1;
                self.seen.page(page);
            }
        }
    }
}

/// The set of pages that have been looked up, with one bit for each page.
#[derive(Default)]
struct Seen {
    words: FxHashMap<u64, u64>,
    pages: u64,
}

impl Seen {
    fn page(&mut self, page: u64) {
        let word = self.words.entry(page / 64).or_insert(0);
        let bit = 1 << (page % 64);
        self.pages += u64::from(*word & bit == 0);
        *word |= bit;
    }
}
