use std::time::{Duration, Instant};

/// The timed operations; their times are per page. First they work page by page, then on a whole
/// region of pages.
pub(crate) const OPERATIONS: [&str; 7] =
    ["map", "walk", "protect", "unmap", "map 256", "protect 256", "unmap 256"];

pub(crate) const PAGE_BYTES: u64 = 4096;
/// The number of pages of a region, which are in one table of the lowest level.
pub(crate) const REGION_PAGES: u64 = 256;
/// The distance from the start of one region to that of the next.
const STRIDE: u64 = 16 << 20;
const FIRST: u64 = 0x10_0000_0000;
/// The address of the frames of pages: beyond all tables, and within the reach of 4-byte entries.
const FRAMES: u64 = 1 << 32;

/// The pages that every contender maps, walks, protects and unmaps.
pub(crate) struct Order {
    regions: Vec<u64>,
    /// All pages in the order in which they are mapped, protected and unmapped page by page.
    pages: Vec<u64>,
    /// All pages in the order of the walks.
    walked: Vec<u64>,
}

/// A page table to be timed. A whole round is compiled for each table, so that no virtual call is
/// timed.
pub(crate) trait Contender {
    /// Runs [`Order::round`].
    fn round(&mut self, order: &Order) -> (Took, u64);
}

impl<T: Table> Contender for T {
    fn round(&mut self, order: &Order) -> (Took, u64) {
        order.round(self)
    }
}

/// The time of each operation in a round.
pub(crate) type Took = [Duration; OPERATIONS.len()];

/// A page table that supports the operations.
pub(crate) trait Table {
    fn create(&mut self);
    fn destroy(&mut self);
    /// Maps `pages` pages from `start` on, as one operation if the table has one.
    fn map(&mut self, start: u64, frame: u64, pages: u64);
    /// The physical address of `addr`.
    fn walk(&mut self, addr: u64) -> u64;
    /// Makes the pages read-only.
    fn protect(&mut self, start: u64, pages: u64);
    fn unmap(&mut self, start: u64, pages: u64);
}

impl Order {
    /// The work on this number of regions. Single pages are used in ascending order or, if
    /// `shuffled`, in the order of the walks.
    pub(crate) fn new(regions: u64, shuffled: bool) -> Order {
        let regions: Vec<u64> = (0..regions).map(|n| FIRST + n * STRIDE).collect();
        let in_order: Vec<u64> = regions.iter().flat_map(|&region| pages(region)).collect();
        let mut walked = in_order.clone();
        // A fixed shuffle: pages are sorted by a hash of their number.
        walked.sort_unstable_by_key(|page| (page >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let pages = if shuffled { walked.clone() } else { in_order };
        Order { regions, pages, walked }
    }

    /// Runs one round. Returns the time of each operation, and a sum of the results of the walks.
    fn round(&self, table: &mut impl Table) -> (Took, u64) {
        let Order { regions, pages, walked } = self;
        table.create();
        let (map, ()) = timed(|| pages.iter().for_each(|&page| table.map(page, frame_of(page), 1)));
        let (walk, sum) = timed(|| {
            walked.iter().fold(0, |sum: u64, &page| sum.rotate_left(1) ^ table.walk(page + 8))
        });
        let (protect, ()) = timed(|| pages.iter().for_each(|&page| table.protect(page, 1)));
        let (unmap, ()) = timed(|| pages.iter().for_each(|&page| table.unmap(page, 1)));
        let (map_region, ()) =
            timed(|| regions.iter().for_each(|&r| table.map(r, frame_of(r), REGION_PAGES)));
        let (protect_region, ()) =
            timed(|| regions.iter().for_each(|&r| table.protect(r, REGION_PAGES)));
        let (unmap_region, ()) =
            timed(|| regions.iter().for_each(|&r| table.unmap(r, REGION_PAGES)));
        table.destroy();
        ([map, walk, protect, unmap, map_region, protect_region, unmap_region], sum)
    }

    /// All pages in the order of the operations page by page.
    pub(crate) fn pages(&self) -> &[u64] {
        &self.pages
    }

    /// The number of the region of a page.
    pub(crate) fn region_of(&self, page: u64) -> u64 {
        (page - FIRST) / STRIDE
    }
}

/// Called by a walk that found nothing.
#[cold]
pub(crate) fn unmapped() -> ! {
    panic!("a page of the work is not mapped")
}

fn pages(region: u64) -> impl Iterator<Item = u64> {
    (0..REGION_PAGES).map(move |n| region + n * PAGE_BYTES)
}

fn frame_of(page: u64) -> u64 {
    FRAMES + (page - FIRST)
}

/// Times a piece of work. Each piece is compiled separately, because together they would need more
/// registers than the processor has.
#[inline(never)]
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}
