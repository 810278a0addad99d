//! Counts of a memory manager: faults, page sizes and the reasons for them, the daemon, and the
//! uses of memory.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{DeviceCounts, LinuxCounts, RegionCounts, ReservationCounts, ReservationSample};

/// Page faults that the operating system handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// First touches of a page.
    pub first_touch: u64,
    /// Faults on pages that had been in memory before: the page was read from swap, or only its
    /// translation was missing.
    pub returned: u64,
    /// Accesses that the rights in the page table forbade, and that the operating system then
    /// allowed.
    pub protection: u64,
}

/// Counts of a memory manager that also models shared frames, copies and eviction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ManagerCounts {
    /// The replacement policy.
    pub replacement: String,
    /// Faults by how they were resolved.
    pub faults: BTreeMap<String, u64>,
    /// Accesses that are outside all regions of the trace, or that the rights of their region
    /// forbid.
    pub unexplained: u64,
    /// The kernel's work by kind.
    pub work: BTreeMap<String, u64>,
    /// Disk requests; pages that are adjacent in memory and on the disk are one request.
    pub io_requests: u64,
    /// Cycles of all disk requests, if no two of them overlap.
    pub io_cycles: u64,
    /// Cycles of the kernel's work by kind, at the prices in `[os.costs.work]`; empty if the
    /// machine file has no prices.
    pub cycles: BTreeMap<String, u64>,
    /// Pages loaded at faults, by region and by the reason for their size.
    pub page_sizes: Vec<SizeReasons>,
    /// Pages for which a size was requested, by region, requested size, obtained size and reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<SizeDecision>,
    /// Large pages requested by upgrades, in the form of `sizes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upgrades: Vec<SizeDecision>,
    /// The daemon that coalesces free memory, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<DaemonCounts>,
    /// Reservations, if the manager makes any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationCounts>,
    /// Frames lent to devices, if there are devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceCounts>,
    /// Transparent huge pages, if the manager has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxCounts>,
    /// Memory at one point in time: the end of the program, or of the trace, at which the amount of
    /// mapped memory was largest.
    pub end: EndOfProgram,
    /// Bytes of memory by use, at the end.
    pub bytes: KindBytes,
    /// Bytes of memory by use, over time: samples when the values change, a few hundred at most.
    pub over_time: Vec<MemorySample>,
}

impl ManagerCounts {
    /// Sets the names of regions in these counts to the names in `regions`.
    pub fn name_regions(&mut self, regions: &[RegionCounts]) {
        let reasons = self.page_sizes.iter_mut().map(|row| (&mut row.region, row.place));
        let sizes = self.sizes.iter_mut().chain(&mut self.upgrades);
        for (name, place) in reasons.chain(sizes.map(|row| (&mut row.region, row.place))) {
            name.clone_from(&regions[place as usize].name);
        }
    }
}

/// A setting that changed during the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedSetting {
    /// Index of the access before which the setting changed, from 0.
    pub access: u64,
    /// Time set for the change, in cycles of the operating system's clock.
    pub time: u64,
    /// Key of the setting.
    pub key: String,
    /// New value, as in a machine file.
    pub value: String,
}

/// Pages loaded at faults in one region, by the reason for their size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeReasons {
    /// Name of the region in `regions`.
    pub region: String,
    /// Pages by the reason for their size.
    pub pages: BTreeMap<String, u64>,
    /// The index of the region in `regions`.
    #[serde(skip)]
    pub place: u32,
}

/// Pages for which a size was requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeDecision {
    /// Name, as in `regions`, of the region in which the fault occurred or, for an upgrade, in
    /// which the large page begins.
    pub region: String,
    /// The requested size.
    pub wanted: String,
    /// The obtained size.
    pub got: String,
    /// Why the requested size was not obtained, or `obtained`.
    pub why: String,
    /// Number of pages, in units of the obtained size.
    pub pages: u64,
    /// The index of the region in `regions`.
    #[serde(skip)]
    pub place: u32,
}

/// Work of the coalescing daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DaemonCounts {
    /// Passes by level: `weak`, `mild`, `strong`.
    pub levels: BTreeMap<String, LevelPasses>,
    /// Work over time, a few hundred samples at most.
    pub over_time: Vec<DaemonSample>,
}

