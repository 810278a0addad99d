//! The curve of a trace against runs of it on machines with one TLB, size by size.

use addr::{Kind, PageSize};
use machine::{
    Machine, RunOptions,
    curve::{Curve, CurveOptions, Lookups, curve},
};
use trace::Event;

use crate::support::{Row, Rows, Stream};

const UNIFIED: &str = r#"
title = "one TLB"
source = "the test"
[tlb.l1]
entries = 1
ways = "full"
"#;

const SPLIT: &str = r#"
title = "one TLB for fetches, one for data"
source = "the test"
[tlb.l1i]
entries = 1
ways = "full"
[tlb.l1d]
entries = 1
ways = "full"
"#;

/// Misses of the TLB that serves `lookups`, if it has `entries` entries.
fn misses_of_run(rows: &[Row], lookups: Lookups, page_size: PageSize, entries: u32) -> (u64, u64) {
    let (text, names, index): (_, &[&str], _) = match lookups {
        Lookups::All => (UNIFIED, &["l1"], 0),
        Lookups::Fetch => (SPLIT, &["l1i", "l1d"], 0),
        Lookups::Data => (SPLIT, &["l1i", "l1d"], 1),
    };
    let mut settings = ["os.uniform=true", "core.asid_bits=8"].map(str::to_owned).to_vec();
    settings.push(format!("os.page_size={page_size}"));
    settings.extend(names.iter().map(|name| format!("tlb.{name}.entries={entries}")));
    let machine = Machine::parse("test", text, "test", &settings).unwrap();
    let options = RunOptions { check: false, progress: &mut |_| true };
    let results = machine.run(&mut Rows::new(rows.to_vec()), options).unwrap();
    (results.tlbs[index].total.lookups, results.tlbs[index].total.misses)
}

/// Accesses near each other and far apart, some of them to two pages, of two spaces in turn.
fn rows(seed: u64) -> Vec<Row> {
    let mut stream = Stream(seed | 1);
    let mut rows = Vec::new();
    for step in 0..3000 {
        if step % 900 == 700 {
            rows.push(Row::Event(Event::Run { cpu: None, space: stream.below(2) as u32 }));
        }
        if step == 1100 {
            rows.push(Row::Event(Event::WarmupEnd));
        }
        let kind = [Kind::Fetch, Kind::Load, Kind::Load, Kind::Store][stream.below(4) as usize];
        let span = [1 << 13, 1 << 18, 1 << 24, 1 << 33][stream.below(4) as usize];
        let bytes = [1, 8, 64, 300][stream.below(4) as usize];
        rows.push(Row::Access(kind, 0x1000_0000 + stream.below(span), bytes));
    }
    rows
}

fn counted(rows: &[Row], page_sizes: &[PageSize], entries_max: u32) -> Vec<Curve> {
    let options = CurveOptions {
        lookups: Lookups::ALL.to_vec(),
        page_sizes: page_sizes.to_vec(),
        entries_max,
    };
    curve(&mut Rows::new(rows.to_vec()), &options, &mut |_| true).unwrap()
}

#[test]
fn the_misses_are_those_of_runs() {
    let sizes = [12, 14, 16, 21, 30].map(|shift| PageSize::from_shift(shift).unwrap());
    for seed in 1..4 {
        let rows = rows(seed);
        for curve in counted(&rows, &sizes, 600) {
            let misses: Vec<u64> = curve.misses().collect();
            assert_eq!(misses.len(), 600);
            for entries in [1, 2, 3, 15, 16, 17, 18, 60, 250, 599, 600] {
                let expected = misses_of_run(&rows, curve.lookups, curve.page_size, entries);
                let found = (curve.total, misses[entries as usize - 1]);
                let (lookups, size) = (curve.lookups, curve.page_size);
                assert_eq!(found, expected, "seed {seed}, {lookups:?}, {size}, {entries} entries");
            }
        }
    }
}

#[test]
fn a_page_size_counts_the_same_alone_and_among_others() {
    let sizes = [16, 12, 30].map(|shift| PageSize::from_shift(shift).unwrap());
    let rows = rows(9);
    let together = counted(&rows, &sizes, 100);
    for (index, size) in sizes.iter().enumerate() {
        let alone = counted(&rows, &[*size], 100);
        for (lookups, curve) in alone.into_iter().enumerate() {
            assert_eq!(curve, together[lookups * sizes.len() + index]);
        }
    }
}

#[test]
fn cold_misses_are_the_pages_touched_and_the_floor_of_the_curve() {
    let pages = [0, 1, 0, 2, 3, 0, 1, 4, 3];
    let rows: Vec<Row> = pages.iter().map(|page| Row::Access(Kind::Load, page << 12, 8)).collect();
    let curve = counted(&rows, &[PageSize::SIZE_4K], 8).remove(0);
    assert_eq!((curve.total, curve.cold), (9, 5));
    assert_eq!(curve.misses().collect::<Vec<_>>(), [9, 8, 7, 5, 5, 5, 5, 5]);
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let refused = |page_sizes: &[PageSize], entries_max| {
        let (lookups, page_sizes) = (vec![Lookups::All], page_sizes.to_vec());
        let options = CurveOptions { lookups, page_sizes, entries_max };
        curve(&mut Rows::new(Vec::new()), &options, &mut |_| true).unwrap_err().to_string()
    };
    let small = PageSize::from_shift(10).unwrap();
    assert_eq!(refused(&[small], 1), "a page of 1K is smaller than 4K");
    assert_eq!(refused(&[], 0), "0 entries: give 1 to 4194304");
}
