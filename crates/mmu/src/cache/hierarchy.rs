//! The data caches of a machine, connected level by level.
//!
//! ```text
//!   fetch ------> l1i --\
//!                        >-- l2 ---- l3 ---- memory         any of them may be absent
//!   load, store > l1d --/    ^
//!                            |
//!   walker ------------------+   enters where it is told to
//! ```
//!
//! A miss is forwarded to the next level and fills every level on the way back. A dirty victim is
//! written to the next level after the line that replaces it has been fetched. The next level
//! treats this write like any other write. Levels are neither inclusive nor exclusive. l1i does not
//! get data that is written through l1d.

use addr::{Kind, PhysAddr};

use super::{Cache, CacheCounts, CacheParams};
use crate::{GeometryError, Learns};

/// The place that served an access: one of the caches, nearest first, or memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Served {
    /// The first-level instruction cache.
    L1i = 0,
    /// The first-level data cache.
    L1d = 1,
    /// The second level.
    L2 = 2,
    /// The third level.
    L3 = 3,
    /// Memory: no cache had the line.
    Memory = 4,
}

impl Served {
    /// All places, in the order of their numbers.
    pub const ALL: [Served; 5] = [Served::L1i, Served::L1d, Served::L2, Served::L3, Served::Memory];
    /// The number of places: the length of an array that is indexed by `served as usize`.
    pub const COUNT: usize = 5;

    /// The name in machine files and results.
    pub const fn name(self) -> &'static str {
        match self {
            Served::L1i => "l1i",
            Served::L1d => "l1d",
            Served::L2 => "l2",
            Served::L3 => "l3",
            Served::Memory => "memory",
        }
    }
}

/// The requester of data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Requester {
    /// The program, with an access of this kind.
    Program(Kind),
    /// The page-table walker.
    Walker,
}

/// The parameters of all data caches; a cache without parameters does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HierarchyParams {
    /// The first-level cache for fetches.
    pub l1i: Option<CacheParams>,
    /// The first-level cache for loads and stores.
    pub l1d: Option<CacheParams>,
    /// The second-level cache.
    pub l2: Option<CacheParams>,
    /// The third-level cache.
    pub l3: Option<CacheParams>,
    /// The cache that the walker's references access first. `None` means the first cache for loads,
    /// and [`Served::Memory`] means that the references bypass all caches.
    pub walker_enters: Option<Served>,
}

/// The place that a requester's accesses reach first, with the properties that decide which
/// repeated accesses leave it unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entrance {
    /// The cache, or memory.
    pub place: Served,
    /// log2 of the cache's line size in bytes.
    pub line_shift: u32,
    /// The number of the cache's sets.
    pub sets: usize,
    /// Whether an access to the most recently used line of a set leaves the cache unchanged, except
    /// for counts and, for a store to a clean line, the dirty bit. This holds if the policy records
    /// only the order of uses, and if no cache in front changes which lines are accessed.
    pub repeats_change_nothing: bool,
}

/// The data caches of a machine.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    /// The cache at each place; the place for memory has no cache.
    caches: [Option<Cache>; Served::COUNT],
    /// The first place for each kind of access.
    program: [Served; Kind::COUNT],
    walker: Served,
    /// For each place: the next existing place, and the number of bits by which a line number there
    /// is shorter.
    behind: [(Served, u32); Served::COUNT],
    /// The last cache whose simulated state does not fit into the nearest caches of the host, the
    /// computer that runs the simulation.
    far: Option<Served>,
}

impl Hierarchy {
    /// Empty caches. The error names the cache that cannot be built, and the reason. It names
    /// [`Served::Memory`] if the cache at which the walker enters does not exist.
    pub fn new(params: &HierarchyParams) -> Result<Hierarchy, (Served, GeometryError)> {
        let mut caches = [const { None }; Served::COUNT];
        let all = [params.l1i, params.l1d, params.l2, params.l3];
        for (place, cache) in Served::ALL.into_iter().zip(all) {
            if let Some(cache) = cache {
                caches[place as usize] = Some(Cache::new(&cache).map_err(|error| (place, error))?);
            }
        }
        let mut hierarchy = Hierarchy {
            caches,
            program: [Served::L1i, Served::L1d, Served::L1d],
            walker: Served::L1d,
            behind: [(Served::Memory, 0); Served::COUNT],
            far: None,
        };
        let is_far = |place: &Served| hierarchy.cache(*place).is_some_and(Cache::is_far);
        hierarchy.far = Served::ALL.into_iter().rfind(is_far);
        hierarchy.check_lines()?;
        hierarchy.behind = core::array::from_fn(|place| hierarchy.next(Served::ALL[place]));
        let at_or_behind = |place| match hierarchy.cache(place) {
            Some(_) => place,
            None => hierarchy.next(place).0,
        };
        hierarchy.program = hierarchy.program.map(at_or_behind);
        hierarchy.walker = match params.walker_enters {
            None => hierarchy.program[Kind::Load as usize],
            Some(place) if place == Served::Memory || hierarchy.cache(place).is_some() => place,
            Some(place) => {
                return Err((Served::Memory, GeometryError::NoSuchCache(place.name())));
            }
        };
        Ok(hierarchy)
    }

