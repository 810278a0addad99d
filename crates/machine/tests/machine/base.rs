//! Tests the manager `base` under every page-table format: every access is checked, and so is the
//! amount of memory that is freed.

use addr::Kind;
use machine::{Machine, Results, RunOptions};
use trace::{Call, Descriptor, Event, FileId, FileKind, Origin};

use crate::support::{Row, Rows, Stream, TABLES, run};

const BASE: u64 = 0x4000_0000;
const PAGES: u64 = 64;

fn addr(page: u64) -> u64 {
    BASE + page * 4096
}

fn mmap(page: u64, pages: u64, flags: u32, file: Option<u64>) -> Event {
    Event::Mmap {
        addr: addr(page),
        bytes: pages * 4096,
        prot: 3,
        flags,
        fd: file.map_or(-1, |file| file as i32),
        offset: 0,
        path: None,
        file: file.map(|inode| FileId { device: 1, inode, bytes: 1 << 20 }),
        result: addr(page) as i64,
    }
}

/// Random mappings, private and shared, in two spaces, with accesses at random addresses.
fn life(seed: u64, steps: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut rows = Vec::new();
    for _ in 0..steps {
        let first = stream.below(PAGES);
        let count = 1 + stream.below((PAGES - first).min(12));
        let (start, bytes) = (addr(first), count * 4096);
        let event = match stream.below(80) {
            0 => Event::Munmap { addr: start, bytes, result: 0 },
            1 => mmap(first, count, 0x22, None),
            2 => mmap(first, count, 0x21, None),
            3 => mmap(first, count, 2, Some(stream.below(2))),
            4 => mmap(first, count, 1, Some(stream.below(2))),
            5 => Event::Mprotect { addr: start, bytes, prot: stream.below(8) as u32, result: 0 },
            6 => Event::Madvise { addr: start, bytes, advice: 4, result: 0 },
            7 => {
                let to = addr(PAGES * 2 + stream.below(PAGES));
                let result = to as i64;
                let (old_bytes, new_bytes) = (bytes, bytes + 4096);
                Event::Mremap { addr: start, old_bytes, new_bytes, flags: 3, new_addr: to, result }
            }
            8 => {
                let now = addr(PAGES + 10) + stream.below(40) * 1024;
                Event::Brk { addr: now, result: now as i64 }
            }
            9 => Event::Mlock { addr: start, bytes: 4096, flags: 0, result: 0 },
            10 | 11 => Event::Munlock { addr: BASE, bytes: 4096 * PAGES, result: 0 },
            12 => Event::Exit { status: 0, group: true },
            13..17 => Event::Run { cpu: None, space: stream.below(3) as u32 },
            _ => {
                let page = stream.below(PAGES + 20);
                let kind = Kind::ALL[stream.below(3) as usize];
                rows.push(Row::Access(kind, addr(page) + stream.below(4000), 8));
                continue;
            }
        };
        rows.push(Row::Event(event));
    }
    rows
}

fn marks(kib: u64) -> String {
    format!("os.marks={{min=\"{kib}K\", low=\"{kib}K\", high=\"{kib}K\"}}")
}

fn count(results: &Results, how: &str) -> u64 {
    results.manager.as_ref().unwrap().faults[how]
}

fn work(results: &Results, kind: &str) -> u64 {
    results.manager.as_ref().unwrap().work[kind]
}

#[test]
fn every_page_table_and_policy_under_pressure() {
    for (seed, table) in (1..).zip(TABLES) {
        let policy = ["clock", "lru", "2q"][seed as usize % 3];
        println!("seed {seed}: {table:?} {policy}");
        let policy = format!("os.replacement={policy}");
        let own =
            ["os.manager=base", "memory.size=32M", "swap.size=64M", "swap.io_cycles=1", &policy];
        let small = ["page_table.format=x86-64", "tlb.l1.entries=4", "tlb.l1.paired=false"];
        let settings = [&small[..], table, &own].concat();
        let rows = life(seed, 3000);
        let tables = run("r4700", &settings, &rows).memory.table_bytes;
        // The low mark reserves all memory except the tables' size and 40 pages, which is less than
        // the number of pages.
        let kept = (32 << 20) - tables - (128 << 10) - 40 * 4096;
        let marks = marks(kept >> 10);
        let results = run("r4700", &[&settings[..], &[&marks]].concat(), &rows);
        let swapped = count(&results, "swap");
        assert!(swapped > 10, "{swapped}: memory was not scarce");
        let answered: u64 = results.manager.as_ref().unwrap().faults.values().sum();
        assert!(answered > 100, "{answered}");
    }
}

