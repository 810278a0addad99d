//! The identities between counts that hold after every run, whatever the machine and the trace.
//!
//! ```text
//!   trace ---- accesses by kind --\            entries that leave --> hits by TLB, region
//!   crossings - extra lookups -----+--> TLBs --+
//!                                      |       misses counted by the run, and by the TLBs
//!                                      |
//!                                      +--> walks: the walker's count --> its cache's requests
//! ```
//!
//! Each identity compares numbers that were counted in different places: the results with the
//! counts that a part of the machine keeps itself ([`Witness`]), or the counts of two parts with
//! each other. A sum is not compared with its own summands.

mod spec_tlb;

use addr::Kind;
use description::Error;
use hardware::walker::Walkers;
use mmu::{Requester, Served};
use results::{
    HitsAndMisses, MissOrigins, NodeCounts, ProcessorCounts, RangeTlbCounts, Results, TlbCounts,
    Walks,
};

use crate::run::Run;

/// Counts, summed over all processors, that the results do not show, or that the results take from
/// another part of the machine.
pub struct Witness {
    tlbs: Vec<TlbWitness>,
    /// Lookups for the second and further pages of accesses that cross a page boundary, by kind.
    crossing_lookups: [u64; Kind::COUNT],
    /// Whether each page is mapped at its first touch, after a walk that faults.
    on_touch: bool,
    /// Cycles of the kernel's work and of waiting for disks, as counted by the processors.
    kernel_cycles: u64,
    /// The number of root entries that were copied (small spaces); the next field is the number of
    /// fetches in the trace.
    copies: u64,
    fetches: u64,
    /// With data caches: the program's accesses to the caches, and the walker's requests to the
    /// first cache that it uses.
    caches: Option<CacheWitness>,
}

/// The counts that the TLBs of one name keep themselves, on all processors together.
#[derive(Default)]
struct TlbWitness {
    own: mmu::TlbCounts,
    /// Lookups of pages of the page table, which are loads. The next field counts those of these
    /// lookups that found only the other page of a pair.
    table_lookups: u64,
    table_invalid: u64,
    /// Entries that were dropped because they did not allow an access.
    dropped: u64,
}

struct CacheWitness {
    program_served: u64,
    /// The number of the program's accesses that memory served.
    memory_served: u64,
    /// The walker's requests to its first cache; `None` if the walker has no cache.
    walker_requests: Option<u64>,
    /// The number of cache lines that references touched in addition to their first line.
    further_lines: u64,
}

impl Witness {
    /// Collects the counts of the parts of a finished run.
    pub fn of(run: &Run, walkers: &Walkers) -> Witness {
        let mut tlbs: Vec<TlbWitness> = Vec::new();
        for processor in run.processors.each() {
            tlbs.resize_with(processor.hardware.units.len(), TlbWitness::default);
            for (sum, unit) in tlbs.iter_mut().zip(&processor.hardware.units) {
                add(&mut sum.own, unit.tlb.counts());
                sum.table_lookups += unit.counts.table_lookups;
                sum.table_invalid += unit.counts.table_invalid;
                sum.dropped += unit.counts.dropped;
            }
        }
        let (crossing_lookups, on_touch) = (run.seen.crossing_lookups, !run.constants.populated);
        let counts = run.processors.each().map(|processor| &processor.counts);
        let kernel_cycles = counts.map(|counts| counts.work_cycles + counts.io_cycles).sum();
        let copies = run.processors.each().map(|processor| processor.counts.copies).sum();
        let fetches = run.seen.fetches;
        let caches = CacheWitness::of(walkers);
        Witness { tlbs, crossing_lookups, on_touch, kernel_cycles, copies, fetches, caches }
    }
}

impl CacheWitness {
    fn of(walkers: &Walkers) -> Option<CacheWitness> {
        let place = walkers.here.port.caches.as_ref()?.entrance(Requester::Walker).place;
        // A cache that all processors share is attached to the processor that is running.
        let counts = walkers.each().filter_map(|walker| walker.port.caches.as_ref()?.counts(place));
        Some(CacheWitness {
            program_served: walkers.each().flat_map(|walker| walker.program_served).flatten().sum(),
            memory_served: walkers
                .each()
                .flat_map(|walker| walker.program_served)
                .map(|served| served[Served::Memory as usize])
                .sum(),
            walker_requests: counts
                .map(|counts| counts.walker.reads + counts.walker.writes)
                .reduce(|one, other| one + other),
            further_lines: walkers.each().map(|walker| walker.port.further_lines).sum(),
        })
    }
}

