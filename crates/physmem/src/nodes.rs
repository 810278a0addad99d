use alloc::vec::Vec;
use core::ops::Range;

use crate::{
    allocator::{Allocator, Request},
    frame::FrameId,
    table::FrameTable,
};

/// Memory of several NUMA nodes, with an allocator each.
///
/// ```text
///   node 0: A over frames 0..n      node 1: A over frames n..2n      ...
/// ```
///
/// A request is served by its home node. Where that has nothing and the request allows it, the
/// frames are borrowed from the next node, and from the one after that (G98 section 6.5: IRIX
/// borrows a large page from an adjacent node unless locality matters more).
pub struct Nodes<A> {
    parts: Vec<(Range<u32>, A)>,
}

impl<A: Allocator> Nodes<A> {
    /// Nodes by number, with the frames that each has.
    pub const fn new(parts: Vec<(Range<u32>, A)>) -> Nodes<A> {
        Nodes { parts }
    }

    /// The allocator of a node.
    pub fn node_mut(&mut self, node: u8) -> Option<&mut A> {
        self.parts.get_mut(node as usize).map(|(_, allocator)| allocator)
    }

    fn part_of(&mut self, frame: FrameId) -> Option<&mut A> {
        let part = self.parts.iter_mut().find(|(frames, _)| frames.contains(&frame.0));
        part.map(|(_, allocator)| allocator)
    }
}

impl<A: Allocator> Allocator for Nodes<A> {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        let count = self.parts.len();
        let home = request.node.map_or(0, |home| home.node as usize);
        let tried = if request.node.is_some_and(|home| home.strict) { 1 } else { count };
        let mut nodes = (0..tried).map(|step| (home + step) % count.max(1));
        nodes.find_map(|node| self.parts.get_mut(node)?.1.allocate(table, request))
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        if let Some(part) = self.part_of(first) {
            part.free(table, first, order);
        }
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.part_of(first).is_some_and(|part| part.take(table, first, order))
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.parts.iter().map(|(_, part)| part.free_blocks(order)).sum()
    }

    fn migratable_changed(&mut self, frame: FrameId, change: i64) {
        if let Some(part) = self.part_of(frame) {
            part.migratable_changed(frame, change);
        }
    }
}
