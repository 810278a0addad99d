//! The policies, one set at a time, by their definitions.

use mmu::{Policy, Random, Replacement};

/// The state of one set.
pub(crate) struct ModelPolicy {
    policy: Policy,
    /// Ways by last use or insertion, the oldest first.
    order: Vec<usize>,
    counts: Vec<u64>,
    used: Vec<bool>,
    /// By heap number of an inner node: whether it points to its right child.
    right: Vec<bool>,
}

impl ModelPolicy {
    pub(crate) fn new(policy: Policy, ways: usize) -> ModelPolicy {
        ModelPolicy {
            policy,
            order: (0..ways).collect(),
            counts: vec![0; ways],
            used: vec![false; ways],
            right: vec![false; ways],
        }
    }

    pub(crate) fn touched(&mut self, way: usize) {
        if self.policy == Policy::Lru {
            self.make_youngest(way);
        }
        self.counts[way] += 1;
        self.used[way] = true;
        self.point_away(1, way);
    }

    pub(crate) fn inserted(&mut self, way: usize) {
        self.make_youngest(way);
        self.counts[way] = 1;
        self.used[way] = true;
        self.point_away(1, way);
    }

    /// The way to replace. `random` is what all sets draw from.
    pub(crate) fn victim(&mut self, random: &mut Random) -> usize {
        let ways = self.order.len();
        match self.policy {
            Policy::Lru | Policy::Fifo => self.order[0],
            Policy::Random => random.victim(0..ways),
            Policy::TreePlru => {
                let mut node = 1;
                while node < ways {
                    node = 2 * node + usize::from(self.right[node]);
                }
                node - ways
            }
            Policy::Nru => {
                if self.used.iter().all(|used| *used) {
                    self.used = vec![false; ways];
                }
                self.used.iter().position(|used| !used).unwrap()
            }
            Policy::Lfu => (0..ways).min_by_key(|way| (self.counts[*way], *way)).unwrap(),
        }
    }

    fn make_youngest(&mut self, way: usize) {
        self.order.retain(|other| *other != way);
        self.order.push(way);
    }

    /// From the root down: every node whose subtree holds the way points to the other child.
    fn point_away(&mut self, node: usize, way: usize) {
        let ways = self.order.len();
        let holds = |mut leaf: usize, node: usize| {
            while leaf > node {
                leaf /= 2;
            }
            leaf == node
        };
        if node < ways && holds(ways + way, node) {
            self.right[node] = holds(ways + way, 2 * node);
            self.point_away(2 * node, way);
            self.point_away(2 * node + 1, way);
        }
    }
}
