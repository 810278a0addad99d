//! What hardware may still remember after a change, as a token that asks to be acted on.
//!
//! ```text
//!   map, unmap, ... --> Flush --> TLBs forget its scope, MMU caches its tables --> done(frames)
//!                         |                                                           |
//!              table frames ride in it . . . . . . . . . . . . . . . . . . . and go back here
//! ```
//!
//! A table that has become empty is unlinked at once, but an MMU cache may still lead into it.
//! Its frame therefore travels in the token and is nobody else's before the flush. In a guarded
//! table a page that is added moves nodes too: then the token of `map` names no page, but tables.

use alloc::{boxed::Box, vec::Vec};

use addr::{Frames, Page, PageSize, PhysAddr, VirtRange};

use crate::Space;

/// Which translations must be flushed, and the frames that can be freed once they are.
///
/// Flush [`Flush::scope`] out of the TLBs of every processor that may have run in
/// [`Flush::space`] (all of them if [`Flush::global`]), and what leads to [`Flush::tables`] out of
/// their MMU caches; then call [`Flush::done`].
#[must_use = "hardware may still hold what was changed: flush it, then call `done`"]
#[derive(Debug)]
pub struct Flush {
    space: Space,
    /// All of the space, whatever the pages are.
    whole: bool,
    pages: u64,
    /// Where they lie, if there are any.
    range: VirtRange,
    sizes: u64,
    global: bool,
    /// Whether a table on the way to the pages was removed, even if its frame holds others and
    /// stays.
    unlinked: bool,
    tables: Tables,
}

/// The frames of tables that went: most often there is none, or one.
///
/// One value says which, so that who acts on a token asks once.
#[derive(Debug)]
enum Tables {
    Stay,
    One(OneTable),
    More(Box<More>),
}

/// A frame and its size in one word: the frame is aligned, and log2 of the size is in the bits that
/// are free.
#[derive(Clone, Copy, Debug)]
struct OneTable(u64);

impl OneTable {
    /// The bits of log2 of a size.
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

/// What few tokens have, behind one pointer.
#[derive(Default, Debug)]
struct More {
    /// Where else tables moved, if they did.
    moved: Option<VirtRange>,
    /// Frames that held tables, in the order in which they are freed.
    tables: Vec<(PhysAddr, PageSize)>,
}

impl Tables {
    #[inline(always)]
    fn of_one(frame: PhysAddr, size: PageSize) -> Tables {
        OneTable::new(frame, size).map_or_else(|| Tables::of_many(frame, size), Tables::One)
    }

    /// Of a frame with its size that does not fit into a word.
    #[cold]
    #[inline(never)]
    fn of_many(frame: PhysAddr, size: PageSize) -> Tables {
        Tables::More(Box::new(More { moved: None, tables: alloc::vec![(frame, size)] }))
    }

    /// What few tokens have, made if it is not there yet.
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

/// How far a [`Flush`] reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Nothing was removed or restricted.
    Nothing,
    /// Some pages.
    Pages {
        /// The smallest range that holds them all; holes in it need no flush.
        range: VirtRange,
        /// How many pages there are; where it is 1, `range` is that page.
        pages: u64,
    },
    /// Everything of the space.
    Space,
}

impl Scope {
    /// Whether a translation of `page`, in the flush's space, is out of date.
    pub fn covers(&self, page: Page) -> bool {
        match *self {
            Scope::Nothing => false,
            Scope::Space => true,
            Scope::Pages { range, .. } => range.intersection(VirtRange::of_page(page)).is_some(),
        }
    }
}

impl Flush {
    /// A token of `space` that asks for nothing yet.
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

    /// A token of `space` that asks for `page` to be forgotten.
    #[inline]
    pub(crate) const fn of_page(space: Space, page: Page, global: bool) -> Flush {
        let mut flush = Flush::nothing(space);
        flush.pages = 1;
        flush.range = VirtRange::of_page(page);
        flush.sizes = 1 << page.size().shift();
        flush.global = global;
        flush
    }

