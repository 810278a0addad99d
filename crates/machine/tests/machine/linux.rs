//! Tests the manager `linux`: transparent huge pages by faults and by `khugepaged`, and their
//! memory compared with other managers.

use addr::Kind;
use machine::{
    Machine, Results, RunOptions,
    results::ManagerCounts,
    sweep::{SweepOptions, sweep},
};
use trace::{Event, Origin};

use crate::support::{Row, Rows, Stream};

const HEAP: u64 = 0x4000_0000;
const MIB: u64 = 1 << 20;
const HUGEPAGE: u32 = 14;
const NOHUGEPAGE: u32 = 15;
const COLLAPSE: u32 = 25;

fn mapping(start: u64, bytes: u64) -> Row {
    let origin = Origin::Heap;
    Row::Event(Event::Mapping { start, bytes, rights: 3, origin, offset: Some(0), file: None })
}

fn advice(addr: u64, bytes: u64, advice: u32) -> Row {
    Row::Event(Event::Madvise { addr, bytes, advice, result: 0 })
}

fn stores(start: u64, bytes: u64, stride: u64) -> impl Iterator<Item = Row> + Clone {
    (0..bytes / stride).map(move |place| Row::Access(Kind::Store, start + place * stride, 8))
}

fn load(settings: &[&str]) -> Result<Machine, String> {
    let all = ["os.manager=linux"].iter().chain(settings);
    let settings: Vec<String> = all.map(|setting| (*setting).to_owned()).collect();
    Machine::load("opteron-2008", &settings).map_err(|error| error.to_string())
}

fn run(settings: &[&str], rows: &[Row]) -> Results {
    let options = RunOptions { check: true, progress: &mut |_| true };
    load(settings).unwrap().run(&mut Rows::new(rows.to_vec()), options).unwrap()
}

fn manager(results: &Results) -> &ManagerCounts {
    results.manager.as_ref().unwrap()
}

fn anonymous(results: &Results) -> u64 {
    manager(results).end.bytes.anonymous
}

/// With base pages the program takes 16 MB. With large pages it takes all of the 256 MB (about 262
/// MB with the program's other memory).
#[test]
fn a_stride_of_64k_over_256m() {
    let mut rows = vec![mapping(HEAP, 256 * MIB)];
    rows.extend(stores(HEAP, 256 * MIB, 64 << 10));
    let never = run(&["os.linux.enabled=never"], &rows);
    assert_eq!(anonymous(&never), 16 * MIB);
    let always = run(&[], &rows);
    assert_eq!(anonymous(&always), 256 * MIB);
    let blocks = run(&["os.linux.enabled=never", "os.linux.hugepages-32kB.enabled=always"], &rows);
    assert_eq!(anonymous(&blocks), 128 * MIB);
    let [never, always] = [never, always].map(|results| manager(&results).faults["zero"]);
    assert_eq!((never, always), (4096, 128));
}

#[test]
fn large_pages_waste_no_less_than_reservations_and_base_pages() {
    let mut total = [0; 3];
    for seed in 1..5 {
        let mut stream = Stream(seed);
        let mut rows: Vec<Row> =
            (0..6).map(|at| mapping(HEAP + at * 8 * MIB, (at + 1) * MIB + 12288)).collect();
        for _ in 0..3000 {
            let at = stream.below(6);
            let addr = HEAP + at * 8 * MIB + stream.below((at + 1) * 256) * 4096;
            rows.push(Row::Access(Kind::Store, addr, 8));
        }
        // The fourth heap is filled in its first 4 MiB, which are two blocks.
        rows.extend(stores(HEAP + 3 * 8 * MIB, 4 * MIB, 4096));
        let of = ["os.manager=base", "os.manager=freebsd", "os.manager=linux"]
            .map(|manager| anonymous(&run(&[manager], &rows)));
        assert!(of.is_sorted(), "{of:?}");
        assert_eq!(of[0], of[1], "reservations take what is touched");
        total.iter_mut().zip(of).for_each(|(all, bytes)| *all += bytes);
    }
    assert!(total[2] > total[0], "{total:?}");
}

#[test]
fn advice_is_heard() {
    let mut rows = vec![mapping(HEAP, 12 * MIB), advice(HEAP, 4 * MIB, HUGEPAGE)];
    rows.push(advice(HEAP + 8 * MIB, 4 * MIB, NOHUGEPAGE));
    rows.extend(stores(HEAP, 12 * MIB, 2 * MIB));
    let large = |settings: &[&str]| {
        let results = run(settings, &rows);
        results.memory.pages_by_size.get("2M").copied().unwrap_or(0)
    };
    assert_eq!(large(&[]), 4);
    assert_eq!(large(&["os.linux.enabled=madvise"]), 2);
    assert_eq!(large(&["os.linux.enabled=never"]), 0);
    assert_eq!(large(&["os.linux.enabled=never", "os.linux.hugepages-2048kB.enabled=always"]), 4);
    // MADV_COLLAPSE makes large pages of existing pages, whatever the settings are.
    rows.push(advice(HEAP + 4 * MIB, 2 * MIB, COLLAPSE));
    let results = run(&["os.linux.enabled=madvise"], &rows);
    assert_eq!(results.memory.pages_by_size["2M"], 3);
}

