//! LRU curves that are estimated during a run, from a sample of its pages, in constant memory.
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
//! Of each page, either all accesses are sampled or none. So reuse distances in the sample scale
//! with the share of pages in the sample. The share begins at all pages, and is halved whenever the
//! sample has more than [`PAGES_MAX`] pages. This is fixed-size SHARDS (Waldspurger, Park,
//! Garthwaite and Ahmad, *Efficient MRC Construction with SHARDS*, FAST 2015, sections 3 and 4). As
//! in SHARDS-adj of this paper, the difference between the estimated and the known number of
//! lookups is added to the count of the smallest reuse distance. Three things differ from the
//! paper. Shares are powers of two, so half of the sampled pages are removed from the sample at a
//! time. Each count is weighted by the share at the time of counting; counts are not rescaled when
//! the share changes later. To save time, the share is also halved if too many accesses are to
//! sampled pages and the sample has more than [`PAGES_MIN`] pages.
//!
//! Accesses are looked up only in windows, which are distributed over the whole trace, however long
//! it is ([`Windows`]):
//!
//! ```text
//!   | all of 50 M | 0.5 M | 3.5 M not looked at | 0.5 M | 3.5 M not looked at | 0.5 M | ...  end
//!                 '---------- period ----------'                              '---- open ----'
//!                   counts x 4/0.5 when it is over                              counts x its accesses / those looked at
//! ```
//!
//! A long run therefore takes little additional time, and yet even a phase of only some millions of
//! accesses is sampled. The stacks do not change between windows. The curves are exact if there are
//! no more than [`PAGES_MAX`] pages and all accesses are in windows.
//!
//! A recorder may only count the accesses that are guaranteed to hit the first TLB
//! ([`Batch::hits`]). These accesses are hits for every number of entries. Their pages become the
//! most recently used pages when the recorder reports them, which is later than their use. A depth
//! can therefore be wrong by up to the number of entries of the first TLB.

use std::{collections::BTreeMap, slice};

use addr::{Kind, PageSize};
use mmu::StackDistance;
use trace::{Batch, Error, Event, Forward, Hits, Meta, Source};

use super::{Curve, Lookups, PAGE_SIZE_MIN};

/// The largest number of pages of one size in the sample.
pub const PAGES_MAX: usize = 1 << 13;
/// If the sample is halved to save time, at least half of this number of pages stay in it.
pub const PAGES_MIN: usize = 1 << 11;
/// The lowest allowed ratio of all accesses to accesses to sampled pages. If the ratio is lower,
/// the sample is halved, unless it is small.
const ACCESSES_PER_USE: u64 = 24;
/// The number of accesses between two checks of [`ACCESSES_PER_USE`].
const LOOK_ACCESSES: u64 = 1 << 18;
/// Additional places in the stack beyond [`PAGES_MAX`], since the sample is halved slightly after
/// it has reached this number of pages.
const SPARE: usize = 64;
/// The number of upper bits of a `u64` that page numbers do not use. These bits hold the number of
/// the address space.
const SPACE_BITS: u32 = PAGE_SIZE_MIN.shift();

/// Which accesses of a long run are looked up. Only the accesses that a batch contains determine
/// where windows begin and end; the accesses that a batch only counts ([`Batch::hits`]) belong to
/// the window or gap in which they are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    /// The number of accesses in the first window, at the beginning of the run.
    pub whole: u64,
    /// The number of accesses in the window at the beginning of each period after the first window;
    /// 0 counts as 1.
    pub window: u64,
    /// The number of accesses in a period: a window and the gap after it.
    pub period: u64,
}

impl Default for Windows {
    fn default() -> Windows {
        Windows { whole: 50_000_000, window: 500_000, period: 4_000_000 }
    }
}

/// The accesses of a run that were not looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gaps {
    /// The number of accesses, from the first counted access on, that were all looked up.
    pub after: u64,
    /// Of the later accesses, about one in this number was looked up.
    pub one_in: u64,
}

/// The curve of the loads and stores of a run, from a sample of its pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampledCurve {
    /// The curve. The hits are estimated if not all pages are in the sample; in that case the
    /// number of lookups is still exact. Both hits and lookups are estimated if not all accesses
    /// were looked up.
    pub curve: Curve,
    /// The number of pages per sampled page at the end: 1 if all pages were sampled.
    pub one_in: u64,
    /// The accesses that were not looked up; `None` if all accesses were looked up.
    pub gaps: Option<Gaps>,
}

/// A source that passes on the batches of another source and samples their accesses.
pub struct Sampled<'a> {
    source: &'a mut dyn Source,
    sampler: Sampler,
}

