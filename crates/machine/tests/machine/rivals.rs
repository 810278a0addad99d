//! Tests managers that are derived from Linux: Ingens, HawkEye, contiguity-aware placement,
//! Translation Ranger, and pages of 1G. Also tests what Linux does besides large pages at faults.

use addr::Kind;
use machine::{Machine, Results, RunOptions, results::ManagerCounts};
use trace::{Event, Origin};

use crate::support::{Row, Rows, Stream};

const HEAP: u64 = 0x4000_0000;
const MIB: u64 = 1 << 20;

fn mapping(start: u64, bytes: u64) -> Row {
    let origin = Origin::Heap;
    Row::Event(Event::Mapping { start, bytes, rights: 3, origin, offset: Some(0), file: None })
}

fn touch(kind: Kind, start: u64, bytes: u64, stride: u64) -> impl Iterator<Item = Row> + Clone {
    (0..bytes / stride).map(move |place| Row::Access(kind, start + place * stride, 8))
}

fn run(settings: &[&str], rows: &[Row]) -> Results {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let machine =
        Machine::load("opteron-2008", &settings).unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions { check: true, progress: &mut |_| true };
    machine.run(&mut Rows::new(rows.to_vec()), options).unwrap()
}

fn manager(results: &Results) -> &ManagerCounts {
    results.manager.as_ref().unwrap()
}

fn large(results: &Results, size: &str) -> u64 {
    results.memory.pages_by_size.get(size).copied().unwrap_or(0)
}

/// The bytes in runs of at least `bytes` bytes.
fn in_runs(results: &Results, bytes: u64) -> u64 {
    let runs = manager(results).end.runs.iter().filter(|runs| runs.bytes_min >= bytes);
    runs.map(|runs| runs.bytes).sum()
}

/// Stores to all pages of `bytes` bytes, in an order determined by `seed`.
fn scattered(seed: u64, bytes: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut pages: Vec<u64> = (0..bytes / 4096).collect();
    for at in (1..pages.len()).rev() {
        pages.swap(at, stream.below(at as u64 + 1) as usize);
    }
    let mut rows = vec![mapping(HEAP, bytes)];
    rows.extend(pages.iter().map(|page| Row::Access(Kind::Store, HEAP + page * 4096, 8)));
    rows
}

const AGED: [&str; 2] = ["memory.size=256M", "memory.aged={free=0.5,wired=0.05,seed=3}"];

#[test]
fn loads_take_no_memory() {
    let mut rows = vec![mapping(HEAP, 8 * MIB)];
    rows.extend(touch(Kind::Load, HEAP, 8 * MIB, 4096));
    let loads = run(&["os.manager=linux", "os.linux.enabled=never"], &rows);
    assert_eq!((manager(&loads).bytes.anonymous, manager(&loads).faults["zero-page"]), (0, 2048));
    assert!(manager(&loads).end.regions.is_empty());
    assert_eq!(manager(&loads).linux.as_ref().unwrap().zero_bytes, 4096);
    let loads = run(&["os.manager=linux"], &rows);
    assert_eq!((manager(&loads).bytes.anonymous, manager(&loads).faults["zero-page"]), (0, 4));
    let loads = run(&["os.manager=linux", "os.linux.use_zero_page=0"], &rows);
    assert_eq!(manager(&loads).bytes.anonymous, 8 * MIB);
    // Stores to some of these pages allocate memory for them.
    rows.extend(touch(Kind::Store, HEAP, 8 * MIB, MIB));
    let stores = run(&["os.manager=linux", "os.linux.enabled=never"], &rows);
    assert_eq!(manager(&stores).bytes.anonymous, 8 * 4096);
    let row = &manager(&stores).end.regions[0];
    assert_eq!((row.start, row.bytes, row.mapped_by_size["4K"]), (HEAP, 8 * MIB, 8 * 4096));
}

