//! Reserved large pages: mappings with `MAP_HUGETLB` and segments with `SHM_HUGETLB` (`mm/hugetlb.c`).
//!
//! ```text
//!   pool of 2M    | free, promised | free | in use ... |  + surplus pages, out of free memory
//!                     ^        ^         |
//!   mmap: a promise --+        |         +-- a fault without a promise: of those not promised
//!   fault: it is kept ---------+             none? a surplus page; none? SIGBUS
//!   munmap, exit: the block is free again, and a surplus page goes back to free memory
//! ```
//!
//! The frames of a pool are wired all the time: none of them is evicted, moved or split. A pool
//! *promises* its pages to mappings (Linux: reserves). The promises of a private mapping are its
//! own; the child of a fork has no promises, so its copies need pages that are not promised.
//! Promises for shared memory belong to the memory and not to a mapping.
//!
//! If the pool has no page for a fault, the kernel ends the process. Here the fault is counted and
//! a base page is mapped, because the accesses of a trace have really happened.

use alloc::vec::Vec;
use core::ops::Range;

use addr::{Kind, PageSize, VirtRange};
use hat::{
    HatSpace,
    locking::{Locks, Mutex, Site},
};
use physmem::{FrameId, Request, State};

use crate::{
    error::{Error, Stop},
    fault::RegionPage,
    host::Host,
    kernel::Kernel,
    large::{Presence, outside},
    module::Module,
    object::ObjectId,
    region::{Backing, Region, Wired},
    thp::{PoolCounts, Promise},
    vm::{Vm, Within},
    work::{How, Why},
};

impl<L: Locks> Vm<L> {
    /// The pools of reserved large pages, by page size.
    pub fn pools(&self) -> Vec<(PageSize, PoolCounts)> {
        let shift = self.base.shift();
        self.pages.with(Site::Look, |lists| {
            let pools = lists.pools.0.iter();
            let of = |(order, pool): (&u32, &crate::thp::Pool)| {
                Some((PageSize::from_shift((shift + order) as u8)?, pool.counts()))
            };
            pools.filter_map(of).collect()
        })
    }

    /// The promise for the block of `region` that begins with `page`.
    fn promise(space: HatSpace, region: &Region, page: u64) -> Promise {
        match region.backing {
            Backing::Shared { object, first } => {
                Promise::Shared { object, index: first + (page - region.pages.start) }
            }
            Backing::Anonymous | Backing::Private { .. } | Backing::Frames { .. } => {
                Promise::Private { space: space.0, page }
            }
        }
    }
}

