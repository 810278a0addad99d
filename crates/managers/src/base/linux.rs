//! `linux` and related managers: the values of their settings, and when their daemons run.

use addr::PageSize;
use description::{
    self, Defrag, Description, Enabled, OrderEnabled, OrderShmem, Refusal, ShmemEnabled,
    managers::{Huge, huge, linux, page_blocks},
};
use os::Platform;
use physmem::BlockType;
use ram::{Failure, Ram};
use results::{
    ChosenBlocks, CompactionCounts, KhugepagedCounts, LinuxCounts, PageBlockCounts, RangerCounts,
};
use vm::{
    CompactResult, Compacting, Ingens, Khugepaged, Marks, Placing, Promoter, Ranged, Ranger,
    ScanResult, Shmem, ShmemHuge, Thp,
};

use super::{Base, versions};

/// The base page size, which a machine with these settings must have.
const BASE: PageSize = PageSize::SIZE_4K;
/// The size of the pages that an entry of level 2 maps.
pub(super) const HUGE: PageSize = PageSize::SIZE_2M;
/// The number of base pages per large page.
const HUGE_PAGES: u64 = 512;

/// The values of the settings, for pages of `sizes`. The error has the key that is wrong.
pub(super) fn thp(description: &Description, sizes: &[PageSize]) -> Result<Option<Thp>, Refusal> {
    let Some(asked) = linux(&description.os) else { return Ok(None) };
    let refuse = |key: &str, what: String| Err(Refusal::new(key, what));
    let name = &description.os.manager;
    if !sizes.starts_with(&[BASE, HUGE]) {
        let what = format!(
            "the manager `{name}` has base pages of 4K and large ones of 2M: choose a page table \
             that has both, such as page_table.format=x86-64"
        );
        return refuse("os.manager", what);
    }
    if asked.allows_1g() && sizes.last() != Some(&PageSize::SIZE_1G) {
        let what =
            "the page table has no pages of 1G: write never, or choose a page table that has them";
        return refuse("os.linux.hugepages-1048576kB.enabled", what.to_owned());
    }
    if let Some(pools) = &asked.hugetlb {
        if pools.of_1048576k.is_some() && sizes.last() != Some(&PageSize::SIZE_1G) {
            let what = "the page table has no pages of 1G: leave the pool out, or choose a page \
                        table that has them";
            return refuse("os.linux.hugetlb.hugepages-1048576kB", what.to_owned());
        }
        if !matches!(pools.default.0, HUGE | PageSize::SIZE_1G) {
            let what = format!("there is no pool of {}: write \"2M\" or \"1G\"", pools.default.0);
            return refuse("os.linux.hugetlb.default", what);
        }
    }
    for (key, value) in
        [("use_zero_page", asked.use_zero_page), ("khugepaged.defrag", asked.khugepaged.defrag)]
    {
        if value > 1 {
            let what = format!("the kernel refuses {value}: write 0 or 1");
            return refuse(&format!("os.linux.{key}"), what);
        }
    }
    if asked.fault_around_bytes >> BASE.shift() > HUGE_PAGES {
        let what =
            format!("the kernel refuses {}: write 2097152 or less", asked.fault_around_bytes);
        return refuse("os.linux.fault_around_bytes", what);
    }
    for (key, value, most) in [
        ("compaction_proactiveness", asked.compaction_proactiveness, 100),
        ("extfrag_threshold", asked.extfrag_threshold, 1000),
    ] {
        if value > most {
            let what = format!("the kernel refuses {value}: write 0 to {most}");
            return refuse(&format!("os.linux.{key}"), what);
        }
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
        let what = "with 0, the kernel's time would not advance: write 1 or more".to_owned();
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
        defrag: knobs.defrag == 1,
    };
    let around = (asked.fault_around_bytes >> BASE.shift()).max(1);
    let mut thp = Thp {
        defrag: match asked.defrag {
            Defrag::Always => vm::Defrag::Always,
            Defrag::Defer => vm::Defrag::Defer,
            Defrag::DeferMadvise => vm::Defrag::DeferMadvise,
            Defrag::Madvise => vm::Defrag::Madvise,
            Defrag::Never => vm::Defrag::Never,
        },
        use_zero_page: asked.use_zero_page == 1,
        shmem: shmem(&asked),
        // The kernel rounds this value down to a power of two.
        fault_around: 1 << around.ilog2(),
        compacting: Compacting {
            compaction_proactiveness: asked.compaction_proactiveness,
            extfrag_threshold: asked.extfrag_threshold,
            watermark_boost_factor: asked.watermark_boost_factor,
        },
        ..Thp::new(always, madvise, khugepaged)
    };
    versions::check(&description.os.manager, &asked, &mut thp)?;
    rivals(description, &mut thp)?;
    Ok(Some(thp))
}

