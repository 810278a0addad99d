//! What a refill handler in software executes on its way through a page table of one format.
//!
//! The way is that of the walk over real bytes, and what each kind of reference costs is a number here; what the
//! handler executes around it is the walker's to know (`hardware/walker/handler.rs`).

/// Two more registers than a handler has for itself are saved and restored.
pub const SAVE: u64 = 4;
/// Instructions of a handler on its way through a page table of one format.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Once for each search of the table.
    pub search: u64,
    /// A reference that leads on to another table.
    pub node: u64,
    /// A reference of eight bytes or more that does not: a page's entry, or a tag or a pointer
    /// passed in a chain.
    pub entry: u64,
    /// A page's entry of four bytes, or the flags of one.
    pub narrow: u64,
}
