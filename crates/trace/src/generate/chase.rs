//! A pointer chase: a circular list, whose nodes are in random order in memory, is followed from
//! node to node again and again.
//!
//! ```text
//!   node    0    1    2    3    4          the list runs  P(0) -> P(1) -> ... -> P(n-1) -> P(0)
//!           |_________|____^    |          for a random permutation P, which needs no memory
//! ```

use super::permutation::Permutation;
use super::{Fill, Metas, Region};
use crate::Batch;

pub(super) struct Chase {
    pub(super) region: Region,
    pub(super) node_bytes: u64,
    pub(super) order: Permutation,
    /// The number of nodes followed in this round.
    pub(super) position: u64,
    pub(super) metas: Metas,
}

impl Fill for Chase {
    fn fill(&mut self, count: usize, batch: &mut Batch) {
        let Batch { addr, meta, .. } = batch;
        for _ in 0..count {
            addr.push(self.region.start + self.order.apply(self.position) * self.node_bytes);
            self.position += 1;
            if self.position == self.order.len() {
                self.position = 0;
            }
        }
        meta.extend(std::iter::repeat_n(self.metas.load, count));
    }
}