/// Which shared memory gets large blocks.
fn shmem(asked: &description::Linux) -> Shmem {
    let mut shmem = Shmem {
        all: match asked.shmem_enabled {
            ShmemEnabled::Always => ShmemHuge::Always,
            ShmemEnabled::WithinSize => ShmemHuge::WithinSize,
            ShmemEnabled::Advise => ShmemHuge::Advise,
            ShmemEnabled::Never => ShmemHuge::Never,
            ShmemEnabled::Deny => ShmemHuge::Deny,
            ShmemEnabled::Force => ShmemHuge::Force,
        },
        ..Shmem::default()
    };
    for (order, knob) in asked.shmem_by_order() {
        let orders = match knob {
            OrderShmem::Always => &mut shmem.always,
            OrderShmem::Inherit => &mut shmem.inherit,
            OrderShmem::WithinSize => &mut shmem.within_size,
            OrderShmem::Advise => &mut shmem.madvise,
            OrderShmem::Never => continue,
        };
        *orders |= 1 << order;
    }
    shmem
}

/// The settings of the managers that are derived from Linux.
fn rivals(description: &Description, thp: &mut Thp) -> Result<(), Refusal> {
    let os = &description.os;
    let refuse = |key: &str, what: String| Err(Refusal::new(key, what));
    match huge(os) {
        None | Some(Huge::Linux) => {}
        Some(Huge::Ingens) => {
            let asked = os.ingens.clone().unwrap_or_default();
            if !(1..=100).contains(&asked.util_threshold) {
                let what = format!(
                    "{} is not a percentage of a block: write 1 to 100",
                    asked.util_threshold
                );
                return refuse("os.ingens.util_threshold", what);
            }
            if !matches!(asked.deferred_mode, 1 | 2) {
                let what = format!(
                    "{} is not modelled: write 1 (the use of pages is not sampled) or 2 (the use of \
                     pages is sampled); for 0, use os.manager = \"linux\"",
                    asked.deferred_mode
                );
                return refuse("os.ingens.deferred_mode", what);
            }
            if !(asked.hot_share > 0.0 && asked.hot_share <= 1.0) {
                let what =
                    format!("{} is not a share of hot pages: write 0.001 to 1", asked.hot_share);
                return refuse("os.ingens.hot_share", what);
            }
            if !(0.0..=1.0).contains(&asked.aggressive_below) {
                let what = format!(
                    "{} is not a share of free memory: write 0 to 1",
                    asked.aggressive_below
                );
                return refuse("os.ingens.aggressive_below", what);
            }
            let util_threshold = (HUGE_PAGES * u64::from(asked.util_threshold) / 100).max(1);
            thp.faults = false;
            thp.promoter = Promoter::Ingens(Ingens {
                hot_every: (asked.deferred_mode == 2)
                    .then(|| (1.0 / asked.hot_share).round() as u64),
                aggressive_below: (asked.aggressive_below * 1000.0) as u64,
                ..Ingens::new(util_threshold)
            });
            thp.khugepaged = thp.khugepaged.filled(HUGE_PAGES, util_threshold);
        }
        Some(Huge::HawkEye) => {
            let asked = os.hawkeye.clone().unwrap_or_default();
            for (key, share) in [
                ("recover_below", asked.recover_below),
                ("recover_until", asked.recover_until),
                ("zero_share", asked.zero_share),
            ] {
                if !(0.0..=1.0).contains(&share) {
                    let what = format!("{share} is not a share of memory: write 0 to 1");
                    return refuse(&format!("os.hawkeye.{key}"), what);
                }
            }
            thp.faults = asked.faults;
            thp.promoter = Promoter::HawkEye;
        }
        Some(Huge::Ca) => {
            let offsets_max = os.ca.clone().unwrap_or_default().offsets_max;
            if offsets_max == 0 {
                let what = "a region needs one offset at least: write 1 or more".to_owned();
                return refuse("os.ca.offsets_max", what);
            }
            let order = page_blocks(os).unwrap_or(Placing::default().order);
            thp.placing = Some(Placing { offsets_max, order });
        }
        Some(Huge::Ranger) => {}
    }
    if os.ranger.is_some() || huge(os) == Some(Huge::Ranger) {
        let asked = os.ranger.clone().unwrap_or_default();
        let pages_min = asked.region_bytes_min.0 >> BASE.shift();
        thp.ranger = Some(Ranger { pages_min, moves: asked.moves });
    }
    Ok(())
}

