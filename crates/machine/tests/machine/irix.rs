//! Tests the manager `irix`: pages of requested sizes, reasons for other sizes, the daemon, and
//! refill handlers per process. Without requests, `irix` does the same work as `base`.

use addr::Kind;
use machine::{
    Machine, Names, Results, RunOptions,
    results::{CodePlace, FrameName},
    sweep::{SweepOptions, sweep},
};
use trace::{Event, Origin};

use crate::support::{Row, Rows, Stream};

const HEAP: u64 = 0x4000_0000;
const MIB: u64 = 1 << 20;

fn mapping(start: u64, bytes: u64, origin: Origin) -> Row {
    let rights = if matches!(origin, Origin::File(_)) { 5 } else { 3 };
    Row::Event(Event::Mapping { start, bytes, rights, origin, offset: Some(0), file: None })
}

/// Random stores and loads over a heap of 8 MiB, and fetches of a text of 1 MiB.
fn program(seed: u64, accesses: u64) -> Vec<Row> {
    let mut stream = Stream(seed);
    let mut rows = vec![
        mapping(0x1000_0000, MIB, Origin::File("/bin/program".to_owned())),
        mapping(HEAP, 8 * MIB, Origin::Heap),
        mapping(0x7000_0000, MIB, Origin::Stack),
    ];
    for _ in 0..accesses {
        rows.push(match stream.below(8) {
            0 => Row::Access(Kind::Fetch, 0x1000_0000 + stream.below(MIB), 4),
            1 => Row::Access(Kind::Store, 0x7000_0000 + stream.below(MIB), 8),
            2..4 => Row::Access(Kind::Store, HEAP + stream.below(8 * MIB), 8),
            _ => Row::Access(Kind::Load, HEAP + stream.below(8 * MIB), 8),
        });
    }
    rows
}

fn load(machine: &str, settings: &[&str]) -> Result<Machine, String> {
    let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    Machine::load(machine, &settings).map_err(|error| error.to_string())
}

fn run(machine: &str, settings: &[&str], rows: &[Row]) -> Result<Results, String> {
    let machine = load(machine, settings)?;
    let options = RunOptions { check: true, progress: &mut |_| true };
    machine.run(&mut Rows::new(rows.to_vec()), options).map_err(|error| error.to_string())
}

fn manager(results: &Results) -> &machine::results::ManagerCounts {
    results.manager.as_ref().unwrap()
}

#[test]
fn larger_pages_have_fewer_misses_and_every_wish_its_reason() {
    let rows = program(1, 30_000);
    let mut misses = Vec::new();
    for size in ["16K", "64K", "256K", "1M"] {
        let place = format!("os.place=heap={size},text={size}");
        let results = run("origin-2000", &[&place], &rows).unwrap();
        misses.push(results.tlbs[0].total.misses);
        let wished: u64 = manager(&results).sizes.iter().map(|row| row.pages).sum();
        let bytes: u64 = match size {
            "16K" => 0,
            _ => {
                9 * MIB
                    / [("64K", 64), ("256K", 256), ("1M", 1024)]
                        .iter()
                        .find_map(|(name, kib)| (*name == size).then_some(kib << 10))
                        .unwrap()
            }
        };
        assert_eq!(wished, bytes, "{size}: {:?}", manager(&results).sizes);
    }
    assert!(misses.is_sorted_by(|more, fewer| more > fewer), "{misses:?}");
}

#[test]
fn without_wishes_it_is_the_manager_base() {
    let rows = program(2, 20_000);
    let tight = ["memory.size=4M", "swap.size=64M"];
    for settings in [&[][..], &tight[..]] {
        let with = |manager: &str| {
            let manager = format!("os.manager={manager}");
            let settings: Vec<&str> = settings
                .iter()
                .copied()
                .chain([manager.as_str(), "memory.allocator=buddy"])
                .collect();
            run("origin-2000", &settings, &rows).unwrap()
        };
        let (irix, base) = (with("irix"), with("base"));
        assert_eq!(manager(&irix).work, manager(&base).work);
        assert_eq!(manager(&irix).faults, manager(&base).faults);
        assert_eq!(irix.tlbs[0].total.misses, base.tlbs[0].total.misses);
        assert_eq!(irix.walks.references, base.walks.references);
    }
}

