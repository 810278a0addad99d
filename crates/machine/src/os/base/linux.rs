//! `linux`: what its knobs come to, and when `khugepaged` runs.

use addr::PageSize;
use vm::{Collapsed, Khugepaged, ScanResult, Thp};

use super::{Base, Refusal};
use crate::{
    Description,
    count::results::{KhugepagedCounts, LinuxCounts},
    description::{Enabled, Linux, OrderEnabled},
    os::{Failure, Platform, build::linux},
};

/// The only base page of a kernel whose knobs these are.
const BASE: PageSize = PageSize::SIZE_4K;
/// The large page of its second level.
pub(super) const HUGE: PageSize = PageSize::SIZE_2M;
/// Base pages of a large one.
const HUGE_PAGES: u64 = 512;

/// What the knobs come to, for pages of `sizes`; an error comes with the key that is wrong.
pub(super) fn thp(description: &Description, sizes: &[PageSize]) -> Result<Option<Thp>, Refusal> {
    let Some(asked) = linux(&description.os) else { return Ok(None) };
    let refuse = |key: &str, what: String| Err((key.to_owned(), what));
    if sizes != [BASE, HUGE] {
        let what = "the manager `linux` has base pages of 4K and large ones of 2M: choose a page \
                    table that has both, as page_table.format=x86-64";
        return refuse("os.manager", what.to_owned());
    }
    let knobs = &asked.khugepaged;
    if knobs.pages_to_scan == 0 {
        let what = "the kernel refuses 0: write 1 or more".to_owned();
        return refuse("os.linux.khugepaged.pages_to_scan", what);
    }
    for (key, value) in [
        ("max_ptes_none", knobs.max_ptes_none),
        ("max_ptes_swap", knobs.max_ptes_swap),
        ("max_ptes_shared", knobs.max_ptes_shared),
    ] {
        if value >= HUGE_PAGES {
            let what =
                format!("the kernel refuses {value}: a page of 2M has 512, so write 0 to 511");
            return refuse(&format!("os.linux.khugepaged.{key}"), what);
        }
    }
    if asked.cycles_per_ms == 0 {
        let what = "time would stand still: write 1 or more".to_owned();
        return refuse("os.linux.cycles_per_ms", what);
    }
    let (mut always, mut madvise) = (0, 0);
    for (order, knob) in asked.by_order() {
        match (knob, asked.enabled) {
            (OrderEnabled::Always, _) | (OrderEnabled::Inherit, Enabled::Always) => {
                always |= 1 << order;
            }
            (OrderEnabled::Madvise, _) | (OrderEnabled::Inherit, Enabled::Madvise) => {
                madvise |= 1 << order;
            }
            (OrderEnabled::Never, _) | (OrderEnabled::Inherit, Enabled::Never) => {}
        }
    }
    let khugepaged = Khugepaged {
        pages_to_scan: knobs.pages_to_scan,
        max_ptes_none: knobs.max_ptes_none,
        max_ptes_swap: knobs.max_ptes_swap,
        max_ptes_shared: knobs.max_ptes_shared,
    };
    Ok(Some(Thp { always, madvise, khugepaged }))
}

/// When `khugepaged` runs, in cycles of the clock.
pub(super) struct Waking {
    pub(super) next: u64,
    scan_sleep: u64,
    alloc_sleep: u64,
}

impl Waking {
    /// Nothing where no page of 2M is allowed: the kernel then runs none.
    pub(super) fn new(asked: &Linux, thp: &Thp) -> Option<Waking> {
        let order = HUGE.shift() - BASE.shift();
        let runs = (thp.always | thp.madvise) & 1 << order != 0;
        // What sleeps no time still lets programs run.
        let cycles = |ms: u64| ms.saturating_mul(asked.cycles_per_ms).max(1);
        let scan_sleep = cycles(asked.khugepaged.scan_sleep_millisecs);
        let alloc_sleep = cycles(asked.khugepaged.alloc_sleep_millisecs);
        runs.then_some(Waking { next: scan_sleep, scan_sleep, alloc_sleep })
    }
}

impl Base {
    /// Has `khugepaged` run if it is time.
    pub(super) fn wake(&mut self, now: u64, platform: &mut dyn Platform) -> Result<(), Failure> {
        if self.khugepaged.as_ref().is_none_or(|waking| now < waking.next) {
            return Ok(());
        }
        let Collapsed { starved, .. } = self.with(platform, |kernel| Ok(kernel.khugepaged()))?;
        if let Some(waking) = &mut self.khugepaged {
            let sleep = if starved { waking.alloc_sleep } else { waking.scan_sleep };
            waking.next = now.saturating_add(sleep);
        }
        Ok(())
    }

    /// Bytes of frames that nobody maps and that are not free, as the large page is not split that
    /// they were part of.
    pub(super) fn held_bytes(&self) -> u64 {
        self.vm.folios().0 << self.vm.base().shift()
    }

    pub(super) fn linux_counts(&self) -> Option<LinuxCounts> {
        self.vm.thp()?;
        let scanned = self.vm.scanned();
        let results = ScanResult::ALL.into_iter().zip(scanned.results);
        Some(LinuxCounts {
            held_bytes: self.held_bytes(),
            folios_split: self.vm.folios().1,
            khugepaged: KhugepagedCounts {
                passes: scanned.passes,
                results: results.map(|(of, count)| (of.name().to_owned(), count)).collect(),
            },
        })
    }
}
