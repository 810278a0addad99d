//! Switches between address spaces, small spaces, and the trace cache.

use serde::Serialize;

/// Switches of address space, summed over all processors. The first space that a processor enters
/// does not count as a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpaceSwitches {
    /// Switches.
    pub switches: u64,
    /// Loads of the page-table base register (CR3): at switches, and when small spaces became
    /// large.
    pub root_loads: u64,
    /// Switches that flushed all TLB entries except global ones, or all entries of a reassigned
    /// context.
    pub emptying: u64,
    /// Switches that loaded the segment registers.
    pub segment_loads: u64,
    /// Cycles of the switches, if the machine has prices for them.
    pub cycles: Option<u64>,
}

/// Operations on small address spaces (U02 sections 2.2 and 5).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SmallSpaceCounts {
    /// Number of slots.
    pub slots: u64,
    /// Bytes per slot.
    pub slot_bytes: u64,
    /// Spaces that ran.
    pub spaces: u64,
    /// Spaces that had a slot at some time.
    pub small: u64,
    /// Switches of address space.
    pub switches: u64,
    /// Loads of the page-table base register: at switches, and when small spaces became large.
    pub root_loads: u64,
    /// Switches that loaded segment registers.
    pub segment_loads: u64,
    /// Root entries copied from a small space's own root, one per fault.
    pub copies: u64,
    /// Spaces that became large because they accessed an address beyond their slot.
    pub promoted: u64,
    /// Slots taken from one space and given to another.
    pub revoked: u64,
    /// Switches to spaces that should have been small but had no slot.
    pub no_slot: u64,
    /// Roots searched for copied entries.
    pub roots_purged: u64,
    /// Copied entries removed.
    pub entries_purged: u64,
    /// Slots whose version was compared when a root was loaded.
    pub versions_compared: u64,
    /// Cycles per switch, including all work that had to be done before the switch, if the machine
    /// has prices for this work.
    pub switch_cycles: Option<SwitchCycles>,
}

/// Cycles per switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SwitchCycles {
    /// Mean over all switches.
    pub mean: f64,
    /// Cycles of the most expensive switch.
    pub worst: u64,
}

/// The trace cache and its counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceCacheCounts {
    /// Capacity in micro-ops.
    pub uops: u64,
    /// Ways.
    pub ways: u64,
    /// Fetches that looked up the trace cache. The fetches that missed the trace cache and looked
    /// up a TLB are counted in `accesses.fetch`.
    pub fetches: u64,
    /// Fetches that the trace cache served entirely, without a lookup of TLBs or caches.
    pub delivered: u64,
    /// Lines of the trace cache that hit.
    pub lines_delivered: u64,
    /// Lines built after a miss.
    pub lines_built: u64,
    /// Times that the trace cache was emptied.
    pub emptied: u64,
    /// Lines removed when the trace cache was emptied.
    pub lines_emptied: u64,
    /// Cycles for building lines, besides the fetches of their bytes.
    pub build_cycles: u64,
}