/// In a trace with pages of 4K, a mapping may begin inside a base page of another mapping. Both
/// mappings exist, with their requested sizes.
#[test]
fn mappings_may_share_a_base_page() {
    let start = 0x7000_0000;
    let file = "/bin/program".to_owned();
    let rows = [
        mapping(start, 0x1000, Origin::Other("guard".to_owned())),
        mapping(start + 0x1000, 0x8_0000 - 0x1000, Origin::Stack),
        mapping(start + 0x20_0000, 0x1000, Origin::File("/bin/other".to_owned())),
        mapping(start + 0x20_1000, 0x8_0000 - 0x1000, Origin::File(file)),
    ];
    let touched = (0..0x8_0000).step_by(0x1000).skip(1).flat_map(|into| {
        let fetch = Row::Access(Kind::Fetch, start + 0x20_0000 + into, 4);
        [Row::Access(Kind::Store, start + into, 8), fetch]
    });
    let rows: Vec<Row> = rows.into_iter().chain(touched).collect();
    let results = run("origin-2000", &["os.place=stack=64K,lib program=64K"], &rows).unwrap();
    let sizes = &manager(&results).sizes;
    assert_eq!(sizes.iter().map(|row| row.pages).sum::<u64>(), 16, "{sizes:?}");
    assert!(sizes.iter().all(|row| row.got == "64K"), "{sizes:?}");
    assert_eq!(manager(&results).unexplained, 0);
}

/// `first-touch` accepts requests for 2M, like madvise, and refuses requests that it cannot
/// satisfy.
#[test]
fn first_touch_has_large_pages_where_they_are_wished() {
    let heap = 0x4000_0000;
    let told = [
        mapping(heap, 8 * MIB, Origin::Heap),
        mapping(0x5000_0000, 8 * MIB, Origin::Other("anonymous".to_owned())),
        mapping(0x7000_0000, 8 * MIB, Origin::Stack),
    ];
    let touched = [heap, 0x5000_0000, 0x7000_0000].into_iter().flat_map(|start| {
        (0..8 * MIB).step_by(4096).map(move |into| Row::Access(Kind::Store, start + into, 8))
    });
    let rows: Vec<Row> = told.into_iter().chain(touched).collect();
    let pages = |settings: &[&str]| {
        let by_size = run("opteron-2008", settings, &rows).unwrap().memory.pages_by_size;
        ["4K", "2M"].map(|size| by_size.get(size).copied().unwrap_or(0))
    };
    let of = |mib: u64| mib * MIB / 4096;
    assert_eq!(pages(&[]), [of(24), 0]);
    assert_eq!(pages(&["os.place=heap=2M"]), [of(16), 4]);
    assert_eq!(pages(&["os.place=heap=2M,mmap=2M,stack=4K"]), [of(8), 8]);
    assert_eq!(pages(&["os.page_size=2M", "os.place=stack=4K"]), [of(8), 8]);
    // A block that the range covers only in part gets base pages.
    assert_eq!(pages(&["os.place=range 0x40000000..0x40300000=2M"]), [of(22), 1]);
    assert_eq!(pages(&["os.place=heap=2M,range 0x40000000..0x40100000=4K"]), [of(18), 3]);
    for (settings, expected) in [
        (&["os.place=heap=64K"][..], "this machine has no pages of 64K: write one of 4K, 2M"),
        (&["os.place=stack=4K,heap=2M wait"], "line 1: the manager `first-touch` has no daemon"),
        (&["os.place=heap=2M", "os.uniform=true"], "os.uniform gives all pages one size"),
        (&["os.place=heap=2M", "os.manager=solaris"], "there is no `solaris`: choose"),
    ] {
        let error = load("opteron-2008", settings).err().unwrap_or_default();
        assert!(error.contains(expected), "{settings:?}: {error}");
    }
    let error = run("opteron-2008", &["os.place=bss=2M"], &rows).err().unwrap_or_default();
    assert!(error.contains("line 1: no mapping is bss"), "{error}");
}

