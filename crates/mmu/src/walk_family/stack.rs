//! One LRU stack for arrays of several sizes, for which equal accesses count as uses.
//!
//! ```text
//!   depth     0   1   2   3   4         an array of n entries holds the first n
//!   nodes     e   a   -   f   c
//!                     ^ a hole: `b` was forgotten
//!   use f     f   e   a   -   c         arrays of 3 had room where `b` was, and take f there;
//!                                       those of 4 and 5 had f, and keep the room
//!   use d     d   f   e   a   c         the hole is filled: nobody loses c
//! ```
//!
//! LRU has the inclusion property (Mattson, Gecsei, Slutz and Traiger 1970): a node at depth d is
//! held by exactly the arrays with more than d entries. A flushed entry leaves a hole at its depth:
//! exactly the arrays that held this entry have an empty slot.

use super::entry_of;

/// The value for a hole: no node has this number.
const HOLE: u32 = u32::MAX;

/// The nodes that the arrays hold, the most recently used first.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    nodes: Vec<u32>,
    holes: usize,
    /// For each node, whether it is in the stack.
    present: Vec<bool>,
    /// For each depth, the arrays with more entries than this depth.
    larger: Box<[u64]>,
}

impl Stack {
    /// An empty stack for arrays with these numbers of `entries`.
    pub(super) fn new(entries: &[u32]) -> Stack {
        let depths = 0..entries.iter().copied().max().unwrap_or(0);
        let larger = |depth| {
            let bits = entries.iter().enumerate().filter(|(_, entries)| **entries > depth);
            bits.fold(0, |bits, (member, _)| bits | 1 << member)
        };
        Stack {
            nodes: Vec::with_capacity(depths.len()),
            holes: 0,
            present: Vec::new(),
            larger: depths.map(larger).collect(),
        }
    }

    /// Records a use of `node`; the arrays that do not hold `node` insert it. Returns the arrays
    /// that held it before.
    #[inline]
    pub(super) fn touch(&mut self, node: u32) -> u64 {
        let present = std::mem::replace(entry_of(&mut self.present, node, false), true);
        let depth = if present { self.depth(node) } else { None };
        let hole = if self.holes > 0 { self.depth(HOLE) } else { None };
        let end = match (depth, hole) {
            (Some(depth), Some(hole)) if hole < depth => {
                self.nodes[depth] = HOLE;
                hole
            }
            (Some(depth), _) => depth,
            (None, Some(hole)) => {
                self.holes -= 1;
                hole
            }
            (None, None) => self.make_room(),
        };
        self.nodes.copy_within(..end, 1);
        self.nodes[0] = node;
        depth.map_or(0, |depth| self.larger[depth])
    }

    /// The arrays that hold `node`.
    #[inline]
    pub(super) fn holding(&self, node: u32) -> u64 {
        if !self.present.get(node as usize).is_some_and(|present| *present) {
            return 0;
        }
        self.depth(node).map_or(0, |depth| self.larger[depth])
    }

    /// Removes `node`, which leaves a hole.
    pub(super) fn remove(&mut self, node: u32) {
        if self.holding(node) == 0 {
            return;
        }
        if let Some(depth) = self.depth(node) {
            self.nodes[depth] = HOLE;
            self.holes += 1;
            self.present[node as usize] = false;
        }
    }

    /// The nodes in the stack.
    pub(super) fn nodes(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().copied().filter(|node| *node != HOLE)
    }

    /// Removes all nodes.
    pub(super) fn clear(&mut self) {
        for node in self.nodes.drain(..).filter(|node| *node != HOLE) {
            self.present[node as usize] = false;
        }
        self.holes = 0;
    }

    #[inline]
    fn depth(&self, node: u32) -> Option<usize> {
        self.nodes.iter().position(|held| *held == node)
    }

    /// Moves nodes down to make room for a new one, and returns the depth down to which nodes
    /// moved; if there is no hole, the last node is dropped.
    #[inline]
    fn make_room(&mut self) -> usize {
        if self.nodes.len() < self.larger.len() {
            self.nodes.push(HOLE);
        } else if let Some(last) = self.nodes.last() {
            self.present[*last as usize] = false;
        }
        self.nodes.len() - 1
    }
}
