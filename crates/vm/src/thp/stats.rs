//! Counts of large blocks by size, under the names that the kernel has for them.

use alloc::collections::BTreeMap;

macro_rules! stats {
    ($($(#[$doc:meta])* $field:ident)*) => {
        /// Counts of one size, as in `hugepages-*kB/stats`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct SizeStats { $($(#[$doc])* pub $field: u64),* }

        impl SizeStats {
            /// Each count with the kernel's name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}

stats! {
    /// Faults that got a block of anonymous memory.
    anon_fault_alloc
    /// Faults that tried the size and found no block.
    anon_fault_fallback
    /// Faults that got a block of shared memory.
    shmem_alloc
    /// Faults in shared memory that tried the size and found no block.
    shmem_fallback
    /// Blocks written to swap as a whole.
    swpout
    /// Blocks that were split to be written to swap.
    swpout_fallback
    /// Blocks split.
    split
    /// Blocks that are to be split because a part of them was unmapped.
    split_deferred
    /// Blocks made by `khugepaged` or `MADV_COLLAPSE`.
    collapse_alloc
    /// The number of times that `khugepaged` or `MADV_COLLAPSE` found no block.
    collapse_alloc_failed
    /// Blocks split because too many of their base pages hold zeros.
    underused_split
    /// The current number of blocks of anonymous memory.
    nr_anon
    /// Partly unmapped blocks of anonymous memory.
    nr_anon_partially_mapped
}

/// The counts, by log2 of the number of base frames.
pub(crate) type Stats = BTreeMap<u32, SizeStats>;
