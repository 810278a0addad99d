//! Tests MMU caches on small traces whose counts can be computed by hand.

use addr::Kind;
use machine::{Machine, Results, results::MmuCacheLevel};
use trace::Event;

use crate::support::{Row, Stream, run};

const BASE: u64 = 0x7000_0000_0000;

fn loads(addrs: impl IntoIterator<Item = u64>) -> Vec<Row> {
    addrs.into_iter().map(|addr| Row::Access(Kind::Load, addr, 8)).collect()
}

/// Two rounds of loads over more pages than the TLBs hold, so that every access of the second round
/// walks.
fn rounds(pages: u64, stride: u64) -> Vec<Row> {
    let round = || (0..pages).map(|page| BASE + page * stride);
    loads(round().chain(round()))
}

fn with(design: &str, settings: &[&str], rows: &[Row]) -> Results {
    let design = format!("mmu_cache.design={design}");
    let settings = [&[&design, "mmu_cache.entries=24"], settings].concat();
    run("opteron-2008", &settings, rows)
}

/// For walks of neighbouring pages, a translation cache finds the lowest table with one search; a
/// page-table cache finds the entry of each level in turn (B10 §4.6.1).
#[test]
fn neighbouring_pages_need_one_reference() {
    let pages = 2000;
    for (levels, upper) in [("4", 3), ("5", 4)] {
        let levels = format!("page_table.levels={levels}");
        for (design, searches) in
            [("uptc", upper), ("sptc", upper), ("utc", 1), ("stc", 1), ("tpc", 1)]
        {
            let results = with(design, &[&levels], &rounds(pages, 4096));
            let (single, walks) = results.walks.references_per_walk[0];
            assert_eq!(single, 1, "{design}");
            // The only other reference is to a new table of the lowest level, once per 512 pages.
            assert!(walks >= pages - 4, "{design}: {walks}");
            let cache = results.mmu_cache.unwrap();
            let least = searches * results.walks.walks;
            assert!(
                (least..least * 21 / 10 + 100).contains(&cache.searches),
                "{design}: {cache:?}"
            );
        }
    }
}

/// A walk for a page of 2 MiB ends at level 2. The entry that maps the page is in the TLB, but in
/// no MMU cache.
#[test]
fn entries_of_pages_are_not_held() {
    let pages = 1500;
    let rows = rounds(pages, 2 << 20);
    for design in ["uptc", "sptc", "utc", "stc", "tpc"] {
        let results = with(design, &["os.page_size=2M"], &rows);
        assert_eq!(results.walks.references_per_walk[0].0, 1, "{design}");
        let cache = results.mmu_cache.unwrap();
        let levels: Vec<u8> = cache.by_level.iter().map(|level| level.level).collect();
        assert_eq!(levels, [4, 3], "{design}");
    }
}

/// Loads of one page in each of 40 gigabytes, in turn. An LRU cache of 24 entries is too small for
/// level 3 (and half of a unified cache is used for level 2); a cache of 3 x 64 entries holds all
/// entries.
#[test]
fn a_split_cache_of_its_own_size_a_level() {
    let far = loads((0..30u64).flat_map(|_| (0..40u64).map(|n| BASE + (n << 30))));
    let small = ["tlb.l1d.entries=1", "tlb.l2d.entries=4"];
    let level = |results: &Results, level: u8| -> MmuCacheLevel {
        let cache = results.mmu_cache.as_ref().unwrap();
        *cache.by_level.iter().find(|counts| counts.level == level).unwrap()
    };
    let few = with("stc", &small, &far);
    // In the first round no entries are cached yet, so 29 of the 30 rounds count.
    assert_eq!(few.walks.walks, 1200);
    let missed = |results: &Results, of: u8| {
        let MmuCacheLevel { needed, held, .. } = level(results, of);
        needed - held
    };
    assert_eq!(missed(&few, 3), 1160);
    let many = with("stc", &[&small[..], &["mmu_cache.l3_entries=64"]].concat(), &far);
    assert_eq!(missed(&many, 3), 0);
    assert_eq!(missed(&many, 2), 1160);
    let none = with("stc", &[&small[..], &["mmu_cache.l3_entries=0"]].concat(), &far);
    assert_eq!(missed(&none, 3), 1160);
}

