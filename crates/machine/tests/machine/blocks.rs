//! Tests TLBs with entries for blocks of pages: under several managers, page tables and hosts, with
//! unmapping, changed rights and forks. Each run is made twice; the second run compares every
//! translation with the page table.

use addr::Kind;
use machine::{Machine, Results, results::BlockCounts};
use trace::Event;

use crate::support::{HEAP, Row, Stream, heap_program, mapping};

const PAGE: u64 = 4096;

fn blocks(kind: &str, pages: u64) -> String {
    format!("{{kind=\"{kind}\",pages={pages}}}")
}

fn run(settings: &[&str], rows: &[Row]) -> Results {
    let fixed = ["tlb.l1d.entries=8", "tlb.l2d.entries=64", "memory.size=1G"];
    crate::support::run("opteron-2008", &[&fixed[..], settings].concat(), rows)
}

fn misses(results: &Results) -> u64 {
    results.tlbs.last().unwrap().total.misses
}

fn of(results: &Results) -> &BlockCounts {
    results.tlbs.last().unwrap().blocks.as_ref().unwrap()
}

const KINDS: [&str; 4] = ["complete-subblock", "partial-subblock", "coalesced", "whole"];

#[test]
fn translations_are_right_whatever_moves() {
    let rows = heap_program(1, 300, 6000, true);
    for (at, kind) in KINDS.into_iter().enumerate() {
        let (first, second) = (blocks(kind, 4), blocks(KINDS[(at + 1) % 4], 8));
        let first = format!("tlb.l1d.blocks={first}");
        let second = format!("tlb.l2d.blocks={second}");
        for more in [
            &[][..],
            &["os.manager=base", "core.asid_bits=8"],
            &["os.manager=freebsd"],
            &["os.manager=base", "walker.tracks_dirty=true"],
            &["page_table.format=clustered"],
            &["nested.tlb.entries=16", "nested.memory=4G"],
            &["os.manager=base", "memory.size=1M", "swap.size=8M"],
        ] {
            let both = run(&[&[first.as_str(), &second][..], more].concat(), &rows);
            assert!(of(&both).fills > 100, "{kind} {more:?}");
            // Runs the machine with one TLB level that has blocks.
            run(&[&[first.as_str()][..], more].concat(), &rows);
            run(&[&[second.as_str()][..], more].concat(), &rows);
        }
    }
}

/// Which kinds of entries save misses depends on how the manager places pages.
#[test]
fn each_kind_takes_what_the_manager_gives() {
    let rows = heap_program(2, 400, 20_000, false);
    let under = |manager: &[&str], kind: Option<&str>| {
        let setting = kind.map(|kind| format!("tlb.l2d.blocks={}", blocks(kind, 4)));
        let setting: Vec<&str> = setting.as_deref().into_iter().collect();
        run(&[manager, &setting].concat(), &rows)
    };
    let per_entry = |results: &Results| of(results).pages_filled as f64 / of(results).fills as f64;
    // The frames are placed at random, so only an entry with a frame for each page covers more than
    // one page.
    let scattered = &["os.manager=base", "memory.placement=3"][..];
    let plain = misses(&under(scattered, None));
    for kind in ["partial-subblock", "coalesced", "whole"] {
        let results = under(scattered, Some(kind));
        assert!(per_entry(&results) < 1.1, "{kind}: {}", per_entry(&results));
    }
    let complete = under(scattered, Some("complete-subblock"));
    assert!(per_entry(&complete) > 3.0 && misses(&complete) * 2 < plain);
    // The manager reserves blocks, which are never filled completely. So each page lies at its
    // place in an aligned block.
    let reserved = &["os.manager=freebsd"][..];
    let plain = misses(&under(reserved, None));
    for kind in KINDS {
        let results = under(reserved, Some(kind));
        assert!(per_entry(&results) > 2.5, "{kind}: {}", per_entry(&results));
        assert!(misses(&results) * 2 < plain, "{kind}: {} for {plain}", misses(&results));
    }
    // First touches in the order of addresses get runs of adjacent frames, which need not be
    // aligned.
    let in_order = &["os.manager=base"][..];
    let coalesced = under(in_order, Some("coalesced"));
    let whole = under(in_order, Some("whole"));
    assert!(per_entry(&coalesced) > 2.5, "{}", per_entry(&coalesced));
    assert!(misses(&coalesced) < misses(&whole), "{} {}", misses(&coalesced), misses(&whole));
}