/// Whether the manager uses pages of this size.
pub(super) fn is_held(os: &description::Os, size: PageSize) -> bool {
    let has_1g = linux(os).is_some_and(|knobs| knobs.has_1g());
    size == HUGE || has_1g && size == PageSize::SIZE_1G
}

/// The smallest and the largest default value of `min_free_kbytes`.
const MIN_FREE_KBYTES: (u64, u64) = (128, 262_144);

/// The watermarks of free memory that result from the settings, for a memory of `pages` base pages.
pub(super) fn marks(description: &Description, pages: u64) -> Result<Marks, Refusal> {
    let asked = linux(&description.os).unwrap_or_default();
    let refuse = |key: &str, what: String| Err(Refusal::new(format!("os.linux.{key}"), what));
    if !(1..=3000).contains(&asked.watermark_scale_factor) {
        let what = format!("the kernel refuses {}: write 1 to 3000", asked.watermark_scale_factor);
        return refuse("watermark_scale_factor", what);
    }
    let in_pages = |kbytes: u64| (kbytes << 10) >> BASE.shift();
    let kbytes = pages << BASE.shift() >> 10;
    let min = match asked.min_free_kbytes {
        Some(kbytes) => in_pages(kbytes),
        None => {
            let (least, most) = MIN_FREE_KBYTES;
            let by_size = in_pages((kbytes * 16).isqrt().clamp(least, most)).min(pages / 16);
            // For each zone, two page blocks, and nine more that count three types of pages
            // (khugepaged's `set_recommended_min_free_kbytes`). There is one zone if memory is
            // smaller than 16M, two if it is smaller than 4G, and otherwise three.
            let zones = [12, 20].iter().filter(|shift| pages > 1 << **shift).count() as u64 + 1;
            let has_large =
                linux(&description.os).is_some_and(|knobs| knobs.enabled != Enabled::Never);
            let wanted = if has_large { HUGE_PAGES * zones * 11 } else { 0 };
            by_size.max(wanted.min(pages / 20))
        }
    };
    let step = (min / 4).max(pages * asked.watermark_scale_factor / 10_000);
    if min + 2 * step > pages {
        let what = format!(
            "this would keep {min} pages free, and evict pages until {} are free, but memory.size \
             has only {pages} pages: write a smaller value",
            min + 2 * step
        );
        return refuse("min_free_kbytes", what);
    }
    Ok(Marks { min, low: min + step, high: min + 2 * step })
}

/// The task of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// Make large pages.
    Promote,
    /// Read which base pages were used.
    AgeUse,
    /// Compact memory proactively.
    Compact,
    /// Clear accessed bits, which begins a sample.
    BeginSample,
    /// Read accessed bits, which ends a sample.
    EndSample,
    /// Fill free blocks with zeros.
    Prezero,
    /// Search for base pages of zeros.
    Recover,
    /// Move pages into adjacent frames.
    Range,
}

/// The time at which a daemon next wakes, in cycles of the clock.
#[derive(Debug)]
struct Waking {
    next: u64,
    sleep: u64,
    task: Task,
    /// Whether the daemon ran in the last tick.
    ran: bool,
}

