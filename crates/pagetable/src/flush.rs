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

use alloc::{collections::TryReserveError, vec::Vec};

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
    /// The smallest range that holds all addresses whose tables moved although no page changed, if
    /// there are any.
    moved: Option<VirtRange>,
    tables: Tables,
}

/// The frames of removed tables: usually none or one.
///
/// This is one enum, so that a single test distinguishes the common cases in code that handles a
/// token.
#[derive(Debug)]
enum Tables {
    Stay,
    /// Up to four frames, packed into words, in the order in which they are freed. Unused words are
    /// 0.
    Few([u64; Flush::FEW]),
    /// Any number of frames, in the order in which they are freed.
    Many(Vec<(PhysAddr, PageSize)>),
}

/// The bits of a packed word that hold log2 of the frame's size. These bits are zero in the address
/// of a frame that can be packed.
const LOW: u64 = 0x3f;

/// Packs the address of a frame and log2 of its size into one word. `None` if the address is not a
/// multiple of 64.
fn packed(frame: PhysAddr, size: PageSize) -> Option<u64> {
    let is_aligned = frame.get() & LOW == 0;
    is_aligned.then_some(frame.get() | u64::from(size.shift()))
}

fn unpacked(word: u64) -> Option<(PhysAddr, PageSize)> {
    let low = word & LOW;
    Some((PhysAddr::new(word - low), PageSize::from_shift(low as u8)?))
}

impl Tables {
    #[inline(always)]
    fn of_one(frame: PhysAddr, size: PageSize) -> Tables {
        packed(frame, size)
            .map_or_else(|| Tables::of_many(frame, size), |word| Tables::Few([word, 0, 0, 0]))
    }

    /// Stores a frame and size that do not fit into one word.
    #[cold]
    #[inline(never)]
    fn of_many(frame: PhysAddr, size: PageSize) -> Tables {
        Tables::Many(alloc::vec![(frame, size)])
    }

    const fn is_none(&self) -> bool {
        match self {
            Tables::Stay => true,
            Tables::Few(_) => false,
            Tables::Many(tables) => tables.is_empty(),
        }
    }

    fn count(&self) -> usize {
        match self {
            Tables::Stay => 0,
            Tables::Few(words) => words.iter().take_while(|word| **word != 0).count(),
            Tables::Many(tables) => tables.len(),
        }
    }

    /// Reserves memory for `count` more frames.
    fn reserve(&mut self, count: usize) -> Result<(), TryReserveError> {
        if let Tables::Many(tables) = self {
            return tables.try_reserve(count);
        }
        let held = self.count();
        if held + count <= Flush::FEW {
            return Ok(());
        }
        let mut tables = Vec::new();
        tables.try_reserve(held + count)?;
        if let Tables::Few(words) = self {
            tables.extend(words.iter().copied().filter_map(unpacked));
        }
        *self = Tables::Many(tables);
        Ok(())
    }

    fn push(&mut self, frame: PhysAddr, size: PageSize) {
        if let (Tables::Stay | Tables::Few(_), Some(word)) = (&*self, packed(frame, size)) {
            let held = self.count();
            match self {
                Tables::Few(words) if held < Flush::FEW => {
                    words[held] = word;
                    return;
                }
                Tables::Stay => {
                    *self = Tables::Few([word, 0, 0, 0]);
                    return;
                }
                Tables::Few(_) | Tables::Many(_) => {}
            }
        }
        if !matches!(self, Tables::Many(_)) {
            let mut tables = Vec::with_capacity(self.count() + 1);
            if let Tables::Few(words) = self {
                tables.extend(words.iter().copied().filter_map(unpacked));
            }
            *self = Tables::Many(tables);
        }
        if let Tables::Many(tables) = self {
            tables.push((frame, size));
        }
    }

    /// Calls `each` with every frame, in the order in which the frames are freed.
    fn each(&self, each: &mut dyn FnMut(PhysAddr, PageSize)) {
        match self {
            Tables::Stay => {}
            Tables::Few(words) => {
                words.iter().copied().filter_map(unpacked).for_each(|(at, size)| each(at, size));
            }
            Tables::Many(tables) => tables.iter().for_each(|&(at, size)| each(at, size)),
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
    /// The number of removed tables whose frames a token holds without heap memory. It is the
    /// largest number of tables that unmapping one page can remove in a tree of five levels.
    pub(crate) const FEW: usize = 4;

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
            moved: None,
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
        Flush { tables: Tables::Stay, ..*self }
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
        self.scope() == Scope::Nothing && self.moved.is_none() && self.tables.is_none()
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
        match (pages, self.moved) {
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
        self.moved = Some(self.moved.map_or(range, |moved| moved.hull(range)));
    }

    /// Adds the frame of a removed table, to be freed after the flush.
    pub fn add_table(&mut self, frame: PhysAddr, size: PageSize) {
        self.unlinked = true;
        self.tables.push(frame, size);
    }

    /// Reserves memory for the frames of `tables` more removed tables, so that [`Flush::add_table`]
    /// needs no memory for them. A new token has room for four frames.
    ///
    /// # Errors
    /// Fails if no memory is left. The token does not change.
    pub fn try_reserve(&mut self, tables: usize) -> Result<(), TryReserveError> {
        self.tables.reserve(tables)
    }

    /// Adds the frame of one removed table to this token, which has no frame yet. The function
    /// takes and returns the token by value, so that the compiler keeps it in registers.
    #[inline(always)]
    pub(crate) fn with_table(self, frame: PhysAddr, size: PageSize) -> Flush {
        Flush { unlinked: true, tables: Tables::of_one(frame, size), ..self }
    }

    /// Merges `other`, a token of the same space, into this one, so that one flush serves both.
    /// Allocates memory if the two tokens together have more than four removed tables;
    /// [`Flush::try_merge`] reports if no memory is left.
    ///
    /// # Panics
    /// Panics if the tokens are of different spaces, or if no memory is left.
    pub fn merge(&mut self, other: Flush) {
        if let Err(other) = self.try_merge(other) {
            other.tables.each(&mut |frame, size| self.add_table(frame, size));
            self.merge_scope(&other);
        }
    }

    /// Merges `other`, a token of the same space, into this one, so that one flush serves both.
    ///
    /// # Errors
    /// Returns `other` if no memory is left for the removed tables of both tokens together. This
    /// token does not change. The caller must then carry out one of the tokens, and call
    /// [`Flush::done`] for it.
    ///
    /// # Panics
    /// Panics if the tokens are of different spaces.
    pub fn try_merge(&mut self, other: Flush) -> Result<(), Flush> {
        assert_eq!(self.space, other.space, "tokens of two spaces cannot be merged");
        if self.tables.reserve(other.tables.count()).is_err() {
            return Err(other);
        }
        self.merge_scope(&other);
        other.tables.each(&mut |frame, size| self.add_table(frame, size));
        Ok(())
    }

    fn merge_scope(&mut self, other: &Flush) {
        self.whole |= other.whole;
        if other.pages > 0 {
            self.add_range(other.range, other.pages);
        }
        self.sizes |= other.sizes;
        self.global |= other.global;
        self.unlinked |= other.unlinked;
        if let Some(range) = other.moved {
            self.move_tables(range);
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
    tables.each(&mut |frame, size| frames.free(frame, size));
}
