//! The filter `page16` for programs that run with the engine: it drops accesses to a page that was
//! accessed just before.
//!
//! ```text
//!   page number  ...b3b2b1b0 --> entry b3..b0 of 16:  | page | stored to |
//! ```
//!
//! This filter keeps the same accesses as the filter in the recorder for QEMU
//! (`crates/recorder/src/filter.rs`, which explains the rules). The engine writes all accesses into
//! the ring, because filtering each access in the recorded program would take longer. Accesses are
//! dropped here, before they are encoded.

use std::collections::HashMap;

use addr::Kind;
use rustc_hash::FxHashMap;
use trace::{Address, Error, Event, Op, Shape, ShapeId, Sink, Taken};

const ENTRIES: usize = 16;
const PAGE_SHIFT: u32 = 12;
/// The value of an empty entry. No page has this number, since page numbers have fewer bits.
const NOTHING: u64 = u64::MAX;

/// The filters of a process, while it runs one program.
#[derive(Default)]
pub(crate) struct Filters {
    /// The tables by thread.
    threads: HashMap<u32, Tables>,
    shapes: FxHashMap<ShapeId, Shape>,
    /// The shapes that remain when accesses are dropped. The key is the original shape, whether its
    /// fetch is kept, and which of its operations are kept.
    parts: FxHashMap<(ShapeId, bool, Box<[bool]>), ShapeId>,
    /// The number of accesses that were dropped.
    pub(crate) dropped: u64,
}

/// The tables of a thread, and the number of instructions of its blocks that were dropped since the
/// last block that was kept.
#[derive(Clone, Copy)]
struct Tables {
    fetch: [u64; ENTRIES],
    /// For each entry: the page number, and in the lowest bit whether a store to the page was kept.
    data: [u64; ENTRIES],
    advance: u64,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { fetch: [NOTHING; ENTRIES], data: [NOTHING; ENTRIES], advance: 0 }
    }
}

/// The first and the last page of `bytes` bytes from `address`.
fn pages(address: u64, bytes: u32) -> [u64; 2] {
    let last = address.wrapping_add(u64::from(bytes).saturating_sub(1));
    [address >> PAGE_SHIFT, last >> PAGE_SHIFT]
}

fn index(page: u64) -> usize {
    page as usize % ENTRIES
}

impl Tables {
    /// Whether the fetch of a block is kept.
    fn keeps_fetch(&mut self, pc: u64, bytes: u32) -> bool {
        let pages = pages(pc, bytes);
        let is_held = pages.iter().all(|&page| self.fetch[index(page)] == page);
        pages.iter().for_each(|&page| self.fetch[index(page)] = page);
        !is_held
    }

    /// Whether an operation at `address` is kept.
    fn keeps(&mut self, op: &Op, address: u64) -> bool {
        let stores = op.kind == Kind::Store;
        let [first, last] = pages(address, op.size);
        let holds = |page: u64| {
            let entry = self.data[index(page)];
            entry >> 1 == page && (!stores || entry & 1 != 0)
        };
        if holds(first) && (last == first || holds(last)) {
            return false;
        }
        for page in [Some(first), (last != first).then_some(last)].into_iter().flatten() {
            let entry = &mut self.data[index(page)];
            let stored = *entry >> 1 == page && *entry & 1 != 0;
            *entry = page << 1 | u64::from(stores || stored);
        }
        true
    }
}

/// A sink that passes on those accesses of one thread that the filters of its process keep.
pub(crate) struct Filtered<'a, S> {
    filters: &'a mut Filters,
    sink: &'a mut S,
    thread: u32,
}

impl Filters {
    /// A sink for the accesses of `thread`, which are passed on to `sink`.
    pub(crate) fn over<'a, S: Sink>(&'a mut self, sink: &'a mut S, thread: u32) -> Filtered<'a, S> {
        Filtered { filters: self, sink, thread }
    }
}

impl<S: Sink> Filtered<'_, S> {
    /// Reports the instructions of blocks that were dropped.
    pub(crate) fn settle(&mut self) {
        let tables = self.filters.threads.entry(self.thread).or_default();
        match std::mem::take(&mut tables.advance) {
            0 => {}
            instructions => self.sink.advance(instructions),
        }
    }
}

impl<S: Sink> Sink for Filtered<'_, S> {
    fn shape(&mut self, shape: &Shape) -> ShapeId {
        let id = self.sink.shape(shape);
        self.filters.shapes.insert(id, shape.clone());
        id
    }

    fn thread(&mut self, thread: u32) {
        self.sink.thread(thread);
    }

    fn execute(&mut self, id: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        let filters = &mut *self.filters;
        // Every shape was passed to this sink before it is executed, and all of its addresses are
        // given.
        let shape = &filters.shapes[&id];
        let tables = filters.threads.entry(self.thread).or_default();
        let fetch = shape.fetch && tables.keeps_fetch(shape.pc, shape.bytes);
        let ops = shape.ops.iter().zip(addrs);
        let kept: Box<[bool]> = ops.map(|(op, &address)| tables.keeps(op, address)).collect();
        let left: Vec<u64> = addrs
            .iter()
            .zip(&kept)
            .filter_map(|(&addr, &is_kept)| is_kept.then_some(addr))
            .collect();
        filters.dropped += u64::from(shape.fetch && !fetch) + (addrs.len() - left.len()) as u64;
        if !fetch && left.is_empty() {
            tables.advance += u64::from(shape.instructions);
            return Ok(());
        }
        let part = match filters.parts.get(&(id, fetch, kept.clone())) {
            Some(&part) => part,
            None => {
                let ops = shape.ops.iter().zip(&kept).filter(|(_, is_kept)| **is_kept);
                let ops = ops.map(|(op, _)| Op { address: Address::Said, ..*op }).collect();
                let part = self.sink.shape(&Shape { fetch, ops, ..shape.clone() });
                filters.parts.insert((id, fetch, kept), part);
                part
            }
        };
        self.settle();
        self.sink.execute(part, &left)
    }

    fn usual(&mut self, _: usize, _: ShapeId, _: &[u16]) {}

    fn execute_words(&mut self, _: &[u64]) -> Result<Taken, Error> {
        // The filter examines each access, so it takes no accesses from the records by itself.
        Ok(Taken::default())
    }

    fn execute_physical(&mut self, id: ShapeId, addrs: &[u64], _: &[u64]) -> Result<(), Error> {
        self.execute(id, addrs)
    }

    fn advance(&mut self, instructions: u64) {
        self.sink.advance(instructions);
    }

    fn begin_program(&mut self) {
        self.sink.begin_program();
    }

    fn accesses(&self) -> u64 {
        self.sink.accesses()
    }

    fn instructions(&self) -> u64 {
        self.sink.instructions()
    }

    fn stamp(&mut self, ns: u64) {
        self.sink.stamp(ns);
    }

    fn event(&mut self, thread: u32, event: Event) -> Result<(), Error> {
        self.settle();
        self.sink.event(thread, event)
    }
}
