//! Nodes are inserted where the addresses of pages diverge, and removed where the addresses no
//! longer diverge.
//!
//! ```text
//!   insert 0110 beside a guard of 0101:        remove 0110 again:
//!
//!     [a|0101]   -->   [n|01]                  the node has one entry left,
//!                        n: [b|0110]           which moves up to where
//!                           [a|0101]           the node was: [a|0101]
//! ```

use alloc::collections::TryReserveError;

use addr::{Frames, Memory, Page, PhysAddr, VirtAddr, VirtRange};

use super::entry::{ALL_SHIFT, Entry, PAIR_SHIFT, Table};
use super::{Guarded, PTE, note_at};
use crate::few::Few;
use crate::pages::{Found, Run, exchange};
use crate::pte::Pte;
use crate::{Error, Flush, Space, Translation};

/// The end of the path to an address.
pub(super) struct End {
    /// The last node on the path.
    pub(super) table: Table,
    /// The address of the entry that leads to `table`; for the root, the address of the root
    /// entry itself.
    from: PhysAddr,
    pub(super) entry: Option<Entry>,
}

/// The addresses of the entries on a path, from the root downwards.
pub(super) type Places = Few<PhysAddr, 16>;

/// A page that was removed.
pub(super) struct Removed {
    /// The last value of the page's entry.
    pub(super) last: Pte,
    /// The address of the entry that leads to the node from which the page was removed, if that
    /// node still exists.
    pub(super) from: Option<PhysAddr>,
}

impl Guarded {
    /// Maps all pages of `run`, or no page if one of them is refused. None of them may be mapped
    /// already.
    ///
    /// Nodes grow only after the last page was mapped, so that a refused page leaves all nodes
    /// unchanged.
    pub(super) fn add_all(
        &mut self,
        space: Space,
        run: &Run<'_>,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<(), Error> {
        let mut parted = Few::<Option<Page>, 1>::new(None);
        for (n, (page, note)) in run.noted_pages().enumerate() {
            let room = parted.prepare().map_err(Error::from);
            match room.and_then(|()| self.add(space, page, note, memory, frames)) {
                Ok(false) => {}
                Ok(true) => parted.push(Some(page.page))?,
                Err(error) => {
                    for page in run.pages().take(n).rev() {
                        let mut undone = Flush::nothing(space);
                        self.take_out(space, page.page, memory, &mut undone);
                        undone.done(frames);
                    }
                    return Err(error);
                }
            }
        }
        for page in parted.iter().flatten() {
            flush.move_tables(VirtRange::of_page(page));
            if self.adaptive {
                self.grow(space, page.start(), memory, frames, flush);
            }
        }
        Ok(())
    }

