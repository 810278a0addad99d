//! A page table in its memory: what is chosen when the program runs.
//!
//! ```text
//!   Mounted      dyn: map, unmap, walk, ...        hat, a machine, a bench
//!      |
//!   Mount<T, M>  table T  +  memory M              frames come with each call
//!      |            |
//!   PageTable, Tree: generic over memory           a kernel's own choice, inlined
//! ```
//!
//! [`PageTable`] is generic over memory, frames and callbacks, so that a kernel that knows its
//! table has no indirect call in a walk. Who chooses the table when the program runs (a simulated
//! machine), or is written once for all of them (the HAT layer), mounts it in its memory and calls
//! it through this trait. The contract is the same, word for word; only references are appended
//! to a list, so that a walk makes one indirect call and not one for each of them.

use alloc::vec::Vec;

use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{
    Error, Fault, Flush, Footprint, Frames, Intent, Lent, Loan, Mapping, Memory, Node, PageTable,
    Reference, Space, SubtreeEdit, SubtreeTable, Subtrees, Translation, Tree, TreeShape, Unfit,
    Usage,
    subtree::{SubtreeCalls, missing},
};

/// A page table with all of its spaces, in the memory that it lies in.
///
/// Object-safe. Each operation is that of [`PageTable`] or [`Tree`] with the same name.
pub trait Mounted: Send + Sync {
    /// The page sizes that it can hold, ascending; the first is the base page.
    fn page_sizes(&self) -> &[PageSize];

    /// See [`PageTable::granted`].
    fn granted(&self, rights: Rights) -> Rights;

    /// See [`PageTable::walks_beside_changes`].
    fn walks_beside_changes(&self) -> bool {
        false
    }

    /// See [`PageTable::create`].
    fn create(&mut self, frames: &mut dyn Frames) -> Result<Space, Error>;

    /// See [`PageTable::destroy`].
    fn destroy(&mut self, space: Space) -> Result<Flush, Error>;

    /// See [`PageTable::map`].
    fn map(
        &mut self,
        space: Space,
        first: Translation,
        count: u64,
        frames: &mut dyn Frames,
    ) -> Result<Flush, Error> {
        self.map_noted(space, (first, count), &[], frames)
    }

    /// See [`PageTable::has_notes`].
    fn has_notes(&self) -> bool {
        false
    }

    /// See [`PageTable::map_noted`].
    fn map_noted(
        &mut self,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        frames: &mut dyn Frames,
    ) -> Result<Flush, Error>;

    /// See [`PageTable::set_note`].
    fn set_note(&mut self, _space: Space, _addr: VirtAddr, _note: u32) -> Result<(), Error> {
        Ok(())
    }

    /// See [`PageTable::unmap`].
    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error>;

    /// See [`PageTable::protect`].
    fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error>;

    /// See [`PageTable::protect_page`].
    fn protect_page(
        &mut self,
        space: Space,
        page: Page,
        rights: &mut dyn FnMut(&Mapping) -> Option<Rights>,
    ) -> Result<Flush, Error>;

