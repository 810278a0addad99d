//! Physical memory at the end of a run, and memory nodes.

use std::collections::BTreeMap;

use serde::Serialize;

/// Memory nodes: references by node, and pages that moved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NumaCounts {
    /// The nodes by number.
    pub nodes: Vec<NodeCounts>,
    /// Lookups that missed every TLB, for pages on the processor's own node.
    pub local_misses: u64,
    /// Lookups that missed every TLB, for pages on another node.
    pub remote_misses: u64,
    /// Migration of pages to the node that refers to them most; `None` if references are not
    /// counted.
    pub migration: Option<MigrationCounts>,
}

/// Memory of one node, and accesses of its processors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeCounts {
    /// Numbers of the node's processors.
    pub processors: Vec<u32>,
    /// Distance to each node, in tenths of the latency of local memory.
    pub distances: Vec<u32>,
    /// Bytes of all frames of the node.
    pub total_bytes: u64,
    /// Bytes of frames in use or reserved at the end; `None` if the frames are those of the trace.
    pub used_bytes: Option<u64>,
    /// Lookups by the node's processors that missed every TLB, by the node of the page.
    pub misses: Vec<u64>,
    /// Program accesses by the node's processors that memory served, by the node of that memory.
    pub accesses: Vec<u64>,
    /// Walk references of the node's processors that memory served, by the node of that memory.
    pub walk_references: Vec<u64>,
}

/// Migration of pages to the node that refers to them most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MigrationCounts {
    /// Lookups that missed every TLB, for pages that can migrate; each counts as a reference to its
    /// page.
    pub references: u64,
    /// Cycles for counting references; they are part of the kernel's time.
    pub counting_cycles: u64,
    /// Pages that moved, of any size.
    pub pages: u64,
    /// Base pages contained in the pages that moved.
    pub base_pages: u64,
    /// Pages that should have moved but could not, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// Physical memory at the end of the run; `frames_peak_bytes` is the maximum during the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryCounts {
    /// Bytes of all frames.
    pub frames_total_bytes: u64,
    /// Bytes of frames in use.
    pub frames_used_bytes: u64,
    /// Maximum of the bytes of frames in use.
    pub frames_peak_bytes: u64,
    /// Bytes of frames that are mapped.
    pub mapped_bytes: u64,
    /// Bytes of frames that were in use before the run began (`memory.aged`).
    pub aged_bytes: u64,
    /// Bytes of frames lent to devices; if devices have separate blocks (`os.devices.apart`), bytes
    /// of these blocks.
    pub device_bytes: u64,
    /// Bytes of frames that hold page tables.
    pub table_bytes: u64,
    /// Bytes of page-table nodes, buckets and arrays in use, within `table_bytes`.
    pub table_used_bytes: u64,
    /// Mapped pages by size.
    pub pages_by_size: BTreeMap<String, u64>,
    /// Free blocks by size, as the allocator lists them. Memory is the more fragmented, the more of
    /// the free memory is in small blocks.
    pub free_by_size: BTreeMap<String, u64>,
}