fn add(sum: &mut mmu::TlbCounts, one: mmu::TlbCounts) {
    let mmu::TlbCounts {
        hits,
        misses,
        denied,
        invalid,
        // No identities exist for the next three counts.
        tag_hits: _,
        block_fills: _,
        block_pages: _,
        fills,
        evictions,
        flushed,
    } = one;
    for kind in 0..Kind::COUNT {
        sum.hits[kind] += hits[kind];
        sum.misses[kind] += misses[kind];
    }
    sum.denied += denied;
    sum.invalid += invalid;
    sum.fills += fills;
    sum.evictions += evictions;
    sum.flushed += flushed;
}

/// Compares counts that were made in different places and must agree. The error names the first
/// identity that is violated.
pub fn check(results: &Results, witness: &Witness) -> Result<(), Error> {
    let mut check = Checker(Vec::new());
    check.tlbs(results, witness);
    check.accesses(results, witness);
    check.walks(results, witness);
    check.nodes(results, witness);
    check.kernel(results, witness);
    check.per_walk(results, witness);
    check.regions(results, witness);
    check.memory(results);
    check.over_time(results);
    check.processors(results);
    check.finish()
}

/// The first-level TLBs.
fn first_level(results: &Results) -> impl Iterator<Item = &TlbCounts> + Clone {
    results.tlbs.iter().filter(|tlb| tlb.level == 1)
}

fn first_level_lookups(results: &Results) -> u64 {
    first_level(results).map(|tlb| tlb.total.lookups).sum()
}

/// References of walks, summed over all levels, including those of walks in the host.
fn references(results: &Results) -> u64 {
    results.walks.by_level.iter().map(|level| level.references).sum::<u64>()
        + results.nested.as_ref().map_or(0, |host| host.references)
}

struct Checker(Vec<String>);

/// One function for each group of identities.
impl Checker {
    /// The counts of each TLB = the counts in the results.
    fn tlbs(&mut self, results: &Results, witness: &Witness) {
        for (tlb, witness) in results.tlbs.iter().zip(&witness.tlbs) {
            let name = &tlb.name;
            let TlbWitness { own, table_lookups, table_invalid, dropped } = witness;
            for kind in Kind::ALL {
                // Lookups of pages of the page table are loads.
                let (hits, misses) = match kind {
                    Kind::Load => (tlb.table_hits, table_lookups.saturating_sub(tlb.table_hits)),
                    Kind::Fetch | Kind::Store => (0, 0),
                };
                let (counted, kind_name) = (tlb.by_kind.of(kind), kind.name());
                let own_hits = own.hits[kind as usize];
                self.equal(&format!("{name}: {kind_name} hits"), own_hits, counted.hits + hits);
                let own_misses = own.misses[kind as usize];
                self.equal(
                    &format!("{name}: {kind_name} misses"),
                    own_misses,
                    counted.misses + misses,
                );
            }
            self.equal(&format!("{name}: evictions"), own.evictions, tlb.evictions);
            self.equal(&format!("{name}: denied"), own.denied, tlb.denied);
            self.equal(&format!("{name}: invalid"), own.invalid, tlb.invalid + table_invalid);
            let gone = tlb.flushed + dropped;
            self.equal(&format!("{name}: entries flushed or dropped"), own.flushed, gone);
            let sizes = tlb.by_page_size.values();
            self.equal(
                &format!("{name}: hits by page size"),
                sizes.clone().map(|size| size.hits).sum(),
                tlb.total.hits,
            );
            self.equal(
                &format!("{name}: misses by page size"),
                sizes.map(|size| size.misses).sum(),
                tlb.total.misses,
            );
        }
    }

