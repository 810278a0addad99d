//! Page-table caches of all sizes, unified or split: a walk looks up each of its entries, so each
//! walk uses the same entries in all members.

use super::{Step, by_level, stack::Stack};
use crate::WalkCacheParams;

/// See [`Uptc`](crate::Uptc) and [`Sptc`](crate::Sptc).
#[derive(Clone, Debug)]
pub(super) struct PageTableCaches {
    /// The stack for each level of the table that holds the entries; a unified cache has a single
    /// stack, at level 0.
    stacks: Box<[Option<Stack>]>,
    split: bool,
}

impl PageTableCaches {
    pub(super) fn new(members: &[&WalkCacheParams]) -> PageTableCaches {
        PageTableCaches {
            stacks: by_level(members, |_, entries| Stack::new(entries)),
            split: members.iter().any(|member| member.design.is_split()),
        }
    }

    #[inline]
    pub(super) fn walk(&mut self, way: &[Step], held: &mut [u64]) {
        for (step, held) in way.iter().zip(held) {
            let level = if self.split { usize::from(step.from) } else { 0 };
            let stack = self.stacks.get_mut(level).and_then(Option::as_mut);
            *held = stack.map_or(0, |stack| stack.touch(step.node));
        }
    }

    pub(super) fn clear(&mut self) {
        self.stacks.iter_mut().flatten().for_each(Stack::clear);
    }

    pub(super) fn holds(&self, node: u32) -> bool {
        self.stacks.iter().flatten().any(|stack| stack.holding(node) != 0)
    }
}