/// A search costs the latency of the cache, and entries that are found cost nothing else.
#[test]
fn time_counts_searches() {
    let rows = rounds(2000, 4096);
    let free = with("utc", &[], &rows);
    let dear = with("utc", &["mmu_cache.latency_cycles=5"], &rows);
    let cycles = |results: &Results| results.time.clone().unwrap().translation_cycles.hi;
    let searches = dear.mmu_cache.as_ref().unwrap().searches;
    assert_eq!(cycles(&dear) - cycles(&free), 5 * searches);
}

/// Populated memory, as in B10's simulator: no walk faults, so each miss walks once. For random
/// accesses to 16 gigabytes, a cache of 20 entries keeps the level-3 entries with VI-LRU, but not
/// with LRU.
#[test]
fn populated_memory_has_no_faults_and_shows_what_vi_lru_does() {
    let mut stream = crate::support::Stream(7);
    let far = loads((0..30_000).map(|_| BASE + stream.below(16 << 30) / 8 * 8));
    let share = |policy: &str| {
        let policy = format!("mmu_cache.replacement={policy}");
        let settings = ["os.populated=true", "mmu_cache.entries=20", &policy];
        let results = with("utc", &settings, &far);
        assert_eq!((results.walks.cold, results.tlbs[0].cold_misses), (0, 0));
        let pages: u64 = results.regions.iter().map(|region| region.pages).sum();
        assert_eq!(pages, results.faults.first_touch);
        let cache = results.mmu_cache.unwrap();
        let level = cache.by_level.into_iter().find(|level| level.level == 3).unwrap();
        assert_eq!(level.needed, results.walks.walks);
        level.held as f64 / level.needed as f64
    };
    let (lru, vi_lru) = (share("lru"), share("vi-lru"));
    assert!(lru < 0.6 && vi_lru > 0.9, "{lru} {vi_lru}");
}

#[test]
fn what_does_not_fit_is_refused_with_a_reason() {
    for (machine, settings, what) in [
        ("tlb-only", &["mmu_cache.entries=24"][..], "no page table"),
        (
            "opteron-2008",
            &["mmu_cache.design=utc"],
            "mmu_cache.entries: the number of entries is missing",
        ),
        ("opteron-2008", &["mmu_cache.entries=24", "mmu_cache.ways=5"], "mmu_cache.ways: 24"),
        ("opteron-2008", &["mmu_cache.entries=0"], "mmu_cache.entries: it has no entries"),
        (
            "opteron-2008",
            &["mmu_cache.entries=8", "mmu_cache.design=pwc"],
            "not an MMU cache: write",
        ),
        (
            "opteron-2008",
            &["mmu_cache.entries=8", "mmu_cache.l3_entries=4"],
            "mmu_cache.l3_entries: utc has one array",
        ),
        (
            "opteron-2008",
            &["mmu_cache.design=stc", "mmu_cache.entries=8", "mmu_cache.l5_entries=4"],
            "the page table has only 4 levels",
        ),
        (
            "opteron-2008",
            &["page_table.format=hashed", "mmu_cache.entries=8"],
            "hashed has no upper levels",
        ),
        (
            "opteron-2008",
            &["page_table.software_tlb=8K", "mmu_cache.entries=8"],
            "the software TLB first",
        ),
        (
            "opteron-2008",
            &["page_table.format=guarded", "mmu_cache.entries=8", "mmu_cache.design=stc"],
            "no fixed levels",
        ),
        (
            "opteron-2008",
            &["mmu_cache.entries=8", "mmu_cache.replacement=vilru"],
            "not a replacement policy: write lru",
        ),
    ] {
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let error = Machine::load(machine, &settings).unwrap_err().to_string();
        assert!(error.contains(what) && !error.contains('\n'), "{settings:?}: {error}");
    }
}

