//! Tests the rights of TLB entries, and compares hits with a model of pages and entries.

use addr::{Kind, Rights};
use machine::Results;
use trace::Event;

use crate::support::{Row, Stream, run};

const BASE: u64 = 0x4000_0000;

fn protect(page: u64, pages: u64, prot: u32) -> Row {
    let (addr, bytes) = (BASE + page * 4096, pages * 4096);
    Row::Event(Event::Mprotect { addr, bytes, prot, result: 0 })
}

fn touch(kind: Kind, page: u64) -> Row {
    Row::Access(kind, BASE + page * 4096 + 8, 8)
}

/// A new mapping of `pages` pages, for loads and stores.
fn mapping(pages: u64) -> Row {
    Row::Event(Event::Mmap {
        addr: BASE,
        bytes: pages * 4096,
        prot: 3,
        flags: 0x22,
        fd: -1,
        offset: 0,
        path: None,
        file: None,
        result: BASE as i64,
    })
}

/// Eight pages, a hundred times: only loads are allowed and each page is loaded; then stores are
/// allowed and each page is stored to.
fn up_and_down() -> Vec<Row> {
    let mut rows = vec![mapping(8)];
    for _ in 0..100 {
        rows.push(protect(0, 8, 1));
        rows.extend((0..8).map(|page| touch(Kind::Load, page)));
        rows.push(protect(0, 8, 3));
        rows.extend((0..8).map(|page| touch(Kind::Store, page)));
    }
    rows
}

fn denied(results: &Results) -> Vec<u64> {
    results.tlbs.iter().map(|tlb| tlb.denied).collect()
}

/// When rights are removed, entries are flushed, so the load misses. When rights are added, nothing
/// is flushed, so the store finds an entry in each level that denies it, and walks.
#[test]
fn an_entry_that_denies_the_access_is_no_hit() {
    let rows = up_and_down();
    for settings in [&[][..], &["tlb.l1d.replacement=lru"], &["tlb.l2d.replacement=fifo"]] {
        let results = run("opteron-2008", settings, &rows);
        assert_eq!(denied(&results), [800, 800]);
        assert_eq!((results.walks.walks, results.faults.protection), (1600, 0));
        assert_eq!(results.tlbs[0].flushed, 99 * 8);
    }
    // If the calls that restore rights are left out, each withdrawal causes one fault.
    let rows: Vec<Row> = rows
        .into_iter()
        .filter(|row| !matches!(row, Row::Event(Event::Mprotect { prot: 3, .. })))
        .collect();
    let results = run("opteron-2008", &[], &rows);
    assert_eq!((denied(&results), results.faults.protection), (vec![800, 800], 800));
}

/// The rights that hardware can express: if any right is given, loads are allowed.
fn expressible(rights: Rights) -> Rights {
    if rights == Rights::NONE { rights } else { rights | Rights::READ }
}

/// A page in the model, with its entry in the page table and in a TLB that never evicts.
#[derive(Clone, Copy, Default)]
struct Page {
    table: Option<Rights>,
    entry: Option<Rights>,
    /// The rights of the mapping.
    mapping: Option<Rights>,
}

#[test]
fn rights_hold_as_in_a_list_of_pages() {
    for seed in 1..=20 {
        let mut stream = Stream(seed);
        let mut pages = [Page::default(); 32];
        let (mut hits, mut denials, mut faults, mut misses, mut flushed) = (0, 0, 0, 0, 0);
        let mut rows = vec![mapping(32)];
        pages.iter_mut().for_each(|page| page.mapping = Some(Rights::from_bits(3)));
        for _ in 0..5000 {
            let page = stream.below(32);
            if stream.below(20) == 0 {
                let (count, prot) = (1 + stream.below(32 - page), stream.below(8) as u32);
                rows.push(protect(page, count, prot));
                let rights = Rights::from_bits(prot as u8);
                let range = page as usize..(page + count) as usize;
                let loses = |page: &Page| {
                    page.table.is_some_and(|before| !expressible(rights).contains(before))
                };
                // The flush covers the range from the first to the last page that loses a right.
                let first = range.clone().find(|&page| loses(&pages[page]));
                let last = range.clone().rfind(|&page| loses(&pages[page]));
                for page in &mut pages[range] {
                    page.mapping = Some(rights);
                    page.table = page.table.map(|_| expressible(rights));
                }
                if let (Some(first), Some(last)) = (first, last) {
                    let gone = pages[first..=last].iter_mut();
                    flushed += gone.filter_map(|page| page.entry.take()).count() as u64;
                }
                continue;
            }
            let kind = [Kind::Load, Kind::Store][stream.below(2) as usize];
            rows.push(touch(kind, page));
            let page = &mut pages[page as usize];
            if page.entry.is_some_and(|rights| rights.allows(kind)) {
                hits += 1;
                continue;
            }
            misses += 1;
            denials += u64::from(page.entry.is_some());
            let needed = if kind == Kind::Store { Rights::WRITE } else { Rights::READ };
            let mapped = page.mapping.unwrap_or(Rights::ALL);
            let table = page.table.get_or_insert(expressible(mapped | needed));
            if !table.allows(kind) {
                faults += 1;
                *table = expressible(*table | needed);
            }
            page.entry = Some(*table);
        }
        let results = run("opteron-2008", &[], &rows);
        let [first, second] = [&results.tlbs[0], &results.tlbs[1]];
        assert_eq!((first.total.hits, first.total.misses), (hits, misses), "seed {seed}");
        assert_eq!((first.denied, second.denied), (denials, denials), "seed {seed}");
        assert_eq!(results.faults.protection, faults, "seed {seed}");
        assert_eq!(first.flushed, flushed, "seed {seed}");
        assert!(denials > 100 && faults > 100 && flushed > 100, "seed {seed}");
    }
}