/// Passes of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LevelPasses {
    /// Passes.
    pub passes: u64,
    /// Large free pages made by passes of this level.
    pub made: u64,
}

/// Work of the coalescing daemon between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DaemonSample {
    /// Index of the access at which the last pass of this sample ended.
    pub access: u64,
    /// Passes.
    pub passes: u64,
    /// Large free pages made.
    pub made: u64,
    /// Base pages moved.
    pub moved: u64,
    /// Shootdowns for moving pages.
    pub flushes: u64,
}

impl DaemonSample {
    /// Adds the counts of a later sample to this one.
    pub fn add(&mut self, next: &DaemonSample) {
        let DaemonSample { access, passes, made, moved, flushes } = *next;
        self.access = access;
        self.passes += passes;
        self.made += made;
        self.moved += moved;
        self.flushes += flushes;
    }
}

/// Bytes of memory by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindBytes {
    /// Private pages that programs have stored to, in bytes.
    pub anonymous: u64,
    /// Pages of files, in bytes.
    pub file: u64,
    /// Pages of shared memory, in bytes.
    pub shared: u64,
    /// Page tables, in bytes.
    pub tables: u64,
    /// Free memory in bytes.
    pub free: u64,
    /// Reserved and not yet used frames in bytes; they are freed when memory runs out.
    pub reserved: u64,
    /// Pages that are in swap and not in memory, in bytes.
    pub swapped: u64,
}

/// Memory at one point of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemorySample {
    /// Index of the access, from 0.
    pub access: u64,
    /// Bytes of memory by use.
    #[serde(flatten)]
    pub bytes: KindBytes,
    /// Mapped pages by size.
    pub pages_by_size: BTreeMap<String, u64>,
    /// Reservations up to this point, if the manager makes any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationSample>,
}

/// Memory at the end of the program at which the amount of mapped memory was largest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndOfProgram {
    /// Index of the access at which the program ended; 0 if the trace does not record ends of
    /// programs.
    pub access: u64,
    /// Bytes of memory by use.
    #[serde(flatten)]
    pub bytes: KindBytes,
    /// Mapped bytes by page size; a frame to which several pages are mapped counts once for each
    /// page.
    pub mapped_by_size: BTreeMap<String, u64>,
    /// Runs of adjacent pages in adjacent frames, by length.
    pub runs: Vec<RunsOfLength>,
    /// Regions with mapped pages, by address. The shared zero page counts as not mapped, here and
    /// in the other fields of this structure.
    pub regions: Vec<RegionSizes>,
}

/// A region at the end of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionSizes {
    /// Number of the region's address space.
    pub space: u32,
    /// Name of the region.
    pub name: String,
    /// Address of the first byte.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Mapped bytes by page size.
    pub mapped_by_size: BTreeMap<String, u64>,
}

/// Runs of adjacent pages in adjacent frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunsOfLength {
    /// Minimum length of the runs in bytes. Each run is at least this long and less than twice as long.
    pub bytes_min: u64,
    /// Number of runs of this length.
    pub runs: u64,
    /// Total bytes of the runs of this length.
    pub bytes: u64,
}

/// Online promotion: misses charged, and pages promoted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromotionCounts {
    /// Lookups that missed every TLB on pages that could be promoted to a larger size, except first
    /// touches. The kernel counts each of these misses.
    pub misses: u64,
    /// Misses in `misses` that were charged to a larger page that pages could be promoted to (a
    /// candidate), because this larger page would have been in a TLB.
    pub charged: u64,
    /// Cycles for counting `misses`; they are part of the kernel's time.
    pub counting_cycles: u64,
    /// Counts by page size, smallest first.
    pub sizes: Vec<PromotionsOfSize>,
}

/// Pages that were promoted to one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromotionsOfSize {
    /// Page size.
    pub size: String,
    /// Misses that must be charged to a candidate before it is promoted.
    pub threshold_misses: u64,
    /// Pages promoted to this size.
    pub promoted: u64,
    /// Failed promotions; `manager.upgrades` has the reasons, if the manager records them.
    pub refused: u64,
}
