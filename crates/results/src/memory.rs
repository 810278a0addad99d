//! Memory as it is at the end, and its nodes.

use std::collections::BTreeMap;

use serde::Serialize;

/// Nodes of memory: who referred to which, and pages that moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NumaCounts {
    /// The nodes by number.
    pub nodes: Vec<NodeCounts>,
    /// Misses of every level whose page was on the node of the processor ...
    pub local_misses: u64,
    /// ... or on another.
    pub remote_misses: u64,
    /// Pages that moved to the node that referred to them; none if no reference was counted for that.
    pub migration: Option<MigrationCounts>,
}

/// What one node of memory has, and what its processors did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeCounts {
    /// Its processors by number.
    pub processors: Vec<u32>,
    /// How far each node is from it, in tenths of the latency of its own memory.
    pub distances: Vec<u32>,
    /// All of its frames, in bytes.
    pub total_bytes: u64,
    /// Frames in use or held back at the end, in bytes; `None` where frames are a trace's choice.
    pub used_bytes: Option<u64>,
    /// Misses of every level of its processors, by the node of the page.
    pub misses: Vec<u64>,
    /// Accesses of the program on its processors that memory served, by node.
    pub accesses: Vec<u64>,
    /// References of their walks that memory served, likewise.
    pub walk_references: Vec<u64>,
}

/// Pages that moved to the node that referred to them most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MigrationCounts {
    /// References that were counted: misses of every level of pages that may move.
    pub references: u64,
    /// Cycles that counting them took. They are part of the kernel's time.
    pub counting_cycles: u64,
    /// Pages that moved, of any size ...
    pub pages: u64,
    /// ... and the base pages in them.
    pub base_pages: u64,
    /// Pages that were due and stayed, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// Physical memory at the end of the run, but for its peak.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryCounts {
    /// All frames, in bytes.
    pub frames_total_bytes: u64,
    /// Frames in use, in bytes.
    pub frames_used_bytes: u64,
    /// Frames in use, in bytes, when most were in use.
    pub frames_peak_bytes: u64,
    /// Frames behind pages, in bytes.
    pub mapped_bytes: u64,
    /// Frames that were in use before the run began, in bytes.
    pub aged_bytes: u64,
    /// Frames that devices have, in bytes; where they have blocks of their own, all of those.
    pub device_bytes: u64,
    /// Frames that hold page tables, in bytes.
    pub table_bytes: u64,
    /// Of these, bytes of nodes, buckets and arrays in use.
    pub table_used_bytes: u64,
    /// Mapped pages by size.
    pub pages_by_size: BTreeMap<String, u64>,
    /// Free blocks by size, as the allocator lists them: the more of the free memory lies in small
    /// ones, the more fragmented it is.
    pub free_by_size: BTreeMap<String, u64>,
}