    /// Accesses, crossings and cold misses = lookups and misses of the first-level TLBs.
    fn accesses(&mut self, results: &Results, witness: &Witness) {
        let first_level = first_level(results);
        self.equal(
            "cold misses of the first level = cold walks",
            first_level.clone().map(|tlb| tlb.cold_misses).sum(),
            results.walks.cold,
        );
        let further: u64 = witness.crossing_lookups.iter().sum();
        let crossings = results.page_crossings;
        self.equal(
            "accesses that cross a page boundary = accesses that made a further lookup",
            crossings.min(further),
            crossings,
        );
        for kind in Kind::ALL {
            let mut serving = first_level.clone().filter(|tlb| tlb.serves.contains(&kind.name()));
            if let Some(tlb) = serving.next() {
                self.equal(
                    &format!(
                        "accesses of kind {} + lookups for their further pages = lookups",
                        kind.name()
                    ),
                    results.accesses.of(kind) + witness.crossing_lookups[kind as usize],
                    tlb.by_kind.of(kind).lookups,
                );
            }
        }
    }

    /// Misses of one level = lookups of the next; references by level = by cache = by walk.
    fn walks(&mut self, results: &Results, witness: &Witness) {
        self.levels("", &results.tlbs, results.range_tlb.as_ref(), &results.walks);
        for one in &results.processors {
            let whose = format!("processor {}: ", one.number);
            self.levels(&whose, &one.tlbs, one.range_tlb.as_ref(), &one.walks);
        }
        let references = references(results);
        self.equal("references by level", references, results.walks.references);
        if let Some(restseg) = &results.restseg {
            let of_level = results.walks.by_level.iter().find(|level| level.level == 0);
            self.equal(
                "references of level 0 = lines of filters and tags read by lookups in restrictive \
                 segments",
                of_level.map_or(0, |level| level.references),
                restseg.filter_reads + restseg.tag_reads,
            );
        }
        if let Some(caches) = &witness.caches {
            self.equal(
                "accesses served by the data caches or memory = lookups",
                caches.program_served,
                first_level_lookups(results),
            );
            if let Some(requests) = caches.walker_requests {
                let lines = references + caches.further_lines;
                self.equal("lines of references = requests of the walker", lines, requests);
            }
        }
    }

    /// Checks the counts of the memory nodes.
    fn nodes(&mut self, results: &Results, witness: &Witness) {
        if let Some(numa) = &results.numa {
            let sum =
                |of: fn(&NodeCounts) -> &Vec<u64>| numa.nodes.iter().flat_map(of).sum::<u64>();
            self.equal("misses by node = walks", sum(|node| &node.misses), results.walks.walks);
            let memory =
                results.walks.by_level.iter().filter_map(|level| level.served.get("memory"));
            self.equal(
                "walk references by node = walk references that memory served",
                sum(|node| &node.walk_references),
                memory.sum(),
            );
            if let Some(caches) = &witness.caches {
                self.equal(
                    "accesses by node = accesses that memory served",
                    sum(|node| &node.accesses),
                    caches.memory_served,
                );
            }
        }
    }

    /// Faults, and cycles of the kernel.
    fn kernel(&mut self, results: &Results, witness: &Witness) {
        if witness.on_touch {
            self.equal(
                "cold walks = first touches",
                results.walks.cold,
                results.faults.first_touch,
            );
        }
        if let Some(manager) = &results.manager {
            let faults = results.faults;
            self.equal(
                "faults that the memory manager answered = faults",
                manager.faults.values().sum(),
                faults.first_touch + faults.returned + faults.protection,
            );
        }
        if let Some(kernel) = results.time.as_ref().and_then(|time| time.kernel.as_ref()) {
            let elsewhere = ["switches", "shootdowns", "cache flushes"];
            let elsewhere = elsewhere.map(|work| kernel.by_work.get(work).copied().unwrap_or(0));
            self.equal(
                "cycles of the kernel's work in the results = cycles counted by the processors",
                kernel.cycles + kernel.io_cycles - elsewhere.iter().sum::<u64>(),
                witness.kernel_cycles,
            );
        }
    }

    /// References per walk, predictions, and the references that the MMU cache saved.
    fn per_walk(&mut self, results: &Results, witness: &Witness) {
        self.equal(
            "references per walk, walks that are not cold",
            results.walks.references_per_walk.iter().map(|(_, walks)| walks).sum(),
            results.walks.walks - results.walks.cold,
        );
        self.equal(
            "references per walk",
            results.walks.references_per_walk.iter().map(|(refs, walks)| refs * walks).sum(),
            references(results).saturating_sub(results.walks.cold_references),
        );
        if let Some(spec) = &results.spec_tlb {
            self.spec_tlb(spec, results, witness);
        }
        for upper in results.mmu_cache.iter().flat_map(|cache| &cache.by_level) {
            let made = results.walks.by_level.iter().find(|level| level.level == upper.level);
            let mut made = made.map_or(0, |level| level.references);
            if upper.level == 0 {
                // This level is for pages: each walk is for one page.
                made = results.walks.walks;
            }
            // Entries that are not in the cache are read. There can be further references, which
            // set bits or read pages.
            let fetched = upper.needed - upper.held;
            let what = format!("entries of level {} not in the MMU cache", upper.level);
            self.equal(&what, fetched.min(made), fetched);
        }
    }