impl<H: Host> Kernel<'_, H> {
    /// Makes a pool of pages of `size`, which must be one of the sizes that may be loaded. The pool
    /// gets `pages` pages now, as far as free memory has such blocks, and at most `overcommit` more
    /// later. Returns the number of pages in the pool.
    pub fn set_pool(&mut self, size: PageSize, pages: u64, overcommit: u64) -> u64 {
        self.site = Site::Call;
        let order = self.order_of(size);
        let mut blocks = Vec::new();
        while (blocks.len() as u64) < pages
            && let Some(block) = self.new_block(order)
        {
            blocks.push(block);
        }
        let got = blocks.len() as u64;
        self.lists(|lists, _| {
            let pool = lists.pools.0.entry(order).or_default();
            pool.free.append(&mut blocks);
            pool.counts.asked += pages;
            pool.counts.nr_hugepages += got;
            pool.counts.nr_overcommit_hugepages = overcommit;
        });
        got
    }

    /// Makes the whole blocks of `size` in `range`, which has just been mapped, use pages of the
    /// pool. With `promises`, the pool promises a page to each block now. Returns false, and
    /// changes nothing, if there is no such pool or the pool can promise no further pages.
    pub fn reserve(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        size: PageSize,
        promises: bool,
    ) -> Result<bool, Error> {
        self.site = Site::Call;
        let order = self.order_of(size);
        let pages = self.vm.pages_of(range);
        let count = 1u64 << order;
        let blocks = pages.start.next_multiple_of(count)..pages.end & !(count - 1);
        self.staying_within(space, |kernel, at| {
            if blocks.is_empty() || !kernel.lists(|lists, _| lists.pools.0.contains_key(&order)) {
                return Ok(false);
            }
            at.known.regions.reserve(&blocks)?;
            let mut keys = Vec::new();
            for region in at.known.regions.within(&blocks) {
                let first = region.pages.start.max(blocks.start);
                let last = region.pages.end.min(blocks.end);
                let firsts = (first..last).step_by(count as usize);
                keys.extend(firsts.map(|page| Vm::<H::Locks>::promise(space, region, page)));
            }
            if promises && !kernel.promise_all(order, &keys) {
                return Ok(false);
            }
            kernel.lists(|lists, _| {
                let pool = lists.pools.0.entry(order).or_default();
                pool.counts.mapped += u64::from(promises);
            });
            at.known.regions.change(blocks, |region| {
                region.module = Module { page_size: Some(size), pool: true, ..Module::default() };
                region.wired = Wired::No;
            })?;
            at.known.regions.unreserve();
            Ok(true)
        })
    }

    /// Promises a page for each of `keys` that has neither a page nor a promise. If this is
    /// impossible, nothing is promised (`hugetlb_acct_memory`).
    fn promise_all(&mut self, order: u32, keys: &[Promise]) -> bool {
        let (vm, site) = (self.vm, self.site);
        let is_there = |key: &Promise| match *key {
            Promise::Shared { object, index } => {
                vm.objects.with(site, object, |object| object.pages.get(&index).is_some())
            }
            Promise::Private { .. } => false,
        };
        let mut keys: Vec<Promise> = keys.iter().copied().filter(|key| !is_there(key)).collect();
        let missing = self.lists(|lists, _| {
            let pool = lists.pools.0.entry(order).or_default();
            keys.retain(|key| !pool.promised.contains(key));
            let may_come =
                pool.counts.nr_overcommit_hugepages.saturating_sub(pool.counts.surplus_hugepages);
            let missing = (keys.len() as u64).saturating_sub(pool.spare() as u64);
            (missing <= may_come).then_some(missing)
        });
        let mut surplus = Vec::new();
        let is_enough = missing.is_some_and(|missing| {
            surplus.extend((0..missing).map_while(|_| self.new_block(order)));
            surplus.len() as u64 == missing
        });
        if !is_enough {
            surplus.drain(..).for_each(|block| self.drop_block(block, order));
        }
        self.lists(|lists, _| {
            let pool = lists.pools.0.entry(order).or_default();
            if !is_enough {
                pool.counts.refused += 1;
                return false;
            }
            let came = missing.unwrap_or(0);
            pool.counts.surplus_hugepages += came;
            pool.counts.nr_hugepages += came;
            pool.free.append(&mut surplus);
            pool.promised.extend(keys);
            true
        })
    }

    /// Brings in the large page that contains `page`, from the pool, or a base page if the pool has
    /// none.
    pub(crate) fn bring_reserved(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        kind: Kind,
    ) -> Result<How, Error> {
        let region = at.known.regions.at(page).ok_or(Error::NoRegion(self.vm.addr_of(page)))?;
        let region = region.clone();
        let size = region.module.page_size.unwrap_or(self.vm.base);
        let pages = self.vm.block(page, size);
        let tried = if pages.start < region.pages.start || pages.end > region.pages.end {
            Err(outside(at.known, &region, &pages))
        } else {
            self.pages_stay(|kernel| kernel.try_reserved(at, &region, &pages, (page, kind)))?
        };
        let why = match tried {
            Ok(how) => return Ok(how),
            Err(why) => why,
        };
        self.resolve(at, (page, &RegionPage::of(&region, page)), kind, (size, why))
    }

    fn try_reserved(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        (page, kind): (u64, Kind),
    ) -> Result<Result<How, Why>, Error> {
        if let Err(why) = self.fits(at, region, pages) {
            return Ok(Err(why));
        }
        let mut how = How::Minor;
        let loaded = match self.presence(at.known, region, pages, kind == Kind::Store) {
            Ok(Presence::Whole(frame, writable)) => {
                self.load_whole(at, region, pages, frame, writable, kind, &mut how)
            }
            Ok(Presence::Nothing) => {
                let promise = Vm::<H::Locks>::promise(at.space, region, pages.start);
                let Some(large) = self.take_reserved(pages, promise) else {
                    return Ok(Err(Why::PoolEmpty));
                };
                self.pooled = true;
                let filled = self.fill_into(at, region, pages, large, kind, &mut how);
                self.pooled = false;
                filled
            }
            Err(why) => return Ok(Err(why)),
        };
        match loaded {
            Ok(loaded) => {
                if loaded {
                    let size = self.vm.size_of(pages);
                    self.decided((at.space, page), (size, Why::Obtained), size, 1);
                }
                Ok(Ok(how))
            }
            Err(Stop::Full) => Ok(Err(Why::NoFrame)),
            Err(Stop::Refused(error)) => Err(error),
        }
    }

    /// A block of a pool for `pages`, recorded as a folio that is never split.
    fn take_reserved(&mut self, pages: &Range<u64>, promise: Promise) -> Option<FrameId> {
        let order = (pages.end - pages.start).ilog2();
        let taken = self.lists(|lists, _| {
            let pool = lists.pools.0.get_mut(&order)?;
            pool.take(promise).map(Some).or_else(|| {
                let counts = &pool.counts;
                (counts.surplus_hugepages < counts.nr_overcommit_hugepages).then_some(None)
            })
        });
        let first = match taken {
            Some(Some(first)) => Some(first),
            Some(None) => self.new_block(order).inspect(|_| {
                self.lists(|lists, _| {
                    let counts = &mut lists.pools.0.entry(order).or_default().counts;
                    counts.surplus_hugepages += 1;
                    counts.nr_hugepages += 1;
                    counts.taken += 1;
                });
            }),
            None => None,
        };
        self.lists(|lists, _| match first {
            Some(first) => {
                let order = order + self.memory.order(self.vm.base);
                lists.folios.enter_reserved(first, order);
            }
            None => lists.pools.0.entry(order).or_default().counts.bus_errors += 1,
        });
        first
    }

    /// Takes back the promises of regions that are no longer in `space`.
    pub(crate) fn unpromise(&mut self, space: HatSpace, gone: &[Region]) {
        for region in gone.iter().filter(|region| region.module.pool) {
            if let Backing::Shared { .. } = region.backing {
                continue;
            }
            let key = |page| Promise::Private { space: space.0, page };
            self.unpromise_within(region, key(region.pages.start)..key(region.pages.end));
        }
    }

    /// Takes back the promises of shared memory that has ended.
    pub(crate) fn unpromise_object(&mut self, object: ObjectId) {
        let orders: Vec<u32> = self.lists(|lists, _| lists.pools.0.keys().copied().collect());
        let key = |index| Promise::Shared { object, index };
        orders.into_iter().for_each(|order| self.unpromise_keys(order, key(0)..key(u64::MAX)));
    }

    fn unpromise_within(&mut self, region: &Region, keys: Range<Promise>) {
        if let Some(size) = region.module.page_size {
            self.unpromise_keys(self.order_of(size), keys);
        }
    }

    fn unpromise_keys(&mut self, order: u32, keys: Range<Promise>) {
        let leaving = self.lists(|lists, _| {
            let Some(pool) = lists.pools.0.get_mut(&order) else { return Vec::new() };
            let gone: Vec<Promise> = pool.promised.range(keys).copied().collect();
            for key in &gone {
                pool.promised.remove(key);
            }
            pool.unpromised(gone.len() as u64)
        });
        leaving.into_iter().for_each(|block| self.drop_block(block, order));
    }

    /// Moves the promises of `pages` of a region that moves by `distance`.
    pub(crate) fn move_promises(&mut self, space: HatSpace, region: &Region, distance: u64) {
        let Some(size) = region.module.page_size.filter(|_| region.module.pool) else { return };
        let order = self.order_of(size);
        let key = |page| Promise::Private { space: space.0, page };
        self.lists(|lists, _| {
            let Some(pool) = lists.pools.0.get_mut(&order) else { return };
            let keys = key(region.pages.start)..key(region.pages.end);
            let gone: Vec<Promise> = pool.promised.range(keys).copied().collect();
            for promise in gone {
                pool.promised.remove(&promise);
                if let Promise::Private { page, .. } = promise {
                    pool.promised.insert(key(page.wrapping_add(distance)));
                }
            }
        });
    }

    /// A block of free memory, whose frames are wired; `None` if there is none above the low mark.
    fn new_block(&mut self, order: u32) -> Option<FrameId> {
        if self.free_pages() < (1 << order) + self.vm.marks.low() {
            return None;
        }
        let order = order + self.memory.order(self.vm.base);
        let request = Request::new(order, State::Movable);
        let first = self.frames(|memory| {
            let first = memory.allocate(&request).ok()?;
            (first.0..first.0 + (1 << order)).for_each(|frame| memory.wire(FrameId(frame)));
            Some(first)
        })?;
        self.work.frames_taken += 1 << order;
        Some(first)
    }

    /// Returns a block that no mapping uses to free memory.
    pub(crate) fn drop_block(&mut self, first: FrameId, order: u32) {
        let order = order + self.memory.order(self.vm.base);
        self.work.frames_given += 1 << order;
        self.frames(|memory| {
            (first.0..first.0 + (1 << order)).for_each(|frame| memory.unwire(FrameId(frame)));
            memory.try_free(first, order).expect("a free block of a pool is the pool's");
        });
    }

    fn order_of(&self, size: PageSize) -> u32 {
        size.shift().saturating_sub(self.vm.base.shift())
    }
}
