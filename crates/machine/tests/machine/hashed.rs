//! Tests frames that are restricted by the page's address: Mosaic's TLB entries and Utopia's
//! segments, under several managers, compared with models that record every page.

use std::collections::BTreeMap;

use addr::Kind;
use machine::{
    Machine, Results, RunOptions,
    results::{BlockCounts, RestSegCounts},
    sweep::{SweepOptions, sweep},
};
use trace::Event;

use crate::support::{HEAP, Row, Rows, Stream, heap_program, mapping, process};

const PAGE: u64 = 4096;

fn run(settings: &[&str], rows: &[Row]) -> Results {
    let fixed = ["tlb.l1d.entries=8", "tlb.l2d.entries=64", "memory.size=64M"];
    crate::support::run("opteron-2008", &[&fixed[..], settings].concat(), rows)
}

fn work(results: &Results, what: &str) -> u64 {
    results.manager.as_ref().unwrap().work[what]
}

fn misses(results: &Results) -> u64 {
    results.tlbs.last().unwrap().total.misses
}

fn blocks(results: &Results) -> &BlockCounts {
    results.tlbs.last().unwrap().blocks.as_ref().unwrap()
}

fn restseg(results: &Results) -> &RestSegCounts {
    results.restseg.as_ref().unwrap()
}

/// Stores to each page in an order determined by `seed`, then accesses to random pages.
fn scattered(seed: u64, pages: u64, accesses: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut order: Vec<u64> = (0..pages).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, stream.below(at as u64 + 1) as usize);
    }
    let mut rows = vec![mapping(HEAP, pages * PAGE)];
    rows.extend(order.iter().map(|page| Row::Access(Kind::Store, HEAP + page * PAGE, 8)));
    let used = (0..accesses).map(|_| HEAP + stream.below(pages) * PAGE);
    rows.extend(used.map(|addr| Row::Access(Kind::Load, addr, 8)));
    rows
}

const MOSAIC: &str = "tlb.l2d.blocks={kind=\"mosaic\",pages=8}";

#[test]
fn translations_are_right_whatever_moves() {
    let rows = heap_program(4, 300, 6000, true);
    let first = |kind: &str| format!("tlb.l1d.blocks={{kind=\"{kind}\",pages=4}}");
    for more in [
        &["os.manager=base"][..],
        &["os.manager=base", "core.asid_bits=8", &first("mosaic")],
        &["os.manager=base", "walker.tracks_dirty=true", &first("complete-subblock")],
        &["os.manager=base", "os.mosaic.front_yard=2", "os.mosaic.back_yard=1"],
        &["os.manager=base", "memory.size=1M", "swap.size=8M"],
        &["os.manager=base", "page_table.format=clustered"],
        &["os.manager=linux", &first("coalesced")],
        &["os.manager=ingens"],
        &["os.manager=hawkeye", "os.linux.enabled=never"],
    ] {
        let mosaic = run(&[&["os.mosaic={}", MOSAIC][..], more].concat(), &rows);
        assert!(blocks(&mosaic).fills > 100, "{more:?}");
    }
    for more in [
        &["os.manager=base"][..],
        &["os.manager=base", "core.asid_bits=8", "restseg.tag_lines=0"],
        &["os.manager=base", "walker.tracks_dirty=true", "os.utopia.size=256K"],
        &["os.manager=base", "memory.size=1M", "swap.size=8M", "os.utopia.size=512K"],
        &["os.manager=base", "page_table.format=hashed", "mmu_cache.design=none"],
        &["os.manager=linux", "os.utopia.large_size=32M", "os.linux.enabled=never"],
        &["os.manager=linux", "os.utopia.large_size=16M", "os.utopia.large_ways=2"],
        &["os.manager=ingens", "restseg.filter_lines=0"],
        &["os.manager=hawkeye"],
    ] {
        let utopia = run(&[&["os.utopia={}", "restseg={}"][..], more].concat(), &rows);
        assert!(restseg(&utopia).lookups > 100, "{more:?}");
    }
}

