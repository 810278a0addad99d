//! Time: counts multiplied by latencies, as a range.
//!
//! A core overlaps some of its misses, and a trace of addresses does not show which loads wait for
//! the results of others. Therefore the program's time and the time of translation are ranges:
//!
//! ```text
//!                 least                               most
//! program         instructions, or their misses       instructions + every miss in full
//!                 at the core's misses_in_flight
//! translation     0: hidden behind the program;       every TLB lookup + every walk in full
//!                 a refill handler's own cycles
//! share           least / (least + program's most)    most / (most + program's least)
//! kernel          work, switches and shootdowns at their prices; and waiting for disks, apart: one
//!                 number each, as nothing of it runs beside the program that asked
//! ```
//!
//! The cycles of several processors are added up: the sum is work, not elapsed time.
//!
//! The lower bound of the share combines the lower bound of the time of translation with the upper
//! bound of the program's time; the upper bound of the share combines the other two bounds. Overlap
//! of data misses and overlap of walks are independent: a core with one page-table walker and many
//! miss buffers hides data misses and not walks.

use std::collections::BTreeMap;

use addr::Kind;
use description::{Costs, Description};
use hardware::{
    processor::ProcessorCounts,
    tlbs::{NONE, TlbUnits, Unit},
    walker::Walkers,
};
use mmu::{CacheCounts as Counts, Served};
use results::{KernelTime, Range, Time, count::census::RegionCensus};

use super::summary;
use crate::run::Run;

/// The time of a run; `None` if the description lacks a latency that is needed.
pub(super) fn of(description: &Description, run: &Run, walkers: &Walkers) -> Option<Time> {
    let cycles_per_instruction = description.core.cycles_per_instruction?;
    let Walkers { here: walker, .. } = walkers;
    if !walker.port.latencies.known || description.page_table.is_none() {
        return None;
    }
    // Code that has to be decoded again is delayed by this number of cycles, whatever work
    // overlaps.
    let issue = run.instructions() as f64 * cycles_per_instruction
        + summary::spaces::build_cycles(description, run) as f64;
    let program = program(description, issue, stall_cycles(description, walkers));
    // Hardware may walk while the program continues; a software handler stops the program while it
    // runs.
    let walk_cycles = walkers.each().map(|walker| walker.walks.cycles).sum();
    let least = if walker.handler.is_some() { walk_cycles } else { 0 };
    let translation = Range { lo: least, hi: lookup_cycles(run) + walk_cycles };
    let accesses: u64 = run.by_kind().iter().sum();
    let ratio = |part: u64, rest: f64| {
        let part = part as f64;
        if part > 0.0 { part / (part + rest) } else { 0.0 }
    };
    let least_of_both = program.lo + translation.lo as f64;
    let most_of_both = program.hi + translation.hi as f64;
    let kernel = kernel(description, run, walkers).map(|(by_work, io_cycles)| {
        let cycles = by_work.values().sum();
        let share = Range {
            lo: ratio(cycles + io_cycles, most_of_both),
            hi: ratio(cycles + io_cycles, least_of_both),
        };
        KernelTime { cycles, by_work, io_cycles, share }
    });
    let per_access = |cycles: u64| cycles as f64 / accesses.max(1) as f64;
    Some(Time {
        program_cycles: Range { lo: program.lo as u64, hi: program.hi as u64 },
        translation_cycles: translation,
        cycles_per_access: Range { lo: per_access(translation.lo), hi: per_access(translation.hi) },
        kernel,
        share: Range {
            lo: ratio(translation.lo, program.hi),
            hi: ratio(translation.hi, program.lo),
        },
    })
}

