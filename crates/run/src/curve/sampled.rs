//! LRU curves of a run on the way: from a sample of its pages, in constant memory.
//!
//! ```text
//!   data access --> its 4K page --same as the last?--> counted: a hit in every TLB
//!                      | no
//!                      v
//!                   hash(page) < 2^64 / 2^k ? --no--> left out
//!                      | yes: it stands for 2^k accesses
//!                      v
//!                   LRU stack of the sampled pages --> depth d: about (d + 1) 2^k - 1 in the whole stack
//!                                                                        ... and so for each page size
//! ```
//!
//! All accesses to a page are sampled or none, so that distances between uses scale with the share of pages that
//! is sampled. The share begins as all pages, and is halved as often as the sample has more than [`PAGES_MAX`]
//! pages: this is SHARDS of a fixed size (Waldspurger, Park, Garthwaite and Ahmad, *Efficient MRC Construction with
//! SHARDS*, FAST 2015, sections 3 and 4). As there, what the sample counts too much or too little of is put right
//! at the youngest place (SHARDS-adj), since the number of lookups is known. What differs: shares are powers of two,
//! so that pages leave the sample half of them at a time; counts are weighted by the share of their time
//! and not scaled later; and the share is halved too where the sample has more uses than a run can afford, as long as
//! [`PAGES_MIN`] pages stay.
//!
//! The sample is spread over the whole trace, however long that is. Its beginning is looked at whole; from there on each
//! [period](Windows) begins with a window that is looked at, and stands for all of its period:
//!
//! ```text
//!   whole          window            window            window
//!   |##############|####.............|####.............|####....|  the end
//!    counts as it is \__ one period _/                 \__ open: its counts stand for as much as there is of it
//! ```
//!
//! Between windows the stacks stay as they are, so that a long run takes little more time. When a period ends, what its
//! window counted is multiplied by the accesses of the period per access of the window. With the end of a warm-up the
//! beginning comes again. With no more than [`PAGES_MAX`] pages, and no period, the curves are exact.
//!
//! Where a recorder counts accesses that surely hit the first TLB ([`Batch::hits`]), these are hits for every size, and
//! their pages become the youngest when they are told. So depths can be off by the entries of the first TLB.

use std::{collections::BTreeMap, slice};

use addr::{Kind, PageSize};
use mmu::StackDistance;
use trace::{Batch, Error, Event, Forward, Hits, Meta, Source};

use super::{Curve, Lookups, PAGE_SIZE_MIN};

/// The most pages of one size that are in the sample.
pub const PAGES_MAX: usize = 1 << 13;
/// The limit on time leaves at least half of this number of pages in the sample.
pub const PAGES_MIN: usize = 1 << 11;
/// Accesses per use in the sample, at least, unless the sample is small.
const ACCESSES_PER_USE: u64 = 24;
/// So many accesses apart it is looked at whether it has more.
const LOOK_ACCESSES: u64 = 1 << 18;
/// Places of the stack beyond the sample: it is halved a little late.
const SPARE: usize = 64;
/// The number of top bits that page numbers leave free. They tell spaces apart.
const SPACE_BITS: u32 = PAGE_SIZE_MIN.shift();

/// The curve of the loads and stores of a run, from a sample of its pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledCurve {
    /// The curve. What it counts is estimated where not all pages are in the sample. So are the lookups where not all
    /// accesses were looked at.
    pub curve: Curve,
    /// Pages per page in the sample at the end: 1 if all pages were in it.
    pub one_in: u64,
}

/// Which accesses of a long trace are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// So many at the beginning, all of them.
    pub whole: u64,
    /// So many of each period after that.
    pub window: u64,
    /// The accesses of a period.
    pub period: u64,
}

impl Default for Windows {
    /// 50 M accesses, and 4 M of each 32 M after them.
    fn default() -> Windows {
        Windows { whole: 50_000_000, window: 4_000_000, period: 32_000_000 }
    }
}

/// A source that samples what it hands on.
pub struct Sampled<'a> {
    source: &'a mut dyn Source,
    sampler: Sampler,
}