/// A page that was loaded by a load is clean. Its first store is detected, and no later store.
#[test]
fn the_first_store_to_a_clean_page_is_seen() {
    let loads_and_stores = |rounds: u64| {
        let kinds = [Kind::Load, Kind::Store, Kind::Load, Kind::Store];
        let touched = (0..rounds).flat_map(|_| kinds);
        touched.flat_map(|kind| (0..8).map(move |page| touch(kind, page))).collect::<Vec<Row>>()
    };
    let tracks = "walker.tracks_dirty=true";
    let rows = loads_and_stores(3);
    let hardware = run("opteron-2008", &[tracks], &rows);
    assert_eq!((hardware.walks.dirty_assists, hardware.walks.modify_traps), (8, 0));
    assert_eq!(denied(&hardware), [8, 8]);
    // The first walk reads four levels and sets the accessed bits. The walk of the store reads four
    // levels and sets the dirty bit.
    let untracked = run("opteron-2008", &[], &rows);
    let references = |results: &Results| results.walks.references;
    assert_eq!(references(&hardware), references(&untracked) + 8 * 5);
    assert_eq!(denied(&untracked), [0, 0]);

    let software = ["page_table.format=mpt", "walker.exception_cycles=100", tracks];
    let trapped = run("r4700", &software, &rows);
    assert_eq!((trapped.walks.dirty_assists, trapped.walks.modify_traps), (0, 8));
    assert_eq!(denied(&trapped), [8]);
    let free = ["page_table.format=mpt", "walker.exception_cycles=0", tracks];
    let cycles = |results: Results| results.time.clone().unwrap().translation_cycles.hi;
    let (dear, cheap) = (cycles(trapped), cycles(run("r4700", &free, &rows)));
    assert_eq!(dear - cheap, (8 + 4) * 100, "eight modified, four invalid");

    // A store that misses finds the page clean or dirty, and leaves it dirty.
    let stores: Vec<Row> =
        (0..3).flat_map(|_| (0..8).map(|page| touch(Kind::Store, page))).collect();
    for (machine, traps) in [("opteron-2008", 0), ("r4700", 8)] {
        let results = run(machine, &[tracks], &stores);
        assert_eq!((results.walks.dirty_assists, results.walks.modify_traps), (0, traps));
    }
    for format in ["linear", "hashed", "tsb", "powerpc", "guarded", "elastic-cuckoo"] {
        let format = format!("page_table.format={format}");
        let hardware = ["walker.kind=hardware", "tlb.l1.paired=false"];
        for settings in [&[][..], &hardware] {
            let results = run("r4700", &[settings, &[&format, tracks]].concat(), &rows);
            let seen = results.walks.dirty_assists + results.walks.modify_traps;
            assert_eq!(seen, 8, "{format} {settings:?}");
        }
    }
}

/// The entry of a pair has one tag for both pages. An access to the page of the pair that is not
/// mapped is an exception, but no refill.
#[test]
fn half_a_pair_is_an_exception_of_its_own() {
    let rows: Vec<Row> = [0, 1, 0, 1, 3, 2, 3].map(|page| touch(Kind::Load, page)).into();
    let results = run("r4700", &[], &rows);
    assert_eq!((results.tlbs[0].total.misses, results.tlbs[0].invalid), (4, 2));
    assert_eq!(results.tlbs[0].evictions, 0, "a pair that is renewed makes no room for another");
    let single = run("r4700", &["tlb.l1.paired=false"], &rows);
    assert_eq!((single.tlbs[0].total.misses, single.tlbs[0].invalid), (4, 0));
}
