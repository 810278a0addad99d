//! The instructions of a software refill handler, by its path through a page table of one format.
//!
//! ```text
//!   search --> node --> node --> entry --> narrow            a tree
//!   search --> entry --> entry --> narrow --> change         a chain, whose entry then comes first
//!                      `-- chained                `-- moved
//! ```
//!
//! The path is that of the walk over the simulated page table; the numbers in this file are the
//! cost of each kind of reference. All other instructions of the handler are counted by the walker
//! (`hardware/walker/handler.rs`). The MIPS handlers in `refill/` of the repository, run on a
//! processor, have as many instructions on each path; a test compares them.

/// Saving and restoring two registers in addition to those that the handler may use freely.
pub const SAVE: u64 = 4;

/// The instructions of a handler on its path through a page table of one format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Instructions per search of the table.
    pub search: u64,
    /// Instructions per reference that leads to another table.
    pub node: u64,
    /// Instructions per other load of eight bytes or more: a page's entry, or a tag or pointer in a
    /// chain.
    pub entry: u64,
    /// Instructions per load of a page's entry of four bytes, or of a byte of flags.
    pub narrow: u64,
    /// Instructions per search that loads two or more entries of eight bytes or more, in addition.
    pub chained: u64,
    /// Instructions per store of eight bytes or more.
    pub change: u64,
    /// Instructions per search with such a store, in addition.
    pub moved: u64,
}

impl Path {
    /// A path whose steps cost no instructions, except a store: it takes [`CHANGE`] instructions.
    pub const NONE: Path =
        Path { search: 0, node: 0, entry: 0, narrow: 0, chained: 0, change: CHANGE, moved: 0 };
}

/// Instructions of a store that changes a word that was just loaded: the new value (1), store (1).
pub const CHANGE: u64 = 2;
