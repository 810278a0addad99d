use std::time::{Duration, Instant};

/// What is timed, a page each: one by one, then a region of pages at once.
pub(crate) const OPERATIONS: [&str; 7] =
    ["map", "walk", "protect", "unmap", "map 256", "protect 256", "unmap 256"];

pub(crate) const PAGE_BYTES: u64 = 4096;
/// Pages of a region; they lie in one table of the lowest level.
pub(crate) const REGION_PAGES: u64 = 256;
/// From the start of one region to that of the next.
const STRIDE: u64 = 16 << 20;
const FIRST: u64 = 0x10_0000_0000;
/// The frames of pages: beyond all tables, and within what entries of four bytes can name.
const FRAMES: u64 = 1 << 32;

/// The pages that every contender maps, walks, protects and unmaps.
pub(crate) struct Order {
    regions: Vec<u64>,
    /// All pages in the order in which they are worked on one by one.
    pages: Vec<u64>,
    /// All pages in the order in which they are walked.
    walked: Vec<u64>,
}

/// A page table under the clock. A whole round is compiled for it, so that no call through a table
/// of functions is timed.
pub(crate) trait Contender {
    /// [`Order::round`].
    fn round(&mut self, order: &Order) -> (Took, u64);
}

impl<T: Table> Contender for T {
    fn round(&mut self, order: &Order) -> (Took, u64) {
        order.round(self)
    }
}

/// What each operation took in a round.
pub(crate) type Took = [Duration; OPERATIONS.len()];

/// A page table that can do the work.
pub(crate) trait Table {
    fn create(&mut self);
    fn destroy(&mut self);
    /// Maps `pages` pages from `start` on, as one operation if it has one.
    fn map(&mut self, start: u64, frame: u64, pages: u64);
    /// Where `addr` lies.
    fn walk(&mut self, addr: u64) -> u64;
    /// Makes them read-only.
    fn protect(&mut self, start: u64, pages: u64);
    fn unmap(&mut self, start: u64, pages: u64);
}

impl Order {
    /// Work on so many regions; page by page in order, or in the order of the walks.
    pub(crate) fn new(regions: u64, shuffled: bool) -> Order {
        let regions: Vec<u64> = (0..regions).map(|n| FIRST + n * STRIDE).collect();
        let in_order: Vec<u64> = regions.iter().flat_map(|&region| pages(region)).collect();
        let mut walked = in_order.clone();
        // A fixed shuffle: each page goes where a hash of its number puts it.
        walked.sort_unstable_by_key(|page| (page >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let pages = if shuffled { walked.clone() } else { in_order };
        Order { regions, pages, walked }
    }

    /// One round: what each operation took, and a sum of what the walks found.
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

    /// All pages in the order in which they are worked on one by one.
    pub(crate) fn pages(&self) -> &[u64] {
        &self.pages
    }

    /// The number of the region that a page lies in.
    pub(crate) fn region_of(&self, page: u64) -> u64 {
        (page - FIRST) / STRIDE
    }
}

/// Where a walk ends that found nothing.
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

/// Compiled for each piece of work by itself: together they would want more registers than there
/// are.
#[inline(never)]
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}
