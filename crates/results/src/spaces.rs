//! What switches between address spaces do, small spaces, and the trace cache.

use serde::Serialize;

/// Changes of the space that runs, on all processors. What each ran first is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpaceSwitches {
    /// Switches.
    pub switches: u64,
    /// Loads of the base register, of CR3: at switches, and for small spaces that became large.
    pub root_loads: u64,
    /// Switches after which TLBs held nothing of before but global entries, or nothing of a context that
    /// was taken over.
    pub emptying: u64,
    /// Loads of the segment registers.
    pub segment_loads: u64,
    /// Cycles of all that, where the machine has prices.
    pub cycles: Option<u64>,
}

/// Small address spaces: what was done for them (U02 sections 2.2 and 5).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SmallSpaceCounts {
    /// Slots.
    pub slots: u64,
    /// Bytes of each.
    pub slot_bytes: u64,
    /// Spaces that ran.
    pub spaces: u64,
    /// Those that had a slot at some time.
    pub small: u64,
    /// Switches.
    pub switches: u64,
    /// Loads of the base register: at switches, and for spaces that became large.
    pub root_loads: u64,
    /// Switches that loaded segment registers.
    pub segment_loads: u64,
    /// Entries of roots that were copied, at a fault each.
    pub copies: u64,
    /// Spaces that reached beyond their slot and became large.
    pub promoted: u64,
    /// Slots that were taken from a space for another.
    pub revoked: u64,
    /// Switches to spaces that would be small and got no slot.
    pub no_slot: u64,
    /// Roots that were looked through for copies.
    pub roots_purged: u64,
    /// Copies that were emptied.
    pub entries_purged: u64,
    /// Slots whose version was compared when a root was loaded.
    pub versions_compared: u64,
    /// Cycles of a switch with all that it had to do first, where the machine has prices.
    pub switch_cycles: Option<SwitchCycles>,
}

/// Cycles of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SwitchCycles {
    /// Of all of them.
    pub mean: f64,
    /// Of the dearest.
    pub worst: u64,
}

/// What the trace cache is and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TraceCacheCounts {
    /// Micro-ops that it has room for.
    pub uops: u64,
    /// Ways.
    pub ways: u64,
    /// Fetches; those that went on to a TLB are `accesses.fetch`.
    pub fetches: u64,
    /// Those that it delivered whole, so that neither TLB nor caches were asked.
    pub delivered: u64,
    /// Lines that were there.
    pub lines_delivered: u64,
    /// Lines that were built.
    pub lines_built: u64,
    /// How often it was emptied.
    pub emptied: u64,
    /// Lines that went with that.
    pub lines_emptied: u64,
    /// Cycles of building lines, beyond what fetching their bytes takes.
    pub build_cycles: u64,
}