/// Whatever the order of first touches, an entry covers its whole block, like an entry with a frame
/// for each page. A page that got a frame outside of its allowed frames has an entry of its own.
#[test]
fn an_entry_of_mosaic_covers_pages_that_lie_anywhere() {
    let rows = scattered(1, 600, 20_000);
    let kind = |kind: &str| {
        let blocks = format!("tlb.l2d.blocks={{kind=\"{kind}\",pages=8}}");
        run(&["os.manager=base", "os.mosaic={}", &blocks], &rows)
    };
    let [mosaic, complete, coalesced] = ["mosaic", "complete-subblock", "coalesced"].map(kind);
    assert_eq!((work(&mosaic, "hashed"), work(&mosaic, "unhashed")), (600, 0));
    assert_eq!(misses(&mosaic), misses(&complete));
    assert!(misses(&mosaic) * 2 < misses(&coalesced));
    let narrow = ["os.manager=base", "os.mosaic={front_yard=1,back_yard=1,choices=1}", MOSAIC];
    let narrow = run(&[&narrow[..], &["memory.size=4M"]].concat(), &rows);
    let (hashed, unhashed) = (work(&narrow, "hashed"), work(&narrow, "unhashed"));
    assert_eq!(hashed + unhashed, 600);
    assert!(work(&narrow, "hashed_back") > 20 && unhashed > 20, "{hashed} {unhashed}");
    assert!(misses(&narrow) > misses(&mosaic));
}

/// After a fork, shared pages keep the frames that the parent's addresses allow, and a copy gets a
/// frame that the addresses of the storing process allow. Each translation is compared with the
/// page table.
#[test]
fn forks_share_frames_that_the_childs_addresses_do_not_allow() {
    let store = |page: u64| Row::Access(Kind::Store, HEAP + page * PAGE, 8);
    let load = |page: u64| Row::Access(Kind::Load, HEAP + page * PAGE, 8);
    let turn = |space: u32| Row::Event(Event::Run { cpu: None, space });
    let mut rows = vec![turn(0), mapping(HEAP, 200 * PAGE)];
    rows.extend((0..200).map(store));
    rows.push(Row::Event(Event::Fork { result: 101, flags: 0 }));
    rows.extend((0..50).map(store));
    rows.push(turn(1));
    rows.extend((0..200).map(load));
    rows.extend((100..160).chain(0..20).map(store));
    rows.push(turn(0));
    rows.extend((0..200).map(load));
    for (settings, is_hashed) in [
        (&["os.manager=base", "os.mosaic={}", MOSAIC][..], true),
        (&["os.manager=linux", "os.linux.enabled=never", "os.mosaic={}", MOSAIC], true),
        (&["os.manager=base", "os.utopia={}", "restseg={}"], true),
        (&["os.manager=ingens", "os.utopia={}", "restseg={}"], true),
        (&["os.manager=base", "os.eager_paging=true", "range_tlb={}"], false),
    ] {
        let fixed = ["tlb.l1d.entries=8", "tlb.l2d.entries=64", "memory.size=64M"];
        let settings = [&fixed[..], settings].concat();
        let settings: Vec<String> = settings.into_iter().map(str::to_owned).collect();
        let machine = Machine::load("opteron-2008", &settings).unwrap();
        let [fast, checked] = [false, true].map(|check| {
            let mut rows = Rows::new(rows.clone()).of(vec![process(0), process(1)]);
            machine.run(&mut rows, RunOptions { check, progress: &mut |_| true }).unwrap()
        });
        assert_eq!(Results { checked: true, ..fast.clone() }, checked, "{settings:?}");
        // When both processes have stored to a shared page, only the first store makes a copy; the
        // second process is then the only user.
        assert_eq!(work(&fast, "copied"), 110, "{settings:?}");
        let placed = work(&fast, "hashed") + work(&fast, "unhashed");
        assert_eq!(placed, if is_hashed { 310 } else { 0 }, "{settings:?}");
    }
}

