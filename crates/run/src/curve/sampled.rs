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
//! The sample is spread over the whole trace, however long that is ([`Windows`]):
//!
//! ```text
//!   | all of 50 M | 0.5 M | 3.5 M not looked at | 0.5 M | 3.5 M not looked at | 0.5 M | ...  end
//!                 '---------- period ----------'                              '---- open ----'
//!                   counts x 4/0.5 when it is over                              counts x its accesses / those looked at
//! ```
//!
//! So a long run takes little more time, and a phase of some millions of accesses is seen. Between windows the stacks stay
//! as they are. With no more than [`PAGES_MAX`]
//! pages, and accesses that are all looked at, the curves are exact.
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

/// Which accesses of a long run are looked at. Those that a batch holds are meant: what it counts besides
/// ([`Batch::hits`]) belongs to the window or gap in which it is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// So many at the beginning.
    pub whole: u64,
    /// So many at the beginning of each period after that; 0 is taken for 1.
    pub window: u64,
    /// The accesses of a period.
    pub period: u64,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows { whole: 50_000_000, window: 500_000, period: 4_000_000 }
    }
}

/// What the sample of a run leaves out in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// So many accesses at the beginning of what counts were all looked at.
    pub after: u64,
    /// One in about so many after that.
    pub one_in: u64,
}

/// The curve of the loads and stores of a run, from a sample of its pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledCurve {
    /// The curve. What it counts is estimated where not all pages are in the sample. The lookups are exact then, and
    /// estimated where not all accesses were looked at.
    pub curve: Curve,
    /// Pages per page in the sample at the end: 1 if all pages were in it.
    pub one_in: u64,
    /// Which accesses were left out; `None` if all were looked at.
    pub gaps: Option<Gaps>,
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
        Sampled::in_windows(source, page_sizes, entries_max, Windows::default())
    }

    /// As [`Sampled::new`], with other windows.
    pub fn in_windows(
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
    /// Lookups that touch one page, whatever its size: those that were looked at since the open period began.
    single: u64,
    /// Such lookups of the periods before.
    single_before: u64,
    /// The numbers of the spaces, in the order in which they came, and of the one that runs.
    spaces: BTreeMap<u32, u64>,
    space: u64,
    /// Accesses since it was looked at what the sample costs.
    accesses: u64,
    windows: Windows,
    stretch: Stretch,
    /// Accesses of a batch until the next stretch begins.
    left: u64,
    /// Of the open period: what was looked at, and all.
    seen: Seen,
    /// Accesses that count and come before the first window, and whether one of a gap came since.
    whole: u64,
    has_gaps: bool,
}

/// Where in a long run it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stretch {
    Whole,
    Window,
    Gap,
}

/// Accesses of a period.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Those that were looked at.
    looked: u64,
    /// All of them.
    all: u64,
}

