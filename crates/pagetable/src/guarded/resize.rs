//! Changes of page sizes in place: the new nodes are built first, and then one entry is changed so
//! that it leads to them.
//!
//! ```text
//!   split   [a|2M] --> external            the entry of the superpage leads to a new node instead:
//!             |                            every address is mapped by the one or by the other
//!           [n|2M] --> n: [b|4K] [c|4K] ...
//!
//!   merge   [n|2M] --> n: [b|4K] [c|4K] ...   and back, to an external node of one page
//! ```
//!
//! If a superpage takes up several places of a node, the places are changed one after the other.
//! The old external node stays until no entry leads to it; only then are its usage bits read for
//! the last time.

use alloc::vec::Vec;

use addr::{Frames, Memory, Page, PhysAddr, VirtRange};

use super::edit::{end, places, write_external, write_page};
use super::entry::{Entry, PAIR_SHIFT, Table};
use super::{Guarded, PTE, gather_external};
use crate::pages::{Found, exchange};
use crate::pte::Pte;
use crate::{Error, Flush, Mapping, Space, Translation};

/// A change of an entry.
enum Change {
    /// Write the entry to all places in the node that it covers.
    Fill(Table, Entry),
    /// Write the entry to this address.
    Put(PhysAddr, Entry),
}

/// A prepared replacement: applying it cannot fail.
#[derive(Default)]
struct Prepared {
    changes: Vec<Change>,
    /// The entries whose nodes are unlinked by the changes.
    gone: Vec<Entry>,
    /// The nodes that were allocated, with the number of their index bits.
    taken: Vec<(PhysAddr, u32)>,
}

/// Adds an element to a list. If no memory is left, the list does not change.
fn add<T>(list: &mut Vec<T>, element: T) -> Result<(), Error> {
    list.try_reserve(1)?;
    list.push(element);
    Ok(())
}

