//! Compares designs that are swept together with a run of each design alone.

use addr::Kind;
use machine::{
    Error, Machine, Results, RunOptions,
    sweep::{SweepOptions, sweep},
};
use trace::Event;

use crate::support::{Row, Rows, Stream};

/// Rows of five threads that map, unmap, fork and switch, in a few regions.
fn rows(seed: u64) -> Vec<Row> {
    let mut stream = Stream(seed | 1);
    let mut rows = Vec::new();
    for step in 0..4000 {
        if step == 1700 {
            rows.push(Row::Event(Event::WarmupEnd));
        }
        let base = 0x1000_0000 + (stream.below(3) << 32);
        match step % 1000 {
            300 => rows.push(Row::Event(Event::Munmap { addr: base, bytes: 1 << 24, result: 0 })),
            500 => rows.push(Row::Event(Event::Run { cpu: None, space: stream.below(3) as u32 })),
            _ if stream.below(30) == 0 => rows.push(Row::Thread(stream.below(5) as u32)),
            _ => {}
        }
        let kind = [Kind::Fetch, Kind::Load, Kind::Load, Kind::Store][stream.below(4) as usize];
        let span = [1 << 9, 1 << 14, 1 << 20, 1 << 28][stream.below(4) as usize];
        let bytes = [1, 8, 8, 64, 300][stream.below(5) as usize];
        rows.push(Row::Access(kind, base + stream.below(span), bytes));
    }
    rows
}

/// Accesses to few lines of few sets, so that the replacement order within a set has an effect.
fn crowded_rows(seed: u64) -> Vec<Row> {
    let mut stream = Stream(seed | 1);
    let mut access = |_| {
        let kind = [Kind::Fetch, Kind::Load, Kind::Store][stream.below(3) as usize];
        let addr = 0x1000_0000 + (stream.below(7) << 12) + (stream.below(2) << 6);
        Row::Access(kind, addr + stream.below(80), 8)
    };
    (0..4000).map(&mut access).collect()
}

/// Sweeps `designs` of the machine `name`, and compares each design with a run of it alone.
fn check(name: &str, designs: &[Vec<String>], rows: &[Row]) {
    check_all(name, designs, rows, |settings| Machine::load(name, settings));
}

fn check_all(
    name: &str,
    designs: &[Vec<String>],
    rows: &[Row],
    machine: impl Fn(&[String]) -> Result<Machine, Error>,
) {
    let machines: Vec<Machine> = designs
        .iter()
        .map(|settings| machine(settings).unwrap_or_else(|error| panic!("{error}")))
        .collect();
    for threads in [1, 3] {
        let options = SweepOptions { threads, progress: &mut |_| true };
        let outcomes = sweep(&machines, &mut Rows::new(rows.to_vec()), options).unwrap();
        assert_eq!(outcomes.len(), machines.len());
        for (machine, outcome) in machines.iter().zip(outcomes) {
            let swept = outcome.unwrap_or_else(|error| panic!("{:?}: {error}", machine.settings()));
            assert_eq!(swept, alone(machine, rows), "{name} {:?}", machine.settings());
        }
    }
}

fn alone(machine: &Machine, rows: &[Row]) -> Results {
    let options = RunOptions { check: false, progress: &mut |_| true };
    let results = machine.run(&mut Rows::new(rows.to_vec()), options).unwrap();
    // A sweep does not report the origins of misses.
    Results { origins: None, ..results }
}

/// Every combination of the values of each key.
fn all(keys: &[(&str, &[&str])]) -> Vec<Vec<String>> {
    keys.iter().fold(vec![Vec::new()], |designs, (key, values)| {
        let extended = |design: &Vec<String>, value: &&str| {
            design.iter().cloned().chain([format!("{key}={value}")]).collect()
        };
        designs.iter().flat_map(|d| values.iter().map(move |v| extended(d, v))).collect()
    })
}

#[test]
fn a_design_counts_what_it_counts_alone() {
    let designs = [
        all(&[("tlb.l2d.entries", &["64", "512"]), ("walker.enters", &["l2", "memory"])]),
        all(&[("cache.l2.size", &["16K", "64K"]), ("cache.l2.replacement", &["lru", "tree-plru"])]),
        all(&[("os.page_size", &["4K", "2M"]), ("memory.latency_cycles", &["100", "300"])]),
        all(&[
            ("page_table.format", &["guarded", "hashed", "linear"]),
            ("walker.kind", &["hardware", "software"]),
            ("mmu_cache.design", &["none"]),
        ]),
        all(&[
            ("nested.page_size", &["4K", "2M"]),
            ("nested.tlb.entries", &["1", "16"]),
            ("mmu_cache.entries", &["3"]),
            ("nested.mmu_cache.entries", &["2", "8"]),
        ]),
    ];
    // The Opteron has no TLB for fetches, so the last kinds of designs are run on a machine that
    // has one.
    for (name, designs) in
        [("opteron-2008", &designs[..3].concat()), ("epyc-9005", &designs[3..].concat())]
    {
        for seed in 1..3 {
            check(name, designs, &rows(seed));
        }
    }
}

