//! Counts of the managers derived from Linux, in addition to the counts that every manager has.

use std::collections::BTreeMap;

use serde::Serialize;

/// Counts of transparent huge pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinuxCounts {
    /// Bytes of frames, at the end, that no space maps but that are not free, because the large
    /// page that contains them has not been split. `bytes.anonymous` includes them.
    pub held_bytes: u64,
    /// Large pages with unmapped parts that were split.
    pub folios_split: u64,
    /// The daemon that collapses base pages into large pages.
    pub khugepaged: KhugepagedCounts,
    /// Bytes of frames that hold the shared zero page.
    pub zero_bytes: u64,
    /// Runs of memory compaction.
    pub compaction: CompactionCounts,
    /// Page blocks by type, and base frames taken from them.
    pub page_blocks: PageBlockCounts,
    /// How `ingens` and `hawkeye` chose blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<ChosenBlocks>,
    /// The daemon of `translation-ranger`, which moves pages into adjacent frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranger: Option<RangerCounts>,
    /// Counters by page size, under the kernel's names, if `os.linux.version` names a kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<BTreeMap<String, BTreeMap<String, u64>>>,
    /// Groups of processes with limits, if the machine has any. The first group has all processes that
    /// are in no other group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupCounts>>,
    /// Pools of reserved large pages, if the machine has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugetlb: Option<Vec<PoolCounts>>,
}

/// A group of processes at the end of the run. If the kernel has a counter for a field, the field
/// has the kernel's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupCounts {
    /// Name of the group.
    pub name: String,
    /// Bytes in memory that are charged to the group (`memory.current`).
    pub current: u64,
    /// Largest number of bytes in memory that were charged to the group (`memory.peak`).
    pub peak: u64,
    /// Bytes in swap (`memory.swap.current`).
    pub swap_current: u64,
    /// Times that the group exceeded `memory_high`.
    pub high: u64,
    /// Times that the group would have exceeded `memory_max` without an eviction.
    pub max: u64,
    /// Times that no page of the group could be evicted to stay within `memory_max`. The kernel
    /// ends a process of the group; here the page is still loaded, since the trace continues to use
    /// it.
    pub oom: u64,
    /// Base pages evicted because of the group's limits.
    pub pgsteal: u64,
    /// Base pages read from swap.
    pub pswpin: u64,
    /// Base pages written to swap.
    pub pswpout: u64,
}

/// A pool of reserved large pages at the end of the run. If the kernel has a counter for a field,
/// the field has the kernel's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PoolCounts {
    /// Page size.
    pub size: String,
    /// Pages requested for the pool at the beginning of the run.
    pub asked: u64,
    /// Pages of the pool, in use or free.
    pub nr_hugepages: u64,
    /// Free pages of the pool.
    pub free_hugepages: u64,
    /// Free pages of the pool that are reserved for mappings.
    pub resv_hugepages: u64,
    /// Pages that came from free memory when the pool was empty, and return to free memory when
    /// they are freed.
    pub surplus_hugepages: u64,
    /// Mappings for which the pool reserved all pages.
    pub mapped: u64,
    /// Mappings for which the pool had too few pages. In the kernel the call fails with `ENOMEM`;
    /// here such mappings have ordinary pages, since the trace continues to use them.
    pub refused: u64,
    /// Pages of the pool that faults mapped.
    pub taken: u64,
    /// Faults for which the pool had no page. The kernel ends the process with `SIGBUS`; here a
    /// base page is mapped, since the trace continues to use it.
    pub bus_errors: u64,
}

/// Runs of memory compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompactionCounts {
    /// Number of runs by result, under the kernel's names for the results.
    pub results: BTreeMap<String, u64>,
    /// Runs by the daemon after it was woken; included in `results`.
    pub woken: u64,
    /// Runs that the daemon started without being woken; included in `results`.
    pub proactive: u64,
    /// Page blocks scanned for pages to move.
    pub blocks: u64,
    /// Base pages moved.
    pub moved: u64,
}

/// Page blocks, which separate movable from unmovable frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageBlockCounts {
    /// Page blocks at the end, by the type of their frames.
    pub by_type: BTreeMap<String, u64>,
    /// Page blocks that changed their type.
    pub claimed: u64,
    /// Base frames that were allocated from page blocks of another type, while the blocks kept
    /// their type.
    pub stolen: u64,
}

/// Work of the daemons of `ingens` and `hawkeye`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChosenBlocks {
    /// Blocks that reached `util_threshold` (`ingens`).
    pub filled: u64,
    /// Times that accessed bits were read (`hawkeye`, and `ingens` with `deferred_mode` 2).
    pub samples: u64,
    /// Base pages whose accessed bits were read (`ingens`).
    pub sampled: u64,
    /// Base pages that were hot at the last sample (`ingens`). A hot page was used in six of eight
    /// scans.
    pub hot: u64,
    /// Blocks at the last sample, by log2 of the number of base pages used in the block.
    pub bins: Vec<u64>,
    /// Free blocks zeroed in advance.
    pub prezeroed: u64,
    /// Base pages that held only zeros and were freed.
    pub recovered: u64,
}

/// Work of the daemon that moves pages into adjacent frames (`os.ranger`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RangerCounts {
    /// Number of passes.
    pub passes: u64,
    /// Base pages moved to free frames.
    pub moved: u64,
    /// Base pages that exchanged their frames with other pages.
    pub exchanged: u64,
    /// Anchors that were set. An anchor is the offset between virtual and physical addresses that
    /// the daemon aims at for a part of a region.
    pub anchors: u64,
    /// Blocks that became large pages in place.
    pub promoted: u64,
}

/// Work of `khugepaged`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KhugepagedCounts {
    /// Number of passes.
    pub passes: u64,
    /// Blocks of 2M scanned, by the result of the scan, under the kernel's names for the results.
    pub results: BTreeMap<String, u64>,
}
