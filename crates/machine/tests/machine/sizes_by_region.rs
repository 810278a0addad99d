//! Tests that decisions about page sizes are reported for the regions to which misses are
//! attributed, however the memory manager has divided or merged the mappings.

use addr::Kind;
use machine::{
    Machine, Results, RunOptions,
    results::{FrameName, SizeDecision},
};
use trace::{Event, Origin};

use crate::support::{Row, Rows, process};

const MIB: u64 = 1 << 20;
const PROGRAM: u64 = 0x1000_0000;
const AREA: u64 = 0x4000_0000;
const ANONYMOUS: u32 = 0x22;
const HUGEPAGE: u32 = 14;
const COLLAPSE: u32 = 25;

fn mmap(start: u64, bytes: u64) -> Row {
    Row::Event(Event::Mmap {
        addr: 0,
        bytes,
        prot: 3,
        flags: ANONYMOUS,
        fd: -1,
        offset: 0,
        path: None,
        file: None,
        result: start as i64,
    })
}

fn advice(addr: u64, bytes: u64, advice: u32) -> Row {
    Row::Event(Event::Madvise { addr, bytes, advice, result: 0 })
}

fn stores(start: u64, bytes: u64) -> impl Iterator<Item = Row> {
    (start..start + bytes).step_by(4096).map(|addr| Row::Access(Kind::Store, addr, 8))
}

/// A program with allocation sites at lines 0, 1 and so on. 5 MiB are mapped for the first site,
/// and 3 MiB next to them for the second. One page of each part is used before the allocation is
/// recorded, and then all pages are.
fn program() -> Vec<Row> {
    let origin = Origin::File("/bin/program".to_owned());
    let (start, bytes) = (PROGRAM, MIB);
    let mut rows = vec![Row::Event(Event::Mapping {
        start,
        bytes,
        rights: 5,
        origin,
        offset: Some(0),
        file: None,
    })];
    for (site, (into, mebibytes)) in (0..).zip([(0, 5), (5, 3)]) {
        let (addr, bytes) = (AREA + into * MIB, mebibytes * MIB);
        rows.push(Row::Event(Event::Site { number: site, stack: vec![PROGRAM + u64::from(site)] }));
        rows.push(mmap(addr, bytes));
        rows.push(advice(addr, bytes, HUGEPAGE));
        rows.push(Row::Access(Kind::Store, addr, 8));
        rows.push(Row::Event(Event::Allocate { addr: addr + 16, bytes: bytes - 16, site }));
    }
    rows.extend(stores(AREA, 8 * MIB));
    rows
}

fn run(settings: &[&str], mut rows: Rows) -> Results {
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    let machine = Machine::load("opteron-2008", &settings).unwrap();
    let options = RunOptions { check: true, progress: &mut |_| true };
    let mut results = machine.run(&mut rows, options).unwrap();
    results.name_origins(&mut |place, _| {
        let (file, line) = (Some("own.c".to_owned()), Some(place.offset as u32));
        vec![FrameName { function: None, file, line }]
    });
    results
}

/// Until a forked child runs, its space has the regions of its parent, and the daemon's decisions
/// are reported for them.
#[test]
fn what_a_daemon_does_to_a_new_child_is_of_its_parents_region() {
    let mut rows = vec![mmap(AREA, MIB)];
    rows.extend(stores(AREA, MIB));
    rows.push(mmap(AREA + MIB, MIB));
    rows.extend(stores(AREA + MIB, MIB));
    rows.push(Row::Event(Event::Fork { result: 101, flags: 0 }));
    rows.extend((0..20_000).map(|at| Row::Access(Kind::Load, AREA + at % 512 * 4096, 8)));
    let rows = Rows::new(rows).of(vec![process(0), process(1)]);
    let results = run(
        &[
            "os.manager=linux",
            "os.linux.khugepaged.scan_sleep_millisecs=1",
            "os.linux.cycles_per_ms=600",
        ],
        rows,
    );
    let found = results.manager.as_ref().unwrap();
    assert_eq!(counted(&found.upgrades), [("anonymous 1", "2M", "4K", "exceed-shared-pte", 68)]);
}

/// Region, requested size, obtained size, reason, pages.
type Counted<'a> = (&'a str, &'a str, &'a str, &'a str, u64);

fn counted(rows: &[SizeDecision]) -> Vec<Counted<'_>> {
    rows.iter().map(|row| (&*row.region, &*row.wanted, &*row.got, &*row.why, row.pages)).collect()
}

fn check(manager: &str, rows: &[Row], sizes: &[Counted<'_>], upgrades: &[Counted<'_>]) {
    let results = run(&[&format!("os.manager={manager}")], Rows::new(rows.to_vec()));
    let found = results.manager.as_ref().unwrap();
    assert_eq!(counted(&found.sizes), sizes, "{manager}");
    assert_eq!(counted(&found.upgrades), upgrades, "{manager}");
    // Each name is the name of a region under which accesses are counted, and each region has its
    // reasons.
    let reasons = found.page_sizes.iter().map(|row| row.region.as_str());
    let regions = results.regions.iter().map(|region| region.name.as_str());
    assert!(reasons.eq(regions), "{manager}: {:?}", found.page_sizes);
}

/// The managers merge both parts into one region, so the large page in the middle contains parts of
/// two arrays. It is counted for the array whose page was used first.
#[test]
fn sizes_are_of_the_allocation_that_was_used() {
    let whole = [("own.c:0", "2M", "2M", "obtained", 2), ("own.c:1", "2M", "2M", "obtained", 2)];
    check("linux", &program(), &whole, &[]);
    check("irix", &program(), &whole, &[]);
    check("base", &program(), &[], &[]);
}

/// An unmapped region keeps its counts. A region that is mapped in its place has counts of its own.
#[test]
fn what_is_mapped_in_place_of_another_is_another() {
    let mut rows = program();
    let (addr, bytes) = (AREA + 5 * MIB, 3 * MIB);
    rows.push(Row::Event(Event::Munmap { addr, bytes, result: 0 }));
    rows.push(mmap(addr, bytes));
    rows.extend(stores(addr, bytes));
    let sizes = [
        ("own.c:0", "2M", "2M", "obtained", 2),
        ("own.c:1", "2M", "2M", "obtained", 2),
        // The first MiB of this region lies in a block that begins in the previous region. The two
        // regions are not merged, because the previous one has advice.
        ("anonymous 3", "2M", "4K", "unaligned", 256),
        ("anonymous 3", "2M", "2M", "obtained", 1),
    ];
    check("linux", &rows, &sizes, &[]);
}

/// A large page that was requested by a call is counted for the region in which it begins.
#[test]
fn upgrades_are_of_the_region_that_they_begin_in() {
    let mut rows = vec![mmap(AREA, MIB)];
    rows.extend(stores(AREA, MIB));
    rows.push(mmap(AREA + MIB, 3 * MIB));
    rows.extend(stores(AREA + MIB, 2 * MIB));
    rows.push(advice(AREA, 4 * MIB, COLLAPSE));
    let sizes = [
        ("anonymous 1", "2M", "4K", "region-too-small", 256),
        ("anonymous 2", "2M", "4K", "base-pages-present", 256),
        ("anonymous 2", "2M", "2M", "obtained", 1),
    ];
    check("linux", &rows, &sizes, &[("anonymous 1", "2M", "2M", "obtained", 1)]);
}