#[test]
fn stacks_of_threads_have_no_large_pages() {
    let large = |flags: u32| {
        let mmap = Event::Mmap {
            addr: 0,
            bytes: 8 * MIB,
            prot: 3,
            flags,
            fd: -1,
            offset: 0,
            path: None,
            file: None,
            result: HEAP as i64,
        };
        let mut rows = vec![Row::Event(mmap)];
        rows.extend(touch(Kind::Store, HEAP, 8 * MIB, 4096));
        large(&run(&["os.manager=linux"], &rows), "2M")
    };
    assert_eq!((large(0x22), large(0x20022)), (4, 0));
}

/// In aged memory, a fault gets a large page only if the setting allows it to compact memory.
#[test]
fn faults_compact_where_the_knob_says_so() {
    let rows = scattered(1, 24 * MIB);
    let of = |defrag: &str| {
        let defrag = format!("os.linux.defrag={defrag}");
        let results = run(&[&["os.manager=linux", &defrag], &AGED[..]].concat(), &rows);
        let moved = manager(&results).linux.as_ref().unwrap().compaction.moved;
        (large(&results, "2M"), moved)
    };
    let (never, always, defer) = (of("never"), of("always"), of("defer"));
    assert_eq!(never.1, 0);
    assert!(always.0 > never.0 && always.1 > 0, "{never:?} {always:?}");
    assert!(defer.1 > 0, "the daemon is woken: {defer:?}");
}

#[test]
fn frames_that_stay_lie_together() {
    let rows = scattered(2, 24 * MIB);
    let free_large = |allocator: &str| {
        let allocator = format!("memory.allocator={allocator}");
        let results = run(
            &[&["os.manager=linux", "os.linux.enabled=never", &allocator], &AGED[..]].concat(),
            &rows,
        );
        let blocks = manager(&results).linux.as_ref().unwrap().page_blocks.clone();
        (blocks.by_type["unmovable"], blocks.claimed)
    };
    let (unmovable, claimed) = free_large("page-blocks");
    assert!(unmovable > 0 && unmovable < 64 && claimed > 0, "{unmovable} of 128 page blocks");
    assert_eq!(free_large("buddy"), (0, 0));
}

#[test]
fn ingens_waits_until_blocks_are_full() {
    let mut rows = vec![mapping(HEAP, 8 * MIB)];
    rows.extend(touch(Kind::Store, HEAP, 8 * MIB, 8192));
    let thin = run(&["os.manager=ingens"], &rows);
    assert_eq!((large(&thin, "2M"), manager(&thin).bytes.anonymous), (0, 4 * MIB));
    let half = run(&["os.manager=ingens", "os.ingens.util_threshold=50"], &rows);
    assert_eq!((large(&half, "2M"), manager(&half).bytes.anonymous), (4, 8 * MIB));
    assert_eq!(manager(&half).linux.as_ref().unwrap().chosen.as_ref().unwrap().filled, 4);
}

/// The use of pages is sampled if the setting requests it. If free memory consists of large blocks,
/// any block may become a large page.
#[test]
fn ingens_samples_use() {
    let mut rows = vec![mapping(HEAP, 16 * MIB)];
    rows.extend(touch(Kind::Store, HEAP, 16 * MIB, 16384));
    let hot = HEAP + 10 * MIB;
    rows.extend(touch(Kind::Load, hot, 2 * MIB, 16384).cycle().take(40_000));
    let chosen = |mode: &str| {
        let settings = [
            "os.manager=ingens",
            mode,
            "os.ingens.scan_sleep_millisecs=3",
            "os.linux.cycles_per_ms=1500",
        ];
        let results = run(&settings, &rows);
        manager(&results).linux.as_ref().unwrap().chosen.clone().unwrap()
    };
    let plain = chosen("os.ingens.deferred_mode=1");
    assert_eq!((plain.samples, plain.sampled, plain.hot), (0, 0, 0));
    let sampled = chosen("os.ingens.deferred_mode=2");
    assert!(sampled.samples > 8, "{sampled:?}");
    // The pages of one block are used again and again, so the daemon samples them more rarely.
    assert_eq!(sampled.hot, 128);
    assert!(sampled.sampled < sampled.samples * 1024, "{sampled:?}");
    let eager = run(&["os.manager=ingens", "os.ingens.aggressive_below=0.5"], &rows);
    let thin = run(&["os.manager=ingens"], &rows);
    assert_eq!((large(&eager, "2M"), large(&thin, "2M")), (8, 0));
}