    /// Reads or writes `bytes` bytes at `phys` for `who`. Returns the place that had these bytes;
    /// if they span several lines, the farthest of the places. Each line is a separate access for
    /// every cache.
    #[inline]
    pub fn access(&mut self, phys: PhysAddr, bytes: u32, write: bool, who: Requester) -> Served {
        let entry = self.entry(who);
        let Some(cache) = &mut self.caches[entry as usize] else {
            return Served::Memory;
        };
        let first = phys.get() >> cache.line_shift;
        let last =
            phys.get().saturating_add(u64::from(bytes.saturating_sub(1))) >> cache.line_shift;
        if first == last && cache.request(first, write, who) {
            return entry;
        }
        self.complete(entry, first, last, write, who)
    }

    /// Whether [`Hierarchy::soon`] is worth calling some time before an access.
    pub fn is_far(&self) -> bool {
        self.far.is_some()
    }

    /// Prefetches, on the host, the simulated state for the line at `phys` in the last cache with a
    /// large state.
    #[inline]
    pub fn soon(&self, phys: PhysAddr) {
        if let Some(far) = self.far
            && let Some(cache) = &self.caches[far as usize]
        {
            cache.soon(phys);
        }
    }

    /// Accesses the line of a program's access of `kind` if it is found quickly in the cache that the access
    /// reaches first. The access is not counted; report all such accesses to [`Hierarchy::repeated`].
    #[inline(always)]
    pub fn hit(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) -> bool {
        match &mut self.caches[self.program[kind as usize] as usize] {
            Some(cache) => cache.hit(phys, bytes, kind == Kind::Store),
            None => false,
        }
    }

    /// Completes and counts a program's access of `kind` for which [`Hierarchy::hit`] returned
    /// false.
    pub fn access_anew(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) -> Served {
        let (who, write) = (Requester::Program(kind), kind == Kind::Store);
        let entry = self.entry(who);
        let Some(cache) = &mut self.caches[entry as usize] else {
            return Served::Memory;
        };
        let Some(line) = cache.only_line(phys, bytes) else {
            return self.access(phys, bytes, write, who);
        };
        if cache.request_found(line, write, who) {
            return entry;
        }
        self.miss(entry, line, write, who)
    }

    /// The place that a walker's reference reaches first, if the reference leaves it unchanged. The
    /// reference is not counted; report all such references to [`Hierarchy::repeated_walks`].
    #[inline(always)]
    pub fn is_repeated_walk(&self, phys: PhysAddr, bytes: u32, write: bool) -> Option<Served> {
        let cache = self.caches[self.walker as usize].as_ref()?;
        cache.is_repeat(phys, bytes, write).then_some(self.walker)
    }

    /// Counts how many of the walker's `reads` (address and bytes), from the first one on, do not
    /// change the cache that they reach first ([`Hierarchy::is_repeated_walk`]). Returns this
    /// number and the place of the cache.
    #[inline(always)]
    pub fn repeated_reads(
        &self,
        reads: impl Iterator<Item = (PhysAddr, u32)>,
    ) -> Option<(usize, Served)> {
        let cache = self.caches[self.walker as usize].as_ref()?;
        let repeated = reads.take_while(|(phys, bytes)| cache.is_repeat(*phys, *bytes, false));
        Some((repeated.count(), self.walker))
    }

    /// Counts `reads` and `writes` of the walker that did not change the cache that they reached first.
    pub fn repeated_walks(&mut self, reads: u64, writes: u64) {
        if let Some(cache) = &mut self.caches[self.walker as usize] {
            cache.walker.asked[0] += reads;
            cache.walker.asked[1] += writes;
        }
    }

    /// The place that accesses of `who` reach first.
    pub fn entrance(&self, who: Requester) -> Entrance {
        let place = self.entry(who);
        // The misses of a cache in front pass through the second and the third level.
        let apart = place < Served::L2
            || self.program.iter().chain([&self.walker]).all(|other| *other >= place);
        match self.cache(place) {
            Some(cache) => Entrance {
                place,
                line_shift: cache.line_shift,
                sets: cache.sets.sets(),
                repeats_change_nothing: apart && cache.policy.learns() != Learns::Each,
            },
            None => Entrance { place, line_shift: 0, sets: 1, repeats_change_nothing: false },
        }
    }

