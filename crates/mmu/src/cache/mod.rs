//! A data cache: lines of physical memory in sets, write-back and write-allocate.
//!
//! ```text
//!   phys  |        line number        | offset |
//!              |          \
//!         key of SetArray  tag: line number << 1 | dirty
//! ```
//!
//! The model records which lines the cache holds and which of them are dirty, but not their data. A
//! [`Hierarchy`] completes misses: it fetches the line from the next level and writes back the
//! dirty victim.
//!
//! Most requests are for the most recently used line of their set. With most policies such a
//! request leaves the set unchanged and is only counted.

mod hierarchy;

pub use hierarchy::{Entrance, Hierarchy, HierarchyParams, Requester, Served};

use addr::PhysAddr;
use prefetch_index::prefetch_index;

use crate::{AnyReplacement, GeometryError, Learns, Policy, SetArray, hints::Hints};

/// The tag of an empty slot: no line has this number.
const EMPTY: u64 = u64::MAX;

/// The number of hints that a cache keeps: enough for the lines of a first-level cache.
const HINTS: usize = 2048;
/// A cache with more lines than this keeps no hints: after misses of the caches in front a hint is
/// rarely right, and each wrong hint costs the read of a tag.
const HINTED_LINES_MAX: usize = 1 << 14;

/// The number of tags in one cache line of the host.
const TAGS_FETCHED: usize = 64 / size_of::<u64>();

/// From this number of lines on, a cache's simulated state is larger than the nearest caches of a
/// host.
const FAR_LINES_MIN: usize = 1 << 17;

/// The shape of a data cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheParams {
    /// The capacity for data, in bytes.
    pub size_bytes: u64,
    /// The line size in bytes: a power of two.
    pub line_bytes: u32,
    /// The number of ways per set.
    pub ways: u32,
    /// The policy that chooses the line to replace in a full set.
    pub replacement: Policy,
    /// The seed of [`Policy::Random`].
    pub seed: u64,
}

/// Requests to a cache by one requester. Hits are the requests that are not misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// Lines read.
    pub reads: u64,
    /// Lines read that were not in the cache.
    pub read_misses: u64,
    /// Lines written.
    pub writes: u64,
    /// Lines written that were not in the cache.
    pub write_misses: u64,
}

/// Counts of a cache.
///
/// A miss of the previous cache counts as a read of this cache, whatever caused the miss. A line
/// that the previous cache writes back is counted as a writeback of that cache, and not as a write
/// of this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounts {
    /// Requests by the program.
    pub program: Requests,
    /// Requests by the page-table walker.
    pub walker: Requests,
    /// Dirty lines that were replaced and written to the next level.
    pub writebacks: u64,
    /// Counts of flushes.
    pub flushed: Flushed,
}

/// Counts of lines flushed from a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flushed {
    /// The number of flushes, including those that found nothing to flush.
    pub times: u64,
    /// Lines searched for: as many lines as the flushed memory has, but at most all lines of the
    /// cache.
    pub looked: u64,
    /// Lines flushed.
    pub lines: u64,
    /// Flushed lines that were dirty and were written to the next level.
    pub dirty: u64,
}

/// A data cache.
#[derive(Clone, Debug)]
pub struct Cache {
    line_shift: u32,
    sets: SetArray,
    tags: Box<[u64]>,
    hints: Option<Hints<HINTS>>,
    latest: Latest,
    policy: AnyReplacement,
    program: Traffic,
    walker: Traffic,
    writebacks: u64,
    flushed: Flushed,
}

/// For each set, the tag of its most recently used line, if using this line again changes nothing.
/// No tags are kept if the policy counts uses, or if the number of sets is not a power of two.
#[derive(Clone, Debug)]
struct Latest {
    /// One tag for each set, or a single tag that stays empty.
    tags: Box<[u64]>,
    mask: u64,
    /// A mask that is combined with each tag, so that the tag is empty if no tags are kept.
    emptying: u64,
}

impl Latest {
    fn new(sets: &SetArray, learns: Learns) -> Latest {
        let is_kept = learns != Learns::Each && sets.sets().is_power_of_two();
        let sets = if is_kept { sets.sets() } else { 1 };
        Latest {
            tags: vec![EMPTY; sets].into_boxed_slice(),
            mask: sets as u64 - 1,
            emptying: if is_kept { 0 } else { EMPTY },
        }
    }

    /// Whether `line` is the most recently used line of its set and using it again changes nothing. For a
    /// write, the line must be dirty already.
    #[inline(always)]
    fn holds(&self, line: u64, write: bool) -> bool {
        let last = self.tags[(line & self.mask) as usize];
        last | u64::from(!write) == line << 1 | 1
    }

    #[inline(always)]
    fn set(&mut self, line: u64, tag: u64) {
        self.tags[(line & self.mask) as usize] = tag | self.emptying;
    }

