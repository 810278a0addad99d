//! [`Results`] from the counts of a run.

mod nodes;
mod not_modelled;
mod processors;
pub mod spaces;
mod spec_tlb;

use std::collections::BTreeMap;

use addr::{Kind, PageSize};
use description::{self, Description};
use hardware::{
    processor,
    tlbs::{TlbUnits, Unit},
    walker::{Dimension, UpperEntries, Walker, Walkers},
};
use mmu::{Flushed, Requests, Served, WalkArray};
use os::host::Stack;
use ram::{Ram, reservations::by_size};
use results::{
    BlockCounts, ByKind, CacheCounts, CacheFlushes, CacheTraffic, Faults, HeaderSummary,
    HitsAndMisses, LevelCounts, MachineSummary, MemoryCounts, MmuCacheArray, MmuCacheCounts,
    MmuCacheLevel, NestedCounts, RegionCounts, Results, SCHEMA, TlbCounts, TraceSummary, Walks,
    count::origins, sum::Sum,
};
use trace::{Process, Source, adjoin, joined_bytes, name_in_space};

use super::time;
use crate::run::{Run, promotion::Promotion, small::Small};
use not_modelled::not_modelled;

/// The results of a finished run.
pub fn summarize(
    description: &Description,
    machine: MachineSummary,
    source: &dyn Source,
    run: &mut Run,
    walkers: &Walkers,
) -> Results {
    run.system.settle(&run.stack.guest, &mut run.layout);
    let time = time::of(description, run, walkers);
    let (mut regions, places) = regions(source.processes(), run, walkers, time.is_some());
    if let Some(origins) = &run.hooks.origins {
        let sites = origins::sites_of_regions(origins, &run.layout, &places);
        regions.iter_mut().zip(sites).for_each(|(region, site)| region.site = site);
    }
    let mut manager = run.system.counts(&run.stack.guest);
    if let Some(manager) = &mut manager {
        run.system.enter_sizes(&places, manager);
        manager.name_regions(&regions);
    }
    let not_modelled = not_modelled(description, source, run, walkers);
    let processors = processors::each(description, run, walkers);
    let (timeline, mut map) =
        run.seen.history.clone().finish(run.seen.position - run.seen.left_out);
    map.owners = owners(&map.owners, &places);
    let origins = run.hooks.origins.as_ref().map(|origins| origins.finish(&run.layout, &places));
    let header = source.header();
    let mut processes = source.processes().to_vec();
    processes.sort_by_key(|process| std::cmp::Reverse(process.accesses));
    Results {
        schema: SCHEMA,
        pagewalk: env!("CARGO_PKG_VERSION").to_owned(),
        trace: TraceSummary {
            digest: source.digest(),
            header: HeaderSummary {
                producer: header.producer.clone(),
                command: header.command.clone(),
                arch: header.arch,
                fetches: header.fetches,
                filter: header.filter,
                notes: header.notes.clone(),
                processes,
            },
            live: None,
        },
        machine,
        accesses: run.by_kind().into(),
        instructions: run.instructions(),
        threads: run.seen.threads.iter().filter(|seen| **seen).count() as u64,
        switches: source.switches(),
        page_crossings: run.seen.page_crossings,
        tlbs: processors::together(processors.iter().map(|one| &one.tlbs)),
        space_switches: spaces::switches(description, run),
        small_spaces: run.hooks.small.as_ref().map(Small::counts),
        trace_cache: spaces::trace_cache(description, run),
        walks: Sum::of(processors.iter().map(|one| one.walks.clone())).unwrap_or_default(),
        mmu_cache: Sum::of(processors.iter().map(|one| one.mmu_cache.clone())).flatten(),
        spec_tlb: Sum::of(processors.iter().map(|one| one.spec_tlb.clone())).flatten(),
        range_tlb: Sum::of(processors.iter().map(|one| one.range_tlb.clone())).flatten(),
        restseg: Sum::of(processors.iter().map(|one| one.restseg.clone())).flatten(),
        nested: nested(description, &run.stack, walkers),
        caches: caches(description, walkers),
        shootdowns: Sum::of(processors.iter().map(|one| one.shootdowns)).unwrap_or_default(),
        faults: Faults {
            first_touch: run.seen.first_touches,
            returned: run.seen.returns,
            protection: run.seen.protection_faults,
        },
        manager,
        promotion: run.hooks.promotion.as_ref().map(Promotion::counts),
        numa: nodes::numa(description, run, walkers),
        changed_settings: run.seen.changed.clone(),
        processors: if processors.len() > 1 { processors } else { Vec::new() },
        memory: memory(&run.stack.guest),
        regions,
        origins,
        timeline,
        map,
        time,
        not_modelled,
        checked: run.constants.check,
    }
}

