//! Tests several processors: on which processor each thread runs, and the counts of each processor.

use std::collections::BTreeSet;

use addr::Kind;
use machine::{Machine, Results, RunOptions, results::TlbCounts};
use serde_json::Value;
use trace::{Event, Source, import::Options};

use crate::support::{HEAP, Row, Rows, Stream, mapping, run};

fn machine(name: &str, settings: &[&str]) -> Machine {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Machine::load(name, &settings).unwrap_or_else(|error| panic!("{error}"))
}

fn run_trace(machine: &Machine, trace: &str) -> Result<Results, machine::Error> {
    let mut source = trace::open(trace, &Options::default()).unwrap();
    let source: &mut dyn Source = &mut *source;
    machine.run(source, RunOptions { check: true, progress: &mut |_| true })
}

/// Accesses of six threads in turn, to memory of each thread and to shared memory.
fn threads(seed: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut rows = Vec::new();
    for _ in 0..300 {
        let thread = stream.below(6);
        rows.push(Row::Thread(thread as u32));
        for _ in 0..stream.below(40) {
            let kind = Kind::ALL[stream.below(3) as usize];
            let region = [thread + 1, 9][stream.below(2) as usize] << 30;
            rows.push(Row::Access(kind, region + (stream.below(300) << 12), 8));
        }
    }
    rows
}

fn accesses(rows: &[Row], mut by: impl FnMut(u32) -> bool) -> u64 {
    let mut thread = 0;
    let mut count = 0;
    for row in rows {
        match row {
            Row::Thread(next) => thread = *next,
            Row::Access(..) => count += u64::from(by(thread)),
            Row::Event(_) => {}
        }
    }
    count
}

/// Two processes, each on a processor of its own. No processor enters the space of the other
/// process, whether the trace has the event of the new process before its first access, as imported
/// traces do, or not.
#[test]
fn a_processor_enters_only_the_spaces_of_its_threads() {
    for told in [true, false] {
        let mut rows = Vec::new();
        for turn in 0..8 {
            let number = turn % 2;
            rows.push(Row::Thread(number));
            if told {
                rows.push(Row::Event(Event::Process { number }));
            }
            rows.push(Row::Event(Event::Run { cpu: None, space: number }));
            let start = 0x5000_0000;
            rows.push(Row::Access(Kind::Store, start, 8));
            rows.push(Row::Event(Event::Munmap { addr: start, bytes: 4096, result: 0 }));
        }
        let results = run("epyc-9005", &["core.count=2"], &rows);
        for one in &results.processors {
            assert_eq!(
                (one.switches, one.shootdowns.asked, one.shootdowns.made),
                (0, 0, 4),
                "{told}"
            );
        }
    }
}

#[test]
fn a_thread_has_one_processor() {
    let rows = threads(7);
    for (setting, count) in [("core.count=2", 2), ("core.count=3", 3), ("core.count=64", 64)] {
        let results = run("epyc-9005", &[setting], &rows);
        assert_eq!((results.processors.len(), results.threads), (count, 6));
        for one in &results.processors {
            let own = accesses(&rows, |thread| thread as usize % count == one.number as usize);
            let counts = one.accesses;
            assert_eq!(counts.fetch + counts.load + counts.store, own, "{setting}");
            let looked_up = one.tlbs.iter().filter(|tlb| tlb.level == 1);
            assert_eq!(looked_up.map(|tlb| tlb.total.lookups).sum::<u64>(), own, "{setting}");
        }
        // Each page has one first touch, whichever processor makes it.
        let alone = run("epyc-9005", &[], &rows);
        assert_eq!(results.faults, alone.faults);
        assert!(alone.processors.is_empty());
    }
}