/// The daemon of HawkEye samples use, fills free blocks with zeros, and creates large pages.
#[test]
fn hawkeye_looks_at_use() {
    let mut rows = vec![mapping(HEAP, 16 * MIB)];
    rows.extend(touch(Kind::Store, HEAP, 16 * MIB, 4096));
    let hot = HEAP + 10 * MIB;
    rows.extend(touch(Kind::Load, hot, 2 * MIB, 4096).cycle().take(30_000));
    let settings = [
        "os.manager=hawkeye",
        "os.hawkeye.faults=false",
        "os.hawkeye.sample_millisecs=2",
        "os.hawkeye.sleep_millisecs=2",
        "os.hawkeye.prezero_millisecs=1",
        "os.linux.cycles_per_ms=1500",
        "os.linux.khugepaged.scan_sleep_millisecs=6",
        "os.linux.khugepaged.pages_to_scan=512",
    ];
    let results = run(&settings, &rows);
    let chosen = manager(&results).linux.as_ref().unwrap().chosen.clone().unwrap();
    assert!(chosen.samples > 0 && chosen.prezeroed > 0, "{chosen:?}");
    let upgraded = large(&results, "2M");
    assert!(upgraded > 0, "{upgraded} large pages");
    let at_once = run(&["os.manager=hawkeye"], &rows);
    assert_eq!(large(&at_once, "2M"), 8);
}

/// Two processes take turns. The first uses more pages, and the second has more TLB misses. With
/// `mmu-overhead`, the second process gets large pages first.
#[test]
fn hawkeye_serves_first_whom_walks_cost_most() {
    let large_of = |metric: &str| {
        let mut rows = Vec::new();
        for space in 0..2 {
            rows.push(Row::Event(Event::Run { cpu: None, space }));
            rows.push(mapping(HEAP, 8 * MIB));
            rows.extend(touch(Kind::Store, HEAP, 8 * MIB, 4096));
        }
        for turn in 0..12u64 {
            rows.push(Row::Event(Event::Run { cpu: None, space: (turn % 2) as u32 }));
            let first = HEAP + turn / 2 % 4 * 2 * MIB;
            let pages = |pages: u64| touch(Kind::Load, first, pages * 4096, 4096);
            if turn % 2 == 0 {
                // All pages of the block are accessed, each of them often.
                rows.extend(pages(512).flat_map(|row| std::iter::repeat_n(row, 100)));
            } else {
                // Fewer pages are accessed, and each access misses.
                rows.extend(pages(128).cycle().take(512));
            }
        }
        let metric = format!("os.hawkeye.metric={metric}");
        let settings = [
            "os.manager=hawkeye",
            "os.hawkeye.faults=false",
            &metric,
            "os.hawkeye.sample_millisecs=100",
            "os.hawkeye.sleep_millisecs=100",
            "os.linux.cycles_per_ms=1000",
            "os.linux.khugepaged.scan_sleep_millisecs=210",
            "os.linux.khugepaged.pages_to_scan=512",
            "tlb.l1d.entries=16",
            "tlb.l2d.entries=32",
            "os.costs={shootdown_send_cycles=0,shootdown_receive_cycles=0,flush_page_cycles=0,\
             flush_space_cycles=0,walk_cycles=40,fault_cycles=0,switch_cycles=0,source=\"test\"}",
        ];
        let results = run(&settings, &rows);
        let end = &manager(&results).end;
        let of = |space: u32| -> u64 {
            let own = end.regions.iter().filter(|region| region.space == space);
            own.map(|region| region.mapped_by_size.get("2M").copied().unwrap_or(0)).sum()
        };
        (of(0), of(1))
    };
    let (turns, cost) = (large_of("round-robin"), large_of("mmu-overhead"));
    println!("{turns:?} {cost:?}");
    assert!(turns.0 > 0, "{turns:?}");
    assert!(cost.1 > cost.0 && cost.1 > turns.1, "{turns:?} {cost:?}");
}

