//! Replicated pages: a large page entered once for each of its base pages (Talluri, Hill, Khalidi
//! 1995; B10 §5.1).
//!
//! ```text
//!   2M page at va:   va          va + 4K      va + 8K            ...
//!                     |            |            |
//!                  bucket       bucket       bucket     512 copies, where base pages would be;
//!                  [2M PTE]     [2M PTE]     [2M PTE]   each has the page's size in its tag
//! ```
//!
//! A walk does not know the size of the page for which it searches, but finds a replicated page at
//! the first attempt. The disadvantages are that the table is as large and as scattered as with
//! base pages, and that an operation on a page changes all of its copies. A walk sets usage bits in
//! the copy that it finds; the usage of the page combines the usage of all copies.

use addr::{Frames, Memory, Page, VirtAddr};

use super::Hashed;
use super::layout::BASE;
use crate::pages::{Found, exchange, write_note};
use crate::pte::Pte;
use crate::{Error, Flush, Space, Translation};

/// The addresses for which a page has copies. Copies are removed from the last to the first, so
/// that the first copy in an entry keeps the entry in use until the end.
fn copies(page: Page) -> impl DoubleEndedIterator<Item = VirtAddr> {
    let count = page.size().count_of(BASE);
    (0..count).map(move |n| page.start().wrapping_add(n * BASE.bytes()))
}

impl Hashed {
    /// Inserts all copies of a page, or none.
    pub(super) fn enter_copies(
        &mut self,
        space: Space,
        page: (Translation, u32),
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(), Error> {
        for addr in copies(page.0.page) {
            if let Err(error) = self.enter(space, page, addr, memory, frames) {
                let size = page.0.page.size();
                for addr in copies(page.0.page).rev() {
                    let mut undone = Flush::nothing(space);
                    self.take_out(space, (addr, size), memory, &mut undone);
                    undone.done(frames);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Removes the existing copies of a page. Returns the page's old entry, with the usage of all
    /// copies.
    pub(super) fn take_out_copies(
        &mut self,
        space: Space,
        page: Page,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) -> Option<Pte> {
        let gone = copies(page).rev();
        let size = page.size();
        let gone = gone.filter_map(|addr| self.take_out(space, (addr, size), memory, flush));
        gone.reduce(|pte, copy| pte.with_usage(copy.usage()))
    }

    /// Exchanges all copies of a page as [`exchange`] does for one entry. Returns the page's old
    /// entry, if a copy changed.
    pub(super) fn exchange_copies(
        &self,
        space: Space,
        found: Found,
        memory: &mut impl Memory,
        new: impl Fn(Pte) -> Option<Pte>,
    ) -> Option<Pte> {
        let mut before = None;
        for addr in copies(found.page) {
            if let Some((_, copy)) = self.locate_sized(space, addr, found.page.size(), memory) {
                before = exchange(self.layout.width(), copy, memory, &new).or(before);
            }
        }
        before.map(|before| before.with_usage(found.pte.usage()))
    }

    /// Writes the note beside all copies of a page.
    pub(super) fn write_notes(
        &self,
        space: Space,
        page: Page,
        note: u32,
        memory: &mut impl Memory,
    ) {
        for addr in copies(page) {
            if let Some((_, copy)) = self.locate_sized(space, addr, page.size(), memory) {
                write_note(self, &copy, note, memory);
            }
        }
    }

    /// `found` with the usage of all copies, if the page is replicated.
    pub(super) fn with_usage(&self, space: Space, found: Found, memory: &impl Memory) -> Found {
        if !self.layout.is_replicated(found.page.size()) {
            return found;
        }
        let size = found.page.size();
        let copies =
            copies(found.page).filter_map(|addr| self.locate_sized(space, addr, size, memory));
        let pte = copies.fold(found.pte, |pte, (_, copy)| pte.with_usage(copy.pte.usage()));
        Found { pte, ..found }
    }
}
