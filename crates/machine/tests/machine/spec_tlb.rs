//! Tests the SpecTLB in a machine: its predictions of walks, in runs and in sweeps.

use addr::Kind;
use machine::{
    Machine, Results, RunOptions,
    results::SpecTlbCounts,
    sweep::{SweepOptions, sweep},
};
use trace::Event;

use crate::support::{HEAP, Row, Rows, Stream, mapping};

const MIB: u64 = 1 << 20;

/// Random loads and stores in a heap of `heap` bytes. Sometimes a part of the heap is unmapped, and
/// another process continues.
fn program(seed: u64, heap: u64, accesses: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut rows = vec![mapping(HEAP, heap)];
    for access in 1..=accesses {
        if access % 3000 == 0 {
            let space = (access / 3000 % 2) as u32;
            rows.push(Row::Event(Event::Run { cpu: None, space }));
            if access == 3000 {
                rows.push(mapping(HEAP, heap));
            }
        }
        if access % 1700 == 0 {
            let (addr, bytes) = (HEAP + stream.below(heap / MIB) * MIB, MIB);
            rows.push(Row::Event(Event::Munmap { addr, bytes, result: 0 }));
        }
        let kind = [Kind::Load, Kind::Store][stream.below(2) as usize];
        // Some accesses cross into a second page.
        let at = stream.below(heap - 8);
        rows.push(Row::Access(kind, HEAP + if access % 50 == 0 { at | 0xffc } else { at & !7 }, 8));
    }
    rows
}

fn load(name: &str, settings: &[&str]) -> Result<Machine, String> {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Machine::load(name, &settings).map_err(|error| error.to_string())
}

fn run(name: &str, settings: &[&str], rows: &[Row]) -> Results {
    crate::support::run(name, settings, rows)
}

fn said(results: &Results) -> &SpecTlbCounts {
    results.spec_tlb.as_ref().unwrap()
}

/// Each run is checked against the identities: the numbers of right, wrong and missing predictions
/// add up to the number of walks.
#[test]
fn base_pages_of_reservations_are_predicted() {
    let rows = program(1, 24 * MIB, 20_000);
    let results = run("freebsd-2009", &["spec_tlb.keeps_absent=true"], &rows);
    let of = said(&results);
    assert!(of.right * 10 > results.walks.walks * 8, "{of:?}");
    assert!(of.wrong["absent"] > 1000, "first touches are predicted too: {of:?}");
    assert_eq!(of.attempts, of.right + of.denied + of.wrong.values().sum::<u64>());
    let right = &of.outcomes[0];
    assert_eq!(right.ptes.values().sum::<u64>(), of.right, "a walk reads its lowest entry");
    assert_eq!(right.references, of.overlapped);
    let stores: u64 = right.accesses.store.values().sum();
    assert!(right.outcome == "right" && stores * 3 > of.right && stores * 3 < of.right * 2);
    assert!(right.accesses.fetch.is_empty());
    // Under B10's rule an entry that caused a wrong prediction is removed, so a first touch also
    // hides the next page.
    let removed = run("freebsd-2009", &[], &rows);
    assert!(said(&removed).right < of.right, "{:?}", said(&removed));
    // The prediction of a walk changes only the counts of predictions.
    let without = |results: &Results| (results.walks.clone(), results.caches.clone());
    assert_eq!(without(&results), without(&removed));
}

/// A store to a read-only page faults, although the frame of the page was predicted correctly.
#[test]
fn a_page_that_forbids_the_access_is_where_it_was_said_to_be() {
    let mut rows = half_filled(8, 4, 0);
    let access = |kind, page: u64| Row::Access(kind, HEAP + page * 4096, 8);
    // All pages are loaded and the first is stored to: the others become read-only for promotion.
    rows.extend((0..512).map(|page| access(Kind::Load, page)));
    rows.extend([0, 1, 2, 3].map(|page| access(Kind::Store, page)));
    rows.extend((512..4096).map(|page| access(Kind::Load, page / 512 * 1024 + page % 512)));
    rows.extend((0..512).map(|page| access(Kind::Store, page)));
    let settings = [
        "os.populated=true",
        "tlb.l1d.entries=4",
        "spec_tlb.fill=marks",
        "os.reservations={marks=\"keep\"}",
    ];
    let of = said(&run("freebsd-2009", &settings, &rows)).clone();
    assert!(of.denied > 0 && of.wrong.values().all(|wrong| *wrong == 0), "{of:?}");
}

