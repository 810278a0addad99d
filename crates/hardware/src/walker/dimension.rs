//! One dimension of a walk: its MMU cache, and counts of its references.
//!
//! A walk has one dimension. In a virtual machine, each of the guest's references is preceded by a
//! walk in the host's dimension (`host`).

use mmu::{AnyWalkCache, Held, Served, WalkCache, WalkCacheParams};
use pagetable::{Node, Reference};
use ram::walk::Walk;

use crate::behind::Forget;

/// Counts of the entries of one level that lead to tables, as needed by walks.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpperEntries {
    pub held: u64,
    pub fetched: u64,
}

/// An MMU cache, and the counts of the walks that use it.
#[derive(Debug)]
pub struct Dimension {
    pub(super) cache: AnyWalkCache,
    pub params: Option<WalkCacheParams>,
    /// The cycles of one search.
    search_cycles: u64,
    /// The number of the cache's searches whose time has been counted.
    pub(super) searches_timed: u64,
    /// The number of searches of the dimension's MMU cache in completed walks.
    pub searches: u64,
    /// The number of equal walks for which each simulated walk counts.
    pub(super) times: u64,
    /// References by level (the index) and by the cache or memory that served them.
    pub served: Vec<[u64; Served::COUNT]>,
    /// For each level, the entries that lead to tables: how many of them the MMU cache held or let
    /// a walk skip, and how many were fetched.
    pub upper: Vec<UpperEntries>,
    /// Whether the walk repeats a walk that faulted. The entries of a repeated walk are not
    /// counted, because it finds the entries that the first walk left in the cache.
    pub(super) repeats: bool,
}

impl Dimension {
    pub(super) fn new(
        cache: AnyWalkCache,
        params: Option<WalkCacheParams>,
        search_cycles: u64,
    ) -> Dimension {
        let (served, upper) = (Vec::new(), Vec::new());
        Dimension {
            cache,
            params,
            search_cycles,
            searches_timed: 0,
            searches: 0,
            times: 1,
            served,
            upper,
            repeats: false,
        }
    }

    /// The cycles of the searches since the last call.
    #[inline]
    pub(super) fn take_search_cycles(&mut self) -> u64 {
        let searches = self.cache.searches();
        let new = searches - self.searches_timed;
        self.searches_timed = searches;
        self.searches += new * self.times;
        new * self.search_cycles
    }

    /// The number of references, from the root down, that the walk skips because of the MMU cache.
    /// The error is a stale node to which the cache leads, and which is not on the path of the
    /// references.
    #[inline]
    pub(super) fn start(&mut self, walk: &Walk, references: &[Reference]) -> Result<usize, Node> {
        let start = self.cache.start(walk.va, walk.asid, walk.root);
        if start.level == 0 {
            self.upper(0, true);
            let reads = references.iter().filter(|reference| !reference.write);
            reads.filter(|reference| reference.next().is_some()).for_each(|reference| {
                self.upper(reference.level, true);
            });
            return Ok(references.len());
        }
        if start == walk.root {
            return Ok(0);
        }
        let before = references.iter().position(|reference| reference.next() == Some(start));
        let (skipped, rest) = references.split_at(before.ok_or(start)? + 1);
        for reference in skipped.iter().filter(|reference| !reference.write) {
            self.upper(reference.level, true);
        }
        // Setting the accessed bit in the entry that leads to the start node costs nothing extra,
        // as the bit is written together with the read.
        let marks = rest.iter().take_while(|reference| reference.level > start.level).count();
        Ok(skipped.len() + marks)
    }

    /// Whether `reference`, whose address is physical, must be made: because it writes, or because
    /// the MMU cache does not hold the entry. The error means that the cached entry leads to
    /// another node, which is returned.
    #[inline]
    pub(super) fn needs(&mut self, walk: &Walk, reference: &Reference) -> Result<bool, Node> {
        if reference.write {
            return Ok(true);
        }
        match self.cache.read(walk.va, walk.asid, reference) {
            Held::Here => {
                self.upper(reference.level, true);
                Ok(false)
            }
            Held::Stale(node) => Err(node),
            Held::Absent => {
                self.fetched(reference);
                Ok(true)
            }
        }
    }

    /// Counts the entry that `reference` reads as one that the MMU cache did not hold.
    #[inline]
    pub(super) fn fetched(&mut self, reference: &Reference) {
        if reference.next().is_some() {
            self.upper(reference.level, false);
        }
    }

    /// Whether the dimension has an MMU cache.
    #[inline]
    pub(super) fn has_cache(&self) -> bool {
        !matches!(self.cache, AnyWalkCache::None)
    }

    /// Exchanges the MMU caches of both dimensions; only one of them has a cache.
    pub(super) fn lend(&mut self, other: &mut Dimension) {
        std::mem::swap(&mut self.cache, &mut other.cache);
    }

    /// Inserts `page`, at which the walk ended, into the cache.
    pub(super) fn page(&mut self, walk: &Walk, page: Node) {
        self.upper(0, false);
        self.cache.page(walk.va, walk.asid, page);
    }

    /// Ends the walk.
    #[inline]
    pub(super) fn finish(&mut self, walk: &Walk) {
        self.cache.finish(walk.va, walk.asid, walk.found);
    }

    /// Counts a reference to `level` that `served` served.
    #[inline]
    pub(super) fn count(&mut self, level: u8, served: Served) {
        let level = usize::from(level);
        match self.served.get_mut(level) {
            Some(counts) => counts[served as usize] += self.times,
            None => {
                self.served.resize(level + 1, [0; Served::COUNT]);
                self.served[level][served as usize] += self.times;
            }
        }
    }

    pub fn forget(&mut self, forget: Forget) {
        match forget {
            Forget::Range(range, asid) => self.cache.flush_range(range, asid),
            Forget::Pages(range, asid) => self.cache.flush_pages(range, asid),
            Forget::Space(asid) => self.cache.flush_asid(asid),
            Forget::All => self.cache.flush_all(),
        }
    }

    /// Resets the counts to zero.
    pub(super) fn forget_counts(&mut self) {
        let Dimension {
            cache: _,
            params: _,
            search_cycles: _,
            searches_timed: _,
            searches,
            times: _,
            served,
            upper,
            repeats: _,
        } = self;
        *searches = 0;
        served.clear();
        upper.clear();
    }

    #[inline]
    fn upper(&mut self, level: u8, held: bool) {
        if self.repeats {
            return;
        }
        let level = usize::from(level);
        if self.upper.len() <= level {
            self.upper.resize(level + 1, UpperEntries::default());
        }
        let counts = &mut self.upper[level];
        *(if held { &mut counts.held } else { &mut counts.fetched }) += self.times;
    }
}
