//! Tests walks in a virtual machine, in which the guest and the host have page tables, with pages
//! of two sizes.

use addr::Kind;
use machine::{Machine, Results};

use crate::support::{Row, run};

const BASE: u64 = 0x7000_0000_0000;

/// Loads of `pages` pages of `bytes` bytes, in two rounds. The second round has no first touches.
fn rounds(pages: u64, bytes: u64) -> Vec<Row> {
    let round = || (0..pages).map(move |page| Row::Access(Kind::Load, BASE + page * bytes, 8));
    round().chain(round()).collect()
}

fn on(settings: &[&str], rows: &[Row]) -> Results {
    // The first-level TLB has one entry, so that every access to another page misses in it.
    let tiny = ["tlb.l1d.entries=1", "tlb.l2d.entries=4", "memory.size=1T", "nested.memory=4T"];
    run("opteron-2008", &[&tiny[..], settings].concat(), rows)
}

/// With g levels in the guest, h levels in the host, and no cache of translations, a walk makes g
/// (h + 1) + h references.
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
        // An entry of the TLB has the smaller of the two page sizes.
        let smaller = bytes.min(host_size.parse::<addr::PageSize>().unwrap().bytes());
        let held = addr::PageSize::from_bytes(smaller).unwrap().to_string();
        assert_eq!(results.tlbs[0].by_page_size.keys().collect::<Vec<_>>(), [&held]);
        let splintered = if smaller < bytes { 2 * pages } else { 0 };
        assert_eq!(results.nested.unwrap().splintered, splintered, "{settings:?}");
    }
}

/// If every reference hits the nested TLB, a walk is as long as without a host (B10 §4.7). An MMU
/// cache of the guest then shortens the walk as it does without a host.
#[test]
fn a_nested_tlb_and_mmu_caches_shorten_each_dimension() {
    let pages = 100;
    let of = |settings: &[&str]| on(settings, &rounds(pages, 4096));
    let nested_tlb = "nested.tlb.entries=512";
    let tlb = of(&[nested_tlb]);
    assert_eq!(tlb.walks.references_per_walk, vec![(4, pages)]);
    let both = of(&[nested_tlb, "mmu_cache.entries=24", "mmu_cache.design=utc"]);
    assert_eq!(both.walks.references_per_walk, vec![(1, pages)]);
    // Page-table caches are tagged with addresses of the host, so an entry is found only after the
    // host has translated its address.
    let tagged = of(&[nested_tlb, "mmu_cache.entries=24", "mmu_cache.design=uptc"]);
    assert_eq!(tagged.walks.references_per_walk, vec![(1, pages)]);
    assert_eq!(tagged.nested.as_ref().unwrap().tlb, tlb.nested.as_ref().unwrap().tlb);
    for design in ["uptc", "sptc", "utc", "stc", "tpc"] {
        let design = format!("nested.mmu_cache.design={design}");
        let host = of(&[&design, "nested.mmu_cache.entries=24"]);
        // The walk makes the guest's four references and the last reference of each of five host
        // walks.
        assert_eq!(host.walks.references_per_walk[0].0, 4 + 5, "{design}");
        let counts = host.nested.unwrap();
        assert!(counts.mmu_cache.unwrap().by_level.iter().all(|level| level.held > 0));
    }
}

/// Guest and host share one cache, of every design and with every pair of radix tables. If all
/// upper entries fit into the cache, a walk makes as many references as with two caches.
#[test]
fn guest_and_host_share_a_cache() {
    const ROOM: &str = "nested.mmu_cache.entries=40";
    let pages = 30;
    let of = |settings: &[&str]| {
        let settings = [
            &[
                "mmu_cache.entries=48",
                "nested.shared=mmu-cache",
                "memory.size=1G",
                "nested.memory=1G",
            ],
            settings,
        ]
        .concat();
        on(&settings, &rounds(pages, 4096))
    };
    for design in ["uptc", "sptc", "utc", "stc", "tpc"] {
        for guest in ["x86-64", "mpt", "guarded", "guarded-adaptive"] {
            for host in ["x86-64", "mpt", "guarded", "guarded-adaptive"] {
                let split = ["sptc", "stc"].contains(&design);
                if split && (guest != host || guest.starts_with("guarded")) {
                    continue;
                }
                let settings = [
                    "memory.size=1G".to_owned(),
                    "nested.memory=1G".to_owned(),
                    format!("mmu_cache.design={design}"),
                    format!("page_table.format={guest}"),
                    format!("nested.format={host}"),
                ];
                let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
                let own = format!("nested.mmu_cache.design={design}");
                let own = [&settings[..], &["mmu_cache.entries=40", &own, ROOM]].concat();
                let own = on(&own, &rounds(pages, 4096));
                let shared = [&settings[..], &["mmu_cache.entries=80"]].concat();
                let results = of(&shared);
                assert_eq!(
                    results.walks.references_per_walk, own.walks.references_per_walk,
                    "{settings:?}"
                );
                let (guest, host) = (results.mmu_cache.unwrap(), results.nested.unwrap());
                let host_cache = host.mmu_cache.unwrap();
                assert_eq!((host_cache.arrays, host_cache.searches), (guest.arrays, 0));
                assert!(host_cache.by_level.iter().any(|level| level.held > 0), "{settings:?}");
            }
        }
    }
    // The references to the lowest level of the guest's table and of its two host walks remain.
    let alone = ["nested.mmu_cache.design=utc", "nested.mmu_cache.entries=24"];
    let alone = [&alone[..], &["mmu_cache.design=utc", "mmu_cache.entries=24"]].concat();
    let alone = on(&alone, &rounds(pages, 4096));
    let shared = of(&["mmu_cache.design=utc"]);
    assert_eq!(shared.walks.references_per_walk, alone.walks.references_per_walk);
    assert_eq!(shared.walks.references_per_walk, vec![(3, pages)]);
    // The two tables may have different numbers of levels.
    for (guest, host, sptc) in [("4", "5", 6), ("5", "4", 7)] {
        let levels = [format!("page_table.levels={guest}"), format!("nested.levels={host}")];
        // Before each lookup in a page-table cache, the host translates the address of the guest's
        // entry.
        for (design, references) in [("stc", 3), ("sptc", sptc), ("tpc", 3)] {
            let design = format!("mmu_cache.design={design}");
            let results = of(&[&design, &levels[0], &levels[1]]);
            assert_eq!(
                results.walks.references_per_walk,
                vec![(references, pages)],
                "{design} {levels:?}"
            );
        }
    }
}

