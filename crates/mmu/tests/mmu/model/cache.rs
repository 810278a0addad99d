//! Data caches as lists of lines in ways of sets.

use mmu::{CacheCounts, CacheParams, HierarchyParams, Random, Requester, Requests, Served};

use super::policy::ModelPolicy;

struct Set {
    /// For each way, its line and whether the line is dirty.
    ways: Vec<Option<(u64, bool)>>,
    policy: ModelPolicy,
}

struct ModelCache {
    place: Served,
    line_bytes: u64,
    sets: Vec<Set>,
    random: Random,
    counts: CacheCounts,
}

/// The model of a hierarchy; a path through it finds each cache by its place.
pub(crate) struct ModelHierarchy {
    caches: Vec<ModelCache>,
    walker_enters: Served,
}

impl ModelCache {
    fn new(place: Served, params: &CacheParams) -> ModelCache {
        let lines = params.size_bytes / u64::from(params.line_bytes);
        let ways = params.ways as usize;
        let set =
            || Set { ways: vec![None; ways], policy: ModelPolicy::new(params.replacement, ways) };
        ModelCache {
            place,
            line_bytes: params.line_bytes.into(),
            sets: (0..lines as usize / ways).map(|_| set()).collect(),
            random: Random::new(params.seed),
            counts: CacheCounts::default(),
        }
    }

    /// Accesses the line of `addr` if the cache holds it. Returns whether it does.
    fn used(&mut self, addr: u64, write: bool) -> bool {
        let line = addr / self.line_bytes;
        let sets = self.sets.len() as u64;
        let set = &mut self.sets[(line % sets) as usize];
        for (way, held) in set.ways.iter_mut().enumerate() {
            if let Some((held, dirty)) = held
                && *held == line
            {
                *dirty |= write;
                set.policy.touched(way);
                return true;
            }
        }
        false
    }

    /// Inserts the line of `addr`. Returns the address of the replaced line if that line was dirty.
    fn taken(&mut self, addr: u64, dirty: bool) -> Option<u64> {
        let line = addr / self.line_bytes;
        let sets = self.sets.len() as u64;
        let set = &mut self.sets[(line % sets) as usize];
        let way = match set.ways.iter().position(Option::is_none) {
            Some(way) => way,
            None => set.policy.victim(&mut self.random),
        };
        let old = set.ways[way].replace((line, dirty));
        set.policy.inserted(way, 0, false);
        match old {
            Some((old, true)) => {
                self.counts.writebacks += 1;
                Some(old * self.line_bytes)
            }
            _ => None,
        }
    }
}

impl ModelHierarchy {
    pub(crate) fn new(params: &HierarchyParams) -> ModelHierarchy {
        let all = [
            (Served::L1i, params.l1i),
            (Served::L1d, params.l1d),
            (Served::L2, params.l2),
            (Served::L3, params.l3),
        ];
        ModelHierarchy {
            caches: all
                .iter()
                .filter_map(|(place, cache)| cache.map(|cache| ModelCache::new(*place, &cache)))
                .collect(),
            walker_enters: params.walker_enters.unwrap_or(Served::L1d),
        }
    }

    /// The caches that a request reaches, in order.
    fn path(&self, enters: Served) -> Vec<usize> {
        let on_path = |place: Served| place == enters || place > enters && place >= Served::L2;
        (0..self.caches.len()).filter(|&cache| on_path(self.caches[cache].place)).collect()
    }

    pub(crate) fn access(&mut self, addr: u64, bytes: u32, write: bool, who: Requester) -> Served {
        let enters = match who {
            Requester::Program(addr::Kind::Fetch) => Served::L1i,
            Requester::Program(_) => Served::L1d,
            Requester::Walker => self.walker_enters,
        };
        let path = self.path(enters);
        let Some(first) = path.first() else { return Served::Memory };
        let line_bytes = self.caches[*first].line_bytes;
        let lines = addr / line_bytes..=(addr + u64::from(bytes) - 1) / line_bytes;
        lines.map(|line| self.line(&path, line * line_bytes, write, who)).max().unwrap()
    }

    fn line(&mut self, path: &[usize], addr: u64, write: bool, who: Requester) -> Served {
        let Some((&nearest, behind)) = path.split_first() else { return Served::Memory };
        let cache = &mut self.caches[nearest];
        let hit = cache.used(addr, write);
        let requests = match who {
            Requester::Program(_) => &mut cache.counts.program,
            Requester::Walker => &mut cache.counts.walker,
        };
        count(requests, write, hit);
        if hit {
            return cache.place;
        }
        let served = self.line(behind, addr, false, who);
        if let Some(victim) = self.caches[nearest].taken(addr, write) {
            self.write_back(behind, victim);
        }
        served
    }

    fn write_back(&mut self, path: &[usize], addr: u64) {
        let Some((&nearest, behind)) = path.split_first() else { return };
        if !self.caches[nearest].used(addr, true)
            && let Some(victim) = self.caches[nearest].taken(addr, true)
        {
            self.write_back(behind, victim);
        }
    }

    pub(crate) fn counts(&self, place: Served) -> Option<CacheCounts> {
        self.caches.iter().find(|cache| cache.place == place).map(|cache| cache.counts)
    }

    /// If the cache at `place` holds the line of `addr`, whether the line is dirty; otherwise
    /// `None`.
    pub(crate) fn peek(&self, place: Served, addr: u64) -> Option<bool> {
        let cache = self.caches.iter().find(|cache| cache.place == place)?;
        let line = addr / cache.line_bytes;
        let mut held = cache.sets.iter().flat_map(|set| set.ways.iter().flatten());
        held.find(|(held, _)| *held == line).map(|(_, dirty)| *dirty)
    }
}

fn count(requests: &mut Requests, write: bool, hit: bool) {
    if write {
        requests.writes += 1;
        requests.write_misses += u64::from(!hit);
    } else {
        requests.reads += 1;
        requests.read_misses += u64::from(!hit);
    }
}