    /// See [`PageTable::clear_usage`].
    fn clear_usage(
        &mut self,
        space: Space,
        range: VirtRange,
        bits: Usage,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error>;

    /// See [`PageTable::set_usage`].
    fn set_usage(&mut self, space: Space, addr: VirtAddr, bits: Usage) -> Result<(), Error>;

    /// See [`PageTable::lend`].
    fn lend(&mut self, loan: Loan) -> Result<Lent, Error> {
        Err(Unfit::Virtual(loan.at).into())
    }

    /// See [`PageTable::take_back`].
    fn take_back(
        &mut self,
        _of: Space,
        _range: VirtRange,
        _each: &mut dyn FnMut(VirtAddr, Option<Usage>),
    ) -> Result<(), Error> {
        Ok(())
    }

    /// See [`PageTable::walk`]; its references are appended to `references`.
    fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault>;

    /// The place that [`PageTable::last_entry`] says, and what is in it, where the memory shows that.
    fn last_entry(&self, _space: Space, _addr: VirtAddr) -> Option<(PhysAddr, &u64)> {
        None
    }

    /// See [`PageTable::query`].
    fn query(&self, space: Space, addr: VirtAddr) -> Option<Mapping>;

    /// See [`PageTable::visit`].
    fn visit(&self, space: Space, range: VirtRange, each: &mut dyn FnMut(Mapping));

    /// See [`PageTable::resize`].
    fn resize(
        &mut self,
        space: Space,
        range: VirtRange,
        to: PageSize,
        frames: &mut dyn Frames,
        forget: &mut dyn FnMut(&Flush),
    ) -> Result<Vec<Mapping>, Error>;

    /// This table for operations on disjoint subtrees at once, if it has subtrees and its memory can be
    /// shared.
    fn subtrees(&self) -> Option<&dyn Subtrees> {
        None
    }

    /// See [`PageTable::footprint`].
    fn footprint(&self) -> Footprint;

    /// See [`PageTable::footprint_of`].
    fn footprint_of(&self, space: Space) -> Footprint;

    /// See [`Tree::shape`]; `None` where walks do not descend from a root.
    fn tree_shape(&self) -> Option<TreeShape>;

    /// See [`Tree::root`]. In a table that is no tree, a node that stands for the whole table.
    fn root(&self, space: Space) -> Node;

    /// See [`Tree::walk_from`]. Nothing leads on in a table that is no tree: it finds no page.
    fn walk_from(
        &mut self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault>;
}

/// A page table `T` in a memory `M`.
#[derive(Debug)]
pub struct Mount<T, M> {
    table: T,
    memory: M,
    tree: Option<TreeCalls<T, M>>,
    subtrees: Option<SubtreeCalls<T, M>>,
}

impl<T: PageTable, M: Memory> Mount<T, M> {
    /// `table`, which has no spaces yet, in `memory`; its walks start at the root.
    pub const fn new(table: T, memory: M) -> Mount<T, M> {
        Mount { table, memory, tree: None, subtrees: None }
    }
}

impl<T: Tree, M: Memory> Mount<T, M> {
    /// `table`, which has no spaces yet, in `memory`; its walks can start below the root.
    pub const fn tree(table: T, memory: M) -> Mount<T, M> {
        Mount { table, memory, tree: Some(TreeCalls::NEW), subtrees: None }
    }
}

impl<T: Tree + SubtreeTable, M: Memory> Mount<T, M>
where
    for<'a> &'a M: Memory,
{
    /// `table`, which has no spaces yet, in a `memory` that several processors share: its subtrees can
    /// be changed at once ([`Mounted::subtrees`]). The table must keep nothing between two operations
    /// ([`Radix::forgetful`](crate::Radix::forgetful)), else each needs the whole space.
    ///
    /// ```
    /// # use addr::Memory;
    /// # use pagetable::{Mount, X86_64};
    /// fn share<M: Memory>(table: X86_64<4>, memory: M) -> Mount<X86_64<4>, M>
    /// where
    ///     for<'a> &'a M: Memory,
    /// {
    ///     Mount::shared(table.forgetful(), memory)
    /// }
    /// ```
    ///
    /// A table that cannot be walked while it is changed has no subtrees, and is refused here:
    ///
    /// ```compile_fail
    /// # use addr::Memory;
    /// # use pagetable::{Guarded, Mount};
    /// fn share<M: Memory>(table: Guarded, memory: M) -> Mount<Guarded, M>
    /// where
    ///     for<'a> &'a M: Memory,
    /// {
    ///     Mount::shared(table, memory)
    /// }
    /// ```
    pub const fn shared(table: T, memory: M) -> Mount<T, M> {
        let (tree, subtrees) = (Some(TreeCalls::NEW), Some(SubtreeCalls::NEW));
        Mount { table, memory, tree, subtrees }
    }
}

impl<T: PageTable + Send + Sync, M: Memory + Send + Sync> Mounted for Mount<T, M> {
    fn page_sizes(&self) -> &[PageSize] {
        self.table.page_sizes()
    }

    fn granted(&self, rights: Rights) -> Rights {
        self.table.granted(rights)
    }

    fn walks_beside_changes(&self) -> bool {
        self.table.walks_beside_changes()
    }

    fn create(&mut self, mut frames: &mut dyn Frames) -> Result<Space, Error> {
        self.table.create(&mut self.memory, &mut frames)
    }

    fn destroy(&mut self, space: Space) -> Result<Flush, Error> {
        self.table.destroy(space, &mut self.memory)
    }

    fn has_notes(&self) -> bool {
        self.table.has_notes()
    }

    fn map_noted(
        &mut self,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        mut frames: &mut dyn Frames,
    ) -> Result<Flush, Error> {
        self.table.map_noted(space, pages, notes, &mut self.memory, &mut frames)
    }

    fn set_note(&mut self, space: Space, addr: VirtAddr, note: u32) -> Result<(), Error> {
        self.table.set_note(space, addr, note, &mut self.memory)
    }

    fn unmap(
        &mut self,
        space: Space,
        range: VirtRange,
        mut each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.table.unmap(space, range, &mut self.memory, &mut each)
    }

    fn protect(
        &mut self,
        space: Space,
        range: VirtRange,
        rights: Rights,
        mut each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.table.protect(space, range, rights, &mut self.memory, &mut each)
    }

    fn protect_page(
        &mut self,
        space: Space,
        page: Page,
        mut rights: &mut dyn FnMut(&Mapping) -> Option<Rights>,
    ) -> Result<Flush, Error> {
        self.table.protect_page(space, page, &mut rights, &mut self.memory)
    }

    fn clear_usage(
        &mut self,
        space: Space,
        range: VirtRange,
        bits: Usage,
        mut each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        self.table.clear_usage(space, range, bits, &mut self.memory, &mut each)
    }

    fn set_usage(&mut self, space: Space, addr: VirtAddr, bits: Usage) -> Result<(), Error> {
        self.table.set_usage(space, addr, bits, &mut self.memory)
    }

    fn lend(&mut self, loan: Loan) -> Result<Lent, Error> {
        self.table.lend(loan, &mut self.memory)
    }

    fn take_back(
        &mut self,
        of: Space,
        range: VirtRange,
        mut each: &mut dyn FnMut(VirtAddr, Option<Usage>),
    ) -> Result<(), Error> {
        self.table.take_back(of, range, &mut self.memory, &mut each)
    }

    fn walk(
        &mut self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault> {
        let each = &mut |reference| references.push(reference);
        self.table.walk(space, addr, kind, &mut self.memory, each)
    }

    fn last_entry(&self, space: Space, addr: VirtAddr) -> Option<(PhysAddr, &u64)> {
        let at = self.table.last_entry(space, addr, &self.memory)?;
        Some((at, self.memory.word(at)?))
    }

    fn query(&self, space: Space, addr: VirtAddr) -> Option<Mapping> {
        self.table.query(space, addr, &self.memory)
    }

    fn visit(&self, space: Space, range: VirtRange, mut each: &mut dyn FnMut(Mapping)) {
        self.table.visit(space, range, &self.memory, &mut each);
    }

    fn resize(
        &mut self,
        space: Space,
        range: VirtRange,
        to: PageSize,
        mut frames: &mut dyn Frames,
        forget: &mut dyn FnMut(&Flush),
    ) -> Result<Vec<Mapping>, Error> {
        let forget = &mut |flush: &Flush, _: &mut M| forget(flush);
        self.table.resize(space, range, to, &mut self.memory, &mut frames, forget)
    }

    fn subtrees(&self) -> Option<&dyn Subtrees> {
        self.subtrees.as_ref().map(|_| self as &dyn Subtrees)
    }

    fn footprint(&self) -> Footprint {
        self.table.footprint()
    }

    fn footprint_of(&self, space: Space) -> Footprint {
        self.table.footprint_of(space)
    }

    fn tree_shape(&self) -> Option<TreeShape> {
        self.tree.as_ref().map(|tree| (tree.shape)(&self.table))
    }

    fn root(&self, space: Space) -> Node {
        self.tree.as_ref().map_or(whole(space), |tree| (tree.root)(&self.table, space))
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
}

/// What a table can do besides if it is a tree: functions of `T`, which a table that is none has
/// not.
#[derive(Debug)]
struct TreeCalls<T, M> {
    shape: fn(&T) -> TreeShape,
    root: fn(&T, Space) -> Node,
    walk_from: WalkFrom<T, M>,
}

type WalkFrom<T, M> =
    fn(&T, Node, VirtAddr, Kind, &mut M, &mut Vec<Reference>) -> Result<Translation, Fault>;

impl<T: Tree, M: Memory> TreeCalls<T, M> {
    const NEW: TreeCalls<T, M> = TreeCalls {
        shape: T::shape,
        root: T::root,
        walk_from: |table, start, addr, kind, memory, references| {
            table.walk_from(start, addr, kind, memory, &mut |reference| references.push(reference))
        },
    };
}

/// The node that stands for all of a table that is no tree.
const fn whole(space: Space) -> Node {
    Node { table: space.root(), level: 1, shift: 64, rights: Rights::ALL }
}

impl<T: PageTable + Send + Sync, M: Memory + Send + Sync> Subtrees for Mount<T, M> {
    fn levels(&self) -> u8 {
        self.subtrees.as_ref().map_or(1, |calls| (calls.levels)(&self.table))
    }

    fn entry_shift(&self, level: u8) -> u32 {
        self.subtrees.as_ref().map_or(0, |calls| (calls.entry_shift)(&self.table, level))
    }

    fn index(&self, level: u8, addr: VirtAddr) -> u64 {
        self.subtrees.as_ref().map_or(0, |calls| (calls.index)(&self.table, level, addr))
    }

    fn covering(&self, space: Space, range: VirtRange, intent: Intent) -> u8 {
        let calls = self.subtrees.as_ref();
        calls.map_or(1, |calls| (calls.covering)(&self.table, &self.memory, (space, range), intent))
    }

    fn map_below(
        &self,
        level: u8,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        frames: &mut dyn Frames,
    ) -> Result<Flush, Error> {
        let Some(calls) = &self.subtrees else { return missing(space) };
        (calls.map)((&self.table, &self.memory), level, space, pages, notes, frames)
    }

    fn edit_below(
        &self,
        level: u8,
        of: (Space, VirtRange),
        edit: SubtreeEdit,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error> {
        let Some(calls) = &self.subtrees else { return missing(of.0) };
        (calls.edit)((&self.table, &self.memory), level, of, edit, each)
    }
}
