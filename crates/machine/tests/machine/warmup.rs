//! Tests the warm-up: the counts of a run after the warm-up are the counts of the whole run minus
//! the counts of its beginning.

use std::collections::BTreeMap;

use addr::Kind;
use machine::Results;
use serde_json::Value;
use trace::Event;

use crate::support::{Row, Stream, run};

/// Two spaces take turns, and some of their pages are unmapped.
fn rows(seed: u64, count: usize) -> Vec<Row> {
    let mut stream = Stream(seed | 1);
    let mut rows = Vec::new();
    for step in 0..count {
        match step % 1000 {
            300 => {
                let (addr, bytes) = (0x1000_0000, 1 << 20);
                rows.push(Row::Event(Event::Munmap { addr, bytes, result: 0 }));
            }
            700 => rows.push(Row::Event(Event::Run { cpu: None, space: stream.below(2) as u32 })),
            _ => {}
        }
        let kind = [Kind::Fetch, Kind::Load, Kind::Load, Kind::Store][stream.below(4) as usize];
        let span = [1 << 13, 1 << 18, 1 << 23][stream.below(3) as usize];
        let bytes = [1, 8, 64, 300][stream.below(4) as usize];
        rows.push(Row::Access(kind, 0x1000_0000 + stream.below(span), bytes));
    }
    rows
}

/// All counts of a document that grow during a run, by their place in the document.
fn counts(document: &Value) -> BTreeMap<String, u64> {
    // Values at the end of the run, binned and derived values, and properties of structures, which
    // are not counts.
    const OTHER: [&str; 20] = [
        "memory",
        "map",
        "timeline",
        "machine",
        "threads",
        "time",
        "regions",
        "schema",
        "references_per_walk",
        "entries",
        "ways",
        "size_bytes",
        "line_bytes",
        "latency_cycles",
        "level",
        "used_bytes",
        "table_bytes",
        "tag_bits",
        "data_bits",
        "splintered",
    ];
    fn collect(path: &str, value: &Value, counts: &mut BTreeMap<String, u64>) {
        let own = path.rsplit('/').next().unwrap_or_default();
        if OTHER.contains(&own) {
            return;
        }
        match value {
            Value::Number(number) => {
                counts.insert(path.to_owned(), number.as_u64().unwrap_or(0));
            }
            Value::Array(list) => {
                for (index, one) in list.iter().enumerate() {
                    let name = one["level"].as_u64().map(|level| format!("level {level}"));
                    let name = name.unwrap_or_else(|| index.to_string());
                    collect(&format!("{path}/{name}"), one, counts);
                }
            }
            Value::Object(fields) => {
                for (name, one) in fields {
                    collect(&format!("{path}/{name}"), one, counts);
                }
            }
            _ => {}
        }
    }
    let mut all = BTreeMap::new();
    collect("", document, &mut all);
    all
}

/// The results as a document without `origins`, whose rows have another order. (An identity
/// compares the sums of `origins`.)
fn document(results: Results) -> Value {
    serde_json::to_value(Results { origins: None, ..results }).unwrap()
}

#[test]
fn what_counts_is_the_whole_less_the_beginning() {
    let designs: [(&str, &[&str]); 4] = [
        ("tlb-only", &[]),
        ("epyc-9005", &["tlb.l2d.entries=64"]),
        ("opteron-2008", &["mmu_cache.entries=3"]),
        ("epyc-9005", &["nested.page_size=4K", "nested.tlb.entries=16"]),
    ];
    for (name, settings) in designs {
        for (seed, warm) in [(1, 2500), (2, 1), (3, 4998)] {
            let all = rows(seed, 5000);
            let mut warmed = all.clone();
            warmed.insert(warm, Row::Event(Event::WarmupEnd));
            let [whole, beginning, rest] = [&all[..], &all[..warm], &warmed[..]]
                .map(|rows| counts(&document(run(name, settings, rows))));
            assert!(whole.len() > 20, "{name}: {whole:?}");
            for (what, count) in &whole {
                let before = beginning.get(what).copied().unwrap_or(0);
                let found = rest.get(what).copied().unwrap_or(0);
                assert_eq!(found, count - before, "{name}, seed {seed}, {warm} warm: {what}");
            }
        }
    }
}