#[test]
fn four_levels_are_read_where_all_of_them_are() {
    let rows = program(2, 8 * MIB, 4_000);
    let lowest = run("freebsd-2009", &[], &rows);
    let all = run("freebsd-2009", &["walker.lowest_only=false"], &rows);
    assert_eq!(lowest.walks.walks, all.walks.walks);
    assert!(lowest.walks.references * 2 < all.walks.references);
    let overlapped: u64 = said(&all).overlapped.values().sum();
    assert!(overlapped > 3 * said(&all).right);
}

#[test]
fn a_switch_flushes_or_does_not() {
    let rows = program(3, 8 * MIB, 20_000);
    let [flushed, kept] = ["false", "true"].map(|keeps| {
        let keeps = format!("spec_tlb.keeps_on_switch={keeps}");
        let settings = ["spec_tlb.keeps_absent=true", "core.asid_bits=8", &keeps];
        run("freebsd-2009", &settings, &rows)
    });
    assert!(said(&kept).right > said(&flushed).right, "{:?}", said(&kept));
    // Without address-space identifiers, entries that the other process has left cause wrong
    // predictions.
    let settings = ["spec_tlb.keeps_absent=true", "spec_tlb.keeps_on_switch=true"];
    let misled = run("freebsd-2009", &settings, &rows);
    assert!(said(&misled).wrong["broken"] > 0, "{:?}", said(&misled));
}

/// B10 section 6.2.2: if pages are placed at random, one walk in 512 creates an entry. The next
/// walk in the same 2M uses the entry, which is then wrong by chance.
#[test]
fn random_places_fill_falsely_once_in_512() {
    let (mut walks, mut chance) = (0, 0);
    for seed in 1..=5 {
        println!("seed {seed}");
        let mut rows = program(seed, 256 * MIB, 0);
        let mut stream = Stream(seed + 100);
        rows.extend(
            (0..40_000)
                .map(|_| Row::Access(Kind::Load, HEAP + stream.below(256 * MIB / 4096) * 4096, 8)),
        );
        let placement = format!("memory.placement={seed}");
        let settings = [
            "os.manager=base",
            "os.populated=true",
            "spec_tlb.entries=128",
            "memory.size=2G",
            "tlb.l1d.entries=4",
            &placement,
        ];
        let machine = load("opteron-2008", &settings).unwrap();
        let options = RunOptions { check: false, progress: &mut |_| true };
        let results = machine.run(&mut Rows::new(rows), options).unwrap();
        walks += results.walks.walks;
        chance += said(&results).wrong["chance"];
    }
    // 6 standard deviations: of how many pages agree, 640 expected, and of how often they are used.
    let expected = walks / 512;
    assert!(chance.abs_diff(expected) < expected * 2 / 5, "{chance} of {walks}");
}

/// Accesses at random to half of the pages of some heaps.
fn half_filled(seed: u64, heaps: u64, accesses: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let heap = |heap: u64| mapping(HEAP + heap * 4 * MIB, 2 * MIB);
    let mut rows: Vec<Row> = (0..heaps).map(heap).collect();
    rows.extend((0..accesses).map(|_| {
        let page = stream.below(heaps) * 4 * MIB + stream.below(256) * 8192;
        Row::Access([Kind::Load, Kind::Store][stream.below(2) as usize], HEAP + page, 8)
    }));
    rows
}