    /// Counts by region and by space.
    fn regions(&mut self, results: &Results, witness: &Witness) {
        let regions = results.regions.iter();
        self.equal(
            "lookups by region",
            regions.clone().map(|region| region.lookups).sum(),
            first_level_lookups(results),
        );
        self.equal(
            "cold misses by region",
            regions.clone().map(|region| region.cold_misses).sum(),
            results.walks.cold,
        );
        self.equal(
            "misses by region",
            regions.clone().map(|region| region.misses).sum(),
            results.walks.walks,
        );
        self.equal(
            "walk references by region",
            regions.map(|region| region.walk_references).sum(),
            results.walks.references,
        );
        if let Some(small) = &results.small_spaces {
            let spaces = results.space_switches;
            self.equal("switches of small and large spaces", small.switches, spaces.switches);
            self.equal("roots loaded", small.root_loads, spaces.root_loads);
            self.equal("segments loaded", small.segment_loads, spaces.segment_loads);
            self.equal("entries copied", small.copies, witness.copies);
        }
        if let Some(cache) = &results.trace_cache {
            self.equal(
                "fetches that a trace cache delivered + fetches looked up in a TLB = all fetches",
                cache.delivered + results.accesses.fetch,
                witness.fetches,
            );
        }
        if let Some(time) = &results.time {
            self.equal(
                "cycles of lookups and walks by region",
                results.regions.iter().filter_map(|region| region.walk_cycles).sum(),
                time.translation_cycles.hi,
            );
        }
        if let Some(nested) = &results.nested {
            self.nested_spec_tlb(nested, results);
        }
        if let Some((host, tlb)) = results.nested.as_ref().and_then(|host| Some((host, host.tlb?)))
        {
            self.equal("misses of the nested TLB = walks of the host", tlb.misses, host.walks);
        }
    }

    /// Free and used frames.
    fn memory(&mut self, results: &Results) {
        let memory = &results.memory;
        let blocks = memory.free_by_size.iter().map(|(size, blocks)| {
            size.parse().map_or(0, |size: addr::PageSize| size.bytes()) * blocks
        });
        let reserved = results.manager.as_ref().map_or(0, |manager| manager.bytes.reserved);
        self.equal(
            "bytes in free blocks + bytes reserved = bytes of frames that are not used",
            blocks.sum::<u64>() + reserved,
            memory.frames_total_bytes - memory.frames_used_bytes,
        );
        self.equal(
            "bytes in use = bytes mapped + of page tables + in use before the run + of devices",
            memory.frames_used_bytes,
            memory.mapped_bytes + memory.table_bytes + memory.aged_bytes + memory.device_bytes,
        );
    }

    /// Misses over time, over addresses and by origin.
    fn over_time(&mut self, results: &Results) {
        let first_level_misses = first_level(results).map(|tlb| tlb.total.misses).sum();
        self.equal(
            "misses of the first level by region",
            results.regions.iter().map(|region| region.l1_misses).sum(),
            first_level_misses,
        );
        let timeline = &results.timeline;
        let l1_misses_over_time = timeline.l1_misses.iter().sum();
        self.equal("misses of the first level over time", l1_misses_over_time, first_level_misses);
        self.equal("misses over time", timeline.misses.iter().sum(), results.walks.walks);
        self.equal("cold misses over time", timeline.cold_misses.iter().sum(), results.walks.cold);
        self.equal(
            "misses over address by region",
            results.map.owners.iter().map(|owner| owner.2).sum(),
            results.walks.walks,
        );
        self.equal(
            "misses over address and time",
            results.map.cells.iter().map(|cell| cell.2).sum(),
            results.walks.walks,
        );
        if let Some(origins) = &results.origins {
            self.origins(origins, results);
        }
    }