impl<'a> Sampled<'a> {
    /// Samples `source` for a curve of each of `page_sizes`, all of them 4K or larger, up to `entries_max` entries.
    pub fn new(
        source: &'a mut dyn Source,
        page_sizes: &[PageSize],
        entries_max: u32,
    ) -> Sampled<'a> {
        Sampled::within(source, page_sizes, entries_max, Windows::default())
    }

    /// As [`new`](Sampled::new), with other windows. They begin and end with batches of the source.
    pub fn within(
        source: &'a mut dyn Source,
        page_sizes: &[PageSize],
        entries_max: u32,
        windows: Windows,
    ) -> Sampled<'a> {
        Sampled { source, sampler: Sampler::new(page_sizes, entries_max as usize, windows) }
    }

    /// The curves of what has been handed on, in the order of `page_sizes`.
    pub fn curves(&self, page_sizes: &[PageSize]) -> Vec<SampledCurve> {
        page_sizes.iter().filter_map(|&size| self.sampler.curve(size)).collect()
    }
}

impl Forward for Sampled<'_> {
    fn source(&self) -> &dyn Source {
        self.source
    }

    fn source_mut(&mut self) -> &mut dyn Source {
        self.source
    }

    fn forward(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let more = self.source.next(batch)?;
        self.sampler.batch(batch);
        Ok(more)
    }
}

/// The stacks of all page sizes.
struct Sampler {
    levels: Vec<Level>,
    /// Lookups that touch one page, whatever its size.
    single: Count,
    /// The numbers of the spaces, in the order in which they came, and of the one that runs.
    spaces: BTreeMap<u32, u64>,
    space: u64,
    /// Accesses since it was looked at what the sample costs.
    accesses: u64,
    windows: Windows,
    /// Accesses that count.
    position: u64,
    /// Accesses that the period has had, and how many of them were looked at. Before the first period: of the whole.
    passed: u64,
    looked_at: u64,
    /// Whether what comes now is looked at.
    looks: bool,
}

/// A count of a trace of which only windows are looked at.
#[derive(Clone, Copy, Default)]
struct Count {
    /// Of the periods that have ended.
    closed: u64,
    /// Of the window that is open.
    open: u64,
}

impl Count {
    /// The count where the open one stands for `passed` accesses, of which `looked_at` were looked at.
    fn total(self, passed: u64, looked_at: u64) -> u64 {
        self.closed + scaled(self.open, passed, looked_at)
    }

    /// Ends the period likewise.
    fn close(&mut self, passed: u64, looked_at: u64) {
        *self = Count { closed: self.total(passed, looked_at), open: 0 };
    }
}

/// `count` times `passed / looked_at`, rounded; nothing was counted where nothing was looked at.
fn scaled(count: u64, passed: u64, looked_at: u64) -> u64 {
    if passed == looked_at || count == 0 {
        return count;
    }
    let looked_at = u128::from(looked_at.max(1));
    ((u128::from(count) * u128::from(passed) + looked_at / 2) / looked_at) as u64
}

/// The sample of pages of one size.
struct Level {
    shift: u32,
    /// The page looked up last, sampled or not.
    last: u64,
    /// One in `2^halvings` pages is in the sample.
    halvings: u32,
    stack: StackDistance,
    /// The pages in the sample.
    pages: Vec<u64>,
    /// Hits by depth in the whole stack, estimated, but for those on the page looked up last. Those of the open window
    /// are apart, so that an access changes one number.
    hits: Box<[u64]>,
    /// Those of the periods that have ended.
    hits_closed: Box<[u64]>,
    /// Lookups of a page that lies deeper than that.
    deeper: Count,
    /// First lookups of a page.
    cold: Count,
    /// Lookups of accesses that touch several of the smallest pages.
    of_crossings: Count,
    /// Uses of the stack since it was looked at what they cost.
    uses: u64,
}

impl Sampler {
    fn new(page_sizes: &[PageSize], entries_max: usize, windows: Windows) -> Sampler {
        let mut sizes = page_sizes.to_vec();
        sizes.sort_unstable();
        sizes.dedup();
        let level = |size: PageSize| Level {
            shift: size.shift(),
            // No page has this number.
            last: u64::MAX,
            halvings: 0,
            stack: StackDistance::new(PAGES_MAX + SPARE),
            pages: Vec::new(),
            hits: vec![0; entries_max].into_boxed_slice(),
            hits_closed: vec![0; entries_max].into_boxed_slice(),
            deeper: Count::default(),
            cold: Count::default(),
            of_crossings: Count::default(),
            uses: 0,
        };
        let levels = sizes.into_iter().map(level).collect();
        Sampler {
            levels,
            single: Count::default(),
            spaces: BTreeMap::from([(0, 0)]),
            space: 0,
            accesses: 0,
            windows,
            position: 0,
            passed: 0,
            looked_at: 0,
            looks: true,
        }
    }