#[test]
fn marks_are_never_wrong_while_reservations_last() {
    let rows = half_filled(5, 12, 30_000);
    let marks = ["spec_tlb.fill=marks", "os.reservations={marks=\"keep\"}"];
    let results = run("freebsd-2009", &[&marks[..], &["os.populated=true"]].concat(), &rows);
    let of = said(&results);
    assert!(of.wrong.values().all(|wrong| *wrong == 0), "{of:?}");
    assert!(of.right * 100 > results.walks.walks * 99, "{of:?}");
    // Without this setting, the only wrong predictions are for pages that are not mapped yet.
    let results = run("freebsd-2009", &marks, &rows);
    let of = said(&results);
    assert!(of.wrong["absent"] > 0 && of.wrong["broken"] + of.wrong["chance"] == 0, "{of:?}");
}

/// B10 section 6.5.3: if marks are cleared when a reservation is broken, its pages are neither
/// predicted wrongly nor correctly.
#[test]
fn broken_reservations_keep_their_marks_or_lose_them() {
    // There are twice as many heaps as memory can reserve completely, and half of their pages are
    // used.
    let mut rows = half_filled(6, 12, 20_000);
    let late = half_filled(7, 24, 60_000);
    rows.extend(late);
    let [kept, cleared] = ["keep", "clear"].map(|way| {
        let way = format!("os.reservations={{marks=\"{way}\"}}");
        let settings = ["spec_tlb.fill=marks", "memory.size=36M", "swap.size=64M", &way];
        run("freebsd-2009", &settings, &rows)
    });
    let broken = |results: &Results| {
        let manager = results.manager.as_ref().unwrap();
        manager.reservations.as_ref().unwrap().sizes[0].broken["frame"]
    };
    assert!(broken(&kept) > 0 && broken(&kept) == broken(&cleared));
    let [kept, cleared] = [said(&kept), said(&cleared)];
    assert_eq!(kept.wrong["chance"] + cleared.wrong["chance"], 0, "{kept:?} {cleared:?}");
    assert!(cleared.wrong["broken"] < kept.wrong["broken"], "{kept:?} {cleared:?}");
}

