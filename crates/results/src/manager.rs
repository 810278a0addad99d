//! What a manager of memory counts: faults, page sizes and their reasons, its daemon, what memory is used for.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{DeviceCounts, LinuxCounts, RegionCounts, ReservationCounts, ReservationSample};

/// What the operating system was called for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// First touches of a page.
    pub first_touch: u64,
    /// Pages that were there before and came back: from swap, or only their translations.
    pub returned: u64,
    /// Accesses that a page's rights did not allow, found on a walk and then granted.
    pub protection: u64,
}

/// What a memory manager counted that keeps the whole life of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ManagerCounts {
    /// Which page left memory.
    pub replacement: String,
    /// Faults by how they were answered.
    pub faults: BTreeMap<String, u64>,
    /// Accesses that no region of the trace explains, or that their region forbids.
    pub unexplained: u64,
    /// The kernel's work by kind.
    pub work: BTreeMap<String, u64>,
    /// Requests to disks: pages that are side by side in memory and on the disk are one.
    pub io_requests: u64,
    /// Cycles that requests took from and to disks, one after the other.
    pub io_cycles: u64,
    /// Cycles of the work by kind, at the prices of `[os.costs.work]`; empty without them.
    pub cycles: BTreeMap<String, u64>,
    /// Why pages have the sizes that they have.
    pub page_sizes: Vec<SizeReasons>,
    /// Pages for which a size was wished, by region, size and what came of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<SizeDecision>,
    /// Large pages that were asked for by upgrades, in the same way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upgrades: Vec<SizeDecision>,
    /// The daemon that coalesces free memory, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<DaemonCounts>,
    /// Reservations, if the manager has such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationCounts>,
    /// Frames of devices, if they get some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceCounts>,
    /// Transparent huge pages, if the manager has such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub linux: Option<LinuxCounts>,
    /// What memory was like at the fullest end of a program, or of the trace.
    pub end: EndOfProgram,
    /// What memory is used for at the end.
    pub bytes: KindBytes,
    /// What memory is used for over time: a sample where it changed, at most a few hundred.
    pub over_time: Vec<MemorySample>,
}

impl ManagerCounts {
    /// Calls the regions of pages as `regions` does.
    pub fn name_regions(&mut self, regions: &[RegionCounts]) {
        let reasons = self.page_sizes.iter_mut().map(|row| (&mut row.region, row.place));
        let sizes = self.sizes.iter_mut().chain(&mut self.upgrades);
        for (name, place) in reasons.chain(sizes.map(|row| (&mut row.region, row.place))) {
            name.clone_from(&regions[place as usize].name);
        }
    }
}

/// A setting that changed while the machine ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedSetting {
    /// The access of the trace before which it did, from 0.
    pub access: u64,
    /// When it was to, in cycles of the operating system's clock.
    pub time: u64,
    /// Its key.
    pub key: String,
    /// Its new value, as in a machine file.
    pub value: String,
}

/// Pages loaded at faults in one region, by why they have their size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeReasons {
    /// The region's name in `regions`.
    pub region: String,
    /// Pages by reason.
    pub pages: BTreeMap<String, u64>,
    /// The index of the region in `regions`.
    #[serde(skip)]
    pub place: u32,
}

/// Pages of which a size was wished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeDecision {
    /// Their region's name in `regions`: that in which the fault was, or in which a large page that was
    /// asked for begins.
    pub region: String,
    /// The size that was wished.
    pub wanted: String,
    /// The size that they have.
    pub got: String,
    /// Why it is not the one that was wished, or `obtained`.
    pub why: String,
    /// How many pages, each of the size that they have.
    pub pages: u64,
    /// The index of the region in `regions`.
    #[serde(skip)]
    pub place: u32,
}

/// What the coalescing daemon has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DaemonCounts {
    /// Passes by level: `weak`, `mild`, `strong`.
    pub levels: BTreeMap<String, LevelPasses>,
    /// What the daemon has done over time, at most a few hundred samples.
    pub over_time: Vec<DaemonSample>,
}

