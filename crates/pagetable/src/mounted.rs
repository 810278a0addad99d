//! A page table together with its memory, as an object that can be chosen at run time.
//!
//! ```text
//!   Mounted      dyn: map, unmap, walk, ...        hat, a machine, a bench
//!      |
//!   Mount<T, M>  table T  +  memory M              frames come with each call
//!      |            |
//!   PageTable, Tree: generic over memory           a kernel's own choice, inlined
//! ```
//!
//! [`PageTable`] is generic over memory, frames and callbacks, so that a kernel with a fixed table
//! has no indirect call in a walk. Code that chooses the table at run time (a simulated machine),
//! or that is written once for all tables (the HAT layer), mounts a table in its memory and calls
//! the table through this trait. The contract is that of [`PageTable`]. The only difference is that
//! the references of a walk are appended to a list, so that a walk makes a single indirect call
//! instead of one per reference.

use alloc::vec::Vec;

use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};

use crate::{
    Error, Fault, Flush, Footprint, Frames, Intent, Lent, Loan, Mapping, Memory, Node, PageTable,
    Reference, Space, SubtreeEdit, SubtreeTable, Subtrees, Translation, Tree, TreeShape, Unfit,
    Usage,
    subtree::{SubtreeCalls, missing},
};

/// A page table with all of its spaces, together with the memory that holds it.
///
/// Object-safe. Each operation is the operation of [`PageTable`] or [`Tree`] with the same name.
pub trait Mounted: Send + Sync {
    /// The supported page sizes, ascending; the first is the base page.
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

    /// The address that [`PageTable::last_entry`] returns, with a reference to the entry there, if
    /// the memory can give one ([`Memory::word`](addr::Memory::word)).
    fn last_entry(&self, _space: Space, _addr: VirtAddr) -> Option<(PhysAddr, &u64)> {
        None
    }

    /// The 8 bytes at `at` of the memory that holds the table, if the memory can give a reference to them
    /// ([`Memory::word`](addr::Memory::word)).
    fn word(&self, _at: PhysAddr) -> Option<&u64> {
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

    /// This table's interface for changes of disjoint subtrees at the same time; `None` if the
    /// table has no subtrees or its memory cannot be shared.
    fn subtrees(&self) -> Option<&dyn Subtrees> {
        None
    }

    /// See [`PageTable::footprint`].
    fn footprint(&self) -> Footprint;

    /// See [`PageTable::footprint_of`].
    fn footprint_of(&self, space: Space) -> Footprint;

    /// See [`Tree::shape`]; `None` if the table is not a tree.
    fn tree_shape(&self) -> Option<TreeShape>;

    /// See [`Tree::root`]. If the table is not a tree, a node that stands for the whole table.
    fn root(&self, space: Space) -> Node;

    /// See [`Tree::walk_from`]. If the table is not a tree, the walk finds no page.
    fn walk_from(
        &mut self,
        start: Node,
        addr: VirtAddr,
        kind: Kind,
        references: &mut Vec<Reference>,
    ) -> Result<Translation, Fault>;
}

/// A page table `T` together with its memory `M`.
#[derive(Debug)]
pub struct Mount<T, M> {
    table: T,
    memory: M,
    tree: Option<TreeCalls<T, M>>,
    subtrees: Option<SubtreeCalls<T, M>>,
}

impl<T: PageTable, M: Memory> Mount<T, M> {
    /// Mounts `table`, which has no spaces yet, in `memory`. Walks start at the root.
    pub const fn new(table: T, memory: M) -> Mount<T, M> {
        Mount { table, memory, tree: None, subtrees: None }
    }
}

impl<T: Tree, M: Memory> Mount<T, M> {
    /// Mounts `table`, which has no spaces yet, in `memory`. Walks can start below the root.
    pub const fn tree(table: T, memory: M) -> Mount<T, M> {
        Mount { table, memory, tree: Some(TreeCalls::NEW), subtrees: None }
    }
}

impl<T: Tree + SubtreeTable, M: Memory> Mount<T, M>
where
    for<'a> &'a M: Memory,
{
    /// Mounts `table`, which has no spaces yet, in a `memory` that several processors share.
    /// Disjoint subtrees can be changed at the same time ([`Mounted::subtrees`]). The table must
    /// not keep state from one operation to the next
    /// ([`Radix::forgetful`](crate::Radix::forgetful)); otherwise each operation needs exclusive
    /// access to the space.
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
    /// A table that cannot be walked while it is changed has no subtrees. Mounting it with this
    /// function is refused at compile time:
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

    fn word(&self, at: PhysAddr) -> Option<&u64> {
        self.memory.word(at)
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

/// The additional functions of a table that is a tree, as pointers to functions of `T`, since
/// other tables do not have these functions.
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

/// The node that stands for the whole of a table that is not a tree.
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