/// Stores to a heap that grows: at first the region is too small for a large page, so it has base
/// pages.
fn grown() -> Vec<Row> {
    let mut grown = vec![mapping(HEAP, MIB)];
    grown.extend(stores(HEAP, MIB, 4096));
    grown.push(mapping(HEAP + MIB, MIB));
    grown.extend(stores(HEAP, 2 * MIB, 4096).cycle().take(20_000));
    grown
}

/// In a sweep, a design whose instructions take longer runs `khugepaged` earlier: each design has a
/// clock of its own.
#[test]
fn a_sweep_over_the_speed_of_instructions_is_as_many_runs() {
    let fixed = ["os.linux.khugepaged.scan_sleep_millisecs=1", "os.linux.cycles_per_ms=600"];
    let of = |cycles: &str| {
        let cycles = format!("core.cycles_per_instruction={cycles}");
        load(&[&fixed[..], &["os.clock=instructions", cycles.as_str()]].concat()).unwrap()
    };
    let machines = ["0.001", "1", "8"].map(of);
    let options = SweepOptions { threads: 1, progress: &mut |_| true };
    let swept = sweep(&machines, &mut Rows::new(grown()), options).unwrap();
    let mut large = Vec::new();
    for (machine, swept) in machines.iter().zip(swept) {
        let options = RunOptions { check: false, progress: &mut |_| true };
        let alone = machine.run(&mut Rows::new(grown()), options).unwrap();
        large.push(alone.memory.pages_by_size.get("2M").copied().unwrap_or(0));
        // A sweep does not record which code misses, so origins are not compared.
        assert!(swept.unwrap() == Results { origins: None, ..alone });
    }
    assert_eq!((large[0], large[2]), (0, 1));
}

#[test]
fn khugepaged_runs_by_the_clock() {
    let grown = grown();
    let results = |settings: &[&str]| {
        let results = run(settings, &grown);
        let linux = manager(&results).linux.clone().unwrap();
        (linux.khugepaged, results.memory.pages_by_size.get("2M").copied().unwrap_or(0))
    };
    let (asleep, large) = results(&[]);
    assert_eq!((asleep.passes, large), (0, 0), "10 s are longer than the trace");
    let soon = ["os.linux.khugepaged.scan_sleep_millisecs=1", "os.linux.cycles_per_ms=600"];
    let (awake, large) = results(&soon);
    assert!(awake.passes > 0 && large == 1, "{awake:?}");
    assert_eq!(awake.results["succeed"], 1);
    let full = [&soon[..], &["os.linux.khugepaged.max_ptes_none=0"]].concat();
    let (awake, large) = results(&full);
    assert!(large == 1 && awake.results["exceed_none_pte"] > 0, "{awake:?}");
}

/// Memory at the end of a program is recorded, with base pages in adjacent frames and with large
/// pages.
#[test]
fn the_end_of_a_program_is_kept() {
    let mut rows = vec![mapping(HEAP, 4 * MIB)];
    rows.extend(stores(HEAP, 4 * MIB, 4096));
    rows.push(Row::Event(Event::Exit { status: 0, group: true }));
    let results = run(&[], &rows);
    let end = &manager(&results).end;
    assert_eq!(manager(&results).bytes.anonymous, 0);
    assert_eq!((end.bytes.anonymous, end.mapped_by_size["2M"]), (4 * MIB, 4 * MIB));
    assert_eq!(end.runs.iter().map(|runs| runs.bytes).sum::<u64>(), 4 * MIB);
    assert!(end.runs.iter().all(|runs| runs.bytes_min >= 2 * MIB), "{:?}", end.runs);
    let base = run(&["os.manager=base", "memory.placement=7"], &rows);
    let end = &manager(&base).end;
    assert_eq!(end.runs.iter().map(|runs| runs.bytes).sum::<u64>(), 4 * MIB);
    assert!(end.runs[0].bytes_min == 4096 && end.runs[0].bytes > 3 * MIB, "{:?}", end.runs);
}

/// Place rules have the effect of madvise: they request 2M if the settings require advice, and 4K
/// if the settings would use large pages.
#[test]
fn rules_are_advice() {
    let mut rows = vec![mapping(HEAP, 8 * MIB)];
    rows.extend(stores(HEAP, 8 * MIB, 4096));
    let large = |settings: &[&str]| {
        let pages = run(settings, &rows).memory.pages_by_size;
        pages.get("2M").copied().unwrap_or(0)
    };
    let advised = "os.linux.enabled=madvise";
    assert_eq!(large(&[advised]), 0);
    assert_eq!(large(&[advised, "os.place=heap=2M"]), 4);
    let half = format!("range {HEAP:#x}..{:#x}", HEAP + 4 * MIB);
    assert_eq!(large(&[advised, &format!("os.place={half}=2M")]), 2);
    assert_eq!(large(&[&format!("os.place={half}=4K")]), 2);
    assert_eq!(large(&["os.linux.enabled=never", "os.place=heap=2M"]), 0);
}

