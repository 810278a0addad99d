//! From what a run counted to its [`Results`].

mod nodes;
mod processors;
pub mod spaces;
mod spec_tlb;

use std::collections::BTreeMap;

use addr::{Kind, PageSize};
use description::{self, Description, managers::keeps_tables_apart};
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
use trace::{Filter, Process, Source, adjoin, joined_bytes, name_in_space};

use super::time;
use crate::run::{Run, promotion::Promotion, small::Small};

/// The results of a run that has come to its end.
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
    if let Some(origins) = &run.origins {
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
    let (timeline, mut map) = run.history.clone().finish(run.position - run.left_out);
    map.owners = owners(&map.owners, &places);
    let origins = run.origins.as_ref().map(|origins| origins.finish(&run.layout, &places));
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
        threads: run.threads.iter().filter(|seen| **seen).count() as u64,
        switches: source.switches(),
        page_crossings: run.page_crossings,
        tlbs: processors::together(processors.iter().map(|one| &one.tlbs)),
        space_switches: spaces::switches(description, run),
        small_spaces: run.small.as_ref().map(Small::counts),
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
            first_touch: run.first_touches,
            returned: run.returns,
            protection: run.protection_faults,
        },
        manager,
        promotion: run.hooks.promotion.as_ref().map(Promotion::counts),
        numa: nodes::numa(description, run, walkers),
        changed_settings: run.changed.clone(),
        processors: if processors.len() > 1 { processors } else { Vec::new() },
        memory: memory(&run.stack.guest),
        regions,
        origins,
        timeline,
        map,
        time,
        not_modelled,
        checked: run.check,
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

/// The references of a dimension by level, root first.
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

/// The MMU cache of a dimension: what it is, and what it did so far.
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

/// References that no right prediction overlaps.
fn critical(walkers: &Walkers) -> u64 {
    let of = |walker: &Walker| match walker.speculators.first() {
        Some(speculator) => speculator.counts.critical,
        None => walker.host.as_ref().map_or(0, |side| side.critical),
    };
    walkers.each().map(of).sum()
}

/// All data caches, those of the same name together.
fn caches(description: &Description, walkers: &Walkers) -> Vec<CacheCounts> {
    let all = walkers.each().flat_map(|walker| caches_of(description, walker));
    let all: Vec<CacheCounts> = all.collect();
    let named = |name| Sum::of(all.iter().filter(|cache| cache.name == name).cloned());
    description.cache.present().filter_map(|(name, _)| named(name)).collect()
}

/// The data caches that `walker` has: its own, and those that are shared if it runs.
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

