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

mod build;

pub(crate) use build::{hierarchy, latencies};

use addr::{Kind, PhysAddr};
use mmu::{AnyWalkCache, Hierarchy, Requester, Served, WalkCache};
use pagetable::{Node, Reference};

use crate::back::{Back, Forget, Walk};

/// Cycles by what serves a reference.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    /// Whether the machine file gives all that its caches and memory need.
    pub(crate) known: bool,
    pub(crate) served_cycles: [u64; Served::COUNT],
    pub(crate) refill_cycles: u64,
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
    /// By label of the region.
    pub(crate) regions: Vec<RegionWalks>,
    /// Cycles of all walks if nothing is hidden.
    pub(crate) cycles: u64,
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

    /// Makes those of `references` that the MMU cache does not hold.
    fn follow(&mut self, walk: &Walk, references: &[Reference]) {
        for reference in references {
            if !reference.write && self.mmu_cache.read(walk.va, walk.asid, reference) {
                continue;
            }
            self.fetch(reference);
        }
        self.mmu_cache.finish(walk.va, walk.asid);
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
        self.under_way.cycles += self.latencies.served_cycles[served as usize];
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
        let rest = if start == walk.root {
            references
        } else {
            let before = references.iter().position(|reference| reference.next == Some(start));
            let rest = &references[before.ok_or(start)? + 1..];
            // Setting a bit in the entry that leads to the start is part of reading it.
            let marks = rest.iter().take_while(|reference| reference.level > start.level).count();
            &rest[marks..]
        };
        self.follow(walk, rest);
        Ok(())
    }

    fn astray(&mut self, walk: &Walk, references: &[Reference]) {
        self.follow(walk, references);
    }

    fn refilled(&mut self, region: u32, cold: bool) {
        let mut made = std::mem::take(&mut self.under_way);
        made.cycles += self.latencies.refill_cycles;
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