#[test]
fn several_processors_count_what_they_count_alone() {
    let processors = ("core.count", &["2", "3"][..]);
    let designs = [
        all(&[
            processors,
            ("mmu_cache.design", &["uptc", "stc", "tpc"]),
            ("mmu_cache.entries", &["2", "24"]),
            ("core.asid_bits", &["0", "2"]),
        ]),
        all(&[processors, ("cache.l1d.size", &["12K", "48K"]), ("walker.enters", &["l1d", "l3"])]),
        all(&[processors, ("page_table.format", &["linear"]), ("mmu_cache.design", &["none"])]),
        all(&[processors, ("nested.page_size", &["2M"]), ("nested.tlb.entries", &["4"])]),
    ];
    for seed in 1..3 {
        check("epyc-9005", &designs.concat(), &rows(seed));
    }
    // Only MMU caches differ behind the TLBs, so the designs form families, with an MMU cache on
    // each processor.
    check_all(
        "r4700",
        &all(&[processors, ("mmu_cache.entries", &["1", "3", "9"])]),
        &rows(5),
        |set| {
            let hardware = ["walker.kind=hardware", "page_table.format=x86-64"].map(str::to_owned);
            let cached = ["mmu_cache.design=tpc"].map(str::to_owned);
            Machine::load("r4700", &[&hardware[..], &cached, set].concat())
        },
    );
}

#[test]
fn mmu_caches_of_all_designs_share_a_front() {
    let designs = [
        all(&[
            ("mmu_cache.design", &["uptc", "sptc", "utc", "stc", "tpc"]),
            ("mmu_cache.entries", &["1", "3", "24"]),
            ("mmu_cache.latency_cycles", &["2"]),
        ]),
        all(&[
            ("mmu_cache.design", &["utc", "uptc"]),
            ("mmu_cache.entries", &["4"]),
            ("mmu_cache.replacement", &["vi-lru", "greedy-dual", "random", "srrip"]),
            ("cache.l2.size", &["4K", "1M"]),
        ]),
        all(&[("mmu_cache.design", &["none"]), ("cache.l2.replacement", &["lru", "random"])]),
    ];
    for seed in 1..3 {
        check("opteron-2008", &designs.concat(), &rows(seed));
    }
}

#[test]
fn machines_with_all_caches_and_with_none_share_a_front() {
    let designs = all(&[
        ("walker.enters", &["l1d", "l2", "l3", "memory"]),
        ("cache.l1d.size", &["12K", "48K"]),
        ("cache.l2.line", &["64B", "128B"]),
        ("cache.l3.line", &["128B"]),
        ("cache.l2.ways", &["4"]),
        ("cache.l2.size", &["8K"]),
    ]);
    check("epyc-9005", &designs, &rows(5));
    check("tlb-only", &all(&[("tlb.l2.entries", &["4", "1024"])]), &rows(6));
}

/// Fetches look up a cache of their own first, and data accesses the cache behind it, or the other
/// way round.
#[test]
fn caches_that_others_misses_pass_through_are_told_everything() {
    let designs = |policies| {
        all(&[
            ("cache.l2.replacement", policies),
            ("cache.l2.size", &["4K", "12K"]),
            ("walker.enters", &["l2", "memory"]),
        ])
    };
    for first in ["l1i", "l1d"] {
        let text = format!(
            r#"
            title = "one cache in front for a part of the accesses"
            source = "the test"
            [tlb.l1]
            entries = 8
            ways = "full"
            [page_table]
            format = "x86-64"
            [cache.{first}]
            size = "1K"
            line = "64B"
            ways = 2
            [cache.l2]
            size = "4K"
            line = "64B"
            ways = 4
            "#
        );
        for seed in 1..4 {
            for rows in [rows(seed), crowded_rows(seed)] {
                for policies in [&["lru", "nru", "fifo"] as &[&str], &["lru", "srrip"]] {
                    check_all(first, &designs(policies), &rows, |settings| {
                        Machine::parse("test", &text, "test", settings)
                    });
                }
            }
        }
    }
}

/// A machine with only TLBs and an MMU cache.
const WALKS_ONLY: &str = r#"
    title = "walks and nothing else"
    source = "the test"
    [core]
    cycles_per_instruction = 1.0
    source = "the test"
    [tlb.l1]
    entries = 4
    ways = "full"
    [page_table]
    format = "x86-64"
    [walker]
    refill_cycles = 3
    source = "the test"
    [memory]
    latency_cycles = 100
    source = "the test"
"#;

