//! The identities that hold after every run, whatever the machine and the trace.
//!
//! ```text
//!   trace ---- accesses by kind --\            entries that leave --> hits by TLB, region
//!   crossings - extra lookups -----+--> TLBs --+
//!                                      |       misses counted by the run, and by the TLBs
//!                                      |
//!                                      +--> walks: the walker's count --> its cache's requests
//! ```
//!
//! Each compares numbers that were counted in different places: what the results say with what a
//! part has counted for itself ([`Witness`]), or two parts with each other. A sum is not compared
//! with its own summands.

use addr::Kind;
use mmu::{Requester, TlbCounts};

use crate::{Error, Results, count::results::HitsAndMisses, hardware::walker::Walker, run::Run};

/// Counts that results do not show, or show from another place.
pub(crate) struct Witness {
    /// By TLB, what it has counted itself.
    tlbs: Vec<TlbCounts>,
    /// By TLB, how often it was asked for a page of the page table, by loads.
    table_lookups: Vec<u64>,
    /// Lookups by accesses that cross into a further page, by kind.
    crossing_lookups: [u64; Kind::COUNT],
    /// Whether each page is mapped at its first touch, by a walk that faults.
    on_touch: bool,
    /// With data caches: the program's accesses that they served, and what the first cache on the
    /// walker's way was asked by it.
    caches: Option<CacheWitness>,
}

struct CacheWitness {
    program_served: u64,
    /// `None` if an entry may lie in two lines, so that one reference is two requests.
    walker_requests: Option<u64>,
}

impl Witness {
    /// What the parts of a run that is over have counted.
    pub(crate) fn of(run: &Run, walker: &Walker) -> Witness {
        let caches = walker.port.caches.as_ref().map(|caches| {
            let entrance = caches.entrance(Requester::Walker);
            let counts = caches.counts(entrance.place);
            let whole = 1 << entrance.line_shift >= REFERENCE_BYTES_MAX;
            CacheWitness {
                program_served: walker.program_served.iter().sum(),
                walker_requests: counts
                    .filter(|_| whole)
                    .map(|counts| counts.walker.reads + counts.walker.writes),
            }
        });
        Witness {
            tlbs: run.hardware.units.iter().map(|unit| unit.tlb.counts()).collect(),
            table_lookups: run.hardware.units.iter().map(|unit| unit.table_lookups).collect(),
            crossing_lookups: run.crossing_lookups,
            on_touch: !run.os.is_populated(),
            caches,
        }
    }
}

/// The longest reference of a walk: a line of an elastic cuckoo table.
const REFERENCE_BYTES_MAX: u64 = 64;