/// Stores to all of a heap of 32 MiB, in which two sites allocate 8 MiB each, from 4 MiB on. (G98
/// section 6.3: only a process that requests several sizes pays for the page-mask register.)
fn sites() -> Vec<Row> {
    const PROGRAM: u64 = 0x1000_0000;
    let allocate = |site: u64| {
        let addr = HEAP + (4 + 8 * site) * MIB;
        Row::Event(Event::Allocate { addr, bytes: 8 * MIB, site: site as u32 })
    };
    let site = |number: u32, offsets: [u64; 2]| {
        Row::Event(Event::Site { number, stack: offsets.map(|offset| PROGRAM + offset).to_vec() })
    };
    let mut rows = vec![
        mapping(PROGRAM, MIB, Origin::File("/bin/program".to_owned())),
        mapping(HEAP, 32 * MIB, Origin::Heap),
        site(0, [10, 30]),
        allocate(0),
        site(1, [20, 30]),
        allocate(1),
    ];
    let pages = (0..32 * MIB).step_by(4096);
    rows.extend(pages.map(|offset| Row::Access(Kind::Store, HEAP + offset, 8)));
    rows
}

#[test]
fn a_rule_may_name_the_line_that_allocates() {
    let rows = sites();
    // The code at offset 10 belongs to line 1 of `table.c`, at 20 to line 2 of `list.c`, and at 30
    // to line 3 of `main.c`.
    let find = |place: &CodePlace, is_return: bool| {
        assert!(is_return && place.object.as_deref() == Some("/bin/program"));
        let (file, line) =
            [("table.c", 1), ("list.c", 2), ("main.c", 3)][place.offset as usize / 10 - 1];
        let file = Some(format!("/home/one/{file}"));
        vec![FrameName { function: None, file, line: Some(line) }]
    };
    let large = |machine: &str, place: &str| {
        let machine = load(machine, &[&format!("os.place={place}")]).unwrap();
        let machine = machine.with_names(Names::new(find));
        let options = RunOptions { check: true, progress: &mut |_| true };
        let results = machine.run(&mut Rows::new(rows.clone()), options);
        results.map(|results| results.memory.pages_by_size).map_err(|error| error.to_string())
    };
    for (place, pages) in [
        ("site table.c:1=1M", 8),
        ("site one/list.c:2=1M", 8),
        // Both blocks were allocated by functions that line 3 calls.
        ("site main.c:3=1M", 16),
        // A range wins over a site, and a site over a region.
        ("site main.c:3=1M,range 0x40400000..0x40600000=16K", 14),
        ("site table.c:1=16K,heap=1M", 24),
    ] {
        assert_eq!(large("origin-2000", place).unwrap()["1M"], pages, "{place}");
    }
    assert_eq!(large("epyc-9005", "site list.c:2=2M").unwrap()["2M"], 4);
    assert_eq!(large("epyc-9005", "heap=2M,site list.c:2=4K").unwrap()["2M"], 12);
    for machine in ["origin-2000", "epyc-9005"] {
        let size = if machine == "epyc-9005" { "2M" } else { "64K" };
        let wrong = large(machine, &format!("site table.c:2={size}")).unwrap_err();
        let expected = "no mapping is allocated at table.c:2";
        assert!(wrong.contains(expected) && wrong.contains("--allocations"), "{wrong}");
    }
}

