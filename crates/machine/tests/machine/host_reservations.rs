//! Tests reservations for large pages in the host of a virtual machine, and a SpecTLB that predicts
//! the results of the host's walks (B10 section 6.5.2).

use std::collections::BTreeSet;

use addr::Kind;
use machine::{Machine, Results, RunOptions, results::SpecTlbCounts};

use crate::support::{Row, Rows, Stream};

const BASE: u64 = 0x7000_0000_0000;

/// Loads from `pages` pages at random, after each page was touched once.
fn rows(seed: u64, pages: u64, accesses: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let touched = (0..pages).map(|page| Row::Access(Kind::Load, BASE + page * 4096, 8));
    let loads = (0..accesses).map(|_| stream.below(pages));
    let loads: Vec<Row> =
        loads.map(|page| Row::Access(Kind::Load, BASE + page * 4096, 8)).collect();
    touched.chain(loads).collect()
}

fn on(settings: &[&str], rows: &[Row]) -> Results {
    let fixed = ["tlb.l1d.entries=1", "tlb.l2d.entries=4", "memory.size=4G", "nested.memory=16G"];
    crate::support::run("opteron-2008", &[&fixed[..], settings].concat(), rows)
}

fn said(results: &Results) -> &SpecTlbCounts {
    results.nested.as_ref().unwrap().spec_tlb.as_ref().unwrap()
}

const ROOM: &str = "nested.reservations={sizes=[\"1G\",\"2M\"]}";
const FOUR: [&str; 2] = ["nested.spec_tlb.page_size=1G", "nested.spec_tlb.entries=4"];

/// The pages of a guest of 64M lie anywhere in 32 reservations of 2M, which fit into 32 entries. So
/// all walks of the host are predicted, except the first walk in each reservation, and an access
/// waits only for the guest's four references.
#[test]
fn a_very_small_spec_tlb_holds_all_of_a_guest() {
    let rows = rows(1, 3000, 6000);
    let fixed = [
        "memory.size=64M",
        "memory.aged={free=0.5,wired=0.1,seed=3}",
        "nested.memory=256M",
        "nested.reservations={sizes=[\"2M\"]}",
    ];
    let with = |entries: Option<u32>| {
        let entries = entries.map(|entries| format!("nested.spec_tlb.entries={entries}"));
        let entries: Vec<&str> = entries.as_deref().into_iter().collect();
        on(&[&fixed[..], &entries].concat(), &rows)
    };
    let results = with(Some(32));
    let (nested, of) = (results.nested.as_ref().unwrap(), said(&results));
    let room = &nested.reservations.as_ref().unwrap().sizes;
    assert!((28..=32).contains(&room[0].made), "{room:?}");
    assert_eq!((of.none, of.right), (room[0].made, nested.walks - room[0].made), "{of:?}");
    assert!(of.wrong.values().all(|wrong| *wrong == 0));
    let critical = nested.critical_references.unwrap();
    let host = nested.references - of.overlapped.values().sum::<u64>();
    assert_eq!(critical, results.walks.references - nested.references + host);
    // A walk makes 24 references. 20 of them overlap with the predicted access.
    assert!(
        critical * 24 < 5 * results.walks.references && critical * 6 > results.walks.references
    );
    // Predictions do not change any other result.
    let without = with(None);
    assert_eq!(results.walks, without.walks);
    assert_eq!(without.nested.as_ref().unwrap().critical_references, None);
    assert!(said(&with(Some(2))).right < of.right);
}

/// If the guest has a SpecTLB too, an access does not wait at all for a walk that the guest's
/// SpecTLB predicts correctly.
#[test]
fn what_the_guest_predicts_is_not_waited_for_either() {
    let rows = rows(2, 3000, 9000);
    let settings = ["os.manager=freebsd", "memory.size=4G", ROOM];
    let guest = ["spec_tlb.entries=24", "spec_tlb.keeps_absent=true"];
    let of = |more: &[&str]| {
        let results = on(&[&settings[..], more].concat(), &rows);
        (results.nested.as_ref().unwrap().critical_references.unwrap(), results.walks.references)
    };
    let (host, all) = of(&FOUR);
    let (both, same) = of(&[&guest[..], &FOUR].concat());
    let (own, _) = of(&guest);
    assert_eq!(all, same);
    assert!(both * 2 < host && both < own && host < all / 3, "{both} {own} {host} {all}");
}

