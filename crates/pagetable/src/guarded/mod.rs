//! Guarded page tables (Liedtke 1993 and 1996; E99 §2.3 and §3.2).
//!
//! ```text
//!   va   | guard |index| guard |index|  guard  | which of 2 | offset |
//!            =      |      =      |       =          |
//!   root [ptr|guard]-> node       |                  |
//!                    [ptr|guard]--+-> node           |
//!                    [    ..   ]     [ptr|guard] --> external node
//!                                    [    ..   ]    [PTE PTE | mapping tree x 2]
//!
//!      63                                                   0
//!     +------------------------------------------------------+
//!     |            node or external node, 0 if empty         |   pointer
//!     +---------------------------+---------+-------+----+---+
//!     |  address bits             | shift-1 | index |pair| 0 |   guard
//!     +---------------------------+---------+-------+----+---+
//!      63                       12 11      6 5     2  1    0
//! ```
//!
//! An entry is valid for the addresses that agree with its guard in all bits from `shift` up. The
//! node to which it leads is indexed by the next `index` bits below `shift`. If `index` is 0, the
//! entry leads to an external node, with a pair of base pages or one superpage. The guard includes
//! the bits that previous indices have checked. One comparison per entry is therefore enough, and
//! an entry can move up or down the tree unchanged.
//!
//! There is a node exactly where the addresses of mapped pages diverge, so that every node holds at
//! least two entries. When the address of a new page differs from a guard at some bit, a new node
//! splits the guard at this bit. When only one entry of a node is left, this entry replaces the
//! entry that leads to the node, which merges two guards.
//!
//! In a table Gn, the lowest index bit of every node is a multiple of log2 n. In an adaptive table
//! ([`Guarded::adaptive`]) nodes have any position and size. Walks of a superpage end early, at an
//! entry of a node further up. If the superpage covers several places of this node, each of these
//! places has the entry, and all of them lead to one external node with one set of usage bits.
//!
//! Processors may not walk the table while it is changed
//! ([`crate::PageTable::walks_beside_changes`]). An entry is two words, which [`Memory`] writes one
//! after the other. A walk between the two writes would combine the new pointer with the old guard,
//! or the old pointer with the new guard.

mod adapt;
mod edit;
mod entry;
mod resize;
mod walk;

use alloc::vec::Vec;

use addr::{Frames, Kind, Memory, Page, PageSize, PhysAddr, VirtAddr, VirtRange};

use crate::pages::{Found, Pages, Run};
use crate::pool::Pool;
use crate::pte::{Pte, Width};
use crate::spaces::Spaces;
use crate::{
    Error, Fault, Flush, Footprint, Geometry, Mapping, Reference, Space, Translation, Tree,
};

use edit::Removed;
use entry::{ALL_SHIFT, ENTRY_BYTES, Entry, PAIR_SHIFT, Table};

const PTE: Width = Width::Narrow;
const NODE_ENTRIES_MIN: u64 = 2;
const NODE_ENTRIES_MAX: u64 = 256;
const INDEX_BITS_MAX: usize = 8;
/// The distance in bytes from a page's entry to its note.
const NOTE: u64 = 8;
const PAGE_SHIFTS: core::ops::RangeInclusive<u8> = 12..=30;

/// A guarded page table, with all of its spaces, for pages of every power of two from 4 KiB to
/// 1 GiB.
#[derive(Debug)]
pub struct Guarded {
    /// Index bits of each node begin at a multiple of this many bits.
    index_bits: u32,
    adaptive: bool,
    walk_sets_usage: bool,
    sizes: Vec<PageSize>,
    spaces: Spaces<Pools>,
}

/// The nodes of a space, in one pool for each number of index bits. The pool for 0 bits has
/// external nodes and the root entry.
type Pools = [Pool; INDEX_BITS_MAX + 1];

impl Guarded {
    /// The table G`node_entries` of E99: every node has `node_entries` entries, 2 to 256.
    pub fn new(node_entries: u64) -> Result<Guarded, Geometry> {
        Geometry::power_of_two(
            "entries in a node",
            node_entries,
            NODE_ENTRIES_MIN,
            NODE_ENTRIES_MAX,
        )?;
        Ok(Guarded {
            index_bits: node_entries.trailing_zeros(),
            adaptive: false,
            walk_sets_usage: false,
            sizes: PAGE_SHIFTS.filter_map(PageSize::from_shift).collect(),
            spaces: Spaces::new(),
        })
    }

    /// A table whose nodes have 2 to 256 entries each, depending on the mapped pages: as many as
    /// possible without taking more memory than nodes of two entries, except for a small tolerance.
    pub fn adaptive() -> Guarded {
        let table = Guarded::new(NODE_ENTRIES_MIN).expect("nodes of two entries can be");
        Guarded { adaptive: true, ..table }
    }

    /// This table, with walks that set the usage bits.
    pub fn with_usage(self) -> Guarded {
        Guarded { walk_sets_usage: true, ..self }
    }

    fn pools(&mut self, space: Space) -> &mut Pools {
        self.spaces.own_mut(space)
    }

    /// The number of frames that hold nodes of `space`.
    fn frames_in_pools(&self, space: Space) -> usize {
        self.spaces.own(space).map_or(0, |pools| pools.iter().map(Pool::frames).sum())
    }

    /// The root entry, represented as a node of one entry.
    const fn root_table(space: Space) -> Table {
        Table { start: space.root(), shift: ALL_SHIFT, low: ALL_SHIFT }
    }

