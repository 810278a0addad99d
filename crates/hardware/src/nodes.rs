//! The cost of references to memory, by the distance of the node from the processor.

use addr::PhysAddr;
use description::{Description, Refusal};
use ram::topology::{OWN, Topology};

/// The references of one processor to memory, counted by node.
#[derive(Clone, Debug)]
pub struct References {
    topology: Topology,
    /// For each node, the cycles per reference in excess of a reference to the processor's own
    /// node.
    beyond: Vec<u64>,
    /// For each node, the references by kind; the last element is for walks.
    pub counts: Vec<[u64; WALKS + 1]>,
}

/// The index at which the references of walks are counted, after the kinds of the program's
/// accesses.
pub const WALKS: usize = addr::Kind::COUNT;

impl References {
    /// The counts of `processor`; `None` if memory has no nodes.
    pub fn of(description: &Description, processor: usize) -> Result<Option<References>, Refusal> {
        let Some(topology) = Topology::of(description)? else { return Ok(None) };
        let latency = u64::from(description.memory.latency_cycles.unwrap_or(0));
        let home = topology.of_processor(processor);
        let beyond = topology.from(home).iter();
        let beyond: Vec<u64> =
            beyond.map(|distance| latency * u64::from(distance - OWN) / u64::from(OWN)).collect();
        let counts = vec![[0; WALKS + 1]; topology.count()];
        Ok(Some(References { topology, beyond, counts }))
    }

    /// Counts `times` references to `at`. `sort` is the kind of access, or [`WALKS`] for references
    /// of walks. Returns the cycles that each reference takes in excess of a reference to the
    /// processor's own node.
    #[inline]
    pub fn refer(&mut self, at: PhysAddr, sort: usize, times: u64) -> u64 {
        let node = self.topology.of_address(at);
        self.counts[node][sort] += times;
        self.beyond[node]
    }

    /// The cycles of all references of one sort (a kind of access, or [`WALKS`]), in excess of
    /// references to the processor's own node.
    pub fn cycles_beyond(&self, sort: usize) -> u64 {
        self.counts.iter().zip(&self.beyond).map(|(counts, beyond)| counts[sort] * beyond).sum()
    }

    /// Resets the counts to zero.
    pub fn forget_counts(&mut self) {
        let References { topology: _, beyond: _, counts } = self;
        counts.fill([0; WALKS + 1]);
    }
}