/// Compares lookups with a model of the segment for base pages and of its caches. Each access
/// misses the TLBs, unless it is to the page of the previous access.
#[test]
fn lookups_in_segments_do_what_a_model_does() {
    for (seed, ways, size, lines) in
        [(1, 2, 256, 0), (2, 8, 1024, 8), (3, 1, 64, 4), (4, 4, 2048, 16)]
    {
        let sets = size / 4 / ways;
        let mut stream = Stream(seed);
        let mut rows = vec![mapping(HEAP, 600 * PAGE)];
        let pages: Vec<u64> = (0..5000).map(|_| stream.below(stream_reach(seed))).collect();
        rows.extend(pages.iter().map(|page| Row::Access(Kind::Store, HEAP + page * PAGE, 8)));
        let set = |page: u64| (HEAP / PAGE + page) % sets;
        let (mut placed, mut taken) = (BTreeMap::new(), vec![0; sets as usize]);
        let mut expected = RestSegCounts {
            filter_lines: lines,
            tag_lines: lines,
            ways: 4,
            ..RestSegCounts::default()
        };
        let (mut filters, mut tags): (Vec<Vec<u64>>, Vec<Vec<u64>>) = Default::default();
        filters.resize(lines as usize / 4, Vec::new());
        tags.resize(lines as usize / 4, Vec::new());
        let uses = |cache: &mut Vec<Vec<u64>>, line: u64| {
            let Some(place) = line.checked_rem(cache.len() as u64) else { return false };
            let set = &mut cache[place as usize];
            let known = set.contains(&line);
            set.retain(|one| *one != line);
            set.push(line);
            if set.len() > 4 {
                set.remove(0);
            }
            known
        };
        let (mut hashed, mut before) = (0, None);
        // The arrays lie directly below the segment, at the end of memory.
        let bytes = sets.next_multiple_of(64) + sets * ways * 8;
        let array = (64 << 20) - size * 1024 - bytes.next_multiple_of(PAGE);
        let tag_array = array + sets.next_multiple_of(64);
        for &page in &pages {
            if before.replace(page) == Some(page) {
                continue;
            }
            for attempt in 0..2 {
                let of = set(page);
                expected.lookups += 1;
                let filter = uses(&mut filters, (array + of) / 64);
                expected.filter_reads += u64::from(!filter);
                if taken[of as usize] == 0 {
                    expected.filtered += 1;
                } else {
                    let tag = tag_array + of * ways * 8;
                    for line in tag / 64..=(tag + ways * 8 - 1) / 64 {
                        expected.tag_reads += u64::from(!uses(&mut tags, line));
                    }
                }
                let is_placed = placed.get(&page).copied();
                if is_placed == Some(true) {
                    expected.hits += 1;
                } else {
                    expected.misses += 1;
                }
                if is_placed.is_some() {
                    break;
                }
                assert_eq!(attempt, 0);
                let has_room = taken[of as usize] < ways;
                placed.insert(page, has_room);
                taken[of as usize] += u64::from(has_room);
                hashed += u64::from(has_room);
            }
        }
        let (size, ways) = (format!("os.utopia.size={size}K"), format!("os.utopia.ways={ways}"));
        let caches = format!("restseg={{filter_lines={lines},tag_lines={lines}}}");
        let one = ["tlb.l1d.entries=1", "tlb.l2d.entries=1", "tlb.l2d.ways=1"];
        let utopia = ["os.manager=base", &size, &ways, &caches];
        let results = run(&[&one[..], &utopia].concat(), &rows);
        assert_eq!(work(&results, "hashed"), hashed, "seed {seed}");
        assert_eq!(*restseg(&results), expected, "seed {seed}");
        // A page that is found in the segment needs no other reference.
        let level = results.walks.by_level.iter().find(|level| level.level == 1).unwrap();
        assert!(level.references <= 2 * expected.misses, "seed {seed}");
    }
}

fn stream_reach(seed: u64) -> u64 {
    [600, 300, 100][seed as usize % 3]
}

