//! Tests the effects of system calls on large pages with the manager `linux`. Each call has the
//! effect that it has in Linux 6.18. No trace may end a run by a panic.

use std::collections::BTreeMap;

use crate::support::{Row, Rows};
use addr::Kind;
use machine::{Machine, Results, RunOptions, results::ManagerCounts};
use trace::{Event, FileId};

const AREA: u64 = 0x4000_0000;
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const PRIVATE: u32 = 2;
const ANONYMOUS: u32 = 0x20;
const POPULATE: u32 = 0x8000;
const DONTNEED: u32 = 4;
const HUGEPAGE: u32 = 14;
const NOHUGEPAGE: u32 = 15;
const POPULATE_READ: u32 = 22;
const POPULATE_WRITE: u32 = 23;
const COLLAPSE: u32 = 25;
const ENOMEM: i64 = -12;
const EINVAL: i64 = -22;

fn map(start: u64, bytes: u64, prot: u32, flags: u32, file: Option<FileId>) -> Row {
    Row::Event(Event::Mmap {
        addr: 0,
        bytes,
        prot,
        flags,
        fd: if file.is_some() { 3 } else { -1 },
        offset: 0,
        path: file.is_some().then(|| "/tmp/file".to_owned()),
        file,
        result: start as i64,
    })
}

fn anonymous(start: u64, bytes: u64) -> Row {
    map(start, bytes, 3, PRIVATE | ANONYMOUS, None)
}

fn advice_with(addr: u64, bytes: u64, advice: u32, result: i64) -> Row {
    Row::Event(Event::Madvise { addr, bytes, advice, result })
}

fn advice(addr: u64, bytes: u64, advice: u32) -> Row {
    advice_with(addr, bytes, advice, 0)
}

fn protect(addr: u64, bytes: u64, prot: u32, result: i64) -> Row {
    Row::Event(Event::Mprotect { addr, bytes, prot, result })
}

fn touches(kind: Kind, start: u64, bytes: u64) -> impl Iterator<Item = Row> {
    (start..start + bytes).step_by(PAGE as usize).map(move |addr| Row::Access(kind, addr, 8))
}

fn stores(start: u64, bytes: u64) -> impl Iterator<Item = Row> {
    touches(Kind::Store, start, bytes)
}

fn run(rows: Vec<Row>) -> Results {
    let settings = ["os.manager=linux".to_owned()];
    let machine = Machine::load("opteron-2008", &settings).unwrap();
    let options = RunOptions { check: true, progress: &mut |_| true };
    machine.run(&mut Rows::new(rows), options).unwrap()
}

fn manager(results: &Results) -> &ManagerCounts {
    results.manager.as_ref().unwrap()
}

/// The numbers of mapped MiB at the end: in pages of 2M, and in all pages.
fn mapped(results: &Results) -> (u64, u64) {
    let mut by_size: BTreeMap<&str, u64> = BTreeMap::new();
    for region in &manager(results).end.regions {
        for (size, bytes) in &region.mapped_by_size {
            *by_size.entry(size).or_insert(0) += bytes;
        }
    }
    let large = by_size.get("2M").copied().unwrap_or(0);
    (large / MIB, by_size.values().sum::<u64>() / MIB)
}

/// An allocator commits memory in parts of 256K, discards them, and uses them again.
#[test]
fn memory_that_is_discarded_by_256k_comes_back_in_base_pages() {
    let part = 256 << 10;
    let mut rows = vec![map(AREA, 8 * MIB, 0, PRIVATE | ANONYMOUS, None)];
    for at in (AREA..AREA + 8 * MIB).step_by(part as usize) {
        rows.push(protect(at, part, 3, 0));
        rows.extend(stores(at, part));
    }
    for at in (AREA..AREA + 8 * MIB).step_by(part as usize) {
        rows.push(advice(at, part, DONTNEED));
    }
    rows.extend(stores(AREA, 8 * MIB));
    let results = run(rows);
    assert_eq!(mapped(&results), (0, 8));
    let reasons: BTreeMap<&str, u64> =
        manager(&results).sizes.iter().map(|row| (&*row.why, row.pages)).collect();
    assert_eq!(reasons["table-kept"], 4, "the first page of each block: {reasons:?}");
}

