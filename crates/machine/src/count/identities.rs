//! The identities that hold after every run, whatever the machine and the trace.

use addr::Kind;

use crate::{
    Error, Results,
    count::results::{HitsAndMisses, ProcessorCounts, TlbCounts, Walks},
};

/// Compares counts that were made in different places and must agree.
pub(crate) fn check(results: &Results) -> Result<(), Error> {
    let mut check = Checker(Vec::new());
    for tlb in &results.tlbs {
        let kinds = [tlb.by_kind.fetch, tlb.by_kind.load, tlb.by_kind.store];
        let sum = |part: fn(&HitsAndMisses) -> u64| kinds.iter().map(part).sum::<u64>();
        let name = &tlb.name;
        check.equal(
            &format!("{name}: hits + misses = lookups"),
            tlb.total.hits + tlb.total.misses,
            tlb.total.lookups,
        );
        check.equal(&format!("{name}: hits by kind"), sum(|k| k.hits), tlb.total.hits);
        check.equal(&format!("{name}: misses by kind"), sum(|k| k.misses), tlb.total.misses);
        let sizes = tlb.by_page_size.values();
        check.equal(
            &format!("{name}: hits by page size"),
            sizes.clone().map(|size| size.hits).sum(),
            tlb.total.hits,
        );
        check.equal(
            &format!("{name}: misses by page size"),
            sizes.map(|size| size.misses).sum(),
            tlb.total.misses,
        );
    }
    check.levels("", &results.tlbs, &results.walks);
    for one in &results.processors {
        check.levels(&format!("processor {}: ", one.number), &one.tlbs, &one.walks);
    }
    check.equal(
        "references by level",
        results.walks.by_level.iter().map(|level| level.references).sum::<u64>()
            + results.nested.as_ref().map_or(0, |host| host.references),
        results.walks.references,
    );
    for level in &results.walks.by_level {
        if !level.served.is_empty() {
            check.equal(
                &format!("references to level {} by what served them", level.level),
                level.served.values().sum(),
                level.references,
            );
        }
    }
    check.equal(
        "references per walk, walks that are not cold",
        results.walks.references_per_walk.iter().map(|(_, walks)| walks).sum(),
        results.walks.walks - results.walks.cold,
    );
    check.equal(
        "references per walk",
        results.walks.references_per_walk.iter().map(|(refs, walks)| refs * walks).sum(),
        results.walks.references - results.walks.cold_references,
    );
    for upper in results.mmu_cache.iter().flat_map(|cache| &cache.by_level) {
        let made = results.walks.by_level.iter().find(|level| level.level == upper.level);
        let made = made.map_or(0, |level| level.references);
        // What is not held is read; references that set bits, or read pages, come on top.
        let fetched = upper.needed - upper.held;
        let what = format!("entries of level {} not in the MMU cache", upper.level);
        check.equal(&what, fetched.min(made), fetched);
    }
    let regions = results.regions.iter();
    check.equal(
        "lookups by region",
        regions.clone().map(|region| region.lookups).sum(),
        results.tlbs.iter().filter(|tlb| tlb.level == 1).map(|tlb| tlb.total.lookups).sum(),
    );
    check.equal(
        "misses by region",
        regions.clone().map(|region| region.misses).sum(),
        results.walks.walks,
    );
    check.equal(
        "walk references by region",
        regions.map(|region| region.walk_references).sum(),
        results.walks.references,
    );
    let memory = &results.memory;
    check.equal(
        "frames in use = frames mapped + frames of tables",
        memory.frames_used_bytes,
        memory.mapped_bytes + memory.table_bytes,
    );
    check.equal("misses over time", results.timeline.misses.iter().sum(), results.walks.walks);
    check.equal(
        "misses over address and time",
        results.map.cells.iter().map(|cell| cell.2).sum(),
        results.walks.walks,
    );
    let shot = &results.shootdowns;
    check.equal("processors asked = interrupts received", shot.asked, shot.received);
    let of_each = |count: fn(&ProcessorCounts) -> u64| results.processors.iter().map(count).sum();
    if !results.processors.is_empty() {
        let lookups = results.tlbs.iter().map(|tlb| tlb.total.lookups).sum();
        let of_tlbs = |one: &ProcessorCounts| one.tlbs.iter().map(|tlb| tlb.total.lookups).sum();
        check.equal("lookups by processor", of_each(of_tlbs), lookups);
    }
    check.finish()
}

struct Checker(Vec<String>);

impl Checker {
    fn equal(&mut self, what: &str, left: u64, right: u64) {
        if left != right {
            self.0.push(format!("{what}: {left} and {right}"));
        }
    }

    /// What misses one level is looked up in the next, and what misses the last is walked for.
    fn levels(&mut self, whose: &str, tlbs: &[TlbCounts], walks: &Walks) {
        let mut last_level_misses = 0;
        for kind in Kind::ALL {
            let of_level = |level: u8| {
                let serving = tlbs
                    .iter()
                    .filter(|tlb| tlb.level == level && tlb.serves.contains(&kind.name()));
                serving.map(|tlb| tlb.by_kind.of(kind)).reduce(HitsAndMisses::plus)
            };
            let first = of_level(1).unwrap_or_default();
            last_level_misses += match of_level(2) {
                Some(second) => {
                    let what = format!("{whose}L1 misses = L2 lookups of kind {}", kind.name());
                    self.equal(&what, first.misses, second.lookups);
                    second.misses
                }
                None => first.misses,
            };
        }
        let what = format!("{whose}misses of the last level = walks");
        self.equal(&what, last_level_misses, walks.walks);
    }

    fn finish(self) -> Result<(), Error> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Error::Check(format!("these counts must agree: {}", self.0.join("; "))))
        }
    }
}
