//! A data cache: lines of physical memory in sets, write-back and write-allocate.
//!
//! ```text
//!   phys  |        line number        | offset |
//!              |          \
//!         key of SetArray  tag: line number << 1 | dirty
//! ```
//!
//! It knows which lines it holds and which of them are dirty; data it has none. Misses are
//! completed by a [`Hierarchy`], which fetches the line from below and takes the dirty victim.
//!
//! Most requests are for the line that their set used last. Under most policies they leave the
//! set as it is, and are only counted.

mod hierarchy;

pub use hierarchy::{Entrance, Hierarchy, HierarchyParams, Requester, Served};

use addr::PhysAddr;
use prefetch_index::prefetch_index;

use crate::{AnyReplacement, GeometryError, Learns, Policy, SetArray, hints::Hints};

/// The tag of an empty slot: no address has this line number.
const EMPTY: u64 = u64::MAX;

/// How many hints a cache keeps: enough for the lines of a first-level cache.
const HINTS: usize = 2048;
/// A cache of more lines keeps none: what misses the caches in front of it is seldom where a hint says,
/// and each wrong hint reads a tag for nothing.
const HINTED_LINES_MAX: usize = 1 << 14;

/// So many tags lie in one line of the host's caches.
const TAGS_FETCHED: usize = 64 / size_of::<u64>();

/// What is known of so many lines is more than the nearest caches of hosts have.
const FAR_LINES_MIN: usize = 1 << 17;

/// The shape of a data cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheParams {
    /// Bytes of data that it holds.
    pub size_bytes: u64,
    /// Bytes of a line: a power of two.
    pub line_bytes: u32,
    /// Ways of a set.
    pub ways: u32,
    /// Which line of a full set goes.
    pub replacement: Policy,
    /// Start of the sequence of [`Policy::Random`].
    pub seed: u64,
}

/// What a cache has been asked by one requester. Hits are what is left without the misses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// Lines read.
    pub reads: u64,
    /// Lines read that were not there.
    pub read_misses: u64,
    /// Lines written.
    pub writes: u64,
    /// Lines written that were not there.
    pub write_misses: u64,
}

/// What a cache has counted.
///
/// A miss of a cache in front is a read here, whatever caused it. Lines that a cache in front
/// writes back are its writebacks, not this one's writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounts {
    /// Asked by the program.
    pub program: Requests,
    /// Asked by the page-table walker.
    pub walker: Requests,
    /// Dirty lines that made room and were written to the next level.
    pub writebacks: u64,
    /// What was flushed.
    pub flushed: Flushed,
}

/// Lines that were flushed from a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flushed {
    /// How often there was something to flush, or nothing.
    pub times: u64,
    /// Lines that were looked at: those that there can be of what is flushed, at most all.
    pub looked: u64,
    /// Lines that went.
    pub lines: u64,
    /// Those of them that were dirty, and were written to the next level.
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

/// The tag of the line that each set used last, where to use it again changes nothing: not where the policy
/// counts uses. Sets that are no power of two have none.
#[derive(Clone, Debug)]
struct Latest {
    /// One for each set, or one for all, which stays empty.
    tags: Box<[u64]>,
    mask: u64,
    /// What makes each tag empty, if none is kept.
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

    /// Whether its set used `line` last, and to use it again changes nothing. For a write it must be dirty.
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

/// Lines asked for and missed: reads, then writes.
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

    /// What has been counted so far.
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

    /// Begins to count anew; the lines stay.
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

    /// Forgets the lines of which `goes` says so, by the address of their first byte; of `bytes` bytes at
    /// most. Whoever fetches them next misses.
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

    /// Whether it holds the line at the physical address `phys`, and if so whether it is dirty.
    pub fn peek(&self, phys: PhysAddr) -> Option<bool> {
        let line = phys.get() >> self.line_shift;
        let slot = self.find(self.sets.set_of(line), line)?;
        Some(self.tags[slot] & 1 != 0)
    }

    /// Whether what it knows of its lines is more than the nearest caches of hosts have.
    fn is_far(&self) -> bool {
        self.tags.len() >= FAR_LINES_MIN
    }

    /// Has the host fetch what it knows of the set of the line at `phys`.
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

    /// Counts a request for `line`, and serves it if the line is there.
    #[inline(always)]
    fn request(&mut self, line: u64, write: bool, who: Requester) -> bool {
        let hit = self.latest.holds(line, write) || self.touch(line, write);
        self.count(hit, write, who);
        hit
    }

    /// Counts a request for `line`, which [`Cache::hit`] has not found, and serves it if the line is there.
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

    /// The line at `phys`, if all of the `bytes` are in it.
    #[inline(always)]
    fn only_line(&self, phys: PhysAddr, bytes: u32) -> Option<u64> {
        let line = phys.get() >> self.line_shift;
        let end = phys.get().wrapping_add(u64::from(bytes).wrapping_sub(1)) >> self.line_shift;
        (line == end).then_some(line)
    }

    /// Whether to use the line at `phys` changes nothing: its set used it last, and all of the
    /// `bytes` are in it. For a write it must be dirty.
    #[inline(always)]
    fn is_repeat(&self, phys: PhysAddr, bytes: u32, write: bool) -> bool {
        self.only_line(phys, bytes).is_some_and(|line| self.latest.holds(line, write))
    }

    /// Uses the line at `phys` if it is found at once and has all of the `bytes`.
    #[inline(always)]
    fn hit(&mut self, phys: PhysAddr, bytes: u32, write: bool) -> bool {
        self.only_line(phys, bytes)
            .is_some_and(|line| self.latest.holds(line, write) || self.touch_hinted(line, write))
    }

    /// Uses `line` if it is there.
    fn touch(&mut self, line: u64, write: bool) -> bool {
        self.touch_hinted(line, write) || self.touch_found(line, write)
    }

    /// Uses `line` if it is where a hint says. Returns whether it was.
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

    /// Searches the set of `line`, without a hint, and uses `line` if it is there. Returns whether it was.
    #[inline(never)]
    fn touch_found(&mut self, line: u64, write: bool) -> bool {
        let found = self.find(self.sets.set_of(line), line);
        if let Some(slot) = found {
            self.hint(line, slot);
            self.use_slot(slot, line, write);
        }
        found.is_some()
    }

    /// Uses `line`, which is in `slot`.
    #[inline(always)]
    fn use_slot(&mut self, slot: usize, line: u64, write: bool) {
        let tag = line << 1 | self.tags[slot] & 1 | u64::from(write);
        self.tags[slot] = tag;
        self.policy.touched(slot);
        self.latest.set(line, tag);
    }

    /// `line` is in `slot`.
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

    /// The first empty slot of `set`, which has one, is given `line`.
    #[cold]
    #[inline(never)]
    fn take_empty(&mut self, set: usize, line: u64) -> usize {
        let slot = self.sets.empty_slot(set).unwrap_or(0);
        self.sets.occupy(set, slot, line);
        self.policy.inserted(slot);
        slot
    }

    /// Takes in `line`, which is not there. Gives the line that made room if it was dirty.
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