/// Half of the pages of 24 heaps, touched at random by threads in turn. 36 MiB have room for half
/// of the heaps as a whole.
fn half_filled_heaps(seed: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let start = |heap: u64| HEAP + (heap << 22);
    let mut rows: Vec<Row> = (0..24).map(|heap| mapping(start(heap), 2 << 20)).collect();
    for access in 0..20_000 {
        if access % 50 == 0 {
            rows.push(Row::Thread(stream.below(6) as u32));
        }
        // At first only the first half of the heaps is used, later all heaps.
        let heap = stream.below(if access < 5000 { 12 } else { 24 });
        let kind = [Kind::Load, Kind::Store][stream.below(2) as usize];
        rows.push(Row::Access(kind, start(heap) + (stream.below(512) << 12), 8));
    }
    rows
}

/// `rows` with mappings of the heaps, and with events that discard pages of all threads, protect
/// them and make them writable again.
fn with_changes(rows: Vec<Row>) -> Vec<Row> {
    let mut changed: Vec<Row> = (1..10).map(|heap| mapping(heap << 30, 2 << 20)).collect();
    for (at, row) in rows.into_iter().enumerate() {
        if at % 400 == 399 {
            let (addr, bytes, result) = ((9 << 30) + ((at as u64 % 7) << 17), 1 << 17, 0);
            changed.push(Row::Event(match at / 400 % 3 {
                0 => Event::Mprotect { addr, bytes, prot: 1, result },
                1 => Event::Munmap { addr, bytes, result },
                _ => Event::Mprotect { addr, bytes, prot: 3, result },
            }));
        }
        changed.push(row);
    }
    changed
}

/// Fields that describe a structure and are not counts.
const GEOMETRY: [&str; 12] = [
    "pages",
    "ranges",
    "range_bytes",
    "level",
    "entries",
    "ways",
    "arrays",
    "latency_cycles",
    "size_bytes",
    "line_bytes",
    "tag_bits",
    "data_bits",
];

