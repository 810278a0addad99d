//! Misses over time and over the address space, in memory that does not grow with the trace.
//!
//! The map of misses has cells: intervals of time by ranges of addresses. Both axes begin with
//! small cells. When an axis is full, the size of its cells is doubled. So the number of cells at
//! the end is about equal for all traces, whatever their length and their range of addresses:
//!
//! ```text
//!   address ^   . . x .        time bins double when there are BINS_MAX of them,
//!           |   . x x .        granules when there are CELLS_MAX cells
//!           +----------> time
//! ```

use rustc_hash::FxHashMap;

use crate::{MissMap, Timeline};

const BINS_MAX: u64 = 512;
const BIN_ACCESSES_MIN: u64 = 1 << 12;
const MAP_BINS_MAX: u64 = 256;
const CELLS_MAX: usize = 1 << 14;
const GRANULE_SHIFT_MIN: u32 = 16;
/// Number of cells whose misses are collected before they are added to the maps.
const RECENT: usize = 128;

/// The misses of a run so far, over time and address.
#[derive(Clone, Debug)]
pub struct History {
    /// Index of the access with which the history begins.
    from: u64,
    bin_shift: u32,
    bins: Vec<Bin>,
    /// Misses of the current interval of accesses that are not in `bins` yet; the next field is
    /// that interval, counted from `from`.
    now: Bin,
    now_is: core::ops::Range<u64>,
    map_bin_shift: u32,
    granule_shift: u32,
    cells: FxHashMap<(u64, u64), u64>,
    /// The number of misses by granule and label of the region.
    owners: FxHashMap<(u64, u32), u64>,
    /// For each slot, which the granule determines: the cell that was counted last. This cell is in
    /// both maps.
    recent: Box<[Recent; RECENT]>,
}

/// Misses of one cell and region that are not in the maps yet.
#[derive(Clone, Copy, Debug)]
struct Recent {
    cell: (u64, u64),
    region: u32,
    misses: u64,
}

impl Recent {
    /// An unused slot.
    const NONE: Recent = Recent { cell: (u64::MAX, u64::MAX), region: 0, misses: 0 };
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    l1_misses: u64,
    misses: u64,
    cold_misses: u64,
}

impl History {
    /// A history that begins with the access of index `from`.
    pub fn new(from: u64) -> History {
        History {
            from,
            bin_shift: BIN_ACCESSES_MIN.trailing_zeros(),
            bins: Vec::new(),
            now: Bin::default(),
            now_is: 0..0,
            map_bin_shift: BIN_ACCESSES_MIN.trailing_zeros(),
            granule_shift: GRANULE_SHIFT_MIN,
            cells: FxHashMap::default(),
            owners: FxHashMap::default(),
            recent: Box::new([Recent::NONE; RECENT]),
        }
    }

    /// Counts a lookup at `access` that missed the first level and hit the second.
    #[inline]
    pub fn l1_miss(&mut self, access: u64) {
        self.bin(access - self.from).l1_misses += 1;
    }

    /// Counts a lookup of `addr` at `access` that missed every level; `region` is the label of the
    /// region that contains `addr`.
    pub fn miss(&mut self, access: u64, addr: u64, region: u32, cold: bool) {
        let access = access - self.from;
        let bin = self.bin(access);
        bin.l1_misses += 1;
        bin.misses += 1;
        bin.cold_misses += u64::from(cold);
        while access >> self.map_bin_shift >= MAP_BINS_MAX {
            self.settle();
            self.map_bin_shift += 1;
            self.regroup(|(time, granule)| (time >> 1, granule));
        }
        let cell = (access >> self.map_bin_shift, addr >> self.granule_shift);
        let recent = &mut self.recent[cell.1 as usize % RECENT];
        if recent.cell == cell && recent.region == region {
            recent.misses += 1;
        } else {
            self.begin(cell, region);
        }
    }

    /// Counts a miss of `cell`, when the slot has another cell that was counted last.
    #[cold]
    fn begin(&mut self, cell: (u64, u64), region: u32) {
        let new = Recent { cell, region, misses: 0 };
        let old = std::mem::replace(&mut self.recent[cell.1 as usize % RECENT], new);
        self.add(old);
        self.add(Recent { misses: 1, ..new });
        while self.cells.len() > CELLS_MAX {
            self.settle();
            self.granule_shift += 1;
            self.regroup(|(time, granule)| (time, granule >> 1));
            let mut owners = FxHashMap::default();
            for ((granule, region), misses) in self.owners.drain() {
                *owners.entry((granule >> 1, region)).or_insert(0) += misses;
            }
            self.owners = owners;
        }
    }

    /// Adds all collected misses to the maps.
    fn settle(&mut self) {
        for place in 0..RECENT {
            let recent = std::mem::replace(&mut self.recent[place], Recent::NONE);
            self.add(recent);
        }
    }

    /// Adds the misses of this slot to both maps.
    fn add(&mut self, Recent { cell, region, misses }: Recent) {
        if misses > 0 {
            *self.cells.entry(cell).or_insert(0) += misses;
            *self.owners.entry((cell.1, region)).or_insert(0) += misses;
        }
    }

