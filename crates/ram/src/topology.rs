//! Nodes of memory: the node of each address and of each processor, and the distances between nodes.
//!
//! ```text
//!   physical addresses   0 ...... | ...... | ......
//!                         node 0    node 1   node 2      equal parts
//!   processors            0  1      2  3     4  5
//!
//!   a reference to memory takes memory.latency_cycles x distance / 10
//! ```

use addr::PhysAddr;
use description::{Description, Refusal};

/// The distance of a node to itself.
pub const OWN: u32 = 10;
/// The default distance to another node.
const OTHER: u32 = 20;

/// The nodes of a machine.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The bytes of each node except the last; the last node has all remaining bytes.
    bytes: u64,
    distances: Vec<Vec<u32>>,
    processors: Vec<u8>,
}

impl Topology {
    /// The nodes in `description`, if memory has several. The error has the key that is wrong.
    pub fn of(description: &Description) -> Result<Option<Topology>, Refusal> {
        let refuse = |key: &str, what: String| Err(Refusal::new(format!("memory.numa{key}"), what));
        let Some(numa) = &description.memory.numa else {
            return match &description.os.numa {
                Some(_) => {
                    let what = "this policy needs several memory nodes, but the machine has one: \
                                write [memory.numa] with nodes = 2 or more";
                    Err(Refusal::new("os.numa", what.to_owned()))
                }
                None => Ok(None),
            };
        };
        if description.page_table.is_none() {
            let what = "a machine without a page table has no frames that could lie on a node: \
                        leave \
                        [memory.numa] out";
            return refuse("", what.to_owned());
        }
        if description.nested.is_some() {
            let what = "memory nodes of a virtual machine are not modelled: leave out \
                        [nested] or [memory.numa]";
            return refuse("", what.to_owned());
        }
        let nodes = usize::from(numa.nodes);
        let base = description.os.frame().bytes();
        if nodes == 0 || description.memory.size.0 / base < nodes as u64 {
            let what = format!(
                "{} cannot be divided among {nodes} nodes: write 1 or more nodes, and a memory.size \
                 that gives each node a page",
                description.memory.size
            );
            return refuse(".nodes", what);
        }
        let distances = match &numa.distances[..] {
            [] => {
                let row = |from| (0..nodes).map(move |to| if from == to { OWN } else { OTHER });
                (0..nodes).map(|from| row(from).collect()).collect()
            }
            given => given.to_vec(),
        };
        if distances.len() != nodes || distances.iter().any(|row| row.len() != nodes) {
            let what = format!(
                "the distances must be {nodes} rows of {nodes} numbers, with a row and a column for \
                 each node"
            );
            return refuse(".distances", what);
        }
        for (from, row) in distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                if (from == to && *distance != OWN) || *distance < OWN || *distance > 255 {
                    let what = format!(
                        "the distance from node {from} to node {to} is {distance}: write 10 for a \
                         node's distance to itself, and 10 to 255 for distances to other nodes"
                    );
                    return refuse(".distances", what);
                }
            }
        }
        let count = description.core.count as usize;
        let processors = match &numa.processors[..] {
            [] => (0..count).map(|processor| (processor * nodes / count) as u8).collect(),
            given => given.to_vec(),
        };
        if processors.len() != count || processors.iter().any(|node| usize::from(*node) >= nodes) {
            let what = format!(
                "processors must list the node of each of the {count} processors (core.count), a \
                 number from 0 to {}",
                nodes - 1
            );
            return refuse(".processors", what);
        }
        let frames = description.memory.size.0 / base / nodes as u64;
        Ok(Some(Topology { bytes: frames * base, distances, processors }))
    }

    /// The number of nodes.
    pub fn count(&self) -> usize {
        self.distances.len()
    }

    /// The bytes of a node, if memory has `all` bytes.
    pub fn bytes_of(&self, node: usize, all: u64) -> u64 {
        let before = self.bytes * node as u64;
        if node + 1 == self.count() { all - before } else { self.bytes }
    }

    /// The node that contains `at`.
    pub fn of_address(&self, at: PhysAddr) -> usize {
        ((at.get() / self.bytes) as usize).min(self.count() - 1)
    }

    /// The node of `processor`.
    pub fn of_processor(&self, processor: usize) -> usize {
        self.processors.get(processor).copied().unwrap_or(0).into()
    }

    /// The processors of a node.
    pub fn processors_of(&self, node: usize) -> impl Iterator<Item = u32> {
        let all = (0..).zip(&self.processors);
        all.filter(move |(_, of)| usize::from(**of) == node).map(|(processor, _)| processor)
    }

    /// The distance from `node` to each node, including itself.
    pub fn from(&self, node: usize) -> &[u32] {
        &self.distances[node]
    }
}
