//! Path caches of all sizes: a cache of `n` entries holds the last `n` walked paths (B10 lemma
//! A.1.1).
//!
//! ```text
//!   stack   path of x,  of y,  of z           latest path through a table: of those that a
//!   depth     0          1      2             member holds, if it holds any
//! ```
//!
//! A path is identified by its last table. All paths that lead to a page end at tables of the same
//! level, since all pages of the machine have the same size.

use super::{Step, entry_of, stack::Stack};
use crate::WalkCacheParams;

/// See [`Tpc`](crate::Tpc).
#[derive(Clone, Debug)]
pub(super) struct PathCaches {
    paths: Stack,
    /// For each node, the last walked path through the node, if the path is still held.
    latest: Vec<Option<u32>>,
    /// For each path, its first node: if this node is flushed, the whole path is removed.
    firsts: Vec<u32>,
}

impl PathCaches {
    pub(super) fn new(members: &[&WalkCacheParams]) -> PathCaches {
        let entries = |member: &&WalkCacheParams| member.arrays.first().map_or(0, |a| a.entries);
        let entries: Vec<u32> = members.iter().map(entries).collect();
        PathCaches { paths: Stack::new(&entries), latest: Vec::new(), firsts: Vec::new() }
    }

    #[inline]
    pub(super) fn walk(&mut self, way: &[Step], found: bool, held: &mut [u64]) {
        let ends = way.first().zip(way.last()).filter(|_| found);
        let Some((first, last)) = ends else {
            for (step, held) in way.iter().zip(held) {
                *held = self.holding(step.node);
            }
            return;
        };
        for (step, held) in way[..way.len() - 1].iter().zip(held.iter_mut()) {
            *held = self.holding(step.node);
        }
        held[way.len() - 1] = self.paths.touch(last.node);
        *entry_of(&mut self.firsts, last.node, 0) = first.node;
        for step in way {
            *entry_of(&mut self.latest, step.node, None) = Some(last.node);
        }
    }

    pub(super) fn forget(&mut self, nodes: &[u32]) {
        for &node in nodes {
            *entry_of(&mut self.latest, node, None) = None;
        }
        let latest = |node: u32| self.latest[node as usize];
        let gone = self.paths.nodes().filter(|path| latest(self.firsts[*path as usize]).is_none());
        let gone: Vec<u32> = gone.collect();
        gone.into_iter().for_each(|path| self.paths.remove(path));
    }

    pub(super) fn holds(&self, node: u32) -> bool {
        self.holding(node) != 0
    }

    /// The members that hold a path through `node`.
    #[inline]
    fn holding(&self, node: u32) -> u64 {
        let latest = self.latest.get(node as usize).copied().flatten();
        latest.map_or(0, |path| self.paths.holding(path))
    }
}
