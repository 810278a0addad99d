//! What the kernel's work costs.

use serde::{Deserialize, Serialize};
use vm::Work;

use super::is_zero;

/// Cycles of what the operating system does. All of them are known, or none.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Of a processor that asks others to flush: until the interrupts are on their way.
    pub shootdown_send_cycles: u32,
    /// Of each processor that is asked: into its handler and back, and the answer.
    pub shootdown_receive_cycles: u32,
    /// Of flushing one page ...
    pub flush_page_cycles: u32,
    /// ... and of flushing all of a space, which is done instead where it takes less.
    pub flush_space_cycles: u32,
    /// On the operating system's clock: a walk, whatever the caches hold ...
    pub walk_cycles: u32,
    /// ... the answer to a fault ...
    pub fault_cycles: u32,
    /// ... and going over to another address space.
    pub switch_cycles: u32,
    /// With small spaces: loading segment registers, or those of PID and domains ...
    #[serde(default, skip_serializing_if = "is_zero")]
    pub segment_cycles: u32,
    /// ... copying an entry of a root at a fault, into the kernel and back ...
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copy_cycles: u32,
    /// ... reading a line of a root that is looked through for copies ...
    #[serde(default, skip_serializing_if = "is_zero")]
    pub root_line_cycles: u32,
    /// ... and comparing or emptying an entry there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub root_entry_cycles: u32,
    /// With virtual caches: looking whether a line of `l1d` is to go ...
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_line_cycles: u32,
    /// ... and writing one to memory that has been stored to.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_cycles: u32,
    /// Cycles of each kind of work, for managers that count their work; absent: `fault_cycles` stands
    /// for all that is done at a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkCosts>,
    /// Where the numbers come from.
    pub source: String,
}

macro_rules! work_costs {
    ($($(#[$doc:meta])* $kind:ident)*) => {
        /// Cycles of each kind of work that a memory manager counts, under the names that it has in
        /// the results. Shootdowns are priced by processor ([`Costs`]), reads and writes of pages by
        /// `swap.io_cycles`.
        #[derive(Clone, Debug, Deserialize, Serialize)]
        #[serde(deny_unknown_fields)]
        pub struct WorkCosts {
            $($(#[$doc])* pub $kind: u32,)*
            /// Where the numbers come from.
            pub source: String,
        }

        impl WorkCosts {
            /// Cycles of `work` by kind, those that have a price here.
            pub fn each(&self, work: &Work) -> impl Iterator<Item = (&'static str, u64)> {
                // A new kind of work needs a price, or a reason to have none.
                let Work {
                    $($kind,)*
                    shootdowns: _,
                    reads: _,
                    writes: _,
                    // They consist of copies, entries and nodes, which have prices; a chunk that is
                    // looked at is a few words of a bitmap.
                    migrations: _,
                    downgrades: _,
                    upgrades: _,
                    joins: _,
                    chunks_scanned: _,
                    waits: _,
                    large_out: _,
                    // A processor does it that is idle.
                    zeroed_ahead: _,
                    // They are what is saved, or consist of entries, which have prices.
                    prezeroed: _,
                    around: _,
                    // A few words per free block, and per frame that a page may have.
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
    /// Into the kernel at a fault and back, and what no other line has.
    traps
    /// A call and its return.
    calls
    /// A search for the region of an address.
    region_lookups
    /// A search for a page of an object.
    object_lookups
    /// Taking a base frame ...
    frames_taken
    /// ... and giving it back.
    frames_given
    /// Looking at a page-frame descriptor for replacement.
    descriptors
    /// Reading an entry of a page table ...
    table_reads
    /// ... and writing one.
    table_writes
    /// Entering, removing or looking at a node of a mapping list.
    mappings
    /// Filling a base frame with zeros.
    zeroed
    /// Copying a base frame.
    copied
}

impl Costs {
    /// Cycles that one processor takes to flush so many pages.
    pub fn flush_cycles(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.flush_page_cycles.into()).min(self.flush_space_cycles.into())
    }
}