    /// Shootdowns between processors, and counts of all processors together.
    fn processors(&mut self, results: &Results) {
        let shot = &results.shootdowns;
        self.equal(
            "interrupts sent for shootdowns = interrupts received",
            shot.asked,
            shot.received,
        );
        let of_each =
            |count: fn(&ProcessorCounts) -> u64| results.processors.iter().map(count).sum();
        if !results.processors.is_empty() {
            let lookups = results.tlbs.iter().map(|tlb| tlb.total.lookups).sum();
            let of_tlbs =
                |one: &ProcessorCounts| one.tlbs.iter().map(|tlb| tlb.total.lookups).sum();
            self.equal("lookups by processor", of_each(of_tlbs), lookups);
        }
    }
}

impl Checker {
    fn equal(&mut self, what: &str, left: u64, right: u64) {
        if left != right {
            self.0.push(format!("{what}: {left} and {right}"));
        }
    }

    fn at_most(&mut self, what: &str, part: u64, whole: u64) {
        if part > whole {
            self.0.push(format!("{what}: {part} of {whole}"));
        }
    }

    /// Misses of one level are the lookups of the next, and misses of the last level are the walks.
    fn levels(
        &mut self,
        whose: &str,
        tlbs: &[TlbCounts],
        ranges: Option<&RangeTlbCounts>,
        walks: &Walks,
    ) {
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
        if let Some(ranges) = ranges {
            let what = format!("{whose}misses of the last level = lookups of the range TLB");
            self.equal(&what, last_level_misses, ranges.lookups);
            last_level_misses = ranges.misses;
        }
        let what = format!("{whose}misses of the last level = walks");
        self.equal(&what, last_level_misses, walks.walks);
    }

    /// Misses by origin add up to those of each region, and to all misses.
    fn origins(&mut self, origins: &MissOrigins, results: &Results) {
        let mut by_region = vec![(0, 0); results.regions.len()];
        for &(_, region, .., misses, cold_misses) in &origins.misses {
            by_region[region as usize].0 += misses;
            by_region[region as usize].1 += cold_misses;
        }
        for (region, (misses, cold_misses)) in results.regions.iter().zip(by_region) {
            let name = &region.name;
            self.equal(&format!("misses by origin in {name}"), misses, region.misses);
            let what = format!("cold misses by origin in {name}");
            self.equal(&what, cold_misses, region.cold_misses);
        }
        let of_sites = origins.misses.iter().filter(|row| row.2.is_some()).map(|row| row.5).sum();
        let sites = origins.sites.iter().map(|site| site.misses).sum();
        self.equal("misses by allocation site", sites, of_sites);
    }

