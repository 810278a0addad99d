//! The costs of the kernel's work.

use serde::{Deserialize, Serialize};
use vm::Work;

use super::is_zero;

/// Cycles of operations of the operating system. In a machine file with this table, `source` and
/// the keys from `shootdown_send_cycles` to `switch_cycles` must be present. The other numbers of
/// cycles are 0 if they are absent.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Cycles of a processor that requests a shootdown, until the interrupts are sent.
    pub shootdown_send_cycles: u32,
    /// Cycles of each processor that is interrupted for a shootdown: entering and leaving the
    /// handler, and answering.
    pub shootdown_receive_cycles: u32,
    /// Cycles of flushing one page from the TLBs.
    pub flush_page_cycles: u32,
    /// Cycles of flushing a whole space from the TLBs. If this is cheaper than flushing the pages
    /// one by one, the space is flushed.
    pub flush_space_cycles: u32,
    /// Cycles that the operating system's clock counts for a page-table walk; they do not depend on
    /// the contents of caches.
    pub walk_cycles: u32,
    /// Cycles that the operating system's clock counts for handling a fault.
    pub fault_cycles: u32,
    /// Cycles that the operating system's clock counts for a switch to another address space.
    pub switch_cycles: u32,
    /// Cycles of an instruction that flushes on all processors (`os.flush.by`), until the request
    /// is sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub broadcast_cycles: u32,
    /// Cycles that a processor waits until all processors have done the flushes that it broadcast
    /// (TLBSYNC, DSB).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub broadcast_wait_cycles: u32,
    /// With small spaces: cycles of loading segment registers, or the PID and domain registers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub segment_cycles: u32,
    /// With small spaces: cycles of copying an entry of a root at a fault, including entering and
    /// leaving the kernel.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copy_cycles: u32,
    /// With small spaces: cycles of reading one cache line of a top-level table, when it is searched for entries that were copied from a space that loses its slot.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub root_line_cycles: u32,
    /// With small spaces: cycles of comparing or emptying one entry of a top-level table, when it is searched for entries that were copied from a space that loses its slot.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub root_entry_cycles: u32,
    /// With virtual caches: cycles of checking whether a line of `l1d` must be flushed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_line_cycles: u32,
    /// With virtual caches: cycles of writing a dirty line of `l1d` to memory.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_cycles: u32,
    /// Cycles of each kind of work, for managers that count their work; absent: `fault_cycles` covers
    /// all work of a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkCosts>,
    /// Where the numbers of this table come from.
    pub source: String,
}

macro_rules! work_costs {
    ($($(#[$doc:meta])* $kind:ident)*) => {
        /// Cycles of each kind of work that a memory manager counts, by the names in the results.
        /// The prices of shootdowns are in `[os.costs]`, and the price of reading and writing pages
        /// is `swap.io_cycles`.
        #[derive(Clone, Debug, Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        pub struct WorkCosts {
            $($(#[$doc])* pub $kind: u32,)*
            /// Where the numbers of this table come from.
            pub source: String,
        }

        impl WorkCosts {
            /// Cycles of `work` by kind, for the kinds that have a price here.
            pub fn each(&self, work: &Work) -> impl Iterator<Item = (&'static str, u64)> {
                // A new kind of work needs a price, or a reason to have none.
                let Work {
                    $($kind,)*
                    shootdowns: _,
                    reads: _,
                    writes: _,
                    // Migrations, downgrades, upgrades and joins consist of copies, entries and
                    // nodes, which have prices. Scanning a chunk reads only a few words of a
                    // bitmap.
                    migrations: _,
                    downgrades: _,
                    upgrades: _,
                    joins: _,
                    chunks_scanned: _,
                    waits: _,
                    large_out: _,
                    // An idle processor does this work.
                    zeroed_ahead: _,
                    // Frames that are already zero save work; mapping the pages around a fault
                    // consists of writing entries, which has a price.
                    prezeroed: _,
                    around: _,
                    // These kinds of work read a few words for each free block, or for each frame
                    // that a page may have.
                    places: _,
                    hashed: _,
                    hashed_back: _,
                    unhashed: _,
                } = work;
                [$((stringify!($kind), $kind * u64::from(self.$kind))),*].into_iter()
            }
        }
    };
}

work_costs! {
    /// Entering and leaving the kernel at a fault, and all that no other kind covers.
    traps
    /// A system call and its return.
    calls
    /// A search for the region of an address.
    region_lookups
    /// A search for a page of an object.
    object_lookups
    /// Allocating a base frame.
    frames_taken
    /// Freeing a base frame.
    frames_given
    /// Examining a page-frame descriptor for replacement.
    descriptors
    /// Reading a page-table entry.
    table_reads
    /// Writing a page-table entry.
    table_writes
    /// Adding, removing or examining a node of a mapping list.
    mappings
    /// Filling a base frame with zeros.
    zeroed
    /// Copying a base frame.
    copied
}

impl Costs {
    /// The cycles that one processor needs to flush `pages` pages.
    pub fn flush_cycles(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.flush_page_cycles.into()).min(self.flush_space_cycles.into())
    }

    /// Cycles of the parts of a switch between small spaces: loading a root, loading the segment registers, reading
    /// a line of a root, and emptying or comparing an entry.
    pub fn of_switch(&self) -> [u64; 4] {
        [self.switch_cycles, self.segment_cycles, self.root_line_cycles, self.root_entry_cycles]
            .map(u64::from)
    }
}
