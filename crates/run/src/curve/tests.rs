//! Windows of a long run against all of its accesses.

use trace::{Batch, Error, Event, Header, Meta};

use super::*;

/// An access to an address, or the end of a warm-up.
type Row = Option<u64>;

/// Rows in batches.
struct Rows<'a> {
    header: Header,
    rows: &'a [Row],
}

impl Rows<'_> {
    const BATCH: usize = 97;

    fn new(rows: &[Row]) -> Rows<'_> {
        let source = trace::import::open("generate:uniform,accesses=1", &Default::default());
        Rows { header: source.unwrap().header().clone(), rows }
    }
}

impl Source for Rows<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        let (now, rest) = self.rows.split_at(self.rows.len().min(Rows::BATCH));
        self.rows = rest;
        for row in now {
            match row {
                Some(addr) => batch.push(0, *addr, Meta::new(Kind::Load, 8, 1)),
                None => batch.push_event(0, Event::WarmupEnd),
            }
        }
        Ok(!batch.is_empty())
    }
}

/// Numbers below a bound, by xorshift.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |bound| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    }
}

const ENTRIES: u32 = 1 << 13;

/// The curves of those of `rows` that lie in [`WINDOWS`].
fn sampled(rows: &[Row], page_sizes: &[PageSize]) -> Vec<SampledCurve> {
    let mut source = Rows::new(rows);
    let mut sampled = Sampled::within(&mut source, page_sizes, ENTRIES, WINDOWS);
    let mut batch = Batch::default();
    while sampled.next(&mut batch).unwrap() {}
    sampled.curves(page_sizes)
}

fn exact(rows: &[Row], page_sizes: &[PageSize]) -> Vec<Curve> {
    let (lookups, page_sizes) = (vec![Lookups::Data], page_sizes.to_vec());
    let options = CurveOptions { lookups, page_sizes, entries_max: ENTRIES };
    curve(&mut Rows::new(rows), &options, &mut |_| true).unwrap()
}

const WINDOWS: Windows = Windows { whole: 20_000, window: 10_000, period: 40_000 };

/// Long runs in windows, against all of their accesses: phases begin and end anywhere, and so does the run, in a
/// window or between two. All pages stay in the sample, of which there are no more than [`PAGES_MIN`].
#[test]
fn windows_say_nearly_what_all_accesses_would() {
    let sizes = [PageSize::SIZE_4K, PageSize::SIZE_2M];
    for (seed, phases) in [
        (1, &[(600_000, 2000)][..]),
        (2, &[(300_000, 20), (300_000, 2000)]),
        (3, &[(300_000, 2000), (300_000, 20)]),
        (4, &[(100_000, 500), (500_000, 2000), (35_000, 100)]),
        (5, &[(605_000, 2000)]),
        (6, &[(23_000, 50), (8_000, 1000)]),
    ] {
        let mut below = numbers(seed);
        let mut rows = Vec::new();
        for &(accesses, pages) in phases {
            for _ in 0..accesses {
                rows.push(Some(below(pages) << 12));
            }
        }
        let (found, exact) = (sampled(&rows, &sizes), exact(&rows, &sizes));
        for (found, exact) in found.iter().zip(&exact) {
            let found = &found.curve;
            // Accesses to one page each: the windows know how many there are.
            assert_eq!(found.total, exact.total, "seed {seed}");
            let miss_again = |curve: &Curve, entries: usize| {
                (curve.misses().nth(entries - 1).unwrap() - curve.cold) as f64 / curve.total as f64
            };
            for entries in [1, 4, 16, 64, 256, 1024, 2500, 4096] {
                let (a, b) = (miss_again(found, entries), miss_again(exact, entries));
                assert!((a - b).abs() < 0.05, "seed {seed}, {entries} entries: {a}, really {b}");
            }
        }
    }
}

/// A window that is open at the end stands for what has come of its period, and for no more.
#[test]
fn a_run_may_end_in_a_window() {
    for accesses in [20_000, 20_097, 25_000, 31_000, 59_999, 60_000] {
        let rows: Vec<Row> = (0..accesses).map(|at| Some((at % 2) << 12)).collect();
        let found = sampled(&rows, &[PageSize::SIZE_4K]).remove(0).curve;
        let exact = exact(&rows, &[PageSize::SIZE_4K]).remove(0);
        assert_eq!(found.total, accesses, "{accesses}");
        assert!(found == exact, "{accesses}");
    }
}

/// With the end of a warm-up windows begin anew: what counts is looked at from its beginning.
#[test]
fn a_short_part_behind_a_long_warm_up_is_looked_at_whole() {
    for warm_up in [10_000, 35_000, 59_950, 100_000] {
        let page = |at: u64| Some((at % 700) << 12);
        let mut rows: Vec<Row> = (0..warm_up).map(page).collect();
        rows.push(None);
        rows.extend((warm_up..warm_up + 10_000).map(page));
        let found = sampled(&rows, &[PageSize::SIZE_4K]).remove(0).curve;
        let exact = exact(&rows, &[PageSize::SIZE_4K]).remove(0);
        assert_eq!((found.total, found.cold), (10_000, exact.cold), "{warm_up}");
        // The stack may be old when the warm-up ends: each of the pages can have a wrong depth once.
        for (entries, (a, b)) in (1..).zip(found.misses().zip(exact.misses())) {
            assert!(a.abs_diff(b) <= 700, "{warm_up}, {entries} entries: {a}, really {b}");
        }
    }
}