impl<'a> Sampled<'a> {
    /// Samples `source`, for one curve of up to `entries_max` entries for each of `page_sizes`, which are 4
    /// KiB or larger.
    pub fn new(
        source: &'a mut dyn Source,
        page_sizes: &[PageSize],
        entries_max: u32,
    ) -> Sampled<'a> {
        Sampled::in_windows(source, page_sizes, entries_max, Windows::default())
    }

    /// Like [`Sampled::new`], but with the given windows.
    pub fn in_windows(
        source: &'a mut dyn Source,
        page_sizes: &[PageSize],
        entries_max: u32,
        windows: Windows,
    ) -> Sampled<'a> {
        Sampled { source, sampler: Sampler::new(page_sizes, entries_max as usize, windows) }
    }

    /// The curves of all batches passed on so far, in the order of `page_sizes`.
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
    /// Accesses of the open period that were looked up and touch only one page, even of the
    /// smallest size.
    single: u64,
    /// The estimated number of accesses in all earlier periods that touch only one page, scaled up
    /// from the accesses that were looked up.
    single_before: u64,
    /// For each space, by its number in the trace, its place in the order in which spaces first
    /// ran. The next field is the tag of the running space.
    spaces: BTreeMap<u32, u64>,
    space: u64,
    /// Accesses since the last check of [`ACCESSES_PER_USE`].
    accesses: u64,
    windows: Windows,
    stretch: Stretch,
    /// The number of accesses until the next window or gap begins. Accesses that batches only count
    /// are not included.
    left: u64,
    /// How many accesses of the open period were looked up, and how many there were.
    seen: Seen,
    /// The number of accesses since counting began up to the end of the first window. The next
    /// field says whether an access in a gap has followed.
    whole: u64,
    has_gaps: bool,
}

/// The position in a long run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stretch {
    Whole,
    Window,
    Gap,
}

/// The accesses of a period.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The accesses that were looked up.
    looked: u64,
    /// All accesses.
    all: u64,
}

impl Seen {
    /// `count`, a count of accesses that were looked up, scaled up to an estimate for all accesses.
    fn scale(self, count: u64) -> u64 {
        if self.looked == self.all {
            return count;
        }
        let scaled = u128::from(count) * u128::from(self.all) / u128::from(self.looked.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

/// Counts of pages of one size.
#[derive(Clone)]
struct Counts {
    /// Hits by estimated depth in the stack of all pages, without hits on the page looked up last.
    hits: Box<[u64]>,
    /// Lookups of a page that is deeper in the stack than the largest TLB of the curve.
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

    /// Adds the counts of a period: `counts`, scaled up to all accesses of the period.
    fn add(&mut self, counts: &Counts, seen: Seen) {
        let Counts { hits, deeper, cold, of_crossings } = self;
        // Within one period there are hits at only a few depths.
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
    /// The page looked up last, whether or not it is sampled.
    last: u64,
    /// One in `2^halvings` pages is sampled.
    halvings: u32,
    stack: StackDistance,
    /// The pages in the sample.
    pages: Vec<u64>,
    /// The counts of the open period.
    open: Counts,
    /// The counts of all earlier periods.
    before: Counts,
    /// Accesses to sampled pages since the last check of [`ACCESSES_PER_USE`].
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

    /// Handles the accesses and the counted hits before the access with the index `to`.
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

    /// Handles accesses that all lie in one window or all in one gap.
    fn part(&mut self, addrs: &[u64], metas: &[Meta]) {
        self.left -= addrs.len() as u64;
        if self.passes(addrs.len() as u64) {
            self.look(addrs, metas);
        }
    }

    /// Counts accesses of the open period. Returns whether these accesses must be looked up.
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

    /// Ends the open period.
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
            // One test, so that the host's processor mispredicts at most one branch.
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

    /// Looks up an access within one of the smallest pages, another page than the one used last.
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

    /// Looks up an access that touches several of the smallest pages, and maybe several larger
    /// ones.
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

    /// Counts hits of the first TLB that a batch only counts.
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

    /// The upper bits of all page numbers in the space that is running.
    fn tag(&self) -> u64 {
        self.space << (u64::BITS - SPACE_BITS)
    }

    /// Switches to a space. If there are more spaces than tags, several spaces share a tag, which
    /// hardly changes the estimate.
    fn switch(&mut self, space: u32) {
        let next = self.spaces.len() as u64 % ((1 << SPACE_BITS) - 1);
        self.space = *self.spaces.entry(space).or_insert(next);
    }

    /// Ends the warm-up: resets the counts to zero; the stacks stay. Sampling continues with a
    /// window if the first window has ended.
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
        // The hits at the first depth are all lookups that are neither misses nor hits at another
        // depth.
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
    /// Looks up a page other than the one used last.
    #[inline]
    fn touch(&mut self, page: u64) {
        self.last = page;
        if self.samples(page) {
            self.sample(page);
        }
    }

    /// Whether `page` is sampled.
    #[inline]
    fn samples(&self, page: u64) -> bool {
        // There are two shifts because a shift by 64 would not shift at all.
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

    /// Makes `page` the most recently used one, without counting a lookup.
    fn refresh(&mut self, page: u64) {
        self.last = page;
        if self.samples(page) && self.stack.touch(page).is_none() {
            self.add(page);
        }
    }

    /// Adds `page` to the stack for the first time.
    fn add(&mut self, page: u64) {
        self.pages.push(page);
        if self.pages.len() > PAGES_MAX {
            self.halve();
        }
    }

    /// Halves the sample if its pages were used more than `allowed` times, unless the sample would
    /// become too small.
    fn look(&mut self, allowed: u64) {
        if std::mem::take(&mut self.uses) > allowed && self.pages.len() > PAGES_MIN {
            self.halve();
        }
    }

    /// Halves the share of sampled pages.
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

/// The bits of a page number, mixed so that the upper bits depend on all bits (the finalizer of
/// MurmurHash3, Appleby).
#[inline]
fn mixed(page: u64) -> u64 {
    let page = (page ^ (page >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (page ^ (page >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}
