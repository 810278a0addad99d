//! Tests walks and caches on small traces whose counts can be computed by hand.

use addr::Kind;
use machine::{Results, results::Range};
use trace::Event;

use crate::support::{Row, run};

const BASE: u64 = 0x7000_0000_0000;

fn loads(addrs: impl IntoIterator<Item = u64>) -> Vec<Row> {
    addrs.into_iter().map(|addr| Row::Access(Kind::Load, addr, 8)).collect()
}

fn served(results: &Results, level: u8, place: &str) -> u64 {
    let level = results.walks.by_level.iter().find(|counts| counts.level == level);
    level.and_then(|counts| counts.served.get(place)).copied().unwrap_or(0)
}

/// Two rounds over more pages than both TLBs hold. In the second round every access walks, with
/// four reads.
#[test]
fn a_warm_walk_reads_one_entry_a_level() {
    let pages = 1000;
    let round = || (0..pages).map(|page| BASE + page * 4096);
    let results = run("opteron-2008", &[], &loads(round().chain(round())));
    let walks = &results.walks;
    assert_eq!((walks.walks, walks.cold), (2 * pages, pages));
    assert_eq!(walks.references_per_walk, vec![(4, pages)]);
    assert_eq!(walks.by_level.iter().map(|level| level.level).collect::<Vec<_>>(), [4, 3, 2, 1]);
    assert_eq!(results.faults.first_touch, pages);
    assert_eq!(results.memory.mapped_bytes, pages * 4096);
    // A thousand pages from an aligned start take two leaf tables, and one table above each.
    assert_eq!(results.memory.table_bytes, 5 * 4096);
}