/// All daemons.
#[derive(Default, Debug)]
pub(super) struct Daemons {
    all: Vec<Waking>,
    /// How long the daemon that makes large pages sleeps after a pass that found no free frame.
    alloc_sleep: u64,
    prezero_blocks: u64,
    /// Three shares in thousandths: the share of free memory below which base pages of zeros are
    /// searched for; the share of free memory at which the search ends; and the share of base pages
    /// that contain only zeros.
    recover: [u64; 3],
}

impl Daemons {
    /// The time when the next daemon wakes.
    pub(super) fn next(&self) -> Option<u64> {
        self.all.iter().map(|waking| waking.next).min()
    }

    /// Delays the next pass of each daemon that just ran by `cycles`, the duration of the passes.
    /// The sleep of a daemon therefore begins at the end of its pass.
    pub(super) fn put_off(&mut self, cycles: u64) {
        // One daemon both begins and ends samples.
        let sampling = |waking: &Waking| matches!(waking.task, Task::BeginSample | Task::EndSample);
        let sampled = self.all.iter().any(|waking| waking.ran && sampling(waking));
        for waking in &mut self.all {
            if waking.ran || sampled && sampling(waking) {
                waking.next = waking.next.saturating_add(cycles);
            }
        }
    }
}

/// The daemons in a description.
pub(super) fn daemons(description: &Description, thp: &Thp) -> Daemons {
    let os = &description.os;
    let knobs = linux(os).unwrap_or_default();
    // A daemon that sleeps for 0 ms still lets programs run for a cycle.
    let cycles = |ms: u64| ms.saturating_mul(knobs.cycles_per_ms).max(1);
    let mut daemons = Daemons {
        alloc_sleep: cycles(knobs.khugepaged.alloc_sleep_millisecs),
        ..Daemons::default()
    };
    let mut add = |task: Task, first: u64, sleep: u64| {
        daemons.all.push(Waking { next: first, sleep, task, ran: false });
    };
    let mut scan_sleep = cycles(knobs.khugepaged.scan_sleep_millisecs);
    let kind = huge(os);
    match kind {
        Some(Huge::Ingens) => {
            let asked = os.ingens.clone().unwrap_or_default();
            scan_sleep = cycles(asked.scan_sleep_millisecs);
            if asked.deferred_mode == 2 {
                add(Task::AgeUse, scan_sleep, scan_sleep);
            }
        }
        Some(Huge::HawkEye) => {
            let asked = os.hawkeye.clone().unwrap_or_default();
            let [sample, sleep] = [asked.sample_millisecs, asked.sleep_millisecs].map(cycles);
            add(Task::BeginSample, sleep, sleep.saturating_add(sample));
            add(Task::EndSample, sleep.saturating_add(sample), sleep.saturating_add(sample));
            if asked.prezero_blocks > 0 {
                add(
                    Task::Prezero,
                    cycles(asked.prezero_millisecs),
                    cycles(asked.prezero_millisecs),
                );
            }
            if asked.zero_share > 0.0 {
                add(
                    Task::Recover,
                    cycles(asked.recover_millisecs),
                    cycles(asked.recover_millisecs),
                );
            }
        }
        Some(Huge::Linux | Huge::Ca | Huge::Ranger) | None => {}
    }
    let order = HUGE.shift() - BASE.shift();
    let wanted = if thp.collapses_smaller { !1 } else { 1 << order };
    let shared = thp.shmem.may_use(1 << order);
    if (thp.always | thp.madvise) & wanted != 0 || shared {
        add(Task::Promote, scan_sleep, scan_sleep);
    }
    if thp.compacting.compaction_proactiveness > 0 {
        add(Task::Compact, cycles(COMPACT_MS), cycles(COMPACT_MS));
    }
    if thp.ranger.is_some() {
        let period = cycles(os.ranger.clone().unwrap_or_default().period_millisecs);
        add(Task::Range, period, period);
    }
    if let Some(Huge::HawkEye) = kind {
        let asked = os.hawkeye.clone().unwrap_or_default();
        daemons.prezero_blocks = asked.prezero_blocks;
        let shares = [asked.recover_below, asked.recover_until, asked.zero_share];
        daemons.recover = shares.map(|share| (share * 1000.0) as u64);
    }
    daemons
}