/// A shared cache that also holds translations of pages: with the host's translations a walk makes
/// only the guest's last reference, and with the guest's translations it makes none. If a page
/// changes, its translation is dropped.
#[test]
fn a_shared_cache_is_the_nested_tlb_or_the_last_tlb() {
    let pages = 100;
    let of = |shared: &str, entries: u32, rows: &[Row]| {
        let settings = [
            format!("nested.shared={shared}"),
            format!("mmu_cache.entries={entries}"),
            "mmu_cache.design=utc".to_owned(),
        ];
        on(&settings.iter().map(String::as_str).collect::<Vec<_>>(), rows)
    };
    let rows = rounds(pages, 4096);
    // The cache holds translations of all host pages that hold the guest's tables and data.
    assert_eq!(of("nested-tlb", 256, &rows).walks.references_per_walk, vec![(1, pages)]);
    let tlb = of("tlb", 512, &rows);
    assert_eq!(tlb.walks.references_per_walk, vec![(0, pages)]);
    let pages_held = *tlb.mmu_cache.unwrap().by_level.last().unwrap();
    assert_eq!((pages_held.level, pages_held.needed, pages_held.held), (0, pages, pages));
    // A page that is mapped again needs a new walk.
    let load = |page: u64| Row::Access(Kind::Load, BASE + page * 4096, 8);
    let gone = trace::Event::Madvise { addr: BASE, bytes: 4096, advice: 4, result: 0 };
    let rows: Vec<Row> = (0..8).chain(0..8).map(load).collect();
    let again = [rows.clone(), vec![Row::Event(gone)], (0..8).map(load).collect()].concat();
    let results = of("tlb", 512, &again);
    assert_eq!((results.walks.cold, results.walks.references_per_walk), (9, vec![(0, 15)]));
    // A store to a page that a load has put into the TLB sets the page's dirty bit by a walk.
    let store = Row::Access(Kind::Store, BASE, 8);
    let results = of("tlb", 512, &[rows, vec![store]].concat());
    let walked = results.walks.references_per_walk;
    assert!(walked[0] == (0, 8) && walked.len() == 2 && walked[1].1 == 1, "{walked:?}");
}

#[test]
fn what_a_host_cannot_be_is_refused_with_a_reason() {
    for (machine, settings, what) in [
        ("tlb-only", &["nested.page_size=4K"][..], "nested: a machine without a page table"),
        ("opteron-2008", &["nested.levels=3"], "nested.levels: "),
        ("opteron-2008", &["nested.format=none"], "nested.format: there is no page table"),
        ("opteron-2008", &["nested.page_size=64K"], "nested.page_size: the host's table holds"),
        (
            "opteron-2008",
            &["nested.tlb.entries=10", "nested.tlb.ways=4"],
            "nested.tlb.ways: 10 entries",
        ),
        (
            "opteron-2008",
            &["nested.mmu_cache.design=utc"],
            "nested.mmu_cache.entries: the number of entries is missing",
        ),
        ("opteron-2008", &["nested.memory=1K"], "nested.memory: "),
        (
            "opteron-2008",
            &["nested.shared=mmu-cache"],
            "nested.shared: the machine has no MMU cache",
        ),
        ("opteron-2008", &["nested.shared=all"], "nested.shared"),
        (
            "opteron-2008",
            &["nested.shared=mmu-cache", "mmu_cache.entries=8", "nested.mmu_cache.entries=8"],
            "nested.mmu_cache: the host walks with [mmu_cache]",
        ),
        (
            "opteron-2008",
            &["nested.shared=mmu-cache", "mmu_cache.entries=8", "nested.format=hashed"],
            "nested.format: the host's page table has no upper levels",
        ),
        (
            "opteron-2008",
            &["nested.shared=nested-tlb", "mmu_cache.entries=8", "nested.tlb.entries=8"],
            "nested.tlb: [mmu_cache] holds the host's pages",
        ),
        (
            "opteron-2008",
            &["nested.shared=tlb", "mmu_cache.entries=8", "mmu_cache.design=stc"],
            "mmu_cache.design: only a cache of design utc",
        ),
        (
            "opteron-2008",
            &["nested.shared=mmu-cache", "mmu_cache.entries=8", "core.asid_bits=16"],
            "core.asid_bits: ",
        ),
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
    let error =
        machine.run(&mut crate::support::Rows::new(rounds(400, 4096)), options).unwrap_err();
    assert!(error.to_string().contains("nested.memory"), "{error}");
}