/// A page of 2M is in the segment for large pages, and is found there before base pages are
/// searched.
#[test]
fn large_pages_have_a_segment_too() {
    let mut rows = vec![mapping(HEAP, 16 << 20)];
    rows.extend((0..8).map(|page| Row::Access(Kind::Store, HEAP + (page << 21), 8)));
    rows.extend((0..4000).map(|at| Row::Access(Kind::Load, HEAP + (at * 37 % 4096) * PAGE, 8)));
    let fixed = ["os.manager=linux", "tlb.l1d.entries=1", "tlb.l2d.entries=1", "tlb.l2d.ways=1"];
    let of = |more: &[&str]| run(&[&fixed[..], more].concat(), &rows);
    let all = of(&["os.utopia.large_size=32M", "restseg={}"]);
    assert_eq!(all.memory.pages_by_size["2M"], 8);
    assert_eq!((work(&all, "hashed"), work(&all, "unhashed")), (8, 0));
    assert_eq!(restseg(&all).hits, restseg(&all).lookups - 8, "all but the first touches");
    // Two sets of two ways have room for four of the eight blocks.
    let some = of(&["os.utopia={large_size=\"8M\",large_ways=2}", "restseg={}"]);
    assert_eq!((work(&some, "hashed"), some.memory.pages_by_size["2M"]), (4, 8));
    assert!(restseg(&some).hits > 100 && restseg(&some).misses > 100);
}

/// A sweep reports lookups in segments to its designs as a run does.
#[test]
fn a_sweep_is_as_many_runs() {
    let rows = heap_program(5, 300, 4000, true);
    let fixed = ["os.manager=base", "os.utopia={}", "restseg={}", "tlb.l2d.entries=16"];
    let machines: Vec<Machine> = ["4K", "64K", "512K"]
        .map(|size| {
            let size = format!("cache.l2.size={size}");
            let settings = fixed.iter().copied().chain([size.as_str()]).map(str::to_owned);
            Machine::load("opteron-2008", &settings.collect::<Vec<_>>()).unwrap()
        })
        .into();
    let options = SweepOptions { threads: 1, progress: &mut |_| true };
    let swept = sweep(&machines, &mut Rows::new(rows.clone()), options).unwrap();
    for (machine, swept) in machines.iter().zip(swept) {
        let options = RunOptions { check: false, progress: &mut |_| true };
        let alone = machine.run(&mut Rows::new(rows.clone()), options).unwrap();
        // A sweep does not record which code misses, so origins are not compared.
        assert!(swept.unwrap() == Results { origins: None, ..alone });
    }
}

#[test]
fn what_is_wrong_is_said() {
    let refused = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&one| one.to_owned()).collect();
        Machine::load("opteron-2008", &settings).map(|_| ()).unwrap_err().to_string()
    };
    let managers = [
        ("freebsd", "keeps its free blocks for reservations"),
        ("irix", "has free lists by page size"),
        ("first-touch", "gives frames at the first touch"),
        ("recorded", "uses the frames of the trace"),
        ("ca", "places regions itself"),
        ("translation-ranger", "has a daemon that moves pages"),
    ];
    for (manager, why) in managers {
        for key in ["os.mosaic", "os.utopia"] {
            let said = refused(&[&format!("os.manager={manager}"), &format!("{key}={{}}")]);
            assert!(said.contains(&format!("{key}: the manager `{manager}` {why}")), "{said}");
        }
    }
    for (settings, expected) in [
        (&["os.mosaic={}", "os.utopia={}"][..], "os.utopia: os.mosaic and os.utopia both say"),
        (&["os.mosaic={}", "os.eager_paging=true"], "os.mosaic: os.eager_paging, which chooses"),
        (&["os.mosaic.front_yard=0"], "os.mosaic: a front yard of 0 frames"),
        (&[MOSAIC], "tlb.l2d.blocks.kind: TLB entries of kind mosaic need an allocator"),
        (&["restseg={}"], "restseg: [restseg] searches restrictive segments, but memory has none"),
        (
            &["os.utopia={}", "restseg.ways=3"],
            "restseg.filter_lines: 8 entries do not divide into sets",
        ),
        (&["os.utopia={}", "restseg={}", "range_tlb={}"], "restseg: [range_tlb] and [restseg]"),
        (&["os.utopia.size=4K"], "os.utopia.size: a segment of 4K with sets of 8 pages"),
        (&["os.utopia.size=7G"], "os.utopia: the segments take more than three quarters"),
        (
            &["os.utopia.large_size=4M"],
            "os.utopia.large_size: the manager `base` does not map pages",
        ),
        (&["os.utopia={}", "memory.numa.nodes=2"], "os.utopia: memory.numa and os.utopia"),
    ] {
        let base = ["os.manager=base", "memory.size=8G"];
        let said = refused(&[&base[..], settings].concat());
        assert!(said.contains(expected), "{settings:?}: {said}");
    }
}
