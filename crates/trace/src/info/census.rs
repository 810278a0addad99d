//! The pages and lines that were touched, by kind of access and by region.
//!
//! ```text
//!   page --> recent: 512 pages, direct-mapped --> entry
//!              \--> map: all pages            --> entry   [lines by kind | accesses by kind | region]
//! ```
//!
//! The accesses to a page are counted in the page's entry. They are added to the count of its
//! region when the page becomes part of another region, or at the end. A change of regions only
//! clears the recent pages; the region of a page is looked up again when the page is next touched.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{ByKind, Distinct};
use crate::{Meta, RegionId, Regions};

const PAGE_SHIFT: u32 = 12;
const LINE_SHIFT: u32 = 6;
const LINE_MASK: u64 = 63;
const RECENT: usize = 512;
/// A page number that no address has.
const NO_PAGE: u64 = u64::MAX;

/// The data of one touched page.
#[derive(Clone, Copy, Debug)]
struct SeenPage {
    /// For each kind of access, a bit mask of the lines touched.
    lines: [u64; 3],
    /// For each kind: the accesses that began in the page since the page has belonged to its
    /// current region.
    accesses: [u64; 3],
    region: RegionId,
    /// How many changes of regions had happened when the region was looked up.
    change: u32,
}

/// The counts of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RegionCounts {
    pub(super) accesses: ByKind,
    pub(super) pages: u64,
}

/// All touched pages.
#[derive(Debug)]
pub(super) struct Census {
    recent: Box<[(u64, u32); RECENT]>,
    map: FxHashMap<u64, u32>,
    entries: Vec<SeenPage>,
    regions: Vec<RegionCounts>,
    /// Pages that were counted for a region to which they no longer belong.
    former: FxHashSet<(u64, RegionId)>,
    change: u32,
}

impl Default for Census {
    fn default() -> Census {
        Census {
            recent: Box::new([(NO_PAGE, 0); RECENT]),
            map: FxHashMap::default(),
            entries: Vec::new(),
            regions: Vec::new(),
            former: FxHashSet::default(),
            change: 0,
        }
    }
}

impl Census {
    /// Counts an access.
    #[inline]
    pub(super) fn count(&mut self, addr: u64, meta: Meta, regions: &mut Regions) {
        let kind = meta.kind() as usize;
        let page = addr >> PAGE_SHIFT;
        let last = addr.saturating_add(u64::from(meta.size().max(1)) - 1);
        let (held, entry) = self.recent[page as usize % RECENT];
        let entry = if held == page { entry as usize } else { self.find(page, regions) };
        let entry = &mut self.entries[entry];
        entry.accesses[kind] += 1;
        if last >> PAGE_SHIFT == page {
            entry.lines[kind] |= lines(addr, last);
        } else {
            self.touch(addr, last, kind, regions);
        }
    }

    /// Marks the lines of an access that crosses a page boundary.
    #[cold]
    fn touch(&mut self, addr: u64, last: u64, kind: usize, regions: &mut Regions) {
        for page in addr >> PAGE_SHIFT..=last >> PAGE_SHIFT {
            let start = page << PAGE_SHIFT;
            let end = start | ((1 << PAGE_SHIFT) - 1);
            let entry = self.find(page, regions);
            self.entries[entry].lines[kind] |= lines(addr.max(start), last.min(end));
        }
    }

    /// The entry of `page`, with its current region.
    #[inline(never)]
    fn find(&mut self, page: u64, regions: &mut Regions) -> usize {
        let next = self.entries.len() as u32;
        let index = *self.map.entry(page).or_insert(next) as usize;
        self.recent[page as usize % RECENT] = (page, index as u32);
        let change = self.change;
        if index == self.entries.len() {
            let region = regions.region_of(page << PAGE_SHIFT);
            self.region(region).pages += 1;
            self.entries.push(SeenPage { lines: [0; 3], accesses: [0; 3], region, change });
        } else if self.entries[index].change != change {
            let region = regions.region_of(page << PAGE_SHIFT);
            self.entries[index].change = change;
            let before = self.entries[index].region;
            if region != before {
                self.settle(index);
                self.entries[index].region = region;
                self.former.insert((page, before));
                if !self.former.contains(&(page, region)) {
                    self.region(region).pages += 1;
                }
            }
        }
        index
    }

    /// Adds the accesses of an entry to the count of its region.
    fn settle(&mut self, index: usize) {
        let SeenPage { accesses, region, .. } = self.entries[index];
        self.entries[index].accesses = [0; 3];
        let counts = &mut self.region(region).accesses;
        counts.fetch += accesses[0];
        counts.load += accesses[1];
        counts.store += accesses[2];
    }

    fn region(&mut self, id: RegionId) -> &mut RegionCounts {
        let index = id.0 as usize;
        if self.regions.len() <= index {
            self.regions.resize(index + 1, RegionCounts::default());
        }
        &mut self.regions[index]
    }

    /// Records that pages may now belong to other regions.
    pub(super) fn regions_changed(&mut self) {
        self.change += 1;
        self.recent.fill((NO_PAGE, 0));
    }

    /// The counts of each region, by its number.
    pub(super) fn by_region(&mut self) -> Vec<RegionCounts> {
        (0..self.entries.len()).for_each(|index| self.settle(index));
        self.regions.clone()
    }

    /// The number of pages touched.
    pub(super) fn pages(&self) -> Distinct {
        self.distinct(|lines| u64::from(lines != 0))
    }

    /// The number of lines touched.
    pub(super) fn lines(&self) -> Distinct {
        self.distinct(|lines| u64::from(lines.count_ones()))
    }

    fn distinct(&self, count: fn(u64) -> u64) -> Distinct {
        let mut all = Distinct::default();
        for SeenPage { lines: [fetch, load, store], .. } in &self.entries {
            all.fetch += count(*fetch);
            all.load += count(*load);
            all.store += count(*store);
            all.total += count(fetch | load | store);
        }
        all
    }
}

/// A mask of the lines from the line of `addr` to the line of `last`; both addresses are in one
/// page.
#[inline]
fn lines(addr: u64, last: u64) -> u64 {
    let (from, to) = (addr >> LINE_SHIFT & LINE_MASK, last >> LINE_SHIFT & LINE_MASK);
    u64::MAX << from & u64::MAX >> (LINE_MASK - to)
}