    fn finish(self) -> Result<(), Error> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Error::Check(format!(
                "counts that must be equal differ, which is an error in Pagewalk: {}",
                self.0.join("; ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use addr::PageSize;
    use trace::{Batch, generate};

    use super::*;
    use crate::report::summary;
    use crate::{plain::Machine, runnable::Runnable};
    use hardware::tlbs::Unit;
    use results::count::origins::{Missed, Origins};

    type Slip = (&'static str, fn(&mut Run, &mut Walkers));

    fn unit(run: &mut Run, index: usize) -> &mut Unit {
        &mut run.processors.here.hardware.units[index]
    }

    /// Increases each count of a run by one, one count at a time, and checks that an identity is
    /// then violated. The counts that no identity covers are listed by name: each new count must be
    /// covered or listed.
    #[test]
    fn a_count_that_is_one_too_many_is_noticed() {
        let noticed: [Slip; 32] = [
            ("accesses", |run, _| run.processors.here.counts.accesses[Kind::Load as usize] += 1),
            ("crossing lookups", |run, _| run.seen.crossing_lookups[Kind::Load as usize] += 1),
            ("hits", |run, _| unit(run, 0).counts.hits[Kind::Load as usize] += 1),
            ("hits, second level", |run, _| unit(run, 1).counts.hits[Kind::Load as usize] += 1),
            ("misses", |run, _| unit(run, 0).counts.missed(Kind::Load, PageSize::SIZE_4K, false)),
            ("misses, second level", |run, _| {
                unit(run, 1).counts.missed(Kind::Load, PageSize::SIZE_4K, false);
            }),
            ("cold misses", |run, _| unit(run, 0).counts.cold_misses += 1),
            ("evictions", |run, _| unit(run, 0).counts.evictions += 1),
            ("flushed", |run, _| unit(run, 1).counts.flushed += 1),
            ("denied", |run, _| unit(run, 1).counts.denied += 1),
            ("dropped", |run, _| unit(run, 1).counts.dropped += 1),
            ("misses on half a pair", |run, _| unit(run, 0).counts.invalid += 1),
            ("hits on tables", |run, _| unit(run, 0).counts.table_hits += 1),
            ("page crossings", |run, _| run.seen.page_crossings += 1),
            ("hits of a region", |run, _| run.seen.census.region(0).hits[Kind::Load as usize] += 1),
            ("misses of a region", |run, _| run.seen.census.region(0).misses += 1),
            ("cold misses of a region", |run, _| run.seen.census.region(0).cold_misses += 1),
            ("misses by origin", |run, _| {
                let Run { hooks, layout, .. } = run;
                let missed = Missed { region: 0, site: None, page: PageSize::SIZE_4K, cold: false };
                hooks.origins.as_mut().unwrap().miss(&Batch::default(), 0, 0, layout, missed);
            }),
            ("first touches", |run, _| run.seen.first_touches += 1),
            ("walks", |_, walkers| walkers.here.walks.walks += 1),
            ("cold walks", |_, walkers| walkers.here.walks.cold += 1),
            ("references", |_, walkers| walkers.here.walks.references += 1),
            ("references of cold walks", |_, walkers| walkers.here.walks.cold_references += 1),
            ("walks by references", |_, walkers| walkers.here.walks.per_walk[1] += 1),
            ("references by level", |_, walkers| walkers.here.dimension.served[1][0] += 1),
            ("cycles of walks", |_, walkers| walkers.here.walks.cycles += 1),
            ("further lines of references", |_, walkers| walkers.here.port.further_lines += 1),
            ("protection faults", |run, _| run.seen.protection_faults += 1),
            ("predictions", |_, walkers| walkers.here.speculators[0].counts.found[0].walks += 1),
            ("predictions before faults", |_, walkers| {
                walkers.here.speculators[0].counts.faulted[0].walks += 1;
            }),
            ("references by prediction", |_, walkers| {
                walkers.here.speculators[0].counts.found[0].references[0] += 1;
            }),
            ("accesses served", |_, walkers| walkers.here.program_served[0][0] += 1),
        ];
        let unnoticed: [Slip; 4] = [
            ("instructions", |run, _| run.processors.here.counts.instructions += 1),
            ("cycles of lookups for tables", |run, _| run.seen.census.region(0).table_cycles += 1),
            ("pages of a region", |run, _| run.seen.census.region(0).pages += 1),
            ("searches of the MMU cache", |_, walkers| walkers.here.dimension.searches += 1),
        ];
        assert_eq!(checked(|_, _| {}), Ok(()));
        for (count, slip) in noticed {
            assert!(checked(slip).is_err(), "{count}");
        }
        for (count, slip) in unnoticed {
            assert_eq!(checked(slip), Ok(()), "{count}");
        }
    }

    /// Runs a trace and applies `slip` to the counts before they are checked.
    fn checked(slip: impl Fn(&mut Run, &mut Walkers)) -> Result<(), String> {
        let settings = ["mmu_cache.design=uptc", "mmu_cache.entries=24", "spec_tlb.entries=24"];
        let settings = settings.map(str::to_owned);
        let machine = Machine::load("opteron-2008", &settings).unwrap();
        let mut source = generate::parse("uniform,size=64M,accesses=4000,seed=1").unwrap();
        let clock = machine.description().os.clock;
        let mut run = machine.start(false, clock).unwrap();
        run.hooks.origins = Some(Origins::new(source.header()));
        let mut walkers = machine.walkers().unwrap();
        let mut batch = Batch::default();
        while source.next(&mut batch).unwrap() {
            run.batch::<false>(&batch, &mut walkers).unwrap();
        }
        run.batch::<false>(&batch, &mut walkers).unwrap();
        run.drain();
        walkers.settle();
        slip(&mut run, &mut walkers);
        let results = summary::summarize(
            machine.description(),
            machine.summary(),
            &*source,
            &mut run,
            &walkers,
        );
        check(&results, &Witness::of(&run, &walkers)).map_err(|error| error.to_string())
    }
}