#[test]
fn five_levels_and_superpages_change_the_references() {
    for (levels, size, references) in [(4, "4K", 4), (5, "4K", 5), (4, "2M", 3), (5, "1G", 3)] {
        let bytes = size.parse::<addr::PageSize>().unwrap().bytes();
        let pages = 2000;
        let round = || (0..pages).map(|page| page * bytes);
        let settings = [
            format!("page_table.levels={levels}"),
            format!("os.page_size={size}"),
            "os.uniform=true".to_owned(),
            "memory.size=8T".to_owned(),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let results = run("opteron-2008", &settings, &loads(round().chain(round())));
        assert_eq!(results.walks.references_per_walk, vec![(references, pages)], "{settings:?}");
    }
}

/// Eight entries of a lowest-level table share a cache line, so of eight walks in succession one
/// misses the cache at this level.
#[test]
fn neighbouring_entries_share_a_line() {
    let pages = 4096;
    let results = run("opteron-2008", &[], &loads((0..pages).map(|page| BASE + page * 4096)));
    assert_eq!(served(&results, 1, "memory") * 8, pages);
    assert_eq!(
        results.caches[0].walker.read_misses,
        results
            .walks
            .by_level
            .iter()
            .map(|level| level.served.get("memory").copied().unwrap_or(0))
            .sum::<u64>()
    );
}

/// An entry has two pages under one tag. A round over all pages misses once for each pair.
#[test]
fn a_pair_serves_its_neighbour() {
    let pages = 90;
    let round = || (0..pages).map(|page| BASE + page * 4096);
    let trace = loads(round().chain(round()).chain(round()));
    let paired = run("r4700", &["tlb.l1.replacement=lru"], &trace);
    let single = run("r4700", &["tlb.l1.replacement=lru", "tlb.l1.paired=false"], &trace);
    // The first touch of each page misses. After that, 45 pairs fit into 48 entries, but 90 single
    // pages do not.
    assert_eq!(paired.tlbs[0].total.misses, pages);
    assert_eq!(single.tlbs[0].total.misses, 3 * pages);
}

#[test]
fn time_is_counts_times_latencies() {
    let pages = 3000;
    let round = || (0..pages).map(|page| BASE + page * 4096);
    let results = run("opteron-2008", &[], &loads(round().chain(round())));
    let time = results.time.clone().unwrap();
    let cycles: u64 = (1..=4)
        .map(|level| 12 * served(&results, level, "l2") + 200 * served(&results, level, "memory"))
        .sum();
    assert_eq!(time.translation_cycles.hi, cycles);
    assert_eq!(time.translation_cycles.lo, 0);
    let program = &results.caches[0].program;
    let stalls = (program.read_misses + program.write_misses) * (200 - 12);
    // The lower bound holds if every stall is hidden, and the upper bound if no stall is hidden.
    let (lo, hi) = (results.instructions, results.instructions + stalls);
    assert_eq!(time.program_cycles, Range { lo, hi });
    let share = cycles as f64 / (cycles + lo) as f64;
    assert!((time.share.hi - share).abs() < 1e-12);
    let regions: u64 = results.regions.iter().filter_map(|region| region.walk_cycles).sum();
    assert_eq!(regions, cycles);
}

/// The latency of a hit in the nearest cache is part of the cycles per instruction, also if
/// instructions and data have caches of different latencies.
#[test]
fn a_hit_in_the_nearest_cache_stalls_nothing() {
    for (l1i, l1d) in [(1, 2), (2, 1), (3, 3)] {
        let settings =
            [format!("cache.l1i.latency_cycles={l1i}"), format!("cache.l1d.latency_cycles={l1d}")];
        let settings = settings.each_ref().map(String::as_str);
        let (lines, rounds) = (100, 7);
        let one =
            |kind, start, line| (0..lines).map(move |at| Row::Access(kind, start + at * line, 4));
        let rows: Vec<Row> = (0..rounds)
            .flat_map(|_| one(Kind::Fetch, BASE, 64).chain(one(Kind::Load, BASE + (1 << 24), 32)))
            .collect();
        let results = run("origin-2000", &settings, &rows);
        let counts = |cache: usize| results.caches[cache].program.read_misses;
        assert_eq!((counts(0), counts(1)), (lines, lines));
        // A first touch is served by memory, or by the second-level cache if another line of that
        // cache's larger line was loaded before.
        let second_misses = counts(2);
        let (latency, memory) = (10, 61);
        let stalls = 2 * lines * latency + second_misses * (memory - latency) - lines * (l1i + l1d);
        let time = results.time.unwrap();
        assert_eq!(time.program_cycles.hi, results.instructions + stalls, "{l1i} {l1d}");
    }
}

/// The parts that a recording skipped are not in the time. Instructions that no row counts are.
#[test]
fn skipped_instructions_are_not_counted() {
    let gap = |accesses, instructions| Row::Event(Event::Gap { accesses, instructions });
    let mut rows = loads((0..100).map(|at| BASE + at * 8));
    rows.insert(0, gap(1_000_000, 5_000_000));
    rows.insert(50, gap(0, 7));
    let results = run("opteron-2008", &[], &rows);
    assert_eq!(results.instructions, 100 + 7);
    assert_eq!(results.time.unwrap().program_cycles.lo, 107);
    let note = "1000000 accesses that are not in the trace";
    assert!(results.not_modelled.iter().any(|one| one == note), "{:?}", results.not_modelled);
}

/// Every lookup is charged: hits of the first level, and all lookups of the second level, including
/// its misses.
#[test]
fn time_charges_every_lookup() {
    let pages = 3000;
    let round = || (0..pages).map(|page| BASE + page * 4096);
    let trace = loads(round().chain(round()));
    for format in ["x86-64", "linear"] {
        let set = |first: u32, second: u32| {
            let format = format!("page_table.format={format}");
            let first = format!("tlb.l1d.latency_cycles={first}");
            let second = format!("tlb.l2d.latency_cycles={second}");
            run("opteron-2008", &["mmu_cache.design=none", &format, &first, &second], &trace)
        };
        let cycles = |results: &Results| {
            let regions = results.regions.iter().filter_map(|region| region.walk_cycles);
            let hi = results.time.clone().unwrap().translation_cycles.hi;
            assert_eq!(regions.sum::<u64>(), hi);
            hi
        };
        let free = set(0, 0);
        let lookups =
            |name: &str| free.tlbs.iter().find(|tlb| tlb.name == name).unwrap().total.lookups;
        let (first, second) = (lookups("l1d"), lookups("l2d"));
        let added = [cycles(&set(3, 0)), cycles(&set(0, 7))].map(|dear| dear - cycles(&free));
        if format == "linear" {
            // The handler's own lookups, for pages of the page table, are counted in addition.
            assert!(added[0] > 3 * first && added[1] > 7 * second, "{added:?}");
        } else {
            assert_eq!(added, [3 * first, 7 * second]);
        }
    }
}

/// Random loads miss the caches and the TLBs. If a core can overlap all of its data-cache misses,
/// and walks do not overlap, it spends nearly all of its time in walks. A core that waits for each
/// miss does not.
#[test]
fn the_share_spans_what_overlap_can_do() {
    let mut stream = crate::support::Stream(3);
    let far = loads((0..50_000).map(|_| BASE + stream.below(64 << 20) / 8 * 8));
    let time = |setting: &str| run("opteron-2008", &[setting], &far).time.clone().unwrap();
    let (any, eight, blocking) = (
        time("core.cycles_per_instruction=1"),
        time("core.misses_in_flight=8"),
        time("core.misses_in_flight=1"),
    );
    let stalls = any.program_cycles.hi - any.program_cycles.lo;
    assert_eq!(eight.program_cycles, Range { lo: stalls / 8, hi: any.program_cycles.hi });
    assert_eq!(blocking.program_cycles.lo, blocking.program_cycles.hi);
    for time in [&any, &eight, &blocking] {
        let (walks, least) = (time.translation_cycles.hi as f64, time.program_cycles.lo as f64);
        assert!((time.share.hi - walks / (walks + least)).abs() < 1e-9);
        assert_eq!(time.share.lo, 0.0);
    }
    assert!(any.share.hi > 0.9 && eight.share.hi < 0.8 && blocking.share.hi < 0.4);
}

/// The cycles of a software handler: its instructions, the trap, and the latency of its references
/// beyond a hit in the nearest cache. None of these cycles can overlap other work.
#[test]
fn software_refills_take_a_handler_s_instructions() {
    let pages = 3000;
    let round = || (0..pages).map(|page| BASE + page * 4096);
    let trace = loads(round().chain(round()));
    for (settings, instructions_at_least) in [
        // Each pair is refilled once from the software TLB; the refill contains both pages of the
        // pair.
        (&["page_table.software_tlb=128K"][..], 14),
        (&["page_table.format=mpt"], 4 + 4 + 5 * 6 + 6),
        (&["page_table.format=hashed"], 4 + 14 + 3 + 1),
    ] {
        let results = run("r4700", settings, &trace);
        let (walks, time) = (&results.walks, results.time.clone().unwrap());
        let instructions = walks.handler_instructions.unwrap();
        let waits: u64 = (0..=15).map(|level| 29 * served(&results, level, "memory")).sum();
        assert_eq!(time.translation_cycles.hi, instructions + 8 * walks.walks + waits);
        assert_eq!(time.translation_cycles.lo, time.translation_cycles.hi);
        // The core waits for each cache miss, so the bounds of the share are equal.
        assert_eq!(time.share.lo, time.share.hi);
        let warm = walks.walks - walks.cold;
        assert!(instructions >= instructions_at_least * warm, "{settings:?}");
    }
    let hardware = run("r4700", &["walker.kind=hardware"], &trace);
    assert_eq!(hardware.walks.handler_instructions, None);
}

/// If the TLB has the page of the linear table that contains the entry, a miss loads one entry.
/// Otherwise the upper tables are looked up.
#[test]
fn a_linear_table_is_found_through_the_tlb() {
    let settings = ["page_table.format=linear", "tlb.l1.replacement=lru", "tlb.l1.paired=false"];
    // The TLB has 48 entries. The translation of each leaf table (one per 512 pages) stays in the
    // TLB, because every miss uses it.
    let pages = 1000;
    let round = || (0..pages).map(|page| BASE + page * 4096);
    let results = run("r4700", &settings, &loads(round().chain(round())));
    let walks = &results.walks;
    assert_eq!((walks.walks, walks.cold), (2 * pages, pages));
    // In the second round, the translation of each of the two leaf tables misses at most once.
    let one = walks.references_per_walk.iter().find(|(references, _)| *references == 1);
    assert!(one.is_some_and(|(_, walks)| *walks >= pages - 2), "{:?}", walks.references_per_walk);
    assert!(results.tlbs[0].table_hits >= 2 * pages - 10);

    // The pages share no tables, so each walk makes six references, five of which miss in the TLB.
    let far = || (1..=60).map(|n: u64| n << 57);
    let results = run("r4700", &settings, &loads(far().chain(far())));
    let walks = &results.walks;
    assert_eq!(walks.references_per_walk, vec![(6, 60)]);
    for (level, misses) in &walks.nested_misses {
        assert_eq!((*level, *misses >= 2 * 60), (*level, true), "{:?}", walks.nested_misses);
    }
    assert_eq!(walks.nested_misses.len(), 5);
    // Each page took five entries besides its own.
    assert!(results.tlbs[0].evictions >= 2 * 60 * 6 - 48);
}

/// When a table of the linear array is freed, its translation is flushed from the TLB, because its
/// frame is used for something else next.
#[test]
fn tables_of_an_array_are_flushed_when_they_go() {
    let access = |page: u64| Row::Access(Kind::Load, page << 57, 8);
    let gone = Event::Munmap { addr: 1 << 57, bytes: 4096, result: 0 };
    let rows = [access(1), Row::Event(gone), access(2), access(3), access(1), access(2), access(3)];
    let results = run("r4700", &["page_table.format=linear"], &rows);
    assert_eq!(results.faults.first_touch, 4);
    assert_eq!(results.faults.protection, 0);
    assert!(results.tlbs[0].flushed >= 6, "{}", results.tlbs[0].flushed);
    assert_eq!(results.shootdowns.entries, results.tlbs[0].flushed, "pages of the table too");
}

/// An access that repeats the previous access is not passed to the caches immediately, but it is
/// counted there: by kind, in the cache that it looks up first.
#[test]
fn repeats_of_an_access_are_reads_and_writes_of_its_cache() {
    let rows: Vec<Row> = [(Kind::Fetch, 5), (Kind::Load, 7), (Kind::Store, 11), (Kind::Load, 3)]
        .into_iter()
        .flat_map(|(kind, times)| (0..times).map(move |_| Row::Access(kind, BASE, 8)))
        .collect();
    let results = run("epyc-9005", &[], &rows);
    let counts = |level: &str| {
        let cache = results.caches.iter().find(|cache| cache.name == level).unwrap();
        (cache.program.reads, cache.program.writes)
    };
    assert_eq!((counts("l1i"), counts("l1d")), ((5, 0), (10, 11)));
}

/// The peak of memory includes pages that the program has freed.
#[test]
fn memory_knows_its_peak() {
    let touch = |pages: std::ops::Range<u64>| {
        pages.map(|page| Row::Access(Kind::Store, BASE + page * 4096, 8))
    };
    let gone = Event::Munmap { addr: BASE, bytes: 300 * 4096, result: 0 };
    let rows: Vec<Row> = touch(0..300).chain([Row::Event(gone)]).chain(touch(0..100)).collect();
    let memory = run("opteron-2008", &[], &rows).memory;
    assert_eq!(memory.mapped_bytes, 100 * 4096);
    // A root and three tables below it lead to 300 adjacent pages.
    assert_eq!(memory.frames_peak_bytes, 304 * 4096);
    assert_eq!(run("tlb-only", &[], &rows).memory.frames_peak_bytes, 0);
}

#[test]
fn a_result_says_what_was_left_out() {
    let results = run("tlb-only", &[], &loads([BASE]));
    assert!(results.not_modelled.iter().any(|note| note.contains("has only TLBs")));
    assert!(results.not_modelled.iter().any(|note| note.contains("inferred")));
    assert_eq!(results.time, None);
}

/// The costs of a walk besides its references are charged for each walk, in both bounds of the
/// time.
#[test]
fn each_cost_of_a_walk_is_charged_as_often_as_it_happens() {
    let pages = 600;
    let turns = |kind: Kind| (0..pages).map(move |page| Row::Access(kind, BASE + page * 4096, 8));
    let rows: Vec<Row> =
        turns(Kind::Load).chain(turns(Kind::Store)).chain(turns(Kind::Load)).collect();
    // No two of these pages share a table.
    let far = (1..=60).map(|n: u64| Row::Access(Kind::Load, n << 57, 8));
    let far: Vec<Row> = far.clone().chain(far).collect();
    let wide = "page_table.format=linear";
    let host = "nested.memory=4T";
    type Count = fn(&Results) -> u64;
    let cases: [(&str, &[&str], &str, Count); 6] = [
        ("r4700", &[], "walker.exception_cycles", |results| {
            results.tlbs.iter().map(|tlb| tlb.invalid).sum::<u64>() + results.walks.modify_traps
        }),
        ("r4700", &[wide], "walker.nested_cycles", |results| {
            results.walks.nested_misses.iter().map(|(_, misses)| misses).sum()
        }),
        ("opteron-2008", &["mmu_cache.entries=8"], "mmu_cache.latency_cycles", |results| {
            results.mmu_cache.as_ref().map_or(0, |cache| cache.searches)
        }),
        (
            "opteron-2008",
            &[host, "nested.mmu_cache.entries=8", "nested.mmu_cache.design=utc"],
            "nested.mmu_cache.latency_cycles",
            |results| results.nested.as_ref().unwrap().mmu_cache.as_ref().unwrap().searches,
        ),
        (
            "opteron-2008",
            &[host, "nested.tlb.entries=16"],
            "nested.tlb.latency_cycles",
            |results| results.nested.as_ref().unwrap().tlb.as_ref().unwrap().lookups,
        ),
        ("opteron-2008", &[], "walker.refill_cycles", |results| results.walks.walks),
    ];
    for (machine, settings, key, count) in cases {
        let of = |cycles: u32| {
            let cost = format!("{key}={cycles}");
            let rows = if settings.contains(&wide) { &far } else { &rows };
            run(machine, &[settings, &[&cost]].concat(), rows)
        };
        let [free, dear] = [of(0), of(1000)];
        let times = count(&free);
        assert!(times > 100, "{key}: {times}");
        let hi = |results: &Results| results.time.clone().unwrap().translation_cycles.hi;
        assert_eq!(hi(&dear) - hi(&free), 1000 * times, "{key}");
        let of_regions = |results: &Results| {
            results.regions.iter().filter_map(|region| region.walk_cycles).sum::<u64>()
        };
        assert_eq!(of_regions(&dear) - of_regions(&free), 1000 * times, "{key}");
    }
}