/// In memory with free frames everywhere, `ca` puts the pages of a region into adjacent frames
/// without large pages; `translation-ranger` moves them there after some time.
#[test]
fn placement_and_moving_make_long_runs() {
    let mut rows = scattered(3, 24 * MIB);
    // These accesses give the daemon time for a pass after all pages have been touched.
    rows.extend(touch(Kind::Load, HEAP, 24 * MIB, 4096));
    let base = ["os.linux.enabled=never", "memory.size=256M", "memory.placement=5"];
    let of = |more: &[&str]| in_runs(&run(&[&base[..], more].concat(), &rows), MIB);
    let [linux, ca] = ["os.manager=linux", "os.manager=ca"].map(|manager| of(&[manager]));
    let ranger = of(&[
        "os.manager=translation-ranger",
        "os.ranger.region_bytes_min=1M",
        "os.ranger.period_millisecs=1",
        "os.linux.cycles_per_ms=1000",
    ]);
    assert!(linux < 2 * MIB, "{linux} bytes in long runs with linux");
    assert!(ca > 20 * MIB, "{ca} bytes in long runs with ca");
    assert!(ranger > 20 * MIB, "{ranger} bytes in long runs with the ranger");
}

#[test]
fn pages_of_1g_where_they_are_allowed() {
    let mut rows = vec![mapping(1 << 30, (1 << 30) + 4 * MIB)];
    rows.extend(touch(Kind::Store, 1 << 30, (1 << 30) + 4 * MIB, 2 * MIB));
    let settings =
        ["os.manager=linux", "memory.size=4G", "tlb.l1d.page_sizes=[\"4K\",\"2M\",\"1G\"]"];
    let off = run(&settings, &rows);
    assert_eq!((large(&off, "1G"), large(&off, "2M")), (0, 514));
    let on =
        run(&[&settings[..], &["os.linux.hugepages-1048576kB.enabled=always"]].concat(), &rows);
    assert_eq!((large(&on, "1G"), large(&on, "2M")), (1, 2));
    assert!(on.walks.walks < off.walks.walks / 50);
}

/// Forks, files, discards and scarce memory under every manager. The manager's structures are
/// checked after every fault.
#[test]
fn every_manager_keeps_its_books() {
    for (seed, manager) in (1..).zip(["linux", "ingens", "hawkeye", "ca", "translation-ranger"]) {
        let mut stream = Stream(seed);
        let mut rows: Vec<Row> = (0..4).map(|at| mapping(HEAP + at * 8 * MIB, 5 * MIB)).collect();
        for _ in 0..12_000 {
            let addr = HEAP + stream.below(4) * 8 * MIB + stream.below(5 * 256) * 4096;
            match stream.below(400) {
                0 => rows.push(Row::Event(Event::Madvise {
                    addr,
                    bytes: 64 << 12,
                    advice: 4,
                    result: 0,
                })),
                1 => rows.push(Row::Event(Event::Madvise {
                    addr,
                    bytes: 512 << 12,
                    advice: 14,
                    result: 0,
                })),
                _ => {
                    let kind = if stream.below(3) == 0 { Kind::Load } else { Kind::Store };
                    rows.push(Row::Access(kind, addr, 8));
                }
            }
        }
        let name = format!("os.manager={manager}");
        let daemons = [
            "os.linux.cycles_per_ms=2000",
            "os.linux.khugepaged.scan_sleep_millisecs=10",
            "os.linux.defrag=always",
            "memory.size=8M",
            "swap.size=64M",
            "os.ranger.region_bytes_min=1M",
            "os.ranger.period_millisecs=5",
        ];
        println!("{manager}, seed {seed}");
        let results = run(&[&[name.as_str()], &daemons[..]].concat(), &rows);
        let counts = results.manager.unwrap();
        assert!(counts.work["writes"] > 0, "memory is scarce: {:?}", counts.bytes);
    }
}
