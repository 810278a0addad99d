//! A range TLB in a machine, beside the range table that walks make.

mod support;

use machine::{Machine, Results, results::RangeTlbCounts};
use support::{Row, heap_program};

const PAGE: u64 = 4096;

fn run(settings: &[&str], rows: &[Row]) -> Results {
    let fixed = ["tlb.l1d.entries=8", "tlb.l2d.entries=16", "memory.size=1G"];
    support::run("opteron-2008", &[&fixed[..], settings].concat(), rows)
}

fn of(results: &Results) -> &RangeTlbCounts {
    results.range_tlb.as_ref().unwrap()
}

/// Each translation is compared with the page table.
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
        let results = run(&[&["range_tlb.entries=4"][..], more].concat(), &rows);
        assert!(of(&results).hits > 5, "{more:?}: {:?}", of(&results));
    }
}

/// What is filled in order lies in one range, and a range TLB then has every page of it.
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
    // Frames at random make no ranges: each walk is made.
    let scattered = run(&["os.manager=base", "memory.placement=5", "range_tlb={}"], &rows);
    assert!(of(&scattered).hits * 20 < of(&scattered).lookups, "{:?}", of(&scattered));
    assert!(of(&scattered).ranges > 1500 && of(&ranges).ranges < 20);
    assert_eq!(of(&ranges).range_bytes, 2000 * PAGE);
    // A range must have so many pages.
    let long = run(&["os.manager=base", "range_tlb={pages_min=100000}"], &rows);
    assert_eq!((of(&long).hits, of(&long).fills), (0, 0));
}

#[test]
fn what_is_wrong_is_said() {
    for (name, settings, expected) in [
        ("opteron-2008", &["range_tlb.entries=0"][..], "range_tlb.entries: it has no entries"),
        ("opteron-2008", &["range_tlb.replacement=best"], "range_tlb.replacement"),
        ("opteron-2008", &["range_tlb={}", "nested={}"], "range_tlb: ranges of a virtual machine"),
        (
            "opteron-2008",
            &["range_tlb={}", "page_table.format=linear"],
            "range_tlb: a linear page table is found through the TLB",
        ),
        ("r4700", &["range_tlb={}"], "range_tlb: ranges are read from a table by hardware"),
        ("tlb-only", &["range_tlb={}"], "range_tlb: ranges are read from a table by hardware"),
    ] {
        let settings: Vec<String> = settings.iter().map(|one| (*one).to_owned()).collect();
        let error = Machine::load(name, &settings).err().unwrap().to_string();
        assert!(error.contains(expected), "{settings:?}: {error}");
    }
}
