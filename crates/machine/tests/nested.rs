//! Walks in a virtual machine: in two dimensions, with pages of two sizes.

mod support;

use addr::Kind;
use machine::{Machine, Results};
use support::{Row, run};

const BASE: u64 = 0x7000_0000_0000;

/// `pages` pages of `bytes` bytes, in turn, twice: the second round has no first touches.
fn rounds(pages: u64, bytes: u64) -> Vec<Row> {
    let round = || (0..pages).map(move |page| Row::Access(Kind::Load, BASE + page * bytes, 8));
    round().chain(round()).collect()
}

fn on(settings: &[&str], rows: &[Row]) -> Results {
    // One entry of each TLB, so that every access but repeats walks.
    let tiny = ["tlb.l1d.entries=1", "tlb.l2d.entries=4", "memory.size=1T", "nested.memory=4T"];
    run("opteron-2008", &[&tiny[..], settings].concat(), rows)
}

/// Guest levels g, host levels h, without any cache of translations: g (h + 1) + h references.
#[test]
fn a_walk_has_references_in_two_dimensions() {
    for (guest, host, guest_size, host_size, references) in [
        ("4", "4", "4K", "4K", 24),
        ("5", "5", "4K", "4K", 35),
        ("4", "5", "4K", "4K", 29),
        ("4", "4", "2M", "4K", 3 * 5 + 4),
        ("4", "4", "4K", "2M", 4 * 4 + 3),
        ("4", "4", "4K", "1G", 4 * 3 + 2),
        ("4", "4", "2M", "2M", 3 * 4 + 3),
        ("4", "4", "1G", "1G", 2 * 3 + 2),
        ("5", "4", "1G", "2M", 3 * 4 + 3),
    ] {
        let settings = [
            format!("page_table.levels={guest}"),
            format!("nested.levels={host}"),
            format!("os.page_size={guest_size}"),
            "os.uniform=true".to_owned(),
            format!("nested.page_size={host_size}"),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let bytes = guest_size.parse::<addr::PageSize>().unwrap().bytes();
        let pages = 40;
        let results = on(&settings, &rounds(pages, bytes));
        assert_eq!(results.walks.references_per_walk, vec![(references, pages)], "{settings:?}");
        // What the TLB holds is the smaller of the two pages.
        let smaller = bytes.min(host_size.parse::<addr::PageSize>().unwrap().bytes());
        let held = addr::PageSize::from_bytes(smaller).unwrap().to_string();
        assert_eq!(results.tlbs[0].by_page_size.keys().collect::<Vec<_>>(), [&held]);
        let splintered = if smaller < bytes { 2 * pages } else { 0 };
        assert_eq!(results.nested.unwrap().splintered, splintered, "{settings:?}");
    }
}

/// If every reference hits the nested TLB, the walk is as long as without a host (B10 §4.7); an
/// MMU cache for the guest's dimension then shortens it as it does there.
#[test]
fn a_nested_tlb_and_mmu_caches_shorten_each_dimension() {
    let pages = 100;
    let of = |settings: &[&str]| on(settings, &rounds(pages, 4096));
    let nested_tlb = "nested.tlb.entries=512";
    let tlb = of(&[nested_tlb]);
    assert_eq!(tlb.walks.references_per_walk, vec![(4, pages)]);
    let both = of(&[nested_tlb, "mmu_cache.entries=24", "mmu_cache.design=utc"]);
    assert_eq!(both.walks.references_per_walk, vec![(1, pages)]);
    // Page-table caches know the host's addresses: an entry is found once it is placed.
    let tagged = of(&[nested_tlb, "mmu_cache.entries=24", "mmu_cache.design=uptc"]);
    assert_eq!(tagged.walks.references_per_walk, vec![(1, pages)]);
    assert_eq!(tagged.nested.as_ref().unwrap().tlb, tlb.nested.as_ref().unwrap().tlb);
    for design in ["uptc", "sptc", "utc", "stc", "tpc"] {
        let design = format!("nested.mmu_cache.design={design}");
        let host = of(&[&design, "nested.mmu_cache.entries=24"]);
        // Four references of the guest, and of each of five walks of the host the last.
        assert_eq!(host.walks.references_per_walk[0].0, 4 + 5, "{design}");
        let counts = host.nested.unwrap();
        assert!(counts.mmu_cache.unwrap().by_level.iter().all(|level| level.held > 0));
    }
}

#[test]
fn what_a_host_cannot_be_is_refused_with_a_reason() {
    for (machine, settings, what) in [
        ("tlb-only", &["nested.page_size=4K"][..], "nested: a machine of TLBs alone"),
        ("opteron-2008", &["nested.levels=3"], "nested.levels: "),
        ("opteron-2008", &["nested.format=none"], "nested.format: there is no page table"),
        ("opteron-2008", &["nested.page_size=64K"], "nested.page_size: the host's table holds"),
        (
            "opteron-2008",
            &["nested.tlb.entries=10", "nested.tlb.ways=4"],
            "nested.tlb.ways: 10 entries",
        ),
        ("opteron-2008", &["nested.mmu_cache.design=utc"], "nested.mmu_cache.entries: how many"),
        ("opteron-2008", &["nested.memory=1K"], "nested.memory: "),
        ("epyc-9005", &["nested.page_size=4Q"], "not a page size"),
    ] {
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let error = Machine::load(machine, &settings).unwrap_err().to_string();
        assert!(error.contains(what) && !error.contains('\n'), "{settings:?}: {error}");
    }
}

#[test]
fn a_host_that_is_full_stops_the_run() {
    let settings = vec!["nested.memory=1M".to_owned()];
    let machine = Machine::load("opteron-2008", &settings).unwrap();
    let options = machine::RunOptions { check: false, progress: &mut |_| true };
    let error = machine.run(&mut support::Rows::new(rounds(400, 4096)), options).unwrap_err();
    assert!(error.to_string().contains("nested.memory"), "{error}");
}
