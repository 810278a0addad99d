//! Reserved large pages of Linux: which mappings ask for them, and from which pool.
//!
//! ```text
//!   mmap with MAP_HUGETLB, memory                    --> the pool of the size in its flags, or the default
//!   shmget with SHM_HUGETLB --> its segment, shmat   --> the same
//! ```
//!
//! A recording contains such a mapping only if the call succeeded. If the pool of this machine is too
//! small for it, a refusal is counted, and the mapping has ordinary pages.

use std::collections::BTreeMap;

use addr::{PageSize, VirtAddr, VirtRange};
use description::{Hugetlb, Os, managers::linux};
use os::Platform;
use ram::Failure;
use results::PoolCounts;
use trace::{Call, Event};

use super::Base;

/// Flags of `mmap`: memory without a file; do not reserve pages (`MAP_NORESERVE`); pages of a pool.
const MAP_ANONYMOUS: u32 = 0x20;
const MAP_NORESERVE: u32 = 0x4000;
const MAP_HUGETLB: u32 = 0x40000;
/// Flags of `shmget`: pages of a pool; do not reserve pages (`SHM_NORESERVE`).
const SHM_HUGETLB: u64 = 0o4000;
const SHM_NORESERVE: u64 = 0o10000;
/// The position, in the flags of both calls, of six bits with log2 of the page size; 0 selects the
/// default size.
const SIZE_SHIFT: u32 = 26;
const SIZE_MASK: u32 = 0x3f;

/// The pools of a machine, and the known segments.
pub(super) struct Pools {
    asked: Hugetlb,
    /// Whether the pools have been filled.
    are_set: bool,
    /// For each segment of shared memory with pages of a pool: the page size, and whether pages are
    /// reserved for it.
    segments: BTreeMap<i32, (PageSize, bool)>,
}

impl Pools {
    pub(super) fn of(os: &Os) -> Option<Box<Pools>> {
        let asked = linux(os)?.hugetlb?;
        Some(Box::new(Pools { asked, are_set: false, segments: BTreeMap::new() }))
    }

    /// The page size that is encoded in `flags`.
    fn size(&self, flags: u32) -> PageSize {
        let named = PageSize::from_shift((flags >> SIZE_SHIFT & SIZE_MASK) as u8);
        named.filter(|size| *size > PageSize::SIZE_4K).unwrap_or(self.asked.default.0)
    }

    /// The request that `event` makes of a pool: a range, a page size, and whether pages are to be
    /// reserved.
    fn asked_by(&mut self, event: &Event) -> Option<(VirtRange, PageSize, bool)> {
        let range = |start: i64, bytes| {
            let start = u64::try_from(start).ok()?;
            VirtRange::new(VirtAddr::new(start), bytes).ok()
        };
        if let Event::Mmap { bytes, flags, result, .. } = event {
            let is_one = flags & MAP_HUGETLB != 0 && flags & MAP_ANONYMOUS != 0;
            let size = Some(self.size(*flags)).filter(|_| is_one)?;
            return Some((range(*result, *bytes)?, size, flags & MAP_NORESERVE == 0));
        }
        if let Event::Shmat { id, bytes: Some(bytes), result, .. } = event {
            let &(size, promises) = self.segments.get(id)?;
            return Some((range(*result, *bytes)?, size, promises));
        }
        if let Event::Call(call) = event {
            self.segment(call);
        }
        None
    }

    /// Remembers a new segment of large pages.
    fn segment(&mut self, call: &Call) {
        let flags = call.arguments[2];
        if call.name != "shmget" || flags & SHM_HUGETLB == 0 {
            return;
        }
        if let Ok(id @ 0..) = i32::try_from(call.result) {
            let size = self.size(flags as u32);
            self.segments.insert(id, (size, flags & SHM_NORESERVE == 0));
        }
    }
}

impl Base {
    /// Fills the pools, if they have not been filled yet.
    pub(super) fn fill_pools(&mut self, platform: &mut dyn Platform) -> Result<(), Failure> {
        let Some(pools) = self.pools.as_mut().filter(|pools| !pools.are_set) else { return Ok(()) };
        pools.are_set = true;
        let asked: Vec<_> = pools
            .asked
            .pools()
            .map(|(size, pool)| (size, pool.nr_hugepages, pool.nr_overcommit_hugepages))
            .collect();
        self.with(platform, |kernel| {
            for (size, pages, overcommit) in asked {
                kernel.set_pool(size, pages, overcommit);
            }
            Ok(())
        })
    }

    /// Makes a mapping use pages of a pool, if it requests that.
    pub(super) fn reserved(
        &mut self,
        number: u32,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Some(pools) = &mut self.pools else { return Ok(()) };
        let Some((range, size, promises)) = pools.asked_by(event) else { return Ok(()) };
        let space = self.space(number, platform)?;
        self.sizes.asked.insert(number);
        self.with(platform, |kernel| kernel.reserve(space, range, size, promises).map(drop))
    }

    /// The number of base pages in pools that no process maps.
    pub(super) fn free_of_pools(&self) -> u64 {
        if self.pools.is_none() {
            return 0;
        }
        let base = self.vm.base();
        let pools = self.vm.pools().into_iter();
        pools.map(|(size, of)| of.free_hugepages * size.count_of(base)).sum()
    }

    pub(super) fn pool_counts(&self) -> Option<Vec<PoolCounts>> {
        self.pools.as_ref()?;
        let counts = |(size, of): (PageSize, vm::PoolCounts)| PoolCounts {
            size: size.to_string(),
            asked: of.asked,
            nr_hugepages: of.nr_hugepages,
            free_hugepages: of.free_hugepages,
            resv_hugepages: of.resv_hugepages,
            surplus_hugepages: of.surplus_hugepages,
            mapped: of.mapped,
            refused: of.refused,
            taken: of.taken,
            bus_errors: of.bus_errors,
        };
        Some(self.vm.pools().into_iter().map(counts).collect())
    }
}
