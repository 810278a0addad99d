//! Translation caches of several sizes, unified or split, simulated together. Each size is a member
//! of the family (see [the parent module](super)). In each member, a walk starts at the lowest entry
//! that the member holds, and inserts the entries for the lower levels that it then reads.

use super::{Step, by_level, lists::Lists, stack::Stack};
use crate::WalkCacheParams;

/// See [`Utc`](crate::Utc) and [`Stc`](crate::Stc).
#[derive(Clone, Debug)]
pub(super) struct TranslationCaches {
    /// The array for each level of the table that holds the entries; a unified cache has a single
    /// array, at level 0.
    arrays: Box<[Option<Array>]>,
    split: bool,
}

#[derive(Clone, Debug)]
enum Array {
    /// The lowest level of a split cache, whose entry every walk either uses or inserts.
    Lowest(Stack),
    Other(Lists),
}

/// The lowest level whose entries lead to tables.
const LOWEST: usize = 2;

impl TranslationCaches {
    pub(super) fn new(members: &[&WalkCacheParams]) -> TranslationCaches {
        let array = |level, entries: &[u32]| match level {
            LOWEST => Array::Lowest(Stack::new(entries)),
            _ => Array::Other(Lists::new(entries)),
        };
        TranslationCaches {
            arrays: by_level(members, array),
            split: members.iter().any(|member| member.design.is_split()),
        }
    }

    #[inline]
    pub(super) fn walk(&mut self, way: &[Step], held: &mut [u64]) {
        // From the lowest table up: a member that holds an entry starts there and skips all entries
        // above it.
        let mut skipping = 0;
        for (step, held) in way.iter().zip(held.iter_mut()).rev() {
            skipping |= match self.array(step) {
                Some(Array::Lowest(stack)) => stack.touch(step.node),
                Some(Array::Other(lists)) => lists.touch(step.node, !skipping),
                None => 0,
            };
            *held = skipping;
        }
        for (step, skipping) in way.iter().zip(held) {
            if let Some(Array::Other(lists)) = self.array(step) {
                lists.insert(step.node, !*skipping);
            }
        }
    }

    pub(super) fn forget(&mut self, nodes: &[u32]) {
        for array in self.arrays.iter_mut().flatten() {
            match array {
                Array::Lowest(stack) => nodes.iter().for_each(|node| stack.remove(*node)),
                Array::Other(lists) => nodes.iter().for_each(|node| lists.remove(*node)),
            }
        }
    }

    pub(super) fn holds(&self, node: u32) -> bool {
        self.arrays.iter().flatten().any(|array| match array {
            Array::Lowest(stack) => stack.holding(node) != 0,
            Array::Other(lists) => lists.holding(node) != 0,
        })
    }

    #[inline]
    fn array(&mut self, step: &Step) -> Option<&mut Array> {
        let level = if self.split { usize::from(step.to) + 1 } else { 0 };
        self.arrays.get_mut(level)?.as_mut()
    }
}
