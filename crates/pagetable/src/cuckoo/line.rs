//! A line: the entries of eight adjacent pages, which a walk reads together.

use addr::{Memory, PhysAddr};

use crate::pte::Pte;

pub(super) const PAGES: u64 = 8;
pub(super) const LINE_BYTES: u64 = 64;

const TAG_SHIFT: u32 = 52;
/// Bits of the tag in each of the eight entries.
const TAG_BITS: u32 = 7;
const TAG: u64 = ((1 << TAG_BITS) - 1) << TAG_SHIFT;

/// The entries of eight adjacent pages (a cluster). The upper bits of all entries together hold the
/// number of the cluster.
#[derive(Clone, Copy)]
pub(super) struct Line(pub(super) [u64; PAGES as usize]);

impl Line {
    pub(super) fn read(at: PhysAddr, memory: &impl Memory) -> Line {
        Line(core::array::from_fn(|n| memory.read_u64(at.wrapping_add(n as u64 * 8))))
    }

    pub(super) fn write(self, at: PhysAddr, memory: &mut impl Memory) {
        for (n, word) in self.0.into_iter().enumerate() {
            memory.write_u64(at.wrapping_add(n as u64 * 8), word);
        }
    }

    /// An empty line for `cluster`.
    pub(super) fn of(cluster: u64) -> Line {
        Line(core::array::from_fn(|n| tag_part(cluster, n as u64)))
    }

    pub(super) fn cluster(self) -> u64 {
        let parts = self.0.iter().rev();
        parts.fold(0, |cluster, word| cluster << TAG_BITS | (word & TAG) >> TAG_SHIFT)
    }

    /// Whether the line at `place` is in use and belongs to the same cluster as this one.
    pub(super) fn is_at(self, place: PhysAddr, memory: &impl Memory) -> bool {
        let there = Line::read(place, memory);
        there.is_used() && there.cluster() == self.cluster()
    }

    pub(super) fn is_used(self) -> bool {
        self.0.iter().any(|&word| Pte::from_bits(word).is_mapped())
    }
}

/// The part of the tag of `cluster` that is stored in the entry of its page `n`.
pub(super) const fn tag_part(cluster: u64, n: u64) -> u64 {
    cluster >> (n as u32 * TAG_BITS) << TAG_SHIFT & TAG
}

/// The value of an entry after its page is unmapped. The entry keeps its part of the tag, since
/// other pages may still use the line.
pub(super) const fn emptied(pte: Pte) -> Pte {
    Pte::from_bits(pte.bits() & TAG)
}