/// The period of `kcompactd`'s checks of fragmentation, in milliseconds
/// (`HPAGE_FRAG_CHECK_INTERVAL_MSEC`).
const COMPACT_MS: u64 = 500;

impl Base {
    /// Runs the daemons that are due.
    pub(super) fn wake(&mut self, now: u64, platform: &mut dyn Platform) -> Result<(), Failure> {
        for place in 0..self.daemons.all.len() {
            let Waking { next, mut sleep, task, .. } = self.daemons.all[place];
            self.daemons.all[place].ran = now >= next;
            if now < next {
                continue;
            }
            let Daemons { prezero_blocks, recover: [below, until, zeros], .. } = self.daemons;
            if task == Task::EndSample {
                let overheads = platform.overheads();
                let ram = platform.ram();
                let of = |(space, share)| Some((ram.hat_space(space)?, share));
                let overheads: Vec<_> = overheads.into_iter().filter_map(of).collect();
                self.with(platform, |kernel| {
                    kernel.set_overheads(overheads);
                    Ok(())
                })?;
            }
            let starved = self.with(platform, |kernel| {
                match task {
                    Task::Promote => return Ok(kernel.khugepaged().starved),
                    Task::AgeUse => kernel.age_use(),
                    Task::Compact => kernel.compact_proactively(),
                    Task::BeginSample => kernel.begin_sample(),
                    Task::EndSample => kernel.end_sample(),
                    Task::Prezero => kernel.prezero(prezero_blocks),
                    Task::Recover => kernel.recover(below, until, zeros),
                    Task::Range => kernel.range_over(),
                }
                Ok(false)
            })?;
            if starved {
                sleep = self.daemons.alloc_sleep;
            }
            self.daemons.all[place].next = now.saturating_add(sleep);
        }
        Ok(())
    }

    /// Bytes of frames that are unmapped but not free, because they belong to a large page that has
    /// not been split.
    pub(super) fn held_bytes(&self) -> u64 {
        self.vm.folios().0 << self.vm.base().shift()
    }

    pub(super) fn linux_counts(&self, ram: &Ram) -> Option<LinuxCounts> {
        let thp = self.vm.thp()?;
        let compacted = self.vm.compacted();
        let runs = CompactResult::ALL.into_iter().zip(compacted.results);
        let compaction = CompactionCounts {
            results: runs.map(|(of, count)| (of.name().to_owned(), count)).collect(),
            woken: compacted.woken,
            proactive: compacted.proactive,
            blocks: compacted.blocks,
            moved: compacted.moved,
        };
        let blocks = ram.page_blocks().unwrap_or_default();
        let by_type = BlockType::ALL.into_iter().zip(blocks.blocks);
        let page_blocks = PageBlockCounts {
            by_type: by_type.map(|(of, count)| (of.name().to_owned(), count)).collect(),
            claimed: blocks.claimed,
            stolen: blocks.stolen,
        };
        let promoted = self.vm.promoted();
        let chosen = (thp.promoter != Promoter::Khugepaged).then(|| ChosenBlocks {
            filled: promoted.filled,
            samples: promoted.samples,
            sampled: promoted.sampled,
            hot: promoted.hot,
            bins: promoted.bins.to_vec(),
            prezeroed: promoted.prezeroed,
            recovered: promoted.recovered,
        });
        let Ranged { passes, moved, exchanged, anchors, promoted } = self.vm.ranged();
        let ranger = RangerCounts { passes, moved, exchanged, anchors, promoted };
        let scanned = self.vm.scanned();
        let results = ScanResult::ALL.into_iter().zip(scanned.results);
        Some(LinuxCounts {
            held_bytes: self.held_bytes(),
            folios_split: self.vm.folios().1,
            khugepaged: KhugepagedCounts {
                passes: scanned.passes,
                results: results.map(|(of, count)| (of.name().to_owned(), count)).collect(),
            },
            zero_bytes: self.vm.zero_frames() << self.vm.base().shift(),
            compaction,
            page_blocks,
            chosen,
            ranger: thp.ranger.map(|_| ranger),
            stats: self.stats.then(|| versions::stats(self.vm.stats_by_size(ram.parts().1))),
            groups: self.group_counts(),
            hugetlb: self.pool_counts(),
        })
    }
}