#[test]
fn a_result_says_whether_there_is_one() {
    let say = |results: &Results| {
        results.not_modelled.iter().any(|note| note.contains("starts at the root"))
    };
    let rows = rounds(3, 4096);
    let cached = with("utc", &[], &rows);
    assert!(!say(&cached) && cached.mmu_cache.is_some());
    let bare = with("none", &[], &rows);
    assert!(say(&bare) && bare.mmu_cache.is_none());
    assert!(cached.not_modelled.iter().any(|note| note.contains("walks that overlap")));
}

fn remap(addr: u64, old_bytes: u64, new: u64, new_bytes: u64) -> Row {
    let result = new as i64;
    Row::Event(Event::Mremap { addr, old_bytes, new_bytes, flags: 1, new_addr: new, result })
}

/// One of two adjacent pages moves to an unmapped address. In the guarded table, nodes change where
/// the new page's address differs from others, so the event must flush the old nodes from the MMU
/// caches.
#[test]
fn pages_that_an_event_maps_move_nodes_too() {
    let mut rows = loads([BASE, BASE + 4096, BASE + (1 << 20)]);
    rows.push(remap(BASE + 4096, 4096, BASE + (1 << 16), 4096));
    rows.extend(loads([BASE + (1 << 16), BASE, BASE + (1 << 20)]));
    for format in ["page_table.format=guarded", "page_table.format=guarded-adaptive"] {
        for design in ["uptc", "utc", "tpc"] {
            let results = with(design, &[format, "tlb.l1d.entries=1", "tlb.l2d.entries=4"], &rows);
            assert_eq!(results.walks.cold, 3, "{format} {design}");
        }
    }
}

/// A page that was accessed and stored to moves. Both bits are set in its new entry, so the walk of
/// the next store reads four entries and writes none.
#[test]
fn pages_that_move_keep_their_usage_bits() {
    let far = BASE + (1 << 16);
    let store = |addr| Row::Access(Kind::Store, addr, 8);
    let rows = [store(BASE), store(BASE + 4096), remap(BASE, 4096, far, 4096), store(far)];
    let results = with("none", &[], &rows);
    assert_eq!((results.walks.walks, results.walks.cold), (3, 2));
    assert_eq!(results.walks.references_per_walk, [(4, 1)]);
}

/// If a guard does not match, a walk ends at an entry that leads to a table for other addresses. A
/// page-table cache may hold this entry, and it is not stale.
#[test]
fn a_guard_that_does_not_match_is_no_stale_entry() {
    let rows = loads([BASE, BASE + (1 << 20), 0x1000]);
    for design in ["uptc", "utc", "tpc"] {
        let results = with(design, &["page_table.format=guarded"], &rows);
        assert_eq!(results.walks.cold, 3, "{design}");
    }
}

/// A node of a guarded table is smaller than a frame. If a node is freed while its frame stays in
/// use, MMU caches must drop the node nevertheless.
#[test]
fn nodes_that_go_without_their_frame_are_forgotten() {
    let touches = |stride: u64| loads((0..40).map(move |page| BASE + page * stride));
    for nodes in ["page_table.nodes=16", "page_table.nodes=4"] {
        let gone = Event::Munmap { addr: BASE, bytes: 20 << 20, result: 0 };
        let rows = [touches(1 << 20), vec![Row::Event(gone)], touches(1 << 19)].concat();
        // The run has checks too, which fail if a walk begins at a stale entry.
        with("utc", &["page_table.format=guarded", nodes], &rows);
    }
}

/// A page that is added to a guarded table may insert a node between two others, or replace a node.
/// MMU caches must drop entries that skip the new node.
#[test]
fn nodes_that_are_put_between_others_are_walked() {
    let mut stream = Stream(7);
    let rows = loads((0..400).map(|_| BASE + (stream.below(1 << 16) << 12)));
    for format in ["page_table.format=guarded", "page_table.format=guarded-adaptive"] {
        for populated in ["os.populated=false", "os.populated=true"] {
            for design in ["uptc", "utc", "tpc"] {
                with(design, &[format, populated], &rows);
            }
        }
    }
}
