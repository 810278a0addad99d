//! What the managers made of Linux count beside that.

use std::collections::BTreeMap;

use serde::Serialize;

/// Transparent huge pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinuxCounts {
    /// Bytes of frames that nobody maps any more and that are not free, as the large page is not split
    /// that they were part of, at the end. `bytes.anonymous` has them.
    pub held_bytes: u64,
    /// Such pages that were split.
    pub folios_split: u64,
    /// The daemon that makes large pages of what is there.
    pub khugepaged: KhugepagedCounts,
    /// Bytes of frames that hold the page of zeros.
    pub zero_bytes: u64,
    /// Compaction.
    pub compaction: CompactionCounts,
    /// Page blocks.
    pub page_blocks: PageBlockCounts,
    /// How blocks were chosen, with `ingens` and `hawkeye`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<ChosenBlocks>,
    /// The daemon that moves pages side by side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranger: Option<RangerCounts>,
}

/// What compaction has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompactionCounts {
    /// Runs by what they came to, under the kernel's names.
    pub results: BTreeMap<String, u64>,
    /// Of these, runs by the daemon when it was woken ...
    pub woken: u64,
    /// ... and of its own accord.
    pub proactive: u64,
    /// Page blocks that were looked at for pages to move.
    pub blocks: u64,
    /// Base pages moved.
    pub moved: u64,
}

/// What has become of page blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PageBlockCounts {
    /// Page blocks at the end, by what their frames are for.
    pub by_type: BTreeMap<String, u64>,
    /// Page blocks that went over to another type.
    pub claimed: u64,
    /// Base frames that were taken out of page blocks of another type, which stayed what they were.
    pub stolen: u64,
}

/// What the daemons of Ingens and HawkEye have done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChosenBlocks {
    /// Blocks that filled (`ingens`).
    pub filled: u64,
    /// Times that bits of use were read (`hawkeye`, and `ingens` with `deferred_mode` 2).
    pub samples: u64,
    /// Base pages whose bits were read (`ingens`).
    pub sampled: u64,
    /// Base pages that were hot before the last of these times: used at six of eight (`ingens`).
    pub hot: u64,
    /// Blocks by log2 of how many of their base pages were used, at the last of them.
    pub bins: Vec<u64>,
    /// Free blocks that were filled with zeros ahead.
    pub prezeroed: u64,
    /// Base pages of zeros that were given back.
    pub recovered: u64,
}

/// What the daemon has done that moves pages side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RangerCounts {
    /// Times that it ran.
    pub passes: u64,
    /// Base pages that were moved to free frames ...
    pub moved: u64,
    /// ... and that changed places with others.
    pub exchanged: u64,
    /// Anchors that were set.
    pub anchors: u64,
    /// Blocks that became large pages where they were.
    pub promoted: u64,
}

/// What `khugepaged` has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KhugepagedCounts {
    /// Times that it ran.
    pub passes: u64,
    /// Blocks of 2M that it looked at, by what it found, under the kernel's names.
    pub results: BTreeMap<String, u64>,
}