fn tlbs(hardware: &TlbUnits) -> Vec<TlbCounts> {
    let serves = |index: usize| {
        Kind::ALL
            .into_iter()
            .filter(|&kind| {
                hardware.first[kind as usize] == index || hardware.second[kind as usize] == index
            })
            .map(Kind::name)
            .collect()
    };
    let counts = |(index, unit): (usize, &Unit)| {
        let counts = &unit.counts;
        let by_kind = Kind::ALL.map(|kind| counts.of_kind(kind));
        let arrays = &unit.params.arrays;
        TlbCounts {
            name: unit.name.to_owned(),
            level: unit.level,
            serves: serves(index),
            entries: arrays.iter().map(|array| u64::from(array.entries)).sum(),
            ways: arrays.iter().map(|array| u64::from(array.ways)).collect(),
            replacement: arrays.iter().map(|array| array.replacement.to_string()).collect(),
            total: by_kind[0].plus(by_kind[1]).plus(by_kind[2]),
            cold_misses: counts.cold_misses,
            denied: counts.denied,
            invalid: counts.invalid,
            evictions: counts.evictions,
            flushed: counts.flushed,
            table_hits: counts.table_hits,
            blocks: unit.tlb.blocks().map(|blocks| {
                let counts = unit.tlb.counts();
                BlockCounts {
                    kind: blocks.kind.name().to_owned(),
                    pages: blocks.pages.into(),
                    fills: counts.block_fills,
                    pages_filled: counts.block_pages,
                    tag_hits: counts.tag_hits,
                }
            }),
            by_kind: by_kind.into(),
            by_page_size: counts.by_page_size(),
        }
    };
    hardware.units.iter().enumerate().map(counts).collect()
}

fn walks(counts: &processor::ProcessorCounts, walker: &Walker) -> Walks {
    let walks = &walker.walks;
    Walks {
        walks: walks.walks,
        cold: walks.cold,
        references: walks.references,
        dirty_assists: counts.dirty_assists,
        modify_traps: counts.modify_traps,
        cold_references: walks.cold_references,
        references_per_walk: (0..)
            .zip(&walks.per_walk)
            .filter(|(_, walks)| **walks > 0)
            .map(|(references, walks)| (references, *walks))
            .collect(),
        by_level: levels(&walker.dimension),
        handler_instructions: walker.handler.is_some().then_some(walks.handler_instructions),
        nested_misses: (0..)
            .zip(&walks.nested_misses)
            .filter(|(_, misses)| **misses > 0)
            .map(|(level, misses)| (level, *misses))
            .collect(),
    }
}

/// The references of the walks of a dimension (guest or host) by level, root first.
fn levels(dimension: &Dimension) -> Vec<LevelCounts> {
    let level = |(level, served): (usize, &[u64; Served::COUNT])| LevelCounts {
        level: level as u8,
        references: served.iter().sum(),
        served: Served::ALL
            .into_iter()
            .map(|place| (place.name().to_owned(), served[place as usize]))
            .filter(|(_, count)| *count > 0)
            .collect(),
    };
    let levels = dimension.served.iter().enumerate().rev().map(level);
    levels.filter(|level| level.references > 0).collect()
}

/// The MMU cache of a dimension (guest or host): its parameters and its counts.
pub fn mmu_cache(
    described: Option<&description::MmuCache>,
    dimension: &Dimension,
) -> Option<MmuCacheCounts> {
    let (described, params) = (described?, dimension.params.as_ref()?);
    let bits = params.bits(described.physical_bits).unwrap_or_default();
    let array = |(index, array): (usize, &WalkArray)| MmuCacheArray {
        level: Some(array.level).filter(|level| *level > 0),
        entries: array.entries.into(),
        ways: array.ways.into(),
        tag_bits: bits.get(index).map(|bits| bits.tag_bits.into()),
        data_bits: bits.get(index).map(|bits| bits.data_bits.into()),
    };
    let level = |(level, upper): (usize, &UpperEntries)| MmuCacheLevel {
        level: level as u8,
        needed: upper.held + upper.fetched,
        held: upper.held,
    };
    let levels = dimension.upper.iter().enumerate().rev().map(level);
    Some(MmuCacheCounts {
        design: params.design.name().to_owned(),
        replacement: params.replacement.to_string(),
        arrays: params.arrays.iter().enumerate().map(array).collect(),
        latency_cycles: described.latency_cycles.into(),
        searches: dimension.searches,
        by_level: levels.filter(|level| level.needed > 0).collect(),
    })
}