    /// The level of nodes whose lowest index bit is `low`; external nodes have level 1.
    #[inline]
    const fn level(&self, low: u32) -> u8 {
        2 + (low - PAIR_SHIFT).div_ceil(self.index_bits) as u8
    }

    /// The lowest index bit of nodes of `level`.
    #[inline]
    const fn low(&self, level: u8) -> u32 {
        let low = PAIR_SHIFT + (level as u32 - 2) * self.index_bits;
        if low < ALL_SHIFT { low } else { ALL_SHIFT }
    }

    /// Appends to `found` the pages in `range` below `table`.
    fn gather_table(
        &self,
        table: Table,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Found),
    ) {
        let bits = (table.len() - 1).checked_shl(table.low).unwrap_or(0);
        let index = |addr: VirtAddr| (addr.get() & bits).checked_shr(table.low).unwrap_or(0);
        let mut before = None;
        for index in index(range.start())..=index(range.last()) {
            let entry = Entry::read(table.nth(index), memory);
            if let Some(entry) = entry.filter(|_| entry != before)
                && let Some(part) = entry.range().intersection(range)
            {
                match entry.table() {
                    Some(next) => self.gather_table(next, part, memory, each),
                    None => gather_external(entry, part, memory, each),
                }
            }
            before = entry;
        }
    }
}

/// The address of the note of the page whose entry lies at `at`.
const fn note_at(at: PhysAddr) -> PhysAddr {
    at.wrapping_add(NOTE)
}

/// Appends to `found` the pages in `range` of an external node.
fn gather_external(
    entry: Entry,
    range: VirtRange,
    memory: &impl Memory,
    each: &mut impl FnMut(Found),
) {
    let (first, _) = entry.page(range.start());
    for page in range.pages(first.size()) {
        let (page, at) = entry.page(page.start());
        let pte = PTE.read(at, memory);
        if pte.is_mapped() {
            each(Found::new(page, at, pte));
        }
    }
}

impl Pages for Guarded {
    type Own = Pools;

    fn sizes(&self) -> &[PageSize] {
        &self.sizes
    }

    fn width(&self) -> Width {
        PTE
    }

    fn keeps_notes(&self) -> bool {
        true
    }

    fn note_at(&self, found: &Found) -> Option<PhysAddr> {
        Some(note_at(found.at))
    }

    fn spaces(&self) -> &Spaces<Pools> {
        &self.spaces
    }

    fn spaces_mut(&mut self) -> &mut Spaces<Pools> {
        &mut self.spaces
    }

    fn open(
        &mut self,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<(PhysAddr, Pools), Error> {
        let mut pools: Pools = core::array::from_fn(|bits| Pool::new(ENTRY_BYTES << bits));
        let root = pools[0].take(frames)?;
        Entry::write(None, root, memory);
        Ok((root, pools))
    }

    fn close(&mut self, _space: Space, own: Pools, _memory: &mut impl Memory, flush: &mut Flush) {
        for pool in own {
            pool.put_all(flush);
        }
    }

    fn find(&self, space: Space, addr: VirtAddr, memory: &impl Memory) -> Option<Found> {
        let mut table = Guarded::root_table(space);
        loop {
            let entry = Entry::read(table.entry_at(addr), memory)?;
            if entry.mismatch(addr).is_some() {
                return None;
            }
            match entry.table() {
                Some(next) => table = next,
                None => {
                    let (page, at) = entry.page(addr);
                    let pte = PTE.read(at, memory);
                    return pte.is_mapped().then_some(Found::new(page, at, pte));
                }
            }
        }
    }

    fn gather(
        &self,
        space: Space,
        range: VirtRange,
        memory: &impl Memory,
        each: &mut impl FnMut(Found),
    ) {
        self.gather_table(Guarded::root_table(space), range, memory, each);
    }

    fn frees_max(&self, space: Space, pages: usize) -> usize {
        let frames = self.frames_in_pools(space);
        // The removal of a page can remove three nodes: the pair of the page, the node above if one
        // entry is left in it, and a node that is split into nodes of two entries.
        frames.min(pages.saturating_mul(3))
    }

    fn frames_of(&self, space: Space, _memory: &impl Memory) -> usize {
        self.frames_in_pools(space)
    }

    fn insert(
        &mut self,
        space: Space,
        run: &Run<'_>,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<(), Error> {
        self.add_all(space, run, memory, frames, flush)
    }

    fn replace(
        &mut self,
        space: Space,
        before: &[Page],
        after: &[Translation],
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) -> Result<Vec<Mapping>, Error> {
        self.replace_pages(space, before, after, memory, frames, flush)
    }

    fn remove(
        &mut self,
        space: Space,
        page: Page,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) -> Pte {
        let Removed { last, from } = self.take_out(space, page, memory, flush);
        if self.adaptive
            && let Some(from) = from
        {
            self.take_apart(space, from, memory, flush);
        }
        last
    }

    #[inline]
    fn look_up(
        &self,
        space: Space,
        addr: VirtAddr,
        kind: Kind,
        memory: &mut impl Memory,
        each: &mut impl FnMut(Reference),
    ) -> Result<Translation, Fault> {
        self.walk_from(self.root(space), addr, kind, memory, each)
    }

    fn taken_by(&self, own: &Pools) -> Footprint {
        own.iter().map(Pool::footprint).sum()
    }
}