    /// Looks up the loads and stores of one batch.
    fn batch(&mut self, batch: &Batch) {
        self.turn();
        let (mut from, mut hits) = (0, batch.hits.iter());
        for placed in &batch.events {
            if let Event::Run { space, .. } = placed.event {
                self.until(batch, &mut from, placed.at as usize, &mut hits);
                self.switch(space);
            } else if matches!(placed.event, Event::WarmupEnd) {
                self.until(batch, &mut from, placed.at as usize, &mut hits);
                self.forget_counts();
            }
        }
        self.until(batch, &mut from, batch.len(), &mut hits);
        self.accesses += batch.len() as u64;
        if self.accesses >= LOOK_ACCESSES {
            let allowed = self.accesses / ACCESSES_PER_USE;
            self.levels.iter_mut().for_each(|level| level.look(allowed));
            self.accesses = 0;
        }
    }

    /// Finds out whether the next batch is looked at, and ends the period if it is over.
    fn turn(&mut self) {
        let Windows { whole, window, period } = self.windows;
        let Some(after) = self.position.checked_sub(whole) else { return };
        // Batches do not end where periods do: what one has too much, the next has too little.
        let within = after % period;
        if self.passed > within {
            self.close();
        }
        self.looks = within < window || self.looked_at == 0;
    }

    /// What the window counted stands for all of its period.
    fn close(&mut self) {
        let (passed, looked_at) = (self.passed, self.looked_at);
        self.single.close(passed, looked_at);
        for level in &mut self.levels {
            level.deeper.close(passed, looked_at);
            level.cold.close(passed, looked_at);
            level.of_crossings.close(passed, looked_at);
            for (closed, open) in level.hits_closed.iter_mut().zip(&mut level.hits) {
                *closed += scaled(std::mem::take(open), passed, looked_at);
            }
        }
        (self.passed, self.looked_at) = (0, 0);
    }

    /// Looks up what comes before the access with the index `to`.
    fn until(
        &mut self,
        batch: &Batch,
        from: &mut usize,
        to: usize,
        hits: &mut slice::Iter<'_, Hits>,
    ) {
        while let Some(counted) = hits.as_slice().first().filter(|hits| hits.at as usize <= to) {
            let at = counted.at as usize;
            self.span(&batch.addr[*from..at], &batch.meta[*from..at]);
            *from = at;
            self.counted(*counted);
            hits.next();
        }
        self.span(&batch.addr[*from..to], &batch.meta[*from..to]);
        *from = to;
    }

    /// Looks up accesses if they are of a window.
    fn span(&mut self, addrs: &[u64], metas: &[Meta]) {
        let accesses = addrs.len() as u64;
        self.position += accesses;
        self.passed += accesses;
        let Some(first) = self.levels.first().filter(|_| self.looks) else { return };
        self.looked_at += accesses;
        let (shift, tag) = (first.shift, self.tag());
        let (mut last, mut single) = (first.last, 0);
        for (&addr, &meta) in addrs.iter().zip(metas) {
            let is_data = Lookups::Data.include(meta.kind());
            let end = addr.saturating_add(u64::from(meta.size().saturating_sub(1)));
            let page = (addr >> shift) | tag;
            let crosses = (addr ^ end) >> shift != 0;
            single += u64::from(is_data & !crosses);
            // One branch that is not foretold is enough.
            if is_data & (crosses | (page != last)) {
                if crosses {
                    self.crossing(addr, end, tag);
                    last = (end >> shift) | tag;
                } else {
                    self.moved(addr, tag);
                    last = page;
                }
            }
        }
        self.single.open += single;
    }

    /// An access to another of the smallest pages than the one before.
    #[inline]
    fn moved(&mut self, addr: u64, tag: u64) {
        for level in &mut self.levels {
            let page = (addr >> level.shift) | tag;
            if page == level.last {
                return;
            }
            level.touch(page);
        }
    }

    /// An access to several of the smallest pages, and perhaps of the others.
    #[cold]
    fn crossing(&mut self, addr: u64, end: u64, tag: u64) {
        for level in &mut self.levels {
            for number in addr >> level.shift..=end >> level.shift {
                level.of_crossings.open += 1;
                if (number | tag) != level.last {
                    level.touch(number | tag);
                }
            }
        }
    }