fn nested(description: &Description, stack: &Stack, walkers: &Walkers) -> Option<NestedCounts> {
    let (described, host) = (description.nested.as_ref()?, stack.host()?);
    let sides = || walkers.each().filter_map(|walker| walker.host.as_ref());
    let tlb = sides().map(|side| side.tlb.as_ref()).map(|tlb| {
        let tlb = tlb?;
        let counts = tlb.counts();
        let (hits, misses) = (counts.hits.iter().sum(), counts.misses.iter().sum());
        Some(HitsAndMisses { lookups: hits + misses, hits, misses })
    });
    let by_level = Sum::of(sides().map(|side| levels(&side.dimension)))?;
    let is_own = described.shared.is_none();
    let mmu_cache_of = if is_own { &described.mmu_cache } else { &description.mmu_cache };
    let mmu_caches = sides().map(|side| mmu_cache(mmu_cache_of.as_ref(), &side.dimension));
    let (used_bytes, table_bytes) = host.used_bytes();
    let reservations = host.reservations();
    let reserved_bytes = reservations.as_ref().map_or(0, |(_, bytes)| *bytes);
    Some(NestedCounts {
        page_size: host.page_size().to_string(),
        walks: sides().map(|side| side.walks).sum(),
        references: by_level.iter().map(|level| level.references).sum(),
        by_level,
        tlb: Sum::of(tlb).flatten(),
        mmu_cache: Sum::of(mmu_caches).flatten(),
        spec_tlb: Sum::of(walkers.each().map(spec_tlb::of_host)).flatten(),
        critical_references: walkers.here.speculates().then(|| critical(walkers)),
        reservations: reservations.map(|(counts, _)| by_size(&counts, PageSize::SIZE_4K)),
        reserved_bytes,
        former_bytes: host.former_bytes(),
        first_touches: host.first_touches(),
        splintered: stack.splintered(),
        used_bytes,
        table_bytes,
    })
}

/// References for which the program waits, because no correct prediction hides them.
fn critical(walkers: &Walkers) -> u64 {
    let of = |walker: &Walker| match walker.speculators.first() {
        Some(speculator) => speculator.counts.critical,
        None => walker.host.as_ref().map_or(0, |side| side.critical),
    };
    walkers.each().map(of).sum()
}

/// The counts of all data caches; caches with the same name are added up.
fn caches(description: &Description, walkers: &Walkers) -> Vec<CacheCounts> {
    let all = walkers.each().flat_map(|walker| caches_of(description, walker));
    let all: Vec<CacheCounts> = all.collect();
    let named = |name| Sum::of(all.iter().filter(|cache| cache.name == name).cloned());
    description.cache.present().filter_map(|(name, _)| named(name)).collect()
}

/// The counts of the data caches that `walker` uses: its own caches, and the shared ones if they
/// are attached to it now.
fn caches_of(description: &Description, walker: &Walker) -> Vec<CacheCounts> {
    let Some(hierarchy) = &walker.port.caches else { return Vec::new() };
    let traffic = |requests: &Requests| CacheTraffic {
        reads: requests.reads,
        read_misses: requests.read_misses,
        writes: requests.writes,
        write_misses: requests.write_misses,
    };
    let counts = |(name, cache): (&'static str, &description::Cache)| {
        let place = Served::ALL.into_iter().find(|place| place.name() == name)?;
        let counts = hierarchy.counts(place)?;
        Some(CacheCounts {
            name: name.to_owned(),
            size_bytes: cache.size.0,
            line_bytes: cache.line.0,
            ways: u64::from(cache.ways.of((cache.size.0 / cache.line.0) as u32)),
            replacement: cache.replacement.clone(),
            program: traffic(&counts.program),
            walker: traffic(&counts.walker),
            writebacks: counts.writebacks,
            flushes: description.core.virtual_caches.then(|| {
                let Flushed { times, looked, lines, dirty } = counts.flushed;
                CacheFlushes { times, looked, lines, written: dirty }
            }),
        })
    };
    description.cache.present().filter_map(counts).collect()
}