/// Random families of all designs, with tables, page sizes and ASIDs of all kinds.
#[test]
fn designs_taken_together_count_what_they_count_alone() {
    for seed in 1..=8u64 {
        let mut stream = Stream(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let guarded = seed % 4 == 0;
        let mut one_of =
            |choices: &[&str]| choices[stream.below(choices.len() as u64) as usize].to_owned();
        let front = [
            format!("core.asid_bits={}", one_of(&["0", "1", "8"])),
            format!("os.populated={}", one_of(&["true", "false"])),
            format!("os.page_size={}", one_of(&["4K", "2M"])),
            if guarded {
                "page_table.format=guarded".to_owned()
            } else {
                format!("page_table.levels={}", one_of(&["4", "5"]))
            },
        ];
        let mut designs = Vec::new();
        for _ in 0..24 {
            let design = if guarded {
                one_of(&["utc", "uptc", "tpc"])
            } else {
                one_of(&["uptc", "sptc", "utc", "stc", "tpc"])
            };
            let entries = one_of(&["1", "2", "3", "5", "7", "9", "24", "256", "257"]);
            let mut settings = front.to_vec();
            settings.extend([
                format!("mmu_cache.design={design}"),
                format!("mmu_cache.entries={entries}"),
                format!("mmu_cache.latency_cycles={}", one_of(&["0", "2"])),
            ]);
            let split = matches!(design.as_str(), "sptc" | "stc");
            if split && one_of(&["yes", "no"]) == "yes" {
                let level = one_of(&["l2", "l3"]);
                settings.push(format!("mmu_cache.{level}_entries={}", one_of(&["0", "4", "6"])));
            }
            designs.push(settings);
        }
        // A few designs fit into no family.
        for other in ["mmu_cache.replacement=random", "mmu_cache.ways=1"] {
            let own = ["mmu_cache.design=utc", "mmu_cache.entries=4", other].map(str::to_owned);
            designs.push([&front[..], &own].concat());
        }
        designs.push([&front[..], &["mmu_cache.design=none".to_owned()]].concat());
        check_all(&format!("seed {seed}"), &designs, &rows(seed), |settings| {
            Machine::parse("test", WALKS_ONLY, "test", settings)
        });
    }
}

/// A store is denied at a depth of 52 nodes, and walks twice. Its number of steps is larger than
/// the number of bits of a word.
#[test]
fn a_miss_of_more_than_a_hundred_steps_is_counted() {
    let deep = 0x0123_4567_89ab_c000u64;
    let load = |addr| Row::Access(Kind::Load, addr, 8);
    let mut rows = vec![load(deep)];
    rows.extend((13..64).map(|bit| load(deep ^ 1 << bit)));
    rows.push(Row::Event(Event::Mprotect { addr: deep, bytes: 4096, prot: 1, result: 0 }));
    rows.push(Row::Access(Kind::Store, deep, 8));
    let designs: Vec<Vec<String>> = [1, 24, 200]
        .map(|entries| {
            let design = ["page_table.format=guarded", "page_table.nodes=2"];
            let cache = ["mmu_cache.design=utc".to_owned(), format!("mmu_cache.entries={entries}")];
            [&design.map(str::to_owned)[..], &cache].concat()
        })
        .to_vec();
    check_all("deep", &designs, &rows, |settings| {
        Machine::parse("test", WALKS_ONLY, "test", settings)
    });
    // Without an MMU cache, each step of a walk is a reference.
    let mut bare = designs[0].clone();
    bare[2] = "mmu_cache.design=none".to_owned();
    let alone = alone(&Machine::parse("test", WALKS_ONLY, "test", &bare[..3]).unwrap(), &rows);
    assert_eq!(alone.faults.protection, 1);
    assert!(alone.walks.references_per_walk.last().unwrap().0 > 64, "{:?}", alone.walks);
}

#[test]
fn a_design_that_fails_leaves_the_others_alone() {
    let machine =
        |size: &str| Machine::load("opteron-2008", &[format!("memory.size={size}")]).unwrap();
    let machines = [machine("1M"), machine("64G")];
    let rows = rows(3);
    let options = SweepOptions { threads: 2, progress: &mut |_| true };
    let outcomes = sweep(&machines, &mut Rows::new(rows.clone()), options).unwrap();
    assert!(outcomes[0].as_ref().unwrap_err().starts_with("out of memory at access"));
    assert_eq!(*outcomes[1].as_ref().unwrap(), alone(&machines[1], &rows));
}

#[test]
fn a_sweep_can_be_stopped() {
    let machines = [Machine::load("opteron-2008", &[]).unwrap()];
    let options = SweepOptions { threads: 1, progress: &mut |_| false };
    let stopped = sweep(&machines, &mut Rows::new(rows(4)), options);
    assert_eq!(stopped.unwrap_err().to_string(), "interrupted");
}
