//! A naive two-level TLB for comparison: arrays of tags and time stamps, searched one by one.
//!
//! It has no page table, operating system, regions or kinds of access. It counts the hits and
//! misses of two levels with LRU; a machine with TLBs only must have the same counts. `naive.cpp`
//! has the same loop in C++.

/// The number of entries of a level, and its ways.
pub(crate) type Shape = (usize, usize);

/// The counts of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) l1_misses: u64,
    pub(crate) l2_misses: u64,
}

struct Level {
    sets: u64,
    ways: usize,
    tags: Vec<u64>,
    stamps: Vec<u64>,
}

impl Level {
    fn new((entries, ways): Shape) -> Level {
        let sets = (entries / ways) as u64;
        Level { sets, ways, tags: vec![u64::MAX; entries], stamps: vec![0; entries] }
    }

    /// Looks up `page`; on a miss, replaces the least recently used entry by it.
    #[inline]
    fn hits(&mut self, page: u64, now: u64) -> bool {
        let start = (page % self.sets) as usize * self.ways;
        let tags = &mut self.tags[start..start + self.ways];
        let stamps = &mut self.stamps[start..start + self.ways];
        let mut oldest = 0;
        for way in 0..tags.len() {
            if tags[way] == page {
                stamps[way] = now;
                return true;
            }
            if stamps[way] < stamps[oldest] {
                oldest = way;
            }
        }
        tags[oldest] = page;
        stamps[oldest] = now;
        false
    }
}

/// Runs `addrs` through two levels of TLBs.
pub(crate) fn two_levels<'a>(
    addrs: impl Iterator<Item = &'a [u64]>,
    first: Shape,
    second: Shape,
) -> Counts {
    let (mut first, mut second) = (Level::new(first), Level::new(second));
    let mut counts = Counts::default();
    let mut now = 0;
    for addr in addrs.flatten() {
        let page = addr >> 12;
        now += 1;
        if !first.hits(page, now) {
            counts.l1_misses += 1;
            counts.l2_misses += u64::from(!second.hits(page, now));
        }
    }
    counts
}