impl Guarded {
    /// See [`crate::pages::Pages::replace`].
    pub(super) fn replace_pages(
        &mut self,
        space: Space,
        before: &[Page],
        after: &[Translation],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<Vec<Mapping>, Error> {
        let mut prepared = Prepared::default();
        let (mut last, mut found) = (Vec::new(), Vec::<Found>::new());
        let room = last.try_reserve_exact(before.len());
        let room = room.and_then(|()| found.try_reserve_exact(before.len())).map_err(Error::from);
        if let Err(error) =
            room.and_then(|()| self.prepare(space, (before, after), memory, frames, &mut prepared))
        {
            for (node, bits) in prepared.taken {
                let mut unused = Flush::nothing(space);
                self.pools(space)[bits as usize].put(node, &mut unused);
                unused.done(frames);
            }
            return Err(error);
        }
        for change in prepared.changes {
            match change {
                Change::Fill(table, entry) => table.fill(entry, Some(entry), memory),
                Change::Put(at, entry) => Entry::write(Some(entry), at, memory),
            }
        }
        for &entry in &prepared.gone {
            found.clear();
            let each = &mut |page| found.push(page);
            match entry.table() {
                Some(table) => self.gather_table(table, entry.range(), memory, each),
                None => gather_external(entry, entry.range(), memory, each),
            }
            for &found in &found {
                let pte = exchange(PTE, found, memory, |_| Some(Pte::EMPTY)).unwrap_or(found.pte);
                last.push(PTE.mapping(pte, found.page));
            }
        }
        if self.adaptive {
            self.adapt(space, after, memory, frames, flush);
        }
        for entry in prepared.gone {
            self.put_below(space, entry, memory, flush);
        }
        Ok(last)
    }

    /// Lets the nodes around new pages adapt their size.
    fn adapt(
        &mut self,
        space: Space,
        after: &[Translation],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) {
        for page in after {
            let addr = page.page.start();
            self.grow(space, addr, memory, frames, flush);
            let last =
                places(space, addr, memory).ok().and_then(|places| places.iter().next_back());
            if let Some(place) = last {
                self.take_apart(space, place, memory, flush);
            }
        }
    }

    /// Builds the replacement. The nodes allocated for it are in `prepared`, even after an error.
    fn prepare(
        &mut self,
        space: Space,
        (mut before, mut after): (&[Page], &[Translation]),
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        prepared: &mut Prepared,
    ) -> Result<(), Error> {
        while let (Some(&old), Some(&new)) = (before.first(), after.first()) {
            // Either one larger page is replaced by several smaller pages, or several smaller pages
            // by one larger page.
            let (old_count, new_count) = match old.size() > new.page.size() {
                true => (1, old.size().count_of(new.page.size()) as usize),
                false => {
                    let range = VirtRange::of_page(new.page);
                    let inside = |page: &&Page| range.contains(page.start());
                    (before.iter().take_while(inside).count(), 1)
                }
            };
            let (old, new) = (before[0], &after[..new_count]);
            if new_count > 1 {
                self.prepare_split(space, old, new, memory, frames, prepared)?;
            } else {
                self.prepare_merge(space, new[0], memory, frames, prepared)?;
            }
            (before, after) = (&before[old_count..], &after[new_count..]);
        }
        Ok(())
    }

    fn prepare_split(
        &mut self,
        space: Space,
        old: Page,
        new: &[Translation],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        prepared: &mut Prepared,
    ) -> Result<(), Error> {
        let way = end(space, old.start(), memory);
        let (table, leaf) = (way.table, way.entry.expect("the page has an entry"));
        let same_place = |a: &Translation, b: &Translation| {
            let place = |page: &Translation| page.page.start().get().checked_shr(table.low);
            place(a) == place(b)
        };
        for pages in new.chunk_by(same_place) {
            let entry = self.build(space, pages, memory, frames, prepared)?;
            add(&mut prepared.changes, Change::Fill(table, entry))?;
        }
        add(&mut prepared.gone, leaf)?;
        Ok(())
    }

    fn prepare_merge(
        &mut self,
        space: Space,
        new: Translation,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        prepared: &mut Prepared,
    ) -> Result<(), Error> {
        let entry = self.build(space, &[new], memory, frames, prepared)?;
        let (addr, shift) = (new.page.start(), new.page.size().shift());
        let range = VirtRange::of_page(new.page);
        let mut table = Guarded::root_table(space);
        let mut from = table.start;
        loop {
            let at = table.entry_at(addr);
            let there = Entry::read(at, memory).expect("the parts have entries");
            match there.table().filter(|next| next.shift > shift) {
                Some(next) => (table, from) = (next, at),
                // All pages below this entry are parts of the new page.
                None if table.low >= shift => {
                    add(&mut prepared.changes, Change::Put(at, entry))?;
                    add(&mut prepared.gone, there)?;
                    return Ok(());
                }
                None => break,
            }
        }
        let is_inside = |entry: &Entry| range.covers(entry.range());
        // The new page would be the only entry of this node, and nodes with one entry are removed.
        if table.entries(memory).all(|entry| is_inside(&entry)) {
            if let Some(entry) = Entry::read(from, memory) {
                add(&mut prepared.gone, entry)?;
            }
            add(&mut prepared.changes, Change::Put(from, entry))?;
        } else {
            for inside in table.entries(memory).filter(is_inside) {
                add(&mut prepared.gone, inside)?;
            }
            add(&mut prepared.changes, Change::Fill(table, entry))?;
        }
        Ok(())
    }

    /// Builds nodes for `pages`, which are adjacent and of one size, and returns the entry that
    /// leads to them.
    fn build(
        &mut self,
        space: Space,
        pages: &[Translation],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        prepared: &mut Prepared,
    ) -> Result<Entry, Error> {
        let (first, last) = (pages[0].page.start(), pages[pages.len() - 1].page.start());
        let differing = (first.get() ^ last.get()).checked_ilog2();
        let Some(differing) = differing.filter(|&bit| bit >= PAIR_SHIFT) else {
            return self.build_external(space, pages, memory, frames, prepared);
        };
        let mut node = self.table_around(differing);
        node.start = self.take_for(space, node.index_bits(), frames, prepared)?;
        for index in 0..node.len() {
            Entry::write(None, node.nth(index), memory);
        }
        let same_place = |a: &Translation, b: &Translation| {
            let place = |page: &Translation| page.page.start().get() >> node.low;
            place(a) == place(b)
        };
        for pages in pages.chunk_by(same_place) {
            let entry = self.build(space, pages, memory, frames, prepared)?;
            node.fill(entry, Some(entry), memory);
        }
        Ok(Entry::node(node, first))
    }

    /// An external node for one page, or for both of a pair.
    fn build_external(
        &mut self,
        space: Space,
        pages: &[Translation],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        prepared: &mut Prepared,
    ) -> Result<Entry, Error> {
        let external = self.take_for(space, 0, frames, prepared)?;
        let leaf = Entry::leaf(external, pages[0].page);
        let pte = |page: &Translation| (PTE.pte(page.frame, page.rights, page.global), 0);
        write_external(leaf, pages[0].page.start(), pte(&pages[0]), memory);
        for page in &pages[1..] {
            write_page(leaf, page.page.start(), pte(page), memory);
        }
        Ok(leaf)
    }

    fn take_for(
        &mut self,
        space: Space,
        index_bits: u32,
        frames: &mut impl Frames,
        prepared: &mut Prepared,
    ) -> Result<PhysAddr, Error> {
        prepared.taken.try_reserve(1)?;
        let node = self.take(space, index_bits, frames)?;
        prepared.taken.push((node, index_bits));
        Ok(node)
    }

    /// Returns the nodes behind `entry` to their pools.
    fn put_below(&mut self, space: Space, entry: Entry, memory: &impl Memory, flush: &mut Flush) {
        let Some(table) = entry.table() else {
            self.pools(space)[0].put(entry.pointer, flush);
            return;
        };
        for entry in table.entries(memory) {
            self.put_below(space, entry, memory, flush);
        }
        self.pools(space)[table.index_bits() as usize].put(table.start, flush);
    }
}