#[test]
fn what_the_kernel_would_refuse_is_refused() {
    for (settings, expected) in [
        (
            &["os.linux.khugepaged.max_ptes_none=512"][..],
            "os.linux.khugepaged.max_ptes_none: the kernel refuses 512: a page of 2M has 512, so \
             write 0 to 511",
        ),
        (
            &["os.linux.khugepaged.pages_to_scan=0"],
            "os.linux.khugepaged.pages_to_scan: the kernel refuses 0",
        ),
        (&["os.linux.enabled=sometimes"], "os.linux.enabled: there is no `sometimes` here: write "),
        (&["os.linux.hugepages-8kB.enabled=always"], "there is no key `hugepages-8kB` here"),
        (
            &["os.linux.hugepages-64kB.enabled=yes"],
            "os.linux.hugepages-64kB.enabled: there is no `yes` here: write ",
        ),
        (
            &["os.linux.cycles_per_ms=0"],
            "os.linux.cycles_per_ms: with 0, the kernel's time would not advance",
        ),
        (
            &["os.manager=base", "os.linux.enabled=never"],
            "the manager `base` does not have the settings of os.linux: use os.manager = \"linux\"",
        ),
        (&["os.place=heap=64K"], "line 1: this machine has no pages of 64K: write one of 4K, 2M"),
        (&["os.place=heap=2M wait"], "line 1: no fault waits for a large page"),
        (&["os.page_size=2M"], "has base pages of 4K, and larger pages where os.linux allows them"),
        (
            &["os.linux.use_zero_page=2"],
            "os.linux.use_zero_page: the kernel refuses 2: write 0 or 1",
        ),
        (&["os.linux.khugepaged.defrag=7"], "os.linux.khugepaged.defrag: the kernel refuses 7"),
        (
            &["os.linux.fault_around_bytes=4194304"],
            "the kernel refuses 4194304: write 2097152 or less",
        ),
        (&["os.linux.defrag=maybe"], "os.linux.defrag: there is no `maybe` here: write "),
        (&["os.linux.compaction_proactiveness=101"], "the kernel refuses 101: write 0 to 100"),
        (&["os.linux.extfrag_threshold=1001"], "the kernel refuses 1001: write 0 to 1000"),
        (&["os.linux.watermark_scale_factor=0"], "the kernel refuses 0: write 1 to 3000"),
        (
            &["memory.size=64M", "os.linux.min_free_kbytes=65536"],
            "os.linux.min_free_kbytes: this would keep 16384 pages free, and evict pages until",
        ),
        (
            &["page_table.format=x86-pae", "os.linux.hugepages-1048576kB.enabled=always"],
            "os.linux.hugepages-1048576kB.enabled: the page table has no pages of 1G",
        ),
        (&["os.ingens.util_threshold=50"], "`linux` does not have the settings of os.ingens"),
        (
            &["os.manager=ingens", "os.hawkeye.faults=false"],
            "os.hawkeye: `ingens` and `hawkeye` both choose the blocks that become large pages",
        ),
        (&["os.manager=ingens", "os.ingens.util_threshold=0"], "write 1 to 100"),
        (&["os.manager=ingens", "os.ingens.deferred_mode=0"], "for 0, use os.manager = \"linux\""),
        (&["os.manager=ingens", "os.ingens.hot_share=0"], "0 is not a share of hot pages"),
        (&["os.manager=ingens", "os.ingens.aggressive_below=2"], "2 is not a share of free memory"),
        (&["os.manager=hawkeye", "os.hawkeye.zero_share=1.5"], "1.5 is not a share of memory"),
        (&["os.manager=ca", "os.ca.offsets_max=0"], "os.ca.offsets_max: a region needs one"),
        (
            &["os.manager=ca", "memory.allocator=size-lists"],
            "memory.allocator: os.manager = \"ca\" must know which free frames are adjacent",
        ),
        (&["os.manager=base", "os.ranger.moves=5"], "use os.manager = \"translation-ranger\""),
        (
            &[
                "os.coalesced.period_cycles=1000",
                "os.coalesced.mild_share=0.1",
                "os.coalesced.strong_after=2",
                "os.coalesced.moves=10",
            ],
            "os.coalesced: the manager `linux` has its own daemon",
        ),
        (&["page_table.format=x86-32"], "base pages of 4K and large ones of 2M"),
    ] {
        let error = load(settings).map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{settings:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