impl Seen {
    /// What is to be expected of all, if `count` is true of those that were looked at.
    fn scale(self, count: u64) -> u64 {
        if self.looked == self.all {
            return count;
        }
        let scaled = u128::from(count) * u128::from(self.all) / u128::from(self.looked.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

/// What was counted of pages of one size.
#[derive(Clone)]
struct Counts {
    /// Hits by depth in the whole stack, estimated, but for those on the page looked up last.
    hits: Box<[u64]>,
    /// Lookups of a page that lies deeper than that.
    deeper: u64,
    /// First lookups of a page.
    cold: u64,
    /// Lookups of accesses that touch several of the smallest pages.
    of_crossings: u64,
}

impl Counts {
    fn new(entries_max: usize) -> Counts {
        let hits = vec![0; entries_max].into_boxed_slice();
        Counts { hits, deeper: 0, cold: 0, of_crossings: 0 }
    }

    fn clear(&mut self) {
        let Counts { hits, deeper, cold, of_crossings } = self;
        hits.fill(0);
        (*deeper, *cold, *of_crossings) = (0, 0, 0);
    }

    /// Adds what a period has in all, of which `counts` were looked at.
    fn add(&mut self, counts: &Counts, seen: Seen) {
        let Counts { hits, deeper, cold, of_crossings } = self;
        // Few depths come in one period.
        for (to, &count) in hits.iter_mut().zip(&counts.hits).filter(|(_, count)| **count > 0) {
            *to += seen.scale(count);
        }
        *deeper += seen.scale(counts.deeper);
        *cold += seen.scale(counts.cold);
        *of_crossings += seen.scale(counts.of_crossings);
    }
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
    /// What was looked at since the open period began.
    open: Counts,
    /// All of the periods before.
    before: Counts,
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
            open: Counts::new(entries_max),
            before: Counts::new(entries_max),
            uses: 0,
        };
        let levels = sizes.into_iter().map(level).collect();
        Sampler {
            levels,
            single: 0,
            single_before: 0,
            spaces: BTreeMap::from([(0, 0)]),
            space: 0,
            accesses: 0,
            windows,
            stretch: Stretch::Whole,
            left: windows.whole,
            seen: Seen::default(),
            whole: 0,
            has_gaps: false,
        }
    }

    /// Looks up the loads and stores of one batch.
    fn batch(&mut self, batch: &Batch) {
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

    fn span(&mut self, mut addrs: &[u64], mut metas: &[Meta]) {
        while addrs.len() as u64 > self.left {
            let (now, later) = addrs.split_at(self.left as usize);
            let (metas_now, metas_later) = metas.split_at(now.len());
            self.part(now, metas_now);
            self.next_stretch();
            (addrs, metas) = (later, metas_later);
        }
        self.part(addrs, metas);
    }

    /// Accesses of one stretch.
    fn part(&mut self, addrs: &[u64], metas: &[Meta]) {
        self.left -= addrs.len() as u64;
        if self.passes(addrs.len() as u64) {
            self.look(addrs, metas);
        }
    }

    /// Counts accesses of the open period, and says whether they are to be looked at.
    fn passes(&mut self, accesses: u64) -> bool {
        let is_looked_at = self.stretch != Stretch::Gap;
        self.seen.all += accesses;
        self.seen.looked += if is_looked_at { accesses } else { 0 };
        self.has_gaps |= !is_looked_at && accesses > 0;
        is_looked_at
    }

    #[cold]
    fn next_stretch(&mut self) {
        let Windows { window, period, .. } = self.windows;
        let window = window.max(1);
        if self.stretch == Stretch::Window {
            (self.stretch, self.left) = (Stretch::Gap, period.saturating_sub(window));
            return;
        }
        if self.stretch == Stretch::Whole {
            self.whole = self.seen.all;
        }
        self.close();
        (self.stretch, self.left) = (Stretch::Window, window);
    }

    /// The open period is over.
    fn close(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        self.single_before += seen.scale(std::mem::take(&mut self.single));
        for Level { open, before, .. } in &mut self.levels {
            before.add(open, seen);
            open.clear();
        }
    }

    fn look(&mut self, addrs: &[u64], metas: &[Meta]) {
        let Some(first) = self.levels.first() else { return };
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
        self.single += single;
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
                level.open.of_crossings += 1;
                if (number | tag) != level.last {
                    level.touch(number | tag);
                }
            }
        }
    }

    /// Hits of the first TLB that were counted.
    fn counted(&mut self, Hits { kind, page, count, .. }: Hits) {
        if !self.passes(count) || kind == Kind::Fetch || count == 0 {
            return;
        }
        self.single += count;
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

    /// The warm-up is over: counts begin anew, after the beginning with a window, and the stacks stay.
    fn forget_counts(&mut self) {
        let Sampler {
            levels,
            single,
            single_before,
            spaces: _,
            space: _,
            accesses: _,
            windows,
            stretch,
            left,
            seen,
            whole,
            has_gaps,
        } = self;
        (*single, *single_before) = (0, 0);
        for level in levels {
            let Level { shift: _, last: _, halvings: _, stack: _, pages: _, open, before, uses: _ } =
                level;
            open.clear();
            before.clear();
        }
        (*seen, *whole, *has_gaps) = (Seen::default(), 0, false);
        if *stretch != Stretch::Whole {
            (*stretch, *left) = (Stretch::Window, windows.window.max(1));
        }
    }

    fn curve(&self, page_size: PageSize) -> Option<SampledCurve> {
        let level = self.levels.iter().find(|level| level.shift == page_size.shift())?;
        let mut counts = level.before.clone();
        counts.add(&level.open, self.seen);
        let total = self.single_before + self.seen.scale(self.single) + counts.of_crossings;
        // What is left at the youngest place is known from the total alone.
        let cold = counts.cold.min(total);
        let mut misses = cold.saturating_add(counts.deeper).min(total);
        let mut hits = vec![0; counts.hits.len()];
        for (to, &estimated) in hits.iter_mut().zip(&counts.hits).skip(1).rev() {
            let more = misses.saturating_add(estimated).min(total);
            *to = more - misses;
            misses = more;
        }
        if let Some(youngest) = hits.first_mut() {
            *youngest = total - misses;
        }
        let curve = Curve { lookups: Lookups::Data, page_size, total, cold, hits };
        let one_in = self.windows.period / self.windows.window.max(1);
        let gaps = self.has_gaps.then_some(Gaps { after: self.whole, one_in });
        Some(SampledCurve { curve, one_in: 1 << level.halvings, gaps })
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
            Some(depth) => match self.open.hits.get_mut(((depth + 1) << halvings) - 1) {
                Some(hits) => *hits += stands_for,
                None => self.open.deeper += stands_for,
            },
            None => {
                self.open.cold += stands_for;
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
