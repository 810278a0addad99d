//! A token that names the entries that hardware may still hold after a page-table change and must
//! flush.
//!
//! ```text
//!   map, unmap, ... --> Flush --> TLBs forget its scope, MMU caches its tables --> done(frames)
//!                         |                                                           |
//!              table frames ride in it . . . . . . . . . . . . . . . . . . . and go back here
//! ```
//!
//! A table that has become empty is unlinked immediately, but an MMU cache may still lead to it.
//! The frame of such a table is therefore kept in the token, and is not reused before the flush. In
//! a guarded table, mapping a page can move nodes. In that case the token of `map` names the nodes
//! that moved, and no page.

use alloc::{boxed::Box, vec::Vec};

use addr::{Frames, Page, PageSize, PhysAddr, VirtRange};

use crate::Space;

/// Names the translations that must be flushed, and holds the frames that can be freed after that.
///
/// Flush [`Flush::scope`] from the TLBs of every processor that may have run in [`Flush::space`]
/// (from all processors' if [`Flush::global`]). Flush every entry that leads to [`Flush::tables`]
/// from their MMU caches. Then call [`Flush::done`].
#[must_use = "hardware may still hold what was changed: flush it, then call `done`"]
#[derive(Debug)]
pub struct Flush {
    space: Space,
    /// Whether the whole space must be flushed; if so, `pages` and `range` are ignored.
    whole: bool,
    pages: u64,
    /// The smallest range that holds all pages to be flushed, if there are any.
    range: VirtRange,
    sizes: u64,
    global: bool,
    /// Whether a table on the path to the pages was removed. The table's frame may remain
    /// allocated, because it holds other tables.
    unlinked: bool,
    tables: Tables,
}

/// The frames of removed tables: usually none or one.
///
/// This is one enum, so that a single test distinguishes the common cases in code that handles a
/// token.
#[derive(Debug)]
enum Tables {
    Stay,
    One(OneTable),
    More(Box<More>),
}

/// A frame and its size in one word: log2 of the size is in bits that are zero in the aligned
/// address.
#[derive(Clone, Copy, Debug)]
struct OneTable(u64);

impl OneTable {
    /// The bits that hold log2 of the size.
    const LOW: u64 = 0x3f;

    fn new(frame: PhysAddr, size: PageSize) -> Option<OneTable> {
        let is_aligned = frame.get() & OneTable::LOW == 0;
        is_aligned.then_some(OneTable(frame.get() | u64::from(size.shift())))
    }

    fn get(self) -> Option<(PhysAddr, PageSize)> {
        let low = self.0 & OneTable::LOW;
        Some((PhysAddr::new(self.0 - low), PageSize::from_shift(low as u8)?))
    }
}

/// The parts of a token that are rare, behind one pointer.
#[derive(Default, Debug)]
struct More {
    /// The addresses outside the flushed pages whose tables moved, if any.
    moved: Option<VirtRange>,
    /// Frames that held tables, in the order in which they are freed.
    tables: Vec<(PhysAddr, PageSize)>,
}

impl Tables {
    #[inline(always)]
    fn of_one(frame: PhysAddr, size: PageSize) -> Tables {
        OneTable::new(frame, size).map_or_else(|| Tables::of_many(frame, size), Tables::One)
    }

    /// Stores a frame and size that do not fit into one word.
    #[cold]
    #[inline(never)]
    fn of_many(frame: PhysAddr, size: PageSize) -> Tables {
        Tables::More(Box::new(More { moved: None, tables: alloc::vec![(frame, size)] }))
    }

    /// The rare parts of the token; they are allocated if they do not exist yet.
    fn more(&mut self) -> &mut More {
        if !matches!(self, Tables::More(_)) {
            let mut more = Box::<More>::default();
            if let Tables::One(table) = *self {
                more.tables.extend(table.get());
            }
            *self = Tables::More(more);
        }
        match self {
            Tables::More(more) => more,
            Tables::Stay | Tables::One(..) => unreachable!("it has just been made"),
        }
    }
}

/// The translations that a [`Flush`] requires TLBs to flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Nothing was removed or restricted.
    Nothing,
    /// Some pages.
    Pages {
        /// The smallest range that contains all these pages; addresses in it that are not mapped
        /// need no flush.
        range: VirtRange,
        /// The number of pages; if it is 1, `range` is exactly that page.
        pages: u64,
    },
    /// All translations of the space.
    Space,
}

impl Scope {
    /// Whether translations of `page`, in the token's space, must be flushed.
    pub fn covers(&self, page: Page) -> bool {
        match *self {
            Scope::Nothing => false,
            Scope::Space => true,
            Scope::Pages { range, .. } => range.intersection(VirtRange::of_page(page)).is_some(),
        }
    }
}

impl Flush {
    /// A token of `space` that requires no flush.
    #[inline]
    pub const fn nothing(space: Space) -> Flush {
        Flush {
            space,
            whole: false,
            pages: 0,
            range: VirtRange::ALL,
            sizes: 0,
            global: false,
            unlinked: false,
            tables: Tables::Stay,
        }
    }

    /// A token of `space` that requires a flush of `page`.
    #[inline]
    pub(crate) const fn of_page(space: Space, page: Page, global: bool) -> Flush {
        let mut flush = Flush::nothing(space);
        flush.pages = 1;
        flush.range = VirtRange::of_page(page);
        flush.sizes = 1 << page.size().shift();
        flush.global = global;
        flush
    }

    /// A token that requires a flush of all of `space`, including global pages if `global` is true.
    pub const fn whole(space: Space, global: bool) -> Flush {
        let mut flush = Flush::nothing(space);
        flush.whole = true;
        flush.global = global;
        flush
    }

    /// The space whose translations must be flushed.
    pub const fn space(&self) -> Space {
        self.space
    }