    /// A token that asks for all of `space` to be forgotten, with global pages or without.
    pub const fn whole(space: Space, global: bool) -> Flush {
        let mut flush = Flush::nothing(space);
        flush.whole = true;
        flush.global = global;
        flush
    }

    /// The space whose translations they are.
    pub const fn space(&self) -> Space {
        self.space
    }

    /// What must be forgotten, without the frames that are freed after it: for who has hardware
    /// forget later, while nothing runs.
    pub fn without_frames(&self) -> Flush {
        let mut flush = Flush { tables: Tables::Stay, ..*self };
        if let Tables::More(more) = &self.tables
            && let Some(range) = more.moved
        {
            flush.move_tables(range);
        }
        flush
    }

    /// Which pages.
    pub const fn scope(&self) -> Scope {
        match (self.whole, self.pages) {
            (true, _) => Scope::Space,
            (false, 0) => Scope::Nothing,
            (false, pages) => Scope::Pages { range: self.range, pages },
        }
    }

    /// Whether there is nothing to forget and no frame to free.
    pub fn is_empty(&self) -> bool {
        self.scope() == Scope::Nothing && matches!(self.tables, Tables::Stay)
    }

    /// The sizes of the pages in a [`Scope::Pages`], ascending.
    pub fn sizes(&self) -> impl Iterator<Item = PageSize> + use<> {
        let sizes = self.sizes;
        (0..64).filter(move |shift| sizes >> shift & 1 != 0).filter_map(PageSize::from_shift)
    }

    /// Whether a global page is among them, so that every space's processors are concerned.
    pub const fn global(&self) -> bool {
        self.global
    }

    /// Where tables went or moved: MMU caches must forget every entry and every node that a walk
    /// of an address in this range could have passed. `None` if all tables are where they were.
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

    /// Adds `page` to what must be flushed.
    #[inline]
    pub fn add(&mut self, page: Page, global: bool) {
        self.add_pages(page, page, 1, global);
    }

    /// Adds `pages` pages of one size, if not 0, from `first` to `last`.
    #[inline]
    pub(crate) fn add_pages(&mut self, first: Page, last: Page, pages: u64, global: bool) {
        if pages > 0 {
            self.add_range(VirtRange::of_page(first).hull(VirtRange::of_page(last)), pages);
            self.sizes |= 1 << first.size().shift();
            self.global |= global;
        }
    }

    /// Notes that a table on the way to the pages was removed from a frame that stays.
    pub fn unlink(&mut self) {
        self.unlinked = true;
    }

    /// Notes that tables on the way to the addresses in `range` are others than before, although
    /// no page changed.
    pub fn move_tables(&mut self, range: VirtRange) {
        let moved = &mut self.tables.more().moved;
        *moved = Some(moved.map_or(range, |moved| moved.hull(range)));
    }

    /// Adds a frame that held a table, to be freed after the flush.
    pub fn add_table(&mut self, frame: PhysAddr, size: PageSize) {
        self.unlinked = true;
        if let (Tables::Stay, Some(table)) = (&self.tables, OneTable::new(frame, size)) {
            self.tables = Tables::One(table);
        } else {
            self.tables.more().tables.push((frame, size));
        }
    }

    /// This token, which has no frame yet, with the frame of one page table, to be freed after the flush. The
    /// token is made in registers.
    #[inline(always)]
    pub(crate) fn with_table(self, frame: PhysAddr, size: PageSize) -> Flush {
        Flush { unlinked: true, tables: Tables::of_one(frame, size), ..self }
    }

    /// Takes in another token of the same space, so that both are flushed at once.
    ///
    /// # Panics
    /// If the tokens are of two spaces.
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

    /// Frees the table frames: hardware has forgotten all that this token named.
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

/// Seldom: most changes leave all tables.
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
