//! Tests the manager `freebsd`: base pages in reservations, large pages where a reservation fills,
//! and both when memory is scarce.

use addr::Kind;
use machine::{Machine, Results, RunOptions, results::ReservationsOfSize};
use trace::{Event, Origin};

use crate::support::{Row, Rows, Stream};

const HEAP: u64 = 0x4000_0000;
const TEXT: u64 = 0x1000_0000;
const MIB: u64 = 1 << 20;

fn mapping(start: u64, bytes: u64, origin: Origin) -> Row {
    let rights = if matches!(origin, Origin::File(_)) { 5 } else { 3 };
    Row::Event(Event::Mapping { start, bytes, rights, origin, offset: Some(0), file: None })
}

/// Random accesses to a heap of `heap` bytes, and to a file of 64 KiB.
fn program(seed: u64, heap: u64, accesses: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let file = Origin::File("/lib/small".to_owned());
    let mut rows = vec![mapping(TEXT, 64 << 10, file), mapping(HEAP, heap, Origin::Heap)];
    for _ in 0..accesses {
        rows.push(match stream.below(4) {
            0 => Row::Access(Kind::Load, TEXT + stream.below(64 << 10), 4),
            1 => Row::Access(Kind::Load, HEAP + stream.below(heap / 8) * 8, 8),
            _ => Row::Access(Kind::Store, HEAP + stream.below(heap / 8) * 8, 8),
        });
    }
    rows
}

fn load(settings: &[&str]) -> Result<Machine, String> {
    let all = ["os.manager=freebsd"].iter().chain(settings);
    let settings: Vec<String> = all.map(|setting| (*setting).to_owned()).collect();
    Machine::load("opteron-2008", &settings).map_err(|error| error.to_string())
}

fn run(settings: &[&str], rows: &[Row]) -> Results {
    let options = RunOptions { check: true, progress: &mut |_| true };
    load(settings).unwrap().run(&mut Rows::new(rows.to_vec()), options).unwrap()
}

fn reservations(results: &Results) -> &[ReservationsOfSize] {
    &results.manager.as_ref().unwrap().reservations.as_ref().unwrap().sizes
}

fn work(results: &Results, kind: &str) -> u64 {
    results.manager.as_ref().unwrap().work[kind]
}

#[test]
fn reservations_fill_and_become_large_pages() {
    // At the end, the program stores once to each page of the 8 MiB.
    let mut rows = program(1, 8 * MIB, 20_000);
    rows.extend((0..2048).map(|page| Row::Access(Kind::Store, HEAP + page * 4096, 8)));
    let results = run(&[], &rows);
    let [of] = reservations(&results) else { panic!("{:?}", reservations(&results)) };
    assert_eq!((of.size.as_str(), of.made, of.filled), ("2M", 4, 4));
    assert_eq!((of.broken["frame"], of.unplaced["end"]), (0, 16), "{of:?}");
    assert_eq!(results.memory.pages_by_size["2M"], 4);
    assert_eq!(work(&results, "upgrades"), 4);
    let last = results.manager.as_ref().unwrap().bytes;
    assert_eq!(last.reserved, 0);
    let base = run(&["os.manager=base"], &rows);
    assert!(results.tlbs[0].total.misses < base.tlbs[0].total.misses);
}

#[test]
fn under_pressure_reservations_are_broken_before_pages_leave() {
    // There are 16 heaps of 2 MiB. Only a few pages of each heap are used. Memory is half as large as
    // all heaps together.
    let mut rows: Vec<Row> =
        (0..16).map(|heap| mapping(HEAP + heap * 4 * MIB, 2 * MIB, Origin::Heap)).collect();
    let mut stream = Stream(2);
    for heap in 0..16 {
        for _ in 0..40 {
            let addr = HEAP + heap * 4 * MIB + stream.below(512) * 4096;
            rows.push(Row::Access(Kind::Store, addr, 8));
        }
    }
    let results = run(&["memory.size=16M", "swap.size=64M"], &rows);
    let [of] = reservations(&results) else { panic!("{:?}", reservations(&results)) };
    assert!(of.unplaced["no-block"] > 0 && of.made >= 6, "{of:?}");
    assert_eq!(work(&results, "writes"), 0, "nothing had to go to the disk");
    // The stores need more than all memory: all reservations are broken, and then pages are
    // evicted.
    rows.extend(
        (0..16 * 512).map(|page| {
            Row::Access(Kind::Store, HEAP + page / 512 * 4 * MIB + page % 512 * 4096, 8)
        }),
    );
    let results = run(&["memory.size=16M", "swap.size=64M"], &rows);
    let [of] = reservations(&results) else { panic!("{:?}", reservations(&results)) };
    assert!(of.broken["frame"] > 0 && of.broken_bytes > 0, "{of:?}");
    assert!(work(&results, "writes") > 0);
    let samples = &results.manager.as_ref().unwrap().over_time;
    let broken: Vec<u64> = samples
        .iter()
        .map(|sample| sample.reservations.as_ref().unwrap().broken["frame"])
        .collect();
    assert!(broken.is_sorted() && broken.last() > broken.first(), "{broken:?}");
}

#[test]
fn small_files_and_two_sizes_are_options() {
    let rows = program(3, 4 * MIB, 4_000);
    let file = |settings: &[&str]| {
        let results = run(settings, &rows);
        reservations(&results).iter().map(|of| (of.size.clone(), of.unplaced["end"])).collect()
    };
    let of = |size: &str, count| (size.to_owned(), count);
    let none: Vec<(String, u64)> = file(&[]);
    assert_eq!(none, [of("2M", 16)]);
    let eager: Vec<(String, u64)> = file(&["os.reservations={eager=true}"]);
    assert_eq!(eager, [of("2M", 0)]);
    let two: Vec<(String, u64)> = file(&["os.reservations={sizes=[\"64K\",\"2M\"]}"]);
    assert_eq!(two, [of("2M", 1), of("64K", 0)]);
}

/// The results count from the end of the warm-up on.
#[test]
fn counts_begin_anew_after_the_warm_up() {
    let mut rows = program(4, 4 * MIB, 4_000);
    rows.push(Row::Event(Event::WarmupEnd));
    rows.extend(program(5, 4 * MIB, 100).into_iter().skip(2));
    let results = run(&[], &rows);
    assert!(reservations(&results)[0].made == 0 && reservations(&results)[0].placed < 50);
}

#[test]
fn what_is_wrong_is_said() {
    for (settings, expected) in [
        (
            &["memory.size=1M"][..],
            "os.reservations.sizes: a reservation of 2M is larger than memory.size",
        ),
        (&["os.reservations={sizes=[\"4K\"]}"], "is not larger than a page of 4K"),
        (&["os.reservations={sizes=[]}"], "the list has no size"),
        (
            &["os.manager=base", "os.reservations={eager=true}"],
            "the manager `base` has no reservations",
        ),
        (&["os.place=heap=2M"], "the manager `freebsd` ignores requests for page sizes"),
        (
            &["os.page_size=2M"],
            "has base pages of 4K, and larger pages where reservations become full",
        ),
        (&["tlb.l1d.page_sizes=[\"4K\"]"], "2M is missing: write page_sizes = [\"4K\", \"2M\"]"),
        (
            &["os.reservations={size=\"2M\"}"],
            "there is no key `size` here; the keys are sizes, eager, marks, source",
        ),
    ] {
        let error = load(settings).err().unwrap_or_default();
        assert!(error.contains(expected), "{settings:?}: {error}");
    }
}