    /// A token with the scope of this one, but without the frames to be freed. It is for a caller
    /// that flushes later, while no processor runs.
    pub fn without_frames(&self) -> Flush {
        let mut flush = Flush { tables: Tables::Stay, ..*self };
        if let Tables::More(more) = &self.tables
            && let Some(range) = more.moved
        {
            flush.move_tables(range);
        }
        flush
    }

    /// The pages to be flushed.
    pub const fn scope(&self) -> Scope {
        match (self.whole, self.pages) {
            (true, _) => Scope::Space,
            (false, 0) => Scope::Nothing,
            (false, pages) => Scope::Pages { range: self.range, pages },
        }
    }

    /// Whether there is nothing to flush and no frame to free.
    pub fn is_empty(&self) -> bool {
        self.scope() == Scope::Nothing && matches!(self.tables, Tables::Stay)
    }

    /// The sizes of the pages in a [`Scope::Pages`], ascending.
    pub fn sizes(&self) -> impl Iterator<Item = PageSize> + use<> {
        let sizes = self.sizes;
        (0..64).filter(move |shift| sizes >> shift & 1 != 0).filter_map(PageSize::from_shift)
    }

    /// Whether a global page is among the pages to be flushed, so that the processors of every
    /// space must flush.
    pub const fn global(&self) -> bool {
        self.global
    }

    /// The addresses whose tables were removed or moved: MMU caches must flush every entry and
    /// every node that a walk of an address in this range could have passed. `None` if no table was
    /// removed or moved.
    pub fn tables(&self) -> Option<VirtRange> {
        let pages = match self.scope() {
            Scope::Space => return Some(VirtRange::ALL),
            Scope::Pages { range, .. } if self.unlinked => Some(range),
            Scope::Pages { .. } | Scope::Nothing => None,
        };
        let moved = match &self.tables {
            Tables::More(more) => more.moved,
            Tables::Stay | Tables::One(..) => None,
        };
        match (pages, moved) {
            (Some(pages), Some(moved)) => Some(pages.hull(moved)),
            (pages, moved) => pages.or(moved),
        }
    }

    /// Adds `page` to the pages to be flushed.
    #[inline]
    pub fn add(&mut self, page: Page, global: bool) {
        self.add_pages(page, page, 1, global);
    }

    /// Adds the `pages` pages of one size (possibly 0) from `first` to `last`.
    #[inline]
    pub(crate) fn add_pages(&mut self, first: Page, last: Page, pages: u64, global: bool) {
        if pages > 0 {
            self.add_range(VirtRange::of_page(first).hull(VirtRange::of_page(last)), pages);
            self.sizes |= 1 << first.size().shift();
            self.global |= global;
        }
    }

    /// Records that a table on the path to the pages was removed, although its frame remains.
    pub fn unlink(&mut self) {
        self.unlinked = true;
    }

    /// Records that the tables on the path to the addresses in `range` moved, although no page
    /// changed.
    pub fn move_tables(&mut self, range: VirtRange) {
        let moved = &mut self.tables.more().moved;
        *moved = Some(moved.map_or(range, |moved| moved.hull(range)));
    }

    /// Adds the frame of a removed table, to be freed after the flush.
    pub fn add_table(&mut self, frame: PhysAddr, size: PageSize) {
        self.unlinked = true;
        if let (Tables::Stay, Some(table)) = (&self.tables, OneTable::new(frame, size)) {
            self.tables = Tables::One(table);
        } else {
            self.tables.more().tables.push((frame, size));
        }
    }

    /// Adds the frame of one removed table to this token, which has no frame yet. The function
    /// takes and returns the token by value, so that the compiler keeps it in registers.
    #[inline(always)]
    pub(crate) fn with_table(self, frame: PhysAddr, size: PageSize) -> Flush {
        Flush { unlinked: true, tables: Tables::of_one(frame, size), ..self }
    }

    /// Merges `other`, a token of the same space, into this one, so that one flush serves both.
    ///
    /// # Panics
    /// If the tokens are of different spaces.
    pub fn merge(&mut self, other: Flush) {
        assert_eq!(self.space, other.space, "tokens of two spaces cannot be merged");
        self.whole |= other.whole;
        if other.pages > 0 {
            self.add_range(other.range, other.pages);
        }
        self.sizes |= other.sizes;
        self.global |= other.global;
        self.unlinked |= other.unlinked;
        match other.tables {
            Tables::Stay => {}
            Tables::One(table) => {
                table.get().into_iter().for_each(|(frame, size)| self.add_table(frame, size));
            }
            Tables::More(more) => {
                more.tables.iter().for_each(|&(frame, size)| self.add_table(frame, size));
                if let Some(range) = more.moved {
                    self.move_tables(range);
                }
            }
        }
    }

    /// Frees the frames of the removed tables. Call it when hardware has flushed all entries that
    /// this token names.
    #[inline]
    pub fn done(self, frames: &mut (impl Frames + ?Sized)) {
        if !matches!(self.tables, Tables::Stay) {
            free(self.tables, frames);
        }
    }

    #[inline]
    fn add_range(&mut self, range: VirtRange, pages: u64) {
        self.range = if self.pages == 0 { range } else { self.range.hull(range) };
        self.pages += pages;
    }
}

/// Frees the frames of removed tables. This is rare: most changes remove no table.
#[cold]
#[inline(never)]
fn free(tables: Tables, frames: &mut (impl Frames + ?Sized)) {
    match tables {
        Tables::Stay => {}
        Tables::One(table) => {
            table.get().into_iter().for_each(|(frame, size)| frames.free(frame, size));
        }
        Tables::More(more) => {
            more.tables.iter().for_each(|&(frame, size)| frames.free(frame, size));
        }
    }
}
