//! What references to nodes of memory take, by how far a node is from the processor.

use addr::PhysAddr;
use description::{Description, Refusal};
use ram::topology::{OWN, Topology};

/// What the references of a processor to memory count, by node.
#[derive(Clone, Debug)]
pub struct References {
    topology: Topology,
    /// Cycles beyond those of the processor's own node.
    beyond: Vec<u64>,
    /// By kind, and last those of walks.
    pub counts: Vec<[u64; WALKS + 1]>,
}

/// Where the references of walks are counted, behind the kinds of the program's.
pub const WALKS: usize = addr::Kind::COUNT;

impl References {
    /// Those of `processor`, if memory has nodes.
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

    /// Counts `times` references of one sort, and gives the cycles that one takes beyond those of a
    /// reference to its own node.
    #[inline]
    pub fn refer(&mut self, at: PhysAddr, sort: usize, times: u64) -> u64 {
        let node = self.topology.of_address(at);
        self.counts[node][sort] += times;
        self.beyond[node]
    }

    /// Cycles of the program's references of one kind beyond those of references to its own node.
    pub fn cycles_beyond(&self, sort: usize) -> u64 {
        self.counts.iter().zip(&self.beyond).map(|(counts, beyond)| counts[sort] * beyond).sum()
    }

    /// Counts begin anew.
    pub fn forget_counts(&mut self) {
        let References { topology: _, beyond: _, counts } = self;
        counts.fill([0; WALKS + 1]);
    }
}
