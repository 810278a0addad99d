//! The walker: it fetches the references of a walk that its MMU cache cannot serve, through the
//! data caches, and counts what it does.
//!
//! ```text
//!   walk ---> where to start? --- skipped: no reference
//!              MMU cache
//!                 |  held? ------ served by the MMU cache
//!                 v
//!   program --> data caches ----- l1d, l2, l3 or memory, at their price
//! ```
//!
//! The references come from the page table, all of them, from the root down. A cache that knows
//! a node on this way lets the walk start there: the references before it are not made.
//!
//! Where software refills the TLB the same references are made by a [`Handler`], whose
//! instructions are counted beside them.

mod build;
mod handler;

pub(crate) use build::{hierarchy, latencies};
pub(crate) use handler::Handler;

use addr::{Kind, PhysAddr};
use mmu::{AnyWalkCache, Held, Hierarchy, Requester, Served, WalkCache, WalkCacheParams};
use pagetable::{Node, Reference};

use crate::back::{Back, Forget, Walk};

/// Cycles by what serves a reference.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    /// Whether the machine file gives all that its caches and memory need.
    pub(crate) known: bool,
    pub(crate) served_cycles: [u64; Served::COUNT],
    pub(crate) refill_cycles: u64,
    /// Of one search of the MMU cache.
    pub(crate) search_cycles: u64,
    /// Cycles of a walk's reference by what serves it: of one by software only what it takes
    /// beyond a hit in the nearest cache, which is part of the instruction.
    pub(crate) reference_cycles: [u64; Served::COUNT],
}

/// Counts of the walks of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct WalkCensus {
    pub(crate) walks: u64,
    pub(crate) cold: u64,
    pub(crate) references: u64,
    pub(crate) cold_references: u64,
    /// How many walks that were not cold took as many references as the index says.
    pub(crate) per_walk: Vec<u64>,
    /// References by level (index) and by what served them.
    pub(crate) served: Vec<[u64; Served::COUNT]>,
    /// By level: entries that lead on and that the MMU cache held or let a walk skip, and those
    /// that were fetched.
    pub(crate) upper: Vec<UpperEntries>,
    /// By label of the region.
    pub(crate) regions: Vec<RegionWalks>,
    /// Instructions of the refill handler.
    pub(crate) handler_instructions: u64,
    /// Misses on the page table itself, by the level of the table (index).
    pub(crate) nested_misses: Vec<u64>,
    /// Cycles of all walks if nothing is hidden.
    pub(crate) cycles: u64,
}

/// The entries of one level that lead to tables, as walks needed them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct UpperEntries {
    pub(crate) held: u64,
    pub(crate) fetched: u64,
}

/// The walks for one region.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegionWalks {
    pub(crate) references: u64,
    pub(crate) cycles: u64,
}

/// The walker of a machine with its caches.
pub(crate) struct Walker {
    mmu_cache: AnyWalkCache,
    pub(crate) mmu_cache_params: Option<WalkCacheParams>,
    /// Searches of the MMU cache whose time is in the census.
    searches_timed: u64,
    pub(crate) handler: Option<Handler>,
    pub(crate) caches: Option<Hierarchy>,
    pub(crate) latencies: Latencies,
    pub(crate) walks: WalkCensus,
    /// Accesses of the program by what served them.
    pub(crate) program_served: [u64; Served::COUNT],
    /// References and cycles since the last refill.
    under_way: RegionWalks,
}

impl Walker {
    /// What a region's walks came to.
    pub(crate) fn region(&self, label: u32) -> RegionWalks {
        self.walks.regions.get(label as usize).copied().unwrap_or_default()
    }

    /// How often its MMU cache was searched.
    pub(crate) fn searches(&self) -> u64 {
        self.mmu_cache.searches()
    }

    /// Makes those of `references` that the MMU cache does not hold. The error is a node to
    /// which it leads instead.
    fn follow(&mut self, walk: &Walk, references: &[Reference]) -> Result<(), Node> {
        if walk.nested_misses > 0 {
            self.nest(usize::from(walk.nested_misses));
        }
        if let Some(handler) = &self.handler {
            self.execute(handler.instructions(references));
        }
        for reference in references {
            if !reference.write {
                match self.mmu_cache.read(walk.va, walk.asid, reference) {
                    Held::Here => {
                        self.upper(reference).held += 1;
                        continue;
                    }
                    Held::Stale(node) => return Err(node),
                    Held::Absent if reference.next.is_some() => self.upper(reference).fetched += 1,
                    Held::Absent => {}
                }
            }
            self.fetch(reference);
        }
        self.mmu_cache.finish(walk.va, walk.asid, walk.found);
        Ok(())
    }