#[test]
fn hardware_bits_and_processors() {
    for machine in ["epyc-9005", "xeon-6900p"] {
        for processors in ["core.count=1", "core.count=2"] {
            let own = ["os.manager=base", "memory.size=8M", "swap.size=64M", "swap.io_cycles=1"];
            let marks = marks((8 << 10) - 400);
            let results = run(machine, &[&own[..], &[processors, &marks]].concat(), &life(5, 4000));
            assert!(count(&results, "swap") > 0, "{machine}: memory was not scarce");
        }
    }
}

/// Stores to each page of a region, in several rounds.
fn rounds(pages: u64, rounds: u64) -> Vec<Row> {
    let mut rows = vec![Row::Event(mmap(0, pages, 0x22, None))];
    for _ in 0..rounds {
        rows.extend((0..pages).map(|page| Row::Access(Kind::Store, addr(page), 8)));
    }
    rows
}

#[test]
fn less_memory_means_more_swap() {
    let mut before = None;
    for kib in [4800, 3200, 2400, 1200] {
        let size = format!("memory.size={kib}K");
        let own = ["os.manager=base", "swap.size=16M", "swap.io_cycles=1000", &size];
        let results = run("epyc-9005", &own, &rounds(1000, 4));
        let reads = work(&results, "reads");
        assert_eq!(count(&results, "zero"), 1000, "a page begins once");
        assert_eq!(count(&results, "swap"), reads, "nothing is lost");
        assert!(before.is_none_or(|before| before <= reads), "{kib}K: {reads}");
        assert_eq!(before.is_some(), reads > 0, "all of it fits into 4800K only");
        before = Some(reads);
        let manager = results.manager.as_ref().unwrap();
        let sizes: u64 = manager.page_sizes.iter().flat_map(|sizes| sizes.pages.values()).sum();
        assert_eq!(sizes, 1000 + reads);
        assert!(manager.over_time.len() > 10);
    }
}

#[test]
fn files_are_in_memory_once_and_stores_are_private() {
    let mut rows = Vec::new();
    for space in 0..3 {
        rows.push(Row::Event(Event::Run { cpu: None, space }));
        rows.push(Row::Event(mmap(0, 100, 2, Some(7))));
        rows.extend((0..100).map(|page| Row::Access(Kind::Load, addr(page), 8)));
        rows.extend((0..10).map(|page| Row::Access(Kind::Store, addr(page), 8)));
    }
    let results = run("epyc-9005", &["os.manager=base"], &rows);
    assert_eq!(count(&results, "disk"), 100);
    assert_eq!(count(&results, "cache"), 200);
    assert_eq!(count(&results, "copy"), 30);
    let bytes = results.manager.unwrap().bytes;
    assert_eq!((bytes.file, bytes.anonymous), (100 * 4096, 30 * 4096));
    assert_eq!(results.memory.mapped_bytes, 130 * 4096);
}

/// The parts of a file that calls read and write are in the page cache, so that mappings of the
/// file find them there.
#[test]
fn calls_fill_the_page_cache() {
    let call = |name: &str, offset: u64, bytes: i64, kind: FileKind| {
        let file = FileId { device: 1, inode: 7, bytes: 1 << 20 };
        let about = Descriptor { fd: 3, kind, file, nonblocking: false };
        let call = Call {
            name: name.to_owned(),
            result: bytes,
            fd: Some(3),
            descriptors: vec![about],
            offset: Some(offset),
            ..Call::default()
        };
        Row::Event(Event::Call(Box::new(call)))
    };
    let rows = [
        call("read", 100, 3 * 4096, FileKind::Regular),
        call("read", 0, -1, FileKind::Regular),
        call("write", 0, 9, FileKind::Pipe),
        call("lseek", 0, 1 << 20, FileKind::Regular),
        Row::Event(mmap(0, 100, 2, Some(7))),
        Row::Access(Kind::Load, addr(3), 8),
        Row::Access(Kind::Load, addr(4), 8),
        // Before a write, a page that is written in part must be read; a page that is written as a
        // whole need not be.
        call("pwrite64", 10 * 4096, 2 * 4096, FileKind::Regular),
        call("write", 20 * 4096 + 1, 8, FileKind::Regular),
    ];
    let results = run("epyc-9005", &["os.manager=base"], &rows);
    assert_eq!((count(&results, "cache"), count(&results, "disk")), (1, 1));
    assert_eq!((work(&results, "reads"), work(&results, "writes")), (4 + 1 + 1, 0));
    assert_eq!(results.manager.unwrap().bytes.file, 8 * 4096);
    // Dirty pages are written to disk when they are evicted.
    let mut rows = rows.to_vec();
    rows.extend(rounds(1000, 1));
    let small = ["os.manager=base", "memory.size=2400K", "swap.size=4M", "swap.io_cycles=1"];
    assert!(work(&run("epyc-9005", &small, &rows), "writes") >= 3);
}