    /// Hits of the first TLB that were counted.
    fn counted(&mut self, Hits { kind, page, count, .. }: Hits) {
        if kind == Kind::Fetch || count == 0 || !self.looks {
            return;
        }
        self.single.open += count;
        let tag = self.tag();
        for level in &mut self.levels {
            let page = (page >> level.shift) | tag;
            if page == level.last {
                return;
            }
            level.refresh(page);
        }
    }

    /// What page numbers of the space that runs have in their upper bits.
    fn tag(&self) -> u64 {
        self.space << (u64::BITS - SPACE_BITS)
    }

    /// More spaces than there are tags share them: what is estimated is hardly changed.
    fn switch(&mut self, space: u32) {
        let next = self.spaces.len() as u64 % ((1 << SPACE_BITS) - 1);
        self.space = *self.spaces.entry(space).or_insert(next);
    }

    /// The warm-up is over: counts and windows begin anew, and the stacks stay.
    fn forget_counts(&mut self) {
        self.single = Count::default();
        for level in &mut self.levels {
            level.hits.fill(0);
            level.hits_closed.fill(0);
            (level.deeper, level.cold, level.of_crossings) = Default::default();
        }
        (self.position, self.passed, self.looked_at, self.looks) = (0, 0, 0, true);
    }

    fn curve(&self, page_size: PageSize) -> Option<SampledCurve> {
        let level = self.levels.iter().find(|level| level.shift == page_size.shift())?;
        let counted = |count: Count| count.total(self.passed, self.looked_at);
        let total = counted(self.single) + counted(level.of_crossings);
        // What is left at the youngest place is known from the total alone.
        let cold = counted(level.cold).min(total);
        let mut misses = cold.saturating_add(counted(level.deeper)).min(total);
        let mut hits = vec![0; level.hits.len()];
        let estimates = level.hits_closed.iter().zip(&level.hits);
        for (to, (&closed, &open)) in hits.iter_mut().zip(estimates).skip(1).rev() {
            let more = misses.saturating_add(counted(Count { closed, open })).min(total);
            *to = more - misses;
            misses = more;
        }
        if let Some(youngest) = hits.first_mut() {
            *youngest = total - misses;
        }
        let curve = Curve { lookups: Lookups::Data, page_size, total, cold, hits };
        Some(SampledCurve { curve, one_in: 1 << level.halvings })
    }
}

impl Level {
    /// Looks up a page that is not the last one.
    #[inline]
    fn touch(&mut self, page: u64) {
        self.last = page;
        if self.samples(page) {
            self.sample(page);
        }
    }

    /// Whether `page` is in the sample.
    #[inline]
    fn samples(&self, page: u64) -> bool {
        // Both shifts, as one of 64 places is none.
        mixed(page) >> 1 >> (u64::BITS - 1 - self.halvings) == 0
    }

    #[inline(never)]
    fn sample(&mut self, page: u64) {
        let (halvings, stands_for) = (self.halvings, 1 << self.halvings);
        self.uses += 1;
        match self.stack.touch(page) {
            Some(depth) => match self.hits.get_mut(((depth + 1) << halvings) - 1) {
                Some(hits) => *hits += stands_for,
                None => self.deeper.open += stands_for,
            },
            None => {
                self.cold.open += stands_for;
                self.add(page);
            }
        }
    }

    /// `page` is the last one, and nothing is counted.
    fn refresh(&mut self, page: u64) {
        self.last = page;
        if self.samples(page) && self.stack.touch(page).is_none() {
            self.add(page);
        }
    }

    /// `page` is in the stack for the first time.
    fn add(&mut self, page: u64) {
        self.pages.push(page);
        if self.pages.len() > PAGES_MAX {
            self.halve();
        }
    }

    /// Halves the sample if it was used more than `allowed` and does not become too small.
    fn look(&mut self, allowed: u64) {
        if std::mem::take(&mut self.uses) > allowed && self.pages.len() > PAGES_MIN {
            self.halve();
        }
    }

    /// One in twice as many pages stays in the sample.
    #[cold]
    fn halve(&mut self) {
        self.halvings += 1;
        let (stay, go) =
            std::mem::take(&mut self.pages).into_iter().partition(|&page| self.samples(page));
        self.pages = stay;
        let go: Vec<u64> = go;
        go.into_iter().for_each(|page| self.stack.forget(page));
    }
}

/// The bits of a page number, mixed so that the upper ones depend on all (the finalizer of MurmurHash3, Appleby).
#[inline]
fn mixed(page: u64) -> u64 {
    let page = (page ^ (page >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (page ^ (page >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}
