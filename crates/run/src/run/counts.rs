//! Counts of lookups that missed every TLB: by region, by page and by origin.

use addr::{PageSize, VirtAddr};
use os::Who;
use results::count::{census::Census, history::History, labels::Layout};
use trace::Batch;

use super::hooks::Hooks;

/// The counters for lookups that missed every TLB.
pub(super) struct MissCounts<'a> {
    pub(super) census: &'a mut Census,
    pub(super) history: &'a mut History,
    pub(super) hooks: &'a mut Hooks,
    pub(super) layout: &'a Layout,
    pub(super) who: Who,
}

impl MissCounts<'_> {
    /// Counts a miss of the access at `index` of `batch`, to `addr`. There were `when` accesses
    /// before it. `region` is the label of the region, and `page` the size of the page; `cold` says
    /// whether this is the first touch of the page.
    #[inline(always)]
    pub(super) fn count(
        self,
        batch: &Batch,
        index: usize,
        when: u64,
        addr: VirtAddr,
        (region, page, cold): (u32, PageSize, bool),
    ) {
        let MissCounts { census, history, hooks, layout, who } = self;
        history.miss(when, addr.get(), region, cold);
        hooks.counted(batch, index, (who.number, addr, layout), (region, page, cold));
        let census = census.region(region);
        census.misses += 1;
        census.cold_misses += u64::from(cold);
    }
}