/// Compares counts that were made in different places and must agree.
pub(crate) fn check(results: &Results, witness: &Witness) -> Result<(), Error> {
    let mut check = Checker(Vec::new());
    for ((tlb, own), table_lookups) in
        results.tlbs.iter().zip(&witness.tlbs).zip(&witness.table_lookups)
    {
        let name = &tlb.name;
        for kind in Kind::ALL {
            let lookups = own.hits[kind as usize] + own.misses[kind as usize];
            let of_tables = if kind == Kind::Load { *table_lookups } else { 0 };
            check.equal(
                &format!("{name}: its own lookups of kind {}, and those counted", kind.name()),
                lookups.saturating_sub(of_tables),
                tlb.by_kind.of(kind).lookups,
            );
        }
        check.equal(&format!("{name}: evictions"), own.evictions, tlb.evictions);
        check.equal(&format!("{name}: denied"), own.denied, tlb.denied);
        // What denies an access goes, although nobody flushes it: with pages of several sizes
        // perhaps more than one entry.
        let (gone, at_most) = (tlb.flushed + tlb.denied, own.flushed);
        let own_gone = if tlb.by_page_size.len() > 1 { gone.min(at_most) } else { at_most };
        check.equal(&format!("{name}: entries gone"), own_gone, gone);
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
    let first_level = results.tlbs.iter().filter(|tlb| tlb.level == 1);
    check.equal(
        "cold misses of the first level = cold walks",
        first_level.clone().map(|tlb| tlb.cold_misses).sum(),
        results.walks.cold,
    );
    let first_level_lookups: u64 = first_level.clone().map(|tlb| tlb.total.lookups).sum();
    for kind in Kind::ALL {
        let mut serving = first_level.clone().filter(|tlb| tlb.serves.contains(&kind.name()));
        if let Some(tlb) = serving.next() {
            check.equal(
                &format!("accesses of kind {} + their crossings = lookups", kind.name()),
                results.accesses.of(kind) + witness.crossing_lookups[kind as usize],
                tlb.by_kind.of(kind).lookups,
            );
        }
    }
    let mut last_level_misses = 0;
    for kind in Kind::ALL {
        let of_level = |level: u8| {
            let serving = results
                .tlbs
                .iter()
                .filter(move |tlb| tlb.level == level && tlb.serves.contains(&kind.name()));
            serving.map(|tlb| tlb.by_kind.of(kind)).reduce(HitsAndMisses::plus)
        };
        let first = of_level(1).unwrap_or_default();
        last_level_misses += match of_level(2) {
            Some(second) => {
                let what = format!("L1 misses = L2 lookups of kind {}", kind.name());
                check.equal(&what, first.misses, second.lookups);
                second.misses
            }
            None => first.misses,
        };
    }
    check.equal("misses of the last level = walks", last_level_misses, results.walks.walks);
    let references = results.walks.by_level.iter().map(|level| level.references).sum::<u64>()
        + results.nested.as_ref().map_or(0, |host| host.references);
    check.equal("references by level", references, results.walks.references);
    if let Some(caches) = &witness.caches {
        check.equal(
            "accesses served by the data caches or memory = lookups",
            caches.program_served,
            first_level_lookups,
        );
        if let Some(requests) = caches.walker_requests {
            check.equal("references = requests of the walker to its cache", references, requests);
        }
    }
    if witness.on_touch {
        check.equal("cold walks = first touches", results.walks.cold, results.faults.first_touch);
    }
    check.equal(
        "references per walk, walks that are not cold",
        results.walks.references_per_walk.iter().map(|(_, walks)| walks).sum(),
        results.walks.walks - results.walks.cold,
    );
    check.equal(
        "references per walk",
        results.walks.references_per_walk.iter().map(|(refs, walks)| refs * walks).sum(),
        references.saturating_sub(results.walks.cold_references),
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
        first_level_lookups,
    );
    check.equal(
        "cold misses by region",
        regions.clone().map(|region| region.cold_misses).sum(),
        results.walks.cold,
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
    check.finish()
}

struct Checker(Vec<String>);

impl Checker {
    fn equal(&mut self, what: &str, left: u64, right: u64) {
        if left != right {
            self.0.push(format!("{what}: {left} and {right}"));
        }
    }

    fn finish(self) -> Result<(), Error> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Error::Check(format!("these counts must agree: {}", self.0.join("; "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use addr::PageSize;
    use trace::{Batch, generate};

    use super::*;
    use crate::{Machine, count::summary};

    type Slip = (&'static str, fn(&mut Run, &mut Walker));

    /// Every count of a run by itself, one too many. Those that no identity notices are given by
    /// name: a new count belongs to one of the two lists.
    #[test]
    fn a_count_that_is_one_too_many_is_noticed() {
        let noticed: [Slip; 21] = [
            ("accesses", |run, _| run.accesses[Kind::Load as usize] += 1),
            ("crossing lookups", |run, _| run.crossing_lookups[Kind::Load as usize] += 1),
            ("hits", |run, _| run.census.tlbs[0].hits[Kind::Load as usize] += 1),
            ("hits, second level", |run, _| run.census.tlbs[1].hits[Kind::Load as usize] += 1),
            ("misses", |run, _| run.census.tlbs[0].missed(Kind::Load, PageSize::SIZE_4K, false)),
            ("misses, second level", |run, _| {
                run.census.tlbs[1].missed(Kind::Load, PageSize::SIZE_4K, false);
            }),
            ("cold misses", |run, _| run.census.tlbs[0].cold_misses += 1),
            ("evictions", |run, _| run.census.tlbs[0].evictions += 1),
            ("flushed", |run, _| run.census.tlbs[1].flushed += 1),
            ("denied", |run, _| run.census.tlbs[1].denied += 1),
            ("hits of a region", |run, _| run.census.region(0).hits[Kind::Load as usize] += 1),
            ("misses of a region", |run, _| run.census.region(0).misses += 1),
            ("cold misses of a region", |run, _| run.census.region(0).cold_misses += 1),
            ("first touches", |run, _| run.os.first_touches += 1),
            ("walks", |_, walker| walker.walks.walks += 1),
            ("cold walks", |_, walker| walker.walks.cold += 1),
            ("references", |_, walker| walker.walks.references += 1),
            ("references of cold walks", |_, walker| walker.walks.cold_references += 1),
            ("walks by references", |_, walker| walker.walks.per_walk[1] += 1),
            ("references by level", |_, walker| walker.dimension.served[1][0] += 1),
            ("accesses served", |_, walker| walker.program_served[0] += 1),
        ];
        let unnoticed: [Slip; 9] = [
            ("misses on half a pair", |run, _| run.census.tlbs[0].invalid += 1),
            ("instructions", |run, _| run.instructions += 1),
            ("page crossings", |run, _| run.page_crossings += 1),
            ("cycles of lookups for tables", |run, _| run.census.region(0).table_cycles += 1),
            ("pages of a region", |run, _| run.census.region(0).pages += 1),
            ("protection faults", |run, _| run.os.protection_faults += 1),
            ("hits on tables", |run, _| run.census.tlbs[0].table_hits += 1),
            ("cycles of walks", |_, walker| walker.walks.cycles += 1),
            ("searches of the MMU cache", |_, walker| walker.dimension.searches += 1),
        ];
        assert_eq!(checked(|_, _| {}), Ok(()));
        for (count, slip) in noticed {
            assert!(checked(slip).is_err(), "{count}");
        }
        for (count, slip) in unnoticed {
            assert_eq!(checked(slip), Ok(()), "{count}");
        }
    }

    /// A run whose counts `slip` before they are checked.
    fn checked(slip: impl Fn(&mut Run, &mut Walker)) -> Result<(), String> {
        let settings = ["mmu_cache.design=uptc", "mmu_cache.entries=24"].map(str::to_owned);
        let machine = Machine::load("opteron-2008", &settings).unwrap();
        let mut source = generate::parse("uniform,size=64M,accesses=4000,seed=1").unwrap();
        let (mut run, mut walker) = (Run::new(&machine, false).unwrap(), machine.walker().unwrap());
        let mut batch = Batch::default();
        while source.next(&mut batch).unwrap() {
            run.batch::<false>(&batch, &mut walker).unwrap();
        }
        run.batch::<false>(&batch, &mut walker).unwrap();
        run.hardware.drain(&mut run.census);
        slip(&mut run, &mut walker);
        let results = summary::summarize(&machine, &*source, &mut run, &walker);
        check(&results, &Witness::of(&run, &walker)).map_err(|error| error.to_string())
    }
}
