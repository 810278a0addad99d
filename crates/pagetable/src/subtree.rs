//! A second interface of a page table, for operations on disjoint subtrees at the same time.
//!
//! ```text
//!   covering(range)  -->  level 2: whoever has the table of level 2 for this range alone, and
//!                         looks at those above while nobody has them, may do it
//!                            |
//!   map, unmap, protect  <---+     by `&self`, over a memory that several processors share
//! ```
//!
//! [`PageTable`](crate::PageTable) needs exclusive access to a table. In a tree, operations that stay
//! below different tables share only the path to these tables. One lock per table separates exactly the
//! operations that conflict: it is taken for reading on the path, and for writing at the table below
//! which the operation stays (Zheng et al., "CortenMM", SOSP 2025, where the locks are in the descriptors
//! of the tables). The page table determines below which table an operation stays; the caller takes
//! the locks.
//!
//! A read of an entry on the path may coincide with a write by a processor or by an operation further down.
//! The memory must therefore read and write an entry as a whole. A format has no subtrees if its
//! operations change entries outside a subtree: for example a hashed table, or a guarded table,
//! whose nodes move when it grows.

use addr::{Frames, Memory, PageSize, Rights, VirtAddr, VirtRange};

use crate::{Error, Flush, Mapping, Space, Translation, Usage};

/// The change that an operation will make to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// Pages of `size` will be mapped.
    Add {
        /// The size of the pages.
        size: PageSize,
        /// Whether the pages are global.
        global: bool,
    },
    /// Pages will be unmapped.
    Remove,
    /// Pages will be changed but stay mapped, or will only be read.
    Change,
}

/// A change of the pages in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubtreeEdit {
    /// See [`crate::PageTable::unmap`].
    Unmap,
    /// See [`crate::PageTable::protect`].
    Protect(Rights),
    /// See [`crate::PageTable::clear_usage`].
    ClearUsage(Usage),
}

/// A page table with subtrees, generic over memory.
pub trait SubtreeTable {
    /// The number of levels of tables; the root has the highest level.
    fn levels(&self) -> u8;

    /// log2 of the bytes that one entry of a table of `level` covers.
    fn entry_shift(&self, level: u8) -> u32;

    /// The index of the entry for `addr` in a table of `level`.
    fn index(&self, level: u8, addr: VirtAddr) -> u64;

    /// The level of the lowest table below which an operation with this `intent` on `range` can
    /// stay, so that it changes only entries of this table and of tables below it. The level of the
    /// root means that the operation needs the whole space.
    ///
    /// This function may be called at any time. The result stays valid only while the caller
    /// prevents other operations from changing the tables from the root down to that table.
    fn covering(&self, space: Space, range: VirtRange, intent: Intent, memory: &impl Memory) -> u8;

    /// Like [`crate::PageTable::map`], below the table of `level`, which is not the root. `notes`
    /// has a note for each page, or is empty.
    fn map_below(
        &self,
        level: u8,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        memory: &mut impl Memory,
        frames: &mut dyn Frames,
    ) -> Result<Flush, Error>;

    /// Changes the pages in a range, below the table of `level`, which is not the root.
    fn edit_below(
        &self,
        level: u8,
        of: (Space, VirtRange),
        edit: SubtreeEdit,
        memory: &mut impl Memory,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error>;
}

/// A [`SubtreeTable`] together with its memory, which several processors share. Object-safe.
pub trait Subtrees: Sync {
    /// See [`SubtreeTable::levels`].
    fn levels(&self) -> u8;

    /// See [`SubtreeTable::entry_shift`].
    fn entry_shift(&self, level: u8) -> u32;

    /// See [`SubtreeTable::index`].
    fn index(&self, level: u8, addr: VirtAddr) -> u64;

    /// See [`SubtreeTable::covering`].
    fn covering(&self, space: Space, range: VirtRange, intent: Intent) -> u8;

    /// See [`SubtreeTable::map_below`].
    fn map_below(
        &self,
        level: u8,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        frames: &mut dyn Frames,
    ) -> Result<Flush, Error>;

    /// See [`SubtreeTable::edit_below`].
    fn edit_below(
        &self,
        level: u8,
        of: (Space, VirtRange),
        edit: SubtreeEdit,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error>;
}

/// The operations of a table with subtrees in a shared memory, as pointers to functions of `T`,
/// since other tables do not have these functions.
#[derive(Debug)]
pub(crate) struct SubtreeCalls<T, M> {
    pub(crate) levels: fn(&T) -> u8,
    pub(crate) entry_shift: fn(&T, u8) -> u32,
    pub(crate) index: fn(&T, u8, VirtAddr) -> u64,
    pub(crate) covering: fn(&T, &M, (Space, VirtRange), Intent) -> u8,
    pub(crate) map: MapBelow<T, M>,
    pub(crate) edit: EditBelow<T, M>,
}

type MapBelow<T, M> =
    fn((&T, &M), u8, Space, (Translation, u64), &[u32], &mut dyn Frames) -> Result<Flush, Error>;
type EditBelow<T, M> = fn(
    (&T, &M),
    u8,
    (Space, VirtRange),
    SubtreeEdit,
    &mut dyn FnMut(Mapping),
) -> Result<Flush, Error>;

impl<T: SubtreeTable, M: Memory> SubtreeCalls<T, M>
where
    for<'a> &'a M: Memory,
{
    pub(crate) const NEW: SubtreeCalls<T, M> = SubtreeCalls {
        levels: T::levels,
        entry_shift: T::entry_shift,
        index: T::index,
        covering: |table, memory, (space, range), intent| {
            table.covering(space, range, intent, memory)
        },
        map: |(table, mut memory), level, space, pages, notes, frames| {
            table.map_below(level, space, pages, notes, &mut memory, frames)
        },
        edit: |(table, mut memory), level, of, edit, each| {
            table.edit_below(level, of, edit, &mut memory, each)
        },
    };
}

/// Never called: these functions are only called for tables with subtrees.
#[cold]
pub(crate) fn missing(space: Space) -> Result<Flush, Error> {
    Err(Error::NoSpace(space))
}
