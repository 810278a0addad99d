//! The curve of a trace against runs of it on machines with one TLB, size by size.

use addr::{Kind, PageSize};
use machine::{
    Machine, RunOptions,
    curve::{Curve, CurveOptions, Lookups, PAGES_MAX, Sampled, SampledCurve, curve},
};
use trace::{Batch, Event, Source};

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

const ENTRIES: u32 = 1 << 16;

/// The curves of a sample of `rows`, as a run that reads them makes them.
fn sampled(rows: &[Row], page_sizes: &[PageSize]) -> Vec<SampledCurve> {
    let mut source = Rows::new(rows.to_vec());
    let mut sampled = Sampled::new(&mut source, page_sizes, ENTRIES);
    let mut batch = Batch::default();
    while sampled.next(&mut batch).unwrap() {}
    sampled.curves(page_sizes)
}

fn exact(rows: &[Row], page_sizes: &[PageSize]) -> Vec<Curve> {
    let (lookups, page_sizes) = (vec![Lookups::Data], page_sizes.to_vec());
    let options = CurveOptions { lookups, page_sizes, entries_max: ENTRIES };
    curve(&mut Rows::new(rows.to_vec()), &options, &mut |_| true).unwrap()
}

/// The fewest entries with which at most so many in a thousand lookups miss again.
fn enough(curve: &Curve, in_thousand: u64) -> Option<usize> {
    let allowed = curve.total * in_thousand / 1000 + curve.cold;
    curve.misses().position(|misses| misses <= allowed).map(|index| index + 1)
}

#[test]
fn a_sample_of_all_pages_is_exact() {
    let sizes = [12, 14, 21].map(|shift| PageSize::from_shift(shift).unwrap());
    for seed in 1..6 {
        let rows = rows(seed);
        for (sampled, exact) in sampled(&rows, &sizes).into_iter().zip(exact(&rows, &sizes)) {
            assert_eq!(sampled.one_in, 1);
            assert!(sampled.curve == exact, "seed {seed}, {}", exact.page_size);
        }
    }
}

/// A phase that uses a few pages, then one that uses many, some of them more often than others.
fn phases(seed: u64, few: u64, many: u64, skew: u32) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut rows = Vec::new();
    for _ in 0..300_000 {
        rows.push(Row::Access(Kind::Store, stream.below(few) << 12, 8));
    }
    for _ in 0..900_000 {
        // The least of several numbers is small more often.
        let page = (0..skew).map(|_| stream.below(many)).min().unwrap();
        rows.push(Row::Access(Kind::Load, (1 << 40) | page << 12 | 8, 8));
        rows.push(Row::Access(Kind::Load, stream.below(4) << 12, 8));
    }
    rows
}

#[test]
fn a_sample_of_some_pages_says_nearly_what_all_would() {
    let sizes = [PageSize::SIZE_4K, PageSize::SIZE_2M];
    for (seed, many, skew) in [(1, 30_000, 1), (2, 50_000, 1), (3, 40_000, 2), (4, 60_000, 4)] {
        let rows = phases(seed, 50, many, skew);
        let (found, exact) = (sampled(&rows, &sizes), exact(&rows, &sizes));
        assert!(found[0].one_in >= many / PAGES_MAX as u64, "seed {seed}: {}", found[0].one_in);
        assert_eq!(found[1].one_in, 1, "seed {seed}");
        assert!(found[1].curve == exact[1], "seed {seed}: pages of 2M are few");
        assert_eq!(found[0].curve.total, exact[0].total, "seed {seed}");
        // A sample has a thousand pages or more, so that 15 % is five times the standard deviation.
        let near = |a: u64, b: u64| a.abs_diff(b) * 100 <= 15 * b;
        assert!(near(found[0].curve.cold, exact[0].cold), "seed {seed}");
        for in_thousand in [300, 100, 30, 10] {
            let (a, b) = (enough(&found[0].curve, in_thousand), enough(&exact[0], in_thousand));
            let (a, b) = (a.unwrap() as u64, b.unwrap() as u64);
            assert!(near(a, b), "seed {seed}: {a} entries for {in_thousand}, and really {b}");
        }
    }
}

#[test]
fn an_early_phase_is_not_taken_for_the_whole() {
    let rows = phases(7, 50, 20_000, 1);
    let sizes = [PageSize::SIZE_4K];
    let early = exact(&rows[..300_000], &sizes);
    assert!(enough(&early[0], 10).unwrap() <= 50);
    assert!(enough(&sampled(&rows, &sizes)[0].curve, 10).unwrap() > 15_000);
}

#[test]
fn a_warm_up_is_not_counted_by_a_sample() {
    let pages = |count: u64| (0..count).map(|page| Row::Access(Kind::Load, page << 12, 8));
    let mut rows: Vec<Row> = pages(20_000).collect();
    rows.push(Row::Event(Event::WarmupEnd));
    rows.extend(pages(10));
    let curve = sampled(&rows, &[PageSize::SIZE_4K]).remove(0).curve;
    assert_eq!((curve.total, curve.misses().last()), (10, Some(curve.cold)));
}
