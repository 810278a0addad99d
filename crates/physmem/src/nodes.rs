use alloc::vec::Vec;
use core::ops::Range;

use crate::{
    allocator::Allocator,
    frame::FrameId,
    request::{Rather, Request},
    table::FrameTable,
};

/// Memory of several NUMA nodes, with one allocator per node.
///
/// ```text
///   node 0: A over frames 0..n      node 1: A over frames n..2n      ...
/// ```
///
/// A request is served by its home node. If that node has no suitable frames and the request allows
/// it, frames are borrowed from the nearest node, then from the next nearest (G98 section 6.5: IRIX
/// borrows a large page from an adjacent node unless locality is more important). A request with a
/// colour states whether the colour or the node is given up first ([`Rather`]).
pub struct Nodes<A> {
    parts: Vec<(Range<u32>, A)>,
    /// For each node, all nodes in the order in which they are tried.
    nearest: Vec<Vec<usize>>,
    /// The node for requests that name no node.
    home: usize,
}

impl<A: Allocator> Nodes<A> {
    /// An allocator over the nodes in `parts`, each with its frames and its allocator. For each
    /// node, the nearest other node is the one with the next number.
    pub fn new(parts: Vec<(Range<u32>, A)>) -> Nodes<A> {
        Nodes::with_distances(parts, |_, _| 0)
    }

    /// An allocator over the nodes in `parts`, each with its frames and its allocator, and with the given
    /// distances between nodes. If a node has no free frame, the nearest node that has one is used; of nodes
    /// equally far away, the one with the next number.
    pub fn with_distances(
        parts: Vec<(Range<u32>, A)>,
        distance: impl Fn(usize, usize) -> u32,
    ) -> Nodes<A> {
        let count = parts.len();
        let nearest = |home: usize| {
            let mut nodes: Vec<usize> = (0..count).map(|step| (home + step) % count).collect();
            nodes[1..].sort_by_key(|&node| distance(home, node));
            nodes
        };
        Nodes { nearest: (0..count).map(nearest).collect(), parts, home: 0 }
    }

    /// The allocator of a node.
    pub fn node_mut(&mut self, node: u8) -> Option<&mut A> {
        self.parts.get_mut(node as usize).map(|(_, allocator)| allocator)
    }

    fn part_of(&self, frame: FrameId) -> Option<&A> {
        let part = self.parts.iter().find(|(frames, _)| frames.contains(&frame.0));
        part.map(|(_, allocator)| allocator)
    }

    fn part_of_mut(&mut self, frame: FrameId) -> Option<&mut A> {
        let part = self.parts.iter_mut().find(|(frames, _)| frames.contains(&frame.0));
        part.map(|(_, allocator)| allocator)
    }
}

impl<A: Allocator> Allocator for Nodes<A> {
    fn allocate(&mut self, table: &mut FrameTable, request: &Request) -> Option<FrameId> {
        let Nodes { parts, nearest, home } = self;
        let home = request.node.map_or(*home, |home| home.node as usize);
        let nodes = nearest.get(home.checked_rem(parts.len())?)?;
        let is_strict = request.node.is_some_and(|home| home.strict);
        let nodes = if is_strict { &nodes[..1] } else { nodes };
        let mut of = |request: &Request| {
            // The node has been chosen already.
            let request = &Request { node: None, ..*request };
            nodes.iter().find_map(|&node| parts[node].1.allocate(table, request))
        };
        let colored = Request { rather: Rather::ColoredOnly, ..*request };
        match (request.color, request.rather) {
            (Some(_), Rather::Colored) => of(&colored).or_else(|| of(request)),
            (Some(_), Rather::Near | Rather::ColoredOnly) | (None, _) => of(request),
        }
    }

    fn free(&mut self, table: &mut FrameTable, first: FrameId, order: u32) {
        if let Some(part) = self.part_of_mut(first) {
            part.free(table, first, order);
        }
    }

    fn take(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.part_of_mut(first).is_some_and(|part| part.take(table, first, order))
    }

    fn free_blocks(&self, order: u32) -> u64 {
        self.parts.iter().map(|(_, part)| part.free_blocks(order)).sum()
    }

    fn on_node(&mut self, node: u8) {
        self.home = node.into();
    }

    fn free_on(&self, node: u8) -> Option<u64> {
        let (_, part) = self.parts.get(usize::from(node))?;
        Some((0..u32::BITS).map(|order| part.free_blocks(order) << order).sum())
    }

    fn wanted(&self, order: u32) -> u64 {
        self.parts.iter().map(|(_, part)| part.wanted(order)).fold(0, u64::saturating_add)
    }

    fn frames_in_use(&self, first: FrameId, order: u32, enough: u64) -> u64 {
        self.part_of(first).map_or(enough, |part| part.frames_in_use(first, order, enough))
    }

    fn join(&mut self, table: &mut FrameTable, first: FrameId, order: u32) -> bool {
        self.part_of_mut(first).is_some_and(|part| part.join(table, first, order))
    }

    fn has_block(&self, table: &FrameTable, first: FrameId, order: u32) -> bool {
        self.part_of(first).is_some_and(|part| part.has_block(table, first, order))
    }

    fn migratable_changed(&mut self, frame: FrameId, change: i64) {
        if let Some(part) = self.part_of_mut(frame) {
            part.migratable_changed(frame, change);
        }
    }
}
