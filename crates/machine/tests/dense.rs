//! Phases of dense misses and phases of hits in turn. A run looks addresses up in other ways in the
//! one than in the other; one that checks every translation knows a single way.

mod support;

use addr::Kind;
use support::{Row, Stream, run};

/// Accesses in phases, each all over a few pages, which hit, or many.
fn phases(stream: &mut Stream) -> Vec<Row> {
    let mut rows = Vec::new();
    for _ in 0..24 {
        let pages = [2, 5, 30, 100, 600, 4000][stream.below(6) as usize];
        let start = stream.below(8) << 24;
        for _ in 0..100 + stream.below(500) {
            let addr = start + (stream.below(pages) << 12) + (stream.below(4000) & !7);
            let kind = if stream.below(3) == 0 { Kind::Store } else { Kind::Load };
            rows.push(Row::Access(kind, addr, 8));
        }
    }
    rows
}

#[test]
fn dense_misses_are_counted_as_a_checked_run_counts_them() {
    let shapes = [("16", "full"), ("64", "full"), ("48", "3"), ("64", "4")];
    let machines: [(&str, &str, &[&str]); 4] = [
        ("tlb-only", "tlb.l1d", &[]),
        ("opteron-2008", "tlb.l1d", &["memory.size=1G"]),
        ("epyc-9005", "tlb.l1d", &["memory.size=1G", "cache.l3.size=1M"]),
        ("r4700", "tlb.l1", &["memory.size=1G"]),
    ];
    for (seed, (entries, ways)) in (1..).zip(shapes) {
        let rows = phases(&mut Stream(seed));
        for (name, tlb, settings) in machines {
            for policy in ["lru", "fifo", "random", "tree-plru", "lfu"] {
                let shape = [("entries", entries), ("ways", ways), ("replacement", policy)];
                let shape = shape.map(|(key, value)| format!("{tlb}.{key}={value}"));
                let all: Vec<&str> =
                    settings.iter().copied().chain(shape.iter().map(String::as_str)).collect();
                let results = run(name, &all, &rows);
                let misses: u64 = results.tlbs.iter().map(|one| one.total.misses).sum();
                assert!(misses > 100, "{name} {all:?}: phases of misses have {misses}");
            }
        }
    }
}