    fn forget(&mut self, line: u64) {
        if self.holds(line, false) {
            self.set(line, EMPTY);
        }
    }
}

/// Lines requested and lines missed; in each array, first for reads and then for writes.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    asked: [u64; 2],
    missed: [u64; 2],
}

impl Cache {
    /// An empty cache.
    pub fn new(params: &CacheParams) -> Result<Cache, GeometryError> {
        let CacheParams { size_bytes, line_bytes, ways, replacement, seed } = *params;
        if !line_bytes.is_power_of_two() || line_bytes < 4 {
            return Err(GeometryError::Line { bytes: line_bytes });
        }
        if !size_bytes.is_multiple_of(line_bytes.into()) {
            return Err(GeometryError::Size { bytes: size_bytes, line_bytes });
        }
        let sets = SetArray::new(size_bytes / u64::from(line_bytes), ways)?;
        let ways_of_sets = core::iter::repeat_n(sets.ways(), sets.sets());
        let policy = AnyReplacement::new(replacement, ways_of_sets, seed);
        Ok(Cache {
            line_shift: line_bytes.trailing_zeros(),
            tags: vec![EMPTY; sets.entries()].into_boxed_slice(),
            latest: Latest::new(&sets, policy.learns()),
            policy,
            hints: (sets.entries() <= HINTED_LINES_MAX).then(Hints::new),
            sets,
            program: Traffic::default(),
            walker: Traffic::default(),
            writebacks: 0,
            flushed: Flushed::default(),
        })
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> u32 {
        1 << self.line_shift
    }

    /// The counts so far.
    pub fn counts(&self) -> CacheCounts {
        let requests = |traffic: &Traffic| Requests {
            reads: traffic.asked[0],
            read_misses: traffic.missed[0],
            writes: traffic.asked[1],
            write_misses: traffic.missed[1],
        };
        CacheCounts {
            program: requests(&self.program),
            walker: requests(&self.walker),
            writebacks: self.writebacks,
            flushed: self.flushed,
        }
    }

    /// Resets the counts to zero; the lines stay.
    pub fn forget_counts(&mut self) {
        let Cache {
            line_shift: _,
            sets: _,
            tags: _,
            hints: _,
            latest: _,
            policy: _,
            program,
            walker,
            writebacks,
            flushed,
        } = self;
        (*program, *walker) = (Traffic::default(), Traffic::default());
        *writebacks = 0;
        *flushed = Flushed::default();
    }

    /// Removes the lines for whose addresses `goes` returns true; the removed addresses cover at
    /// most `bytes` bytes of memory. The next request for a removed line misses.
    pub fn flush(&mut self, bytes: u64, goes: impl Fn(PhysAddr) -> bool) {
        self.flushed.times += 1;
        let lines = bytes.div_ceil(1 << self.line_shift);
        self.flushed.looked += lines.min(self.tags.len() as u64);
        for slot in 0..self.tags.len() {
            let tag = self.tags[slot];
            if tag == EMPTY || !goes(PhysAddr::new((tag >> 1) << self.line_shift)) {
                continue;
            }
            self.flushed.lines += 1;
            self.flushed.dirty += tag & 1;
            self.tags[slot] = EMPTY;
            self.latest.forget(tag >> 1);
            self.sets.vacate(slot);
            self.policy.removed(slot);
        }
    }

    /// If the cache holds the line at the physical address `phys`, whether this line is dirty;
    /// otherwise `None`.
    pub fn peek(&self, phys: PhysAddr) -> Option<bool> {
        let line = phys.get() >> self.line_shift;
        let slot = self.find(self.sets.set_of(line), line)?;
        Some(self.tags[slot] & 1 != 0)
    }

    /// Whether the simulated state of this cache's lines is larger than the nearest caches of a
    /// host.
    fn is_far(&self) -> bool {
        self.tags.len() >= FAR_LINES_MIN
    }

    /// Prefetches, on the host, the simulated state of the set for the line at `phys`.
    #[inline]
    fn soon(&self, phys: PhysAddr) {
        let line = phys.get() >> self.line_shift;
        let set = self.sets.set_of(line);
        let first = set * self.sets.ways();
        self.sets.soon(set);
        self.policy.soon(first);
        prefetch_index(&self.latest.tags, (line & self.latest.mask) as usize);
        let mut slot = first;
        while slot < first + self.sets.ways() {
            prefetch_index(&self.tags, slot);
            slot += TAGS_FETCHED;
        }
    }

    /// Counts a request for `line`. Returns whether it is a hit.
    #[inline(always)]
    fn request(&mut self, line: u64, write: bool, who: Requester) -> bool {
        let hit = self.latest.holds(line, write) || self.touch(line, write);
        self.count(hit, write, who);
        hit
    }

    /// Counts a request for `line`, for which [`Cache::hit`] returned false. Returns whether it is a hit.
    #[inline(always)]
    fn request_found(&mut self, line: u64, write: bool, who: Requester) -> bool {
        let hit = self.touch_found(line, write);
        self.count(hit, write, who);
        hit
    }

    #[inline(always)]
    fn count(&mut self, hit: bool, write: bool, who: Requester) {
        let traffic = match who {
            Requester::Program(_) => &mut self.program,
            Requester::Walker => &mut self.walker,
        };
        traffic.asked[usize::from(write)] += 1;
        traffic.missed[usize::from(write)] += u64::from(!hit);
    }

    /// The line at `phys`, if it contains all of the `bytes` bytes.
    #[inline(always)]
    fn only_line(&self, phys: PhysAddr, bytes: u32) -> Option<u64> {
        let line = phys.get() >> self.line_shift;
        let end = phys.get().wrapping_add(u64::from(bytes).wrapping_sub(1)) >> self.line_shift;
        (line == end).then_some(line)
    }

    /// Whether accessing the line at `phys` changes nothing: the line is the most recently used one
    /// of its set and contains all of the `bytes` bytes; for a write, the line must be dirty
    /// already.
    #[inline(always)]
    fn is_repeat(&self, phys: PhysAddr, bytes: u32, write: bool) -> bool {
        self.only_line(phys, bytes).is_some_and(|line| self.latest.holds(line, write))
    }

    /// Accesses the line at `phys` if it is found quickly and contains all of the `bytes` bytes.
    /// Returns whether it did.
    #[inline(always)]
    fn hit(&mut self, phys: PhysAddr, bytes: u32, write: bool) -> bool {
        self.only_line(phys, bytes)
            .is_some_and(|line| self.latest.holds(line, write) || self.touch_hinted(line, write))
    }

    /// Accesses `line` if the cache holds it. Returns whether it does.
    fn touch(&mut self, line: u64, write: bool) -> bool {
        self.touch_hinted(line, write) || self.touch_found(line, write)
    }

    /// Accesses `line` if it is in the slot that a hint names. Returns whether it was.
    #[inline(never)]
    fn touch_hinted(&mut self, line: u64, write: bool) -> bool {
        let Some(hints) = &self.hints else { return false };
        let slot = hints.get(line);
        let is_there = self.tags.get(slot).is_some_and(|tag| tag >> 1 == line);
        if is_there {
            self.use_slot(slot, line, write);
        }
        is_there
    }

    /// Searches the set of `line` without a hint, and accesses the line if it is there. Returns whether it
    /// was.
    #[inline(never)]
    fn touch_found(&mut self, line: u64, write: bool) -> bool {
        let found = self.find(self.sets.set_of(line), line);
        if let Some(slot) = found {
            self.hint(line, slot);
            self.use_slot(slot, line, write);
        }
        found.is_some()
    }

    /// Accesses `line`, which is in `slot`.
    #[inline(always)]
    fn use_slot(&mut self, slot: usize, line: u64, write: bool) {
        let tag = line << 1 | self.tags[slot] & 1 | u64::from(write);
        self.tags[slot] = tag;
        self.policy.touched(slot);
        self.latest.set(line, tag);
    }

    /// Records the hint that `line` is in `slot`.
    #[inline]
    fn hint(&mut self, line: u64, slot: usize) {
        if let Some(hints) = &mut self.hints {
            hints.set(line, slot);
        }
    }

    #[inline]
    fn find(&self, set: usize, line: u64) -> Option<usize> {
        self.sets.find(set, line, |slot| self.tags[slot] >> 1 == line)
    }

    /// Puts `line` into the first empty slot of `set`, which must have an empty slot. Returns the
    /// slot.
    #[cold]
    #[inline(never)]
    fn take_empty(&mut self, set: usize, line: u64) -> usize {
        let slot = self.sets.empty_slot(set).unwrap_or(0);
        self.sets.occupy(set, slot, line);
        self.policy.inserted(slot);
        slot
    }

    /// Inserts `line`, which the cache does not hold. Returns the replaced line if it was dirty.
    fn insert(&mut self, line: u64, dirty: bool) -> Option<u64> {
        let set = self.sets.set_of(line);
        let slot = if self.sets.is_full(set) {
            let slot = self.policy.replaced(self.sets.slots(set));
            self.sets.exchange(set, slot, line);
            slot
        } else {
            self.take_empty(set, line)
        };
        let old = core::mem::replace(&mut self.tags[slot], line << 1 | u64::from(dirty));
        self.hint(line, slot);
        self.latest.set(line, self.tags[slot]);
        (old != EMPTY && old & 1 != 0).then_some(old >> 1)
    }
}