    fn upper(&mut self, reference: &Reference) -> &mut UpperEntries {
        let level = usize::from(reference.level);
        if self.walks.upper.len() <= level {
            self.walks.upper.resize(level + 1, UpperEntries::default());
        }
        &mut self.walks.upper[level]
    }

    /// The handler's instructions, one a cycle: each waits for the one before it.
    fn execute(&mut self, instructions: u64) {
        self.walks.handler_instructions += instructions;
        self.under_way.cycles += instructions;
    }

    /// Misses on the tables of so many levels, from the lowest on.
    fn nest(&mut self, misses: usize) {
        let by_level = &mut self.walks.nested_misses;
        by_level.resize(by_level.len().max(misses + 1), 0);
        by_level[1..=misses].iter_mut().for_each(|count| *count += 1);
        if let Some(handler) = &self.handler {
            self.under_way.cycles += misses as u64 * handler.nested_cycles();
        }
    }

    /// One reference, through the data caches.
    fn fetch(&mut self, reference: &Reference) {
        let served = match &mut self.caches {
            Some(caches) => {
                let bytes = u32::from(reference.bytes);
                caches.access(reference.addr, bytes, reference.write, Requester::Walker)
            }
            None => Served::Memory,
        };
        let level = usize::from(reference.level);
        if self.walks.served.len() <= level {
            self.walks.served.resize(level + 1, [0; Served::COUNT]);
        }
        self.walks.served[level][served as usize] += 1;
        self.under_way.references += 1;
        self.under_way.cycles += self.latencies.reference_cycles[served as usize];
    }
}

impl Back for Walker {
    fn has_caches(&self) -> bool {
        self.caches.is_some()
    }

    #[inline(always)]
    fn data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) {
        if let Some(caches) = &mut self.caches {
            let served = caches.access(phys, bytes, kind == Kind::Store, Requester::Program(kind));
            self.program_served[served as usize] += 1;
        }
    }

    fn walk(&mut self, walk: &Walk, references: &[Reference]) -> Result<(), Node> {
        let start = self.mmu_cache.start(walk.va, walk.asid, walk.root);
        if start == walk.root {
            return self.follow(walk, references);
        }
        let before = references.iter().position(|reference| reference.next == Some(start));
        let (skipped, rest) = references.split_at(before.ok_or(start)? + 1);
        for reference in skipped.iter().filter(|reference| !reference.write) {
            self.upper(reference).held += 1;
        }
        // Setting a bit in the entry that leads to the start is part of reading it.
        let marks = rest.iter().take_while(|reference| reference.level > start.level).count();
        self.follow(walk, &rest[marks..])
    }

    fn astray(&mut self, walk: &Walk, references: &[Reference]) {
        // A second stale entry further down stays unnoticed: the walk is wrong as it is.
        let _ = self.follow(walk, references);
    }

    fn refilled(&mut self, region: u32, cold: bool) {
        if let Some(handler) = &self.handler {
            self.execute(handler.always());
        }
        let mut made = std::mem::take(&mut self.under_way);
        let searches = self.mmu_cache.searches();
        made.cycles += self.latencies.refill_cycles
            + self.latencies.search_cycles * (searches - self.searches_timed);
        self.searches_timed = searches;
        let walks = &mut self.walks;
        walks.walks += 1;
        walks.references += made.references;
        walks.cycles += made.cycles;
        if cold {
            walks.cold += 1;
            walks.cold_references += made.references;
        } else {
            let count = made.references as usize;
            if walks.per_walk.len() <= count {
                walks.per_walk.resize(count + 1, 0);
            }
            walks.per_walk[count] += 1;
        }
        let index = region as usize;
        if walks.regions.len() <= index {
            walks.regions.resize(index + 1, RegionWalks::default());
        }
        walks.regions[index].references += made.references;
        walks.regions[index].cycles += made.cycles;
    }

    fn forget(&mut self, forget: Forget) {
        match forget {
            Forget::Range(range, asid) => self.mmu_cache.flush_range(range, asid),
            Forget::Space(asid) => self.mmu_cache.flush_asid(asid),
            Forget::All => self.mmu_cache.flush_all(),
        }
    }
}