#[test]
fn a_sweep_of_48_sizes_is_48_runs_and_more_entries_are_never_worse() {
    let rows = program(4, 160 * MIB, 12_000);
    for replacement in ["lru", "random"] {
        let machines: Vec<Machine> = (1..=48)
            .map(|entries| {
                let settings = [
                    format!("spec_tlb.entries={entries}"),
                    format!("spec_tlb.replacement={replacement}"),
                    "spec_tlb.keeps_absent=true".to_owned(),
                ];
                let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
                load("freebsd-2009", &settings).unwrap()
            })
            .collect();
        let options = SweepOptions { threads: 2, progress: &mut |_| true };
        let swept = sweep(&machines, &mut Rows::new(rows.clone()), options).unwrap();
        let mut before = 0;
        for (machine, swept) in machines.iter().zip(swept) {
            let swept = swept.unwrap();
            let of = said(&swept);
            if of.entries.is_multiple_of(8) || of.entries < 4 {
                let options = RunOptions { check: true, progress: &mut |_| true };
                let alone = machine.run(&mut Rows::new(rows.clone()), options).unwrap();
                let alone = Results { origins: None, checked: false, ..alone };
                assert_eq!(swept, alone, "{replacement} {}", of.entries);
            }
            if replacement == "lru" {
                assert!(of.right >= before, "{} entries: {} for {before}", of.entries, of.right);
                before = of.right;
            }
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (settings, expected) in [
        (
            &["spec_tlb.page_size=64K"][..],
            "spec_tlb.page_size: the page table has no large pages of 64K: choose one of 2M, 1G",
        ),
        (&["spec_tlb.fill=guess"], "there is no `guess`: choose one of heuristic, marks, offsets"),
        (
            &["spec_tlb={fill=\"offsets\",keeps_absent=true}"],
            "spec_tlb.keeps_absent: with fill = offsets, entries are always kept after a wrong \
             prediction",
        ),
        (&["spec_tlb={fill=\"offsets\",pages_min=65}"], "spec_tlb.pages_min: write 64 or less"),
        (&["spec_tlb={fill=\"offsets\",replacement=\"fifo\"}"], "spec_tlb.replacement"),
        (&["spec_tlb.fill=marks"], "the operating system sets no marks"),
        (
            &["os.reservations={marks=\"keep\"}", "page_table.format=mpt", "spec_tlb.fill=marks"],
            "os.reservations.marks: marks need a bit that hardware ignores, and entries of format mpt",
        ),
        (&["spec_tlb.replacement=best"], "spec_tlb.replacement"),
        (&["spec_tlb.entries=0"], "spec_tlb.entries"),
        (&["spec_tlb.entries=24", "spec_tlb.ways=5"], "spec_tlb.entries"),
        (
            &["walker.kind=software", "walker.lowest_only=false"],
            "software refills the TLB, so no walk runs in parallel",
        ),
        (&["mmu_cache.design=utc", "mmu_cache.entries=4"], "walker.lowest_only"),
        (&["spec_tlb.enries=4"], "there is no key `enries` here"),
    ] {
        let error = load("freebsd-2009", settings).err().unwrap_or_default();
        assert!(error.contains(expected), "{settings:?}: {error}");
    }
}

/// Stores to random pages of four arrays, by a different instruction for each array, after the
/// arrays were filled.
fn by_instructions(seed: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut rows: Vec<Row> =
        (0..4).map(|array| mapping(HEAP + array * 64 * MIB, 16 * MIB)).collect();
    for array in 0..4 {
        let page = |page: u64| {
            let addr = HEAP + array * 64 * MIB + page * 4096;
            [Row::Access(Kind::Fetch, 0x2000, 16), Row::Access(Kind::Store, addr, 8)]
        };
        rows.extend((0..4096).flat_map(page));
    }
    for _ in 0..20_000 {
        let array = stream.below(4);
        rows.push(Row::Access(Kind::Fetch, 0x1000 + 32 * array, 16));
        let addr = HEAP + array * 64 * MIB + stream.below(4096) * 4096;
        rows.push(Row::Access(Kind::Store, addr, 8));
    }
    rows
}

/// If frames are in the order of pages, the offsets of instructions predict frames. If frames are
/// at random places, there are no predictions.
#[test]
fn offsets_are_right_where_regions_lie_side_by_side() {
    let rows = by_instructions(5);
    let spot = ["spec_tlb={fill=\"offsets\",entries=32,ways=4}", "memory.size=1G"];
    let of =
        |more: &[&str]| run("opteron-2008", &[&spot[..], more].concat(), &rows).spec_tlb.unwrap();
    let base = ["os.linux.enabled=never", "memory.placement=7"];
    let ca = of(&[&["os.manager=ca"], &base[..]].concat());
    let linux = of(&[&["os.manager=linux"], &base[..]].concat());
    let eager = of(&["os.manager=base", "os.eager_paging=true"]);
    let found = ca.right + ca.none + ca.wrong["chance"];
    assert!(ca.right * 10 > found * 9, "{ca:?}");
    assert!(eager.right * 10 > (eager.right + eager.none + eager.wrong["chance"]) * 9, "{eager:?}");
    assert!(linux.attempts * 50 < found, "{linux:?}");
    assert_eq!(
        (ca.fill.as_str(), ca.page_size.as_str(), ca.wrong["broken"]),
        ("offsets", "any", 0)
    );
    // A sweep gives the same result, even if its other machine needs no runs of frames.
    let settings = [&spot[..], &["os.manager=ca"], &base[..]].concat();
    let machines = [&settings[1..], &settings]
        .map(|settings| load("opteron-2008", &[&["spec_tlb={}"], settings].concat()).unwrap());
    let options = SweepOptions { threads: 2, progress: &mut |_| true };
    let swept = sweep(&machines, &mut Rows::new(rows.clone()), options).unwrap();
    assert_eq!(swept[1].as_ref().unwrap().spec_tlb.as_ref(), Some(&ca));
    // Without fetches, the code that makes an access is not known.
    let silent: Vec<Row> =
        rows.iter().filter(|row| !matches!(row, Row::Access(Kind::Fetch, ..))).cloned().collect();
    assert_eq!(run("opteron-2008", &settings, &silent).spec_tlb.unwrap().attempts, 0);
}
