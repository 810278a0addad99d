//! The data caches one behind the other.
//!
//! ```text
//!   fetch ------> l1i --\
//!                        >-- l2 ---- l3 ---- memory         any of them may be absent
//!   load, store > l1d --/    ^
//!                            |
//!   walker ------------------+   enters where it is told to
//! ```
//!
//! A miss asks the next level and fills every level on the way back; a dirty line that makes
//! room goes one level down, after the line that replaces it was fetched, and is used there as
//! by any write. Levels neither include nor exclude each other, and l1i does not see what is
//! written through l1d.

use addr::{Kind, PhysAddr};

use super::{Cache, CacheCounts, CacheParams};
use crate::{GeometryError, Learns};

/// Where an access was served: the caches, nearest first, and memory behind them.
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
    /// No cache.
    Memory = 4,
}

impl Served {
    /// All places, in the order of their numbers.
    pub const ALL: [Served; 5] = [Served::L1i, Served::L1d, Served::L2, Served::L3, Served::Memory];
    /// How many places there are; an array indexed by `served as usize` has this length.
    pub const COUNT: usize = 5;

    /// The name as machine files and results write it.
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

/// Who asks for data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Requester {
    /// The program, by an access of this kind.
    Program(Kind),
    /// The page-table walker.
    Walker,
}

/// The caches that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HierarchyParams {
    /// First level, fetches.
    pub l1i: Option<CacheParams>,
    /// First level, loads and stores.
    pub l1d: Option<CacheParams>,
    /// Second level.
    pub l2: Option<CacheParams>,
    /// Third level.
    pub l3: Option<CacheParams>,
    /// The cache at which walk references enter; the first one of loads if absent. At
    /// [`Served::Memory`] they pass all caches by.
    pub walker_enters: Option<Served>,
}

/// Where a requester's accesses come in, as far as it decides which of them change nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entrance {
    /// The cache, or memory.
    pub place: Served,
    /// log2 of the bytes of its lines.
    pub line_shift: u32,
    /// Its sets.
    pub sets: usize,
    /// Whether an access to the line that its set used last leaves it as it was, but for the
    /// counts and, for a store to a clean line, for the dirty bit. So it is where the policy
    /// knows no more than the order of uses, and no cache in front sends it other lines.
    pub repeats_change_nothing: bool,
}

/// The data caches of a machine.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    /// By place; there is none in memory's.
    caches: [Option<Cache>; Served::COUNT],
    /// By the kind of access.
    program: [Served; Kind::COUNT],
    walker: Served,
    /// By place: the next one behind it, and by how many bits the number of a line is shorter there.
    behind: [(Served, u32); Served::COUNT],
    /// The last of those caches that know so much of their lines that it is far from the host's processor.
    far: Option<Served>,
}

impl Hierarchy {
    /// Empty caches, or the place of the one that cannot be built and why. A walker that enters
    /// at a cache that does not exist is [`Served::Memory`]'s error.
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

    /// Reads or writes `bytes` bytes at `phys` for `who`. Gives the place that had them: of
    /// several lines the farthest. Each line is an access of its own to every cache.
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

    /// Whether it pays to tell some time before where an access goes ([`Hierarchy::soon`]).
    pub fn is_far(&self) -> bool {
        self.far.is_some()
    }

    /// Has the host fetch what a cache that knows much, the last such one, knows of the line at `phys`.
    #[inline]
    pub fn soon(&self, phys: PhysAddr) {
        if let Some(far) = self.far
            && let Some(cache) = &self.caches[far as usize]
        {
            cache.soon(phys);
        }
    }

    /// Uses the line of an access of `kind` by the program if it is found at once where the access comes in.
    /// It is not counted: tell [`Hierarchy::repeated`] of all that were.
    #[inline(always)]
    pub fn hit(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) -> bool {
        match &mut self.caches[self.program[kind as usize] as usize] {
            Some(cache) => cache.hit(phys, bytes, kind == Kind::Store),
            None => false,
        }
    }

    /// An access of `kind` by the program for which [`Hierarchy::hit`] has found nothing. It is counted.
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

    /// Where a reference of the walker comes in, if it changes nothing there. It is not counted:
    /// tell [`Hierarchy::repeated_walks`] of all that were.
    #[inline(always)]
    pub fn is_repeated_walk(&self, phys: PhysAddr, bytes: u32, write: bool) -> Option<Served> {
        let cache = self.caches[self.walker as usize].as_ref()?;
        cache.is_repeat(phys, bytes, write).then_some(self.walker)
    }

    /// How many of the walker's `reads`, each an address and bytes, change nothing where they come in,
    /// from the first one on; and that place. As [`Hierarchy::is_repeated_walk`] of each.
    #[inline(always)]
    pub fn repeated_reads(
        &self,
        reads: impl Iterator<Item = (PhysAddr, u32)>,
    ) -> Option<(usize, Served)> {
        let cache = self.caches[self.walker as usize].as_ref()?;
        let repeated = reads.take_while(|(phys, bytes)| cache.is_repeat(*phys, *bytes, false));
        Some((repeated.count(), self.walker))
    }

    /// Counts `reads` and `writes` of the walker that changed nothing in the cache that they reach
    /// first.
    pub fn repeated_walks(&mut self, reads: u64, writes: u64) {
        if let Some(cache) = &mut self.caches[self.walker as usize] {
            cache.walker.asked[0] += reads;
            cache.walker.asked[1] += writes;
        }
    }

    /// Where accesses of `who` come in.
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

    /// Counts `hits` accesses of `kind` by the program that changed nothing where they came in,
    /// and gives that place.
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

    /// The third level, which several processors may share: it is to be handed from one hierarchy
    /// to another of the same shape.
    pub fn l3(&mut self) -> &mut Option<Cache> {
        &mut self.caches[Served::L3 as usize]
    }

    /// What the cache at `place` has counted.
    pub fn counts(&self, place: Served) -> Option<CacheCounts> {
        self.cache(place).map(Cache::counts)
    }

    /// Flushes the first level of lines that `goes` tells by their address: of `bytes` bytes at most.
    /// What is dirty goes past all other caches.
    pub fn flush_first(&mut self, bytes: u64, goes: impl Fn(PhysAddr) -> bool) {
        for place in [Served::L1i, Served::L1d] {
            if let Some(cache) = &mut self.caches[place as usize] {
                cache.flush(bytes, &goes);
            }
        }
    }

    /// Begins to count anew; the lines stay.
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

    /// What `access` leaves: the only line missed at `entry`, or several lines are to be asked
    /// for.
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

    /// Asks the cache at `place` for `line`.
    fn line(&mut self, place: Served, line: u64, write: bool, who: Requester) -> Served {
        let Some(cache) = &mut self.caches[place as usize] else {
            return Served::Memory;
        };
        if cache.request(line, write, who) { place } else { self.miss(place, line, write, who) }
    }

    /// Fetches `line`, which was not in the cache at `place`, from the level behind it.
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

    /// Writes a dirty line of the level in front to the cache at `place`.
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

    /// The next place behind `place` that exists, and by how many bits its lines are longer.
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