/// A vector grows by half each time; `mremap` moves it to other addresses.
#[test]
fn pages_that_move_do_not_fault() {
    let (mut bytes, mut at, mut used) = (MIB, AREA, 0);
    let mut rows = vec![anonymous(at, bytes)];
    let mut pages = 0;
    while bytes < 64 * MIB {
        rows.extend(stores(at + used, bytes - used));
        pages += (bytes - used) / PAGE;
        let (more, to) = ((bytes * 3 / 2) >> 12 << 12, at + 256 * MIB + 3 * PAGE);
        rows.push(Row::Event(Event::Mremap {
            addr: at,
            old_bytes: bytes,
            new_bytes: more,
            flags: 1,
            new_addr: 0,
            result: to as i64,
        }));
        (used, bytes, at) = (bytes, more, to);
    }
    rows.extend(touches(Kind::Load, at, used));
    let results = run(rows);
    let faults: u64 = manager(&results).faults.values().sum();
    assert_eq!(manager(&results).faults["minor"], 0);
    assert!(faults <= pages, "{faults} faults for {pages} pages");
}

#[test]
fn rights_that_are_there_split_nothing() {
    let mut rows = vec![anonymous(AREA, 8 * MIB)];
    rows.extend(stores(AREA, 8 * MIB));
    for at in (AREA..AREA + 8 * MIB).step_by(64 << 10) {
        rows.push(protect(at, 32 << 10, 3, 0));
        rows.push(advice(at, 32 << 10, HUGEPAGE));
    }
    rows.extend(stores(AREA, 8 * MIB));
    // The regions have this advice already, so giving it again splits no region.
    let mut advised = rows.clone();
    advised.insert(1, advice(AREA, 8 * MIB, HUGEPAGE));
    assert_eq!(mapped(&run(advised)), (8, 8));
    let plain: Vec<Row> =
        rows.into_iter().filter(|row| !matches!(row, Row::Event(Event::Madvise { .. }))).collect();
    assert_eq!(mapped(&run(plain)), (8, 8));
}

#[test]
fn a_collapse_of_a_private_file_is_refused() {
    let file = FileId { device: 1, inode: 7, bytes: 8 * MIB };
    let mut rows = vec![map(AREA, 8 * MIB, 3, PRIVATE, Some(file))];
    rows.extend(touches(Kind::Load, AREA, 8 * MIB));
    rows.extend(stores(AREA + 3 * MIB, PAGE));
    rows.push(advice(AREA, 8 * MIB, COLLAPSE));
    rows.extend(touches(Kind::Load, AREA, 8 * MIB));
    assert_eq!(mapped(&run(rows)).0, 0);
}

#[test]
fn a_collapse_of_what_may_not_be_touched_is_done() {
    let mut rows = vec![anonymous(AREA, 8 * MIB), advice(AREA, 8 * MIB, NOHUGEPAGE)];
    rows.extend(touches(Kind::Store, AREA, 8 * MIB).step_by(2));
    rows.extend([advice(AREA, 8 * MIB, HUGEPAGE), protect(AREA, 8 * MIB, 0, 0)]);
    rows.extend([advice(AREA, 8 * MIB, COLLAPSE), protect(AREA, 8 * MIB, 1, 0)]);
    rows.extend(touches(Kind::Load, AREA, 8 * MIB));
    assert_eq!(mapped(&run(rows)), (8, 8));
}