/// After a switch has flushed the TLBs, a miss fills all pages of a block if there is prefetching.
/// Otherwise each page is filled by a miss of its own.
#[test]
fn pages_come_in_one_by_one_without_prefetch() {
    let mut rows = heap_program(3, 96, 0, false);
    let goes_on = |space| Row::Event(Event::Run { cpu: None, space });
    rows.extend([goes_on(1), mapping(HEAP, PAGE), Row::Access(Kind::Load, HEAP, 8), goes_on(0)]);
    rows.extend((0..96).map(|page| Row::Access(Kind::Load, HEAP + page * PAGE, 8)));
    let [with, without] = ["true", "false"].map(|prefetch| {
        let blocks =
            format!("tlb.l2d.blocks={{kind=\"partial-subblock\",pages=8,prefetch={prefetch}}}");
        run(&["os.manager=freebsd", &blocks], &rows)
    });
    // The 96 pages are 12 blocks. Each block misses once.
    assert_eq!(misses(&without) - misses(&with), 96 - 12);
    assert_eq!(of(&without).tag_hits - of(&with).tag_hits, 96 - 12);
}

/// If a block contains pages of several regions, hits are still counted for the region of each
/// access.
#[test]
fn hits_are_told_by_region_within_a_block() {
    let mut stream = Stream(9);
    // Regions of three pages are adjacent, so some blocks of four pages have parts of two regions.
    let mut rows: Vec<Row> = (0..8).map(|at| mapping(HEAP + at * 3 * PAGE, 3 * PAGE)).collect();
    let accesses: Vec<u64> = (0..4000).map(|_| stream.below(24)).collect();
    rows.extend(accesses.iter().map(|page| Row::Access(Kind::Load, HEAP + page * PAGE, 8)));
    let blocks = format!("tlb.l1d.blocks={}", blocks("coalesced", 4));
    let results = run(&["os.manager=base", &blocks], &rows);
    for region in &results.regions {
        let at = (region.start - HEAP) / PAGE;
        let own = at..at + region.bytes / PAGE;
        let expected = accesses.iter().filter(|page| own.contains(page)).count() as u64;
        assert_eq!(region.lookups, expected, "{}", region.name);
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (settings, expected) in [
        (
            &["tlb.l2d.blocks={kind=\"colt\",pages=4}"][..],
            "tlb.l2d.blocks.kind: there is no `colt`",
        ),
        (&["tlb.l2d.blocks={kind=\"whole\",pages=5}"], "tlb.l2d.blocks.pages: a block of 5 pages"),
        (
            &["tlb.l2d.blocks={kind=\"whole\",pages=4,prefetch=false}"],
            "tlb.l2d.blocks.prefetch: an entry of kind whole always loads its pages together",
        ),
        (
            &["tlb.l1d.blocks={kind=\"whole\",pages=4}", "tlb.l1d.paired=true"],
            "tlb.l1d.blocks: an entry maps either a pair or a block",
        ),
        (&["tlb.l2d.blocks={kind=\"whole\"}"], "missing field `pages`"),
    ] {
        let settings: Vec<String> = settings.iter().map(|one| (*one).to_owned()).collect();
        let error = Machine::load("opteron-2008", &settings).err().unwrap().to_string();
        assert!(error.contains(expected), "{settings:?}: {error}");
    }
}