    /// Counts `hits` program accesses of `kind` that did not change the cache that they reached first, and returns
    /// the place of this cache.
    pub fn repeated(&mut self, kind: Kind, hits: u64) -> Served {
        let place = self.entry(Requester::Program(kind));
        if let Some(cache) = &mut self.caches[place as usize] {
            cache.program.asked[usize::from(kind == Kind::Store)] += hits;
        }
        place
    }

    /// The cache at `place`.
    pub fn cache(&self, place: Served) -> Option<&Cache> {
        self.caches[place as usize].as_ref()
    }

    /// The third level, so that processors that share it can pass it from one hierarchy to another
    /// of the same shape.
    pub fn l3(&mut self) -> &mut Option<Cache> {
        &mut self.caches[Served::L3 as usize]
    }

    /// The counts of the cache at `place`.
    pub fn counts(&self, place: Served) -> Option<CacheCounts> {
        self.cache(place).map(Cache::counts)
    }

    /// Flushes the first-level lines for whose addresses `goes` returns true; the flushed addresses
    /// cover at most `bytes` bytes of memory. Dirty lines are written directly to memory.
    pub fn flush_first(&mut self, bytes: u64, goes: impl Fn(PhysAddr) -> bool) {
        for place in [Served::L1i, Served::L1d] {
            if let Some(cache) = &mut self.caches[place as usize] {
                cache.flush(bytes, &goes);
            }
        }
    }

    /// Resets the counts to zero; the lines stay.
    pub fn forget_counts(&mut self) {
        self.caches.iter_mut().flatten().for_each(Cache::forget_counts);
    }

    #[inline(always)]
    fn entry(&self, who: Requester) -> Served {
        match who {
            Requester::Program(kind) => self.program[kind as usize],
            Requester::Walker => self.walker,
        }
    }

    /// Completes an access: either its only line has already missed at `entry`, or it spans several
    /// lines that have not been requested.
    #[inline(never)]
    fn complete(
        &mut self,
        entry: Served,
        first: u64,
        last: u64,
        write: bool,
        who: Requester,
    ) -> Served {
        if first == last {
            return self.miss(entry, first, write, who);
        }
        let mut farthest = entry;
        for line in first..=last {
            farthest = farthest.max(self.line(entry, line, write, who));
        }
        farthest
    }

    /// Requests `line` from the cache at `place`.
    fn line(&mut self, place: Served, line: u64, write: bool, who: Requester) -> Served {
        let Some(cache) = &mut self.caches[place as usize] else {
            return Served::Memory;
        };
        if cache.request(line, write, who) { place } else { self.miss(place, line, write, who) }
    }

    /// Fetches `line`, which missed in the cache at `place`, from the next level.
    fn miss(&mut self, place: Served, line: u64, write: bool, who: Requester) -> Served {
        let (behind, shorter) = self.behind[place as usize];
        let served = self.line(behind, line >> shorter, false, who);
        if let Some(cache) = &mut self.caches[place as usize]
            && let Some(victim) = cache.insert(line, write)
        {
            cache.writebacks += 1;
            self.write_back(behind, victim >> shorter);
        }
        served
    }

    /// Writes a dirty victim of the level in front to the cache at `place`.
    fn write_back(&mut self, place: Served, line: u64) {
        let Some(cache) = &mut self.caches[place as usize] else { return };
        if !cache.touch(line, true)
            && let Some(victim) = cache.insert(line, true)
        {
            cache.writebacks += 1;
            let (behind, shorter) = self.behind[place as usize];
            self.write_back(behind, victim >> shorter);
        }
    }

    /// The next existing place after `place`, and log2 of the ratio of its line size to the line
    /// size at `place`.
    fn next(&self, place: Served) -> (Served, u32) {
        let next = [Served::L2, Served::L3]
            .into_iter()
            .find(|&next| next > place && self.cache(next).is_some())
            .unwrap_or(Served::Memory);
        match (self.cache(place), self.cache(next)) {
            (Some(cache), Some(behind)) => (next, behind.line_shift - cache.line_shift),
            _ => (next, 0),
        }
    }

    fn check_lines(&self) -> Result<(), (Served, GeometryError)> {
        for (front, next) in [
            (Served::L1i, Served::L2),
            (Served::L1i, Served::L3),
            (Served::L1d, Served::L2),
            (Served::L1d, Served::L3),
            (Served::L2, Served::L3),
        ] {
            if let (Some(front), Some(cache)) = (self.cache(front), self.cache(next))
                && cache.line_shift < front.line_shift
            {
                let (bytes, front_bytes) = (cache.line_bytes(), front.line_bytes());
                return Err((next, GeometryError::ShorterLine { bytes, front_bytes }));
            }
        }
        Ok(())
    }
}