fn memory(ram: &Ram) -> MemoryCounts {
    let (frames_total_bytes, frames_used_bytes) = ram.frame_bytes();
    let tables = ram.footprint();
    MemoryCounts {
        frames_total_bytes,
        frames_used_bytes,
        frames_peak_bytes: ram.peak_bytes(),
        mapped_bytes: ram.mapped_bytes(),
        aged_bytes: ram.aged_bytes(),
        device_bytes: ram.device_bytes(),
        table_bytes: tables.frame_bytes,
        table_used_bytes: tables.table_bytes,
        pages_by_size: ram
            .mapped()
            .iter()
            .map(|(size, pages)| (size.to_string(), *pages))
            .collect::<BTreeMap<_, _>>(),
        free_by_size: ram.free_blocks().map(|(size, blocks)| (size.to_string(), blocks)).collect(),
    }
}

/// The regions in the order of their addresses, and for each label the index of its region.
fn regions(
    processes: &[Process],
    run: &mut Run,
    walkers: &Walkers,
    timed: bool,
) -> (Vec<RegionCounts>, Vec<u32>) {
    let Run { stack, layout, seen, processors, .. } = run;
    let census = &mut seen.census;
    let hardware = &processors.here.hardware;
    let spaces = stack.guest.spaces();
    let mut regions: Vec<(u32, RegionCounts, Vec<u32>)> = (0..)
        .zip(layout.labeled())
        .map(|(label, (space, region))| {
            let counts = census.region(label);
            let walks = walkers.region(label);
            let lookups: [u64; Kind::COUNT] =
                Kind::ALL.map(|kind| counts.hits[kind as usize] + counts.l1_misses[kind as usize]);
            let name = if spaces > 1 {
                name_in_space(&region.name, space, processes)
            } else {
                region.name.clone()
            };
            let region = RegionCounts {
                name,
                start: region.start,
                bytes: region.bytes,
                rights: region.rights.to_string(),
                inferred: region.inferred,
                backing: region.backing.map(|backing| backing.name().to_owned()),
                populated: region.populated.map(|populated| populated.name().to_owned()),
                mapped_by_site: region.site.map(|_| region.is_mapped_by_site),
                site: None,
                pages: counts.pages,
                lookups: lookups.iter().sum(),
                by_kind: ByKind::from(lookups),
                l1_misses: counts.l1_misses.iter().sum(),
                misses: counts.misses,
                cold_misses: counts.cold_misses,
                walk_references: walks.references,
                walk_cycles: timed.then(|| time::of_lookups(hardware, counts) + walks.cycles),
            };
            (space, region, vec![label])
        })
        .collect();
    regions.sort_by(|(a_space, a, _), (b_space, b, _)| {
        (a_space, a.start, &a.name).cmp(&(b_space, b.start, &b.name))
    });
    regions.dedup_by(|(next_space, next, next_labels), (space, region, labels)| {
        let joins = space == next_space
            && region.inferred
            && next.inferred
            && adjoin(region.start, region.bytes, next.start);
        if joins {
            absorb(region, next);
            labels.append(next_labels);
        }
        joins
    });
    regions.sort_by(|(_, a, _), (_, b, _)| (a.start, &a.name).cmp(&(b.start, &b.name)));
    let mut places = vec![0; regions.iter().map(|(_, _, labels)| labels.len()).sum()];
    for (place, (_, _, labels)) in (0..).zip(&regions) {
        labels.iter().for_each(|label| places[*label as usize] = place);
    }
    (regions.into_iter().map(|(_, region, _)| region).collect(), places)
}

/// The regions that own the granules, by the indices of the regions. Labels that were merged into
/// one cluster are one owner.
fn owners(labeled: &[(u64, u32, u64)], places: &[u32]) -> Vec<(u64, u32, u64)> {
    let mut owners = BTreeMap::new();
    for &(granule, label, misses) in labeled {
        *owners.entry((granule, places[label as usize])).or_insert(0) += misses;
    }
    owners.into_iter().map(|((granule, region), misses)| (granule, region, misses)).collect()
}

/// Adds the counts of `next`, which is at a higher address, to the inferred `region` of the same cluster. The
/// region keeps its name and rights.
fn absorb(region: &mut RegionCounts, next: &RegionCounts) {
    let RegionCounts {
        name: _,
        start,
        bytes,
        rights: _,
        inferred: _,
        backing: _,
        populated: _,
        mapped_by_site: _,
        site: _,
        pages,
        lookups,
        by_kind,
        l1_misses,
        misses,
        cold_misses,
        walk_references,
        walk_cycles,
    } = next;
    region.bytes = joined_bytes(region.start, region.bytes, *start, *bytes);
    region.pages += pages;
    region.lookups += lookups;
    region.by_kind.add(by_kind);
    region.l1_misses += l1_misses;
    region.misses += misses;
    region.cold_misses += cold_misses;
    region.walk_references += walk_references;
    region.walk_cycles.add(walk_cycles);
}
