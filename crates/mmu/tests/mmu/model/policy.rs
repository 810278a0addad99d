//! The replacement policies of one set, implemented directly by their definitions.

use mmu::{Policy, Random, Replacement};

/// The state of one set.
pub(crate) struct ModelPolicy {
    policy: Policy,
    /// Ways by last use or insertion, the oldest first.
    order: Vec<usize>,
    counts: Vec<u64>,
    used: Vec<bool>,
    /// The remaining credit of each way under Greedy Dual.
    credits: Vec<u64>,
    /// SRRIP's two bits for each way.
    predictions: Vec<u8>,
    /// The level of each entry, 0 for none.
    levels: Vec<u8>,
    costs: Vec<u64>,
    /// For each inner node, by its heap number, whether it points to its right child.
    right: Vec<bool>,
}

impl ModelPolicy {
    pub(crate) fn new(policy: Policy, ways: usize) -> ModelPolicy {
        ModelPolicy {
            policy,
            order: (0..ways).rev().collect(),
            counts: vec![0; ways],
            used: vec![false; ways],
            credits: vec![0; ways],
            predictions: vec![3; ways],
            levels: vec![0; ways],
            costs: vec![1; ways],
            right: vec![false; ways],
        }
    }

    pub(crate) fn touched(&mut self, way: usize) {
        if self.policy != Policy::Fifo {
            self.make_youngest(way);
        }
        self.credits[way] = self.costs[way];
        self.predictions[way] = 0;
        self.counts[way] += 1;
        self.used[way] = true;
        self.point_away(1, way);
    }

    /// Records a new entry of `level`: 1 for a page, and 0 if entries do not come from page tables.
    pub(crate) fn inserted(&mut self, way: usize, level: u8, host: bool) {
        let others = self.levels.iter().enumerate().filter(|(other, _)| *other != way);
        let rank = 2 * level + u8::from(!host);
        let position = match self.policy {
            Policy::ViLru2d => others.filter(|(_, other)| **other > rank).count(),
            Policy::ViLru => others.filter(|(_, other)| **other > level).count(),
            Policy::FixedInsertion if (1..=2).contains(&level) => self.order.len() * 3 / 4,
            _ => 0,
        };
        self.order.retain(|other| *other != way);
        self.order.insert(self.order.len() - position, way);
        self.levels[way] = if self.policy == Policy::ViLru2d { rank } else { level };
        self.costs[way] = u64::from(level.max(2)) - 1;
        if self.policy == Policy::GreedyDual2d && !host {
            self.costs[way] *= 2;
        }
        self.credits[way] = self.costs[way];
        self.predictions[way] = 2;
        self.counts[way] = 1;
        self.used[way] = true;
        self.point_away(1, way);
    }

    /// Records that the way was emptied.
    pub(crate) fn removed(&mut self, way: usize) {
        self.levels[way] = 0;
    }

    /// The way to replace. `random` is the sequence that all sets share.
    pub(crate) fn victim(&mut self, random: &mut Random) -> usize {
        let ways = self.order.len();
        match self.policy {
            Policy::Lru
            | Policy::Fifo
            | Policy::FixedInsertion
            | Policy::ViLru
            | Policy::ViLru2d => self.order[0],
            Policy::GreedyDual | Policy::GreedyDual2d => {
                let least = self.credits.iter().copied().min().unwrap();
                self.credits.iter_mut().for_each(|credit| *credit -= least);
                let spent = self.order.iter().copied().filter(|way| self.credits[*way] == 0);
                // Of equal elements, `min_by_key` returns the first, which is the oldest.
                spent.min_by_key(|way| self.costs[*way]).unwrap()
            }
            Policy::Srrip => loop {
                if let Some(way) = self.predictions.iter().position(|bits| *bits == 3) {
                    break way;
                }
                self.predictions.iter_mut().for_each(|bits| *bits += 1);
            },
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

    /// From the root down, makes every node whose subtree contains the way point to the child that
    /// does not contain it.
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
