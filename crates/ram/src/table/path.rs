//! The instructions of a software refill handler, by its path through a page table of one format.
//!
//! The path is that of the walk over the simulated page table; the numbers in this file are the
//! cost of each kind of reference. All other instructions of the handler are counted by the walker
//! (`hardware/walker/handler.rs`).

/// Saving and restoring two registers in addition to those that the handler may use freely.
pub const SAVE: u64 = 4;
/// The instructions of a handler on its path through a page table of one format.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Instructions per search of the table.
    pub search: u64,
    /// Instructions per reference that leads to another table.
    pub node: u64,
    /// Instructions per other reference of eight bytes or more: a page's entry, or a tag or pointer
    /// in a chain.
    pub entry: u64,
    /// Instructions per page entry of four bytes, or per byte of flags.
    pub narrow: u64,
}
