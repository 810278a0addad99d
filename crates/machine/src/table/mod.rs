//! The page tables that a machine can have, behind one face.
//!
//! `pagetable`'s contract is generic over memory and callbacks, as a kernel wants it. A machine
//! chooses its table when it is built, so here each table sits with the memory it lives in
//! behind a trait object; only misses, faults and events come this way.

mod build;
mod flat;
mod hosted;

use crate::os::Ram;
use addr::{Kind, PageSize, Rights, VirtAddr, VirtRange};
use pagetable::{
    Error, Fault, Flush, Footprint, Mapping, Node, Reference, Space, Translation, TreeShape,
};

pub(crate) use build::new;

/// A page table and the memory it lives in.
pub(crate) trait Table: Send {
    /// The page sizes it holds; `None` if any.
    fn page_sizes(&self) -> Option<&[PageSize]>;
    /// A new, empty space.
    fn create(&mut self, frames: &mut Ram) -> Result<Space, Error>;
    /// Ends a space.
    fn destroy(&mut self, space: Space) -> Result<Flush, Error>;
    /// Maps one page; the token may name tables that moved.
    fn map(&mut self, space: Space, page: Translation, frames: &mut Ram) -> Result<Flush, Error>;
    /// Removes the pages in `range`; `each` gets them.
    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error>;
    /// Gives the pages in `range` these rights.
    fn protect(&mut self, space: Space, range: VirtRange, rights: Rights) -> Result<Flush, Error>;
    /// Walks for `addr` and appends the references to `references`.
    fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault>;
    /// What the format looks like if walks descend from a root.
    fn tree_shape(&self) -> Option<TreeShape>;
    /// Where a walk in `space` starts if nothing is remembered.
    fn root(&self, space: Space) -> Node;
    /// The walk of a tree from a node that an earlier walk has passed; nothing leads on in
    /// other tables, so that theirs always start at the root.
    fn walk_from(
        &mut self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault>;
    /// The page that holds `addr`, read without a walk.
    fn query(&self, space: Space, addr: VirtAddr) -> Option<Translation>;
    /// What the table takes, all spaces together.
    fn footprint(&self) -> Footprint;
}

/// The start of every walk in a table that is no tree.
fn only_root(space: Space) -> Node {
    Node { table: space.root(), level: 1, shift: 64, rights: Rights::ALL }
}
