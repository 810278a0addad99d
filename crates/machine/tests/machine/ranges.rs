//! Tests a range TLB, beside the range table of the operating system.

use addr::Kind;
use machine::{Machine, Results, results::RangeTlbCounts};

use crate::support::{HEAP, Row, Stream, heap_program, mapping};

const PAGE: u64 = 4096;

fn run(settings: &[&str], rows: &[Row]) -> Results {
    let fixed = ["tlb.l1d.entries=8", "tlb.l2d.entries=16", "memory.size=1G"];
    crate::support::run("opteron-2008", &[&fixed[..], settings].concat(), rows)
}

fn of(results: &Results) -> &RangeTlbCounts {
    results.range_tlb.as_ref().unwrap()
}

/// Each translation is compared with the page table while pages are mapped, moved and unmapped.
#[test]
fn ranges_are_right_whatever_moves() {
    let rows = heap_program(1, 300, 6000, true);
    for more in [
        &[][..],
        &["os.manager=base"],
        &["os.manager=base", "walker.tracks_dirty=true"],
        &["os.manager=freebsd", "core.asid_bits=8"],
        &["os.manager=linux"],
        &["os.page_size=2M"],
        &["page_table.format=hashed"],
        &["os.manager=base", "memory.size=1M", "swap.size=8M"],
        &["tlb.l1d.blocks={kind=\"coalesced\",pages=4}"],
    ] {
        for from in ["range_tlb.from=table", "range_tlb.from=line"] {
            // Ranges that are read from lines of base-page entries contain no pages of 2M.
            let hits_min =
                if (from, more) == ("range_tlb.from=line", &["os.page_size=2M"]) { 0 } else { 5 };
            let results = run(&[&["range_tlb.entries=4", from][..], more].concat(), &rows);
            assert!(of(&results).hits >= hits_min, "{from} {more:?}: {:?}", of(&results));
        }
    }
}

/// Pages that are touched in order lie in one range, so the range TLB translates all of them.
#[test]
fn a_range_has_all_pages_of_a_heap() {
    let rows = heap_program(2, 2000, 20_000, false);
    let plain = run(&["os.manager=base"], &rows);
    let ranges = run(&["os.manager=base", "range_tlb={}"], &rows);
    assert_eq!(
        of(&ranges).lookups,
        ranges.tlbs[1].total.misses,
        "it is asked where a walk would be"
    );
    assert!(ranges.walks.walks < 2100 && plain.walks.walks > 10_000, "{}", ranges.walks.walks);
    // Frames that are placed at random make no ranges, so nearly every walk is made.
    let scattered = run(&["os.manager=base", "memory.placement=5", "range_tlb={}"], &rows);
    assert!(of(&scattered).hits * 20 < of(&scattered).lookups, "{:?}", of(&scattered));
    assert!(of(&scattered).ranges > 1500 && of(&ranges).ranges < 20);
    assert_eq!(of(&ranges).range_bytes, 2000 * PAGE);
    // No range has this minimum number of pages.
    let long = run(&["os.manager=base", "range_tlb={pages_min=100000}"], &rows);
    assert_eq!((of(&long).hits, of(&long).fills), (0, 0));
}

/// The first store to a page of a range causes a walk only if the machine tracks dirty pages.
#[test]
fn the_first_store_to_a_page_walks_where_dirty_pages_are_tracked() {
    const PAGES: u64 = 64;
    // A hit of the range TLB fills only the first level, so the pages of the last walks stay in the
    // second level.
    const IN_SECOND_LEVEL: u64 = 16;
    let pages = |kind| (0..PAGES).map(move |page| Row::Access(kind, HEAP + page * PAGE, 8));
    let mut rows = vec![mapping(HEAP, PAGES * PAGE)];
    for kind in [Kind::Load, Kind::Store, Kind::Store] {
        rows.extend(pages(kind));
    }
    let walks = |tracks: &str| {
        let results = run(&["os.manager=base", "range_tlb={}", tracks], &rows);
        (results.walks.walks, of(&results).hits)
    };
    let (walks_without, hits_without) = walks("walker.tracks_dirty=false");
    let (walks_with, hits_with) = walks("walker.tracks_dirty=true");
    assert_eq!(hits_without, 2 * (PAGES - IN_SECOND_LEVEL));
    assert_eq!(hits_with, PAGES - IN_SECOND_LEVEL);
    assert_eq!(walks_with, walks_without + PAGES);
}

