//! Identities of SpecTLBs, which compare predictions with walks and their references.

use std::collections::BTreeMap;

use results::{ByKind, NestedCounts, Results, SpecOutcome, SpecTlbCounts};

use super::{Checker, Witness};

impl Checker {
    /// Each walk in the host looked up the host's SpecTLB once. The number of walk references for
    /// which the program waits is at most the number of all references.
    pub(super) fn nested_spec_tlb(&mut self, nested: &NestedCounts, results: &Results) {
        if let Some(critical) = nested.critical_references {
            let all = results.walks.references;
            self.at_most("references of walks for which the program waits", critical, all);
        }
        let Some(spec) = &nested.spec_tlb else { return };
        let found = spec.right + spec.none + spec.wrong["broken"] + spec.wrong["chance"];
        self.equal(
            "walks with a prediction + walks without = walks of the host",
            found,
            nested.walks,
        );
        let references = spec.outcomes.iter().flat_map(|outcome| outcome.references.values());
        self.equal(
            "references of the host's walks by outcome of the prediction",
            references.sum(),
            nested.references,
        );
    }

    /// Each walk looked up the SpecTLB once, and each reference of a walk is counted either as
    /// overlapped or as not overlapped.
    pub(super) fn spec_tlb(&mut self, spec: &SpecTlbCounts, results: &Results, witness: &Witness) {
        let found = spec.right + spec.none + spec.wrong["broken"] + spec.wrong["chance"];
        self.equal("walks with a prediction + walks without = walks", found, results.walks.walks);
        let wrong: u64 = spec.wrong.values().sum();
        self.at_most("predictions of frames that devices own", spec.devices, wrong);
        if witness.on_touch {
            let faults = results.faults;
            let faults = faults.first_touch + faults.returned + faults.protection;
            let faulted = spec.wrong["absent"] + spec.denied + spec.none_faulted;
            self.equal(
                "walks that faulted, with or without a prediction = faults",
                faulted,
                faults,
            );
        }
        let of = |counts: fn(&SpecOutcome) -> Vec<&BTreeMap<String, u64>>| {
            let all = spec.outcomes.iter().flat_map(counts);
            all.flat_map(BTreeMap::values).sum::<u64>()
        };
        let references = of(|outcome| vec![&outcome.references]);
        self.equal("references by outcome of the prediction", references, results.walks.references);
        if witness.caches.is_some() {
            let accesses = of(|outcome| {
                let ByKind { fetch, load, store } = &outcome.accesses;
                vec![fetch, load, store]
            });
            self.equal(
                "accesses that needed a walk, by outcome of the prediction",
                accesses,
                found,
            );
        }
    }
}