/// Compares every count in `total` with the sum of the counts at the same place in `parts`. Adds to
/// `counted` the places whose counts are not 0.
fn adds_up(total: &Value, parts: &[&Value], place: &str, counted: &mut BTreeSet<String>) {
    let each = |find: &dyn Fn(&Value) -> Option<Value>| -> Vec<Value> {
        parts.iter().filter_map(|part| find(part)).collect()
    };
    let below = |total: &Value, parts: Vec<Value>, place: &str, counted: &mut BTreeSet<String>| {
        adds_up(total, &parts.iter().collect::<Vec<_>>(), place, counted);
    };
    match total {
        Value::Number(number) => {
            let sum: u64 = parts.iter().map(|part| part.as_u64().unwrap()).sum();
            assert_eq!(number.as_u64(), Some(sum), "{place}");
            if sum > 0 {
                counted.insert(place.to_owned());
            }
        }
        Value::Object(fields) => {
            for key in parts.iter().filter_map(|part| part.as_object()).flat_map(|part| part.keys())
            {
                assert!(fields.contains_key(key), "{place} has no {key}");
            }
            // The entries that a shootdown drops are a count. The number of entries of a structure
            // is not.
            let is_count = |name: &str| !GEOMETRY.contains(&name) || place == "shootdowns";
            for (name, field) in fields.iter().filter(|(name, _)| is_count(name)) {
                below(
                    field,
                    each(&|part| part.get(name).cloned()),
                    &format!("{place}.{name}"),
                    counted,
                );
            }
        }
        // Elements are matched by a name or a level, or they are pairs of a key and a count.
        Value::Array(items) => {
            let key = |item: &Value| {
                let names = ["name", "level", "outcome"];
                names.iter().find_map(|key| item.get(key)).or(item.get(0)).cloned()
            };
            for other in parts.iter().filter_map(|part| part.as_array()).flatten() {
                let same = |item: &Value| key(item) == key(other);
                assert!(items.iter().any(same), "{place} has no {:?}", key(other));
            }
            for item in items {
                let same = each(&|part| {
                    part.as_array()?.iter().find(|other| key(other) == key(item)).cloned()
                });
                match item.get(1) {
                    Some(count) => {
                        let counts = same.iter().map(|pair| pair[1].clone()).collect();
                        below(count, counts, place, counted);
                    }
                    None if item.is_object() => below(item, same, place, counted),
                    None => {}
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Every count of the whole machine is the sum of the counts of its processors.
#[test]
fn what_all_count_is_the_sum_of_what_each_does() {
    let (rows, heaps) = (with_changes(threads(31)), half_filled_heaps(32));
    let linear = "page_table.format=linear";
    let caches = ["cache.l1d.size=4K", "cache.l1d.ways=1"];
    let keeps = ["spec_tlb.keeps_absent=true"];
    let blocks = ["tlb.l2d.blocks={kind=\"complete-subblock\",pages=4}"];
    let ranges = ["range_tlb={entries=64,pages_min=1}", "tlb.l2d.entries=16"];
    let devices = [
        "spec_tlb.fill=marks",
        "os.reservations={marks=\"keep\"}",
        "os.devices={pages=64,faults=8}",
        "memory.size=36M",
        "swap.size=64M",
    ];
    let mut counted = BTreeSet::new();
    for (name, settings, rows) in [
        ("epyc-9005", &[][..], &rows),
        ("epyc-9005", &caches, &rows),
        (
            "opteron-2008",
            &["walker.tracks_dirty=true", "mmu_cache.design=tpc", "mmu_cache.entries=24"],
            &rows,
        ),
        ("opteron-2008", &blocks, &rows),
        ("opteron-2008", &ranges, &rows),
        ("r4700", &["walker.tracks_dirty=true"], &rows),
        ("r4700", &[linear], &rows),
        ("freebsd-2009", &keeps, &rows),
        ("freebsd-2009", &devices, &heaps),
    ] {
        let settings: Vec<&str> = ["core.count=3"].iter().chain(settings).copied().collect();
        let results = serde_json::to_value(run(name, &settings, rows)).unwrap();
        let each = results["processors"].as_array().unwrap();
        let parts = ["tlbs", "walks", "mmu_cache", "spec_tlb", "range_tlb", "caches", "shootdowns"];
        for part in parts {
            let mut total = results[part].clone();
            // The last-level cache is shared, so it is in no processor's results.
            if let (Value::Array(caches), "caches") = (&mut total, part) {
                caches.retain(|cache| cache["name"] != "l3");
            }
            let parts: Vec<&Value> = each.iter().map(|one| &one[part]).collect();
            adds_up(&total, &parts, part, &mut counted);
        }
    }
    for place in [
        "tlbs.cold_misses",
        "tlbs.invalid",
        "tlbs.evictions",
        "tlbs.table_hits",
        "walks.dirty_assists",
        "walks.modify_traps",
        "walks.cold_references",
        "walks.nested_misses",
        "walks.handler_instructions",
        "walks.by_level.references",
        "mmu_cache.searches",
        "mmu_cache.by_level.held",
        "caches.program.write_misses",
        "caches.walker.read_misses",
        "caches.writebacks",
        "tlbs.denied",
        "tlbs.flushed",
        "spec_tlb.attempts",
        "spec_tlb.right",
        "spec_tlb.denied",
        "spec_tlb.wrong.absent",
        "spec_tlb.none",
        "spec_tlb.none_faulted",
        "spec_tlb.overlapped.l2",
        "spec_tlb.overlapped_cycles",
        "spec_tlb.outcomes.walks",
        "spec_tlb.outcomes.references.l2",
        "spec_tlb.outcomes.ptes.l2",
        "spec_tlb.outcomes.accesses.store.memory",
        "spec_tlb.devices",
        "spec_tlb.devices_reached",
        "tlbs.blocks.fills",
        "tlbs.blocks.pages_filled",
        "tlbs.blocks.tag_hits",
        "range_tlb.lookups",
        "range_tlb.hits",
        "range_tlb.misses",
        "range_tlb.fills",
        "range_tlb.evictions",
        "range_tlb.flushed",
        "shootdowns.made",
        "shootdowns.asked",
        "shootdowns.received",
        "shootdowns.entries",
        "shootdowns.sender_cycles",
        "shootdowns.receiver_cycles",
    ] {
        assert!(counted.contains(place), "nothing was counted in {place}: {counted:?}");
    }
}

/// A processor's TLBs depend only on the accesses of its threads. (A page that another processor
/// has stored to is dirty for all processors, so the machine does not track dirty pages.)
#[test]
fn a_processor_counts_what_its_threads_do_alone() {
    let rows = threads(11);
    let untracked = "walker.tracks_dirty=false";
    let results = run("epyc-9005", &["core.count=2", untracked], &rows);
    for one in &results.processors {
        let mut runs = false;
        let own = rows.iter().filter(|row| match row {
            Row::Thread(thread) => {
                runs = thread % 2 == one.number;
                false
            }
            Row::Access(..) => runs,
            Row::Event(_) => true,
        });
        let alone = run("epyc-9005", &[untracked], &own.cloned().collect::<Vec<Row>>());
        let misses = |tlbs: &[TlbCounts]| -> Vec<_> {
            tlbs.iter().map(|tlb| (tlb.name.clone(), tlb.by_kind, tlb.evictions)).collect()
        };
        assert_eq!(misses(&one.tlbs), misses(&alone.tlbs));
    }
}

/// Two programs, each on a processor of its own, miss as often as each program does alone.
#[test]
fn each_program_of_a_mix_misses_as_it_does_alone() {
    let a = "[generate:zipf,accesses=60k,size=64M]";
    let b = "[generate:uniform,accesses=40k,size=16M]";
    for settings in [&[][..], &["core.asid_bits=0"], &["core.contexts=lru"]] {
        let two = machine("epyc-9005", &[settings, &["core.count=2"]].concat());
        let mixed = run_trace(&two, &format!("mix:cpus=2,slice=3k,{a},{b}")).unwrap();
        assert_eq!(mixed.processors.len(), 2);
        for (one, program) in mixed.processors.iter().zip([a, b]) {
            let program = program.trim_matches(['[', ']']);
            let alone = run_trace(&machine("epyc-9005", settings), program).unwrap();
            assert_eq!(one.tlbs, alone.tlbs, "{settings:?}: {program}");
            assert_eq!(one.walks.walks, alone.walks.walks);
            assert_eq!((one.accesses, one.switches), (alone.accesses, 0));
        }
    }
    // All programs run on one of the two processors, as the schedule says, whatever the numbers of
    // their threads are.
    let two = machine("epyc-9005", &["core.count=2"]);
    let one = run_trace(&two, &format!("mix:cpus=1,quantum=10k,{a},{b}")).unwrap();
    assert_eq!(one.processors[1].accesses, Default::default());
    assert!(one.processors[0].switches > 3);
}

#[test]
fn a_schedule_for_more_processors_is_refused() {
    let mix = "mix:cpus=3,[generate:uniform,accesses=1k]*3";
    let error = run_trace(&machine("epyc-9005", &["core.count=2"]), mix).unwrap_err().to_string();
    assert_eq!(
        error,
        "the trace's schedule is for 3 processors, but the machine has 2 (core.count): write \
         --set core.count=3, or schedule the trace for fewer processors (mix:cpus=2,...)"
    );
    let rows = vec![Row::Event(Event::Run { cpu: Some(1), space: 0 })];
    let options = RunOptions { check: false, progress: &mut |_| true };
    let error = machine("tlb-only", &[]).run(&mut Rows::new(rows), options).unwrap_err();
    assert!(error.to_string().contains("the machine has 1 (core.count)"), "{error}");
}

/// Shootdowns whose counts are computed by hand. Eight pages are in the TLBs of both processors.
#[test]
fn a_shootdown_reaches_those_who_may_hold_the_page() {
    let at = |page: u64| 0x4000_0000 + page * 4096;
    let touch = |thread| {
        let pages = (0..8).map(move |page| Row::Access(Kind::Store, at(page), 8));
        std::iter::once(Row::Thread(thread)).chain(pages)
    };
    let gone = Event::Munmap { addr: at(2), bytes: 3 * 4096, result: 0 };
    let rows: Vec<Row> = touch(0).chain(touch(1)).chain([Row::Event(gone.clone())]).collect();
    let costs = [
        "os.costs.shootdown_send_cycles=100",
        "os.costs.shootdown_receive_cycles=1000",
        "os.costs.flush_page_cycles=10",
        "os.costs.flush_space_cycles=500",
        "os.costs.walk_cycles=30",
        "os.costs.fault_cycles=400",
        "os.costs.switch_cycles=70",
        "os.costs.source=a test",
    ];
    for (setting, asked) in [("core.count=1", 0), ("core.count=2", 1), ("core.count=4", 1)] {
        let results = run("opteron-2008", &[&costs[..], &[setting]].concat(), &rows);
        let counts = results.shootdowns;
        assert_eq!((counts.made, counts.asked, counts.received), (1, asked, asked), "{setting}");
        // Three pages are dropped from both TLB levels of each processor that has touched them.
        assert_eq!(counts.entries, 6 * (1 + asked), "{setting}");
        let answer = asked * (1000 + 30);
        assert_eq!(counts.receiver_cycles, Some(answer), "{setting}");
        assert_eq!(counts.sender_cycles, Some(30 + asked * 100 + answer), "{setting}");
    }
    let results = run("opteron-2008", &["core.count=2"], &rows);
    assert_eq!(results.shootdowns.sender_cycles, None);
    assert!(results.not_modelled.iter().any(|note| note.contains("[os.costs]")));
    // The second thread runs in another space, so no other processor can hold entries of the first
    // space.
    let other = Row::Event(Event::Run { cpu: None, space: 1 });
    let rows: Vec<Row> =
        touch(0).chain([Row::Thread(1), other]).chain(touch(1)).chain([Row::Event(gone)]).collect();
    let results = run("opteron-2008", &["core.count=2", "core.asid_bits=4"], &rows);
    assert_eq!((results.shootdowns.made, results.shootdowns.asked), (1, 0));
    assert_eq!(results.processors[1].shootdowns.entries, 6);
}

/// Two processes take turns on one processor. Without tags, the TLBs are empty at the beginning of
/// every turn; with tags, only at the beginning of each process's first turn.
#[test]
fn what_a_switch_costs_two_processes_that_take_turns() {
    let (turns, jumps, reads) = (100, 30, 40);
    let accesses = turns * (1 + jumps + reads);
    let spec = |bits| {
        format!("generate:pingpong,itlb={jumps},dtlb={reads},accesses={accesses},bits={bits}")
    };
    let count = |machine: &Machine, bits| {
        let results = run_trace(machine, &spec(bits)).unwrap();
        let misses = |name| results.tlbs.iter().find(|tlb| tlb.name == name).unwrap().total.misses;
        (misses("l1i"), misses("l1d"))
    };
    let pentium = machine("pentium4", &[]);
    // The page of the call adds one miss to those of the jumps.
    assert_eq!(count(&pentium, 32), (turns * (jumps + 1), turns * reads));
    let tagged = machine("epyc-9005", &["core.asid_bits=4"]);
    assert_eq!(count(&tagged, 47), (2 * (jumps + 1), 2 * reads));
    let untagged = machine("epyc-9005", &["core.asid_bits=0"]);
    assert_eq!(count(&untagged, 47), (turns * (jumps + 1), turns * reads));
}