#[test]
fn each_process_has_the_handler_that_it_needs() {
    let rows = program(3, 10_000);
    let instructions = |settings: &[&str]| {
        let results = run("origin-2000", settings, &rows).unwrap();
        let walks = results.walks;
        (walks.handler_instructions.unwrap(), walks.walks)
    };
    let (own, walks) = instructions(&[]);
    let (always, same) = instructions(&["walker.page_mask=always"]);
    assert_eq!(walks, same);
    assert_eq!(always, own + 3 * walks);
    let (asked, walks) = instructions(&["os.place=heap=16K"]);
    let (always, same) = instructions(&["os.place=heap=16K", "walker.page_mask=always"]);
    assert_eq!((asked, walks), (always, same));
}

#[test]
fn a_rule_that_nothing_was_mapped_for_is_an_error_in_a_run_and_in_a_sweep() {
    let rows = program(5, 100);
    let [heap, bss] = ["os.place=heap=64K", "os.place=bss=64K"];
    let alone = run("origin-2000", &[bss], &rows).unwrap_err();
    assert!(alone.contains("os.place: line 1: no mapping is bss"), "{alone}");
    let machines = [heap, bss].map(|rules| load("origin-2000", &[rules]).unwrap());
    let options = SweepOptions { threads: 1, progress: &mut |_| true };
    let [met, unmet] = sweep(&machines, &mut Rows::new(rows), options).unwrap().try_into().unwrap();
    assert!(met.is_ok());
    assert_eq!(unmet.unwrap_err(), alone);
}

#[test]
fn under_pressure_large_pages_leave_and_come_back() {
    let rows = program(4, 20_000);
    let settings = ["memory.size=6M", "swap.size=64M", "os.place=data=64K"];
    let results = run("origin-2000", &settings, &rows).unwrap();
    let work = &manager(&results).work;
    assert!(work["large_out"] > 20 && work["writes"] > 100, "{work:?}");
    let of = |why: &str| {
        let rows = manager(&results).sizes.iter().filter(|row| row.why == why);
        rows.map(|row| row.pages).sum::<u64>()
    };
    assert!(of("obtained") > 20, "{:?}", manager(&results).sizes);
}

#[test]
fn the_daemon_makes_large_pages_of_aged_memory() {
    let rows = program(5, 40_000);
    let aged = "memory.aged={free=0.5,wired=0.05,seed=7}";
    let obtained = |daemon: &[&str]| {
        let settings: Vec<&str> = ["memory.size=64M", aged, "os.place=heap=1M"]
            .into_iter()
            .chain(daemon.iter().copied())
            .collect();
        let results = run("origin-2000", &settings, &rows).unwrap();
        let rows = manager(&results).sizes.iter();
        let pages: u64 = rows.filter(|row| row.got == "1M").map(|row| row.pages).sum();
        (pages, results)
    };
    let level = |level: &str| {
        format!(
            "os.coalesced={{period_cycles=2000,mild_share=0.3,strong_after=2,level=\"{level}\",moves=2000}}"
        )
    };
    let (none, _) = obtained(&[]);
    let (weak, _) = obtained(&[&level("weak")]);
    let (mild, _) = obtained(&[&level("mild")]);
    let (strong, results) = obtained(&[&level("strong")]);
    assert!(none <= weak && weak <= mild && mild <= strong, "{none} {weak} {mild} {strong}");
    assert!(strong > weak, "{weak} {strong}");
    let daemon = manager(&results).daemon.as_ref().unwrap();
    assert!(daemon.levels["strong"].made > 0, "{daemon:?}");
    let moved: u64 = daemon.over_time.iter().map(|sample| sample.moved).sum();
    assert_eq!(moved, manager(&results).work["migrations"]);
}

#[test]
fn watermarks_of_zero_are_base_pages() {
    let rows = program(6, 10_000);
    let zero = "os.coalesced={period_cycles=1000,mild_share=0.3,strong_after=2,moves=100,\
                watermarks={\"64K\"=\"0B\",\"256K\"=\"0B\",\"1M\"=\"0B\",\"4M\"=\"0B\",\"16M\"=\"0B\"}}";
    let results = run("origin-2000", &["os.place=heap=64K", zero], &rows).unwrap();
    let base = run("origin-2000", &["os.place=heap=16K"], &rows).unwrap();
    let work = &manager(&results).work;
    assert_eq!((work["migrations"], work["joins"], work["chunks_scanned"]), (0, 0, 0));
    assert_eq!(results.tlbs[0].total.misses, base.tlbs[0].total.misses);
    assert!(manager(&results).sizes.iter().all(|row| row.got == "16K"));
}