    /// Maps a page that is not mapped. Returns whether a new node was inserted on the path to it.
    fn add(
        &mut self,
        space: Space,
        translation: Translation,
        note: u32,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<bool, Error> {
        let Translation { page, frame, rights, global, .. } = translation;
        let pte = PTE.pte(frame, rights, global);
        let addr = page.start();
        let End { table, entry, .. } = end(space, addr, memory);
        if let Some(entry) = entry.filter(|entry| entry.mismatch(addr).is_none()) {
            // The external node exists already, because the other page of the pair is mapped.
            write_page(entry, addr, (pte, note), memory);
            return Ok(false);
        }
        let external = self.take(space, 0, frames)?;
        let leaf = Entry::leaf(external, page);
        if let Some(entry) = entry
            && let Some(differing) = entry.mismatch(addr)
        {
            let mut split = self.table_around(differing);
            split.start = match self.take(space, split.index_bits(), frames) {
                Ok(start) => start,
                Err(error) => {
                    let mut unused = Flush::nothing(space);
                    self.pools(space)[0].put(external, &mut unused);
                    unused.done(frames);
                    return Err(error);
                }
            };
            write_external(leaf, addr, (pte, note), memory);
            for index in 0..split.len() {
                Entry::write(None, split.nth(index), memory);
            }
            split.fill(entry, Some(entry), memory);
            split.fill(leaf, Some(leaf), memory);
            Entry::write(Some(Entry::node(split, addr)), table.entry_at(addr), memory);
            return Ok(true);
        }
        write_external(leaf, addr, (pte, note), memory);
        table.fill(leaf, Some(leaf), memory);
        Ok(false)
    }

    /// Unmaps a page that is mapped.
    pub(super) fn take_out(
        &mut self,
        space: Space,
        page: Page,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) -> Removed {
        let End { table, from, entry } = end(space, page.start(), memory);
        let leaf = entry.expect("the page has an entry");
        let (page, at) = leaf.page(page.start());
        let found = Found::new(page, at, PTE.read(at, memory));
        let last = exchange(PTE, found, memory, |_| Some(Pte::EMPTY)).unwrap_or(found.pte);
        if PTE.read(other_of_pair(at), memory).is_mapped() {
            return Removed { last, from: None };
        }
        table.fill(leaf, None, memory);
        self.pools(space)[0].put(leaf.pointer, flush);
        let mut left = table.entries(memory);
        let (one, more) = (left.next(), left.next());
        drop(left);
        if table.low == ALL_SHIFT {
            return Removed { last, from: None };
        }
        if more.is_some() {
            return Removed { last, from: Some(from) };
        }
        Entry::write(one, from, memory);
        self.pools(space)[table.index_bits() as usize].put(table.start, flush);
        Removed { last, from: None }
    }

    /// The position of a node that distinguishes two addresses whose highest differing bit is
    /// `differing`.
    pub(super) fn table_around(&self, differing: u32) -> Table {
        let low = differing - (differing - PAIR_SHIFT) % self.index_bits;
        let shift = (low + self.index_bits).min(ALL_SHIFT);
        Table { start: PhysAddr::new(0), shift, low }
    }

    pub(super) fn take(
        &mut self,
        space: Space,
        index_bits: u32,
        frames: &mut impl Frames,
    ) -> Result<PhysAddr, Error> {
        self.pools(space)[index_bits as usize].take(frames)
    }
}

/// Follows the entries for `addr` as far as their guards match.
pub(super) fn end(space: Space, addr: VirtAddr, memory: &impl Memory) -> End {
    let mut table = Guarded::root_table(space);
    let mut from = table.start;
    loop {
        let at = table.entry_at(addr);
        let entry = Entry::read(at, memory);
        let next = entry.filter(|entry| entry.mismatch(addr).is_none()).and_then(Entry::table);
        match next {
            Some(next) => (table, from) = (next, at),
            None => return End { table, from, entry },
        }
    }
}

/// The addresses of the entries on the path to `addr` that lead to nodes, starting with the root
/// entry.
pub(super) fn places(
    space: Space,
    addr: VirtAddr,
    memory: &impl Memory,
) -> Result<Places, TryReserveError> {
    let mut table = Guarded::root_table(space);
    let mut places = Places::new(PhysAddr::new(0));
    loop {
        let at = table.entry_at(addr);
        let entry = Entry::read(at, memory).filter(|entry| entry.mismatch(addr).is_none());
        let Some(next) = entry.and_then(Entry::table) else { return Ok(places) };
        places.push(at)?;
        table = next;
    }
}

/// Fills a new external node with the entry and note of one page, and zeros for its other page.
pub(super) fn write_external(
    leaf: Entry,
    addr: VirtAddr,
    page: (Pte, u32),
    memory: &mut impl Memory,
) {
    memory.zero(leaf.pointer, 16);
    write_page(leaf, addr, page, memory);
}

/// Writes the entry and the note of the page that holds `addr` to an external node.
pub(super) fn write_page(
    leaf: Entry,
    addr: VirtAddr,
    (pte, note): (Pte, u32),
    memory: &mut impl Memory,
) {
    let (_, at) = leaf.page(addr);
    memory.write_u32(note_at(at), note);
    PTE.write(at, pte, memory);
}

/// The address of the other page entry of an external node of two pages; in the node of one
/// superpage it is unused.
const fn other_of_pair(at: PhysAddr) -> PhysAddr {
    PhysAddr::new(at.get() ^ 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of any fixed size divide the 51 address bits above a pair without gap or overlap.
    #[test]
    fn nodes_stand_at_fixed_places() {
        for index_bits in 1..=8 {
            let table = Guarded::new(1 << index_bits).unwrap();
            let mut low = PAIR_SHIFT;
            for differing in PAIR_SHIFT..ALL_SHIFT {
                let around = table.table_around(differing);
                if differing == around.shift - 1 {
                    assert_eq!(around.low, low);
                    low = around.shift;
                }
                assert!(around.low <= differing && differing < around.shift);
                assert_eq!(table.low(table.level(around.low)), around.low);
            }
            assert_eq!(low, ALL_SHIFT);
        }
    }
}