/// The regions by address, and the place of each label among them.
fn regions(
    processes: &[Process],
    run: &mut Run,
    walkers: &Walkers,
    timed: bool,
) -> (Vec<RegionCounts>, Vec<u32>) {
    let Run { stack, layout, census, processors, .. } = run;
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

/// The owners of granules by their places among the regions; labels of one cluster are one owner.
fn owners(labeled: &[(u64, u32, u64)], places: &[u32]) -> Vec<(u64, u32, u64)> {
    let mut owners = BTreeMap::new();
    for &(granule, label, misses) in labeled {
        *owners.entry((granule, places[label as usize])).or_insert(0) += misses;
    }
    owners.into_iter().map(|((granule, region), misses)| (granule, region, misses)).collect()
}

/// Adds `next`, which is not lower, to the inferred `region` of its cluster.
fn absorb(region: &mut RegionCounts, next: &RegionCounts) {
    region.bytes = joined_bytes(region.start, region.bytes, next.start, next.bytes);
    region.pages += next.pages;
    region.lookups += next.lookups;
    region.by_kind.fetch += next.by_kind.fetch;
    region.by_kind.load += next.by_kind.load;
    region.by_kind.store += next.by_kind.store;
    region.l1_misses += next.l1_misses;
    region.misses += next.misses;
    region.cold_misses += next.cold_misses;
    region.walk_references += next.walk_references;
    region.walk_cycles = region.walk_cycles.zip(next.walk_cycles).map(|(a, b)| a + b);
}

/// What the run left out, for whoever reads the numbers.
fn not_modelled(
    description: &Description,
    source: &dyn Source,
    run: &Run,
    walkers: &Walkers,
) -> Vec<String> {
    let walker = &walkers.here;
    let header = source.header();
    let mut notes: Vec<String> = Vec::new();
    let mut say = |note: &str| notes.push(note.to_owned());
    if description.page_table.is_some() {
        say("several walks under way at once: each walk ends before the next access begins");
        if description.walker.lowest_only {
            say("entries above the last that a walk reads: they cost nothing (walker.lowest_only)");
        } else if walker.dimension.params.is_none() && walker.handler.is_none() {
            say("MMU caches: every walk starts at the root of the page table");
        }
        if walker.speculates() {
            say(
                "what a wrong prediction costs, and how far a reorder buffer lets a right one help",
            );
        }
        say("the kernel's own accesses: what it reads and writes to answer a fault");
        if let Some(host) = &walker.host {
            if host.dimension.params.is_none() {
                say("MMU caches of the host: its walks start at the root of its page table");
            }
            say("exits to the hypervisor: a page of the host is there when it is first needed");
            if host.shared.is_none() {
                say("one MMU cache for both dimensions: guest and host have their own");
            }
            if !description.nested.as_ref().is_none_or(|nested| nested.holes.is_empty()) {
                say("accesses of the guest to its devices (nested.holes)");
            }
        }
        if description.range_tlb.is_some() {
            say("reads of the range table, which go on beside the walk");
        }
        if description.restseg.is_some() {
            say(
                "writes to the arrays of restrictive segments, and page tables without their pages",
            );
        }
        if !description.walker.tracks_dirty {
            say(match walker.handler {
                None => "the assist of a first store to a clean page (walker.tracks_dirty)",
                Some(_) => "the trap of a first store to a clean page (walker.tracks_dirty)",
            });
        }
        if walker.handler.is_some() {
            say("the refill handler's instructions in the instruction cache, and what it saves");
        }
    } else {
        say("walks, rights, data caches and time: the machine consists of TLBs alone");
    }
    if !description.core.fetches {
        say("fetches: the machine looks at data accesses only");
    } else if !header.fetches {
        say("fetches: the trace has none");
    }
    if description.cache.present().next().is_some() {
        say("prefetching, and coherence with other processors' caches");
    }
    let page_size = description.os.page_size.0;
    if description.os.uniform && page_size > PageSize::SIZE_4K {
        notes.push(format!(
            "where regions begin and end and what they allow: every page has {page_size} \
             (os.uniform), which no operating system can map"
        ));
    } else if let Some(large) = description.os.large()
        && !run.saw_events
    {
        notes.push(format!(
            "where pages of {large} fit: each aligned block of 2M in which something is \
             touched counts as one mapping"
        ));
    }
    if let Some(inject) = description.os.inject {
        notes.push(format!("a machine without defects: os.inject is {inject}"));
    }
    let mut say = |note: &str| notes.push(note.to_owned());
    if description.os.populated {
        say("faults of first touches: each page is mapped before its first walk");
    }
    let pages_leave = run.system.counts(&run.stack.guest).is_some();
    if pages_leave {
        if !run.saw_calls {
            say("files that are read and written by calls: the trace has no such calls");
        }
        if description.swap.as_ref().is_none_or(|swap| swap.io_cycles == 0) {
            say("what waiting for disks takes: the machine file has no swap.io_cycles");
        }
    } else {
        say("sharing, copy-on-write, file caching and replacement: each page is mapped at its \
             first touch");
    }
    say("wrong-path accesses: the trace holds what the program really did");
    if !run.saw_events {
        say("mappings: the trace has no VM calls, so regions are inferred and nothing is unmapped");
    }
    if description.swap.is_some() && !pages_leave {
        say("[swap]: this manager has no page leave memory");
    }
    if run.saw_physical && !keeps_tables_apart(&description.os) {
        say("the physical addresses of the trace: frames are the machine's own");
    }
    let several = run.processors.count() > 1;
    if !several && run.threads.iter().filter(|seen| **seen).count() > 1 {
        say("processors apart: all threads share one set of TLBs and caches (core.count)");
    }
    if several {
        say("time that passes: processors run in the trace's order, and their cycles are added up");
    }
    if run.had_deadline && run.clock() != description.os.clock {
        say("the full clock: what the operating system does by time is timed in instructions, so \
             that all designs of the sweep see one history");
    }
    if several && description.os.costs.is_none() {
        say("what shootdowns cost: the machine file has no [os.costs]");
    }
    if description.os.small.is_some() {
        say(
            "what the kernel keeps of small spaces beyond their roots, and calls that name memory of \
             another space",
        );
    }
    if description.core.virtual_caches {
        say(
            "two lines of a virtual cache that are of one frame, of which the kernel lets no more than one \
             be dirty",
        );
    }
    if run.saw_kernel {
        say("a kernel that was recorded: its path is a model with stated pages and lines");
    }
    if header.filter == Filter::Page16 {
        say(
            "accesses that the page16 filter dropped: lookups are those that it kept, and misses are \
             exact for LRU TLBs of 16 sets and more that serve code or data alone",
        );
    }
    if run.gap_accesses > 0 {
        notes.push(format!("{} accesses that are not in the trace", run.gap_accesses));
    }
    if !walker.port.latencies.known && description.page_table.is_some() {
        notes.push("time: the machine file leaves a latency out".to_owned());
    }
    notes.extend(header.notes.iter().cloned());
    notes
}