/// A call that fails has done the part before the failure: the blocks before a missing block, or
/// the mappings before a hole.
#[test]
fn calls_that_fail_have_done_a_part() {
    let mut rows = vec![anonymous(AREA, 6 * MIB), advice(AREA, 6 * MIB, NOHUGEPAGE)];
    rows.extend(stores(AREA, 2 * MIB).chain(stores(AREA + 4 * MIB, 2 * MIB)));
    rows.push(advice(AREA, 6 * MIB, HUGEPAGE));
    rows.push(advice_with(AREA, 6 * MIB, COLLAPSE, EINVAL));
    assert_eq!(mapped(&run(rows.clone())), (2, 4));
    // A kernel before Linux 6.1 refuses every call with this advice and changes nothing.
    let mut old = rows.clone();
    old.pop();
    old.push(advice_with(AREA, 2 * MIB, COLLAPSE, EINVAL));
    assert_eq!(mapped(&run(old)), (0, 4));

    let hole = Event::Munmap { addr: AREA + 2 * MIB, bytes: 2 * MIB, result: 0 };
    let (mut discarded, mut forbidden) = (rows.clone(), rows.clone());
    discarded.push(Row::Event(hole.clone()));
    discarded.push(advice_with(AREA + MIB, 4 * MIB, DONTNEED, ENOMEM));
    assert_eq!(mapped(&run(discarded)), (0, 2));
    // From here on, the second half of the first block is a separate region, and the third block is
    // unchanged.
    forbidden.push(Row::Event(hole));
    forbidden.push(protect(AREA + MIB, 4 * MIB, 1, ENOMEM));
    forbidden.push(advice(AREA, 6 * MIB, COLLAPSE));
    assert_eq!(mapped(&run(forbidden)), (0, 4));

    // The call discards the pages before the first locked page.
    let mut rows = vec![anonymous(AREA, 6 * MIB)];
    rows.extend(stores(AREA, 6 * MIB));
    rows.push(Row::Event(Event::Mlock { addr: AREA + 4 * MIB, bytes: PAGE, flags: 0, result: 0 }));
    rows.push(advice_with(AREA, 6 * MIB, DONTNEED, EINVAL));
    assert_eq!(mapped(&run(rows)), (0, 2));
    // A call with invalid arguments, or for memory that cannot be discarded at all, changes
    // nothing.
    let mut rows = vec![anonymous(AREA, 6 * MIB)];
    rows.extend(stores(AREA, 6 * MIB));
    rows.push(advice_with(AREA + 1, 6 * MIB, DONTNEED, EINVAL));
    rows.push(advice_with(AREA, 6 * MIB, DONTNEED, EINVAL));
    rows.push(protect(AREA + MIB, 4 * MIB, 1, ENOMEM));
    rows.push(Row::Event(Event::Munlock { addr: 0, bytes: PAGE, result: ENOMEM }));
    rows.push(protect(0, PAGE, 0, ENOMEM));
    assert_eq!(mapped(&run(rows)), (6, 6));
}

#[test]
fn what_is_populated_is_in_memory() {
    let flags = PRIVATE | ANONYMOUS;
    for (rows, expected, anonymous_bytes) in [
        (vec![map(AREA, 4 * MIB, 3, flags | POPULATE, None)], (4, 4), 4 * MIB),
        (vec![map(AREA, MIB, 3, flags | POPULATE, None)], (0, 1), MIB),
        (vec![anonymous(AREA, 4 * MIB), advice(AREA, 4 * MIB, POPULATE_WRITE)], (4, 4), 4 * MIB),
        // The large page of zeros does not count as memory of the program.
        (vec![anonymous(AREA, 4 * MIB), advice(AREA, 4 * MIB, POPULATE_READ)], (0, 0), 0),
        (vec![anonymous(AREA, 4 * MIB)], (0, 0), 0),
    ] {
        // One access to another mapping ensures that the trace has an access.
        let (mut rows, reads) = (rows.clone(), expected == (0, 0) && rows.len() > 1);
        rows.extend([anonymous(AREA + 64 * MIB, PAGE)]);
        rows.extend(touches(Kind::Load, AREA + 64 * MIB, PAGE));
        let results = run(rows);
        assert_eq!(mapped(&results), expected);
        assert_eq!(manager(&results).end.bytes.anonymous, anonymous_bytes);
        let faults: u64 = manager(&results).faults.values().sum();
        assert_eq!(faults, 1, "the access alone faults");
        let zeros = manager(&results).linux.as_ref().unwrap().zero_bytes;
        assert_eq!(zeros >= 2 * MIB, reads, "{zeros} bytes of zeros");
    }
}
