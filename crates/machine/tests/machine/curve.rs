//! Compares the curve of a trace with runs of the trace on machines with one TLB of each size.

use addr::{Kind, PageSize};
use machine::{
    Machine, RunOptions,
    curve::{Curve, CurveOptions, Gaps, Lookups, PAGES_MAX, Sampled, SampledCurve, Windows, curve},
};
use trace::{Batch, Error, Event, Header, Meta, Source};

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

/// The misses and first touches of the TLB that serves `lookups`, if it has `entries` entries.
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

/// Accesses near each other and far apart, by two spaces in turn. Some accesses touch two pages.
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
    assert_eq!(refused(&[small], 1), "a page of 1K is too small for a curve: write 4K or more");
    assert_eq!(
        refused(&[], 0),
        "a curve of TLBs with up to 0 entries is not possible: write 1 to 4194304"
    );
}

const ENTRIES: u32 = 1 << 16;

/// The curves that a run computes from a sample of `rows`.
fn sampled(rows: &[Row], page_sizes: &[PageSize]) -> Vec<SampledCurve> {
    in_windows(rows, page_sizes, Windows::default())
}

fn in_windows(rows: &[Row], page_sizes: &[PageSize], windows: Windows) -> Vec<SampledCurve> {
    let mut source = Rows::new(rows.to_vec());
    let mut sampled = Sampled::in_windows(&mut source, page_sizes, ENTRIES, windows);
    let mut batch = Batch::default();
    while sampled.next(&mut batch).unwrap() {}
    sampled.curves(page_sizes)
}

fn exact(rows: &[Row], page_sizes: &[PageSize]) -> Vec<Curve> {
    let (lookups, page_sizes) = (vec![Lookups::Data], page_sizes.to_vec());
    let options = CurveOptions { lookups, page_sizes, entries_max: ENTRIES };
    curve(&mut Rows::new(rows.to_vec()), &options, &mut |_| true).unwrap()
}

/// The smallest TLB, in entries, in which at most `in_thousand` of a thousand lookups miss. Misses at
/// first touches are not counted.
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

/// A phase that uses few pages, then a phase that uses many pages, some of them more often than
/// others.
fn phases(seed: u64, few: u64, many: u64, skew: u32) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut rows = Vec::new();
    for _ in 0..300_000 {
        rows.push(Row::Access(Kind::Store, stream.below(few) << 12, 8));
    }
    for _ in 0..900_000 {
        // The smallest of several random numbers is usually low, so low pages are used more often.
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

/// The expected lookups, first touches, and misses by number of entries, if only the accesses in
/// `windows` are read. The model is an LRU list of 4K pages. A lookup is weighted by the number of
/// accesses in its period, divided by the number of accesses that are read.
fn model(rows: &[Row], windows: Windows) -> (f64, f64, Vec<f64>) {
    let Windows { whole, window, period } = windows;
    // Returns the period in which an access lies, and whether the access is read.
    let place = |at: u64| match at.checked_sub(whole) {
        None => (0, true),
        Some(after) => (1 + (after / period) as usize, after % period < window),
    };
    let (mut looked, mut all) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
    for at in 0..rows.len() as u64 {
        let (period, is_looked_at) = place(at);
        all[period] += 1.0;
        looked[period] += f64::from(u8::from(is_looked_at));
    }
    let (mut total, mut cold, mut hits) = (0.0, 0.0, vec![0.0; ENTRIES as usize]);
    let mut list: Vec<u64> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let &Row::Access(kind, addr, bytes) = row else { unreachable!("there are only accesses") };
        let (period, is_looked_at) = place(at as u64);
        if kind == Kind::Fetch || !is_looked_at {
            continue;
        }
        let worth = all[period] / looked[period];
        for page in addr >> 12..=(addr + u64::from(bytes) - 1) >> 12 {
            total += worth;
            match list.iter().rev().position(|&other| other == page) {
                Some(depth) => {
                    hits[depth] += worth;
                    list.remove(list.len() - 1 - depth);
                }
                None => cold += worth,
            }
            list.push(page);
        }
    }
    let mut misses = total;
    let misses = hits.iter().map(|&hits| {
        misses -= hits;
        misses
    });
    (total, cold, misses.collect())
}

/// Accesses of a program that touches new pages, never returns to some of its pages, and returns to
/// others. A few accesses cross into a second page.
fn wandering(stream: &mut Stream, count: u64) -> Vec<Row> {
    let access = |at: u64| {
        let kind = [Kind::Fetch, Kind::Load, Kind::Load, Kind::Store][stream.below(4) as usize];
        let span = [1, 8, 60][stream.below(3) as usize];
        let addr = ((at / 200 + stream.below(span)) << 12) + stream.below(4096);
        Row::Access(kind, addr, [1, 8, 64][stream.below(3) as usize])
    };
    (0..count).map(access).collect()
}

#[test]
fn windows_are_worth_their_periods_and_the_open_one_what_it_has() {
    for seed in 1..=60 {
        let mut stream = Stream(seed);
        let whole = stream.below(3000);
        let window = 1 + stream.below(400);
        let windows = Windows { whole, window, period: window + stream.below(3000) };
        let count = stream.below(20_000);
        let rows = wandering(&mut stream, count);
        let found = in_windows(&rows, &[PageSize::SIZE_4K], windows).remove(0);
        let (total, cold, misses) = model(&rows, windows);
        // The count of each of at most 70 depths is rounded down once in each period.
        let off = 2.0 + count as f64 / windows.period as f64;
        let near = |found: u64, expected: f64| (found as f64 - expected).abs() <= 70.0 * off;
        assert!(near(found.curve.total, total), "seed {seed}: {} for {total}", found.curve.total);
        assert!(near(found.curve.cold, cold), "seed {seed}: {} for {cold}", found.curve.cold);
        for (at, (found, expected)) in found.curve.misses().zip(misses).enumerate().take(100) {
            assert!(near(found, expected), "seed {seed}, {at}: {found} misses for {expected}");
        }
        let has_gaps = count > whole + window && windows.period > window;
        let gaps = Gaps { after: whole, one_in: windows.period / window };
        assert_eq!(found.gaps, has_gaps.then_some(gaps), "seed {seed}");
    }
}

