//! Nodes whose size adapts to the mapped pages.
//!
//! ```text
//!      [ . . ]            [ . . . . ]       grow: a node absorbs the nodes just below it
//!       /   \      <-->    / / \ \          if together they take hardly more bytes
//!    [a b] [c d]          a b   c d         take apart: a node too large for what is left in it
//! ```
//!
//! When the address of a new page diverges from the address of a mapped page, a node of two
//! entries, the smallest size, is inserted at the bit where they diverge. That node and the nodes
//! above it may then grow. A node of `2^k` entries that grows to `2^(k+j)` entries absorbs and
//! frees the nodes whose index bits it takes over. It grows by the largest `j` for which the nodes
//! together take at most one eighth more bytes than before, and at most 128 bytes more. If pages
//! are sparse, the table therefore takes less memory than a table whose nodes all have two entries,
//! which is the best fixed size for sparse pages. If pages are dense, its nodes are full and large.
//! The extra eighth shortens walks: nodes near the root are few, and every walk passes them.

use alloc::vec::Vec;

use addr::{Frames, Memory, PhysAddr, VirtAddr};

use super::edit::places;
use super::entry::{ENTRY_BYTES, Entry, PAIR_SHIFT, Table};
use super::{Guarded, INDEX_BITS_MAX};
use crate::{Flush, Space};

/// When a node grows, the additional memory may be at most one eighth of the bytes taken before.
const SLACK_PART: u64 = 8;
/// When a node grows, the additional memory may be at most this many bytes. The bound results from
/// measurements on the spaces of the tests. Without any additional memory, refilling the TLB for
/// programs takes more references than with the table G16. Without this bound, some sparse spaces
/// take more memory than with nodes of the best fixed size.
const SLACK_BYTES_MAX: u64 = 128;

/// The planned growth of a node: the nodes that it absorbs, and the parts that would remain of
/// them.
struct Growth<'a> {
    grown: Table,
    /// The entries of the grown node.
    entries: &'a [Entry],
    /// The nodes that are removed, including the smaller node that grows.
    nodes: Vec<Table>,
    /// New nodes for the remaining parts of nodes that are absorbed only in part.
    parts: Vec<Table>,
    /// Whether one of the lists is incomplete because no memory was left.
    is_short: bool,
}

impl Guarded {
    /// Lets the nodes on the path to `addr` grow, from the lowest upwards. A node does not grow if
    /// no frame is free for it.
    ///
    /// Removed nodes return to the pool only at the end, so that no removed node is reused before
    /// the token is returned; frames that become empty are in the token.
    pub(super) fn grow(
        &mut self,
        space: Space,
        addr: VirtAddr,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
        flush: &mut Flush,
    ) {
        let mut gone: Vec<Table> = Vec::new();
        let Ok(places) = places(space, addr, memory) else { return };
        for (n, place) in places.iter().rev().enumerate() {
            let has_grown = self.grow_node(space, place, (&mut gone, flush), memory, frames);
            // The lowest node is new, and the node above it has a new entry. A node further up can
            // only grow if the node below it has grown.
            if !has_grown && n > 0 {
                break;
            }
        }
        if let Some(top) = gone.iter().max_by_key(|table| table.shift) {
            flush.move_tables(Entry::node(*top, addr).range());
        }
        for table in gone {
            self.pools(space)[table.index_bits() as usize].put(table.start, flush);
        }
    }