/// The kernel's cycles by kind of work, and the cycles of waiting for disks.
fn kernel(
    description: &Description,
    run: &Run,
    walkers: &Walkers,
) -> Option<(BTreeMap<String, u64>, u64)> {
    let costs = description.os.costs.as_ref()?;
    let sum = |count: fn(&ProcessorCounts) -> u64| -> u64 {
        run.processors.each().map(|processor| count(&processor.counts)).sum()
    };
    let manager = run.system.counts(&run.stack.guest);
    let mut by_work = manager.map(|manager| manager.cycles).unwrap_or_default();
    if !run.system.prices_its_work() {
        let faults = sum(|counts| counts.faults) * u64::from(costs.fault_cycles);
        by_work.insert("faults".to_owned(), faults);
    }
    if let Some(promotion) = &run.hooks.promotion {
        let (counting, moving) = promotion.cycles();
        by_work.insert("counting".to_owned(), counting);
        by_work.insert("promotions".to_owned(), moving);
    }
    if let Some(nodes) = run.hooks.nodes.as_ref().filter(|nodes| nodes.migration().is_some()) {
        let (counting, moving) = nodes.cycles();
        by_work.insert("counting remote references".to_owned(), counting);
        by_work.insert("moving pages to nodes".to_owned(), moving);
    }
    by_work.insert("switches".to_owned(), sum(|counts| counts.switch_cycles));
    if run.hooks.small.is_some() {
        let copies = sum(|counts| counts.copies) * u64::from(costs.copy_cycles);
        by_work.insert("copies".to_owned(), copies);
    }
    if description.core.virtual_caches {
        by_work.insert("cache flushes".to_owned(), cache_flush_cycles(costs, walkers));
    }
    let shootdowns =
        sum(|counts| counts.shootdowns.sender_cycles + counts.shootdowns.receiver_cycles);
    by_work.insert("shootdowns".to_owned(), shootdowns);
    Some((by_work, sum(|counts| counts.io_cycles)))
}

/// Cycles of flushing virtual caches: a loop over the lines of `l1d` and the write-back of dirty
/// lines. All lines of `l1i` are dropped by a single operation.
fn cache_flush_cycles(costs: &Costs, walkers: &Walkers) -> u64 {
    let caches = walkers.each().filter_map(|walker| walker.port.caches.as_ref());
    let counts = caches.filter_map(|caches| caches.counts(Served::L1d));
    let cycles = counts.map(|Counts { flushed, .. }| {
        flushed.looked * u64::from(costs.cache_line_cycles)
            + flushed.dirty * u64::from(costs.cache_write_cycles)
    });
    cycles.sum()
}

/// Cycles of the TLB lookups for the accesses to a region.
pub(super) fn of_lookups(hardware: &TlbUnits, region: &RegionCensus) -> u64 {
    let of_kind = |kind: Kind| {
        let index = kind as usize;
        let latency = |unit: usize| match unit {
            NONE => 0,
            unit => hardware.units[unit].latency_cycles,
        };
        let (hits, misses) = (region.hits[index], region.l1_misses[index]);
        (hits + misses) * latency(hardware.first[index]) + misses * latency(hardware.second[index])
    };
    Kind::ALL.into_iter().map(of_kind).sum::<u64>() + region.table_cycles
}

/// Cycles of all TLB lookups of the run.
fn lookup_cycles(run: &Run) -> u64 {
    let of_tlb = |unit: &Unit| {
        let lookups: u64 = unit.counts.hits.iter().chain(&unit.counts.misses).sum();
        lookups * unit.latency_cycles
    };
    let tlbs = run.processors.each().flat_map(|processor| &processor.hardware.units);
    tlbs.map(of_tlb).sum::<u64>() + run.seen.census.table_cycles()
}

/// Cycles that data caches add to the program's time. A hit in the first cache adds nothing: its
/// latency is part of the instructions' own cycles.
fn stall_cycles(description: &Description, walkers: &Walkers) -> f64 {
    let of_kind = |kind: Kind| {
        let hit_cycles = description.cache.hit_cycles(kind);
        let served = walkers.each().flat_map(|walker| {
            walker.program_served[kind as usize].iter().zip(&walker.port.latencies.served_cycles)
        });
        let all = served.map(|(count, cycles)| count * cycles.saturating_sub(hit_cycles));
        let nodes = walkers.each().filter_map(|walker| walker.port.nodes.as_ref());
        all.sum::<u64>() + nodes.map(|nodes| nodes.cycles_beyond(kind as usize)).sum::<u64>()
    };
    Kind::ALL.into_iter().map(of_kind).sum::<u64>() as f64
}

/// The lower and upper bound of the cycles for `issue` and `stalls`: the lower bound with as much
/// overlap as the core allows, the upper bound without overlap.
fn program(description: &Description, issue: f64, stalls: f64) -> Range<f64> {
    let most = issue + stalls;
    let least = match description.core.misses_in_flight.map(u32::from) {
        Some(1) => most,
        Some(misses) => issue.max(stalls / f64::from(misses)),
        None => issue,
    };
    Range { lo: least, hi: most }
}