    /// The history up to the access `end`, with a bin for each interval up to there. Regions in the
    /// map are still given by their labels.
    pub fn finish(mut self, end: u64) -> (Timeline, MissMap) {
        if let Some(last) = (end - self.from).checked_sub(1) {
            self.begin_bin(last);
        }
        self.settle();
        let timeline = Timeline {
            bin_accesses: 1 << self.bin_shift,
            l1_misses: self.bins.iter().map(|bin| bin.l1_misses).collect(),
            misses: self.bins.iter().map(|bin| bin.misses).collect(),
            cold_misses: self.bins.iter().map(|bin| bin.cold_misses).collect(),
        };
        let mut cells: Vec<(u64, u64, u64)> =
            self.cells.iter().map(|(&(time, granule), &misses)| (time, granule, misses)).collect();
        cells.sort_unstable();
        let mut owners: Vec<(u64, u32, u64)> = self
            .owners
            .iter()
            .map(|(&(granule, region), &misses)| (granule, region, misses))
            .collect();
        owners.sort_unstable();
        let map = MissMap {
            bin_accesses: 1 << self.map_bin_shift,
            granule_bytes: 1 << self.granule_shift,
            cells,
            owners,
        };
        (timeline, map)
    }

    /// The counts of the interval that contains `access`.
    #[inline]
    fn bin(&mut self, access: u64) -> &mut Bin {
        if !self.now_is.contains(&access) {
            self.begin_bin(access);
        }
        &mut self.now
    }

    /// Adds the current counts to `bins`, and begins the interval that contains `access`.
    #[cold]
    fn begin_bin(&mut self, access: u64) {
        let new = std::mem::take(&mut self.now);
        if !self.now_is.is_empty() {
            let bin = self.bin_at(self.now_is.start);
            bin.l1_misses += new.l1_misses;
            bin.misses += new.misses;
            bin.cold_misses += new.cold_misses;
        }
        self.bin_at(access);
        let first = access >> self.bin_shift << self.bin_shift;
        self.now_is = first..first + (1 << self.bin_shift);
    }

    fn bin_at(&mut self, access: u64) -> &mut Bin {
        while access >> self.bin_shift >= BINS_MAX {
            self.bin_shift += 1;
            self.bins = self
                .bins
                .chunks(2)
                .map(|pair| {
                    pair.iter().fold(Bin::default(), |sum, bin| Bin {
                        l1_misses: sum.l1_misses + bin.l1_misses,
                        misses: sum.misses + bin.misses,
                        cold_misses: sum.cold_misses + bin.cold_misses,
                    })
                })
                .collect();
        }
        let index = (access >> self.bin_shift) as usize;
        if self.bins.len() <= index {
            self.bins.resize(index + 1, Bin::default());
        }
        &mut self.bins[index]
    }

    fn regroup(&mut self, coarser: impl Fn((u64, u64)) -> (u64, u64)) {
        let mut cells = FxHashMap::default();
        for (cell, misses) in self.cells.drain() {
            *cells.entry(coarser(cell)).or_insert(0) += misses;
        }
        self.cells = cells;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the length of the trace and its range of addresses, no miss is lost and the map
    /// stays small.
    #[test]
    fn nothing_is_lost_by_coarsening() {
        for (accesses, stride, spread) in
            [(1, 1, 1u64), (5000, 3, 1 << 20), (3_000_000, 7, 1 << 40), (40_000_000, 997, u64::MAX)]
        {
            let mut history = History::new(0);
            let (mut misses, mut l1_misses) = (0, 0);
            let mut owners = std::collections::BTreeMap::new();
            let mut state = 1u64;
            for access in (0..accesses).step_by(stride) {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                if state >> 63 == 0 {
                    let (addr, region) = ((state >> 3) % spread, (state >> 40) as u32 % 3);
                    history.miss(access, addr, region, false);
                    *owners.entry((addr >> GRANULE_SHIFT_MIN, region)).or_insert(0) += 1;
                    misses += 1;
                } else {
                    history.l1_miss(access);
                }
                l1_misses += 1;
            }
            let (timeline, map) = history.finish(accesses);
            assert_eq!(timeline.misses.iter().sum::<u64>(), misses);
            assert_eq!(timeline.l1_misses.iter().sum::<u64>(), l1_misses);
            assert_eq!(timeline.misses.len() as u64, accesses.div_ceil(timeline.bin_accesses));
            assert!(timeline.misses.len() as u64 <= BINS_MAX);
            assert_eq!(map.cells.iter().map(|cell| cell.2).sum::<u64>(), misses);
            assert!(map.cells.len() <= CELLS_MAX);
            let sums = |all: &mut dyn Iterator<Item = (u64, u32, u64)>| {
                let mut sums = std::collections::BTreeMap::new();
                all.for_each(|(granule, of, misses)| {
                    *sums.entry((granule, of)).or_insert(0u64) += misses;
                });
                sums
            };
            let coarser = (map.granule_bytes >> GRANULE_SHIFT_MIN).trailing_zeros();
            let model = || owners.iter().map(|(&(granule, of), &n)| (granule >> coarser, of, n));
            assert_eq!(sums(&mut map.owners.iter().copied()), sums(&mut model()));
            let without = |(granule, _, misses)| (granule, 0, misses);
            let of_cells = sums(&mut map.cells.iter().map(|cell| (cell.1, 0, cell.2)));
            assert_eq!(of_cells, sums(&mut model().map(without)));
        }
    }

    #[test]
    fn a_miss_lands_in_its_bin_and_granule() {
        let mut history = History::new(0);
        history.miss(0, 0x1_0000, 7, true);
        history.miss(BIN_ACCESSES_MIN, 0x2_ffff, 8, false);
        let (timeline, map) = history.finish(BIN_ACCESSES_MIN + 1);
        assert_eq!((timeline.misses, timeline.cold_misses), (vec![1, 1], vec![1, 0]));
        assert_eq!(map.cells, vec![(0, 1, 1), (1, 2, 1)]);
        assert_eq!(map.owners, vec![(1, 7, 1), (2, 8, 1)]);
    }
}
