//! The hash join of Barr 2010, §4.5.3: each entry of table A in turn is looked up in the hash table
//! of table B, and a result is written.
//!
//! ```text
//!   table A       a0 a1 a2 ...           read one after the other
//!   hash table       h      h'           read anywhere; now and then once more on a collision
//!   result        r0 r1 r2 ...           written one after the other
//! ```
//!
//! Tables A and B have the same size, and so has the result, since the join finds each entry once.
//! The hash table uses open addressing, and the share `fill` of its buckets is in use. As in the
//! paper, there is no real data; accesses are random. The first bucket is random. With the
//! probability of a collision, a second bucket is accessed, which is also random.
//!
//! The probability of a collision is the mean number of probes after the first in a successful
//! search with uniform probing: `ln(1 / (1 - fill)) / fill - 1` (Knuth, The Art of Computer
//! Programming 3, 2nd edition, §6.4, on open addressing with independent double hashing), 0.386 for
//! a half-full table. Above a fill of 0.796 the formula exceeds 1, and 1 is used.

use super::{ACCESS_BYTES, Chance, Fill, Metas, Region, Rng, Xoshiro256PlusPlus, below};
use crate::Batch;

pub(super) struct Join {
    pub(super) table_a: Region,
    pub(super) hash_table: Region,
    pub(super) result: Region,
    pub(super) entry_bytes: u64,
    pub(super) collision: Chance,
    pub(super) metas: Metas,
    pub(super) random: Xoshiro256PlusPlus,
    /// The offset of the current entry in table A, and of its result.
    pub(super) offset: u64,
    pub(super) step: Step,
}

/// The next step for the current entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Read,
    Probe,
    ProbeAgain,
    Write,
}

/// The probability of a second probe in a table in which the share `fill` of buckets is in use.
pub(super) fn collision_probability(fill: f64) -> f64 {
    (-(1.0 - fill).ln() / fill - 1.0).clamp(0.0, 1.0)
}

impl Join {
    fn bucket(&self, bits: u64) -> u64 {
        let buckets = self.hash_table.bytes / self.entry_bytes;
        self.hash_table.start + below(buckets, bits) * self.entry_bytes
    }
}

impl Fill for Join {
    fn fill(&mut self, count: usize, batch: &mut Batch) {
        let Batch { addr, meta, .. } = batch;
        debug_assert!(self.entry_bytes >= ACCESS_BYTES);
        for _ in 0..count {
            let (at, store, next) = match self.step {
                Step::Read => (self.table_a.start + self.offset, false, Step::Probe),
                Step::Probe => {
                    let bits = self.random.next_u64();
                    let again = self.collision.falls(bits);
                    (self.bucket(bits), false, if again { Step::ProbeAgain } else { Step::Write })
                }
                Step::ProbeAgain => {
                    let bits = self.random.next_u64();
                    (self.bucket(bits), false, Step::Write)
                }
                Step::Write => {
                    let at = self.result.start + self.offset;
                    self.offset += self.entry_bytes;
                    if self.offset >= self.table_a.bytes {
                        self.offset = 0;
                    }
                    (at, true, Step::Read)
                }
            };
            addr.push(at);
            meta.push(self.metas.of(store));
            self.step = next;
        }
    }
}