/// From one cache line a walk gets 8 pages. The ranges of consecutive lines become one entry.
#[test]
fn runs_out_of_lines_grow_together() {
    let rows = heap_program(3, 64, 4000, false);
    let base = ["os.manager=base", "tlb.l2d.entries=4", "tlb.l1d.entries=4"];
    let plain = run(&base, &rows);
    let line = |more: &[&str]| {
        let settings = [&base[..], &["range_tlb.from=line"], more].concat();
        let results = run(&settings, &rows);
        (results.walks.walks, of(&results).clone())
    };
    let (walks, counts) = line(&[]);
    // Each page misses once while the pages are touched in order; afterwards one entry covers all
    // of them.
    assert!(walks < 140 && plain.walks.walks > 2000, "{walks} of {}", plain.walks.walks);
    assert_eq!((counts.from.as_str(), counts.ranges, counts.range_bytes), ("line", 0, 0));
    // If frames are placed at random, no range can be extended.
    let (walks, counts) = line(&["memory.placement=5"]);
    assert!(walks * 10 > plain.walks.walks * 9, "{walks}, {counts:?}");
}

/// If a region gets its frames when it is mapped, pages that are touched at random still lie in one
/// range, and none of them faults.
#[test]
fn eager_paging_makes_long_ranges() {
    let mut stream = Stream(4);
    let mut rows = vec![mapping(HEAP, 2000 * PAGE), mapping(1 << 32, 100 * PAGE)];
    for _ in 0..20_000 {
        rows.push(Row::Access(Kind::Store, HEAP + stream.below(2000) * PAGE, 8));
    }
    for manager in ["base", "linux", "ingens", "hawkeye", "ca", "translation-ranger"] {
        let manager = format!("os.manager={manager}");
        let base = [manager.as_str(), "os.eager_paging=true", "range_tlb={}"];
        let eager = run(&base, &rows);
        let lazy = run(
            &[base[0], base[2], "os.linux.enabled=never"]
                [..2 + usize::from(base[0] != "os.manager=base")],
            &rows,
        );
        let counts = |results: &Results| results.manager.as_ref().unwrap().clone();
        assert_eq!(counts(&eager).faults.values().sum::<u64>(), 0, "{manager}");
        assert_eq!(counts(&eager).end.bytes.anonymous, 2100 * PAGE, "{manager}");
        assert!(eager.walks.walks < 100, "{manager}: {}", eager.walks.walks);
        let is_ca = base[0] == "os.manager=ca";
        assert!(is_ca || lazy.walks.walks > 1500, "{manager}: {}", lazy.walks.walks);
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (name, settings, expected) in [
        ("opteron-2008", &["os.manager=freebsd", "os.eager_paging=true"][..], "for reservations"),
        ("opteron-2008", &["os.manager=first-touch", "os.eager_paging=true"], "at the first touch"),
        (
            "opteron-2008",
            &["os.manager=irix", "os.eager_paging=true"],
            "only of the sizes of pages",
        ),
        ("opteron-2008", &["os.manager=recorded", "os.eager_paging=true"], "that the trace gives"),
        ("opteron-2008", &["range_tlb.from=walk"], "range_tlb.from: there is no `walk`"),
        ("opteron-2008", &["range_tlb.entries=0"], "range_tlb.entries: it has no entries"),
        ("opteron-2008", &["range_tlb.replacement=best"], "range_tlb.replacement"),
        ("opteron-2008", &["range_tlb={}", "nested={}"], "range_tlb: a range TLB of a virtual"),
        (
            "opteron-2008",
            &["range_tlb={}", "page_table.format=linear"],
            "range_tlb: the entries of a linear page table are read through the TLB",
        ),
        ("r4700", &["range_tlb={}"], "range_tlb: a range TLB needs a hardware walker"),
        ("tlb-only", &["range_tlb={}"], "range_tlb: a range TLB needs a hardware walker"),
    ] {
        let settings: Vec<String> = settings.iter().map(|one| (*one).to_owned()).collect();
        let error = Machine::load(name, &settings).err().unwrap().to_string();
        assert!(error.contains(expected), "{settings:?}: {error}");
    }
}