/// In aged memory the free frames are in pieces. If these pieces are small, few pages are large.
#[test]
fn an_aged_memory_has_few_large_frames() {
    let rows = rounds(16 << 9, 1);
    let large = |settings: &[&str]| {
        let all = [&["os.page_size=2M", "memory.size=256M"][..], settings].concat();
        let memory = run("epyc-9005", &all, &rows).memory;
        let pages = memory.pages_by_size.get("2M").copied().unwrap_or(0);
        (pages, memory.aged_bytes)
    };
    assert_eq!(large(&[]), (16, 0));
    assert_eq!(large(&["memory.aged={free=0.5, wired=0.1, seed=1}"]), (0, 128 << 20));
    let (_, aged) =
        large(&["memory.aged={free=0.75, wired=0.0, seed=1}", "os.manager=first-touch"]);
    assert_eq!(aged, 64 << 20);
    let base = ["os.manager=base", "memory.size=256M", "memory.aged={free=0.5, wired=0.1, seed=1}"];
    assert_eq!(run("epyc-9005", &base, &rows).memory.aged_bytes, 128 << 20);
}

#[test]
fn what_cannot_be_is_told() {
    for (settings, said) in [
        (&["os.replacement=fifo"][..], "choose clock, lru, 2q"),
        (&["os.page_size=2M"], "has base pages of 4K"),
        (&["os.base_page=16K"], "base pages of 16K are larger than the pages of 4K"),
        (&["os.base_page=1G", "os.page_size=2M"], "set os.page_size = \"1G\" or larger"),
        (&["os.marks={min=\"2M\", low=\"1M\", high=\"4M\"}"], "`min`, 2M, is more than `low`, 1M"),
        (&["os.marks={min=\"2T\", low=\"2T\", high=\"2T\"}"], "is more than `memory.size`"),
        (&["memory.aged={free=0.6, wired=0.6, seed=1}", "memory.size=1G"], "more than all"),
        (&["memory.aged={free=1.5, wired=0, seed=1}", "memory.size=1G"], "shares"),
        (&["memory.aged={free=0.5, wired=0, seed=1}"], "at most 16G"),
        (&["swap.size=100T", "swap.io_cycles=1"], "4294967295 pages"),
    ] {
        let settings = [&["os.manager=base"][..], settings].concat();
        let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
        let error = Machine::load("epyc-9005", &settings).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let tlb_only = Machine::load("tlb-only", &["os.manager=base".to_owned()]);
    assert!(tlb_only.unwrap_err().to_string().contains("no frames"));
}

#[test]
fn all_wired_ends_a_run_with_an_error() {
    let mut rows = rounds(1000, 1);
    rows.insert(1, Row::Event(Event::Mlockall { flags: 3, result: 0 }));
    let settings = ["os.manager=base", "memory.size=2M", "swap.size=16M", "swap.io_cycles=1"];
    let settings: Vec<String> = settings.iter().map(|text| (*text).to_owned()).collect();
    let machine = Machine::load("epyc-9005", &settings).unwrap();
    let options = RunOptions { check: true, progress: &mut |_| true };
    let error = machine.run(&mut Rows::new(rows), options).unwrap_err().to_string();
    assert!(error.contains("out of memory") && error.contains("1904K are wired"), "{error}");
}

#[test]
fn what_was_mapped_before_the_first_access_is_a_file_or_zeros() {
    let mapping = |page: u64, origin, file: Option<u64>| {
        Row::Event(Event::Mapping {
            start: addr(page),
            bytes: 8 * 4096,
            rights: 7,
            origin,
            offset: file.map(|_| 4096),
            file: file.map(|inode| FileId { device: 1, inode, bytes: 1 << 20 }),
        })
    };
    let rows = [
        mapping(0, Origin::File("/bin/x".to_owned()), Some(3)),
        mapping(8, Origin::Stack, None),
        Row::Access(Kind::Fetch, addr(1), 4),
        Row::Access(Kind::Store, addr(9), 8),
        // No mapping explains this access, but the program made it, so it is run.
        Row::Access(Kind::Load, addr(40), 8),
    ];
    let results = run("epyc-9005", &["os.manager=base"], &rows);
    assert_eq!((count(&results, "disk"), count(&results, "zero")), (1, 2));
    let manager = results.manager.as_ref().unwrap();
    assert_eq!(manager.unexplained, 1);
    let names: Vec<&str> = manager.page_sizes.iter().map(|sizes| sizes.region.as_str()).collect();
    let regions: Vec<&str> = results.regions.iter().map(|region| region.name.as_str()).collect();
    assert_eq!(names, regions);
    assert_eq!(names, ["x (rwx)", "stack", "around 0x40028000"]);
}

/// Each kind of work has its price. The cycles of the work are in `time`, and advance the clock.
#[test]
fn work_is_priced() {
    let kinds = [
        "traps",
        "calls",
        "region_lookups",
        "object_lookups",
        "frames_taken",
        "frames_given",
        "descriptors",
        "table_reads",
        "table_writes",
        "mappings",
        "zeroed",
        "copied",
    ];
    // Each kind of work has a different price, so that no two kinds can be confused.
    let prices = || (0..).zip(kinds).map(|(place, kind)| (kind, 3 + 7 * place));
    let given: Vec<String> =
        prices().map(|(kind, price)| format!("os.costs.work.{kind}={price}")).collect();
    let own = [
        "os.manager=base",
        "memory.size=2400K",
        "swap.size=16M",
        "swap.io_cycles=1000",
        "swap.page_cycles=10",
        "os.costs.work.source=here",
    ];
    let settings: Vec<&str> = own.into_iter().chain(given.iter().map(String::as_str)).collect();
    let mut rows = rounds(1000, 3);
    rows.push(Row::Event(Event::Munmap { addr: BASE, bytes: 1 << 20, result: 0 }));
    let results = run("epyc-9005", &settings, &rows);
    let (manager, time) = (results.manager.clone().unwrap(), results.time.clone().unwrap());
    let kernel = time.kernel.unwrap();
    for (kind, price) in prices() {
        assert_eq!(kernel.by_work[kind], manager.work[kind] * price, "{kind}");
        assert_eq!(manager.cycles[kind], kernel.by_work[kind]);
    }
    assert!(manager.work["descriptors"] > 0 && manager.work["frames_given"] > 0);
    assert_eq!(kernel.by_work.values().sum::<u64>(), kernel.cycles);
    let (transfers, requests) =
        (manager.work["reads"] + manager.work["writes"], manager.io_requests);
    assert!(0 < requests && requests < transfers, "{requests} requests of {transfers} pages");
    let io_cycles = requests * 1000 + transfers * 10;
    assert_eq!((kernel.io_cycles, manager.io_cycles), (io_cycles, io_cycles));
    assert!(kernel.share.lo > 0.5 && kernel.share.hi <= 1.0, "{:?}", kernel.share);
    // If the kinds of work have no prices, each fault has one price.
    let keys = ["shootdown_send", "shootdown_receive", "flush_page", "flush_space", "walk"];
    let rest = ["fault", "switch"];
    let costs = keys.into_iter().chain(rest).map(|key| format!("os.costs.{key}_cycles=700"));
    let costs: Vec<String> = costs.collect();
    let costs: Vec<&str> = costs.iter().map(String::as_str).collect();
    let plain = [&own[..4], &costs, &["os.costs.source=here"]].concat();
    let plain = run("opteron-2008", &plain, &rows);
    let faults: u64 = plain.manager.unwrap().faults.values().sum();
    let plain = plain.time.unwrap().kernel.unwrap();
    assert_eq!(plain.by_work["faults"], faults * 700);
    assert!(!plain.by_work.contains_key("traps"));
    let first_touch = run("epyc-9005", &["os.manager=first-touch"], &rows).time.unwrap();
    assert_eq!(first_touch.kernel.unwrap().by_work["faults"], 1000 * 1000);
    assert!(run("r4700", &[], &rounds(3, 1)).time.is_none_or(|time| time.kernel.is_none()));
}

/// With a disk but without swap, reading files takes time, and pages without a file stay in memory.
#[test]
fn a_disk_may_have_files_alone() {
    let rows = [
        Row::Event(mmap(0, 100, 2, Some(7))),
        Row::Access(Kind::Load, addr(3), 8),
        Row::Access(Kind::Load, addr(4), 8),
    ];
    let results = run("epyc-9005", &["os.manager=base", "swap.io_cycles=500"], &rows);
    assert_eq!(results.manager.unwrap().io_cycles, 1000);
    let note =
        |results: &Results, part: &str| results.not_modelled.iter().any(|note| note.contains(part));
    let unused = run("epyc-9005", &["swap.io_cycles=500"], &rows);
    assert!(note(&unused, "[swap]: this manager"));
}
