//! The counts of each processor.

use description::{Description, FlushBy};
use hardware::{processor::Processor, restseg::RestSegUnit, walker::Walkers};
use results::{ProcessorCounts, ShootdownCounts, TlbCounts, sum::Sum};

use super::{caches_of, mmu_cache, spec_tlb::spec_tlb, tlbs, walks};
use crate::run::Run;

/// The counts of each processor.
pub(super) fn each(
    description: &Description,
    run: &Run,
    walkers: &Walkers,
) -> Vec<ProcessorCounts> {
    let all = (0..).zip(run.processors.each().zip(walkers.each()));
    let counts = |(number, (processor, walker))| {
        let Processor { hardware, counts, .. }: &Processor = processor;
        let mut caches = caches_of(description, walker);
        caches.retain(|cache| cache.name != "l3");
        ProcessorCounts {
            number,
            accesses: counts.accesses.into(),
            instructions: counts.instructions,
            switches: counts.switches,
            tlbs: tlbs(hardware),
            walks: walks(counts, walker),
            mmu_cache: mmu_cache(description.mmu_cache.as_ref(), &walker.dimension),
            spec_tlb: spec_tlb(walker),
            range_tlb: hardware.ranges.as_ref().map(|ranges| {
                ranges.counts(run.hooks.range_table().map_or((0, 0), |table| table.size()))
            }),
            restseg: hardware.restseg.as_ref().map(RestSegUnit::counts),
            caches,
            shootdowns: shootdowns(description, processor),
        }
    };
    all.map(counts).collect()
}

/// The counts of the TLBs of all processors; TLBs with the same name are added up.
pub(super) fn together<'a>(each: impl Iterator<Item = &'a Vec<TlbCounts>>) -> Vec<TlbCounts> {
    let sums = each.cloned().reduce(|mut sums, tlbs| {
        sums.iter_mut().zip(&tlbs).for_each(|(sum, tlb)| sum.add(tlb));
        sums
    });
    sums.unwrap_or_default()
}

fn shootdowns(description: &Description, processor: &Processor) -> ShootdownCounts {
    let counts = processor.counts.shootdowns;
    let known = |cycles| description.os.costs.as_ref().map(|_| cycles);
    let flush = description.os.flush.as_ref();
    let deferred = |count| flush.filter(|flush| flush.deferred).map(|_| count);
    ShootdownCounts {
        made: counts.made,
        asked: counts.asked,
        received: counts.received,
        entries: counts.entries,
        broadcast: flush.filter(|flush| flush.by != FlushBy::Interrupts).map(|_| counts.broadcast),
        widened: flush.and_then(|flush| flush.ceiling).map(|_| counts.widened),
        deferred: deferred(counts.deferred),
        swept: deferred(counts.swept),
        swept_early: deferred(counts.swept_early),
        sender_cycles: known(counts.sender_cycles),
        receiver_cycles: known(counts.receiver_cycles),
    }
}