#[test]
fn a_process_waits_for_the_daemon() {
    let rows = program(7, 10_000);
    let aged = "memory.aged={free=0.5,wired=0.05,seed=7}";
    let no_frame = |rule: &str| {
        let place = format!("os.place=heap=1M {rule}");
        let results = run("origin-2000", &["memory.size=64M", aged, &place], &rows).unwrap();
        let obtained = manager(&results).sizes.iter().filter(|row| row.why == "obtained");
        (obtained.map(|row| row.pages).sum::<u64>(), manager(&results).work["waits"])
    };
    let (without, waits) = no_frame("fallback");
    assert_eq!(waits, 0);
    let (with, waits) = no_frame("wait 1s");
    assert!(waits > 0 && with > without, "{with} {without}");
}

#[test]
fn advice_in_a_trace_is_a_wish() {
    let mut rows = program(8, 5_000);
    let advise =
        |advice| Row::Event(Event::Madvise { addr: HEAP, bytes: 8 * MIB, advice, result: 0 });
    rows.insert(3, advise(14));
    let results = run("origin-2000", &[], &rows).unwrap();
    let [row] = &manager(&results).sizes[..] else { panic!("{:?}", manager(&results).sizes) };
    assert_eq!((row.got.as_str(), row.pages), ("1M", 8));
    // The program calls MADV_COLLAPSE (25) when all pages are in memory as base pages.
    let mut rows = program(8, 5_000);
    rows.push(advise(25));
    rows.extend(program(9, 2_000).into_iter().skip(3));
    let results = run("origin-2000", &[], &rows).unwrap();
    assert_eq!(manager(&results).work["upgrades"], 8, "{:?}", manager(&results).upgrades);
}

#[test]
fn what_is_wrong_is_said() {
    for (settings, expected) in [
        (&["os.place=heap=2M"][..], "os.place: line 1: this machine has no pages of 2M"),
        (&["os.place=heap=64K,heap=1M"], "overlaps"),
        (
            &["os.manager=base", "os.place=heap=64K"],
            "the manager `base` ignores requests for page sizes",
        ),
        (
            &[
                "os.manager=base",
                "os.coalesced={period_cycles=1,mild_share=0.1,strong_after=1,moves=1}",
            ],
            "the manager `base` has no daemon that makes large free blocks: use os.manager = \"irix\"",
        ),
        (&["os.page_size=64K"], "os.page_size"),
        (&["memory.allocator=slab"], "there is no allocator `slab`"),
        (
            &["os.coalesced={period_cycles=1,mild_share=2.0,strong_after=1,moves=1}"],
            "write a share of a chunk from 0 to 1",
        ),
        (
            &[
                "os.coalesced={period_cycles=1,mild_share=0.1,strong_after=1,moves=1,watermarks={\"64K\"=\"1T\"}}",
            ],
            "all watermarks together are 1099511627776 bytes, more than memory.size, 536870912 bytes: \
             lower them",
        ),
        (
            &[
                "os.coalesced={period_cycles=1,mild_share=0.1,strong_after=1,moves=1,watermarks={\"2M\"=\"4M\"}}",
            ],
            "there is no list of free pages of 2M: write one of 64K, 256K, 1M, 4M, 16M",
        ),
    ] {
        let error = load("origin-2000", settings).err().unwrap_or_default();
        assert!(error.contains(expected), "{settings:?}: {error}");
    }
    let error = run("origin-2000", &["os.place=data=64K,region nowhere=64K"], &program(1, 100));
    let error = error.err().unwrap_or_default();
    assert!(error.contains("line 1: no mapping is the region nowhere"), "{error}");
}
