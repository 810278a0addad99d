//! Designs that are swept together against runs of each alone.

mod support;

use addr::Kind;
use machine::{
    Machine, Results, RunOptions,
    sweep::{SweepOptions, sweep},
};
use support::{Row, Rows, Stream};
use trace::Event;

/// A program that maps and unmaps, forks and switches, in a few regions.
fn rows(seed: u64) -> Vec<Row> {
    let mut stream = Stream(seed | 1);
    let mut rows = Vec::new();
    for step in 0..4000 {
        let base = 0x1000_0000 + (stream.below(3) << 32);
        match step % 1000 {
            300 => rows.push(Row::Event(Event::Munmap { addr: base, bytes: 1 << 24, result: 0 })),
            500 => rows.push(Row::Event(Event::Switch { space: stream.below(3) as u32 })),
            _ => {}
        }
        let kind = [Kind::Fetch, Kind::Load, Kind::Load, Kind::Store][stream.below(4) as usize];
        let span = [1 << 9, 1 << 14, 1 << 20, 1 << 28][stream.below(4) as usize];
        let bytes = [1, 8, 8, 64, 300][stream.below(5) as usize];
        rows.push(Row::Access(kind, base + stream.below(span), bytes));
    }
    rows
}

/// Sweeps `designs` of the machine `name` and compares each with a run of it alone.
fn check(name: &str, designs: &[Vec<String>], rows: &[Row]) {
    let machines: Vec<Machine> = designs
        .iter()
        .map(|settings| Machine::load(name, settings).unwrap_or_else(|error| panic!("{error}")))
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
    machine.run(&mut Rows::new(rows.to_vec()), options).unwrap()
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
    // The Opteron has no TLB for fetches; another machine of the last kind has.
    for (name, designs) in
        [("opteron-2008", &designs[..3].concat()), ("epyc-9005", &designs[3..].concat())]
    {
        for seed in 1..3 {
            check(name, designs, &rows(seed));
        }
    }
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
