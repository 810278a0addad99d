//! One dimension of a walk: what is remembered of it, and what it read.
//!
//! A walk has one dimension; in a virtual machine each reference of the guest's is the end of a
//! walk in the host's (`host`).

use mmu::{AnyWalkCache, Held, Served, WalkCache, WalkCacheParams};
use pagetable::{Node, Reference};
use ram::walk::Walk;

use crate::behind::Forget;

/// The entries of one level that lead to tables, as walks needed them.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpperEntries {
    pub held: u64,
    pub fetched: u64,
}

/// An MMU cache and the counts of the walks that ask it.
#[derive(Debug)]
pub struct Dimension {
    pub(super) cache: AnyWalkCache,
    pub params: Option<WalkCacheParams>,
    /// Cycles of one search.
    search_cycles: u64,
    /// Searches of the cache whose time has been taken.
    pub(super) searches_timed: u64,
    /// How often its MMU cache was searched in walks that are over.
    pub searches: u64,
    /// How many walks each of its walks stands for.
    pub(super) times: u64,
    /// References by level (index) and by what served them.
    pub served: Vec<[u64; Served::COUNT]>,
    /// By level: entries that lead on and that the MMU cache held or let a walk skip, and those
    /// that were fetched.
    pub upper: Vec<UpperEntries>,
    /// Whether the walk repeats one that faulted, and so finds what that one has left: it does
    /// not count among the entries needed.
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

    /// Cycles of the searches since it was asked last.
    #[inline]
    pub(super) fn take_search_cycles(&mut self) -> u64 {
        let searches = self.cache.searches();
        let new = searches - self.searches_timed;
        self.searches_timed = searches;
        self.searches += new * self.times;
        new * self.search_cycles
    }

    /// How many of the references from the root down the walk skips. The error is a node that
    /// is not on their way.
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
        // An accessed bit set in the entry that led to the start costs nothing extra: it is written
        // with the read.
        let marks = rest.iter().take_while(|reference| reference.level > start.level).count();
        Ok(skipped.len() + marks)
    }

    /// Whether `reference`, at its place in physical memory, is to be made: whether it writes,
    /// or the MMU cache does not hold the entry. The error is a node to which it leads instead.
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

    /// The entry that `reference` reads is not held.
    #[inline]
    pub(super) fn fetched(&mut self, reference: &Reference) {
        if reference.next().is_some() {
            self.upper(reference.level, false);
        }
    }

    /// Whether it has an MMU cache.
    #[inline]
    pub(super) fn has_cache(&self) -> bool {
        !matches!(self.cache, AnyWalkCache::None)
    }

    /// Lends its cache to `other`, which has none, or takes it back.
    pub(super) fn lend(&mut self, other: &mut Dimension) {
        std::mem::swap(&mut self.cache, &mut other.cache);
    }

    /// The walk was made down to `page`, which the cache is to hold.
    pub(super) fn page(&mut self, walk: &Walk, page: Node) {
        self.upper(0, false);
        self.cache.page(walk.va, walk.asid, page);
    }

    /// The walk is over.
    #[inline]
    pub(super) fn finish(&mut self, walk: &Walk) {
        self.cache.finish(walk.va, walk.asid, walk.found);
    }

    /// A reference to `level` was served.
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

    /// Begins to count anew.
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