/// Former guests that allocated memory in small blocks leave no free block of 1G; guests that
/// allocated 1G at a time do.
#[test]
fn former_guests_leave_memory_fragmented_or_not() {
    let rows = rows(3, 1500, 2000);
    for (former, whole) in [
        ("{guests=16,left=8,memory=\"1000M\",granule=\"2M\",seed=5}", false),
        ("{guests=12,left=6,memory=\"1G\",granule=\"1G\",seed=5}", true),
    ] {
        let former = format!("nested.former={former}");
        let results = on(&[&[ROOM, &former][..], &FOUR].concat(), &rows);
        let nested = results.nested.as_ref().unwrap();
        let room = &nested.reservations.as_ref().unwrap().sizes;
        assert_eq!(nested.former_bytes, if whole { 6 << 30 } else { 8000 << 20 });
        if whole {
            assert_eq!((room[0].made, said(&results).none), (1, 1), "{room:?}");
        } else {
            assert!(room[0].made == 0 && room[0].unplaced["no-block"] > 0, "{room:?}");
            assert!(room[1].made > 1 && said(&results).right * 10 < nested.walks, "{room:?}");
        }
    }
}

/// No page of the guest is in a hole. Pages around a hole are predicted nevertheless.
#[test]
fn holes_are_no_memory() {
    let holes = "nested.holes=[\"640K..1M\",\"3G..4G\"]";
    let rows = rows(4, 2000, 3000);
    let results = on(&[&[ROOM, holes][..], &FOUR].concat(), &rows);
    assert_eq!(results.memory.frames_total_bytes, (3 << 30) - (384 << 10));
    let nested = results.nested.as_ref().unwrap();
    let room = &nested.reservations.as_ref().unwrap().sizes;
    assert_eq!((room[0].made, said(&results).none), (1, 1));
    // A guest with only 1M of memory has all frames except those of the hole.
    let settings = ["memory.size=1M", "nested.memory=16M", holes];
    let settings: Vec<String> = settings.map(str::to_owned).into();
    let machine = Machine::load("opteron-2008", &settings).unwrap();
    let fill: Vec<Row> = (0..160).map(|page| Row::Access(Kind::Load, page * 4096, 8)).collect();
    let options = RunOptions { check: false, progress: &mut |_| true };
    let error = machine.run(&mut Rows::new(fill), options).err().unwrap().to_string();
    assert!(error.contains("frame") || error.contains("memory"), "{error}");
}

#[test]
fn host_places_are_a_bijection() {
    // Each page of the guest has its own place in the host, so the used bytes equal the backed
    // pages.
    let rows = rows(5, 800, 1000);
    let results = on(&[ROOM], &rows);
    let nested = results.nested.as_ref().unwrap();
    assert_eq!(nested.used_bytes, nested.first_touches * 4096 + nested.table_bytes);
    let sizes: BTreeSet<&str> =
        nested.reservations.as_ref().unwrap().sizes.iter().map(|one| one.size.as_str()).collect();
    assert_eq!(sizes, BTreeSet::from(["1G", "2M"]));
    assert_eq!(nested.reserved_bytes, (1 << 30) - nested.first_touches * 4096);
}

#[test]
fn what_is_wrong_is_said() {
    for (settings, expected) in [
        (
            &["nested.reservations={sizes=[]}"][..],
            "nested.reservations.sizes: the list has no size: write at least one",
        ),
        (
            &["nested.reservations={sizes=[\"1G\"]}", "nested.memory=64M"],
            "nested.reservations.sizes: a reservation of 1G is larger than nested.memory",
        ),
        (
            &["nested.reservations={sizes=[\"1G\"]}", "nested.page_size=2M"],
            "nested.reservations: a reservation of the host consists of pages",
        ),
        (&["nested.holes=[\"1M..640K\"]"], "is not a range of addresses"),
        (&["nested.holes=[\"640K\"]"], "is not a range of addresses"),
        (&["nested.holes=[\"1K..1M\"]"], "nested.holes: the hole 1K..1M does not begin"),
        (&["nested.holes=[\"640K..1M\",\"512K..768K\"]"], "overlaps another hole"),
        (
            &["nested.holes=[\"640K..1M\"]", "nested.page_size=1G"],
            "nested.holes: the hole 640K..1M is part of a page of 1G of the host",
        ),
        (
            &["nested.former={guests=4,left=5,memory=\"1G\",granule=\"2M\"}"],
            "nested.former: 5 of 4 former guests cannot remain",
        ),
        (
            &["nested.former={guests=4,left=1,memory=\"1G\",granule=\"2M\"}", "nested.memory=2G"],
            "nested.former: 4 guests with 1G each do not fit",
        ),
        (
            &["nested.former={guests=4,left=1,memory=\"1M\",granule=\"2M\"}"],
            "must be a multiple of the granule, 2M",
        ),
        (&["nested.spec_tlb.fill=marks"], "nested.spec_tlb.fill: the operating system sets no"),
        (
            &["nested.spec_tlb.tagged=true"],
            "nested.spec_tlb.tagged: the host has one address space",
        ),
        (&["nested.spec_tlb.page_size=64K"], "nested.spec_tlb.page_size: the page table has no"),
    ] {
        let settings: Vec<String> = settings.iter().map(|one| (*one).to_owned()).collect();
        let error = Machine::load("opteron-2008", &settings).err().unwrap().to_string();
        assert!(error.contains(expected), "{settings:?}: {error}");
    }
}
