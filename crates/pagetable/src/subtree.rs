//! A second contract: operations on disjoint subtrees of a page table at once.
//!
//! ```text
//!   covering(range)  -->  level 2: whoever has the table of level 2 for this range alone, and
//!                         looks at those above while nobody has them, may do it
//!                            |
//!   map, unmap, protect  <---+     by `&self`, over a memory that several processors share
//! ```
//!
//! [`PageTable`](crate::PageTable) takes a table exclusively. In a tree, operations that lie below
//! different tables have nothing in common but the way there: a lock for each table, taken by a reader on
//! the way and by a writer where an operation begins, keeps apart just those that must be (Zheng et al.,
//! "CortenMM", SOSP 2025, whose locks lie in the descriptors of the tables). Which table that is, the
//! table itself says; who locks it, a caller.
//!
//! Reads of entries on the way may meet what a processor, or an operation below, writes there at that time: such a
//! memory reads and writes an entry in one piece. A format whose operations change entries elsewhere (a
//! hashed one, or a guarded one, whose nodes move as it grows) has no subtrees.

use addr::{Frames, Memory, PageSize, Rights, VirtAddr, VirtRange};

use crate::{Error, Flush, Mapping, Space, Translation, Usage};

/// What an operation does to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intent {
    /// Pages of `size` come.
    Add {
        /// Their size.
        size: PageSize,
        /// Whether all spaces share them.
        global: bool,
    },
    /// Pages go.
    Remove,
    /// Pages change, or are looked at.
    Change,
}

/// What becomes of the pages in a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubtreeEdit {
    /// [`crate::PageTable::unmap`].
    Unmap,
    /// [`crate::PageTable::protect`].
    Protect(Rights),
    /// [`crate::PageTable::clear_usage`].
    ClearUsage(Usage),
}

/// A page table that has subtrees, over any memory.
pub trait SubtreeTable {
    /// Levels of tables; the root's is the highest.
    fn levels(&self) -> u8;

    /// log2 of the bytes that an entry of a table of `level` covers.
    fn entry_shift(&self, level: u8) -> u32;

    /// Which entry of a table of `level` leads on to `addr`.
    fn index(&self, level: u8, addr: VirtAddr) -> u64;

    /// The level of the lowest table that such an operation on `range` stays below; that of the root
    /// where it needs the whole space.
    ///
    /// It may be asked at any time; the answer is certain for whoever keeps others from changing the
    /// tables from the root down to that one.
    fn covering(&self, space: Space, range: VirtRange, intent: Intent, memory: &impl Memory) -> u8;

    /// [`crate::PageTable::map`] below the table of `level`, which is not the root's; with a note for each
    /// page, or none.
    fn map_below(
        &self,
        level: u8,
        space: Space,
        pages: (Translation, u64),
        notes: &[u32],
        memory: &mut impl Memory,
        frames: &mut dyn Frames,
    ) -> Result<Flush, Error>;

    /// Changes the pages in a range there.
    fn edit_below(
        &self,
        level: u8,
        of: (Space, VirtRange),
        edit: SubtreeEdit,
        memory: &mut impl Memory,
        each: &mut dyn FnMut(Mapping),
    ) -> Result<Flush, Error>;
}

/// [`SubtreeTable`] in its memory, which several processors share: object-safe.
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

/// What [`Mount`](crate::Mount) can do with a table that has subtrees, by a shared memory: functions of
/// `T`, which a table that has none has not.
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

/// Nobody asks a table for subtrees that has none.
#[cold]
pub(crate) fn missing(space: Space) -> Result<Flush, Error> {
    Err(Error::NoSpace(space))
}
