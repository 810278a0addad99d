//! The counts of switches between address spaces.

use description::Description;
use hardware::processor::ProcessorCounts;
use mmu::{TraceCache, TraceCacheCounts};
use results::{self, SpaceSwitches};

use crate::run::Run;

/// The switches of all processors together.
pub(super) fn switches(description: &Description, run: &Run) -> SpaceSwitches {
    let sum = |count: fn(&ProcessorCounts) -> u64| -> u64 {
        run.processors.each().map(|processor| count(&processor.counts)).sum()
    };
    SpaceSwitches {
        switches: sum(|counts| counts.switches),
        root_loads: sum(|counts| counts.root_loads),
        emptying: sum(|counts| counts.emptying_switches),
        segment_loads: sum(|counts| counts.segment_loads),
        cycles: description.os.costs.as_ref().map(|_| sum(|counts| counts.switch_cycles)),
    }
}

/// The counts of the trace caches of all processors together.
pub(super) fn trace_cache(
    description: &Description,
    run: &Run,
) -> Option<results::TraceCacheCounts> {
    let described = description.trace_cache.as_ref()?;
    let mut sum = results::TraceCacheCounts {
        uops: described.uops.into(),
        ways: described.ways.into(),
        build_cycles: build_cycles(description, run),
        ..results::TraceCacheCounts::default()
    };
    let caches = run.processors.each().filter_map(|processor| processor.trace_cache.as_ref());
    for counts in caches.map(TraceCache::counts) {
        let TraceCacheCounts {
            fetches,
            served,
            lines_delivered,
            lines_built,
            emptied,
            lines_emptied,
        } = counts;
        sum.fetches += fetches;
        sum.delivered += served;
        sum.lines_delivered += lines_delivered;
        sum.lines_built += lines_built;
        sum.emptied += emptied;
        sum.lines_emptied += lines_emptied;
    }
    Some(sum)
}

/// Cycles of building lines in trace caches.
pub fn build_cycles(description: &Description, run: &Run) -> u64 {
    let Some(described) = &description.trace_cache else { return 0 };
    let caches = run.processors.each().filter_map(|processor| processor.trace_cache.as_ref());
    let built: u64 = caches.map(|cache| cache.counts().lines_built).sum();
    built * u64::from(described.build_cycles)
}
