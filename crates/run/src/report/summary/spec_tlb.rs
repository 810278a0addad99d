//! The counts of SpecTLBs by outcome of the prediction.

use std::collections::BTreeMap;

use hardware::walker::{PredictedWalks, Speculator, Walker};
use mmu::{Served, Speculation};
use results::{ByKind, SpecOutcome, SpecTlbCounts};

/// The counts of the SpecTLB of `walker`, if it has one.
pub(super) fn spec_tlb(walker: &Walker) -> Option<SpecTlbCounts> {
    Some(counts(walker.speculators.first()?, walker.port.latencies.known))
}

/// The counts of the SpecTLB for the host dimension of `walker`, if it has one.
pub(super) fn of_host(walker: &Walker) -> Option<SpecTlbCounts> {
    let speculator = walker.host.as_ref()?.speculator.as_ref()?;
    Some(counts(speculator, walker.port.latencies.known))
}

/// The counts of `speculator`. They include times if `timed`, that is, if all latencies are known.
fn counts(speculator: &Speculator, timed: bool) -> SpecTlbCounts {
    let ((entries, ways), counts) = (speculator.tlb.geometry(), &speculator.counts);
    let [replacement, page_size, fill] = speculator.tlb.names();
    let found = |said: Speculation| &counts.found[said as usize];
    let faulted = |said: Speculation| &counts.faulted[said as usize];
    let right = found(Speculation::Right);
    let denied = faulted(Speculation::Right);
    // If a walk faults, there was no page to predict. So predictions of walks that faulted count as
    // `absent`, even if the predictor found them wrong for another reason.
    let absent = [Speculation::WrongBroken, Speculation::WrongChance]
        .into_iter()
        .fold(faulted(Speculation::WrongAbsent).clone(), |sum, said| sum.plus(faulted(said)));
    let wrong = [
        ("absent", &absent),
        ("broken", found(Speculation::WrongBroken)),
        ("chance", found(Speculation::WrongChance)),
    ];
    let (none, none_faulted) = (found(Speculation::None), faulted(Speculation::None));
    let all =
        [("right", right), ("none", none), ("none-faulted", none_faulted), ("denied", denied)];
    SpecTlbCounts {
        entries: entries.into(),
        ways: ways.into(),
        replacement,
        page_size,
        fill,
        attempts: right.walks
            + denied.walks
            + wrong.iter().map(|(_, said)| said.walks).sum::<u64>(),
        right: right.walks,
        denied: denied.walks,
        wrong: wrong.iter().map(|(cause, said)| ((*cause).to_owned(), said.walks)).collect(),
        none: none.walks,
        none_faulted: none_faulted.walks,
        overlapped: places(&right.references),
        overlapped_cycles: timed.then_some(right.cycles),
        devices: counts.devices,
        devices_reached: if speculator.tagged { 0 } else { counts.devices },
        outcomes: all.iter().chain(&wrong).map(|(name, said)| outcome(name, said)).collect(),
    }
}

fn outcome(name: &str, walks: &PredictedWalks) -> SpecOutcome {
    let [fetch, load, store] = &walks.accesses;
    SpecOutcome {
        outcome: name.to_owned(),
        walks: walks.walks,
        references: places(&walks.references),
        ptes: places(&walks.ptes),
        accesses: ByKind { fetch: places(fetch), load: places(load), store: places(store) },
    }
}

/// The counts that are not 0, by the cache or memory that served.
fn places(served: &[u64; Served::COUNT]) -> BTreeMap<String, u64> {
    let named = Served::ALL.into_iter().map(|place| (place.name(), served[place as usize]));
    let counted = named.filter(|(_, count)| *count > 0);
    counted.map(|(name, count)| (name.to_owned(), count)).collect()
}