    /// Lets the node behind the entry at `place` grow, if the grown node satisfies the bound on
    /// memory and if memory and frames are left. Adds the nodes that it replaces to `gone`. Returns
    /// whether the node has grown.
    fn grow_node(
        &mut self,
        space: Space,
        place: PhysAddr,
        (gone, flush): (&mut Vec<Table>, &mut Flush),
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> bool {
        let Some(table) = Entry::read(place, memory).and_then(Entry::table) else { return false };
        let Some(entries) = collected(table, memory) else { return false };
        let lowest = table.shift.saturating_sub(INDEX_BITS_MAX as u32).max(PAIR_SHIFT);
        for low in lowest..table.low {
            let growth = Growth::new(table, low, &entries, memory);
            if growth.is_short {
                return false;
            }
            if growth.bytes_after() <= growth.bytes_max() {
                let count = growth.nodes.len();
                let has_room = gone.try_reserve(count).is_ok()
                    && flush.try_reserve(gone.len() + count).is_ok();
                if !has_room || !self.replace(space, place, &growth, memory, frames) {
                    return false;
                }
                gone.extend(&growth.nodes);
                return true;
            }
        }
        false
    }

    /// Replaces the node behind the entry at `place` by its grown version; the nodes in
    /// `growth.nodes` are then no longer linked. Returns false, without a change, if no frame or
    /// memory is left.
    fn replace(
        &mut self,
        space: Space,
        place: PhysAddr,
        growth: &Growth<'_>,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> bool {
        let Growth { mut grown, entries, ref parts, .. } = *growth;
        let wanted = core::iter::once(grown).chain(parts.iter().copied());
        let Some(starts) = self.take_all(space, wanted, frames) else { return false };
        grown.start = starts[0];
        for index in 0..grown.len() {
            Entry::write(None, grown.nth(index), memory);
        }
        let mut parts = starts[1..].iter();
        for &entry in entries {
            scatter(grown, entry, &mut parts, memory);
        }
        Entry::write(Some(Entry::node(grown, entries[0].start())), place, memory);
        true
    }

    /// Allocates nodes for all of `wanted`, or none.
    fn take_all(
        &mut self,
        space: Space,
        wanted: impl Iterator<Item = Table> + Clone,
        frames: &mut impl Frames,
    ) -> Option<Vec<PhysAddr>> {
        let mut starts = Vec::new();
        starts.try_reserve_exact(wanted.clone().count()).ok()?;
        for table in wanted.clone() {
            match self.pools(space)[table.index_bits() as usize].take(frames) {
                Ok(start) => starts.push(start),
                Err(_) => {
                    for (start, table) in starts.into_iter().zip(wanted) {
                        let mut unused = Flush::nothing(space);
                        self.pools(space)[table.index_bits() as usize].put(start, &mut unused);
                        unused.done(frames);
                    }
                    return None;
                }
            }
        }
        Some(starts)
    }

    /// Splits the node behind the entry at `place` into nodes of two entries, if these nodes take
    /// fewer bytes and are free in the pool.
    pub(super) fn take_apart(
        &mut self,
        space: Space,
        place: PhysAddr,
        memory: &mut impl Memory,
        flush: &mut Flush,
    ) {
        let Some(table) = Entry::read(place, memory).and_then(Entry::table) else { return };
        let Some(entries) = collected(table, memory) else { return };
        let nodes = entries.len() as u64 - 1;
        if 2 * nodes >= table.len()
            || self.pools(space)[1].free() < nodes
            || flush.try_reserve(1).is_err()
        {
            return;
        }
        let whole = self.binary(space, &entries, memory);
        Entry::write(Some(whole), place, memory);
        self.pools(space)[table.index_bits() as usize].put(table.start, flush);
    }

    /// Builds a tree of nodes of two entries over `entries`, which ascend, from free nodes of the
    /// pool.
    fn binary(&mut self, space: Space, entries: &[Entry], memory: &mut impl Memory) -> Entry {
        let (first, last) = (entries[0], entries[entries.len() - 1]);
        let differing = first.start().get() ^ last.start().get();
        let Some(bit) = differing.checked_ilog2() else { return first };
        let start = self.pools(space)[1].take_free().expect("as many nodes are free as it takes");
        let table = Table { start, shift: bit + 1, low: bit };
        let half = entries.partition_point(|entry| entry.start().get() >> bit & 1 == 0);
        let (low, high) = entries.split_at(half);
        let (low, high) = (self.binary(space, low, memory), self.binary(space, high, memory));
        Entry::write(Some(low), table.nth(0), memory);
        Entry::write(Some(high), table.nth(1), memory);
        Entry::node(table, first.start())
    }
}

impl<'a> Growth<'a> {
    fn new(table: Table, low: u32, entries: &'a [Entry], memory: &impl Memory) -> Growth<'a> {
        let grown = Table { low, ..table };
        let (nodes, parts) = (Vec::new(), Vec::new());
        let mut growth = Growth { grown, entries, nodes, parts, is_short: false };
        growth.add_node(table);
        for &entry in entries {
            growth.absorb(entry, memory);
        }
        growth
    }

    fn add_node(&mut self, table: Table) {
        self.is_short |= self.nodes.try_reserve(1).is_err();
        if !self.is_short {
            self.nodes.push(table);
        }
    }

    /// Adds the nodes at and below `entry` whose index bits the grown node takes over.
    fn absorb(&mut self, entry: Entry, memory: &impl Memory) {
        let low = self.grown.low;
        let Some(table) = entry.table().filter(|table| table.shift > low) else { return };
        self.add_node(table);
        if table.low >= low {
            for entry in table.entries(memory) {
                self.absorb(entry, memory);
            }
            return;
        }
        for part in parts(self.grown, table) {
            if part.entries(memory).nth(1).is_none() {
                continue;
            }
            self.is_short |= self.parts.try_reserve(1).is_err();
            if !self.is_short {
                self.parts.push(part);
            }
        }
    }

    /// The largest number of bytes that the new nodes together may take.
    fn bytes_max(&self) -> u64 {
        let before = bytes(&self.nodes);
        before + (before / SLACK_PART).min(SLACK_BYTES_MAX)
    }

    fn bytes_after(&self) -> u64 {
        bytes(&[self.grown]) + bytes(&self.parts)
    }
}

/// The entries of a node as a list. `None` if no memory is left for the list.
fn collected(table: Table, memory: &impl Memory) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    entries.try_reserve_exact(table.entries(memory).count()).ok()?;
    entries.extend(table.entries(memory));
    Some(entries)
}

fn bytes(tables: &[Table]) -> u64 {
    tables.iter().map(|table| table.len() * ENTRY_BYTES).sum()
}

/// Writes the pages to which `entry` leads into `grown`, with new nodes for remaining `parts` that
/// have more than one page. This is the counterpart of [`Growth::absorb`].
fn scatter<'a>(
    grown: Table,
    entry: Entry,
    new: &mut impl Iterator<Item = &'a PhysAddr>,
    memory: &mut impl Memory,
) {
    let Some(table) = entry.table().filter(|table| table.shift > grown.low) else {
        grown.fill(entry, Some(entry), memory);
        return;
    };
    if table.low >= grown.low {
        let mut before = None;
        for index in 0..table.len() {
            let entry = Entry::read(table.nth(index), memory);
            if let Some(entry) = entry.filter(|entry| Some(*entry) != before) {
                scatter(grown, entry, new, memory);
            }
            before = entry;
        }
        return;
    }
    for part in parts(grown, table) {
        let mut inside = part.entries(memory);
        let (first, more) = (inside.next(), inside.next().is_some());
        drop(inside);
        match (first, more) {
            (None, _) => {}
            (Some(entry), false) => grown.fill(entry, Some(entry), memory),
            (Some(entry), true) => {
                let start = *new.next().expect("a node was taken for every part");
                let node = Table { start, ..part };
                for index in 0..node.len() {
                    Entry::write(Entry::read(part.nth(index), memory), node.nth(index), memory);
                }
                let entry = Entry::node(node, entry.start());
                grown.fill(entry, Some(entry), memory);
            }
        }
    }
}

/// Splits `table` into parts, each of which belongs below one entry of `grown`.
fn parts(grown: Table, table: Table) -> impl Iterator<Item = Table> + use<> {
    let part = Table { shift: grown.low, ..table };
    let bytes = part.len() * ENTRY_BYTES;
    (0..table.len() / part.len())
        .map(move |n| Table { start: table.start.wrapping_add(n * bytes), ..part })
}
