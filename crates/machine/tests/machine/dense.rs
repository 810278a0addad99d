//! Tests phases of dense misses in turn with phases of hits. A run uses different code for the two
//! kinds of phase; a run that checks every translation uses the same code for both.

use addr::Kind;
use machine::Machine;

use crate::support::{Row, Stream, TABLES, mapping, run};

/// The addresses at which phases begin.
const STARTS: [u64; 8] = [0, 1 << 24, 2 << 24, 3 << 24, 4 << 24, 5 << 24, 6 << 24, 7 << 24];

/// Accesses in phases. A phase accesses either few pages, so that most accesses hit, or many pages.
fn phases(stream: &mut Stream) -> Vec<Row> {
    let mut rows = Vec::new();
    for _ in 0..24 {
        let pages = [2, 5, 30, 100, 600, 4000][stream.below(6) as usize];
        let start = STARTS[stream.below(8) as usize];
        for _ in 0..100 + stream.below(500) {
            let addr = start + (stream.below(pages) << 12) + (stream.below(4000) & !7);
            let kind = if stream.below(3) == 0 { Kind::Store } else { Kind::Load };
            rows.push(Row::Access(kind, addr, 8));
        }
    }
    rows
}

/// Runs `rows` with and without checks, which must give equal counts. Returns the misses of all
/// TLBs.
fn misses(name: &str, settings: &[&str], rows: &[Row]) -> u64 {
    run(name, settings, rows).tlbs.iter().map(|one| one.total.misses).sum()
}

#[test]
fn dense_misses_are_counted_as_a_checked_run_counts_them() {
    let shapes = [("16", "full"), ("64", "full"), ("48", "3"), ("64", "4")];
    let machines: [(&str, &str, &[&str]); 6] = [
        ("tlb-only", "tlb.l1d", &[]),
        ("tlb-only", "tlb.l1d", &["tlb.l2.entries=96", "tlb.l2.ways=6"]),
        ("opteron-2008", "tlb.l1d", &["memory.size=1G"]),
        // The cache is so large that the simulator prefetches its own data about it.
        ("epyc-9005", "tlb.l1d", &["memory.size=1G", "cache.l3.size=8M"]),
        ("r4700", "tlb.l1", &["memory.size=1G"]),
        ("r4700", "tlb.l1", &["memory.size=1G", "tlb.l1.paired=false"]),
    ];
    for (seed, (entries, ways)) in (1..).zip(shapes) {
        let rows = phases(&mut Stream(seed));
        for (name, tlb, settings) in machines {
            for policy in ["lru", "fifo", "random", "tree-plru", "lfu"] {
                let shape = [("entries", entries), ("ways", ways), ("replacement", policy)];
                let shape = shape.map(|(key, value)| format!("{tlb}.{key}={value}"));
                let all: Vec<&str> =
                    settings.iter().copied().chain(shape.iter().map(String::as_str)).collect();
                let misses = misses(name, &all, &rows);
                assert!(misses > 100, "{name} {all:?}: phases of misses have {misses}");
            }
        }
    }
}

/// Walks in a phase of dense misses are the walks of other runs: for each page table, each walker,
/// with MMU caches, with a host, and with pages that are large, of several sizes, or of two
/// regions.
#[test]
fn walks_among_dense_misses_are_those_of_a_checked_run() {
    let hardware: [&[&str]; 7] = [
        &[],
        &["walker.kind=software"],
        &["walker.tracks_dirty=true"],
        &["walker.kind=software", "walker.tracks_dirty=true"],
        &["mmu_cache.design=uptc", "mmu_cache.entries=24"],
        &["mmu_cache.design=utc", "mmu_cache.entries=24"],
        &["nested.page_size=4K"],
    ];
    let managers: [&[&str]; 4] =
        [&[], &["os.populated=true"], &["os.page_size=2M"], &["os.manager=linux"]];
    // The TLBs have so few entries that large pages miss too.
    let small = ["memory.size=1G", "tlb.l1d.entries=8", "tlb.l2d.entries=16"];
    let mut ran = 0;
    for (seed, table) in (1..).zip(TABLES) {
        // The border between the two regions lies inside an aligned 2M block.
        let regions = STARTS.into_iter().flat_map(|start| {
            [mapping(start, 0x18_0000), mapping(start + 0x18_0000, 0x100_0000 - 0x18_0000)]
        });
        let rows: Vec<Row> = regions.chain(phases(&mut Stream(seed))).collect();
        for hardware in hardware {
            for manager in managers {
                let all = [&small[..], table, hardware, manager].concat();
                let settings: Vec<String> = all.iter().map(|&setting| setting.to_owned()).collect();
                // Not every table has an MMU cache, a host or pages of several sizes.
                if Machine::load("opteron-2008", &settings).is_ok() {
                    let has_misses = misses("opteron-2008", &all, &rows) > 100;
                    ran += usize::from(has_misses);
                }
            }
        }
    }
    assert!(ran > 90, "{ran} machines have many misses");
}