/// Passes of one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LevelPasses {
    /// Passes.
    pub passes: u64,
    /// Large free pages that they made.
    pub made: u64,
}

/// What the daemon did between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DaemonSample {
    /// The access of the trace at which the last of them was over.
    pub access: u64,
    /// Passes.
    pub passes: u64,
    /// Large free pages that were made.
    pub made: u64,
    /// Base pages that were moved for them.
    pub moved: u64,
    /// Shootdowns for that.
    pub flushes: u64,
}

impl DaemonSample {
    /// Takes in one that follows.
    pub fn add(&mut self, next: &DaemonSample) {
        let DaemonSample { access, passes, made, moved, flushes } = *next;
        self.access = access;
        self.passes += passes;
        self.made += made;
        self.moved += moved;
        self.flushes += flushes;
    }
}

/// Memory by what it is used for, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindBytes {
    /// Pages that a space has stored to and that are its own, in bytes.
    pub anonymous: u64,
    /// Pages of files, in bytes.
    pub file: u64,
    /// Pages of memory that spaces share, in bytes.
    pub shared: u64,
    /// Page tables, in bytes.
    pub tables: u64,
    /// Nothing: bytes that are free.
    pub free: u64,
    /// Nothing yet: bytes that are held back in reservations, and free where memory runs out.
    pub reserved: u64,
    /// Not in memory but in swap, in bytes.
    pub swapped: u64,
}

/// Memory at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemorySample {
    /// The access of the trace, from 0.
    pub access: u64,
    /// What memory was used for.
    #[serde(flatten)]
    pub bytes: KindBytes,
    /// Mapped pages by size.
    pub pages_by_size: BTreeMap<String, u64>,
    /// What has become of reservations till then, if there are such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationSample>,
}

/// What memory was like at the fullest end of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndOfProgram {
    /// The access of the trace at which it ended; where the trace does not tell of ends, 0.
    pub access: u64,
    /// What memory was used for.
    #[serde(flatten)]
    pub bytes: KindBytes,
    /// Mapped bytes by page size, a frame that several pages have counted for each.
    pub mapped_by_size: BTreeMap<String, u64>,
    /// Runs of adjacent pages in adjacent frames, by length.
    pub runs: Vec<RunsOfLength>,
    /// Regions of which something is mapped, by address. The page of zeros that all share counts as not
    /// mapped, here and above.
    pub regions: Vec<RegionSizes>,
}

/// A region at the end of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegionSizes {
    /// The number of its space.
    pub space: u32,
    /// What it is called.
    pub name: String,
    /// Its first byte.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// Mapped bytes by page size.
    pub mapped_by_size: BTreeMap<String, u64>,
}

/// Runs of adjacent pages in adjacent frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunsOfLength {
    /// They have at least so many bytes, and less than twice as many.
    pub bytes_min: u64,
    /// How many there are.
    pub runs: u64,
    /// All of their bytes.
    pub bytes: u64,
}

/// On-line promotion: what was charged, and which pages it paid for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromotionCounts {
    /// Misses of every level of pages that could be larger, first touches apart: each is counted.
    pub misses: u64,
    /// Of these, charged to a candidate: a larger page would have been in a TLB.
    pub charged: u64,
    /// Cycles that counting them took. They are part of the kernel's time.
    pub counting_cycles: u64,
    /// By size, the smallest first.
    pub sizes: Vec<PromotionsOfSize>,
}

/// Pages that were promoted to one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromotionsOfSize {
    /// The size.
    pub size: String,
    /// Misses that a candidate is charged until it is promoted.
    pub threshold_misses: u64,
    /// Pages of it that were made.
    pub promoted: u64,
    /// How often none could be; `manager.upgrades` has the reasons, where the manager tells them.
    pub refused: u64,
}
