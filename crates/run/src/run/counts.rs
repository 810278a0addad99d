//! What is counted of a lookup that missed every level of TLBs: by region, by page and by origin.

use addr::{PageSize, VirtAddr};
use os::Who;
use results::count::{census::Census, history::History, labels::Layout};
use trace::Batch;

use super::hooks::Hooks;

/// What counts such lookups.
pub(super) struct MissCounts<'a> {
    pub(super) census: &'a mut Census,
    pub(super) history: &'a mut History,
    pub(super) hooks: &'a mut Hooks,
    pub(super) layout: &'a Layout,
    pub(super) who: Who,
}

impl MissCounts<'_> {
    /// Counts a miss of `addr`: the access at `index` of `batch`, before which there were `when` accesses. The region is
    /// given by its label, the page by its size; `cold` says whether nothing had touched the page before.
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