#[test]
fn until_a_gap_comes_curves_are_exact() {
    let windows = Windows { whole: 1000, window: 500, period: 4000 };
    let sizes = [PageSize::SIZE_4K, PageSize::SIZE_2M];
    for count in [999, 1000, 1001, 1250, 1500] {
        let rows = wandering(&mut Stream(count), count);
        for (found, exact) in in_windows(&rows, &sizes, windows).iter().zip(exact(&rows, &sizes)) {
            assert_eq!((found.gaps, found.one_in), (None, 1));
            assert!(found.curve == exact, "{count} accesses, {}", exact.page_size);
        }
    }
}

#[test]
fn a_window_begins_where_a_warm_up_ends_in_a_gap() {
    let windows = Windows { whole: 1000, window: 500, period: 4000 };
    let sizes = [PageSize::SIZE_4K];
    for before in [300, 1000, 1200, 1500, 2700, 5000] {
        let load = |page: u64| Row::Access(Kind::Load, page << 12, 8);
        let mut rows: Vec<Row> = (0..before).map(|at| load(at % 40)).collect();
        rows.push(Row::Event(Event::WarmupEnd));
        rows.extend((0..450).map(|at| load(at % 50)));
        let found = in_windows(&rows, &sizes, windows).remove(0);
        let curve = &found.curve;
        assert_eq!((curve.total, curve.cold), (450, 10), "after {before}");
        // The 40 pages of the warm-up are already in the stack. The 10 other pages are new;
        // afterwards all 50 pages are needed.
        let misses: Vec<u64> = curve.misses().collect();
        assert_eq!((misses[48], misses[49]), (410, 10), "after {before}");
        assert_eq!(found.gaps, None, "after {before}");
    }
}

/// Phases, and the run itself, begin and end at any position, inside or outside of a window. All
/// pages are in the sample, because there are at most [`machine::curve::PAGES_MIN`].
#[test]
fn windows_say_nearly_what_all_accesses_would() {
    let windows = Windows { whole: 20_000, window: 10_000, period: 40_000 };
    let sizes = [PageSize::SIZE_4K, PageSize::SIZE_2M];
    for (seed, phases) in [
        (1, &[(600_000, 2000)][..]),
        (2, &[(300_000, 20), (300_000, 2000)]),
        (3, &[(300_000, 2000), (300_000, 20)]),
        (4, &[(100_000, 500), (500_000, 2000), (35_000, 100)]),
        (5, &[(605_000, 2000)]),
        (6, &[(23_000, 50), (8_000, 1000)]),
    ] {
        let mut stream = Stream(seed);
        let mut rows = Vec::new();
        for &(accesses, pages) in phases {
            let load = |_| Row::Access(Kind::Load, stream.below(pages) << 12, 8);
            rows.extend((0..accesses).map(load));
        }
        for (found, exact) in in_windows(&rows, &sizes, windows).iter().zip(exact(&rows, &sizes)) {
            let found = &found.curve;
            // Each access is to one page, and the sampler counts all accesses.
            assert_eq!(found.total, exact.total, "seed {seed}");
            let miss_again = |curve: &Curve, entries: usize| {
                (curve.misses().nth(entries - 1).unwrap() - curve.cold) as f64 / curve.total as f64
            };
            for entries in [1, 4, 16, 64, 256, 1024, 2500, 4096] {
                let (a, b) = (miss_again(found, entries), miss_again(&exact, entries));
                assert!((a - b).abs() < 0.05, "seed {seed}, {entries} entries: {a}, really {b}");
            }
        }
    }
}

/// Loads of pages at random, generated on demand, in phases. Each phase has a number of accesses and a number of pages.
struct Phases {
    header: Header,
    stream: Stream,
    phases: Vec<(u64, u64)>,
}

impl Source for Phases {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        let Some(phase) = self.phases.iter_mut().find(|(accesses, _)| *accesses > 0) else {
            return Ok(false);
        };
        let accesses = phase.0.min(8192);
        phase.0 -= accesses;
        for _ in 0..accesses {
            batch.push(0, self.stream.below(phase.1) << 12, Meta::new(Kind::Load, 8, 1));
        }
        Ok(true)
    }
}

/// In a run of 74 M accesses, the 6 M accesses after a long preparation determine how many entries
/// the run needs.
#[test]
fn a_short_phase_of_a_long_run_is_seen() {
    let header = Rows::new(Vec::new()).header().clone();
    let phases = vec![(60_000_000, 1), (6_000_000, 12_000), (8_000_000, 1)];
    let mut source = Phases { header, stream: Stream(3), phases };
    let mut sampled = Sampled::new(&mut source, &[PageSize::SIZE_4K], ENTRIES);
    let mut batch = Batch::default();
    while sampled.next(&mut batch).unwrap() {}
    let found = sampled.curves(&[PageSize::SIZE_4K]).remove(0);
    assert_eq!(found.gaps, Some(Gaps { after: 50_000_000, one_in: 8 }));
    // With this number of entries for the 12,000 pages, a hundredth of all accesses miss.
    let expected = 12_000.0 * (1.0 - 0.74 / 6.0);
    let entries = enough(&found.curve, 10).unwrap() as f64;
    assert!((entries / expected - 1.0).abs() < 0.15, "{entries} for {expected}");
}
