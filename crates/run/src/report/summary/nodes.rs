//! The counts by memory node.

use addr::Kind;
use description::Description;
use hardware::{nodes::WALKS, walker::Walkers};
use results::{NodeCounts, NumaCounts};

use crate::run::Run;

/// The counts of a finished run by node, if memory has several nodes.
pub(super) fn numa(description: &Description, run: &Run, walkers: &Walkers) -> Option<NumaCounts> {
    let counts = run.hooks.nodes.as_ref()?;
    let topology = &counts.topology;
    let all = 0..topology.count();
    let references = |from: usize, sorts: std::ops::Range<usize>| -> Vec<u64> {
        let mut sums = vec![0; topology.count()];
        for (_, walker) in
            (0..).zip(walkers.each()).filter(|(number, _)| topology.of_processor(*number) == from)
        {
            for (sum, counts) in
                sums.iter_mut().zip(walker.port.nodes.iter().flat_map(|n| &n.counts))
            {
                *sum += counts[sorts.clone()].iter().sum::<u64>();
            }
        }
        sums
    };
    let node = |number: usize| {
        let total_bytes = topology.bytes_of(number, description.memory.size.0);
        NodeCounts {
            processors: topology.processors_of(number).collect(),
            distances: topology.from(number).to_vec(),
            total_bytes,
            used_bytes: run.stack.guest.used_on(number as u8, total_bytes),
            misses: counts.misses[number].clone(),
            accesses: references(number, 0..Kind::COUNT),
            walk_references: references(number, WALKS..WALKS + 1),
        }
    };
    let local = all.clone().map(|node| counts.misses[node][node]).sum();
    let every: u64 = counts.misses.iter().flatten().sum();
    Some(NumaCounts {
        nodes: all.clone().map(node).collect(),
        local_misses: local,
        remote_misses: every - local,
        migration: counts.migration(),
    })
}
