use crate::os::Ram;
use addr::{Kind, Memory, PageSize, Rights, VirtAddr, VirtRange};
use pagetable::{
    Error, Fault, Flush, Footprint, Mapping, Node, PageTable, Reference, Space, Translation, Tree,
    TreeShape,
};

use super::{Table, only_root};

/// A table of `pagetable` in a memory.
pub(super) struct Hosted<T, M> {
    table: T,
    memory: M,
    tree: Option<TreeCalls<T, M>>,
}

impl<T: PageTable, M: Memory> Hosted<T, M> {
    /// `table`, whose walks start at the root.
    pub(super) fn new(table: T, memory: M) -> Hosted<T, M> {
        Hosted { table, memory, tree: None }
    }
}

impl<T: Tree, M: Memory> Hosted<T, M> {
    /// `table`, whose walks can start below the root.
    pub(super) fn tree(table: T, memory: M) -> Hosted<T, M> {
        Hosted { table, memory, tree: Some(TreeCalls::new()) }
    }
}

type WalkFrom<T, M> =
    fn(&T, Node, VirtAddr, Kind, &mut M, &mut Vec<Reference>) -> Result<Translation, Fault>;

/// What a table can do besides if it is a tree.
struct TreeCalls<T, M> {
    shape: fn(&T) -> TreeShape,
    root: fn(&T, Space) -> Node,
    walk_from: WalkFrom<T, M>,
}

impl<T: Tree, M: Memory> TreeCalls<T, M> {
    fn new() -> TreeCalls<T, M> {
        TreeCalls {
            shape: |table| table.shape(),
            root: |table, space| table.root(space),
            walk_from: |table, start, addr, kind, memory, references| {
                table.walk_from(start, addr, kind, memory, &mut |read| references.push(read))
            },
        }
    }
}

impl<T: PageTable + Send, M: Memory + Send> Table for Hosted<T, M> {
    fn page_sizes(&self) -> Option<&[PageSize]> {
        Some(self.table.page_sizes())
    }

    fn create(&mut self, frames: &mut Ram) -> Result<Space, Error> {
        self.table.create(&mut self.memory, frames)
    }

    fn destroy(&mut self, space: Space) -> Result<Flush, Error> {
        self.table.destroy(space, &mut self.memory)
    }

    fn map(&mut self, space: Space, page: Translation, frames: &mut Ram) -> Result<Flush, Error> {
        self.table.map(space, page, 1, &mut self.memory, frames)
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        mut each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.table.unmap(space, range, &mut self.memory, &mut each)
    }

    fn protect(&mut self, space: Space, range: VirtRange, rights: Rights) -> Result<Flush, Error> {
        self.table.protect(space, range, rights, &mut self.memory, &mut |_| {})
    }

    fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        self.table.walk(space, addr, kind, &mut self.memory, &mut |reference| {
            references.push(reference);
        })
    }

    fn tree_shape(&self) -> Option<TreeShape> {
        self.tree.as_ref().map(|tree| (tree.shape)(&self.table))
    }

    fn root(&self, space: Space) -> Node {
        match &self.tree {
            Some(tree) => (tree.root)(&self.table, space),
            None => only_root(space),
        }
    }

    fn walk_from(
        &mut self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        match &self.tree {
            Some(tree) => {
                (tree.walk_from)(&self.table, start, addr, kind, &mut self.memory, references)
            }
            None => Err(Fault::NotMapped { level: start.level }),
        }
    }

    fn query(&self, space: Space, addr: VirtAddr) -> Option<Translation> {
        self.table.query(space, addr, &self.memory).map(|mapping| mapping.translation)
    }

    fn footprint(&self) -> Footprint {
        self.table.footprint()
    }
}
